//! The routes of the JSON API and /metrics; `server` serves them.

#![allow(
    missing_docs,
    reason = "a part of one program; what it shows, only that program sees"
)]

pub mod addresses;
pub mod agents;
pub mod dns;
mod error;
pub mod health;
pub mod lake;
pub mod map;
pub mod metrics;
mod openapi;
pub mod resource;
pub mod services;
pub mod skydive;
mod sockets;
mod sql;
mod steer;
mod tap;
#[cfg(test)]
mod tests;
pub mod ws;

use axum::{
    Extension, Router,
    extract::{Query, State as Extract},
    http::Uri,
    response::{IntoResponse, Response},
    routing::any,
};
use serde::{Deserialize, Serialize};
use skua_flow::{SortBy, View};
use skua_probe::LiveAddresses;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::{router::OpenApiRouter, routes};

use self::{
    health::{Health, HealthStatus},
    lake::LakeAnswers,
    openapi::{Description, FlowLine, RowLine},
    skydive::{alerts, captures, elements, info, injection, topology},
    ws::Parts,
};
use skua_config::Config;
use skua_fleet::analyzer::Fleet;
use skua_runtime::{actions::Actions, query_engine::QueryEngine};
use skua_server as server;
use skua_server::{
    Limits,
    answer::{Answer, Parameters},
    blocking,
    error::ApiError,
    login, streaming,
};
use skua_state::{Shared, copies::find_flows};
use skua_watch::{
    filter::flow_filter,
    flow_lines, groups,
    sockets::report::{self, MapMemory, SocketProbe},
    summary::{self, ProbeSummary},
};

