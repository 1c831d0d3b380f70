//! `skua client node|edge|noderule|edgerule|topology`.

use std::{io::Read as _, path::PathBuf};

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Map, Value, json};
use skua_client::Client;
use skua_config::arguments::AnalyzerArguments;
use skua_output as output;
use skua_output::{Column, OutputFormat};

/// Commands that all kinds of elements have.
#[derive(Subcommand, Debug)]
pub enum CommonCommand {
    /// Show all
    List {
        /// How to print
        #[arg(short, long, value_enum, default_value = "json", value_name = "FORMAT")]
        output: OutputFormat,
    },
    /// Show one
    Get {
        /// Its identifier
        id: String,
    },
    /// Delete some
    Delete {
        /// Their identifiers
        #[arg(required = true)]
        ids: Vec<String>,
    },
}

/// New metadata of an existing element.
#[derive(Args, Debug)]
pub struct UpdateArguments {
    /// Identifiers
    #[arg(required = true)]
    pub ids: Vec<String>,
    /// Metadata to add or change, like State=DOWN
    #[arg(short, long, value_name = "KEY=VALUE")]
    pub add: Vec<String>,
    /// Keys to remove
    #[arg(short, long, value_name = "KEY")]
    pub remove: Vec<String>,
}

#[derive(Args, Debug)]
pub struct NodeArguments {
    #[command(subcommand)]
    pub command: NodeCommand,
    #[command(flatten)]
    pub analyzer: AnalyzerArguments,
}

#[derive(Subcommand, Debug)]
pub enum NodeCommand {
    /// Make a node
    Create {
        /// Its `Name`
        #[arg(long, value_name = "NAME")]
        node_name: String,
        /// Its `Type`
        #[arg(long, value_name = "TYPE")]
        node_type: String,
        /// More metadata: 'k1=v1, k2=v2', or an object in JSON
        #[arg(long, default_value = "")]
        metadata: String,
        /// Host that it belongs to
        #[arg(long, default_value = "")]
        host: String,
        /// Identifier [default: a new one]
        #[arg(long, default_value = "")]
        id: String,
    },
    /// Change the metadata of nodes that a user has made
    Update(UpdateArguments),
    #[command(flatten)]
    Common(CommonCommand),
}

#[derive(Args, Debug)]
pub struct EdgeArguments {
    #[command(subcommand)]
    pub command: EdgeCommand,
    #[command(flatten)]
    pub analyzer: AnalyzerArguments,
}

#[derive(Subcommand, Debug)]
pub enum EdgeCommand {
    /// Make an edge
    Create {
        /// Identifier of the node at its start
        #[arg(long, value_name = "ID")]
        parent: String,
        /// Identifier of the node at its end
        #[arg(long, value_name = "ID")]
        child: String,
        /// Its `RelationType`, like layer2
        #[arg(long, value_name = "TYPE", visible_alias = "relationtype")]
        edge_type: String,
        /// More metadata: 'k1=v1, k2=v2', or an object in JSON
        #[arg(long, default_value = "")]
        metadata: String,
        /// Host that it belongs to
        #[arg(long, default_value = "")]
        host: String,
        /// Identifier [default: a new one]
        #[arg(long, default_value = "")]
        id: String,
    },
    /// Change the metadata of edges that a user has made
    Update(UpdateArguments),
    #[command(flatten)]
    Common(CommonCommand),
}

/// What a rule about nodes does.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Makes a node
    Create,
    /// Adds metadata to the nodes that --query selects
    Update,
}

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  skua client noderule create --action update --query 'G.V().Has(\"Name\", Regex(\"eth.*\"))' \\
      --metadata Owner=network-team
  skua client noderule create --action create --node-name ToR1 --node-type fabric
  skua client noderule list")]
pub struct NodeRuleArguments {
    #[command(subcommand)]
    pub command: NodeRuleCommand,
    #[command(flatten)]
    pub analyzer: AnalyzerArguments,
}

