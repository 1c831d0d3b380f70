//! Where packets and records of other devices are counted, which may not know the interfaces that these passed.

use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
};

use crate::{CapturePoint, Conversation, Direction, Directions, FlowKey};

/// Points besides its own at which a packet of another device is counted if its conversation has an entry there, so that
/// both directions are in one.
#[derive(Clone, Copy, Default)]
pub struct Joins<'a> {
    /// The point that it passes next without being counted there. Comes before its own point.
    pub next: Option<CapturePoint>,
    /// Interface 0: its conversation may have begun with packets whose interface the device did not know.
    pub unknown: bool,
    /// The device does not know each of the interfaces that it passes: any of those for which this is true can be one.
    pub anywhere: Option<&'a dyn Fn(u32) -> bool>,
}

impl Joins<'_> {
    /// The point at which a packet is counted. `conversation` gives its conversation at a point, `directions` those of
    /// the entry with a key.
    pub fn point(
        &self,
        own: CapturePoint,
        known: &KnownPoints,
        conversation: impl Fn(CapturePoint) -> Conversation,
        directions: impl Fn(&FlowKey) -> Option<Directions>,
    ) -> CapturePoint {
        let has = |point| directions(&conversation(point).key).is_some();
        if let Some(next) = self.next.filter(|next| has(*next)) {
            return next;
        }
        if (!self.unknown && self.anywhere.is_none()) || has(own) {
            return own;
        }
        let elsewhere = self.anywhere.and_then(|may_be| {
            let ifindex = known.get(&conversation(own).key)?;
            may_be(ifindex).then_some(ifindex)
        });
        let unknown = self.unknown.then_some(0);
        let mut points = unknown.into_iter().chain(elsewhere).filter_map(|ifindex| {
            let there = CapturePoint { ifindex, ..own };
            let Conversation { key, from_lo } = conversation(there);
            let direction = directions(&key)?.of_next(from_lo);
            Some(CapturePoint { direction, ..there })
        });
        points.next().unwrap_or(own)
    }
}

impl Directions {
    /// The likely direction of a packet of a side at an interface where these were seen.
    pub fn of_next(self, lo: bool) -> Direction {
        match (self.of(lo), self.of(!lo)) {
            ((true, _), _) | ((false, false), (false, _)) => Direction::Ingress,
            ((false, true), _) | ((false, false), (true, _)) => Direction::Egress,
        }
    }
}

/// Interfaces at which the conversations of other devices have an entry: of each conversation one.
#[derive(Default)]
pub struct KnownPoints {
    /// By a hash of the key without the interface: whoever looks one up compares keys.
    interfaces: HashMap<u64, u32>,
    secret: RandomState,
}

impl KnownPoints {
    fn hash(&self, key: &FlowKey) -> u64 {
        self.secret.hash_one(FlowKey { ifindex: 0, ..*key })
    }

    /// Remembers a new entry, unless the conversation has one elsewhere.
    pub fn insert(&mut self, key: &FlowKey) {
        let hash = self.hash(key);
        self.interfaces.entry(hash).or_insert(key.ifindex);
    }

    /// Forgets an entry that has ended.
    pub fn remove(&mut self, key: &FlowKey) {
        let hash = self.hash(key);
        if self.interfaces.get(&hash) == Some(&key.ifindex) {
            self.interfaces.remove(&hash);
        }
    }

    /// The interface of the entry that a conversation likely has.
    fn get(&self, key: &FlowKey) -> Option<u32> {
        self.interfaces.get(&self.hash(key)).copied()
    }
}
