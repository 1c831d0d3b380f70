//! A query sees one moment, though others change the graph while it runs.

#![allow(clippy::unwrap_used)]

use skua_query::{Answer, Sources, query};
use skua_topology::{Config, Map, Node, Patch, SharedGraph, Value};
use std::sync::{
    Barrier,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

/// So many that a scan takes the lock several times.
const NODES: usize = 5_000;

/// A token is taken from one node and then given to another: at no moment two have it.
#[test]
fn a_scan_never_sees_two_moments() {
    let graph = SharedGraph::new(Config::default());
    for id in 0..NODES {
        let node = Node::new(&id.to_string(), "host", Map::default());
        graph.write().add_node(node, 1).unwrap();
    }
    let token = |id: usize, patch: Patch, time: u64| {
        graph
            .write()
            .patch_node(&id.to_string(), &[patch], time as i64)
            .unwrap();
    };
    token(0, Patch::Set("Token".into(), Value::Bool(true)), 2);
    let (done, moves, start) = (AtomicBool::new(false), AtomicU64::new(0), Barrier::new(2));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut at = 0;
            start.wait();
            while !done.load(Ordering::Relaxed) {
                let next = (at + 1_237) % NODES;
                let time = 3 + moves.fetch_add(1, Ordering::Relaxed);
                token(at, Patch::Remove("Token".into()), time);
                token(next, Patch::Set("Token".into(), Value::Bool(true)), time);
                at = next;
            }
        });
        start.wait();
        let mut asked = 0;
        // Until enough has happened meanwhile to have been seen.
        while asked < 40 || moves.load(Ordering::Relaxed) < 500 {
            let text = "G.V().Has('Token', TRUE).Count()";
            let Answer::Value(Value::Int(count)) = query(text, Sources::graph(&graph), 0).unwrap()
            else {
                panic!("a count is a number");
            };
            if count > 1 {
                done.store(true, Ordering::Relaxed);
                panic!("{count} nodes have the token at one moment");
            }
            asked += 1;
        }
        done.store(true, Ordering::Relaxed);
    });
}
