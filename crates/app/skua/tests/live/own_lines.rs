//! A collector brings its lines to a `skua run` that tells it of its own host: nothing is counted twice there.

use std::{
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    process::Stdio,
};

use serde_json::Value;
use skua_testkit::access::BEARER;

use crate::{
    collect::{Collector, connections, sum},
    lab::{Net, Skua, Wire, root_tests, skua, wait_for},
};

/// Of both hosts' common conversations, and of those that only the other host sees.
const COMMON: u16 = 8_080;
const THEIRS: u16 = 8_090;

/// Counts packets and bytes of the common service, at the far end, without Skua.
fn count(net: &Net) {
    let rules = format!(
        "add table ip own\n\
         add counter ip own client\n\
         add counter ip own server\n\
         add chain ip own in {{ type filter hook input priority 0; }}\n\
         add chain ip own out {{ type filter hook output priority 0; }}\n\
         add rule ip own in tcp sport {COMMON} counter name server\n\
         add rule ip own out tcp dport {COMMON} counter name client\n"
    );
    let mut nft = net.command("nft");
    let mut nft = nft.args(["-f", "-"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut input = nft.stdin.take().unwrap();
    input.write_all(rules.as_bytes()).unwrap();
    drop(input);
    assert!(nft.wait().unwrap().success());
}

/// What it has counted, with headers of Ethernet.
fn counted(net: &Net, name: &str) -> (u64, u64) {
    let text = net.exec(&format!("nft -j list counter ip own {name}"));
    let found: Value = serde_json::from_str(&text).unwrap();
    let list = found["nftables"].as_array().unwrap();
    let (packets, bytes) = sum(list.iter().find_map(|item| item.get("counter")).unwrap());
    (packets, bytes + 14 * packets)
}

/// `skua run` that tells the collector at the far end.
fn run(net: &Net, interfaces: &[&str]) -> Skua {
    let mut line = String::from("--scan-interval 200ms --exclude-self --collector 10.7.0.1:6343");
    for interface in interfaces {
        line += &format!(" --interface {interface}");
    }
    let skua = Skua::run(net, &line);
    for interface in interfaces {
        skua.wait_attached(interface);
    }
    skua
}

/// Connections from the near end to itself.
fn to_itself(net: &Net, count: usize) {
    net.inside(|| {
        let listener = TcpListener::bind(("10.7.0.2", THEIRS)).unwrap();
        for _ in 0..count {
            let mut client = TcpStream::connect(("10.7.0.2", THEIRS)).unwrap();
            let (mut server, _) = listener.accept().unwrap();
            client.write_all(&[7; 300]).unwrap();
            client.shutdown(std::net::Shutdown::Write).unwrap();
            server.read_to_end(&mut Vec::new()).unwrap();
        }
    });
}

/// Edges of a port as `skua services --graph` shows them.
fn edges(net: &Net, skua: &Skua, port: u16) -> Vec<Value> {
    let line = format!(
        "services --graph --output json --port {port} --analyzer {}",
        skua.address
    );
    let shown = skua::output(net, &line);
    let err = String::from_utf8(shown.stderr).unwrap();
    assert!(shown.status.success(), "{err}");
    skua::parse_lines(std::str::from_utf8(&shown.stdout).unwrap())
}

/// Lines that were left out.
fn own_lines(net: &Net, skua: &Skua) -> u64 {
    let url = format!("http://{}/api/services/graph", skua.address);
    let answer = net.inside(|| {
        ureq::get(url)
            .header("Authorization", BEARER)
            .call()
            .unwrap()
    });
    let header = answer.headers().get("x-skua-own-lines").unwrap();
    header.to_str().unwrap().parse().unwrap()
}

#[test]
fn lines_of_what_a_host_has_told_itself_are_not_counted_again_there() {
    if !root_tests() {
        return;
    }
    let wire = Wire::new().with_addresses();
    count(&wire.far);
    let far = run(&wire.far, &["g0"]);
    let sink = format!("analyzer://{}", far.address);
    // What one host tells later than the collector waits is no longer known as the other's.
    let arguments = ["--sink", &sink, "--window", "1s", "--wait", "10s"];
    let collector = Collector::start_at(&wire.far, "10.7.0.1:6343", &arguments);
    let near = run(&wire.near, &["x0", "lo"]);
    for skua in [&far, &near] {
        wait_for("an answer of the collector", || {
            let status: Value = serde_json::from_str(&skua.get("/api/status")).unwrap();
            let export = &status["export"][0];
            (export["answers"] == true && export["up"] == true).then_some(())
        });
    }
    connections(&wire, COMMON, 20);
    to_itself(&wire.near, 5);
    // All windows are closed and brought when the collector has ended; before it the far end has to have told.
    wait_for("the end of all of the host's own conversations", || {
        let own = edges(&wire.far, &far, COMMON);
        (own.len() == 1 && own[0]["ended"] == 20).then_some(())
    });
    wait_for("lines of the host's own conversations", || {
        (own_lines(&wire.far, &far) > 0).then_some(())
    });
    near.stop();
    let (_, summary) = collector.stop();
    assert_eq!(summary["lost"], serde_json::json!({}), "{summary}");
    assert!(sum(&summary["elsewhere"]).0 > 0, "{summary}");
    let own = edges(&wire.far, &far, COMMON);
    assert_eq!(own.len(), 1, "{own:?}");
    assert_eq!(
        (&own[0]["connections"], &own[0]["ended"]),
        (&20.into(), &20.into())
    );
    for side in ["client", "server"] {
        let shown = sum(&own[0][format!("{side}_sent")]);
        assert_eq!(shown, counted(&wire.far, side), "{side}: {own:?}");
    }
    // What only the other host sees has come.
    let theirs = edges(&wire.far, &far, THEIRS);
    assert_eq!(theirs.len(), 1, "{theirs:?}");
    assert_eq!(theirs[0]["connections"], 5);
    assert!(sum(&theirs[0]["client_sent"]).1 > 5 * 300, "{theirs:?}");
    far.stop();
}
