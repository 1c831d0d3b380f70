//! Arguments that several commands share.

use std::{path::PathBuf, time::Duration};

use clap::{Args, ValueEnum};
use skua_output::OutputFormat;

/// What to capture and how; overrides the configuration file and SKUA_… variables.
#[derive(Args, Debug, Clone, Default)]
pub struct CaptureArguments {
    /// Configuration file [default: /etc/skua.yaml if it exists]
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
    /// Leave out packets from or to a prefix; the longest prefix that contains an address decides
    #[arg(long, value_name = "PREFIX|@FILE|-")]
    pub exclude_net: Vec<String>,
    /// Count one in N packets
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub sampling: Option<u32>,
    /// Name of this host in the graph [default: its host name]
    #[arg(long, value_name = "NAME")]
    pub host_name: Option<String>,
    /// Decode tunnels (VXLAN, GENEVE, GRE, IP in IP, MPLS)
    #[arg(long)]
    pub tunnels: bool,
    /// Leave out Skua's own traffic, recognised by its sockets
    #[arg(long)]
    pub exclude_self: bool,
    /// Maximum number of entries in the flow table
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=500_000_000))]
    pub max_entries: Option<u32>,
    /// Time between drains of the flow table, like 10s or 500ms
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub scan_interval: Option<Duration>,
    /// How to capture
    #[arg(long, value_enum, value_name = "TYPE")]
    pub r#type: Option<CaptureType>,
    /// File with the kernel's types (BTF), for kernels without their own (packaging/btf-from-headers)
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
    /// The kernel's kind of hook.
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

/// Default socket of `skua run` and `skua analyzer`.
pub const ANALYZER: &str = "unix:/run/skua/skua.sock";

/// Address and credentials of a `skua run` or analyzer.
#[derive(Args, Clone, Debug)]
pub struct AnalyzerArguments {
    /// Address of `skua run`: unix:PATH on this host, HOST:PORT, or https://HOST:PORT with TLS
    #[arg(
        id = "analyzer",
        long = "analyzer",
        value_name = "ADDRESS",
        env = "SKUA_ANALYZER",
        default_value = ANALYZER,
        global = true
    )]
    pub address: String,
    /// File with a token; the variable SKUA_TOKEN can have the token itself
    #[arg(long, value_name = "FILE", global = true, conflicts_with = "username")]
    pub token_file: Option<PathBuf>,
    /// Name of the user
    #[arg(long, value_name = "NAME", global = true, requires = "password_file")]
    pub username: Option<String>,
    /// File with the user's password, - for standard input
    #[arg(long, value_name = "FILE", global = true, requires = "username")]
    pub password_file: Option<PathBuf>,
    /// PEM file with the CA of the server's certificate, or that certificate itself [default: the public CAs]
    #[arg(long, value_name = "FILE", global = true)]
    pub ca_cert: Option<PathBuf>,
    /// PEM file with a client's certificate
    #[arg(long, value_name = "FILE", global = true, requires = "client_key")]
    pub client_cert: Option<PathBuf>,
    /// PEM file with the client certificate's private key
    #[arg(long, value_name = "FILE", global = true, requires = "client_cert")]
    pub client_key: Option<PathBuf>,
}

impl AnalyzerArguments {
    /// Whether another one than this host's `skua run` is meant.
    pub fn is_named(&self) -> bool {
        self.address != ANALYZER
    }
}

#[derive(Args, Debug)]
#[command(after_help = crate::explain())]
pub struct ConfigArguments {
    /// Configuration file [default: /etc/skua.yaml if it exists]
    #[arg(long, value_name = "FILE", env = "SKUA_CONFIG")]
    pub config: Option<PathBuf>,
    /// Print a JSON Schema of the file instead, for editors
    #[arg(long)]
    pub schema: bool,
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
    /// Bytes in both directions
    Bytes,
    /// Packets in both directions
    Packets,
    /// Time of the last packet
    Last,
    /// Time of the first packet
    Start,
    /// Bytes sent
    Sent,
    /// Bytes received
    Received,
    /// Conversations that began
    Begun,
    /// Conversations that ended
    Ended,
    /// Retransmitted TCP segments
    Retransmits,
    /// Mean time of TCP's handshake
    Rtt,
}

impl Sort {
    /// The store's order.
    pub fn by(self) -> skua_flow::SortBy {
        skua_flow::SortBy::named(self.name()).unwrap_or_default()
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
            Self::Retransmits => "retransmits",
            Self::Rtt => "rtt",
        }
    }
}

/// A duration in the syntax of flags.
pub fn duration(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(duration) if duration < Duration::from_millis(10) => Err("at least 10ms, please".into()),
        Ok(duration) => Ok(duration),
        Err(error) => Err(format!("{error}; write it like 10s, 500ms or 1m30s")),
    }
}
