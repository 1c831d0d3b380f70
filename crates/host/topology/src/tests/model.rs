//! Random changes beside a naive model that keeps a copy of everything after each event.

use crate::*;
use proptest::prelude::*;
use std::{collections::BTreeMap, ops::ControlFlow, sync::Arc};

#[derive(Clone, Debug)]
enum Op {
    AddNode(u8, Map),
    UpdateNode(u8, Map),
    DeleteNode(u8),
    AddEdge(u8, u8, u8, Map),
    UpdateEdge(u8, Map),
    DeleteEdge(u8),
}

fn metadata() -> impl Strategy<Value = Map> {
    let relation = prop::sample::select(vec!["ownership", "layer2", ""]);
    let list = prop::collection::vec(0..3i64, 0..3);
    (0..3i64, relation, list, any::<bool>()).prop_map(|(name, relation, list, number)| {
        let name = format!("{name}");
        Map::from([
            // A number and its text are the same to an index.
            (
                "Name",
                if number {
                    Value::Int(name.parse().unwrap())
                } else {
                    (&*name).into()
                },
            ),
            ("RelationType", relation.into()),
            ("IPV4", list.into_iter().map(Value::Int).collect()),
            ("Metric", Map::from([("RxBytes", Value::Int(7))]).into()),
        ])
    })
}

fn op() -> impl Strategy<Value = Op> {
    let (node, edge) = (0..5u8, 0..6u8);
    prop_oneof![
        4 => (node.clone(), metadata()).prop_map(|(id, map)| Op::AddNode(id, map)),
        4 => (node.clone(), metadata()).prop_map(|(id, map)| Op::UpdateNode(id, map)),
        2 => node.clone().prop_map(Op::DeleteNode),
        5 => (edge.clone(), node.clone(), node, metadata())
            .prop_map(|(id, parent, child, map)| Op::AddEdge(id, parent, child, map)),
        3 => (edge.clone(), metadata()).prop_map(|(id, map)| Op::UpdateEdge(id, map)),
        2 => edge.prop_map(Op::DeleteEdge),
    ]
}

#[derive(Clone, Default, PartialEq, Debug)]
struct State {
    nodes: BTreeMap<Arc<str>, Arc<Node>>,
    edges: BTreeMap<Arc<str>, Arc<Edge>>,
}

impl State {
    fn apply(&mut self, event: &Event) {
        match event.change.clone() {
            Change::NodeAdded(node) | Change::NodeUpdated(node) => {
                self.nodes.insert(node.id.clone(), node);
            }
            Change::EdgeAdded(edge) | Change::EdgeUpdated(edge) => {
                self.edges.insert(edge.element.id.clone(), edge);
            }
            Change::NodeDeleted(node) => drop(self.nodes.remove(&node.id)),
            Change::EdgeDeleted(edge) => drop(self.edges.remove(&edge.element.id)),
        }
    }
}

/// What the operations alone say: which elements there are, with which metadata.
#[derive(Default)]
struct Naive {
    nodes: BTreeMap<String, Map>,
    edges: BTreeMap<String, (String, String, Map)>,
}

impl Naive {
    /// Does it and says whether that was allowed.
    fn apply(&mut self, op: &Op) -> bool {
        let (n, e) = (|id: &u8| format!("n{id}"), |id: &u8| format!("e{id}"));
        match op {
            Op::AddNode(id, map) => {
                let new = !self.nodes.contains_key(&n(id));
                if new {
                    self.nodes.insert(n(id), map.clone());
                }
                new
            }
            Op::UpdateNode(id, map) => self
                .nodes
                .get_mut(&n(id))
                .map(|old| *old = map.clone())
                .is_some(),
            Op::DeleteNode(id) => {
                let id = n(id);
                self.edges
                    .retain(|_, (parent, child, _)| *parent != id && *child != id);
                self.nodes.remove(&id).is_some()
            }
            Op::AddEdge(id, parent, child, map) => {
                let ends = [n(parent), n(child)];
                let fits = !self.edges.contains_key(&e(id))
                    && ends.iter().all(|end| self.nodes.contains_key(end));
                if fits {
                    let [parent, child] = ends;
                    self.edges.insert(e(id), (parent, child, map.clone()));
                }
                fits
            }
            Op::UpdateEdge(id, map) => self
                .edges
                .get_mut(&e(id))
                .map(|old| old.2 = map.clone())
                .is_some(),
            Op::DeleteEdge(id) => self.edges.remove(&e(id)).is_some(),
        }
    }

