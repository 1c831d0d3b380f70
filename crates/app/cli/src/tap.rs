//! `skua tap`.

use std::{
    io::Write as _,
    path::{Path, PathBuf},
};

use anyhow::bail;
use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};
use skua_client::Client;
use skua_config::arguments::{AnalyzerArguments, Printing};
use skua_output as output;
use skua_output::{Column, OutputFormat};

use crate::capture::watch;

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  skua tap create --from eth0,tap3 --match 'host 10.0.0.5 and tcp' --to mon0
  skua tap create --from eth0 --to mon0@ids --vlan 100 --cut 128 --name ids
  skua tap create --gremlin 'G.V().Has(\"Type\", \"tun\")' --to mon0,mon1 --ttl 10m
  skua tap create --from eth0 --match 'port 53' --to - | tshark -r -
  skua tap create --from eth0 --process nginx --to mon0
  skua tap show ids
  skua tap update ids --net 10.0.0.0/8,192.0.2.1
  skua tap delete ids

Originals are neither changed nor held up: copies that a monitor cannot take are dropped and counted.
docs/tap.md explains it.")]
pub struct TapArguments {
    #[command(subcommand)]
    pub command: TapCommand,
    #[command(flatten)]
    pub analyzer: AnalyzerArguments,
}

#[derive(Subcommand, Debug)]
pub enum TapCommand {
    /// Copy packets to monitors from now on
    Create {
        #[command(flatten)]
        settings: Box<Settings>,
        /// End after this long, like 10m
        #[arg(long, value_name = "TIME", value_parser = skua_config::arguments::duration)]
        ttl: Option<std::time::Duration>,
    },
    /// Show taps and what they have copied
    List(Printing),
    /// Show one tap, source by source
    #[command(alias = "get")]
    Show {
        /// Its UUID, the start of it, or its name
        tap: String,
        #[command(flatten)]
        print: Printing,
    },
    /// Change a tap without losing a packet; settings that are not given stay, a list replaces the
    /// former one
    Update {
        /// Its UUID, the start of it, or its name
        tap: String,
        #[command(flatten)]
        settings: Box<Settings>,
    },
    /// Write the packets of a tap that was made with --to stream, as pcapng
    Watch {
        /// Its UUID, the start of it, or its name
        tap: String,
        /// File to write to, - for standard output
        #[arg(short, long, value_name = "FILE", default_value = "-")]
        write: PathBuf,
    },
    /// End taps
    Delete {
        /// Their UUIDs, starts of UUIDs, or names
        #[arg(required = true)]
        taps: Vec<String>,
    },
}

/// Direction of packets, as seen from the source.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum TapDirection {
    /// Received and sent
    Both,
    /// Received
    In,
    /// Sent
    Out,
}

