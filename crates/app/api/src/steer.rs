//! `/api/steer`.

use axum::{
    Router,
    body::Bytes,
    extract::{DefaultBodyLimit, Extension, Path, Query, State},
    http::StatusCode,
    response::{IntoResponse as _, Response},
    routing::get,
};
use serde::Deserialize;
use serde_json::Value;
use skua_runtime::steer::{SteerError, Steers};
use skua_server::{
    answer::{Parameters, bad_request},
    auth::{Caller, Peer, who},
    blocking,
};
use skua_steer::Written;

use crate::resource;

/// Bytes of a request at most.
const BODY: usize = 256 << 10;
/// Channels of an answer unless more are asked for.
const CHANNELS: usize = 64;

/// The paths of this module.
pub fn routes(steers: Steers) -> Router {
    Router::new()
        .route("/api/steer", get(list).post(apply))
        .route("/api/steer/{id}", get(one).delete(remove))
        .route("/api/steer/{id}/channels", get(channels))
        .route("/api/steer/{id}/events", get(events))
        .layer(DefaultBodyLimit::max(BODY))
        .with_state(steers)
}

fn answer(result: Result<Value, SteerError>) -> Response {
    match result {
        Ok(value) => resource::answer(StatusCode::OK, &value),
        Err(error) => refused(&error),
    }
}

fn refused(error: &SteerError) -> Response {
    let status = match error {
        SteerError::Wrong(why) => return bad_request(why),
        SteerError::Failed(_) => return bad_request(error),
        SteerError::Forbidden => StatusCode::FORBIDDEN,
        SteerError::TooMany(_) => StatusCode::TOO_MANY_REQUESTS,
        SteerError::Elsewhere | SteerError::Unknown(_) => StatusCode::NOT_FOUND,
    };
    (status, format!("{error}\n")).into_response()
}

async fn list(State(steers): State<Steers>) -> Response {
    blocking(move || resource::list(steers.list().into_iter())).await
}

async fn one(State(steers): State<Steers>, Path(name): Path<String>) -> Response {
    blocking(move || answer(steers.get(&name))).await
}

async fn remove(
    State(steers): State<Steers>,
    Path(name): Path<String>,
    peer: Option<Extension<Peer>>,
    caller: Option<Extension<Caller>>,
) -> Response {
    let who = who(peer, caller);
    blocking(move || answer(steers.delete(&name, &who))).await
}

async fn apply(
    State(steers): State<Steers>,
    peer: Option<Extension<Peer>>,
    caller: Option<Extension<Caller>>,
    body: Bytes,
) -> Response {
    let who = who(peer, caller);
    blocking(move || {
        let written: Written = match resource::object(&body) {
            Ok(written) => written,
            Err(error) => return bad_request(error),
        };
        match steers.apply(written, &who) {
            Ok((view, true)) => resource::answer(StatusCode::OK, &view),
            Ok((view, false)) => resource::answer(StatusCode::CREATED, &view),
            Err(error) => refused(&error),
        }
    })
    .await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChannelsParameters {
    limit: Option<usize>,
}

async fn channels(
    State(steers): State<Steers>,
    Path(name): Path<String>,
    parameters: Parameters<ChannelsParameters>,
) -> Response {
    match parameters {
        Ok(Query(asked)) => {
            let most = asked.limit.unwrap_or(CHANNELS);
            blocking(move || answer(steers.channels(&name, most))).await
        }
        Err(error) => bad_request(error.body_text()),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EventsParameters {
    since: Option<u64>,
}

async fn events(
    State(steers): State<Steers>,
    Path(name): Path<String>,
    parameters: Parameters<EventsParameters>,
) -> Response {
    match parameters {
        Ok(Query(asked)) => {
            blocking(move || answer(steers.events(&name, asked.since.unwrap_or(0)))).await
        }
        Err(error) => bad_request(error.body_text()),
    }
}
