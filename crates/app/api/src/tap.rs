//! `/api/tap`.

use std::sync::Arc;

use axum::{
    Router,
    body::Bytes,
    extract::{DefaultBodyLimit, Extension, Path, State},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse as _, Response},
    routing::{get, post},
};
use serde_json::json;
use skua_analyzer::tap::{Tap, TapError, TapManager, TapView};
use skua_runtime::{
    state::Shared,
    tap::live::{self, Passing},
};
use skua_server::{
    answer::bad_request,
    auth::{Caller, Peer},
    blocking, paths,
};

use crate::resource;

/// Bytes of a request at most: some hundred thousand addresses.
const BODY: usize = 8 << 20;

/// The paths of this module.
pub fn routes(taps: Arc<TapManager>, shared: Shared) -> Router {
    let watching = Router::new()
        .route("/api/tap/live", post(watch_new))
        .route("/api/tap/{id}/packets", get(packets))
        .layer(DefaultBodyLimit::max(BODY))
        .with_state((taps.clone(), shared));
    Router::new()
        .merge(watching)
        .route("/api/tap", get(list).post(create))
        .route("/api/tap/{id}", get(one).patch(change).delete(remove))
        .layer(DefaultBodyLimit::max(BODY))
        .with_state(taps)
}

fn answer(status: StatusCode, done: Result<TapView, TapError>) -> Response {
    match done {
        Ok(view) => resource::answer(status, &json!(view)),
        Err(error) => refused(&error),
    }
}

fn refused(error: &TapError) -> Response {
    let status = match error {
        TapError::Resource(error) => return resource::refused(error),
        TapError::Forbidden => StatusCode::FORBIDDEN,
        TapError::Declared | TapError::Watched => StatusCode::CONFLICT,
        TapError::Wrong(_) | TapError::Elsewhere | TapError::NoStream => StatusCode::BAD_REQUEST,
    };
    (status, format!("{error}\n")).into_response()
}

/// The packets of a tap from now on.
fn watched(
    (taps, shared): (Arc<TapManager>, Shared),
    id: &str,
    who: String,
    passing: bool,
) -> Response {
    let watch = match taps.watch(id, &who) {
        Ok(watch) => watch,
        Err(error) => return refused(&error),
    };
    let passing = passing.then_some(Passing { taps, who });
    match live::stream(watch, shared, passing) {
        Ok(Some(body)) => ([(header::CONTENT_TYPE, paths::PCAP)], body).into_response(),
        Ok(None) => {
            let text = "too many watch packets already\n";
            (StatusCode::TOO_MANY_REQUESTS, text).into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

type Watched = State<(Arc<TapManager>, Shared)>;

async fn packets(
    State(all): Watched,
    peer: Option<Extension<Peer>>,
    caller: Option<Extension<Caller>>,
    Path(id): Path<String>,
) -> Response {
    let who = name_of((peer, caller));
    blocking(move || watched(all, &id, who, false)).await
}

/// A tap that lasts as long as its packets are watched.
async fn watch_new(
    State(all): Watched,
    peer: Option<Extension<Peer>>,
    caller: Option<Extension<Caller>>,
    body: Bytes,
) -> Response {
    let who = name_of((peer, caller));
    blocking(move || {
        let mut tap: Tap = match resource::object(&body) {
            Ok(tap) => tap,
            Err(error) => return bad_request(error),
        };
        tap.to = vec!["stream".into()];
        tap.passing = true;
        match all.0.create(tap, &who) {
            Ok(view) => watched(all, &view.tap.uuid.to_string(), who, true),
            Err(error) => refused(&error),
        }
    })
    .await
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
