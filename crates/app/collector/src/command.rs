//! `skua collector`.

use std::{net::SocketAddr, path::PathBuf, sync::PoisonError, time::Duration};

use anyhow::bail;
use clap::Args;
use serde::Serialize;
use skua_collect::{CollectorConfig, Summary};
use skua_config::arguments::{AnalyzerArguments, SummaryFormat, duration};
use skua_flow::Prefix;
use skua_output as output;
use skua_runtime::export::seal;

use crate::{
    gate::Gate,
    receive::Threads,
    received::Received,
    sink::{SinkName, Sinks},
    watch,
};

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  skua collector                                    for agents on this host
  skua agent --collector 127.0.0.1:6343             tells it, as does `skua run`
  skua collector --sink analyzer:///run/skua/skua.sock   for `skua services --graph` there
  skua collector --listen 192.0.2.1:6343 --allow 192.0.2.0/24 | jq .
  skua collector --listen '[::]:6343' --listen '[::]:2055' --allow 10.0.0.0/8    also NetFlow of routers
  skua collector --sink parquet:///var/lib/skua/lake    as Parquet, for any engine (docs/lake.md)
  skua collector --sink kafka://broker:9092/skua-lines
sFlow has no authentication: beyond loopback --allow says whose datagrams are taken, and with --keys
agents prove that they have a key.")]
pub struct CollectorArguments {
    /// Where to listen for sFlow, NetFlow 5 and 9 and IPFIX, which may come to the same port; may be given several
    /// times
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:6343")]
    pub listen: Vec<SocketAddr>,
    /// Take datagrams of senders in this prefix only; may be given several times. Needed to listen
    /// beyond loopback
    #[arg(long, value_name = "PREFIX")]
    pub allow: Vec<Prefix>,
    /// Threads that take datagrams, and as many that sum up
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=64))]
    pub threads: u8,
    /// Datagrams a second that are taken of one sender: beyond that only its own are lost
    #[arg(long, default_value_t = 20_000, value_name = "N", value_parser = clap::value_parser!(u32).range(10..))]
    pub sender_rate: u32,
    /// Take only datagrams of sFlow that are sealed with one of the keys in this file (lines of a name and a secret):
    /// agents have one in `export.key_file`
    #[arg(long, value_name = "FILE")]
    pub keys: Option<PathBuf>,
    /// With --keys: senders in this prefix need no seal, as switches and exporters of NetFlow; may be given several
    /// times
    #[arg(long, value_name = "PREFIX", requires = "keys")]
    pub unsealed: Vec<Prefix>,
    /// Where lines go: stdout, analyzer://HOST:PORT, kafka://BROKER:PORT/TOPIC, none, or a lake: parquet://DIR,
    /// s3://BUCKET/PREFIX, hdfs://HOST:PORT/PATH; may be given several times
    #[arg(long, default_value = "stdout", value_name = "SINK")]
    pub sink: Vec<SinkName>,
    /// Where to serve /metrics, /health and /ready, without a login [default: 127.0.0.1:6344]; none: nowhere
    #[arg(long, value_name = "ADDRESS:PORT|none")]
    pub metrics: Option<watch::At>,
    /// Length of a window
    #[arg(long, default_value = "10s", value_name = "TIME", value_parser = duration)]
    pub window: Duration,
    /// Time after its end until a window is closed: longer than the agents' scan interval
    #[arg(long, default_value = "15s", value_name = "TIME", value_parser = duration)]
    pub wait: Duration,
    /// Services and clients in open windows at most
    #[arg(long, default_value_t = 1_000_000, value_name = "N")]
    pub max_keys: usize,
    /// Conversations to remember at most
    #[arg(long, default_value_t = 1_000_000, value_name = "N")]
    pub max_conversations: usize,
    /// How to print the sums at the end, on standard error
    #[arg(long, value_enum, default_value = "text", value_name = "FORMAT")]
    pub summary: SummaryFormat,
    /// With the sink analyzer: whom to tell, and as whom
    #[command(flatten)]
    pub analyzer: AnalyzerArguments,
}

