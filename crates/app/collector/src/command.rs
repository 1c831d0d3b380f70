//! `skua collector`.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::PoisonError,
    time::Duration,
};

use anyhow::{Context as _, anyhow};
use clap::Args;
use serde::Serialize;
use skua_collect::{CollectorConfig, Summary};
use skua_config::{
    AUTO, Config,
    arguments::{AnalyzerArguments, SummaryFormat, duration},
};
use skua_export::export::seal;
use skua_flow::Prefix;
use skua_output as output;
use skua_sinks::{SinkName, Sinks};

use crate::{gate::Gate, receive::Threads, received::Received, watch};

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  skua collector                                    for agents on this host
  skua agent --collector 127.0.0.1:6343             exports to it, as `skua run` can
  skua collector --sink analyzer:///run/skua/skua.sock   for `skua services --graph` there
  skua collector --listen 192.0.2.1:6343 --allow 192.0.2.0/24 | jq .
  skua collector --listen '[::]:6343' --listen '[::]:2055' --allow 10.0.0.0/8    also NetFlow of routers
  skua collector --sink parquet:///var/lib/skua/lake    as Parquet, for any engine (docs/lake.md)
  skua collector --sink kafka://broker:9092/skua-lines
sFlow has no authentication: beyond loopback --allow lists the senders that are accepted, and with --keys
agents prove that they have a key.")]
pub struct CollectorArguments {
    /// Configuration file; its section `collector` has all of these [default: /etc/skua.yaml if it exists]
    #[arg(long, value_name = "FILE", env = "SKUA_CONFIG")]
    pub config: Option<PathBuf>,
    /// Where to listen for sFlow, NetFlow 5 and 9 and IPFIX, which may share a port; may be given several times
    /// [default: 127.0.0.1:6343]
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: Vec<SocketAddr>,
    /// Accept datagrams of senders in this prefix only; may be given several times. Needed to
    /// listen beyond loopback
    #[arg(long, value_name = "PREFIX")]
    pub allow: Vec<Prefix>,
    /// Threads that receive datagrams, and as many that sum up [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=64))]
    pub threads: Option<u8>,
    /// Datagrams per second accepted from one sender; beyond that only its own datagrams are dropped [default: 20000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(10..))]
    pub sender_rate: Option<u32>,
    /// Accept only datagrams of sFlow that are sealed with one of the keys in this file (lines of a name and a
    /// secret): agents have one in `export.key_file`
    #[arg(long, value_name = "FILE")]
    pub keys: Option<String>,
    /// With --keys: senders in this prefix need no seal, like switches and NetFlow exporters; may be given several
    /// times
    #[arg(long, value_name = "PREFIX")]
    pub unsealed: Vec<Prefix>,
    /// Where lines go: stdout, analyzer://HOST:PORT, kafka://BROKER:PORT/TOPIC, none, or a lake: parquet://DIR,
    /// s3://BUCKET/PREFIX, hdfs://HOST:PORT/PATH; may be given several times [default: stdout]
    #[arg(long, value_name = "SINK")]
    pub sink: Vec<String>,
    /// Where to serve /metrics, /health and /ready, without a login [default: 127.0.0.1:6344]; none: nowhere
    #[arg(long, value_name = "ADDRESS:PORT|none")]
    pub metrics: Option<String>,
    /// Length of a window [default: 10s]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub window: Option<Duration>,
    /// How long a window stays open after its end; longer than the agents' scan interval [default: 15s]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub wait: Option<Duration>,
    /// Maximum number of services and clients in open windows [default: 1000000]
    #[arg(long, value_name = "N")]
    pub max_keys: Option<usize>,
    /// Maximum number of conversations that the collector remembers [default: 1000000]
    #[arg(long, value_name = "N")]
    pub max_conversations: Option<usize>,
    /// How to print the sums at the end, on standard error
    #[arg(long, value_enum, default_value = "text", value_name = "FORMAT")]
    pub summary: SummaryFormat,
    /// With the sink analyzer: the server and the credentials
    #[command(flatten)]
    pub analyzer: AnalyzerArguments,
}

/// Overrides a setting by a flag.
fn replace<T>(configured: &mut T, flag: &Option<T>)
where
    T: Clone,
{
    if let Some(value) = flag {
        configured.clone_from(value);
    }
}

/// Overrides a list by flags.
fn replace_list<T: ToString>(configured: &mut Vec<String>, flags: &[T]) {
    if !flags.is_empty() {
        *configured = flags.iter().map(T::to_string).collect();
    }
}

impl CollectorArguments {
    /// The configuration with flags over it.
    fn configured(&self) -> anyhow::Result<Config> {
        let mut config = Config::load(self.config.as_deref())?;
        let settings = &mut config.collector;
        if !self.listen.is_empty() {
            settings.listen.clone_from(&self.listen);
        }
        replace_list(&mut settings.allow, &self.allow);
        replace_list(&mut settings.unsealed, &self.unsealed);
        replace_list(&mut settings.sinks, &self.sink);
        replace(&mut settings.threads, &self.threads);
        replace(&mut settings.sender_rate, &self.sender_rate);
        replace(&mut settings.key_file, &self.keys);
        replace(&mut settings.metrics, &self.metrics);
        replace(&mut settings.window, &self.window);
        replace(&mut settings.wait, &self.wait);
        replace(&mut settings.max_keys, &self.max_keys);
        replace(&mut settings.max_conversations, &self.max_conversations);
        config.checked()
    }
}

