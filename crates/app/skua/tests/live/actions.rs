//! Injections, alerts and elements of users against a running `skua run`.

use std::process::Output;

use serde_json::{Value, json};

use crate::lab::{Net, Skua, root_tests, skua, wait_for};

fn run(net: &Net, address: &str, args: &[&str]) -> Output {
    skua::command(net)
        .args(args)
        .args(["--analyzer", address])
        .output()
        .unwrap()
}

/// Runs a command that succeeds, and reads its JSON.
fn ask(net: &Net, skua: &Skua, args: &[&str]) -> Value {
    let output = run(net, &skua.address, args);
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {err}");
    match output.stdout.is_empty() {
        true => Value::Null,
        false => serde_json::from_slice(&output.stdout).unwrap(),
    }
}

/// Runs a command that fails; what it says.
fn refused(net: &Net, address: &str, args: &[&str]) -> String {
    let output = run(net, address, args);
    assert_eq!(output.status.code(), Some(1), "{args:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// `a0` 10.82.1.2 — `ra` 10.82.1.1, `rb` 10.82.2.1 — `b0` 10.82.2.2.
struct Path {
    a: Net,
    router: Net,
    b: Net,
}

impl Path {
    fn new() -> Self {
        let path = Self {
            a: Net::new(),
            router: Net::new(),
            b: Net::new(),
        };
        path.router.sysctl("ipv4/ip_forward", "1");
        for (host, own, far, net) in [(&path.a, "a0", "ra", 1), (&path.b, "b0", "rb", 2)] {
            host.veth(own, &path.router, far);
            host.ip(&format!("addr add 10.82.{net}.2/24 dev {own}"));
            path.router
                .ip(&format!("addr add 10.82.{net}.1/24 dev {far}"));
            host.ip(&format!("route add default via 10.82.{net}.1"));
        }
        path
    }
}

#[test]
fn a_path_is_checked_by_injected_packets_and_their_flows_are_found() {
    if !root_tests() {
        return;
    }
    let path = Path::new();
    let skua = Skua::run_among(
        &path.a,
        &[&path.router, &path.b],
        "--max-entries 1000 --scan-interval 100ms",
    );
    let tid = |name: &str| {
        let query = format!("G.V().Has('Name', '{name}', 'IPV4', Ne('')).Values('TID')");
        wait_for("interface in the graph", || {
            let found = ask(&path.a, &skua, &["query", &query, "--format", "json"]);
            Some(found[0].as_str()?.to_owned())
        })
    };
    let (a_tid, b_tid) = (tid("a0"), tid("b0"));
    skua.wait_attached("a0");
    skua.wait_attached("b0");
    let ends = [
        "--src",
        "G.V().Has('Name', 'a0')",
        "--dst",
        "G.V().Has('Name', 'b0')",
    ];
    let create = [
        &["injection", "create", "--wait", "--count", "3"],
        &ends[..],
    ]
    .concat();
    let seen = ask(&path.a, &skua, &create);
    assert_eq!(
        (&seen["State"], &seen["Outcome"]),
        (&json!("done"), &json!("answered"))
    );
    assert_eq!(
        (&seen["Arrived"], &seen["Answered"]),
        (&json!(3), &json!(3))
    );
    assert_eq!(
        seen["DstMAC"],
        path.router.link("ra")["address"],
        "asked for on the wire"
    );
    // At each place that they pass, under one identifier.
    let query = format!("G.Flows().Has('TrackingID', {})", seen["TrackingID"]);
    wait_for("flows at both ends", || {
        let flows = ask(&path.a, &skua, &["query", &query, "--format", "json"]);
        let flows = flows.as_array().unwrap().clone();
        let at = |tid: &str| {
            flows
                .iter()
                .any(|f| f["NodeTID"] == tid && f["Metric"]["ABPackets"] == 3)
        };
        (flows.len() == 4 && at(&a_tid) && at(&b_tid)).then_some(())
    });
    let listed = ask(
        &path.a,
        &skua,
        &["client", "injection", "list", "-o", "json"],
    );
    assert_eq!(listed["UUID"], seen["UUID"]);
    ask(
        &path.a,
        &skua,
        &["injection", "delete", seen["UUID"].as_str().unwrap()],
    );
    // A closed port answers, too.
    let seen = ask(
        &path.a,
        &skua,
        &[&create[..], &["--type", "tcp4", "--dst-port", "9"]].concat(),
    );
    assert_eq!(
        (&seen["Outcome"], &seen["Resets"]),
        (&json!("answered"), &json!(3))
    );
    // A path that is broken.
    path.router.ip("route add blackhole 10.82.2.2/32");
    let told = refused(&path.a, &skua.address, &create);
    assert!(
        told.contains("3 packets sent, 0 seen at the destination, 0 answered"),
        "{told}"
    );
    let udp = [&create[..], &["--type", "udp4"]].concat();
    assert!(refused(&path.a, &skua.address, &udp).contains("0 seen"));
    path.router.ip("route del blackhole 10.82.2.2/32");
    let seen = ask(&path.a, &skua, &udp);
    assert_eq!(
        (&seen["Outcome"], &seen["Arrived"]),
        (&json!("arrived"), &json!(3))
    );
    assert_eq!(seen["ICMPErrors"][0]["Meaning"], "port unreachable");
    // One that is stopped.
    let endless = [
        "injection",
        "create",
        "--count",
        "100000",
        "--interval",
        "100",
    ];
    let running = ask(&path.a, &skua, &[&endless[..], &ends].concat());
    assert_eq!(running["State"], "running");
    let id = running["UUID"].as_str().unwrap();
    ask(&path.a, &skua, &["injection", "delete", id]);
    assert!(refused(&path.a, &skua.address, &["injection", "get", id]).contains("no injection"));
    for (wrong, says) in [
        (["--type", "icmp6", "--count", "1"], "no IPv6 address"),
        (["--type", "udp4", "--count", "100001"], "injection.packets"),
        (["--src", "G.V()", "--count", "1"], "used multiple times"),
    ] {
        let output = run(
            &path.a,
            &skua.address,
            &[&endless[..2], &ends, &wrong].concat(),
        );
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && err.contains(says), "{err}");
    }
}

#[test]
fn injection_can_be_forbidden() {
    if !root_tests() {
        return;
    }
    let net = Net::new();
    let mut command = skua::command(&net);
    command
        .args(["run", "--listen", "127.0.0.1:0", "--interface", "lo"])
        .env("SKUA_INJECTION_ENABLED", "false");
    let skua = Skua::run_command(&net, &mut command);
    let create = [
        "injection",
        "create",
        "--src",
        "G.V()",
        "--dst-ip",
        "127.0.0.1",
    ];
    assert!(refused(&net, &skua.address, &create).contains("forbidden"));
}

#[test]
fn alerts_and_elements_of_users_outlast_a_restart() {
    if !root_tests() {
        return;
    }
    let net = Net::new();
    let room = std::env::temp_dir().join(format!("{}-kept", net.name));
    let start = || {
        let mut command = skua::command(&net);
        command
            .args(["run", "--listen", "127.0.0.1:0", "--interface", "lo"])
            .env("SKUA_HISTORY_DIRECTORY", &room);
        Skua::run_command(&net, &mut command)
    };
    let skua = start();
    let alert = ask(
        &net,
        &skua,
        &[
            "alert",
            "create",
            "--name",
            "tor",
            "--expression",
            "G.V().Has('Type', 'fabric').Count()",
            "--threshold",
            "1",
            "--operator",
            ">=",
        ],
    );
    let id = alert["UUID"].as_str().unwrap();
    let state = |skua: &Skua| ask(&net, skua, &["client", "alert", "get", id])["State"].clone();
    wait_for("first look", || (state(&skua) == "quiet").then_some(()));
    let create = [
        "client",
        "node",
        "create",
        "--node-type",
        "fabric",
        "--node-name",
    ];
    let tor = ask(
        &net,
        &skua,
        &[&create[..], &["tor", "--metadata", "Rack=7"]].concat(),
    );
    let port = ask(&net, &skua, &[&create[..], &["port", "--id", "p"]].concat());
    assert_eq!(
        (&tor["Metadata"]["Rack"], &port["ID"]),
        (&json!(7), &json!("p"))
    );
    let tor = tor["ID"].as_str().unwrap();
    ask(
        &net,
        &skua,
        &[
            "client",
            "edge",
            "create",
            "--parent",
            tor,
            "--child",
            "p",
            "--edge-type",
            "layer2",
        ],
    );
    ask(
        &net,
        &skua,
        &["client", "node", "update", tor, "--add", "Rack=8"],
    );
    ask(
        &net,
        &skua,
        &[
            "client",
            "noderule",
            "create",
            "--action",
            "update",
            "--query",
            "G.V().Has('Name', 'port')",
            "--metadata",
            "Owner=us",
        ],
    );
    wait_for("alert", || (state(&skua) == "firing").then_some(()));
    let metrics = skua.get("/metrics");
    assert!(
        metrics.contains("skua_alert_turns_total{state=\"fired\"} 1\n"),
        "{metrics}"
    );
    let changed = ask(&net, &skua, &["alert", "update", id, "--threshold", "5"]);
    assert_eq!(changed["Threshold"], 5.0);
    wait_for("end of the alert", || {
        (state(&skua) == "quiet").then_some(())
    });
    assert!(
        refused(
            &net,
            &skua.address,
            &["alert", "create", "--expression", "G.V().Hass('x')"]
        )
        .contains("did you mean")
    );
    let command = [
        "alert",
        "create",
        "--expression",
        "G.V()",
        "--action",
        "command:reboot",
    ];
    assert!(refused(&net, &skua.address, &command).contains("alerts.commands"));
    let graph = ask(&net, &skua, &["client", "topology", "export"]);
    let status = ask(&net, &skua, &["client", "status"]);
    assert!(status["version"].is_string());
    skua.kill();

    let skua = start();
    wait_for("alert that was kept", || {
        (state(&skua) == "quiet").then_some(())
    });
    let found = |query: &str| ask(&net, &skua, &["client", "query", query, "--format", "json"]);
    assert_eq!(
        found("G.V().Has('Rack', 8).Out('Owner', 'us').Values('Name')"),
        json!(["port"])
    );
    ask(&net, &skua, &["client", "node", "delete", tor, "p"]);
    assert_eq!(found("G.V().Has('@Origin', 'user').Count()"), 0);
    let file = room.join("graph.json");
    std::fs::write(&file, graph.to_string()).unwrap();
    let done = ask(
        &net,
        &skua,
        &[
            "client",
            "topology",
            "import",
            "--file",
            file.to_str().unwrap(),
        ],
    );
    // With those of processes that are gone: the export has all that there was.
    let added = |what: &str| done[what].as_u64().unwrap();
    assert!(added("Nodes") >= 2 && added("Edges") >= 1, "{done}");
    assert_eq!(
        found("G.V().Has('Rack', 8).Out().Values('Name')"),
        json!(["port"])
    );
    ask(&net, &skua, &["alert", "delete", id]);
    assert!(refused(&net, &skua.address, &["alert", "get", id]).contains("there is no alert"));
    skua.kill();
    std::fs::remove_dir_all(&room).unwrap();
}
