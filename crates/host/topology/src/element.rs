//! Nodes and edges, each version of which never changes.

use crate::{Map, Value};
use serde::{Deserialize, Serialize};
use std::{borrow::Cow, sync::Arc};
use utoipa::ToSchema;

/// A node, or what a node and an edge have in common. JSON as Skydive has it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "PascalCase")]
pub struct Node {
    /// Unique among the nodes.
    #[serde(rename = "ID")]
    pub id: Arc<str>,
    /// Its metadata.
    #[serde(default)]
    pub metadata: Map,
    /// Name of the host that it was seen on.
    #[serde(default)]
    pub host: Arc<str>,
    /// Which part of which process found it, as `agent.host`.
    #[serde(default)]
    pub origin: Arc<str>,
    /// Ms since the Unix epoch.
    #[serde(default)]
    pub created_at: i64,
    /// Start of this version, ms since the Unix epoch.
    #[serde(default)]
    pub updated_at: i64,
    /// Ms since the Unix epoch; none while it exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deleted_at: Option<i64>,
    /// 1 when created, if nothing else is given; one more with each update.
    #[serde(default = "first")]
    pub revision: i64,
}

/// The revision that an element begins with.
fn first() -> i64 {
    1
}

impl Node {
    /// A node that is still to be added.
    pub fn new(id: &str, host: &str, metadata: Map) -> Self {
        Self {
            id: id.into(),
            metadata,
            host: host.into(),
            origin: "".into(),
            created_at: 0,
            updated_at: 0,
            deleted_at: None,
            revision: first(),
        }
    }

    /// The values under `key` until `visit` returns true: `@ID`, `@Host`, `@Origin`, `@CreatedAt`,
    /// `@UpdatedAt`, `@DeletedAt` and `@Revision` are those of the element, others are paths into the
    /// metadata ([`Value::at`]).
    pub fn at(&self, key: &str, visit: &mut dyn FnMut(&Value) -> bool) -> bool {
        match self.attribute(key) {
            Some(Some(value)) => visit(&value),
            Some(None) => false,
            None => self.metadata.at(key, visit),
        }
    }

    /// The value under `key`, as [`Node::at`] and [`Map::lookup`].
    pub fn lookup(&self, key: &str) -> Option<Cow<'_, Value>> {
        match self.attribute(key) {
            Some(value) => value.map(Cow::Owned),
            None => self.metadata.lookup(key),
        }
    }

    /// None: `key` is no attribute; `Some(None)`: it is one that has no value now.
    fn attribute(&self, key: &str) -> Option<Option<Value>> {
        let text = |text: &Arc<str>| Some(Value::Str(text.clone()));
        Some(match key.strip_prefix('@')? {
            "ID" => text(&self.id),
            "Host" => text(&self.host),
            "Origin" => text(&self.origin),
            "CreatedAt" => Some(Value::Int(self.created_at)),
            "UpdatedAt" => Some(Value::Int(self.updated_at)),
            "DeletedAt" => self.deleted_at.map(Value::Int),
            "Revision" => Some(Value::Int(self.revision)),
            _ => return None,
        })
    }

    /// Bytes that this version takes when it shares nothing.
    pub fn heap_bytes(&self) -> usize {
        size_of::<Self>() + 16 + self.id.len() + 16 + self.metadata.heap_bytes()
    }
}

/// An edge from parent to child. JSON as Skydive has it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "PascalCase")]
pub struct Edge {
    /// What it has in common with nodes.
    #[serde(flatten)]
    pub element: Node,
    /// The node that it leaves.
    pub parent: Arc<str>,
    /// The node that it enters.
    pub child: Arc<str>,
}

impl Edge {
    /// Name of the metadata by which edges are distinguished.
    pub const RELATION: &'static str = "RelationType";

    /// An edge that is still to be added.
    pub fn new(id: &str, parent: &str, child: &str, host: &str, metadata: Map) -> Self {
        Self {
            element: Node::new(id, host, metadata),
            parent: parent.into(),
            child: child.into(),
        }
    }

    /// `ownership`, `layer2`, …; empty when it has none.
    pub fn relation(&self) -> &str {
        let relation = self.element.metadata.get(Self::RELATION);
        relation.and_then(Value::as_str).unwrap_or("")
    }

    /// As [`Node::at`], and `Parent` and `Child`, also with `@`.
    pub fn at(&self, key: &str, visit: &mut dyn FnMut(&Value) -> bool) -> bool {
        match self.end(key) {
            Some(id) => visit(&Value::Str(id.clone())),
            None => self.element.at(key, visit),
        }
    }

    /// As [`Node::lookup`], and `Parent` and `Child`, also with `@`.
    pub fn lookup(&self, key: &str) -> Option<Cow<'_, Value>> {
        match self.end(key) {
            Some(id) => Some(Cow::Owned(Value::Str(id.clone()))),
            None => self.element.lookup(key),
        }
    }

    fn end(&self, key: &str) -> Option<&Arc<str>> {
        match key {
            "@Parent" | "Parent" => Some(&self.parent),
            "@Child" | "Child" => Some(&self.child),
            _ => None,
        }
    }
}

/// What can be kept in versions: a node or an edge.
pub trait Element: Clone + Send + Sync + 'static {
    /// The part that all have.
    fn base(&self) -> &Node;
    /// The part that all have.
    fn base_mut(&mut self) -> &mut Node;
    /// As [`Node::at`].
    fn visit(&self, key: &str, visit: &mut dyn FnMut(&Value) -> bool) -> bool;
}

impl Element for Node {
    fn base(&self) -> &Node {
        self
    }

    fn base_mut(&mut self) -> &mut Node {
        self
    }

    fn visit(&self, key: &str, visit: &mut dyn FnMut(&Value) -> bool) -> bool {
        self.at(key, visit)
    }
}

impl Element for Edge {
    fn base(&self) -> &Node {
        &self.element
    }

    fn base_mut(&mut self) -> &mut Node {
        &mut self.element
    }

    fn visit(&self, key: &str, visit: &mut dyn FnMut(&Value) -> bool) -> bool {
        self.at(key, visit)
    }
}
