//! Applies the rows to the graph.

use super::{
    OvsCounters, metadata, names,
    state::{BRIDGE, INTERFACE, Key, Kind, PORT, State, now, peer},
};
use crate::Row;
use skua_topology::{Edge, Graph, GraphError, Lookup, Map, Node, Patch, Value};
use std::{collections::HashSet, ops::ControlFlow, sync::Arc, time::Instant};
use uuid::Uuid;

/// Rows whose elements are written under one lock of the graph.
const PART: usize = 256;

/// What is in the graph of a row.
#[derive(Default)]
pub(super) struct Applied {
    pub node: Option<AppliedNode>,
    pub edges: Vec<Link>,
}

pub(super) enum AppliedNode {
    /// A node of ours, and what we wrote there.
    Own(Arc<str>, Map),
    /// Another's node with metadata of ours.
    Other {
        id: Arc<str>,
        /// The type that it had, if it got another.
        kind_before: Option<Value>,
    },
}

impl AppliedNode {
    fn id(&self) -> &Arc<str> {
        match self {
            Self::Own(id, _) | Self::Other { id, .. } => id,
        }
    }
}

/// An edge.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Link {
    id: Arc<str>,
    parent: Arc<str>,
    child: Arc<str>,
    relation: &'static str,
    kind: Option<&'static str>,
}

impl Link {
    fn new(parent: &Arc<str>, child: &Arc<str>, relation: &'static str) -> Self {
        Self {
            id: names::tid(&[parent, child, relation]),
            parent: parent.clone(),
            child: child.clone(),
            relation,
            kind: None,
        }
    }
}

const OWNERSHIP: &str = "ownership";
const LAYER2: &str = "layer2";

/// What should be in the graph of a row.
#[derive(Default)]
struct Desired {
    node: Option<DesiredNode>,
    edges: Vec<Link>,
    /// There may come a node for it.
    waits: bool,
}

enum DesiredNode {
    Own(Arc<str>, Map),
    /// Keys, their values, and whether its type becomes `internal`.
    Other(Arc<str>, &'static [&'static str], Map, bool),
}

impl DesiredNode {
    fn id(&self) -> &Arc<str> {
        match self {
            Self::Own(id, _) | Self::Other(id, ..) => id,
        }
    }
}

/// Whether the kernel never has an interface of this type under this name.
fn is_virtual(kind: &str) -> bool {
    const KINDS: &[&str] = &[
        "patch",
        "vxlan",
        "geneve",
        "gre",
        "ip6gre",
        "erspan",
        "ip6erspan",
        "lisp",
        "stt",
        "gtpu",
        "bareudp",
        "srv6",
    ];
    KINDS.contains(&kind) || kind.starts_with("dpdk")
}

impl State {
    /// Applies all dirty rows to the graph.
    pub fn apply(&mut self) {
        let keys = self.take_dirty();
        if keys.is_empty() {
            return;
        }
        let (graph, now) = (self.graph.clone(), now());
        let mut desired: Vec<(Key, Desired)> = Vec::with_capacity(keys.len());
        for part in keys.chunks(PART) {
            let graph = graph.read();
            desired.extend(part.iter().map(|key| (*key, self.desired(&graph, *key))));
        }
        for part in desired.chunks(PART) {
            let mut graph = graph.write();
            for (key, desired) in part {
                self.remove_edges(&mut graph, *key, desired, now);
            }
        }
        for part in desired.rchunks(PART) {
            let mut graph = graph.write();
            for (key, desired) in part.iter().rev() {
                self.remove_node(&mut graph, *key, desired, now);
            }
        }
        for part in desired.chunks(PART) {
            let mut graph = graph.write();
            for (key, desired) in part {
                self.apply_node(&mut graph, *key, desired, now);
            }
        }
        for part in desired.chunks(PART) {
            let mut graph = graph.write();
            for (key, desired) in part {
                self.apply_edges(&mut graph, *key, desired, now);
            }
        }
        if keys.iter().any(|(kind, _)| *kind == Kind::Bridge) {
            self.tell_bridges();
        }
    }

    pub fn count_applied(&self, mut counters: OvsCounters) -> OvsCounters {
        for ((kind, _), applied) in &self.applied {
            counters.edges += applied.edges.len() as u64;
            match applied.node {
                Some(AppliedNode::Own(..)) => counters.nodes += 1,
                Some(AppliedNode::Other { .. }) if *kind == Kind::Interface => counters.linked += 1,
                _ => {}
            }
        }
        counters
    }