const WELCOME: &str = "\
skua run

  GET /api/flows       conversations, one JSON object a line
                       ?filter=EXPRESSION&sort=rate|bytes|packets|last|start&limit=N&offset=N
                       &active=true&since=NS&format=json|csv&by=process|container|service|country|as|network
                       of the lake: ?since=1h&until=…&by=FIELD,…&where=CONDITION&sort=…&top=N
  GET /api/sql         rows of the lake, in builds with SQL: ?statement=SELECT&since=…&until=…&limit=N
  GET /api/sockets     sockets, one JSON object a line
                       ?listen=true&closed=true&process=NAME&pid=N&container=NAME&unit=NAME&port=N
                       &state=NAME&protocol=tcp|udp&netns=INODE&sort=…&limit=N&since=NS&format=json|csv
  GET /api/dns         questions to name servers and their answers, one JSON object a line (app.enabled)
                       ?name=TEXT&type=AAAA&code=NXDOMAIN&outcome=timeout&errors=true&client=ADDRESS
                       &server=ADDRESS&slower=MS&limit=N&summary=true&since=NS&format=json|csv
  GET /api/services    sums by service
                       ?clients=true&service=NAME&port=N&protocol=tcp|udp&sort=…&limit=N&format=json|csv
  GET /api/dependencies  which service calls which; parameters as above
  GET /api/services/graph  which service depends on which, with failures and quantiles of round-trip times
                       ?service=NAME&port=N&protocol=NAME&change=new|vanished&limit=N
                       &format=json|csv|dot; POST takes lines of a collector
  POST /api/topology   a query in Gremlin, {\"GremlinQuery\": \"G.V()\"}; GET is the whole graph
  GET /api/capture     captures; POST makes one, DELETE /api/capture/ID ends it
  POST /api/pcap       a capture file, whose flows are then there as those of a capture
  GET /api/steer       detectors; POST applies one, /api/steer/NAME/channels, …/events; DELETE
  GET|POST /api/injectpacket, /api/alert, /api/node, /api/edge, /api/noderule, /api/edgerule, /api/workflow
                       what users have made; …/UUID: GET, PATCH, DELETE
  GET /api/tap         taps: packets that are copied to monitors; POST, …/UUID: GET, PATCH, DELETE
  GET /api/agents      agents that have reported their hosts, and their state
  GET /api/summary     sums: seen, in flows, lost by cause
  GET /health          whether it does its work, for supervisors; needs no login
  GET /api/status      what is watched and how
  GET /api/addresses   address set; PUT replaces it, POST adds, DELETE removes
  GET /metrics         for Prometheus
";

/// Paths that only processes with a probe serve.
const PROBE_PATHS: [&str; 6] = [
    "/api/summary",
    "/api/sockets",
    "/api/services",
    "/api/dependencies",
    "/api/addresses",
    dns::PATH,
];

const NO_PROBE: &str = "an analyzer watches no host itself: ask for the flows of its agents with \
    `skua query 'G.Flows()'`, and `skua flows` and the like at an agent";

/// The paths of what acts on the host.
fn acting(actions: &Actions, shared: Shared) -> OpenApiRouter {
    injection::routes(actions.injections().clone())
        .merge(alerts::routes(actions.alerts().clone()))
        .merge(elements::routes(actions.elements().clone()))
        .merge(steer::routes(actions.steers().clone()))
        .merge(tap::routes(actions.tap_manager().clone(), shared))
}

/// All routes with those of WebSockets, of the page's login, and of the description of the API.
pub fn complete(routes: OpenApiRouter, parts: Parts, config: &Config, limits: &Limits) -> Router {
    let (routes, mut described) = routes.split_for_parts();
    let (more, also_described) = OpenApiRouter::new()
        .merge(login::routes())
        .merge(info::routes(config))
        .merge(openapi::routes())
        .merge(skydive::workflows::routes(config, &routes))
        .merge(ws::routes(&config.host_name(), parts, limits, &routes))
        .split_for_parts();
    described.merge(also_described);
    let description = Description::new(described);
    routes.merge(more).layer(Extension(description))
}

/// All routes.
pub fn routes(
    shared: Shared,
    live: Option<LiveAddresses>,
    engine: QueryEngine,
    captures: captures::Captures,
    fleet: Option<Fleet>,
    actions: &Actions,
    health: Health,
) -> OpenApiRouter {
    let probe = match live {
        Some(live) => OpenApiRouter::new()
            .routes(routes!(flows))
            .routes(routes!(get_summary))
            .with_state(shared.clone())
            .merge(sockets::routes(shared.clone()))
            .merge(dns::routes(shared.clone()))
            .merge(addresses::routes(live)),
        // A process without a probe counts nothing; an empty list would mean that there are no
        // interfaces.
        None => {
            let others = PROBE_PATHS.iter().fold(Router::new(), |router, path| {
                router.route(path, any(async || ApiError::not_found(NO_PROBE)))
            });
            OpenApiRouter::from(others).routes(routes!(flows_of_lake))
        }
    };
    OpenApiRouter::new()
        .routes(routes!(status))
        .routes(routes!(metrics::metrics))
        .with_state(shared.clone())
        .routes(routes!(sql_rows))
        .merge(server::console::routes(WELCOME))
        .merge(probe)
        .merge(map::routes(engine.clone()))
        .merge(topology::routes(engine))
        .merge(captures::routes(captures))
        .merge(fleet.map_or_else(OpenApiRouter::new, agents::routes))
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
    by: Option<FlowsBy>,
}

impl FlowsParameters {
    /// The parameters that may occur once, and the conditions.
    fn of(uri: &Uri, pairs: Vec<(String, String)>) -> Result<(Self, Vec<String>), ApiError> {
        const WHERE: &str = "where=";
        let parts = uri.query().unwrap_or_default().split('&');
        let once: Vec<&str> = parts.filter(|part| !part.starts_with(WHERE)).collect();
        let uri = format!("/?{}", once.join("&")).parse();
        let uri: Uri = uri.map_err(|error| ApiError::bad_request(format_args!("{error}")))?;
        let Query(parameters) = Query::try_from_uri(&uri)?;
        let conditions = pairs.into_iter().filter(|(name, _)| name == "where");
        Ok((parameters, conditions.map(|(_, text)| text).collect()))
    }
}

/// What an answer is summed up by.
#[derive(Deserialize, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum FlowsBy {
    Process,
    Container,
    Service,
    Country,
    #[serde(alias = "asn")]
    As,
    Network,
    /// No sums: each conversation at each interface.
    Point,
}

impl FlowsBy {
    fn groups(self) -> Option<groups::By> {
        match self {
            Self::Process => Some(groups::By::Process),
            Self::Container => Some(groups::By::Container),
            Self::Service => Some(groups::By::Service),
            Self::Country => Some(groups::By::Country),
            Self::As => Some(groups::By::As),
            Self::Network => Some(groups::By::Network),
            Self::Point => None,
        }
    }
}

/// Parameters as given; each may occur several times.
type Pairs = Parameters<Vec<(String, String)>>;

