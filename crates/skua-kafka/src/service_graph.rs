//! The service graph: who depends on whom, by window. The same as `stream/flink/service_graph.sql` computes;
//! `docs/kafka.md` has the definition, a test compares both. What an edge is and what its sums are is
//! [`skua_collect::graph`], which `skua services --graph` shows.

use std::{collections::BTreeMap, net::IpAddr};

use serde::Serialize;
use skua_collect::graph::{Edge, Graph, GraphLine, Party};

const MS: u64 = 1_000_000;

/// What a service graph is to do, and what it may take.
#[derive(Clone, Copy, Debug)]
pub struct ServiceGraphConfig {
    /// Length of a window, ms.
    pub window_ms: u64,
    /// A line may be so much older than the newest one, ms.
    pub late_ms: u64,
    /// Edges in each open window at most.
    pub max_edges: usize,
}

impl Default for ServiceGraphConfig {
    fn default() -> Self {
        Self {
            window_ms: 60_000,
            late_ms: 30_000,
            max_edges: 1_000_000,
        }
    }
}

/// An edge in a window, as it lies in the topic of the graph.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Row {
    /// Beginning of the window, ms since the Unix epoch.
    pub window_ms: u64,
    /// IP protocol.
    pub protocol: u8,
    /// Name of the service that depends; empty when it is not known.
    pub client_service: String,
    /// Its address when the name is not known, else empty.
    pub client_address: String,
    /// Name of the service that is depended upon; empty when it is not known.
    pub server_service: String,
    /// Its address when the name is not known, else empty.
    pub server_address: String,
    /// Port of the service.
    pub port: u16,
    /// Packets of the client.
    pub client_packets: u64,
    /// Its bytes.
    pub client_bytes: u64,
    /// Packets of the server.
    pub server_packets: u64,
    /// Its bytes.
    pub server_bytes: u64,
    /// Segments of the client that came again.
    pub client_retransmitted: u64,
    /// Those of the server.
    pub server_retransmitted: u64,
    /// Conversations that began.
    pub connections: u64,
    /// Conversations that ended.
    pub ended: u64,
    /// Of these, by RST after an answer.
    pub reset: u64,
    /// Attempts that were answered with RST.
    pub refused: u64,
    /// Attempts that were not answered.
    pub timed_out: u64,
    /// Sampled packets: with some the sums are estimates.
    pub samples: u64,
    /// Round-trip times.
    pub rtt_count: u64,
    /// Their sum, µs.
    pub rtt_sum_us: u64,
    /// The least, 0 without any, µs.
    pub rtt_min_us: u64,
    /// The greatest, µs.
    pub rtt_max_us: u64,
    /// Half of them are at most so long, µs; by classes.
    pub rtt_p50_us: u64,
    /// 95% of them are.
    pub rtt_p95_us: u64,
    /// 99% of them are.
    pub rtt_p99_us: u64,
    /// Beginning of the first line's window, ms since the Unix epoch.
    pub first_ms: u64,
    /// End of the last line's.
    pub last_ms: u64,
}

impl Row {
    fn new(window_ms: u64, edge: &Edge) -> Self {
        let rtt = edge.rtt;
        let of = |us: Option<u64>| us.unwrap_or(0);
        let (client_service, client_address) = named(&edge.client);
        let (server_service, server_address) = named(&edge.server);
        Self {
            window_ms,
            protocol: edge.protocol,
            client_service,
            client_address,
            server_service,
            server_address,
            port: edge.port,
            client_packets: edge.client_sent.packets,
            client_bytes: edge.client_sent.bytes,
            server_packets: edge.server_sent.packets,
            server_bytes: edge.server_sent.bytes,
            client_retransmitted: edge.retransmitted.client,
            server_retransmitted: edge.retransmitted.server,
            connections: edge.connections,
            ended: edge.ended,
            reset: edge.reset,
            refused: edge.failures.refused,
            timed_out: edge.failures.timed_out,
            samples: edge.samples,
            rtt_count: of(rtt.map(|rtt| rtt.count)),
            rtt_sum_us: of(rtt.map(|rtt| rtt.sum_us)),
            rtt_min_us: of(rtt.map(|rtt| rtt.min_us)),
            rtt_max_us: of(rtt.map(|rtt| rtt.max_us)),
            rtt_p50_us: of(rtt.and_then(|rtt| rtt.p50_us)),
            rtt_p95_us: of(rtt.and_then(|rtt| rtt.p95_us)),
            rtt_p99_us: of(rtt.and_then(|rtt| rtt.p99_us)),
            first_ms: edge.first_ns / MS,
            last_ms: edge.last_ns / MS,
        }
    }
}

/// Name of a service, and the address of one without a name.
fn named(party: &Party) -> (String, String) {
    match party {
        Party::Service(name) => (name.to_string(), String::new()),
        Party::Address(address) => (String::new(), IpAddr::to_string(address)),
    }
}

/// What became of a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// It is in an edge.
    Counted,
    /// Its window had been closed.
    Late,
    /// There was no room for a further edge.
    EdgesFull,
}

/// Sums up lines to edges.
#[derive(Debug)]
pub struct ServiceGraph {
    config: ServiceGraphConfig,
    /// By the beginning of their windows: never more than fit into `late_ms`, and two.
    open: BTreeMap<u64, Graph>,
    /// No line before this moment is expected any more, ms.
    watermark_ms: u64,
}

impl ServiceGraph {
    /// Without an edge.
    pub fn new(config: ServiceGraphConfig) -> Self {
        Self {
            config: ServiceGraphConfig {
                window_ms: config.window_ms.max(1),
                ..config
            },
            open: BTreeMap::new(),
            watermark_ms: 0,
        }
    }

    /// Adds a line; lines of one window may come in any order.
    pub fn add(&mut self, line: &GraphLine<'_>) -> Fate {
        let ms = line.window / MS;
        let window = ms - ms % self.config.window_ms;
        if self.over(window) {
            return Fate::Late;
        }
        let newest = ms.saturating_sub(self.config.late_ms);
        self.watermark_ms = self.watermark_ms.max(newest);
        let most = self.config.max_edges;
        let graph = self
            .open
            .entry(window)
            .or_insert_with(|| Graph::new(most, 0));
        let full = graph.counts().edges_full;
        graph.add(line);
        match graph.counts().edges_full == full {
            true => Fate::Counted,
            false => Fate::EdgesFull,
        }
    }

    /// Whether a window is closed: the stream engine's rule, whose windows end a millisecond before the next.
    fn over(&self, window: u64) -> bool {
        let end = window.saturating_add(self.config.window_ms);
        self.watermark_ms >= end - 1
    }

    /// Hands out the edges of windows that are over, `all`: of all windows; of each those with most bytes first.
    pub fn close(&mut self, all: bool, each: &mut dyn FnMut(Row)) {
        while let Some(window) = self.open.keys().next().copied()
            && (all || self.over(window))
            && let Some(graph) = self.open.remove(&window)
        {
            for edge in graph.edges(&Graph::new(0, 0), 0) {
                each(Row::new(window, &edge));
            }
        }
    }
}