    fn desired(&self, graph: &Graph, key: Key) -> Desired {
        let Some(row) = self.row(key) else {
            return Desired::default();
        };
        let (host, id) = (self.config.host.as_str(), key.1);
        match key.0 {
            Kind::System => Desired {
                node: self.host_node.clone().map(|node| {
                    let ovs = metadata::system(row, self.truth);
                    DesiredNode::Other(node, &["Ovs"], Map::from([("Ovs", ovs.into())]), false)
                }),
                ..Desired::default()
            },
            Kind::Bridge => {
                let node = self.bridge_node(id);
                let of_host = self.host_node.iter();
                Desired {
                    edges: of_host
                        .map(|host| Link::new(host, &node, OWNERSHIP))
                        .collect(),
                    node: Some(DesiredNode::Own(
                        node,
                        metadata::bridge(host, id, row, self.truth),
                    )),
                    waits: false,
                }
            }
            Kind::Port => {
                let node = self.port_node(id);
                let mut edges = Vec::new();
                if let Some(bridge) = self.bridge_of_port(id) {
                    let bridge = self.bridge_node(bridge);
                    edges.push(Link::new(&bridge, &node, OWNERSHIP));
                    edges.push(Link::new(&bridge, &node, LAYER2));
                }
                let node = DesiredNode::Own(node, metadata::port(host, id, row, self.truth));
                Desired {
                    node: Some(node),
                    edges,
                    waits: false,
                }
            }
            Kind::Interface => self.desired_interface(graph, id, row),
        }
    }

    fn desired_interface(&self, graph: &Graph, id: Uuid, row: &Row) -> Desired {
        let kind = metadata::interface_type(row);
        let common = metadata::interface(id, row, self.truth, self.meters.get(&id));
        let port = self.port_of.get(&id).copied();
        let port = port.filter(|port| self.rows.row(PORT, *port).is_some());
        let bridge = port.and_then(|port| self.bridge_of_port(port));
        let kernel = match is_virtual(kind) {
            true => None,
            false => self.kernel_node(graph, id, row),
        };
        let own = kernel.is_none();
        let node = match kernel {
            Some(node) => {
                DesiredNode::Other(node, metadata::INTERFACE_KEYS, common, kind == "internal")
            }
            None if !is_virtual(kind) && self.must_wait(id) => {
                return Desired {
                    waits: true,
                    ..Desired::default()
                };
            }
            None => {
                let parent = bridge.map(|id| names::row_tid(&self.config.host, id, "ovsbridge"));
                let parent = parent.unwrap_or_else(|| names::tid(&[&self.config.host]));
                let metadata = metadata::own_interface(&parent, row, common);
                DesiredNode::Own(self.interface_node(id), metadata)
            }
        };
        let mut edges = Vec::new();
        if let Some(port) = port {
            edges.push(Link::new(&self.port_node(port), node.id(), LAYER2));
        }
        if let Some(bridge) = bridge.filter(|_| own) {
            edges.push(Link::new(&self.bridge_node(bridge), node.id(), OWNERSHIP));
        }
        edges.extend(self.patch_link(id, row));
        Desired {
            node: Some(node),
            edges,
            waits: false,
        }
    }

    /// The edge between two patch ports that name each other; it belongs to the lower one.
    fn patch_link(&self, id: Uuid, row: &Row) -> Option<Link> {
        let other = *self.by_name.get(peer(row)?)?;
        let back = peer(self.rows.row(INTERFACE, other)?)?;
        if id >= other || Some(back) != row.text("name") {
            return None;
        }
        let ends = (self.interface_node(id), self.interface_node(other));
        Some(Link {
            kind: Some("patch"),
            ..Link::new(&ends.0, &ends.1, LAYER2)
        })
    }

    fn bridge_of_port(&self, port: Uuid) -> Option<Uuid> {
        let bridge = *self.bridge_of.get(&port)?;
        self.rows.row(BRIDGE, bridge).map(|_| bridge)
    }

    fn bridge_node(&self, id: Uuid) -> Arc<str> {
        names::row_tid(&self.config.host, id, "ovsbridge")
    }

    fn port_node(&self, id: Uuid) -> Arc<str> {
        names::row_tid(&self.config.host, id, "ovsport")
    }

    fn interface_node(&self, id: Uuid) -> Arc<str> {
        names::row_tid(&self.config.host, id, "ovsinterface")
    }

    /// Whether an interface without a node must wait for one.
    fn must_wait(&self, id: Uuid) -> bool {
        let applied = self.applied.get(&(Kind::Interface, id));
        let own = applied.and_then(|applied| applied.node.as_ref());
        if matches!(own, Some(AppliedNode::Own(..))) || self.config.settle.is_zero() {
            return false;
        }
        let until = self.waiting.get(&id);
        until.is_none_or(|until| Instant::now() < *until)
    }

    fn remove_edges(&mut self, graph: &mut Graph, key: Key, desired: &Desired, now: i64) {
        let Some(applied) = self.applied.get_mut(&key) else {
            return;
        };
        applied.edges.retain(|link| {
            let stays = desired.edges.contains(link);
            if !stays {
                // It may have been removed with a node.
                let _ = graph.delete_edge(&link.id, now);
            }
            stays
        });
    }

