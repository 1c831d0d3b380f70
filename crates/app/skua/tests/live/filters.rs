//! Conditions select the same conversations live and in the lake, on the command line and in the API.

use std::net::UdpSocket;

use serde_json::Value;

use crate::lab::{
    Net, Skua, Wire, root_tests,
    skua::{self, output, parse_lines},
    wait_for,
};

/// Ports of the rows, sorted.
fn ports(lines: &str) -> Vec<u64> {
    let port = |row: &Value| {
        let port = row.get("b").map_or(&row["b_port"], |b| &b["port"]);
        port.as_u64().unwrap_or(0)
    };
    let mut ports: Vec<u64> = parse_lines(lines).iter().map(port).collect();
    ports.sort_unstable();
    ports
}

fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02x}")).collect()
}

#[test]
fn conditions_mean_the_same_live_and_in_the_lake() {
    if !root_tests() {
        return;
    }
    let wire = Wire::new();
    let (near, far): (&Net, &Net) = (&wire.near, &wire.far);
    near.ip("address add 10.9.3.1/24 dev x0");
    far.ip("address add 10.9.3.2/24 dev g0");
    let lake = skua_testkit::scratch::directory("filters");
    let mut command = skua::command(near);
    command
        .args(["run", "--listen", "127.0.0.1:0", "--summary", "json"])
        .args(["--interface", "x0", "--scan-interval", "200ms"])
        .env("SKUA_LAKE_DIRECTORY", lake.path())
        .env("SKUA_LAKE_FLUSH", "1s");
    let skua = Skua::run_command(near, &mut command);
    let receivers: Vec<UdpSocket> = far.inside(|| {
        let bind = |port| UdpSocket::bind(("10.9.3.2", port)).unwrap();
        vec![bind(7300), bind(7301)]
    });
    // 40 datagrams of 100 bytes to one port, 4 of 500 to the other.
    let sender = near.inside(|| UdpSocket::bind("10.9.3.1:7302").unwrap());
    for _ in 0..40 {
        sender.send_to(&[0; 58], "10.9.3.2:7300").unwrap();
    }
    for _ in 0..4 {
        sender.send_to(&[0; 458], "10.9.3.2:7301").unwrap();
    }
    let ours = "address:10.9.3.2 protocol:udp port:7302";
    let live = |conditions: &str| {
        let text = encoded(&format!("{ours} {conditions}"));
        skua.get(&format!("/api/flows?filter={text}"))
    };
    let past = |conditions: &str| {
        let text = encoded(&format!("{ours} {conditions}"));
        skua.get(&format!("/api/flows?since=1h&where={text}"))
    };
    let all = "ab.packets>0";
    wait_for("owners of both sides, and rows in the lake", || {
        let owned = "process:* -process:nobody";
        (ports(&live(owned)) == [7300, 7301] && ports(&past(owned)) == [7300, 7301]).then_some(())
    });
    let name = parse_lines(&live(all))[0]["a"]["process"].clone();
    let process = format!("process:\"{}\"", name.as_str().unwrap());
    for (conditions, expected) in [
        (all.to_owned(), vec![7300, 7301]),
        ("port:7300".into(), vec![7300]),
        ("-port:7300".into(), vec![7301]),
        ("b.port:7300-7301 packets>4".into(), vec![7300]),
        ("packets<=4 bytes:2000".into(), vec![7301]),
        ("bytes>1kB bytes<3kB".into(), vec![7301]),
        ("address:10.9.3.0/30 -address:10.9.3.1".into(), vec![]),
        (process.clone(), vec![7300, 7301]),
        (format!("-{process}"), vec![]),
        (format!("{process} port:7301"), vec![7301]),
        ("interface:x0".into(), vec![7300, 7301]),
        ("interface:nothing*".into(), vec![]),
        ("10.9.3.2".into(), vec![7300, 7301]),
        ("\"postgres\"".into(), vec![]),
        ("state:\"\" rtt:\"\"".into(), vec![7300, 7301]),
    ] {
        assert_eq!(ports(&live(&conditions)), expected, "live: {conditions}");
        assert_eq!(
            ports(&past(&conditions)),
            expected,
            "in the lake: {conditions}"
        );
    }
    // Beside a pcap expression, and sums of the side that is asked for.
    let both = skua.get("/api/flows?filter=udp+port+7302&where=packets%3E4&where=interface:x0");
    assert_eq!(ports(&both), [7300]);
    for since in ["", "&since=1h"] {
        let text = encoded(&format!("{ours} {process}"));
        let sums = skua.get(&format!("/api/flows?by=process&where={text}{since}"));
        let sums = parse_lines(&sums);
        assert_eq!(sums.len(), 1, "{sums:?}");
        let shown = sums[0].get("name").unwrap_or(&sums[0]["process"]);
        assert_eq!(*shown, name);
    }
    // The command asks the same: by words, by --where, by --filter, of both.
    let words = format!("{ours} -user:nobody packets>4 -o json");
    for more in ["", " --since 1h"] {
        let at = format!("--analyzer {}{more}", skua.address);
        for asked in [
            format!("flows {at} {words}"),
            format!("flows {at} --where packets>4 {ours} -o json"),
            format!("flows {at} --filter port:7302 --where packets>4 -o json"),
        ] {
            let out = output(near, &asked);
            let text = String::from_utf8(out.stdout).unwrap();
            assert_eq!(
                ports(&text),
                [7300],
                "{asked}: {}",
                String::from_utf8_lossy(&out.stderr)
            );
        }
    }
    let orders = [
        "sent",
        "received",
        "packets",
        "bytes",
        "retransmits",
        "begun",
        "ended",
        "rtt",
    ];
    for sort in orders {
        for since in ["", "&since=1h"] {
            let text = encoded(ours);
            let sorted = skua.get(&format!("/api/flows?sort={sort}&where={text}{since}"));
            assert_eq!(ports(&sorted), [7300, 7301], "{sort}{since}");
        }
    }
    let out = output(
        near,
        &format!("flows --analyzer {} proces:curl", skua.address),
    );
    let error = String::from_utf8(out.stderr).unwrap();
    assert!(!out.status.success());
    assert!(error.contains("did you mean `process`?"), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
    drop(receivers);
    skua.stop();
}
