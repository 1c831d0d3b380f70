//! The distribution of times, in a fixed size.
//!
//! Each doubling has four classes, so that the midpoint of a class is off by at most 9.1% (the eighth root of
//! 2). When more than [`CLASSES`] are needed, pairs are merged, again and again: 19%, 41%, 100%. With 16 classes
//! that begins when the largest time is 16 times the smallest. Sketches can be added up: the output is pairs of
//! a time and a count.

/// Classes at most.
pub const CLASSES: usize = 16;
/// Most merges of classes: then 16 classes cover 32 bits.
const COARSEST: u8 = 3;
/// The powers of the fourth root of 2 between 1 and 2, times 2³¹.
const QUARTERS: [u32; 3] = [2_553_802_834, 3_037_000_500, 3_611_622_603];

/// Times in µs by class.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sketch {
    counts: [u32; CLASSES],
    classes: [u8; CLASSES],
    known: u8,
    level: u8,
}

/// Class of a time at the finest level, 0 to 127.
fn class(us: u32) -> u8 {
    let us = us.max(1);
    let doublings = us.ilog2();
    let fraction = us << (31 - doublings);
    let quarters = QUARTERS.iter().filter(|from| fraction >= **from).count();
    (doublings * 4) as u8 + quarters as u8
}

/// The middle of a class, µs.
fn middle(class: u8, level: u8) -> u32 {
    let eighths = (2 * u32::from(class) + 1) << level;
    (f64::from(eighths) / 8.0).exp2().round() as u32
}

impl Sketch {
    /// Without a time.
    pub(crate) const EMPTY: Self = Self {
        counts: [0; CLASSES],
        classes: [0; CLASSES],
        known: 0,
        level: 0,
    };

    /// Adds a time with a count.
    pub fn add(&mut self, us: u32, count: u32) {
        self.add_class(class(us) >> self.level, count);
    }

    fn add_class(&mut self, class: u8, count: u32) {
        let known = usize::from(self.known);
        let index = self.classes.iter().take(known).position(|c| *c == class);
        match index.or_else(|| (known < CLASSES).then_some(known)) {
            Some(index) => {
                if index == known {
                    self.classes[index] = class;
                    self.counts[index] = 0;
                    self.known += 1;
                }
                self.counts[index] = self.counts[index].saturating_add(count);
            }
            None if self.level < COARSEST => {
                self.coarsen();
                self.add_class(class >> 1, count);
            }
            None => {}
        }
    }

    /// Removes a time that was added.
    pub fn remove(&mut self, us: u32) {
        let class = class(us) >> self.level;
        let known = usize::from(self.known);
        if let Some(index) = self.classes.iter().take(known).position(|c| *c == class) {
            self.counts[index] = self.counts[index].saturating_sub(1);
        }
    }

    fn coarsen(&mut self) {
        let old = *self;
        *self = Self {
            level: old.level + 1,
            ..Self::default()
        };
        for index in 0..usize::from(old.known) {
            self.add_class(old.classes[index] >> 1, old.counts[index]);
        }
    }

    /// Midpoints of classes, µs, with their counts; in no order.
    pub fn classes(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        let all = self.classes.iter().zip(&self.counts);
        all.take(self.known.into())
            .filter(|(_, count)| **count > 0)
            .map(|(class, count)| (middle(*class, self.level), *count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_within_nine_percent_as_long_as_the_range_is_small() {
        for us in (1..2_000).chain((1..30).map(|n| n * 12_345_678)) {
            let mut sketch = Sketch::default();
            sketch.add(us, 3);
            let [(middle, 3)] = sketch.classes().collect::<Vec<_>>()[..] else {
                panic!("{sketch:?}");
            };
            // Below 8 µs, integers are coarser than classes.
            let error = f64::from(middle.abs_diff(us)) - 0.5;
            assert!(error <= 0.0906 * f64::from(us), "{us}: {middle}");
        }
    }

    #[test]
    fn a_wide_range_is_coarser_and_nothing_is_lost() {
        let mut sketch = Sketch::default();
        let mut times: Vec<u32> = (0..32).map(|bit| 1 << bit).collect();
        for us in &times {
            sketch.add(*us, 2);
        }
        assert_eq!(sketch.classes().map(|(_, count)| count).sum::<u32>(), 64);
        times.truncate(12);
        let mut sketch = Sketch::default();
        for us in &times {
            sketch.add(*us, 1);
        }
        sketch.remove(1);
        assert_eq!(sketch.level, 0);
        assert_eq!(sketch.classes().count(), 11);
    }
}
