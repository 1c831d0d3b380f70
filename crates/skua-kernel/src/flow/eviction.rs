//! When the table is about to overflow: how many entries have to go, and which.

/// Room is made for as many new entries as come in this time: that of a drain on a machine whose
/// processors are all taken by the storm.
const LEAD_NS: u64 = 1_500_000_000;

/// How fast entries are made, or would be if there were room.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Growth {
    wanted: u64,
    at_ns: u64,
    /// New entries per second, of the last interval or half of what it was before, the greater:
    /// a storm is not forgotten in one quiet moment.
    per_second: u64,
}

impl Growth {
    /// Takes note of how many entries were wanted up to now.
    pub(super) fn observe(&mut self, wanted: u64, now_ns: u64) {
        let made = wanted.saturating_sub(self.wanted);
        let elapsed = now_ns.saturating_sub(self.at_ns).max(1);
        let rate = (u128::from(made) * 1_000_000_000 / u128::from(elapsed)) as u64;
        // The first interval has no beginning.
        let first = self.at_ns == 0;
        self.per_second = if first {
            made
        } else {
            rate.max(self.per_second / 2)
        };
        self.wanted = wanted;
        self.at_ns = now_ns;
    }

    /// Entries that have to go so that none of those to come is refused. `most` is what the table
    /// can hold, `wanted` what it should hold between drains. Few at a time: conversations that
    /// only paused come back and would push out others.
    pub(super) fn excess(&self, live: u64, wanted: u64, most: u64) -> u64 {
        let coming = u128::from(self.per_second) * u128::from(LEAD_NS) / 1_000_000_000;
        let coming = coming as u64;
        if live.saturating_add(coming) <= most {
            return 0;
        }
        // The aim is never below a quarter of the table: what is busy stays.
        let keep = most.saturating_sub(coming).clamp(wanted / 4, wanted);
        live.saturating_sub(keep)
    }
}

/// Counts entries by how long they are quiet, in steps of doubling time.
pub(super) struct QuietCensus {
    steps: [u64; 64],
}

impl QuietCensus {
    pub(super) fn new() -> Self {
        Self { steps: [0; 64] }
    }

    pub(super) fn add(&mut self, quiet_ns: u64) {
        self.steps[(quiet_ns | 1).ilog2() as usize] += 1;
    }

    /// The least time of quiet, in ns, by which at least `excess` entries can be told; 0: all.
    pub(super) fn cutoff(&self, excess: u64) -> u64 {
        let mut counted = 0;
        for step in (1..64).rev() {
            counted += self.steps[step];
            if counted >= excess {
                return 1 << step;
            }
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn growth(per_second: u64) -> Growth {
        let mut growth = Growth::default();
        growth.observe(0, SECOND);
        growth.observe(per_second, 2 * SECOND);
        growth
    }

    #[test]
    fn a_full_house_that_is_quiet_stays() {
        assert_eq!(growth(0).excess(500_000, 500_000, 750_000), 0);
        assert_eq!(growth(100_000).excess(500_000, 500_000, 750_000), 0);
    }

    #[test]
    fn a_storm_makes_room_for_what_comes_until_the_next_drain() {
        let excess = growth(200_000).excess(500_000, 500_000, 750_000);
        assert_eq!(500_000 - excess + 300_000, 750_000);
        // However fast it comes, a quarter stays.
        assert_eq!(
            growth(u64::MAX / 4).excess(500_000, 500_000, 750_000),
            375_000
        );
    }

    #[test]
    fn a_storm_is_not_forgotten_at_once() {
        let mut growth = growth(800_000);
        growth.observe(800_000, 3 * SECOND);
        assert_eq!(growth.per_second, 400_000);
    }

    #[test]
    fn those_that_are_quiet_the_longest_go_first() {
        let mut census = QuietCensus::new();
        for quiet in [10, 100, 1_000, 10_000, 100_000] {
            census.add(quiet);
        }
        let cutoff = census.cutoff(2);
        assert!(cutoff <= 10_000 && cutoff > 1_000, "{cutoff}");
        assert_eq!(census.cutoff(6), 0);
    }
}