    fn remove_node(&mut self, graph: &mut Graph, key: Key, desired: &Desired, now: i64) {
        let Some(applied) = self.applied.get_mut(&key) else {
            return;
        };
        let same = match (&applied.node, &desired.node) {
            (Some(AppliedNode::Own(there, _)), Some(DesiredNode::Own(id, _))) => there == id,
            (Some(AppliedNode::Other { id: there, .. }), Some(DesiredNode::Other(id, ..))) => {
                there == id
            }
            _ => false,
        };
        if !same && let Some(node) = applied.node.take() {
            if self.by_node.get(node.id()) == Some(&key) {
                self.by_node.remove(node.id());
            }
            match node {
                AppliedNode::Own(id, _) => {
                    if graph.delete_node(&id, now).is_ok() {
                        *self.deleted.entry(id).or_default() += 1;
                    }
                }
                AppliedNode::Other { id, kind_before } => {
                    let keys = match key.0 {
                        Kind::System => &["Ovs"],
                        _ => metadata::INTERFACE_KEYS,
                    };
                    strip(graph, &id, keys, kind_before, now);
                }
            }
        }
        if desired.node.is_none() && desired.edges.is_empty() {
            self.applied.remove(&key);
        }
    }

    fn apply_node(&mut self, graph: &mut Graph, key: Key, desired: &Desired, now: i64) {
        if key.0 == Kind::Interface {
            if !desired.waits {
                self.waiting.remove(&key.1);
            } else if !self.waiting.contains_key(&key.1) {
                let until = Instant::now() + self.config.settle;
                self.waiting.insert(key.1, until);
            }
        }
        let Some(node) = &desired.node else { return };
        let applied = self.applied.entry(key).or_default();
        let done = match node {
            DesiredNode::Own(id, metadata) => {
                let before = applied
                    .node
                    .replace(AppliedNode::Own(id.clone(), metadata.clone()));
                let before = match &before {
                    Some(AppliedNode::Own(_, before)) => Some(before),
                    _ => None,
                };
                match rewrite(graph, id, before, metadata, now) {
                    Err(GraphError::NoNode(_)) => {
                        let mut new = Node::new(id, &self.config.host, metadata.clone());
                        new.origin = self.origin.clone();
                        graph.add_node(new, now).map(drop)
                    }
                    other => other,
                }
            }
            DesiredNode::Other(id, keys, metadata, internal) => {
                let before = match applied.node.take() {
                    Some(AppliedNode::Other { kind_before, .. }) => kind_before,
                    _ => None,
                };
                let (done, kind_before) =
                    decorate(graph, id, keys, metadata, *internal, before, now);
                applied.node = Some(AppliedNode::Other {
                    id: id.clone(),
                    kind_before,
                });
                match done {
                    // It was deleted a moment ago; its event is to come.
                    Err(GraphError::NoNode(_)) => Ok(()),
                    other => other,
                }
            }
        };
        self.by_node.insert(node.id().clone(), key);
        let linked = matches!(node, DesiredNode::Other(..)).then(|| node.id());
        self.placed(graph, key, linked);
        if let Err(error) = done {
            self.counters.refused += 1;
            tracing::warn!(target: "ovsdb", "the graph refuses a node of Open vSwitch: {error}");
        }
    }

    fn apply_edges(&mut self, graph: &mut Graph, key: Key, desired: &Desired, now: i64) {
        if desired.edges.is_empty() {
            return;
        }
        let applied = self.applied.entry(key).or_default();
        for link in &desired.edges {
            if applied.edges.contains(link) {
                continue;
            }
            let mut metadata = Map::from([(Edge::RELATION, link.relation.into())]);
            if let Some(kind) = link.kind {
                metadata = metadata.with("Type", kind.into());
            }
            let (parent, child) = (&link.parent, &link.child);
            let mut edge = Edge::new(&link.id, parent, child, &self.config.host, metadata);
            edge.element.origin = self.origin.clone();
            match graph.add_edge(edge, now) {
                Ok(_) | Err(GraphError::EdgeExists(_)) => applied.edges.push(link.clone()),
                // One end was deleted a moment ago, or was refused and counted.
                Err(GraphError::NoEnd { .. }) => {}
                Err(error) => {
                    self.counters.refused += 1;
                    let what = "the graph refuses an edge of Open vSwitch";
                    tracing::warn!(target: "ovsdb", "{what}: {error}");
                }
            }
        }
    }

