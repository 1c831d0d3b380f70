//! What users have made, kept over restarts.

use super::{
    EdgeRule, ElementError, NodeRule, ORIGIN, RuleAction, UserEdge, UserNode,
    apply::{Applied, RuleStatus, Wanted, edge_now, merged, node_now},
    derived,
};
use crate::{
    follow::{Follower, Signal},
    resource::{Resource as _, ResourceError, Resources},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use skua_sources::ask::{check_nodes, unix_ms};
use skua_topology::{Edge, Export, Lookup, Map, Node, SharedGraph, Value};
use std::{
    ops::ControlFlow,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use utoipa::ToSchema;
use uuid::Uuid;

/// What users may make at most.
const MAX_NODES: usize = 100_000;
const MAX_EDGES: usize = 200_000;
const MAX_RULES: usize = 1_000;

/// Elements that are listed under one lock.
const PART: usize = 1_024;

/// Elements that a list shows at most.
const MAX_LISTED: usize = 200_000;

/// Metadata that says which node it is.
const FIXED: [&str; 3] = ["Name", "Type", "TID"];

/// Time without a change until the next round.
const PATIENCE: Duration = Duration::from_secs(60);

/// A node that is to be made, as Skydive's clients send it; what they send besides is passed over.
#[derive(Clone, PartialEq, Debug, Default, Deserialize, ToSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct NewNode {
    /// Identifier; one is made when there is none.
    #[serde(rename = "ID")]
    pub id: String,
    /// `Name` and `Type` at least.
    pub metadata: Map,
    /// Host that it belongs to.
    pub host: String,
    /// Revision that it begins with, 1 when there is none.
    pub revision: Option<u32>,
}

/// An edge that is to be made.
#[derive(Clone, PartialEq, Debug, Default, Deserialize, ToSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct NewEdge {
    /// Identifier; one is made when there is none.
    #[serde(rename = "ID")]
    pub id: String,
    /// `RelationType` at least.
    pub metadata: Map,
    /// Host that it belongs to.
    pub host: String,
    /// Node that it goes out of.
    pub parent: String,
    /// Node that it goes into.
    pub child: String,
    /// Revision that it begins with, 1 when there is none.
    pub revision: Option<u32>,
}

/// What happened to an import.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, ToSchema)]
#[serde(rename_all = "PascalCase")]
pub struct Imported {
    /// Nodes that were not there.
    pub nodes: usize,
    /// Edges that were not there.
    pub edges: usize,
    /// Nodes and edges that were there already, and were left as they are.
    pub known: usize,
    /// Edges that wait for one of their nodes.
    pub waiting: usize,
}

struct Inner {
    graph: SharedGraph,
    nodes: Resources<UserNode>,
    edges: Resources<UserEdge>,
    node_rules: Resources<NodeRule>,
    edge_rules: Resources<EdgeRule>,
    applied: Mutex<Applied>,
}

/// Nodes, edges and rules of users.
pub struct UserGraph {
    inner: Arc<Inner>,
    _follower: Follower,
}

fn wrong(error: impl std::fmt::Display) -> ElementError {
    ElementError::Wrong(error.to_string())
}

fn unknown(kind: &'static str, id: &str) -> ElementError {
    let id = id.chars().filter(|c| !c.is_control()).take(64).collect();
    ResourceError::Unknown { kind, id }.into()
}

/// What is missing among metadata.
fn needs(metadata: &Map, names: &[&str]) -> Result<(), ElementError> {
    let text = |name: &str| metadata.get(name).and_then(Value::as_str);
    match names
        .iter()
        .find(|name| text(name).is_none_or(str::is_empty))
    {
        Some(name) => Err(wrong(format_args!("Metadata needs a {name}, a text"))),
        None => Ok(()),
    }
}

/// What a JSON patch (RFC 6902) of an element makes of its metadata; as in Skydive, all else stays.
fn patched(element: &impl Serialize, patch: &json_patch::Patch) -> Result<Map, ElementError> {
    let mut object = serde_json::to_value(element).map_err(wrong)?;
    crate::patch::apply(&mut object, patch).map_err(wrong)?;
    match object.get_mut("Metadata") {
        Some(metadata) => serde_json::from_value(metadata.take()).map_err(wrong),
        None => Err(wrong("Metadata is missing")),
    }
}

