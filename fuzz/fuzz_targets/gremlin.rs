//! Any text as a query: it is answered or refused within its limits, and what is printed of it reads
//! the same.

#![no_main]

use libfuzzer_sys::fuzz_target;
use skua_query::{
    Limits, Prepared, Sources,
    output::{self, Format},
    syntax::{SyntaxLimits, parse},
};
use skua_topology::{Config, Edge, Graph, Map, Node, SharedGraph, Value};
use std::{
    sync::{LazyLock, atomic::AtomicBool},
    time::Duration,
};

const NOW: i64 = 1_714_564_800_000;

/// Three nodes in a row, the last one of which is gone.
static GRAPH: LazyLock<SharedGraph> = LazyLock::new(|| {
    let mut graph = Graph::new(Config::default());
    for (id, kind) in [("a", "host"), ("b", "device"), ("c", "veth")] {
        let list = [Value::from("10.0.0.1/24"), Value::Int(5)]
            .into_iter()
            .collect();
        let map = Map::from([("Name", id.into()), ("Type", kind.into()), ("IPV4", list)]);
        graph
            .add_node(Node::new(id, "host", map), NOW - 60_000)
            .expect("a new node");
    }
    for (parent, child) in [("a", "b"), ("b", "c")] {
        let map = Map::from([("RelationType", "ownership".into())]);
        let edge = Edge::new(parent, parent, child, "host", map);
        graph.add_edge(edge, NOW - 30_000).expect("a new edge");
    }
    graph.delete_node("c", NOW - 10_000).expect("there is one");
    graph.into()
});

fuzz_target!(|text: &str| {
    let limits = SyntaxLimits::default();
    let query = match parse(text, &limits) {
        Ok(query) => query,
        Err(error) => {
            error.render(text);
            return;
        }
    };
    let printed = query.to_string();
    let again = parse(&printed, &limits);
    // What is printed may be longer than what was read, and so too long.
    if printed.len() <= limits.length {
        let again = again.expect("what is printed can be read");
        assert_eq!(again.to_string(), printed);
    }
    let sources = Sources::graph(&*GRAPH);
    let prepared = match Prepared::new(text, &limits, &sources, NOW) {
        Ok(prepared) => prepared,
        Err(error) => {
            error.render(text);
            return;
        }
    };
    let limits = Limits {
        time: Duration::from_millis(500),
        elements: 10_000,
        bytes: 16 << 20,
        results: 1_000,
    };
    if let Ok(answer) = prepared.run(sources, limits, &AtomicBool::new(false)) {
        for format in [Format::Json, Format::Table { width: 0 }, Format::Dot] {
            let _ = output::format(&answer, format);
        }
    }
});
