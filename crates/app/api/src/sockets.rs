//! Sockets, services and dependencies in the API.

use std::io;

use axum::{
    extract::{Query, State as Extract},
    response::{IntoResponse as _, Response},
};
use skua_server::{
    Answering, Writer,
    answer::Parameters,
    error::{ApiError, ErrorCode},
    streaming,
};
use skua_state::{Shared, sockets::Sockets};
use skua_watch::sockets::{
    calls::{self, CallsQuery},
    query::{self, SocketQuery},
};
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::openapi::{CallsLine, SocketLine};

/// The routes.
pub fn routes(shared: Shared) -> OpenApiRouter {
    OpenApiRouter::new()
        .routes(routes!(sockets))
        .routes(routes!(services))
        .routes(routes!(dependencies))
        .with_state(shared)
}

const NOT_WATCHED: &str = "sockets are not watched: sockets.enabled is false, or rights or kernel features are missing (`skua doctor`)";

/// Whether CSV is requested instead of JSON.
fn is_csv(format: Option<&str>) -> Result<bool, ApiError> {
    match format {
        None | Some("json") => Ok(false),
        Some("csv") => Ok(true),
        Some(other) => Err(ApiError::bad_request(format_args!(
            "unknown format \"{other}\": json or csv"
        ))),
    }
}

fn unavailable() -> Response {
    ApiError::new(ErrorCode::Unavailable, NOT_WATCHED).into_response()
}

/// Begins an answer of lines as of a drain.
fn begin(answering: Answering, csv: bool, drained_ns: u64) -> Writer {
    let kind = match csv {
        true => "text/csv",
        false => "application/x-ndjson",
    };
    answering.begin_with(kind, [("x-skua-drained", drained_ns)])
}

/// Time of a drain that is not older than a moment, when sockets are watched.
fn drained(shared: &Shared) -> Option<u64> {
    let state = shared.fresh();
    state.sockets.as_ref().map(|_| state.drained_ns)
}

fn noted(sent: io::Result<()>) {
    if let Err(error) = sent {
        tracing::debug!("a client did not read an answer: {error}");
    }
}

/// Sockets, one JSON object a line
#[utoipa::path(get, path = "/api/sockets", operation_id = "sockets", tag = "sockets", params(SocketQuery),
    responses((status = 200, description = "Sockets", headers(("x-skua-drained" = u64)),
        content((SocketLine = "application/x-ndjson"), (String = "text/csv")))))]
async fn sockets(
    Extract(shared): Extract<Shared>,
    parameters: Parameters<SocketQuery>,
) -> Result<Response, ApiError> {
    let Query(wanted) = parameters?;
    wanted.check().map_err(ApiError::bad_request)?;
    let csv = is_csv(wanted.format.as_deref())?;
    let answer = streaming(move |answering| {
        let Some(drained_ns) = drained(&shared) else {
            return answering.ready(unavailable());
        };
        let read = |read: &mut dyn FnMut(&Sockets)| {
            if let Some(sockets) = &shared.read().sockets {
                read(sockets);
            }
        };
        let found = query::select(&read, &wanted);
        let mut body = begin(answering, csv, drained_ns);
        let sent = query::send(&mut body, &read, &found, csv);
        noted(sent.and_then(|()| body.finish()));
    });
    Ok(answer.await)
}

/// Sums by service
#[utoipa::path(get, path = "/api/services", operation_id = "services", tag = "sockets", params(CallsQuery),
    responses((status = 200, description = "Services", headers(("x-skua-drained" = u64)),
        content((CallsLine = "application/x-ndjson"), (String = "text/csv")))))]
async fn services(
    Extract(shared): Extract<Shared>,
    parameters: Parameters<CallsQuery>,
) -> Result<Response, ApiError> {
    calls(shared, parameters, false).await
}

/// Which service calls which
#[utoipa::path(get, path = "/api/dependencies", operation_id = "dependencies", tag = "sockets", params(CallsQuery),
    responses((status = 200, description = "Dependencies", headers(("x-skua-drained" = u64)),
        content((CallsLine = "application/x-ndjson"), (String = "text/csv")))))]
async fn dependencies(
    Extract(shared): Extract<Shared>,
    parameters: Parameters<CallsQuery>,
) -> Result<Response, ApiError> {
    calls(shared, parameters, true).await
}

async fn calls(
    shared: Shared,
    parameters: Parameters<CallsQuery>,
    dependencies: bool,
) -> Result<Response, ApiError> {
    let Query(wanted) = parameters?;
    let csv = is_csv(wanted.format.as_deref())?;
    let answer = streaming(move |answering| {
        let Some(drained_ns) = drained(&shared) else {
            return answering.ready(unavailable());
        };
        let mut state = shared.write();
        let sockets = state.sockets.as_mut();
        let found = sockets.map(|sockets| calls::all(sockets, &wanted, dependencies));
        drop(state);
        let found = calls::sorted(found.unwrap_or_default(), &wanted);
        let mut body = begin(answering, csv, drained_ns);
        let sent = calls::write(&mut body, &found, csv);
        noted(sent.and_then(|()| body.finish()));
    });
    Ok(answer.await)
}
