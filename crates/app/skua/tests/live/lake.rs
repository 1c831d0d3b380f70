//! The lake of a running `skua run`: written, asked with and without a server, whole after a kill.

use std::process::Command;

use serde_json::Value;
use skua_testkit::scratch;

use crate::lab::{
    Flow, Net, SendMode, Sender, Skua, Wire, root_tests,
    skua::{self, parse_lines},
    wait_for,
};

/// `skua run` that writes a lake.
fn writing(net: &Net, directory: &str) -> Skua {
    let mut command: Command = skua::command(net);
    command
        .args(["run", "--listen", "127.0.0.1:0", "--summary", "json"])
        .args(["--interface", "x0", "--scan-interval", "200ms"])
        .env("SKUA_LAKE_DIRECTORY", directory)
        .env("SKUA_LAKE_FLUSH", "1s");
    Skua::run_command(net, &mut command)
}

/// Packets and bytes of the only group.
fn sums(lines: &str) -> (u64, u64) {
    let lines = parse_lines(lines);
    assert!(lines.len() < 2, "{lines:?}");
    let number = |what: &str| {
        let of = |side: &str| {
            lines
                .first()
                .map_or(0, |line| line[side][what].as_u64().unwrap())
        };
        of("sent") + of("received")
    };
    (number("packets"), number("bytes"))
}

#[test]
fn flows_are_asked_from_the_lake_also_after_a_kill() {
    if !root_tests() {
        return;
    }
    let wire = Wire::new();
    let net = &wire.near;
    let directory = scratch::directory("lake");
    let place = directory.path();
    let skua = writing(net, place);
    let sender = Sender::open(&wire.far, "g0", SendMode::Queue);
    let send = || {
        for number in 1..=20 {
            sender.repeat(u64::from(number), &Flow::numbered(number).frame(100));
        }
    };
    // 20 conversations of 1 + 2 + … + 20 packets of 100 bytes.
    send();
    let api =
        "/api/flows?since=1h&by=protocol&where=protocol=udp&where=interface=x0&filter=udp&top=3";
    wait_for("all packets in the lake", || {
        (sums(&skua.get(api)) == (210, 21_000)).then_some(())
    });
    let status: Value = serde_json::from_str(&skua.get("/api/status")).unwrap();
    assert!(status["lake"]["rows"].as_u64().unwrap() >= 20, "{status}");
    assert!(
        skua.get("/metrics")
            .contains("skua_lake_lost_rows_total{cause=\"disk_full\"} 0")
    );
    skua.kill();
    // Nobody serves; another process has the lake's lock now, and counts on.
    let again = writing(net, place);
    send();
    let ask = |more: &[&str]| {
        let output = skua::command(net)
            .args([
                "flows",
                "--since",
                "1h",
                "--lake",
                place,
                "--where",
                "protocol=udp",
            ])
            .args(more)
            .output()
            .unwrap();
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && err.is_empty(), "{err}");
        String::from_utf8(output.stdout).unwrap()
    };
    wait_for("the rest in the lake", || {
        (sums(&ask(&["--by", "protocol", "--output", "json"])) == (420, 42_000)).then_some(())
    });
    again.stop();
    let by = [
        "--by",
        "service,process",
        "--top",
        "5",
        "--sort",
        "packets",
        "--output",
    ];
    let csv = ask(&[&by[..], &["csv"]].concat());
    assert!(
        csv.starts_with("service,process,sent_packets,sent_bytes,received_packets,"),
        "{csv}"
    );
    let table = ask(&[&by[..], &["table"]].concat());
    assert!(table.starts_with("SERVICE"), "{table}");
    let compact = skua::output(net, &format!("lake compact --lake {place}"));
    assert!(compact.status.success());
    assert_eq!(
        sums(&ask(&["--by", "protocol", "--output", "json"])),
        (420, 42_000)
    );
    // Who asks another host is not shown this one's lake.
    let named = "flows --since 1h --by process --analyzer 127.0.0.1:9";
    let none = skua::output(net, named);
    let err = String::from_utf8_lossy(&none.stderr);
    assert!(
        !none.status.success() && err.contains("nothing answers at 127.0.0.1:9"),
        "{err}"
    );
}
