//! The description matches the routes and their answers.

use std::{collections::BTreeSet, sync::LazyLock};

use axum::{body::Body, http::Request};
use serde_json::json;
use skua_topology::{Map, Node};
use tower::ServiceExt as _;

use crate::{complete, tests::*};

/// The served description.
fn description() -> &'static Value {
    static DESCRIPTION: LazyLock<Value> =
        LazyLock::new(|| Running::plain().get("/api/openapi.json").json());
    &DESCRIPTION
}

/// Methods of a path, from its refusal of another.
fn methods_of(router: &Router, path: &str) -> BTreeSet<String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let path = path.replace(['{', '}'], "");
    let request = Request::builder()
        .method("BREW")
        .uri(path)
        .body(Body::empty())
        .unwrap();
    let answer = runtime.block_on(router.clone().oneshot(request)).unwrap();
    let allowed = answer.headers()["allow"].to_str().unwrap().to_lowercase();
    allowed
        .split(',')
        .filter(|m| *m != "head")
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_method_of_a_path_is_described_and_no_other() {
    let (routes, engine, shared, _, actions) = routes();
    let parts = Parts::new(&engine, &shared, &actions);
    let router = complete(routes, parts, &Config::default(), &Limits::default());
    let paths = description()["paths"].as_object().unwrap();
    assert!(paths.len() > 40, "{}", paths.len());
    for (path, operations) in paths {
        let described: BTreeSet<_> = operations.as_object().unwrap().keys().cloned().collect();
        assert_eq!(methods_of(&router, path), described, "{path}");
    }
}

#[test]
fn errors_are_a_line_of_text_or_an_object_for_clients_that_accept_json() {
    let running = Running::plain();
    let text = running.get("/api/flows?sort=colour");
    assert!(
        text.body.starts_with("cannot sort by \"colour\""),
        "{text:?}"
    );
    for (path, status, code) in [
        ("/api/flows?sort=colour", 400, "bad_request"),
        ("/api/capture/none", 404, "not_found"),
        ("/nowhere", 404, "not_found"),
    ] {
        let reply = running.ask(&format!("GET {path}\r\nAccept: application/json"), "");
        let error = reply.json();
        assert_eq!(reply.status, status, "{reply:?}");
        assert_eq!(
            (&error["status"], &error["code"]),
            (&json!(status), &json!(code))
        );
        assert!(
            error["message"].as_str().is_some_and(|m| !m.is_empty()),
            "{reply:?}"
        );
    }
    let answer = running.ask("GET /api/flows\r\nAccept: application/json", "");
    assert_eq!(answer.header("content-type"), Some("application/x-ndjson"));
}

