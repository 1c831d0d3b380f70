//! softflowd reads a capture and exports its flows: the sums are those of `skua replay`.

use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader, Read as _},
    path::Path,
    process::{Command, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use skua_probe::receive::{NetflowProbe, ReceiveCause, ReceiverConfig};
use skua_testkit::{Capture, Packet, Record, capture::Block, flag};

use crate::collected::{Collected, Folder, collect, replay, sides};

/// Bytes of the Ethernet header, which exporters of these versions leave out.
const ETHERNET: u64 = 14;

/// Conversations of several protocols and both families, whose packets need no padding.
fn capture() -> Capture {
    let mut capture = Capture::new("exported");
    let mut now = 1_763_700_000_000_000_000;
    let mut add = |packet: Packet, wait_ns: u64| {
        let data = packet.build();
        assert!(data.len() >= 60);
        capture.records.push(Record {
            timestamp_ns: now,
            interface: 0,
            wire_length: data.len() as u32,
            data,
            block: Block::Enhanced,
        });
        now += wait_ns;
    };
    let between = |v6: bool, from: u8, to: u8| {
        let packet = Packet::new().ethernet(from, to);
        match v6 {
            false => packet.ipv4(&format!("10.1.0.{from}"), &format!("10.1.0.{to}")),
            true => packet.ipv6(&format!("fd00::{from:x}"), &format!("fd00::{to:x}")),
        }
    };
    for round in 0..40_u16 {
        let v6 = round % 3 == 0;
        let (client, server) = (1 + round as u8, 200 + (round % 5) as u8);
        let port = 40_000 + round;
        let sizes = (30, 40 + 20 * usize::from(round));
        // A connection with data, with one, many or no replies.
        add(
            between(v6, client, server)
                .tcp(port, 443, flag::SYN)
                .zeros(30),
            3_000_000,
        );
        for reply in 0..round % 7 {
            let flags = if reply == 0 {
                flag::SYN | flag::ACK
            } else {
                flag::ACK
            };
            add(
                between(v6, server, client)
                    .tcp(443, port, flags)
                    .zeros(sizes.0),
                5_000_000,
            );
            add(
                between(v6, client, server)
                    .tcp(port, 443, flag::ACK)
                    .zeros(sizes.1),
                7_000_000,
            );
        }
        add(
            between(v6, client, server).udp(port, 53).zeros(sizes.1),
            11_000_000,
        );
        add(
            between(v6, server, client).udp(53, port).zeros(sizes.1 + 9),
            1_000_000,
        );
        let (request, answer) = if v6 { (128, 129) } else { (8, 0) };
        let echo = |from, to, kind| match v6 {
            false => between(v6, from, to).icmp(kind, 0, 7, 1),
            true => between(v6, from, to).icmpv6(kind, 0, 7, 1),
        };
        add(echo(client, server, request).zeros(40), 1_000_000);
        add(echo(server, client, answer).zeros(40), 1_000_000);
    }
    capture.settle_times();
    capture
}

/// Exports a capture to an address; how many datagrams that took.
fn export_to(to: &str, file: &Path, arguments: &str) -> u64 {
    let output = Command::new("softflowd")
        .args(["-6", "-d", "-m", "100000", "-c", "none", "-p"])
        // It removes this file at its end.
        .arg(file.with_extension("pid"))
        .args(["-n", to])
        .args(arguments.split_whitespace())
        .arg("-r")
        .arg(file)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    said.split(" records) in ")
        .nth(1)
        .and_then(|rest| rest.split(' ').next()?.parse::<u64>().ok())
        .unwrap_or_else(|| panic!("{said}"))
}

/// Exports a capture; returns what came.
fn export(file: &Path, arguments: &str) -> Collected {
    let probe = NetflowProbe::start(ReceiverConfig::loopback(0)).unwrap();
    let sent = export_to(&probe.address().to_string(), file, arguments);
    let collected = collect(probe, |account, _| account.received.datagrams >= sent);
    let received = &collected.account.received;
    assert_eq!(received.datagrams, sent);
    let losses: Vec<_> = received.causes().collect();
    assert_eq!(losses, [], "{received:?}");
    assert_eq!(received.out_of_order + received.restarts + received.held, 0);
    collected
}

/// The time in a record; all are of one day.
fn ns_of_day(text: &str) -> u64 {
    let (_, time) = text.trim_end_matches('Z').split_once('T').unwrap();
    let (seconds, fraction) = time.split_once('.').unwrap();
    let seconds = seconds
        .split(':')
        .fold(0, |sum, part| sum * 60 + part.parse::<u64>().unwrap());
    seconds * 1_000_000_000 + format!("{fraction:0<9}").parse::<u64>().unwrap()
}

/// First and last packet and the TCP flags by conversation.
fn details(records: &[Value]) -> BTreeMap<[String; 3], (u64, u64, [String; 2])> {
    let ns = |value: &Value| ns_of_day(value.as_str().unwrap());
    records
        .iter()
        .map(|record| {
            let end = |name: &str| format!("{} {}", record[name]["address"], record[name]["port"]);
            let key = [record["protocol"].to_string(), end("a"), end("b")];
            let flags = ["ab_flags", "ba_flags"].map(|name| record["tcp"][name].to_string());
            (key, (ns(&record["start"]), ns(&record["last"]), flags))
        })
        .collect()
}

/// Times since the start of the exporter reach back 49 days: with `-a` softflowd takes the time of the
/// capture for now. `ms` is how exact the version's times are.
fn compare(arguments: &str, wanted: impl Fn(&Record) -> bool, ms: u64) {
    let folder = Folder::new(&format!("softflowd-{}", arguments.replace(' ', "")));
    let mut capture = capture();
    capture.records.retain(wanted);
    let file = folder.file("exported.pcap", &capture.bytes());
    let (truth, exported) = (replay(&file), export(&file, arguments));
    let mut expected = sides(&truth);
    for sent in expected.values_mut() {
        sent.1 -= ETHERNET * sent.0;
    }
    assert_eq!(sides(&exported.records), expected);
    assert_eq!(
        exported.records.len(),
        truth.len(),
        "not all directions were joined"
    );
    let (expected, told) = (details(&truth), details(&exported.records));
    for (key, (first, last, flags)) in &expected {
        let near = |a: &u64, b: &u64| a.abs_diff(*b) <= ms * 1_000_000;
        let Some((told_first, told_last, told_flags)) = told.get(key) else {
            panic!("{key:?} is the other way round");
        };
        assert!(
            near(first, told_first) && near(last, told_last),
            "{key:?} {first} {told_first}"
        );
        assert_eq!(flags, told_flags, "{key:?}");
    }
}

#[test]
fn netflow_5() {
    compare("-v 5 -a", |record| record.data[12] == 0x08, 2);
}

#[test]
fn netflow_9() {
    // The header has whole seconds only.
    compare("-v 9 -a", |_| true, 1_001);
}

#[test]
fn ipfix() {
    compare("-v 10 -A milli", |_| true, 2);
    compare("-v 10 -A nano", |_| true, 1);
    compare("-v 10 -A sec", |_| true, 1_000);
    compare("-v 10 -a", |_| true, 1_001);
}

#[test]
fn ipfix_of_both_directions() {
    // softflowd tells type 0 of ICMPv6 that the higher address sends.
    let icmpv6 = |record: &Record| record.data[12] == 0x86 && record.data[20] == 58;
    compare("-v 10 -b -A milli", |record| !icmpv6(record), 2);
}

#[test]
fn vlans_and_macs() {
    let folder = Folder::new("softflowd-vlan");
    let mut capture = Capture::new("tagged");
    let now = 1_763_700_000_000_000_000;
    for (i, (from, to, ports)) in [(1, 2, (5, 6)), (2, 1, (6, 5))].into_iter().enumerate() {
        let packet = Packet::new().ethernet(from, to).vlan(7);
        let packet = packet.ipv4(&format!("10.1.0.{from}"), &format!("10.1.0.{to}"));
        let data = packet.udp(ports.0, ports.1).zeros(60).build();
        capture.records.push(Record {
            timestamp_ns: now + i as u64,
            interface: 0,
            wire_length: data.len() as u32,
            data,
            block: Block::Enhanced,
        });
    }
    let file = folder.file("tagged.pcap", &capture.bytes());
    let exported = export(&file, "-v 9 -T ether");
    assert_eq!(exported.records.len(), 1, "{:?}", exported.records);
    assert_eq!(exported.records[0]["layers"], "Ethernet/Dot1Q/IPv4/UDP");
    assert_eq!(exported.account.received.of(ReceiveCause::DecodeError), 0);
}

/// Packets and bytes between two addresses by protocol.
type Pairs = BTreeMap<(u64, [String; 2]), (u64, u64)>;

fn add(pairs: &mut Pairs, protocol: u64, ends: [&Value; 2], sums: [&Value; 2]) {
    let mut ends = ends.map(|end| end.as_str().unwrap().to_owned());
    ends.sort();
    let sum = pairs.entry((protocol, ends)).or_default();
    for one in sums {
        sum.0 += one["packets"].as_u64().unwrap();
        sum.1 += one["bytes"].as_u64().unwrap();
    }
}

/// What `skua collector` sums up.
fn collect_lines(file: &Path, arguments: &str) -> (Pairs, Value) {
    let mut collector = Command::new(skua_testkit::program!())
        .args(["collector", "--listen", "127.0.0.1:0", "--metrics", "none"])
        .args(["--summary", "json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut err = BufReader::new(collector.stderr.take().unwrap());
    let mut line = String::new();
    err.read_line(&mut line).unwrap();
    let address = line.split(" at ").nth(1).unwrap();
    let address = address.split(';').next().unwrap();
    export_to(address, file, arguments);
    let pid = Pid::from_raw(collector.id() as i32).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    let output = collector.wait_with_output().unwrap();
    let mut summary = String::new();
    err.read_to_string(&mut summary).unwrap();
    let mut pairs = Pairs::new();
    for line in output.stdout.split(|byte| *byte == b'\n') {
        if !line.is_empty() {
            let line: Value = serde_json::from_slice(line).unwrap();
            let sent = [&line["client_sent"], &line["server_sent"]];
            let protocol = line["protocol"].as_u64().unwrap();
            add(
                &mut pairs,
                protocol,
                [&line["client"], &line["server"]],
                sent,
            );
        }
    }
    (
        pairs,
        serde_json::from_str(summary.lines().last().unwrap()).unwrap(),
    )
}

#[test]
fn a_collector_counts_each_packet_that_exporters_tell_of() {
    for arguments in ["-v 5 -a", "-v 9 -a", "-v 10 -a", "-v 10 -b -a"] {
        let folder = Folder::new(&format!("collected-{}", arguments.replace(' ', "")));
        let mut capture = capture();
        if arguments.starts_with("-v 5") {
            capture.records.retain(|record| record.data[12] == 0x08);
        }
        let file = folder.file("exported.pcap", &capture.bytes());
        let mut expected = Pairs::new();
        for record in replay(&file) {
            let ends = [&record["a"]["address"], &record["b"]["address"]];
            let protocol = match record["protocol"].as_str().unwrap() {
                "icmp" => 1,
                "tcp" => 6,
                "udp" => 17,
                "icmpv6" => 58,
                other => panic!("{other}"),
            };
            add(
                &mut expected,
                protocol,
                ends,
                [&record["ab"], &record["ba"]],
            );
        }
        for sent in expected.values_mut() {
            sent.1 -= ETHERNET * sent.0;
        }
        let (found, summary) = collect_lines(&file, arguments);
        assert_eq!(found, expected, "{arguments}: {summary}");
        assert_eq!(summary["lost"], serde_json::json!({}), "{arguments}");
        assert_eq!(summary["agents"][0]["exports"], true, "{summary}");
    }
}
