//! Nodes, edges and rules of users.

mod apply;
mod graph;

use crate::resource::Resource;
use serde::{Deserialize, Serialize};
use skua_topology::{Edge, GraphError, Map, Node};
use utoipa::ToSchema;
use uuid::Uuid;

pub use apply::RuleStatus;
pub use graph::{Imported, NewEdge, NewNode, UserGraph};

/// `Origin` of what users have made, and what their rules have.
pub const ORIGIN: &str = "user";

/// Name space of identifiers that follow from others.
const NAMES: Uuid = Uuid::from_u128(0x9d3c_5f0e_7a41_4c1b_8f52_6a0d_33b1_c7e4);

/// An identifier that follows from texts.
fn derived(parts: &[&str]) -> Uuid {
    Uuid::new_v5(&NAMES, parts.join("\0").as_bytes())
}

/// Why something cannot be done.
#[derive(Debug, thiserror::Error)]
pub enum ElementError {
    /// Something is wrong with what is asked for.
    #[error("{0}")]
    Wrong(String),
    /// It is not there, there already, or cannot be kept.
    #[error(transparent)]
    Resource(#[from] crate::ResourceError),
    /// The graph does not take it.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// It is there, but no user has made it.
    #[error(
        "{0} was not made by a user: what discovery finds cannot be changed; a rule can add metadata"
    )]
    NotByUser(String),
}

/// A node that a user has made. Its identifier may be any text.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
pub struct UserNode(pub Node);

impl Resource for UserNode {
    const KIND: &'static str = "node";

    fn id(&self) -> Uuid {
        derived(&["node", &self.0.id])
    }

    /// It follows from the node's own.
    fn set_id(&mut self, _: Uuid) {}

    fn is_same(&self, other: &Self) -> bool {
        self.0.id == other.0.id
    }
}

/// An edge that a user has made.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
pub struct UserEdge(pub Edge);

impl Resource for UserEdge {
    const KIND: &'static str = "edge";

    fn id(&self) -> Uuid {
        derived(&["edge", &self.0.element.id])
    }

    /// It follows from the edge's own.
    fn set_id(&mut self, _: Uuid) {}

    fn is_same(&self, other: &Self) -> bool {
        self.0.element.id == other.0.element.id
    }
}

/// What a rule about nodes does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum RuleAction {
    /// Makes a node.
    #[default]
    Create,
    /// Adds metadata to the nodes that its query finds.
    Update,
}

/// A rule about nodes, in Skydive's shape.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "PascalCase", deny_unknown_fields, default)]
pub struct NodeRule {
    /// Identifier.
    #[serde(rename = "UUID", deserialize_with = "crate::skydive::id")]
    pub uuid: Uuid,
    /// For people.
    pub name: String,
    /// For people.
    pub description: String,
    /// What the node has, or what is added.
    #[serde(deserialize_with = "crate::skydive::or_null")]
    pub metadata: Map,
    /// What is done.
    pub action: RuleAction,
    /// Finds the nodes that metadata are added to.
    pub query: String,
}

impl Resource for NodeRule {
    const KIND: &'static str = "node rule";

    fn id(&self) -> Uuid {
        self.uuid
    }

    fn set_id(&mut self, id: Uuid) {
        self.uuid = id;
    }

    fn is_same(&self, other: &Self) -> bool {
        (self.action, &self.metadata, &self.query) == (other.action, &other.metadata, &other.query)
    }
}

/// A rule about edges, in Skydive's shape.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "PascalCase", deny_unknown_fields, default)]
pub struct EdgeRule {
    /// Identifier.
    #[serde(rename = "UUID", deserialize_with = "crate::skydive::id")]
    pub uuid: Uuid,
    /// For people.
    pub name: String,
    /// For people.
    pub description: String,
    /// Finds the nodes that edges go out of.
    pub src: String,
    /// Finds the nodes that they go into.
    pub dst: String,
    /// What the edges have.
    #[serde(deserialize_with = "crate::skydive::or_null")]
    pub metadata: Map,
}

impl Resource for EdgeRule {
    const KIND: &'static str = "edge rule";

    fn id(&self) -> Uuid {
        self.uuid
    }

    fn set_id(&mut self, id: Uuid) {
        self.uuid = id;
    }

    fn is_same(&self, other: &Self) -> bool {
        (&self.src, &self.dst, &self.metadata) == (&other.src, &other.dst, &other.metadata)
    }
}