    fn check(&self, state: &State) {
        let nodes: BTreeMap<String, Map> = state
            .nodes
            .iter()
            .map(|(id, node)| (id.to_string(), node.metadata.clone()))
            .collect();
        assert_eq!(nodes, self.nodes);
        let edges = state.edges.iter().map(|(id, edge)| {
            let ends = (edge.parent.to_string(), edge.child.to_string());
            (
                id.to_string(),
                (ends.0, ends.1, edge.element.metadata.clone()),
            )
        });
        assert_eq!(edges.collect::<BTreeMap<_, _>>(), self.edges);
    }
}

fn apply(graph: &mut Graph, op: &Op, time: i64) -> bool {
    let (n, e) = (|id: &u8| format!("n{id}"), |id: &u8| format!("e{id}"));
    match op {
        Op::AddNode(id, map) => {
            let host = if id % 2 == 0 { "even" } else { "odd" };
            graph
                .add_node(Node::new(&n(id), host, map.clone()), time)
                .is_ok()
        }
        Op::UpdateNode(id, map) => graph.update_node(&n(id), map.clone(), time).is_ok(),
        Op::DeleteNode(id) => graph.delete_node(&n(id), time).is_ok(),
        Op::AddEdge(id, parent, child, map) => {
            let edge = Edge::new(&e(id), &n(parent), &n(child), "host", map.clone());
            graph.add_edge(edge, time).is_ok()
        }
        Op::UpdateEdge(id, map) => graph.update_edge(&e(id), map.clone(), time).is_ok(),
        Op::DeleteEdge(id) => graph.delete_edge(&e(id), time).is_ok(),
    }
}

fn window(lo: u64, hi: u64) -> Window {
    Window {
        lo,
        hi,
        known: hi,
        from: 0,
        to: 0,
        live: false,
    }
}

/// What is seen, with the moments at which it was so, sorted.
type Observed<T> = Vec<(Arc<T>, u64, u64)>;

fn sorted<T: Element>(mut seen: Observed<T>) -> Observed<T> {
    seen.sort_by(|a, b| (&a.0.base().id, a.1).cmp(&(&b.0.base().id, b.1)));
    seen
}

