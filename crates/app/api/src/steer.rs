//! `/api/steer`.

use std::collections::BTreeMap;

use axum::extract::{DefaultBodyLimit, Extension, Path, Query, State};
use serde::Deserialize;
use skua_runtime::steer::{
    Steers,
    view::{SteerChannels, SteerEvents, SteerView},
};
use skua_server::{
    answer::{Answer, Json, Parameters},
    auth::{Caller, Peer, who},
    blocking,
};
use skua_steer::Written;
use utoipa::IntoParams;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    error::refused,
    resource::{Answered, answer, by_id},
};

/// Bytes of a request at most.
const BODY: usize = 256 << 10;

/// Channels of an answer, by default.
const CHANNELS: usize = 64;

/// The paths of this module.
pub fn routes(steers: Steers) -> OpenApiRouter {
    OpenApiRouter::new()
        .routes(routes!(detectors, apply_detector))
        .routes(routes!(get_detector, delete_detector))
        .routes(routes!(detector_channels))
        .routes(routes!(detector_events))
        .layer(DefaultBodyLimit::max(BODY))
        .with_state(steers)
}

/// All detectors by identifier
#[utoipa::path(get, path = "/api/steer", operation_id = "detectors", tag = "steer",
    responses((status = 200, description = "The detectors", body = BTreeMap<String, SteerView>)))]
async fn detectors(State(steers): State<Steers>) -> Answered<BTreeMap<String, SteerView>> {
    by_id(move || steers.list(), |view| view.uuid.to_string()).await
}

/// A detector and its status
#[utoipa::path(get, path = "/api/steer/{id}", operation_id = "getDetector", tag = "steer",
    params(("id" = String, Path, description = "Name or UUID")),
    responses((status = 200, description = "The detector", body = SteerView)))]
async fn get_detector(
    State(steers): State<Steers>,
    Path(name): Path<String>,
) -> Answered<SteerView> {
    answer(move || steers.get(&name)).await
}

/// Stops a detector and its steering
#[utoipa::path(delete, path = "/api/steer/{id}", operation_id = "deleteDetector", tag = "steer",
    params(("id" = String, Path, description = "Name or UUID")),
    responses((status = 200, description = "The detector, as it was", body = SteerView)))]
async fn delete_detector(
    State(steers): State<Steers>,
    Path(name): Path<String>,
    peer: Option<Extension<Peer>>,
    caller: Option<Extension<Caller>>,
) -> Answered<SteerView> {
    let who = who(peer, caller);
    answer(move || steers.delete(&name, &who)).await
}

/// Starts a detector, and replaces one of the same name
#[utoipa::path(post, path = "/api/steer", operation_id = "applyDetector", tag = "steer", request_body = Written,
    responses(
        (status = 200, description = "It replaces a detector of the same name", body = SteerView),
        (status = 201, description = "The new detector", body = SteerView),
        (status = 404, description = "An analyzer steers nothing itself"),
    ))]
async fn apply_detector(
    State(steers): State<Steers>,
    peer: Option<Extension<Peer>>,
    caller: Option<Extension<Caller>>,
    Json(written): Json<Written>,
) -> Answered<SteerView> {
    let who = who(peer, caller);
    blocking(move || {
        let (view, replaced) = steers.apply(written, &who).map_err(refused)?;
        let answer = Answer::of(&view);
        Ok(if replaced { answer } else { answer.created() })
    })
    .await
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct ChannelsParameters {
    /// Most channels, 64 by default; those that have fired first.
    limit: Option<usize>,
}

/// Channels of a detector with samples
#[utoipa::path(get, path = "/api/steer/{id}/channels", operation_id = "detectorChannels", tag = "steer",
    params(("id" = String, Path, description = "Name or UUID"), ChannelsParameters),
    responses((status = 200, description = "The channels", body = SteerChannels)))]
async fn detector_channels(
    State(steers): State<Steers>,
    Path(name): Path<String>,
    parameters: Parameters<ChannelsParameters>,
) -> Answered<SteerChannels> {
    let Query(asked) = parameters?;
    let most = asked.limit.unwrap_or(CHANNELS);
    answer(move || steers.channels(&name, most)).await
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct EventsParameters {
    /// Number of the first event to return.
    since: Option<u64>,
}

/// When channels of a detector fired and were released
#[utoipa::path(get, path = "/api/steer/{id}/events", operation_id = "detectorEvents", tag = "steer",
    params(("id" = String, Path, description = "Name or UUID"), EventsParameters),
    responses((status = 200, description = "The events", body = SteerEvents)))]
async fn detector_events(
    State(steers): State<Steers>,
    Path(name): Path<String>,
    parameters: Parameters<EventsParameters>,
) -> Answered<SteerEvents> {
    let Query(asked) = parameters?;
    blocking(move || {
        let events = steers.events(&name, asked.since.unwrap_or(0));
        Ok(Answer::of(&events.map_err(refused)?))
    })
    .await
}
