//! `/api/capture`.

use std::sync::Arc;

use axum::{
    Router,
    body::Bytes,
    extract::{DefaultBodyLimit, Path, State},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse as _, Response},
    routing::{get, post},
};
use serde_json::{Value, json};
use skua_analyzer::capture::{Capture, CaptureError, CaptureManager, CaptureStatus, PointState};

use skua_runtime::captures::{
    live::{self, Passing},
    run::CaptureSets,
};
use skua_server::{answer::bad_request, blocking, paths};
use uuid::Uuid;

use crate::{
    resource,
    upload::{self, Uploads},
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
    /// Name of this host: packets of others are to be had there.
    pub host: Arc<str>,
}

impl Captures {
    /// Why packets of a capture cannot be had here: all its nodes are on other hosts.
    fn elsewhere(&self, capture: &Capture) -> Option<String> {
        let (_, status) = self.captures.get(&capture.uuid.to_string()).ok()?;
        let mut hosts = status.nodes.iter().map(|(point, _)| &point.host);
        let first = hosts.next().filter(|host| **host != self.host)?;
        hosts.all(|host| *host != self.host).then(|| {
            format!("its nodes are on other hosts, like {first}: ask the agent there for packets")
        })
    }
}

/// The paths of this module.
pub fn routes(captures: Captures) -> Router {
    let uploads = upload::routes(captures.uploads.clone());
    Router::new()
        .route("/api/capture", get(list).post(create))
        .route("/api/capture/live", post(live))
        .route("/api/capture/{id}/packets", get(packets))
        .route("/api/capture/{id}", get(one).delete(remove))
        .layer(DefaultBodyLimit::max(BODY))
        .with_state(captures)
        .merge(uploads)
}

fn watched(sets: CaptureSets, id: Uuid, passing: Option<Passing>) -> Response {
    match live::stream(sets, id, passing) {
        Ok(Some(body)) => ([(header::CONTENT_TYPE, paths::PCAP)], body).into_response(),
        Ok(None) => {
            let text = "too many watch packets already\n";
            (StatusCode::TOO_MANY_REQUESTS, text).into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

/// The packets of a capture from now on, as pcapng.
async fn packets(State(all): State<Captures>, Path(id): Path<String>) -> Response {
    blocking(move || match all.captures.get(&id) {
        Ok((capture, _)) if capture.raw_packet_limit == 0 => bad_request(
            "this capture has no packets; make it with RawPacketLimit -1 (--rawpacket-limit -1)",
        ),
        Ok((capture, _)) => match all.elsewhere(&capture) {
            Some(why) => bad_request(why),
            None => watched(all.sets, capture.uuid, None),
        },
        // An agent runs captures that were made at its analyzer.
        Err(error) => match Uuid::parse_str(&id).ok().and_then(|id| all.sets.get(id)) {
            Some(set) if set.packets.is_some() => watched(all.sets, set.id, None),
            _ => refused(&error),
        },
    })
    .await
}

/// A capture that lasts as long as its packets are watched.
async fn live(State(all): State<Captures>, body: Bytes) -> Response {
    blocking(move || {
        let mut capture: Capture = match resource::object(&body) {
            Ok(capture) => capture,
            Err(error) => return bad_request(error),
        };
        if capture.raw_packet_limit == 0 {
            capture.raw_packet_limit = -1;
        }
        capture.passing = true;
        match all.captures.create(capture) {
            Ok(capture) => {
                let passing = Passing {
                    captures: all.captures.clone(),
                    id: capture.uuid,
                };
                if let Some(why) = all.elsewhere(&capture) {
                    return bad_request(why);
                }
                watched(all.sets, capture.uuid, Some(passing))
            }
            Err(error) => refused(&error),
        }
    })
    .await
}

/// A capture with its status.
fn shown(capture: &Capture, status: &CaptureStatus) -> Value {
    let mut value = json!(capture);
    let nodes: Vec<Value> = status
        .nodes
        .iter()
        .map(|(point, state)| {
            let mut node = json!({
                "TID": point.tid,
                "Host": point.host,
                "Name": point.name,
                "Type": point.kind,
                "State": state.name(),
            });
            if let PointState::Refused(why) = state {
                node["Error"] = json!(why);
            }
            if let Some(address) = status.listens_at.get(&point.node) {
                node["Listen"] = json!(address.ip());
                node["Port"] = json!(address.port());
            }
            node
        })
        .collect();
    value["Count"] = json!(nodes.len());
    value["Nodes"] = json!(nodes);
    if let Some(error) = &status.error {
        value["Error"] = json!(error);
    }
    if status.unfit > 0 {
        value["UnfitNodes"] = json!(status.unfit);
        value["Unfit"] = json!(status.unfit_why);
    }
    value
}

fn refused(error: &CaptureError) -> Response {
    match error {
        CaptureError::Wrong(why) => bad_request(why),
        CaptureError::Resource(error) => resource::refused(error),
    }
}

async fn list(State(Captures { captures, .. }): State<Captures>) -> Response {
    blocking(move || {
        let all = captures.list();
        resource::list(all.iter().map(|(capture, status)| shown(capture, status)))
    })
    .await
}

async fn one(
    State(Captures { captures, .. }): State<Captures>,
    Path(id): Path<String>,
) -> Response {
    blocking(move || match captures.get(&id) {
        Ok((capture, status)) => resource::answer(StatusCode::OK, &shown(&capture, &status)),
        Err(error) => refused(&error),
    })
    .await
}

async fn remove(
    State(Captures { captures, .. }): State<Captures>,
    Path(id): Path<String>,
) -> Response {
    blocking(move || match captures.delete(&id) {
        Ok(_) => StatusCode::OK.into_response(),
        Err(error) => refused(&error),
    })
    .await
}

async fn create(
    State(Captures { captures, .. }): State<Captures>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    blocking(move || {
        let mut capture: Capture = match resource::object(&body) {
            Ok(capture) => capture,
            Err(error) => return bad_request(error),
        };
        match resource::ends_at(&headers) {
            Ok(end) => capture.expire_time = end.or(capture.expire_time),
            Err(error) => return bad_request(error),
        }
        match captures.create(capture) {
            Ok(capture) => {
                let shown = shown(&capture, &CaptureStatus::default());
                resource::answer(StatusCode::CREATED, &shown)
            }
            Err(error) => refused(&error),
        }
    })
    .await
}
