//! A connection with an agent: the graph that it sends becomes part of ours.

use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError},
};

use anyhow::bail;
use skua_control::elements::ORIGIN;
use skua_topology::{Change, Edge, Export, Graph, GraphError, Map, Node};

use skua_process::host::unix_ms;
use tokio::sync::OwnedSemaphorePermit;

use crate::{
    analyzer::{Fleet, ReportedMetadata},
    protocol::{Flows, FromAgent},
};

/// Nodes and edges of an agent at most.
const ELEMENTS: usize = 1_000_000;

/// Metadata that the analyzer writes to nodes of agents.
const OURS: [&str; 1] = ["Captures"];

/// The graph that an agent has sent whole.
#[derive(Default)]
struct Whole {
    nodes: BTreeMap<Arc<str>, Arc<Node>>,
    edges: BTreeMap<Arc<str>, Arc<Edge>>,
}

/// A connection that has said whose it is.
pub struct Session {
    fleet: Fleet,
    /// Name of its host.
    pub host: Arc<str>,
    number: u64,
    /// The parts that came so far; none when all have come.
    whole: Option<Whole>,
    /// Metadata as the agent has sent them, also by connections before: what else a node has is of others.
    reported: ReportedMetadata,
}

/// Metadata with what others than the agent have written there; `before` is what it sent last.
fn merged(theirs: &Map, before: Option<&Map>, known: &Map) -> Map {
    let of_others = |key: &str| {
        OURS.contains(&key)
            || before.is_some_and(|before| before.get(key).is_none() && theirs.get(key).is_none())
    };
    let theirs_alone = theirs.iter().filter(|(key, _)| !OURS.contains(&&***key));
    let kept = known.iter().filter(|(key, _)| of_others(key));
    let all = theirs_alone.chain(kept);
    Map::new(
        all.map(|(key, value)| (key.clone(), value.clone()))
            .collect(),
    )
}

/// Whether an agent of this host may have made an element.
fn is_of(node: &Node, host: &str) -> bool {
    *node.host == *host && *node.origin != *ORIGIN
}

/// Deletes all that an agent has sent.
pub(crate) fn take_out(graph: &mut Graph, host: &str) -> Result<(), GraphError> {
    let known = graph.export_host(host);
    for node in known.nodes.iter().filter(|node| is_of(node, host)) {
        graph.delete_node(&node.id, unix_ms())?;
    }
    Ok(())
}

/// It went with the last of something else.
fn or_gone(done: Result<(), GraphError>) -> Result<(), GraphError> {
    match done {
        Err(GraphError::NoNode(_) | GraphError::NoEdge(_)) | Ok(()) => Ok(()),
        Err(error) => Err(error),
    }
}

impl Session {
    pub(crate) fn new(
        fleet: Fleet,
        host: Arc<str>,
        number: u64,
        reported: ReportedMetadata,
    ) -> Self {
        Self {
            fleet,
            host,
            number,
            whole: Some(Whole::default()),
            reported,
        }
    }

    /// Waits for its turn among all agents to have a message applied.
    pub async fn turn(&self) -> anyhow::Result<OwnedSemaphorePermit> {
        Ok(self.fleet.turns.clone().acquire_owned().await?)
    }

    /// Applies a message; an error ends the connection.
    pub fn apply(&mut self, message: FromAgent) -> anyhow::Result<()> {
        match message {
            FromAgent::Hello { .. } => bail!("an agent says only once who it is"),
            FromAgent::Sync { graph, last } => self.sync(graph, last),
            FromAgent::Changes(changes) => self.changes(changes),
            FromAgent::States(states) => self.fleet.take_states(&self.host, self.number, states),
            FromAgent::Lost { flow_updates } => {
                self.fleet
                    .take_losses(&self.host, self.number, flow_updates)
            }
        }
    }

    /// Takes flows; returns the number up to which all are taken.
    pub fn take_flows(&self, flows: Flows) -> anyhow::Result<u64> {
        self.fleet.take_flows(&self.host, self.number, flows)
    }

    fn check(&self, node: &Node) -> anyhow::Result<()> {
        if node.host != self.host {
            bail!("{} is of host {}, not of {}", node.id, node.host, self.host);
        }
        if *node.origin == *ORIGIN {
            bail!("{} is said to be made by a user", node.id);
        }
        Ok(())
    }

    fn check_known(&self, node: &Node) -> anyhow::Result<()> {
        if !is_of(node, &self.host) {
            bail!("{} is of others than the agent of {}", node.id, self.host);
        }
        Ok(())
    }

