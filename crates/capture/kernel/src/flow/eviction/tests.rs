//! The rule at work: a table of a hundredth of the usual size, with packets at a hundredth of the
//! rates, and drains that take their time.

use std::collections::HashMap;

use super::*;

const ENTRIES: u32 = 5_000;
/// As `most_entries` of the table.
const MOST: u64 = 7_500;
/// With more, some of the table's new conversations would find no slot within reach.
const CROWDED: u64 = 6_800;
const INTERVAL: u64 = 10 * SECOND;

/// A good hash of a small number, other than chance the same each time (SplitMix64).
pub(super) fn hash(id: u64) -> u64 {
    let mut hash = id.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    hash = (hash ^ hash >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ hash >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ hash >> 31
}

/// First and last packet of an entry, ns.
struct Entry {
    first: u64,
    last: u64,
}

struct Table {
    eviction: Eviction,
    entries: HashMap<u64, Entry>,
    /// Go in the drain that runs.
    dying: Vec<u64>,
    now: u64,
    wanted: u64,
    /// How long it takes from a call to a drain's begin, and from there to its end.
    late: u64,
    lasts: u64,
    begins: u64,
    ends: Option<u64>,
    called: bool,
    records: u64,
    lost: u64,
    evicted: u64,
    /// Most entries at a time.
    peak: u64,
}

impl Table {
    /// With drains that take so long.
    fn new(lasts: u64) -> Self {
        Self {
            eviction: Eviction::new(ENTRIES, MOST as u32, 0),
            entries: HashMap::new(),
            dying: Vec::new(),
            now: 0,
            wanted: 0,
            late: lasts / 10,
            lasts,
            begins: INTERVAL,
            ends: None,
            called: false,
            records: 0,
            lost: 0,
            evicted: 0,
            peak: 0,
        }
    }

    fn live(&self) -> u64 {
        (self.entries.len() + self.dying.len()) as u64
    }

    fn moment(&self, ns: u64) -> Moment {
        Moment {
            ns,
            live: self.live(),
            wanted: self.wanted,
        }
    }

    /// Time passes.
    fn wait(&mut self, ns: u64) {
        let until = self.now + ns;
        while self.ends.unwrap_or(self.begins) <= until {
            match self.ends.take() {
                Some(ends) => self.end(ends),
                None => self.begin(self.begins),
            }
        }
        self.now = until;
    }

    fn begin(&mut self, now: u64) {
        self.ends = Some(now + self.lasts);
        if !self.eviction.begin(self.moment(now)) {
            return;
        }
        let mut census = QuietCensus::new();
        let mut returned = 0;
        for (id, entry) in &self.entries {
            census.add(now - entry.last);
            let new = self.eviction.is_new(entry.first);
            returned += u64::from(new && self.eviction.was_evicted(hash(*id)));
        }
        let excess = self.eviction.excess(returned);
        if excess > 0 {
            let cutoff = census.cutoff(excess);
            let quiet = |(_, entry): &(&u64, &Entry)| now - entry.last >= cutoff;
            self.dying = self.entries.iter().filter(quiet).map(|e| *e.0).collect();
            self.entries.retain(|_, entry| now - entry.last < cutoff);
        }
    }

    fn end(&mut self, now: u64) {
        self.evicted += self.dying.len() as u64;
        for id in std::mem::take(&mut self.dying) {
            self.eviction.evicted(hash(id));
        }
        self.eviction.end(self.moment(now));
        self.called = false;
        self.begins = now + INTERVAL;
    }

    fn packet(&mut self, id: u64) {
        let now = self.now;
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.last = now;
            return;
        }
        self.wanted += 1;
        if self.live() < MOST {
            self.records += 1;
            let new = Entry {
                first: now,
                last: now,
            };
            self.entries.insert(id, new);
            self.peak = self.peak.max(self.live());
        } else {
            self.lost += 1;
        }
        if self.wanted >= self.eviction.call() && !self.called && self.ends.is_none() {
            self.called = true;
            self.begins = now + self.late;
        }
    }

    /// A packet of each of the conversations, so many per second.
    fn burst(&mut self, per_second: u64, ids: impl IntoIterator<Item = u64>) {
        for id in ids {
            self.packet(id);
            self.wait(SECOND / per_second);
        }
    }

    /// All of so many conversations have packets again and again, in bursts.
    fn bursts(&mut self, conversations: u64, number: u64) {
        for _ in 0..number {
            self.burst(6_000, 0..conversations);
            self.wait(2 * SECOND + SECOND / 2);
        }
    }
}

#[test]
fn a_full_house_that_comes_at_once_stays() {
    for lasts in [10, 20, 40, 60] {
        let mut table = Table::new(SECOND / 1000 * lasts * 2);
        table.late = SECOND / 20;
        // Quiet before: how late a drain is does not show in that time's rate.
        table.wait(INTERVAL * 9 / 10);
        table.bursts(5_000, 6);
        assert_eq!((table.records, table.lost), (5_000, 0), "{lasts}");
        assert_eq!(table.evicted, 0);
    }
}

