//! The service graph: who depends on whom, by window. The same as `stream/flink/service_graph.sql` computes;
//! `docs/kafka.md` has the definition, a test compares both.

use std::collections::{BTreeMap, HashMap, hash_map::Entry};

use serde::Serialize;
use skua_collect::{Key, Line};

const MS: u64 = 1_000_000;

/// What a service graph is to do, and what it may take.
#[derive(Clone, Copy, Debug)]
pub struct ServiceGraphConfig {
    /// Length of a window, ms.
    pub window_ms: u64,
    /// A line may be so much older than the newest one, ms.
    pub late_ms: u64,
    /// Edges in open windows at most.
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

/// What a client's address and a service had to do with each other in a window.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Edge {
    /// Beginning of the window, ms since the Unix epoch.
    pub window_ms: u64,
    /// IP protocol.
    pub protocol: u8,
    /// Address of who depends.
    pub client: String,
    /// Address of who is depended upon.
    pub server: String,
    /// Port of the service.
    pub port: u16,
    /// The sums.
    #[serde(flatten)]
    pub sums: Sums,
}

/// Sums of an edge.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Sums {
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
    pub begun: u64,
    /// Conversations that ended.
    pub ended: u64,
    /// Of these, by RST.
    pub reset: u64,
    /// Handshakes.
    pub handshakes: u64,
    /// Sum of their times, µs.
    pub handshake_sum_us: u64,
    /// The least of them, 0 without any, µs.
    pub handshake_min_us: u64,
    /// The greatest, µs.
    pub handshake_max_us: u64,
    /// Beginning of the first line's window, ms since the Unix epoch.
    pub first_ms: u64,
    /// Beginning of the last line's.
    pub last_ms: u64,
    /// Lines that were summed up.
    pub lines: u64,
}

impl Sums {
    fn add(&mut self, line: &Line<'_>) {
        let ms = line.window / MS;
        for (sum, more) in [
            (&mut self.client_packets, line.client_sent.packets),
            (&mut self.client_bytes, line.client_sent.bytes),
            (&mut self.server_packets, line.server_sent.packets),
            (&mut self.server_bytes, line.server_sent.bytes),
            (&mut self.client_retransmitted, line.retransmitted.client),
            (&mut self.server_retransmitted, line.retransmitted.server),
            (&mut self.begun, line.begun),
            (&mut self.ended, line.ended),
            (&mut self.reset, line.reset),
            (&mut self.handshake_sum_us, line.handshake.sum_us),
        ] {
            *sum = sum.saturating_add(more);
        }
        if line.handshake.count > 0 {
            let least = line.handshake.min_us;
            self.handshake_min_us = match self.handshakes {
                0 => least,
                _ => self.handshake_min_us.min(least),
            };
            self.handshake_max_us = self.handshake_max_us.max(line.handshake.max_us);
            self.handshakes = self.handshakes.saturating_add(line.handshake.count);
        }
        self.first_ms = match self.lines {
            0 => ms,
            _ => self.first_ms.min(ms),
        };
        self.last_ms = self.last_ms.max(ms);
        self.lines += 1;
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
    open: BTreeMap<u64, HashMap<Key, Sums>>,
    edges: usize,
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
            edges: 0,
            watermark_ms: 0,
        }
    }

    /// Adds a line; lines of one window may come in any order.
    pub fn add(&mut self, line: &Line<'_>) -> Fate {
        let ms = line.window / MS;
        let window = ms - ms % self.config.window_ms;
        if self.over(window) {
            return Fate::Late;
        }
        let newest = ms.saturating_sub(self.config.late_ms);
        self.watermark_ms = self.watermark_ms.max(newest);
        let key = Key {
            protocol: line.protocol,
            client: line.client,
            server: line.server,
            port: line.port,
        };
        let full = self.edges >= self.config.max_edges;
        if full && !self.open.contains_key(&window) {
            return Fate::EdgesFull;
        }
        let sums = match self.open.entry(window).or_default().entry(key) {
            Entry::Occupied(sums) => sums.into_mut(),
            Entry::Vacant(_) if full => return Fate::EdgesFull,
            Entry::Vacant(place) => {
                self.edges += 1;
                place.insert(Sums::default())
            }
        };
        sums.add(line);
        Fate::Counted
    }

    /// Whether a window is closed: the stream engine's rule, whose windows end a millisecond before the next.
    fn over(&self, window: u64) -> bool {
        let end = window.saturating_add(self.config.window_ms);
        self.watermark_ms >= end - 1
    }

    /// Hands out the edges of windows that are over, `all`: of all windows; those of a window in the order of keys.
    pub fn close(&mut self, all: bool, each: &mut dyn FnMut(Edge)) {
        while let Some(window) = self.open.keys().next().copied()
            && (all || self.over(window))
            && let Some(edges) = self.open.remove(&window)
        {
            self.edges -= edges.len();
            let mut edges: Vec<_> = edges.into_iter().collect();
            edges.sort_unstable_by_key(|(key, _)| *key);
            for (key, sums) in edges {
                each(Edge {
                    window_ms: window,
                    protocol: key.protocol,
                    client: key.client.to_string(),
                    server: key.server.to_string(),
                    port: key.port,
                    sums,
                });
            }
        }
    }
}
