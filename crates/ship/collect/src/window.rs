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

/// What is summed up together: a key, and numbers of the names of client and server.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct LineKey {
    pub(crate) key: Key,
    pub(crate) names: [u32; 2],
}

/// Keys in a piece of memory: windows grow by it, and copy nothing when they do.
const CHUNK: usize = 1_024;

/// A window that is open.
#[derive(Debug, Default)]
struct Window {
    places: HashTable<KeySlot>,
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

/// Where in `chunks` a key is, and its hash: a table that grows does not read keys again.
#[derive(Clone, Copy, Debug)]
struct KeySlot {
    hash: u32,
    number: u32,
}

/// As wide as a table asks for it: it takes the lower bits for the place, the upper ones to distinguish keys.
fn wide(hash: u32) -> u64 {
    u64::from(hash) << 32 | u64::from(hash)
}

/// A key and its sums, at the beginning of a line of the processor's cache: mostly neither is there.
#[derive(Debug)]
#[repr(C, align(64))]
struct Entry {
    key: LineKey,
    sums: KeySums,
}

impl Window {
    fn at(&self, place: u32) -> Option<&Entry> {
        let place = place as usize;
        self.chunks.get(place / CHUNK)?.keys.get(place % CHUNK)
    }

    fn find(&self, hash: u32, key: &LineKey) -> Option<u32> {
        let same = |place: &KeySlot| {
            place.hash == hash && self.at(place.number).is_some_and(|there| there.key == *key)
        };
        self.places.find(wide(hash), same).map(|place| place.number)
    }

    /// Where it is without a look at the key, which is mostly right.
    fn guess(&self, hash: u32) -> Option<u32> {
        let found = self.places.find(wide(hash), |place| place.hash == hash);
        found.map(|place| place.number)
    }

    /// Something of each line of the processor's cache in which a key and its sums are.
    fn read(&self, place: u32) -> u64 {
        let place = place as usize;
        let Some(chunk) = self.chunks.get(place / CHUNK) else {
            return 0;
        };
        let (key, details) = (
            chunk.keys.get(place % CHUNK),
            chunk.details.get(place % CHUNK),
        );
        let key = key.map_or(0, |there| {
            u32::from(there.key.key.protocol) ^ there.sums.samples
        });
        let details = details.map_or(0, |one| {
            one.begun ^ one.rtt.count ^ one.apart[1].bytes as u32
        });
        u64::from(key ^ details)
    }

    fn at_mut(&mut self, place: u32) -> Option<Changing<'_>> {
        let place = place as usize;
        let chunk = self.chunks.get_mut(place / CHUNK)?;
        let room = chunk.keys.capacity();
        let there = chunk.keys.get_mut(place % CHUNK)?;
        Some(Changing {
            key: &mut there.sums,
            details: &mut chunk.details,
            place: place % CHUNK,
            room,
        })
    }

    fn len(&self) -> usize {
        self.places.len()
    }

    fn push(&mut self, hash: u32, key: LineKey) -> u32 {
        let number = self.len() as u32;
        let full = |chunk: &Chunk| chunk.keys.len() == CHUNK;
        if self.chunks.last().is_none_or(full) {
            // A window of few keys takes little.
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
        let place = KeySlot { hash, number };
        self.places
            .insert_unique(wide(hash), place, |place| wide(place.hash));
        number
    }

    fn lines(&self) -> impl Iterator<Item = (&LineKey, All<'_>)> {
        let all = self.chunks.iter().flat_map(Chunk::all);
        all.filter(|(_, sums)| !sums.is_empty())
    }
}

/// A sampled packet that is to be added.
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

/// What agents have kept counts in windows that are no older.
const OLDEST: u64 = 7 * 86_400 * SECOND;

/// Windows that are open.
#[derive(Debug)]
pub(crate) struct Windows {
    length: u64,
    wait: u64,
    most_keys: usize,
    hashes: RandomState,
    open: BTreeMap<u64, Window>,
    /// Windows that were closed, for what agents had kept: written once more, with that alone.
    again: BTreeMap<u64, Window>,
    /// When those are closed.
    again_until: u64,
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
            again: BTreeMap::new(),
            again_until: 0,
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

