//! What a graph was: its lines by the time at which they were, coarser where they are older.

use std::collections::BTreeMap;

use super::{Edge, EdgeKey, EdgeSums, Endpoint, Graph, GraphLine, Known, Recent};
use crate::{HashMap, SECOND};

/// Time that a slice covers, unless it is coarse.
const SLICE: u64 = 10 * SECOND;
/// Slices that are older than so many are merged into longer ones: of a minute after a quarter of an hour, of a quarter after an hour.
const COARSER: [(u64, u64); 2] = [(90, 6), (360, 90)];
/// What rates are averages of.
const RECENT: u64 = 60 * SECOND;

/// Graphs by time slice. The number of edges in all slices is bounded: the oldest slices are
/// removed.
#[derive(Debug)]
pub struct Past {
    /// By the number of their first slice: how many it covers, and what was in them.
    slices: BTreeMap<u64, (u64, Graph)>,
    /// What begins before is forgotten.
    from: u64,
    edges: usize,
    most: usize,
}

/// What a series tells apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum By {
    /// Nothing: all edges are one.
    #[default]
    Nothing,
    /// Who calls.
    Client,
    /// Who is called.
    Server,
    /// Both, with protocol and port.
    Edge,
}

/// What a sum of a series is of.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Group {
    /// Everything.
    All,
    /// An end.
    End(Endpoint),
    /// An edge.
    Edge(EdgeKey),
    /// Those that are not among the largest.
    Others,
}

/// Sums of a slice of time.
#[derive(Clone, Debug)]
pub struct Point {
    /// Its beginning, ns since the Unix epoch.
    pub begin_ns: u64,
    /// Its length, ns.
    pub length_ns: u64,
    /// What the sums are of.
    pub group: Group,
    /// The sums.
    pub sums: EdgeSums,
}

