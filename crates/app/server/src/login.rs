//! `POST /login`, as Skydive's clients do it.

use std::sync::Arc;

use axum::{
    Extension, Form, Json,
    extract::{DefaultBodyLimit, FromRequest as _, Request},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    answer::Answer,
    auth::{CODE, COOKIE, Caller, Peer, Refusal, Role, SESSION},
    console,
    error::{ApiError, ErrorCode},
    gate::Gate,
    paths::is_form,
};

/// Bytes of a body.
const BODY: usize = 8 << 10;

/// A login: by password, by token, or by the code of a link.
#[derive(Deserialize, ToSchema)]
#[serde(untagged)]
enum Login {
    User(User),
    Token(Token),
    Code(Code),
}

/// A user of `api.users`.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = LoginByPassword)]
struct User {
    username: String,
    password: String,
}

/// What a link has that `skua console` prints.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = LoginByCode)]
struct Code {
    code: String,
}

/// What a page has that shall be its cookie from now on.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = LoginByToken)]
struct Token {
    token: String,
}

/// The path of this module.
pub fn routes() -> OpenApiRouter {
    OpenApiRouter::new()
        .routes(routes!(log_in))
        .routes(routes!(log_out))
        .routes(routes!(new_link))
        .layer(DefaultBodyLimit::max(BODY))
}

/// A form or JSON.
async fn read(request: Request) -> Result<Login, Response> {
    // The error does not quote the input: it may have a password.
    let wrong = |status: StatusCode| {
        let text =
            "the body is neither a form nor an object with username and password, token, or code\n";
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

/// Of all that a body can be wrong by only two kinds are distinguished.
fn plain(status: StatusCode) -> StatusCode {
    match status {
        StatusCode::PAYLOAD_TOO_LARGE | StatusCode::UNSUPPORTED_MEDIA_TYPE => status,
        _ => StatusCode::BAD_REQUEST,
    }
}

/// A session.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "PascalCase")]
struct Session<'a> {
    /// The token for later requests, as bearer or in `X-Auth-Token`.
    token: &'a str,
    /// Name of the user.
    name: &'a str,
    /// What the user may do.
    role: Role,
    /// Seconds that the session lasts.
    expires_in: u64,
}

/// Logs in, and sets a cookie
#[utoipa::path(post, path = "/login", operation_id = "login", tag = "server", security(()),
    request_body(content((Login = "application/json"), (Login = "application/x-www-form-urlencoded"))),
    responses((status = 200, description = "The session", body = Session, headers(("Set-Cookie" = String)))))]
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
            let body = Answer::of(&Session {
                token: &token,
                name: &identity.name,
                role: identity.role,
                expires_in: seconds,
            });
            let headers = [
                (header::SET_COOKIE, cookie),
                (header::CACHE_CONTROL, "no-store".to_owned()),
            ];
            (headers, body).into_response()
        }
        Err(refusal) if script => refusal.answer_script(),
        Err(refusal) => refusal.answer(),
    }
}

/// The address of the page with a code in its fragment, which browsers do not send and servers do not log.
pub fn link(page: &str, code: &str) -> String {
    format!("{page}/#login={code}")
}

/// A link to the page.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "PascalCase")]
struct ConsoleLink {
    /// With a code for one login.
    url: String,
    /// Seconds for which the code is valid.
    expires_in: u64,
}

/// A link to the page with a code for one login; for users of this host, at its socket
#[utoipa::path(post, path = "/api/console", operation_id = "newConsoleLink", tag = "server",
    responses((status = 200, description = "The link", body = ConsoleLink), (status = 404, description = "There is no page here")))]
async fn new_link(
    Extension(gate): Extension<Arc<Gate>>,
    Extension(peer): Extension<Peer>,
    Extension(caller): Extension<Caller>,
) -> Result<Response, ApiError> {
    // A token may be over before the session would be that its holder gets by a link.
    let Some(identity) = caller.identity.filter(|_| peer.local.is_some()) else {
        let text = "links are for users of this host, who ask at its socket: `skua console`";
        return Err(ApiError::new(ErrorCode::Forbidden, text));
    };
    if gate.page.is_empty() {
        return Err(ApiError::not_found(
            "there is no page here: api.listen is empty",
        ));
    }
    Ok(match gate.authenticator.new_code(identity) {
        Ok(code) => {
            let body = Answer::of(&ConsoleLink {
                url: link(&gate.page, &code),
                expires_in: CODE.as_secs(),
            });
            ([(header::CACHE_CONTROL, "no-store")], body).into_response()
        }
        Err(error) => {
            tracing::error!("{error:#}");
            Refusal::Busy.answer()
        }
    })
}

/// Ends the session and takes the cookie back
#[utoipa::path(post, path = "/logout", operation_id = "logout", tag = "server",
    responses((status = 204, description = "Ended", headers(("Set-Cookie" = String)))))]
async fn log_out(Extension(gate): Extension<Arc<Gate>>, headers: HeaderMap) -> Response {
    gate.authenticator.log_out(&headers);
    let cookie = format!("{COOKIE}=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0");
    ([(header::SET_COOKIE, cookie)], StatusCode::NO_CONTENT).into_response()
}
