//! All ways of capturing give the same records: one capture is sent over a veth pair and captured by
//! each type in turn, and replayed from a file. Needs root and iproute2.
#![allow(clippy::unwrap_used)] // also in helpers, where clippy.toml does not allow it

use std::{
    collections::BTreeMap,
    io::{Read as _, Write as _},
    net::{Shutdown, TcpListener, TcpStream},
    process::{ChildStdout, Command, Stdio},
    thread,
    time::Duration,
};

use rustix::{
    process::Signal,
    thread::{CpuSet, sched_setaffinity},
};
use serde_json::Value;
use skua_flow::{FlowStore, StoreLimits};
use skua_kernel::HookKind;
use skua_probe::{
    Probe as _,
    ebpf::{EbpfConfig, EbpfProbe},
};
use skua_testkit::{
    Capture,
    lab::{Net, root_tests},
    process::Process,
    wire::Counters,
};

/// Packets sent at a time, fewer than any queue on the way holds.
const BURST: usize = 32;
/// Looks for packets that are under way.
const LOOKS: usize = 1_000;

/// Two namespaces, a with `va` and b with `vb`, between which nothing passes but what a test sends.
struct Pair {
    a: Net,
    b: Net,
}

impl Pair {
    fn new() -> Self {
        let (a, b) = (Net::new(), Net::new());
        a.ip(&format!(
            "link add va address 02:00:00:00:0a:0a type veth \
             peer name vb address 02:00:00:00:0b:0b netns {}",
            b.name
        ));
        bring_up(&a, &b);
        Self { a, b }
    }

    /// Addresses 10.79.0.1 and 10.79.0.2 that know each other.
    fn with_addresses() -> Self {
        let pair = Self::new();
        for (ns, link, own) in [(&pair.a, "va", 1), (&pair.b, "vb", 2)] {
            ns.ip(&format!("addr add 10.79.0.{own}/24 dev {link}"));
        }
        for (ns, link, other, mac) in [(&pair.a, "va", 2, "0b"), (&pair.b, "vb", 1, "0a")] {
            ns.ip(&format!(
                "neigh add 10.79.0.{other} lladdr 02:00:00:00:{mac}:{mac} dev {link}"
            ));
        }
        pair
    }

    /// Counters of `vb`.
    fn counters(&self) -> Counters {
        self.b.counters("vb")
    }

    /// Sends the packets of a capture from `va`, in order, and waits until all have arrived.
    fn send(&self, capture: &Capture) {
        let before = self.counters().rx.packets;
        let arrived = |count: usize| {
            for _ in 0..LOOKS {
                if self.counters().rx.packets - before >= count as u64 {
                    return;
                }
                thread::sleep(Duration::from_millis(1));
            }
            panic!(
                "of {count} packets some never arrived: {:?}",
                self.counters()
            );
        };
        let mut sender = self
            .a
            .inside(|| pcap::Capture::from_device("va").unwrap().open().unwrap());
        // The receiver's queues are per CPU: from several, packets could overtake one another.
        let mut cpu = CpuSet::new();
        cpu.set(0);
        sched_setaffinity(None, &cpu).unwrap();
        let mut sent = 0;
        for burst in capture.records.chunks(BURST) {
            for record in burst {
                sender.sendpacket(&record.data[..]).unwrap();
            }
            sent += burst.len();
            arrived(sent);
        }
    }
}

/// Sets both ends up. The kernel opens their queues a while after it has seen that both are: what is
/// sent before that is lost.
fn bring_up(a: &Net, b: &Net) {
    let ends = [(a, "va"), (b, "vb")];
    for (ns, link) in ends {
        ns.ip(&format!("link set {link} arp off up"));
    }
    for (ns, link) in ends {
        ns.wait_up(link);
    }
    // The queue is opened right after the state is set.
    thread::sleep(Duration::from_millis(20));
}