/// Settings of a tap.
#[derive(Args, Debug)]
pub struct Settings {
    /// Interfaces whose packets are copied, like eth0,tap3 or eth0@NAMESPACE or eth0@pid:4711
    #[arg(long, value_name = "INTERFACES", value_delimiter = ',')]
    pub from: Option<Vec<String>>,
    /// Also interfaces that a query selects, now and later, like 'G.V().Has("Type", "tun")'
    #[arg(long, value_name = "QUERY")]
    pub gremlin: Option<String>,
    /// Direction of packets, as seen from the interface
    #[arg(long, value_enum, value_name = "DIRECTION")]
    pub direction: Option<TapDirection>,
    /// Only packets that match a pcap expression
    #[arg(long = "match", value_name = "EXPRESSION")]
    pub expression: Option<String>,
    /// Only packets from or to one of these prefixes; of several address options one must match
    #[arg(long, value_name = "PREFIXES", value_delimiter = ',')]
    pub net: Option<Vec<String>>,
    /// Like --net, for the source only
    #[arg(long, value_name = "PREFIXES", value_delimiter = ',')]
    pub src_net: Option<Vec<String>>,
    /// Like --net, for the destination only
    #[arg(long, value_name = "PREFIXES", value_delimiter = ',')]
    pub dst_net: Option<Vec<String>>,
    /// Only packets from or to one of these MAC addresses; of several address options one must match
    #[arg(long, value_name = "MACS", value_delimiter = ',')]
    pub mac: Option<Vec<String>>,
    /// Like --mac, for the source only
    #[arg(long, value_name = "MACS", value_delimiter = ',')]
    pub src_mac: Option<Vec<String>>,
    /// Like --mac, for the destination only
    #[arg(long, value_name = "MACS", value_delimiter = ',')]
    pub dst_mac: Option<Vec<String>>,
    /// Only packets of sockets of these processes on this host: names, numbers or paths
    #[arg(long, value_name = "PROCESSES", value_delimiter = ',')]
    pub process: Option<Vec<String>>,
    /// Only packets of sockets in these containers: names, or starts of their IDs
    #[arg(long, value_name = "CONTAINERS", value_delimiter = ',')]
    pub container: Option<Vec<String>>,
    /// Only packets of sockets of these services: as `skua services` names them, or systemd units
    #[arg(long, value_name = "SERVICES", value_delimiter = ',')]
    pub service: Option<Vec<String>>,
    /// Where copies go: interfaces, like mon0 or mon0@NAMESPACE, or remote monitors, like
    /// vxlan://192.0.2.9/42, geneve:// or erspan://; several share the conversations. `stream`: to
    /// clients that watch; `-` or FILE.pcapng: to standard output or a file here, while this command runs
    #[arg(long, value_name = "MONITORS", value_delimiter = ',')]
    pub to: Option<Vec<String>>,
    /// VLAN ID of copies from the first source, one higher for each further source; 0: none
    #[arg(long, value_name = "ID")]
    pub vlan: Option<u16>,
    /// Bytes to copy of each packet; 0: all
    #[arg(long, value_name = "BYTES")]
    pub cut: Option<u32>,
    /// Copy one in this many packets, chosen at random
    #[arg(long, value_name = "N")]
    pub sampling: Option<u32>,
    /// Packets per second at most; 0: no limit
    #[arg(long, value_name = "PACKETS")]
    pub packet_rate: Option<u64>,
    /// Bits per second at most; 0: no limit
    #[arg(long, value_name = "BITS")]
    pub bit_rate: Option<u64>,
    /// Do not copy a packet at egress that was copied at ingress
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    pub dedup: Option<bool>,
    /// Do not segment super-packets or complete checksums: cheaper, but unlike packets on a wire
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    pub whole: Option<bool>,
    /// A name for people
    #[arg(long)]
    pub name: Option<String>,
    /// A description for people
    #[arg(long, value_name = "TEXT")]
    pub description: Option<String>,
}

impl Settings {
    /// The file that packets are to be written to here.
    fn file(&self) -> Option<&str> {
        let [one] = &self.to.as_ref()?[..] else {
            return None;
        };
        let is_file = one == "-" || one.ends_with(".pcapng");
        (is_file && !one.contains("://")).then_some(one)
    }

    /// The given settings, by key.
    fn values(&self) -> Vec<(&'static str, Value)> {
        let lists = [
            ("From", &self.from),
            ("Nets", &self.net),
            ("SourceNets", &self.src_net),
            ("DestinationNets", &self.dst_net),
            ("MACs", &self.mac),
            ("SourceMACs", &self.src_mac),
            ("DestinationMACs", &self.dst_mac),
            ("Processes", &self.process),
            ("Containers", &self.container),
            ("Services", &self.service),
            ("To", &self.to),
        ];
        let lists = lists.into_iter().filter_map(|(key, list)| {
            // An empty text removes the complete list.
            let items: Vec<_> = list
                .as_ref()?
                .iter()
                .filter(|item| !item.is_empty())
                .collect();
            Some((key, json!(items)))
        });
        let texts = [
            ("GremlinQuery", &self.gremlin),
            ("Match", &self.expression),
            ("Name", &self.name),
            ("Description", &self.description),
        ];
        let texts = texts
            .into_iter()
            .filter_map(|(key, text)| Some((key, json!(text.as_ref()?))));
        let numbers = [
            ("VLAN", self.vlan.map(u64::from)),
            ("Cut", self.cut.map(u64::from)),
            ("Sampling", self.sampling.map(u64::from)),
            ("PacketRate", self.packet_rate),
            ("BitRate", self.bit_rate),
        ];
        let numbers = numbers
            .into_iter()
            .filter_map(|(key, number)| Some((key, json!(number?))));
        let switches = [("Dedup", self.dedup), ("Whole", self.whole)];
        let switches = switches
            .into_iter()
            .filter_map(|(key, on)| Some((key, json!(on?))));
        let way = self.direction.and_then(|way| {
            let name = way.to_possible_value()?.get_name().to_owned();
            Some(("Direction", json!(name)))
        });
        lists
            .chain(texts)
            .chain(numbers)
            .chain(switches)
            .chain(way)
            .collect()
    }
}

