//! The description of the API, which is served with it.

use std::sync::LazyLock;

use axum::{
    Router,
    http::header,
    response::{IntoResponse as _, Response},
    routing::get,
};
use serde_json::Value;

/// Where it is.
pub const PATH: &str = "/api/openapi.json";

/// As it is written.
const TEXT: &str = include_str!("openapi.json");

/// With the version of this program.
static DESCRIPTION: LazyLock<Value> = LazyLock::new(|| {
    let mut description = serde_json::from_str(TEXT).unwrap_or(Value::Null);
    if let Some(version) = description.pointer_mut("/info/version") {
        *version = env!("CARGO_PKG_VERSION").into();
    }
    description
});

/// The path of this module.
pub fn routes() -> Router {
    Router::new().route(PATH, get(describe))
}

async fn describe() -> Response {
    let json = [(header::CONTENT_TYPE, "application/json")];
    (json, format!("{}\n", *DESCRIPTION)).into_response()
}

/// All paths that are described.
pub fn paths() -> Vec<&'static str> {
    let paths = DESCRIPTION.get("paths").and_then(Value::as_object);
    paths.map_or_else(Vec::new, |paths| paths.keys().map(String::as_str).collect())
}

/// The description itself.
#[cfg(test)]
pub fn description() -> &'static Value {
    &DESCRIPTION
}
