//! `skua agent` and `skua analyzer`: one graph of several hosts.

use std::{
    net::{TcpListener, TcpStream, UdpSocket},
    path::PathBuf,
    process::Command,
    time::Duration,
};

use serde_json::Value;
use skua_testkit::access::BEARER;
use tungstenite::client::IntoClientRequest as _;

use crate::lab::{Net, Skua, net, root_tests, skua, wait_for};

/// A folder that is removed when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let name = format!(
            "ag-{}-{:?}",
            std::process::id(),
            std::thread::current().id()
        );
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A free port of a namespace's loopback.
fn free_port(net: &Net) -> u16 {
    let listener = net.inside(|| TcpListener::bind("127.0.0.1:0")).unwrap();
    listener.local_addr().unwrap().port()
}

fn analyzer(net: &Net, port: u16, history: &str) -> Skua {
    let mut command = skua::command(net);
    command
        .args(["analyzer", "--host-name", "center", "--listen"])
        .arg(format!("127.0.0.1:{port}"))
        .env("SKUA_HISTORY_DIRECTORY", history)
        .env("SKUA_FLEET_FORGET_AFTER", "2s");
    Skua::run_command(net, &mut command)
}

fn agent(net: &Net, name: &str, analyzer: &str, more: &[&str]) -> Skua {
    let mut command = skua::command(net);
    command
        .args(["agent", "--listen", "127.0.0.1:0", "--host-name", name])
        .args(["--scan-interval", "200ms", "--analyzer", analyzer])
        .args(["--summary", "json"])
        .args(more);
    Skua::run_command(net, &mut command)
}

