//! A channel: its ring, its moving average, and whether it has fired. `bpf/steer/judge.h` in Rust.

use crate::{Detector, Threshold};

/// A value and its time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sample {
    /// ns of the clock of the packets.
    pub time_ns: u64,
    /// Fixed point.
    pub value: i64,
}

/// The result of a sample.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Verdict {
    /// The average before the sample; the sum of the ring until that is full.
    pub before: i64,
    /// The average with it.
    pub after: i64,
    /// Samples of the channel, with this one.
    pub count: u64,
    /// The channel has fired.
    pub fired: bool,
    /// It did not before, or it did.
    pub changed: bool,
}

/// State of a channel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Channel {
    /// Samples.
    pub count: u64,
    /// Samples for which it stood fired.
    pub fired: u64,
    /// The moving average; until the ring is full, the sum of its samples.
    pub ewma: i64,
    /// It stays fired until then, ns.
    pub until: u64,
    /// The channel has fired.
    pub active: bool,
    /// The last samples.
    pub ring: Vec<Sample>,
}

fn limit(average: i64, threshold: Threshold) -> u64 {
    let size = average.unsigned_abs();
    match threshold {
        Threshold::Shift(shift) => size >> (shift & 63),
        Threshold::Parts(parts) => {
            let parts = u64::from(parts);
            size / 10_000 * parts + size % 10_000 * parts / 10_000
        }
    }
}

impl Channel {
    /// Of a detector, without samples.
    pub fn new(detector: &Detector) -> Self {
        Self {
            count: 0,
            fired: 0,
            ewma: 0,
            until: 0,
            active: false,
            ring: vec![Sample::default(); detector.ring as usize],
        }
    }

    /// Adds a sample.
    pub fn judge(&mut self, detector: &Detector, sample: Sample) -> Verdict {
        let depth = u64::from(detector.ring);
        let place = self.count % depth.max(1);
        if let Some(place) = usize::try_from(place)
            .ok()
            .and_then(|i| self.ring.get_mut(i))
        {
            *place = sample;
        }
        self.count += 1;
        let mut verdict = Verdict {
            before: self.ewma,
            after: self.ewma,
            count: self.count,
            fired: false,
            changed: false,
        };
        if self.count < depth {
            self.ewma += sample.value;
        } else if self.count == depth {
            self.ewma = (self.ewma + sample.value) / i64::from(detector.ring.max(1));
        } else {
            let step = (sample.value - verdict.before) >> (detector.smoothing & 63);
            verdict.after = verdict.before + step;
            self.ewma = verdict.after;
            if self.count > depth + u64::from(detector.warm_up) {
                verdict.fired = self.stays_fired(detector, &verdict, sample.time_ns);
                verdict.changed = verdict.fired != self.active;
                self.active = verdict.fired;
                self.fired += u64::from(verdict.fired);
            }
        }
        verdict
    }

    /// The samples of the ring, the oldest first.
    pub fn samples(&self) -> impl Iterator<Item = &Sample> {
        let depth = self.ring.len();
        let count = usize::try_from(self.count).unwrap_or(usize::MAX);
        let (newer, older) = match count.checked_rem(depth) {
            Some(next) if count >= depth => self.ring.split_at(next),
            _ => (self.ring.get(..count).unwrap_or_default(), [].as_slice()),
        };
        older.iter().chain(newer)
    }

    fn stays_fired(&mut self, detector: &Detector, verdict: &Verdict, now: u64) -> bool {
        let step = (verdict.after - verdict.before).unsigned_abs();
        let over = |threshold| step > limit(verdict.before, threshold);
        if over(detector.threshold) || (self.active && over(detector.release)) {
            let hold = u64::try_from(detector.hold.as_nanos()).unwrap_or(u64::MAX);
            if hold > 0 {
                self.until = now.wrapping_add(hold);
            }
            return true;
        }
        self.active && now < self.until
    }
}