/// Runs until Ctrl-C.
pub fn collector(arguments: &CollectorArguments) -> anyhow::Result<()> {
    let config = arguments.configured()?;
    config.networks.follow();
    let settings = &config.collector;
    let sinks = settings.sinks.iter().map(|sink| sink.parse());
    let sinks: Vec<SinkName> = sinks
        .collect::<Result<_, _>>()
        .context("--sink (collector.sinks)")?;
    let metrics = match settings.metrics.as_str() {
        AUTO => None,
        place => Some(
            place
                .parse()
                .map_err(|error| anyhow!("--metrics (collector.metrics): {error}"))?,
        ),
    };
    let keys = match settings.key_file.as_str() {
        "" => None,
        file => Some(seal::open("--keys (collector.key_file)", Path::new(file))?),
    };
    let (allowed, unsealed) = (settings.allowed()?, settings.unsealed()?);
    let limits = CollectorConfig {
        window: settings.window,
        wait: settings.wait,
        max_keys: settings.max_keys,
        max_conversations: settings.max_conversations,
        ..CollectorConfig::default()
    };
    let threads = Threads::start(
        &settings.listen,
        settings.threads.into(),
        &limits,
        || Gate::new(&allowed, settings.sender_rate).with_keys(keys.clone(), &unsealed),
        keys.clone(),
        Sinks::open(&sinks, &arguments.analyzer, &config)?,
    )?;
    let watched = watch::start(metrics, threads.watched())?;
    let addresses = threads.addresses().iter().map(ToString::to_string);
    eprintln!(
        "skua collects sFlow, NetFlow and IPFIX at {}; Ctrl-C ends",
        addresses.collect::<Vec<_>>().join(", ")
    );
    if let Some(address) = watched {
        eprintln!("metrics and health: http://{address}/metrics, /health, /ready");
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
        ("exported before", &summary.exported_before),
        ("exported by agents", &summary.exported),
        ("missing", &summary.missing),
        ("got", &summary.got),
        ("known already", &summary.elsewhere),
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
            "  {} sent too many datagrams: {} were dropped",
            sender.from, sender.datagrams
        );
    }
    for sender in &all.received.strangers {
        eprintln!(
            "  {} is not allowed: {} datagrams were dropped",
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

#[cfg(test)]
mod tests {
    use clap::Parser;
    use skua_testkit::scratch::scratch;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        arguments: CollectorArguments,
    }

    fn configured(file: &str, flags: &str) -> anyhow::Result<Config> {
        let path = scratch("collector.yaml");
        std::fs::write(&path, file).unwrap();
        let words = format!("skua --config {} {flags}", path.display());
        Line::parse_from(words.split_whitespace())
            .arguments
            .configured()
    }

    #[test]
    fn flags_stand_over_the_section_of_the_file() {
        let file = "collector: {listen: ['[::1]:9'], allow: [10.0.0.0/8], sinks: [none], window: 20s, threads: 3}";
        let plain = configured(file, "").unwrap().collector;
        assert_eq!((plain.threads, plain.window.as_secs()), (3, 20));
        assert_eq!(
            (&*plain.sinks, &*plain.allow),
            (&["none".to_owned()][..], &["10.0.0.0/8".to_owned()][..])
        );
        let flags = "--listen 0.0.0.0:7 --allow 192.0.2.0/24 --sink stdout --sink none --window 5s --max-keys 7";
        let over = configured(file, flags).unwrap().collector;
        assert_eq!(over.listen, ["0.0.0.0:7".parse().unwrap()]);
        assert_eq!(
            (over.allow, over.sinks),
            (
                vec!["192.0.2.0/24".to_owned()],
                vec!["stdout".to_owned(), "none".to_owned()]
            )
        );
        assert_eq!(
            (over.threads, over.window.as_secs(), over.max_keys),
            (3, 5, 7)
        );
    }

    #[test]
    fn impossible_values_are_named_with_their_keys() {
        for (file, said) in [
            ("collector: {listen: ['0.0.0.0:6343']}", "--allow"),
            ("collector: {listen: []}", "collector.listen"),
            ("collector: {threads: 65}", "collector.threads"),
            ("collector: {sender_rate: 9}", "collector.sender_rate"),
            ("collector: {unsealed: [10.0.0.0/8]}", "collector.key_file"),
            ("collector: {allow: [everybody]}", "collector.allow"),
            ("collector: {sink: stdout}", "did you mean sinks?"),
        ] {
            let refused = format!("{:#}", configured(file, "").unwrap_err());
            assert!(refused.contains(said), "{file}: {refused}");
        }
    }
}
