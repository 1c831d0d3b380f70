//! `/api/node`, `/api/edge`, `/api/noderule`, `/api/edgerule`, `/api/topology/import`.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    body::Bytes,
    extract::{DefaultBodyLimit, Path, State},
    http::StatusCode,
    response::Response,
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

use crate::{
    error::refused,
    resource::{Answered, Patch, answer, by_id, changed, created, deleted},
};

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
async fn nodes(State(elements): Elements) -> Answered<BTreeMap<String, Arc<Node>>> {
    by_id(move || elements.nodes(), |one| one.id.to_string()).await
}

/// A node
#[utoipa::path(get, path = "/api/node/{id}", operation_id = "getNode", tag = "skydive",
    params(("id" = String, Path, description = "ID")),
    responses((status = 200, description = "The node", body = Node)))]
async fn get_node(State(elements): Elements, Path(id): Path<String>) -> Answered<Arc<Node>> {
    answer(move || elements.node(&id)).await
}

/// Makes a node
#[utoipa::path(post, path = "/api/node", operation_id = "createNode", tag = "skydive", request_body = NewNode,
    responses((status = 201, description = "The new node", body = Node), (status = 409, description = "An equal one exists already")))]
async fn create_node(State(elements): Elements, Json(new): Json<NewNode>) -> Answered<Arc<Node>> {
    created(move || elements.create_node(new)).await
}

/// Changes a node by a JSON patch (RFC 6902)
#[utoipa::path(patch, path = "/api/node/{id}", operation_id = "changeNode", tag = "skydive",
    params(("id" = String, Path, description = "ID")), request_body = Patch,
    responses((status = 200, description = "The node, as changed", body = Node), (status = 304, description = "It changes nothing")))]
async fn change_node(
    State(elements): Elements,
    Path(id): Path<String>,
    Json(patch): Json<JsonPatch>,
) -> Result<Response, ApiError> {
    changed(move || elements.patch_node(&id, &patch)).await
}

/// Deletes a node
#[utoipa::path(delete, path = "/api/node/{id}", operation_id = "deleteNode", tag = "skydive",
    params(("id" = String, Path, description = "ID")),
    responses((status = 200, description = "Deleted")))]
async fn delete_node(
    State(elements): Elements,
    Path(id): Path<String>,
) -> Result<StatusCode, ApiError> {
    deleted(move || elements.delete_node(&id)).await
}

/// All edges by identifier
#[utoipa::path(get, path = "/api/edge", operation_id = "edges", tag = "skydive",
    responses((status = 200, description = "The edges", body = BTreeMap<String, Edge>)))]
async fn edges(State(elements): Elements) -> Answered<BTreeMap<String, Arc<Edge>>> {
    by_id(move || elements.edges(), |one| one.element.id.to_string()).await
}

/// An edge
#[utoipa::path(get, path = "/api/edge/{id}", operation_id = "getEdge", tag = "skydive",
    params(("id" = String, Path, description = "ID")),
    responses((status = 200, description = "The edge", body = Edge)))]
async fn get_edge(State(elements): Elements, Path(id): Path<String>) -> Answered<Arc<Edge>> {
    answer(move || elements.edge(&id)).await
}

/// Makes an edge
#[utoipa::path(post, path = "/api/edge", operation_id = "createEdge", tag = "skydive", request_body = NewEdge,
    responses((status = 201, description = "The new edge", body = Edge), (status = 409, description = "An equal one exists already")))]
async fn create_edge(State(elements): Elements, Json(new): Json<NewEdge>) -> Answered<Arc<Edge>> {
    created(move || elements.create_edge(new)).await
}

/// Changes an edge by a JSON patch (RFC 6902)
#[utoipa::path(patch, path = "/api/edge/{id}", operation_id = "changeEdge", tag = "skydive",
    params(("id" = String, Path, description = "ID")), request_body = Patch,
    responses((status = 200, description = "The edge, as changed", body = Edge), (status = 304, description = "It changes nothing")))]
async fn change_edge(
    State(elements): Elements,
    Path(id): Path<String>,
    Json(patch): Json<JsonPatch>,
) -> Result<Response, ApiError> {
    changed(move || elements.patch_edge(&id, &patch)).await
}

/// Deletes an edge
#[utoipa::path(delete, path = "/api/edge/{id}", operation_id = "deleteEdge", tag = "skydive",
    params(("id" = String, Path, description = "ID")),
    responses((status = 200, description = "Deleted")))]
async fn delete_edge(
    State(elements): Elements,
    Path(id): Path<String>,
) -> Result<StatusCode, ApiError> {
    deleted(move || elements.delete_edge(&id)).await
}

/// All node rules by identifier
#[utoipa::path(get, path = "/api/noderule", operation_id = "noderules", tag = "skydive",
    responses((status = 200, description = "The rules", body = BTreeMap<String, NodeRuleView>)))]
