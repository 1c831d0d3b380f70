//! What the paths of all resources have in common: a list is a map by identifier, as Skydive has it.

use std::time::Duration;

use axum::{
    http::{HeaderMap, StatusCode},
    response::{IntoResponse as _, Response},
};
use serde_json::{Map, Value};
use skua_analyzer::ResourceError;
use skua_process::host::unix_ms;

/// How long a resource is to live, as requests say it.
const TTL: &str = "x-resource-ttl";

/// When a resource that is made by this request ends, ms since the Unix epoch.
pub fn ends_at(headers: &HeaderMap) -> Result<Option<i64>, String> {
    let Some(ttl) = headers.get(TTL) else {
        return Ok(None);
    };
    let text = ttl.to_str().unwrap_or_default();
    // Nanoseconds, as Go writes them into JSON, or as people write a time.
    let span = match text.parse::<u64>() {
        Ok(ns) => Duration::from_nanos(ns),
        Err(_) => humantime::parse_duration(text)
            .map_err(|error| format!("X-Resource-TTL: {error}; write it like 5m"))?,
    };
    let ms = i64::try_from(span.as_millis()).unwrap_or(i64::MAX);
    Ok(Some(unix_ms().saturating_add(ms)))
}

/// All by identifier.
pub fn list(items: impl Iterator<Item = Value>) -> Response {
    let by_id: Map<String, Value> = items
        .filter_map(|item| Some((item.get("UUID")?.as_str()?.to_owned(), item)))
        .collect();
    answer(StatusCode::OK, &Value::Object(by_id))
}

/// One object.
pub fn answer(status: StatusCode, value: &Value) -> Response {
    (
        status,
        [(axum::http::header::CONTENT_TYPE, "application/json")],
        format!("{value}\n"),
    )
        .into_response()
}

/// Why a request is refused.
pub fn refused(error: &ResourceError) -> Response {
    let status = match error {
        ResourceError::Duplicate { .. } => StatusCode::CONFLICT,
        ResourceError::Unknown { .. } => StatusCode::NOT_FOUND,
        ResourceError::TooMany(_) => StatusCode::TOO_MANY_REQUESTS,
        ResourceError::File { .. } => StatusCode::INTERNAL_SERVER_ERROR,
    };
    (status, format!("{error}\n")).into_response()
}

/// Reads the object of a request.
pub fn object<T: serde::de::DeserializeOwned>(body: &[u8]) -> Result<T, String> {
    serde_json::from_slice(body).map_err(|error| error.to_string())
}
