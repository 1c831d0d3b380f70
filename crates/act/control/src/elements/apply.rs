//! Brings the graph to what users and their rules want.

use super::{EdgeRule, NodeRule, ORIGIN, RuleAction, UserEdge, UserNode, derived};
use serde::Serialize;
use skua_sources::ask;
use skua_topology::{Edge, Graph, Map, Node, SharedGraph};
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::ControlFlow,
    sync::Arc,
};
use utoipa::ToSchema;
use uuid::Uuid;

/// Edges of one rule at most.
const MAX_EDGES: usize = 10_000;

/// The status of a rule.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, ToSchema)]
#[serde(rename_all = "PascalCase")]
pub struct RuleStatus {
    /// Nodes that have its metadata, or edges that it has made.
    pub applied: usize,
    /// Nodes that have something else under one of its keys, which stays; or edges beyond the most.
    pub left_out: usize,
    /// Why it does nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// What a rule has added to a node.
struct Added {
    metadata: Map,
    /// Revision of the node after that.
    revision: i64,
    /// The rule's own doing keeps its query from finding the node: then it stays, or it would come
    /// and go for ever.
    stays: bool,
}

/// What has been done so far.
#[derive(Default)]
pub(super) struct Applied {
    made: BTreeMap<Uuid, Arc<str>>,
    added: BTreeMap<(Uuid, Arc<str>), Added>,
    edges: BTreeMap<Uuid, BTreeSet<Arc<str>>>,
    pub status: BTreeMap<Uuid, RuleStatus>,
}

/// What is wanted.
pub(super) struct Wanted {
    pub nodes: Vec<UserNode>,
    pub edges: Vec<UserEdge>,
    pub node_rules: Vec<NodeRule>,
    pub edge_rules: Vec<EdgeRule>,
}

/// The node as it is now.
pub(super) fn node_now(graph: &Graph, id: &str) -> Option<Arc<Node>> {
    let mut found = None;
    // An error means that there is no such history, which now always is.
    let _ = graph.node(id, graph.now(), &mut |node, _| {
        found = Some(node.clone());
        ControlFlow::Break(())
    });
    found
}

/// The edge as it is now.
pub(super) fn edge_now(graph: &Graph, id: &str) -> Option<Arc<Edge>> {
    let mut found = None;
    let lookup = skua_topology::Lookup::Id(id);
    let _ = graph.scan_edges(graph.now(), lookup, 0, usize::MAX, &mut |edge, _| {
        found = Some(edge.clone());
        ControlFlow::Break(())
    });
    found
}

/// `current` with what has changed from `before` to `after`. Names are taken as they stand, also those
/// with dots.
pub(super) fn merged(current: &Map, before: &Map, after: &Map) -> Map {
    let gone = |name: &str| before.get(name).is_some() && after.get(name).is_none();
    let kept = current
        .iter()
        .filter(|(name, _)| !gone(name))
        .filter(|(name, _)| after.get(name).is_none());
    let entries = kept.chain(after.iter());
    Map::new(
        entries
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect(),
    )
}

impl Applied {
    /// Does what is missing and undoes what is not wanted any more.
    pub fn bring_up_to_date(&mut self, graph: &SharedGraph, wanted: &Wanted, time: i64) {
        self.status.clear();
        self.nodes(graph, wanted, time);
        for rule in &wanted.node_rules {
            if rule.action == RuleAction::Update {
                let status = self.update(graph, rule, time);
                self.status.insert(rule.uuid, status);
            }
        }
        let alive = |id: &Uuid| wanted.node_rules.iter().any(|rule| rule.uuid == *id);
        let over: Vec<(Uuid, Arc<str>)> = self
            .added
            .keys()
            .filter(|(rule, _)| !alive(rule))
            .cloned()
            .collect();
        for key in over {
            self.take_back(graph, &key, time);
        }
        self.edges_of_users(graph, wanted, time);
        for rule in &wanted.edge_rules {
            let status = self.connect(graph, rule, time);
            self.status.insert(rule.uuid, status);
        }
        let alive = |id: &Uuid| wanted.edge_rules.iter().any(|rule| rule.uuid == *id);
        let mut writing = graph.write();
        self.edges.retain(|rule, edges| {
            let alive = alive(rule);
            if !alive {
                for edge in &*edges {
                    // It may have gone with one of its nodes.
                    let _ = writing.delete_edge(edge, time);
                }
            }
            alive
        });
    }

