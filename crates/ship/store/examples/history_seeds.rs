//! Writes files of a small history, and what is in their frames, as seeds for fuzzing.

#![allow(clippy::unwrap_used)]

use skua_flow::{Counters, FlowRecord, FlowUpdate};
use skua_store::{FlowBatch, FlowChange, FlowContext, GraphJournal, Store, StoreConfig};
use skua_topology::{Config, Edge, Map, Node, SharedGraph};
use std::{fs, path::PathBuf, time::Duration};

const PATIENCE: Duration = Duration::from_secs(60);

fn main() {
    let seeds = PathBuf::from(std::env::args_os().nth(1).unwrap());
    fs::create_dir_all(&seeds).unwrap();
    let dir = std::env::temp_dir().join(format!("skua-history-seeds-{}", std::process::id()));
    let store = Store::open(&dir, StoreConfig::default()).unwrap();
    let graph = SharedGraph::new(Config::default());
    for id in ["a", "b"] {
        let map = Map::from([("Name", id.into()), ("IfIndex", 2.into())]);
        graph
            .write()
            .add_node(Node::new(id, "host", map), 1_000)
            .unwrap();
    }
    let journal = GraphJournal::start(&store, &graph).unwrap();
    let map = Map::from([("RelationType", "layer2".into())]);
    graph
        .write()
        .add_edge(Edge::new("ab", "a", "b", "host", map), 2_000)
        .unwrap();
    graph.write().delete_node("a", 3_000).unwrap();
    assert!(journal.flush(PATIENCE));
    let mut batch = FlowBatch::new();
    for number in 1..20 {
        let update = FlowUpdate {
            lo_sent: Counters::new(number, number * 100),
            first_ns: number * 1_000_000,
            last_ns: number * 2_000_000,
            ..FlowUpdate::default()
        };
        let record = FlowRecord::new(&update, number, 1, 50_000_000, 1_000_000_000);
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
    assert!(store.flows().flush(PATIENCE));
    drop(journal);
    drop(store);
    for log in ["graph", "flows"] {
        for (number, file) in fs::read_dir(dir.join(log)).unwrap().enumerate() {
            let path = file.unwrap().path();
            fs::copy(&path, seeds.join(format!("{log}-{number}"))).unwrap();
            let mut frames = 0;
            skua_store::check::payloads(&path, &mut |payload| {
                frames += 1;
                let name = format!("{log}-{number}-frame-{frames}");
                fs::write(seeds.join(name), payload).unwrap();
            });
        }
    }
    fs::remove_dir_all(dir).unwrap();
}
