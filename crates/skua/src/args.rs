//! Command-line arguments; help texts, completions and man pages come from here.

use std::{path::PathBuf, time::Duration};

use anyhow::Context as _;
use clap::{Args, CommandFactory as _, Parser, Subcommand, ValueEnum};

/// Sees every network conversation of this host from inside the kernel.
#[derive(Parser, Debug)]
#[command(name = "skua", version, max_term_width = 100, propagate_version = true)]
#[command(
    after_help = "Begin with `skua run` in one terminal and `skua flows` in another; \
    `skua doctor` says what this kernel allows. The guide is docs/guide.md."
)]
pub struct Arguments {
    /// Log more to standard error (twice: everything)
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand, Debug)]
pub enum Command {
    /// Watch all interfaces and answer questions until Ctrl-C
    Run(RunArguments),
    /// Watch all interfaces and tell an analyzer, which has the graph of many hosts
    Agent(AgentArguments),
    /// Bring together what agents tell, and answer questions until Ctrl-C; watches nothing itself
    Analyzer(AnalyzerRunArguments),
    /// Take what agents tell in sFlow, and sum it up by service and window
    Collector(crate::collector::command::CollectorArguments),
    /// Show the agents of an analyzer
    Agents(crate::agent::command::AgentsArguments),
    /// Look at all of it in the terminal: of the running `skua run`, or captured on the spot
    Top(Box<crate::top::TopArguments>),
    /// Show conversations: of the running `skua run`, or captured on the spot
    Flows(FlowsArguments),
    /// Show sockets: whose they are, and how TCP fares
    Sockets(crate::sockets::command::SocketsArguments),
    /// Show services, their clients and who calls whom
    Services(crate::sockets::command::ServicesArguments),
    /// Ask for the topology and its flows in Gremlin
    Query(crate::graph::command::QueryArguments),
    /// Capture on the nodes that a query finds, also those to come
    Capture(crate::captures::command::CaptureArguments),
    /// Copy packets to monitors
    Tap(crate::tap::command::TapArguments),
    /// Inject packets and see what becomes of them
    Injection(crate::injection::command::InjectionArguments),
    /// Detect jumps of values in packets, and steer those packets elsewhere
    Steer(crate::steer::command::SteerArguments),
    /// Be told when a query finds something
    Alert(crate::alerts::command::AlertArguments),
    /// These and more commands under the names that Skydive has for them
    Client(crate::graph::client::ClientArguments),
    /// Show the conversations in a capture file (pcap, pcapng; - for standard input)
    Replay(ReplayArguments),
    /// List, compact and clean up the lake of flows on disk
    Lake(crate::lake::command::LakeArguments),
    /// Ask the lake in SQL, in builds that have an engine for it
    Sql(crate::lake::sql::SqlArguments),
    /// Show or change which addresses a running `skua run` counts
    Addresses(crate::addresses::command::AddressesArguments),
    /// Print a link to the web console that logs in once
    Console(crate::console::command::ConsoleArguments),
    /// Make and list the users of the API
    User(crate::server::accounts::UserArguments),
    /// Make and list the tokens of the API
    Token(crate::server::accounts::TokenArguments),
    /// Say what this kernel allows, which hooks are used and why, and what is lost
    Doctor(DoctorArguments),
    /// Show the configuration, or explain every key with --help
    Config(ConfigArguments),
    /// Print shell completions
    Completions {
        /// For which shell
        shell: clap_complete::Shell,
    },
    /// Attach the flow program and wait, for `make bench-flow`
    #[command(hide = true)]
    BenchHook(BenchHookArguments),
    /// Detach classifiers when the process at the other end of standard input is gone
    #[command(hide = true, name = skua_kernel::orphans::SUBCOMMAND)]
    DetachWhenOrphaned,
    /// Write man pages into a directory, one for each command
    Man {
        /// Where to
        directory: PathBuf,
    },
}

