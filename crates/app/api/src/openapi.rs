//! The description of the API (OpenAPI 3.1), which the API serves. Routes and types describe themselves; this module adds
//! the common parts: authentication, errors, and the records with a table of fields of their own.

use std::{borrow::Cow, collections::HashSet, sync::Arc};

use axum::{
    Extension,
    http::header,
    response::{IntoResponse as _, Response},
};
use serde_json::{Map, Value, json};
use skua_collect::graph;
use skua_server::{
    alive,
    error::{ErrorBody, JSON},
};
use utoipa::{
    OpenApi, PartialSchema, ToSchema,
    openapi::{Object, RefOr, Schema, schema::SchemaType},
};
use utoipa_axum::{router::OpenApiRouter, routes};

/// The path of the description.
pub const PATH: &str = "/api/openapi.json";

/// Prefix of references to schemas.
const SCHEMAS: &str = "#/components/schemas/";

const METHODS: [&str; 5] = ["get", "put", "post", "patch", "delete"];

/// Types of answers with a schema from elsewhere, or of any type: only their names.
macro_rules! named {
    ($($(#[$doc:meta])* $type:ident $name:literal;)*) => {$(
        $(#[$doc])*
        pub struct $type;

        impl PartialSchema for $type {
            fn schema() -> RefOr<Schema> {
                Object::builder().schema_type(SchemaType::AnyValue).build().into()
            }
        }

        impl ToSchema for $type {
            fn name() -> Cow<'static, str> {
                $name.into()
            }
        }
    )*};
}

named! {
    /// A line of `/api/flows`.
    FlowLine "FlowRecord";
    /// A line of `/api/sockets`.
    SocketLine "SocketRecord";
    /// A line of `/api/services` and `/api/dependencies`.
    CallsLine "Calls";
    /// A line of `/api/dns`: a lookup, or the sums of a server.
    LookupLine "Lookup";
    /// A line of `/api/services/graph`.
    EdgeLine "ServiceEdge";
    /// A row of the lake, with the field names of the query.
    RowLine "Row";
    /// The result of a query: a list of nodes, edges, flows or values; or one value.
    TopologyAnswer "Answer";
}

/// What all routes have in common.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "Skua",
        license(name = "Apache-2.0", identifier = "Apache-2.0"),
        description = "What a running skua has seen on its host: conversations, sockets, services, and the topology that they run over. \
            Without api.users, api.tokens and api.tls.client_ca no login is needed, and 401, 403 for a role, and 429 never occur. \
            The server also refuses requests with 403 when the Host or Origin header names another server. \
            An error is one line of text, or an object when the header Accept names application/json."
    ),
    security((), ("basic" = []), ("bearer" = []), ("token" = []), ("cookie" = []), ("certificate" = [])),
    components(schemas(ErrorBody)),
    tags(
        (name = "flows", description = "Conversations, now and in the lake"),
        (name = "sockets", description = "Sockets and services"),
        (name = "steer", description = "Detectors of jumps in values of packets"),
        (name = "tap", description = "Copies of packets for monitors"),
        (name = "addresses", description = "Addresses that are counted"),
        (name = "topology", description = "The map of the web page"),
        (name = "agents", description = "Agents of an analyzer"),
        (name = "skydive", description = "Skydive's API, with its paths, names and types"),
        (name = "websocket", description = "Changes, as they happen"),
        (name = "server", description = "Logins, health, metrics and the web page"),
    )
)]
struct Common;

/// The description as served: made at the start, and stored as text.
#[derive(Clone)]
pub struct Description(Arc<Served>);

struct Served {
    paths: Vec<String>,
    text: String,
}