#[derive(Subcommand, Debug)]
pub enum NodeRuleCommand {
    /// Make a rule
    Create {
        /// What it does
        #[arg(long, value_enum)]
        action: Action,
        /// Selects the nodes
        #[arg(long, default_value = "")]
        query: String,
        /// Metadata: 'k1=v1, k2=v2', or an object in JSON
        #[arg(long, default_value = "")]
        metadata: String,
        /// `Name` of the new node
        #[arg(long, value_name = "NAME")]
        node_name: Option<String>,
        /// `Type` of the new node
        #[arg(long, value_name = "TYPE")]
        node_type: Option<String>,
        /// A name for people
        #[arg(long, default_value = "")]
        name: String,
        /// A description for people
        #[arg(long, value_name = "TEXT", default_value = "")]
        description: String,
    },
    #[command(flatten)]
    Common(CommonCommand),
}

#[derive(Args, Debug)]
#[command(after_help = "\
Example:
  skua client edgerule create --src 'G.V().Has(\"Name\", \"ToR1\")' --dst 'G.V().Has(\"Name\", \"eth0\")' \\
      --relationtype layer2")]
pub struct EdgeRuleArguments {
    #[command(subcommand)]
    pub command: EdgeRuleCommand,
    #[command(flatten)]
    pub analyzer: AnalyzerArguments,
}

#[derive(Subcommand, Debug)]
pub enum EdgeRuleCommand {
    /// Make a rule
    Create {
        /// Selects the nodes at the start of edges
        #[arg(long, value_name = "QUERY")]
        src: String,
        /// Selects the nodes at their end
        #[arg(long, value_name = "QUERY")]
        dst: String,
        /// `RelationType` of the edges, like layer2
        #[arg(long, value_name = "TYPE")]
        relationtype: String,
        /// More metadata: 'k1=v1, k2=v2', or an object in JSON
        #[arg(long, default_value = "")]
        metadata: String,
        /// A name for people
        #[arg(long, default_value = "")]
        name: String,
        /// A description for people
        #[arg(long, value_name = "TEXT", default_value = "")]
        description: String,
    },
    #[command(flatten)]
    Common(CommonCommand),
}

#[derive(Args, Debug)]
pub struct TopologyArguments {
    #[command(subcommand)]
    pub command: TopologyCommand,
    #[command(flatten)]
    pub analyzer: AnalyzerArguments,
}

#[derive(Subcommand, Debug)]
pub enum TopologyCommand {
    /// Print the complete graph, as `import` reads it
    Export,
    /// Query the graph, as `skua query` does
    Query {
        /// The query
        #[arg(long, default_value = "G", value_name = "QUERY")]
        gremlin: String,
        /// How to print
        #[arg(long, value_enum, default_value = "json", value_name = "FORMAT")]
        format: crate::query::Format,
    },
    /// Make the nodes and edges of a file that are not there yet; they count as made by a user
    Import {
        /// The file; - for standard input
        #[arg(long, default_value = "graph.json", value_name = "FILE")]
        file: PathBuf,
    },
}

/// A value as people write it: JSON where it is a number, truth, list or object, else text.
fn value(text: &str) -> Value {
    match serde_json::from_str(text) {
        Ok(Value::String(_) | Value::Null) | Err(_) => text.into(),
        Ok(value) => value,
    }
}

fn pair(text: &str) -> anyhow::Result<(String, Value)> {
    let (key, text) = text
        .split_once('=')
        .with_context(|| format!("\"{text}\" is not KEY=VALUE"))?;
    Ok((key.trim().to_owned(), value(text.trim())))
}

/// Metadata as Skydive's flags have them, or an object.
fn metadata(text: &str) -> anyhow::Result<Map<String, Value>> {
    if text.trim_start().starts_with('{') {
        return serde_json::from_str(text).context("--metadata is not a JSON object");
    }
    let parts = text.split(',').filter(|part| !part.trim().is_empty());
    parts.map(pair).collect()
}

/// The metadata with additional keys.
fn with<const N: usize>(text: &str, more: [(&str, &str); N]) -> anyhow::Result<Value> {
    let mut all = metadata(text)?;
    for (key, text) in more {
        all.insert(key.into(), text.into());
    }
    Ok(all.into())
}

fn run_common(
    client: &Client,
    path: &str,
    what: &'static str,
    columns: &'static [Column],
    command: &CommonCommand,
) -> anyhow::Result<()> {
    match command {
        CommonCommand::List { output } => client.list(path, *output, columns, what),
        CommonCommand::Get { id } => output::pretty(&client.object(&format!("{path}/{id}"))?),
        CommonCommand::Delete { ids } => ids
            .iter()
            .try_for_each(|id| client.delete(&format!("{path}/{id}"))),
    }
}

