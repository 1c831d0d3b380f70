//! Where the conversations of late packets are: nearly every packet belongs to one that had one
//! just before.

use crate::FlowKey;
use skua_packet::Plain;

/// Cells at first and at most: 8 KiB, and as much as a CPU's second-level cache has room for.
const LEAST: usize = 1 << 10;
const MOST: usize = 1 << 15;

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

/// Hints at places by addresses and ports: one cell for all of a hash, the last one wins. A hint may be wrong
/// or out of date; who takes it compares the key there. So nothing has to be taken out, and who
/// aims at one cell makes others slower, never wrong; hence a hash without a secret.
pub(crate) struct Recent {
    /// A power of two of them.
    cells: Box<[Cell]>,
    shift: u32,
}

impl Default for Recent {
    fn default() -> Self {
        Self::of(LEAST)
    }
}

impl Recent {
    fn of(cells: usize) -> Self {
        Self {
            cells: vec![NOWHERE; cells].into(),
            shift: u32::BITS - cells.trailing_zeros(),
        }
    }

    /// A place worth a look, and whether there its `lo` sent the packet.
    #[inline]
    pub(crate) fn get(&self, packet: &Plain<'_>) -> Option<(u32, bool)> {
        self.look(tag(packet.src, packet.dst, packet.ports))
    }

    #[inline]
    fn look(&self, tag: u32) -> Option<(u32, bool)> {
        let cell = self.cells.get((tag >> self.shift) as usize)?;
        let differing = cell.tag ^ tag;
        (differing <= FROM_LO).then_some((cell.place, differing == FROM_LO))
    }

    /// A packet that `lo` (or else `hi`) sent went to a place.
    #[inline]
    pub(crate) fn put(&mut self, key: &FlowKey, from_lo: bool, place: u32) {
        let tag = tag_of(key, from_lo);
        if let Some(cell) = self.cells.get_mut((tag >> self.shift) as usize) {
            let from_lo = if from_lo { FROM_LO } else { 0 };
            *cell = Cell {
                tag: tag | from_lo,
                place,
            };
        }
    }

    /// Makes room for the conversations of a table of so many; hints may go.
    #[inline]
    pub(crate) fn fit(&mut self, entries: usize) {
        if entries > self.cells.len() / 2 && self.cells.len() < MOST {
            *self = Self::of((4 * entries).next_power_of_two().min(MOST));
        }
    }
}

/// Hash of which the highest bits choose the cell; the last bit is 0. Addresses and ports as
/// [`Plain`] has them.
#[inline]
fn tag(src: [u64; 2], dst: [u64; 2], ports: u32) -> u32 {
    // Products carry upwards only, and what differs most is at the words' upper end.
    let ends = (src[1] ^ u64::from(ports)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let sum = (ends ^ ends >> 32).wrapping_add(src[0]) ^ dst[1].rotate_left(32) ^ dst[0];
    (sum.wrapping_mul(0xbb67_ae85_84ca_a73b) >> 32) as u32 & !FROM_LO
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

    fn look(recent: &Recent, key: &FlowKey, from_lo: bool) -> Option<(u32, bool)> {
        recent.look(tag_of(key, from_lo))
    }

    #[test]
    fn remembers_and_grows() {
        let mut recent = Recent::default();
        recent.put(&key(7), true, 70);
        assert_eq!(look(&recent, &key(7), true), Some((70, true)));
        assert_eq!(look(&recent, &key(7), false), None);
        recent.fit(LEAST);
        assert_eq!(recent.cells.len(), 4 * LEAST);
        recent.fit(usize::MAX / 8);
        assert_eq!(recent.cells.len(), MOST);
        recent.put(&key(7), false, 71);
        assert_eq!(look(&recent, &key(7), false), Some((71, false)));
    }

    /// With twice as many cells as keys, 79% of keys are alone in theirs when the hash is good.
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
            let mut recent = Recent::of(1 << 14);
            (0..1 << 13).for_each(|n| recent.put(&make(n), true, n.into()));
            let right = |n: &u16| look(&recent, &make(*n), true) == Some(((*n).into(), true));
            let found = (0..1 << 13).filter(right);
            let found = found.count();
            assert!(found > (1 << 13) * 7 / 10, "{what}: {found}");
        }
    }
}
