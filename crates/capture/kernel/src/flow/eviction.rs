//! When the table is about to overflow: how many entries must be evicted, and which.
//!
//! The first packets of many long conversations resemble a storm of short ones. So evicted keys are
//! remembered: a key that comes back was no storm, and when all known conversations fit together none is
//! evicted.

mod absent;
#[cfg(test)]
mod tests;

use absent::Absent;

const SECOND: u64 = 1_000_000_000;

/// Least and most time, in ns, that is expected from a wake-up until entries have been evicted. The most
/// was that of a machine whose processors were all busy with the storm.
const REACTION_NS: [u64; 2] = [SECOND / 10, SECOND * 3 / 4];

/// An eviction frees slots for what comes in this many reaction times.
const REACTIONS: u64 = 3;

/// Entries that a table is to hold.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Between drains.
    usual: u64,
    /// Until a drain has made room: with many more, some would find no slot within reach.
    crowd: u64,
    /// At all.
    most: u64,
}

/// Entries to come.
#[derive(Clone, Copy, Debug)]
struct Coming {
    /// Until this drain has made room.
    now: u64,
    /// Until the next one has, at the soonest.
    next: u64,
}

impl Limits {
    fn fit(&self, live: u64, coming: Coming) -> bool {
        live.saturating_add(coming.now) <= self.crowd
            && live.saturating_add(coming.next) <= self.most
    }
}

/// The table at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    /// Monotonic clock, ns.
    pub ns: u64,
    /// Live entries.
    pub live: u64,
    /// Entries that were wanted since the start, also those that were refused.
    pub wanted: u64,
}

/// The rate at which the table fills up, and which entries are evicted when it does.
#[derive(Debug)]
pub(super) struct Eviction {
    limits: Limits,
    absent: Absent,
    /// Begin of the last drain, and of the one before.
    begun: Moment,
    before: Moment,
    /// `wanted` at which the programs call.
    call: u64,
    /// Recent rates of new entries per second, and of those that had not been evicted before. They fade
    /// slowly, so that a quiet moment does not hide a storm.
    per_second: u64,
    fresh_per_second: u64,
    /// From a call until room is made, of late, in ns.
    reaction_ns: u64,
}

