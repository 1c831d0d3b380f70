//! Rates over a fixed window of about five seconds, whoever asks and however often.
//!
//! Time is divided into slots. A slot ends with the first drain that comes at least [`SLOT_NS`] after its begin. The
//! rate of a record is what was counted in the latest slots that have ended, by the time that these took: as many as
//! are at least [`WINDOW_NS`] together, or all that there are since the first packet of all. Drains within a slot change
//! nothing, and as the time is the same for all records, rates can be added up.

use crate::{FlowRecord, FlowUpdate, Rate, record::Rates};

/// Shortest slot, in ns.
const SLOT_NS: u64 = 1_200_000_000;
/// Shortest window, in ns.
const WINDOW_NS: u64 = 4_500_000_000;
/// Slots that have ended and are remembered, and the one that has not.
const SLOTS: usize = 5;
/// Shortest time that a rate is over: one packet alone has none.
const LEAST_NS: u64 = 1_000_000_000;
/// No entry.
pub(crate) const NONE: u32 = u32::MAX;

/// What was counted of a record in a slot; rates need no more digits.
#[derive(Clone, Copy, Default)]
struct Sum {
    bytes: f32,
    packets: f32,
}

/// What was counted of a record in the latest slots.
struct Entry {
    /// Place of the record.
    place: u32,
    /// The slot that it was counted in last.
    slot: u32,
    /// The latest first; of `lo` and `hi`.
    sums: [[Sum; 2]; SLOTS],
}

impl Entry {
    /// Begins slots up to one.
    fn go_to(&mut self, slot: u32) {
        let by = slot.wrapping_sub(self.slot).min(SLOTS as u32) as usize;
        self.slot = slot;
        if by > 0 {
            self.sums.rotate_right(by);
            self.sums[..by].fill([Sum::default(); 2]);
        }
    }
}

/// What was counted lately of the records that were touched lately.
pub(crate) struct Windows {
    /// Number of the slot that has not ended before the last drain.
    slot: u32,
    /// When the slots before it ended, the latest first; 0 before the first.
    ends: [u64; SLOTS],
    /// The first packet of all.
    began_ns: u64,
    /// The last drain.
    drained_ns: u64,
    entries: Vec<Entry>,
    free: Vec<u32>,
    /// Most entries.
    limit: usize,
}

impl Windows {
    /// Bytes per record at worst: half of the records have an entry.
    pub(crate) const BYTES: usize = (size_of::<Entry>() + size_of::<u32>()) / 2;

    pub(crate) fn new(records: usize) -> Self {
        Self {
            slot: SLOTS as u32,
            ends: [0; SLOTS],
            began_ns: u64::MAX,
            drained_ns: 0,
            entries: Vec::new(),
            free: Vec::new(),
            limit: records.div_ceil(2),
        }
    }

    /// Whether the slot ends with the last drain.
    fn ends_now(&self) -> bool {
        self.drained_ns.saturating_sub(self.ends[0]) >= SLOT_NS
    }

    /// A drain begins; says which entries have nothing in any slot any more, by the places of their records.
    pub(crate) fn begin_drain(&mut self, now_ns: u64, mut forgotten: impl FnMut(u32, u32)) {
        if self.drained_ns != 0 && self.ends_now() {
            // Before, there was nothing.
            self.began_ns = self.began_ns.min(self.drained_ns);
            self.ends.rotate_right(1);
            self.ends[0] = self.drained_ns;
            self.slot = self.slot.wrapping_add(1);
            for (at, entry) in self.entries.iter_mut().enumerate() {
                let old = self.slot.wrapping_sub(entry.slot) as usize >= SLOTS;
                if entry.place != NONE && old {
                    let at = at as u32;
                    forgotten(entry.place, at);
                    entry.place = NONE;
                    self.free.push(at);
                }
            }
        }
        self.drained_ns = now_ns;
    }

    /// Adds what a drain adds to the record at a place, which has an entry or none; returns the one that it has now.
    pub(crate) fn add(&mut self, place: u32, entry: u32, update: &FlowUpdate) -> u32 {
        if self.ends[0] == 0 {
            self.began_ns = self.began_ns.min(update.first_ns);
        }
        let added = [update.lo_sent, update.hi_sent];
        let known = self
            .entries
            .get(entry as usize)
            .is_some_and(|e| e.place == place);
        let at = if known {
            entry
        } else if let Some(at) = self.free.pop() {
            self.entries[at as usize] = self.fresh(place);
            at
        } else if self.entries.len() < self.limit {
            self.entries.push(self.fresh(place));
            self.entries.len() as u32 - 1
        } else {
            return NONE;
        };
        let slot = self.slot;
        let entry = &mut self.entries[at as usize];
        entry.go_to(slot);
        for (sum, added) in entry.sums[0].iter_mut().zip(added) {
            sum.bytes += added.bytes as f32;
            sum.packets += added.packets as f32;
        }
        at
    }

    fn fresh(&self, place: u32) -> Entry {
        Entry {
            place,
            slot: self.slot,
            sums: [[Sum::default(); 2]; SLOTS],
        }
    }

    /// Another record has the place.
    pub(crate) fn forget(&mut self, place: u32, entry: u32) {
        if let Some(known) = self.entries.get_mut(entry as usize)
            && known.place == place
        {
            known.place = NONE;
            self.free.push(entry);
        }
    }

    /// The rates of a record that goes on.
    pub(crate) fn rates(&self, place: u32, entry: u32, record: &FlowRecord) -> Rates {
        let known = self.entries.get(entry as usize);
        let Some(entry) = known.filter(|entry| entry.place == place) else {
            // It was made elsewhere, or there are too many: what the last drain added.
            return match record.updated_ns == self.drained_ns {
                true => record.interval.rates(),
                false => Rates::default(),
            };
        };
        let age = self.slot.wrapping_sub(entry.slot) as usize;
        // Of slot `back`, counted from the one that has not ended.
        let sum = |back: usize| match back.checked_sub(age) {
            Some(at) => entry.sums.get(at).copied().unwrap_or_default(),
            None => Default::default(),
        };
        let begin_of = |back: usize| self.ends.get(back).copied().unwrap_or(0);
        let end_of = |back: usize| match back {
            0 => self.drained_ns,
            back => begin_of(back - 1),
        };
        let mut back = usize::from(!self.ends_now());
        if back > 0 && self.began_ns.saturating_add(SLOT_NS) > end_of(back) {
            // All has begun a moment ago.
            back = 0;
        }
        let end = end_of(back);
        let mut sums = [Sum::default(); 2];
        let mut begin = end;
        while back < SLOTS && end.saturating_sub(begin) < WINDOW_NS && begin >= self.began_ns {
            for (all, one) in sums.iter_mut().zip(sum(back)) {
                all.bytes += one.bytes;
                all.packets += one.packets;
            }
            begin = begin_of(back);
            back += 1;
        }
        let ns = end.saturating_sub(begin.max(self.began_ns)).max(LEAST_NS) as f64;
        let [lo, hi] = sums.map(|sum| Rate {
            bits_per_second: f64::from(sum.bytes) * 8e9 / ns,
            packets_per_second: f64::from(sum.packets) * 1e9 / ns,
        });
        Rates { lo, hi }
    }
}