fn collect<T: Element>(
    mut scan: impl FnMut(u32, usize, Visit<'_, T>) -> Result<Scan, GraphError>,
) -> Observed<T> {
    let mut seen = Vec::new();
    let mut from = 0;
    loop {
        // Small parts, so that they end everywhere.
        let part = scan(from, 2, &mut |item, part| {
            seen.push((item.clone(), part.lo, part.hi));
            ControlFlow::Continue(())
        });
        match part.unwrap() {
            Scan::More(next) => from = next,
            end => {
                assert_eq!(end, Scan::Done);
                return sorted(seen);
            }
        }
    }
}

/// The same of the model: each version that fits, with the moments of `lo..=hi` at which it did.
fn expected<T: Element + PartialEq>(
    states: &[State],
    (lo, hi): (u64, u64),
    items: impl Fn(&State) -> Vec<Arc<T>>,
) -> Observed<T> {
    let mut seen: Observed<T> = Vec::new();
    for seq in lo..=hi {
        for item in items(&states[seq as usize]) {
            let goes_on = seen
                .iter_mut()
                .find(|(known, _, last)| *last == seq - 1 && known.base() == item.base());
            match goes_on {
                Some((_, _, last)) => *last = seq,
                None => seen.push((item, seq, seq)),
            }
        }
    }
    // The mark of deletion is on versions whose end is in sight.
    for (item, _, last) in &mut seen {
        if *last < hi {
            let next = &states[*last as usize + 1];
            let id = &item.base().id;
            if !next.nodes.contains_key(id) && !next.edges.contains_key(id) {
                let mut marked = T::clone(item);
                marked.base_mut().deleted_at = Some(0);
                *item = Arc::new(marked);
            }
        }
    }
    sorted(seen)
}

/// Times of deletion are compared only for being there.
fn same<T: Element + PartialEq + std::fmt::Debug>(
    found: Observed<T>,
    wanted: Observed<T>,
    what: &str,
) {
    let level = |seen: Observed<T>| -> Vec<(T, u64, u64)> {
        let level = |(item, lo, hi): (Arc<T>, u64, u64)| {
            let mut item = T::clone(&item);
            let base = item.base_mut();
            base.deleted_at = base.deleted_at.map(|_| 0);
            (item, lo, hi)
        };
        seen.into_iter().map(level).collect()
    };
    assert_eq!(level(found), level(wanted), "{what}");
}

fn has(map: &Map, key: &str, value: &IndexKey) -> bool {
    map.at(key, &mut |found| {
        found.each(&mut |item| IndexKey::of(item).as_ref() == Some(value))
    })
}

fn compare(graph: &Graph, states: &[State], lo: u64, hi: u64) {
    let at = window(lo, hi);
    let nodes = |state: &State| state.nodes.values().cloned().collect();
    let edges = |state: &State| state.edges.values().cloned().collect();
    let all = Lookup::All;
    let found = collect(|from, most, visit| graph.scan_nodes(at, all, from, most, visit));
    same(found, expected(states, (lo, hi), nodes), "all nodes");
    let found = collect(|from, most, visit| graph.scan_edges(at, all, from, most, visit));
    same(found, expected(states, (lo, hi), edges), "all edges");
    for number in 0..3 {
        let value = IndexKey::Int(number);
        for key in ["Name", "IPV4"] {
            let lookup = Lookup::Key(key, &value);
            let found =
                collect(|from, most, visit| graph.scan_nodes(at, lookup, from, most, visit));
            let wanted = expected(states, (lo, hi), |state| {
                let nodes = state.nodes.values();
                nodes
                    .filter(|node| has(&node.metadata, key, &value))
                    .cloned()
                    .collect()
            });
            let slots: std::collections::BTreeSet<_> =
                found.iter().map(|(node, ..)| &node.id).collect();
            assert!(graph.estimate_nodes(key, &value).unwrap() >= slots.len());
            same(found, wanted, key);
        }
    }
    for id in 0..5 {
        let id: Arc<str> = format!("n{id}").into();
        for direction in [Direction::Out, Direction::In, Direction::Both] {
            let ends = |edge: &Edge| {
                let (out, into) = (edge.parent == id, edge.child == id);
                match direction {
                    Direction::Out => out,
                    Direction::In => into,
                    Direction::Both => out || into,
                }
            };
            for relation in [None, Some("ownership"), Some("layer2"), Some("never")] {
                let mut found = Vec::new();
                let end = graph.edges(&id, at, direction, relation, &mut |edge, part| {
                    if relation.is_none_or(|relation| edge.relation() == relation) {
                        found.push((edge.clone(), part.lo, part.hi));
                    }
                    ControlFlow::Continue(())
                });
                assert!(end.unwrap().is_continue());
                let wanted = expected(states, (lo, hi), |state| {
                    let edges = state.edges.values().filter(|edge| ends(edge));
                    let fits =
                        |edge: &&Arc<Edge>| relation.is_none_or(|kind| edge.relation() == kind);
                    edges.filter(fits).cloned().collect()
                });
                same(sorted(found), wanted, "edges");
            }
            if lo == hi {
                let mut found = Vec::new();
                let _ = graph.neighbours(&id, at, direction, &mut |node, _| {
                    found.push(node.id.clone());
                    ControlFlow::Continue(())
                });
                found.sort();
                let edges = states[lo as usize].edges.values().filter(|edge| ends(edge));
                let mut wanted: Vec<Arc<str>> = edges
                    .map(|edge| match direction {
                        Direction::Out => edge.child.clone(),
                        Direction::In => edge.parent.clone(),
                        Direction::Both if edge.parent == id => edge.child.clone(),
                        Direction::Both => edge.parent.clone(),
                    })
                    .collect();
                wanted.sort();
                assert_eq!(found, wanted, "neighbours of {id} {direction:?}");
            }
        }
    }
}

fn config(max_events: usize) -> Config {
    Config {
        history: HistoryLimits {
            max_events,
            ..HistoryLimits::default()
        },
        node_indexes: ["Name", "IPV4", "@Host"].map(String::from).to_vec(),
        ..Config::default()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn every_moment_is_as_it_was(
        ops in prop::collection::vec((op(), 0..3i64), 1..60),
        max_events in prop_oneof![Just(1_000usize), 0..40usize],
        kept_at in 0..60usize,
    ) {
        let mut graph = Graph::new(config(max_events));
        let events = graph.subscribe(10_000);
        let mut naive = Naive::default();
        let mut states = vec![State::default()];
        let mut log: Vec<Arc<Event>> = Vec::new();
        let mut kept = None;
        let mut time = 1_000;
        for (at, (op, later)) in ops.iter().enumerate() {
            if at == kept_at {
                let json = serde_json::to_string(&graph.export()).unwrap();
                kept = Some((json, graph.stats().last_event, time));
            }
            time += later;
            assert_eq!(apply(&mut graph, op, time), naive.apply(op), "{op:?}");
            while let Some(Delivery::Event(event)) = events.try_next() {
                assert_eq!(event.seq, states.len() as u64);
                assert_eq!(event.time, time);
                let mut state = states[states.len() - 1].clone();
                state.apply(&event);
                states.push(state);
                log.push(event);
            }
            naive.check(&states[states.len() - 1]);
        }
        let last = states.len() as u64 - 1;
        prop_assert_eq!(graph.stats().last_event, last);
        let floor = last.saturating_sub(max_events as u64);
        for seq in floor..=last {
            compare(&graph, &states, seq, seq);
            compare(&graph, &states, seq, last);
            compare(&graph, &states, seq, (seq + 7).min(last));
        }
        if floor > 0 {
            let old = window(floor - 1, last);
            let scan = graph.scan_nodes(old, Lookup::All, 0, 1, &mut |_, _| ControlFlow::Break(()));
            prop_assert_eq!(scan, Err(GraphError::Forgotten));
        }
        // By time: the state after all that happened up to then.
        for event in log.iter().filter(|event| event.seq > floor) {
            let seq = log.iter().rposition(|other| other.time <= event.time).unwrap() + 1;
            prop_assert_eq!(graph.at(event.time).unwrap().hi, seq as u64);
        }
        // The kept events are those that subscribers got.
        let again: Vec<Event> = graph.events_since(floor).unwrap().collect();
        let told: Vec<Event> = log[floor as usize..].iter().map(|event| Event::clone(event)).collect();
        prop_assert_eq!(again, told);
        // From the events the same graph can be made, also from a kept state and those after it.
        let mut second = Graph::new(config(max_events));
        for event in &log {
            let json = serde_json::to_string(&**event).unwrap();
            second.replay(&serde_json::from_str(&json).unwrap()).unwrap();
        }
        prop_assert_eq!(by_id(second.export()), by_id(graph.export()));
        if let Some((json, seq, time)) = kept {
            let export = serde_json::from_str(&json).unwrap();
            let mut third = Graph::restore(config(max_events), &export, seq, time).unwrap();
            for event in &log {
                third.replay(event).unwrap();
            }
            prop_assert_eq!(by_id(third.export()), by_id(graph.export()));
            prop_assert_eq!(third.stats().last_event, last);
        }
        // When all is deleted and forgotten nothing stays.
        for id in 0..5 {
            let _ = graph.delete_node(&format!("n{id}"), time);
        }
        graph.expire(time + 1_000_000_000);
        let stats = graph.stats();
        prop_assert_eq!((stats.nodes, stats.edges, stats.events, stats.history_bytes), (0, 0, 0, 0));
        prop_assert!(stats.node_indexes.iter().all(|(_, values)| *values == 0));
        prop_assert!(graph.adjacency.iter().all(|edges| edges.len(Direction::Both) == 0));
    }
}

fn by_id(mut export: Export) -> Export {
    export.nodes.sort_by(|a, b| a.id.cmp(&b.id));
    export.edges.sort_by(|a, b| a.element.id.cmp(&b.element.id));
    export
}
