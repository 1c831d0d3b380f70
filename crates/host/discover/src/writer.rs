//! How a provider writes into the graph.

use crate::{counters, counters::Shared, ident};
use skua_topology::{Edge, Graph, GraphError, Map, Node, SharedGraph, Value};
use std::{
    collections::{HashMap, HashSet},
    ops::ControlFlow,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

/// Most lives of identifiers that are remembered; beyond that the graph is searched again.
const MOST_LIVES: usize = 65_536;

/// Ms since the Unix epoch.
pub(crate) fn now_ms() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |since| since.as_millis() as i64)
}

const TYPE: &str = "Type";

/// Whether another provider says that this is an internal port of Open vSwitch.
fn is_internal(metadata: &Map) -> bool {
    const INTERNAL: Option<&str> = Some("internal");
    let kind = metadata.get(TYPE).and_then(Value::as_str);
    let port = metadata.get("Ovs").and_then(Value::as_map);
    kind == INTERNAL && port.and_then(|ovs| ovs.get(TYPE)).and_then(Value::as_str) == INTERNAL
}

/// A node's parent, and the edge to it; none before it has one.
pub(crate) type Hangs = Option<(Arc<str>, Arc<str>)>;

/// The nodes and edges of one provider in the graph.
pub(crate) struct Writer {
    graph: SharedGraph,
    host: Arc<str>,
    origin: Arc<str>,
    most: usize,
    nodes: usize,
    edges: HashSet<Arc<str>>,
    /// Nodes that an earlier run left and that were not found again yet.
    left: HashSet<Arc<str>>,
    /// Edges of an earlier run, likewise.
    left_edges: HashSet<Arc<str>>,
    /// How many lives of an identifier are over, by its hash.
    lives: HashMap<u64, u32>,
    counters: Arc<Shared>,
}

impl Writer {
    /// For the provider `name` on `host`. Nodes that an earlier run left in the graph are adopted as they
    /// are found again; the rest is removed by [`Writer::settle`].
    pub fn new(
        graph: SharedGraph,
        host: &str,
        name: &str,
        most: usize,
        counters: Arc<Shared>,
    ) -> Self {
        let origin: Arc<str> = format!("{name}.{host}").into();
        let export = graph.read().export();
        let ours = |node: &Node| node.origin == origin && &*node.host == host;
        let left = export.nodes.iter().filter(|node| ours(node));
        let left_edges = export.edges.iter().filter(|edge| ours(&edge.element));
        Self {
            left: left.map(|node| node.id.clone()).collect(),
            left_edges: left_edges.map(|edge| edge.element.id.clone()).collect(),
            graph,
            host: host.into(),
            origin,
            most,
            nodes: 0,
            edges: HashSet::new(),
            lives: HashMap::new(),
            counters,
        }
    }

    /// Adds a node, whose identifier is made of `identity`; none when the limit was reached. Of a node that
    /// an earlier run left only the keys in `owned` are replaced.
    pub fn add_node(&mut self, identity: &str, owned: &[&str], metadata: Map) -> Option<Arc<str>> {
        if self.nodes >= self.most {
            counters::add(&self.counters.omitted_nodes, 1);
            return None;
        }
        let (id, exists) = self.identifier(identity);
        if exists {
            self.nodes += 1;
            self.set_node(&id, owned, metadata);
            return Some(id);
        }
        let mut node = Node::new(&id, &self.host, metadata);
        node.origin = self.origin.clone();
        match self.graph.write().add_node(node, now_ms()) {
            Ok(node) => {
                self.nodes += 1;
                Some(node.id.clone())
            }
            Err(error) => {
                counters::add(&self.counters.omitted_nodes, 1);
                tracing::debug!(%error, "the graph takes no further node");
                None
            }
        }
    }

    /// The identifier for a new life, and whether the graph has that node already, of an earlier run.
    fn identifier(&mut self, identity: &str) -> (Arc<str>, bool) {
        let hash = fnv(identity);
        let mut life = self.lives.get(&hash).copied().unwrap_or(0);
        let graph = self.graph.read();
        let found = loop {
            let id = match life {
                0 => ident::uuid(&format!("{}/{identity}", self.host)),
                life => ident::uuid(&format!("{}/{identity}#{life}", self.host)),
            };
            if self.left.remove(&id) {
                break (id, true);
            }
            if !was_used(&graph, &id) {
                break (id, false);
            }
            life += 1;
        };
        if life > 0 {
            if self.lives.len() >= MOST_LIVES {
                self.lives.clear();
            }
            self.lives.insert(hash, life);
        }
        found
    }