    /// Removes what a former run left in a graph that was kept.
    pub fn sweep(&mut self) {
        let (mut nodes, mut marked, mut edges) = (Vec::new(), Vec::new(), Vec::new());
        {
            let graph = self.graph.read();
            let window = graph.now();
            let _ = graph.scan_nodes(window, Lookup::All, 0, usize::MAX, &mut |node, _| {
                if self.by_node.contains_key(&node.id) {
                } else if node.origin == self.origin {
                    nodes.push(node.id.clone());
                } else if self.is_link(node) && node.metadata.get("Ovs").is_some() {
                    marked.push(node.id.clone());
                }
                ControlFlow::Continue(())
            });
            let known: HashSet<&Arc<str>> = self
                .applied
                .values()
                .flat_map(|applied| applied.edges.iter().map(|link| &link.id))
                .collect();
            let _ = graph.scan_edges(window, Lookup::All, 0, usize::MAX, &mut |edge, _| {
                let edge = &edge.element;
                if edge.origin == self.origin && !known.contains(&edge.id) {
                    edges.push(edge.id.clone());
                }
                ControlFlow::Continue(())
            });
        }
        let now = now();
        let mut graph = self.graph.write();
        for id in edges {
            let _ = graph.delete_edge(&id, now);
        }
        for id in nodes {
            if graph.delete_node(&id, now).is_ok() {
                *self.deleted.entry(id).or_default() += 1;
            }
        }
        for id in marked {
            strip(&mut graph, &id, metadata::INTERFACE_KEYS, None, now);
        }
    }
}

/// What a node has now; none when there is none.
pub(super) fn metadata_of(graph: &Graph, id: &str) -> Option<Map> {
    let mut found = None;
    let _ = graph.node(id, graph.now(), &mut |node, _| {
        found = Some(node.metadata.clone());
        ControlFlow::Break(())
    });
    found
}

const TYPE: &str = "Type";
const INTERNAL: &str = "internal";

/// Writes `metadata` into a node of ours in the place of what was written `before`; keys of others stay. What an
/// earlier run left is replaced as a whole.
fn rewrite(
    graph: &mut Graph,
    id: &Arc<str>,
    before: Option<&Map>,
    metadata: &Map,
    now: i64,
) -> Result<(), GraphError> {
    let Some(before) = before else {
        return graph.update_node(id, metadata.clone(), now).map(drop);
    };
    let there = metadata_of(graph, id).unwrap_or_default();
    let foreign = |key: &str| before.get(key).is_none() && metadata.get(key).is_none();
    let others = there.iter().filter(|(key, _)| foreign(key));
    let whole = metadata.iter().chain(others);
    let whole = whole.map(|(key, value)| (key.clone(), value.clone()));
    let whole = Map::new(whole.collect());
    graph.update_node(id, whole, now).map(drop)
}

/// Writes `metadata` into another's node, and under `keys` nothing else. `before` is the type that it
/// had when it became internal; also gives back which that is now, none while it is not internal.
fn decorate(
    graph: &mut Graph,
    id: &Arc<str>,
    keys: &[&str],
    metadata: &Map,
    internal: bool,
    before: Option<Value>,
    now: i64,
) -> (Result<(), GraphError>, Option<Value>) {
    let Some(there) = metadata_of(graph, id) else {
        return (Err(GraphError::NoNode(id.clone())), before);
    };
    let mut patches = Vec::new();
    for key in keys {
        match (there.get(key), metadata.get(key)) {
            (before, Some(value)) if before != Some(value) => {
                patches.push(Patch::Set((*key).into(), value.clone()));
            }
            (Some(_), None) => patches.push(Patch::Remove((*key).into())),
            _ => {}
        }
    }
    let kind = there.get(TYPE);
    let is_internal = kind.and_then(Value::as_str) == Some(INTERNAL);
    let kind_before = match (internal, is_internal) {
        (true, true) => before,
        (true, false) => {
            patches.push(Patch::Set(TYPE.into(), INTERNAL.into()));
            kind.cloned().or(before)
        }
        (false, true) => {
            patches.extend(before.map(|kind| Patch::Set(TYPE.into(), kind)));
            None
        }
        (false, false) => None,
    };
    let done = graph.patch_node(id, &patches, now).map(drop);
    (done, kind_before)
}

/// Removes `keys` from another writer's node, and restores its type.
fn strip(graph: &mut Graph, id: &str, keys: &[&str], kind: Option<Value>, now: i64) {
    let Some(there) = metadata_of(graph, id) else {
        return;
    };
    let there_are = keys.iter().filter(|key| there.get(key).is_some());
    let mut patches: Vec<_> = there_are.map(|key| Patch::Remove((*key).into())).collect();
    if let Some(kind) = kind.filter(|_| there.get(TYPE).and_then(Value::as_str) == Some(INTERNAL)) {
        patches.push(Patch::Set(TYPE.into(), kind));
    }
    let _ = graph.patch_node(id, &patches, now);
}
