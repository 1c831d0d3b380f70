//! `POST /login`, as Skydive's clients do it.

use std::sync::Arc;

use axum::{
    Extension, Form, Json, Router,
    extract::{DefaultBodyLimit, FromRequest as _, Request},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse as _, Response},
    routing::post,
};
use serde::Deserialize;
use serde_json::json;

use crate::{
    auth::{CODE, COOKIE, Caller, Peer, Refusal, SESSION},
    console,
    gate::Gate,
    paths::{CONSOLE, LOGIN, LOGOUT, is_form},
};

/// Bytes of a body.
const BODY: usize = 8 << 10;

#[derive(Deserialize)]
#[serde(untagged)]
enum Login {
    User(User),
    Token(Token),
    Code(Code),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct User {
    username: String,
    password: String,
}

/// What a link has that `skua console` prints.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Code {
    code: String,
}

/// What a page has that shall be its cookie from now on.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Token {
    token: String,
}

/// The path of this module.
pub fn routes() -> Router {
    Router::new()
        .route(LOGIN, post(log_in))
        .route(LOGOUT, post(log_out))
        .route(CONSOLE, post(new_link))
        .layer(DefaultBodyLimit::max(BODY))
}

/// A form or JSON.
async fn read(request: Request) -> Result<Login, Response> {
    // What is wrong is not repeated: it may have a password in it.
    let wrong = |status: StatusCode| {
        let text = "the body is no form or object with username and password, token, or code\n";
        (status, text).into_response()
    };
    if is_form(request.headers()) {
        let form = Form::<Login>::from_request(request, &()).await;
        return form
            .map(|Form(login)| login)
            .map_err(|e| wrong(plain(e.status())));
    }
    let json = Json::<Login>::from_request(request, &()).await;
    json.map(|Json(login)| login)
        .map_err(|e| wrong(plain(e.status())))
}

/// Of all that a body can be wrong by only two kinds are told apart.
fn plain(status: StatusCode) -> StatusCode {
    match status {
        StatusCode::PAYLOAD_TOO_LARGE | StatusCode::UNSUPPORTED_MEDIA_TYPE => status,
        _ => StatusCode::BAD_REQUEST,
    }
}

async fn log_in(
    Extension(gate): Extension<Arc<Gate>>,
    Extension(peer): Extension<Peer>,
    request: Request,
) -> Response {
    let authenticator = &gate.authenticator;
    let script = console::is_script(request.headers());
    let login = match read(request).await {
        Ok(login) => login,
        Err(refused) => return refused,
    };
    let done = match login {
        Login::User(user) => {
            authenticator
                .log_in(&peer, user.username, user.password)
                .await
        }
        Login::Token(Token { token }) => authenticator.log_in_by_token(&peer, &token),
        Login::Code(Code { code }) => authenticator.log_in_by_code(&peer, &code),
    };
    match done {
        Ok((identity, token)) => {
            let secure = if gate.tls { "; Secure" } else { "" };
            let seconds = SESSION.as_secs();
            let cookie = format!(
                "{COOKIE}={token}; Path=/; HttpOnly; SameSite=Strict; Max-Age={seconds}{secure}"
            );
            let body = json!({
                "Token": token,
                "Name": &*identity.name,
                "Role": identity.role,
                "ExpiresIn": seconds,
            });
            let headers = [
                (header::SET_COOKIE, cookie),
                (header::CACHE_CONTROL, "no-store".to_owned()),
            ];
            (headers, Json(body)).into_response()
        }
        Err(refusal) if script => refusal.answer_script(),
        Err(refusal) => refusal.answer(),
    }
}

/// The address of the page with a code in it, which is not sent to servers and is in no log of them.
pub fn link(page: &str, code: &str) -> String {
    format!("{page}/#login={code}")
}

async fn new_link(
    Extension(gate): Extension<Arc<Gate>>,
    Extension(peer): Extension<Peer>,
    Extension(caller): Extension<Caller>,
) -> Response {
    // A token may be over before the session would be that its holder gets by a link.
    let Some(identity) = caller.identity.filter(|_| peer.local.is_some()) else {
        let text = "links are for users of this host, who ask at its socket: `skua console`\n";
        return (StatusCode::FORBIDDEN, text).into_response();
    };
    if gate.page.is_empty() {
        let text = "there is no page here: api.listen is empty\n";
        return (StatusCode::NOT_FOUND, text).into_response();
    }
    match gate.authenticator.new_code(identity) {
        Ok(code) => {
            let body = json!({"Url": link(&gate.page, &code), "ExpiresIn": CODE.as_secs()});
            ([(header::CACHE_CONTROL, "no-store")], Json(body)).into_response()
        }
        Err(error) => {
            tracing::error!("{error:#}");
            Refusal::Busy.answer()
        }
    }
}

async fn log_out(Extension(gate): Extension<Arc<Gate>>, headers: HeaderMap) -> Response {
    gate.authenticator.log_out(&headers);
    let cookie = format!("{COOKIE}=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0");
    ([(header::SET_COOKIE, cookie)], StatusCode::NO_CONTENT).into_response()
}
