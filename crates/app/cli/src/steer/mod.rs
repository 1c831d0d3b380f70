//! `skua steer`.

mod replay;
mod watch;

use std::{io::Write as _, path::PathBuf, time::Duration};

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use serde_json::Value;
use skua_client::Client;
use skua_config::{
    arguments::{AnalyzerArguments, Printing},
    steer,
};
use skua_output as output;
use skua_output::{Column, OutputFormat};
use skua_steer::Written;

/// Where detectors are.
pub const PATH: &str = "/api/steer";

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  skua steer apply jumps.yaml
  skua steer apply jumps.yaml --dry-run
  skua steer run jumps.yaml --pcap traffic.pcap
  skua steer watch jumps
  skua steer delete jumps
  skua steer release

docs/steer.md says what a file has and shows a session.")]
pub struct SteerArguments {
    #[command(subcommand)]
    pub command: SteerCommand,
    #[command(flatten)]
    pub analyzer: AnalyzerArguments,
}

#[derive(Subcommand, Debug)]
pub enum SteerCommand {
    /// Start the detectors of files, and replace those of the same names
    Apply {
        /// YAML files; - for standard input
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        /// Only report what would be done
        #[arg(long)]
        dry_run: bool,
    },
    /// Show all detectors
    List(Printing),
    /// Show a detector with all its settings and counts
    Show {
        /// Its name or UUID
        name: String,
    },
    /// Follow the channels and events of a detector
    Watch(watch::WatchArguments),
    /// End detectors
    Delete {
        /// Their names or UUIDs
        #[arg(required = true)]
        names: Vec<String>,
    },
    /// Run the detectors of a file on a capture file, in user space
    Run(replay::RunArguments),
    /// End what a killed skua has left steering on this host (`when_lost: stay`)
    Release,
}

pub fn steer(arguments: &SteerArguments) -> anyhow::Result<()> {
    match &arguments.command {
        SteerCommand::Run(run) => return replay::run(run),
        SteerCommand::Release => return release(),
        _ => {}
    }
    // Errors in files are reported also when no server runs.
    let written = match &arguments.command {
        SteerCommand::Apply { files, dry_run } => read(files, *dry_run)?,
        _ => Vec::new(),
    };
    let client = Client::connect_or_fail(&arguments.analyzer)?;
    match &arguments.command {
        SteerCommand::Apply { .. } => written.iter().try_for_each(|body| apply(&client, body)),
        SteerCommand::List(Printing { output }) => client.list(PATH, *output, COLUMNS, "detectors"),
        SteerCommand::Show { name } => output::pretty(&client.object(&path_of(name)?)?),
        SteerCommand::Watch(watch) => watch::watch(&client, watch),
        SteerCommand::Delete { names } => names
            .iter()
            .try_for_each(|name| client.delete(&path_of(name)?)),
        SteerCommand::Run(_) | SteerCommand::Release => Ok(()),
    }
}

/// Needs no `skua run`: there may be none any more.
fn release() -> anyhow::Result<()> {
    let ended = skua_kernel::steer::release(true);
    let mut out = std::io::stdout().lock();
    match ended.as_slice() {
        [] => writeln!(out, "nothing was left")?,
        names => writeln!(out, "ended: {}", names.join(", "))?,
    }
    Ok(())
}

/// Where a detector is.
pub fn path_of(name: &str) -> anyhow::Result<String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || !name.chars().all(plain) || name.starts_with("..") {
        bail!("\"{}\" is not a name of a detector", name.escape_debug());
    }
    Ok(format!("{PATH}/{name}"))
}

/// Detectors as requests have them.
fn read(files: &[PathBuf], dry_run: bool) -> anyhow::Result<Vec<Value>> {
    let mut bodies = Vec::new();
    for file in files {
        for written in steer::written(file)? {
            bodies.push(body(written, dry_run)?);
        }
    }
    Ok(bodies)
}

fn body(written: Written, dry_run: bool) -> anyhow::Result<Value> {
    let mut body = serde_json::to_value(written)?;
    if dry_run {
        body["dry_run"] = true.into();
    }
    Ok(body)
}

fn apply(client: &Client, body: &Value) -> anyhow::Result<()> {
    let made = client
        .create(PATH, &[], body)
        .with_context(|| format!("detector {}", output::text(&body["name"])))?;
    let mut out = std::io::stdout().lock();
    write!(
        out,
        "{} on {}: {}",
        output::text(&made["Name"]),
        output::text(&made["Interface"]),
        output::text(&made["State"])
    )?;
    if let Some(reason) = made["Reason"].as_str() {
        write!(out, ", {reason}")?;
    }
    writeln!(out)?;
    Ok(())
}

/// Whether JSON is selected, else a table: events and channels together have no other format.
pub fn is_json(printing: Printing) -> anyhow::Result<bool> {
    match printing.output {
        OutputFormat::Json => Ok(true),
        OutputFormat::Table => Ok(false),
        OutputFormat::Csv => bail!("detectors cannot be printed as CSV: use table or json"),
    }
}

/// Interval of updates.
pub fn interval(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(time) if time >= Duration::from_millis(100) => Ok(time),
        Ok(_) => Err("must be at least 100ms".into()),
        Err(error) => Err(format!("{error}; write it like 1s")),
    }
}

fn count(value: &Value) -> String {
    value.as_u64().map_or_else(|| "-".into(), output::count)
}

/// Packets that a detector left unchanged for another cause than its expression.
fn untouched(view: &Value) -> String {
    let causes = view["Counts"]["Untouched"].as_object();
    let sum = causes.map(|all| all.values().filter_map(Value::as_u64).sum());
    sum.map_or_else(|| "-".into(), output::count)
}

/// Columns of the list.
const COLUMNS: &[Column] = &[
    output::column("DETECTOR", 0, |r| output::text(&r["Name"])),
    output::column("INTERFACE", 1, |r| output::text(&r["Interface"])),
    output::column("ACTION", 0, |r| {
        let dry = if r["DryRun"] == true { " (dry)" } else { "" };
        output::text(&r["Action"]) + dry
    }),
    output::column("STATE", 0, |r| output::text(&r["State"])),
    output::column("SAMPLED", 1, |r| count(&r["Counts"]["Sampled"])),
    output::column("FIRED", 0, |r| count(&r["Counts"]["Fired"])),
    output::column("ACTED", 1, |r| count(&r["Counts"]["Results"]["acted"])),
    output::column("UNTOUCHED", 2, untouched),
    output::column("REASON", 1, |r| output::text(&r["Reason"])),
];
