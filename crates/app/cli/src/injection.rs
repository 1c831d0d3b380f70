//! `skua injection`.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};
use skua_client::Client;
use skua_config::arguments::{AnalyzerArguments, Printing};
use skua_control::injection::went_well;
use skua_output as output;
use skua_output::Column;

/// Interval of polling a running injection.
const POLL: Duration = Duration::from_millis(100);

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  skua injection create --src 'G.V().Has(\"Name\", \"eth0\")' --dst-ip 10.0.0.7 --wait
  skua injection create --src 'G.V().Has(\"Name\", \"a0\")' --dst 'G.V().Has(\"Name\", \"b0\")' \\
      --type tcp4 --dst-port 443 --count 3 --interval 100 --wait
  skua injection create --src 'G.V().Has(\"Name\", \"a0\")' --pcap traffic.pcap
  skua query 'G.Flows().Has(\"TrackingID\", \"…\")'

With --wait the command succeeds only when the path works: an answer came, or for UDP and capture files,
which need none, packets arrived. docs/injection.md explains it.")]
pub struct InjectionArguments {
    #[command(subcommand)]
    pub command: InjectionCommand,
    #[command(flatten)]
    pub analyzer: AnalyzerArguments,
}

#[derive(Subcommand, Debug)]
pub enum InjectionCommand {
    /// Inject packets
    Create(Box<CreateArguments>),
    /// Show injections and what happened to their packets
    List(Printing),
    /// Show one injection
    Get {
        /// Its UUID
        id: String,
    },
    /// End injections
    Delete {
        /// Their UUIDs
        #[arg(required = true)]
        ids: Vec<String>,
    },
}

/// Kinds of packets.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Type {
    /// ICMP echo request
    Icmp4,
    /// ICMPv6 echo request
    Icmp6,
    /// TCP over IPv4, a SYN unless --tcp-flags is given
    Tcp4,
    /// TCP over IPv6
    Tcp6,
    /// UDP over IPv4
    Udp4,
    /// UDP over IPv6
    Udp6,
}

/// What makes packets belong to different flows.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// One conversation
    Unique,
    /// Random ICMP identifier or source port
    Random,
    /// ICMP identifier or source port that increases by one
    Increment,
}

#[derive(Args, Debug)]
pub struct CreateArguments {
    /// Query that selects the interface to send at, like 'G.V().Has("Name", "eth0")'
    #[arg(long, value_name = "QUERY")]
    pub src: String,
    /// Query that selects the interface to arrive at
    #[arg(long, value_name = "QUERY", default_value = "")]
    pub dst: String,
    /// What to send
    #[arg(long, value_enum, default_value = "icmp4", value_name = "TYPE")]
    pub r#type: Type,
    /// Source address [default: one of the source interface]
    #[arg(long, value_name = "ADDRESS", default_value = "")]
    pub src_ip: String,
    /// Destination address [default: one of the destination interface]
    #[arg(long, value_name = "ADDRESS", default_value = "")]
    pub dst_ip: String,
    /// Source MAC address [default: that of the source interface]
    #[arg(long, value_name = "MAC", default_value = "")]
    pub src_mac: String,
    /// Destination MAC address [default: the next hop's, resolved if needed]
    #[arg(long, value_name = "MAC", default_value = "")]
    pub dst_mac: String,
    /// Source port; 0: random
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    pub src_port: u16,
    /// Destination port; 0: random
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    pub dst_port: u16,
    /// ICMP identifier; 0 means 1
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub id: u16,
    /// TCP flags, letters from FSRPAU [default: S]
    #[arg(long, value_name = "FLAGS", default_value = "")]
    pub tcp_flags: String,
    /// Text that packets carry
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub payload: String,
    /// Random bytes that packets carry
    #[arg(
        long,
        value_name = "N",
        default_value_t = 0,
        conflicts_with = "payload"
    )]
    pub payload_size: usize,
    /// Make each packet this many bytes longer than the one before
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub inc_payload: usize,
    /// Number of packets; of a capture file, how often it is sent
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub count: u64,
    /// Milliseconds between packets
    #[arg(long, value_name = "MS", default_value_t = 0)]
    pub interval: u64,
    /// What makes packets belong to different flows
    #[arg(long, value_enum, default_value = "unique", value_name = "MODE")]
    pub mode: Mode,
    /// Time to live; IPv6: hop limit
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub ttl: u8,
    /// Send the packets of a capture file instead
    #[arg(long, value_name = "FILE")]
    pub pcap: Option<PathBuf>,
    /// Wait for the result; fail if the path does not work
    #[arg(long)]
    pub wait: bool,
}

fn name(value: impl ValueEnum) -> String {
    let value = value.to_possible_value();
    value.map_or_else(String::new, |value| value.get_name().to_owned())
}

