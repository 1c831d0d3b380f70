//! The service graph: which service depends on which, by window. The same as `stream/flink/service_graph.sql` computes;
//! `docs/kafka.md` has the definition, a test compares both. What an edge is and what its sums are is
//! [`skua_collect::graph`], which `skua services --graph` shows.

use std::{collections::BTreeMap, net::IpAddr};

use serde::Serialize;
use skua_collect::graph::{Edge, Endpoint, Graph, GraphLine};

const MS: u64 = 1_000_000;

/// Settings and limits of a service graph.
#[derive(Clone, Copy, Debug)]
pub struct ServiceGraphConfig {
    /// Length of a window, ms.
    pub window_ms: u64,
    /// A window ends when a line is this much newer than the window's end, ms.
    pub wait_ms: u64,
    /// Lines that arrive up to this long after that, by the newest line, still correct a window, ms.
    pub late_ms: u64,
    /// Edges in each open window at most.
    pub max_edges: usize,
}

impl Default for ServiceGraphConfig {
    fn default() -> Self {
        Self {
            window_ms: 60_000,
            wait_ms: 30_000,
            late_ms: 3_600_000,
            max_edges: 1_000_000,
        }
    }
}

/// An edge in a window, as stored in the topic of the graph.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Row {
    /// Beginning of the window, ms since the Unix epoch.
    pub window_ms: u64,
    /// IP protocol.
    pub protocol: u8,
    /// Name of the client's service; empty if unknown.
    pub client_service: String,
    /// The client's address if the name is unknown, else empty.
    pub client_address: String,
    /// Name of the server's service; empty if unknown.
    pub server_service: String,
    /// The server's address if the name is unknown, else empty.
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
    /// Segments that the client retransmitted.
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
    /// Median, µs; by classes.
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
fn named(endpoint: &Endpoint) -> (String, String) {
    match endpoint {
        Endpoint::Service(name) => (name.to_string(), String::new()),
        Endpoint::Address(address) => (String::new(), IpAddr::to_string(address)),
    }
}

/// What happened to a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It is in an edge.
    Counted,
    /// It changed an edge of a window that had ended; its rows are written again.
    Corrects,
    /// Its window is forgotten.
    Late,
    /// Too many edges.
    EdgesFull,
}

/// Sums up lines to edges.
#[derive(Debug)]
pub struct ServiceGraph {
    config: ServiceGraphConfig,
    /// By start: at most the windows within `wait_ms` and `late_ms`, and two. The flag: its rows were written.
    open: BTreeMap<u64, (Graph, bool)>,
    /// Lines before this moment are no longer expected, ms.
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
    pub fn add(&mut self, line: &GraphLine<'_>) -> Outcome {
        let ms = line.window / MS;
        let window = ms - ms % self.config.window_ms;
        if self.passed(window, self.config.late_ms) {
            return Outcome::Late;
        }
        let over = self.passed(window, 0);
        let newest = ms.saturating_sub(self.config.wait_ms);
        self.watermark_ms = self.watermark_ms.max(newest);
        let most = self.config.max_edges;
        let (graph, written) = self
            .open
            .entry(window)
            .or_insert_with(|| (Graph::new(most, 0), false));
        let full = graph.counts().edges_full;
        graph.add(line);
        if graph.counts().edges_full != full {
            return Outcome::EdgesFull;
        }
        *written = false;
        match over {
            true => Outcome::Corrects,
            false => Outcome::Counted,
        }
    }

    /// Whether a window ended this long ago, by the stream engine's rule: its windows end 1 ms before the next.
    fn passed(&self, window: u64, ago_ms: u64) -> bool {
        let end = window.saturating_add(self.config.window_ms);
        self.watermark_ms >= (end - 1).saturating_add(ago_ms)
    }

    /// Passes the edges of windows that have ended and changed since, those with most bytes first; `all`: of all changed
    /// windows. A row replaces the one with its key. Removes windows that can no longer change.
    pub fn close(&mut self, all: bool, each: &mut dyn FnMut(Row)) {
        let open: Vec<u64> = self.open.keys().copied().collect();
        for window in open {
            if !all && !self.passed(window, 0) {
                break;
            }
            if let Some((graph, written)) = self.open.get_mut(&window)
                && !std::mem::replace(written, true)
            {
                for edge in graph.edges(&Graph::new(0, 0), 0) {
                    each(Row::new(window, &edge));
                }
            }
            if self.passed(window, self.config.late_ms) {
                self.open.remove(&window);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: u64 = 60_000;

    fn line(minute: u64, bytes: u64) -> GraphLine<'static> {
        GraphLine {
            window: minute * MINUTE * MS,
            seconds: 10.0,
            client: [10, 0, 0, 1].into(),
            server: [10, 0, 0, 2].into(),
            port: 443,
            protocol: 6,
            client_sent: skua_collect::Sum { packets: 1, bytes },
            server_sent: skua_collect::Sum::default(),
            client_service: "".into(),
            server_service: "".into(),
            retransmitted: skua_collect::Sent {
                client: 0,
                server: 0,
            },
            begun: 0,
            ended: 0,
            reset: 0,
            refused: 0,
            timed_out: 0,
            rtt: skua_collect::graph::GraphRtt::default(),
            samples: 0,
            exporters: Vec::new(),
        }
    }

    #[test]
    fn late_lines_correct_their_row_until_its_window_is_forgotten() {
        let mut graph = ServiceGraph::new(ServiceGraphConfig::default());
        let rows = |graph: &mut ServiceGraph, all| {
            let mut rows = Vec::new();
            graph.close(all, &mut |row| {
                rows.push((row.window_ms / MINUTE, row.client_bytes))
            });
            rows
        };
        assert_eq!(graph.add(&line(1_000, 5)), Outcome::Counted);
        assert_eq!(rows(&mut graph, false), []);
        assert_eq!(graph.add(&line(1_002, 1)), Outcome::Counted);
        assert_eq!(rows(&mut graph, false), [(1_000, 5)]);
        // Nothing has changed.
        assert_eq!(rows(&mut graph, false), []);
        assert_eq!(graph.add(&line(1_000, 7)), Outcome::Corrects);
        assert_eq!(graph.add(&line(999, 3)), Outcome::Corrects);
        assert_eq!(rows(&mut graph, false), [(999, 3), (1_000, 12)]);
        // An hour later; the window ends a millisecond before the next.
        assert_eq!(graph.add(&line(1_062, 1)), Outcome::Counted);
        assert_eq!(rows(&mut graph, false), [(1_002, 1)]);
        assert_eq!(graph.add(&line(1_000, 1)), Outcome::Late);
        assert_eq!(graph.add(&line(1_001, 2)), Outcome::Corrects);
        assert_eq!(rows(&mut graph, true), [(1_001, 2), (1_062, 1)]);
        assert_eq!(graph.open.len(), 3);
    }
}
