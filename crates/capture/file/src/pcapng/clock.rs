//! An interface's clock: what its ticks are in ns since the Unix epoch.

const NS_PER_S: u64 = 1_000_000_000;

/// `if_tsresol` and `if_tsoffset`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Clock {
    unit: Unit,
    offset_s: i64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Unit {
    /// This many ns.
    Ns(u64),
    /// One ns divided by this.
    NsDividedBy(u128),
    /// One second divided by two to the power of this.
    TwoToMinus(u8),
}

impl Clock {
    /// The clock of an interface that says nothing: µs since 1970.
    pub(super) const DEFAULT: Self = Self {
        unit: Unit::Ns(1000),
        offset_s: 0,
    };

    /// Sets the resolution: a negative power of ten, with the highest bit of two.
    pub(super) fn set_resolution(&mut self, resolution: u8) {
        self.unit = match resolution {
            r if r & 0x80 != 0 => Unit::TwoToMinus(r & 0x7f),
            r if r <= 9 => Unit::Ns(10u64.pow(9 - u32::from(r))),
            // Where this overflows, every 64-bit count of ticks is less than a ns.
            r => Unit::NsDividedBy(10u128.checked_pow(u32::from(r) - 9).unwrap_or(u128::MAX)),
        };
    }

    /// Sets the seconds to add.
    pub(super) fn set_offset(&mut self, seconds: i64) {
        self.offset_s = seconds;
    }

    /// Time in ns, clamped to the range of its type.
    #[inline]
    pub(super) fn ns(&self, ticks: u64) -> u64 {
        match (self.unit, self.offset_s) {
            (Unit::Ns(unit), 0) => ticks.saturating_mul(unit),
            _ => self.any_ns(ticks),
        }
    }

    fn any_ns(&self, ticks: u64) -> u64 {
        let ticks = u128::from(ticks);
        let ns = match self.unit {
            Unit::Ns(unit) => ticks * u128::from(unit),
            Unit::NsDividedBy(divisor) => ticks / divisor,
            Unit::TwoToMinus(power) => (ticks * u128::from(NS_PER_S)) >> power,
        };
        let ns = ns as i128 + i128::from(self.offset_s) * i128::from(NS_PER_S);
        u64::try_from(ns.max(0)).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock(resolution: u8, offset_s: i64) -> Clock {
        let mut clock = Clock::DEFAULT;
        clock.set_resolution(resolution);
        clock.set_offset(offset_s);
        clock
    }

    #[test]
    fn resolutions() {
        assert_eq!(Clock::DEFAULT.ns(7), 7000);
        assert_eq!(clock(0, 0).ns(7), 7_000_000_000);
        assert_eq!(clock(9, 0).ns(7), 7);
        assert_eq!(clock(12, 0).ns(7_999), 7);
        assert_eq!(clock(0x80, 0).ns(7), 7_000_000_000);
        assert_eq!(clock(0x80 | 10, 0).ns(1), 976_562);
        assert_eq!(clock(0x80 | 63, 0).ns(1 << 62), 500_000_000);
    }

    #[test]
    fn offsets() {
        assert_eq!(clock(9, 10).ns(7), 10_000_000_007);
        assert_eq!(clock(3, -1).ns(1_500), 500_000_000);
    }

    #[test]
    fn hostile_values() {
        for resolution in 0..=255 {
            for offset in [i64::MIN, -1, 0, i64::MAX] {
                let clock = clock(resolution, offset);
                for ticks in [0, 1, u64::MAX] {
                    // Must not panic, whatever the result.
                    let _ = clock.ns(ticks);
                }
            }
        }
        assert_eq!(clock(0, 0).ns(u64::MAX), u64::MAX);
        assert_eq!(clock(9, i64::MIN).ns(5), 0);
        assert_eq!(clock(127, 0).ns(u64::MAX), 0);
        assert_eq!(clock(255, 0).ns(u64::MAX), 0);
    }
}
