//! Any bytes as the body of a request that makes or changes something: it is refused with one line, or
//! made, listed and gone again. Actions of alerts are never carried out, and nothing is injected: no
//! query finds anything that has an interface.

#![no_main]

use libfuzzer_sys::fuzz_target;
use serde::de::DeserializeOwned;
use skua_control::{
    Resources,
    alert::{ActionSettings, AlertManager},
    capture::{Capture, CaptureManager, CaptureRunner, Running},
    elements::UserGraph,
    injection::{InjectionLimits, Injections},
};
use skua_query::{Answer, Limits};
use skua_sources::Querier;
use skua_topology::{Config, Graph, Map, Node, SharedGraph};
use std::sync::{Arc, LazyLock, atomic::AtomicBool};

/// Nobody finds anything, so no alert fires.
struct Nothing;

impl Querier for Nothing {
    fn ask(&self, _: &str, _: Limits, _: &AtomicBool) -> Result<Answer, String> {
        Err("nobody is here to answer".into())
    }
}

impl CaptureRunner for Nothing {
    fn check(&self, _: &Capture) -> Result<(), String> {
        Ok(())
    }
    fn start(&self, _: &Capture) -> Result<Box<dyn Running>, String> {
        Err("no captures here".into())
    }
}

struct Managers {
    captures: CaptureManager,
    alerts: AlertManager,
    elements: UserGraph,
    injections: Injections,
}

static MANAGERS: LazyLock<Managers> = LazyLock::new(|| {
    let mut graph = Graph::new(Config::default());
    let map = Map::from([("Name", "here".into()), ("Type", "host".into())]);
    let node = Node::new("host", "host", map);
    graph.add_node(node, 1).expect("a new node");
    let graph: SharedGraph = graph.into();
    let none = "no file is read";
    let captures = Resources::open(None, 16);
    let alerts = Resources::open(None, 16);
    let settings = ActionSettings::default();
    Managers {
        captures: CaptureManager::start(graph.clone(), captures, Arc::new(Nothing))
            .expect("a thread"),
        alerts: AlertManager::start(&graph, Arc::new(Nothing), alerts, settings).expect("a thread"),
        elements: UserGraph::start(&graph, |_| None).expect(none),
        injections: Injections::new(graph, "here", InjectionLimits::default()),
    }
});

/// As the API reads it; an error is one line.
fn object<T: DeserializeOwned>(body: &[u8]) -> Option<T> {
    serde_json::from_slice(body).map_err(one_line).ok()
}

fn one_line(error: impl std::fmt::Display) {
    let text = error.to_string();
    assert!(!text.is_empty() && text.len() < 64 << 10);
}

fuzz_target!(|data: &[u8]| {
    let [kind, body @ ..] = data else { return };
    let all = &*MANAGERS;
    match kind % 8 {
        0 => {
            let Some(capture) = object(body) else { return };
            match all.captures.create(capture) {
                Ok(capture) => {
                    let id = capture.uuid.to_string();
                    all.captures.get(&id).expect("it was made");
                    all.captures.delete(&id).expect("it was there");
                }
                Err(error) => one_line(error),
            }
        }
        1 => {
            let Some(alert) = object(body) else { return };
            match all.alerts.create(alert) {
                Ok(alert) => drop(all.alerts.delete(&alert.uuid.to_string())),
                Err(error) => one_line(error),
            }
        }
        2 => {
            let Some(patch) = object(body) else { return };
            let plain = serde_json::json!({ "Expression": "G.V()" });
            let alert = serde_json::from_value(plain).expect("an alert");
            let id = match all.alerts.create(alert) {
                Ok(alert) => alert.uuid.to_string(),
                Err(error) => panic!("{error}"),
            };
            let _ = all.alerts.patch(&id, &patch).map_err(one_line);
            all.alerts.delete(&id).expect("it was there");
        }
        3 => {
            let Some(node) = object(body) else { return };
            match all.elements.create_node(node) {
                Ok(node) => all.elements.delete_node(&node.id).expect("it was there"),
                Err(error) => one_line(error),
            }
        }
        4 => {
            let Some(rule) = object(body) else { return };
            match all.elements.create_node_rule(rule) {
                Ok(rule) => {
                    let id = rule.uuid.to_string();
                    all.elements.delete_node_rule(&id).expect("it was there");
                }
                Err(error) => one_line(error),
            }
        }
        5 => {
            let Some(rule) = object(body) else { return };
            match all.elements.create_edge_rule(rule) {
                Ok(rule) => {
                    let id = rule.uuid.to_string();
                    all.elements.delete_edge_rule(&id).expect("it was there");
                }
                Err(error) => one_line(error),
            }
        }
        6 => {
            let Some(export) = object(body) else { return };
            let _ = all.elements.import(&export).map_err(one_line);
            // The host is among them, and stays.
            for node in all.elements.nodes() {
                let _ = all.elements.delete_node(&node.id).map_err(one_line);
            }
            assert_eq!(all.elements.nodes().len(), 1);
            for edge in all.elements.edges() {
                let _ = all.elements.delete_edge(&edge.element.id).map_err(one_line);
            }
        }
        _ => {
            let Some(injection) = object(body) else {
                return;
            };
            let _ = all.injections.create(injection, "fuzz").map_err(one_line);
        }
    }
});
