#![allow(clippy::unwrap_used)]

use std::sync::Mutex;

use serde_json::json;

use super::*;

type Seen = Arc<Mutex<Vec<(String, String, String)>>>;

/// Runs a source with an API that answers `answer` to everything.
fn with(
    source: &str,
    parameters: &str,
    limits: &Limits,
    answer: &'static str,
) -> (Result<serde_json::Value, WorkflowError>, Seen) {
    let seen = Seen::default();
    let theirs = seen.clone();
    let requests = Box::new(move |method: &str, path: &str, body: &str| {
        theirs
            .lock()
            .unwrap()
            .push((method.into(), path.into(), body.into()));
        match path {
            "/api/forbidden" => Err("403: not you".to_owned()),
            _ => Ok(answer.to_owned()),
        }
    });
    let call = Call {
        name: "Test",
        source,
        parameters,
        cancel: &Arc::default(),
    };
    (run(&call, limits, requests, |_| {}), seen)
}

fn result(source: &str, parameters: &str) -> Result<serde_json::Value, WorkflowError> {
    with(source, parameters, &Limits::default(), "[]").0
}

#[test]
fn a_function_gets_its_parameters_and_returns_what_json_can_say() {
    assert_eq!(
        result("function Sum(a, b) { return {sum: a + b} }", "[2, 3]").unwrap(),
        json!({"sum": 5})
    );
    assert_eq!(result("function () {};\n", "[]").unwrap(), json!(null));
    assert_eq!(result("async (a) => a", "[\"x\"]").unwrap(), json!("x"));
    assert_eq!(
        result("function f(a) { return a.b[1] }", r#"[{"b": [1, null]}]"#).unwrap(),
        json!(null)
    );
}

#[test]
fn steps_become_a_query() {
    let source = r#"function f(tid) {
        client.G.V().Has("TID", tid, "MTU", GT(1400)).ShortestPathTo(Metadata("Name", 'a"b')).result()
        client.gremlin.G().Flows().Has("Metric.ABPackets", WITHIN(1, 2)).Sort("Last", DESC).Limit(2).result()
        return String(client.G.V())
    }"#;
    let (done, seen) = with(source, "[\"7\"]", &Limits::default(), "[]");
    assert_eq!(done.unwrap(), json!("G.V()"));
    let seen = seen.lock().unwrap();
    let asked: Vec<_> = seen
        .iter()
        .map(|(method, path, body)| {
            let body: serde_json::Value = serde_json::from_str(body).unwrap();
            assert_eq!((&**method, &**path), ("POST", "/api/topology"));
            body["GremlinQuery"].as_str().unwrap().to_owned()
        })
        .collect();
    assert_eq!(
        asked,
        [
            r#"G.V().Has("TID", "7", "MTU", GT(1400)).ShortestPathTo(Metadata("Name", "a\"b"))"#,
            r#"G.Flows().Has("Metric.ABPackets", WITHIN(1, 2)).Sort("Last", DESC).Limit(2)"#,
        ]
    );
}

#[test]
fn sums_and_metrics_have_their_shapes() {
    let answer = r#"[{"a": [1]}]"#;
    let shape = |steps: &str| {
        let source = format!("function f() {{ return client.G.{steps}.result() }}");
        with(&source, "[]", &Limits::default(), answer).0.unwrap()
    };
    assert_eq!(shape("Flows().Metrics()"), json!({"a": [1]}));
    assert_eq!(shape("V().Sockets().Has('Name', 'x')"), json!({"a": [1]}));
    assert_eq!(shape("V()"), json!([{"a": [1]}]));
    assert_eq!(shape("Flows().Metrics().Count()"), json!([{"a": [1]}]));
}

#[test]
fn resources_are_created_and_deleted() {
    let source = r#"function f() {
        var capture = new Capture()
        capture.GremlinQuery = "G.V()"
        capture = client.captures.create(capture)
        client.captures.delete(capture.UUID)
        return [capture instanceof Capture, capture.GremlinQuery || "", new UUID(5, "ns:URL", "a").toString()]
    }"#;
    let (done, seen) = with(source, "[]", &Limits::default(), r#"{"UUID": "u1"}"#);
    // The identifier is Python's uuid5(NAMESPACE_URL, "a").
    assert_eq!(
        done.unwrap(),
        json!([true, "", "e1407479-3136-56c0-9908-bb02fb0339e2"])
    );
    let seen = seen.lock().unwrap();
    assert_eq!(
        seen[0],
        (
            "POST".into(),
            "/api/capture".into(),
            r#"{"GremlinQuery":"G.V()"}"#.into()
        )
    );
    assert_eq!(
        seen[1],
        ("DELETE".into(), "/api/capture/u1".into(), String::new())
    );
}

fn fault(source: &str) -> String {
    result(source, "[]").unwrap_err().to_string()
}

#[test]
fn errors_name_the_line() {
    assert_eq!(
        fault("function f() {\n\n  return nothing.at.all\n}"),
        "line 3: nothing is not defined"
    );
    assert_eq!(
        fault("function f() {\n  client.request('/api/forbidden', 'GET')\n}"),
        "line 2: 403: not you"
    );
    assert_eq!(fault("function f() {\n  throw 'x'\n}"), "thrown: x");
    let syntax = fault("function f() {\n  return {\n");
    assert!(syntax.starts_with("line "), "{syntax}");
    assert!(fault("17").starts_with("the source is no function"));
    assert!(
        check(
            "Test",
            "function f() { while (true) {} }",
            &Limits::default()
        )
        .is_ok()
    );
    assert!(check("Test", "function f( {", &Limits::default()).is_err());
}

#[test]
fn scripts_cannot_go_on_for_ever_or_grow() {
    let limits = Limits {
        processor: Duration::from_millis(200),
        memory: 8 << 20,
        ..Limits::default()
    };
    let fault =
        |source: &str, limits: &Limits| with(source, "[]", limits, "[]").0.unwrap_err().to_string();
    assert_eq!(
        fault("function f() { while (true) {} }", &limits),
        "the workflow was ended: it took too much processor time"
    );
    assert_eq!(
        fault(
            "function f() { try { while (true) {} } catch (e) { return 1 } }",
            &limits
        ),
        "the workflow was ended: it took too much processor time"
    );
    // Pieces of several sizes: with some, there is no memory left for an error, either.
    for size in [10, 100, 1_000, 5_000] {
        let source = format!(
            "function f() {{ var a = []; while (true) a.push('x'.repeat({size}) + a.length) }}"
        );
        let fault = fault(&source, &limits);
        assert!(
            fault.starts_with("the workflow was ended: it took too much memory"),
            "{size}: {fault}"
        );
    }
    assert_eq!(
        fault("function f() { throw {} }", &limits),
        "a value that is no error was thrown"
    );
    assert!(fault("function f() { return f() }", &limits).contains("stack"));
    let short = Limits {
        time: Duration::from_millis(100),
        ..limits
    };
    assert_eq!(
        fault("function f() { sleep(1e9); while (true) {} }", &short),
        "the workflow was ended: it took too long"
    );
}

#[test]
fn there_is_no_way_out() {
    let source = "function f() { return [typeof require, typeof process, typeof std, typeof os, typeof fetch, typeof XMLHttpRequest] }";
    assert_eq!(result(source, "[]").unwrap(), json!(vec!["undefined"; 6]));
    assert!(fault("async function f() { await import('/etc/passwd') }").contains("/etc/passwd"));
}