/// All parameters of `/api/flows`: those of memory, and those of the lake.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[allow(dead_code, reason = "only their description is used")]
struct AllFlowsParameters {
    /// Conditions like `process:curl port:443 rate>1Mbit`, or a pcap expression; one word that is no expression is searched as a text
    filter: Option<String>,
    /// Order, the greatest first: `rate`, `bytes`, `packets`, `last`, `start`, `sent`, `received`, `begun`, `ended`, `retransmitted`, `rtt`
    sort: Option<String>,
    /// Lines at most
    limit: Option<u64>,
    /// Lines to leave out at the beginning; not with `by`
    offset: Option<u64>,
    /// Only conversations that have not ended
    active: Option<bool>,
    /// Only changes after this moment, ns since the Unix epoch: `x-skua-drained` of the last answer. A time ago like `1h`, or a
    /// moment like `2026-11-21T10:00:00Z`, queries the lake
    since: Option<String>,
    /// How lines are written, `json` or `csv`; json when left out
    format: Option<String>,
    /// Sums instead of each conversation: `process`, `container`, `service`, `country`, `as` or `network`; `point` for each conversation at each interface that has
    /// seen it; of the lake up to six fields, separated by commas
    by: Option<String>,
    /// Of the lake: before this moment, or this long ago
    until: Option<String>,
    /// Conditions like `process:nginx`; may be given several times, all must hold
    r#where: Option<Vec<String>>,
    /// Of the lake: lines at most
    top: Option<u64>,
    /// Of the lake: its table
    table: Option<String>,
}

/// Flows of the lake alone
#[utoipa::path(get, path = "/api/flows", operation_id = "flows", tag = "flows", params(AllFlowsParameters),
    responses((status = 200, description = "Sums", content((RowLine = "application/x-ndjson"), (String = "text/csv"))),
        (status = 404, description = "This process watches no host")))]
async fn flows_of_lake(
    lake: Option<Extension<LakeAnswers>>,
    parameters: Pairs,
) -> Result<Response, ApiError> {
    match (lake, parameters) {
        (Some(Extension(lake)), Ok(Query(pairs))) if lake::is_asked(&pairs) => {
            lake.answer(pairs).await
        }
        _ => Err(ApiError::not_found(NO_PROBE)),
    }
}

/// Queries the lake in SQL; rows as one JSON object a line; only in builds with an engine
#[utoipa::path(get, path = "/api/sql", operation_id = "sql", tag = "flows", params(sql::SqlParameters), responses(
    (status = 200, description = "Rows, with the names in the query", headers(("x-skua-more" = bool, description = "There are more rows than the limit")), content((RowLine = "application/x-ndjson"))),
    (status = 404, description = "There is no lake"),
    (status = 501, description = "This build has no engine; the text says how to get one")))]
async fn sql_rows(
    lake: Option<Extension<LakeAnswers>>,
    parameters: Parameters<sql::SqlParameters>,
) -> Result<Response, ApiError> {
    let Some(Extension(lake)) = lake else {
        return Err(ApiError::not_found(NO_PROBE));
    };
    let Query(asked) = parameters?;
    lake.sql(asked).await
}

/// Conversations, one JSON object a line; of the lake sums by up to six fields
#[utoipa::path(get, path = "/api/flows", operation_id = "flows", tag = "flows", params(AllFlowsParameters), responses(
    (status = 200, description = "Conversations",
        headers(
            ("x-skua-drained" = u64, description = "Time of the drain that the answer shows, ns since the Unix epoch"),
            ("x-skua-found" = u64, description = "Conversations that match, whether they are in the answer or not")),
        content((FlowLine = "application/x-ndjson"), (String = "text/csv"))),
    (status = 404, description = "There is no lake")))]