/// Answer of the analyzer's or agent's API to a query.
fn ask(net: &Net, address: &str, query: &str) -> Value {
    let mut command = skua::command(net);
    command.args(["query", query, "--format", "json", "--analyzer", address]);
    let output = command.output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{query}: {err}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Nodes of a host by identifier: what does not count by itself.
fn nodes(net: &Net, address: &str, host: &str) -> Vec<(String, String, String)> {
    let found = ask(net, address, &format!("G.V().Has('@Host', '{host}')"));
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut all: Vec<_> = found
        .as_array()
        .unwrap()
        .iter()
        .map(|node| {
            let metadata = &node["Metadata"];
            let state = format!(
                "{} {} {}",
                metadata["MAC"], metadata["MTU"], metadata["State"]
            );
            (text(&node["ID"]), text(&metadata["Name"]), state)
        })
        .collect();
    all.sort();
    all
}

fn edges(net: &Net, address: &str, host: &str) -> Vec<String> {
    let found = ask(net, address, &format!("G.E().Has('@Host', '{host}')"));
    let mut all: Vec<_> = found
        .as_array()
        .unwrap()
        .iter()
        .map(|edge| format!("{} {} {}", edge["ID"], edge["Parent"], edge["Child"]))
        .collect();
    all.sort();
    all
}

/// Waits until the analyzer knows of a host what the agent knows.
fn wait_equal(net: &Net, analyzer: &str, agent: &Skua, host: &str) -> usize {
    wait_for(&format!("the same graph of {host}"), || {
        let here = nodes(net, &agent.address, host);
        let same = !here.is_empty()
            && here == nodes(net, analyzer, host)
            && edges(net, &agent.address, host) == edges(net, analyzer, host);
        same.then_some(here.len())
    })
}

#[test]
fn graphs_are_equal_again_whoever_is_killed() {
    if !root_tests() {
        return;
    }
    let (net, folder) = (Net::new(), Folder::new());
    let port = free_port(&net);
    let address = format!("127.0.0.1:{port}");
    let history = folder.path("history");
    let center = analyzer(&net, port, &history);
    let first = agent(&net, "one", &address, &["--interface", "lo"]);
    wait_equal(&net, &address, &first, "one");
    // A change follows.
    net.ip("link add d0 type veth peer name p0");
    wait_for("d0", || {
        let found = ask(&net, &address, "G.V().Has('Name', 'd0', '@Host', 'one')");
        (found.as_array().unwrap().len() == 1).then_some(())
    });
    wait_equal(&net, &address, &first, "one");
    // The analyzer is killed, the host changes meanwhile.
    center.kill();
    net.ip("link del d0");
    net.ip("link add d1 type veth peer name p1");
    let center = analyzer(&net, port, &history);
    wait_equal(&net, &address, &first, "one");
    let gone = ask(&net, &address, "G.V().Has('Name', 'd0', '@Host', 'one')");
    assert_eq!(gone, Value::Array(vec![]));
    // The agent is killed: its nodes go, and come back with it.
    first.kill();
    wait_for("the end of its nodes", || {
        nodes(&net, &address, "one").is_empty().then_some(())
    });
    net.ip("link del d1");
    let again = agent(&net, "one", &address, &["--interface", "lo"]);
    wait_equal(&net, &address, &again, "one");
    // Both.
    center.kill();
    again.kill();
    let again = agent(&net, "one", &address, &["--interface", "lo"]);
    let _center = analyzer(&net, port, &history);
    wait_equal(&net, &address, &again, "one");
}

#[test]
fn what_changed_while_there_was_no_connection_is_known_after_it() {
    if !root_tests() {
        return;
    }
    let net = Net::new();
    let port = free_port(&net);
    let address = format!("127.0.0.1:{port}");
    let center = analyzer(&net, port, "");
    let first = agent(&net, "one", &address, &["--interface", "lo"]);
    wait_equal(&net, &address, &first, "one");
    center.halt();
    center.kill();
    // 10,000 changes: 200 pairs of links come, change their MTU 24 times, and half of them go.
    let mut batch = String::new();
    for pair in 0..200 {
        batch += &format!("link add c{pair} type veth peer name k{pair}\n");
    }
    for mtu in 1_300..1_324 {
        for pair in 0..200 {
            batch += &format!("link set c{pair} mtu {mtu}\nlink set k{pair} mtu {mtu}\n");
        }
    }
    for pair in 0..100 {
        batch += &format!("link del c{pair}\n");
    }
    let folder = Folder::new();
    std::fs::write(folder.path("batch"), batch).unwrap();
    net.ip(&format!("-batch {}", folder.path("batch")));
    let _center = analyzer(&net, port, "");
    // The agent itself may still be reading what happened.
    wait_for("all links as they are now", || {
        wait_equal(&net, &address, &first, "one");
        let query = "G.V().Has('Type', 'veth', 'MTU', 1323).Count()";
        (ask(&net, &address, query) == 200).then_some(())
    });
}

/// A message to `/ws/agent`, and what is answered.
fn refusal(net: &Net, port: u16, messages: &[tungstenite::Message]) -> String {
    net.inside(|| {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(30)))
            .unwrap();
        let url = format!("ws://127.0.0.1:{port}/ws/agent");
        let mut request = url.into_client_request().unwrap();
        let bearer = BEARER.parse().unwrap();
        request.headers_mut().insert("authorization", bearer);
        let (mut socket, _) = tungstenite::client(request, stream).unwrap();
        for message in messages {
            // The other side may have hung up.
            let _ = socket.send(message.clone());
        }
        loop {
            match socket.read() {
                Ok(tungstenite::Message::Text(text)) if text.contains("Refused") => {
                    let value: Value = serde_json::from_str(&text).unwrap();
                    return value["Refused"].as_str().unwrap().to_owned();
                }
                Ok(tungstenite::Message::Close(_)) => return "closed".into(),
                Ok(_) => {}
                Err(error) => return format!("{error}"),
            }
        }
    })
}