/// Runs until Ctrl-C.
pub fn collector(arguments: &CollectorArguments) -> anyhow::Result<()> {
    let mut listens = arguments.listen.iter();
    let far = listens.find(|address| !address.ip().to_canonical().is_loopback());
    if let Some(far) = far
        && arguments.allow.is_empty()
    {
        bail!(
            "--listen is {far}: sFlow has no authentication, so beyond loopback say with --allow whose \
             datagrams are taken, like --allow 192.0.2.0/24"
        );
    }
    let keys = arguments.keys.as_deref();
    let keys = keys.map(|file| seal::open("--keys", file)).transpose()?;
    let config = CollectorConfig {
        window: arguments.window,
        wait: arguments.wait,
        max_keys: arguments.max_keys,
        max_conversations: arguments.max_conversations,
        ..CollectorConfig::default()
    };
    let threads = Threads::start(
        &arguments.listen,
        arguments.threads.into(),
        &config,
        || {
            Gate::new(&arguments.allow, arguments.sender_rate)
                .with_keys(keys.clone(), &arguments.unsealed)
        },
        keys.clone(),
        Sinks::open(&arguments.sink, &arguments.analyzer)?,
    )?;
    let watched = watch::start(arguments.metrics, threads.watched())?;
    let addresses = threads.addresses().iter().map(ToString::to_string);
    eprintln!(
        "skua collects sFlow, NetFlow and IPFIX at {}; Ctrl-C ends",
        addresses.collect::<Vec<_>>().join(", ")
    );
    if let Some(address) = watched {
        eprintln!("how it fares: http://{address}/metrics, /health, /ready");
    }
    let (mut summary, received, sinks) = threads.join()?;
    let mut sinks = sinks.lock().unwrap_or_else(PoisonError::into_inner);
    sinks.finish()?;
    received.lost_to(&mut summary);
    summary.lost.extend(sinks.lost());
    print(arguments.summary, &All { summary, received })
}

/// All sums.
#[derive(Serialize)]
struct All {
    #[serde(flatten)]
    summary: Summary,
    #[serde(flatten)]
    received: Received,
}

fn print(format: SummaryFormat, all: &All) -> anyhow::Result<()> {
    match format {
        SummaryFormat::Json => eprintln!("{}", serde_json::to_string(all)?),
        SummaryFormat::Text => text(all),
    }
    Ok(())
}

fn text(all: &All) {
    let summary = &all.summary;
    let sum = |sum: &skua_collect::Sum| {
        format!(
            "{} packets, {}",
            output::count(sum.packets),
            output::bytes(sum.bytes)
        )
    };
    eprintln!(
        "{} datagrams of {}, {} records, {} samples; {} lines",
        output::count(summary.datagrams),
        output::counted(summary.agents.len(), "agent"),
        output::count(summary.records),
        output::count(summary.samples),
        output::count(summary.lines),
    );
    for (name, value) in [
        ("told before", &summary.told_before),
        ("told by agents", &summary.told),
        ("missing", &summary.missing),
        ("got", &summary.got),
        ("told by several", &summary.elsewhere),
        ("too late", &summary.late),
        ("keys full", &summary.keys_full),
        ("conversations full", &summary.conversations_full),
        ("counted", &summary.counted),
        ("estimated", &summary.estimated),
    ] {
        eprintln!("  {name:<18} {}", sum(value));
    }
    for (cause, units) in &summary.lost {
        eprintln!("  lost: {cause} {}", output::count(*units));
    }
    for agent in &summary.agents {
        eprintln!(
            "  agent {}: {} datagrams lost, {} records lost, {} records lost at the agent, clock {} ms",
            agent.agent,
            agent.lost_datagrams,
            agent.lost_records,
            agent.agent_lost_records,
            agent.clock_ms
        );
    }
    for sender in &all.received.flooding {
        eprintln!(
            "  {} sent too many: {} datagrams not taken",
            sender.from, sender.datagrams
        );
    }
    for sender in &all.received.strangers {
        eprintln!(
            "  {} is not allowed: {} datagrams not taken",
            sender.from, sender.datagrams
        );
    }
    for sender in &summary.unreadable {
        eprintln!(
            "  {} sent {} unreadable datagrams",
            sender.from, sender.datagrams
        );
    }
    if let Some(error) = &summary.last_error {
        eprintln!("  last error: {error}");
    }
}
