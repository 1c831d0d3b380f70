//! `skua sockets` and `skua services`: from the running `skua run`, or observed by this command.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use serde::Serialize;
use skua_client::Client;
use skua_config::{Config, arguments::Printing};
use skua_export::services::{
    exchange::{self, GraphQuery},
    history, show,
};
use skua_output::{Column, OutputFormat, Printer};
use skua_process::host::{unix_ms, unix_ns};
use skua_socket::{call, fields};
use skua_state::sockets::{Sockets, drain};
use skua_watch::sockets::{
    Started,
    calls::{self, CallsQuery, CallsSort},
    query::{self, SocketQuery},
    start, tables,
};

use crate::empty::{self, Asked};

/// What services are called where there are none, and why.
const SERVICES: [&str; 2] = ["services", "nobody has called a service in that time"];
/// Interval of `--follow`.
const FOLLOW_INTERVAL: Duration = Duration::from_secs(2);
/// How long this command observes services by default.
const SERVICES_DURATION: Duration = Duration::from_secs(10);

/// How something is printed.
pub trait Prints: Args {
    /// As which of the common formats.
    fn format(&self) -> OutputFormat;
}

impl Prints for Printing {
    fn format(&self) -> OutputFormat {
        self.output
    }
}

/// How services are printed.
#[derive(Args, Clone, Copy, Debug)]
pub struct ServicesPrinting {
    /// How to print
    #[arg(
        short,
        long,
        alias = "format",
        value_enum,
        default_value = "table",
        value_name = "FORMAT"
    )]
    pub output: ServicesFormat,
}

/// Formats of services.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum ServicesFormat {
    /// For people
    Table,
    /// One JSON object a line
    Json,
    /// Comma-separated values with a header
    Csv,
    /// A drawing for Graphviz, with --graph
    Dot,
}

impl Prints for ServicesPrinting {
    fn format(&self) -> OutputFormat {
        match self.output {
            ServicesFormat::Table => OutputFormat::Table,
            ServicesFormat::Json | ServicesFormat::Dot => OutputFormat::Json,
            ServicesFormat::Csv => OutputFormat::Csv,
        }
    }
}

/// Output format, and the source.
#[derive(Args, Debug)]
pub struct Show<P: Args = Printing> {
    /// Continue to show new and changed records
    #[arg(short = 'F', long)]
    pub follow: bool,
    /// Show all columns, even if the terminal is too narrow
    #[arg(short, long)]
    pub wide: bool,
    #[command(flatten)]
    pub print: P,
    /// Observe here for this long, like 10s, instead of querying `skua run`
    #[arg(long, value_name = "TIME", value_parser = skua_config::arguments::duration)]
    pub duration: Option<Duration>,
    #[command(flatten)]
    pub analyzer: skua_config::arguments::AnalyzerArguments,
    /// Configuration file for watching on the spot
    #[arg(long, value_name = "FILE", env = "SKUA_CONFIG")]
    pub config: Option<PathBuf>,
}

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  skua sockets                                    with a peer, most bytes first
  skua sockets --listen
  skua sockets --closed --process curl
  skua sockets --sort rtt --limit 20 --wide
  skua sockets --follow --output json | jq .")]
pub struct SocketsArguments {
    #[command(flatten)]
    pub query: SocketQuery,
    #[command(flatten)]
    pub show: Show,
}

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  skua services                                   what listens, and how healthy its connections are
  skua services --clients                         who calls
  skua services --dependencies                    which service calls which
  skua services --since 5m --sort rtt             the slowest of the last five minutes
  skua services --sort rtt --output json
  skua services --graph                           of all that is known, also of other hosts
  skua services --graph --output dot | dot -Tsvg >services.svg
  skua services --graph --change new              dependencies that are less than an hour old")]