/// All references lead somewhere, and each operation has its own name.
#[test]
fn the_description_fits_together() {
    let whole = description();
    fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
        match value {
            Value::Object(map) => {
                if let Some(place) = map.get("$ref").and_then(Value::as_str) {
                    found.push(place);
                }
                map.values().for_each(|value| references(value, found));
            }
            Value::Array(items) => items.iter().for_each(|value| references(value, found)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    references(whole, &mut found);
    assert!(found.len() > 50);
    for place in found {
        let pointer = place.strip_prefix('#').unwrap();
        assert!(whole.pointer(pointer).is_some(), "{place} is nowhere");
    }
    let operations = whole["paths"].as_object().unwrap().values();
    let operations = operations.flat_map(|path| path.as_object().unwrap().values());
    let mut names = BTreeSet::new();
    for operation in operations {
        assert!(
            names.insert(operation["operationId"].as_str().unwrap()),
            "{operation}"
        );
    }
}

/// Checks an answer against its description.
fn check(reply: &Reply, path: &str, method: &str) {
    let whole = description();
    let operation = &whole["paths"][path][method];
    let status = reply.status.to_string();
    let described = &operation["responses"][&status];
    assert!(
        !described.is_null(),
        "{method} {path}: {status} is not described: {reply:?}"
    );
    let described = match described["$ref"].as_str() {
        Some(place) => whole.pointer(&place[1..]).unwrap(),
        None => described,
    };
    let Some(kind) = reply.header("content-type") else {
        assert!(
            reply.body.is_empty() && described["content"].is_null(),
            "{path}: {reply:?}"
        );
        return;
    };
    let kind = kind.split(';').next().unwrap();
    let content = &described["content"][kind];
    assert!(
        !content.is_null(),
        "{method} {path} {status}: {kind} is not described"
    );
    for name in described["headers"]
        .as_object()
        .into_iter()
        .flat_map(|h| h.keys())
    {
        // Only one of the reasons for 503 will be over soon.
        assert!(
            reply.header(name).is_some() || status == "503",
            "{path}: no {name}"
        );
    }
    let holds = |schema: &Value, value: &Value| {
        let mut schema = schema.clone();
        schema["components"] = whole["components"].clone();
        let validator = jsonschema::draft202012::new(&schema).unwrap();
        if let Err(error) = validator.validate(value) {
            panic!("{method} {path}: {error} at {}", error.instance_path);
        };
    };
    match kind {
        "application/json" => holds(&content["schema"], &reply.json()),
        "application/x-ndjson" => {
            for line in reply.body.lines() {
                holds(
                    &content["x-line-schema"],
                    &serde_json::from_str(line).unwrap(),
                );
            }
        }
        _ => {}
    }
}

#[test]
fn real_answers_are_as_described() {
    let running = Running::plain();
    let metadata = Map::from([("Name", "eth0".into()), ("TID", "a".into())]);
    for id in ["a", "b"] {
        let node = Node::new(id, "here", metadata.clone());
        running.graph.write().add_node(node, 1).unwrap();
    }
    let edge = skua_topology::Edge::new("e", "a", "b", "here", Map::default());
    running.graph.write().add_edge(edge, 2).unwrap();
    running.drain(crate::tests::sockets::updates(3, 1));
    let json = "Content-Type: application/json";
    let paths = description()["paths"].as_object().unwrap();
    let mut statuses = BTreeSet::new();
    let mut ask = |method: &str, path: &str, query: &str, headers: &str, body: &str| {
        let part = query.strip_prefix('/').unwrap_or("api");
        let place = ["{key}", "{id}", "{file}"]
            .iter()
            .fold(path.to_owned(), |path, name| path.replace(name, part));
        let query = if query.starts_with('/') { "" } else { query };
        let head = format!("{} {place}{query}{headers}", method.to_uppercase());
        let reply = running.ask(&head, body);
        check(&reply, path, method);
        statuses.insert(reply.status);
        reply
    };
    // Each path without required parameters.
    for (path, methods) in paths {
        if methods.get("get").is_some() {
            ask("get", path, "", "", "");
        }
    }
    let lines = ask("get", "/api/flows", "?sort=bytes&limit=2", "", "");
    assert_eq!(lines.body.lines().count(), 2);
    ask("get", "/api/flows", "?sort=colour", "", "");
    ask("get", "/api/flows", "?format=csv", "", "");
    ask("get", "/api/sockets", "?sort=colour", "", "");
    ask("get", "/api/config/{key}", "/flow.max_entries", "", "");
    ask("get", "/api/config/{key}", "/flow.nothing", "", "");
    for query in [
        "G.V()",
        "G.E()",
        "G.V().Count()",
        "G.V().Has('Name', 'x')",
        "G.Flows()",
        "G.",
        "G.V().Values('Name')",
    ] {
        let body = json!({"GremlinQuery": query}).to_string();
        ask("post", "/api/topology", "", &format!("\r\n{json}"), &body);
        ask(
            "post",
            "/api/topology",
            "",
            &format!("\r\n{json}\r\nAccept: text/plain"),
            &body,
        );
    }
    ask("post", "/api/topology", "", "", "{}");
    ask("post", "/api/capture", "", "", "{}");
    ask("post", "/api/topology", "", &format!("\r\n{json}"), "[");
    ask("get", "/api/topology", "", "\r\nHost: evil.example", "");
    for (method, body) in [
        ("put", r#"{"include": ["10.0.0.0/8"]}"#),
        ("post", r#"{"exclude": ["10.1.0.0/16"]}"#),
        ("delete", r#"{"prefixes": []}"#),
    ] {
        let reply = ask(method, "/api/addresses", "", &format!("\r\n{json}"), body);
        assert_eq!(reply.status, 200, "{reply:?}");
        ask(
            method,
            "/api/addresses",
            "",
            &format!("\r\n{json}"),
            "{\"x\": 1}",
        );
        ask(
            method,
            "/api/addresses",
            "",
            &format!("\r\n{json}"),
            &" ".repeat(100_000),
        );
    }
    let capture = json!({"GremlinQuery": "G.V().Has('Name', 'nowhere')"}).to_string();
    let made = ask("post", "/api/capture", "", &format!("\r\n{json}"), &capture);
    assert_eq!(made.status, 201, "{made:?}");
    ask("get", "/api/capture", "", "", "");
    for (method, path) in [
        ("get", "/api/capture/{id}"),
        ("get", "/api/capture/{id}/packets"),
        ("delete", "/api/capture/{id}"),
        ("get", "/api/capture/{id}"),
    ] {
        let id = made.json()["UUID"].as_str().unwrap().to_owned();
        ask(method, path, &format!("/{id}"), &format!("\r\n{json}"), "");
    }
    for body in [
        "{}",
        r#"{"name": "x", "preset": "ewma-64", "interface": "eth0", "action": {"report": true}}"#,
    ] {
        ask("post", "/api/steer", "", &format!("\r\n{json}"), body);
    }
    ask("post", "/login", "", &format!("\r\n{json}"), "{}");
    assert_eq!(
        statuses,
        [200, 201, 204, 400, 403, 404, 413, 415, 503].into()
    );
}

#[test]
fn secrets_of_the_configuration_are_not_there() {
    let file = secret("users", "alice admin certificate\n");
    let api = format!(", users: {}", file.display());
    let running = Running::start(&api, Limits::default(), Router::new());
    assert_eq!(running.get("/api/config").status, 401);
    let plain = Running::plain();
    assert_eq!(plain.get("/api/config/flow.sampling").json(), json!(1));
    assert_eq!(
        plain.get("/api/config").json()["history"]["memory"],
        json!("64MiB")
    );
    assert_eq!(plain.get("/api/config/").status, 404);
}
