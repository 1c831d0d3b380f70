//! `skua flows --since`: the lake, with or without a server. `skua lake`: its content, compaction and
//! retention.

use std::{io::Write as _, path::PathBuf};

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use skua_archive::lake::{DAMAGED, NO_LAKE, configured, damaged, question::Asked, written};
use skua_client::Client;
use skua_config::{Config, arguments::Printing};
use skua_lake::{Lake, Location, Tidied, now_us};
use skua_output as output;
use skua_output::{Column, OutputFormat, bytes, count, text};

use crate::{arguments::FlowsArguments, empty};

/// `skua flows --since`.
pub fn flows(arguments: &FlowsArguments) -> anyhow::Result<()> {
    let captures = arguments.duration.is_some() || !arguments.capture.interface.is_empty();
    if captures || arguments.follow || arguments.active {
        bail!(
            "--since queries the lake: it cannot be combined with --interface, --duration, --follow or --active"
        );
    }
    if !arguments.columns.is_empty() {
        bail!("with --since, --by says what the columns are: leave out --columns");
    }
    let asked = Asked {
        since: arguments.lake.since.clone(),
        until: arguments.lake.until.clone(),
        by: arguments.by.clone(),
        filter: arguments.capture.filter.clone(),
        conditions: arguments.conditions(),
        sort: Some(arguments.sort.name().into()),
        top: arguments.limit,
        table: arguments.lake.table.clone(),
    };
    let question = asked.question()?;
    let csv = arguments.print.output == OutputFormat::Csv;
    let lake = arguments.lake.lake.as_ref();
    let here = match lake.is_none() && arguments.analyzer.is_named() {
        true => None,
        false => configured(lake, arguments.capture.config.as_deref())?,
    };
    let answer = |asked: &Asked| -> anyhow::Result<_> {
        Ok(match &here {
            Some(location) => {
                let answer = Lake::open(location)?.ask(&asked.question()?)?;
                (written(&answer, csv)?, damaged(&answer))
            }
            None => {
                let client = Client::connect(&arguments.analyzer)?.context(NO_LAKE)?;
                client.with_header("/api/flows", &parameters(asked, csv), DAMAGED)?
            }
        })
    };
    let (lines, damaged) = answer(&asked)?;
    let names: Vec<&str> = question.by.iter().map(|field| field.name()).collect();
    let mut out = std::io::stdout().lock();
    match arguments.print.output {
        OutputFormat::Table => table(&mut out, &names, &lines)?,
        _ => out.write_all(&lines)?,
    }
    out.flush()?;
    if let Some(damaged) = damaged {
        eprintln!("skua: not in these sums: {damaged}");
    }
    let said = empty::Asked {
        records: "conversations",
        filter: asked.filter.as_deref(),
        conditions: &asked.conditions,
        options: Vec::new(),
        none: "the lake has no conversation of that time",
    };
    let any = || {
        let all = Asked {
            filter: None,
            conditions: Vec::new(),
            top: Some(1),
            ..asked.clone()
        };
        Ok(!answer(&all)?.0.is_empty())
    };
    empty::explain(arguments.print.output, &lines, &said, any)
}

fn parameters(asked: &Asked, csv: bool) -> Vec<(&'static str, String)> {
    let mut parameters = vec![
        // Without a time the server would not query the lake.
        ("since", asked.since.clone().unwrap_or_else(|| "1h".into())),
        ("format", if csv { "csv" } else { "json" }.into()),
    ];
    let options = [
        ("until", asked.until.clone()),
        ("by", asked.by.clone()),
        ("filter", asked.filter.clone()),
        ("sort", asked.sort.clone()),
        ("top", asked.top.map(|top| top.to_string())),
        ("table", asked.table.clone()),
    ];
    let given = options.into_iter();
    parameters.extend(given.filter_map(|(name, value)| Some((name, value?))));
    let conditions = asked.conditions.iter().cloned();
    parameters.extend(conditions.map(|condition| ("where", condition)));
    parameters
}

/// Cells of the fields that are grouped by, which are in a list here.
const VALUES: [fn(&Value) -> String; 6] = [
    |g| text(&g["values"][0]),
    |g| text(&g["values"][1]),
    |g| text(&g["values"][2]),
    |g| text(&g["values"][3]),
    |g| text(&g["values"][4]),
    |g| text(&g["values"][5]),
];

/// Address and port of a conversation without sums, which are in a list.
fn place(group: &Value, at: usize) -> String {
    let [address, port] = [at, at + 1].map(|at| text(&group["values"][at]));
    output::endpoint(&json!({"address": address, "port": port.parse::<u64>().ok()}))
}

/// Columns of conversations that are not summed up, as without the lake.
const CONVERSATION: [Column; 3] = [
    output::column("PROTO", 0, |g| text(&g["values"][0])),
    output::column("FROM", 0, |g| place(g, 1)),
    output::column("TO", 0, |g| place(g, 3)),
];

const fn number(title: &'static str, rank: u8, cell: fn(&Value) -> String) -> Column {
    Column {
        title,
        right: true,
        rank,
        cell,
    }
}

