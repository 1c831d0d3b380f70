//! Alerts from the change of the graph to the web server, the file and the command at the other end.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use serde_json::Value;
use skua_control::{
    Resources,
    alert::{ActionSettings, Alert, AlertManager, AlertTurn},
};
use skua_topology::{Config, Map, Node, SharedGraph};
use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    path::Path,
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};

/// More than any machine needs.
const PATIENCE: Duration = Duration::from_secs(60);

/// A web server that answers with given statuses, and hands over what it gets.
struct Server {
    address: String,
    bodies: mpsc::Receiver<Value>,
}

impl Server {
    /// Answers with these statuses, the last again and again.
    fn start(statuses: &'static [u16]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}/hook", listener.local_addr().unwrap());
        let (sender, bodies) = mpsc::channel();
        std::thread::spawn(move || {
            for (number, stream) in listener.incoming().enumerate() {
                let status = statuses[number.min(statuses.len() - 1)];
                if let Some(body) = answer(stream.unwrap(), status)
                    && sender.send(body).is_err()
                {
                    return;
                }
            }
        });
        Self { address, bodies }
    }

    fn next(&self) -> Value {
        self.bodies.recv_timeout(PATIENCE).unwrap()
    }
}

fn answer(stream: TcpStream, status: u16) -> Option<Value> {
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    let mut line = String::new();
    loop {
        line.clear();
        reader.read_line(&mut line).ok()?;
        let line = line.trim().to_ascii_lowercase();
        if let Some(text) = line.strip_prefix("content-length:") {
            length = text.trim().parse().unwrap();
        }
        if line.is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let answer = format!("HTTP/1.1 {status} x\r\nContent-Length: 0\r\n\r\n");
    reader.get_mut().write_all(answer.as_bytes()).ok()?;
    serde_json::from_slice(&body).ok()
}

fn graph() -> SharedGraph {
    SharedGraph::new(Config::default())
}

fn add(graph: &SharedGraph, name: &str) {
    let node = Node::new(name, "h", Map::from([("Name", name.into())]));
    graph.write().add_node(node, 1).unwrap();
}

fn start(graph: &SharedGraph, settings: ActionSettings) -> AlertManager {
    kept(graph, settings, None)
}

fn kept(graph: &SharedGraph, settings: ActionSettings, file: Option<&Path>) -> AlertManager {
    let alerts = Resources::open(file, 100);
    AlertManager::start(graph, Arc::new(graph.clone()), alerts, settings).unwrap()
}

/// Quick to try again.
fn settings() -> ActionSettings {
    ActionSettings {
        backoff: Duration::from_millis(5),
        ..ActionSettings::default()
    }
}

fn alert(name: &str, action: &str) -> Alert {
    Alert {
        expression: format!("G.V().Has('Name', '{name}')"),
        action: action.into(),
        ..Alert::default()
    }
}

fn wait_for(what: &str, mut there: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !there() {
        assert!(Instant::now() < end, "no {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_web_server_is_told_of_both_turns() {
    let (graph, server) = (graph(), Server::start(&[200]));
    let alerts = start(&graph, settings());
    let made = alerts.create(alert("a", &server.address)).unwrap();
    let events = alerts.subscribe(10);
    add(&graph, "a");
    let fired = server.next();
    assert_eq!(fired["UUID"], made.uuid.to_string());
    assert_eq!(fired["State"], "fired");
    assert_eq!(fired["ReasonData"][0]["Metadata"]["Name"], "a");
    assert_eq!(
        (&fired["Value"], &fired["Truncated"]),
        (&1.0.into(), &false.into())
    );
    assert!(fired["Timestamp"].as_str().unwrap().ends_with('Z'));
    graph.write().delete_node("a", 2).unwrap();
    let resolved = server.next();
    assert_eq!(resolved["State"], "resolved");
    assert_ne!(resolved["EventID"], fired["EventID"]);
    let turns = [(); 2].map(|()| events.next(PATIENCE).unwrap().state);
    assert_eq!(turns, [AlertTurn::Fired, AlertTurn::Resolved]);
    wait_for("count of both", || alerts.counters().actions.delivered == 2);
    let counters = alerts.counters();
    assert_eq!((counters.fired, counters.resolved), (1, 1));
    assert_eq!(counters.actions.failed, 0);
}

#[test]
fn a_server_that_fails_is_asked_again_and_one_that_refuses_is_not() {
    let graph = graph();
    let alerts = start(&graph, settings());
    let moody = Server::start(&[500, 503, 200]);
    let strict = Server::start(&[404]);
    let broken = Server::start(&[500]);
    let mut ids = Vec::new();
    for server in [&moody, &strict, &broken] {
        let made = alerts.create(alert("a", &server.address)).unwrap();
        ids.push(made.uuid.to_string());
    }
    add(&graph, "a");
    let tries: Vec<Value> = (0..3).map(|_| moody.next()).collect();
    assert!(tries.iter().all(|event| event == &tries[0]), "one event");
    strict.next();
    for _ in 0..5 {
        broken.next();
    }
    wait_for("end of all", || {
        let actions = alerts.counters().actions;
        actions.delivered + actions.failed == 3
    });
    let actions = alerts.counters().actions;
    assert_eq!(
        (actions.delivered, actions.failed, actions.retries),
        (1, 2, 2 + 4)
    );
    let error = |id: &String| alerts.get(id).unwrap().2;
    assert_eq!(error(&ids[0]), None);
    assert!(error(&ids[1]).unwrap().contains("404"));
    assert!(error(&ids[2]).unwrap().contains("500"));
    assert!(strict.bodies.try_recv().is_err() && broken.bodies.try_recv().is_err());
}

#[test]
fn a_server_that_hangs_delays_nobody_else() {
    let graph = graph();
    // Its timeout is longer than the test may take.
    let alerts = start(
        &graph,
        ActionSettings {
            timeout: Duration::from_secs(600),
            ..settings()
        },
    );
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}/", silent.local_addr().unwrap());
    let stuck = alerts.create(alert("a", &address)).unwrap();
    let server = Server::start(&[200]);
    alerts.create(alert("a", &server.address)).unwrap();
    wait_for("first look at both", || {
        alerts
            .list()
            .iter()
            .all(|(_, status, _)| status.state == "quiet")
    });
    for _ in 0..20 {
        add(&graph, "a");
        assert_eq!(server.next()["State"], "fired");
        graph.write().delete_node("a", 2).unwrap();
        assert_eq!(server.next()["State"], "resolved");
    }
    // One is under way, sixteen wait, and the rest was left out and counted.
    wait_for("count of the dropped", || {
        alerts.counters().actions.dropped == 40 - 1 - 16
    });
    assert_eq!(alerts.get(&stuck.uuid.to_string()).unwrap().1.fired, 20);
}

#[test]
fn lines_in_a_file_and_commands() {
    let room = tempfile::tempdir().unwrap();
    let graph = graph();
    let alerts = start(
        &graph,
        ActionSettings {
            commands: true,
            directory: Some(room.path().into()),
            ..settings()
        },
    );
    let (lines, out) = (room.path().join("events"), room.path().join("out"));
    let file = format!("file://{}", lines.display());
    alerts.create(alert("a", &file)).unwrap();
    let tee = format!("command:tee {}", out.display());
    alerts.create(alert("a", &tee)).unwrap();
    let failing = alerts.create(alert("a", "command:false")).unwrap();
    add(&graph, "a");
    wait_for("actions", || {
        let actions = alerts.counters().actions;
        actions.delivered + actions.failed == 3
    });
    graph.write().delete_node("a", 2).unwrap();
    wait_for("actions", || {
        let actions = alerts.counters().actions;
        actions.delivered + actions.failed == 6
    });
    assert_eq!(alerts.counters().actions.failed, 2);
    let states: Vec<Value> = std::fs::read_to_string(&lines)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["State"].clone())
        .collect();
    assert_eq!(states, ["fired", "resolved"]);
    let last: Value = serde_json::from_slice(&std::fs::read(&out).unwrap()).unwrap();
    assert_eq!(last["State"], "resolved");
    let error = alerts.get(&failing.uuid.to_string()).unwrap().2.unwrap();
    assert!(error.contains("exit status: 1"), "{error}");
}

#[test]
fn alerts_are_checked_changed_and_kept() {
    let room = tempfile::tempdir().unwrap();
    let file = room.path().join("alerts.json");
    let graph = graph();
    add(&graph, "b");
    let id = {
        let alerts = kept(&graph, settings(), Some(&file));
        let refused = |change: &dyn Fn(&mut Alert)| {
            let mut wrong = alert("a", "");
            change(&mut wrong);
            alerts.create(wrong).unwrap_err().to_string()
        };
        assert!(refused(&|a| a.expression.clear()).contains("Expression"));
        assert!(refused(&|a| a.expression = "G.V().Hass('x')".into()).contains("did you mean"));
        assert!(refused(&|a| a.trigger = "now".into()).contains("Trigger"));
        assert!(refused(&|a| a.trigger = "duration:10ms".into()).contains("at least 1s"));
        assert!(refused(&|a| a.hold = "soon".into()).contains("Hold"));
        assert!(refused(&|a| a.threshold = Some(f64::NAN)).contains("Threshold"));
        assert!(refused(&|a| a.action = "command:true".into()).contains("alerts.commands"));
        assert!(refused(&|a| a.action = "file:///etc/x".into()).contains("alerts.directory"));
        let made = alerts.create(alert("a", "")).unwrap();
        assert!(alerts.create(alert("a", "")).is_err(), "the same again");
        let id = made.uuid.to_string();
        let patch = |text: &str| alerts.patch(&id, &serde_json::from_str(text).unwrap());
        assert!(patch(r#"[{"op": "replace", "path": "/Expression", "value": "G.V(("}]"#).is_err());
        assert!(patch(r#"[{"op": "add", "path": "/Colour", "value": "red"}]"#).is_err());
        assert!(patch(r#"[{"op": "test", "path": "/Name", "value": "x"}]"#).is_err());
        let after = patch(
            r#"[{"op": "replace", "path": "/Expression", "value": "G.V().Has('Name', 'b')"},
                {"op": "replace", "path": "/UUID", "value": "6f8c9f4e-0000-4000-8000-000000000000"}]"#,
        )
        .unwrap();
        assert_eq!(after.uuid, made.uuid, "its identifier stays");
        wait_for("alert that fires", || {
            alerts.get(&id).unwrap().1.state == "firing"
        });
        id
    };
    let alerts = kept(&graph, settings(), Some(&file));
    wait_for("alert that fires again", || {
        alerts.get(&id).unwrap().1.state == "firing"
    });
    alerts.delete(&id).unwrap();
    assert!(alerts.get(&id).is_err() && alerts.delete(&id).is_err());
    assert!(alerts.list().is_empty());
}

#[test]
fn a_slow_subscriber_loses_events_and_only_its_own() {
    let graph = graph();
    let alerts = start(&graph, settings());
    let slow = alerts.subscribe(1);
    let quick = alerts.subscribe(100);
    alerts.create(alert("a", "")).unwrap();
    for _ in 0..3 {
        add(&graph, "a");
        assert_eq!(quick.next(PATIENCE).unwrap().state, AlertTurn::Fired);
        graph.write().delete_node("a", 2).unwrap();
        assert_eq!(quick.next(PATIENCE).unwrap().state, AlertTurn::Resolved);
    }
    wait_for("count of the lost", || alerts.counters().lost == 5);
    assert!(slow.next(PATIENCE).is_some());
}
