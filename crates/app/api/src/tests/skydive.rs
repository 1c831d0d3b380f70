//! Requests as Skydive's client, which is written in Go, sends them, and the shapes that it reads.

use serde_json::{Value, json};
use skua_topology::{Map, Node};

use super::{Reply, Running};

const JSON: &str = "Content-Type: application/json";

impl Running {
    fn post(&self, path: &str, body: &Value) -> Reply {
        let head = format!("POST /api/{path}\r\n{JSON}\r\nAccept-Encoding: gzip");
        self.ask(&head, &body.to_string())
    }

    /// Makes a resource; its identifier.
    pub fn created(&self, path: &str, body: &Value) -> String {
        let made = self.post(path, body);
        assert_eq!(made.status, 201, "{path}: {made:?}");
        made.json()["UUID"].as_str().unwrap().to_owned()
    }

    fn query(&self, query: &str) -> Reply {
        self.post("topology", &json!({"GremlinQuery": query}))
    }

    /// Uploads a capture file; the identifier that its flows have.
    fn upload(&self, file: &[u8]) -> String {
        let length = format!("POST /api/pcap\r\n{JSON}\r\nContent-Length: {}", file.len());
        let mut stream = self.connect();
        let head = self.request(&length, "");
        std::io::Write::write_all(&mut stream, head.as_bytes()).unwrap();
        std::io::Write::write_all(&mut stream, file).unwrap();
        let reply = Reply::read(stream);
        assert_eq!(reply.status, 202, "{reply:?}");
        reply.json()["UUID"].as_str().unwrap().to_owned()
    }
}

/// A capture as the client sends one without more options than these.
fn capture(query: &str, more: &[(&str, Value)]) -> Value {
    let mut body = json!({
        "UUID": "", "GremlinQuery": query, "Count": 0, "SamplingRate": 1, "PollingInterval": 10,
        "ExtraTCPMetric": false, "IPDefrag": false, "ReassembleTCP": false, "LayerKeyMode": "L2",
    });
    for (key, value) in more {
        body[*key] = value.clone();
    }
    body
}

#[test]
fn a_capture_is_made_shown_and_ended() {
    let running = Running::plain();
    let id = running.created("capture", &capture("G.V().Has('Name', 'eth0')", &[]));
    let shown = running.get(&format!("/api/capture/{id}")).json();
    assert_eq!(shown["UUID"], *id);
    // Text, numbers and truth values where Go wants them.
    assert_eq!(
        (&shown["Type"], &shown["LayerKeyMode"]),
        (&Value::Null, &"L3".into())
    );
    assert_eq!(
        (&shown["Count"], &shown["ReassembleTCP"]),
        (&0.into(), &Value::Null)
    );
    assert!(
        shown["CreateTime"].as_str().unwrap().ends_with('Z'),
        "{shown}"
    );
    let all = running.get("/api/capture").json();
    assert_eq!(all.as_object().unwrap().len(), 1);
    // What Go leaves at zero, as tests of its own do.
    let zero = capture(
        "G.V().Has('Name', 'eth1')",
        &[("SamplingRate", 0.into()), ("PollingInterval", 0.into())],
    );
    let zero = running.post("capture", &zero);
    assert_eq!(
        (zero.status, &zero.json()["SamplingRate"]),
        (201, &1.into())
    );
    let twice = running.post("capture", &capture("G.V().Has('Name', 'eth0')", &[]));
    assert_eq!(twice.status, 409);
    let head = format!("DELETE /api/capture/{id}\r\n{JSON}");
    assert_eq!(running.ask(&head, "").status, 200);
    assert_eq!(running.get(&format!("/api/capture/{id}")).status, 404);
}

#[test]
fn options_that_a_capture_does_not_have_are_refused() {
    let running = Running::plain();
    for (key, value) in [
        ("ReassembleTCP", json!(true)),
        ("ExtraLayers", 255.into()),
        ("UUID", "x".into()),
    ] {
        let reply = running.post("capture", &capture("G.V()", &[(key, value)]));
        assert_eq!(reply.status, 400, "{key}: {reply:?}");
    }
    let target = [
        ("Target", json!("127.0.0.1:4789")),
        ("TargetType", json!("erspanv1")),
    ];
    running.created("capture", &capture("G.V().Has('Name', 'a')", &target));
}