impl CreateArguments {
    fn body(&self) -> anyhow::Result<Value> {
        let mut body = json!({
            "Src": self.src,
            "Dst": self.dst,
            "Type": name(self.r#type),
            "SrcIP": self.src_ip,
            "DstIP": self.dst_ip,
            "SrcMAC": self.src_mac,
            "DstMAC": self.dst_mac,
            "SrcPort": self.src_port,
            "DstPort": self.dst_port,
            "ICMPID": self.id,
            "TCPFlags": self.tcp_flags,
            "Payload": self.payload,
            "PayloadSize": self.payload_size,
            "IncrementPayload": self.inc_payload,
            "Count": self.count,
            "Interval": self.interval,
            "Mode": name(self.mode),
            "TTL": self.ttl,
        });
        if let Some(path) = &self.pcap {
            let bytes =
                std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
            body["Pcap"] = STANDARD.encode(bytes).into();
        }
        Ok(body)
    }

    /// Whether no answer is needed for success.
    fn arrival_is_enough(&self) -> bool {
        self.pcap.is_some() || matches!(self.r#type, Type::Udp4 | Type::Udp6)
    }
}

pub fn injection(arguments: &InjectionArguments) -> anyhow::Result<()> {
    let client = Client::connect_or_fail(&arguments.analyzer)?;
    match &arguments.command {
        InjectionCommand::Create(create) => {
            let made = client.create("/api/injectpacket", &[], &create.body()?)?;
            match create.wait {
                false => output::pretty(&made),
                true => wait(&client, create, made),
            }
        }
        InjectionCommand::List(Printing { output }) => {
            client.list("/api/injectpacket", *output, COLUMNS, "injections")
        }
        InjectionCommand::Get { id } => {
            output::pretty(&client.object(&format!("/api/injectpacket/{id}"))?)
        }
        InjectionCommand::Delete { ids } => ids
            .iter()
            .try_for_each(|id| client.delete(&format!("/api/injectpacket/{id}"))),
    }
}

/// Waits for the end of an injection, and fails when the path does not work.
fn wait(client: &Client, create: &CreateArguments, made: Value) -> anyhow::Result<()> {
    let path = format!("/api/injectpacket/{}", output::text(&made["UUID"]));
    let mut now = made;
    let mut looked = Instant::now();
    while now["State"] == "running" {
        std::thread::sleep(POLL.saturating_sub(looked.elapsed()));
        looked = Instant::now();
        now = client.object(&path)?;
    }
    output::pretty(&now)?;
    let outcome = now["Outcome"].as_str().unwrap_or_default();
    let verdict = verdict(&now);
    match went_well(outcome, create.arrival_is_enough()) {
        true => {
            eprintln!("skua: {verdict}");
            Ok(())
        }
        false => bail!("{verdict}"),
    }
}

/// What happened to the packets, for people.
fn verdict(view: &Value) -> String {
    let number = |key: &str| view[key].as_u64().unwrap_or(0);
    let sent = output::counted(
        usize::try_from(number("Sent")).unwrap_or(usize::MAX),
        "packet",
    );
    let mut text = format!("{sent} sent");
    if let Some(arrived) = view["Arrived"].as_u64() {
        text += &format!(", {arrived} seen at the destination");
    }
    text += &format!(", {} answered", number("Answered"));
    if number("Resets") > 0 {
        text += &format!(" ({} by RST: the port is closed)", number("Resets"));
    }
    for error in view["ICMPErrors"].as_array().into_iter().flatten() {
        let (from, meaning) = (
            output::text(&error["From"]),
            output::text(&error["Meaning"]),
        );
        text += &format!("; {from} says {meaning} ({} times)", error["Count"]);
    }
    if let Some(error) = view["Error"].as_str() {
        text += &format!("; {error}");
    }
    text
}

/// Columns of the list.
const COLUMNS: &[Column] = &[
    output::column("INJECTION", 0, |r| output::text(&r["UUID"])),
    output::column("TYPE", 1, |r| output::text(&r["Type"])),
    output::column("FROM", 2, |r| output::text(&r["SrcIP"])),
    output::column("TO", 2, |r| output::text(&r["DstIP"])),
    output::column("STATE", 0, |r| output::text(&r["State"])),
    output::column("OUTCOME", 0, |r| output::text(&r["Outcome"])),
    output::column("SENT", 1, |r| r["Sent"].to_string()),
    output::column("ARRIVED", 1, |r| {
        r["Arrived"].as_u64().map_or("-".into(), |n| n.to_string())
    }),
    output::column("ANSWERED", 1, |r| r["Answered"].to_string()),
    output::column("TRACKING", 3, |r| output::text(&r["TrackingID"])),
];
