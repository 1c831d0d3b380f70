//! A graph that discovery fills, and what iproute2 says of the same namespaces.
#![allow(dead_code)]

pub mod truth;

use skua_discover::{Counters, Discovery, DiscoveryConfig};
use skua_topology::{
    Change, Config, Delivery, Direction, Graph, Lookup, Map, Node, SharedGraph, Subscription, Value,
};
use std::{
    ops::ControlFlow,
    sync::Arc,
    time::{Duration, Instant},
};

/// After that a test fails for good.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A graph, discovery, and its events.
pub struct Lab {
    pub graph: SharedGraph,
    pub discovery: Discovery,
    events: Subscription,
}

/// Settings that look into all namespaces.
pub fn config() -> DiscoveryConfig {
    DiscoveryConfig {
        host: "lab".into(),
        all_netns: true,
        ..DiscoveryConfig::default()
    }
}

impl Lab {
    pub fn start(config: DiscoveryConfig) -> Self {
        Self::on(SharedGraph::new(Config::default()), config)
    }

    pub fn on(graph: SharedGraph, config: DiscoveryConfig) -> Self {
        let events = graph.write().subscribe(1_000_000);
        let discovery = Discovery::start(config, graph.clone()).unwrap();
        Self {
            graph,
            discovery,
            events,
        }
    }

    /// The next change, if one comes within `patience`.
    pub fn next(&self, patience: Duration) -> Option<Change> {
        match self.events.next(patience)? {
            Delivery::Event(event) => Some(event.change.clone()),
            Delivery::Lost(lost) => panic!("{lost} events lost in the test"),
        }
    }

    /// Waits until `done` says so of the graph, looking again with each change.
    pub fn until<T>(&self, what: &str, done: impl Fn(&Graph) -> Option<T>) -> T {
        let begun = Instant::now();
        loop {
            if let Some(found) = done(&self.graph.read()) {
                return found;
            }
            assert!(
                begun.elapsed() < PATIENCE,
                "never came: {what}; {:?}",
                self.discovery.counters()
            );
            self.next(Duration::from_millis(200));
        }
    }

    /// Waits until `done` says so of the counters: they follow what they count.
    pub fn until_counted(&self, what: &str, done: impl Fn(&Counters) -> bool) {
        self.until(what, |_| done(&self.discovery.counters()).then_some(()));
    }

    /// Waits until the interface has `value` under `key`.
    pub fn until_has(&self, namespace: &str, name: &str, key: &str, value: Value) -> Arc<Node> {
        self.until(
            &format!("{key} {value:?} of {name} in {namespace}"),
            |graph| {
                let node = interface(graph, namespace, name)?;
                let found = node.lookup(key).map(|found| found.into_owned());
                (found.unwrap_or_default() == value).then_some(node)
            },
        )
    }

    /// Waits until there is the interface.
    pub fn until_there(&self, namespace: &str, name: &str) -> Arc<Node> {
        self.until(&format!("{name} in {namespace}"), |graph| {
            interface(graph, namespace, name)
        })
    }

    /// Waits until there is no such interface.
    pub fn until_gone(&self, namespace: &str, name: &str) {
        self.until(&format!("the end of {name} in {namespace}"), |graph| {
            interface(graph, namespace, name).is_none().then_some(())
        });
    }

    /// Waits until there is the namespace.
    pub fn until_followed(&self, namespace: &str) -> Arc<Node> {
        // With its loopback interface all of it is there.
        self.until_there(namespace, "lo");
        self.until(namespace, |graph| namespace_node(graph, namespace))
    }

    /// Waits until the graph is what iproute2 says of these namespaces.
    pub fn until_true(&self, namespaces: &[&str]) {
        self.until_true_with(namespaces, |_| {});
    }

    /// As [`Lab::until_true`], with the changes meanwhile.
    pub fn until_true_with(&self, namespaces: &[&str], mut on_change: impl FnMut(Change)) {
        let begun = Instant::now();
        loop {
            let said: Vec<_> = namespaces.iter().map(|name| truth::said(name)).collect();
            let seen: Vec<_> = namespaces
                .iter()
                .map(|name| truth::seen(&self.graph.read(), name))
                .collect();
            if said == seen {
                return;
            }
            if begun.elapsed() > PATIENCE {
                println!("{:?}", self.discovery.counters());
                for (said, seen) in said.iter().zip(&seen) {
                    truth::assert_same(said, seen);
                }
            }
            // The first change may be long in coming, further ones come with it.
            let mut patience = Duration::from_millis(200);
            while let Some(change) = self.next(patience) {
                on_change(change);
                patience = Duration::ZERO;
            }
        }
    }
}

/// All nodes now.
pub fn nodes(graph: &Graph) -> Vec<Arc<Node>> {
    let mut nodes = Vec::new();
    let now = graph.now();
    graph
        .scan_nodes(now, Lookup::All, 0, usize::MAX, &mut |node, _| {
            nodes.push(node.clone());
            ControlFlow::Continue(())
        })
        .unwrap();
    nodes
}

pub fn text<'a>(metadata: &'a Map, key: &str) -> &'a str {
    metadata.get(key).and_then(Value::as_str).unwrap_or("")
}

/// The node of a namespace with this name.
pub fn namespace_node(graph: &Graph, name: &str) -> Option<Arc<Node>> {
    nodes(graph).into_iter().find(|node| {
        text(&node.metadata, "Type") == "netns" && text(&node.metadata, "Name") == name
    })
}

/// The interfaces that a namespace owns.
pub fn interfaces(graph: &Graph, namespace: &str) -> Vec<Arc<Node>> {
    let mut found = Vec::new();
    let Some(owner) = namespace_node(graph, namespace) else {
        return found;
    };
    let now = graph.now();
    let _ = graph
        .neighbours(&owner.id, now, Direction::Out, &mut |node, _| {
            found.push(node.clone());
            ControlFlow::Continue(())
        })
        .unwrap();
    found
}

/// An interface of a namespace.
pub fn interface(graph: &Graph, namespace: &str, name: &str) -> Option<Arc<Node>> {
    interfaces(graph, namespace)
        .into_iter()
        .find(|node| text(&node.metadata, "Name") == name)
}

/// The `layer2` edges of a node as (parent's name, child's name, Type).
pub fn layer2(graph: &Graph, id: &str) -> Vec<(String, String, String)> {
    let mut found = Vec::new();
    let now = graph.now();
    let name = |id: &str| {
        let mut name = String::new();
        let _ = graph
            .node(id, now, &mut |node, _| {
                name = text(&node.metadata, "Name").to_owned();
                ControlFlow::Break(())
            })
            .unwrap();
        name
    };
    let _ = graph
        .edges(id, now, Direction::Both, Some("layer2"), &mut |edge, _| {
            let kind = text(&edge.element.metadata, "Type").to_owned();
            found.push((name(&edge.parent), name(&edge.child), kind));
            ControlFlow::Continue(())
        })
        .unwrap();
    found.sort();
    found
}
