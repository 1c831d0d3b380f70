//! Errors that requests end with, as a line of text or as JSON.

use axum::{
    body::{Body, HttpBody as _, to_bytes},
    extract::rejection::{BytesRejection, QueryRejection},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::Serialize;
use utoipa::ToSchema;

/// Media type of objects.
pub const JSON: &str = "application/json";

/// Bytes of an error's line at most.
const LINE: usize = 64 << 10;

/// What kind of error a request ends with. Each has one status of HTTP.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ErrorCode {
    /// 400: the request is wrong.
    BadRequest,
    /// 401: credentials are missing or wrong.
    Unauthenticated,
    /// 403: the role or the configuration does not allow it.
    Forbidden,
    /// 404: it does not exist.
    NotFound,
    /// 405: the path does not have this method.
    MethodNotAllowed,
    /// 408: the body took too long.
    Timeout,
    /// 409: another resource is in conflict, like one of the same name.
    Conflict,
    /// 413: the body is too long.
    TooLarge,
    /// 415: the body has the wrong media type.
    UnsupportedMediaType,
    /// 429: the limit of their number is reached, or too many logins have failed.
    TooMany,
    /// 500: the server failed.
    Internal,
    /// 501: not part of this build.
    NotImplemented,
    /// 503: not now, or it is not watched.
    Unavailable,
}

impl ErrorCode {
    /// Its status.
    pub fn status(self) -> StatusCode {
        match self {
            Self::BadRequest => StatusCode::BAD_REQUEST,
            Self::Unauthenticated => StatusCode::UNAUTHORIZED,
            Self::Forbidden => StatusCode::FORBIDDEN,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::Timeout => StatusCode::REQUEST_TIMEOUT,
            Self::Conflict => StatusCode::CONFLICT,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::UnsupportedMediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::TooMany => StatusCode::TOO_MANY_REQUESTS,
            Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
            Self::NotImplemented => StatusCode::NOT_IMPLEMENTED,
            Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// That of a status; others are of the client below 500, and ours from there on.
    fn of(status: StatusCode) -> Self {
        match status {
            StatusCode::UNAUTHORIZED => Self::Unauthenticated,
            StatusCode::FORBIDDEN => Self::Forbidden,
            StatusCode::NOT_FOUND => Self::NotFound,
            StatusCode::METHOD_NOT_ALLOWED => Self::MethodNotAllowed,
            StatusCode::REQUEST_TIMEOUT => Self::Timeout,
            StatusCode::CONFLICT => Self::Conflict,
            StatusCode::PAYLOAD_TOO_LARGE => Self::TooLarge,
            StatusCode::UNSUPPORTED_MEDIA_TYPE => Self::UnsupportedMediaType,
            StatusCode::TOO_MANY_REQUESTS => Self::TooMany,
            StatusCode::NOT_IMPLEMENTED => Self::NotImplemented,
            StatusCode::SERVICE_UNAVAILABLE => Self::Unavailable,
            status if status.is_server_error() => Self::Internal,
            _ => Self::BadRequest,
        }
    }
}

/// Why a request is refused. With `application/json` in `Accept` the client gets an object, else the message as one line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ApiError {
    /// What kind of error.
    pub code: ErrorCode,
    /// The cause and the remedy, in one line without a newline.
    pub message: String,
    /// Seconds after which another attempt may succeed.
    pub retry_after: Option<u32>,
}

impl ApiError {
    /// An error of this kind.
    pub fn new(code: ErrorCode, message: impl std::fmt::Display) -> Self {
        Self {
            code,
            message: message.to_string(),
            retry_after: None,
        }
    }

    /// The request is wrong.
    pub fn bad_request(message: impl std::fmt::Display) -> Self {
        Self::new(ErrorCode::BadRequest, message)
    }

    /// It does not exist.
    pub fn not_found(message: impl std::fmt::Display) -> Self {
        Self::new(ErrorCode::NotFound, message)
    }

