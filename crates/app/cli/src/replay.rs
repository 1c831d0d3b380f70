//! `skua replay`: the same pipeline on a capture file.

use std::{io::Read, sync::Arc};

use anyhow::bail;
use skua_config::{Config, addresses, arguments::SummaryFormat};
use skua_file::CaptureFile;
use skua_flow::{AddressSet, FlowTable, Query, TableConfig, View};
use skua_output::{OutputFormat, Printer};
use skua_probe::{Account, Selection};
use skua_state::{Shared, State};
use skua_watch::{
    capture_file::{self, ReadSoFar},
    filter::flow_filter,
    flow_lines::write_flows,
    summary,
};

use crate::{
    arguments::{ReplayArguments, ReplayFormat},
    dns, empty, file,
};

/// Replays of a file give the same identifiers.
const TABLE_SEED: u64 = 1;
/// Replays of a file sample the same packets.
const SAMPLING_SEED: u32 = 1;

/// How conversations are printed; none: messages are, while the file is read.
fn output(arguments: &ReplayArguments) -> Option<OutputFormat> {
    match arguments.print.output {
        ReplayFormat::Table => Some(OutputFormat::Table),
        ReplayFormat::Json => Some(OutputFormat::Json),
        ReplayFormat::Csv => Some(OutputFormat::Csv),
        ReplayFormat::Eve => None,
    }
}

fn printer(output: OutputFormat, arguments: &ReplayArguments) -> anyhow::Result<Printer> {
    Printer::of_flows(output).with_columns(&arguments.columns)
}

/// `skua replay`.
pub fn replay(arguments: &ReplayArguments) -> anyhow::Result<()> {
    // Before anything is read.
    printer(output(arguments).unwrap_or(OutputFormat::Table), arguments)?;
    match (Config::load(arguments.config.as_deref()), &arguments.config) {
        (Ok(config), _) => config.networks.follow(),
        (Err(error), Some(_)) => return Err(error),
        // Nobody asked for that file, and perhaps it is not ours to read.
        (Err(error), None) => tracing::warn!("{error:#}; records do not say whose addresses are"),
    }
    file::open(&arguments.file, Replay(arguments))
}

struct Replay<'a>(&'a ReplayArguments);

impl file::WithFile for Replay<'_> {
    fn run<R: Read>(self, file: CaptureFile<R>) -> anyhow::Result<()> {
        run(self.0, file)
    }
}

impl ReplayArguments {
    /// The address set.
    fn addresses(&self) -> anyhow::Result<AddressSet> {
        let include = addresses::expand("--include-net", &self.include_net)?;
        let exclude = addresses::expand("--exclude-net", &self.exclude_net)?;
        let mut set = AddressSet::default();
        for (prefix, mark) in addresses::marks("--", &include, &exclude)? {
            set.insert(prefix, mark);
        }
        Ok(set)
    }
}

fn run<R: Read>(arguments: &ReplayArguments, mut file: CaptureFile<R>) -> anyhow::Result<()> {
    let mut selection = Selection::new(
        arguments.filter.as_deref().unwrap_or_default(),
        arguments.sampling,
        SAMPLING_SEED,
    )?;
    let mut table = FlowTable::new(&TableConfig {
        max_entries: arguments.max_entries as usize,
        seed: TABLE_SEED,
        idle_timeout: None,
        tunnels: arguments.tunnels,
    });
    let addresses = arguments.addresses()?;
    let prefixes = addresses.counts();
    table.set_addresses(Arc::new(addresses));
    let ReadSoFar {
        last_ns,
        packets,
        damage,
    } = match arguments.print.output {
        ReplayFormat::Eve => dns::eve(&mut file, &mut table, &mut selection)?,
        _ => capture_file::count(&mut file, &mut table, &mut selection)?,
    };
    if let Some(damage) = damage.as_ref().filter(|_| !arguments.strict) {
        tracing::warn!("{damage}; {packets} packets count");
    }

    let mut state = State::new(u64::MAX, usize::MAX >> 16, table.seed(), arguments.sampling);
    let path = match arguments.file.extension().and_then(|end| end.to_str()) {
        Some("gz" | "zst" | "lz4") => arguments.file.with_extension(""),
        _ => arguments.file.clone(),
    };
    let stem = path.file_stem();
    let stem = stem.map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
    capture_file::name_interfaces(&file, &stem, &mut state);
    let mut account = Account {
        max_entries: u64::from(arguments.max_entries),
        addresses: prefixes,
        ..Account::default()
    };
    // The file's clock, so that rates are over the packets' own time.
    state.begin_drain_at(last_ns);
    capture_file::settle(&mut table, &mut account, &mut state);
    let lost = account.lost();
    state.account = account.into();
    let shared = Shared::still(state)?;
    if let Some(output) = output(arguments) {
        print(arguments, output, &shared)?;
    }
    if arguments.summary.is_some() || lost.packets > 0 {
        let format = arguments.summary.or(Some(SummaryFormat::Text));
        summary::print(format, &shared.read());
    }
    match damage.filter(|_| arguments.strict) {
        Some(damage) => bail!("{damage}; {packets} packets count"),
        None => Ok(()),
    }
}

/// Prints the conversations.
fn print(arguments: &ReplayArguments, output: OutputFormat, shared: &Shared) -> anyhow::Result<()> {
    let mut lines = Vec::new();
    write_flows(
        &mut lines,
        shared,
        &Query {
            sort: arguments.sort.by(),
            limit: arguments.limit.unwrap_or(usize::MAX),
            // A file may have the same packets of several interfaces: it is shown as it is.
            view: View::Points,
            ..Query::all()
        }
        .having(flow_filter(None, &arguments.conditions)?),
        output == OutputFormat::Csv,
    );
    printer(output, arguments)?.finish(&lines)?;
    let said = empty::Asked {
        records: "conversations",
        filter: None,
        conditions: &arguments.conditions,
        options: Vec::new(),
        none: "no packet of the file is in a conversation",
    };
    let any = || Ok(shared.read().store.summary().flows > 0);
    empty::explain(output, &lines, &said, any)
}
