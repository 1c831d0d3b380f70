//! `skua capture`.

use std::{
    fs::File,
    io::{IsTerminal as _, Read, Write},
    os::fd::AsFd as _,
    path::Path,
};

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};
use skua_client::Client;
use skua_config::arguments::{AnalyzerArguments, Printing};
use skua_output as output;
use skua_output::{Column, OutputFormat};

use crate::query::Format;

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  skua capture create --gremlin 'G.V().Has(\"Name\", \"eth0\")' --type ebpf
  skua capture create --gremlin 'G.V().Has(\"Type\", \"veth\")' --bpf 'tcp port 443' --ttl 10m
  skua capture list
  skua query 'G.Flows().Has(\"CaptureID\", \"…\")'
  skua capture delete …

A capture follows its query: it goes on to nodes that appear later, and ends on those that go.")]
pub struct CaptureArguments {
    #[command(subcommand)]
    pub command: CaptureCommand,
    #[command(flatten)]
    pub analyzer: AnalyzerArguments,
}

#[derive(Subcommand, Debug)]
pub enum CaptureCommand {
    /// Capture on the nodes that a query selects
    Create(Box<CreateArguments>),
    /// Show all captures and their state
    List(Printing),
    /// Show one capture
    Get {
        /// Its UUID
        id: String,
    },
    /// Write packets as they are captured, as pcapng, for tshark, Wireshark or an IDS
    #[command(after_help = "\
Examples:
  skua capture watch --gremlin 'G.V().Has(\"Name\", \"eth0\")' | tshark -r -
  skua capture watch --gremlin 'G.V().Has(\"Name\", \"eth0\")' --bpf 'udp port 53' -w dns.pcapng")]
    Watch {
        /// UUID of a capture that was made with --rawpacket-limit
        #[arg(required_unless_present = "gremlin", conflicts_with = "gremlin")]
        id: Option<String>,
        /// Capture on these nodes while this command runs
        #[arg(long, value_name = "QUERY")]
        gremlin: Option<String>,
        /// How to capture
        #[arg(long, value_enum, default_value = "auto", value_name = "TYPE")]
        r#type: Type,
        /// Only packets that match a pcap expression
        #[arg(long, value_name = "EXPRESSION", default_value = "")]
        bpf: String,
        /// Bytes to write of each packet; 0: all
        #[arg(long, value_name = "BYTES", default_value_t = 0)]
        header_size: u32,
        /// File to write to, - for standard output
        #[arg(short, long, value_name = "FILE", default_value = "-")]
        write: std::path::PathBuf,
    },
    /// End captures
    Delete {
        /// Their UUIDs
        #[arg(required = true)]
        ids: Vec<String>,
    },
}

/// Types of capture.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Type {
    /// What fits each node
    Auto,
    /// Flow table in the kernel
    Ebpf,
    /// Packets by a ring (TPACKET_V3)
    Afpacket,
    /// Packets by libpcap
    Pcap,
    /// A TCP port that receives capture files
    Pcapsocket,
    /// Datagrams of sFlow agents
    Sflow,
    /// Datagrams of NetFlow and IPFIX exporters
    Netflow,
    /// Packets that Open vSwitch mirrors
    Ovsmirror,
    /// Open vSwitch sends sFlow
    Ovssflow,
    /// Open vSwitch sends NetFlow
    Ovsnetflow,
    /// Packets by DPDK
    Dpdk,
}

#[derive(Args, Debug)]
pub struct CreateArguments {
    /// The nodes, like 'G.V().Has("Name", "eth0")'
    #[arg(long, value_name = "QUERY", required_unless_present = "node")]
    pub gremlin: Option<String>,
    /// One node by its TID
    #[arg(long, value_name = "TID", conflicts_with = "gremlin")]
    pub node: Option<String>,
    /// How to capture
    #[arg(long, value_enum, default_value = "auto", value_name = "TYPE")]
    pub r#type: Type,
    /// Only packets that match a pcap expression
    #[arg(long, value_name = "EXPRESSION", default_value = "")]
    pub bpf: String,
    /// A name for people
    #[arg(long, default_value = "")]
    pub name: String,
    /// A description for people
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub description: String,
    /// Count details of TCP (always on; for Skydive's scripts)
    #[arg(long)]
    pub extra_tcp_metric: bool,
    /// Bytes to store of each packet; 0: all
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    pub header_size: u32,
    /// Count fragments with their conversation (always on; for Skydive's scripts)
    #[arg(long)]
    pub ip_defrag: bool,
    /// Lowest layer whose addresses separate flows: L3
    #[arg(long, value_name = "L3", default_value = "L3", value_parser = key_mode)]
    pub layer_key_mode: String,
    /// Also read a layer behind the transport, like DNS (Skydive's option; refused: Skua reads none)
    #[arg(long, value_name = "LAYER")]
    pub extra_layer: Vec<String>,
    /// Put segments of TCP in order first (Skydive's option; refused: Skua reads nothing of streams)
    #[arg(long, alias = "reassamble-tcp")]
    pub reassemble_tcp: bool,
    /// First packets of each flow that are stored, at most 10
    #[arg(
        long,
        value_name = "N",
        default_value_t = 0,
        allow_negative_numbers = true
    )]
    pub rawpacket_limit: i32,
    /// Sample one in N packets
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub samplingrate: u32,
    /// Seconds between updates
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    pub pollinginterval: u32,
    /// Port to listen on, for the types pcapsocket, sflow and netflow; 0: a free one
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    pub port: u16,
    /// Address to listen on [default: 127.0.0.1]
    #[arg(
        long,
        value_name = "ADDRESS",
        default_value = "",
        hide_default_value = true
    )]
    pub listen: String,
    /// Also send the capture's flows or packets to this host, like 192.0.2.1:2055, or 192.0.2.1/5 for session 5
    #[arg(long, value_name = "HOST", default_value = "")]
    pub target: String,
    /// Format for the target: NetFlowV5 (flows) or ERSPANv1 (packets)
    #[arg(long, value_name = "TYPE", default_value = "")]
    pub target_type: String,
    /// End after this long, like 10m
    #[arg(long, value_name = "TIME", value_parser = skua_config::arguments::duration)]
    pub ttl: Option<std::time::Duration>,
}