pub struct ServicesArguments {
    /// Which service calls which
    #[arg(short, long, conflicts_with = "clients")]
    pub dependencies: bool,
    /// The service graph, with bytes and packets in both directions, failures and quantiles of round-trip times
    #[arg(short, long, conflicts_with_all = ["clients", "dependencies", "sort", "duration"])]
    pub graph: bool,
    /// Sums and quantiles of the last time, like 5m, instead of since the start of `skua run`
    #[arg(long, value_name = "TIME", value_parser = skua_config::arguments::duration)]
    #[arg(conflicts_with_all = ["graph", "duration", "follow", "protocol"])]
    pub since: Option<Duration>,
    #[command(flatten)]
    pub change: GraphQuery,
    #[command(flatten)]
    pub query: CallsQuery,
    #[command(flatten)]
    pub show: Show<ServicesPrinting>,
}

/// `skua sockets`.
pub fn sockets(arguments: &SocketsArguments) -> anyhow::Result<()> {
    arguments.query.check()?;
    let show = &arguments.show;
    let printer = Printer::new(
        show.print.output,
        &tables::SOCKETS,
        fields::write_csv_header,
        show.wide,
    );
    let ask = |query: &SocketQuery| ("/api/sockets", parameters(query, show.print.output));
    run(
        show,
        [
            "sockets",
            "no socket has a peer now; --closed shows those that ended, --listen those that wait for connections",
        ],
        printer,
        None,
        |since| {
            ask(&SocketQuery {
                since,
                ..arguments.query.clone()
            })
        },
        |sockets, since| {
            let query = SocketQuery {
                since,
                ..arguments.query.clone()
            };
            query::lines(
                &|read| read(sockets),
                &query,
                show.print.output == OutputFormat::Csv,
            )
        },
    )
}

/// `skua services`.
pub fn services(arguments: &ServicesArguments) -> anyhow::Result<()> {
    let (show, dependencies) = (&arguments.show, arguments.dependencies);
    if arguments.graph {
        return graph(arguments);
    }
    if show.print.output == ServicesFormat::Dot || arguments.change.change.is_some() {
        anyhow::bail!("--output dot and --change are for --graph");
    }
    if let Some(since) = arguments.since {
        return lately(arguments, since);
    }
    let columns: &[Column] = if dependencies {
        &tables::DEPENDENCIES
    } else {
        &tables::SERVICES
    };
    let printer = Printer::new(
        show.print.format(),
        columns,
        call::write_csv_header,
        show.wide,
    );
    let path = if dependencies {
        "/api/dependencies"
    } else {
        "/api/services"
    };
    run(
        show,
        SERVICES,
        printer,
        Some(SERVICES_DURATION),
        // Sums have no moment since which they are new.
        |_| (path, parameters(&arguments.query, show.print.format())),
        |sockets, _| {
            let csv = show.print.format() == OutputFormat::Csv;
            calls::lines(sockets, &arguments.query, dependencies, csv)
        },
    )
}

/// `skua services --graph`.
fn graph(arguments: &ServicesArguments) -> anyhow::Result<()> {
    let (show, query) = (&arguments.show, &arguments.query);
    let dot = show.print.output == ServicesFormat::Dot;
    let wanted = GraphQuery {
        service: query.service.clone(),
        port: query.port,
        protocol: query.protocol.clone(),
        limit: query.limit,
        format: dot.then(|| "dot".to_owned()),
        ..arguments.change.clone()
    };
    let mut printer = Printer::new(
        show.print.format(),
        &skua_top::columns::EDGES,
        show::csv_header,
        show.wide,
    );
    let client = Client::connect_or_fail(&show.analyzer)?;
    loop {
        let parameters = parameters(&wanted, show.print.format());
        let (lines, _) = client.lines(exchange::PATH, &parameters)?;
        if !show.follow {
            printer.finish(&lines)?;
            return explain(
                show.print.format(),
                &lines,
                SERVICES,
                parameters,
                |others| Ok(client.lines(exchange::PATH, others)?.0),
            );
        }
        printer.follow(&lines)?;
        std::thread::sleep(FOLLOW_INTERVAL);
    }
}

