//! What is remembered, in few bytes, of conversations that have ended, and of those for which there is no
//! room in the table: enough to count none of them twice.

use std::hash::BuildHasher as _;

use crate::{
    HashMap, RandomState, SECOND,
    conversation::{LINGER, Reported},
    stream::Stream,
};

/// Entries for each place in the table of conversations.
const TIMES: usize = 8;
/// Entries at least.
const LEAST: usize = 65_536;
/// One of which two agents have told is remembered for so long: until their other interfaces have.
const BOTH: u64 = 15 * SECOND;
/// No stream.
const NONE: u32 = u32::MAX;

/// What is remembered of a conversation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    /// Time of the last packet that each of two agents has told of, by its own clock.
    last_ns: [u64; 2],
    /// Streams of these agents.
    streams: [u32; 2],
    /// When it was last told of, seconds by our clock.
    heard: u32,
    /// The point whose word counts, hashed; 0: the conversation has ended, and has been counted.
    counts: u32,
}

const _: () = assert!(size_of::<(u64, Entry)>() == 40);

impl Entry {
    /// Of one that has ended and was counted.
    pub(crate) fn ended(streams: [Option<u32>; 2], last_ns: [u64; 2], now: u64) -> Self {
        Self {
            last_ns,
            streams: streams.map(|stream| stream.unwrap_or(NONE)),
            heard: seconds(now),
            counts: 0,
        }
    }

    /// Whether a record is of a later conversation between the same ports.
    fn before(&self, told: &Reported, stream: &Stream) -> bool {
        match self.streams.iter().position(|one| *one == told.stream) {
            Some(place) => told.first_ns > self.last_ns[place],
            // Another clock.
            None => {
                let first = told.first_ns.saturating_add_signed(stream.skew_ns);
                first > (u64::from(self.heard) + 1) * SECOND
            }
        }
    }

    /// Whether nobody tells of it any more.
    fn old(&self, now: u64) -> bool {
        let both = self.counts == 0 && !self.streams.contains(&NONE);
        let silent = now.saturating_sub(u64::from(self.heard) * SECOND);
        silent > if both { BOTH } else { LINGER }
    }

    /// Notes how far an agent has told.
    fn note(&mut self, told: &Reported) {
        let place = self.streams.iter().position(|one| *one == told.stream);
        let free = self.streams.iter().position(|one| *one == NONE);
        if let Some(place) = place.or(free) {
            self.streams[place] = told.stream;
            self.last_ns[place] = self.last_ns[place].max(told.last_ns);
        }
    }
}

fn seconds(ns: u64) -> u32 {
    u32::try_from(ns / SECOND).unwrap_or(u32::MAX)
}

/// What a record of a conversation that is not in the table is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Seen {
    /// Of a conversation that is to go into the table.
    New,
    /// Of one that has ended and was counted.
    Again,
    /// Of one for which there was no room; this point's word counts.
    First,
    /// Of such a one; another point's word counts.
    Other,
    /// There is no room for it here either.
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
    /// For a table of so many conversations.
    pub(crate) fn new(table: usize) -> Self {
        Self {
            all: HashMap::default(),
            most: table.saturating_mul(TIMES).max(LEAST),
            points: RandomState::default(),
        }
    }

    /// Takes a record of a conversation that is not in the table; `room`: it may go there.
    pub(crate) fn seen(&mut self, told: &Reported, stream: &Stream, now: u64, room: bool) -> Seen {
        // Never 0.
        let point = self.points.hash_one((told.stream, told.id)) as u32 | 1;
        if let Some(entry) = self.all.get_mut(&told.tracking_id) {
            let over = entry.counts == 0 && entry.before(told, stream);
            if !over && !entry.old(now) {
                entry.note(told);
                return match entry.counts {
                    0 => Seen::Again,
                    counts if counts == point => {
                        entry.heard = seconds(now);
                        if told.ended {
                            entry.counts = 0;
                        }
                        Seen::First
                    }
                    _ => Seen::Other,
                };
            }
            self.all.remove(&told.tracking_id);
        }
        if room {
            return Seen::New;
        }
        let counts = if told.ended { 0 } else { point };
        let entry = Entry {
            last_ns: [told.last_ns, 0],
            streams: [told.stream, NONE],
            heard: seconds(now),
            counts,
        };
        match self.keep((told.tracking_id, entry)) {
            true => Seen::First,
            false => Seen::Full,
        }
    }

    /// Remembers a conversation; false when there is no room.
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

    /// Forgets those of which nobody has told for long; `all`: everything.
    pub(crate) fn sweep(&mut self, now: u64, all: bool) {
        self.all.retain(|_, entry| !all && !entry.old(now));
    }
}