/// What to capture and how; overrides the configuration file and SKUA_… variables.
#[derive(Args, Debug, Clone, Default)]
pub struct CaptureArguments {
    /// Configuration file [default: /etc/skua.yaml if it is there]
    #[arg(long, value_name = "FILE", env = "SKUA_CONFIG")]
    pub config: Option<PathBuf>,
    /// Interface to watch; may be given several times [default: all that are up]
    #[arg(short, long, value_name = "IF")]
    pub interface: Vec<String>,
    /// Watch the interfaces of all network namespaces
    #[arg(long)]
    pub all_netns: bool,
    /// Count only what matches a pcap expression, like 'tcp port 443 and net 10.0.0.0/8'
    #[arg(short, long, value_name = "EXPRESSION")]
    pub filter: Option<String>,
    /// Count only packets from or to a prefix, like 10.0.0.0/8; @FILE has one a line, - is standard
    /// input; may be given several times
    #[arg(long, value_name = "PREFIX|@FILE|-")]
    pub include_net: Vec<String>,
    /// Leave out packets from or to a prefix; the longest prefix that holds an address decides
    #[arg(long, value_name = "PREFIX|@FILE|-")]
    pub exclude_net: Vec<String>,
    /// Count one packet of N
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub sampling: Option<u32>,
    /// Name of this host in the graph [default: what it is called]
    #[arg(long, value_name = "NAME")]
    pub host_name: Option<String>,
    /// Look into tunnels (VXLAN, GENEVE, GRE, IP in IP, MPLS)
    #[arg(long)]
    pub tunnels: bool,
    /// Leave out Skua's own traffic, known by its sockets
    #[arg(long)]
    pub exclude_self: bool,
    /// Entries of the flow table
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=500_000_000))]
    pub max_entries: Option<u32>,
    /// Time between drains of the flow table, like 10s or 500ms
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub scan_interval: Option<Duration>,
    /// How to capture
    #[arg(long, value_enum, value_name = "TYPE")]
    pub r#type: Option<CaptureType>,
    /// File with the kernel's types (BTF), where the kernel has none (packaging/btf-from-headers)
    #[arg(long, value_name = "FILE")]
    pub btf: Option<PathBuf>,
    /// Use this hook alone, whatever the kernel has
    #[arg(long, value_enum, value_name = "HOOK", hide = true)]
    pub hook: Option<Hook>,
}

/// Hooks to insist on, for tests and measurements.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hook {
    Tcx,
    Clsact,
    Socket,
    Xdp,
}

impl Hook {
    /// The kernel's side of it.
    pub fn kind(self) -> skua_kernel::HookKind {
        match self {
            Self::Tcx => skua_kernel::HookKind::Tcx,
            Self::Clsact => skua_kernel::HookKind::Clsact,
            Self::Socket => skua_kernel::HookKind::Socket,
            Self::Xdp => skua_kernel::HookKind::Xdp,
        }
    }
}

/// Kinds of capture.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CaptureType {
    /// The best that works: ebpf, else afpacket
    Auto,
    /// Flow table in the kernel at tcx, or clsact before 6.6
    Ebpf,
    /// Flow table in the kernel at XDP: received packets only, before anything else
    Xdp,
    /// Packets by a shared ring (TPACKET_V3), counted in user space
    Afpacket,
    /// Packets by libpcap, counted in user space
    Pcap,
}

/// Where `skua run` and `skua analyzer` are asked when nothing else is said.
pub const ANALYZER: &str = "unix:/run/skua/skua.sock";

/// Which `skua run` to ask, and as whom.
#[derive(Args, Clone, Debug)]
pub struct AnalyzerArguments {
    /// Where `skua run` is asked: unix:PATH on this host, HOST:PORT, or https://HOST:PORT with TLS
    #[arg(
        id = "analyzer",
        long = "analyzer",
        value_name = "ADDRESS",
        env = "SKUA_ANALYZER",
        default_value = ANALYZER,
        global = true
    )]
    pub address: String,
    /// File with a token to ask with; the variable SKUA_TOKEN has the token itself
    #[arg(long, value_name = "FILE", global = true, conflicts_with = "username")]
    pub token_file: Option<PathBuf>,
    /// Name of a user to ask as
    #[arg(long, value_name = "NAME", global = true, requires = "password_file")]
    pub username: Option<String>,
    /// File with the user's password, - for standard input
    #[arg(long, value_name = "FILE", global = true, requires = "username")]
    pub password_file: Option<PathBuf>,
    /// PEM file with the CA of its certificate, or that itself [default: the public CAs]
    #[arg(long, value_name = "FILE", global = true)]
    pub ca_cert: Option<PathBuf>,
    /// PEM file with a client's certificate to ask with
    #[arg(long, value_name = "FILE", global = true, requires = "client_key")]
    pub client_cert: Option<PathBuf>,
    /// PEM file with its private key
    #[arg(long, value_name = "FILE", global = true, requires = "client_cert")]
    pub client_key: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub struct RunArguments {
    #[command(flatten)]
    pub capture: CaptureArguments,
    /// Address of the JSON API and /metrics; may be given several times [default: 127.0.0.1:8082]
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: Vec<std::net::SocketAddr>,
    /// Socket by which commands on this host ask [default: /run/skua/skua.sock if it can be had]
    #[arg(long, value_name = "PATH")]
    pub socket: Option<String>,
    #[command(flatten)]
    pub export: crate::collector::settings::ExportArguments,
    /// Print a last JSON object with all sums on standard error
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub summary: Option<SummaryFormat>,
}

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  skua agent                                          tells an analyzer on this host
  skua agent --analyzer https://analyzer:8082 --token-file /etc/skua/agent.token
  skua agent --analyzer 127.0.0.1:8082,127.0.0.1:9082  the second when the first is gone")]