#[test]
fn times_to_live_are_those_of_go() {
    let running = Running::plain();
    for (number, ttl) in ["5s", "1m0s", "1h2m3.5s", "250ms", "2h45m0s"]
        .into_iter()
        .enumerate()
    {
        let body = capture(&format!("G.V().Has('MTU', {number})"), &[]).to_string();
        let head = format!("POST /api/capture\r\n{JSON}\r\nX-Resource-TTL: {ttl}");
        let reply = running.ask(&head, &body);
        assert_eq!(reply.status, 201, "{ttl}: {reply:?}");
        assert!(reply.json()["ExpireTime"].is_i64(), "{ttl}");
    }
}

#[test]
fn alerts_have_times_that_go_reads() {
    let running = Running::plain();
    let body = json!({
        "UUID": "", "Expression": "G.V().Has('MTU', GT(9000))", "Trigger": "graph",
        "CreateTime": "2026-11-24T18:40:38.255123456Z",
    });
    let id = running.created("alert", &body);
    let shown = running.get(&format!("/api/alert/{id}")).json();
    assert!(
        shown["CreateTime"].as_str().unwrap().ends_with('Z'),
        "{shown}"
    );
    // A change goes by the same text.
    let patch = json!([{"op": "add", "path": "/Description", "value": "large"}]);
    let changed = running.ask(
        &format!("PATCH /api/alert/{id}\r\n{JSON}"),
        &patch.to_string(),
    );
    assert_eq!(
        (changed.status, &changed.json()["Description"]),
        (200, &"large".into())
    );
    assert_eq!(changed.json()["CreateTime"], shown["CreateTime"]);
}

#[test]
fn rules_are_made_with_what_go_leaves_empty() {
    let running = Running::plain();
    let rule = json!({"UUID": "", "Name": "r", "Description": "", "Metadata": {"Name": "n", "Type": "fabric"},
        "Action": "create", "Query": ""});
    let id = running.created("noderule", &rule);
    assert_eq!(
        running.get(&format!("/api/noderule/{id}")).json()["Metadata"]["Name"],
        "n"
    );
    let rule = json!({"UUID": "", "Name": "", "Description": "", "Src": "G.V().Has('Name', 'a')",
        "Dst": "G.V().Has('Name', 'b')", "Metadata": {"RelationType": "layer2"}});
    running.created("edgerule", &rule);
    // A map that was never made is null; a rule without metadata is refused for that, not for its shape.
    let empty = json!({"UUID": "", "Name": "", "Description": "", "Src": "G.V()", "Dst": "G.V()", "Metadata": null});
    let reply = running.post("edgerule", &empty);
    assert_eq!(reply.status, 400);
    assert!(!reply.body.contains("null"), "{reply:?}");
}

#[test]
fn an_injection_is_read_to_its_end() {
    let running = Running::plain();
    let body = json!({
        "UUID": "", "Src": "G.V().Has('Name', 'nowhere')", "Dst": "", "SrcIP": "", "DstIP": "10.0.0.1",
        "SrcMAC": "", "DstMAC": "", "SrcPort": 0, "DstPort": 0, "Type": "icmp4", "Payload": "", "ICMPID": 0,
        "Count": 1, "Interval": 0, "Mode": "unique", "IncrementPayload": 0,
        "StartTime": "0001-01-01T00:00:00Z", "Pcap": null, "TTL": 64,
    });
    let reply = running.post("injectpacket", &body);
    // Only the node is missing.
    assert_eq!(reply.status, 400, "{reply:?}");
    assert!(reply.body.contains("Src"), "{reply:?}");
}

#[test]
fn nothing_found_is_an_empty_list() {
    let running = Running::plain();
    for query in [
        "G.V()",
        "G.E()",
        "G.Flows()",
        "G.V().Values('Name')",
        "G.Flows().Metrics()",
        "G.Flows().RawPackets()",
    ] {
        let reply = running.query(query);
        assert_eq!((reply.status, reply.json()), (200, json!([])), "{query}");
    }
    assert_eq!(running.query("G.V().Count()").json(), json!(0));
    // No query has no answer.
    for body in ["", "{}", r#"{"GremlinQuery": ""}"#] {
        let reply = running.ask(&format!("POST /api/topology\r\n{JSON}"), body);
        assert_eq!((reply.status, &*reply.body), (204, ""), "{body}");
    }
}

