//! Packets that are kept and watched, beside what tcpdump sees.

use std::{
    collections::BTreeMap,
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    time::Duration,
};

use skua_packet::{Frame, Level, Options, decode};
use skua_probe::{PacketStream, PacketsConfig, PointState, Streamed, Wake};

use crate::lab::{
    Flow, Kind, PATIENCE, Running, SendMode, Sender, Sum, Tcpdump, Wanted, Wire, captured,
    frame::Crowd, point, root_tests, stay_on_one_cpu,
};

const DOT1Q: u16 = 0x8100;
const DOT1AD: u16 = 0x88a8;

fn numbered(number: u64) -> Flow {
    Flow::numbered(number as u32 % 40).with_protocol([17, 6][number as usize % 2])
}

/// Frames of many conversations and sizes, tagged and not, one way and the other.
fn traffic(wire: &Wire, ways: usize) {
    stay_on_one_cpu();
    let there = Sender::open(&wire.far, "g0", SendMode::Bypass);
    let back = Sender::open(&wire.near, "x0", SendMode::Queue);
    for round in 0..6u64 {
        let frame = |n: u64, flow: Flow| match n % 7 {
            5 => flow.tagged(&[(DOT1Q, 7)], 100 + n as usize % 700),
            6 => flow.tagged(&[(DOT1AD, 8), (DOT1Q, 9)], 100 + n as usize % 700),
            _ => flow.frame(60 + (n * 97 + round * 1303) as usize % 8900),
        };
        let sent = there.send(300, |n| frame(n, numbered(n)));
        assert_eq!((sent.error, sent.dropped), (None, Sum::ZERO));
        if ways == 2 {
            let sent = back.send(200, |n| frame(n, numbered(n).reversed()));
            assert_eq!((sent.error, sent.dropped), (None, Sum::ZERO));
        }
        wire.near.settled_counters("x0");
    }
}

/// What tells conversations of these frames apart.
fn conversation(level: &Level) -> impl Ord + std::fmt::Debug + use<> {
    let ends = |a: [u8; 16], b: [u8; 16]| if a < b { (a, b) } else { (b, a) };
    (ends(level.src, level.dst), level.proto, level.vlan)
}

fn outer(data: &[u8]) -> Level {
    decode(&Frame::ethernet(data), Options::default())
        .unwrap()
        .outer
}

const ALL: [Kind; 6] = [
    Kind::TCX,
    Kind::CLSACT,
    Kind::SOCKET,
    Kind::XDP,
    Kind::AFPACKET,
    Kind::PCAP,
];

fn ways(kind: Kind) -> usize {
    if kind == Kind::XDP { 1 } else { 2 }
}

#[test]
fn the_first_packets_of_each_flow_are_those_that_tcpdump_saw() {
    if !root_tests() {
        return;
    }
    const FIRST: usize = 3;
    const BYTES: usize = 333;
    for kind in Kind::here(ALL) {
        let wire = Wire::new();
        let x0 = point(&wire.near, "x0");
        let capture = Running::start(&Wanted::points(kind, &[x0]).packets(PacketsConfig {
            first: FIRST as u8,
            bytes: BYTES as u32,
            ..PacketsConfig::default()
        }));
        let tcpdump = Tcpdump::start(&wire.near, "x0", &[]);
        std::thread::scope(|scope| {
            scope.spawn(|| traffic(&wire, ways(kind)));
        });
        let mut expected: BTreeMap<_, Vec<(Vec<u8>, u32)>> = BTreeMap::new();
        for (mut data, length) in captured(tcpdump) {
            let packets = expected.entry(conversation(&outer(&data))).or_default();
            if packets.len() < FIRST {
                data.truncate(BYTES);
                packets.push((data, length));
            }
        }
        let packets = capture.packets().clone();
        let seen = capture.stop();
        let mut kept: BTreeMap<_, Vec<(Vec<u8>, u32)>> = BTreeMap::new();
        for (key, flow) in &seen.flows {
            let mut of_flow = Vec::new();
            packets.of_flow(key, flow.first_ns, flow.last_ns, |index, packet| {
                of_flow.push((packet.data.to_vec(), packet.length));
                assert_eq!(index, of_flow.len());
                assert_eq!((packet.ifindex, packet.link_type), (x0.ifindex, 1));
            });
            let count = packets.count_of_flow(key, flow.first_ns, flow.last_ns);
            assert_eq!(count, of_flow.len());
            assert_eq!(count, FIRST.min(flow.sum.packets as usize), "{kind:?}");
            kept.insert(conversation(&outer(&of_flow[0].0)), of_flow);
        }
        assert!(kept.len() > 100, "{}", kept.len());
        assert!(
            kept == expected,
            "{kind:?}: {:?}",
            difference(&kept, &expected)
        );
        assert_eq!(seen.cause("raw_lost"), Sum::ZERO);
    }
}