fn update(client: &Client, path: &str, arguments: &UpdateArguments) -> anyhow::Result<()> {
    // As RFC 6901 writes them.
    let place = |key: &str| format!("/Metadata/{}", key.replace('~', "~0").replace('/', "~1"));
    let mut patch = Vec::new();
    for text in &arguments.add {
        let (key, value) = pair(text)?;
        patch.push(json!({"op": "add", "path": place(&key), "value": value}));
    }
    for key in &arguments.remove {
        patch.push(json!({"op": "remove", "path": place(key)}));
    }
    if patch.is_empty() {
        bail!("nothing to change: give --add or --remove");
    }
    let patch = Value::from(patch);
    arguments
        .ids
        .iter()
        .try_for_each(|id| output::pretty(&client.patch(&format!("{path}/{id}"), &patch)?))
}

fn create(client: &Client, path: &str, body: &Value) -> anyhow::Result<()> {
    output::pretty(&client.create(path, &[], body)?)
}

pub fn node(arguments: &NodeArguments) -> anyhow::Result<()> {
    const PATH: &str = "/api/node";
    let client = Client::connect_or_fail(&arguments.analyzer)?;
    match &arguments.command {
        NodeCommand::Create {
            node_name,
            node_type,
            metadata,
            host,
            id,
        } => {
            let metadata = with(metadata, [("Name", node_name), ("Type", node_type)])?;
            let body = json!({"ID": id, "Host": host, "Metadata": metadata});
            create(&client, PATH, &body)
        }
        NodeCommand::Update(arguments) => update(&client, PATH, arguments),
        NodeCommand::Common(command) => run_common(&client, PATH, "nodes", NODES, command),
    }
}

pub fn edge(arguments: &EdgeArguments) -> anyhow::Result<()> {
    const PATH: &str = "/api/edge";
    let client = Client::connect_or_fail(&arguments.analyzer)?;
    match &arguments.command {
        EdgeCommand::Create {
            parent,
            child,
            edge_type,
            metadata,
            host,
            id,
        } => {
            let metadata = with(metadata, [("RelationType", edge_type)])?;
            let body = json!({
                "ID": id,
                "Host": host,
                "Parent": parent,
                "Child": child,
                "Metadata": metadata,
            });
            create(&client, PATH, &body)
        }
        EdgeCommand::Update(arguments) => update(&client, PATH, arguments),
        EdgeCommand::Common(command) => run_common(&client, PATH, "edges", EDGES, command),
    }
}

pub fn node_rule(arguments: &NodeRuleArguments) -> anyhow::Result<()> {
    const PATH: &str = "/api/noderule";
    let client = Client::connect_or_fail(&arguments.analyzer)?;
    match &arguments.command {
        NodeRuleCommand::Create {
            action,
            query,
            metadata: text,
            node_name,
            node_type,
            name,
            description,
        } => {
            let mut metadata = metadata(text)?;
            for (key, text) in [("Name", node_name), ("Type", node_type)] {
                if let Some(text) = text {
                    metadata.insert(key.into(), text.as_str().into());
                }
            }
            let action = match action {
                Action::Create => "create",
                Action::Update => "update",
            };
            let body = json!({
                "Name": name,
                "Description": description,
                "Action": action,
                "Query": query,
                "Metadata": metadata,
            });
            create(&client, PATH, &body)
        }
        NodeRuleCommand::Common(command) => run_common(&client, PATH, "rules", NODE_RULES, command),
    }
}

pub fn edge_rule(arguments: &EdgeRuleArguments) -> anyhow::Result<()> {
    const PATH: &str = "/api/edgerule";
    let client = Client::connect_or_fail(&arguments.analyzer)?;
    match &arguments.command {
        EdgeRuleCommand::Create {
            src,
            dst,
            relationtype,
            metadata,
            name,
            description,
        } => {
            let metadata = with(metadata, [("RelationType", relationtype)])?;
            let body = json!({
                "Name": name,
                "Description": description,
                "Src": src,
                "Dst": dst,
                "Metadata": metadata,
            });
            create(&client, PATH, &body)
        }
        EdgeRuleCommand::Common(command) => run_common(&client, PATH, "rules", EDGE_RULES, command),
    }
}

