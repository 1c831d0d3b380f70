//! Where the conversations of late packets are: nearly every packet belongs to one that had one
//! just before.

use crate::FlowKey;

/// Cells at first and at most: 8 KiB, and as much as a CPU's second-level cache has room for.
const LEAST: usize = 1 << 10;
const MOST: usize = 1 << 15;

/// A place that a key may be at.
#[derive(Clone, Copy)]
struct Cell {
    tag: u32,
    place: u32,
}

/// A place that no slab has.
const NOWHERE: Cell = Cell {
    tag: 0,
    place: u32::MAX,
};

/// Hints at places by key: one cell for all keys of a hash, the last one wins. A hint may be wrong
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

    /// A place worth a look.
    #[inline]
    pub(crate) fn get(&self, key: &FlowKey) -> Option<u32> {
        let tag = tag(key);
        let cell = self.cells.get((tag >> self.shift) as usize)?;
        (cell.tag == tag).then_some(cell.place)
    }

    /// A packet of a key went to a place.
    #[inline]
    pub(crate) fn put(&mut self, key: &FlowKey, place: u32) {
        let tag = tag(key);
        if let Some(cell) = self.cells.get_mut((tag >> self.shift) as usize) {
            *cell = Cell { tag, place };
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

/// 32 bits of a hash, of which the highest choose the cell. Of the words only those are taken that
/// differ between conversations of one link: addresses and ports.
#[inline]
fn tag(key: &FlowKey) -> u32 {
    let [lo, lo_end, hi, hi_end, ports, ..] = key.words();
    let ends = (lo_end ^ ports.rotate_left(8)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let sum = (ends ^ ends >> 32).wrapping_add(lo) ^ hi_end.rotate_left(32) ^ hi;
    (sum.wrapping_mul(0xbb67_ae85_84ca_a73b) >> 32) as u32
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

    #[test]
    fn remembers_and_grows() {
        let mut recent = Recent::default();
        recent.put(&key(7), 70);
        assert_eq!(recent.get(&key(7)), Some(70));
        recent.fit(LEAST);
        assert_eq!(recent.cells.len(), 4 * LEAST);
        recent.fit(usize::MAX / 8);
        assert_eq!(recent.cells.len(), MOST);
        recent.put(&key(7), 71);
        assert_eq!(recent.get(&key(7)), Some(71));
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
            (0..1 << 13).for_each(|n| recent.put(&make(n), n.into()));
            let found = (0..1 << 13).filter(|n| recent.get(&make(*n)) == Some((*n).into()));
            let found = found.count();
            assert!(found > (1 << 13) * 7 / 10, "{what}: {found}");
        }
    }
}
