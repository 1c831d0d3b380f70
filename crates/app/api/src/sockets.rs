//! Sockets, services and dependencies in the API.

use std::io::{self, Write as _};

use axum::{
    Router,
    extract::{Query, State as Extract},
    http::StatusCode,
    response::{IntoResponse as _, Response},
    routing::get,
};
use skua_runtime::{
    sockets::{
        Sockets,
        calls::{self, CallsQuery},
        query::{self, SocketQuery},
    },
    state::{Shared, State},
};
use skua_server::{
    Answering, Writer,
    answer::{Parameters, bad_request},
    streaming,
};
use skua_socket::FoundSocket;

/// The routes.
pub fn routes(shared: Shared) -> Router {
    Router::new()
        .route("/api/sockets", get(sockets))
        .route("/api/services", get(services))
        .route("/api/dependencies", get(dependencies))
        .with_state(shared)
}

const NOT_WATCHED: &str =
    "sockets are not watched: sockets.enabled is false, or nothing here lets us (`skua doctor`)\n";

/// Whether CSV is wanted, not JSON.
fn is_csv(format: Option<&str>) -> Result<bool, String> {
    match format {
        None | Some("json") => Ok(false),
        Some("csv") => Ok(true),
        Some(other) => Err(format!("no format \"{other}\": json or csv")),
    }
}

fn unavailable() -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, NOT_WATCHED).into_response()
}

/// Begins an answer of lines as of a drain.
fn begin(answering: Answering, csv: bool, drained_ns: u64) -> Writer {
    let kind = match csv {
        true => "text/csv",
        false => "application/x-ndjson",
    };
    answering.begin_with(kind, [("x-skua-drained", drained_ns)])
}

/// Fresh sockets, if they are watched.
fn watched(state: &mut State) -> Option<(&mut Sockets, u64)> {
    let State {
        sockets,
        drained_ns,
        ..
    } = state;
    Some((sockets.as_mut()?, *drained_ns))
}

fn noted(sent: io::Result<()>) {
    if let Err(error) = sent {
        tracing::debug!("an answer was not taken: {error}");
    }
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
    let csv = match is_csv(wanted.format.as_deref()) {
        Ok(csv) => csv,
        Err(error) => return bad_request(error),
    };
    streaming(move |answering| {
        let mut state = shared.fresh();
        let (found, drained_ns) = match watched(&mut state) {
            Some((sockets, drained_ns)) => (query::select(sockets, &wanted), drained_ns),
            None => return answering.ready(unavailable()),
        };
        drop(state);
        let mut body = begin(answering, csv, drained_ns);
        let sent = send(&mut body, &shared, &found, csv);
        noted(sent.and_then(|()| body.finish()));
    })
    .await
}

/// Sends lines, some at a time, so that the state is not held while somebody takes the answer.
fn send(body: &mut Writer, shared: &Shared, found: &[FoundSocket], csv: bool) -> io::Result<()> {
    const AT_ONCE: usize = 256;
    let mut lines = Vec::new();
    for some in found.chunks(AT_ONCE) {
        if let Some(sockets) = &shared.lock().sockets {
            query::write(&mut lines, sockets, some, csv);
        }
        body.write_all(&lines)?;
        lines.clear();
    }
    Ok(())
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
    let csv = match is_csv(wanted.format.as_deref()) {
        Ok(csv) => csv,
        Err(error) => return bad_request(error),
    };
    streaming(move |answering| {
        let mut state = shared.fresh();
        let (found, drained_ns) = match watched(&mut state) {
            Some((sockets, drained_ns)) => {
                (calls::select(sockets, &wanted, dependencies), drained_ns)
            }
            None => return answering.ready(unavailable()),
        };
        drop(state);
        let mut body = begin(answering, csv, drained_ns);
        let sent = calls::write(&mut body, &found, csv);
        noted(sent.and_then(|()| body.finish()));
    })
    .await
}
