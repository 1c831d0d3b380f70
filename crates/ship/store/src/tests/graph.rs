//! The graph before and after restarts.

use super::*;
use crate::{
    GraphJournal,
    graph::{GapCause, Restored},
    log::now_ms,
};
use skua_topology::{Config, Edge, Graph, HistoryLimits, Map, Node, SharedGraph, Value};
use std::{collections::BTreeMap, sync::Arc};

#[derive(Clone, Debug)]
enum Op {
    Node(u8, Value),
    DeleteNode(u8),
    Edge(u8, u8, u8),
    DeleteEdge(u8),
    Flush,
    Restart,
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        any::<i64>().prop_map(Value::Int),
        any::<f64>()
            .prop_filter("equal to itself", |float| !float.is_nan())
            .prop_map(Value::Float),
        ".{0,12}".prop_map(|text| Value::from(&*text)),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(|list| list.into_iter().collect()),
            prop::collection::vec(("[a-c]{1,2}", inner), 0..4).prop_map(|entries| {
                let entries = entries
                    .into_iter()
                    .map(|(name, value)| (name.as_str().into(), value));
                Value::Map(Map::new(entries.collect()))
            }),
        ]
    })
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (0..6u8, value()).prop_map(|(id, value)| Op::Node(id, value)),
        2 => (0..6u8).prop_map(Op::DeleteNode),
        3 => (0..6u8, 0..6u8, 0..6u8).prop_map(|(id, a, b)| Op::Edge(id, a, b)),
        1 => (0..6u8).prop_map(Op::DeleteEdge),
        1 => Just(Op::Flush),
        1 => Just(Op::Restart),
    ]
}

type State = (BTreeMap<Arc<str>, Node>, BTreeMap<Arc<str>, Edge>);

/// All that there was at a moment.
fn state(graph: &Graph, time: Option<i64>) -> State {
    let window = time.map_or(graph.now(), |time| graph.at(time).unwrap());
    let mut state = State::default();
    let all = skua_topology::Lookup::All;
    let _ = graph.scan_nodes(window, all, 0, usize::MAX, &mut |node, _| {
        state.0.insert(node.id.clone(), Node::clone(node));
        ControlFlow::Continue(())
    });
    let _ = graph.scan_edges(window, all, 0, usize::MAX, &mut |edge, _| {
        state.1.insert(edge.element.id.clone(), Edge::clone(edge));
        ControlFlow::Continue(())
    });
    state
}

fn load(store: &Store, config: Config) -> (Restored, SharedGraph) {
    let mut graph = Graph::new(config);
    let restored = store.load_graph(&mut graph).unwrap();
    (restored, graph.into())
}