/// The path of a tap, from its UUID, the start of it, or its name.
fn path(client: &Client, named: &str) -> anyhow::Result<String> {
    let all = client.object("/api/tap")?;
    let all: Vec<&Value> = all
        .as_object()
        .into_iter()
        .flat_map(|all| all.values())
        .collect();
    let id = |tap: &&&Value| output::text(&tap["UUID"]);
    let fitting =
        |fits: &dyn Fn(&&&Value) -> bool| all.iter().filter(fits).map(|tap| id(&tap)).collect();
    let mut found: Vec<String> = fitting(&|tap| id(tap) == named || tap["Name"] == named);
    if found.is_empty() && !named.is_empty() {
        found = fitting(&|tap| id(tap).starts_with(named));
    }
    match &found[..] {
        [one] => Ok(format!("/api/tap/{one}")),
        [] => bail!("there is no tap {named}; `skua tap list` shows all"),
        several => bail!("{} taps are called {named}; give the UUID", several.len()),
    }
}

pub fn tap(arguments: &TapArguments) -> anyhow::Result<()> {
    let client = Client::connect_or_fail(&arguments.analyzer)?;
    match &arguments.command {
        TapCommand::Create { settings, ttl } => {
            if let Some(file) = settings.file() {
                return write(&client, settings, file);
            }
            let body: serde_json::Map<_, _> = settings
                .values()
                .into_iter()
                .map(|(key, value)| (key.to_owned(), value))
                .collect();
            let ttl = ttl.map(|ttl| ttl.as_nanos().to_string());
            let headers: Vec<_> = ttl.map(|ttl| ("X-Resource-TTL", ttl)).into_iter().collect();
            let made = client.create("/api/tap", &headers, &Value::Object(body))?;
            if let Some(error) = made["Error"].as_str() {
                eprintln!("skua: the tap waits: {error}");
            }
            output::pretty(&made)
        }
        TapCommand::List(Printing { output }) => client.list("/api/tap", *output, COLUMNS, "taps"),
        TapCommand::Show { tap, print } => {
            let tap = client.object(&path(&client, tap)?)?;
            match print.output {
                OutputFormat::Table => show(&tap),
                OutputFormat::Json => output::pretty(&tap),
                OutputFormat::Csv => bail!("taps cannot be printed as CSV: use table or json"),
            }
        }
        TapCommand::Update { tap, settings } => {
            let patch: Value = settings
                .values()
                .into_iter()
                .map(|(key, value)| json!({"op": "add", "path": format!("/{key}"), "value": value}))
                .collect();
            output::pretty(&client.patch(&path(&client, tap)?, &patch)?)
        }
        TapCommand::Watch { tap, write } => {
            let packets = client.stream(&format!("{}/packets", path(&client, tap)?), None)?;
            watch(packets, write)
        }
        TapCommand::Delete { taps } => taps
            .iter()
            .try_for_each(|tap| client.delete(&path(&client, tap)?)),
    }
}

/// Makes a tap that lasts as long as its packets are written.
fn write(client: &Client, settings: &Settings, file: &str) -> anyhow::Result<()> {
    let said = settings.values().into_iter();
    let body: serde_json::Map<_, _> = said
        .filter(|(key, _)| *key != "To")
        .map(|(key, value)| (key.to_owned(), value))
        .collect();
    let packets = client.stream("/api/tap/live", Some(&Value::Object(body)))?;
    watch(packets, Path::new(file))
}

/// Names in a list of texts, or of objects with names.
fn names(list: &Value) -> String {
    let items = list.as_array().map_or(&[][..], Vec::as_slice);
    let name = |item: &Value| match item {
        Value::Object(_) => output::text(&item["Name"]),
        text => output::text(text),
    };
    items.iter().map(name).collect::<Vec<_>>().join(",")
}

fn packets(amount: &Value) -> String {
    output::count(amount["Packets"].as_u64().unwrap_or(0))
}

/// All causes together.
fn dropped(causes: &Value) -> String {
    let causes = causes.as_object().into_iter().flatten();
    let sum = causes.filter_map(|(_, amount)| amount["Packets"].as_u64());
    output::count(sum.sum())
}