/// A JSON patch of a resource.
fn patched_resource<T: Serialize + DeserializeOwned>(
    before: &T,
    patch: &json_patch::Patch,
) -> Result<T, ElementError> {
    let mut value = serde_json::to_value(before).map_err(wrong)?;
    crate::patch::apply(&mut value, patch).map_err(wrong)?;
    serde_json::from_value(value).map_err(wrong)
}

impl UserGraph {
    /// Makes what was kept, and follows rules from now on. `file` says where things of a kind are
    /// kept: `nodes`, `edges`, `noderules`, `edgerules`.
    ///
    /// # Errors
    /// There is no thread.
    pub fn start(
        graph: &SharedGraph,
        file: impl Fn(&str) -> Option<PathBuf>,
    ) -> Result<Self, ResourceError> {
        let inner = Arc::new(Inner {
            graph: graph.clone(),
            nodes: Resources::open(file("nodes").as_deref(), MAX_NODES),
            edges: Resources::open(file("edges").as_deref(), MAX_EDGES),
            node_rules: Resources::open(file("noderules").as_deref(), MAX_RULES),
            edge_rules: Resources::open(file("edgerules").as_deref(), MAX_RULES),
            applied: Mutex::default(),
        });
        inner.sweep();
        inner.apply();
        let theirs = inner.clone();
        let round = move |_| {
            theirs.apply();
            PATIENCE
        };
        let follower = Follower::start("elements", graph, Arc::new(Signal::default()), round);
        let follower = follower.map_err(|error| ResourceError::File {
            path: "elements".into(),
            error,
        })?;
        Ok(Self {
            inner,
            _follower: follower,
        })
    }

    /// Makes a node.
    pub fn create_node(&self, new: NewNode) -> Result<Arc<Node>, ElementError> {
        needs(&new.metadata, &["Name", "Type"])?;
        let _quiet = self.inner.applied();
        let node = new.node();
        let added = self.inner.graph.write().add_node(node, unix_ms())?;
        // Times are those of the graph; the revision counts on from this one with each start.
        let kept = UserNode(kept_form(&added));
        if let Err(error) = self.inner.nodes.put_all(vec![kept]) {
            let _ = self.inner.graph.write().delete_node(&added.id, unix_ms());
            return Err(error.into());
        }
        Ok(added)
    }

    /// Makes an edge between two nodes that are there.
    pub fn create_edge(&self, new: NewEdge) -> Result<Arc<Edge>, ElementError> {
        needs(&new.metadata, &[Edge::RELATION])?;
        let _quiet = self.inner.applied();
        let added = self.inner.graph.write().add_edge(new.edge(), unix_ms())?;
        let mut kept = Edge::clone(&added);
        kept.element = kept_form(&added.element);
        if let Err(error) = self.inner.edges.put_all(vec![UserEdge(kept)]) {
            let id = &added.element.id;
            let _ = self.inner.graph.write().delete_edge(id, unix_ms());
            return Err(error.into());
        }
        Ok(added)
    }

    /// All nodes, whoever has made them; at most 200,000.
    pub fn nodes(&self) -> Vec<Arc<Node>> {
        let mut all = Vec::new();
        let mut from = Some(0);
        while let Some(next) = from.filter(|_| all.len() < MAX_LISTED) {
            let graph = self.inner.graph.read();
            let scan = graph.scan_nodes(graph.now(), Lookup::All, next, PART, &mut |node, _| {
                all.push(node.clone());
                ControlFlow::Continue(())
            });
            from = more(scan);
        }
        all
    }

    /// All edges, whoever has made them; at most 200,000.
    pub fn edges(&self) -> Vec<Arc<Edge>> {
        let mut all = Vec::new();
        let mut from = Some(0);
        while let Some(next) = from.filter(|_| all.len() < MAX_LISTED) {
            let graph = self.inner.graph.read();
            let scan = graph.scan_edges(graph.now(), Lookup::All, next, PART, &mut |edge, _| {
                all.push(edge.clone());
                ControlFlow::Continue(())
            });
            from = more(scan);
        }
        all
    }

    /// One node, whoever has made it.
    pub fn node(&self, id: &str) -> Result<Arc<Node>, ElementError> {
        node_now(&self.inner.graph.read(), id).ok_or_else(|| unknown("node", id))
    }

    /// One edge, whoever has made it.
    pub fn edge(&self, id: &str) -> Result<Arc<Edge>, ElementError> {
        edge_now(&self.inner.graph.read(), id).ok_or_else(|| unknown("edge", id))
    }

