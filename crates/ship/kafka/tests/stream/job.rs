//! What goes into a job, what is to come out, and the job as a process.

use std::{
    collections::BTreeMap,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use serde_json::Value;
use skua_collect::{Line, Sent, Sum, graph::GraphLine};
use skua_kafka::{Outcome, Producer, ServiceGraph, ServiceGraphConfig};
use skua_testkit::{Random, broker::Broker};

use crate::support;

const SECOND: u64 = 1_000_000_000;
const BEGIN: u64 = 1_800_000_000 * SECOND;

/// Lines of several collectors over five minutes: 40 clients of 6 services, some seldom, some with names, in an order
/// that is wrong by less than is allowed.
pub fn input() -> Vec<Line<'static>> {
    let mut random = Random::new(7);
    let mut below = |most: u64| random.below(most);
    let mut lines = Vec::new();
    for window in 0..30 {
        for collector in 0..2 {
            for client in 0..40 {
                let service = below(6) as usize;
                if below(10) < 4 {
                    continue;
                }
                let rtts: Vec<_> = (0..below(20)).map(|_| 1 << below(24)).collect();
                let sum = |packets| Sum {
                    packets,
                    bytes: packets * 997,
                };
                let line = Line {
                    window: BEGIN + window * 10 * SECOND,
                    client_service: ["", "", "cron", "web 1"][client as usize % 4],
                    server_service: ["web", "", "postgres@main", "", "redis", "7 named"][service],
                    port: [443, 80, 5_432, 53, 6_379, 0][service],
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
                    refused: below(3),
                    timed_out: below(3),
                    samples: below(2),
                    rtt: support::times(&rtts),
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

/// What spools bring: lines of some edges in windows of which the others were written long ago.
pub fn late() -> Vec<Line<'static>> {
    let mut lines = input();
    lines.retain(|line| line.window < BEGIN + 120 * SECOND && line.begun % 3 == 0);
    for line in &mut lines {
        // Other addresses of what has a name, and so the same edge.
        line.client = [203, 0, 113, 9].into();
    }
    lines
}

/// The same in process: rows by their keys, the last of each; and how many were corrected.
pub fn in_process(input: &[Line<'_>]) -> (BTreeMap<String, Value>, usize) {
    let mut graph = ServiceGraph::new(ServiceGraphConfig::default());
    let (mut rows, mut corrected) = (BTreeMap::new(), 0);
    let mut keep = |row: skua_kafka::Row| {
        let row = serde_json::to_value(row).unwrap();
        let before = rows.insert(key(&row), row.clone());
        corrected += usize::from(before.is_some_and(|before| before != row));
    };
    for line in input {
        let fate = graph.add(&GraphLine::from(line));
        assert!([Outcome::Counted, Outcome::Corrects].contains(&fate));
        graph.close(false, &mut keep);
    }
    graph.close(true, &mut keep);
    (rows, corrected)
}

/// Edge and window.
fn key(row: &Value) -> String {
    let parts = [
        "window_ms",
        "protocol",
        "client_service",
        "client_address",
        "server_service",
        "server_address",
        "port",
    ];
    parts.map(|name| row[name].to_string()).join(" ")
}

/// A broker with both topics.
pub fn broker() -> Broker {
    let broker = Broker::start();
    broker.topic("lines", 3, &[]);
    broker.topic("graph", 1, &["cleanup.policy=compact,delete"]);
    broker
}

pub fn publish(broker: &Broker, lines: &[Line<'_>]) {
    let target = format!("kafka://{}/lines", broker.address());
    let mut producer = Producer::open(&target.parse().unwrap()).unwrap();
    for line in lines {
        producer.put(line);
    }
    producer.finish();
    let done = (producer.acknowledged(), producer.lost());
    assert_eq!(done, (lines.len() as u64, vec![]));
}

/// Rows in the graph's topic, the last of each key; and how many were written over.
pub fn rows(broker: &Broker) -> (BTreeMap<String, Value>, usize) {
    let (mut rows, mut again) = (BTreeMap::new(), 0);
    for message in broker.read("graph") {
        assert!(!message.payload.is_empty(), "a row was taken away");
        let row: Value = serde_json::from_slice(&message.payload).unwrap();
        let named: Value = serde_json::from_slice(&message.key).unwrap();
        assert_eq!(key(&named), key(&row));
        again += usize::from(rows.insert(key(&row), row).is_some());
    }
    (rows, again)
}

pub fn check(found: &BTreeMap<String, Value>, expected: &BTreeMap<String, Value>) {
    assert_eq!(found.len(), expected.len());
    for (key, row) in expected {
        assert_eq!(found.get(key), Some(row));
    }
}

/// A job that goes on until it is killed, and what it keeps.
pub struct Job {
    child: Child,
    state: PathBuf,
}

impl Job {
    /// Starts it; what it says is in the folder.
    pub fn start(command: &mut Command, state: &Path) -> Self {
        std::fs::create_dir_all(state).unwrap();
        let log = std::fs::File::create(state.join("said")).unwrap();
        let child = command
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .process_group(0)
            .spawn()
            .unwrap();
        Self {
            child,
            state: state.to_owned(),
        }
    }

    pub fn said(&self) -> String {
        std::fs::read_to_string(self.state.join("said")).unwrap_or_default()
    }

    /// Checkpoints of Flink that are complete.
    pub fn checkpoints(&self) -> usize {
        let found = Command::new("find")
            .arg(&self.state)
            .args(["-path", "*/chk-*/_metadata"])
            .output()
            .unwrap();
        found.stdout.split(|byte| *byte == b'\n').count() - 1
    }
}

impl Drop for Job {
    /// `kill -9` of the script and of the engine.
    fn drop(&mut self) {
        let group = format!("-{}", self.child.id());
        let killed = Command::new("kill").args(["-9", "--", &group]).status();
        let _ = (killed, self.child.wait());
        if std::thread::panicking() {
            eprintln!("{}", self.said());
        }
    }
}

/// The job's command.
pub fn command(broker: &Broker) -> Command {
    let run = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../stream/flink/run");
    let mut command = Command::new(run);
    command
        .args(["--brokers", &broker.address()])
        .args(["--lines", "lines", "--graph", "graph"]);
    command
}

/// Lines far behind, in all partitions, that close all windows before: theirs are not looked at.
pub fn after() -> Vec<Line<'static>> {
    (0..60)
        .map(|number| Line {
            window: BEGIN + 3_600 * SECOND,
            server: [198, 51, 100, number as u8].into(),
            ..support::line(number)
        })
        .collect()
}
