//! Packets of capture files, counted as those of an interface.

use skua_file::{CaptureFile, FileError, Packets};
use skua_flow::{Batch, CapturePoint, Captured, FlowTable};
use skua_packet::Frame;
use skua_probe::{Account, Selection, Watched};
use std::io::Read;

use skua_state::State;

/// Packets taken from the file's buffer at a time.
const BATCH: usize = 256;

/// What else gets each packet that counts, its interface and its time.
pub type Also<'a> = &'a mut dyn FnMut(&Frame<'_>, u32, u64);

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
    count_with(file, table, selection, &mut |_, _, _| {})
}

/// As [`count`]; `also` gets each packet that counts, its interface and its time.
pub fn count_with<R: Read>(
    file: &mut CaptureFile<R>,
    table: &mut FlowTable,
    selection: &mut Selection,
    also: Also<'_>,
) -> anyhow::Result<ReadSoFar> {
    let (mut read, mut damage) = (ReadSoFar::default(), Damage::default());
    loop {
        let (wrong, end) = match file.next_batch(BATCH) {
            Ok(Some(packets)) => {
                count_batch(packets, table, selection, &mut read, also)?;
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
    also: Also<'_>,
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
            None => {
                also(&frame, point.ifindex, packet.timestamp_ns);
                batch.push(
                    table,
                    Captured {
                        point,
                        frame,
                        now_ns: packet.timestamp_ns,
                    },
                );
            }
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
        let interface = Watched {
            netns: 0,
            ifindex: i as u32 + 1,
            netns_name: String::new(),
            name,
            netns_inode: 0,
            since_ns: 0,
        };
        state.name_interface(&interface);
    }
}

/// Empties the table into the state, and takes the account of it.
pub fn settle(table: &mut FlowTable, account: &mut Account, state: &mut State) {
    account.inserted = table.inserted();
    table.finish(|update| {
        if update.key.tunnel().is_none() {
            account.removed.flows.ingress += update.lo_sent + update.hi_sent;
        }
        state.apply(update);
    });
    for (_, counters) in table.points() {
        for (cause, sum) in counters.iter() {
            account.removed.ingress[cause as usize] += sum;
        }
    }
}