async fn node_rules(State(elements): Elements) -> Answered<BTreeMap<String, NodeRuleView>> {
    by_id(
        move || elements.node_rules().into_iter().map(NodeRuleView::from),
        |view| view.rule.uuid.to_string(),
    )
    .await
}

/// A rule about nodes
#[utoipa::path(get, path = "/api/noderule/{id}", operation_id = "getNodeRule", tag = "skydive",
    params(("id" = String, Path, description = "UUID")),
    responses((status = 200, description = "The rule", body = NodeRuleView)))]
async fn get_node_rule(
    State(elements): Elements,
    Path(id): Path<String>,
) -> Answered<NodeRuleView> {
    answer(move || elements.node_rule(&id).map(Into::into)).await
}

/// Makes a rule about nodes
#[utoipa::path(post, path = "/api/noderule", operation_id = "createNodeRule", tag = "skydive", request_body = NodeRule,
    responses((status = 201, description = "The new rule", body = NodeRule), (status = 409, description = "An equal one exists already")))]
async fn create_node_rule(
    State(elements): Elements,
    Json(new): Json<NodeRule>,
) -> Answered<NodeRule> {
    created(move || elements.create_node_rule(new)).await
}

/// Changes a rule about nodes by a JSON patch (RFC 6902)
#[utoipa::path(patch, path = "/api/noderule/{id}", operation_id = "changeNodeRule", tag = "skydive",
    params(("id" = String, Path, description = "UUID")), request_body = Patch,
    responses((status = 200, description = "The rule, as changed", body = NodeRule)))]
async fn change_node_rule(
    State(elements): Elements,
    Path(id): Path<String>,
    Json(patch): Json<JsonPatch>,
) -> Answered<NodeRule> {
    answer(move || elements.patch_node_rule(&id, &patch)).await
}

/// Deletes a rule about nodes
#[utoipa::path(delete, path = "/api/noderule/{id}", operation_id = "deleteNodeRule", tag = "skydive",
    params(("id" = String, Path, description = "UUID")),
    responses((status = 200, description = "Deleted")))]
async fn delete_node_rule(
    State(elements): Elements,
    Path(id): Path<String>,
) -> Result<StatusCode, ApiError> {
    deleted(move || elements.delete_node_rule(&id)).await
}

/// All edge rules by identifier
#[utoipa::path(get, path = "/api/edgerule", operation_id = "edgerules", tag = "skydive",
    responses((status = 200, description = "The rules", body = BTreeMap<String, EdgeRuleView>)))]
async fn edge_rules(State(elements): Elements) -> Answered<BTreeMap<String, EdgeRuleView>> {
    by_id(
        move || elements.edge_rules().into_iter().map(EdgeRuleView::from),
        |view| view.rule.uuid.to_string(),
    )
    .await
}

/// A rule about edges
#[utoipa::path(get, path = "/api/edgerule/{id}", operation_id = "getEdgeRule", tag = "skydive",
    params(("id" = String, Path, description = "UUID")),
    responses((status = 200, description = "The rule", body = EdgeRuleView)))]
async fn get_edge_rule(
    State(elements): Elements,
    Path(id): Path<String>,
) -> Answered<EdgeRuleView> {
    answer(move || elements.edge_rule(&id).map(Into::into)).await
}

/// Makes a rule about edges
#[utoipa::path(post, path = "/api/edgerule", operation_id = "createEdgeRule", tag = "skydive", request_body = EdgeRule,
    responses((status = 201, description = "The new rule", body = EdgeRule), (status = 409, description = "An equal one exists already")))]
async fn create_edge_rule(
    State(elements): Elements,
    Json(new): Json<EdgeRule>,
) -> Answered<EdgeRule> {
    created(move || elements.create_edge_rule(new)).await
}

/// Changes a rule about edges by a JSON patch (RFC 6902)
#[utoipa::path(patch, path = "/api/edgerule/{id}", operation_id = "changeEdgeRule", tag = "skydive",
    params(("id" = String, Path, description = "UUID")), request_body = Patch,
    responses((status = 200, description = "The rule, as changed", body = EdgeRule)))]
async fn change_edge_rule(
    State(elements): Elements,
    Path(id): Path<String>,
    Json(patch): Json<JsonPatch>,
) -> Answered<EdgeRule> {
    answer(move || elements.patch_edge_rule(&id, &patch)).await
}

/// Deletes a rule about edges
#[utoipa::path(delete, path = "/api/edgerule/{id}", operation_id = "deleteEdgeRule", tag = "skydive",
    params(("id" = String, Path, description = "UUID")),
    responses((status = 200, description = "Deleted")))]
async fn delete_edge_rule(
    State(elements): Elements,
    Path(id): Path<String>,
) -> Result<StatusCode, ApiError> {
    deleted(move || elements.delete_edge_rule(&id)).await
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
async fn import_topology(State(elements): Elements, body: Bytes) -> Answered<Imported> {
    blocking(move || {
        let (Import::List([export]) | Import::One(export)) = object(&body)?;
        Ok(Answer::of(&elements.import(&export).map_err(refused)?))
    })
    .await
}