fn scaled(value: u64, factor: u64, divisor: u64) -> u64 {
    let scaled = u128::from(value) * u128::from(factor) / u128::from(divisor.max(1));
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

/// Entries per second.
fn rate(entries: u64, ns: u64) -> u64 {
    scaled(entries, SECOND, ns)
}

/// A rate after a time without events: half after a second.
fn faded(per_second: u64, ns: u64) -> u64 {
    scaled(per_second, SECOND, SECOND.saturating_add(ns))
}

impl Eviction {
    /// For a table that is to hold `max_entries` between drains, and `most_entries` at most, made at
    /// `now_ns`. Keys are given by their hashes.
    pub(super) fn new(max_entries: u32, most_entries: u32, now_ns: u64) -> Self {
        let usual = u64::from(max_entries);
        let limits = Limits {
            usual,
            crowd: usual + usual / 4,
            most: most_entries.into(),
        };
        let empty = Moment {
            ns: now_ns,
            live: 0,
            wanted: 0,
        };
        let mut new = Self {
            limits,
            absent: Absent::new(usual, now_ns),
            begun: empty,
            before: empty,
            call: 0,
            per_second: 0,
            fresh_per_second: 0,
            reaction_ns: REACTION_NS[0],
        };
        new.set_call(empty);
        new
    }

    /// A drain begins. Returns whether new entries must be checked by [`was_evicted`](Self::was_evicted),
    /// for [`excess`](Self::excess).
    pub(super) fn begin(&mut self, now: Moment) -> bool {
        self.before = std::mem::replace(&mut self.begun, now);
        let elapsed = self.elapsed();
        self.absent.age(now.ns);
        self.per_second = faded(self.per_second, elapsed).max(rate(self.made(), elapsed));
        self.fresh_per_second = faded(self.fresh_per_second, elapsed);
        let coming = self.coming(self.per_second, self.made());
        let check_new = !self.limits.fit(now.live, coming) || !self.absent.is_empty();
        if !check_new {
            self.came_back(0);
        }
        check_new
    }

    /// Whether an entry with this first packet is new in this drain, and must be checked by
    /// [`was_evicted`](Self::was_evicted).
    pub(super) fn is_new(&self, first_ns: u64) -> bool {
        self.before.ns <= first_ns && first_ns < self.begun.ns
    }

    /// Whether the conversation with this hash of its key was evicted and had not come back. True for about
    /// one of 30 that were not evicted.
    pub(super) fn was_evicted(&mut self, hash: u64) -> bool {
        self.absent.comes_back(hash)
    }

    /// Entries to evict so that no coming one is refused, when `returned` of the new ones had been evicted
    /// before.
    pub(super) fn excess(&mut self, returned: u64) -> u64 {
        let made = self.made();
        let fresh = made.saturating_sub(returned);
        self.came_back(returned);
        let coming = self.coming(self.per_second, made);
        let really_new = self.coming(self.fresh_per_second, fresh);
        let live = self.begun.live;
        let known = live.saturating_add(self.absent.count());
        if self.limits.fit(live, coming) || self.limits.fit(known, really_new) {
            return 0;
        }
        // The aim is never below a quarter of the table: what is busy stays.
        let Limits { usual, crowd, .. } = self.limits;
        let keep = crowd.saturating_sub(coming.now.saturating_mul(REACTIONS));
        live.saturating_sub(keep.clamp(usual / 4, usual))
    }

    /// The conversation with this hash was evicted.
    pub(super) fn evicted(&mut self, hash: u64) {
        self.absent.note(hash);
    }

    /// A drain is over.
    pub(super) fn end(&mut self, now: Moment) {
        let lasted = now.ns.saturating_sub(self.begun.ns);
        let meanwhile = rate(now.wanted.saturating_sub(self.begun.wanted), lasted);
        self.per_second = self.per_second.max(meanwhile);
        let mut late = 0;
        if self.called() {
            let since = scaled(self.begun.wanted - self.call, SECOND, self.per_second);
            late = since.min(self.elapsed());
        }
        let [least, most] = REACTION_NS;
        self.reaction_ns = (self.reaction_ns - self.reaction_ns / 8)
            .max(late.saturating_add(lasted))
            .clamp(least, most);
        self.set_call(now);
    }

    /// The programs wake user space at this many new entries since the start: when half of the free slots
    /// are used, up to the usual size of the table, or beyond that up to `crowd`; at once above `crowd`.
    pub(super) fn call(&self) -> u64 {
        self.call
    }

    fn set_call(&mut self, now: Moment) {
        let Limits { usual, crowd, .. } = self.limits;
        let free_entries = if now.live < usual {
            usual - now.live
        } else {
            crowd.saturating_sub(now.live)
        };
        // Not too few entries per call: each call costs a drain. A table that overflowed during its drain
        // refuses whatever comes, so the next drain evicts at once.
        let step = if now.live > crowd {
            1
        } else {
            (free_entries / 2).max(usual / 32).max(1)
        };
        self.call = now.wanted + step;
    }

    /// Entries that were wanted between the last two drains.
    fn made(&self) -> u64 {
        self.begun.wanted.saturating_sub(self.before.wanted)
    }

    fn called(&self) -> bool {
        self.begun.wanted >= self.call
    }

    fn came_back(&mut self, returned: u64) {
        let fresh = self.made().saturating_sub(returned);
        self.fresh_per_second = self.fresh_per_second.max(rate(fresh, self.elapsed()));
    }

    /// Entries to expect at a rate. The average over a long time hides a storm that had only just begun at
    /// the wake-up: then as many may come again as were made.
    fn coming(&self, per_second: u64, made: u64) -> Coming {
        let burst = if self.called() && self.elapsed() > SECOND {
            made
        } else {
            0
        };
        let now = scaled(per_second, self.reaction_ns, SECOND);
        Coming {
            now: now.max(burst),
            next: now.saturating_mul(2).max(burst),
        }
    }

    /// Time between the begins of the last two drains, ns.
    fn elapsed(&self) -> u64 {
        self.begun.ns.saturating_sub(self.before.ns)
    }
}

/// Parts of each doubling of the time of quiet.
const PARTS_SHIFT: u32 = 3;
const PARTS: usize = 1 << PARTS_SHIFT;

/// Counts entries by how long they are quiet, in steps of about a tenth.
pub(super) struct QuietCensus {
    steps: [u64; 64 * PARTS],
}

impl QuietCensus {
    pub(super) fn new() -> Self {
        Self {
            steps: [0; 64 * PARTS],
        }
    }

    pub(super) fn add(&mut self, quiet_ns: u64) {
        let quiet_ns = quiet_ns.max(PARTS as u64);
        let doublings = quiet_ns.ilog2();
        let part = (quiet_ns >> (doublings - PARTS_SHIFT)) as usize & (PARTS - 1);
        self.steps[doublings as usize * PARTS + part] += 1;
    }

    /// The shortest quiet time, in ns, that selects at least `excess` entries; 0: all.
    pub(super) fn cutoff(&self, excess: u64) -> u64 {
        let mut counted = 0;
        for step in (PARTS_SHIFT as usize * PARTS + 1..64 * PARTS).rev() {
            counted += self.steps[step];
            if counted >= excess {
                let (doublings, part) = (step / PARTS, step % PARTS);
                return ((PARTS + part) as u64) << (doublings as u32 - PARTS_SHIFT);
            }
        }
        0
    }
}