pub fn topology(arguments: &TopologyArguments) -> anyhow::Result<()> {
    let client = Client::connect_or_fail(&arguments.analyzer)?;
    if let TopologyCommand::Query { gremlin, format } = &arguments.command {
        return crate::query::print(&client, gremlin, *format, false);
    }
    match &arguments.command {
        TopologyCommand::Query { .. } => Ok(()),
        TopologyCommand::Export => {
            let body = json!({"GremlinQuery": "G"});
            let graph = client.ask("/api/topology", "application/json", &body)?;
            match serde_json::from_slice::<Value>(&graph) {
                Ok(graph) => output::pretty(&graph),
                // An empty answer has no body.
                Err(_) => output::pretty(&json!([{"Nodes": [], "Edges": []}])),
            }
        }
        TopologyCommand::Import { file } => {
            let mut text = Vec::new();
            if file.as_os_str() == "-" {
                std::io::stdin().read_to_end(&mut text)?;
            } else {
                text = std::fs::read(file)
                    .with_context(|| format!("cannot read {}", file.display()))?;
            }
            let graph: Value = serde_json::from_slice(&text)
                .with_context(|| format!("{} is not a graph in JSON", file.display()))?;
            output::pretty(&client.create("/api/topology/import", &[], &graph)?)
        }
    }
}

const NODES: &[Column] = &[
    output::column("NODE", 0, |r| output::text(&r["ID"])),
    output::column("NAME", 0, |r| output::text(&r["Metadata"]["Name"])),
    output::column("TYPE", 0, |r| output::text(&r["Metadata"]["Type"])),
    output::column("HOST", 1, |r| output::text(&r["Host"])),
    output::column("ORIGIN", 2, |r| output::text(&r["Origin"])),
];

const EDGES: &[Column] = &[
    output::column("EDGE", 1, |r| output::text(&r["ID"])),
    output::column("PARENT", 0, |r| output::text(&r["Parent"])),
    output::column("CHILD", 0, |r| output::text(&r["Child"])),
    output::column("RELATION", 0, |r| {
        output::text(&r["Metadata"]["RelationType"])
    }),
    output::column("ORIGIN", 2, |r| output::text(&r["Origin"])),
];

const NODE_RULES: &[Column] = &[
    output::column("RULE", 0, |r| output::text(&r["UUID"])),
    output::column("NAME", 2, |r| output::text(&r["Name"])),
    output::column("ACTION", 0, |r| output::text(&r["Action"])),
    output::column("APPLIED", 1, |r| r["Applied"].to_string()),
    output::column("LEFT OUT", 2, |r| r["LeftOut"].to_string()),
    output::column("QUERY", 1, |r| output::text(&r["Query"])),
    output::column("METADATA", 1, |r| r["Metadata"].to_string()),
    output::column("ERROR", 1, |r| output::text(&r["Error"])),
];

const EDGE_RULES: &[Column] = &[
    output::column("RULE", 0, |r| output::text(&r["UUID"])),
    output::column("NAME", 2, |r| output::text(&r["Name"])),
    output::column("EDGES", 1, |r| r["Applied"].to_string()),
    output::column("LEFT OUT", 2, |r| r["LeftOut"].to_string()),
    output::column("SRC", 1, |r| output::text(&r["Src"])),
    output::column("DST", 1, |r| output::text(&r["Dst"])),
    output::column("METADATA", 2, |r| r["Metadata"].to_string()),
    output::column("ERROR", 1, |r| output::text(&r["Error"])),
];

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn metadata_are_read_as_people_write_them() {
        let read = |text| Value::from(metadata(text).unwrap());
        assert_eq!(read(""), json!({}));
        assert_eq!(
            read("Owner=net-team, Slot = 7,Up=true,Ip=10.0.0.1, Url=http://x/?a=b"),
            json!({"Owner": "net-team", "Slot": 7, "Up": true, "Ip": "10.0.0.1", "Url": "http://x/?a=b"})
        );
        assert_eq!(
            read(r#" {"IPV4": ["10.0.0.1/8"]}"#),
            json!({"IPV4": ["10.0.0.1/8"]})
        );
        assert!(metadata("Owner").is_err() && metadata("{").is_err());
    }
}
