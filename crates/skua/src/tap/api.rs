//! `/api/tap`.

use std::sync::Arc;

use axum::{
    Router,
    body::Bytes,
    extract::{DefaultBodyLimit, Extension, Path, State},
    http::{HeaderMap, StatusCode},
    response::{IntoResponse as _, Response},
    routing::get,
};
use serde_json::json;
use skua_analyzer::tap::{Tap, TapError, TapManager, TapView};

use crate::{
    graph::resource,
    http::{bad_request, blocking},
    server::auth::{Caller, Peer},
};

/// Bytes of a request at most: some hundred thousand addresses.
const BODY: usize = 8 << 20;

/// The paths of this module.
pub fn routes(taps: Arc<TapManager>) -> Router {
    Router::new()
        .route("/api/tap", get(list).post(create))
        .route("/api/tap/{id}", get(one).patch(change).delete(remove))
        .layer(DefaultBodyLimit::max(BODY))
        .with_state(taps)
}

fn answer(status: StatusCode, done: Result<TapView, TapError>) -> Response {
    let error = match done {
        Ok(view) => return resource::answer(status, &json!(view)),
        Err(error) => error,
    };
    let status = match &error {
        TapError::Resource(error) => return resource::refused(error),
        TapError::Forbidden => StatusCode::FORBIDDEN,
        TapError::Declared => StatusCode::CONFLICT,
        TapError::Wrong(_) | TapError::Elsewhere => StatusCode::BAD_REQUEST,
    };
    (status, format!("{error}\n")).into_response()
}

type Who = (Option<Extension<Peer>>, Option<Extension<Caller>>);

/// Who asks, for the log.
fn name_of((peer, caller): Who) -> String {
    let address = peer.map(|Extension(peer)| peer.address.to_string());
    let name = caller.and_then(|Extension(caller)| Some(caller.identity?.name));
    match (name, address) {
        (Some(name), Some(address)) => format!("{name} at {address}"),
        (None, Some(address)) => address,
        (_, None) => "an unknown client".to_owned(),
    }
}

async fn list(State(taps): State<Arc<TapManager>>) -> Response {
    blocking(move || resource::list(taps.list().iter().map(|view| json!(view)))).await
}

async fn one(State(taps): State<Arc<TapManager>>, Path(id): Path<String>) -> Response {
    blocking(move || answer(StatusCode::OK, taps.get(&id))).await
}

async fn remove(
    State(taps): State<Arc<TapManager>>,
    peer: Option<Extension<Peer>>,
    caller: Option<Extension<Caller>>,
    Path(id): Path<String>,
) -> Response {
    let who = name_of((peer, caller));
    blocking(move || answer(StatusCode::OK, taps.delete(&id, &who))).await
}

async fn create(
    State(taps): State<Arc<TapManager>>,
    peer: Option<Extension<Peer>>,
    caller: Option<Extension<Caller>>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let who = name_of((peer, caller));
    blocking(move || {
        let mut tap: Tap = match resource::object(&body) {
            Ok(tap) => tap,
            Err(error) => return bad_request(error),
        };
        match resource::ends_at(&headers) {
            Ok(end) => tap.expire_time = end.or(tap.expire_time),
            Err(error) => return bad_request(error),
        }
        answer(StatusCode::CREATED, taps.create(tap, &who))
    })
    .await
}

async fn change(
    State(taps): State<Arc<TapManager>>,
    peer: Option<Extension<Peer>>,
    caller: Option<Extension<Caller>>,
    Path(id): Path<String>,
    body: Bytes,
) -> Response {
    let who = name_of((peer, caller));
    blocking(move || match resource::object(&body) {
        Ok(patch) => answer(StatusCode::OK, taps.patch(&id, &patch, &who)),
        Err(error) => bad_request(error),
    })
    .await
}
