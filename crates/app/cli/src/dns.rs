//! `skua dns`: from the running `skua run`, or from a capture file. What capture files say in Suricata's form.

use std::{
    io::{self, BufWriter, Read, Write as _},
    path::PathBuf,
    time::Duration,
};

use clap::Args;
use skua_apps::{Config, Event, Log, Watcher, dns::Place, eve};
use skua_client::Client;
use skua_config::arguments::{AnalyzerArguments, Printing};
use skua_file::CaptureFile;
use skua_flow::{FlowTable, TableConfig};
use skua_output::{OutputFormat, Printer};
use skua_probe::Selection;
use skua_top::columns::{LOOKUPS, NAME_SERVERS};
use skua_watch::{
    capture_file::{self, ReadSoFar},
    dns::{self, DnsQuery},
};

use crate::{file, sockets::parameters};

/// Interval of `--follow`.
const FOLLOW_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  skua dns                                        the last lookups that `skua run` has seen (app.enabled)
  skua dns --follow                               new ones as they come
  skua dns '*.example.com' --type AAAA
  skua dns --errors --follow                      errors, and questions without an answer
  skua dns --slower 100 --output json | jq .
  skua dns --summary                              by server: errors, and quantiles of the time taken
  skua dns --file capture.pcap")]
pub struct DnsArguments {
    #[command(flatten)]
    pub query: DnsQuery,
    /// Read a capture file (pcap, pcapng, also compressed; - for standard input) instead of asking `skua run`
    #[arg(long, value_name = "FILE", conflicts_with = "follow")]
    pub file: Option<PathBuf>,
    /// Continue to show new ones
    #[arg(short = 'F', long)]
    pub follow: bool,
    /// Show all columns, even if the terminal is too narrow
    #[arg(short, long)]
    pub wide: bool,
    #[command(flatten)]
    pub print: Printing,
    #[command(flatten)]
    pub analyzer: AnalyzerArguments,
}

/// `skua dns`.
pub fn dns(arguments: &DnsArguments) -> anyhow::Result<()> {
    arguments.query.check()?;
    match &arguments.file {
        Some(path) => file::open(path, OfFile(arguments)),
        None => of_server(arguments),
    }
}

impl DnsArguments {
    fn printer(&self) -> Printer {
        let summary = self.query.summary;
        let columns = if summary { &NAME_SERVERS[..] } else { &LOOKUPS };
        let header = dns::csv_header(summary);
        Printer::new(self.print.output, columns, header, self.wide)
    }
}

fn of_server(arguments: &DnsArguments) -> anyhow::Result<()> {
    let client = Client::connect_or_fail(&arguments.analyzer)?;
    let mut printer = arguments.printer();
    let mut query = arguments.query.clone();
    loop {
        let (lines, moment) =
            client.lines("/api/dns", &parameters(&query, arguments.print.output))?;
        if !arguments.follow {
            return printer.finish(&lines);
        }
        printer.follow(&lines)?;
        // A table shows the last ones, JSON and CSV the new ones.
        if arguments.print.output != OutputFormat::Table {
            query.since = moment.unwrap_or(query.since);
        }
        std::thread::sleep(FOLLOW_INTERVAL);
    }
}

/// The lookups in a capture file.
struct OfFile<'a>(&'a DnsArguments);

impl file::WithFile for OfFile<'_> {
    fn run<R: Read>(self, mut file: CaptureFile<R>) -> anyhow::Result<()> {
        let arguments = self.0;
        let log = Log::new(usize::MAX);
        let (mut table, mut selection) = (FlowTable::new(&TableConfig::default()), all()?);
        let read = watch(&mut file, &mut table, &mut selection, &mut |event, _| {
            if let Event::Lookup(lookup) = event {
                log.add(lookup, 0);
            }
            Ok(())
        })?;
        if let Some(damage) = read.damage {
            tracing::warn!("{damage}");
        }
        let (mut all, _) = log.since(0);
        all.sort_by_key(|lookup| lookup.time_ns);
        let mut lines = Vec::new();
        let query = DnsQuery {
            format: (arguments.print.output == OutputFormat::Csv).then(|| "csv".to_owned()),
            ..arguments.query.clone()
        };
        dns::write(&mut lines, &query, &all)?;
        arguments.printer().finish(&lines)
    }
}

/// A selection of all packets.
fn all() -> anyhow::Result<Selection> {
    Ok(Selection::new("", 1, 1)?)
}

/// Counts the packets of a file, and hands out what is said in them, with the number of the packet.
fn watch<R: Read>(
    file: &mut CaptureFile<R>,
    table: &mut FlowTable,
    selection: &mut Selection,
    sink: &mut dyn FnMut(Event<'_>, u64) -> io::Result<()>,
) -> anyhow::Result<ReadSoFar> {
    let mut watcher = Watcher::new(Config {
        tunnels: true,
        ..Config::default()
    });
    let (mut number, mut failed) = (0, None);
    let mut take = |event: Event<'_>, number| {
        if failed.is_none() {
            failed = sink(event, number).err();
        }
    };
    let read = capture_file::count_with(file, table, selection, &mut |frame, ifindex, time_ns| {
        number += 1;
        let place = Place {
            ifindex,
            ..Place::default()
        };
        watcher.packet(frame, place, time_ns, &mut |event| take(event, number));
    })?;
    watcher.expire(read.last_ns, &mut |event| take(event, number));
    watcher.finish(&mut |event| take(event, number));
    match failed {
        Some(error) => Err(error.into()),
        None => Ok(read),
    }
}

/// Counts the packets of a file, and writes what is said in them to standard output in Suricata's form.
pub fn eve<R: Read>(
    file: &mut CaptureFile<R>,
    table: &mut FlowTable,
    selection: &mut Selection,
) -> anyhow::Result<ReadSoFar> {
    let mut out = BufWriter::new(io::stdout().lock());
    let read = watch(file, table, selection, &mut |event, packet| match event {
        Event::DnsMessage(sent) => {
            serde_json::to_writer(&mut out, &eve::dns(sent, packet))?;
            out.write_all(b"\n")
        }
        Event::Hello(sent) => {
            serde_json::to_writer(&mut out, &eve::tls(&sent, packet))?;
            out.write_all(b"\n")
        }
        Event::Lookup(_) => Ok(()),
    })?;
    out.flush()?;
    Ok(read)
}
