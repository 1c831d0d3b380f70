//! `/api` and `/api/config/{key}`: what this is, and how it is set up.

use std::sync::Arc;

use axum::{
    Extension,
    extract::{Path, State},
    response::{IntoResponse as _, Response},
};
use serde::Serialize;
use serde_json::Value;
use skua_config::Config;
use skua_server::{
    answer::Answer,
    auth::{Caller, Role},
    error::ApiError,
};
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::openapi::{self, Description};

/// Shown in place of secret values.
const MASK: &str = "(secret)";

/// Parts of keys with secret values. No key has one so far, since secrets are in files; future keys
/// might.
const SECRET: [&str; 4] = ["password", "secret", "token_value", "passphrase"];

/// The paths of this module.
pub fn routes(config: &Config) -> OpenApiRouter {
    // A configuration that was read can be written.
    let config = serde_json::to_value(config).unwrap_or(Value::Null);
    OpenApiRouter::new()
        .routes(routes!(about))
        .routes(routes!(configuration))
        .routes(routes!(configuration_key))
        .with_state(Arc::new(masked(config)))
}

/// Replaces secret values.
fn masked(value: Value) -> Value {
    let Value::Object(entries) = value else {
        return value;
    };
    let masked_entry = |(name, value): (String, Value)| {
        let secret = SECRET.iter().any(|part| name.contains(part));
        let empty = value.as_str().is_some_and(str::is_empty);
        let value = if secret && !empty {
            MASK.into()
        } else {
            masked(value)
        };
        (name, value)
    };
    entries.into_iter().map(masked_entry).collect()
}

/// What this is.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "PascalCase")]
struct About<'a> {
    /// `skua`.
    service: &'static str,
    /// Its version.
    version: &'static str,
    /// The caller; null if no login is needed.
    caller: Option<AboutCaller<'a>>,
    /// Where the description of the API is.
    description: &'static str,
    /// Optional parts that this build has: `sql`, an engine for queries of the lake.
    features: Vec<&'static str>,
    /// All paths.
    paths: Vec<&'a str>,
}

/// The caller.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "PascalCase")]
struct AboutCaller<'a> {
    /// Name of the user, token or certificate.
    name: &'a str,
    /// What it may do.
    role: Role,
}

/// What this is, and its paths
#[utoipa::path(get, path = "/api", operation_id = "about", tag = "skydive",
    responses((status = 200, description = "Service, version, and the caller", body = About)))]
async fn about(
    Extension(caller): Extension<Caller>,
    Extension(description): Extension<Description>,
) -> Response {
    let caller = caller.identity.as_ref().map(|identity| AboutCaller {
        name: &identity.name,
        role: identity.role,
    });
    Answer::of(&About {
        service: "skua",
        version: env!("CARGO_PKG_VERSION"),
        caller,
        description: openapi::PATH,
        features: cfg!(feature = "sql").then_some("sql").into_iter().collect(),
        paths: description.paths(),
    })
    .into_response()
}

/// The configuration, without secrets
#[utoipa::path(get, path = "/api/config", operation_id = "configuration", tag = "skydive",
    responses((status = 200, description = "All keys", body = Object)))]
async fn configuration(State(config): State<Arc<Value>>) -> Answer<Value> {
    Answer::of(&*config)
}

/// A key of the configuration, with dots, like `flow.max_entries`
#[utoipa::path(get, path = "/api/config/{key}", operation_id = "configurationKey", tag = "skydive",
    params(("key" = String, Path, description = "The key")),
    responses((status = 200, description = "Its value", body = Value)))]
async fn configuration_key(
    State(config): State<Arc<Value>>,
    Path(key): Path<String>,
) -> Result<Answer<Value>, ApiError> {
    let mut value = Some(&*config);
    for part in key.split('.') {
        value = value.and_then(|value| value.get(part));
    }
    match value {
        Some(value) => Ok(Answer::of(value)),
        None => Err(ApiError::not_found(
            "no such key; `skua config --help` explains all",
        )),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn secrets_are_masked_wherever_they_are() {
        let config =
            json!({"a": {"password": "x", "password_file": "", "b": {"secret": [1]}}, "c": 1});
        let shown = masked(config);
        assert_eq!(
            shown,
            json!({"a": {"password": MASK, "password_file": "", "b": {"secret": MASK}}, "c": 1})
        );
    }
}
