//! `/api/topology`: queries.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use axum::{
    body::Bytes,
    extract::{DefaultBodyLimit, State},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use serde::Deserialize;
use skua_query::{
    Answer, Class, Limits, QueryError,
    output::{self, Format},
};
use skua_runtime::query_engine::QueryEngine;
use skua_server::{
    answer::object,
    error::{ApiError, ErrorCode},
    paths, streaming,
};
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    openapi::TopologyAnswer,
    skydive::pcap::{self, FileFormat},
};

/// Bytes of a request at most: a query has 64 KiB, escaped in JSON it may be longer.
const BODY: usize = 512 << 10;

/// Media types of answers, as Skydive names them.
const DOT: &str = "text/vnd.graphviz";
const TABLE: &str = "text/plain";
const JSON: &str = "application/json";

/// The paths of this module.
pub fn routes(engine: QueryEngine) -> OpenApiRouter {
    OpenApiRouter::new()
        .routes(routes!(whole_graph, ask))
        .layer(DefaultBodyLimit::max(BODY))
        .with_state(engine)
}

/// A query, as Skydive's clients send it.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = TopologyQuery)]
struct GremlinRequest {
    /// The query, like `G.V().Has('Name', 'eth0')`; without one there is no answer.
    #[serde(rename = "GremlinQuery", default)]
    query: String,
    /// The plan instead of the answer.
    #[serde(rename = "Explain", default)]
    explain: bool,
    /// Characters of a line of a table.
    #[serde(rename = "Width")]
    width: Option<usize>,
}

/// The complete graph
#[utoipa::path(get, path = "/api/topology", operation_id = "topology", tag = "skydive", responses(
    (status = 200, description = "The result, in the format of the Accept header", content(
        (TopologyAnswer = "application/json"), (String = "text/vnd.graphviz"), (String = "text/plain"), (Vec<u8> = "application/vnd.tcpdump.pcap"), (Vec<u8> = "application/x-pcapng"))),
    (status = 204, description = "The request has no query")))]
async fn whole_graph(State(engine): State<QueryEngine>, headers: HeaderMap) -> Response {
    let all = GremlinRequest {
        query: "G".into(),
        explain: false,
        width: None,
    };
    answer(engine, all, &headers).await
}

/// Answers a query in Gremlin
#[utoipa::path(post, path = "/api/topology", operation_id = "ask", tag = "skydive", request_body = GremlinRequest, responses(
    (status = 200, description = "The result, in the format of the Accept header", content(
        (TopologyAnswer = "application/json"), (String = "text/vnd.graphviz"), (String = "text/plain"), (Vec<u8> = "application/vnd.tcpdump.pcap"), (Vec<u8> = "application/x-pcapng"))),
    (status = 204, description = "The request has no query")))]
async fn ask(
    State(engine): State<QueryEngine>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, ApiError> {
    let body = if body.is_empty() { b"{}" } else { &*body };
    let request: GremlinRequest = object(body).map_err(|mut error| {
        let why = error.message;
        error.message = format!("the body is not {{\"GremlinQuery\": \"…\"}}: {why}");
        error
    })?;
    if request.query.is_empty() {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    Ok(answer(engine, request, &headers).await)
}

/// Cancels the query when its client disconnects.
struct CancelOnDrop(Arc<AtomicBool>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

async fn answer(engine: QueryEngine, request: GremlinRequest, headers: &HeaderMap) -> Response {
    let accept = headers
        .get(header::ACCEPT)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let width = request.width.unwrap_or(usize::MAX);
    let (shape, kind) = [
        (Shape::Text(Format::Dot), DOT),
        (Shape::Text(Format::Table { width }), TABLE),
        (Shape::File(FileFormat::Pcap), paths::PCAP),
        (Shape::File(FileFormat::PcapNg), paths::PCAPNG),
    ]
    .into_iter()
    .find(|(_, kind)| accept.contains(kind))
    .unwrap_or((Shape::Text(Format::Json), JSON));
    let cancel = Arc::new(AtomicBool::new(false));
    let _waiting = CancelOnDrop(cancel.clone());
    streaming(move |answering| {
        let done = engine.ask(
            &request.query,
            Limits::default(),
            &cancel,
            |prepared, found| match (found, shape) {
                (Some(found), Shape::Text(Format::Json)) => Ok(Written::Json(found)),
                (Some(found), Shape::Text(format)) => {
                    output::format(&found, format).map(Written::Text)
                }
                (Some(found), Shape::File(format)) => {
                    Ok(Written::File(pcap::write(&found, format)))
                }
                (None, _) => Ok(Written::Text(prepared.plan.to_string())),
            },
            request.explain,
        );
        let large = matches!(&done, Ok(Written::Json(found)) if found.len() >= LARGE);
        match done {
            Ok(Written::Json(found)) => {
                let mut body = answering.begin(kind);
                let sent = output::write_json(&found, &mut body).and_then(|()| body.finish());
                if let Err(error) = sent {
                    tracing::debug!("a client did not read an answer: {error}");
                }
            }
            Ok(Written::Text(text)) => {
                let kind = if request.explain { TABLE } else { kind };
                answering.ready(([(header::CONTENT_TYPE, kind)], text).into_response());
            }
            Ok(Written::File(Ok(file))) => {
                answering.ready(([(header::CONTENT_TYPE, kind)], file).into_response());
            }
            Ok(Written::File(Err(error))) => {
                answering.ready(ApiError::bad_request(error).into_response());
            }
            Err(error) => answering.ready(refused(&error, &request.query).into_response()),
        }
        if large {
            skua_kernel::release_free_memory();
        }
    })
    .await
}

/// Answers of this many elements return their memory to the system at once.
const LARGE: usize = 10_000;

/// An answer as it is sent.
enum Written {
    Json(Answer),
    Text(String),
    File(anyhow::Result<Vec<u8>>),
}

/// What is asked for.
#[derive(Clone, Copy)]
enum Shape {
    Text(Format),
    File(FileFormat),
}

/// Queries that ended at a limit.
static LIMITED: AtomicU64 = AtomicU64::new(0);

skua_process::metrics! { "Queries"
    LIMITED_QUERIES counter "skua_queries_limited_total" [] "Queries that ended at a limit of time, elements, memory or results.";
}

/// How many queries have ended at a limit of time, elements, memory or results.
pub fn limited() -> u64 {
    LIMITED.load(Ordering::Relaxed)
}

fn refused(error: &QueryError, query: &str) -> ApiError {
    if error.class == Class::Limit {
        LIMITED.fetch_add(1, Ordering::Relaxed);
    }
    let code = match error.class {
        Class::Cancelled => ErrorCode::Unavailable,
        _ => ErrorCode::BadRequest,
    };
    ApiError::new(code, error.render(query))
}
