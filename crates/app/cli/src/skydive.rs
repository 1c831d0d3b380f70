//! `skua client`: the commands under the names that Skydive has for them.

use std::path::PathBuf;

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use skua_client::Client;
use skua_config::arguments::AnalyzerArguments;
use skua_output as output;

use crate::{
    alert::AlertArguments, capture::CaptureArguments, elements, injection::InjectionArguments,
    query::QueryArguments, shell::ShellArguments, workflow::WorkflowArguments,
};

#[derive(Args, Debug)]
pub struct ClientArguments {
    #[command(subcommand)]
    pub command: ClientCommand,
}

#[derive(Subcommand, Debug)]
pub enum ClientCommand {
    /// Query the topology and its flows in Gremlin
    Query(QueryArguments),
    /// Capture on the nodes that a query selects, now and later
    Capture(CaptureArguments),
    /// Inject packets and observe what happens to them
    #[command(visible_alias = "inject-packet")]
    Injection(InjectionArguments),
    /// Raise an alert when a query has results
    Alert(AlertArguments),
    /// Make nodes, and change those made
    Node(elements::NodeArguments),
    /// Make edges, and change those made
    Edge(elements::EdgeArguments),
    /// Make nodes, or add metadata to nodes that a query selects
    #[command(visible_alias = "node-rule")]
    Noderule(elements::NodeRuleArguments),
    /// Make edges between nodes that queries select
    #[command(visible_alias = "edge-rule")]
    Edgerule(elements::EdgeRuleArguments),
    /// Count the packets of a capture file: its flows are then there as those of a capture
    Pcap(PcapArguments),
    /// Ask queries one after the other, with completion and history
    Shell(ShellArguments),
    /// Make and call workflows: scripts that use the API
    Workflow(WorkflowArguments),
    /// Query the graph, export it completely, or import it from a file
    Topology(elements::TopologyArguments),
    /// Show the hooks and interfaces in use
    Status(StatusArguments),
}

#[derive(Args, Debug)]
#[command(after_help = "\
Example:
  skua client pcap --trace dump.pcap
  skua client query 'G.Flows().Has(\"CaptureID\", \"…\")'

The answer has the UUID that is the CaptureID of its flows. docs/captures.md explains it.")]
pub struct PcapArguments {
    /// The capture file, pcap or pcapng
    #[arg(long, short, value_name = "FILE")]
    pub trace: PathBuf,
    #[command(flatten)]
    pub analyzer: AnalyzerArguments,
}

/// Bytes of a capture file at most, as the server takes them.
const LARGEST: u64 = 64 << 20;

fn pcap(arguments: &PcapArguments) -> anyhow::Result<()> {
    let path = arguments.trace.display();
    let size =
        std::fs::metadata(&arguments.trace).with_context(|| format!("cannot read {path}"))?;
    if size.len() > LARGEST {
        bail!("{path} has more than 64 MiB: `skua replay` reads files of any size");
    }
    let bytes = std::fs::read(&arguments.trace).with_context(|| format!("cannot read {path}"))?;
    let client = Client::connect_or_fail(&arguments.analyzer)?;
    output::pretty(&client.upload("/api/pcap", skua_server::paths::PCAP, &bytes)?)
}

#[derive(Args, Debug)]
pub struct StatusArguments {
    #[command(flatten)]
    pub analyzer: AnalyzerArguments,
}

pub fn client(arguments: &ClientArguments) -> anyhow::Result<()> {
    match &arguments.command {
        ClientCommand::Query(query) => crate::query::query(query),
        ClientCommand::Capture(capture) => crate::capture::capture(capture),
        ClientCommand::Injection(arguments) => crate::injection::injection(arguments),
        ClientCommand::Alert(arguments) => crate::alert::alert(arguments),
        ClientCommand::Node(arguments) => elements::node(arguments),
        ClientCommand::Edge(arguments) => elements::edge(arguments),
        ClientCommand::Noderule(arguments) => elements::node_rule(arguments),
        ClientCommand::Edgerule(arguments) => elements::edge_rule(arguments),
        ClientCommand::Pcap(arguments) => pcap(arguments),
        ClientCommand::Shell(arguments) => crate::shell::shell(arguments),
        ClientCommand::Workflow(arguments) => crate::workflow::workflow(arguments),
        ClientCommand::Topology(arguments) => elements::topology(arguments),
        ClientCommand::Status(arguments) => {
            let client = Client::connect_or_fail(&arguments.analyzer)?;
            output::pretty(&client.object("/api/status")?)
        }
    }
}