#[test]
fn what_is_no_agent_is_refused_with_one_line() {
    if !root_tests() {
        return;
    }
    use tungstenite::Message;
    let net = Net::new();
    let port = free_port(&net);
    let address = format!("127.0.0.1:{port}");
    let _center = analyzer(&net, port, "");
    let text = |text: &str| Message::Text(text.into());
    let hello = |host: &str| {
        text(&format!(
            r#"{{"Hello":{{"protocol":5,"version":"0","host":"{host}",
            "instance":"00000000-0000-4000-8000-000000000001",
            "challenge":"00000000-0000-4000-8000-000000000002"}}}}"#
        ))
    };
    let sync = |host: &str| {
        text(&format!(
            r#"{{"Sync":{{"graph":{{"Nodes":[{{"ID":"n","Host":"{host}"}}],"Edges":[]}},"last":true}}}}"#
        ))
    };
    for (messages, why) in [
        (vec![text("{")], "a message is not understood"),
        (vec![text("[]\n\u{7}")], "a message is not understood"),
        (
            vec![Message::Binary(vec![0xc1; 9].into())],
            "flows are not understood",
        ),
        (vec![hello("center")], "the analyzer's own host"),
        (vec![hello("")], "no name of a host"),
        (vec![hello("x"), hello("x")], "only once"),
        (vec![hello("x"), sync("y")], "is of host y, not of x"),
        (
            vec![hello("x"), text(r#"{"Changes":[]}"#)],
            "after the whole graph",
        ),
    ] {
        let told = refusal(&net, port, &messages);
        assert!(told.contains(why), "{told}, not {why}");
        assert_eq!(told.lines().count(), 1, "{told}");
    }
    // Larger than any message.
    let large = Message::Binary(vec![0; 9 << 20].into());
    let told = refusal(&net, port, &[large]);
    assert!(!told.contains("timed out"), "{told}");
    // Who is right is served as before.
    let one = agent(&net, "one", &address, &["--interface", "lo"]);
    wait_equal(&net, &address, &one, "one");
    let status: Value = serde_json::from_str(&net::inside(&net.path(), || {
        let url = format!("http://{address}/api/agents");
        ureq::get(url)
            .header("Authorization", BEARER)
            .call()
            .unwrap()
            .body_mut()
            .read_to_string()
            .unwrap()
    }))
    .unwrap();
    assert!(
        status["refused_connections"].as_u64().unwrap() >= 9,
        "{status}"
    );
    assert_eq!(nodes(&net, &address, "y"), []);
}

/// Two agents in namespaces of their own, joined with one another and each with the analyzer's.
struct Three {
    one: Net,
    two: Net,
    center: Net,
    folder: Folder,
}

impl Three {
    fn new() -> Self {
        let (one, two, center) = (Net::new(), Net::new(), Net::new());
        one.veth("a0", &two, "b0");
        one.veth("w1", &center, "z1");
        two.veth("w2", &center, "z2");
        one.ip("addr add 10.8.0.1/24 dev a0");
        two.ip("addr add 10.8.0.2/24 dev b0");
        one.ip("addr add 10.8.1.1/24 dev w1");
        center.ip("addr add 10.8.1.2/24 dev z1");
        two.ip("addr add 10.8.2.1/24 dev w2");
        center.ip("addr add 10.8.2.2/24 dev z2");
        let folder = Folder::new();
        net::run(
            Command::new("openssl")
                .args(
                    "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 9"
                        .split(' '),
                )
                .args(["-subj", "/CN=skua", "-keyout", &folder.path("key")])
                .args(["-out", &folder.path("certificate"), "-addext"])
                .arg("subjectAltName=IP:10.8.1.2,IP:10.8.2.2,IP:127.0.0.1")
                .args(["-addext", "basicConstraints=critical,CA:FALSE"]),
        );
        net::run(Command::new("chmod").args(["600", &folder.path("key")]));
        let mut token = skua::command(&center);
        token
            .args(["token", "create", "agents", "--role", "admin", "--file"])
            .arg(folder.path("tokens"));
        let token = net::run(&mut token);
        std::fs::write(folder.path("token"), token).unwrap();
        net::run(Command::new("chmod").args(["600", &folder.path("token")]));
        let config = format!(
            "host: center\napi:\n  listen: ['10.8.1.2:8082', '10.8.2.2:8082', '127.0.0.1:8082']\n  \
             tls: {{certificate: {}, key: {}}}\n  tokens: {}\n",
            folder.path("certificate"),
            folder.path("key"),
            folder.path("tokens"),
        );
        std::fs::write(folder.path("config"), config).unwrap();
        Self {
            one,
            two,
            center,
            folder,
        }
    }

    fn credentials(&self) -> [String; 4] {
        [
            "--token-file".into(),
            self.folder.path("token"),
            "--ca-cert".into(),
            self.folder.path("certificate"),
        ]
    }

    fn analyzer(&self) -> Skua {
        let mut command = skua::command(&self.center);
        command.args(["analyzer", "--config", &self.folder.path("config")]);
        // It has its own.
        command.env_remove("SKUA_API_TOKENS");
        let skua = Skua::start(&self.center, &mut command);
        wait_for("the analyzer", || {
            let place = ("127.0.0.1", 8082);
            self.center.inside(|| TcpStream::connect(place)).ok()
        });
        skua
    }

    fn agent(&self, net: &Net, name: &str, analyzer: &str) -> Skua {
        let credentials = self.credentials();
        let mut more: Vec<&str> = credentials.iter().map(String::as_str).collect();
        more.extend(["--interface", "lo"]);
        agent(net, name, &format!("https://{analyzer}:8082"), &more)
    }

    /// Runs `skua ARGS…` against the analyzer.
    fn skua(&self, args: &[&str]) -> String {
        let mut command = skua::command(&self.center);
        command.args(args).args(self.credentials());
        command.args(["--analyzer", "https://127.0.0.1:8082"]);
        net::run(&mut command)
    }

    /// What the analyzer says to somebody who wants packets of these nodes.
    fn live(&self, query: &str) -> String {
        let mut command = skua::command(&self.center);
        command.args(["capture", "watch", "--gremlin", query, "-w", "/dev/stdout"]);
        command.args(self.credentials());
        command.args(["--analyzer", "https://127.0.0.1:8082"]);
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    }

    fn ask(&self, query: &str) -> Value {
        let text = self.skua(&["query", query, "--format", "json"]);
        serde_json::from_str(&text).unwrap()
    }

    /// Interfaces that are captured, by host and name.
    fn captured(&self) -> Vec<String> {
        let found = self.ask("G.V().Has('Captures.State', 'active')");
        let name = |node: &Value| {
            let host = node["Host"].as_str().unwrap();
            format!("{host} {}", node["Metadata"]["Name"].as_str().unwrap())
        };
        let mut all: Vec<_> = found.as_array().unwrap().iter().map(name).collect();
        all.sort();
        all
    }
}

/// So many datagrams from one to two, and as many answers.
fn talk(three: &Three, datagrams: usize) {
    let two = three
        .two
        .inside(|| UdpSocket::bind("10.8.0.2:7007"))
        .unwrap();
    let one = three.one.inside(|| UdpSocket::bind("10.8.0.1:0")).unwrap();
    one.connect("10.8.0.2:7007").unwrap();
    for socket in [&one, &two] {
        socket
            .set_read_timeout(Some(Duration::from_secs(30)))
            .unwrap();
    }
    let mut buffer = [0; 100];
    for _ in 0..datagrams {
        one.send(&[7; 70]).unwrap();
        let (_, from) = two.recv_from(&mut buffer).unwrap();
        two.send_to(&[8; 80], from).unwrap();
        one.recv(&mut buffer).unwrap();
    }
}

#[test]
fn one_conversation_between_two_hosts_is_one() {
    if !root_tests() {
        return;
    }
    let three = Three::new();
    let _center = three.analyzer();
    let _one = three.agent(&three.one, "one", "10.8.1.2");
    let _two = three.agent(&three.two, "two", "10.8.2.2");
    three.skua(&[
        "capture",
        "create",
        "--gremlin",
        "G.V().Has('Name', Regex('[ab][0-9]'))",
    ]);
    wait_for("captures at both", || {
        (three.captured() == ["one a0", "two b0"]).then_some(())
    });
    // A conversation that may have begun before both ends were watched is not compared.
    std::thread::sleep(Duration::from_millis(1_500));
    talk(&three, 7);
    let flows = wait_for("the conversation at both ends", || {
        let found = three.ask("G.Flows().Has('Transport.Protocol', 'UDP', 'Transport.B', 7007)");
        let found = found.as_array().unwrap().clone();
        let all = found
            .iter()
            .filter(|flow| flow["Metric"]["ABPackets"] == 7 && flow["Metric"]["BAPackets"] == 7);
        (all.count() == 2).then_some(found)
    });
    assert_eq!(flows.len(), 2, "{flows:?}");
    assert_eq!(flows[0]["TrackingID"], flows[1]["TrackingID"]);
    assert_eq!(flows[0]["Metric"]["ABBytes"], flows[1]["Metric"]["ABBytes"]);
    assert_ne!(flows[0]["NodeTID"], flows[1]["NodeTID"]);
    let tracking = flows[0]["TrackingID"].as_str().unwrap();
    let hops = three.ask(&format!("G.Flows().Has('TrackingID', '{tracking}').Hops()"));
    let mut hosts: Vec<_> = hops
        .as_array()
        .unwrap()
        .iter()
        .map(|node| node["Host"].as_str().unwrap())
        .collect();
    hosts.sort_unstable();
    assert_eq!(hosts, ["one", "two"], "{hops}");
    let path = three.ask(&format!("G.Flows().Has('TrackingID', '{tracking}').Path()"));
    let path = path[0][tracking].as_array().unwrap();
    assert_eq!(path.len(), 2, "{path:?}");
    assert_eq!(
        (&path[0]["Host"], &path[1]["Host"]),
        (&"one".into(), &"two".into())
    );
    assert_eq!(
        (&path[1]["LostAB"], &path[1]["LostBA"]),
        (&0.into(), &0.into())
    );
    // Packets are to be had where they are.
    let refused = three.live("G.V().Has('Name', Regex('[ab][0-9]'))");
    assert!(refused.contains("query the agent there"), "{refused}");
    // A new interface is captured, too; one that is gone is not any more.
    three.two.ip("link add b5 type veth peer name q5");
    three.two.ip("link set b5 up");
    wait_for("the capture of b5", || {
        (three.captured() == ["one a0", "two b0", "two b5"]).then_some(())
    });
    three.two.ip("link del b5");
    wait_for("the end of b5", || {
        (three.captured() == ["one a0", "two b0"]).then_some(())
    });
}

#[test]
fn an_agent_with_the_analyzers_key_takes_only_captures_that_are_signed() {
    if !root_tests() {
        return;
    }
    let (net, folder) = (Net::new(), Folder::new());
    let (key, public) = (folder.path("signing.key"), folder.path("analyzer.pub"));
    let openssl = |args: &[&str]| net::run(Command::new("openssl").args(args));
    openssl(&["genpkey", "-algorithm", "ed25519", "-out", &key]);
    openssl(&["pkey", "-pubout", "-in", &key, "-out", &public]);
    net::run(Command::new("chmod").args(["600", &key]));
    let port = free_port(&net);
    let address = format!("127.0.0.1:{port}");
    let capture = || {
        let mut command = skua::command(&net);
        command.args(["capture", "create", "--gremlin", "G.V().Has('Name', 'lo')"]);
        net::run(command.args(["--analyzer", &address]))
    };
    let center = analyzer(&net, port, "");
    let more = ["--interface", "lo", "--analyzer-key", &public];
    let one = agent(&net, "one", &address, &more);
    let error = wait_for("why the agent hangs up", || {
        let health = skua::command(&net)
            .args(["doctor", "--analyzer", &one.address])
            .output()
            .unwrap();
        let text = String::from_utf8(health.stdout).unwrap();
        text.contains("not signed").then_some(text)
    });
    assert!(error.contains("fleet.signing_key"), "{error}");
    drop(center);
    let mut command = skua::command(&net);
    command
        .args(["analyzer", "--host-name", "center", "--listen", &address])
        .env("SKUA_FLEET_SIGNING_KEY", &key);
    let _center = Skua::run_command(&net, &mut command);
    capture();
    wait_for("a signed capture", || {
        let found = ask(
            &net,
            &address,
            "G.V().Has('@Host', 'one', 'Captures.State', 'active')",
        );
        (found.as_array().unwrap().len() == 1).then_some(())
    });
}

#[test]
fn an_agent_goes_on_at_the_next_of_its_analyzers() {
    if !root_tests() {
        return;
    }
    let net = Net::new();
    let ports = [free_port(&net), free_port(&net)];
    let [first, second] = ports.map(|port| format!("127.0.0.1:{port}"));
    let one = analyzer(&net, ports[0], "");
    let two = analyzer(&net, ports[1], "");
    let both = format!("{first},{second}");
    let agent = agent(&net, "one", &both, &["--interface", "lo"]);
    wait_equal(&net, &first, &agent, "one");
    assert_eq!(nodes(&net, &second, "one"), [], "told one at a time");
    one.kill();
    wait_equal(&net, &second, &agent, "one");
    net.ip("link add d0 type veth peer name p0");
    wait_for("a change at the second", || {
        let found = ask(&net, &second, "G.V().Has('Name', 'd0', '@Host', 'one')");
        (found.as_array().unwrap().len() == 1).then_some(())
    });
    // Back again, with what came in between.
    let _one = analyzer(&net, ports[0], "");
    two.kill();
    wait_equal(&net, &first, &agent, "one");
    assert_eq!(
        ask(&net, &first, "G.V().Has('Name', 'd0').Count()"),
        1,
        "d0 is known"
    );
}

#[test]
fn flows_of_an_agent_that_joined_skua_run_are_there_after_both_were_killed() {
    if !root_tests() {
        return;
    }
    let (net, folder) = (Net::new(), Folder::new());
    net.ip("link add d0 type veth peer name p0");
    let port = free_port(&net);
    let address = format!("127.0.0.1:{port}");
    let history = folder.path("history");
    let run = || {
        let mut command = skua::command(&net);
        command
            .args(["run", "--host-name", "center", "--interface", "d0"])
            .args(["--listen", &address])
            .env("SKUA_HISTORY_DIRECTORY", &history);
        Skua::run_command(&net, &mut command)
    };
    let center = run();
    let one = agent(&net, "one", &address, &["--interface", "lo"]);
    wait_equal(&net, &address, &one, "one");
    let receiver = net.inside(|| UdpSocket::bind("127.0.0.1:7007")).unwrap();
    let sender = net.inside(|| UdpSocket::bind("127.0.0.1:0")).unwrap();
    for _ in 0..9 {
        sender.send_to(&[7; 70], "127.0.0.1:7007").unwrap();
    }
    drop((sender, receiver));
    let wanted = "Flows().Has('Transport.Protocol', 'UDP', 'Transport.B', 7007)";
    let told = |query: &str| {
        let found = ask(&net, &address, query);
        let flow = found.as_array().unwrap().first()?.clone();
        (flow["Metric"]["ABPackets"] == 9).then_some(flow)
    };
    let before = wait_for("the flow of the agent", || told(&format!("G.{wanted}")));
    assert_eq!(before["Host"], "one");
    let written = || {
        let status: Value = serde_json::from_str(&center.get("/api/status")).unwrap();
        (status["history"]["flow_queue_bytes"] == 0).then_some(())
    };
    wait_for("the history", written);
    one.kill();
    center.kill();
    let _center = run();
    let after = wait_for("the flow in the past", || {
        told(&format!("G.At(NOW, 600).{wanted}"))
    });
    for key in [
        "Host",
        "TrackingID",
        "NodeTID",
        "Start",
        "Network",
        "Transport",
    ] {
        assert_eq!(after[key], before[key], "{key}");
    }
}