fn difference<K: Ord + std::fmt::Debug, V: PartialEq + std::fmt::Debug>(
    one: &BTreeMap<K, V>,
    two: &BTreeMap<K, V>,
) -> String {
    let differs = one.iter().find(|(key, value)| two.get(key) != Some(value));
    match differs {
        Some((key, value)) => format!("{key:?}: {value:?} but {:?}", two.get(key)),
        None => format!("{} and {} flows", one.len(), two.len()),
    }
}

/// All that comes until nothing comes any more.
fn read_all(stream: &mut PacketStream) -> Vec<(Vec<u8>, u32)> {
    let mut packets = Vec::new();
    while stream.read(Duration::from_secs(2)) == Streamed::Packets {
        packets.extend(stream.packets().map(|p| (p.data.to_vec(), p.length)));
    }
    assert_eq!(stream.dropped(), 0);
    packets
}

#[test]
fn the_live_stream_is_what_tcpdump_sees() {
    if !root_tests() {
        return;
    }
    for kind in Kind::here(ALL) {
        let wire = Wire::new();
        let x0 = point(&wire.near, "x0");
        let whole = PacketsConfig {
            bytes: 65_536,
            ring_bytes: 32 << 20,
            ..PacketsConfig::default()
        };
        let filter = "udp or vlan";
        let wanted = Wanted::points(kind, &[x0]).filter(filter).packets(whole);
        let capture = Running::start(&wanted);
        assert_eq!(
            capture.points().state(x0),
            Some(PointState::Active),
            "{kind:?}"
        );
        let tcpdump = Tcpdump::start(&wire.near, "x0", &[filter]);
        // Before anybody watches: nobody gets these packets.
        let mut stream = capture.packets().watch(64 << 20);
        assert!(stream.started(PATIENCE), "{kind:?}");
        assert_eq!(capture.packets().watchers(), 1);
        std::thread::scope(|scope| {
            scope.spawn(|| traffic(&wire, ways(kind)));
        });
        let live = read_all(&mut stream);
        let expected = captured(tcpdump);
        assert!(live.len() > 700, "{kind:?}: {}", live.len());
        let at = live.iter().zip(&expected).position(|(a, b)| a != b);
        assert_eq!((live.len(), at), (expected.len(), None), "{kind:?}");
        // Nobody watches any more.
        drop(stream);
        let mut late = capture.packets().watch(1 << 20);
        assert!(late.started(PATIENCE));
        let seen = capture.stop();
        assert_eq!(late.read(Duration::ZERO), Streamed::Ended);
        assert_eq!(seen.cause("live_lost"), Sum::ZERO);
        assert_eq!(seen.in_flows().packets, live.len() as u64);
    }
}

/// Super-packets of a real connection, whole.
#[test]
fn super_packets_are_seen_as_tcpdump_sees_them() {
    if !root_tests() {
        return;
    }
    for kind in Kind::here([Kind::TCX, Kind::SOCKET, Kind::AFPACKET, Kind::PCAP]) {
        let wire = Wire::new().with_addresses();
        let x0 = point(&wire.near, "x0");
        let whole = PacketsConfig {
            first: 2,
            bytes: 65_536,
            ring_bytes: 64 << 20,
            ..PacketsConfig::default()
        };
        let capture = Running::start(&Wanted::points(kind, &[x0]).packets(whole));
        let tcpdump = Tcpdump::start(&wire.near, "x0", &["tcp"]);
        let mut stream = capture.packets().watch(64 << 20);
        assert!(stream.started(PATIENCE));
        let listener = wire
            .near
            .inside(|| TcpListener::bind("10.7.0.2:7000"))
            .unwrap();
        let sent = vec![7u8; 2_000_000];
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (mut server, _) = listener.accept().unwrap();
                let mut got = Vec::new();
                server.read_to_end(&mut got).unwrap();
                assert_eq!(got.len(), sent.len());
            });
            let client = wire.far.inside(|| TcpStream::connect("10.7.0.2:7000"));
            client.unwrap().write_all(&sent).unwrap();
        });
        let mut live = read_all(&mut stream);
        live.retain(|(data, _)| outer(data).proto == 6);
        let mut expected = captured(tcpdump);
        // Both CPUs are at work, and between the two hooks packets may overtake each other.
        live.sort();
        expected.sort();
        let longest = live.iter().map(|(data, _)| data.len()).max().unwrap();
        assert!(longest > 9_100, "{kind:?}: no super-packet: {longest}");
        let at = live.iter().zip(&expected).position(|(a, b)| a != b);
        assert_eq!((live.len(), at), (expected.len(), None), "{kind:?}");
        drop(capture.stop());
    }
}

