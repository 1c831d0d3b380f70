//! WebSockets.

use std::collections::BTreeMap;

use serde_json::json;
use skua_flow::{Counters, FlowKey};
use skua_topology::{Edge, Map, Node};
use tungstenite::{
    Message, WebSocket, client::IntoClientRequest as _, http::HeaderValue, protocol::CloseFrame,
};

use crate::tests::*;

/// Updates of `flows` flows with `packets` packets each.
pub fn updates(flows: u32, packets: u64) -> Vec<FlowUpdate> {
    let address = |number: u32| {
        let mut address = [0; 16];
        address[10..12].copy_from_slice(&[0xff, 0xff]);
        address[12..].copy_from_slice(&number.to_be_bytes());
        address
    };
    let update = |n: u32| FlowUpdate {
        key: FlowKey {
            lo: address(0x0a00_0000 + n),
            hi: address(0x0b00_0000),
            lo_port: [0x80, 1],
            hi_port: [0, 53],
            proto: 17,
            kind: 1,
            ifindex: 7,
            ..FlowKey::default()
        },
        lo_sent: Counters {
            packets,
            bytes: packets * 100,
        },
        lo_first: true,
        first_ns: 1_000_000_000_000,
        last_ns: 1_002_000_000_000,
        ..FlowUpdate::default()
    };
    (0..flows).map(update).collect()
}

/// A moment of the tests, ms since the Unix epoch.
const NOW: i64 = 1_700_000_000_000;

type Client = WebSocket<TcpStream>;

/// A server with short queues.
fn narrow() -> Running {
    let limits = Limits {
        waiting: 100 << 10,
        ..Limits::default()
    };
    Running::start("", limits, Router::new())
}