#[test]
fn a_query_needs_no_content_type_and_a_change_does() {
    let running = Running::plain();
    let metadata = Map::from([("Name", "eth0".into())]);
    drop(
        running
            .graph
            .write()
            .add_node(Node::new("n", "here", metadata), 1)
            .unwrap(),
    );
    let query = r#"{"GremlinQuery": "G.V().Count()"}"#;
    for head in [
        "",
        "\r\nContent-Type: application/x-www-form-urlencoded",
        "\r\nContent-Type: text/plain",
    ] {
        let reply = running.ask(&format!("POST /api/topology{head}"), query);
        assert_eq!((reply.status, reply.json()), (200, json!(1)), "{head}");
        let body = capture("G.V()", &[]).to_string();
        assert_eq!(
            running
                .ask(&format!("POST /api/capture{head}"), &body)
                .status,
            415
        );
    }
    let foreign = "POST /api/topology\r\nOrigin: http://evil.example";
    assert_eq!(running.ask(foreign, query).status, 403);
}

#[test]
fn a_capture_file_is_accepted_and_packets_come_as_one() {
    let running = Running::plain();
    // An empty pcap file, as ASCII: the byte order mark of big-endian files is none.
    let file: String = "\0".repeat(24);
    let refused = running.ask(&format!("POST /api/pcap\r\n{JSON}"), &file);
    assert_eq!(refused.status, 400);
    let head = format!("POST /api/topology\r\n{JSON}\r\nAccept: application/vnd.tcpdump.pcap");
    let mut stream = running.connect();
    let body = r#"{"GremlinQuery": "G.Flows().RawPackets()"}"#;
    std::io::Write::write_all(&mut stream, running.request(&head, body).as_bytes()).unwrap();
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(&mut stream, &mut bytes).unwrap();
    let begins = bytes
        .windows(4)
        .position(|four| four == b"\r\n\r\n")
        .unwrap()
        + 4;
    assert!(bytes.starts_with(b"HTTP/1.1 200"));
    assert_eq!(bytes[begins..begins + 4], 0xa1b2_3c4d_u32.to_le_bytes());
    assert_eq!(bytes.len() - begins, 24, "a file without packets");
    // The file goes back in.
    let mut stream = running.connect();
    let head = running.request(
        &format!("POST /api/pcap\r\n{JSON}\r\nContent-Length: 24"),
        "",
    );
    std::io::Write::write_all(&mut stream, head.as_bytes()).unwrap();
    std::io::Write::write_all(&mut stream, &bytes[begins..]).unwrap();
    let reply = Reply::read(stream);
    assert_eq!((reply.status, &reply.json()["Packets"]), (202, &0.into()));
}

const SUM: &str = "function Sum(a, b) {\n  var nodes = client.G.V().Has('Name', 'eth0').result()\n  return {sum: a + b, nodes: nodes.length}\n}";

#[test]
fn workflows_use_the_api() {
    let running = Running::plain();
    let metadata = Map::from([("Name", "eth0".into())]);
    let node = Node::new("n", "here", metadata);
    drop(running.graph.write().add_node(node, 1).unwrap());
    let workflow = json!({"UUID": "", "Name": "Sum", "Title": "", "Abstract": "", "Description": "", "Source": SUM,
        "Parameters": [{"Name": "a", "Description": "", "Type": "integer", "Default": null, "Values": null}]});
    let id = running.created("workflow", &workflow);
    let twice = running.post("workflow", &workflow);
    assert_eq!(twice.status, 409, "{twice:?}");
    for name in [&*id, "Sum"] {
        let reply = running.post(&format!("workflow/{name}/call"), &json!({"Params": [2, 3]}));
        assert_eq!(
            (reply.status, reply.json()),
            (200, json!({"sum": 5, "nodes": 1})),
            "{reply:?}"
        );
    }
    let all = running.get("/api/workflow").json();
    assert_eq!(all[&id]["Parameters"][0]["Name"], "a");
    // What it changes is there.
    let source = "function f(q) { var c = new Capture(); c.GremlinQuery = q; return client.captures.create(c).UUID }";
    running.created("workflow", &json!({"Name": "Make", "Source": source}));
    let made = running.post(
        "workflow/Make/call",
        &json!({"Params": ["G.V().Has('Name', 'eth0')"]}),
    );
    let capture = made.json().as_str().unwrap().to_owned();
    assert_eq!(running.get(&format!("/api/capture/{capture}")).status, 200);
    // Its errors have a line, also those of the API.
    for (source, line) in [
        ("function f() {\n\n  x.y\n}", "line 3: x is not defined"),
        (
            "function f() {\n  client.captures.create({GremlinQuery: ''})\n}",
            "line 2: /api/capture: ",
        ),
        (
            "function f() {\n  client.request('/api/config', 'GET')\n}",
            "line 2: /api/config: workflows may use ",
        ),
    ] {
        running.created("workflow", &json!({"Name": line, "Source": source}));
        let all = running.get("/api/workflow").json();
        let (id, _) = all
            .as_object()
            .unwrap()
            .iter()
            .find(|(_, one)| one["Name"] == line)
            .unwrap();
        let reply = running.post(&format!("workflow/{id}/call"), &json!({}));
        assert_eq!(reply.status, 400);
        assert!(reply.body.starts_with(line), "{reply:?}");
    }
    let wrong = running.post(
        "workflow",
        &json!({"Name": "Wrong", "Source": "function f() {\n  return {"}),
    );
    assert_eq!(wrong.status, 400);
    assert!(wrong.body.starts_with("Source: line "), "{wrong:?}");
    let head = format!("DELETE /api/workflow/{id}\r\n{JSON}");
    assert_eq!(running.ask(&head, "").status, 200);
    assert_eq!(running.post("workflow/Sum/call", &json!({})).status, 404);
}