    /// Changes the metadata of a node that a user has made, but not what says which node it is; none when
    /// nothing changes.
    pub fn patch_node(
        &self,
        id: &str,
        patch: &json_patch::Patch,
    ) -> Result<Option<Arc<Node>>, ElementError> {
        let _quiet = self.inner.applied();
        let mut kept = self.user_node(id)?;
        let mut after = patched(&kept.0, patch)?;
        needs(&after, &["Name", "Type"])?;
        for name in FIXED {
            if let Some(value) = kept.0.metadata.get(name) {
                after = after.with(name, value.clone());
            }
        }
        let changed = {
            let mut graph = self.inner.graph.write();
            let now = node_now(&graph, id).ok_or_else(|| unknown("node", id))?;
            // What others have added stays.
            let metadata = merged(&now.metadata, &kept.0.metadata, &after);
            graph.update_node(id, metadata, unix_ms())?
        };
        if kept.0.metadata != after {
            kept.0.metadata = after;
            self.inner.nodes.replace(kept)?;
        }
        Ok(changed)
    }

    /// Changes the metadata of an edge that a user has made; none when nothing changes.
    pub fn patch_edge(
        &self,
        id: &str,
        patch: &json_patch::Patch,
    ) -> Result<Option<Arc<Edge>>, ElementError> {
        let _quiet = self.inner.applied();
        let mut kept = self.user_edge(id)?;
        let after = patched(&kept.0, patch)?;
        needs(&after, &[Edge::RELATION])?;
        let changed = {
            let mut graph = self.inner.graph.write();
            let now = edge_now(&graph, id).ok_or_else(|| unknown("edge", id))?;
            let metadata = merged(&now.element.metadata, &kept.0.element.metadata, &after);
            graph.update_edge(id, metadata, unix_ms())?
        };
        if kept.0.element.metadata != after {
            kept.0.element.metadata = after;
            self.inner.edges.replace(kept)?;
        }
        Ok(changed)
    }

    /// Deletes a node that a user has made, and its edges.
    pub fn delete_node(&self, id: &str) -> Result<(), ElementError> {
        let _quiet = self.inner.applied();
        let kept = self.user_node(id)?;
        self.inner.nodes.remove(&kept.id().to_string())?;
        // It may be gone from the graph with its host.
        let _ = self.inner.graph.write().delete_node(id, unix_ms());
        let theirs = self.inner.edges.all().into_iter();
        for edge in theirs.filter(|edge| *edge.0.parent == *id || *edge.0.child == *id) {
            self.inner.edges.remove(&edge.id().to_string())?;
        }
        Ok(())
    }

    /// Deletes an edge that a user has made.
    pub fn delete_edge(&self, id: &str) -> Result<(), ElementError> {
        let _quiet = self.inner.applied();
        let kept = self.user_edge(id)?;
        self.inner.edges.remove(&kept.id().to_string())?;
        let _ = self.inner.graph.write().delete_edge(id, unix_ms());
        Ok(())
    }

    fn user_node(&self, id: &str) -> Result<UserNode, ElementError> {
        let kept = self.inner.nodes.get(&derived(&["node", id]).to_string());
        kept.map_err(|_| match self.node(id) {
            Ok(_) => ElementError::NotByUser(format!("node {id}")),
            Err(error) => error,
        })
    }

    fn user_edge(&self, id: &str) -> Result<UserEdge, ElementError> {
        let kept = self.inner.edges.get(&derived(&["edge", id]).to_string());
        kept.map_err(|_| match self.edge(id) {
            Ok(_) => ElementError::NotByUser(format!("edge {id}")),
            Err(error) => error,
        })
    }

    /// Makes all of a graph that is not there yet.
    pub fn import(&self, export: &Export) -> Result<Imported, ElementError> {
        let mut done = Imported::default();
        let (mut nodes, mut edges) = (Vec::new(), Vec::new());
        {
            let graph = self.inner.graph.read();
            for node in &export.nodes {
                graph.check_new(node)?;
                match node_now(&graph, &node.id) {
                    Some(_) => done.known += 1,
                    None => nodes.push(UserNode(of_user(node))),
                }
            }
            for edge in &export.edges {
                graph.check_new(&edge.element)?;
                match edge_now(&graph, &edge.element.id) {
                    Some(_) => done.known += 1,
                    None => edges.push(UserEdge(Edge {
                        element: of_user(&edge.element),
                        ..Edge::clone(edge)
                    })),
                }
            }
        }
        (done.nodes, done.edges) = (nodes.len(), edges.len());
        let new: Vec<Arc<str>> = edges.iter().map(|e| e.0.element.id.clone()).collect();
        self.inner.nodes.put_all(nodes)?;
        self.inner.edges.put_all(edges)?;
        self.inner.apply();
        let graph = self.inner.graph.read();
        let waiting = new.iter().filter(|id| edge_now(&graph, id).is_none());
        done.waiting = waiting.count();
        done.edges -= done.waiting;
        Ok(done)
    }