    /// Nodes of users, and those that rules make.
    fn nodes(&mut self, graph: &SharedGraph, wanted: &Wanted, time: i64) {
        let creating = wanted
            .node_rules
            .iter()
            .filter(|rule| rule.action == RuleAction::Create);
        let mut made = BTreeMap::new();
        let mut missing: Vec<(Option<Uuid>, Node)> = Vec::new();
        {
            let reading = graph.read();
            let gone = wanted
                .nodes
                .iter()
                .filter(|node| node_now(&reading, &node.0.id).is_none());
            missing.extend(gone.map(|node| (None, node.0.clone())));
            for rule in creating {
                let id = derived(&["rule", &rule.uuid.to_string()]).to_string();
                let mut node = Node::new(&id, "", rule.metadata.clone());
                node.origin = ORIGIN.into();
                made.insert(rule.uuid, node.id.clone());
                match node_now(&reading, &id) {
                    Some(_) => drop(self.status.insert(rule.uuid, one())),
                    None => missing.push((Some(rule.uuid), node)),
                }
            }
        }
        let mut writing = graph.write();
        for (rule, node) in missing {
            let id = node.id.clone();
            let done = writing.add_node(node, time);
            let status = match &done {
                Ok(_) => one(),
                Err(error) => RuleStatus {
                    error: Some(error.to_string()),
                    ..RuleStatus::default()
                },
            };
            match (rule, done) {
                (Some(rule), _) => drop(self.status.insert(rule, status)),
                (None, Err(error)) => {
                    tracing::warn!(%error, node = &*id, "a user's node is missing")
                }
                (None, Ok(_)) => {}
            }
        }
        for (rule, id) in &self.made {
            if !made.contains_key(rule) {
                let _ = writing.delete_node(id, time);
            }
        }
        self.made = made;
    }

    /// Edges of users whose nodes are there.
    fn edges_of_users(&mut self, graph: &SharedGraph, wanted: &Wanted, time: i64) {
        let missing: Vec<Edge> = {
            let reading = graph.read();
            let possible = wanted.edges.iter().filter(|edge| {
                edge_now(&reading, &edge.0.element.id).is_none()
                    && node_now(&reading, &edge.0.parent).is_some()
                    && node_now(&reading, &edge.0.child).is_some()
            });
            possible.map(|edge| edge.0.clone()).collect()
        };
        let mut writing = (!missing.is_empty()).then(|| graph.write());
        for edge in missing {
            if let Some(Err(error)) = writing.as_mut().map(|graph| graph.add_edge(edge, time)) {
                tracing::warn!(%error, "a user's edge is missing");
            }
        }
    }

    /// A rule that adds metadata.
    fn update(&mut self, graph: &SharedGraph, rule: &NodeRule, time: i64) -> RuleStatus {
        let mut status = RuleStatus::default();
        let found = match ask::nodes(graph, &rule.query) {
            Ok(found) => found,
            // What was added stays until the query can be answered.
            Err(error) => {
                status.error = Some(error);
                return status;
            }
        };
        let mut ids = BTreeSet::new();
        for node in found {
            if !ids.insert(node.id.clone()) {
                continue;
            }
            match self.add(graph, rule, &node.id, time) {
                Ok(true) => status.applied += 1,
                Ok(false) => status.left_out += 1,
                // It has gone meanwhile, or takes no more.
                Err(error) => status.error = Some(error),
            }
        }
        let first = (rule.uuid, Arc::from(""));
        let others: Vec<(Uuid, Arc<str>)> = self
            .added
            .range(first..)
            .take_while(|((id, _), _)| *id == rule.uuid)
            .map(|(key, _)| key.clone())
            .filter(|(_, node)| !ids.contains(node))
            .collect();
        for key in others {
            let now = node_now(&graph.read(), &key.1);
            let Some(added) = self.added.get_mut(&key) else {
                continue;
            };
            added.stays |= now.is_some_and(|now| now.revision == added.revision);
            match added.stays {
                true => status.applied += 1,
                false => self.take_back(graph, &key, time),
            }
        }
        status
    }

