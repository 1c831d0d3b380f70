//! The routes of the JSON API and /metrics; `server` serves them.

#![allow(
    missing_docs,
    reason = "a part of one program; what it shows, only that program sees"
)]

pub mod addresses;
pub mod agents;
mod alerts;
pub mod captures;
mod elements;
pub mod health;
mod info;
mod injection;
pub mod lake;
pub mod map;
pub mod metrics;
mod openapi;
pub mod resource;
pub mod services;
mod sockets;
mod sql;
mod steer;
mod tap;
#[cfg(test)]
mod tests;
pub mod topology;
pub mod upload;
pub mod ws;

use std::cell::Cell;

use axum::{
    Extension, Router,
    extract::{Query, State as Extract},
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::{any, get},
};
use serde::Deserialize;
use skua_flow::{FlowRecord, SortBy};
use skua_probe::LiveAddresses;

use self::{health::Health, lake::LakeAnswers, ws::Parts};
use skua_config::Config;
use skua_runtime::{
    actions::Actions, fleet::Fleet, flow_lines, graph::Analyzer, groups,
    record_filter::RecordFilter, sockets::report, state::Shared, summary,
};
use skua_server as server;
use skua_server::{
    Limits,
    answer::{Parameters, bad_request, json_answer},
    blocking, login, streaming,
};

