//! The `skua` command: arguments, configuration, wiring.

mod actions;
mod addresses;
mod agent;
mod alerts;
mod args;
mod bench_hook;
mod captures;
mod client;
mod collector;
mod config;
mod console;
mod descriptors;
#[cfg(test)]
mod docs;
mod doctor;
mod elements;
mod flows;
mod graph;
mod groups;
mod guard;
mod health;
mod heap;
mod history;
mod http;
mod injection;
mod lake;
mod metrics;
mod orphans;
mod output;
mod panics;
mod record_filter;
mod replay;
mod rights;
mod run;
mod server;
mod services;
mod session;
mod sockets;
mod state;
mod steer;
mod summary;
mod tap;
mod top;
mod unix_transport;

use std::process::ExitCode;

use args::{Arguments, Command};
use clap::Parser as _;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    start_log(
        arguments.verbose,
        matches!(arguments.command, Command::Top(_)),
    );
    panics::end_process_with_its_threads();
    skua_kernel::capture_libbpf_log();
    if !matches!(arguments.command, Command::DetachWhenOrphaned) {
        config::warn_of_unknown_variables();
        skua_kernel::orphans::guard();
    }
    let done = match arguments.command {
        Command::Run(run) => run::run(&run),
        Command::Agent(agent) => run::agent(&agent),
        Command::Analyzer(analyzer) => run::analyzer(&analyzer),
        Command::Collector(arguments) => collector::command::collector(&arguments),
        Command::Agents(agents) => agent::command::agents(&agents),
        Command::Top(arguments) => top::top(&arguments),
        Command::Console(arguments) => console::command::console(&arguments),
        Command::Flows(flows) => flows::flows(&flows),
        Command::Sockets(sockets) => sockets::command::sockets(&sockets),
        Command::Services(services) => sockets::command::services(&services),
        Command::Query(query) => graph::command::query(&query),
        Command::Capture(capture) => captures::command::capture(&capture),
        Command::Tap(arguments) => tap::command::tap(&arguments),
        Command::Injection(arguments) => injection::command::injection(&arguments),
        Command::Alert(arguments) => alerts::command::alert(&arguments),
        Command::Client(arguments) => graph::client::client(&arguments),
        Command::Replay(replay) => replay::replay(&replay),
        Command::Steer(arguments) => steer::command::steer(&arguments),
        Command::Lake(arguments) => lake::command::lake(&arguments),
        Command::Sql(arguments) => lake::sql::sql(&arguments),
        Command::Addresses(arguments) => addresses::command::addresses(&arguments),
        Command::User(user) => server::accounts::user(&user),
        Command::Token(token) => server::accounts::token(&token),
        Command::Doctor(doctor) => doctor::doctor(&doctor),
        Command::Config(config) => config::print(&config),
        Command::Completions { shell } => args::completions(shell),
        Command::BenchHook(hook) => bench_hook::bench_hook(&hook),
        Command::DetachWhenOrphaned => orphans::detach_when_orphaned(),
        Command::Man { directory } => args::man_pages(&directory),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever read our output has seen enough (`skua flows | head`).
        Err(error) if output::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("skua: {}", output::one_line(&error));
            ExitCode::FAILURE
        }
    }
}

/// Log to standard error: warnings by default, more with `-v`, or as SKUA_LOG says. Where somebody looks
/// at a `drawn` screen it is kept for that.
fn start_log(verbose: u8, drawn: bool) {
    use std::io::IsTerminal as _;
    let level = match verbose {
        0 => "warn",
        1 => "info",
        _ => "debug",
    };
    let filter = std::env::var("SKUA_LOG").unwrap_or_else(|_| level.into());
    let terminal = std::io::stderr().is_terminal();
    let log = tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::new(filter))
        .with_target(false);
    if drawn && terminal {
        let log = log.with_ansi(false).without_time();
        return log.with_writer(top::writer).init();
    }
    log.with_writer(std::io::stderr).with_ansi(terminal).init();
}