    /// Makes a rule about nodes.
    pub fn create_node_rule(&self, rule: NodeRule) -> Result<NodeRule, ElementError> {
        check_node_rule(&rule)?;
        let rule = self.inner.node_rules.add(rule)?;
        self.inner.apply();
        Ok(rule)
    }

    /// Changes a rule about nodes.
    pub fn patch_node_rule(
        &self,
        id: &str,
        patch: &json_patch::Patch,
    ) -> Result<NodeRule, ElementError> {
        let before = self.inner.node_rules.get(id)?;
        let mut after = patched_resource(&before, patch)?;
        after.uuid = before.uuid;
        check_node_rule(&after)?;
        // Done anew: what it did before may be other nodes and other keys.
        self.inner.apply_but(Some(before.uuid));
        self.inner.node_rules.replace(after.clone())?;
        self.inner.apply();
        Ok(after)
    }

    /// Deletes a rule about nodes and what it has done.
    pub fn delete_node_rule(&self, id: &str) -> Result<(), ElementError> {
        self.inner.node_rules.remove(id)?;
        self.inner.apply();
        Ok(())
    }

    /// All rules about nodes and their state.
    pub fn node_rules(&self) -> Vec<(NodeRule, RuleStatus)> {
        let all = self.inner.node_rules.all().into_iter();
        all.map(|rule| (rule.clone(), self.inner.status(rule.uuid)))
            .collect()
    }

    /// One rule about nodes.
    pub fn node_rule(&self, id: &str) -> Result<(NodeRule, RuleStatus), ElementError> {
        let rule = self.inner.node_rules.get(id)?;
        Ok((rule.clone(), self.inner.status(rule.uuid)))
    }

    /// Makes a rule about edges.
    pub fn create_edge_rule(&self, rule: EdgeRule) -> Result<EdgeRule, ElementError> {
        check_edge_rule(&rule)?;
        let rule = self.inner.edge_rules.add(rule)?;
        self.inner.apply();
        Ok(rule)
    }

    /// Changes a rule about edges.
    pub fn patch_edge_rule(
        &self,
        id: &str,
        patch: &json_patch::Patch,
    ) -> Result<EdgeRule, ElementError> {
        let before = self.inner.edge_rules.get(id)?;
        let mut after = patched_resource(&before, patch)?;
        after.uuid = before.uuid;
        check_edge_rule(&after)?;
        self.inner.apply_but(Some(before.uuid));
        self.inner.edge_rules.replace(after.clone())?;
        self.inner.apply();
        Ok(after)
    }

    /// Deletes a rule about edges and its edges.
    pub fn delete_edge_rule(&self, id: &str) -> Result<(), ElementError> {
        self.inner.edge_rules.remove(id)?;
        self.inner.apply();
        Ok(())
    }

    /// All rules about edges and their state.
    pub fn edge_rules(&self) -> Vec<(EdgeRule, RuleStatus)> {
        let all = self.inner.edge_rules.all().into_iter();
        all.map(|rule| (rule.clone(), self.inner.status(rule.uuid)))
            .collect()
    }

    /// One rule about edges.
    pub fn edge_rule(&self, id: &str) -> Result<(EdgeRule, RuleStatus), ElementError> {
        let rule = self.inner.edge_rules.get(id)?;
        Ok((rule.clone(), self.inner.status(rule.uuid)))
    }
}

