//! Fixed answers of an API.

use std::time::Duration;

use serde_json::{Value, json};
use skua_top::{
    app::App,
    view::{Answer, Question, Topic, View},
};

/// What others chose as a name: it drives terminals, turns writing round, and is 4 KiB long.
pub fn bad_name() -> String {
    format!("\u{1b}[2J\u{202e}evil\n{}", "x".repeat(4096))
}

fn flow(number: u64) -> Value {
    let name = match number {
        3 => bad_name(),
        _ => "curl".into(),
    };
    json!({
        "interface": if number.is_multiple_of(2) { "eth0" } else { "red/veth1" }, "ifindex": number + 2,
        "protocol": "tcp", "id": format!("{number:012x}"),
        "a": {"address": "192.0.2.1", "port": 40000 + number, "process": name, "pid": 4711},
        "b": {"address": if number == 1 { "2001:db8::5" } else { "198.51.100.7" }, "port": 443},
        "ab": {"packets": 10 * number, "bytes": 15_000 * number},
        "ba": {"packets": 20 * number, "bytes": 1_500_000 * number},
        "duration": 1_500_000_000u64 * (number + 1), "community_id": "1:LQU9qZlK+B5F3KDmev6m5PMibrg=",
        "tcp": {"state": "established", "handshake_rtt": 12_000_000, "ab_flags": "SPA", "ba_flags": "SPA"},
        "rate": {"bits_per_second": 8_000_000.0 / (number + 1) as f64, "packets_per_second": 99.0},
    })
}

fn socket(number: u64) -> Value {
    json!({
        "protocol": "tcp", "state": "established", "process": if number == 2 { bad_name() } else { "nginx".into() },
        "pid": 800 + number, "user": "www-data", "unit": "nginx.service",
        "local": {"address": "10.0.0.2", "port": 8000}, "remote": {"address": "10.0.0.1", "port": 50000 + number},
        "opened_by": "remote", "age": 90_000_000_000u64, "sent": {"bytes": 1229 * number, "segments": 5},
        "received": {"bytes": 77, "segments": 7}, "netns": 4026531840u64, "id": number,
        "tcp": {"srtt": 250 + number, "rttvar": 9, "min_rtt": 11, "retransmits": number, "lost": 0, "cwnd": 10, "mss": 1448},
    })
}

fn service(name: &str, connections: u64) -> Value {
    json!({
        "protocol": "tcp", "server": {"service": name}, "client": {"service": "curl"}, "port": 443, "peers": 7,
        "connections": connections, "open": 41, "rate": 12.54, "failed": 2, "reset": 3, "timed_out": 1,
        "bytes": {"to_server": 2048, "to_client": 1_048_576},
        "rtt": {"samples": 9, "p50": 1100.4, "p95": 6200.2, "p99": 15000.1},
        "segments": {"sent": 1000, "retransmitted": 1, "share": 0.001},
    })
}

fn group(name: &str, rate: f64) -> Value {
    json!({
        "by": "process", "name": name, "place": "session-1.scope", "flows": 9, "active": 4,
        "sent": {"packets": 1, "bytes": 123_456}, "received": {"packets": 1, "bytes": 9_876_543},
        "rate": {"bits_per_second": rate},
    })
}

/// A status after so many seconds.
pub fn status(second: u64) -> Value {
    let bytes = 1_000_000 * second * (second % 5 + 1);
    let point = |name: &str, netns: &str, share: u64| {
        json!({
            "interface": name, "netns": netns, "hook": "tcx", "attached": true,
            "ingress": {"packets": 10 * second, "bytes": bytes / share},
            "egress": {"packets": 5 * second, "bytes": bytes / share / 2},
            "causes": {"unparsed": {"packets": 2, "bytes": 120}},
        })
    };
    json!({
        "version": "0.1.0",
        "summary": {
            "seen": {"packets": 700 * second, "bytes": bytes}, "flows": 1234,
            "lost": {"table_full_tcp": {"packets": 17, "bytes": 1700}}, "left_out": {"self": {"packets": 5, "bytes": 300}},
            "table": {"live": 1200, "max_entries": 500_000, "inserted": 12 * second},
            "drains": second, "drains_under_pressure": 1,
            "interfaces": [point("eth0", "", 1), point("veth1", "red", 3), point("lo", "", 7)],
        },
        "advice": ["17 packets lost as table_full_tcp: raise flow.max_entries"],
    })
}

fn node(id: &str, kind: &str, metadata: Value) -> Value {
    let mut metadata = metadata;
    metadata["Name"] = id.into();
    metadata["Type"] = kind.into();
    metadata["TID"] = format!("tid-{id}").into();
    json!({"ID": id, "Host": "h", "Metadata": metadata})
}

fn answer(topic: Topic, dependencies: bool) -> Answer {
    let names = ["nginx", "postgres", "sshd"];
    Answer::Rows(match topic {
        Topic::Status => return Answer::Object(status(9)),
        Topic::TopFlows | Topic::Rows(View::Overview | View::Flows) => (0..32).map(flow).collect(),
        Topic::TopProcesses => vec![
            group("curl", 8e6),
            group(&bad_name(), 5e5),
            group("sshd", 0.0),
        ],
        Topic::Rows(View::Sockets) => (0..5).map(socket).collect(),
        Topic::Rows(View::Services) => {
            let most = if dependencies { 1 } else { 3 };
            names[..most]
                .iter()
                .map(|name| service(name, 1_234_567))
                .collect()
        }
        Topic::Rows(View::Topology) => vec![node("server1", "host", json!({}))],
        Topic::Rows(View::Interfaces | View::Events) => Vec::new(),
        Topic::Edges => ["eth0", "red", "docker0"]
            .map(|child| json!({"Parent": "server1", "Child": child}))
            .to_vec(),
        Topic::Nodes => vec![
            node(
                "eth0",
                "device",
                json!({
                    "State": "UP", "IPV4": ["192.0.2.1/24"], "IPV6": ["2001:db8::1/64"], "MTU": 1500,
                    "IfIndex": 2, "MAC": "02:00:00:00:00:01", "Metric": {"RxDropped": 3},
                }),
            ),
            node("red", "netns", json!({})),
            node(
                "docker0",
                "bridge",
                json!({"State": "DOWN", "MTU": 1500, "IfIndex": 3}),
            ),
        ],
    })
}

/// Answers all that is asked, as often as new questions come.
pub fn answer_all(app: &mut App, second: u64) {
    for _ in 0..3 {
        for request in app.requests() {
            let answer = match (request.topic, &request.question) {
                (Topic::Status, _) => Answer::Object(status(second)),
                (topic, Question::Lines { parameters, .. }) => {
                    let limit = parameters.iter().find(|(name, _)| name == "limit");
                    let limit = limit.and_then(|(_, limit)| limit.parse().ok());
                    match answer(topic, app.dependencies) {
                        Answer::Rows(mut rows) => {
                            rows.truncate(limit.unwrap_or(usize::MAX));
                            Answer::Rows(rows)
                        }
                        other => other,
                    }
                }
                (topic, _) => answer(topic, app.dependencies),
            };
            app.handle_answer(&request, Ok(answer), Duration::from_secs(second));
        }
    }
}

/// A view that has been looked at for a while.
pub fn watched(app: &mut App, view: View) {
    app.view = view;
    app.now = "12:34:56Z".into();
    for second in 1..10 {
        answer_all(app, second);
    }
    if view == View::Events {
        app.event("added", "veth", "veth7", "");
        app.event("changed", "veth", &bad_name(), "State=DOWN, MTU=1400");
        app.event("parted", "ownership", "red veth7", "");
    }
}
