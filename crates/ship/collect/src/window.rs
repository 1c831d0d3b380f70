//! Windows of time and the sums in them.

use std::{collections::BTreeMap, hash::BuildHasher as _, hint::black_box, iter};

use hashbrown::HashTable;

use crate::{
    RandomState, SECOND,
    collector::TOGETHER,
    conversation::{Added, Moved, Settled},
    counts::Sum,
    key::{Key, Oriented, Rule},
    sums::{All, Changing, Details, KeySums},
};

/// The key of a line: a key, and the numbers of the names of client and server.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct LineKey {
    pub(crate) key: Key,
    pub(crate) names: [u32; 2],
}

/// Keys per block of memory: windows grow by blocks, without copying.
const CHUNK: usize = 1_024;

/// An open window.
#[derive(Debug, Default)]
struct Window {
    slots: HashTable<KeySlot>,
    chunks: Vec<Chunk>,
}

/// So many keys, and as far as they are needed the details of them.
#[derive(Debug, Default)]
struct Chunk {
    keys: Vec<Entry>,
    details: Vec<Details>,
}

impl Chunk {
    fn all(&self) -> impl Iterator<Item = (&LineKey, All<'_>)> {
        let details = self.details.iter().chain(iter::repeat(&NO_DETAILS));
        let all = self.keys.iter().zip(details);
        all.map(|(Entry { key, sums }, details)| (key, All { key: sums, details }))
    }
}

static NO_DETAILS: Details = Details::NONE;

/// Index of a key in `chunks`, and its hash: a growing table does not read keys reopened.
#[derive(Clone, Copy, Debug)]
struct KeySlot {
    hash: u32,
    number: u32,
}

/// The hash as wide as the table expects: it uses the lower bits for the slot, the upper ones to distinguish
/// keys.
fn wide(hash: u32) -> u64 {
    u64::from(hash) << 32 | u64::from(hash)
}

/// A key and its sums, at the start of a cache line: mostly neither is in the cache.
#[derive(Debug)]
#[repr(C, align(64))]
struct Entry {
    key: LineKey,
    sums: KeySums,
}

impl Window {
    fn at(&self, index: u32) -> Option<&Entry> {
        let index = index as usize;
        self.chunks.get(index / CHUNK)?.keys.get(index % CHUNK)
    }

    fn find(&self, hash: u32, key: &LineKey) -> Option<u32> {
        let same = |index: &KeySlot| {
            index.hash == hash && self.at(index.number).is_some_and(|there| there.key == *key)
        };
        self.slots.find(wide(hash), same).map(|index| index.number)
    }

    /// Index by hash alone, without reading the key: mostly right.
    fn guess(&self, hash: u32) -> Option<u32> {
        let found = self.slots.find(wide(hash), |index| index.hash == hash);
        found.map(|index| index.number)
    }

    /// Something of each line of the processor's cache in which a key and its sums are.
    fn read(&self, index: u32) -> u64 {
        let index = index as usize;
        let Some(chunk) = self.chunks.get(index / CHUNK) else {
            return 0;
        };
        let (key, details) = (
            chunk.keys.get(index % CHUNK),
            chunk.details.get(index % CHUNK),
        );
        let key = key.map_or(0, |there| {
            u32::from(there.key.key.protocol) ^ there.sums.samples
        });
        let details = details.map_or(0, |one| {
            one.begun ^ one.rtt.count ^ one.apart[1].bytes as u32
        });
        u64::from(key ^ details)
    }

    fn at_mut(&mut self, index: u32) -> Option<Changing<'_>> {
        let index = index as usize;
        let chunk = self.chunks.get_mut(index / CHUNK)?;
        let room = chunk.keys.capacity();
        let there = chunk.keys.get_mut(index % CHUNK)?;
        Some(Changing {
            key: &mut there.sums,
            details: &mut chunk.details,
            index: index % CHUNK,
            room,
        })
    }

    fn len(&self) -> usize {
        self.slots.len()
    }

    fn push(&mut self, hash: u32, key: LineKey) -> u32 {
        let number = self.len() as u32;
        let full = |chunk: &Chunk| chunk.keys.len() == CHUNK;
        if self.chunks.last().is_none_or(full) {
            // The first block grows, since a window of few keys should be small.
            let room = if number == 0 { 0 } else { CHUNK };
            self.chunks.push(Chunk {
                keys: Vec::with_capacity(room),
                details: Vec::new(),
            });
        }
        if let Some(chunk) = self.chunks.last_mut() {
            chunk.keys.push(Entry {
                key,
                sums: KeySums::new(),
            });
        }
        let index = KeySlot { hash, number };
        self.slots
            .insert_unique(wide(hash), index, |index| wide(index.hash));
        number
    }

    fn lines(&self) -> impl Iterator<Item = (&LineKey, All<'_>)> {
        let all = self.chunks.iter().flat_map(Chunk::all);
        all.filter(|(_, sums)| !sums.is_empty())
    }
}