impl Description {
    /// Of routes that describe themselves.
    pub fn new(routes: utoipa::openapi::OpenApi) -> Self {
        let mut common = Common::openapi();
        common.merge(routes);
        // Text and numbers, which can be written.
        let mut whole = serde_json::to_value(common).unwrap_or_default();
        whole["info"]["version"] = env!("CARGO_PKG_VERSION").into();
        whole["components"]["securitySchemes"] = security_schemes();
        let errors = errors();
        whole["components"]["responses"] = errors.clone();
        let schemas = &mut whole["components"]["schemas"];
        for (name, schema) in [
            ("FlowRecord", skua_flow::fields::json_schema()),
            ("SocketRecord", skua_socket::fields::json_schema()),
            ("Calls", skua_socket::call::json_schema()),
            ("Lookup", skua_watch::dns::json_schema()),
            (
                "ServiceEdge",
                skua_record::json_schema("Skua edge", graph::FIELDS),
            ),
        ] {
            schemas[name] = schema;
        }
        let known = schemas.as_object().cloned().unwrap_or_default();
        for (_, schema) in entries(schemas) {
            *schema = joined(&known, schema);
        }
        for (path, operations) in entries(&mut whole["paths"]) {
            for (method, operation) in entries(operations) {
                if METHODS.contains(&method.as_str()) {
                    complete(path, method, operation, &errors);
                }
            }
        }
        drop_unused(&mut whole);
        let paths = entries(&mut whole["paths"]);
        Self(Arc::new(Served {
            paths: paths.map(|(path, _)| path.clone()).collect(),
            text: format!("{whole}\n"),
        }))
    }

    /// All paths that are described.
    pub fn paths(&self) -> Vec<&str> {
        self.0.paths.iter().map(String::as_str).collect()
    }
}

/// Leaves out schemas that were only parts of others.
fn drop_unused(whole: &mut Value) {
    loop {
        let mut used = HashSet::new();
        references(whole, &mut used);
        let Some(schemas) = whole["components"]["schemas"].as_object_mut() else {
            return;
        };
        let before = schemas.len();
        schemas.retain(|name, _| used.contains(name));
        if schemas.len() == before {
            return;
        }
    }
}

/// Names of the schemas that something refers to.
fn references(value: &Value, used: &mut HashSet<String>) {
    match value {
        Value::Object(entries) => {
            let place = entries.get("$ref").and_then(Value::as_str);
            used.extend(place.and_then(|place| Some(place.strip_prefix(SCHEMAS)?.to_owned())));
            entries.values().for_each(|value| references(value, used));
        }
        Value::Array(items) => items.iter().for_each(|value| references(value, used)),
        _ => {}
    }
}

fn entries(value: &mut Value) -> impl Iterator<Item = (&String, &mut Value)> {
    value.as_object_mut().into_iter().flatten()
}

/// Authentication.
fn security_schemes() -> Value {
    json!({
        "basic": {"type": "http", "scheme": "basic", "description": "A user of api.users"},
        "bearer": {"type": "http", "scheme": "bearer", "description": "A token of api.tokens, or of a login"},
        "token": {"type": "apiKey", "in": "header", "name": "X-Auth-Token", "description": "As bearer"},
        "cookie": {"type": "apiKey", "in": "cookie", "name": "authtok", "description": "Set by a login"},
        "certificate": {"type": "mutualTLS", "description": "A client's certificate by a CA of api.tls.client_ca"},
    })
}

/// The errors that every route may end with.
fn errors() -> Value {
    let content = json!({
        "text/plain": {"schema": {"type": "string"}},
        "application/json": {"schema": {"$ref": "#/components/schemas/Error"}},
    });
    let all = [
        ("400", "The request is wrong; the text says why"),
        ("401", "The login is missing or wrong"),
        (
            "403",
            "The role or the configuration does not allow this, or the request may come from another site's page",
        ),
        ("404", "It does not exist"),
        ("405", "The path does not support this method"),
        ("408", "The body did not arrive in time"),
        (
            "409",
            "It conflicts with something that exists, like an equal one",
        ),
        ("413", "The body is too long"),
        ("415", "Changes need Content-Type: application/json"),
        ("426", "The path needs a WebSocket"),
        (
            "429",
            "The limit of their number is reached, or too many logins from this address have failed",
        ),
        ("500", "The server failed"),
        ("501", "This build does not support it"),
        (
            "503",
            "Too many requests from this client at a time, or the data is not collected here",
        ),
    ];
    let described = all.map(|(status, text)| {
        let mut error = json!({"description": text, "content": content});
        if let "429" | "503" = status {
            let number = json!({"schema": {"type": "integer", "minimum": 0}});
            error["headers"] = json!({"Retry-After": number});
        }
        (status.to_owned(), error)
    });
    described.into_iter().collect::<Map<_, _>>().into()
}