    /// Gives a node these values under the keys in `owned`, and none under those of them that have none;
    /// keys of others stay.
    pub fn set_node(&mut self, id: &str, owned: &[&str], metadata: Map) {
        let mut graph = self.graph.write();
        let now = graph.now();
        let mut merged = metadata;
        let found_node = graph.node(id, now, &mut |node, _| {
            // Only Open vSwitch knows that a tap is one of its internal ports, and sets its type.
            let internal = is_internal(&node.metadata);
            let foreign = |name: &str| !owned.contains(&name) || (internal && name == TYPE);
            let others = node.metadata.iter().filter(|(name, _)| foreign(name));
            let mut others = others.peekable();
            if others.peek().is_some() {
                let own = merged
                    .iter()
                    .filter(|(name, _)| !internal || &***name != TYPE);
                let own = own.chain(others);
                merged = Map::new(
                    own.map(|(name, value)| (name.clone(), value.clone()))
                        .collect(),
                );
            }
            ControlFlow::Break(())
        });
        let written = found_node.and_then(|_| graph.update_node(id, merged, now_ms()));
        drop(graph);
        self.check(written.map(drop));
    }

    /// Deletes a node with its edges.
    pub fn remove_node(&mut self, id: &str) {
        let mut graph = self.graph.write();
        let now = graph.now();
        let edges = &mut self.edges;
        let direction = skua_topology::Direction::Both;
        let _ = graph.edges(id, now, direction, None, &mut |edge, _| {
            edges.remove(&edge.element.id);
            ControlFlow::Continue(())
        });
        let deleted = graph.delete_node(id, now_ms());
        drop(graph);
        self.nodes = self.nodes.saturating_sub(1);
        self.check(deleted);
    }

    /// Adds an edge with this relation, and its identifier.
    pub fn add_edge(
        &mut self,
        parent: &str,
        child: &str,
        relation: &str,
        kind: Option<&str>,
    ) -> Option<Arc<str>> {
        let id = ident::uuid(&format!("{parent}{child}{relation}"));
        if self.edges.contains(&id) {
            return Some(id);
        }
        let mut metadata = vec![(Edge::RELATION.into(), relation.into())];
        metadata.extend(kind.map(|kind| (TYPE.into(), Value::from(kind))));
        let metadata = Map::new(metadata);
        let written = if self.left_edges.remove(&id) {
            self.graph
                .write()
                .update_edge(&id, metadata, now_ms())
                .map(drop)
        } else {
            let mut edge = Edge::new(&id, parent, child, &self.host, metadata);
            edge.element.origin = self.origin.clone();
            self.graph.write().add_edge(edge, now_ms()).map(drop)
        };
        if self.check(written) {
            self.edges.insert(id.clone());
            return Some(id);
        }
        None
    }

    /// Deletes an edge that is there.
    pub fn remove_edge(&mut self, id: &str) {
        if self.edges.remove(id) {
            let deleted = self.graph.write().delete_edge(id, now_ms());
            self.check(deleted);
        }
    }

    /// Puts a node below `parent` by one edge; `hangs` is the previous parent and edge, which may have been
    /// removed: parents belong to other writers.
    pub fn hang(&mut self, hangs: &mut Hangs, parent: &Arc<str>, child: &str, relation: &str) {
        if let Some((before, edge)) = hangs.take() {
            let there = self.graph.read().current_edge(&edge).is_some();
            if there && before == *parent {
                *hangs = Some((before, edge));
                return;
            }
            self.drop_edge(&edge);
        }
        let edge = self.add_edge(parent, child, relation, None);
        *hangs = edge.map(|edge| (parent.clone(), edge));
    }

    /// Deletes an edge, which may have been removed with one of its ends.
    pub fn drop_edge(&mut self, id: &str) {
        if self.graph.read().current_edge(id).is_some() {
            self.remove_edge(id);
        } else {
            self.edges.remove(id);
        }
    }

    /// Deletes what an earlier run left and this one has not found.
    pub fn settle(&mut self) {
        let mut graph = self.graph.write();
        for id in self.left_edges.drain() {
            let _ = graph.delete_edge(&id, now_ms());
        }
        for id in self.left.drain() {
            let _ = graph.delete_node(&id, now_ms());
        }
    }

    /// Whether the limit of nodes is reached.
    pub fn is_full(&self) -> bool {
        self.nodes >= self.most
    }

    /// Other writers may delete our nodes, and the graph has limits: neither may end discovery.
    fn check(&self, written: Result<(), GraphError>) -> bool {
        if let Err(error) = &written {
            counters::add(&self.counters.errors, 1);
            tracing::debug!(%error, "the graph refused a change");
        }
        written.is_ok()
    }
}

/// Whether the graph has or remembers a node of this identifier.
fn was_used(graph: &Graph, id: &str) -> bool {
    let Ok(all) = graph.between(i64::MAX, i64::MAX) else {
        return false;
    };
    let mut used = false;
    let _ = graph.node(id, all, &mut |_, _| {
        used = true;
        ControlFlow::Break(())
    });
    used
}

/// FNV-1a, 64 bits: only to remember where to continue.
fn fnv(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
