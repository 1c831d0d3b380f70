//! Command-line arguments; the source of help texts, completions and man pages.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::{CommandFactory as _, Parser, Subcommand};
use skua_config::arguments::ConfigArguments;
use skua_daemon::arguments::{AgentArguments, AnalyzerRunArguments, RunArguments};

use crate::arguments::{DoctorArguments, FlowsArguments, ReplayArguments};

/// Sees every network conversation of this host from inside the kernel.
#[derive(Parser, Debug)]
#[command(name = "skua", version, max_term_width = 100, propagate_version = true)]
#[command(
    after_help = "Begin with `skua run` in one terminal and `skua flows` in another; \
    `skua doctor` says what this kernel allows. The guide is docs/guide.md."
)]
pub struct Arguments {
    /// Log more to standard error (twice: everything)
    #[arg(short, long, global = true, action = clap::ArgAction::Count, display_order = 1000)]
    pub verbose: u8,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand, Debug)]
pub enum Command {
    /// Watch all interfaces and answer queries until Ctrl-C
    Run(RunArguments),
    /// Watch all interfaces and report to an analyzer, which holds the graph of many hosts
    Agent(AgentArguments),
    /// Combine the reports of many agents and answer queries until Ctrl-C; it captures nothing itself
    Analyzer(AnalyzerRunArguments),
    /// Receive sFlow from agents and sum it up by service and window
    Collector(skua_collector::command::CollectorArguments),
    /// Show the agents of an analyzer
    Agents(crate::agents::AgentsArguments),
    /// Show everything live in the terminal: from the running `skua run`, or captured by this command
    Top(Box<crate::top::TopArguments>),
    /// Show conversations: from the running `skua run`, or captured by this command
    Flows(FlowsArguments),
    /// Show sockets: their processes, and how healthy TCP is
    Sockets(crate::sockets::SocketsArguments),
    /// Show services, their clients and which service calls which
    Services(crate::sockets::ServicesArguments),
    /// Show which names were asked for, what the answers were and how long they took
    Dns(crate::dns::DnsArguments),
    /// Show which links lose packets, by conversations that were counted at both ends
    Links(crate::links::LinksArguments),
    /// Show what has changed in the topology between two moments
    Changes(crate::changes::ChangesArguments),
    /// Query the topology and its flows in Gremlin
    Query(crate::query::QueryArguments),
    /// Capture on the nodes that a query selects, now and later
    Capture(crate::capture::CaptureArguments),
    /// Copy packets to monitors
    Tap(crate::tap::TapArguments),
    /// Inject packets and observe what happens to them
    Injection(crate::injection::InjectionArguments),
    /// Detect jumps of values in packets, and steer those packets elsewhere
    Steer(crate::steer::SteerArguments),
    /// Raise an alert when a query has results
    Alert(crate::alert::AlertArguments),
    /// Use these and more commands under the names that Skydive's client has
    Client(crate::skydive::ClientArguments),
    /// Show the conversations in a capture file (pcap, pcapng, also with gzip, zstd or lz4; - for standard input)
    Replay(ReplayArguments),
    /// Capture for Wireshark, which starts this command itself
    Extcap(crate::extcap::ExtcapArguments),
    /// List, compact and clean up the lake of flows on disk
    Lake(crate::lake::LakeArguments),
    /// Query the lake in SQL (in builds with `--features sql`)
    Sql(skua_archive::lake::sql::SqlArguments),
    /// Show or change which addresses a running `skua run` counts
    Addresses(crate::addresses::AddressesArguments),
    /// Print a link to the web console that logs in once
    Console(crate::console::ConsoleArguments),
    /// Make and list the users of the API
    User(crate::accounts::UserArguments),
    /// Make and list the tokens of the API
    Token(crate::accounts::TokenArguments),
    /// Report what this kernel supports, which hooks Skua uses and why, and what was lost
    Doctor(DoctorArguments),
    /// Show the configuration, or explain every key with --help
    Config(ConfigArguments),
    /// Print shell completions
    Completions {
        /// Shell that the completions are for
        shell: clap_complete::Shell,
    },
    /// Detach classifiers when the process at the other end of standard input ends
    #[command(hide = true, name = skua_kernel::orphans::SUBCOMMAND)]
    DetachWhenOrphaned,
    /// Write man pages into a directory, one for each command
    Man {
        /// Directory to write to
        directory: PathBuf,
    },
}

/// An argument that is a condition and not an option, though it begins with a minus: the other sign for "not".
fn condition(argument: &str) -> Option<String> {
    let rest = argument
        .strip_prefix('-')
        .filter(|rest| !rest.starts_with('-'))?;
    (skua_condition::looks(rest) == skua_condition::Looks::Conditions).then(|| format!("!{rest}"))
}

/// The arguments of this process. Wireshark gives no subcommand.
pub fn arguments() -> Vec<std::ffi::OsString> {
    let all = std::env::args_os();
    let mut all: Vec<_> = all
        .map(|argument| match argument.to_str().and_then(condition) {
            Some(condition) => condition.into(),
            None => argument,
        })
        .collect();
    let first = all.get(1).map(|first| first.to_string_lossy().into_owned());
    if let Some(word) = first.as_deref().and_then(crate::extcap::subcommand) {
        all.insert(1, word.into());
    }
    all
}

pub fn completions(shell: clap_complete::Shell) -> anyhow::Result<()> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "skua", &mut text);
    use std::io::Write as _;
    std::io::stdout().write_all(&text)?;
    Ok(())
}

pub fn man_pages(directory: &std::path::Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(directory)
        .and_then(|()| clap_mangen::generate_to(Arguments::command(), directory))
        .with_context(|| format!("cannot write man pages to {}", directory.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_with_a_minus_are_no_options() {
        assert_eq!(condition("-user:root").as_deref(), Some("!user:root"));
        assert_eq!(condition("-\"a b\"").as_deref(), Some("!\"a b\""));
        for option in [
            "-o",
            "-n5",
            "-n=5",
            "--where=port:1",
            "-",
            "--",
            "port:80",
            "-ojson",
        ] {
            assert_eq!(condition(option), None, "{option}");
        }
    }
}
