//! The named captures.

pub mod damaged;
mod file;
mod icmp;
mod ip;
mod link;
mod mixed;
mod tcp;
mod transport;
mod tunnel;

use crate::capture::{Block, Capture, EPOCH_NS, Record};
use crate::packet::Packet;

/// One capture of the corpus.
#[derive(Clone, Copy)]
pub struct Entry {
    /// Name, unique, a file stem.
    pub name: &'static str,
    /// What is in it and why, one line.
    pub about: &'static str,
    make: fn(&mut Trace),
}

impl Entry {
    /// Makes the capture, the same on each call.
    pub fn capture(&self) -> Capture {
        let mut trace = Trace {
            capture: Capture::new(self.name),
            now: EPOCH_NS,
        };
        (self.make)(&mut trace);
        let mut capture = trace.capture;
        capture.settle_times();
        capture
    }
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// All captures, in a fixed order.
pub fn corpus() -> impl Iterator<Item = &'static Entry> {
    [
        link::ENTRIES,
        ip::ENTRIES,
        transport::ENTRIES,
        tcp::ENTRIES,
        icmp::ENTRIES,
        tunnel::ENTRIES,
        file::ENTRIES,
        mixed::ENTRIES,
    ]
    .into_iter()
    .flatten()
}

/// The capture of this name.
pub fn named(name: &str) -> Option<Capture> {
    corpus()
        .find(|entry| entry.name == name)
        .map(Entry::capture)
}

/// A capture in the making, with a clock.
struct Trace {
    capture: Capture,
    now: u64,
}

impl Trace {
    /// Time between two packets when nothing else is said; a prime, so that no rounding goes
    /// unnoticed.
    const STEP_NS: u64 = 1_000_003;

    fn push(&mut self, packet: Packet) {
        self.bytes(packet.build());
    }

    /// Adds an Ethernet packet padded to its least length.
    fn padded(&mut self, packet: Packet) {
        self.bytes(packet.build_padded());
    }

    fn bytes(&mut self, data: Vec<u8>) {
        let keep = data.len();
        self.cut(data, keep);
    }

    /// Adds a packet of which only the first `keep` bytes were captured.
    fn cut(&mut self, mut data: Vec<u8>, keep: usize) {
        let wire_length = data.len() as u32;
        data.truncate(keep);
        self.capture.records.push(Record {
            timestamp_ns: self.now,
            interface: 0,
            data,
            wire_length,
            block: Block::Enhanced,
        });
        self.now += Self::STEP_NS;
    }

    /// Lets this much more time pass before the next packet.
    fn wait(&mut self, ns: u64) {
        self.now += ns;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_unique_and_captures_repeatable() {
        let names: BTreeSet<_> = corpus().map(|entry| entry.name).collect();
        assert_eq!(names.len(), corpus().count());
        assert!(names.len() >= 40, "{}", names.len());
        for entry in corpus() {
            let capture = entry.capture();
            assert!(!capture.records.is_empty(), "{entry:?}");
            assert_eq!(capture.bytes(), entry.capture().bytes(), "{entry:?}");
        }
    }
}
