//! Places of flow keys in a slab, by hash.

use crate::{FlowKey, HashKey};
use hashbrown::{HashTable, hash_table};

/// A place with half of its key's hash: growing the index then reads no keys, and nearly every
/// place whose key is read is the right one.
pub(crate) struct Cell {
    hash: u32,
    pub(crate) place: u32,
}

/// Hash table of places. The keys stay where the places are.
#[derive(Default)]
pub(crate) struct Index {
    cells: HashTable<Cell>,
}

impl Index {
    pub(crate) fn len(&self) -> usize {
        self.cells.len()
    }

    pub(crate) fn clear(&mut self) {
        self.cells.clear();
    }

    /// The slot of a key, taken or free. `equal` compares the key with that at a place.
    #[inline]
    pub(crate) fn entry(
        &mut self,
        KeyHash(hash): KeyHash,
        mut equal: impl FnMut(u32) -> bool,
    ) -> Slot<'_> {
        let slot = self.cells.entry(
            spread(hash),
            |cell| cell.hash == hash && equal(cell.place),
            |cell| spread(cell.hash),
        );
        match slot {
            hash_table::Entry::Occupied(slot) => Slot::Taken(slot),
            hash_table::Entry::Vacant(slot) => Slot::Free(FreeSlot { slot, hash }),
        }
    }

    /// The place of a key.
    #[inline]
    pub(crate) fn find(
        &self,
        KeyHash(hash): KeyHash,
        mut equal: impl FnMut(u32) -> bool,
    ) -> Option<u32> {
        self.cells
            .find(spread(hash), |cell| cell.hash == hash && equal(cell.place))
            .map(|cell| cell.place)
    }

    /// Removes a key at `place`, if it is there.
    pub(crate) fn remove(&mut self, KeyHash(hash): KeyHash, place: u32) {
        let found = self
            .cells
            .find_entry(spread(hash), |cell| cell.place == place);
        if let Ok(slot) = found {
            slot.remove();
        }
    }
}

/// What [`Index::entry`] found.
pub(crate) enum Slot<'a> {
    /// The key is there.
    Taken(hash_table::OccupiedEntry<'a, Cell>),
    /// The key is not there.
    Free(FreeSlot<'a>),
}

/// Where a key can be put.
pub(crate) struct FreeSlot<'a> {
    slot: hash_table::VacantEntry<'a, Cell>,
    hash: u32,
}

impl FreeSlot<'_> {
    pub(crate) fn insert(self, place: u32) {
        self.slot.insert(Cell {
            hash: self.hash,
            place,
        });
    }
}

/// Half of a key's hash.
#[derive(Clone, Copy)]
pub(crate) struct KeyHash(u32);

impl KeyHash {
    #[inline]
    pub(crate) fn new(key: &FlowKey, secret: &HashKey) -> Self {
        Self((key.hash64(secret) >> 32) as u32)
    }
}

/// The hash table uses the low bits for the position and the high ones for a tag.
#[inline]
fn spread(hash: u32) -> u64 {
    u64::from(hash) << 32 | u64::from(hash)
}
