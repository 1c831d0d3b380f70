//! Bounds, and what is said when they are met.

use crate::*;
use std::ops::ControlFlow;

fn small() -> Config {
    Config {
        history: HistoryLimits {
            max_age: 1_000,
            max_events: 100,
            max_bytes: 8_192,
        },
        max_nodes: 3,
        max_edges: 2,
        max_metadata_bytes: 2_000,
        ..Config::default()
    }
}

fn node(id: &str) -> Node {
    Node::new(id, "host", Map::from([("Name", id.into())]))
}

fn names(graph: &Graph, window: Window) -> Vec<String> {
    let mut names = Vec::new();
    let scan = graph.scan_nodes(window, Lookup::All, 0, usize::MAX, &mut |node, _| {
        names.push(node.lookup("Name").unwrap().as_str().unwrap().to_owned());
        ControlFlow::Continue(())
    });
    assert_eq!(scan, Ok(Scan::Done));
    names
}

#[test]
fn a_full_graph_refuses_and_goes_on() {
    let mut graph = Graph::new(small());
    for id in ["a", "b", "c"] {
        graph.add_node(node(id), 1).unwrap();
    }
    assert_eq!(
        graph.add_node(node("d"), 2),
        Err(GraphError::Full(3, "nodes"))
    );
    assert_eq!(
        graph.add_node(node("a"), 2),
        Err(GraphError::NodeExists("a".into()))
    );
    for id in ["ab", "ba"] {
        graph
            .add_edge(Edge::new(id, "a", "b", "host", Map::default()), 2)
            .unwrap();
    }
    let third = Edge::new("x", "a", "b", "host", Map::default());
    assert_eq!(graph.add_edge(third, 2), Err(GraphError::Full(2, "edges")));
    graph.delete_node("a", 3).unwrap();
    assert_eq!(graph.stats().edges, 0);
    graph.add_node(node("d"), 4).unwrap();
    let lost = Edge::new("x", "a", "b", "host", Map::default());
    assert_eq!(
        graph.add_edge(lost, 4),
        Err(GraphError::NoEnd {
            edge: "x".into(),
            node: "a".into()
        })
    );
}

#[test]
fn hostile_elements_are_refused() {
    let mut graph = Graph::new(small());
    assert_eq!(graph.add_node(node(""), 1), Err(GraphError::BadId));
    assert_eq!(
        graph.add_node(node(&"x".repeat(257)), 1),
        Err(GraphError::BadId)
    );
    let mut deep = Value::Int(1);
    for _ in 0..40 {
        deep = Value::List(vec![deep].into());
    }
    graph.add_node(node("a"), 1).unwrap();
    let map = Map::from([("x", deep)]);
    assert_eq!(
        graph.update_node("a", map, 2),
        Err(GraphError::TooDeep("a".into()))
    );
    let map = Map::from([("x", Value::from(&*"y".repeat(2_000)))]);
    let refused = graph.update_node("a", map, 2).unwrap_err();
    assert!(
        refused.to_string().contains("2000 are allowed"),
        "{refused}"
    );
}

#[test]
fn history_ends_by_age_events_and_bytes() {
    let mut graph = Graph::new(small());
    graph.add_node(node("a"), 1_000).unwrap();
    graph.add_node(node("b"), 1_500).unwrap();
    graph.delete_node("a", 1_600).unwrap();
    assert_eq!(names(&graph, graph.at(1_000).unwrap()), ["a"]);
    assert_eq!(names(&graph, graph.at(1_599).unwrap()), ["a", "b"]);
    assert_eq!(names(&graph, graph.at(9_999).unwrap()), ["b"]);
    assert_eq!(
        graph.at(999),
        Err(GraphError::BeforeHistory { begins: 1_000 })
    );
    // The span is cut where the history begins.
    assert_eq!(
        names(&graph, graph.between(1_600, 100_000).unwrap()),
        ["a", "b"]
    );

    // What is forgotten is how it came to be; what was true from then on is known.
    graph.expire(2_450);
    assert_eq!(graph.stats().events, 2);
    assert_eq!(names(&graph, graph.at(1_000).unwrap()), ["a"]);
    assert_eq!(
        graph.at(999),
        Err(GraphError::BeforeHistory { begins: 1_000 })
    );
    graph.expire(2_700);
    assert_eq!(
        graph.at(1_599),
        Err(GraphError::BeforeHistory { begins: 1_600 })
    );
    assert_eq!(graph.stats().events, 0);

    for update in 0..500 {
        let map = Map::from([("Name", "b".into()), ("Count", Value::Int(update))]);
        graph.update_node("b", map, 3_000).unwrap();
        let stats = graph.stats();
        assert!(
            stats.events <= 100 && stats.history_bytes <= 8_192,
            "{stats:?}"
        );
    }
    let large = Map::from([
        ("Name", "b".into()),
        ("Text", Value::from(&*"x".repeat(1_800))),
    ]);
    for update in 0..50 {
        let map = large.with("Text", Value::from(&*format!("{update:01800}")));
        graph.update_node("b", map, 3_000).unwrap();
        assert!(graph.stats().history_bytes <= 8_192);
    }
    assert!(graph.stats().events < 6);
}

