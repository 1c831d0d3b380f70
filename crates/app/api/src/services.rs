//! `/api/services/graph`: edges, and lines that collectors bring.

use axum::{
    Router,
    body::Bytes,
    extract::{DefaultBodyLimit, Query, State as Extract},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse as _, Response},
    routing::get,
};
use skua_collect::graph::{Edge, GraphLine};
use skua_runtime::services::{
    ServiceGraph,
    exchange::{BATCH, BODY, GraphQuery, PATH, SENDER},
    show,
};
use skua_server::{
    answer::{Parameters, bad_request, json_answer},
    blocking,
};

/// The routes.
pub fn routes(graph: ServiceGraph) -> Router {
    Router::new()
        .route(PATH, get(edges).post(take))
        .layer(DefaultBodyLimit::max(BODY))
        .with_state(graph)
}

async fn edges(
    Extract(graph): Extract<ServiceGraph>,
    parameters: Parameters<GraphQuery>,
) -> Response {
    let query = match parameters {
        Ok(Query(query)) => query,
        Err(error) => return bad_request(error.body_text()),
    };
    if let Some(change) = &query.change
        && !["new", "vanished"].contains(&change.as_str())
    {
        return bad_request(format_args!("no change \"{change}\": new or vanished"));
    }
    type Write = fn(&[Edge]) -> Vec<u8>;
    let (kind, write) = match query.format.as_deref() {
        None | Some("json") => ("application/x-ndjson", show::json as Write),
        Some("csv") => ("text/csv", show::csv as Write),
        Some("dot") => ("text/vnd.graphviz", show::dot as Write),
        Some(other) => {
            return bad_request(format_args!("no format \"{other}\": json, csv or dot"));
        }
    };
    blocking(move || {
        let (mut edges, lost) = graph.edges();
        if let Some(at) = query.at {
            edges = match graph.edges_at(at.saturating_mul(1_000_000)) {
                Some(edges) => edges,
                None => return unknown(graph.begins_ns()),
            };
        }
        edges.retain(|edge| query.takes(edge));
        let found = edges.len();
        edges.truncate(query.limit.unwrap_or(usize::MAX));
        let headers = [
            (header::CONTENT_TYPE.as_str(), kind.to_owned()),
            ("x-skua-found", found.to_string()),
            ("x-skua-lost-lines", lost.lines.to_string()),
            ("x-skua-lost-records", lost.records.to_string()),
            ("x-skua-own-lines", lost.own_lines.to_string()),
        ];
        (headers, write(&edges)).into_response()
    })
    .await
}

/// Nothing is known of a moment.
fn unknown(begins_ns: Option<u64>) -> Response {
    let text = match begins_ns {
        Some(begin) => format!(
            "services are known since {} only: their past is in memory, and bounded\n",
            skua_record::time::UnixNs(begin)
        ),
        None => "nothing is known of services yet\n".into(),
    };
    (StatusCode::NOT_FOUND, text).into_response()
}

async fn take(Extract(graph): Extract<ServiceGraph>, headers: HeaderMap, body: Bytes) -> Response {
    let number = |name: &str| -> Option<u64> { headers.get(name)?.to_str().ok()?.parse().ok() };
    let (Some(sender), Some(batch)) = (number(SENDER), number(BATCH)) else {
        return bad_request(format_args!("{SENDER} and {BATCH} must be numbers"));
    };
    blocking(move || {
        let lines = body
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty());
        let lines: Result<Vec<GraphLine<'_>>, _> = lines.map(serde_json::from_slice).collect();
        match lines {
            Ok(lines) => {
                graph.take(sender, batch, &lines);
                json_answer(&serde_json::json!({ "lines": lines.len() }))
            }
            Err(error) => bad_request(format_args!("a line is not understood: {error}")),
        }
    })
    .await
}
