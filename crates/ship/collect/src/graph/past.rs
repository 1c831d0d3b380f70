//! What a graph was: its lines by the time at which they were, coarser where they are older.

use std::collections::BTreeMap;

use super::{Graph, GraphLine};
use crate::SECOND;

/// Time that a slice covers.
const SLICE: u64 = 60 * SECOND;
/// Old slices that are merged into one.
const COARSE: u64 = 15;
/// Number of slices that are kept fine.
const FINE: u64 = 60;

/// Graphs by time slice. The number of edges in all slices is bounded: the oldest slices are
/// removed.
#[derive(Debug)]
pub struct Past {
    /// By the number of their first slice.
    slices: BTreeMap<u64, Graph>,
    /// What begins before is forgotten.
    from: u64,
    edges: usize,
    most: usize,
}

impl Past {
    /// No slices; at most `most` edges.
    pub fn new(most: usize) -> Self {
        Self {
            slices: BTreeMap::new(),
            from: 0,
            edges: 0,
            most,
        }
    }

    /// Adds a line to the slice in which its window begins.
    pub fn add(&mut self, line: &GraphLine<'_>) {
        let mut slice = line.window / SLICE;
        let last = self.slices.last_key_value().map(|(slice, _)| *slice);
        if last.is_some_and(|last| slice + FINE < last) {
            slice -= slice % COARSE;
        }
        if slice < self.from {
            return;
        }
        let most = self.most;
        let graph = self.slices.entry(slice);
        let graph = graph.or_insert_with(|| Graph::new(most, slice * SLICE));
        let before = graph.edges.len();
        graph.add(line);
        self.edges += graph.edges.len() - before;
        if last.is_none_or(|last| slice > last) {
            self.fold(slice);
        }
        while self.edges > self.most && self.slices.len() > 1 {
            if let Some((slice, oldest)) = self.slices.pop_first() {
                self.edges -= oldest.edges.len();
                self.from = slice + 1;
            }
        }
    }

    /// Merges old slices.
    fn fold(&mut self, now: u64) {
        let old = now.saturating_sub(FINE);
        let fine = self.slices.range(..old).map(|(slice, _)| *slice);
        let fine: Vec<u64> = fine.filter(|slice| slice % COARSE != 0).collect();
        for slice in fine {
            let Some(graph) = self.slices.remove(&slice) else {
                continue;
            };
            self.edges -= graph.edges.len();
            let begin = slice - slice % COARSE;
            let most = self.most;
            let coarse = self.slices.entry(begin);
            let coarse = coarse.or_insert_with(|| Graph::new(most, begin * SLICE));
            let before = coarse.edges.len();
            coarse.absorb(&graph);
            self.edges += coarse.edges.len() - before;
        }
    }

    /// Start of the oldest slice, ns since the Unix epoch.
    pub fn begins_ns(&self) -> Option<u64> {
        let (slice, _) = self.slices.first_key_value()?;
        Some(slice * SLICE)
    }

    /// The graph up to a moment, ns since the Unix epoch: to the minute within the hour before the last
    /// line, else to the quarter of an hour. `began_ns` is when the graph began.
    pub fn until(&self, moment_ns: u64, began_ns: u64) -> Graph {
        let began = began_ns.max(self.begins_ns().unwrap_or(began_ns));
        let mut graph = Graph::new(self.most, began);
        for slice in self.slices.range(..=moment_ns / SLICE) {
            graph.absorb(slice.1);
        }
        graph
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Change, tests::line};

    const HOUR: u64 = 3_600 * SECOND;

    #[test]
    fn the_past_is_what_was_known_then() {
        let base = line("a", 0, &[]).window;
        let at = |client: &str, minutes: u64| GraphLine {
            window: base + minutes * SLICE,
            ..line(client, 0, &[])
        };
        let mut past = Past::new(1_000);
        for minute in 0..300 {
            past.add(&at("old", minute));
        }
        past.add(&at("new", 290));
        let edges = |minutes: u64| {
            let moment = base + minutes * SLICE;
            past.until(moment, base).edges(&Graph::new(0, 0), moment)
        };
        assert_eq!(edges(30).len(), 1);
        assert_eq!(edges(289).len(), 1);
        let both = edges(292);
        let new = both
            .iter()
            .find(|edge| edge.key.client.to_string() == "new");
        assert_eq!(new.unwrap().change, Some(Change::New));
        let connections = |minutes: u64| edges(minutes)[0].sums.connections;
        assert_eq!(connections(299), 600);
        assert_eq!(connections(280), 2 * 281);
        // Old slices are coarser, without loss.
        assert!(past.slices.len() < 90, "{}", past.slices.len());
        assert!((0..=30).contains(&(connections(100) - 2 * 101)));
    }

    #[test]
    fn the_oldest_goes_when_there_is_no_room() {
        let base = line("a", 0, &[]).window;
        let mut past = Past::new(50);
        for minute in 0..600 {
            for client in 0..4 {
                past.add(&GraphLine {
                    window: base + minute * SLICE,
                    ..line(&format!("client {client}"), 0, &[])
                });
            }
        }
        assert!(past.edges <= 50);
        let sum: usize = past.slices.values().map(|graph| graph.edges.len()).sum();
        assert_eq!(past.edges, sum);
        assert!(past.begins_ns().unwrap() > base + 9 * HOUR);
        // A line older than all slices.
        past.add(&line("late", 0, &[]));
        assert!(past.begins_ns().unwrap() > base + 9 * HOUR);
    }
}