#[test]
fn a_storm_that_comes_back_was_none() {
    // Slow machines: the first packets are taken for a storm.
    let mut all = 0;
    for lasts in [250, 300, 350, 400] {
        let mut table = Table::new(SECOND / 1000 * lasts);
        table.bursts(5_000, 2);
        let evicted = table.evicted;
        table.bursts(5_000, 8);
        assert_eq!((table.evicted, table.lost), (evicted, 0), "{lasts}");
        all += evicted;
    }
    assert!(all > 0);
}

#[test]
fn also_when_there_are_more_than_usual() {
    let mut table = Table::new(SECOND / 10);
    table.bursts(6_000, 3);
    let evicted = table.evicted;
    table.bursts(6_000, 8);
    assert_eq!((table.evicted, table.lost), (evicted, 0));
}

#[test]
fn a_storm_loses_nothing() {
    for lasts in [20, 50, 100, 150, 300, 500] {
        for rate in [1_000, 2_000, 4_000, 6_000] {
            // What comes in one drain must fit beside the quarter that stays.
            let lasts = SECOND / 1000 * lasts;
            if rate * lasts / SECOND > 2_100 {
                continue;
            }
            let mut table = Table::new(lasts);
            table.wait(INTERVAL / 3);
            table.burst(rate, 0..6 * rate);
            assert_eq!(table.lost, 0, "{lasts} {rate}");
            assert_eq!(table.records, 6 * rate);
            assert!(
                lasts > SECOND / 10 || table.peak <= CROWDED,
                "{lasts} {rate}"
            );
        }
    }
}

#[test]
fn nor_does_one_that_meets_a_full_house() {
    for lasts in [20, 50, 100] {
        for rate in [2_000, 4_000, 6_000] {
            let mut table = Table::new(SECOND / 1000 * lasts);
            table.bursts(5_000, 5);
            table.wait(INTERVAL * 2 / 3);
            // Every fourth packet is one of those that were there.
            let packets = (0..6 * rate).map(|n| match n % 4 {
                0 => n / 4 % 5_000,
                _ => 1_000_000 + n,
            });
            table.burst(rate, packets);
            assert_eq!(table.lost, 0, "{lasts} {rate}");
            assert!(table.peak <= CROWDED, "{lasts} {rate}");
        }
    }
}

#[test]
fn one_that_overruns_a_slow_drain_shuts_nobody_out() {
    let mut table = Table::new(2 * SECOND);
    table.late = SECOND / 1000;
    // Quiet before: the drain that the storm triggers has no reason to evict.
    table.wait(INTERVAL * 9 / 10);
    table.burst(20_000, 0..30_000);
    table.wait(SECOND);
    assert_eq!((table.live(), table.ends), (MOST, None));
    // The first of those that follow calls for the next one, long before it is due by the clock.
    table.burst(10, 1_000_000..1_000_030);
    let lost = table.lost;
    table.burst(10, 1_000_030..1_000_050);
    assert_eq!(table.lost, lost);
}

#[test]
fn after_a_storm_all_are_let_in_again() {
    let mut table = Table::new(SECOND / 10);
    table.bursts(5_000, 3);
    table.burst(6_000, 1_000_000..1_200_000);
    assert_eq!(table.lost, 0);
    // Those of the storm might come back, too, until they are forgotten.
    table.bursts(5_000, 30);
    let evicted = table.evicted;
    table.bursts(5_000, 20);
    assert_eq!((table.evicted, table.lost), (evicted, 0));
}

#[test]
fn more_conversations_than_fit_go_round_without_loss() {
    let mut table = Table::new(SECOND / 20);
    for _ in 0..10 {
        table.burst(6_000, 0..15_000);
    }
    assert_eq!(table.lost, 0);
    assert!(table.live() <= MOST);
}

#[test]
fn slow_growth_pushes_nobody_out() {
    let mut table = Table::new(SECOND / 20);
    table.burst(10, 0..6_200);
    assert_eq!((table.evicted, table.lost), (0, 0));
}

#[test]
fn those_that_are_quiet_the_longest_go_first() {
    let mut census = QuietCensus::new();
    for quiet in 0..100_000 {
        census.add(quiet);
    }
    for excess in [1, 10, 1_000, 50_000, 90_000, 99_990] {
        let cutoff = census.cutoff(excess);
        let go = 100_000 - cutoff;
        assert!(go >= excess, "{excess}: {go}");
        // No more than there are in one part of a doubling.
        assert!(go - excess <= cutoff / 8 + 16, "{excess}: {go}");
    }
    assert_eq!(census.cutoff(100_001), 0);
}
