//! The `skua` command: arguments, configuration, wiring.

mod api;
mod cli;
mod client;
mod collector;
mod config;
mod daemon;
mod output;
mod process;
mod runtime;
mod server;

use std::process::ExitCode;

use clap::Parser as _;
use cli::command_line::{Arguments, Command};

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    start_log(
        arguments.verbose,
        matches!(arguments.command, Command::Top(_)),
    );
    process::panics::end_process_with_its_threads();
    skua_kernel::capture_libbpf_log();
    if !matches!(arguments.command, Command::DetachWhenOrphaned) {
        config::warn_of_unknown_variables();
        skua_kernel::orphans::guard();
    }
    let done = match arguments.command {
        Command::Run(run) => daemon::run(&run),
        Command::Agent(agent) => daemon::agent(&agent),
        Command::Analyzer(analyzer) => daemon::analyzer(&analyzer),
        Command::Collector(arguments) => collector::command::collector(&arguments),
        Command::Agents(agents) => cli::agents::agents(&agents),
        Command::Top(arguments) => cli::top::top(&arguments),
        Command::Console(arguments) => cli::console::console(&arguments),
        Command::Flows(flows) => cli::flows::flows(&flows),
        Command::Sockets(sockets) => cli::sockets::sockets(&sockets),
        Command::Services(services) => cli::sockets::services(&services),
        Command::Query(query) => cli::query::query(&query),
        Command::Capture(capture) => cli::capture::capture(&capture),
        Command::Tap(arguments) => cli::tap::tap(&arguments),
        Command::Injection(arguments) => cli::injection::injection(&arguments),
        Command::Alert(arguments) => cli::alert::alert(&arguments),
        Command::Client(arguments) => cli::skydive::client(&arguments),
        Command::Replay(replay) => cli::replay::replay(&replay),
        Command::Steer(arguments) => cli::steer::steer(&arguments),
        Command::Lake(arguments) => cli::lake::lake(&arguments),
        Command::Sql(arguments) => runtime::lake::sql::sql(&arguments),
        Command::Addresses(arguments) => cli::addresses::addresses(&arguments),
        Command::User(user) => cli::accounts::user(&user),
        Command::Token(token) => cli::accounts::token(&token),
        Command::Doctor(doctor) => cli::doctor::doctor(&doctor),
        Command::Config(config) => config::print(&config),
        Command::Completions { shell } => cli::command_line::completions(shell),
        Command::BenchHook(hook) => cli::bench_hook::bench_hook(&hook),
        Command::DetachWhenOrphaned => process::orphans::detach_when_orphaned(),
        Command::Man { directory } => cli::command_line::man_pages(&directory),
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
        return log.with_writer(cli::top::writer).init();
    }
    log.with_writer(std::io::stderr).with_ansi(terminal).init();
}