#[test]
fn the_workflow_of_the_documentation_answers() {
    let page = include_str!("../../../../../docs/skydive.md");
    let (_, rest) = page.split_once("Source: |\n").unwrap();
    let (source, _) = rest.split_once("```").unwrap();
    let running = Running::plain();
    for (id, host, state) in [
        ("n", "here", "UP"),
        ("o", "there", "UP"),
        ("p", "here", "DOWN"),
    ] {
        let metadata = Map::from([("Name", id.into()), ("State", state.into())]);
        drop(
            running
                .graph
                .write()
                .add_node(Node::new(id, host, metadata), 1)
                .unwrap(),
        );
    }
    running.created("workflow", &json!({"Name": "Interfaces", "Source": source}));
    let reply = running.post("workflow/Interfaces/call", &json!({"Params": ["here"]}));
    assert_eq!(
        (reply.status, reply.json()),
        (200, json!(["n"])),
        "{reply:?}"
    );
}

/// A file of 2015: a connection that FIN ends, one that RST ends, one that goes on, and a datagram.
fn file_of_2015() -> Vec<u8> {
    const BEGIN: u64 = 1_441_000_000_000_000_000;
    let [syn, ack, fin, rst] = [0x02, 0x10, 0x01, 0x04];
    let mut capture = skua_testkit::Capture::new("2015");
    let mut add = |to_server: bool, port: u16, flags: Option<u8>| {
        let (from, to) = match to_server {
            true => ("10.0.0.1", "10.0.0.2"),
            false => ("10.0.0.2", "10.0.0.1"),
        };
        let (source, destination) = if to_server { (port, 80) } else { (80, port) };
        let packet = skua_testkit::Packet::new().ethernet(1, 2).ipv4(from, to);
        let data = match flags {
            Some(flags) => packet.tcp(source, destination, flags).build(),
            None => packet.udp(source, destination).zeros(40).build(),
        };
        let after = capture.records.len() as u64 * 1_000_000;
        capture.records.push(skua_testkit::Record {
            timestamp_ns: BEGIN + after,
            interface: 0,
            wire_length: data.len() as u32,
            data,
            block: Default::default(),
        });
    };
    for port in [1001, 1002, 1003] {
        add(true, port, Some(syn));
        add(false, port, Some(syn | ack));
        add(true, port, Some(ack));
    }
    add(true, 1001, Some(fin | ack));
    add(false, 1001, Some(fin | ack));
    add(true, 1001, Some(ack));
    add(false, 1002, Some(rst));
    add(true, 1004, None);
    capture.bytes()
}