/// Which sums over time are wanted.
#[derive(Clone, Copy, Debug)]
pub struct Series {
    /// From this moment on, ns since the Unix epoch.
    pub from_ns: u64,
    /// Before this moment.
    pub until_ns: u64,
    /// What is told apart.
    pub by: By,
    /// So many groups, those with the most bytes; the rest is one more.
    pub top: usize,
    /// One sum for the whole time instead of one for each slice.
    pub whole: bool,
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
        let slice = line.window / SLICE;
        let last = self.slices.last_key_value().map(|(slice, _)| *slice);
        let (slice, length) = aligned(slice, last.unwrap_or(slice));
        if slice < self.from {
            return;
        }
        let most = self.most;
        let graph = self.slices.entry(slice);
        let (_, graph) = graph.or_insert_with(|| (length, Graph::new(most, slice * SLICE)));
        let before = graph.edges.len();
        graph.add(line);
        self.edges += graph.edges.len() - before;
        if last.is_none_or(|last| slice > last) {
            self.fold(slice);
        }
        while self.edges > self.most && self.slices.len() > 1 {
            if let Some((slice, (length, oldest))) = self.slices.pop_first() {
                self.edges -= oldest.edges.len();
                self.from = slice + length;
            }
        }
    }

    /// Merges old slices.
    fn fold(&mut self, now: u64) {
        let old = now.saturating_sub(COARSER[0].0);
        let fine = self.slices.range(..old);
        let fine = fine.filter_map(|(slice, (length, _))| {
            let (begin, longer) = aligned(*slice, now);
            (longer > *length).then_some((*slice, begin, longer))
        });
        let fine: Vec<_> = fine.collect();
        for (slice, begin, length) in fine {
            let Some((_, graph)) = self.slices.remove(&slice) else {
                continue;
            };
            self.edges -= graph.edges.len();
            let most = self.most;
            let coarse = self.slices.entry(begin);
            let (known, coarse) =
                coarse.or_insert_with(|| (length, Graph::new(most, begin * SLICE)));
            *known = length;
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

    /// The graph up to a moment, ns since the Unix epoch: as exact as slices are then. `began_ns` is when the graph began.
    pub fn until(&self, moment_ns: u64, began_ns: u64) -> Graph {
        let began = began_ns.max(self.begins_ns().unwrap_or(began_ns));
        let mut graph = Graph::new(self.most, began);
        for (_, (_, slice)) in self.slices.range(..=moment_ns / SLICE) {
            graph.absorb(slice);
        }
        graph
    }

    /// Slices with a part in a time: begin and length, ns, and the graph.
    fn within(&self, from_ns: u64, until_ns: u64) -> impl Iterator<Item = (u64, u64, &Graph)> {
        let all = self.slices.range(..until_ns.div_ceil(SLICE));
        let all = all.map(|(slice, (length, graph))| (slice * SLICE, length * SLICE, graph));
        all.filter(move |(begin, length, _)| begin + length > from_ns)
    }

    /// Adds to edges how much of them was in the last minute before `now_ns` whose lines are complete; `open` has those that are
    /// not in a slice yet.
    pub fn add_rates(
        &self,
        edges: &mut [Edge],
        open: &Self,
        known: &Known,
        began_ns: u64,
        now_ns: u64,
    ) {
        // The window that is filled now would make each rate too small.
        let until = (now_ns / SLICE * SLICE).saturating_sub(SLICE);
        let from = until.saturating_sub(RECENT);
        let mut sums = HashMap::<EdgeKey, EdgeSums>::default();
        let mut begin = began_ns.max(from);
        for (start, _, graph) in [self, open]
            .into_iter()
            .flat_map(|past| past.within(from, until))
        {
            begin = begin.min(start);
            for (key, more) in &graph.edges {
                sums.entry(key.clone()).or_default().merge(more);
            }
        }
        if begin >= until {
            return;
        }
        let sums = known.fold(sums);
        for edge in edges {
            let sums = sums.get(&edge.key).map(|named| &named.sums);
            edge.recent = Some(Recent {
                length_ns: until - begin,
                bytes: sums.map_or(0, EdgeSums::bytes),
                connections: sums.map_or(0, |sums| sums.connections),
                failed: sums.map_or(0, EdgeSums::failed),
            });
        }
    }

    /// Sums over time of the edges that are wanted, in the order of time; `open` has lines that are not in a slice yet.
    pub fn series(
        &self,
        series: &Series,
        open: &Self,
        known: &Known,
        wanted: &dyn Fn(&EdgeKey) -> bool,
    ) -> Vec<Point> {
        let Series {
            from_ns, until_ns, ..
        } = *series;
        let mut slices = BTreeMap::<u64, (u64, HashMap<EdgeKey, EdgeSums>)>::new();
        let pasts = [self, open].into_iter();
        for (begin, length, graph) in pasts.flat_map(|past| past.within(from_ns, until_ns)) {
            let slice = slices.entry(begin).or_default();
            slice.0 = slice.0.max(length);
            for (key, sums) in &graph.edges {
                slice.1.entry(key.clone()).or_default().merge(sums);
            }
        }
        let mut totals = HashMap::<Group, u64>::default();
        let mut found = BTreeMap::<u64, (u64, HashMap<Group, EdgeSums>)>::new();
        let first = slices.keys().next().copied().unwrap_or_default();
        for (begin, (length, edges)) in slices {
            let end = begin + length;
            let (place, length) = match series.whole {
                true => (first, end - first),
                false => (begin, length),
            };
            let groups = found.entry(place).or_default();
            groups.0 = groups.0.max(length);
            for (key, named) in known.fold(edges) {
                if !wanted(&key) {
                    continue;
                }
                let group = match series.by {
                    By::Nothing => Group::All,
                    By::Client => Group::End(key.client),
                    By::Server => Group::End(key.server),
                    By::Edge => Group::Edge(key),
                };
                *totals.entry(group.clone()).or_default() += named.sums.bytes();
                groups.1.entry(group).or_default().merge(&named.sums);
            }
        }
        let mut largest: Vec<_> = totals.into_iter().collect();
        largest.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        let order: HashMap<Group, usize> = largest
            .into_iter()
            .take(series.top)
            .enumerate()
            .map(|(place, (group, _))| (group, place))
            .collect();
        let mut points = Vec::new();
        for (begin_ns, (length_ns, groups)) in found {
            let mut others: Option<EdgeSums> = None;
            let mut top = Vec::new();
            for (group, sums) in groups {
                match order.get(&group) {
                    Some(place) => top.push((*place, group, sums)),
                    None => others.get_or_insert_default().merge(&sums),
                }
            }
            top.sort_by_key(|(place, ..)| *place);
            let top = top.into_iter().map(|(_, group, sums)| (group, sums));
            for (group, sums) in top.chain(others.map(|sums| (Group::Others, sums))) {
                points.push(Point {
                    begin_ns,
                    length_ns,
                    group,
                    sums,
                });
            }
        }
        points
    }
}

/// The slice that a slice belongs to when `now` is the last one, and how many it covers.
fn aligned(slice: u64, now: u64) -> (u64, u64) {
    // A coarse slice is of one age: of that of its beginning.
    let fits = |(age, length): &(u64, u64)| {
        let begin = slice - slice % length;
        (begin + length + age <= now).then_some((begin, *length))
    };
    COARSER.iter().rev().find_map(fits).unwrap_or((slice, 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Change, tests::line};

    const MINUTE: u64 = 60 * SECOND;
    const HOUR: u64 = 60 * MINUTE;

    #[test]
    fn the_past_is_what_was_known_then() {
        let base = line("a", 0, &[]).window;
        let at = |client: &str, minutes: u64| GraphLine {
            window: base + minutes * MINUTE,
            ..line(client, 0, &[])
        };
        let mut past = Past::new(1_000);
        for minute in 0..300 {
            past.add(&at("old", minute));
        }
        past.add(&at("new", 290));
        let edges = |minutes: u64| {
            let moment = base + minutes * MINUTE;
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
        assert!(past.slices.len() < 100, "{}", past.slices.len());
        assert!((0..=30).contains(&(connections(100) - 2 * 101)));
    }

    #[test]
    fn the_oldest_goes_when_there_is_no_room() {
        let base = line("a", 0, &[]).window;
        let mut past = Past::new(50);
        for minute in 0..600 {
            for client in 0..4 {
                past.add(&GraphLine {
                    window: base + minute * MINUTE,
                    ..line(&format!("client {client}"), 0, &[])
                });
            }
        }
        assert!(past.edges <= 50);
        let sum: usize = past
            .slices
            .values()
            .map(|(_, graph)| graph.edges.len())
            .sum();
        assert_eq!(past.edges, sum);
        assert!(past.begins_ns().unwrap() > base + 9 * HOUR);
        // A line older than all slices.
        past.add(&line("late", 0, &[]));
        assert!(past.begins_ns().unwrap() > base + 9 * HOUR);
    }

    #[test]
    fn slices_become_longer_and_never_overlap() {
        let base = line("a", 0, &[]).window;
        let mut past = Past::new(100_000);
        for tick in 0..1_000 {
            past.add(&GraphLine {
                window: base + tick * SLICE,
                ..line("a", 0, &[])
            });
            // Late, by up to two hours.
            past.add(&GraphLine {
                window: base + (tick - tick * 7 % 720 % (tick + 1)) * SLICE,
                ..line("late", 0, &[])
            });
        }
        let mut end = 0;
        for (begin, (length, _)) in &past.slices {
            assert!(*begin >= end, "{begin} {end}");
            assert_eq!(begin % length, 0);
            end = begin + length;
        }
        assert!(past.slices.len() < 170, "{}", past.slices.len());
        let all = Series {
            from_ns: 0,
            until_ns: u64::MAX / 2,
            by: By::Nothing,
            top: 1,
            whole: true,
        };
        let none = Past::new(0);
        let known = Known::new(0);
        let points = past.series(&all, &none, &known, &|_| true);
        assert_eq!(points.len(), 1);
        assert_eq!(points[0].sums.connections, 2 * 2_000);
        let each = past.series(
            &Series {
                whole: false,
                ..all
            },
            &none,
            &known,
            &|_| true,
        );
        assert_eq!(each.len(), past.slices.len());
        let sum: u64 = each.iter().map(|point| point.sums.connections).sum();
        assert_eq!(sum, 2 * 2_000);
    }

    #[test]
    fn series_have_the_largest_and_the_rest() {
        let base = line("a", 0, &[]).window;
        let mut past = Past::new(1_000);
        for (tick, client, times) in [(0, "a", 1), (0, "b", 3), (0, "c", 2), (1, "c", 1)] {
            for _ in 0..times {
                past.add(&GraphLine {
                    window: base + tick * SLICE,
                    ..line(client, 0, &[])
                });
            }
        }
        let mut open = Past::new(1_000);
        open.add(&GraphLine {
            window: base + SLICE,
            ..line("b", 0, &[])
        });
        let by = |by, top| Series {
            from_ns: base,
            until_ns: base + 2 * SLICE,
            by,
            top,
            whole: false,
        };
        let known = Known::new(10);
        let told = |series| -> Vec<_> {
            let points = past.series(&series, &open, &known, &|key| key.port == 443);
            let told = points.into_iter().map(|point| {
                let name = match point.group {
                    Group::End(end) => end.to_string(),
                    other => format!("{other:?}"),
                };
                (
                    (point.begin_ns - base) / SLICE,
                    name,
                    point.sums.connections,
                )
            });
            told.collect()
        };
        let own = |tick, name: &str, connections| (tick, name.to_owned(), connections);
        assert_eq!(
            told(by(By::Client, 2)),
            [
                own(0, "b", 6),
                own(0, "c", 4),
                own(0, "Others", 2),
                own(1, "b", 2),
                own(1, "c", 2)
            ]
        );
        assert_eq!(told(by(By::Server, 9))[0], own(0, "10.0.0.2", 12));
        assert_eq!(told(by(By::Edge, 9)).len(), 5);
        let mut edges = past
            .until(base + SLICE, base)
            .edges(&Graph::new(0, 0), base);
        past.add_rates(&mut edges, &open, &known, base, base + 3 * SLICE);
        let recent = edges.iter().find(|edge| edge.key.client.to_string() == "b");
        let recent = recent.unwrap().recent.unwrap();
        assert_eq!((recent.length_ns, recent.connections), (2 * SLICE, 8));
        let none = past.series(&by(By::Client, 2), &open, &known, &|_| false);
        assert!(none.is_empty());
    }
}