pub struct AgentArguments {
    #[command(flatten)]
    pub capture: CaptureArguments,
    /// Address of the agent's own JSON API and /metrics, on loopback [default: 127.0.0.1:8081]
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: Option<std::net::SocketAddr>,
    /// Socket by which commands on this host ask [default: /run/skua-agent/skua.sock if it can be had]
    #[arg(long, value_name = "PATH")]
    pub socket: Option<String>,
    /// PEM file with public keys of analyzers: take only captures that one of them signed
    #[arg(long, value_name = "FILE")]
    pub analyzer_key: Option<String>,
    #[command(flatten)]
    pub export: crate::collector::settings::ExportArguments,
    #[command(flatten)]
    pub analyzer: AnalyzerArguments,
    /// Print a last JSON object with all sums on standard error
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub summary: Option<SummaryFormat>,
}

#[derive(Args, Debug)]
pub struct AnalyzerRunArguments {
    /// Configuration file [default: /etc/skua.yaml if it is there]
    #[arg(long, value_name = "FILE", env = "SKUA_CONFIG")]
    pub config: Option<PathBuf>,
    /// Address of the JSON API and /metrics, and for agents; may be given several times
    /// [default: 127.0.0.1:8082]
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: Vec<std::net::SocketAddr>,
    /// Socket by which commands on this host ask [default: /run/skua/skua.sock if it can be had]
    #[arg(long, value_name = "PATH")]
    pub socket: Option<String>,
    /// Name of this host, which no agent may have [default: what it is called]
    #[arg(long, value_name = "NAME")]
    pub host_name: Option<String>,
}

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  skua flows                                      of the running `skua run`
  skua flows --filter 'tcp port 443' --sort bytes --limit 20
  skua flows --interface eth0 --duration 10s      capture here and now
  skua flows --follow --output json | jq .        new and changed flows as they come
  skua flows --since 1h --by service,process --top 20   of the lake (lake.directory), no server needed
  skua flows --since 1day --where process=nginx --by client_address --sort received")]
pub struct FlowsArguments {
    #[command(flatten)]
    pub capture: CaptureArguments,
    /// Capture on the spot for so long, like 10s
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub duration: Option<Duration>,
    /// Go on showing what is new or has changed
    #[arg(short = 'F', long)]
    pub follow: bool,
    #[command(flatten)]
    pub print: Printing,
    /// Order of rows
    #[arg(long, value_enum, default_value = "rate", value_name = "BY")]
    pub sort: Sort,
    /// Rows at most
    #[arg(short = 'n', long, visible_alias = "top", value_name = "N")]
    pub limit: Option<usize>,
    /// Only conversations that have not ended
    #[arg(long)]
    pub active: bool,
    /// Sums by process, container or service instead of each conversation; with --since by up to six
    /// fields (docs/lake.md)
    #[arg(long, value_name = "WHAT,…")]
    pub by: Option<String>,
    #[command(flatten)]
    pub lake: crate::lake::command::LakeQuestion,
    #[command(flatten)]
    pub analyzer: AnalyzerArguments,
    /// Print a last JSON object with all sums on standard error
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub summary: Option<SummaryFormat>,
}