/// A ring without a reader: what does not fit is counted by name, and in its flow all the same.
#[test]
fn packets_that_find_no_room_are_counted() {
    if !root_tests() {
        return;
    }
    const FLOWS: u64 = 5_000;
    for kind in Kind::here([Kind::TCX, Kind::SOCKET, Kind::XDP]) {
        let wire = Wire::new();
        let x0 = point(&wire.near, "x0");
        let mut wanted = Wanted::points(kind, &[x0]).packets(PacketsConfig {
            first: 1,
            bytes: 512,
            ring_bytes: 256 << 10,
            ..PacketsConfig::default()
        });
        wanted.scan_interval = Duration::from_secs(3600);
        let mut probe = wanted.start().unwrap();
        assert_eq!(wanted.points.unwrap().state(x0), Some(PointState::Active));
        // Nobody waits for it, so nothing is taken out of the ring.
        let sender = Sender::open(&wire.far, "g0", SendMode::Bypass);
        let crowd = Crowd::new(400);
        let sent = sender.send(FLOWS, |n| crowd.frame(n as u32));
        wire.near.settled_counters("x0");
        let mut seen = crate::lab::Seen::default();
        probe
            .drain(Wake::Interval, &mut |update| seen.add(update))
            .unwrap();
        let packets = probe.packets().unwrap();
        seen.account = probe.account();
        seen.check();
        assert_eq!(seen.in_flows(), sent.sum, "{kind:?}");
        let (kept, lost) = (packets.stats().kept, seen.cause("raw_lost"));
        assert!(
            kept > 100 && lost.packets > 1000,
            "{kind:?}: {kept} {lost:?}"
        );
        assert_eq!(kept + lost.packets, FLOWS, "{kind:?}");
        assert_eq!(lost.bytes, 400 * lost.packets);
        // The ring was emptied: there is room again.
        let sent = sender.send(100, |n| crowd.frame(100_000 + n as u32));
        wire.near.settled_counters("x0");
        assert_eq!(sent.sum.packets, 100);
        probe.finish(&mut |update| seen.add(update)).unwrap();
        assert_eq!(packets.stats().kept, kept + 100, "{kind:?}");
    }
}

/// Memory is bounded: the flows that came first lose their packets, counted.
#[test]
fn kept_packets_take_bounded_memory() {
    if !root_tests() {
        return;
    }
    let wire = Wire::new();
    let x0 = point(&wire.near, "x0");
    let kind = Kind::here([Kind::TCX, Kind::CLSACT])[0];
    let capture = Running::start(&Wanted::points(kind, &[x0]).packets(PacketsConfig {
        first: 1,
        memory: 200_000,
        ..PacketsConfig::default()
    }));
    let crowd = Crowd::new(200);
    let sender = Sender::open(&wire.far, "g0", SendMode::Bypass);
    sender.send(5_000, |n| crowd.frame(n as u32));
    wire.near.settled_counters("x0");
    let packets = capture.packets().clone();
    let seen = capture.stop();
    let stats = packets.stats();
    assert_eq!(stats.kept + seen.cause("raw_lost").packets, 5_000);
    assert!(stats.memory <= 200_000, "{stats:?}");
    assert_eq!(stats.forgotten + stats.flows, stats.kept);
    assert!(stats.flows > 100, "{stats:?}");
}
