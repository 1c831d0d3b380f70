//! `/api` and `/api/config/{key}`: what this is, and how it is set up.

use std::sync::Arc;

use axum::{
    Extension, Json, Router,
    extract::{Path, State},
    http::StatusCode,
    response::{IntoResponse as _, Response},
    routing::get,
};
use serde_json::{Value, json};
use skua_config::Config;
use skua_server::auth::Caller;

use crate::openapi;

/// What stands for a value that only the server is to know.
const MASK: &str = "(secret)";

/// Parts of keys whose values are shown to nobody. There is none among our keys so far, for secrets
/// are in files; that holds for those that come.
const SECRET: [&str; 4] = ["password", "secret", "token_value", "passphrase"];

/// The paths of this module.
pub fn routes(config: &Config) -> Router {
    // A configuration that was read can be written.
    let config = serde_json::to_value(config).unwrap_or(Value::Null);
    Router::new()
        .route("/api", get(about))
        .route("/api/config", get(everything))
        .route("/api/config/{key}", get(key))
        .with_state(Arc::new(masked(config)))
}

/// Replaces what is secret.
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

async fn about(Extension(caller): Extension<Caller>) -> Response {
    Json(json!({
        "Service": "skua",
        "Version": env!("CARGO_PKG_VERSION"),
        "Caller": caller.identity.as_ref().map(|identity| json!({
            "Name": &*identity.name,
            "Role": identity.role,
        })),
        "Description": openapi::PATH,
        "Paths": openapi::paths(),
    }))
    .into_response()
}

async fn everything(State(config): State<Arc<Value>>) -> Response {
    Json(&*config).into_response()
}

async fn key(State(config): State<Arc<Value>>, Path(key): Path<String>) -> Response {
    let mut value = Some(&*config);
    for part in key.split('.') {
        value = value.and_then(|value| value.get(part));
    }
    match value {
        Some(value) => Json(value).into_response(),
        None => {
            let text = "no such key; `skua config --help` explains all\n";
            (StatusCode::NOT_FOUND, text).into_response()
        }
    }
}

#[cfg(test)]
mod tests {
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
