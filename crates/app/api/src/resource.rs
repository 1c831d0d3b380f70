//! Common parts of all resources' paths: a list is a map by identifier, as in Skydive.

use std::{collections::BTreeMap, time::Duration};

use axum::{
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
};
use serde::Serialize;
use serde_json::Value;
use skua_process::host::unix_ms;
use skua_server::{answer::Answer, blocking, error::ApiError};
use utoipa::ToSchema;

use crate::error::{Coded, refused};

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

/// What a handler returns.
pub type Answered<T> = Result<Answer<T>, ApiError>;

/// Answers with what the work gives, or with its error.
pub async fn answer<T: Serialize + Send + 'static, E: Coded>(
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Answered<T> {
    blocking(move || Ok(Answer::of(&work().map_err(refused)?))).await
}

/// The same for what was not there before.
pub async fn created<T: Serialize + Send + 'static, E: Coded>(
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Answered<T> {
    answer(work).await.map(Answer::created)
}

/// Answers with what has changed, or that nothing has.
pub async fn changed<T: Serialize + Send + 'static, E: Coded>(
    work: impl FnOnce() -> Result<Option<T>, E> + Send + 'static,
) -> Result<Response, ApiError> {
    blocking(move || {
        Ok(match work().map_err(refused)? {
            Some(element) => Answer::of(&element).into_response(),
            None => StatusCode::NOT_MODIFIED.into_response(),
        })
    })
    .await
}

/// Deletes something; the answer says no more than that.
pub async fn deleted<T, E: Coded>(
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Result<StatusCode, ApiError> {
    blocking(move || work().map_err(refused).map(|_| StatusCode::OK)).await
}

/// Answers with all of a list by identifier.
pub async fn by_id<T: Serialize + Send + 'static, L: IntoIterator<Item = T>>(
    list: impl FnOnce() -> L + Send + 'static,
    id: fn(&T) -> String,
) -> Answered<BTreeMap<String, T>> {
    blocking(move || {
        let all = list().into_iter().map(|one| (id(&one), one));
        Ok(Answer::of(&all.collect()))
    })
    .await
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