fn sum(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

const SUMS: [Column; 9] = [
    number("RATE", 1, |g| match g["rate"]["bits_per_second"].as_f64() {
        Some(rate) if rate > 0.0 => output::bit_rate(rate),
        _ => "-".into(),
    }),
    number("SENT PKTS", 5, |g| count(sum(&g["sent"]["packets"]))),
    number("SENT", 0, |g| bytes(sum(&g["sent"]["bytes"]))),
    number("RECEIVED PKTS", 5, |g| {
        count(sum(&g["received"]["packets"]))
    }),
    number("RECEIVED", 0, |g| bytes(sum(&g["received"]["bytes"]))),
    number("BEGUN", 2, |g| count(sum(&g["begun"]))),
    number("ENDED", 3, |g| count(sum(&g["ended"]))),
    number("RETRANS", 4, |g| count(sum(&g["retransmitted"]))),
    number("RTT", 4, |g| match g["handshake_rtt"].as_u64() {
        Some(ns) => output::nanoseconds(ns),
        None => String::new(),
    }),
];

/// Prints JSON lines as a table.
fn table(out: &mut impl std::io::Write, names: &[&str], lines: &[u8]) -> anyhow::Result<()> {
    let usual = names == ["protocol", "a_address", "a_port", "b_address", "b_port"];
    let usual = CONVERSATION.iter().filter(|_| usual).copied();
    let names_shown = if usual.clone().next().is_some() {
        &[]
    } else {
        names
    };
    let titled = names_shown.iter().zip(VALUES).map(|(name, cell)| Column {
        // A command prints one table.
        title: name.replace('_', " ").to_uppercase().leak(),
        right: false,
        rank: 0,
        cell,
    });
    let columns: Vec<Column> = usual.chain(titled).chain(SUMS).collect();
    let mut rows = Vec::new();
    for line in lines.split(|b| *b == b'\n').filter(|line| !line.is_empty()) {
        let mut row: Value = serde_json::from_slice(line).context("cannot read a group")?;
        let values: Vec<Value> = names
            .iter()
            .map(|name| match &row[*name] {
                Value::Number(number) => number.to_string().into(),
                other => other.clone(),
            })
            .collect();
        row["values"] = values.into();
        writeln!(rows, "{row}")?;
    }
    output::table(out, &columns, &rows, usize::MAX, output::width())
}

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  skua lake ls                            hours with their files and sizes
  skua lake compact                       merges small files into large ones, now
  skua lake expire --max-age 7days        deletes older files, now
`skua run` does the last two by itself, at intervals (lake.compact).")]
pub struct LakeArguments {
    #[command(subcommand)]
    pub command: LakeCommand,
    /// Where the lake is [default: lake.directory of the configuration]
    #[arg(long, value_name = "LAKE", global = true)]
    pub lake: Option<Location>,
    /// Configuration file [default: /etc/skua.yaml if it exists]
    #[arg(long, value_name = "FILE", env = "SKUA_CONFIG", global = true)]
    pub config: Option<PathBuf>,
}

#[derive(Subcommand, Debug)]
pub enum LakeCommand {
    /// List hours with their files and sizes
    Ls {
        #[command(flatten)]
        print: Printing,
    },
    /// Merge the many small files of past hours into few large ones
    Compact,
    /// Delete files that are too old, and the oldest if the lake is too large
    Expire {
        /// Age of files to delete [default: lake.max_age]
        #[arg(long, value_name = "TIME", value_parser = skua_config::arguments::duration)]
        max_age: Option<std::time::Duration>,
        /// Maximum size of the lake, like 10GiB [default: lake.max_size]
        #[arg(long, value_name = "SIZE", value_parser = skua_config::size::parse)]
        max_size: Option<u64>,
    },
}

const HOURS: [Column; 4] = [
    Column {
        title: "HOUR",
        right: false,
        rank: 0,
        cell: |h| text(&h["directory"]),
    },
    number("FILES", 0, |h| count(sum(&h["files"]))),
    number("SIZE", 0, |h| bytes(sum(&h["bytes"]))),
    number("TO DELETE", 1, |h| match sum(&h["replaced"]) {
        0 => String::new(),
        files => count(files),
    }),
];

/// `skua lake`.
pub fn lake(arguments: &LakeArguments) -> anyhow::Result<()> {
    let config = Config::load(arguments.config.as_deref())?.lake;
    let location = match &arguments.lake {
        Some(location) => Some(location.clone()),
        None => config.location()?,
    };
    let lake = Lake::open(&location.context(NO_LAKE)?)?;
    let mut out = std::io::stdout().lock();
    match &arguments.command {
        LakeCommand::Ls { print } => {
            let mut lines = Vec::new();
            for hour in lake.list()? {
                let line = json!({
                    "table": hour.table.name(),
                    "directory": hour.directory,
                    "files": hour.files,
                    "bytes": hour.bytes,
                    "replaced": hour.replaced,
                });
                writeln!(lines, "{line}")?;
            }
            match print.output {
                OutputFormat::Table => {
                    output::table(&mut out, &HOURS, &lines, usize::MAX, output::width())?;
                }
                OutputFormat::Json => out.write_all(&lines)?,
                OutputFormat::Csv => {
                    bail!("hours of the lake cannot be printed as CSV: use table or json")
                }
            }
        }
        LakeCommand::Compact => {
            let done = lake.compact(None, now_us())?;
            writeln!(
                out,
                "{} compacted into {}, {} rows; {}",
                output::counted(done.from, "file"),
                done.into,
                count(done.rows as u64),
                deleted(&done)
            )?;
            if done.damaged > 0 {
                bail!(
                    "{} could not be read; the log names them",
                    output::counted(done.damaged, "file")
                );
            }
        }
        LakeCommand::Expire { max_age, max_size } => {
            let mut retention = config.retention();
            retention.max_age = max_age.unwrap_or(retention.max_age);
            retention.max_bytes = max_size.unwrap_or(retention.max_bytes);
            writeln!(out, "{}", deleted(&lake.expire(&retention, now_us())?))?;
        }
    }
    Ok(())
}

fn deleted(done: &Tidied) -> String {
    format!(
        "{} deleted, {}",
        output::counted(done.deleted, "file"),
        bytes(done.deleted_bytes)
    )
}
