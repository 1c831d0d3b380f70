//! Arguments of `skua run`, `skua agent` and `skua analyzer`.

use std::path::PathBuf;

use clap::Args;
use skua_config::{
    arguments::{AnalyzerArguments, CaptureArguments, SummaryFormat},
    export::ExportArguments,
};

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
    pub export: ExportArguments,
    /// Print a last JSON object with all sums on standard error
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub summary: Option<SummaryFormat>,
}

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  skua agent                                          reports to an analyzer on this host
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
    pub export: ExportArguments,
    #[command(flatten)]
    pub analyzer: AnalyzerArguments,
    /// Print a last JSON object with all sums on standard error
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub summary: Option<SummaryFormat>,
}

#[derive(Args, Debug)]
pub struct AnalyzerRunArguments {
    /// Configuration file [default: /etc/skua.yaml if it exists]
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