#[derive(Args, Debug)]
pub struct ReplayArguments {
    /// The file, - for standard input
    pub file: PathBuf,
    /// Count only what matches a pcap expression
    #[arg(short, long, value_name = "EXPRESSION")]
    pub filter: Option<String>,
    /// Count only packets from or to a prefix, like 10.0.0.0/8; @FILE has one a line, - is standard
    /// input; may be given several times
    #[arg(long, value_name = "PREFIX|@FILE|-")]
    pub include_net: Vec<String>,
    /// Leave out packets from or to a prefix; the longest prefix that holds an address decides
    #[arg(long, value_name = "PREFIX|@FILE|-")]
    pub exclude_net: Vec<String>,
    /// Look into tunnels
    #[arg(long)]
    pub tunnels: bool,
    /// Count one packet of N
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub sampling: u32,
    /// Flows held at a time
    #[arg(long, value_name = "N", default_value_t = 4_000_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub max_entries: u32,
    #[command(flatten)]
    pub print: Printing,
    /// Order of rows
    #[arg(long, value_enum, default_value = "bytes", value_name = "BY")]
    pub sort: Sort,
    /// Rows at most
    #[arg(short = 'n', long, value_name = "N")]
    pub limit: Option<usize>,
    /// Print a last JSON object with all sums on standard error
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub summary: Option<SummaryFormat>,
    /// End with status 1 when the file is damaged or cut off; what could be read is printed all the same
    #[arg(long)]
    pub strict: bool,
}

#[derive(Args, Debug)]
pub struct DoctorArguments {
    #[command(flatten)]
    pub print: Printing,
    #[command(flatten)]
    pub analyzer: AnalyzerArguments,
}

#[derive(Args, Debug)]
#[command(after_help = crate::config::explain())]
pub struct ConfigArguments {
    /// Configuration file [default: /etc/skua.yaml if it is there]
    #[arg(long, value_name = "FILE", env = "SKUA_CONFIG")]
    pub config: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub struct BenchHookArguments {
    /// Where to attach
    #[arg(long, value_name = "IF")]
    pub interface: String,
    /// Entries of the flow table
    #[arg(long, value_name = "N", default_value_t = 500_000)]
    pub max_entries: u32,
    /// Prefixes that an address set may have
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub max_addresses: u32,
    /// Prefixes to leave out
    #[arg(long, value_name = "PREFIX|@FILE|-")]
    pub exclude_net: Vec<String>,
}

/// Formats of tables.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum OutputFormat {
    /// For people
    Table,
    /// One JSON object a line
    Json,
    /// Comma-separated values with a header
    Csv,
}

/// How results are printed.
#[derive(Args, Clone, Copy, Debug)]
pub struct Printing {
    /// How to print
    #[arg(
        short,
        long,
        alias = "format",
        value_enum,
        default_value = "table",
        value_name = "FORMAT"
    )]
    pub output: OutputFormat,
}

/// Formats of summaries.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum SummaryFormat {
    /// For people
    Text,
    /// One JSON object
    Json,
}

/// Orders of rows, the greatest first.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sort {
    /// Bits per second in the last interval
    Rate,
    /// Bytes both ways
    Bytes,
    /// Packets both ways
    Packets,
    /// Time of the last packet
    Last,
    /// Time of the first packet
    Start,
    /// Bytes sent; with --since
    Sent,
    /// Bytes received; with --since
    Received,
    /// Conversations that began; with --since
    Begun,
    /// Conversations that ended; with --since
    Ended,
    /// TCP segments that came again; with --since
    Retransmitted,
    /// Mean time of TCP's handshake; with --since
    Rtt,
}

impl Sort {
    /// The store's order; it has fewer than the lake.
    pub fn by(self) -> anyhow::Result<skua_flow::SortBy> {
        Ok(match self {
            Self::Rate => skua_flow::SortBy::Rate,
            Self::Bytes => skua_flow::SortBy::Bytes,
            Self::Packets => skua_flow::SortBy::Packets,
            Self::Last => skua_flow::SortBy::Last,
            Self::Start => skua_flow::SortBy::First,
            other => anyhow::bail!("--sort {} needs --since: it is of the lake", other.name()),
        })
    }

    /// Name in the API.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::Bytes => "bytes",
            Self::Packets => "packets",
            Self::Last => "last",
            Self::Start => "start",
            Self::Sent => "sent",
            Self::Received => "received",
            Self::Begun => "begun",
            Self::Ended => "ended",
            Self::Retransmitted => "retransmitted",
            Self::Rtt => "rtt",
        }
    }
}

/// A time as flags give it.
pub fn duration(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(duration) if duration < Duration::from_millis(10) => Err("at least 10ms, please".into()),
        Ok(duration) => Ok(duration),
        Err(error) => Err(format!("{error}; write it like 10s, 500ms or 1m30s")),
    }
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
