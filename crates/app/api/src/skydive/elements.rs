//! `/api/node`, `/api/edge`, `/api/noderule`, `/api/edgerule`, `/api/topology/import`.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    body::Bytes,
    extract::{DefaultBodyLimit, Path, State},
    http::StatusCode,
};
use serde::Serialize;
use skua_control::{
    JsonPatch,
    elements::{EdgeRule, Imported, NewEdge, NewNode, NodeRule, RuleStatus, UserGraph},
};
use skua_server::{
    answer::{Answer, Json, object},
    blocking,
    error::ApiError,
};
use skua_topology::{Edge, Export, Node};
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{error::refused, resource::Patch};

/// Bytes of a request at most: metadata of an element may have 4 MiB.
const BODY: usize = 8 << 20;

/// Most bytes of an imported graph.
const IMPORT: usize = 256 << 20;

type Elements = State<Arc<UserGraph>>;

/// The paths of this module.
pub fn routes(elements: Arc<UserGraph>) -> OpenApiRouter {
    let import = OpenApiRouter::new()
        .routes(routes!(import_topology))
        .layer(DefaultBodyLimit::max(IMPORT));
    OpenApiRouter::new()
        .routes(routes!(nodes, create_node))
        .routes(routes!(get_node, change_node, delete_node))
        .routes(routes!(edges, create_edge))
        .routes(routes!(get_edge, change_edge, delete_edge))
        .routes(routes!(node_rules, create_node_rule))
        .routes(routes!(get_node_rule, change_node_rule, delete_node_rule))
        .routes(routes!(edge_rules, create_edge_rule))
        .routes(routes!(get_edge_rule, change_edge_rule, delete_edge_rule))
        .layer(DefaultBodyLimit::max(BODY))
        .merge(import)
        .with_state(elements)
}

/// A rule about nodes with its status.
#[derive(Serialize, ToSchema)]
struct NodeRuleView {
    #[serde(flatten)]
    rule: NodeRule,
    #[serde(flatten)]
    status: RuleStatus,
}

impl From<(NodeRule, RuleStatus)> for NodeRuleView {
    fn from((rule, status): (NodeRule, RuleStatus)) -> Self {
        Self { rule, status }
    }
}

/// A rule about edges with its status.
#[derive(Serialize, ToSchema)]
struct EdgeRuleView {
    #[serde(flatten)]
    rule: EdgeRule,
    #[serde(flatten)]
    status: RuleStatus,
}

impl From<(EdgeRule, RuleStatus)> for EdgeRuleView {
    fn from((rule, status): (EdgeRule, RuleStatus)) -> Self {
        Self { rule, status }
    }
}

/// All nodes by identifier
#[utoipa::path(get, path = "/api/node", operation_id = "nodes", tag = "skydive",
    responses((status = 200, description = "The nodes", body = BTreeMap<String, Node>)))]
async fn nodes(State(elements): Elements) -> Result<Answer<BTreeMap<String, Arc<Node>>>, ApiError> {
    blocking(move || {
        let all = elements.nodes();
        let by_id = all.into_iter().map(|one| (one.id.to_string(), one));
        Ok(Answer::of(&by_id.collect()))
    })
    .await
}

/// A node
#[utoipa::path(get, path = "/api/node/{id}", operation_id = "getNode", tag = "skydive",
    params(("id" = String, Path, description = "ID")),
    responses((status = 200, description = "The node", body = Node)))]
async fn get_node(
    State(elements): Elements,
    Path(id): Path<String>,
) -> Result<Answer<Arc<Node>>, ApiError> {
    blocking(move || {
        let found = elements.node(&id).map_err(refused)?;
        Ok(Answer::of(&found))
    })
    .await
}

/// Makes a node
#[utoipa::path(post, path = "/api/node", operation_id = "createNode", tag = "skydive", request_body = NewNode,
    responses((status = 201, description = "The new node", body = Node), (status = 409, description = "An equal one exists already")))]
async fn create_node(
    State(elements): Elements,
    Json(new): Json<NewNode>,
) -> Result<Answer<Arc<Node>>, ApiError> {
    blocking(move || {
        let made = elements.create_node(new).map_err(refused)?;
        Ok(Answer::of(&made).created())
    })
    .await
}

/// Changes a node by a JSON patch (RFC 6902)
#[utoipa::path(patch, path = "/api/node/{id}", operation_id = "changeNode", tag = "skydive",
    params(("id" = String, Path, description = "ID")), request_body = Patch,
    responses((status = 200, description = "The node, as changed", body = Node)))]
async fn change_node(
    State(elements): Elements,
    Path(id): Path<String>,
    Json(patch): Json<JsonPatch>,
) -> Result<Answer<Arc<Node>>, ApiError> {
    blocking(move || {
        let changed = elements.patch_node(&id, &patch).map_err(refused)?;
        Ok(Answer::of(&changed))
    })
    .await
}

/// Deletes a node
#[utoipa::path(delete, path = "/api/node/{id}", operation_id = "deleteNode", tag = "skydive",
    params(("id" = String, Path, description = "ID")),
    responses((status = 200, description = "Deleted")))]