/// Each cause.
fn causes(causes: &Value) -> String {
    let causes = causes.as_object().into_iter().flatten();
    let each = causes.map(|(cause, amount)| format!("{cause} {}", packets(amount)));
    each.collect::<Vec<_>>().join(", ")
}

/// Number of selected sockets.
fn sockets(sockets: &Value) -> String {
    let Some(held) = sockets["Held"].as_u64() else {
        return String::new();
    };
    let mut text = output::count(held);
    if let Some(left @ 1..) = sockets["LeftOut"].as_u64() {
        text += &format!(", {} beyond the limit", output::count(left));
    }
    if sockets["Prompt"] == false {
        text += ", found by polling only";
    }
    text
}

/// Columns of the list.
const COLUMNS: &[Column] = &[
    output::column("TAP", 0, |r| {
        output::text(&r["UUID"]).chars().take(8).collect()
    }),
    output::column("NAME", 2, |r| output::text(&r["Name"])),
    output::column("STATE", 0, |r| output::text(&r["State"])),
    output::column("FROM", 1, |r| names(&r["Sources"])),
    output::column("TO", 1, |r| names(&r["To"])),
    output::column("MATCHED", 0, |r| packets(&r["Matched"])),
    output::column("COPIED", 0, |r| packets(&r["Copied"])),
    output::column("DROPPED", 0, |r| dropped(&r["Dropped"])),
    output::column("MATCH", 4, |r| output::text(&r["Match"])),
    output::column("ERROR", 3, |r| output::text(&r["Error"])),
];

/// Columns of a tap's sources.
const SOURCES: &[Column] = &[
    output::column("SOURCE", 0, |r| output::text(&r["Name"])),
    output::column("NETNS", 4, |r| output::text(&r["NetNsInode"])),
    output::column("VLAN", 3, |r| match r["VLAN"].as_u64() {
        Some(0) | None => "-".into(),
        Some(vlan) => vlan.to_string(),
    }),
    output::column("STATE", 0, |r| match r["Error"].as_str() {
        Some(error) => error.to_owned(),
        None => output::text(&r["State"]),
    }),
    output::column("MATCHED", 0, |r| packets(&r["Matched"])),
    output::column("BYTES", 2, |r| {
        output::bytes(r["Matched"]["Bytes"].as_u64().unwrap_or(0))
    }),
    output::column("COPIED", 0, |r| packets(&r["Copied"])),
    output::column("DROPPED", 1, |r| causes(&r["Dropped"])),
];

/// Columns of a tap's monitors.
const MONITORS: &[Column] = &[
    output::column("MONITOR", 0, |r| output::text(&r["Name"])),
    output::column("STATE", 0, |r| match r["Error"].as_str() {
        Some(error) => error.to_owned(),
        None => output::text(&r["State"]),
    }),
    output::column("SENT", 0, |r| packets(&r["Sent"])),
    output::column("BYTES", 2, |r| {
        output::bytes(r["Sent"]["Bytes"].as_u64().unwrap_or(0))
    }),
    output::column("CUT", 1, |r| packets(&r["Cut"])),
    output::column("TOO BIG", 1, |r| packets(&r["TooBig"])),
    output::column("FAILED", 1, |r| packets(&r["Failed"])),
];

fn show(tap: &Value) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    let said = [
        ("tap", output::text(&tap["UUID"])),
        ("name", output::text(&tap["Name"])),
        ("state", output::text(&tap["State"])),
        ("error", output::text(&tap["Error"])),
        ("made by", output::text(&tap["Who"])),
        ("match", output::text(&tap["Match"])),
        ("process", names(&tap["Processes"])),
        ("container", names(&tap["Containers"])),
        ("service", names(&tap["Services"])),
        ("sockets", sockets(&tap["Sockets"])),
        ("query", output::text(&tap["GremlinQuery"])),
        ("hook", output::text(&tap["Hook"])),
    ];
    for (key, text) in said.iter().filter(|(_, text)| !text.is_empty()) {
        writeln!(out, "{key:<9} {text}")?;
    }
    for (list, columns) in [(&tap["Sources"], SOURCES), (&tap["Monitors"], MONITORS)] {
        let mut lines = Vec::new();
        for item in list.as_array().into_iter().flatten() {
            writeln!(lines, "{item}")?;
        }
        if !lines.is_empty() {
            writeln!(out)?;
            output::table(&mut out, columns, &lines, usize::MAX, output::width())?;
        }
    }
    Ok(())
}
