//! One input through the stream job on a real Flink and through the graph in process: equal output.
//! `make test-stream` runs it.

#![allow(clippy::unwrap_used, reason = "tests")]
#![cfg(feature = "client")]

use std::{
    collections::BTreeMap,
    io::Write as _,
    path::Path,
    process::{Command, Stdio},
};

use prost::Message as _;
use serde_json::Value;
use skua_collect::{Line, Rtt, Sent, Sum};
use skua_kafka::{Fate, LineMessage, Producer, ServiceGraph, ServiceGraphConfig};
use skua_testkit::{Random, broker::Broker};

#[path = "kafka/support.rs"]
#[allow(dead_code, reason = "the other tests use more of it")]
mod support;

const SECOND: u64 = 1_000_000_000;
const BEGIN: u64 = 1_800_000_000 * SECOND;

/// Lines of several collectors over five minutes: 40 clients of 6 services, some seldom, in an order that is
/// wrong by less than is allowed.
fn input() -> Vec<Line<'static>> {
    let mut random = Random::new(7);
    let mut below = |most: u64| random.below(most);
    let mut lines = Vec::new();
    for window in 0..30 {
        for collector in 0..2 {
            for client in 0..40 {
                let service = below(6);
                if below(10) < 4 {
                    continue;
                }
                let handshakes = below(3);
                let sum = |packets| Sum {
                    packets,
                    bytes: packets * 997,
                };
                let line = Line {
                    window: BEGIN + window * 10 * SECOND,
                    port: [443, 80, 5_432, 53, 6_379, 0][service as usize],
                    protocol: if service == 3 { 17 } else { 6 },
                    client_sent: sum(below(1_000_000)),
                    server_sent: sum(below(1_000_000_000)),
                    retransmitted: Sent {
                        client: below(5),
                        server: below(5),
                    },
                    begun: below(100),
                    ended: below(100),
                    reset: below(3),
                    handshake: Rtt {
                        count: handshakes,
                        sum_us: handshakes * 900,
                        min_us: if handshakes > 0 { below(800) } else { 0 },
                        max_us: if handshakes > 0 { 1_000 + below(9) } else { 0 },
                    },
                    ..support::line(client as u32)
                };
                let late = below(20) * SECOND;
                lines.push((line.window + late, collector, line));
            }
        }
    }
    lines.sort_by_key(|(at, collector, _)| (*at, *collector));
    lines.into_iter().map(|(_, _, line)| line).collect()
}

/// Puts something into a topic that is no line.
fn put(broker: &Broker, bytes: &[u8]) {
    // It takes messages from lines or from files.
    let mut kcat = Command::new("kcat")
        .args(["-P", "-b", &broker.address(), "-t", "lines", "-p", "0"])
        .arg("/dev/stdin")
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    kcat.stdin.take().unwrap().write_all(bytes).unwrap();
    assert!(kcat.wait().unwrap().success());
}

#[test]
#[ignore = "wants Flink, 315 MB: make test-stream"]
fn the_job_and_the_graph_in_process_come_to_the_same() {
    let broker = Broker::start();
    broker.topic("lines", 3, &[]);
    broker.topic("graph", 1, &["cleanup.policy=compact,delete"]);
    let target = format!("kafka://{}/lines", broker.address());
    let mut producer = Producer::open(&target.parse().unwrap()).unwrap();
    let mut graph = ServiceGraph::new(ServiceGraphConfig::default());
    let mut expected = BTreeMap::new();
    let mut keep = |edge: skua_kafka::Edge| {
        let edge = serde_json::to_value(edge).unwrap();
        assert!(expected.insert(key(&edge), edge).is_none());
    };
    let input = input();
    for line in &input {
        producer.put(line);
        assert_eq!(graph.add(line), Fate::Counted);
        graph.close(false, &mut keep);
    }
    graph.close(true, &mut keep);
    producer.finish();
    assert_eq!(
        (producer.acknowledged(), producer.lost()),
        (input.len() as u64, vec![])
    );
    // What nobody can read, and what is of a later version, holds nothing up and is not counted.
    put(&broker, b"\xff\xff\xffno line");
    let mut newer = LineMessage::default();
    newer.set(&input[0]);
    newer.version = 2;
    put(&broker, &newer.encode_to_vec());

    let run = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../stream/flink/run");
    let output = Command::new(run)
        .args([
            "--brokers",
            &broker.address(),
            "--lines",
            "lines",
            "--graph",
            "graph",
        ])
        .args(["--from", "earliest", "--until-now"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let wrong = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{wrong}");

    let mut found = BTreeMap::new();
    for message in broker.read("graph") {
        let edge: Value = serde_json::from_slice(&message.payload).unwrap();
        let named: Value = serde_json::from_slice(&message.key).unwrap();
        assert_eq!(key(&named), key(&edge));
        assert!(found.insert(key(&edge), edge).is_none(), "{named} twice");
    }
    assert_eq!(found.len(), expected.len(), "{said}\n{wrong}");
    for (key, edge) in &expected {
        assert_eq!(found.get(key), Some(edge));
    }
    let lines: u64 = found
        .values()
        .map(|edge| edge["lines"].as_u64().unwrap())
        .sum();
    assert_eq!(lines, input.len() as u64);
}

/// Edge and window.
fn key(edge: &Value) -> String {
    let parts = ["window_ms", "protocol", "client", "server", "port"];
    parts.map(|name| edge[name].to_string()).join(" ")
}
