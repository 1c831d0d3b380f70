//! `skua replay`: the same pipeline on a capture file.

use std::{
    io::{self, Read},
    path::Path,
    sync::Arc,
};

use skua_file::CaptureFile;
use skua_flow::{AddressSet, Batch, CapturePoint, Captured, FlowTable, Query, TableConfig};
use skua_packet::Frame;
use skua_probe::{Account, Selection, Watched};

use crate::{
    addresses,
    args::{OutputFormat, ReplayArguments, SummaryFormat},
    flows::write_flows,
    output::Printer,
    state::State,
    summary,
};

/// Packets taken from the file's buffer at a time.
const BATCH: usize = 256;
/// Replays of a file sample the same packets.
const SAMPLING_SEED: u32 = 1;

pub fn replay(arguments: &ReplayArguments) -> anyhow::Result<()> {
    if arguments.file == Path::new("-") {
        run(
            arguments,
            CaptureFile::new("standard input", io::stdin().lock())?,
        )
    } else {
        run(arguments, CaptureFile::open(&arguments.file)?)
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
        idle_timeout: None,
        tunnels: arguments.tunnels,
        ..TableConfig::default()
    });
    let addresses = arguments.addresses()?;
    let prefixes = addresses.counts();
    table.set_addresses(Arc::new(addresses));
    let mut last_ns = 0;
    while let Some(packets) = file.next_batch(BATCH)? {
        let mut batch = Batch::default();
        for packet in packets {
            let frame = Frame {
                data: packet.data,
                wire_len: packet.wire_len,
                link: packet.link_type,
                stripped_vlan: None,
                segments: 1,
            };
            let point = CapturePoint {
                // Interfaces count from 1, as those of a host do.
                ifindex: packet.interface + 1,
                ..CapturePoint::default()
            };
            last_ns = packet.timestamp_ns.max(last_ns);
            match selection.verdict(&frame, None)? {
                None => batch.push(
                    &mut table,
                    Captured {
                        point,
                        frame,
                        now_ns: packet.timestamp_ns,
                    },
                ),
                Some(cause) => table.leave_out(point, &frame, cause),
            }
        }
        batch.flush(&mut table);
    }
    if let Some(cut_off) = file.cut_off() {
        tracing::warn!("{cut_off}");
    }

    let mut state = State::new(u64::MAX, usize::MAX >> 16, table.seed(), arguments.sampling);
    for (i, interface) in file.interfaces().iter().enumerate() {
        let name = match &interface.name {
            Some(name) => name.to_string(),
            None => arguments.file.file_stem().map_or_else(
                || format!("if{i}"),
                |stem| stem.to_string_lossy().into_owned(),
            ),
        };
        state.name_interface(&Watched {
            netns: 0,
            ifindex: i as u32 + 1,
            netns_name: String::new(),
            name,
            netns_inode: 0,
        });
    }
    let mut account = Account {
        max_entries: u64::from(arguments.max_entries),
        addresses: prefixes,
        ..Account::default()
    };
    account.inserted = table.inserted();
    // The file's clock, so that rates are over the time that the packets took.
    state.begin_drain_at(last_ns);
    table.finish(|update| {
        if update.key.tunnel().is_none() {
            account.gone.flows.ingress += update.lo_sent + update.hi_sent;
        }
        state.apply(update);
    });
    for (_, counters) in table.points() {
        for (cause, sum) in counters.iter() {
            account.gone.ingress[cause as usize] += sum;
        }
    }
    let mut lines = Vec::new();
    write_flows(
        &mut lines,
        &state,
        &Query {
            filter: |_: &_| true,
            sort: arguments.sort.by(),
            limit: arguments.limit.unwrap_or(usize::MAX),
        },
        arguments.output == OutputFormat::Csv,
    );
    Printer::of_flows(arguments.output).finish(&lines)?;
    let lost = account.lost();
    if arguments.summary.is_some() || lost.packets > 0 {
        let format = arguments.summary.or(Some(SummaryFormat::Text));
        state.account = account;
        summary::print(format, &state);
    }
    Ok(())
}