#[test]
fn time_that_goes_back_stands_still() {
    let mut graph = Graph::new(Config::default());
    graph.add_node(node("a"), 5_000).unwrap();
    let late = graph.add_node(node("b"), 4_000).unwrap();
    assert_eq!(late.created_at, 5_000);
    assert_eq!(names(&graph, graph.at(5_000).unwrap()), ["a", "b"]);
}

#[test]
fn what_is_imported_keeps_its_times() {
    let json = r#"{"Nodes": [{"ID": "a", "Metadata": {"Name": "a"}, "Host": "h", "Origin": "o",
        "CreatedAt": 10, "UpdatedAt": 20, "Revision": 4}, {"ID": "b"}],
        "Edges": [{"ID": "ab", "Parent": "a", "Child": "b", "Metadata": {"RelationType": "layer2"}}]}"#;
    let mut graph = Graph::new(Config::default());
    graph
        .import(&serde_json::from_str(json).unwrap(), 99)
        .unwrap();
    let export = serde_json::to_value(graph.export()).unwrap();
    assert_eq!(
        export,
        serde_json::json!({
            "Nodes": [
                {"ID": "a", "Metadata": {"Name": "a"}, "Host": "h", "Origin": "o",
                 "CreatedAt": 10, "UpdatedAt": 20, "Revision": 4},
                {"ID": "b", "Metadata": {}, "Host": "", "Origin": "",
                 "CreatedAt": 99, "UpdatedAt": 99, "Revision": 1}],
            "Edges": [{"ID": "ab", "Parent": "a", "Child": "b",
                       "Metadata": {"RelationType": "layer2"}, "Host": "", "Origin": "",
                       "CreatedAt": 99, "UpdatedAt": 99, "Revision": 1}],
        })
    );
    for bad in [
        r#"{"Nodes": [{"ID": "a", "Metadata": 5}]}"#,
        r#"{"Nodes": [{}]}"#,
        "[]",
    ] {
        assert!(
            serde_json::from_str::<Export>(bad).is_err() || bad == "[]",
            "{bad}"
        );
    }
}

#[test]
fn patches_make_one_version() {
    let mut graph = Graph::new(Config::default());
    graph.add_node(node("a"), 1).unwrap();
    let patches = [
        Patch::Set("Metric.RxBytes".into(), 5.into()),
        Patch::Set("State".into(), "UP".into()),
        Patch::Remove("Name".into()),
    ];
    let new = graph.patch_node("a", &patches, 2).unwrap().unwrap();
    assert_eq!(new.revision, 2);
    assert_eq!(
        serde_json::to_string(&new.metadata).unwrap(),
        r#"{"Metric":{"RxBytes":5},"State":"UP"}"#
    );
    assert_eq!(graph.patch_node("a", &patches, 3), Ok(None));
    assert_eq!(
        graph.patch_node("z", &patches, 3),
        Err(GraphError::NoNode("z".into()))
    );
}

#[test]
fn a_host_goes_with_all_it_has() {
    let mut graph = Graph::new(Config::default());
    for (id, host) in [("a", "one"), ("b", "one"), ("c", "two")] {
        graph
            .add_node(Node::new(id, host, Map::default()), 1)
            .unwrap();
    }
    graph
        .add_edge(Edge::new("bc", "b", "c", "one", Map::default()), 1)
        .unwrap();
    let ids = |export: &Export| {
        let nodes = export.nodes.iter().map(|node| &node.id);
        let edges = export.edges.iter().map(|edge| &edge.element.id);
        let mut ids: Vec<_> = nodes.chain(edges).map(|id| id.to_string()).collect();
        ids.sort();
        ids
    };
    assert_eq!(ids(&graph.export_host("one")), ["a", "b", "bc"]);
    assert_eq!(ids(&graph.export_host("two")), ["c"]);
    assert_eq!(ids(&graph.export_host("three")), [""; 0]);
    assert_eq!(graph.delete_host("one", 2), Ok(2));
    assert_eq!(ids(&graph.export_host("one")), [""; 0]);
    // Also without an index, and where a host's name is a number.
    let mut plain = Graph::new(Config {
        node_indexes: Vec::new(),
        edge_indexes: Vec::new(),
        ..Config::default()
    });
    for graph in [&mut plain, &mut graph] {
        for (id, host) in [("n", "42"), ("m", "042")] {
            let node = Node::new(id, host, Map::default());
            graph.add_node(node, 3).unwrap();
        }
        assert_eq!(ids(&graph.export_host("42")), ["n"]);
        graph.delete_node("n", 4).unwrap();
        graph.delete_node("m", 4).unwrap();
    }
    assert_eq!((graph.stats().nodes, graph.stats().edges), (1, 0));
}
