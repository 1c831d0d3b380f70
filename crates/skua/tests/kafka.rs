//! `skua collector --sink kafka://…`: what it writes to standard output is in the topic, too, each line once, also
//! when the broker is killed and not there for a while.

#![allow(clippy::unwrap_used, reason = "tests")]
#![cfg(feature = "kafka")]

use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader},
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    thread::{JoinHandle, sleep, spawn},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use skua_collect::{Drain, Offered, Teller, TellerConfig};
use skua_flow::{Counters, FlowKey, FlowStore, FlowUpdate, StoreLimits};
use skua_testkit::broker::Broker;

/// A collector, and what it has said so far.
struct Collector {
    child: Child,
    out: Option<JoinHandle<String>>,
    err: Option<JoinHandle<()>>,
    said: Arc<Mutex<String>>,
}

fn gather(mut from: impl std::io::Read + Send + 'static) -> JoinHandle<String> {
    spawn(move || {
        let mut all = String::new();
        from.read_to_string(&mut all).unwrap();
        all
    })
}

impl Collector {
    fn start(sink: &str) -> (Self, SocketAddr) {
        let mut child = Command::new(env!("CARGO_BIN_EXE_skua"))
            .args(["collector", "--listen", "127.0.0.1:0", "--window", "1s"])
            .args(["--wait", "1s", "--summary", "json"])
            .args(["--sink", "stdout", "--sink", sink])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let said = Arc::new(Mutex::new(String::new()));
        let (theirs, mut lines) = (said.clone(), BufReader::new(child.stderr.take().unwrap()));
        let err = spawn(move || {
            let mut line = String::new();
            while lines.read_line(&mut line).unwrap() > 0 {
                theirs.lock().unwrap().push_str(&line);
                line.clear();
            }
        });
        let collector = Self {
            out: Some(gather(child.stdout.take().unwrap())),
            err: Some(err),
            child,
            said,
        };
        collector.wait_said("collects sFlow at");
        let said = collector.said();
        let (_, after) = said.split_once("collects sFlow at ").unwrap();
        let address = after.split(';').next().unwrap().parse().unwrap();
        (collector, address)
    }

    fn said(&self) -> String {
        self.said.lock().unwrap().clone()
    }

    fn wait_said(&self, what: &str) {
        wait_for(what, || self.said().contains(what));
    }

    /// Ctrl-C: its standard output and its summary.
    fn stop(mut self) -> (String, Value) {
        let pid = Pid::from_raw(self.child.id() as i32).unwrap();
        kill_process(pid, Signal::INT).unwrap();
        let out = self.out.take().unwrap().join().unwrap();
        self.err.take().unwrap().join().unwrap();
        assert!(self.child.wait().unwrap().success(), "{}", self.said());
        let said = self.said();
        (
            out,
            serde_json::from_str(said.lines().last().unwrap()).unwrap(),
        )
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        // Ended already, mostly.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn wait_for(what: &str, mut there: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !there() {
        assert!(begin.elapsed() < Duration::from_secs(120), "no {what}");
        sleep(Duration::from_millis(20));
    }
}

fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(since.as_nanos()).unwrap()
}

/// An agent that tells of new conversations.
struct Agent {
    socket: UdpSocket,
    store: FlowStore,
    teller: Teller,
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
        let teller = Teller::new(TellerConfig {
            agent: [10, 0, 0, 1].into(),
            sub_agent: 0,
            instance: 1,
            started_ns: now_ns(),
            datagram: 1_400,
        });
        Self {
            socket,
            store,
            teller,
            next: 0,
        }
    }

    /// Conversations of so many further clients.
    fn tell(&mut self, clients: u32) {
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
        self.teller
            .tell(self.store.touched(), &Drain::at(now), |bytes| {
                self.socket.send(bytes).unwrap();
                Offered::Taken
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
fn what_is_on_standard_output_is_in_the_topic_though_the_broker_is_killed() {
    let broker = Broker::start();
    broker.topic("skua-lines", 3, &[]);
    let sink = format!(
        "kafka://{}/skua-lines?format=json&reconnect.backoff.max.ms=500",
        broker.address()
    );
    let (collector, address) = Collector::start(&sink);
    let mut agent = Agent::new(address);
    let mut tell = |times: u32| {
        for _ in 0..times {
            agent.tell(50);
            sleep(Duration::from_millis(50));
        }
    };
    tell(40);
    broker.kill();
    tell(40);
    collector.wait_said("tried again and again");
    broker.start_again();
    tell(40);
    collector.wait_said("can be reached again");
    let (out, summary) = collector.stop();
    assert_eq!(summary["lost"], serde_json::json!({}), "{summary}");
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
    assert_eq!(packets, 120 * 50 * 10);
}

#[test]
fn a_name_that_is_wrong_is_refused_at_the_start() {
    let output = Command::new(env!("CARGO_BIN_EXE_skua"))
        .args(["collector", "--sink", "kafka://one/lines?sasl.password=x"])
        .output()
        .unwrap();
    assert!(!output.status.success());
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("SKUA_KAFKA_SASL_PASSWORD"), "{said}");
}