fn open(running: &Running, path: &str, headers: &[(&'static str, &str)]) -> Result<Client, u16> {
    let url = format!("ws://{}{path}", running.address);
    let mut request = url.into_client_request().unwrap();
    for (name, value) in headers {
        request
            .headers_mut()
            .append(*name, HeaderValue::from_str(value).unwrap());
    }
    if !running.bearer.is_empty() && headers.iter().all(|(name, _)| *name != "x-auth-token") {
        let bearer = HeaderValue::from_str(&running.bearer).unwrap();
        request.headers_mut().insert("x-auth-token", bearer);
    }
    let stream = running.connect();
    // Unread data waits at the server.
    rustix::net::sockopt::set_socket_recv_buffer_size(&stream, 64 << 10).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    match tungstenite::client(request, stream) {
        Ok((client, _)) => Ok(client),
        Err(tungstenite::HandshakeError::Failure(tungstenite::Error::Http(reply))) => {
            Err(reply.status().as_u16())
        }
        Err(error) => panic!("{error}"),
    }
}

fn next(client: &mut Client) -> Value {
    loop {
        match client.read().unwrap() {
            Message::Text(text) => return serde_json::from_str(&text).unwrap(),
            Message::Ping(_) | Message::Pong(_) => {}
            other => panic!("{other}"),
        }
    }
}

fn send(client: &mut Client, message: &Value) {
    client.send(Message::text(message.to_string())).unwrap();
}

fn synchronise(client: &mut Client, obj: Value) -> Value {
    let request = json!({"Namespace": "Graph", "Type": "SyncRequest", "UUID": "u1", "Obj": obj});
    send(client, &request);
    loop {
        let reply = next(client);
        if reply["Type"] == "SyncReply" {
            assert_eq!(reply["UUID"], "u1");
            return reply;
        }
    }
}

fn node(id: &str, name: &str) -> Node {
    Node::new(
        id,
        "here",
        Map::from([("Name", name.into()), ("Type", "device".into())]),
    )
}

fn ids(list: &Value) -> Vec<&str> {
    let mut ids: Vec<_> = list
        .as_array()
        .unwrap()
        .iter()
        .map(|n| n["ID"].as_str().unwrap())
        .collect();
    ids.sort_unstable();
    ids
}

#[test]
fn the_graph_and_each_change_of_it() {
    let running = Running::plain();
    running
        .graph
        .write()
        .add_node(node("a", "eth0"), 1)
        .unwrap();
    let mut client = open(&running, "/ws/subscriber", &[]).unwrap();
    let reply = synchronise(&mut client, Value::Null);
    assert_eq!(reply["Status"], 200);
    assert_eq!(reply["Namespace"], "Graph");
    assert_eq!(ids(&reply["Obj"]["Nodes"]), ["a"]);
    assert_eq!(reply["Obj"]["Edges"], json!([]));
    {
        let mut graph = running.graph.write();
        graph.add_node(node("b", "eth1"), NOW + 2).unwrap();
        graph
            .add_edge(Edge::new("e", "a", "b", "here", Map::default()), NOW + 3)
            .unwrap();
        graph
            .update_node("b", Map::from([("Name", "eth2".into())]), NOW + 4)
            .unwrap();
        graph.delete_node("b", NOW + 5).unwrap();
    }
    let heard: Vec<_> = (0..5)
        .map(|_| {
            let news = next(&mut client);
            let kind = news["Type"].as_str().unwrap().to_owned();
            (kind, news["Obj"]["ID"].as_str().unwrap().to_owned())
        })
        .collect();
    let expected = [
        ("NodeAdded", "b"),
        ("EdgeAdded", "e"),
        ("NodeUpdated", "b"),
        ("EdgeDeleted", "e"),
        ("NodeDeleted", "b"),
    ];
    assert_eq!(
        heard,
        expected.map(|(kind, id)| (kind.to_owned(), id.to_owned()))
    );
    // As it was, and what makes no sense.
    let past = synchronise(&mut client, json!({"Time": NOW + 3}));
    assert_eq!(ids(&past["Obj"]["Nodes"]), ["a", "b"], "{past}");
    let bad = synchronise(&mut client, json!({"Time": 3, "GremlinFilter": "G"}));
    assert_eq!(bad["Status"], 400);
    let bad = synchronise(&mut client, json!({"GremlinFilter": "G.V("}));
    assert_eq!(bad["Status"], 400, "{bad}");
    let bad = synchronise(&mut client, json!({"GremlinFilter": "G.V().Count()"}));
    assert!(
        bad["Obj"]["Error"].as_str().unwrap().contains("neither"),
        "{bad}"
    );
    for nonsense in [
        "nonsense",
        "{}",
        r#"{"Namespace": "Graph", "Type": "Dance"}"#,
    ] {
        client.send(Message::text(nonsense)).unwrap();
        assert_eq!(next(&mut client)["Status"], 400, "{nonsense}");
    }
}

#[test]
fn a_filter_shows_its_part() {
    let running = Running::plain();
    running
        .graph
        .write()
        .add_node(node("a", "eth0"), 1)
        .unwrap();
    running
        .graph
        .write()
        .add_node(node("x", "other"), 1)
        .unwrap();
    let filter = "G.V().Has('Name', Regex('eth.*'))";
    let mut client = open(&running, "/ws/subscriber", &[("x-gremlin-filter", filter)]).unwrap();
    let sync = next(&mut client);
    assert_eq!(
        (&sync["Type"], ids(&sync["Obj"]["Nodes"])),
        (&json!("SyncReply"), vec!["a"])
    );
    {
        let mut graph = running.graph.write();
        graph.add_node(node("y", "other2"), 2).unwrap();
        graph.add_node(node("b", "eth1"), 2).unwrap();
        graph
            .add_edge(Edge::new("e", "a", "b", "here", Map::default()), 3)
            .unwrap();
        graph
            .add_edge(Edge::new("f", "a", "x", "here", Map::default()), 3)
            .unwrap();
    }
    let mut heard = |number: usize| {
        let news: Vec<_> = (0..number).map(|_| next(&mut client)).collect();
        news.iter()
            .map(|n| {
                format!(
                    "{} {}",
                    n["Type"].as_str().unwrap(),
                    n["Obj"]["ID"].as_str().unwrap()
                )
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(heard(2), ["NodeAdded b", "EdgeAdded e"]);
    running
        .graph
        .write()
        .update_node("b", Map::from([("Name", "lo".into())]), 4)
        .unwrap();
    assert_eq!(heard(2), ["EdgeDeleted e", "NodeDeleted b"]);
    // By parameter too, as browsers must.
    let path = "/ws/subscriber?x-gremlin-filter=G.V().Has('Name','other')";
    let mut client = open(&running, path, &[]).unwrap();
    assert_eq!(ids(&next(&mut client)["Obj"]["Nodes"]), ["x"]);
}

#[test]
fn a_slow_subscriber_gets_a_notice_and_a_new_sync() {
    let running = narrow();
    let mut client = open(&running, "/ws/subscriber", &[]).unwrap();
    synchronise(&mut client, Value::Null);
    // More than fit into the feed's queue, even if its thread does not run until the client reads.
    const CHANGES: i64 = 10_000;
    let long = skua_topology::Value::from("x".repeat(20_000).as_str());
    for n in 0..CHANGES {
        let id = format!("n{}", n % 50);
        let metadata = Map::from([("Name", long.clone()), ("N", n.into())]);
        let mut graph = running.graph.write();
        match n < 50 {
            true => drop(graph.add_node(Node::new(&id, "here", metadata), n).unwrap()),
            false => drop(graph.update_node(&id, metadata, n).unwrap()),
        }
    }
    let mut known = BTreeMap::new();
    let mut lost = 0;
    while known.len() < 50 || known.values().any(|n| *n < CHANGES - 50) {
        let news = next(&mut client);
        let mut learn = |node: &Value| {
            let number = node["Metadata"]["N"].as_i64().unwrap();
            let old = known.insert(node["ID"].as_str().unwrap().to_owned(), number);
            // No earlier change is sent again.
            assert!(old <= Some(number));
        };
        match news["Type"].as_str().unwrap() {
            "Sync" => {
                lost += news["Obj"]["Lost"].as_u64().unwrap();
                news["Obj"]["Nodes"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .for_each(learn);
            }
            "NodeAdded" | "NodeUpdated" => learn(&news["Obj"]),
            other => panic!("{other}"),
        }
    }
    assert!(lost > 0);
}

fn set_patience(client: &Client, time: Duration) {
    client.get_ref().set_read_timeout(Some(time)).unwrap();
}

/// Drains until a client gets a message: then it has joined.
fn first_sums(running: &Running, client: &mut Client) {
    wait_for("first sums", || {
        running.drain(Vec::new());
        std::thread::sleep(Duration::from_millis(110));
        set_patience(client, Duration::from_millis(100));
        matches!(client.read(), Ok(Message::Text(_))).then_some(())
    });
    set_patience(client, Duration::from_secs(60));
}

#[test]
fn flows_that_a_drain_has_changed() {
    let running = Running::plain();
    let mut all = open(&running, "/ws/subscriber/flow", &[]).unwrap();
    let name = format!("flow/{CAPTURE}");
    let capture = [("x-websocket-namespace", name.as_str())];
    let mut of_capture = open(&running, "/ws/subscriber/flow", &capture).unwrap();
    let path = "/ws/subscriber/flow?x-websocket-namespace=flow/other&x-websocket-namespace=stats";
    let mut of_other = open(&running, path, &[]).unwrap();
    first_sums(&running, &mut all);
    first_sums(&running, &mut of_other);
    running.drain(updates(300, 5));
    let mut flows = Vec::new();
    while flows.len() < 300 {
        let news = next(&mut all);
        if news["Namespace"] == "flow" {
            assert_eq!(news["Type"], "store");
            flows.extend(news["Obj"].as_array().unwrap().clone());
        }
    }
    assert_eq!(flows.len(), 300);
    let first = flows
        .iter()
        .find(|f| f["Network"]["A"] == "10.0.0.0")
        .unwrap();
    assert_eq!(first["Metric"]["ABPackets"], 5);
    assert_eq!(first["CaptureID"], CAPTURE.to_string());
    let news = next(&mut of_capture);
    assert_eq!(news["Namespace"], name);
    // The next message has only changes.
    running.drain(updates(1, 2));
    loop {
        let news = next(&mut all);
        if news["Namespace"] == "flow" {
            let flows = news["Obj"].as_array().unwrap();
            assert_eq!(flows.len(), 1);
            assert_eq!(flows[0]["Metric"]["ABPackets"], 7);
            break;
        }
    }
    let sums = next(&mut of_other);
    assert_eq!(
        (&sums["Namespace"], &sums["Type"]),
        (&json!("stats"), &json!("stats"))
    );
    assert_eq!(sums["Obj"]["Sent"], 0);
    for wrong in ["flows", "flow/", "graph"] {
        let header = [("x-websocket-namespace", wrong)];
        assert_eq!(
            open(&running, "/ws/subscriber/flow", &header).err(),
            Some(400),
            "{wrong}"
        );
    }
}

#[test]
fn flows_that_a_slow_reader_misses_are_counted() {
    let running = narrow();
    let mut client = open(&running, "/ws/subscriber/flow", &[]).unwrap();
    first_sums(&running, &mut client);
    running.drain(updates(30_000, 1));
    // Start to read when all is prepared.
    let path = "/ws/subscriber/flow?x-websocket-namespace=stats";
    first_sums(&running, &mut open(&running, path, &[]).unwrap());
    let mut received = 0;
    loop {
        let news = next(&mut client);
        if news["Namespace"] == "flow" {
            received += news["Obj"].as_array().unwrap().len() as u64;
            continue;
        }
        let sums = &news["Obj"];
        let dropped = sums["Dropped"]["slow_reader"].as_u64().unwrap();
        if received + dropped == 30_000 {
            assert_eq!(sums["Sent"], received);
            assert!(dropped > 0 && received > 0);
            break;
        }
        running.drain(Vec::new());
    }
}

fn closing(client: &mut Client) -> CloseFrame {
    loop {
        match client.read().unwrap() {
            Message::Close(frame) => return frame.unwrap(),
            Message::Ping(_) | Message::Text(_) => {}
            other => panic!("{other}"),
        }
    }
}

#[test]
fn websockets_are_guarded_like_the_rest() {
    let running = Running::plain();
    for (name, value) in [
        ("origin", "http://evil.example"),
        ("origin", "ws://evil.example/ws"),
    ] {
        assert_eq!(
            open(&running, "/ws/subscriber", &[(name, value)]).err(),
            Some(403)
        );
    }
    let own = format!("http://{}", running.address);
    assert!(open(&running, "/ws/subscriber", &[("origin", &own)]).is_ok());
    let mut long = open(&running, "/ws/subscriber", &[]).unwrap();
    let text = "x".repeat(200 << 10);
    // The connection may be closed before all is sent.
    let _ = long.send(Message::text(text));
    assert!(wait_for("end", || long.read().is_err().then_some(true)));
    let mut binary = open(&running, "/ws/subscriber", &[]).unwrap();
    binary.send(Message::binary(vec![0xff])).unwrap();
    assert_eq!(u16::from(closing(&mut binary).code), 1003);
    // So many, and no more.
    let most = Limits::default().subscribers_of_one;
    let held: Vec<_> = (0..most + 4)
        .map(|_| open(&running, "/ws/subscriber", &[]))
        .collect();
    assert!(held.iter().filter(|c| c.is_ok()).count() <= most);
    assert!(matches!(held[most + 3], Err(503)));
    drop(held);
    wait_for("free places", || open(&running, "/ws/subscriber", &[]).ok());
}

#[test]
fn a_client_that_does_not_answer_pings_is_disconnected() {
    let limits = Limits {
        ping: Duration::from_millis(100),
        ..Limits::default()
    };
    let running = Running::start("", limits, Router::new());
    let mut alive = open(&running, "/ws/subscriber", &[]).unwrap();
    let mut deaf = open(&running, "/ws/subscriber", &[])
        .unwrap()
        .into_inner_stream();
    // One client reads and answers pings, the other never does.
    let mut pings = 0;
    while pings < 6 {
        pings += u32::from(matches!(alive.read().unwrap(), Message::Ping(_)));
    }
    let mut rest = Vec::new();
    deaf.read_to_end(&mut rest).unwrap();
    let reason = String::from_utf8_lossy(&rest);
    assert!(reason.contains("no answer to pings"), "{reason}");
    assert_eq!(synchronise(&mut alive, Value::Null)["Status"], 200);
}

trait IntoInner {
    fn into_inner_stream(self) -> TcpStream;
}

impl IntoInner for Client {
    fn into_inner_stream(self) -> TcpStream {
        self.get_ref().try_clone().unwrap()
    }
}

#[test]
fn a_login_that_ended_ends_its_websockets() {
    use skua_server::auth::{Role, tokens};
    let text = tokens::new_token().unwrap();
    let list = tokens::Tokens(vec![tokens::Token {
        name: "a".into(),
        role: Role::Read,
        end: None,
        hash: tokens::hash(&text),
    }]);
    let file = secret("tokens", &list.text());
    let limits = Limits {
        ping: Duration::from_millis(100),
        ..Limits::default()
    };
    let running = Running::start(
        &format!(", tokens: {}", file.display()),
        limits,
        Router::new(),
    );
    assert_eq!(open(&running, "/ws/subscriber", &[]).err(), Some(401));
    let mut client = open(&running, "/ws/subscriber", &[("x-auth-token", &text)]).unwrap();
    assert_eq!(synchronise(&mut client, Value::Null)["Status"], 200);
    std::fs::write(&file, "").unwrap();
    assert_eq!(u16::from(closing(&mut client).code), 1008);
}

#[test]
fn lists_are_sent_as_changes() {
    let running = Running::plain();
    running.drain(updates(3, 1));
    let mut client = open(&running, "/ws/map", &[]).unwrap();
    assert_eq!(next(&mut client)["Whole"], true);
    let watch = json!({"Map": false, "Watch": {"a": "/api/flows?sort=start&limit=2", "b": "/api/flows?sort=x"}});
    send(&mut client, &watch);
    let tables = [next(&mut client), next(&mut client)];
    let of = |key: &str| tables.iter().map(|t| &t["Table"]).find(|t| t["Key"] == key);
    let first = of("a").unwrap();
    assert_eq!(
        (&first["Found"], first["Rows"].as_array().unwrap().len()),
        (&json!(3), 2)
    );
    assert_eq!(of("b").unwrap()["Status"], 400);
    // The client does not watch the map, so only the list is sent.
    running
        .graph
        .write()
        .add_node(node("a", "eth0"), 1)
        .unwrap();
    running.drain(updates(3, 5));
    let table = next(&mut client)["Table"].take();
    assert_eq!(table["Key"], "a");
    let row = &table["Rows"][0];
    assert_eq!(row[0], 0);
    assert_eq!(row[1]["ab"]["packets"], 6);
    assert!(
        row[1].get("a").is_none() && row[1].get("id").is_none(),
        "{row}"
    );
    send(&mut client, &json!({"Map": true}));
    assert_eq!(ids(&next(&mut client)["Nodes"]), ["a"]);
    send(&mut client, &json!({"Watch": {"a": "/api/config"}}));
    let error = next(&mut client)["Error"].take();
    assert!(
        error.as_str().unwrap().contains("can be watched"),
        "{error}"
    );
}

#[test]
fn alerts_are_pushed_to_who_subscribes_to_them() {
    let running = Running::plain();
    let both = [
        ("x-websocket-namespace", "Alert"),
        ("x-websocket-namespace", "Graph"),
    ];
    let mut alerts = open(&running, "/ws/subscriber", &both[..1]).unwrap();
    let mut graph = open(&running, "/ws/subscriber", &both[1..]).unwrap();
    let mut all = open(&running, "/ws/subscriber", &[]).unwrap();
    // Each has its mailbox when it is answered.
    for client in [&mut alerts, &mut graph, &mut all] {
        synchronise(client, Value::Null);
    }
    let body = json!({"UUID": "", "Expression": "G.V().Has('Name', 'eth0').Values('State')", "Trigger": "duration:+1s"});
    let id = running.created("alert", &body);
    let metadata = Map::from([("Name", "eth0".into()), ("State", "UP".into())]);
    let up = Node::new("a", "here", metadata);
    running.graph.write().add_node(up, 1).unwrap();
    let event = next(&mut alerts);
    assert_eq!(
        (&event["Namespace"], &event["Type"]),
        (&json!("Alert"), &json!("Alert"))
    );
    assert_eq!(
        (&event["Obj"]["UUID"], &event["Obj"]["ReasonData"]),
        (&json!(id), &json!(["UP"]))
    );
    let mut of_all = Vec::new();
    while of_all.len() < 2 {
        of_all.push(next(&mut all)["Namespace"].as_str().unwrap().to_owned());
    }
    of_all.sort();
    assert_eq!(of_all, ["Alert", "Graph"]);
    running.graph.write().delete_node("a", 2).unwrap();
    assert_eq!(next(&mut alerts)["Type"], "Resolved");
    assert_eq!(next(&mut graph)["Type"], "NodeAdded");
    assert_eq!(next(&mut graph)["Type"], "NodeDeleted");
}

#[test]
fn publishers_make_nodes_and_edges() {
    let running = Running::plain();
    let bearer = HeaderValue::from_str(&running.bearer).unwrap();
    let mut request = format!("ws://{}/ws/publisher", running.address)
        .into_client_request()
        .unwrap();
    request.headers_mut().insert("x-auth-token", bearer);
    let (mut client, answer) = tungstenite::client(request, running.connect()).unwrap();
    // Without these Skydive's client hangs up.
    for header in ["x-host-id", "x-service-type"] {
        assert!(answer.headers().contains_key(header), "{header}");
    }
    let message = |kind: &str, obj: Value| json!({"Namespace": "Graph", "Type": kind, "UUID": kind, "Obj": obj});
    let there = |id: &str| running.get(&format!("/api/node/{id}")).status == 200;
    // As Skydive's client sends it: JSON in a binary message.
    let named = |id: &str| json!({"ID": id, "Metadata": {"Name": id, "Type": "host"}, "Host": "h", "Origin": "cli", "CreatedAt": 1, "UpdatedAt": 1, "Revision": 1});
    client
        .send(Message::binary(
            message("NodeAdded", named("a")).to_string().into_bytes(),
        ))
        .unwrap();
    send(&mut client, &message("NodeAdded", named("b")));
    let edge = json!({"ID": "e", "Parent": "a", "Child": "b", "Metadata": {"RelationType": "layer2"}, "Host": "h"});
    send(&mut client, &message("EdgeAdded", edge));
    wait_for("the edge", || {
        (running.get("/api/edge/e").status == 200).then_some(())
    });
    send(
        &mut client,
        &message(
            "NodeUpdated",
            json!({"ID": "a", "Metadata": {"Name": "a", "Type": "host", "Rack": 7}}),
        ),
    );
    wait_for("the rack", || {
        (running.get("/api/node/a").json()["Metadata"]["Rack"] == 7).then_some(())
    });
    send(&mut client, &message("NodeDeleted", json!({"ID": "b"})));
    wait_for("the end of b", || (!there("b")).then_some(()));
    for (kind, obj) in [
        ("NodeAdded", json!({"Metadata": {}})),
        ("NodeDeleted", json!({"ID": "x"})),
        ("Other", Value::Null),
    ] {
        send(&mut client, &message(kind, obj));
        let reply = next(&mut client);
        assert_eq!(
            (&reply["Status"], &reply["UUID"]),
            (&json!(400), &json!(kind)),
            "{reply}"
        );
    }
    // What stays, and what goes with its publisher.
    let mut other = open(
        &running,
        "/ws/publisher",
        &[("x-persistence-policy", "DeleteOnDisconnect")],
    )
    .unwrap();
    send(&mut other, &message("NodeAdded", named("c")));
    wait_for("c", || there("c").then_some(()));
    drop((client, other));
    wait_for("the end of c", || (!there("c")).then_some(()));
    assert!(there("a"));
}
