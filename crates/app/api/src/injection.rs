//! `/api/injectpacket`.

use std::sync::Arc;

use axum::{
    Router,
    body::Bytes,
    extract::{DefaultBodyLimit, Extension, Path, State},
    http::StatusCode,
    response::{IntoResponse as _, Response},
    routing::get,
};
use serde_json::json;
use skua_analyzer::injection::{InjectionError, Injections, PacketInjection};
use skua_server::{
    answer::bad_request,
    auth::{Caller, Peer, who},
    blocking,
};

use crate::resource;

/// Bytes of a request at most: a capture file of 16 MiB in base64.
const BODY: usize = 24 << 20;

/// The paths of this module.
pub fn routes(injections: Arc<Injections>) -> Router {
    Router::new()
        .route("/api/injectpacket", get(list).post(create))
        .route("/api/injectpacket/{id}", get(one).delete(remove))
        .layer(DefaultBodyLimit::max(BODY))
        .with_state(injections)
}

fn refused(error: &InjectionError) -> Response {
    let status = match error {
        InjectionError::Wrong(why) => return bad_request(why),
        InjectionError::Forbidden => StatusCode::FORBIDDEN,
        InjectionError::TooMany(_) => StatusCode::TOO_MANY_REQUESTS,
        InjectionError::Unknown(_) => StatusCode::NOT_FOUND,
    };
    (status, format!("{error}\n")).into_response()
}

async fn list(State(injections): State<Arc<Injections>>) -> Response {
    blocking(move || resource::list(injections.list().iter().map(|view| json!(view)))).await
}

async fn one(State(injections): State<Arc<Injections>>, Path(id): Path<String>) -> Response {
    blocking(move || match injections.get(&id) {
        Ok(view) => resource::answer(StatusCode::OK, &json!(view)),
        Err(error) => refused(&error),
    })
    .await
}

async fn remove(State(injections): State<Arc<Injections>>, Path(id): Path<String>) -> Response {
    blocking(move || match injections.delete(&id) {
        Ok(view) => resource::answer(StatusCode::OK, &json!(view)),
        Err(error) => refused(&error),
    })
    .await
}

async fn create(
    State(injections): State<Arc<Injections>>,
    peer: Option<Extension<Peer>>,
    caller: Option<Extension<Caller>>,
    body: Bytes,
) -> Response {
    let who = who(peer, caller);
    blocking(move || {
        let asked: PacketInjection = match resource::object(&body) {
            Ok(asked) => asked,
            Err(error) => return bad_request(error),
        };
        match injections.create(asked, &who) {
            Ok(view) => resource::answer(StatusCode::CREATED, &json!(view)),
            Err(error) => refused(&error),
        }
    })
    .await
}