/// A running `skua flows` that captures on `vb`.
struct Flows {
    process: Process,
    records: ChildStdout,
}

impl Flows {
    /// Starts it; returns when it captures.
    fn start(pair: &Pair, kind: &str) -> Self {
        Self::with_filter(pair, kind, "")
    }

    fn with_filter(pair: &Pair, kind: &str, filter: &str) -> Self {
        let mut command = pair.b.command(skua_testkit::program!());
        command
            .env("SKUA_HISTORY_DIRECTORY", "")
            .args(["-v", "flows", "--interface", "vb", "--type", kind])
            .args(["--duration", "10m", "--output", "json", "--summary", "json"])
            .args(["--filter", filter])
            .env_remove("SKUA_LOG");
        let mut process = Process::with_messages(command.stdout(Stdio::piped()));
        process.wait_for_line("attached interface");
        let records = process.output();
        Self { process, records }
    }

    /// Ends it; returns its records and the sums.
    fn finish(mut self) -> (Vec<Value>, Value) {
        self.process.signal(Signal::INT);
        let mut lines = String::new();
        self.records.read_to_string(&mut lines).unwrap();
        let log = self.process.rest();
        eprint!("{log}");
        self.process.wait();
        let sums = log.lines().find(|line| line.starts_with('{')).unwrap();
        (parse(&lines), serde_json::from_str(sums).unwrap())
    }
}

