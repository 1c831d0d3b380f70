//! The service graph: which service depends on which, by window. The same as `stream/flink/service_graph.sql` computes;
//! `docs/kafka.md` has the definition, a test compares both. What an edge is and what its sums are is
//! [`skua_collect::graph`], which `skua services --graph` shows.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer, ser::SerializeMap as _};
use skua_collect::graph::{Edge, FIELDS, Graph, GraphLine};

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
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row {
    /// Beginning of the window, ms since the Unix epoch.
    pub window_ms: u64,
    /// The edge.
    pub edge: Edge,
}

impl Serialize for Row {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("window_ms", &self.window_ms)?;
        skua_record::serialize_row(FIELDS, &&self.edge, &mut map)?;
        map.end()
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
                    let window_ms = window;
                    each(Row { window_ms, edge });
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
                rows.push((row.window_ms / MINUTE, row.edge.sums.sent[0].bytes))
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
