//! What was said lately, in memory.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::{
    Stats,
    dns::{Lookup, Outcome},
};

/// Codes that are counted apart: 0 to 15, the last one all others.
pub const CODES: usize = 17;
/// Upper bounds of the classes of latencies, in seconds; beyond them is one class more.
pub const LATENCY_BOUNDS: [f64; 11] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0,
];

/// Sums since the start.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Sums {
    /// Records by outcome, in the order of [`Outcome::ALL`].
    pub outcomes: [u64; Outcome::ALL.len()],
    /// Answers by code.
    pub codes: [u64; CODES],
    /// Questions sent again.
    pub retries: u64,
    /// Answers that were truncated.
    pub truncated: u64,
    /// Latencies by class, and their sum in ns.
    pub latencies: [u64; LATENCY_BOUNDS.len() + 1],
    /// Their sum in ns.
    pub latency_ns: u64,
    /// Records that were removed for later ones.
    pub forgotten: u64,
}

/// Records and sums. Clones share one log.
#[derive(Clone, Debug)]
pub struct Log(Arc<Mutex<Inner>>);

#[derive(Debug)]
struct Inner {
    most: usize,
    /// With the moment when they were added, which rises.
    recent: VecDeque<(u64, Arc<Lookup>)>,
    serial: u64,
    sums: Sums,
    stats: Stats,
}

impl Log {
    /// Room for so many records.
    pub fn new(records: usize) -> Self {
        Self(Arc::new(Mutex::new(Inner {
            most: records,
            recent: VecDeque::new(),
            serial: 0,
            sums: Sums::default(),
            stats: Stats::default(),
        })))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // What is behind the lock is changed in one step.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a record, at a moment in ns.
    pub fn add(&self, lookup: Lookup, now_ns: u64) {
        crate::names::learn(&lookup);
        let mut inner = self.lock();
        inner.sums.add(&lookup);
        if inner.most == 0 {
            return;
        }
        if inner.recent.len() == inner.most {
            inner.recent.pop_front();
            inner.sums.forgotten += 1;
        }
        // Each has a moment of its own, so that a reader who has seen one has seen all before it.
        let serial = now_ns.max(inner.serial + 1);
        inner.serial = serial;
        inner.recent.push_back((serial, Arc::new(lookup)));
    }

    /// Notes what was seen and left out so far.
    pub fn set_stats(&self, stats: Stats) {
        self.lock().stats = stats;
    }

    /// The records that were added after a moment, oldest first, and the moment of the last one.
    pub fn since(&self, moment_ns: u64) -> (Vec<Arc<Lookup>>, u64) {
        let inner = self.lock();
        let from = inner
            .recent
            .partition_point(|(added, _)| *added <= moment_ns);
        let new = inner.recent.range(from..).map(|(_, lookup)| lookup.clone());
        (new.collect(), inner.serial)
    }

    /// Sums since the start, and what was seen and left out.
    pub fn sums(&self) -> (Sums, Stats) {
        let inner = self.lock();
        (inner.sums, inner.stats)
    }
}

impl Sums {
    fn add(&mut self, lookup: &Lookup) {
        let outcome = Outcome::ALL.iter().position(|o| *o == lookup.outcome);
        if let Some(outcome) = outcome {
            self.outcomes[outcome] += 1;
        }
        if let Some(code) = lookup.code {
            self.codes[usize::from(code).min(CODES - 1)] += 1;
        }
        self.retries += u64::from(lookup.retries);
        self.truncated +=
            u64::from(lookup.code.is_some() && lookup.flags & crate::dns::flag::TC != 0);
        if let Some(ns) = lookup.latency_ns {
            let seconds = ns as f64 / 1e9;
            let class = LATENCY_BOUNDS.partition_point(|bound| *bound < seconds);
            self.latencies[class] += 1;
            self.latency_ns += ns;
        }
    }
}
