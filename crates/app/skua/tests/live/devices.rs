//! Interfaces that are not plain Ethernet: VLAN tags, tun.

use std::{io::Write as _, net::UdpSocket, os::fd::AsFd as _};

use skua_kernel::{Attachment, Direction, HookKind};

use crate::lab::{
    Flow, Net, SendMode, Sender, Skua, Sum, Wire,
    packet::{tagging_program, tun},
    root_tests,
};

const DOT1Q: u16 = 0x8100;
const DOT1AD: u16 = 0x88a8;

/// The kernel takes the outermost tag off a received frame before the hook, but after veth counted
/// it: the counters agree, and the note tells how many tags were put back.
#[test]
fn tags_within_the_frame_are_counted() {
    if !root_tests() {
        return;
    }
    let wire = Wire::new();
    let skua = Skua::run(&wire.near, "--interface x0 --max-entries 1000");
    let before = wire.near.counters("x0");
    let sender = Sender::open(&wire.far, "g0", SendMode::Bypass);
    let back = Sender::open(&wire.near, "x0", SendMode::Queue);
    let flow = Flow::numbered(1);
    let mut sent = sender.repeat(1000, &flow.tagged(&[(DOT1Q, 7)], 100));
    sent += sender.repeat(500, &flow.tagged(&[(DOT1AD, 8), (DOT1Q, 9)], 120));
    // Three tags: the third ends decoding.
    sent += sender.repeat(
        100,
        &flow.tagged(&[(DOT1AD, 1), (DOT1Q, 2), (DOT1Q, 3)], 140),
    );
    let answered = back.repeat(300, &flow.reversed().tagged(&[(DOT1Q, 7)], 200));
    let flows = skua.flows();
    let report = skua.stop();
    let counted = wire.near.settled_counters("x0") - before;
    assert_eq!(counted.rx, sent.sum);
    assert_eq!(
        report.directions("x0"),
        (counted.rx, counted.tx + answered.dropped)
    );
    // Sent frames still hold their tags when the hook sees them.
    assert_eq!(report.note("tag_bytes"), Sum::new(1600, 6400));
    assert_eq!(flows.len(), 3);
    let layers: Vec<_> = flows
        .iter()
        .map(|f| f["layers"].as_str().unwrap())
        .collect();
    assert!(layers.contains(&"Ethernet/Dot1Q/IPv4/UDP"), "{layers:?}");
    let vlan = flows
        .iter()
        .find(|f| f["layers"] == "Ethernet/Dot1Q/IPv4/UDP");
    assert_eq!(
        Sum::of(&vlan.unwrap()["ba"]),
        answered.sum + answered.dropped
    );
}

/// A tag beside the packet, as network cards and VLAN devices hand it over, is in no interface's
/// byte counter, but on the wire: the note is the difference.
#[test]
fn tags_beside_the_frame_are_the_difference_to_the_counters() {
    if !root_tests() {
        return;
    }
    let wire = Wire::new();
    let index = wire.far.ifindex("g0");
    let program = tagging_program(42);
    let tagger = wire.far.inside(|| {
        Attachment::new(program.as_fd(), index, Direction::Egress, HookKind::Tcx).unwrap()
    });
    let skua = Skua::run(&wire.near, "--interface x0 --max-entries 1000");
    let before = wire.near.counters("x0").rx;
    let sender = Sender::open(&wire.far, "g0", SendMode::Queue);
    let mut sent = sender.repeat(1000, &Flow::numbered(1).frame(100));
    sent += sender.repeat(1000, &Flow::numbered(2).with_protocol(6).frame(61));
    let flows = skua.flows();
    let report = skua.stop();
    drop(tagger);
    let received = wire.near.settled_counters("x0").rx - before;
    let tags = report.note("tag_bytes");
    assert_eq!(received.packets, sent.sum.packets);
    assert_eq!(tags, Sum::new(received.packets, 4 * received.packets));
    assert_eq!(report.seen().packets, received.packets);
    assert_eq!(report.seen().bytes, received.bytes + tags.bytes);
    assert_eq!(flows.len(), 2);
    for flow in &flows {
        assert_eq!(flow["vlans"], serde_json::json!([42]), "{flow}");
    }
}

/// tun hands over IP packets without Ethernet header.
#[test]
fn a_tun_device_without_ethernet() {
    if !root_tests() {
        return;
    }
    let net = Net::new();
    let mut device = tun(&net, "t0");
    net.ip("addr add 10.8.0.1/24 dev t0");
    let skua = Skua::run(&net, "--interface t0 --max-entries 1000");
    let before = net.counters("t0");
    // The host does not forward: packets to others go no further.
    let flow = Flow::numbered(1);
    let mut written = Sum::ZERO;
    for size in 28..600 {
        device.write_all(&flow.packet(size)).unwrap();
        written += Sum::new(1, size as u64);
    }
    // Sent by the host. Nobody reads the device: its queue of 500 must hold them.
    let socket = net.inside(|| UdpSocket::bind("10.8.0.1:7000")).unwrap();
    let mut sent = Sum::ZERO;
    for size in 0..200 {
        socket.send_to(&vec![0; size], "10.8.0.9:7001").unwrap();
        sent += Sum::new(1, 28 + size as u64);
    }
    let flows = skua.flows();
    let report = skua.stop();
    let counted = net.settled_counters("t0") - before;
    assert_eq!(counted.rx, written);
    assert_eq!(report.directions("t0"), (written, sent));
    assert_eq!(report.seen(), written + sent);
    // tun counts as sent what was read from it; the rest waits or was dropped.
    assert_eq!((counted.tx, counted.tx_dropped), (Sum::ZERO, 0));
    assert_eq!(flows.len(), 2);
    for flow in &flows {
        assert_eq!(flow["layers"], "IPv4/UDP", "{flow}");
    }
}
