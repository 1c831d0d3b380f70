//! A conversation that several interfaces see is one row, and counts once in each sum.

use std::net::UdpSocket;

use serde_json::Value;

use crate::{
    lab::{
        Net, Skua, root_tests,
        skua::{output, parse_lines},
        wait_for,
    },
    namespaces::attached,
};

const DATAGRAMS: u64 = 1000;

/// Two namespaces at a bridge of a third one.
pub fn bridged() -> [Net; 3] {
    let [host, client, server] = [(); 3].map(|()| Net::new());
    host.ip("link add br0 type bridge");
    host.ip("link set br0 up");
    for (port, net, address) in [("p1", &client, "10.9.1.1"), ("p2", &server, "10.9.1.2")] {
        host.veth(port, net, "x0");
        // One bridge: no two of its stations with one MAC.
        let last = &port[1..];
        host.ip(&format!(
            "link set {port} address 02:00:00:00:0a:0{last} master br0"
        ));
        net.ip(&format!("link set x0 address 02:00:00:00:0b:0{last}"));
        net.ip(&format!("address add {address}/24 dev x0"));
    }
    [host, client, server]
}

#[test]
fn a_conversation_across_a_bridge_is_one_row_and_counts_once() {
    if !root_tests() {
        return;
    }
    let [host, client, server] = bridged();
    let lake = skua_testkit::scratch::directory("once");
    let variables = [
        ("SKUA_LAKE_DIRECTORY", lake.path()),
        ("SKUA_LAKE_FLUSH", "1s"),
    ];
    let arguments = "--scan-interval 200ms";
    let skua = Skua::run_among_with(&host, &[&client, &server], arguments, &variables);
    for net in [&client, &server] {
        wait_for("the namespace", || attached(&skua, net));
    }
    let receiver = server.inside(|| UdpSocket::bind("10.9.1.2:7200").unwrap());
    let sender = client.inside(|| UdpSocket::bind("10.9.1.1:7201").unwrap());
    for _ in 0..DATAGRAMS {
        sender.send_to(&[0; 58], "10.9.1.2:7200").unwrap();
    }
    let udp = |rows: Vec<Value>| -> Vec<Value> {
        let is_ours = |row: &Value| row["b"]["port"] == 7200;
        rows.into_iter().filter(is_ours).collect()
    };
    // Ethernet, IPv4 and UDP have 42 bytes.
    let bytes = DATAGRAMS * 100;

    let points = udp(skua.flows());
    assert_eq!(points.len(), 4, "both ends of both pairs: {points:?}");
    for point in &points {
        assert_eq!(point["ab"]["packets"], DATAGRAMS, "{point}");
        assert!(point.get("points").is_none(), "{point}");
    }
    let rows = udp(parse_lines(&skua.get("/api/flows?filter=udp")));
    assert_eq!(rows.len(), 1, "{rows:?}");
    assert_eq!(rows[0]["points"], 4);
    assert_eq!(rows[0]["ab"]["packets"], DATAGRAMS);
    assert_eq!(rows[0]["ab"]["bytes"], bytes);
    assert!(
        ["p1", "p2"].iter().any(|own| rows[0]["interface"] == *own),
        "an interface of the host's own stands for it: {}",
        rows[0]
    );

    for by in ["service", "process", "container"] {
        let sums = parse_lines(&skua.get(&format!("/api/flows?by={by}&filter=udp")));
        let total = |side: &str| -> u64 {
            let of = sums.iter().map(|row| row[side]["bytes"].as_u64().unwrap());
            of.sum()
        };
        // Both processes are here: the one has sent what the other has received.
        assert_eq!(total("sent").max(total("received")), bytes, "{sums:?}");
    }

    let table = output(
        &host,
        &format!("flows --analyzer {} --filter udp", skua.address),
    );
    let table = String::from_utf8(table.stdout).unwrap();
    assert!(
        table.contains("p1 +3") || table.contains("p2 +3"),
        "{table}"
    );
    assert_eq!(table.matches(":7200").count(), 1, "{table}");

    // The lake: a row for each point, of which sums count the conversation once.
    let in_lake = |by: &str| {
        let rows = parse_lines(&skua.get(&format!(
            "/api/flows?since=1h&by={by}&filter=udp%20port%207200"
        )));
        let sums = rows.iter().map(|row| {
            ["sent", "received"]
                .map(|side| row[side]["bytes"].as_u64().unwrap())
                .iter()
                .sum()
        });
        sums.collect::<Vec<u64>>()
    };
    wait_for("the lake", || {
        (in_lake("point") == [bytes; 4]).then_some(())
    });
    assert_eq!(in_lake("protocol"), [bytes]);
    assert_eq!(in_lake("interface"), [bytes; 4]);

    drop(receiver);
    let report = skua.stop();
    let once = report.0["conversations"]["bytes"].as_u64().unwrap();
    let at_each = report.0["in_flows"]["bytes"].as_u64().unwrap();
    // Three points more than one have the datagrams, and ARP besides; what asks the API passes one.
    let more = at_each - once;
    assert!((3 * bytes..3 * bytes + 4096).contains(&more), "{more}");
}
