//! Checks of each request before its route: whether another site may have made the browser send it, which
//! client sends it, whether it is permitted, and whether its body arrives in time.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use axum::{
    extract::{Request, State},
    http::{Method, StatusCode, header, request::Parts},
    middleware::Next,
    response::{IntoResponse as _, Response},
};

use http_body::Body as _;
use skua_config::Metrics;

use crate::{
    alive,
    auth::{Authenticator, Caller, Peer},
    body,
    connections::{Activity, ConnectionSlot},
    console,
    fair::{ClientKey, Turns, network},
    guard::Guard,
    paths, work,
};

/// Where the metrics are.
const METRICS: &str = "/metrics";

/// The checks that all requests pass.
pub struct Gate {
    /// Refuses requests from other sites.
    pub guard: Guard,
    /// Authenticates callers.
    pub authenticator: Authenticator,
    /// Who gets the metrics without a login.
    pub metrics: Metrics,
    /// The address of the page.
    pub page: String,
    /// Whether connections are encrypted.
    pub tls: bool,
    /// Turns for expensive work.
    pub turns: Turns,
    /// Time limit of a body.
    pub body_time: Duration,
}

fn refused(status: StatusCode, text: &'static str) -> Response {
    (status, text).into_response()
}

/// Passes permitted requests on.
pub async fn pass(State(gate): State<Arc<Gate>>, request: Request, next: Next) -> Response {
    let (mut parts, inner) = request.into_parts();
    let refusal = gate
        .guard
        .refusal(&parts.method, &parts.uri, &parts.headers);
    if let Some((status, reason)) = refusal {
        return (status, format!("{reason}\n")).into_response();
    }
    let Some(peer) = parts.extensions.get::<Peer>().cloned() else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    let caller = match identify(&gate, &peer, &parts).await {
        Ok(caller) => caller,
        Err(response) => return response,
    };
    let key = match &caller.identity {
        Some(identity) => ClientKey::Named(identity.name.clone()),
        None => ClientKey::Address(network(peer.address)),
    };
    let place = parts.extensions.remove::<Arc<ConnectionSlot>>();
    parts.extensions.insert(caller);
    parts.extensions.insert(gate.clone());
    let (body, late) = body::timed(inner, gate.body_time, place.clone());
    let answer = work::of_client(gate.turns.clone(), key, async {
        next.run(Request::from_parts(parts, body)).await
    })
    .await;
    // An endless answer, like live packets, counts as work until its client disconnects.
    if let Some(place) = place.filter(|_| answer.body().size_hint().exact().is_some()) {
        place.set(Activity::Waiting);
    }
    if late.load(Ordering::Relaxed) {
        let text = "the body did not arrive in time\n";
        return (
            StatusCode::REQUEST_TIMEOUT,
            [(header::CONNECTION, "close")],
            text,
        )
            .into_response();
    }
    answer
}

async fn identify(gate: &Gate, peer: &Peer, request: &Parts) -> Result<Caller, Response> {
    let anyone = Caller {
        identity: None,
        by_cookie: false,
    };
    let (method, path) = (&request.method, request.uri.path());
    let open = match path {
        paths::LOGIN => *method == Method::POST,
        // Supervisors have no token, and the answer has no secrets.
        path if alive::PATHS.contains(&path) => matches!(*method, Method::GET | Method::HEAD),
        METRICS if matches!(*method, Method::GET | Method::HEAD) => match gate.metrics {
            Metrics::Open => true,
            Metrics::Loopback => peer.local.is_none() && peer.address.is_loopback(),
            Metrics::Login => false,
        },
        _ => console::is_page(method, path, &request.headers),
    };
    if open {
        return Ok(anyone);
    }
    let caller = gate
        .authenticator
        .caller(peer, &request.headers)
        .await
        .map_err(|refusal| match console::is_script(&request.headers) {
            true => refusal.answer_script(),
            false => refusal.answer(),
        })?;
    if !caller.role().may(method, path) {
        return Err(refused(
            StatusCode::FORBIDDEN,
            match caller.role() {
                role if role.is_agent() => "an agent may only report its host; it may not query\n",
                _ => "the role read may not change anything; this needs the role admin\n",
            },
        ));
    }
    Ok(caller)
}
