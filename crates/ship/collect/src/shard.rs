//! Shards: parts of the traffic for several collectors that all read every datagram.

use std::{hash::BuildHasher as _, net::IpAddr};

use foldhash::fast::FixedState;

/// One of several shards. Conversations between the same addresses are in the same shard, so that the
/// reports of two hosts are joined, and each key is in one shard.
#[derive(Clone, Copy, Debug)]
pub struct Shard {
    number: u32,
    of: u32,
    seed: u64,
}

impl Default for Shard {
    fn default() -> Self {
        Self::new(0, 1, 0)
    }
}

impl Shard {
    /// Number `number` of `of`; `seed` is secret and the same for all of them.
    pub fn new(number: u32, of: u32, seed: u64) -> Self {
        let of = of.max(1);
        Self {
            number: number % of,
            of,
            seed,
        }
    }

    /// Whether it counts what concerns all of them.
    pub fn is_first(&self) -> bool {
        self.number == 0
    }

    /// Whether packets between two addresses are its.
    #[inline]
    pub(crate) fn has(&self, protocol: u8, one: IpAddr, other: IpAddr) -> bool {
        if self.of == 1 {
            return true;
        }
        let pair = (protocol, one.min(other), one.max(other));
        let hash = FixedState::with_seed(self.seed).hash_one(pair);
        // The upper bits: tables use the lower ones.
        (hash >> 32) % u64::from(self.of) == u64::from(self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pair_of_addresses_is_in_one_part_whatever_its_order() {
        let shards: Vec<_> = (0..3).map(|number| Shard::new(number, 3, 7)).collect();
        let mut sizes = [0; 3];
        for last in 0..=255 {
            let (one, other) = ([10, 0, 0, last].into(), [10, 0, 1, 1].into());
            let mine = |a, b| {
                shards
                    .iter()
                    .map(move |shard| shard.has(6, a, b))
                    .collect::<Vec<_>>()
            };
            let found = mine(one, other);
            assert_eq!(found, mine(other, one));
            assert_eq!(found.iter().filter(|has| **has).count(), 1);
            sizes[found.iter().position(|has| *has).unwrap()] += 1;
        }
        assert!(sizes.iter().all(|size| *size > 40), "{sizes:?}");
    }
}
