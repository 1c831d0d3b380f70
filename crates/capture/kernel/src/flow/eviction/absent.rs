//! Evicted keys that may come back: a Bloom filter in two generations. It takes a hundredth of the table's
//! memory while there are any, and none otherwise.

use std::mem;

/// Bits per entry that a generation remembers.
const BITS: u64 = 16;

/// A generation takes up new ones for so long, and is remembered for as long again, in ns.
const GENERATION_NS: u64 = 30_000_000_000;

/// Conversations that were evicted, by a hash of their keys.
#[derive(Debug)]
pub(super) struct Absent {
    young: Generation,
    old: Generation,
    /// Conversations per generation.
    capacity: u64,
    turned_ns: u64,
}

#[derive(Default, Debug)]
struct Generation {
    /// Empty until one is noted. Both bits of a conversation lie in one word: one cache miss.
    words: Vec<u64>,
    noted: u64,
    returned: u64,
}

fn bits(hash: u64) -> u64 {
    1 << (hash & 63) | 1 << (hash >> 6 & 63)
}

impl Generation {
    fn word(&self, hash: u64) -> usize {
        (hash >> 12) as usize & (self.words.len() - 1)
    }

    fn has(&self, hash: u64) -> bool {
        !self.words.is_empty() && self.words[self.word(hash)] & bits(hash) == bits(hash)
    }

    fn count(&self) -> u64 {
        self.noted.saturating_sub(self.returned)
    }
}

impl Absent {
    /// Remembers `capacity` conversations at least, and twice as many at most.
    pub(super) fn new(capacity: u64, now_ns: u64) -> Self {
        Self {
            young: Generation::default(),
            old: Generation::default(),
            capacity: capacity.max(1),
            turned_ns: now_ns,
        }
    }

    /// Forgets those of long ago.
    pub(super) fn age(&mut self, now_ns: u64) {
        let elapsed = now_ns.saturating_sub(self.turned_ns);
        if elapsed >= GENERATION_NS {
            self.turn();
            if elapsed >= 2 * GENERATION_NS {
                self.turn();
            }
            self.turned_ns = now_ns;
        }
    }

    fn turn(&mut self) {
        self.old = mem::take(&mut self.young);
    }

    /// Remembers a conversation.
    pub(super) fn note(&mut self, hash: u64) {
        if self.young.noted >= self.capacity {
            self.turn();
        }
        let young = &mut self.young;
        if young.words.is_empty() {
            let words = (self.capacity * BITS / 64).next_power_of_two();
            young.words = vec![0; words as usize];
        }
        let word = young.word(hash);
        young.words[word] |= bits(hash);
        young.noted += 1;
    }

    /// Whether a conversation that begins is one of these; then there is one less.
    pub(super) fn comes_back(&mut self, hash: u64) -> bool {
        for generation in [&mut self.young, &mut self.old] {
            if generation.has(hash) {
                generation.returned += 1;
                return true;
            }
        }
        false
    }

    /// How many there are.
    pub(super) fn count(&self) -> u64 {
        self.young.count() + self.old.count()
    }

    /// Whether no key is remembered, returned ones included.
    pub(super) fn is_empty(&self) -> bool {
        self.young.words.is_empty() && self.old.words.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::eviction::tests::hash;

    fn known(absent: &Absent, ids: std::ops::Range<u64>) -> usize {
        let known = |id: &u64| absent.young.has(hash(*id)) || absent.old.has(hash(*id));
        ids.filter(known).count()
    }

    #[test]
    fn tells_who_was_evicted_from_who_was_not() {
        let mut absent = Absent::new(5_000, 0);
        (0..5_000).for_each(|id| absent.note(hash(id)));
        assert_eq!(known(&absent, 0..5_000), 5_000);
        // About one of forty; without chance, since the hash is fixed.
        assert!(known(&absent, 5_000..15_000) < 400);
        assert_eq!(absent.count(), 5_000);
        assert!((0..2_000).all(|id| absent.comes_back(hash(id))));
        assert_eq!(absent.count(), 3_000);
    }

    #[test]
    fn as_many_as_the_table_has_are_remembered_however_many_go() {
        let mut absent = Absent::new(5_000, 0);
        (0..1_000_000).for_each(|id| absent.note(hash(id)));
        assert_eq!(known(&absent, 995_000..1_000_000), 5_000);
        assert!(absent.count() <= 10_000);
        // Nor does it take more memory, or for everybody for one of those.
        assert!(absent.young.words.len() <= 2_048);
        assert!(known(&absent, 2_000_000..2_010_000) < 800);
    }

    #[test]
    fn nobody_is_remembered_for_ever() {
        let mut absent = Absent::new(5_000, 0);
        absent.note(1);
        absent.age(GENERATION_NS);
        assert_eq!(absent.count(), 1);
        absent.age(2 * GENERATION_NS);
        assert!(absent.is_empty());
        absent.note(1);
        // Also when there was no drain for long.
        absent.age(9 * GENERATION_NS);
        assert!(absent.is_empty());
        assert_eq!(absent.count(), 0);
    }
}
