//! An edge and its sums.

use std::net::IpAddr;

use super::input::GraphLine;
use crate::counts::Sum;

/// An end of an edge.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Endpoint {
    /// A service by its name: container, unit or process.
    Service(Box<str>),
    /// An address without a known name.
    Address(IpAddr),
}

impl std::fmt::Display for Endpoint {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Service(name) => out.write_str(name),
            Self::Address(address) => address.fmt(out),
        }
    }
}

/// What lines are summed up by.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct EdgeKey {
    /// The client.
    pub client: Endpoint,
    /// The server.
    pub server: Endpoint,
    /// IP protocol.
    pub protocol: u8,
    /// The service's port; 0 if the server's side is unknown.
    pub port: u16,
}

impl EdgeKey {
    pub(super) fn of(line: &GraphLine<'_>) -> Self {
        let endpoint = |name: &str, address| match name {
            "" => Endpoint::Address(address),
            name => Endpoint::Service(name.into()),
        };
        Self {
            client: endpoint(&line.client_service, line.client),
            server: endpoint(&line.server_service, line.server),
            protocol: line.protocol,
            port: line.port,
        }
    }
}

/// Sums of an edge; [`FIELDS`](super::FIELDS) has their meanings. Of pairs the client's is first.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs, reason = "the definitions of the fields explain them")]
pub struct EdgeSums {
    pub sent: [Sum; 2],
    pub retransmitted: [u64; 2],
    pub connections: u64,
    pub ended: u64,
    pub refused: u64,
    pub timed_out: u64,
    pub reset: u64,
    pub samples: u64,
    pub rtt_count: u64,
    pub rtt_sum_us: u64,
    pub rtt_min_us: u64,
    pub rtt_max_us: u64,
    /// Midpoints and counts of classes, in ascending order: at most 256. An [`Edge`] has none, but its quantiles.
    classes: Vec<(u32, u64)>,
    pub first_ns: u64,
    pub last_ns: u64,
}

impl EdgeSums {
    pub(super) fn add(&mut self, line: &GraphLine<'_>) {
        let rtt = &line.rtt;
        let mut classes: Vec<_> = rtt
            .classes
            .iter()
            .map(|(us, n)| (*us, u64::from(*n)))
            .collect();
        classes.sort_unstable();
        self.merge(&Self {
            sent: [line.client_sent, line.server_sent],
            retransmitted: [line.retransmitted.client, line.retransmitted.server],
            connections: line.begun,
            ended: line.ended,
            refused: line.refused,
            timed_out: line.timed_out,
            reset: line.reset,
            samples: line.samples,
            rtt_count: rtt.count,
            rtt_sum_us: rtt.sum_us,
            rtt_min_us: rtt.min_us,
            rtt_max_us: rtt.max_us,
            classes,
            first_ns: line.window,
            last_ns: line.end_ns(),
        });
    }

    pub(super) fn plus(&self, other: &Self) -> Self {
        let mut sums = self.clone();
        sums.merge(other);
        sums
    }

    pub(super) fn merge(&mut self, other: &Self) {
        for side in 0..2 {
            let more = other.sent[side];
            self.sent[side].add(more.packets, more.bytes);
            let retransmitted = &mut self.retransmitted[side];
            *retransmitted = retransmitted.saturating_add(other.retransmitted[side]);
        }
        if other.rtt_count > 0 {
            self.rtt_min_us = match self.rtt_count {
                0 => other.rtt_min_us,
                _ => self.rtt_min_us.min(other.rtt_min_us),
            };
            self.rtt_max_us = self.rtt_max_us.max(other.rtt_max_us);
        }
        for (sum, more) in [
            (&mut self.connections, other.connections),
            (&mut self.ended, other.ended),
            (&mut self.refused, other.refused),
            (&mut self.timed_out, other.timed_out),
            (&mut self.reset, other.reset),
            (&mut self.samples, other.samples),
            (&mut self.rtt_count, other.rtt_count),
            (&mut self.rtt_sum_us, other.rtt_sum_us),
        ] {
            *sum = sum.saturating_add(more);
        }
        for (us, count) in &other.classes {
            match self.classes.binary_search_by_key(us, |(us, _)| *us) {
                Ok(index) => self.classes[index].1 = self.classes[index].1.saturating_add(*count),
                // Input may have any number of classes; our lines have fewer.
                Err(index) if self.classes.len() < 256 => self.classes.insert(index, (*us, *count)),
                Err(_) => {}
            }
        }
        if self.last_ns == 0 || other.first_ns < self.first_ns {
            self.first_ns = other.first_ns;
        }
        self.last_ns = self.last_ns.max(other.last_ns);
    }

    /// The least class that has at least the share of all times in it and below.
    fn quantile(&self, percent: u64) -> Option<u64> {
        let all: u64 = self.classes.iter().map(|(_, count)| count).sum();
        let rank = (u128::from(all) * u128::from(percent)).div_ceil(100) as u64;
        let mut below = 0;
        let class = self.classes.iter().find(|(_, count)| {
            below += count;
            below >= rank.max(1)
        })?;
        Some(u64::from(class.0).clamp(self.rtt_min_us, self.rtt_max_us.max(self.rtt_min_us)))
    }

    /// Bytes in both directions.
    pub fn bytes(&self) -> u64 {
        self.sent[0].bytes.saturating_add(self.sent[1].bytes)
    }

    /// Attempts that failed.
    pub fn failed(&self) -> u64 {
        self.refused.saturating_add(self.timed_out)
    }

    /// Round-trip times below which 50% and 95% are, µs; none if nothing was measured.
    pub fn median_and_p95(&self) -> Option<[u64; 2]> {
        Some([self.quantile(50)?, self.quantile(95)?])
    }

    pub(super) fn edge(mut self, key: &EdgeKey, change: Option<Change>) -> Edge {
        let quantiles = [50, 95, 99].map(|percent| self.quantile(percent));
        // Of each of thousands of edges they are the largest part.
        self.classes = Vec::new();
        Edge {
            key: key.clone(),
            sums: self,
            quantiles,
            change,
            recent: None,
        }
    }
}

/// How much of an edge was in the last minute that is complete.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Recent {
    /// What was observed of it, ns.
    pub length_ns: u64,
    /// Bytes in both directions.
    pub bytes: u64,
    /// Conversations that began.
    pub connections: u64,
    /// Attempts that failed.
    pub failed: u64,
}

/// Change of an edge in the last hour.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// First seen in the last hour, and at least ten minutes after the graph began.
    New,
    /// Seen in the last hour, but not in the last five minutes.
    Vanished,
}

impl Change {
    /// Name in records.
    pub fn name(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Vanished => "vanished",
        }
    }
}

/// Which service depends on which, and how well that works.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Edge {
    /// What edges are distinguished by.
    pub key: EdgeKey,
    /// What its lines sum up to.
    pub sums: EdgeSums,
    /// Round-trip times below which 50%, 95% and 99% are, µs; by classes, see [`Sketch`](crate::Sketch).
    pub quantiles: [Option<u64>; 3],
    /// Change in the last hour.
    pub change: Option<Change>,
    /// Of the last minute, if that was asked for.
    pub recent: Option<Recent>,
}

impl Edge {
    /// Bytes in both directions.
    pub fn bytes(&self) -> u64 {
        self.sums.bytes()
    }

    /// Attempts that failed.
    pub fn failed(&self) -> u64 {
        self.sums.failed()
    }
}
