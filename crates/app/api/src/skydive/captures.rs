//! `/api/capture`.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    extract::{DefaultBodyLimit, Path, State},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use serde::Serialize;
use skua_control::capture::{Capture, CaptureManager, CaptureStatus, NodePoint, PointState};
use skua_runtime::captures::live::{self, Passing};
use skua_server::{
    answer::Json,
    blocking,
    error::{ApiError, ErrorCode},
    paths,
};
use skua_state::captures::CaptureSets;
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};
use uuid::Uuid;

use super::upload::{self, Uploads};
use crate::{
    error::refused,
    resource::{self, Answered, answer, by_id, created, deleted},
};

/// Bytes of a request at most.
const BODY: usize = 256 << 10;

/// Captures, and where those are that run.
#[derive(Clone)]
pub struct Captures {
    /// All of them.
    pub captures: Arc<CaptureManager>,
    /// Those that run here.
    pub sets: CaptureSets,
    /// Capture files.
    pub uploads: Uploads,
    /// Name of this host: other hosts have their own packets.
    pub host: Arc<str>,
}

impl Captures {
    /// Why packets of a capture are not available here: all its nodes are on other hosts.
    fn elsewhere(&self, capture: &Capture) -> Option<String> {
        let (_, status) = self.captures.get(&capture.uuid.to_string()).ok()?;
        let mut hosts = status.nodes.iter().map(|(point, _)| &point.host);
        let first = hosts.next().filter(|host| **host != self.host)?;
        hosts.all(|host| *host != self.host).then(|| {
            format!("its nodes are on other hosts, like {first}: query the agent there for packets")
        })
    }
}

/// The paths of this module.
pub fn routes(captures: Captures) -> OpenApiRouter {
    let uploads = upload::routes(captures.uploads.clone());
    OpenApiRouter::new()
        .routes(routes!(captures_by_id, create_capture))
        .routes(routes!(live_capture))
        .routes(routes!(capture_packets))
        .routes(routes!(get_capture, delete_capture))
        .layer(DefaultBodyLimit::max(BODY))
        .with_state(captures)
        .merge(uploads)
}

fn watched(sets: CaptureSets, id: Uuid, passing: Option<Passing>) -> Result<Response, ApiError> {
    match live::stream(sets, id, passing) {
        Ok(Some(body)) => Ok(([(header::CONTENT_TYPE, paths::PCAP)], body).into_response()),
        Ok(None) => Err(ApiError::new(
            ErrorCode::TooMany,
            "too many clients watch packets already",
        )),
        Err(error) => Err(ApiError::internal(error)),
    }
}

/// Packets of a capture from now on
#[utoipa::path(get, path = "/api/capture/{id}/packets", operation_id = "packets", tag = "skydive",
    params(("id" = String, Path, description = "UUID")),
    responses((status = 200, description = "Packets as pcapng", body = Vec<u8>, content_type = "application/vnd.tcpdump.pcap")))]
async fn capture_packets(
    State(all): State<Captures>,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    blocking(move || match all.captures.get(&id) {
        Ok((capture, _)) if capture.raw_packet_limit == 0 => Err(ApiError::bad_request(
            "this capture has no packets; make it with RawPacketLimit -1 (--rawpacket-limit -1)",
        )),
        Ok((capture, _)) => match all.elsewhere(&capture) {
            Some(why) => Err(ApiError::bad_request(why)),
            None => watched(all.sets, capture.uuid, None),
        },
        // An agent runs captures that were made at its analyzer.
        Err(error) => match Uuid::parse_str(&id).ok().and_then(|id| all.sets.get(id)) {
            Some(set) if set.packets.is_some() => watched(all.sets, set.id, None),
            _ => Err(refused(error)),
        },
    })
    .await
}

/// Packets of a capture that lasts as long as they are read
#[utoipa::path(post, path = "/api/capture/live", operation_id = "live", tag = "skydive", request_body = Capture,
    responses(
        (status = 200, description = "Packets as pcapng", body = Vec<u8>, content_type = "application/vnd.tcpdump.pcap"),
        (status = 409, description = "An equal one exists already"),
    ))]
async fn live_capture(
    State(all): State<Captures>,
    Json(mut capture): Json<Capture>,
) -> Result<Response, ApiError> {
    if capture.raw_packet_limit == 0 {
        capture.raw_packet_limit = -1;
    }
    capture.passing = true;
    blocking(move || {
        let capture = all.captures.create(capture).map_err(refused)?;
        let passing = Passing {
            captures: all.captures.clone(),
            id: capture.uuid,
        };
        match all.elsewhere(&capture) {
            Some(why) => Err(ApiError::bad_request(why)),
            None => watched(all.sets, capture.uuid, Some(passing)),
        }
    })
    .await
}

