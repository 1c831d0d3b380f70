//! Super-packets (GSO, GRO) against counters of an interface that sees each segment by itself.

use std::net::UdpSocket;

use crate::lab::{Counters, Net, Skua, Sum, packet::segment_udp, root_tests, tcp};

/// `a` and `b`, joined by a router: between `a0` and `m1` super-packets travel whole, at `m2` and
/// `b0` every packet is as on a real wire, because all offloads are off there.
struct Routed {
    a: Net,
    middle: Net,
    b: Net,
}

impl Routed {
    fn new() -> Self {
        let lab = Self {
            a: Net::new(),
            middle: Net::new(),
            b: Net::new(),
        };
        lab.a.veth("a0", &lab.middle, "m1");
        lab.middle.veth("m2", &lab.b, "b0");
        for net in [&lab.a, &lab.middle, &lab.b] {
            // A small window: the router's queue must not overflow, dropped segments are no truth.
            net.sysctl("ipv4/tcp_rmem", "4096 131072 131072");
            net.sysctl("ipv4/tcp_wmem", "4096 131072 131072");
        }
        for (net, interface) in [
            (&lab.a, "a0"),
            (&lab.middle, "m1"),
            (&lab.middle, "m2"),
            (&lab.b, "b0"),
        ] {
            net.ip(&format!("link set {interface} mtu 1500"));
        }
        lab.a.ip("addr add 10.7.1.1/24 dev a0");
        lab.middle.ip("addr add 10.7.1.2/24 dev m1");
        lab.middle.ip("addr add 10.7.2.2/24 dev m2");
        lab.b.ip("addr add 10.7.2.1/24 dev b0");
        lab.a.ip("route add default via 10.7.1.2");
        lab.b.ip("route add default via 10.7.2.2");
        lab.middle.sysctl("ipv4/ip_forward", "1");
        // Nobody asks for MACs: only IP packets pass.
        lab.a
            .ip("neigh add 10.7.1.2 lladdr 02:00:00:00:0b:01 dev a0 nud permanent");
        lab.middle
            .ip("neigh add 10.7.1.1 lladdr 02:00:00:00:0a:01 dev m1 nud permanent");
        lab.middle
            .ip("neigh add 10.7.2.1 lladdr 02:00:00:00:0b:01 dev m2 nud permanent");
        lab.b
            .ip("neigh add 10.7.2.2 lladdr 02:00:00:00:0a:01 dev b0 nud permanent");
        for (net, interface) in [(&lab.middle, "m2"), (&lab.b, "b0")] {
            net.ethtool(interface, "tso off gso off gro off tx-udp-segmentation off");
        }
        lab
    }

    fn counters(&self) -> (Counters, Counters) {
        (
            self.a.settled_counters("a0"),
            self.middle.settled_counters("m2"),
        )
    }
}

/// What `a0` and `m2` counted since.
fn since(lab: &Routed, before: (Counters, Counters)) -> (Counters, Counters) {
    let (a0, m2) = lab.counters();
    let (a0, m2) = (a0 - before.0, m2 - before.1);
    assert_eq!(
        (a0.tx_dropped, m2.tx_dropped),
        (0, 0),
        "the router lost something"
    );
    (a0, m2)
}

#[test]
fn tcp_super_packets_are_counted_as_on_the_wire() {
    if !root_tests() {
        return;
    }
    let lab = Routed::new();
    let skua = Skua::run(
        &lab.a,
        "--interface a0 --max-entries 1000 --scan-interval 100ms",
    );
    let before = lab.counters();
    tcp::bulk(&lab.a, &lab.b, "10.7.2.1:5001", 48 << 20);
    tcp::bulk(&lab.b, &lab.a, "10.7.1.1:5001", 8 << 20);
    let flows = skua.flows();
    let report = skua.stop();
    let (a0, m2) = since(&lab, before);
    // The truth: each segment by itself behind the router.
    assert_eq!(report.directions("a0"), (m2.rx, m2.tx));
    assert_eq!(report.in_flows(), report.seen());
    assert_eq!(report.seen(), m2.rx + m2.tx);
    // And what the interface counted as one is told, to the packet and byte.
    let segmented = report.note("segmented");
    assert_eq!(a0.rx + a0.tx + segmented, report.seen());
    assert!(
        segmented.packets > 10_000,
        "no super-packets: {segmented:?}"
    );
    assert_eq!(flows.len(), 2);
    for flow in flows {
        assert_eq!(flow["tcp"]["state"], "closed", "{flow}");
    }
}

