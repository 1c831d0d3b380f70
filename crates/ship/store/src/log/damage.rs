//! What could not be read.

use hashbrown::HashSet;
use std::sync::{Mutex, PoisonError};

/// What could not be read, each place counted once.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Damage {
    /// Places.
    pub places: u64,
    /// Bytes in them.
    pub bytes: u64,
    /// Records in them, as far as that can be known.
    pub records: u64,
}

#[derive(Default)]
struct Known {
    /// File and offset.
    places: HashSet<(u64, u64)>,
    missing: HashSet<(u64, u64)>,
    sum: Damage,
}

/// Where something could not be read.
#[derive(Default)]
pub struct DamageNotes(Mutex<Known>);

impl DamageNotes {
    /// With more places than this a disk is beyond counting.
    const MOST: usize = 65_536;

    fn note(&self, note: impl FnOnce(&mut Known)) {
        note(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Notes bytes, with the records that were in them.
    pub fn add(&self, file: u64, offset: u64, bytes: u64, records: u64) {
        self.note(|known| {
            if known.places.len() < Self::MOST && known.places.insert((file, offset)) {
                known.sum.places += 1;
                known.sum.bytes = known.sum.bytes.saturating_add(bytes);
                known.sum.records = known.sum.records.saturating_add(records);
            }
        });
    }

    /// Notes records that are missing behind an offset.
    pub fn add_records(&self, file: u64, offset: u64, records: u64) {
        self.note(|known| {
            if known.missing.len() < Self::MOST && known.missing.insert((file, offset)) {
                known.sum.records = known.sum.records.saturating_add(records);
            }
        });
    }

    /// All together.
    pub fn sum(&self) -> Damage {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).sum
    }
}
