//! `/api/services/graph`: edges, and lines that collectors send. `/api/services/history`: their sums over time.

use axum::{
    body::Bytes,
    extract::{DefaultBodyLimit, Query, State as Extract},
    http::{HeaderMap, header},
    response::{IntoResponse as _, Response},
};
use serde::Serialize;
use skua_collect::graph::{Edge, GraphLine};
use skua_export::services::{
    ServiceGraph,
    exchange::{BATCH, BODY, GraphQuery, SENDER},
    history::{self, HistoryPoint, HistoryQuery},
    show,
};
use skua_process::host::unix_ns;
use skua_server::{
    answer::{Answer, Parameters},
    blocking,
    error::ApiError,
};
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::openapi::EdgeLine;

/// The routes.
pub fn routes(graph: ServiceGraph) -> OpenApiRouter {
    OpenApiRouter::new()
        .routes(routes!(edges, add_lines))
        .routes(routes!(edges_over_time))
        .layer(DefaultBodyLimit::max(BODY))
        .with_state(graph)
}

/// Which service depends on which, one edge a line, most bytes first
#[utoipa::path(get, path = "/api/services/graph", operation_id = "serviceGraph", tag = "sockets", params(GraphQuery),
    responses((status = 200, description = "Edges",
        headers(("x-skua-found" = u64), ("x-skua-lost-lines" = u64), ("x-skua-lost-records" = u64), ("x-skua-own-lines" = u64)),
        content((EdgeLine = "application/x-ndjson"), (String = "text/csv"), (String = "text/vnd.graphviz"))),
        (status = 404, description = "The graph has no data of that time")))]
async fn edges(
    Extract(graph): Extract<ServiceGraph>,
    parameters: Parameters<GraphQuery>,
) -> Result<Response, ApiError> {
    let Query(query) = parameters?;
    if let Some(change) = &query.change
        && !["new", "vanished"].contains(&change.as_str())
    {
        return Err(ApiError::bad_request(format_args!(
            "unknown change \"{change}\": new or vanished"
        )));
    }
    type Write = fn(&[Edge]) -> Vec<u8>;
    let (kind, write) = match query.format.as_deref() {
        None | Some("json") => ("application/x-ndjson", show::json as Write),
        Some("csv") => ("text/csv", show::csv as Write),
        Some("dot") => ("text/vnd.graphviz", show::dot as Write),
        Some(other) => {
            return Err(ApiError::bad_request(format_args!(
                "unknown format \"{other}\": json, csv or dot"
            )));
        }
    };
    blocking(move || {
        let (mut edges, lost) = graph.edges();
        if let Some(at) = query.at {
            edges = match graph.edges_at(at.saturating_mul(1_000_000)) {
                Some(edges) => edges,
                None => return Err(unknown(graph.begins_ns())),
            };
        }
        edges.retain(|edge| query.matches(edge));
        let found = edges.len();
        edges.truncate(query.limit.unwrap_or(usize::MAX));
        let headers = [
            (header::CONTENT_TYPE.as_str(), kind.to_owned()),
            ("x-skua-found", found.to_string()),
            ("x-skua-lost-lines", lost.lines.to_string()),
            ("x-skua-lost-records", lost.records.to_string()),
            ("x-skua-own-lines", lost.own_lines.to_string()),
        ];
        Ok((headers, write(&edges)).into_response())
    })
    .await
}

/// Calls of services over time: rate, errors and duration, in slices of 10 s, after a quarter of an hour of a minute, after an hour
/// of a quarter of an hour
#[utoipa::path(get, path = "/api/services/history", operation_id = "serviceHistory", tag = "sockets", params(HistoryQuery),
    responses((status = 200, description = "A line for each slice in which there was something, and each group",
        headers(("x-skua-begins" = u64, description = "Since when something is known, ms since the Unix epoch")),
        content((HistoryPoint = "application/x-ndjson")))))]
async fn edges_over_time(
    Extract(graph): Extract<ServiceGraph>,
    parameters: Parameters<HistoryQuery>,
) -> Result<Response, ApiError> {
    let Query(query) = parameters?;
    let series = query.series(unix_ns()).map_err(ApiError::bad_request)?;
    blocking(move || {
        let points = graph.series(&series, &|key| query.matches(key));
        let begins = graph.begins_ns().unwrap_or_else(unix_ns) / 1_000_000;
        let headers = [
            (
                header::CONTENT_TYPE.as_str(),
                "application/x-ndjson".to_owned(),
            ),
            ("x-skua-begins", begins.to_string()),
        ];
        Ok((headers, history::json(&points, series.by)).into_response())
    })
    .await
}

/// The graph has no data of that moment.
fn unknown(begins_ns: Option<u64>) -> ApiError {
    let text = match begins_ns {
        Some(begin) => format!(
            "services are known only since {}: their past is in memory, and limited",
            skua_record::time::UnixNs(begin)
        ),
        None => "no services are known yet".into(),
    };
    ApiError::not_found(text)
}

/// Lines accepted.
#[derive(Serialize, ToSchema)]
struct AcceptedLines {
    /// How many.
    lines: usize,
}

/// Accepts lines of a collector (its sink `analyzer`)
#[utoipa::path(post, path = "/api/services/graph", operation_id = "addServiceLines", tag = "sockets",
    params(
        ("x-skua-sender" = u64, Header, description = "Identifies the sender: another number in each run"),
        ("x-skua-batch" = u64, Header, description = "Number of the batch, greater than the one before; a batch that arrives twice counts once"),
    ),
    request_body(content = String, content_type = "application/x-ndjson"),
    responses((status = 200, description = "Number of lines accepted", body = AcceptedLines)))]
async fn add_lines(
    Extract(graph): Extract<ServiceGraph>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Answer<AcceptedLines>, ApiError> {
    let number = |name: &str| -> Option<u64> { headers.get(name)?.to_str().ok()?.parse().ok() };
    let (Some(sender), Some(batch)) = (number(SENDER), number(BATCH)) else {
        return Err(ApiError::bad_request(format_args!(
            "{SENDER} and {BATCH} must be numbers"
        )));
    };
    blocking(move || {
        let lines = body
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty());
        let lines: Result<Vec<GraphLine<'_>>, _> = lines.map(serde_json::from_slice).collect();
        let lines = lines.map_err(|error| {
            ApiError::bad_request(format_args!("a line cannot be read: {error}"))
        })?;
        graph.add_lines(sender, batch, &lines);
        Ok(Answer::of(&AcceptedLines { lines: lines.len() }))
    })
    .await
}
