//! `/api/node`, `/api/edge`, `/api/noderule`, `/api/edgerule`, `/api/topology/import`.

use std::sync::Arc;

use axum::{
    Router,
    body::Bytes,
    extract::{DefaultBodyLimit, Path, State},
    http::StatusCode,
    response::{IntoResponse as _, Response},
    routing::{get, post},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value, json};
use skua_analyzer::elements::{ElementError, RuleStatus, UserGraph};
use skua_server::{answer::bad_request, blocking};
use skua_topology::{Export, GraphError};

use crate::resource;

/// Bytes of a request at most: metadata of an element may have 4 MiB.
const BODY: usize = 8 << 20;

/// Bytes of a graph that is imported at most.
const IMPORT: usize = 256 << 20;

type Elements = State<Arc<UserGraph>>;

/// The paths of this module.
pub fn routes(elements: Arc<UserGraph>) -> Router {
    let import = Router::new()
        .route("/api/topology/import", post(import))
        .layer(DefaultBodyLimit::max(IMPORT));
    Router::new()
        .route("/api/node", get(nodes).post(make_node))
        .route(
            "/api/node/{id}",
            get(node).patch(change_node).delete(delete_node),
        )
        .route("/api/edge", get(edges).post(make_edge))
        .route(
            "/api/edge/{id}",
            get(edge).patch(change_edge).delete(delete_edge),
        )
        .route("/api/noderule", get(node_rules).post(make_node_rule))
        .route(
            "/api/noderule/{id}",
            get(node_rule)
                .patch(change_node_rule)
                .delete(delete_node_rule),
        )
        .route("/api/edgerule", get(edge_rules).post(make_edge_rule))
        .route(
            "/api/edgerule/{id}",
            get(edge_rule)
                .patch(change_edge_rule)
                .delete(delete_edge_rule),
        )
        .layer(DefaultBodyLimit::max(BODY))
        .merge(import)
        .with_state(elements)
}

fn refused(error: &ElementError) -> Response {
    let status = match error {
        ElementError::Wrong(why) => return bad_request(why),
        ElementError::Resource(error) => return resource::refused(error),
        ElementError::NotByUser(_) => StatusCode::FORBIDDEN,
        ElementError::Graph(GraphError::NodeExists(_) | GraphError::EdgeExists(_)) => {
            StatusCode::CONFLICT
        }
        ElementError::Graph(GraphError::Full(..)) => StatusCode::TOO_MANY_REQUESTS,
        ElementError::Graph(_) => StatusCode::BAD_REQUEST,
    };
    (status, format!("{error}\n")).into_response()
}

/// Does something with what users have made, on a thread that may wait.
async fn done<T: Serialize>(
    State(elements): Elements,
    status: StatusCode,
    work: impl FnOnce(&UserGraph) -> Result<T, ElementError> + Send + 'static,
) -> Response {
    blocking(move || match work(&elements) {
        Ok(value) => resource::answer(status, &json!(value)),
        Err(error) => refused(&error),
    })
    .await
}

/// As [`done`], with the object of a request.
async fn with_body<B: DeserializeOwned, T: Serialize>(
    State(elements): Elements,
    status: StatusCode,
    body: Bytes,
    work: impl FnOnce(&UserGraph, B) -> Result<T, ElementError> + Send + 'static,
) -> Response {
    blocking(move || {
        let object = match resource::object(&body) {
            Ok(object) => object,
            Err(error) => return bad_request(error),
        };
        match work(&elements, object) {
            Ok(value) => resource::answer(status, &json!(value)),
            Err(error) => refused(&error),
        }
    })
    .await
}

/// Elements by identifier.
fn by_id<T: Serialize>(all: impl Iterator<Item = T>) -> Value {
    let entries = all.filter_map(|element| {
        let value = json!(element);
        Some((value["ID"].as_str()?.to_owned(), value))
    });
    Value::Object(entries.collect::<Map<_, _>>())
}

/// A rule with its status.
fn shown((rule, status): (impl Serialize, RuleStatus)) -> Value {
    let mut value = json!(rule);
    let more = json!(status);
    for (key, part) in more.as_object().into_iter().flatten() {
        value[key] = part.clone();
    }
    value
}