/// A sampled packet to add.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sampled {
    window: u64,
    key: LineKey,
    rule: Rule,
    side: usize,
    pub(crate) sum: Sum,
    port: u16,
}

impl Sampled {
    pub(crate) fn key(&self) -> (u64, LineKey) {
        (self.window, self.key)
    }
}

/// Oldest window that is reopened for datagrams that agents had stored.
const OLDEST: u64 = 7 * 86_400 * SECOND;

/// Windows that are open.
#[derive(Debug)]
pub(crate) struct Windows {
    length: u64,
    wait: u64,
    most_keys: usize,
    hashes: RandomState,
    open: BTreeMap<u64, Window>,
    /// Closed windows that were reopened for late records; written once more, with those records
    /// only.
    reopened: BTreeMap<u64, Window>,
    /// When those are closed.
    reopened_until: u64,
    keys: usize,
    /// Windows that began before are closed.
    closed_until: u64,
}

/// Whether something was counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    Counted,
    Late,
    KeysFull,
}

impl Windows {
    pub(crate) fn new(length: u64, wait: u64, most_keys: usize) -> Self {
        Self {
            length: length.max(1),
            wait,
            most_keys: most_keys.min(u32::MAX as usize),
            hashes: RandomState::default(),
            open: BTreeMap::new(),
            reopened: BTreeMap::new(),
            reopened_until: 0,
            keys: 0,
            closed_until: 0,
        }
    }

    /// Beginning of the window of a moment.
    pub(crate) fn of(&self, ns: u64) -> u64 {
        ns - ns % self.length
    }

    /// Keys in open windows.
    pub(crate) fn keys(&self) -> usize {
        self.keys
    }