async fn delete_node(
    State(elements): Elements,
    Path(id): Path<String>,
) -> Result<StatusCode, ApiError> {
    blocking(move || {
        elements.delete_node(&id).map_err(refused)?;
        Ok(StatusCode::OK)
    })
    .await
}

/// All edges by identifier
#[utoipa::path(get, path = "/api/edge", operation_id = "edges", tag = "skydive",
    responses((status = 200, description = "The edges", body = BTreeMap<String, Edge>)))]
async fn edges(State(elements): Elements) -> Result<Answer<BTreeMap<String, Arc<Edge>>>, ApiError> {
    blocking(move || {
        let all = elements.edges();
        let by_id = all.into_iter().map(|one| (one.element.id.to_string(), one));
        Ok(Answer::of(&by_id.collect()))
    })
    .await
}

/// An edge
#[utoipa::path(get, path = "/api/edge/{id}", operation_id = "getEdge", tag = "skydive",
    params(("id" = String, Path, description = "ID")),
    responses((status = 200, description = "The edge", body = Edge)))]
async fn get_edge(
    State(elements): Elements,
    Path(id): Path<String>,
) -> Result<Answer<Arc<Edge>>, ApiError> {
    blocking(move || {
        let found = elements.edge(&id).map_err(refused)?;
        Ok(Answer::of(&found))
    })
    .await
}

/// Makes an edge
#[utoipa::path(post, path = "/api/edge", operation_id = "createEdge", tag = "skydive", request_body = NewEdge,
    responses((status = 201, description = "The new edge", body = Edge), (status = 409, description = "An equal one exists already")))]
async fn create_edge(
    State(elements): Elements,
    Json(new): Json<NewEdge>,
) -> Result<Answer<Arc<Edge>>, ApiError> {
    blocking(move || {
        let made = elements.create_edge(new).map_err(refused)?;
        Ok(Answer::of(&made).created())
    })
    .await
}

/// Changes an edge by a JSON patch (RFC 6902)
#[utoipa::path(patch, path = "/api/edge/{id}", operation_id = "changeEdge", tag = "skydive",
    params(("id" = String, Path, description = "ID")), request_body = Patch,
    responses((status = 200, description = "The edge, as changed", body = Edge)))]
async fn change_edge(
    State(elements): Elements,
    Path(id): Path<String>,
    Json(patch): Json<JsonPatch>,
) -> Result<Answer<Arc<Edge>>, ApiError> {
    blocking(move || {
        let changed = elements.patch_edge(&id, &patch).map_err(refused)?;
        Ok(Answer::of(&changed))
    })
    .await
}

/// Deletes an edge
#[utoipa::path(delete, path = "/api/edge/{id}", operation_id = "deleteEdge", tag = "skydive",
    params(("id" = String, Path, description = "ID")),
    responses((status = 200, description = "Deleted")))]
async fn delete_edge(
    State(elements): Elements,
    Path(id): Path<String>,
) -> Result<StatusCode, ApiError> {
    blocking(move || {
        elements.delete_edge(&id).map_err(refused)?;
        Ok(StatusCode::OK)
    })
    .await
}

/// All node rules by identifier
#[utoipa::path(get, path = "/api/noderule", operation_id = "noderules", tag = "skydive",
    responses((status = 200, description = "The rules", body = BTreeMap<String, NodeRuleView>)))]
async fn node_rules(
    State(elements): Elements,
) -> Result<Answer<BTreeMap<String, NodeRuleView>>, ApiError> {
    blocking(move || {
        let all = elements.node_rules().into_iter().map(NodeRuleView::from);
        let by_id = all.map(|view| (view.rule.uuid.to_string(), view));
        Ok(Answer::of(&by_id.collect()))
    })
    .await
}

/// A rule about nodes
#[utoipa::path(get, path = "/api/noderule/{id}", operation_id = "getNodeRule", tag = "skydive",
    params(("id" = String, Path, description = "UUID")),
    responses((status = 200, description = "The rule", body = NodeRuleView)))]
async fn get_node_rule(
    State(elements): Elements,
    Path(id): Path<String>,
) -> Result<Answer<NodeRuleView>, ApiError> {
    blocking(move || {
        let found = elements.node_rule(&id).map_err(refused)?;
        Ok(Answer::of(&found.into()))
    })
    .await
}

/// Makes a rule about nodes
#[utoipa::path(post, path = "/api/noderule", operation_id = "createNodeRule", tag = "skydive", request_body = NodeRule,
    responses((status = 201, description = "The new rule", body = NodeRule), (status = 409, description = "An equal one exists already")))]
async fn create_node_rule(
    State(elements): Elements,
    Json(new): Json<NodeRule>,
) -> Result<Answer<NodeRule>, ApiError> {
    blocking(move || {
        let made = elements.create_node_rule(new).map_err(refused)?;
        Ok(Answer::of(&made).created())
    })
    .await
}