async fn flows(
    Extract(shared): Extract<Shared>,
    lake: Option<Extension<LakeAnswers>>,
    pairs: Pairs,
    uri: Uri,
) -> Result<Response, ApiError> {
    let Query(pairs) = pairs?;
    if let Some(Extension(lake)) = lake
        && lake::is_asked(&pairs)
    {
        return lake.answer(pairs).await;
    }
    let (parameters, conditions) = FlowsParameters::of(&uri, pairs)?;
    let sort = parameters.sort.as_deref().unwrap_or("rate");
    let sort = SortBy::named(sort).ok_or_else(|| {
        let names = SortBy::ALL.map(|(name, _)| name).join(", ");
        ApiError::bad_request(format_args!("cannot sort by \"{sort}\": {names}"))
    })?;
    let csv = match parameters.format.as_deref() {
        None | Some("json") => false,
        Some("csv") => true,
        Some(other) => {
            return Err(ApiError::bad_request(format_args!(
                "unknown format \"{other}\": json or csv"
            )));
        }
    };
    if let Some(by) = parameters.by.and_then(FlowsBy::groups) {
        by.check().map_err(ApiError::bad_request)?;
    }
    if parameters.by.and_then(FlowsBy::groups).is_some() && parameters.offset.is_some() {
        return Err(ApiError::bad_request(
            "`offset` pages through conversations, not through sums",
        ));
    }
    let answer = streaming(move |answering| {
        // Not on the thread that serves all, and before anything is locked.
        let filter = match flow_filter(parameters.filter.as_deref(), &conditions) {
            Ok(filter) => filter,
            Err(error) => return answering.ready(ApiError::bad_request(error).into_response()),
        };
        let drained = shared.fresh().drained_ns;
        let offset = parameters.offset.unwrap_or(0);
        let query = skua_flow::Query {
            updated_after_ns: parameters.since.unwrap_or(0),
            active_only: parameters.active.unwrap_or(false),
            view: match parameters.by {
                Some(FlowsBy::Point) => View::Points,
                _ => View::Conversations,
            },
            sort,
            limit: parameters
                .limit
                .unwrap_or(usize::MAX)
                .saturating_add(offset),
            ..skua_flow::Query::all()
        }
        .having(filter);
        let kind = if csv {
            "text/csv"
        } else {
            "application/x-ndjson"
        };
        let begin = |found| {
            let numbers = [("x-skua-drained", drained), ("x-skua-found", found)];
            answering.begin_with(kind, numbers)
        };
        let sent = match parameters.by.and_then(FlowsBy::groups) {
            None => {
                let (found, all) = find_flows(&shared, &query);
                let mut body = begin(all as u64);
                let chosen = found.get(offset..).unwrap_or_default();
                flow_lines::send_flows(&mut body, &shared, &query, chosen, csv)
                    .and_then(|()| body.finish())
            }
            Some(by) => {
                let (groups, all) = groups::sorted(&shared, by, &query);
                let mut body = begin(all);
                groups::send(&mut body, &groups, csv).and_then(|()| body.finish())
            }
        };
        if let Err(error) = sent {
            tracing::debug!("a client did not read an answer: {error}");
        }
    });
    Ok(answer.await)
}

/// Sums: packets observed, in flows, lost by cause
#[utoipa::path(get, path = "/api/summary", operation_id = "summary", tag = "flows",
    responses((status = 200, description = "Sums", body = ProbeSummary)))]
async fn get_summary(Extract(shared): Extract<Shared>) -> Result<Answer<ProbeSummary>, ApiError> {
    blocking(move || {
        let state = shared.fresh();
        let sockets = state.sockets.as_ref().map(report::summary);
        let counts = state.counts();
        drop(state);
        Ok(Answer::of(&summary::of(&counts, sockets)))
    })
    .await
}

/// The hooks and interfaces in use.
#[derive(Serialize, ToSchema)]
struct Status {
    /// Version of the program.
    version: &'static str,
    /// Which programs of the ladder are in use.
    rung: String,
    /// How sockets are watched; null: they are not.
    sockets: Option<SocketProbe>,
    /// Maps in the kernel.
    maps: Vec<MapMemory>,
    /// Sums.
    summary: ProbeSummary,
    #[serde(flatten)]
    health: HealthStatus,
}

/// The hooks and interfaces in use
#[utoipa::path(get, path = "/api/status", operation_id = "status", tag = "server",
    responses((status = 200, description = "Status", body = Status)))]
async fn status(
    Extract(shared): Extract<Shared>,
    Extension(health): Extension<Health>,
) -> Result<Answer<Status>, ApiError> {
    blocking(move || {
        let state = shared.fresh();
        let (counts, rung) = (state.counts(), state.rung.to_string());
        let of_sockets = state.sockets.as_ref();
        let (sockets, sums) = (
            of_sockets.map(report::status),
            of_sockets.map(report::summary),
        );
        drop(state);
        let summary = summary::of(&counts, sums);
        let maps = counts.map_memory.iter().map(|(name, bytes)| MapMemory {
            name: name.to_string(),
            bytes: *bytes,
        });
        let maps = maps.collect();
        Ok(Answer::of(&Status {
            version: env!("CARGO_PKG_VERSION"),
            rung,
            sockets,
            maps,
            summary,
            health: health.status(),
        }))
    })
    .await
}