    /// Sums of a key. `opens`: a closed window is reopened, at this time.
    fn sums(
        &mut self,
        window: u64,
        (key, hash): (LineKey, u32),
        opens: Option<u64>,
    ) -> Result<Changing<'_>, Outcome> {
        let windows = match opens {
            _ if window >= self.closed_until => &mut self.open,
            Some(now) if window >= now.saturating_sub(OLDEST) => {
                if self.reopened.is_empty() {
                    self.reopened_until = now.saturating_add(self.length);
                }
                &mut self.reopened
            }
            _ => return Err(Outcome::Late),
        };
        let open = windows.entry(window).or_default();
        let index = match open.find(hash, &key) {
            Some(index) => index,
            None if self.keys >= self.most_keys => return Err(Outcome::KeysFull),
            None => {
                self.keys += 1;
                open.push(hash, key)
            }
        };
        open.at_mut(index).ok_or(Outcome::KeysFull)
    }

    /// Adds a record's sums, with the client's port and the agent's stream. `opens`: a closed window is
    /// reopened, at this time.
    pub(crate) fn add(
        &mut self,
        window: u64,
        added: &Added,
        (port, stream): (u16, u32),
        opens: Option<u64>,
    ) -> Outcome {
        if let Some(moved) = &added.moved {
            self.change_key(added.key, moved, port, stream);
        }
        match self.sums(window, self.hashed(added.key), opens) {
            Ok(mut sums) => {
                sums.add(added, port, stream);
                Outcome::Counted
            }
            Err(outcome) => outcome,
        }
    }

    /// Moves the sums of a conversation in its last window to its present key.
    fn change_key(&mut self, to: LineKey, moved: &Moved, port: u16, stream: u32) {
        let (_, hash) = self.hashed(moved.from);
        let from = self.window(moved.window);
        let Some(index) = from.and_then(|open| open.find(hash, &moved.from)) else {
            return;
        };
        // The window exists, so none is opened.
        let there = self.reopened.contains_key(&moved.window);
        if let Ok(mut sums) =
            self.sums(moved.window, self.hashed(to), there.then_some(moved.window))
        {
            sums.add_moved(moved, port, stream);
            let from = self.window(moved.window);
            if let Some(mut sums) = from.and_then(|open| open.at_mut(index)) {
                sums.give(moved);
            }
        }
    }

    fn window(&mut self, window: u64) -> Option<&mut Window> {
        match window < self.closed_until {
            true => self.reopened.get_mut(&window),
            false => self.open.get_mut(&window),
        }
    }

    fn hashed(&self, key: LineKey) -> (LineKey, u32) {
        (key, self.hashes.hash_one(key) as u32)
    }

    /// A sampled packet received at `now_ns`, which represents more packets.
    pub(crate) fn sampled(&self, now_ns: u64, packet: (&Oriented, Rule), sum: Sum) -> Sampled {
        let (oriented, rule) = packet;
        let key = LineKey {
            key: oriented.key,
            names: [0; 2],
        };
        Sampled {
            window: self.of(now_ns),
            key,
            rule,
            side: usize::from(!oriented.client_first),
            sum,
            port: oriented.client_port,
        }
    }

    /// Reads the sums of keys in windows, at most [`TOGETHER`] of them, which are to be changed. Of many keys neither
    /// table nor sums are in the processor's cache, and it waits for each if all is done with one before the next;
    /// here it waits for all at once.
    pub(crate) fn prefetch(&self, keys: impl Iterator<Item = (u64, LineKey)>) {
        let mut fetched = [None; TOGETHER];
        for (fetched, (window, key)) in fetched.iter_mut().zip(keys) {
            let hash = self.hashes.hash_one(key) as u32;
            let open = self.open.get(&window);
            *fetched = open.and_then(|open| Some((open, open.guess(hash)?)));
        }
        let fetched = fetched.iter().flatten();
        let read = fetched.fold(0, |all, (open, index)| all ^ open.read(*index));
        // Keeps the compiler from removing the reads.
        black_box(read);
    }

    /// Adds a sampled packet.
    pub(crate) fn add_sample(
        &mut self,
        packet: &Sampled,
        stream: u32,
        opens: Option<u64>,
    ) -> Outcome {
        match self.sums(packet.window, self.hashed(packet.key), opens) {
            Ok(mut sums) => {
                sums.add_sample(packet.rule, packet.side, packet.sum, packet.port, stream);
                Outcome::Counted
            }
            Err(outcome) => outcome,
        }
    }

    /// Adds differences between hosts.
    pub(crate) fn settle(&mut self, window: u64, settled: &Settled) {
        let key = self.hashed(settled.key);
        if let Ok(mut sums) = self.sums(window.max(self.closed_until), key, None) {
            sums.add_apart(&settled.apart, settled.client_first);
        }
    }

    /// When the next window can be closed, if one is open.
    pub(crate) fn next_close(&self) -> Option<u64> {
        let reopened = (!self.reopened.is_empty()).then_some(self.reopened_until);
        self.next_open_close().into_iter().chain(reopened).min()
    }

    fn next_open_close(&self) -> Option<u64> {
        let first = self.open.keys().next()?;
        Some(first.saturating_add(self.length).saturating_add(self.wait))
    }

    /// Closes windows whose waiting time is over; `all`: all windows.
    pub(crate) fn close(
        &mut self,
        now: u64,
        all: bool,
        each: &mut dyn FnMut(u64, &LineKey, All<'_>),
    ) {
        if all || now >= self.reopened_until {
            for (window, reopened) in std::mem::take(&mut self.reopened) {
                self.keys -= reopened.len();
                for (key, sums) in reopened.lines() {
                    each(window, key, sums);
                }
            }
        }
        while self.next_open_close().is_some_and(|at| all || at <= now)
            && let Some((window, open)) = self.open.pop_first()
        {
            self.keys -= open.len();
            self.closed_until = self.closed_until.max(window.saturating_add(self.length));
            for (key, sums) in open.lines() {
                each(window, key, sums);
            }
        }
        // Also windows without records.
        let over = now.saturating_sub(self.wait);
        self.closed_until = self.closed_until.max(over - over % self.length);
    }

    /// Passes the sums of open windows to `each`.
    pub(crate) fn peek(&self, each: &mut dyn FnMut(u64, &LineKey, All<'_>)) {
        for (window, open) in self.reopened.iter().chain(&self.open) {
            for (key, sums) in open.lines() {
                each(*window, key, sums);
            }
        }
    }

    /// Passes the numbers of all names in open windows to `used`.
    pub(crate) fn names(&self, used: &mut dyn FnMut(u32)) {
        for open in self.reopened.values().chain(self.open.values()) {
            let keys = open.chunks.iter().flat_map(|chunk| &chunk.keys);
            keys.map(|there| &there.key)
                .flat_map(|key| key.names)
                .for_each(&mut *used);
        }
    }
}