impl Inner {
    /// Keeps the graph from being brought to what is wanted, while that changes.
    fn applied(&self) -> MutexGuard<'_, Applied> {
        // After a panic this round repairs what is half done.
        self.applied.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes away what a graph that was kept still has though users have deleted it. What rules have
    /// made goes with it, and is made anew.
    fn sweep(&self) {
        let mut graph = self.graph.write();
        let (mut nodes, mut edges) = (Vec::new(), Vec::new());
        let now = graph.now();
        // An error means that there is no such history, which now always is.
        let _ = graph.scan_nodes(now, Lookup::All, 0, usize::MAX, &mut |node, _| {
            if *node.origin == *ORIGIN {
                nodes.push(node.id.clone());
            }
            ControlFlow::Continue(())
        });
        let _ = graph.scan_edges(now, Lookup::All, 0, usize::MAX, &mut |edge, _| {
            if *edge.element.origin == *ORIGIN {
                edges.push(edge.element.id.clone());
            }
            ControlFlow::Continue(())
        });
        let time = unix_ms();
        let kept = |kind: &str, id: &str| derived(&[kind, id]).to_string();
        edges.retain(|id| self.edges.get(&kept("edge", id)).is_err());
        nodes.retain(|id| self.nodes.get(&kept("node", id)).is_err());
        for id in edges {
            let _ = graph.delete_edge(&id, time);
        }
        for id in nodes {
            let _ = graph.delete_node(&id, time);
        }
    }

    fn apply(&self) {
        self.apply_but(None);
    }

    /// As if one rule were not there.
    fn apply_but(&self, rule: Option<Uuid>) {
        let mut applied = self.applied();
        // Read under the lock: of two who apply, the later knows more.
        let mut wanted = Wanted {
            nodes: self.nodes.all(),
            edges: self.edges.all(),
            node_rules: self.node_rules.all(),
            edge_rules: self.edge_rules.all(),
        };
        wanted.node_rules.retain(|other| Some(other.uuid) != rule);
        wanted.edge_rules.retain(|other| Some(other.uuid) != rule);
        applied.bring_up_to_date(&self.graph, &wanted, unix_ms());
    }

    fn status(&self, rule: Uuid) -> RuleStatus {
        self.applied()
            .status
            .get(&rule)
            .cloned()
            .unwrap_or_default()
    }
}

impl NewNode {
    fn node(self) -> Node {
        let mut node = Node::new(&given_or_new(self.id), &self.host, self.metadata);
        node.origin = ORIGIN.into();
        node.revision = self.revision.map_or(node.revision, i64::from);
        node
    }
}

impl NewEdge {
    fn edge(self) -> Edge {
        let id = given_or_new(self.id);
        let mut edge = Edge::new(&id, &self.parent, &self.child, &self.host, self.metadata);
        edge.element.origin = ORIGIN.into();
        edge.element.revision = self.revision.map_or(edge.element.revision, i64::from);
        edge
    }
}

fn given_or_new(id: String) -> String {
    match id.is_empty() {
        true => Uuid::new_v4().to_string(),
        false => id,
    }
}

/// A node as one that a user has made, from now on.
fn of_user(node: &Node) -> Node {
    Node {
        origin: ORIGIN.into(),
        ..Node::new(&node.id, &node.host, node.metadata.clone())
    }
}

/// A node as it is kept.
fn kept_form(node: &Node) -> Node {
    Node {
        created_at: node.created_at,
        revision: node.revision,
        ..of_user(node)
    }
}

fn more(scan: Result<skua_topology::Scan, skua_topology::GraphError>) -> Option<u32> {
    match scan {
        Ok(skua_topology::Scan::More(next)) => Some(next),
        _ => None,
    }
}

fn check_node_rule(rule: &NodeRule) -> Result<(), ElementError> {
    match rule.action {
        RuleAction::Create => {
            if !rule.query.is_empty() {
                return Err(wrong("a rule that creates a node has no Query"));
            }
            needs(&rule.metadata, &["Name", "Type"])
        }
        RuleAction::Update => {
            if rule.metadata.is_empty() {
                return Err(wrong("Metadata is missing: what is to be added?"));
            }
            if let Some(name) = FIXED.iter().find(|name| rule.metadata.get(name).is_some()) {
                return Err(wrong(format_args!("{name} cannot be changed by a rule")));
            }
            check_nodes(&rule.query).map_err(|error| wrong(format_args!("Query: {error}")))
        }
    }
}

fn check_edge_rule(rule: &EdgeRule) -> Result<(), ElementError> {
    needs(&rule.metadata, &[Edge::RELATION])?;
    for (what, query) in [("Src", &rule.src), ("Dst", &rule.dst)] {
        check_nodes(query).map_err(|error| wrong(format_args!("{what}: {error}")))?;
    }
    Ok(())
}
