//! What was done and what was left out.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What was done and what was left out since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Notifications of the kernel that were taken.
    pub events: u64,
    /// Times that a namespace was listed again in whole.
    pub resyncs: u64,
    /// Times that the kernel said that it had to drop notifications; a resync follows each.
    pub lost: u64,
    /// Interfaces and namespaces above the limit of the graph.
    pub omitted_nodes: u64,
    /// Addresses, routes, neighbours and forwarding entries that were over a limit of their node, each time
    /// one came.
    pub omitted_entries: u64,
    /// Namespaces that are followed now.
    pub namespaces: u64,
    /// Namespaces that could not be entered.
    pub namespaces_refused: u64,
    /// Namespaces now above the limit of followed ones.
    pub namespaces_omitted: u64,
    /// Failed requests to the kernel; they are repeated.
    pub errors: u64,
    /// Containers that have a node now.
    pub containers: u64,
    /// Processes that listen and have a node now.
    pub processes: u64,
    /// Holders of tap and tun devices that have a node now.
    pub guests: u64,
    /// BPF programs on interfaces at the last poll.
    pub programs: u64,
    /// Namespaces with rules of nftables at the last poll.
    pub rulesets: u64,
    /// Times that the rules of a namespace could not be read.
    pub rulesets_failed: u64,
}

/// The counters as the threads write them.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    pub events: AtomicU64,
    pub resyncs: AtomicU64,
    pub lost: AtomicU64,
    pub omitted_nodes: AtomicU64,
    pub omitted_entries: AtomicU64,
    pub namespaces: AtomicU64,
    pub namespaces_refused: AtomicU64,
    pub namespaces_omitted: AtomicU64,
    pub errors: AtomicU64,
    pub containers: AtomicU64,
    pub processes: AtomicU64,
    pub guests: AtomicU64,
    pub programs: AtomicU64,
    pub rulesets: AtomicU64,
    pub rulesets_failed: AtomicU64,
}

impl Shared {
    pub fn read(&self) -> Counters {
        Counters {
            events: self.events.load(Relaxed),
            resyncs: self.resyncs.load(Relaxed),
            lost: self.lost.load(Relaxed),
            omitted_nodes: self.omitted_nodes.load(Relaxed),
            omitted_entries: self.omitted_entries.load(Relaxed),
            namespaces: self.namespaces.load(Relaxed),
            namespaces_refused: self.namespaces_refused.load(Relaxed),
            namespaces_omitted: self.namespaces_omitted.load(Relaxed),
            errors: self.errors.load(Relaxed),
            containers: self.containers.load(Relaxed),
            processes: self.processes.load(Relaxed),
            guests: self.guests.load(Relaxed),
            programs: self.programs.load(Relaxed),
            rulesets: self.rulesets.load(Relaxed),
            rulesets_failed: self.rulesets_failed.load(Relaxed),
        }
    }
}

/// Adds to a counter.
pub(crate) fn add(counter: &AtomicU64, number: u64) {
    counter.fetch_add(number, Relaxed);
}

/// Sets a counter of what is now.
pub(crate) fn set(counter: &AtomicU64, number: usize) {
    counter.store(number as u64, Relaxed);
}
