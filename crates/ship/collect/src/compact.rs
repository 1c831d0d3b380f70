//! Compact entries of conversations that have ended or do not fit into the table: enough to count no
//! conversation twice.

use std::hash::BuildHasher as _;

use crate::{
    HashMap, RandomState, SECOND,
    conversation::{LINGER, Reported},
    stream::Stream,
};

/// Compact entries per entry of the table.
const PER_SLOT: usize = 8;
/// Entries at least.
const LEAST: usize = 65_536;
/// An ended conversation that two agents reported is kept this long, until their other interfaces
/// have reported it.
const REPORTED_TWICE: u64 = 15 * SECOND;
/// No stream.
const NO_STREAM: u32 = u32::MAX;

/// Compact entry of a conversation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    /// Time of the last packet that each of two agents reported, by that agent's clock.
    last_ns: [u64; 2],
    /// Streams of these agents.
    streams: [u32; 2],
    /// Time of the last report, seconds by our clock.
    reported_s: u32,
    /// Hash of the observation point that is counted; 0: the conversation has ended and was
    /// counted.
    counted_point: u32,
}

const _: () = assert!(size_of::<(u64, Entry)>() == 40);

impl Entry {
    /// Of one that has ended and was counted.
    pub(crate) fn ended(streams: [Option<u32>; 2], last_ns: [u64; 2], now: u64) -> Self {
        Self {
            last_ns,
            streams: streams.map(|stream| stream.unwrap_or(NO_STREAM)),
            reported_s: seconds(now),
            counted_point: 0,
        }
    }

    /// Whether a record is of a later conversation between the same ports.
    fn is_before(&self, reported: &Reported, stream: &Stream) -> bool {
        match self.streams.iter().position(|one| *one == reported.stream) {
            Some(index) => reported.first_ns > self.last_ns[index],
            // Another clock.
            None => {
                let first = reported.first_ns.saturating_add_signed(stream.skew_ns);
                first > (u64::from(self.reported_s) + 1) * SECOND
            }
        }
    }

    /// Whether no agent reports the conversation any more.
    fn expired(&self, now: u64) -> bool {
        let twice = self.counted_point == 0 && !self.streams.contains(&NO_STREAM);
        let silent = now.saturating_sub(u64::from(self.reported_s) * SECOND);
        silent > if twice { REPORTED_TWICE } else { LINGER }
    }

    /// Stores the last packet that an agent reported.
    fn update(&mut self, reported: &Reported) {
        let index = self.streams.iter().position(|one| *one == reported.stream);
        let free = self.streams.iter().position(|one| *one == NO_STREAM);
        if let Some(index) = index.or(free) {
            self.streams[index] = reported.stream;
            self.last_ns[index] = self.last_ns[index].max(reported.last_ns);
        }
    }
}

fn seconds(ns: u64) -> u32 {
    u32::try_from(ns / SECOND).unwrap_or(u32::MAX)
}

/// Class of a record whose conversation is not in the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RecordClass {
    /// Its conversation goes into the table.
    New,
    /// Of one that has ended and was counted.
    Counted,
    /// The table was full; this observation point is counted.
    First,
    /// Of such a one; another point is counted.
    Other,
    /// The compact table is full, too.
    Full,
}

/// All of these conversations.
#[derive(Debug)]
pub(crate) struct Compact {
    all: HashMap<u64, Entry>,
    most: usize,
    points: RandomState,
}

impl Compact {
    /// For a table of this many conversations.
    pub(crate) fn new(table: usize) -> Self {
        Self {
            all: HashMap::default(),
            most: table.saturating_mul(PER_SLOT).max(LEAST),
            points: RandomState::default(),
        }
    }

    /// Classifies a record whose conversation is not in the table; `fits`: the table has space for
    /// it.
    pub(crate) fn classify(
        &mut self,
        reported: &Reported,
        stream: &Stream,
        now: u64,
        fits: bool,
    ) -> RecordClass {
        // Never 0.
        let point = self.points.hash_one((reported.stream, reported.id)) as u32 | 1;
        if let Some(entry) = self.all.get_mut(&reported.tracking_id) {
            let over = entry.counted_point == 0 && entry.is_before(reported, stream);
            if !over && !entry.expired(now) {
                entry.update(reported);
                return match entry.counted_point {
                    0 => RecordClass::Counted,
                    counted_point if counted_point == point => {
                        entry.reported_s = seconds(now);
                        if reported.ended {
                            entry.counted_point = 0;
                        }
                        RecordClass::First
                    }
                    _ => RecordClass::Other,
                };
            }
            self.all.remove(&reported.tracking_id);
        }
        if fits {
            return RecordClass::New;
        }
        let counted_point = if reported.ended { 0 } else { point };
        let entry = Entry {
            last_ns: [reported.last_ns, 0],
            streams: [reported.stream, NO_STREAM],
            reported_s: seconds(now),
            counted_point,
        };
        match self.keep((reported.tracking_id, entry)) {
            true => RecordClass::First,
            false => RecordClass::Full,
        }
    }

    /// Adds an entry; false if the table is full.
    pub(crate) fn keep(&mut self, (tracking_id, entry): (u64, Entry)) -> bool {
        if self.all.len() >= self.most && !self.all.contains_key(&tracking_id) {
            return false;
        }
        self.all.insert(tracking_id, entry);
        true
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Removes entries without recent reports; `all`: all entries.
    pub(crate) fn sweep(&mut self, now: u64, all: bool) {
        self.all.retain(|_, entry| !all && !entry.expired(now));
    }
}
