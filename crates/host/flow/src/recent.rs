//! Where the conversations of late packets are: nearly every packet belongs to one that had one
//! just before.

use crate::FlowKey;
use skua_packet::Plain;

/// Pairs of cells at first and at most: 8 KiB, and 256 KiB, for which a CPU's second-level cache has
/// room.
const LEAST: usize = 1 << 9;
const MOST: usize = 1 << 14;
/// Pairs of cells per entry, while that is not too many: so few keys share a pair with two others
/// that nearly all of them find their place.
const ROOM: usize = 16;

/// Bit of a tag: `lo` is the sender.
const FROM_LO: u32 = 1;

/// A place that the conversation of packets from one side may be at.
#[derive(Clone, Copy)]
struct Cell {
    /// Hash but for the last bit, which is [`FROM_LO`].
    tag: u32,
    place: u32,
}

/// A place that no slab has.
const NOWHERE: Cell = Cell {
    tag: 0,
    place: u32::MAX,
};

/// Hints at places by addresses and ports: one cell for all of a hash, the last two win. A hint may be
/// wrong or out of date; its user compares the key there. So nothing has to be removed, and an attacker who
/// aims at one cell makes others slower, never wrong; hence a hash without a secret.
pub(crate) struct Recent {
    /// A power of two of them.
    pairs: Box<[[Cell; 2]]>,
    shift: u32,
}

impl Default for Recent {
    fn default() -> Self {
        Self::of(LEAST)
    }
}

impl Recent {
    fn of(pairs: usize) -> Self {
        Self {
            pairs: vec![[NOWHERE; 2]; pairs].into(),
            shift: u32::BITS - pairs.trailing_zeros(),
        }
    }

    /// A slot that may have the packet's flow, and whether there its `lo` sent the packet.
    #[inline]
    pub(crate) fn get(&self, packet: &Plain<'_>) -> Option<(u32, bool)> {
        self.find(tag(packet.src, packet.dst, packet.ports))
    }

    #[inline]
    fn find(&self, tag: u32) -> Option<(u32, bool)> {
        let pair = self.pairs.get((tag >> self.shift) as usize)?;
        let hint = |cell: &Cell| {
            let differing = cell.tag ^ tag;
            (differing <= FROM_LO).then_some((cell.place, differing == FROM_LO))
        };
        hint(&pair[0]).or_else(|| hint(&pair[1]))
    }

    /// Stores a hint: a packet that `lo` (or else `hi`) sent belongs to a place.
    #[inline]
    pub(crate) fn put(&mut self, key: &FlowKey, from_lo: bool, place: u32) {
        let tag = tag_of(key, from_lo);
        if let Some(pair) = self.pairs.get_mut((tag >> self.shift) as usize) {
            if pair[0].tag & !FROM_LO != tag {
                pair[1] = pair[0];
            }
            let from_lo = if from_lo { FROM_LO } else { 0 };
            pair[0] = Cell {
                tag: tag | from_lo,
                place,
            };
        }
    }

    /// Resizes the hints for a table of so many entries; some may be lost.
    #[inline]
    pub(crate) fn fit(&mut self, entries: usize) {
        if self.pairs.len() < MOST && ROOM * entries > self.pairs.len() {
            *self = Self::of((2 * ROOM * entries).next_power_of_two().min(MOST));
        }
    }
}

/// Odd factors: 64 fractional bits of the golden ratio and of square roots of primes.
const FACTORS: [u64; 3] = [
    0x9e37_79b9_7f4a_7c15,
    0xbb67_ae85_84ca_a73b,
    0x3c6e_f372_fe94_f82b,
];

/// Hash of which the highest bits choose the pair; the last bit is 0. Addresses and ports as
/// [`Plain`] has them.
#[inline]
fn tag(src: [u64; 2], dst: [u64; 2], ports: u32) -> u32 {
    // Products carry upwards only, and what differs most is at the words' upper end: fold it down.
    let a = (src[0].rotate_left(17) ^ src[1] ^ u64::from(ports)).wrapping_mul(FACTORS[0]);
    let b = (a ^ a >> 32 ^ dst[0].rotate_left(17) ^ dst[1]).wrapping_mul(FACTORS[1]);
    ((b ^ b >> 29).wrapping_mul(FACTORS[2]) >> 32) as u32 & !FROM_LO
}

/// The same from the key of what `lo` (or else `hi`) sent.
#[inline]
fn tag_of(key: &FlowKey, from_lo: bool) -> u32 {
    let [lo, lo_end, hi, hi_end, ports, ..] = key.words();
    let (lo, hi, ports) = ([lo, lo_end], [hi, hi_end], ports as u32);
    match from_lo {
        true => tag(lo, hi, ports),
        false => tag(hi, lo, ports.rotate_left(16)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u16) -> FlowKey {
        FlowKey {
            lo_port: number.to_be_bytes(),
            ..FlowKey::default()
        }
    }

    fn find(recent: &Recent, key: &FlowKey, from_lo: bool) -> Option<(u32, bool)> {
        recent.find(tag_of(key, from_lo))
    }

    #[test]
    fn remembers_and_grows() {
        let mut recent = Recent::default();
        recent.put(&key(7), true, 70);
        assert_eq!(find(&recent, &key(7), true), Some((70, true)));
        assert_eq!(find(&recent, &key(7), false), None);
        recent.fit(LEAST / ROOM);
        assert_eq!(recent.pairs.len(), LEAST);
        recent.fit(LEAST / ROOM + 1);
        assert_eq!(recent.pairs.len(), 4 * LEAST);
        recent.fit(MOST);
        assert_eq!(recent.pairs.len(), MOST);
        recent.put(&key(7), false, 71);
        assert_eq!(find(&recent, &key(7), false), Some((71, false)));
    }

    /// With one pair for two keys, 85% of keys are among the last two of theirs when the hash is
    /// good.
    #[test]
    fn spreads_keys_that_differ_in_one_field_alone() {
        let address = |n: u16, family: [u8; 12]| {
            let [a, b] = n.to_be_bytes();
            let [f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11] = family;
            [
                f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, 10, 9, a, b,
            ]
        };
        let v4 = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];
        let v6 = [0x20, 1, 0xd, 0xb8, 0, 1, 0, 2, 0, 0, 0, 0];
        let ways: [(&str, &dyn Fn(u16) -> FlowKey); 7] = [
            ("lo port", &key),
            ("hi port", &|n| FlowKey {
                hi_port: n.to_be_bytes(),
                ..key(9)
            }),
            ("lo, IPv4", &|n| FlowKey {
                lo: address(n, v4),
                ..key(9)
            }),
            ("hi, IPv4", &|n| FlowKey {
                hi: address(n, v4),
                ..key(9)
            }),
            ("lo, IPv6", &|n| FlowKey {
                lo: address(n, v6),
                ..key(9)
            }),
            ("hi, IPv6", &|n| FlowKey {
                hi: address(n, v6),
                ..key(9)
            }),
            ("both", &|n| FlowKey {
                lo: address(n, v4),
                hi: address(n, v4),
                ..key(9)
            }),
        ];
        for (what, make) in ways {
            let mut recent = Recent::of(1 << 13);
            (0..1 << 13).for_each(|n| recent.put(&make(n), true, n.into()));
            let right = |n: &u16| find(&recent, &make(*n), true) == Some(((*n).into(), true));
            let found = (0..1 << 13).filter(right);
            let found = found.count();
            assert!(found > (1 << 13) * 7 / 8, "{what}: {found}");
        }
    }
}
