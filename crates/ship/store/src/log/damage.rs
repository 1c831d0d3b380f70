//! What could not be read.

use hashbrown::HashSet;
use std::sync::{Mutex, PoisonError};

/// Data that could not be read, each position counted once.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Damage {
    /// Positions.
    pub places: u64,
    /// Bytes in them.
    pub bytes: u64,
    /// Records at these positions, if known.
    pub records: u64,
}

#[derive(Default)]
struct KnownDamage {
    /// File and offset.
    places: HashSet<(u64, u64)>,
    missing: HashSet<(u64, u64)>,
    sum: Damage,
}

/// Where something could not be read.
#[derive(Default)]
pub struct DamageNotes(Mutex<KnownDamage>);

impl DamageNotes {
    /// Most positions that are counted.
    const MOST: usize = 65_536;

    fn note(&self, note: impl FnOnce(&mut KnownDamage)) {
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