fn parse(lines: &str) -> Vec<Value> {
    lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// What types must agree on, sorted: all but times and what is about the capture point or its host. Whether a
/// late segment was out of order or came again is a matter of time, too.
fn comparable(records: Vec<Value>) -> Vec<String> {
    let mut lines: Vec<String> = records
        .into_iter()
        .map(|mut record| {
            let object = record.as_object_mut().unwrap();
            for name in [
                "interface",
                "ifindex",
                "id",
                "start",
                "last",
                "duration",
                "rate",
            ] {
                assert!(object.remove(name).is_some(), "{name}: {object:?}");
            }
            // Known by the host's sockets and ports, which a file has not. Who holds a socket is a matter of time, too: when a test
            // beside starts a program, that has it for a moment.
            object.remove("service");
            // Of an echo; a time, too.
            object.remove("rtt");
            for side in ["a", "b"] {
                let side = object.get_mut(side).and_then(Value::as_object_mut).unwrap();
                side.retain(|name, _| !["pid", "process", "user"].contains(&name.as_str()));
            }
            if let Some(tcp) = object.get_mut("tcp").and_then(Value::as_object_mut) {
                merge_late(tcp);
            }
            record.to_string()
        })
        .collect();
    lines.sort();
    lines
}

/// Fails with the first record that differs.
fn assert_same(records: &[String], expected: &[String], what: &str) {
    for (record, expected) in records.iter().zip(expected) {
        assert_eq!(record, expected, "{what}");
    }
    assert_eq!(records.len(), expected.len(), "{what}");
}

/// Sums up `retransmitted` and `out_of_order` wherever they are, and drops times of flags and round trips.
fn merge_late(tcp: &mut serde_json::Map<String, Value>) {
    let mut late: BTreeMap<String, u64> = BTreeMap::new();
    tcp.retain(|name, value| {
        for counter in ["retransmitted", "out_of_order"] {
            if let Some(side) = name.strip_suffix(counter).or(name.strip_prefix(counter)) {
                *late.entry(side.into()).or_default() += value.as_u64().unwrap();
                return false;
            }
        }
        let is_time = ["_syn", "_fin", "_rst"]
            .iter()
            .any(|end| name.ends_with(end));
        !is_time && !name.contains("rtt")
    });
    for (side, count) in late {
        tcp.insert(format!("late{side}"), count.into());
    }
}

#[test]
fn all_types_give_the_same_records() {
    if !root_tests() {
        return;
    }
    let capture = skua_testkit::named("mixed_plain").unwrap();
    assert!(capture.records.len() >= 2_000);
    let bytes: usize = capture.records.iter().map(|r| r.data.len()).sum();
    let replayed = {
        let mut child = Command::new(skua_testkit::program!())
            .env("SKUA_HISTORY_DIRECTORY", "")
            .args(["replay", "-", "--output", "json"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let file = capture.bytes();
        let writer = thread::spawn(move || stdin.write_all(&file).unwrap());
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap();
        assert!(output.status.success());
        comparable(parse(&String::from_utf8(output.stdout).unwrap()))
    };
    assert!(replayed.len() > 200, "{}", replayed.len());

    for kind in ["ebpf", "xdp", "afpacket", "pcap"] {
        let pair = Pair::new();
        let flows = Flows::start(&pair, kind);
        pair.send(&capture);
        let (records, sums) = flows.finish();
        let seen = &sums["seen"];
        assert_eq!(seen["packets"], capture.records.len(), "{kind}: {sums}");
        assert_eq!(seen["bytes"], bytes, "{kind}: {sums}");
        assert_eq!(sums["in_flows"], *seen, "{kind}: {sums}");
        let counters = &sums["interfaces"][0]["interface_counters"];
        assert_eq!(counters["rx_packets"], seen["packets"], "{kind}: {sums}");
        assert_same(&comparable(records), &replayed, kind);
    }
}

/// The lowest rung of the ladder cannot be asked for on the command line.
#[test]
fn the_filter_of_a_packet_socket_gives_them_too() {
    if !root_tests() {
        return;
    }
    let capture = skua_testkit::named("mixed_plain").unwrap();
    let pair = Pair::new();
    let afpacket = Flows::start(&pair, "afpacket");
    let records = pair.b.inside(|| {
        let mut probe = EbpfProbe::start(EbpfConfig {
            hooks: vec![HookKind::Socket],
            interfaces: vec!["vb".to_owned()],
            ..EbpfConfig::default()
        })
        .unwrap();
        pair.send(&capture);
        let mut store = FlowStore::new(StoreLimits::default(), 0, 1);
        probe
            .finish(&mut |update| {
                store.apply(update);
            })
            .unwrap();
        let line =
            |r: &skua_flow::FlowRecord| serde_json::to_value(store.line(&r.into(), "vb")).unwrap();
        store.iter().map(line).collect::<Vec<_>>()
    });
    let expected = comparable(afpacket.finish().0);
    assert_same(&comparable(records), &expected, "socket filter");
}

/// The kernel's filter and ours choose the same packets, also where a tag was stripped.
#[test]
fn filters_choose_the_same_packets() {
    if !root_tests() {
        return;
    }
    let capture = skua_testkit::named("mixed_plain").unwrap();
    for filter in [
        "vlan 10",
        "udp and not vlan",
        "vlan and vlan and tcp",
        "ether[700] = 0",
    ] {
        let pair = Pair::new();
        let types = ["ebpf", "afpacket", "pcap"];
        let running = types.map(|kind| Flows::with_filter(&pair, kind, filter));
        pair.send(&capture);
        let [(records, sums), others @ ..] = running.map(Flows::finish);
        let chosen = sums["in_flows"]["packets"].as_u64().unwrap();
        assert!(chosen > 10 && chosen < 1_900, "{filter}: {sums}");
        let records = comparable(records);
        for (other, others_sums) in others {
            assert_eq!(others_sums["left_out"], sums["left_out"], "{filter}");
            assert_same(&comparable(other), &records, filter);
        }
    }
}

/// What passed an interface that was deleted stays in the account, and one of the same name that
/// comes later is watched again.
#[test]
fn links_come_and_go_without_a_loss() {
    if !root_tests() {
        return;
    }
    let capture = skua_testkit::named("mixed_plain").unwrap();
    for kind in ["afpacket", "pcap"] {
        let pair = Pair::new();
        let mut flows = Flows::start(&pair, kind);
        pair.send(&capture);
        pair.b.ip("link del vb");
        flows
            .process
            .wait_for_line("not attached any more interface=\"vb\"");
        pair.a.ip(&format!(
            "link add va type veth peer name vb netns {}",
            pair.b.name
        ));
        bring_up(&pair.a, &pair.b);
        flows.process.wait_for_line("attached interface=\"vb\"");
        pair.send(&capture);
        let (_, sums) = flows.finish();
        assert_eq!(
            sums["seen"]["packets"],
            2 * capture.records.len(),
            "{kind}: {sums}"
        );
        assert_eq!(sums["in_flows"], sums["seen"], "{kind}: {sums}");
    }
}

/// Packets that do not fit in the ring are lost by that name, and to the packet.
#[test]
fn a_full_ring_is_told() {
    if !root_tests() {
        return;
    }
    let mut capture = skua_testkit::named("mixed_plain").unwrap();
    // With a filter that looks at the whole packet all of it is kept: the ring fills soon.
    let big = capture
        .records
        .iter()
        .find(|r| r.data.len() > 1_400)
        .unwrap();
    capture.records = vec![big.clone(); 12_000];
    let pair = Pair::new();
    let flows = Flows::with_filter(&pair, "afpacket", "ether[700] = 0");
    // Stopped, it reads nothing.
    flows.process.signal(Signal::STOP);
    pair.send(&capture);
    flows.process.signal(Signal::CONT);
    let (_, sums) = flows.finish();
    let lost = sums["lost"]["ring_full"]["packets"].as_u64().unwrap();
    assert!(lost > 1_000, "{sums}");
    assert_eq!(sums["seen"]["packets"], capture.records.len(), "{sums}");
    let counted = sums["in_flows"]["packets"].as_u64().unwrap();
    assert_eq!(counted + lost, capture.records.len() as u64, "{sums}");
}

#[test]
fn our_own_traffic_is_known_only_in_the_kernel() {
    let output = Command::new(skua_testkit::program!())
        .env("SKUA_HISTORY_DIRECTORY", "")
        .args(["flows", "--interface", "lo", "--duration", "1s"])
        .args(["--type", "afpacket", "--exclude-self"])
        .output()
        .unwrap();
    assert!(!output.status.success());
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("needs capture type ebpf"), "{error}");
}

#[test]
fn super_packets_count_the_same_in_both_worlds() {
    const BYTES: usize = 20_000_000;
    if !root_tests() {
        return;
    }
    let pair = Pair::with_addresses();
    let (ebpf, ring) = (Flows::start(&pair, "ebpf"), Flows::start(&pair, "afpacket"));
    let listener = pair.b.inside(|| TcpListener::bind("10.79.0.2:0").unwrap());
    let to = listener.local_addr().unwrap();
    let mut client = pair.a.inside(|| TcpStream::connect(to).unwrap());
    let sender = thread::spawn(move || {
        client.write_all(&vec![7; BYTES]).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        // Nothing is under way any more when the other side has closed, too.
        client.read_to_end(&mut Vec::new()).unwrap();
    });
    let (mut server, _) = listener.accept().unwrap();
    let mut received = Vec::new();
    server.read_to_end(&mut received).unwrap();
    assert_eq!(received.len(), BYTES);
    drop(server);
    sender.join().unwrap();
    // The last acknowledgement.
    thread::sleep(Duration::from_millis(300));

    let ((in_kernel, kernel_sums), (in_user, user_sums)) = (ebpf.finish(), ring.finish());
    assert!(
        kernel_sums["notes"]["segmented"]["packets"]
            .as_u64()
            .unwrap()
            > 1_000,
        "no super-packets: {kernel_sums}"
    );
    assert_eq!(kernel_sums["notes"], user_sums["notes"]);
    assert_eq!(kernel_sums["seen"], user_sums["seen"]);
    assert_same(&comparable(in_user), &comparable(in_kernel), "GSO");
}
