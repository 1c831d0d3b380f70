//! Windows of time and the sums in them.

use std::{collections::BTreeMap, hash::BuildHasher as _};

use hashbrown::HashTable;

use crate::{
    RandomState,
    conversation::{Added, Moved, Settled},
    counts::Sum,
    key::{Key, Oriented, Rule},
    sums::KeySums,
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
    /// Places in `chunks`, by the hash of their key.
    places: HashTable<u32>,
    chunks: Vec<Vec<(LineKey, KeySums)>>,
}

impl Window {
    fn at(&self, place: u32) -> Option<&(LineKey, KeySums)> {
        let place = place as usize;
        self.chunks.get(place / CHUNK)?.get(place % CHUNK)
    }

    fn find(&self, hash: u64, key: &LineKey) -> Option<u32> {
        let same = |place: &u32| self.at(*place).is_some_and(|(there, _)| there == key);
        self.places.find(hash, same).copied()
    }

    fn at_mut(&mut self, place: u32) -> Option<&mut KeySums> {
        let place = place as usize;
        let chunk = self.chunks.get_mut(place / CHUNK)?;
        chunk.get_mut(place % CHUNK).map(|(_, sums)| sums)
    }

    fn len(&self) -> usize {
        self.places.len()
    }

    fn push(&mut self, hashes: &RandomState, hash: u64, key: LineKey) -> u32 {
        let place = self.len();
        if self.chunks.last().is_none_or(|chunk| chunk.len() == CHUNK) {
            // A window of few keys takes little.
            let room = if place == 0 { 0 } else { CHUNK };
            self.chunks.push(Vec::with_capacity(room));
        }
        if let Some(chunk) = self.chunks.last_mut() {
            chunk.push((key, KeySums::new()));
        }
        let place = place as u32;
        let chunks = &self.chunks;
        self.places.insert_unique(hash, place, |place| {
            let place = *place as usize;
            let there = chunks.get(place / CHUNK).and_then(|c| c.get(place % CHUNK));
            there.map_or(0, |(key, _)| hashes.hash_one(key))
        });
        place
    }

    fn lines(&self) -> impl Iterator<Item = (&LineKey, &KeySums)> {
        let all = self.chunks.iter().flatten();
        all.filter(|(_, sums)| !sums.is_empty())
            .map(|(key, sums)| (key, sums))
    }
}

/// Windows that are open.
#[derive(Debug)]
pub(crate) struct Windows {
    length: u64,
    wait: u64,
    most_keys: usize,
    hashes: RandomState,
    open: BTreeMap<u64, Window>,
    keys: usize,
    /// Windows that began before are closed.
    closed_until: u64,
}

/// Whether something was counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
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

    fn sums(&mut self, window: u64, key: LineKey) -> Result<&mut KeySums, Fate> {
        if window < self.closed_until {
            return Err(Fate::Late);
        }
        let hash = self.hashes.hash_one(key);
        let open = self.open.entry(window).or_default();
        let place = match open.find(hash, &key) {
            Some(place) => place,
            None if self.keys >= self.most_keys => return Err(Fate::KeysFull),
            None => {
                self.keys += 1;
                open.push(&self.hashes, hash, key)
            }
        };
        open.at_mut(place).ok_or(Fate::KeysFull)
    }

    /// Adds what a record added.
    pub(crate) fn add(&mut self, window: u64, added: &Added, port: u16, stream: u32) -> Fate {
        if let Some(moved) = &added.moved {
            self.change_key(added.key, moved, port, stream);
        }
        match self.sums(window, added.key) {
            Ok(sums) => {
                sums.add(added, port, stream);
                Fate::Counted
            }
            Err(fate) => fate,
        }
    }

    /// What a conversation has brought in its last window goes to the key that it has now.
    fn change_key(&mut self, to: LineKey, moved: &Moved, port: u16, stream: u32) {
        let hash = self.hashes.hash_one(moved.from);
        let from = self.open.get(&moved.window);
        let Some(place) = from.and_then(|open| open.find(hash, &moved.from)) else {
            return;
        };
        if let Ok(sums) = self.sums(moved.window, to) {
            sums.take(moved, port, stream);
            if let Some(sums) = self
                .open
                .get_mut(&moved.window)
                .and_then(|open| open.at_mut(place))
            {
                sums.give(moved);
            }
        }
    }

    /// Adds a sampled packet that stands for more.
    pub(crate) fn add_sample(
        &mut self,
        window: u64,
        packet: (&Oriented, Rule),
        sum: Sum,
        stream: u32,
    ) -> Fate {
        let (oriented, rule) = packet;
        let key = LineKey {
            key: oriented.key,
            names: [0; 2],
        };
        match self.sums(window, key) {
            Ok(sums) => {
                let side = usize::from(!oriented.client_first);
                sums.add_sample(rule, side, sum, oriented.client_port, stream);
                Fate::Counted
            }
            Err(fate) => fate,
        }
    }

    /// Adds differences between hosts.
    pub(crate) fn settle(&mut self, window: u64, settled: &Settled) {
        if let Ok(sums) = self.sums(window.max(self.closed_until), settled.key) {
            sums.add_apart(&settled.apart, settled.client_first);
        }
    }

    /// When the next window can be closed, if one is open.
    pub(crate) fn next_close(&self) -> Option<u64> {
        let first = self.open.keys().next()?;
        Some(first.saturating_add(self.length).saturating_add(self.wait))
    }

    /// Closes windows that nobody has to wait for any more; `all`: all of them.
    pub(crate) fn close(
        &mut self,
        now: u64,
        all: bool,
        each: &mut dyn FnMut(u64, &LineKey, &KeySums),
    ) {
        while self.next_close().is_some_and(|at| all || at <= now)
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
    pub(crate) fn peek(&self, each: &mut dyn FnMut(u64, &LineKey, &KeySums)) {
        for (window, open) in &self.open {
            for (key, sums) in open.lines() {
                each(*window, key, sums);
            }
        }
    }

    /// Tells the numbers of all names in open windows.
    pub(crate) fn names(&self, used: &mut dyn FnMut(u32)) {
        for open in self.open.values() {
            let keys = open.chunks.iter().flatten().map(|(key, _)| key);
            keys.flat_map(|key| key.names).for_each(&mut *used);
        }
    }
}