fn keep_all() -> Config {
    let history = HistoryLimits {
        max_age: i64::MAX / 4,
        ..HistoryLimits::default()
    };
    Config {
        history,
        ..Config::default()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn every_moment_is_the_same_after_restarts(
        ops in prop::collection::vec(op(), 1..80),
        tiny_files in any::<bool>(),
    ) {
        let dir = memory_dir();
        // Files of 4 KiB: many states.
        let config = bounded(if tiny_files { 512 << 10 } else { 64 << 20 });
        let mut store = open(dir.path(), config.clone());
        let (_, mut graph) = load(&store, keep_all());
        let mut journal = GraphJournal::start(&store, &graph).unwrap();
        let (mut now, mut moments) = (now_ms(), Vec::new());
        for op in ops {
            now += 1_000;
            let mut change = graph.write();
            match op {
                Op::Node(id, value) => {
                    let id = format!("n{id}");
                    let map = Map::from([("Value", value)]);
                    if change.update_node(&id, map.clone(), now).is_err() {
                        let mut node = Node::new(&id, "host", map);
                        node.origin = "test".into();
                        change.add_node(node, now).unwrap();
                    }
                }
                Op::DeleteNode(id) => { let _ = change.delete_node(&format!("n{id}"), now); }
                Op::Edge(id, a, b) => {
                    let map = Map::from([("RelationType", "layer2".into())]);
                    let ends = [a, b].map(|end| format!("n{end}"));
                    let edge = Edge::new(&format!("e{id}"), &ends[0], &ends[1], "host", map);
                    let _ = change.add_edge(edge, now);
                }
                Op::DeleteEdge(id) => { let _ = change.delete_edge(&format!("e{id}"), now); }
                Op::Flush => {
                    drop(change);
                    prop_assert!(journal.flush(PATIENCE));
                    continue;
                }
                Op::Restart => {
                    drop(change);
                    drop(journal);
                    drop(store);
                    store = open(dir.path(), config.clone());
                    let (restored, loaded) = load(&store, keep_all());
                    prop_assert!(restored.ended.is_some());
                    graph = loaded;
                    journal = GraphJournal::start(&store, &graph).unwrap();
                    continue;
                }
            }
            moments.push((now, state(&change, None)));
        }
        let last = state(&graph.read(), None);
        drop(journal);
        drop(store);
        let store = open(dir.path(), config);
        prop_assert_eq!(store.stats().graph.expired, 0);
        let (restored, graph) = load(&store, keep_all());
        prop_assert!(restored.gaps.iter().all(|gap| gap.cause == GapCause::Restart));
        let graph = graph.read();
        prop_assert_eq!(state(&graph, None), last);
        for (time, expected) in moments {
            // The state of a moment ago is marked as latest version until its element is deleted.
            let mut found = state(&graph, Some(time));
            let mut expected = expected;
            for state in [&mut found, &mut expected] {
                state.0.values_mut().for_each(|node| node.deleted_at = None);
                state.1.values_mut().for_each(|edge| edge.element.deleted_at = None);
            }
            prop_assert_eq!(found, expected, "at {}", time);
        }
    }
}

fn numbered(graph: &SharedGraph, from: i64, count: i64, now: i64) {
    for number in from..from + count {
        let map = Map::from([("Number", number.into())]);
        let mut graph = graph.write();
        if graph.update_node("n", map.clone(), now + number).is_err() {
            graph
                .add_node(Node::new("n", "host", map), now + number)
                .unwrap();
        }
    }
}

fn number_at(graph: &SharedGraph, time: i64) -> Option<i64> {
    let graph = graph.read();
    let state = state(&graph, Some(time));
    state.0.get("n")?.metadata.get("Number")?.as_int()
}

#[test]
fn events_that_did_not_fit_leave_a_gap_with_a_name() {
    let dir = memory_dir();
    let config = StoreConfig {
        graph_queue: 100,
        ..bounded(64 << 20)
    };
    let store = open(dir.path(), config.clone());
    let (_, graph) = load(&store, keep_all());
    let journal = GraphJournal::start(&store, &graph).unwrap();
    let now = now_ms();
    numbered(&graph, 0, 50, now);
    assert!(journal.flush(PATIENCE));
    {
        // Holding the log blocks the writer.
        let _held = store.shared().graph();
        numbered(&graph, 50, 5_000, now);
    }
    // The journal finds the loss when it writes the new state.
    while journal.stats().gaps == 0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    numbered(&graph, 5_050, 20, now);
    assert!(journal.flush(PATIENCE));
    let lost = store.stats().graph.lost;
    assert!(lost.queue > 0 && lost.total() == lost.queue, "{lost:?}");
    drop(journal);
    drop(store);
    let store = open(dir.path(), config);
    let (restored, graph) = load(&store, keep_all());
    let gaps: Vec<_> = restored
        .gaps
        .iter()
        .filter(|gap| matches!(gap.cause, GapCause::Lost(_)))
        .collect();
    assert_eq!(gaps.len(), 1, "{restored:?}");
    assert_eq!(gaps[0].cause, GapCause::Lost(lost.queue));
    // Before and after the gap each event exists; within it the last state before it is shown.
    assert_eq!(number_at(&graph, now + 49), Some(49));
    assert_eq!(number_at(&graph, now + 5_049), Some(5_049));
    assert_eq!(number_at(&graph, now + 5_060), Some(5_060));
    let inside = number_at(&graph, gaps[0].to - 1).unwrap();
    assert_eq!(now + inside, gaps[0].from);
}

#[test]
fn nodes_that_went_meanwhile_end_at_the_restart() {
    let dir = memory_dir();
    let store = open(dir.path(), bounded(64 << 20));
    let (_, graph) = load(&store, keep_all());
    let journal = GraphJournal::start(&store, &graph).unwrap();
    let now = now_ms();
    {
        let mut graph = graph.write();
        for (id, origin) in [
            ("a", "netlink"),
            ("b", "netlink"),
            ("c", "ovs"),
            ("d", "gone"),
        ] {
            let mut node = Node::new(id, "host", Map::default());
            node.origin = origin.into();
            graph.add_node(node, now).unwrap();
        }
        for (id, child, origin) in [("ab", "b", "netlink"), ("ac", "c", "netlink")] {
            let mut edge = Edge::new(id, "a", child, "host", Map::default());
            edge.element.origin = origin.into();
            graph.add_edge(edge, now).unwrap();
        }
    }
    assert!(journal.flush(PATIENCE));
    drop(journal);
    drop(store);
    let store = open(dir.path(), bounded(64 << 20));
    let (mut restored, graph) = load(&store, keep_all());
    assert_eq!(restored.ended, Some(now));
    let origins = restored.origins();
    assert_eq!(origins["netlink"], (2, 2));
    assert_eq!(origins["ovs"], (1, 0));
    assert_eq!(restored.nodes_of("netlink").len(), 2);
    let restart = now + 60_000;
    let mut graph = graph.write();
    let ended = restored.end_missing(
        &mut graph,
        "netlink",
        &|node| &*node.id == "a",
        &|edge| &*edge.element.id == "ac",
        restart,
    );
    assert_eq!(ended, 2, "node b and the edge to it");
    assert!(!restored.origins().contains_key("netlink"));
    let ids = |state: State| state.0.into_keys().collect::<Vec<_>>();
    assert_eq!(ids(state(&graph, None)), ["a", "c", "d"].map(Arc::from));
    assert_eq!(
        ids(state(&graph, Some(restart - 1))).len(),
        4,
        "nobody knew before"
    );
    assert_eq!(restored.end_rest(&mut graph, restart), 2);
    assert_eq!(ids(state(&graph, None)), ["a"].map(Arc::from));
    assert_eq!(state(&graph, Some(now)).1.len(), 2);
}

#[test]
fn more_than_a_graph_may_keep_is_not_read() {
    let dir = memory_dir();
    let store = open(dir.path(), bounded(512 << 10));
    let (_, graph) = load(&store, keep_all());
    let journal = GraphJournal::start(&store, &graph).unwrap();
    let now = now_ms();
    for part in 0..100 {
        numbered(&graph, part * 100, 100, now);
        assert!(journal.flush(PATIENCE));
    }
    drop(journal);
    let history = HistoryLimits {
        max_events: 500,
        ..keep_all().history
    };
    let (restored, graph) = load(
        &store,
        Config {
            history,
            ..keep_all()
        },
    );
    assert!(
        (500..3_000).contains(&restored.events),
        "{} events",
        restored.events
    );
    assert_eq!(number_at(&graph, now + 9_600), Some(9_600));
    assert_eq!(number_at(&graph, i64::MAX), Some(9_999));
}

#[test]
fn the_limit_of_size_keeps_the_end() {
    let dir = memory_dir();
    let store = open(dir.path(), bounded(128 << 10));
    let (_, graph) = load(&store, keep_all());
    let journal = GraphJournal::start(&store, &graph).unwrap();
    let now = now_ms();
    for part in 0..200 {
        numbered(&graph, part * 100, 100, now);
        assert!(journal.flush(PATIENCE));
        assert!(store.stats().graph.bytes <= 128 << 10);
    }
    drop(journal);
    assert!(store.stats().graph.expired > 0);
    let (restored, graph) = load(&store, keep_all());
    assert!(restored.gaps.is_empty(), "{restored:?}");
    assert!(restored.events > 1_000);
    let began = restored.began.unwrap();
    assert_eq!(number_at(&graph, began), Some(began - now));
    assert_eq!(number_at(&graph, i64::MAX), Some(19_999));
}

#[test]
fn a_graph_that_is_too_large_for_its_history_is_reported() {
    let dir = memory_dir();
    let store = open(dir.path(), bounded(16 << 10));
    let (_, graph) = load(&store, keep_all());
    let mut random = 1u64;
    for number in 0..2_000 {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let node = Node::new(&format!("{random:x}-{number}"), "host", Map::default());
        graph.write().add_node(node, now_ms()).unwrap();
    }
    let journal = GraphJournal::start(&store, &graph).unwrap();
    assert!(!journal.flush(PATIENCE));
    let failing = store.stats().graph.failing.unwrap();
    assert!(failing.contains("a quarter of the"), "{failing}");
}

/// A state near the size limit is not written again and again.
#[test]
fn states_are_not_most_of_what_is_written() {
    let dir = memory_dir();
    let config = bounded(256 << 10);
    let store = open(dir.path(), config);
    let (_, graph) = load(&store, keep_all());
    let mut random = 1u64;
    for number in 0..2_000 {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let node = Node::new(&format!("{random:x}-{number}"), "host", Map::default());
        graph.write().add_node(node, now_ms()).unwrap();
    }
    let journal = GraphJournal::start(&store, &graph).unwrap();
    let now = now_ms();
    for part in 0..100 {
        numbered(&graph, part * 10, 10, now);
        assert!(journal.flush(PATIENCE), "{:?}", store.stats().graph);
    }
    let state = store.stats().graph.bytes;
    assert!(
        state > 40 << 10,
        "the state is too small for this test: {state}"
    );
    let written = journal.stats().checkpoints;
    assert!(written <= 3, "{written} states");
}