/// `skua services --since`: sums of the service graph over a time.
fn lately(arguments: &ServicesArguments, since: Duration) -> anyhow::Result<()> {
    let (show, query) = (&arguments.show, &arguments.query);
    if show.print.format() == OutputFormat::Csv {
        anyhow::bail!("sums of a time cannot be printed as CSV: use table or json");
    }
    let sort = query.sort.unwrap_or(CallsSort::Connections);
    if sort == CallsSort::Open {
        anyhow::bail!("what is open now is not a sum of a time: leave out --since");
    }
    let by = match (arguments.dependencies, query.clients) {
        (true, _) => "edge",
        (false, true) => "client",
        (false, false) => "server",
    };
    let now = unix_ms();
    let from = now.saturating_sub(i64::try_from(since.as_millis()).unwrap_or(i64::MAX));
    let mut parameters: Vec<(String, String)> = [
        ("from", from.max(0).to_string()),
        ("by", by.into()),
        ("top", "200".into()),
        ("whole", "true".into()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into();
    parameters.extend(query.service.clone().map(|name| ("service".into(), name)));
    parameters.extend(query.port.map(|port| ("port".into(), port.to_string())));
    let client = Client::connect_or_fail(&show.analyzer)?;
    let (lines, _) = client.lines(history::PATH, &parameters)?;
    let mut rows: Vec<serde_json::Value> = serde_json::Deserializer::from_slice(&lines)
        .into_iter()
        .collect::<Result<_, _>>()
        .context("the answer is not JSON")?;
    // What is beyond these is one row without a name.
    rows.retain(|row| row["others"] != true);
    let rank = |row: &serde_json::Value| {
        let number = |value: &serde_json::Value| value.as_f64().unwrap_or(0.0);
        match sort {
            CallsSort::Connections | CallsSort::Rate => number(&row["connections"]),
            CallsSort::Bytes => number(&row["bytes"]),
            CallsSort::Failed => number(&row["failed"]),
            CallsSort::Rtt => number(&row["rtt"]["p95_us"]),
            CallsSort::Retransmits => {
                number(&row["retransmitted"]) / number(&row["packets"]).max(1.0)
            }
            CallsSort::Open | CallsSort::Name => 0.0,
        }
    };
    let name = |row: &serde_json::Value| format!("{} {}", row["server"], row["client"]);
    rows.sort_by(|a, b| {
        rank(b)
            .total_cmp(&rank(a))
            .then_with(|| name(a).cmp(&name(b)))
    });
    rows.truncate(query.limit.unwrap_or(usize::MAX));
    let mut lines = Vec::new();
    for row in &rows {
        serde_json::to_writer(&mut lines, row)?;
        lines.push(b'\n');
    }
    let csv_header = |_: &mut Vec<u8>| Ok(());
    Printer::new(
        show.print.format(),
        &skua_top::columns::LATELY,
        csv_header,
        show.wide,
    )
    .finish(&lines)?;
    explain(
        show.print.format(),
        &lines,
        SERVICES,
        parameters,
        |others| Ok(client.lines(history::PATH, others)?.0),
    )
}

/// A query as parameters of the API.
pub fn parameters(query: &impl Serialize, output: OutputFormat) -> Vec<(String, String)> {
    let mut parameters = Vec::new();
    if let Ok(serde_json::Value::Object(fields)) = serde_json::to_value(query) {
        for (name, value) in fields {
            match value {
                serde_json::Value::Null => {}
                serde_json::Value::String(text) => parameters.push((name, text)),
                other => parameters.push((name, other.to_string())),
            }
        }
    }
    if output == OutputFormat::Csv {
        parameters.push(("format".into(), "csv".into()));
    }
    parameters
}

/// Whether a parameter leaves records out.
fn narrows((name, value): &(String, String)) -> bool {
    value != "false"
        && !matches!(
            &**name,
            "sort" | "limit" | "since" | "format" | "clients" | "from" | "by" | "top" | "whole"
        )
}

/// A parameter as an option of the command line.
fn option((name, value): &(String, String)) -> String {
    match value.as_str() {
        "true" => format!("--{name}"),
        value => format!("--{name} {value}"),
    }
}

/// Why an answer to these parameters is empty; `ask` asks again with others.
fn explain(
    format: OutputFormat,
    lines: &[u8],
    [records, none]: [&str; 2],
    parameters: Vec<(String, String)>,
    ask: impl FnOnce(&[(String, String)]) -> anyhow::Result<Vec<u8>>,
) -> anyhow::Result<()> {
    let (narrowed, others): (Vec<_>, Vec<_>) = parameters.into_iter().partition(narrows);
    let asked = Asked {
        records,
        filter: None,
        conditions: &[],
        options: narrowed.iter().map(option).collect(),
        none,
    };
    empty::explain(format, lines, &asked, || Ok(!ask(&others)?.is_empty()))
}

/// Shows the records of `skua run`, or observes here: once, or for `spot` if the numbers need time.
fn run<P: Prints>(
    show: &Show<P>,
    words: [&str; 2],
    mut printer: Printer,
    spot: Option<Duration>,
    ask: impl Fn(u64) -> (&'static str, Vec<(String, String)>),
    lines: impl Fn(&mut Sockets, u64) -> Vec<u8>,
) -> anyhow::Result<()> {
    if show.duration.is_none()
        && let Some(client) = Client::connect(&show.analyzer)?
    {
        let mut since = 0;
        loop {
            let (path, parameters) = ask(since);
            let (lines, drained) = client.lines(path, &parameters)?;
            if !show.follow {
                printer.finish(&lines)?;
                return explain(show.print.format(), &lines, words, parameters, |others| {
                    Ok(client.lines(path, others)?.0)
                });
            }
            printer.follow(&lines)?;
            // A table shows all records, JSON and CSV the new ones.
            if show.print.format() != OutputFormat::Table {
                since = drained.unwrap_or(since);
            }
            std::thread::sleep(FOLLOW_INTERVAL);
        }
    }
    on_the_spot(show, printer, spot, lines)
}

fn on_the_spot<P: Prints>(
    show: &Show<P>,
    mut printer: Printer,
    spot: Option<Duration>,
    lines: impl Fn(&mut Sockets, u64) -> Vec<u8>,
) -> anyhow::Result<()> {
    let mut config = Config::load(show.config.as_deref())?;
    config.sockets.enabled = true;
    let duration = show.duration.or(if show.follow { None } else { spot });
    if show.duration.is_none()
        && let Some(spot) = duration
    {
        eprintln!(
            "skua: no `skua run` answers at {}; watching for {} s (change it with --duration)",
            show.analyzer.address,
            spot.as_secs()
        );
    }
    let Some(Started {
        mut probe,
        mut state,
    }) = start(&config)
    else {
        use skua_watch::rights::{held, how_to_get, missing};
        match missing(held())[..] {
            // A warning has given the cause.
            [] => anyhow::bail!("sockets cannot be watched here"),
            _ => anyhow::bail!("sockets cannot be watched here: {}", how_to_get()),
        }
    };
    let end = duration.map(|duration| Instant::now() + duration);
    let mut since = 0;
    loop {
        drain(&mut *probe, unix_ns(), &mut |change| change(&mut state))?;
        let now = Instant::now();
        let over = !show.follow && end.is_none_or(|end| now >= end)
            || show.follow && end.is_some_and(|end| now >= end);
        if over {
            return printer.finish(&lines(&mut state, since));
        }
        if show.follow {
            printer.follow(&lines(&mut state, since))?;
            if show.print.format() != OutputFormat::Table {
                since = unix_ns();
            }
        }
        let rest = end.map_or(FOLLOW_INTERVAL, |end| end.saturating_duration_since(now));
        std::thread::sleep(rest.min(FOLLOW_INTERVAL));
    }
}
