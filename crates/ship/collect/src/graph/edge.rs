//! An edge and its sums.

use std::net::IpAddr;
use utoipa::ToSchema;

use serde::{Serialize, Serializer};
use skua_record::time::UnixNs;

use super::input::GraphLine;
use crate::{counts::Sum, line::Sent};

/// An end of an edge.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Endpoint {
    /// A service by its name: container, unit or process.
    Service(Box<str>),
    /// An address without a known name.
    Address(IpAddr),
}

/// The JSON schema of an endpoint; utoipa has none for `IpAddr`.
#[derive(ToSchema)]
#[schema(as = Endpoint, rename_all = "lowercase")]
#[allow(dead_code, reason = "only its schema is used")]
enum EndpointSchema {
    /// A service by its name: container, unit or process.
    Service(String),
    /// An address without a known name.
    Address(String),
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
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct EdgeKey {
    client: Endpoint,
    server: Endpoint,
    protocol: u8,
    port: u16,
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

/// Sums of an edge. Of pairs the client's is first.
#[derive(Clone, Debug, Default)]
pub(super) struct EdgeSums {
    sent: [Sum; 2],
    retransmitted: [u64; 2],
    connections: u64,
    ended: u64,
    refused: u64,
    timed_out: u64,
    reset: u64,
    samples: u64,
    rtt_count: u64,
    rtt_sum_us: u64,
    rtt_min_us: u64,
    rtt_max_us: u64,
    /// Midpoints and counts of classes, in ascending order: at most 240.
    classes: Vec<(u32, u64)>,
    pub(super) first_ns: u64,
    pub(super) last_ns: u64,
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

    pub(super) fn edge(self, key: &EdgeKey, change: Option<Change>) -> Edge {
        let EdgeKey {
            client,
            server,
            protocol,
            port,
        } = key.clone();
        Edge {
            client,
            server,
            protocol,
            port,
            client_sent: self.sent[0],
            server_sent: self.sent[1],
            connections: self.connections,
            ended: self.ended,
            failures: Failures {
                refused: self.refused,
                timed_out: self.timed_out,
            },
            reset: self.reset,
            retransmitted: Sent {
                client: self.retransmitted[0],
                server: self.retransmitted[1],
            },
            rtt: (self.rtt_count > 0).then(|| EdgeRtt {
                count: self.rtt_count,
                sum_us: self.rtt_sum_us,
                min_us: self.rtt_min_us,
                max_us: self.rtt_max_us,
                p50_us: self.quantile(50),
                p95_us: self.quantile(95),
                p99_us: self.quantile(99),
            }),
            samples: self.samples,
            first_ns: self.first_ns,
            last_ns: self.last_ns,
            change,
        }
    }
}

/// Change of an edge in the last hour.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = EdgeChange)]
pub enum Change {
    /// First seen in the last hour, and at least ten minutes after the graph began.
    New,
    /// Seen in the last hour, but not in the last five minutes.
    Vanished,
}

/// Failed attempts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, ToSchema)]
pub struct Failures {
    /// Answered with RST.
    pub refused: u64,
    /// Not answered.
    pub timed_out: u64,
}

/// Round-trip times, µs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, ToSchema)]
pub struct EdgeRtt {
    /// How many.
    pub count: u64,
    /// Their sum.
    pub sum_us: u64,
    /// The least.
    pub min_us: u64,
    /// The greatest.
    pub max_us: u64,
    /// Median; by classes, see [`Sketch`](crate::Sketch).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p50_us: Option<u64>,
    /// 95% of them are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p95_us: Option<u64>,
    /// 99% of them are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_us: Option<u64>,
}

/// Which service depends on which, and how well that works.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
#[schema(as = ServiceEdge)]
pub struct Edge {
    /// The client.
    #[schema(value_type = EndpointSchema)]
    pub client: Endpoint,
    /// The server.
    #[schema(value_type = EndpointSchema)]
    pub server: Endpoint,
    /// IP protocol.
    pub protocol: u8,
    /// The service's port; 0 if the server's side is unknown.
    pub port: u16,
    /// Sent by the client, with link-layer headers.
    pub client_sent: Sum,
    /// Sent by the server.
    pub server_sent: Sum,
    /// Conversations that began.
    pub connections: u64,
    /// Conversations that ended.
    pub ended: u64,
    /// Attempts that failed; they are among the connections.
    pub failures: Failures,
    /// Conversations that ended by RST after an answer.
    pub reset: u64,
    /// Retransmitted segments.
    pub retransmitted: Sent,
    /// Round-trip times, if any were measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rtt: Option<EdgeRtt>,
    /// Sampled packets that were summed up: with some the sums are estimates.
    pub samples: u64,
    /// Begin of the first window, ns since the Unix epoch.
    #[serde(rename = "first", serialize_with = "time")]
    #[schema(value_type = String, format = DateTime)]
    pub first_ns: u64,
    /// End of the last window, ns since the Unix epoch.
    #[serde(rename = "last", serialize_with = "time")]
    #[schema(value_type = String, format = DateTime)]
    pub last_ns: u64,
    /// Change in the last hour.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub change: Option<Change>,
}

fn time<S: Serializer>(ns: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&UnixNs(*ns))
}

impl Edge {
    /// Bytes in both directions.
    pub fn bytes(&self) -> u64 {
        self.client_sent
            .bytes
            .saturating_add(self.server_sent.bytes)
    }

    /// What edges are distinguished by.
    pub fn order(&self) -> (&Endpoint, &Endpoint, u8, u16) {
        (&self.client, &self.server, self.protocol, self.port)
    }
}
