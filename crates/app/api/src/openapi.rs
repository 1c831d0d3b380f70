//! The description of the API (OpenAPI 3.1), which is served with it. It is put together of parts, one
//! for each group of routes, and of the definitions of records.

use std::sync::LazyLock;

use axum::{
    Router,
    http::header,
    response::{IntoResponse as _, Response},
    routing::get,
};
use serde_json::{Map, Value};

/// Where it is.
pub const PATH: &str = "/api/openapi.json";

/// What all have in common.
const BASE: &str = include_str!("openapi/base.json");

/// Paths and schemas of each group of routes.
const PARTS: &[&str] = &[
    include_str!("openapi/flows.json"),
    include_str!("openapi/sockets.json"),
    include_str!("openapi/services.json"),
    include_str!("openapi/addresses.json"),
    include_str!("openapi/topology.json"),
    include_str!("openapi/captures.json"),
    include_str!("openapi/actions.json"),
    include_str!("openapi/steer.json"),
    include_str!("openapi/tap.json"),
    include_str!("openapi/agents.json"),
    include_str!("openapi/server.json"),
];

/// All of it.
static DESCRIPTION: LazyLock<Value> = LazyLock::new(|| {
    // That they are JSON is what the tests are for.
    let mut whole: Value = serde_json::from_str(BASE).unwrap_or_default();
    whole["info"]["version"] = env!("CARGO_PKG_VERSION").into();
    let mut schemas = vec![
        ("FlowRecord", skua_flow::fields::json_schema()),
        ("SocketRecord", skua_socket::fields::json_schema()),
        ("Calls", skua_socket::call::json_schema()),
    ];
    for (name, schema) in schemas.drain(..) {
        whole["components"]["schemas"][name] = schema;
    }
    for part in PARTS {
        let part: Map<String, Value> = serde_json::from_str(part).unwrap_or_default();
        for (key, place) in [("paths", "/paths"), ("schemas", "/components/schemas")] {
            let entries = part.get(key).and_then(Value::as_object);
            let whole = whole.pointer_mut(place).and_then(Value::as_object_mut);
            if let (Some(entries), Some(whole)) = (entries, whole) {
                whole.extend(entries.clone());
            }
        }
    }
    whole
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
