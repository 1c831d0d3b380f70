#![allow(dead_code)]
//! Flows and graphs that are numbered, so that a missing one shows.

use skua_flow::{Counters, FlowKey, FlowRecord, FlowUpdate};
use skua_store::{FlowBatch, FlowChange, FlowContext, FlowLookup, Store};
use skua_topology::{Config, Graph, HistoryLimits, Map, Node, SharedGraph};
use std::{
    ops::ControlFlow,
    time::{Duration, SystemTime},
};

pub const PATIENCE: Duration = Duration::from_secs(60);

pub fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap().as_millis() as i64
}

/// Appends flows with these numbers as identifiers, in one drain.
pub fn append(store: &Store, numbers: std::ops::Range<u64>) {
    let mut batch = FlowBatch::new();
    for number in numbers {
        let update = FlowUpdate {
            key: FlowKey {
                lo_port: (number as u16).to_be_bytes(),
                proto: 17,
                kind: 1,
                ..FlowKey::default()
            },
            lo_sent: Counters::new(1, number),
            first_ns: number * 1_000,
            last_ns: number * 1_000 + 500,
            ..FlowUpdate::default()
        };
        let record = FlowRecord {
            id: number,
            ..FlowRecord::new(&update, 1, 1, number * 1_000 + 900, 1_000)
        };
        batch.push(&FlowChange {
            record: &record,
            added: [record.lo_sent, record.hi_sent],
            since_ns: record.first_ns,
            context: FlowContext {
                host: "host",
                capture: "capture",
                node_tid: "tid",
                interface: "eth0",
            },
            parties: Default::default(),
        });
    }
    store.flows().append(&mut batch);
}

/// Numbers of all flows, the last one first.
pub fn numbers(store: &Store) -> Vec<u64> {
    let mut numbers = Vec::new();
    store
        .flows()
        .scan(0, u64::MAX, FlowLookup::All, &mut |flow| {
            let record = &flow.record;
            assert_eq!(
                record.lo_sent.bytes, record.id,
                "a wrong record: {record:?}"
            );
            numbers.push(record.id);
            ControlFlow::Continue(())
        });
    numbers
}

/// The kept graph.
pub fn graph(store: &Store) -> SharedGraph {
    let mut graph = Graph::new(Config {
        history: HistoryLimits {
            max_age: i64::MAX / 4,
            ..HistoryLimits::default()
        },
        ..Config::default()
    });
    store.load_graph(&mut graph).unwrap();
    graph.into()
}

/// Gives the only node a number.
pub fn set_number(graph: &SharedGraph, number: i64) {
    let map = Map::from([("Number", number.into())]);
    let mut graph = graph.write();
    if graph.update_node("n", map.clone(), now_ms()).is_err() {
        graph
            .add_node(Node::new("n", "host", map), now_ms())
            .unwrap();
    }
}

/// The number of the only node, 0 without one.
pub fn number(graph: &SharedGraph) -> i64 {
    let nodes = graph.read().export().nodes;
    let number = nodes
        .first()
        .and_then(|node| node.metadata.get("Number")?.as_int());
    number.unwrap_or(0)
}
