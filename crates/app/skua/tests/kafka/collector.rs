//! `skua collector --sink kafka://…`: what it writes to standard output is in the topic, too, each line once, also
//! when the broker is killed and not there for a while.

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    process::Command,
    thread::sleep,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use serde_json::Value;
use skua_collect::{Drain, Exporter, ExporterConfig, Offered};
use skua_flow::{Counters, FlowKey, FlowStore, FlowUpdate, StoreLimits};
use skua_testkit::broker::Broker;

use crate::process::Collector;

fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(since.as_nanos()).unwrap()
}

/// An agent that tells of new conversations.
struct Agent {
    socket: UdpSocket,
    store: FlowStore,
    exporter: Exporter,
    next: u32,
}

impl Agent {
    fn new(collector: SocketAddr) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(collector).unwrap();
        let limits = StoreLimits {
            records: 100_000,
            bytes: usize::MAX,
        };
        let mut store = FlowStore::new(limits, 1, 1);
        store.note_touched();
        let exporter = Exporter::new(ExporterConfig {
            agent: [10, 0, 0, 1].into(),
            sub_agent: 0,
            instance: 1,
            started_ns: now_ns(),
            datagram: 1_400,
            both_directions: true,
        });
        Self {
            socket,
            store,
            exporter,
            next: 0,
        }
    }

    /// Conversations of so many further clients.
    fn export(&mut self, clients: u32) {
        let now = now_ns();
        self.store.begin_drain(now);
        for client in self.next..self.next + clients {
            let address = |address: u32| Ipv4Addr::from(address).to_ipv6_mapped().octets();
            self.store.apply(&FlowUpdate {
                key: FlowKey {
                    lo: address(0x0a00_0000 + client),
                    hi: address(0xc000_0201),
                    lo_port: 40_000_u16.to_be_bytes(),
                    hi_port: 443_u16.to_be_bytes(),
                    ifindex: 2,
                    proto: 6,
                    kind: 1 | 4,
                    ..FlowKey::default()
                },
                lo_sent: Counters::new(10, 1_000),
                hi_sent: Counters::new(10, 10_000),
                lo_first: true,
                first_ns: now,
                last_ns: now,
                ..FlowUpdate::default()
            });
        }
        self.next += clients;
        self.store.end_drain();
        self.exporter
            .export(self.store.touched(), &Drain::at(now), |bytes| {
                self.socket.send(bytes).unwrap();
                Offered::Queued
            });
    }
}

/// How often each line is there.
fn often(lines: impl Iterator<Item = Value>) -> BTreeMap<String, u32> {
    let mut often = BTreeMap::new();
    for line in lines {
        *often.entry(line.to_string()).or_default() += 1;
    }
    often
}

#[test]
#[ignore = "wants a broker: make test-kafka"]
fn what_is_on_standard_output_is_in_the_topic_though_the_broker_is_killed() {
    let broker = Broker::start();
    broker.topic("skua-lines", 3, &[]);
    let sink = format!(
        "kafka://{}/skua-lines?format=json&reconnect.backoff.max.ms=500",
        broker.address()
    );
    let mut command = Command::new(skua_testkit::program!());
    command
        .args(["collector", "--listen", "127.0.0.1:0", "--window", "1s"])
        .args(["--wait", "1s", "--summary", "json"])
        .args(["--sink", "stdout", "--sink", &sink]);
    let collector = Collector::start(&mut command);
    let mut agent = Agent::new(collector.address);
    let mut tell = |times: u32| {
        for _ in 0..times {
            agent.export(50);
            sleep(Duration::from_millis(50));
        }
    };
    tell(40);
    broker.kill();
    tell(40);
    collector.wait_said("retrying");
    broker.start_again();
    tell(40);
    collector.wait_said("can be reached again");
    let (out, summary) = collector.stop();
    let lost = summary["lost"].as_object().unwrap();
    assert!(lost.keys().all(|cause| cause == "late"), "{summary}");
    let written = often(out.lines().map(|line| serde_json::from_str(line).unwrap()));
    let published = broker.read("skua-lines");
    assert_eq!(published.len() as u64, summary["lines"]);
    let published = published.iter();
    let published =
        often(published.map(|message| serde_json::from_slice(&message.payload).unwrap()));
    assert!(published == written, "standard output and the topic differ");
    let packets = |line: &String| {
        let line: Value = serde_json::from_str(line).unwrap();
        line["client_sent"]["packets"].as_u64().unwrap()
    };
    let packets: u64 = published.keys().map(packets).sum();
    // On a busy machine some come too late for their windows.
    let late = summary["late"]["packets"].as_u64().unwrap() / 2;
    assert_eq!(packets + late, 120 * 50 * 10, "{summary}");
}

#[test]
fn a_name_that_is_wrong_is_refused_at_the_start() {
    let output = Command::new(skua_testkit::program!())
        .args(["collector", "--sink", "kafka://one/lines?sasl.password=x"])
        .output()
        .unwrap();
    assert!(!output.status.success());
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("SKUA_KAFKA_SASL_PASSWORD"), "{said}");
}