const WELCOME: &str = "\
skua run

  GET /api/flows       conversations, one JSON object a line
                       ?filter=EXPRESSION&sort=rate|bytes|packets|last|start&limit=N&offset=N
                       &active=true&since=NS&format=json|csv&by=process|container|service
                       of the lake: ?since=1h&until=…&by=FIELD,…&where=CONDITION&sort=…&top=N
  GET /api/sql         rows of the lake, in builds with SQL: ?statement=SELECT&since=…&until=…&limit=N
  GET /api/sockets     sockets, one JSON object a line
                       ?listen=true&closed=true&process=NAME&pid=N&container=NAME&unit=NAME&port=N
                       &state=NAME&protocol=tcp|udp&netns=INODE&sort=…&limit=N&since=NS&format=json|csv
  GET /api/services    sums by service
                       ?clients=true&service=NAME&port=N&protocol=tcp|udp&sort=…&limit=N&format=json|csv
  GET /api/dependencies  which service calls which; parameters as above
  GET /api/services/graph  who depends on whom, with failures and quantiles of round-trip times
                       ?service=NAME&port=N&protocol=NAME&change=new|vanished&limit=N
                       &format=json|csv|dot; POST takes lines of a collector
  POST /api/topology   a query in Gremlin, {\"GremlinQuery\": \"G.V()\"}; GET is the whole graph
  GET /api/capture     captures; POST makes one, DELETE /api/capture/ID ends it
  POST /api/pcap       a capture file, whose flows are then there as those of a capture
  GET /api/steer       detectors; POST applies one, /api/steer/NAME/channels, …/events; DELETE
  GET|POST /api/injectpacket, /api/alert, /api/node, /api/edge, /api/noderule, /api/edgerule
                       what was made; …/UUID: GET, PATCH, DELETE
  GET /api/tap         taps: packets that are copied to monitors; POST, …/UUID: GET, PATCH, DELETE
  GET /api/agents      agents that have told of their hosts, and how they fare
  GET /api/summary     sums: seen, in flows, lost by cause
  GET /health      whether it does its work, for supervisors; needs no login
  GET /api/status      what is watched and how
  GET /api/addresses   address set; PUT replaces it, POST adds, DELETE removes
  GET /metrics         for Prometheus
";

/// What only those have who watch a host themselves.
const PROBE_PATHS: [&str; 5] = [
    "/api/summary",
    "/api/sockets",
    "/api/services",
    "/api/dependencies",
    "/api/addresses",
];

const NO_PROBE: &str = "an analyzer watches no host itself: ask for the flows of its agents with \
    `skua query 'G.Flows()'`, and `skua flows` and the like at an agent\n";

/// The paths of what acts on the host.
fn acting(actions: &Actions, shared: Shared) -> Router {
    injection::routes(actions.injections().clone())
        .merge(alerts::routes(actions.alerts().clone()))
        .merge(elements::routes(actions.elements().clone()))
        .merge(steer::routes(actions.steers().clone()))
        .merge(tap::routes(actions.tap_manager().clone(), shared))
}

/// All routes with those of WebSockets, of the page's login, and of the description of the API.
pub fn complete(routes: Router, parts: Parts, config: &Config, limits: &Limits) -> Router {
    let sockets = ws::routes(parts, limits, &routes);
    routes
        .merge(login::routes())
        .merge(info::routes(config))
        .merge(openapi::routes())
        .merge(sockets)
}

/// All routes.
pub fn routes(
    shared: Shared,
    live: Option<LiveAddresses>,
    analyzer: Analyzer,
    captures: captures::Captures,
    fleet: Option<Fleet>,
    actions: &Actions,
    health: Health,
) -> Router {
    let probe = match live {
        Some(live) => Router::new()
            .route("/api/flows", get(get_flows))
            .route("/api/summary", get(get_summary))
            .with_state(shared.clone())
            .merge(sockets::routes(shared.clone()))
            .merge(addresses::routes(live)),
        // Nothing is counted by who has no probe; an empty list would say something else.
        None => {
            let flows = Router::new().route("/api/flows", any(get_lake));
            PROBE_PATHS.iter().fold(flows, |router, path| {
                router.route(path, any(async || (StatusCode::NOT_FOUND, NO_PROBE)))
            })
        }
    };
    Router::new()
        .route("/api/status", get(get_status))
        .route("/metrics", get(metrics::get))
        .with_state(shared.clone())
        .route("/api/sql", get(get_sql))
        .merge(server::console::routes(WELCOME))
        .merge(probe)
        .merge(map::routes(analyzer.clone()))
        .merge(topology::routes(analyzer))
        .merge(captures::routes(captures))
        .merge(fleet.map_or_else(Router::new, agents::routes))
        .merge(acting(actions, shared))
        .layer(Extension(actions.clone()))
        .layer(Extension(health))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FlowsParameters {
    filter: Option<String>,
    sort: Option<String>,
    limit: Option<usize>,
    offset: Option<usize>,
    active: Option<bool>,
    since: Option<u64>,
    format: Option<String>,
    by: Option<groups::By>,
}

/// Parameters as they are, each perhaps several times.
type Pairs = Parameters<Vec<(String, String)>>;

/// Flows of the lake alone.
async fn get_lake(lake: Option<Extension<LakeAnswers>>, parameters: Pairs) -> Response {
    match (lake, parameters) {
        (Some(Extension(lake)), Ok(Query(pairs))) if lake::is_asked(&pairs) => {
            lake.answer(pairs).await
        }
        _ => (StatusCode::NOT_FOUND, NO_PROBE).into_response(),
    }
}

/// Rows of the lake, by a question in SQL.
async fn get_sql(
    lake: Option<Extension<LakeAnswers>>,
    parameters: Parameters<sql::SqlParameters>,
) -> Response {
    match (lake, parameters) {
        (Some(Extension(lake)), Ok(Query(asked))) => lake.sql(asked).await,
        (None, _) => (StatusCode::NOT_FOUND, NO_PROBE).into_response(),
        (_, Err(error)) => bad_request(error.body_text()),
    }
}

async fn get_flows(
    Extract(shared): Extract<Shared>,
    lake: Option<Extension<LakeAnswers>>,
    pairs: Pairs,
    parameters: Parameters<FlowsParameters>,
) -> Response {
    if let (Some(Extension(lake)), Ok(Query(pairs))) = (lake, pairs)
        && lake::is_asked(&pairs)
    {
        return lake.answer(pairs).await;
    }
    let parameters = match parameters {
        Ok(Query(parameters)) => parameters,
        Err(error) => return bad_request(error.body_text()),
    };
    let sort = match parameters.sort.as_deref() {
        None | Some("rate") => SortBy::Rate,
        Some("bytes") => SortBy::Bytes,
        Some("packets") => SortBy::Packets,
        Some("last") => SortBy::Last,
        Some("start") => SortBy::First,
        Some(other) => {
            return bad_request(format_args!(
                "cannot sort by \"{other}\": rate, bytes, packets, last or start"
            ));
        }
    };
    let csv = match parameters.format.as_deref() {
        None | Some("json") => false,
        Some("csv") => true,
        Some(other) => return bad_request(format_args!("no format \"{other}\": json or csv")),
    };
    if parameters.by.is_some() && parameters.offset.is_some() {
        return bad_request("`offset` pages through conversations, not through sums");
    }
    streaming(move |answering| {
        // Not on the thread that serves all, and before anything is locked.
        let filter = parameters.filter.as_deref().map(RecordFilter::compile);
        let filter = match filter.transpose() {
            Ok(filter) => filter,
            Err(error) => return answering.ready(bad_request(error)),
        };
        let state = shared.fresh();
        let since = parameters.since.unwrap_or(0);
        let active = parameters.active.unwrap_or(false);
        let found = Cell::new(0u64);
        let offset = parameters.offset.unwrap_or(0);
        let query = skua_flow::Query {
            filter: |r: &FlowRecord| {
                let fits = r.updated_ns > since
                    && !(active && r.end.is_some())
                    && filter.as_ref().is_none_or(|filter| filter.matches(r));
                found.set(found.get() + u64::from(fits));
                fits
            },
            sort,
            limit: parameters
                .limit
                .unwrap_or(usize::MAX)
                .saturating_add(offset),
        };
        let kind = if csv {
            "text/csv"
        } else {
            "application/x-ndjson"
        };
        let drained = state.drained_ns;
        let begin = |found| {
            let numbers = [("x-skua-drained", drained), ("x-skua-found", found)];
            answering.begin_with(kind, numbers)
        };
        // The state is not held while somebody takes the answer.
        let sent = match parameters.by {
            None => {
                let places = state.store.find(&query);
                drop(state);
                let mut body = begin(found.get());
                let chosen = places.get(offset..).unwrap_or_default();
                flow_lines::send_flows(&mut body, &shared, chosen, csv).and_then(|()| body.finish())
            }
            Some(by) => {
                let groups = groups::sorted(&state, by, &query);
                drop(state);
                let mut body = begin(found.get());
                groups::send(&mut body, &groups, csv).and_then(|()| body.finish())
            }
        };
        if let Err(error) = sent {
            tracing::debug!("an answer was not taken: {error}");
        }
    })
    .await
}

async fn get_summary(Extract(shared): Extract<Shared>) -> Response {
    blocking(move || {
        let state = shared.fresh();
        json_answer(&summary::of(&state))
    })
    .await
}

async fn get_status(
    Extract(shared): Extract<Shared>,
    Extension(health): Extension<Health>,
) -> Response {
    blocking(move || {
        let state = shared.fresh();
        let mut status = serde_json::json!({
            "version": env!("CARGO_PKG_VERSION"),
            "rung": state.rung,
            "sockets": state.sockets.as_ref().map(report::status),
            "maps": state.map_memory.iter().map(|(name, bytes)| serde_json::json!({"name": name, "bytes": bytes})).collect::<Vec<_>>(),
            "summary": summary::of(&state),
        });
        drop(state);
        health.add_to(&mut status);
        json_answer(&status)
    })
    .await
}