/// Adds the errors that follow from an operation's shape, and the type of lines.
fn complete(path: &str, method: &str, operation: &mut Value, errors: &Value) {
    let open = alive::PATHS.contains(&path) || path.starts_with("/console/");
    let mut statuses = match open {
        true => vec!["403", "503"],
        false => vec!["400", "401", "403", "429", "500", "503"],
    };
    if path.contains('{') {
        statuses.push("404");
    }
    if method != "get" {
        statuses.extend(["408", "413", "415"]);
    }
    if path.starts_with("/ws/") {
        statuses.extend(["405", "426"]);
    }
    // A route's description of an error stays; the schema is common to all.
    for (status, response) in entries(&mut operation["responses"]) {
        let text = response["description"].take();
        if let Some(shared) = errors.get(status).filter(|_| response["content"].is_null()) {
            *response = shared.clone();
        }
        response["description"] = text;
        if let Some(content) = response.pointer_mut("/content/application~1x-ndjson") {
            content["x-line-schema"] = content["schema"].take();
            content["schema"] = json!({"type": "string"});
        }
    }
    for status in statuses {
        if operation["responses"][status].is_null() {
            let place = format!("#/components/responses/{status}");
            operation["responses"][status] = json!({"$ref": place});
        }
    }
}

/// One object schema from several (`allOf`, of flattened fields): these would refuse each other's properties.
fn joined(known: &Map<String, Value>, schema: &Value) -> Value {
    let Some(parts) = schema.get("allOf").and_then(Value::as_array) else {
        return schema.clone();
    };
    let (mut properties, mut required) = (Map::new(), Vec::new());
    for part in parts {
        // What may be left out is that or null.
        let one_of = part.get("oneOf").and_then(Value::as_array);
        let optional =
            one_of.and_then(|parts| parts.iter().find(|part| part.get("$ref").is_some()));
        let place = optional.unwrap_or(part).get("$ref").and_then(Value::as_str);
        let name = place.and_then(|place| place.strip_prefix(SCHEMAS));
        let whole = joined(known, name.and_then(|name| known.get(name)).unwrap_or(part));
        let own = whole.get("properties").and_then(Value::as_object);
        properties.extend(
            own.into_iter()
                .flatten()
                .map(|(k, v)| (k.clone(), v.clone())),
        );
        let needed = whole.get("required").and_then(Value::as_array);
        let needed = needed.filter(|_| optional.is_none());
        required.extend(needed.into_iter().flatten().cloned());
    }
    let mut whole = schema.clone();
    whole["type"] = "object".into();
    whole["properties"] = properties.into();
    whole["required"] = required.into();
    if let Some(object) = whole.as_object_mut() {
        object.remove("allOf");
    }
    whole
}

/// The path of this module.
pub fn routes() -> OpenApiRouter {
    OpenApiRouter::new().routes(routes!(describe))
}

/// This description
#[utoipa::path(get, path = "/api/openapi.json", operation_id = "describe", tag = "server",
    responses((status = 200, description = "The description", body = Object)))]
async fn describe(Extension(description): Extension<Description>) -> Response {
    let kind = [(header::CONTENT_TYPE, JSON)];
    (kind, description.0.text.clone()).into_response()
}