/// A capture with its status.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "PascalCase")]
struct CaptureView {
    #[serde(flatten)]
    capture: Capture,
    /// On how many nodes it is active.
    count: usize,
    /// The nodes.
    nodes: Vec<CaptureNode>,
    /// Why its query has no answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// Nodes selected that it cannot capture on.
    #[serde(skip_serializing_if = "Option::is_none")]
    unfit_nodes: Option<usize>,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    unfit: Option<String>,
}

/// A node that a capture has selected.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "PascalCase")]
struct CaptureNode {
    /// Identifier in flows.
    #[serde(rename = "TID")]
    tid: String,
    /// Name of its host.
    host: String,
    /// Its name.
    name: String,
    /// Its type.
    r#type: String,
    /// `active`, `pending` or `error`.
    state: &'static str,
    /// Why it is not captured on.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// Address that a receiver listens at.
    #[serde(skip_serializing_if = "Option::is_none")]
    listen: Option<String>,
    /// Its port.
    #[serde(skip_serializing_if = "Option::is_none")]
    port: Option<u16>,
}

impl CaptureNode {
    fn new(point: &NodePoint, state: &PointState, status: &CaptureStatus) -> Self {
        let address = status.listens_at.get(&point.node);
        Self {
            tid: point.tid.to_string(),
            host: point.host.to_string(),
            name: point.name.to_string(),
            r#type: point.kind.to_string(),
            state: state.name(),
            error: match state {
                PointState::Refused(why) => Some(why.to_string()),
                _ => None,
            },
            listen: address.map(|address| address.ip().to_string()),
            port: address.map(|address| address.port()),
        }
    }
}

impl CaptureView {
    fn new(capture: Capture, status: &CaptureStatus) -> Self {
        let nodes: Vec<_> = status
            .nodes
            .iter()
            .map(|(point, state)| CaptureNode::new(point, state, status))
            .collect();
        let unfit = status.unfit > 0;
        let active = PointState::Active.name();
        Self {
            capture,
            count: nodes.iter().filter(|node| node.state == active).count(),
            nodes,
            error: status.error.as_ref().map(ToString::to_string),
            unfit_nodes: unfit.then_some(status.unfit),
            unfit: status.unfit_why.clone().filter(|_| unfit),
        }
    }
}

/// All captures by identifier
#[utoipa::path(get, path = "/api/capture", operation_id = "captures", tag = "skydive",
    responses((status = 200, description = "Captures", body = BTreeMap<String, CaptureView>)))]
async fn captures_by_id(
    State(Captures { captures, .. }): State<Captures>,
) -> Answered<BTreeMap<String, CaptureView>> {
    let views = move || {
        let all = captures.list().into_iter();
        all.map(|(capture, status)| CaptureView::new(capture, &status))
    };
    by_id(views, |view| view.capture.uuid.to_string()).await
}

/// A capture and its status
#[utoipa::path(get, path = "/api/capture/{id}", operation_id = "capture", tag = "skydive",
    params(("id" = String, Path, description = "UUID")),
    responses((status = 200, description = "The capture", body = CaptureView)))]
async fn get_capture(
    State(Captures { captures, .. }): State<Captures>,
    Path(id): Path<String>,
) -> Answered<CaptureView> {
    answer(move || {
        let found = captures.get(&id);
        found.map(|(capture, status)| CaptureView::new(capture, &status))
    })
    .await
}

/// Ends a capture
#[utoipa::path(delete, path = "/api/capture/{id}", operation_id = "deleteCapture", tag = "skydive",
    params(("id" = String, Path, description = "UUID")),
    responses((status = 200, description = "It has ended")))]
async fn delete_capture(
    State(Captures { captures, .. }): State<Captures>,
    Path(id): Path<String>,
) -> Result<StatusCode, ApiError> {
    deleted(move || captures.delete(&id)).await
}

/// Makes a capture, which follows a query
#[utoipa::path(post, path = "/api/capture", operation_id = "createCapture", tag = "skydive",
    params(("X-Resource-TTL" = Option<String>, Header, description = "Time until it ends: ns, or like 5m")),
    request_body = Capture,
    responses(
        (status = 201, description = "The new capture", body = CaptureView),
        (status = 409, description = "An equal one exists already"),
    ))]
async fn create_capture(
    State(Captures { captures, .. }): State<Captures>,
    headers: HeaderMap,
    Json(mut capture): Json<Capture>,
) -> Answered<CaptureView> {
    capture.expire_time = resource::ends_at(&headers)?.or(capture.expire_time);
    created(move || {
        let made = captures.create(capture);
        made.map(|made| CaptureView::new(made, &CaptureStatus::default()))
    })
    .await
}