    /// Sums of a key. `opens`: a window that was closed is opened again, at this time.
    fn sums(
        &mut self,
        window: u64,
        (key, hash): (LineKey, u32),
        opens: Option<u64>,
    ) -> Result<Changing<'_>, Outcome> {
        let windows = match opens {
            _ if window >= self.closed_until => &mut self.open,
            Some(now) if window >= now.saturating_sub(OLDEST) => {
                if self.again.is_empty() {
                    self.again_until = now.saturating_add(self.length);
                }
                &mut self.again
            }
            _ => return Err(Outcome::Late),
        };
        let open = windows.entry(window).or_default();
        let place = match open.find(hash, &key) {
            Some(place) => place,
            None if self.keys >= self.most_keys => return Err(Outcome::KeysFull),
            None => {
                self.keys += 1;
                open.push(hash, key)
            }
        };
        open.at_mut(place).ok_or(Outcome::KeysFull)
    }

    /// Adds what a record added, with a client's port and its agent's stream. `opens`: also in a window that
    /// was closed, which is opened again at this time.
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
            Err(fate) => fate,
        }
    }

    /// What a conversation has brought in its last window goes to the key that it has now.
    fn change_key(&mut self, to: LineKey, moved: &Moved, port: u16, stream: u32) {
        let (_, hash) = self.hashed(moved.from);
        let from = self.window(moved.window);
        let Some(place) = from.and_then(|open| open.find(hash, &moved.from)) else {
            return;
        };
        // It is there, so that none is opened.
        let there = self.again.contains_key(&moved.window);
        if let Ok(mut sums) =
            self.sums(moved.window, self.hashed(to), there.then_some(moved.window))
        {
            sums.add_moved(moved, port, stream);
            let from = self.window(moved.window);
            if let Some(mut sums) = from.and_then(|open| open.at_mut(place)) {
                sums.give(moved);
            }
        }
    }

    fn window(&mut self, window: u64) -> Option<&mut Window> {
        match window < self.closed_until {
            true => self.again.get_mut(&window),
            false => self.open.get_mut(&window),
        }
    }

    fn hashed(&self, key: LineKey) -> (LineKey, u32) {
        (key, self.hashes.hash_one(key) as u32)
    }

    /// A sampled packet that came at `now_ns` and stands for more, to be added.
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
    pub(crate) fn read(&self, keys: impl Iterator<Item = (u64, LineKey)>) {
        let mut near = [None; TOGETHER];
        for (near, (window, key)) in near.iter_mut().zip(keys) {
            let hash = self.hashes.hash_one(key) as u32;
            let open = self.open.get(&window);
            *near = open.and_then(|open| Some((open, open.guess(hash)?)));
        }
        let near = near.iter().flatten();
        let read = near.fold(0, |all, (open, place)| all ^ open.read(*place));
        // What is read must be read.
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
            Err(fate) => fate,
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
        let again = (!self.again.is_empty()).then_some(self.again_until);
        self.next_open_close().into_iter().chain(again).min()
    }

    fn next_open_close(&self) -> Option<u64> {
        let first = self.open.keys().next()?;
        Some(first.saturating_add(self.length).saturating_add(self.wait))
    }

    /// Closes windows that nobody has to wait for any more; `all`: all of them.
    pub(crate) fn close(
        &mut self,
        now: u64,
        all: bool,
        each: &mut dyn FnMut(u64, &LineKey, All<'_>),
    ) {
        if all || now >= self.again_until {
            for (window, again) in std::mem::take(&mut self.again) {
                self.keys -= again.len();
                for (key, sums) in again.lines() {
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
        // Also windows that nobody told of.
        let over = now.saturating_sub(self.wait);
        self.closed_until = self.closed_until.max(over - over % self.length);
    }

    /// What is in open windows.
    pub(crate) fn peek(&self, each: &mut dyn FnMut(u64, &LineKey, All<'_>)) {
        for (window, open) in self.again.iter().chain(&self.open) {
            for (key, sums) in open.lines() {
                each(*window, key, sums);
            }
        }
    }

    /// Tells the numbers of all names in open windows.
    pub(crate) fn names(&self, used: &mut dyn FnMut(u32)) {
        for open in self.again.values().chain(self.open.values()) {
            let keys = open.chunks.iter().flat_map(|chunk| &chunk.keys);
            keys.map(|there| &there.key)
                .flat_map(|key| key.names)
                .for_each(&mut *used);
        }
    }
}
