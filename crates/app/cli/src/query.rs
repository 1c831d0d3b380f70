//! `skua query`.

use std::io::{IsTerminal as _, Write as _};

use anyhow::bail;
use clap::{Args, ValueEnum};
use serde_json::json;
use skua_client::Client;
use skua_config::arguments::AnalyzerArguments;
use skua_output as output;

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  skua query 'G.V().Has(\"Type\", \"bridge\")'
  skua query 'G.V().Has(\"Name\", \"eth0\").Flows()' --format json | jq .
  skua query 'G.Flows().Has(\"Network\", \"10.0.0.5\").Sum(\"Metric.ABBytes\")'
  skua query 'G.At(\"-5m\").V().Has(\"Name\", \"eth0\").Values(\"MTU\")'
  skua query 'G.Flows().Has(\"CaptureID\", \"…\").RawPackets()' --format pcap > packets.pcap
  skua query G --format dot | dot -Tsvg > host.svg

The language is explained in docs/gremlin.md.")]
pub struct QueryArguments {
    /// The query, like 'G.V().Has("Name", "eth0")'; - reads it from standard input
    pub query: String,
    /// How to print [default: table on a terminal, else json]
    #[arg(
        long,
        short,
        value_enum,
        value_name = "FORMAT",
        visible_alias = "output"
    )]
    pub format: Option<Format>,
    /// Show the query plan instead of the answer
    #[arg(long)]
    pub explain: bool,
    #[command(flatten)]
    pub analyzer: AnalyzerArguments,
}

/// Formats of answers.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// For people
    Table,
    /// JSON, as Skydive answers
    Json,
    /// A drawing for Graphviz
    Dot,
    /// Packets (of RawPackets) as a capture file
    Pcap,
    /// Packets as pcapng, which allows several link types
    Pcapng,
}

impl Format {
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Table => "text/plain",
            Self::Json => "application/json",
            Self::Dot => "text/vnd.graphviz",
            Self::Pcap => skua_server::paths::PCAP,
            Self::Pcapng => skua_server::paths::PCAPNG,
        }
    }
}

/// Longest query that is read from standard input; the server refuses longer ones.
const LONGEST: u64 = 128 << 10;

pub fn query(arguments: &QueryArguments) -> anyhow::Result<()> {
    let mut text = arguments.query.clone();
    if text == "-" {
        use std::io::Read as _;
        text.clear();
        std::io::stdin().take(LONGEST).read_to_string(&mut text)?;
    }
    let address = &arguments.analyzer.address;
    let Some(client) = Client::connect(&arguments.analyzer)? else {
        bail!("nothing answers at {address}: start `skua run`, or give --analyzer");
    };
    let format = arguments
        .format
        .unwrap_or(match std::io::stdout().is_terminal() {
            true => Format::Table,
            false => Format::Json,
        });
    print(&client, &text, format, arguments.explain)
}

/// Asks a query, and prints the answer.
pub fn print(client: &Client, query: &str, format: Format, explain: bool) -> anyhow::Result<()> {
    if matches!(format, Format::Pcap | Format::Pcapng)
        && !explain
        && std::io::stdout().is_terminal()
    {
        bail!("packets are not text: pipe them (`| tshark -r -`) or into a file");
    }
    let mut body = json!({"GremlinQuery": query.trim(), "Explain": explain});
    if format == Format::Table {
        body["Width"] = output::width().into();
    }
    let answer = client.ask("/api/topology", format.media_type(), &body)?;
    let mut out = std::io::stdout().lock();
    out.write_all(&answer)?;
    let text = !matches!(format, Format::Pcap | Format::Pcapng);
    if text && !answer.is_empty() && !answer.ends_with(b"\n") {
        writeln!(out)?;
    }
    out.flush()?;
    Ok(())
}