    /// Adds a rule's metadata to a node; false when it has others under one of its keys.
    fn add(
        &mut self,
        graph: &SharedGraph,
        rule: &NodeRule,
        id: &Arc<str>,
        time: i64,
    ) -> Result<bool, String> {
        let mut writing = graph.write();
        let Some(node) = node_now(&writing, id) else {
            return Err(format!("node {id} has gone"));
        };
        let key = (rule.uuid, id.clone());
        let before = match self.added.get(&key) {
            Some(added) => added.metadata.clone(),
            None => Map::default(),
        };
        let foreign = rule.metadata.iter().any(|(name, value)| {
            let there = node.metadata.get(name);
            there.is_some_and(|there| there != value && before.get(name) != Some(there))
        });
        if foreign {
            return Ok(false);
        }
        let metadata = merged(&node.metadata, &before, &rule.metadata);
        let after = writing
            .update_node(id, metadata, time)
            .map_err(|error| error.to_string())?;
        let stays = self.added.get(&key).is_some_and(|added| added.stays);
        // Of a node that had all that already only what it is now is known.
        let revision = after.map_or(node.revision, |after| after.revision);
        let unchanged = self.added.get(&key).filter(|_| revision == node.revision);
        let revision = unchanged.map_or(revision, |added| added.revision);
        self.added.insert(
            key,
            Added {
                metadata: rule.metadata.clone(),
                revision,
                stays,
            },
        );
        Ok(true)
    }

    /// Takes back what a rule has added to a node, as far as it is still there.
    fn take_back(&mut self, graph: &SharedGraph, key: &(Uuid, Arc<str>), time: i64) {
        let Some(added) = self.added.remove(key) else {
            return;
        };
        let mut writing = graph.write();
        let Some(node) = node_now(&writing, &key.1) else {
            return;
        };
        let ours = |name: &str| {
            let value = added.metadata.get(name);
            value.is_some() && value == node.metadata.get(name)
        };
        let rest = node.metadata.iter().filter(|(name, _)| !ours(name));
        let rest = Map::new(rest.map(|(n, v)| (n.clone(), v.clone())).collect());
        let _ = writing.update_node(&key.1, rest, time);
    }

    /// A rule that makes edges.
    fn connect(&mut self, graph: &SharedGraph, rule: &EdgeRule, time: i64) -> RuleStatus {
        let mut status = RuleStatus::default();
        let found = |query: &str| ask::nodes(graph, query);
        let (parents, children) = match (found(&rule.src), found(&rule.dst)) {
            (Ok(parents), Ok(children)) => (parents, children),
            (Err(error), _) | (_, Err(error)) => {
                status.error = Some(error);
                return status;
            }
        };
        let name = rule.uuid.to_string();
        let mut wanted: BTreeMap<Arc<str>, (Arc<str>, Arc<str>)> = BTreeMap::new();
        'all: for parent in &parents {
            for child in children.iter().filter(|child| child.id != parent.id) {
                if wanted.len() >= MAX_EDGES {
                    let pairs = parents.len().saturating_mul(children.len());
                    status.left_out = pairs.saturating_sub(MAX_EDGES);
                    break 'all;
                }
                let id = derived(&["rule edge", &name, &parent.id, &child.id]).to_string();
                wanted.insert(id.into(), (parent.id.clone(), child.id.clone()));
            }
        }
        let before = self.edges.remove(&rule.uuid).unwrap_or_default();
        let mut now = BTreeSet::new();
        let mut writing = graph.write();
        for (id, (parent, child)) in wanted {
            let there = edge_now(&writing, &id);
            if there.is_none() {
                let mut edge = Edge::new(&id, &parent, &child, "", rule.metadata.clone());
                edge.element.origin = ORIGIN.into();
                if let Err(error) = writing.add_edge(edge, time) {
                    status.error = Some(error.to_string());
                    continue;
                }
            }
            now.insert(id);
        }
        for id in before.difference(&now) {
            let _ = writing.delete_edge(id, time);
        }
        status.applied = now.len();
        self.edges.insert(rule.uuid, now);
        status
    }
}

fn one() -> RuleStatus {
    RuleStatus {
        applied: 1,
        ..RuleStatus::default()
    }
}
