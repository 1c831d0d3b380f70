//! Sockets, services and dependencies in the API.

use axum::{
    Router,
    extract::{Query, State as Extract},
    http::{StatusCode, header},
    response::{IntoResponse as _, Response},
    routing::get,
};

use super::{
    calls::{self, CallsQuery},
    query::{self, SocketQuery},
};
use crate::{
    http::{Parameters, bad_request, blocking},
    state::{Shared, State},
};

/// The routes.
pub fn routes(shared: Shared) -> Router {
    Router::new()
        .route("/api/sockets", get(sockets))
        .route("/api/services", get(services))
        .route("/api/dependencies", get(dependencies))
        .with_state(shared)
}

/// Lines of fresh sockets.
async fn answer(
    shared: Shared,
    format: Option<String>,
    lines: impl FnOnce(&mut super::Sockets, bool) -> Vec<u8> + Send + 'static,
) -> Response {
    let csv = match format.as_deref() {
        None | Some("json") => false,
        Some("csv") => true,
        Some(other) => return bad_request(format_args!("no format \"{other}\": json or csv")),
    };
    blocking(move || {
        let mut state = shared.fresh();
        let State {
            sockets,
            drained_ns,
            ..
        } = &mut *state;
        let Some(sockets) = sockets else {
            return (
                StatusCode::SERVICE_UNAVAILABLE,
                "sockets are not watched: sockets.enabled is false, or nothing here lets us \
                 (`skua doctor`)\n",
            )
                .into_response();
        };
        let kind = if csv {
            "text/csv"
        } else {
            "application/x-ndjson"
        };
        let lines = lines(sockets, csv);
        (
            [
                (header::CONTENT_TYPE.as_str(), kind.to_owned()),
                ("x-skua-drained", drained_ns.to_string()),
            ],
            lines,
        )
            .into_response()
    })
    .await
}

async fn sockets(
    Extract(shared): Extract<Shared>,
    parameters: Parameters<SocketQuery>,
) -> Response {
    let wanted = match parameters {
        Ok(Query(wanted)) => wanted,
        Err(error) => return bad_request(error.body_text()),
    };
    if let Err(error) = wanted.check() {
        return bad_request(error);
    }
    let format = wanted.format.clone();
    answer(shared, format, move |sockets, csv| {
        query::lines(sockets, &wanted, csv)
    })
    .await
}

async fn services(
    Extract(shared): Extract<Shared>,
    parameters: Parameters<CallsQuery>,
) -> Response {
    calls(shared, parameters, false).await
}

async fn dependencies(
    Extract(shared): Extract<Shared>,
    parameters: Parameters<CallsQuery>,
) -> Response {
    calls(shared, parameters, true).await
}

async fn calls(shared: Shared, parameters: Parameters<CallsQuery>, dependencies: bool) -> Response {
    let wanted = match parameters {
        Ok(Query(wanted)) => wanted,
        Err(error) => return bad_request(error.body_text()),
    };
    let format = wanted.format.clone();
    answer(shared, format, move |sockets, csv| {
        calls::lines(sockets, &wanted, dependencies, csv)
    })
    .await
}
