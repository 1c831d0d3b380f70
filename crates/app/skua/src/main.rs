//! The `skua` command: arguments, configuration, wiring.

use std::process::ExitCode;

use clap::Parser as _;
use skua_cli::command_line::{Arguments, Command};

fn main() -> ExitCode {
    let arguments = Arguments::parse_from(skua_cli::command_line::arguments());
    start_log(
        arguments.verbose,
        matches!(arguments.command, Command::Top(_)),
    );
    skua_process::panics::end_process_with_its_threads();
    skua_kernel::capture_libbpf_log();
    if !matches!(arguments.command, Command::DetachWhenOrphaned) {
        skua_config::warn_of_unknown_variables();
        skua_kernel::orphans::guard();
    }
    let done = match arguments.command {
        Command::Run(run) => skua_daemon::run(&run),
        Command::Agent(agent) => skua_daemon::agent(&agent),
        Command::Analyzer(analyzer) => skua_daemon::analyzer(&analyzer),
        Command::Collector(arguments) => skua_collector::command::collector(&arguments),
        Command::Agents(agents) => skua_cli::agents::agents(&agents),
        Command::Top(arguments) => skua_cli::top::top(&arguments),
        Command::Console(arguments) => skua_cli::console::console(&arguments),
        Command::Flows(flows) => skua_cli::flows::flows(&flows),
        Command::Sockets(sockets) => skua_cli::sockets::sockets(&sockets),
        Command::Services(services) => skua_cli::sockets::services(&services),
        Command::Dns(dns) => skua_cli::dns::dns(&dns),
        Command::Links(links) => skua_cli::links::show(&links),
        Command::Changes(changes) => skua_cli::changes::show(&changes),
        Command::Query(query) => skua_cli::query::query(&query),
        Command::Capture(capture) => skua_cli::capture::capture(&capture),
        Command::Tap(arguments) => skua_cli::tap::tap(&arguments),
        Command::Injection(arguments) => skua_cli::injection::injection(&arguments),
        Command::Alert(arguments) => skua_cli::alert::alert(&arguments),
        Command::Client(arguments) => skua_cli::skydive::client(&arguments),
        Command::Replay(replay) => skua_cli::replay::replay(&replay),
        Command::Steer(arguments) => skua_cli::steer::steer(&arguments),
        Command::Extcap(arguments) => skua_cli::extcap::extcap(&arguments),
        Command::Lake(arguments) => skua_cli::lake::lake(&arguments),
        Command::Sql(arguments) => skua_archive::lake::sql::sql(&arguments),
        Command::Addresses(arguments) => skua_cli::addresses::addresses(&arguments),
        Command::User(user) => skua_cli::accounts::user(&user),
        Command::Token(token) => skua_cli::accounts::token(&token),
        Command::Doctor(doctor) => skua_cli::doctor::doctor(&doctor),
        Command::Config(config) => skua_config::print(&config),
        Command::Completions { shell } => skua_cli::command_line::completions(shell),
        Command::DetachWhenOrphaned => skua_process::orphans::detach_when_orphaned(),
        Command::Man { directory } => skua_cli::command_line::man_pages(&directory),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever read our output has seen enough (`skua flows | head`).
        Err(error) if skua_output::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("skua: {}", skua_output::one_line(&error));
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
        return log.with_writer(skua_cli::top::writer).init();
    }
    log.with_writer(std::io::stderr).with_ansi(terminal).init();
}