    fn sync(&mut self, part: Export, last: bool) -> anyhow::Result<()> {
        for node in &part.nodes {
            self.check(node)?;
        }
        for edge in &part.edges {
            self.check(&edge.element)?;
        }
        let mut whole = self.whole.take().unwrap_or_default();
        let nodes = part.nodes.into_iter();
        whole
            .nodes
            .extend(nodes.map(|node| (node.id.clone(), node)));
        let edges = part.edges.into_iter();
        let edges = edges.map(|edge| (edge.element.id.clone(), edge));
        whole.edges.extend(edges);
        if whole.nodes.len() + whole.edges.len() > ELEMENTS {
            bail!("a graph of more than {ELEMENTS} nodes and edges");
        }
        if last {
            self.take_whole(whole)
        } else {
            self.whole = Some(whole);
            Ok(())
        }
    }

    /// Changes only what differs, so that the history is not full of what stayed as it was.
    fn take_whole(&self, whole: Whole) -> anyhow::Result<()> {
        let mut graph = self.fleet.graph.write();
        self.fleet.is_current(&self.host, self.number)?;
        let known = graph.export_host(&self.host);
        for edge in known.edges.iter().filter(|e| is_of(&e.element, &self.host)) {
            if !whole.edges.contains_key(&edge.element.id) {
                graph.delete_edge(&edge.element.id, unix_ms())?;
            }
        }
        for node in known.nodes.iter().filter(|n| is_of(n, &self.host)) {
            if !whole.nodes.contains_key(&node.id) {
                graph.delete_node(&node.id, unix_ms())?;
            }
        }
        let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        reported.retain(|id, _| whole.nodes.contains_key(id) || whole.edges.contains_key(id));
        drop(reported);
        for node in whole.nodes.into_values() {
            self.put_node(&mut graph, &node)?;
        }
        for edge in whole.edges.into_values() {
            self.put_edge(&mut graph, &edge)?;
        }
        Ok(())
    }

    fn changes(&self, changes: Vec<Change>) -> anyhow::Result<()> {
        if self.whole.is_some() {
            bail!("changes come after the whole graph");
        }
        let mut graph = self.fleet.graph.write();
        self.fleet.is_current(&self.host, self.number)?;
        changes
            .into_iter()
            .try_for_each(|change| self.change(&mut graph, change))
    }

    /// Remembers the metadata that the agent has sent of an element, and returns those that it sent before.
    fn remember(&self, node: &Node) -> anyhow::Result<Option<Map>> {
        let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        if reported.len() >= ELEMENTS && !reported.contains_key(&node.id) {
            bail!("a graph of more than {ELEMENTS} nodes and edges");
        }
        Ok(reported.insert(node.id.clone(), node.metadata.clone()))
    }

    fn forget(&self, id: &str) {
        let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        reported.remove(id);
    }

    fn put_node(&self, graph: &mut Graph, node: &Node) -> anyhow::Result<()> {
        let before = self.remember(node)?;
        match graph.current_node(&node.id) {
            Some(known) => {
                self.check_known(&known)?;
                let metadata = merged(&node.metadata, before.as_ref(), &known.metadata);
                graph.update_node(&node.id, metadata, unix_ms())?;
            }
            None => {
                let mut node = node.clone();
                node.deleted_at = None;
                node.metadata = merged(&node.metadata, None, &Map::default());
                graph.add_node(node, unix_ms())?;
            }
        }
        Ok(())
    }

    fn put_edge(&self, graph: &mut Graph, edge: &Edge) -> anyhow::Result<()> {
        let id = &edge.element.id;
        let before = self.remember(&edge.element)?;
        if let Some(known) = graph.current_edge(id) {
            self.check_known(&known.element)?;
            if known.parent == edge.parent && known.child == edge.child {
                let theirs = &edge.element.metadata;
                let metadata = merged(theirs, before.as_ref(), &known.element.metadata);
                graph.update_edge(id, metadata, unix_ms())?;
                return Ok(());
            }
            graph.delete_edge(id, unix_ms())?;
        }
        for end in [&edge.parent, &edge.child] {
            if let Some(node) = graph.current_node(end) {
                self.check_known(&node)?;
            }
        }
        let mut edge = edge.clone();
        edge.element.deleted_at = None;
        graph.add_edge(edge, unix_ms())?;
        Ok(())
    }

    fn change(&self, graph: &mut Graph, change: Change) -> anyhow::Result<()> {
        self.check(change.element())?;
        match change {
            Change::NodeAdded(node) | Change::NodeUpdated(node) => self.put_node(graph, &node)?,
            Change::EdgeAdded(edge) | Change::EdgeUpdated(edge) => self.put_edge(graph, &edge)?,
            Change::NodeDeleted(node) => {
                if let Some(known) = graph.current_node(&node.id) {
                    self.check_known(&known)?;
                }
                self.forget(&node.id);
                or_gone(graph.delete_node(&node.id, unix_ms()))?;
            }
            Change::EdgeDeleted(edge) => {
                let id = &edge.element.id;
                if let Some(known) = graph.current_edge(id) {
                    self.check_known(&known.element)?;
                }
                self.forget(id);
                or_gone(graph.delete_edge(id, unix_ms()))?;
            }
        }
        Ok(())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.fleet.disconnect(&self.host, self.number);
    }
}
