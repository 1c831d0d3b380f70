//! `skua client`: the commands under the names that Skydive has for them.

use clap::{Args, Subcommand};
use skua_client::Client;
use skua_config::arguments::AnalyzerArguments;
use skua_output as output;

use crate::{
    alert::AlertArguments, capture::CaptureArguments, elements, injection::InjectionArguments,
    query::QueryArguments,
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
    /// Export the complete graph, or import it from a file
    Topology(elements::TopologyArguments),
    /// Show the hooks and interfaces in use
    Status(StatusArguments),
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
        ClientCommand::Topology(arguments) => elements::topology(arguments),
        ClientCommand::Status(arguments) => {
            let client = Client::connect_or_fail(&arguments.analyzer)?;
            output::pretty(&client.object("/api/status")?)
        }
    }
}
