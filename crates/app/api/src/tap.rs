//! `/api/tap`.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    extract::{DefaultBodyLimit, Extension, Path, State},
    http::{HeaderMap, header},
    response::{IntoResponse as _, Response},
};
use skua_control::{
    JsonPatch,
    tap::{Tap, TapManager, TapView},
};
use skua_runtime::tap::live::{self, Passing};
use skua_server::{
    answer::Json,
    auth::{Caller, Peer, who},
    blocking,
    error::{ApiError, ErrorCode},
    paths,
};
use skua_state::Shared;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    error::refused,
    resource::{self, Answered, Patch, answer, by_id, created},
};

/// Bytes of a request at most: some hundred thousand addresses.
const BODY: usize = 8 << 20;

/// The paths of this module.
pub fn routes(taps: Arc<TapManager>, shared: Shared) -> OpenApiRouter {
    let watching = OpenApiRouter::new()
        .routes(routes!(live_tap))
        .routes(routes!(tap_packets))
        .layer(DefaultBodyLimit::max(BODY))
        .with_state((taps.clone(), shared));
    OpenApiRouter::new()
        .merge(watching)
        .routes(routes!(taps_by_id, create_tap))
        .routes(routes!(get_tap, change_tap, delete_tap))
        .layer(DefaultBodyLimit::max(BODY))
        .with_state(taps)
}

/// The packets of a tap from now on.
fn watched(
    (taps, shared): (Arc<TapManager>, Shared),
    id: &str,
    who: String,
    passing: bool,
) -> Result<Response, ApiError> {
    let watch = taps.watch(id, &who).map_err(refused)?;
    let passing = passing.then_some(Passing { taps, who });
    match live::stream(watch, shared, passing) {
        Ok(Some(body)) => Ok(([(header::CONTENT_TYPE, paths::PCAP)], body).into_response()),
        Ok(None) => Err(ApiError::new(
            ErrorCode::TooMany,
            "too many clients watch packets already",
        )),
        Err(error) => Err(ApiError::internal(error)),
    }
}

type Watched = State<(Arc<TapManager>, Shared)>;

/// Packets of a tap made with To ["stream"] from now on
#[utoipa::path(get, path = "/api/tap/{id}/packets", operation_id = "tapPackets", tag = "tap",
    params(("id" = String, Path, description = "UUID")),
    responses(
        (status = 200, description = "Packets as pcapng", body = Vec<u8>, content_type = "application/vnd.tcpdump.pcap"),
        (status = 409, description = "Another client watches it already"),
    ))]
async fn tap_packets(
    State(all): Watched,
    peer: Option<Extension<Peer>>,
    caller: Option<Extension<Caller>>,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    let who = who(peer, caller);
    blocking(move || watched(all, &id, who, false)).await
}

/// Copies packets as pcapng as long as they are read
#[utoipa::path(post, path = "/api/tap/live", operation_id = "liveTap", tag = "tap", request_body = Tap,
    responses(
        (status = 200, description = "Packets as pcapng", body = Vec<u8>, content_type = "application/vnd.tcpdump.pcap"),
        (status = 409, description = "An equal one exists already"),
    ))]
async fn live_tap(
    State(all): Watched,
    peer: Option<Extension<Peer>>,
    caller: Option<Extension<Caller>>,
    Json(mut tap): Json<Tap>,
) -> Result<Response, ApiError> {
    let who = who(peer, caller);
    tap.to = vec!["stream".into()];
    tap.passing = true;
    blocking(move || {
        let view = all.0.create(tap, &who).map_err(refused)?;
        watched(all, &view.tap.uuid.to_string(), who, true)
    })
    .await
}

/// All taps by identifier, with what they have copied
#[utoipa::path(get, path = "/api/tap", operation_id = "taps", tag = "tap",
    responses((status = 200, description = "The taps", body = BTreeMap<String, TapView>)))]
async fn taps_by_id(State(taps): State<Arc<TapManager>>) -> Answered<BTreeMap<String, TapView>> {
    by_id(move || taps.list(), |view| view.tap.uuid.to_string()).await
}

/// A tap and what it has copied
#[utoipa::path(get, path = "/api/tap/{id}", operation_id = "getTap", tag = "tap",
    params(("id" = String, Path, description = "UUID")),
    responses((status = 200, description = "The tap", body = TapView)))]
async fn get_tap(State(taps): State<Arc<TapManager>>, Path(id): Path<String>) -> Answered<TapView> {
    answer(move || taps.get(&id)).await
}

/// Ends a tap
#[utoipa::path(delete, path = "/api/tap/{id}", operation_id = "deleteTap", tag = "tap",
    params(("id" = String, Path, description = "UUID")),
    responses(
        (status = 200, description = "The tap, with its last counters", body = TapView),
        (status = 409, description = "The configuration file defines it"),
    ))]
async fn delete_tap(
    State(taps): State<Arc<TapManager>>,
    peer: Option<Extension<Peer>>,
    caller: Option<Extension<Caller>>,
    Path(id): Path<String>,
) -> Answered<TapView> {
    let who = who(peer, caller);
    answer(move || taps.delete(&id, &who)).await
}

/// Copies packets to monitors from now on
#[utoipa::path(post, path = "/api/tap", operation_id = "createTap", tag = "tap",
    params(("X-Resource-TTL" = Option<String>, Header, description = "Time until it ends: ns, or like 5m")),
    request_body = Tap,
    responses(
        (status = 201, description = "The new tap", body = TapView),
        (status = 409, description = "An equal one exists already"),
    ))]
async fn create_tap(
    State(taps): State<Arc<TapManager>>,
    peer: Option<Extension<Peer>>,
    caller: Option<Extension<Caller>>,
    headers: HeaderMap,
    Json(mut tap): Json<Tap>,
) -> Answered<TapView> {
    let who = who(peer, caller);
    tap.expire_time = resource::ends_at(&headers)?.or(tap.expire_time);
    created(move || taps.create(tap, &who)).await
}

/// Changes a tap by a JSON patch (RFC 6902), without losing a packet
#[utoipa::path(patch, path = "/api/tap/{id}", operation_id = "changeTap", tag = "tap",
    params(("id" = String, Path, description = "UUID")), request_body = Patch,
    responses(
        (status = 200, description = "The tap, as changed", body = TapView),
        (status = 409, description = "The configuration file defines it"),
    ))]
async fn change_tap(
    State(taps): State<Arc<TapManager>>,
    peer: Option<Extension<Peer>>,
    caller: Option<Extension<Caller>>,
    Path(id): Path<String>,
    Json(patch): Json<JsonPatch>,
) -> Answered<TapView> {
    let who = who(peer, caller);
    answer(move || taps.patch(&id, &patch, &who)).await
}