#[test]
fn flows_of_an_old_file_are_found_at_its_time_and_have_ended_as_it_says() {
    let running = Running::plain();
    let node = Node::new("n", "here", Map::default());
    drop(
        running
            .graph
            .write()
            .add_node(node, 1_700_000_000_000)
            .unwrap(),
    );
    let id = running.upload(&file_of_2015());
    let at = "G.At('2015-08-31T05:46:41Z', 60).Flows()";
    let of_file = format!("{at}.Has('CaptureID', '{id}')");
    assert_eq!(running.query(&format!("{of_file}.Count()")).json(), 4);
    let ends = running.query(&format!(
        "{of_file}.Sort('Transport.A').Values('FinishType')"
    ));
    // FIN, RST, not finished; of the datagram nobody can know it.
    assert_eq!(ends.json(), json!([2, 3, 0, 0]));
    let states = format!("{of_file}.Sort('Transport.A').Values('TCPMetric.State')");
    let states = running.query(&states).json();
    assert_eq!(states, json!(["closed", "reset", "established"]));
    // A moment, and one long after it.
    let moment = running.query("G.At('2015-08-31T05:46:41Z').Flows().Count()");
    assert_eq!(moment.json(), 4);
    let never = running.query("G.At('2016-08-31T05:46:41Z').Flows()");
    assert_eq!(never.status, 400);
    assert!(
        never.body.contains("flows of the past are not kept"),
        "{never:?}"
    );
    // The graph has no such past, and says so where it is needed.
    let graph = running.query("G.At('2015-08-31T05:46:41Z').V()");
    assert_eq!(graph.status, 400);
    assert!(
        graph.body.contains("nothing is kept of that time"),
        "{graph:?}"
    );
}

#[test]
fn keys_of_flows_are_those_that_can_be_asked_for() {
    let running = Running::plain();
    running.upload(&file_of_2015());
    let flows = "G.At('2015-08-31T05:46:41Z').Flows().Has('Transport.A', 1001)";
    let keys = running.query(&format!("{flows}.Keys()")).json();
    let keys: Vec<&str> = keys
        .as_array()
        .unwrap()
        .iter()
        .map(|key| key.as_str().unwrap())
        .collect();
    for key in [
        "UUID",
        "LayersPath",
        "Application",
        "Link",
        "Link.Protocol",
        "Network",
        "Network.A",
        "Transport",
        "Transport.B",
        "Metric",
        "Metric.ABPackets",
        "TCPMetric",
        "TCPMetric.ABSynStart",
        "Start",
        "Last",
        "TrackingID",
        "L3TrackingID",
        "CaptureID",
        "FinishType",
        "LastUpdateMetric",
        "LastUpdateMetric.ABBytes",
    ] {
        assert!(keys.contains(&key), "{key}: {keys:?}");
    }
    for key in keys {
        let found = running
            .query(&format!("{flows}.HasKey('{key}').Count()"))
            .json();
        assert_eq!(found, 1, "{key}");
    }
}

#[test]
fn the_l3_tracking_id_tells_conversations_apart_and_points_not() {
    let running = Running::plain();
    for _ in 0..2 {
        running.upload(&file_of_2015());
    }
    let at = "G.At('2015-08-31T05:46:41Z').Flows()";
    let ids = |more: &str| -> Vec<String> {
        let ids = running
            .query(&format!("{at}{more}.Values('L3TrackingID')"))
            .json();
        serde_json::from_value(ids).unwrap()
    };
    assert_eq!(ids("").len(), 8);
    let distinct: std::collections::HashSet<_> = ids("").into_iter().collect();
    assert_eq!(distinct.len(), 4, "one of each conversation, by ports");
    let one = ids(".Has('Transport.A', 1001)");
    assert!(one.len() == 2 && one[0] == one[1], "{one:?}");
}

#[test]
fn a_patch_that_changes_nothing_is_answered_with_304() {
    let running = Running::plain();
    let node = |id: &str| {
        json!({"ID": id, "Metadata": {"Name": id, "Type": "fabric", "TID": id}, "Host": "h", "Origin": "o",
            "CreatedAt": 0, "UpdatedAt": 0, "Revision": 0})
    };
    for id in ["a", "b"] {
        assert_eq!(running.post("node", &node(id)).json()["Revision"], 0);
    }
    let edge = json!({"ID": "e", "Parent": "a", "Child": "b", "Metadata": {"RelationType": "wire"}, "Host": "h",
        "Origin": "o", "CreatedAt": 0, "UpdatedAt": 0, "Revision": 0});
    assert_eq!(running.post("edge", &edge).json()["Revision"], 0);
    for (path, fixed) in [("node/a", "/Metadata/Name"), ("edge/e", "/Parent")] {
        let change = |op: &str, place: &str| {
            let patch = json!([{"op": op, "path": place, "value": "x"}]).to_string();
            running.ask(&format!("PATCH /api/{path}\r\n{JSON}"), &patch)
        };
        let reply = change("replace", fixed);
        assert_eq!((reply.status, &*reply.body), (304, ""), "{path}");
        let reply = change("add", "/Metadata/Color");
        assert_eq!((reply.status, &reply.json()["Revision"]), (200, &json!(1)));
        let shown = running.get(&format!("/api/{path}")).json();
        assert_eq!(shown, reply.json());
    }
}
