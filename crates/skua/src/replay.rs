//! `skua replay`: the same pipeline on a capture file.

use std::{
    io::{self, Read},
    path::Path,
    sync::Arc,
};

use anyhow::bail;
use skua_file::{CaptureFile, FileError, Packets};
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
    let ReadSoFar {
        last_ns,
        packets,
        damage,
    } = count(&mut file, &mut table, &mut selection)?;
    if let Some(damage) = damage.as_ref().filter(|_| !arguments.strict) {
        tracing::warn!("{damage}; {packets} packets count");
    }

    let mut state = State::new(u64::MAX, usize::MAX >> 16, table.seed(), arguments.sampling);
    let stem = arguments.file.file_stem();
    let stem = stem.map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
    name_interfaces(&file, &stem, &mut state);
    let mut account = Account {
        max_entries: u64::from(arguments.max_entries),
        addresses: prefixes,
        ..Account::default()
    };
    // The file's clock, so that rates are over the time that the packets took.
    state.begin_drain_at(last_ns);
    settle(&mut table, &mut account, &mut state);
    let mut lines = Vec::new();
    write_flows(
        &mut lines,
        &state,
        &Query {
            filter: |_: &_| true,
            sort: arguments.sort.by()?,
            limit: arguments.limit.unwrap_or(usize::MAX),
        },
        arguments.print.output == OutputFormat::Csv,
    );
    Printer::of_flows(arguments.print.output).finish(&lines)?;
    let lost = account.lost();
    if arguments.summary.is_some() || lost.packets > 0 {
        let format = arguments.summary.or(Some(SummaryFormat::Text));
        state.account = account;
        summary::print(format, &state);
    }
    match damage.filter(|_| arguments.strict) {
        Some(damage) => bail!("{damage}; {packets} packets count"),
        None => Ok(()),
    }
}

/// What was read of a file.
#[derive(Default)]
pub struct ReadSoFar {
    /// Packets.
    pub packets: u64,
    /// The latest time of one, ns since the Unix epoch.
    pub last_ns: u64,
    /// What was wrong first, and where, and how much was not read.
    pub damage: Option<String>,
}

/// Places of damage in a file.
#[derive(Default)]
struct Damage {
    /// What was wrong at the first.
    first: Option<String>,
    places: u64,
    /// Bytes that were stepped over.
    skipped: u64,
    /// Why nothing after the last place was read.
    end: &'static str,
}

impl Damage {
    /// All of it in a line.
    fn line(self) -> Option<String> {
        let first = self.first?;
        let skipped = match (self.skipped, self.places) {
            (0, _) => String::new(),
            (bytes, 1) => format!("; {bytes} bytes were skipped"),
            (bytes, places) => format!("; {bytes} bytes in {places} places were skipped"),
        };
        Some(format!("{first}{skipped}{}", self.end))
    }
}

/// Counts all packets of a file, of a damaged one those that can be read. Where there are none before the damage, that is
/// an error.
pub fn count<R: Read>(
    file: &mut CaptureFile<R>,
    table: &mut FlowTable,
    selection: &mut Selection,
) -> anyhow::Result<ReadSoFar> {
    let (mut read, mut damage) = (ReadSoFar::default(), Damage::default());
    loop {
        let (wrong, end) = match file.next_batch(BATCH) {
            Ok(Some(packets)) => {
                count_batch(packets, table, selection, &mut read)?;
                continue;
            }
            Ok(None) => match file.cut_off() {
                None => break,
                Some(cut_off) => (cut_off.to_string(), ""),
            },
            Err(error @ FileError::Contents { .. }) if read.packets > 0 => {
                (error.to_string(), "; nothing after it was read")
            }
            Err(error) => return Err(error.into()),
        };
        damage.first.get_or_insert(wrong);
        match file.resume()? {
            Some(bytes) => {
                damage.places += 1;
                damage.skipped += bytes;
            }
            None => {
                damage.end = match damage.skipped {
                    0 => end,
                    _ => ", and the rest was not read",
                };
                break;
            }
        }
    }
    read.damage = damage.line();
    Ok(read)
}

fn count_batch(
    packets: Packets<'_>,
    table: &mut FlowTable,
    selection: &mut Selection,
    read: &mut ReadSoFar,
) -> anyhow::Result<()> {
    let mut batch = Batch::default();
    for packet in packets {
        read.packets += 1;
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
        read.last_ns = packet.timestamp_ns.max(read.last_ns);
        match selection.verdict(&frame, None)? {
            None => batch.push(
                table,
                Captured {
                    point,
                    frame,
                    now_ns: packet.timestamp_ns,
                },
            ),
            Some(cause) => table.leave_out(point, &frame, cause),
        }
    }
    batch.flush(table);
    Ok(())
}

/// Names the interfaces of a file, those without a name after the file.
pub fn name_interfaces<R: Read>(file: &CaptureFile<R>, stem: &str, state: &mut State) {
    for (i, interface) in file.interfaces().iter().enumerate() {
        let name = match &interface.name {
            Some(name) => name.to_string(),
            None if stem.is_empty() => format!("if{i}"),
            None => stem.to_owned(),
        };
        state.name_interface(&Watched {
            netns: 0,
            ifindex: i as u32 + 1,
            netns_name: String::new(),
            name,
            netns_inode: 0,
        });
    }
}

/// Empties the table into the state, and takes the account of it.
pub fn settle(table: &mut FlowTable, account: &mut Account, state: &mut State) {
    account.inserted = table.inserted();
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
}