/// Skydive's other mode would make one-way flows of conversations whose answers come from another router.
fn key_mode(text: &str) -> Result<String, String> {
    match text {
        "L3" => Ok(text.into()),
        "L2" => Err("Skua has L3 only: MAC addresses do not separate flows, but each flow has them (link.a, link.b)".into()),
        _ => Err("Skua has L3 only".into()),
    }
}

impl CreateArguments {
    fn body(&self) -> Value {
        let gremlin = match (&self.gremlin, &self.node) {
            (Some(query), _) => query.clone(),
            // A query of our own: quotes in it are escaped as in JSON.
            (None, node) => format!("G.V().Has(\"TID\", {})", json!(node)),
        };
        json!({
            "GremlinQuery": gremlin,
            "Type": type_name(self.r#type),
            "Name": self.name,
            "Description": self.description,
            "BPFFilter": self.bpf,
            "HeaderSize": self.header_size,
            "RawPacketLimit": self.rawpacket_limit,
            "ExtraTCPMetric": self.extra_tcp_metric,
            "IPDefrag": self.ip_defrag,
            "LayerKeyMode": self.layer_key_mode,
            // Any layer: none is read.
            "ExtraLayers": self.extra_layer.len(),
            "ReassembleTCP": self.reassemble_tcp,
            "SamplingRate": self.samplingrate,
            "PollingInterval": self.pollinginterval,
            "Port": self.port,
            "Listen": self.listen,
            "Target": self.target,
            "TargetType": self.target_type,
        })
    }
}

fn type_name(kind: Type) -> Option<String> {
    let value = kind.to_possible_value();
    value.map(|value| value.get_name().to_owned())
}

/// Copies a capture file while it is received.
pub(crate) fn watch(mut packets: impl Read, to: &Path) -> anyhow::Result<()> {
    let mut out: Box<dyn Write> = if to.as_os_str() == "-" {
        if std::io::stdout().is_terminal() {
            bail!("packets are not text: pipe them (`| tshark -r -`) or give -w FILE");
        }
        // Unbuffered: readers of a pipe expect each packet at once.
        Box::new(File::from(std::io::stdout().as_fd().try_clone_to_owned()?))
    } else {
        let file = File::create(to).with_context(|| format!("cannot write {}", to.display()))?;
        Box::new(file)
    };
    std::io::copy(&mut packets, &mut out)?;
    Ok(())
}

pub fn capture(arguments: &CaptureArguments) -> anyhow::Result<()> {
    let client = Client::connect_or_fail(&arguments.analyzer)?;
    match &arguments.command {
        CaptureCommand::Create(create) => {
            let ttl = create.ttl.map(|ttl| ttl.as_nanos().to_string());
            let headers: Vec<_> = ttl.map(|ttl| ("X-Resource-TTL", ttl)).into_iter().collect();
            output::pretty(&client.create("/api/capture", &headers, &create.body())?)
        }
        CaptureCommand::List(Printing { output }) => {
            let all = client.object("/api/capture")?;
            let all = all.as_object().cloned().unwrap_or_default();
            match output {
                OutputFormat::Table => table(&client, all.values()),
                OutputFormat::Json => all.values().try_for_each(|capture| {
                    writeln!(std::io::stdout(), "{capture}").map_err(Into::into)
                }),
                OutputFormat::Csv => bail!("captures cannot be printed as CSV: use table or json"),
            }
        }
        CaptureCommand::Get { id } => {
            output::pretty(&client.object(&format!("/api/capture/{id}"))?)
        }
        CaptureCommand::Watch {
            id,
            gremlin,
            r#type,
            bpf,
            header_size,
            write,
        } => {
            let body = json!({
                "GremlinQuery": gremlin,
                "Type": type_name(*r#type),
                "BPFFilter": bpf,
                "HeaderSize": header_size,
            });
            let packets = match id {
                Some(id) => client.stream(&format!("/api/capture/{id}/packets"), None),
                None => client.stream("/api/capture/live", Some(&body)),
            };
            watch(packets?, write)
        }
        CaptureCommand::Delete { ids } => ids
            .iter()
            .try_for_each(|id| client.delete(&format!("/api/capture/{id}"))),
    }
}

/// Columns of the list: a row for each node of a capture.
const COLUMNS: &[Column] = &[
    column("CAPTURE", 0, |r| output::text(&r["UUID"])),
    // Without a type, each node has that of its kind.
    column("TYPE", 1, |r| match &r["Type"] {
        Value::Null => "auto".to_owned(),
        kind => output::text(kind),
    }),
    column("HOST", 1, |r| output::text(&r["Host"])),
    column("NODE", 0, |r| output::text(&r["Node"])),
    column("STATE", 0, |r| output::text(&r["State"])),
    column("NAME", 4, |r| output::text(&r["Name"])),
    column("FILTER", 3, |r| output::text(&r["BPFFilter"])),
    column("QUERY", 2, |r| output::text(&r["GremlinQuery"])),
];

const fn column(title: &'static str, rank: u8, cell: fn(&Value) -> String) -> Column {
    Column {
        title,
        right: false,
        rank,
        cell,
    }
}

/// How many nodes of a host have the name of one.
fn same(nodes: &[Value], node: &Value) -> usize {
    let key = |node: &Value| (node["Host"].clone(), node["Name"].clone());
    nodes.iter().filter(|other| key(other) == key(node)).count()
}

/// Namespaces that are asked for: further nodes are told apart by their identifier.
const NAMESPACES: usize = 64;

/// Name of the namespace that a node is in; empty for the host's own.
fn namespace(client: &Client, node: &Value) -> anyhow::Result<String> {
    let query = format!(
        "G.V().Has(\"TID\", {}).In(\"Type\", \"netns\").Values(\"Name\")",
        node["TID"]
    );
    let body = json!({"GremlinQuery": query, "Explain": false});
    let answer = client.ask("/api/topology", Format::Json.media_type(), &body)?;
    let names: Value = serde_json::from_slice(&answer).context("the answer is not JSON")?;
    Ok(output::text(&names[0]))
}

/// Nodes of one capture as they are shown: those of the same name with their namespace, and if that is not enough with
/// their identifier.
fn names(client: &Client, nodes: &[Value]) -> anyhow::Result<Vec<String>> {
    let mut names = Vec::new();
    for (place, node) in nodes.iter().enumerate() {
        let name = output::text(&node["Name"]);
        names.push(match same(nodes, node) {
            1 => name,
            _ if place >= NAMESPACES => format!("{name} TID {}", output::text(&node["TID"])),
            _ => match namespace(client, node)? {
                namespace if namespace.is_empty() => name,
                namespace => format!("{namespace}/{name}"),
            },
        });
    }
    let several = |at: usize| {
        let key = |at: usize| (&nodes[at]["Host"], &names[at]);
        (0..nodes.len())
            .filter(|other| key(*other) == key(at))
            .count()
            > 1
    };
    let told = |at: usize| match several(at) {
        true => format!("{} TID {}", names[at], output::text(&nodes[at]["TID"])),
        false => names[at].clone(),
    };
    Ok((0..nodes.len()).map(told).collect())
}

fn table<'a>(client: &Client, captures: impl Iterator<Item = &'a Value>) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    let mut lines = Vec::new();
    for capture in captures {
        let mut row = capture.clone();
        let nodes = capture["Nodes"].as_array().map_or(&[][..], Vec::as_slice);
        if nodes.is_empty() {
            row["Node"] = json!("-");
            let why = capture["Error"].as_str().or(capture["Unfit"].as_str());
            row["State"] = json!(why.unwrap_or("no node now"));
            writeln!(lines, "{row}")?;
        }
        for (node, name) in nodes.iter().zip(names(client, nodes)?) {
            row["Host"] = node["Host"].clone();
            row["Node"] = name.into();
            row["State"] = match node["Error"].as_str() {
                Some(error) => json!(format!("{}: {error}", output::text(&node["State"]))),
                None => match &node["Port"] {
                    Value::Null => node["State"].clone(),
                    port => json!(format!("{}, port {port}", output::text(&node["State"]))),
                },
            };
            writeln!(lines, "{row}")?;
        }
    }
    if lines.is_empty() {
        writeln!(out, "no captures; `skua capture create` makes one")?;
        return Ok(());
    }
    output::table(&mut out, COLUMNS, &lines, usize::MAX, output::width())
}
