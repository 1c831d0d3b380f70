//! Questions that have a command of their own: which link loses, what has changed, how services did lately.

use std::{
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream, UdpSocket},
    time::{Duration, SystemTime},
};

use serde_json::Value;
use skua_testkit::lab::run;

use crate::{
    lab::{
        Net, Skua, root_tests,
        skua::{output, parse_lines},
        wait_for,
    },
    namespaces::attached,
    once::bridged,
};

/// What a command prints as JSON.
fn lines(net: &Net, skua: &Skua, command: &str) -> Vec<Value> {
    let output = output(
        net,
        &format!("{command} --output json --analyzer {}", skua.address),
    );
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command}: {err}");
    parse_lines(&String::from_utf8(output.stdout).unwrap())
}

fn now() -> String {
    humantime::format_rfc3339_millis(SystemTime::now()).to_string()
}

#[test]
fn links_changes_and_services_of_late() {
    if !root_tests() {
        return;
    }
    let [host, client, server] = bridged();
    let skua = Skua::run_among(&host, &[&client, &server], "--scan-interval 200ms");
    for net in [&client, &server] {
        wait_for("the namespace", || attached(&skua, net));
    }
    let ask = |command: &str| lines(&host, &skua, command);

    // The cable of the server loses, in one direction, each datagram that begins with 1: one in ten.
    let tc = |arguments: &[&str]| run(host.command("tc").args(arguments));
    tc(&["qdisc", "add", "dev", "p2", "clsact"]);
    let bytecode = "4,48 0 0 42,21 0 1 1,6 0 0 2,6 0 0 4294967295";
    let filter = [
        "filter", "add", "dev", "p2", "egress", "pref", "1", "handle", "1", "bpf",
    ];
    tc(&[&filter[..], &["bytecode", bytecode, "direct-action"]].concat());
    let _receiver = server.inside(|| UdpSocket::bind("10.9.1.2:7200").unwrap());
    let sender = client.inside(|| UdpSocket::bind("10.9.1.1:7201").unwrap());
    // A stream that may have begun before both ends were watched is not compared.
    std::thread::sleep(Duration::from_millis(1_500));
    for number in 0..1_000 {
        let payload = [u8::from(number % 10 == 0); 58];
        sender.send_to(&payload, "10.9.1.2:7200").unwrap();
    }
    let of = |row: &Value| -> (String, String, u64, u64) {
        let text = |key: &str| row[key].as_str().unwrap().to_owned();
        let number = |key: &str| row[key].as_u64().unwrap();
        (text("from"), text("to"), number("packets"), number("lost"))
    };
    let [from, to] = [&client, &server].map(|net| format!("{}/x0", net.name));
    let step = |from: &str, to: &str, lost| (from.to_owned(), to.to_owned(), 1_000, lost);
    let expected = [
        step("p2", &to, 100),
        step(&from, "p1", 0),
        step("p1", "p2", 0),
    ];
    wait_for("what the links lost", || {
        let mut found: Vec<_> = ask("links --port 7200").iter().map(of).collect();
        assert!(found.len() <= 3, "{found:?}");
        let first = found.first().cloned();
        found.sort();
        let mut all = expected.clone();
        all.sort();
        (found == all && first.as_ref() == Some(&expected[0])).then_some(())
    });
    let table = output(
        &host,
        &format!("links --address 10.9.1.2 --analyzer {}", skua.address),
    );
    let table = String::from_utf8(table.stdout).unwrap();
    assert!(
        table.starts_with("FROM") && table.contains("10.00%"),
        "{table}"
    );

    // The wiring, between two moments.
    let before = now();
    host.ip("link add late0 type veth peer name late1");
    host.ip("link set p1 mtu 1400");
    let changed = |since: &str, change: &str, kind: &str, name: &str, what: &str| {
        let found = ask(&format!("changes --since {since}"));
        found.iter().any(|row| {
            row["change"] == change
                && row["type"] == kind
                && row["name"] == name
                && row["what"].as_str().unwrap().contains(what)
        })
    };
    for (change, name, what) in [("added", "late0", ""), ("changed", "p1", "MTU=1400")] {
        wait_for(name, || {
            changed(&before, change, "veth", name, what).then_some(())
        });
    }
    let later = now();
    host.ip("link del late0");
    wait_for("the end of late0", || {
        changed(&later, "deleted", "veth", "late0", "").then_some(())
    });
    assert!(!changed(&before, "deleted", "veth", "late0", ""));
    let wrong = output(
        &host,
        &format!("changes --since yesterday --analyzer {}", skua.address),
    );
    let early = format!("changes --until 1h --analyzer {}", skua.address);
    let early = output(&host, &early);
    let said = String::from_utf8_lossy(&early.stderr);
    assert!(
        said.contains("--until 1h is not after --since 10m"),
        "{said}"
    );
    let err = String::from_utf8_lossy(&wrong.stderr);
    assert!(
        err.contains("neither a time ago like 10m nor a moment"),
        "{err}"
    );

    // Services of the last minute.
    let listener = server.inside(|| TcpListener::bind("10.9.1.2:7300").unwrap());
    for _ in 0..3 {
        let mut called = client.inside(|| TcpStream::connect("10.9.1.2:7300").unwrap());
        let (mut accepted, _) = listener.accept().unwrap();
        called.write_all(b"who").unwrap();
        accepted.read_exact(&mut [0; 3]).unwrap();
    }
    wait_for("the service", || {
        let found = ask("services --since 1m --port 7300 --sort rtt");
        // Until it is known whose the address is, that has a row of its own.
        let [row] = found.as_slice() else { return None };
        assert!(row["rtt"]["p95_us"].as_u64().unwrap() > 0, "{row}");
        (row["connections"] == 3).then_some(())
    });
}