/// Changes a rule about nodes by a JSON patch (RFC 6902)
#[utoipa::path(patch, path = "/api/noderule/{id}", operation_id = "changeNodeRule", tag = "skydive",
    params(("id" = String, Path, description = "UUID")), request_body = Patch,
    responses((status = 200, description = "The rule, as changed", body = NodeRule)))]
async fn change_node_rule(
    State(elements): Elements,
    Path(id): Path<String>,
    Json(patch): Json<JsonPatch>,
) -> Result<Answer<NodeRule>, ApiError> {
    blocking(move || {
        let changed = elements.patch_node_rule(&id, &patch).map_err(refused)?;
        Ok(Answer::of(&changed))
    })
    .await
}

/// Deletes a rule about nodes
#[utoipa::path(delete, path = "/api/noderule/{id}", operation_id = "deleteNodeRule", tag = "skydive",
    params(("id" = String, Path, description = "UUID")),
    responses((status = 200, description = "Deleted")))]
async fn delete_node_rule(
    State(elements): Elements,
    Path(id): Path<String>,
) -> Result<StatusCode, ApiError> {
    blocking(move || {
        elements.delete_node_rule(&id).map_err(refused)?;
        Ok(StatusCode::OK)
    })
    .await
}

/// All edge rules by identifier
#[utoipa::path(get, path = "/api/edgerule", operation_id = "edgerules", tag = "skydive",
    responses((status = 200, description = "The rules", body = BTreeMap<String, EdgeRuleView>)))]
async fn edge_rules(
    State(elements): Elements,
) -> Result<Answer<BTreeMap<String, EdgeRuleView>>, ApiError> {
    blocking(move || {
        let all = elements.edge_rules().into_iter().map(EdgeRuleView::from);
        let by_id = all.map(|view| (view.rule.uuid.to_string(), view));
        Ok(Answer::of(&by_id.collect()))
    })
    .await
}

/// A rule about edges
#[utoipa::path(get, path = "/api/edgerule/{id}", operation_id = "getEdgeRule", tag = "skydive",
    params(("id" = String, Path, description = "UUID")),
    responses((status = 200, description = "The rule", body = EdgeRuleView)))]
async fn get_edge_rule(
    State(elements): Elements,
    Path(id): Path<String>,
) -> Result<Answer<EdgeRuleView>, ApiError> {
    blocking(move || {
        let found = elements.edge_rule(&id).map_err(refused)?;
        Ok(Answer::of(&found.into()))
    })
    .await
}

/// Makes a rule about edges
#[utoipa::path(post, path = "/api/edgerule", operation_id = "createEdgeRule", tag = "skydive", request_body = EdgeRule,
    responses((status = 201, description = "The new rule", body = EdgeRule), (status = 409, description = "An equal one exists already")))]
async fn create_edge_rule(
    State(elements): Elements,
    Json(new): Json<EdgeRule>,
) -> Result<Answer<EdgeRule>, ApiError> {
    blocking(move || {
        let made = elements.create_edge_rule(new).map_err(refused)?;
        Ok(Answer::of(&made).created())
    })
    .await
}

/// Changes a rule about edges by a JSON patch (RFC 6902)
#[utoipa::path(patch, path = "/api/edgerule/{id}", operation_id = "changeEdgeRule", tag = "skydive",
    params(("id" = String, Path, description = "UUID")), request_body = Patch,
    responses((status = 200, description = "The rule, as changed", body = EdgeRule)))]
async fn change_edge_rule(
    State(elements): Elements,
    Path(id): Path<String>,
    Json(patch): Json<JsonPatch>,
) -> Result<Answer<EdgeRule>, ApiError> {
    blocking(move || {
        let changed = elements.patch_edge_rule(&id, &patch).map_err(refused)?;
        Ok(Answer::of(&changed))
    })
    .await
}

/// Deletes a rule about edges
#[utoipa::path(delete, path = "/api/edgerule/{id}", operation_id = "deleteEdgeRule", tag = "skydive",
    params(("id" = String, Path, description = "UUID")),
    responses((status = 200, description = "Deleted")))]
async fn delete_edge_rule(
    State(elements): Elements,
    Path(id): Path<String>,
) -> Result<StatusCode, ApiError> {
    blocking(move || {
        elements.delete_edge_rule(&id).map_err(refused)?;
        Ok(StatusCode::OK)
    })
    .await
}

/// A graph as `G` answers it: a list of one, or that one.
#[derive(serde::Deserialize, ToSchema)]
#[serde(untagged)]
enum Import {
    List([Export; 1]),
    One(Export),
}

/// Adds the nodes and edges of an export
#[utoipa::path(post, path = "/api/topology/import", operation_id = "importTopology", tag = "skydive",
    request_body(content = Import, content_type = "application/json"),
    responses((status = 200, description = "Number of nodes and edges in the file", body = Imported)))]
async fn import_topology(
    State(elements): Elements,
    body: Bytes,
) -> Result<Answer<Imported>, ApiError> {
    blocking(move || {
        let (Import::List([export]) | Import::One(export)) = object(&body)?;
        Ok(Answer::of(&elements.import(&export).map_err(refused)?))
    })
    .await
}
