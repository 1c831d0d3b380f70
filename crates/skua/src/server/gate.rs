//! What each request passes before it gets to its route: may a browser have been made to send it,
//! who asks, may it, and is its body there in time.

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

use super::{
    auth::{Authenticator, Caller, Identity, Peer, login},
    body,
    connections::{Doing, Place},
    fair::{ClientKey, Turns, network},
    work,
};
use crate::{console, guard::Guard, health::alive};

/// What all requests pass.
pub struct Gate {
    /// Which names are ours.
    pub guard: Guard,
    /// Who may ask; none when everyone may.
    pub authenticator: Option<Authenticator>,
    /// Whether connections are encrypted.
    pub tls: bool,
    /// Turns for what takes time.
    pub turns: Turns,
    /// How long a body may take.
    pub body_time: Duration,
}

fn refused(status: StatusCode, text: &'static str) -> Response {
    (status, text).into_response()
}

/// Lets through what may pass.
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
    let place = parts.extensions.remove::<Arc<Place>>();
    parts.extensions.insert(caller);
    parts.extensions.insert(gate.clone());
    let (body, late) = body::timed(inner, gate.body_time, place.clone());
    let answer = work::of_client(gate.turns.clone(), key, async {
        next.run(Request::from_parts(parts, body)).await
    })
    .await;
    // An answer without an end, like live packets, is work until its client goes.
    if let Some(place) = place.filter(|_| answer.body().size_hint().exact().is_some()) {
        place.set(Doing::Waiting);
    }
    if late.load(Ordering::Relaxed) {
        let text = "the body did not come in time\n";
        return (
            StatusCode::REQUEST_TIMEOUT,
            [(header::CONNECTION, "close")],
            text,
        )
            .into_response();
    }
    answer
}

/// What users of this host are told who may not ask.
const NOT_THEIRS: &str = "on this host root and the members of the group skua may ask, others with a \
    token or as api.others says (docs/api.md)\n";

async fn identify(gate: &Gate, peer: &Peer, request: &Parts) -> Result<Caller, Response> {
    let anyone = Caller {
        identity: None,
        by_cookie: false,
    };
    let (method, path) = (&request.method, request.uri.path());
    if let Some(local) = &peer.local
        && let Some(role) = local.role
    {
        let identity = Identity {
            name: local.name.clone(),
            role,
        };
        let caller = Caller {
            identity: Some(identity),
            by_cookie: false,
        };
        return allowed(caller, method, path);
    }
    let open = match path {
        login::PATH => *method == Method::POST,
        // Supervisors have no token, and it tells nothing.
        alive::PATH => matches!(*method, Method::GET | Method::HEAD),
        _ => console::is_page(method, path, &request.headers),
    };
    if open {
        return Ok(anyone);
    }
    let Some(authenticator) = &gate.authenticator else {
        return match &peer.local {
            None => Ok(anyone),
            Some(_) => Err(refused(StatusCode::FORBIDDEN, NOT_THEIRS)),
        };
    };
    let caller = authenticator
        .caller(peer, &request.headers)
        .await
        .map_err(|refusal| match console::is_script(&request.headers) {
            true => refusal.answer_script(),
            false => refusal.answer(),
        })?;
    allowed(caller, method, path)
}

/// Who asks, when it may.
#[allow(clippy::result_large_err, reason = "as of its caller")]
fn allowed(caller: Caller, method: &Method, path: &str) -> Result<Caller, Response> {
    if !caller.role().may(method, path) {
        return Err(refused(
            StatusCode::FORBIDDEN,
            match caller.role() {
                role if role.tells() => "an agent may only tell of its host, and ask nothing\n",
                _ => "the role read may only look; this needs the role admin\n",
            },
        ));
    }
    Ok(caller)
}
