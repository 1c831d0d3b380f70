//! Common parts of all resources' paths: a list is a map by identifier, as in Skydive.

use std::time::Duration;

use axum::http::HeaderMap;
use serde_json::Value;
use skua_process::host::unix_ms;
use skua_server::error::ApiError;
use utoipa::ToSchema;

/// The header with a resource's lifetime.
pub const TTL: &str = "x-resource-ttl";

/// A JSON patch (RFC 6902).
#[derive(ToSchema)]
#[schema(value_type = Vec<PatchStep>)]
pub struct Patch(#[allow(dead_code, reason = "only its schema is used")] Value);

/// A step of a JSON patch.
#[derive(ToSchema)]
#[allow(dead_code, reason = "only its schema is used")]
pub struct PatchStep {
    /// `add`, `remove`, `replace`, `move`, `copy` or `test`.
    op: String,
    /// Where, as a JSON pointer.
    path: String,
    /// From where, of `move` and `copy`.
    from: Option<String>,
    /// The value of `add`, `replace` and `test`.
    value: Option<Value>,
}

/// When a resource made by this request ends, ms since the Unix epoch.
pub fn ends_at(headers: &HeaderMap) -> Result<Option<i64>, ApiError> {
    let Some(ttl) = headers.get(TTL) else {
        return Ok(None);
    };
    let text = ttl.to_str().unwrap_or_default();
    // Nanoseconds, as Go encodes them in JSON, or a duration like `1h`.
    let span = match text.parse::<u64>() {
        Ok(ns) => Duration::from_nanos(ns),
        Err(_) => humantime::parse_duration(text).map_err(|error| {
            ApiError::bad_request(format_args!("X-Resource-TTL: {error}; write it like 5m"))
        })?,
    };
    let ms = i64::try_from(span.as_millis()).unwrap_or(i64::MAX);
    Ok(Some(unix_ms().saturating_add(ms)))
}