async fn nodes(elements: Elements) -> Response {
    done(elements, StatusCode::OK, |e| Ok(by_id(e.nodes().iter()))).await
}

async fn edges(elements: Elements) -> Response {
    done(elements, StatusCode::OK, |e| Ok(by_id(e.edges().iter()))).await
}

async fn node(elements: Elements, Path(id): Path<String>) -> Response {
    done(elements, StatusCode::OK, move |e| e.node(&id)).await
}

async fn edge(elements: Elements, Path(id): Path<String>) -> Response {
    done(elements, StatusCode::OK, move |e| e.edge(&id)).await
}

async fn make_node(elements: Elements, body: Bytes) -> Response {
    with_body(elements, StatusCode::CREATED, body, UserGraph::create_node).await
}

async fn make_edge(elements: Elements, body: Bytes) -> Response {
    with_body(elements, StatusCode::CREATED, body, UserGraph::create_edge).await
}

async fn change_node(elements: Elements, Path(id): Path<String>, body: Bytes) -> Response {
    with_body(elements, StatusCode::OK, body, move |e, patch| {
        e.patch_node(&id, &patch)
    })
    .await
}

async fn change_edge(elements: Elements, Path(id): Path<String>, body: Bytes) -> Response {
    with_body(elements, StatusCode::OK, body, move |e, patch| {
        e.patch_edge(&id, &patch)
    })
    .await
}

async fn delete_node(elements: Elements, Path(id): Path<String>) -> Response {
    done(elements, StatusCode::OK, move |e| e.delete_node(&id)).await
}

async fn delete_edge(elements: Elements, Path(id): Path<String>) -> Response {
    done(elements, StatusCode::OK, move |e| e.delete_edge(&id)).await
}

async fn node_rules(State(elements): Elements) -> Response {
    blocking(move || resource::list(elements.node_rules().into_iter().map(shown))).await
}

async fn edge_rules(State(elements): Elements) -> Response {
    blocking(move || resource::list(elements.edge_rules().into_iter().map(shown))).await
}

async fn node_rule(elements: Elements, Path(id): Path<String>) -> Response {
    done(elements, StatusCode::OK, move |e| {
        e.node_rule(&id).map(shown)
    })
    .await
}

async fn edge_rule(elements: Elements, Path(id): Path<String>) -> Response {
    done(elements, StatusCode::OK, move |e| {
        e.edge_rule(&id).map(shown)
    })
    .await
}

async fn make_node_rule(elements: Elements, body: Bytes) -> Response {
    let make = UserGraph::create_node_rule;
    with_body(elements, StatusCode::CREATED, body, make).await
}

async fn make_edge_rule(elements: Elements, body: Bytes) -> Response {
    let make = UserGraph::create_edge_rule;
    with_body(elements, StatusCode::CREATED, body, make).await
}

async fn change_node_rule(elements: Elements, Path(id): Path<String>, body: Bytes) -> Response {
    with_body(elements, StatusCode::OK, body, move |e, patch| {
        e.patch_node_rule(&id, &patch)
    })
    .await
}

async fn change_edge_rule(elements: Elements, Path(id): Path<String>, body: Bytes) -> Response {
    with_body(elements, StatusCode::OK, body, move |e, patch| {
        e.patch_edge_rule(&id, &patch)
    })
    .await
}

async fn delete_node_rule(elements: Elements, Path(id): Path<String>) -> Response {
    done(elements, StatusCode::OK, move |e| e.delete_node_rule(&id)).await
}

async fn delete_edge_rule(elements: Elements, Path(id): Path<String>) -> Response {
    done(elements, StatusCode::OK, move |e| e.delete_edge_rule(&id)).await
}

/// A graph as `G` answers it: a list of one, or that one.
#[derive(serde::Deserialize)]
#[serde(untagged)]
enum Written {
    List([Export; 1]),
    One(Export),
}

async fn import(elements: Elements, body: Bytes) -> Response {
    with_body(elements, StatusCode::OK, body, |e, written: Written| {
        let (Written::List([export]) | Written::One(export)) = written;
        e.import(&export)
    })
    .await
}