#[test]
fn udp_super_packets_are_counted_as_on_the_wire() {
    if !root_tests() {
        return;
    }
    let lab = Routed::new();
    let skua = Skua::run(&lab.a, "--interface a0 --max-entries 1000");
    let before = lab.counters();
    let receiver = lab.b.inside(|| UdpSocket::bind("10.7.2.1:6001")).unwrap();
    let sender = lab.a.inside(|| UdpSocket::bind("10.7.1.1:6000")).unwrap();
    segment_udp(&sender, 1400);
    // 43 segments, the last of which is shorter; one that is none; one and a byte.
    let mut expected = Sum::ZERO;
    for length in [43 * 1400 - 700, 1400, 1401] {
        for _ in 0..50 {
            let sent = sender
                .send_to(&vec![0x5a; length], "10.7.2.1:6001")
                .unwrap();
            assert_eq!(sent, length);
            let segments = length.div_ceil(1400) as u64;
            expected += Sum::new(segments, length as u64 + 42 * segments);
        }
    }
    let report = skua.stop();
    let (a0, m2) = since(&lab, before);
    drop(receiver);
    assert_eq!(m2.tx, expected);
    assert_eq!(report.directions("a0"), (Sum::ZERO, m2.tx));
    assert_eq!(a0.tx + report.note("segmented"), m2.tx);
    assert_eq!(report.number("flows"), 1);
}

/// What GRO joins on reception has passed the wire in pieces, and the interface has counted them
/// as such.
#[test]
fn joined_segments_are_counted_as_they_came() {
    if !root_tests() {
        return;
    }
    let lab = Routed::new();
    lab.a.ethtool("a0", "gro on");
    // veth hands packets to GRO only when its other end does not send super-packets.
    lab.middle.ethtool("m1", "tso off gso off");
    let skua = Skua::run(&lab.a, "--interface a0 --max-entries 1000");
    let before = lab.counters();
    tcp::bulk(&lab.b, &lab.a, "10.7.1.1:5001", 32 << 20);
    let report = skua.stop();
    let (a0, m2) = since(&lab, before);
    let (received, sent) = report.directions("a0");
    assert_eq!(received, m2.rx);
    // veth with GRO counts what it received after it took the Ethernet header off.
    assert_eq!(received, a0.rx + Sum::new(0, 14 * a0.rx.packets));
    assert_eq!(sent, m2.tx);
    assert!(
        report.note("segmented").packets > 1000,
        "nothing was joined: {}",
        report.0
    );
}

/// Loopback has no wire, but its segments are told all the same; each packet once.
#[test]
fn loopback_counts_each_packet_once() {
    if !root_tests() {
        return;
    }
    let net = Net::new();
    // At its usual 65,536 hardly anything has to be cut.
    net.ip("link set lo mtu 1500");
    let skua = Skua::run(&net, "--interface lo --max-entries 1000");
    let before = net.settled_counters("lo");
    let receiver = net.inside(|| UdpSocket::bind("127.0.0.1:7001")).unwrap();
    let sender = net.inside(|| UdpSocket::bind("127.0.0.1:7000")).unwrap();
    for length in 0..200 {
        sender.send_to(&vec![0; length], "127.0.0.1:7001").unwrap();
        let mut buffer = [0; 300];
        assert_eq!(receiver.recv(&mut buffer).unwrap(), length);
    }
    tcp::bulk(&net, &net, "127.0.0.1:7002", 8 << 20);
    let report = skua.stop();
    let counted = net.settled_counters("lo") - before;
    assert_eq!(counted.rx, counted.tx);
    // The hook sees an Ethernet header, which loopback took off before it counted.
    let headers = Sum::new(0, 14 * counted.rx.packets);
    assert_eq!(report.directions("lo"), (report.seen(), Sum::ZERO));
    let segmented = report.note("segmented");
    assert_eq!(report.seen(), counted.rx + headers + segmented);
    assert!(segmented.packets > 1000, "{segmented:?}");
    assert_eq!(report.number("flows"), 2);
}