    /// The server failed.
    pub fn internal(message: impl std::fmt::Display) -> Self {
        Self::new(ErrorCode::Internal, message)
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let line = format!("{}\n", self.message);
        let mut response = (self.code.status(), line).into_response();
        if let Some(seconds) = self.retry_after {
            let headers = response.headers_mut();
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        response
    }
}

impl From<BytesRejection> for ApiError {
    fn from(error: BytesRejection) -> Self {
        Self::new(ErrorCode::of(error.status()), error.body_text())
    }
}

impl From<QueryRejection> for ApiError {
    fn from(error: QueryRejection) -> Self {
        Self::bad_request(plainly(&error.body_text()))
    }
}

/// What is wrong with parameters, without the words of the library that reads them.
fn plainly(text: &str) -> String {
    let text = text
        .strip_prefix("Failed to deserialize query string: ")
        .unwrap_or(text);
    let rest = |from: &str, to: &str| text.replace(from, to);
    for (from, to) in [
        ("invalid digit found in string", "it must be a whole number"),
        (
            "cannot parse integer from empty string",
            "a number is missing",
        ),
        (
            "number too large to fit in target type",
            "the number is too large",
        ),
        (
            "provided string was not `true` or `false`",
            "it must be true or false",
        ),
        ("unknown field", "there is no parameter"),
        ("unknown variant", "there is no value"),
        ("duplicate field", "given twice: parameter"),
        ("missing field", "missing: parameter"),
    ] {
        if text.contains(from) {
            return rest(from, to).replace("expected one of", "there are");
        }
    }
    text.to_owned()
}

#[cfg(test)]
mod tests {
    #[test]
    fn parameters_are_refused_in_plain_words() {
        for (text, plain) in [
            (
                "Failed to deserialize query string: limit: invalid digit found in string",
                "limit: it must be a whole number",
            ),
            (
                "Failed to deserialize query string: unknown field `x`, expected one of `a`, `b`",
                "there is no parameter `x`, there are `a`, `b`",
            ),
            ("something else", "something else"),
        ] {
            assert_eq!(super::plainly(text), plain);
        }
    }
}

/// An error as JSON.
#[derive(Serialize, ToSchema)]
#[schema(as = Error)]
pub struct ErrorBody {
    /// Status of the answer.
    status: u16,
    /// What kind of error.
    code: ErrorCode,
    /// The cause and the remedy, in one line.
    message: String,
}

/// Whether the client accepts errors as JSON.
pub(crate) fn wants_json(headers: &HeaderMap) -> bool {
    let mut accepted = headers.get_all(header::ACCEPT).iter();
    accepted.any(|value| value.to_str().is_ok_and(|value| value.contains(JSON)))
}

/// The error of an answer as JSON; other answers, and errors that are no line of text, as they are.
pub(crate) async fn error_as_json(response: Response) -> Response {
    let status = response.status();
    let kind = response.headers().get(header::CONTENT_TYPE);
    let is_text = kind.is_none_or(|kind| kind.as_bytes().starts_with(b"text/plain"));
    let is_error = status.is_client_error() || status.is_server_error();
    // Errors are one line; streamed answers are none.
    let is_short = response
        .body()
        .size_hint()
        .upper()
        .is_some_and(|most| most <= LINE as u64);
    if !(is_error && is_text && is_short) {
        return response;
    }
    let (mut head, body) = response.into_parts();
    let bytes = to_bytes(body, LINE).await.unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let body = ErrorBody {
        status: status.as_u16(),
        code: ErrorCode::of(status),
        message: match text.trim_end() {
            "" => status.canonical_reason().unwrap_or_default().to_owned(),
            line => line.to_owned(),
        },
    };
    let text = serde_json::to_string(&body).unwrap_or_default();
    head.headers.remove(header::CONTENT_LENGTH);
    head.headers
        .insert(header::CONTENT_TYPE, HeaderValue::from_static(JSON));
    Response::from_parts(head, Body::from(text + "\n"))
}
