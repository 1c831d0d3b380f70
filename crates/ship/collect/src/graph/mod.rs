//! The service graph: lines summed up by client and server.
//!
//! The key of an edge is protocol, client, server and the server's port. Client and server are service names
//! if lines have them, else addresses. `docs/collector.md` has the definition, which a job on a stream engine
//! implements alike: sums over lines; `first` and `last` are the start of the first and the end of the last
//! window; quantiles are by rank over the classes of round-trip times.

mod edge;
mod fields;
mod input;
mod known;
mod past;

use std::cmp::Reverse;

use crate::{HashMap, SECOND};
pub use edge::{Change, Edge, EdgeKey, EdgeSums, Endpoint, Recent};
pub use fields::{EdgeField, FIELDS, documentation};
pub use input::{GraphLine, GraphRtt};
pub use known::Known;
pub use past::{By, Group, Past, Point, Series};

/// An edge first seen later than this after the graph began is new; earlier ones existed before.
const WARM_UP: u64 = 600 * SECOND;
/// An edge stays new for this long, and vanished for this long.
const RECENT: u64 = 3_600 * SECOND;
/// An edge not seen for this long has vanished.
const SILENT: u64 = 300 * SECOND;

/// Edges since the graph was begun.
#[derive(Debug)]
pub struct Graph {
    edges: HashMap<EdgeKey, EdgeSums>,
    most: usize,
    began_ns: u64,
    counts: GraphCounts,
}

/// What happened to lines and edges.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize)]
pub struct GraphCounts {
    /// Lines added.
    pub lines: u64,
    /// Lines that are in no edge, because there were too many edges.
    pub edges_full: u64,
    /// Edges removed to free space: not seen for an hour.
    pub forgotten: u64,
}

impl Graph {
    /// An empty graph for `most` edges, begun at `began_ns` since the Unix epoch.
    pub fn new(most: usize, began_ns: u64) -> Self {
        Self {
            edges: HashMap::default(),
            most,
            began_ns,
            counts: GraphCounts::default(),
        }
    }

    /// Adds a line.
    pub fn add(&mut self, line: &GraphLine<'_>) {
        let key = EdgeKey::of(line);
        self.counts.lines += 1;
        if self.edges.len() >= self.most && !self.edges.contains_key(&key) {
            self.make_room(line.end_ns());
            if self.edges.len() >= self.most {
                self.counts.edges_full += 1;
                return;
            }
        }
        self.edges.entry(key).or_default().add(line);
    }

    /// Adds all edges of another graph.
    fn absorb(&mut self, other: &Self) {
        for (key, sums) in &other.edges {
            if self.edges.len() < self.most || self.edges.contains_key(key) {
                self.edges.entry(key.clone()).or_default().merge(sums);
            } else {
                self.counts.edges_full += 1;
            }
        }
    }

    /// Removes edges not seen for long, at most a quarter.
    fn make_room(&mut self, now_ns: u64) {
        let old = now_ns.saturating_sub(RECENT);
        let mut silent: Vec<_> = self
            .edges
            .iter()
            .filter(|(_, sums)| sums.last_ns < old)
            .map(|(key, sums)| (sums.last_ns, key.clone()))
            .collect();
        silent.sort_unstable_by_key(|(last_ns, _)| *last_ns);
        silent.truncate(self.most / 4 + 1);
        self.counts.forgotten += silent.len() as u64;
        for (_, key) in silent {
            self.edges.remove(&key);
        }
    }

    /// All edges at a moment, those with most bytes first; `open` has lines that are not yet in this
    /// graph.
    pub fn edges(&self, open: &Self, now_ns: u64) -> Vec<Edge> {
        let edges = self.sums(open);
        sorted(edges.map(|(key, sums)| {
            let change = self.change(&sums, now_ns);
            sums.edge(&key, change)
        }))
    }

    /// The same under the names that are known by now. An address that may be one of several services has not vanished.
    pub fn known_edges(&self, open: &Self, known: &Known, now_ns: u64) -> Vec<Edge> {
        let edges = known.fold(self.sums(open)).into_iter();
        sorted(edges.map(|(key, named)| {
            let change = self.change(&named.sums, now_ns);
            let change = change.filter(|change| !named.doubtful || *change == Change::New);
            named.sums.edge(&key, change)
        }))
    }

    fn sums<'a>(&'a self, open: &'a Self) -> impl Iterator<Item = (EdgeKey, EdgeSums)> + 'a {
        let known = self.edges.iter().map(|(key, sums)| {
            let more = open.edges.get(key);
            let sums = more.map_or_else(|| sums.clone(), |more| sums.plus(more));
            (key.clone(), sums)
        });
        let others = open.edges.iter();
        let others = others.filter(|(key, _)| !self.edges.contains_key(*key));
        known.chain(others.map(|(key, sums)| (key.clone(), sums.clone())))
    }

    fn change(&self, sums: &EdgeSums, now_ns: u64) -> Option<Change> {
        let silent = now_ns.saturating_sub(sums.last_ns);
        if silent >= SILENT {
            return (silent < SILENT + RECENT).then_some(Change::Vanished);
        }
        let recent = now_ns.saturating_sub(sums.first_ns) < RECENT;
        let later = sums.first_ns.saturating_sub(self.began_ns) >= WARM_UP;
        (recent && later).then_some(Change::New)
    }

    /// What happened to lines and edges.
    pub fn counts(&self) -> GraphCounts {
        self.counts
    }

    /// When the graph was begun, ns since the Unix epoch.
    pub fn began_ns(&self) -> u64 {
        self.began_ns
    }
}

fn sorted(edges: impl Iterator<Item = Edge>) -> Vec<Edge> {
    let mut all: Vec<_> = edges.collect();
    all.sort_by(|a, b| {
        let bytes = |edge: &Edge| Reverse(edge.bytes());
        bytes(a).cmp(&bytes(b)).then_with(|| a.key.cmp(&b.key))
    });
    all
}

/// Edges of lines, in the order of client, server, protocol and port. None is new or has vanished.
pub fn edges<'a>(lines: impl IntoIterator<Item = GraphLine<'a>>) -> Vec<Edge> {
    let mut graph = Graph::new(usize::MAX, 0);
    for line in lines {
        graph.add(&line);
    }
    let mut all: Vec<_> = graph
        .edges
        .iter()
        .map(|(key, sums)| sums.clone().edge(key, None))
        .collect();
    all.sort_by(|a, b| a.key.cmp(&b.key));
    all
}

#[cfg(test)]
mod tests;
