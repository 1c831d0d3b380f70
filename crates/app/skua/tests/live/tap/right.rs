//! Copies are what they should be, once each, and originals are as if there were no tap.

use std::collections::BTreeMap;

use skua_testkit::{Packet, checksum, flag, layer};

use super::{Lab, Listener, Tap, ToFile, ask, pair};
use crate::lab::{Flow, Net, root_tests, tcp, wait_for};

/// Frames of all sorts from station 1 to station 2, each different.
fn all_sorts() -> Vec<Vec<u8>> {
    let ethernet = || Packet::new().ethernet(1, 2);
    let v4 = || ethernet().ipv4("10.1.0.1", "10.1.0.2");
    let v6 = || ethernet().ipv6("fd00::1", "fd00::2");
    let part = |id: u16, offset: u16, more: bool| {
        let header = layer::Ipv4::between("10.1.0.1", "10.1.0.2").fragment(id, 17, offset, more);
        ethernet()
            .layer(header)
            .zeros(if more { 1480 } else { 333 })
            .build()
    };
    let mut frames = vec![
        v4().udp(1, 2).build(),
        v4().udp(1, 2).build_padded(),
        v4().udp(3, 4).payload(&[7; 1472]).build(),
        v4().udp(3, 4).zeros(8_900).build(),
        v4().tcp(5, 6, flag::SYN).build(),
        v4().icmp(8, 0, 1, 1).payload(b"echo").build(),
        v4().sctp(7, 8, 9).build(),
        v4().gre().ipv4("10.2.0.1", "10.2.0.2").udp(1, 1).build(),
        v4().udp(1, 4789)
            .vxlan(5)
            .ethernet(3, 4)
            .ipv4("10.3.0.1", "10.3.0.2")
            .udp(1, 1)
            .build(),
        part(77, 0, true),
        part(77, 185, false),
        v6().udp(1, 2).payload(b"six").build(),
        v6().fragment6(1, 0, true).zeros(1_232).build(),
        v6().fragment6(1, 154, false).zeros(100).build(),
        v6().icmpv6(128, 0, 1, 1).build(),
        ethernet()
            .vlan(7)
            .ipv4("10.1.0.1", "10.1.0.2")
            .udp(1, 2)
            .build(),
        ethernet()
            .tag(0x88a8, 5)
            .vlan(7)
            .ipv4("10.1.0.1", "10.1.0.2")
            .udp(1, 2)
            .build(),
        ethernet()
            .tag(0x8100, 0xe00a)
            .ipv6("fd00::1", "fd00::2")
            .tcp(1, 2, flag::ACK)
            .build(),
    ];
    // An EtherType that nobody knows.
    let mut strange = frames[0].clone();
    strange[12..14].copy_from_slice(&[0x88, 0xb5]);
    frames.push(strange);
    // Other traffic in between, whose order is to stay.
    let flow = |number| Flow::numbered(number).frame(60 + number as usize % 1_200);
    frames.extend((0..2_000).map(|number| {
        let mut frame = flow(number);
        frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, 2]);
        frame
    }));
    frames
}

fn send(lab: &Lab, frames: &[Vec<u8>]) {
    let sent = lab
        .sender()
        .send(frames.len() as u64, |n| frames[n as usize].clone());
    assert_eq!((sent.sum.packets, sent.error), (frames.len() as u64, None));
}

/// A frame with a tag of 802.1Q before all else.
fn tagged(frame: &[u8], vid: u16) -> Vec<u8> {
    [&frame[..12], &[0x81, 0], &vid.to_be_bytes(), &frame[12..]].concat()
}

/// What comes to the other host without a tap: bridges cut padding off.
fn without_tap(lab: &Lab, originals: &mut Listener, frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
    send(lab, frames);
    let found = originals.frames(frames.len());
    assert_eq!(found.len(), frames.len());
    assert!(
        found
            .iter()
            .zip(frames)
            .all(|(found, sent)| sent.starts_with(found))
    );
    found
}

#[track_caller]
fn assert_same(found: &[Vec<u8>], expected: &[Vec<u8>], what: &str) {
    for (number, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert_eq!(found, expected, "{what}: frame {number}");
    }
    assert_eq!(found.len(), expected.len(), "{what}");
}

#[test]
fn each_packet_comes_once_and_as_it_was() {
    if !root_tests() {
        return;
    }
    let lab = Lab::new();
    let skua = lab.skua();
    let frames = all_sorts();
    let mut originals = Listener::open(&lab.b, "vb", "");
    let mut copies = Listener::open(&lab.monitor, "vm", "");
    let usual = without_tap(&lab, &mut originals, &frames);
    let tap = Tap::create(&lab.switch, &skua, "--from pa --to mon0");
    assert_eq!(tap.show()["Monitors"][0]["Direct"], false);
    send(&lab, &frames);
    assert_same(&copies.frames(frames.len()), &frames, "copies");
    assert_same(&originals.frames(frames.len()), &usual, "originals");
    let count = frames.len() as u64;
    assert_eq!(tap.counts("Failed"), (count, count, 0));
    assert_eq!(tap.show()["Monitors"][0]["Sent"]["Packets"], count);
    // The same without a way of its own, where the monitor gets nothing but packets of a wire.
    lab.switch
        .ethtool("mon0", "tso off gso off tx off tx-udp-segmentation off");
    tap.wait("the straight way", |tap| {
        tap["Monitors"][0]["Direct"] == true
    });
    send(&lab, &frames);
    assert_same(&copies.frames(frames.len()), &frames, "straight copies");
    assert_same(
        &originals.frames(frames.len()),
        &usual,
        "originals beside straight copies",
    );
    assert_eq!(tap.counts("Failed"), (2 * count, 2 * count, 0));
    // And when it is gone, nothing comes.
    tap.delete();
    send(&lab, &frames);
    assert_same(
        &originals.frames(frames.len()),
        &usual,
        "originals without a tap",
    );
    assert_eq!(copies.frames(0), [[0u8; 0]; 0]);
}

#[test]
fn tags_tell_where_a_copy_is_from() {
    if !root_tests() {
        return;
    }
    let lab = Lab::new();
    let skua = lab.skua();
    let frames = all_sorts();
    let mut originals = Listener::open(&lab.b, "vb", "");
    let mut copies = Listener::open(&lab.monitor, "vm", "");
    let usual = without_tap(&lab, &mut originals, &frames);
    let tap = Tap::create(&lab.switch, &skua, "--from pa,pb --to mon0 --vlan 100");
    let straight = |yes: bool| {
        let switch = if yes { "off" } else { "on" };
        let features = format!("tso {switch} gso {switch} tx {switch}");
        lab.switch.ethtool("mon0", &features);
        tap.wait("the way", |tap| tap["Monitors"][0]["Direct"] == yes);
    };
    for way in [false, true] {
        straight(way);
        send(&lab, &frames);
        let found = copies.frames(2 * frames.len());
        for (vid, frames) in [(100, &frames), (101, &usual)] {
            let expected: Vec<_> = frames.iter().map(|frame| tagged(frame, vid)).collect();
            let head = [0x81, 0, 0, vid as u8];
            let of_it: Vec<_> = found
                .iter()
                .filter(|f| f[12..16] == head)
                .cloned()
                .collect();
            assert_same(&of_it, &expected, "tagged");
        }
        assert_eq!(found.len(), 2 * frames.len());
        assert_same(&originals.frames(frames.len()), &usual, "originals");
    }
    // Only where they came in.
    tap.update(&["--dedup"]);
    send(&lab, &frames);
    let expected: Vec<_> = frames.iter().map(|frame| tagged(frame, 100)).collect();
    assert_same(&copies.frames(frames.len()), &expected, "each once");
    let (_, _, twice) = tap.counts("Duplicate");
    assert_eq!(twice, frames.len() as u64);
    assert_same(&originals.frames(frames.len()), &usual, "originals");
}

#[test]
fn copies_are_cut_and_originals_are_not() {
    if !root_tests() {
        return;
    }
    let lab = Lab::new();
    let skua = lab.skua();
    let frames = all_sorts();
    let mut originals = Listener::open(&lab.b, "vb", "");
    let mut copies = Listener::open(&lab.monitor, "vm", "");
    let usual = without_tap(&lab, &mut originals, &frames);
    let tap = Tap::create(&lab.switch, &skua, "--from pa --to mon0 --cut 128 --vlan 9");
    send(&lab, &frames);
    // A tag that the kernel holds beside the packet is not cut.
    let cut = |frame: &Vec<u8>| {
        let beside = if matches!(frame[12..14], [0x81, 0] | [0x88, 0xa8]) {
            4
        } else {
            0
        };
        tagged(&frame[..frame.len().min(128 + beside)], 9)
    };
    let expected: Vec<_> = frames.iter().map(cut).collect();
    assert_same(&copies.frames(frames.len()), &expected, "cut");
    assert_same(&originals.frames(frames.len()), &usual, "originals");
    let cuts = frames.iter().filter(|frame| frame.len() > 132).count();
    let counted = tap.show()["Monitors"][0]["Cut"]["Packets"]
        .as_u64()
        .unwrap();
    assert!(counted.abs_diff(cuts as u64) <= 130, "{counted} {cuts}");
}

/// What a segment of TCP carries: its sequence number and its bytes, if all its checksums are right.
fn segment(frame: &[u8]) -> (u32, Vec<u8>) {
    let total = 14 + usize::from(u16::from_be_bytes([frame[16], frame[17]]));
    let (ip, segment) = (&frame[14..34], &frame[34..total]);
    assert_eq!(checksum::internet(&[ip]), 0, "{frame:02x?}");
    let length = (segment.len() as u16).to_be_bytes();
    let pseudo = [&ip[12..20], &[0, 6], &length].concat();
    assert_eq!(checksum::internet(&[&pseudo, segment]), 0, "{frame:02x?}");
    let head = usize::from(segment[12] >> 4) * 4;
    let sequence = u32::from_be_bytes(segment[4..8].try_into().unwrap());
    (sequence, segment[head..].to_vec())
}

#[test]
fn super_packets_come_as_a_wire_would_have_them() {
    const BYTES: usize = 3_000_000;
    if !root_tests() {
        return;
    }
    let lab = Lab::new().with_addresses();
    for (net, interface) in [(&lab.a, "va"), (&lab.b, "vb")] {
        net.ip(&format!("link set {interface} mtu 1500"));
    }
    let skua = lab.skua();
    let mut copies = Listener::open(&lab.monitor, "vm", "src host 10.9.0.1 and tcp");
    let words = [
        "tap",
        "create",
        "--from",
        "pa",
        "--to",
        "mon0",
        "--match",
        "tcp port 5001",
    ];
    let tap = Tap::of(&lab.switch, &skua, &words);
    tcp::bulk(&lab.a, &lab.b, "10.9.0.2:5001", BYTES);
    let received = lab.switch.settled_counters("pa").rx;
    let show = tap.show();
    let segments = show["Sources"][0]["Received"]["Copied"]["Packets"]
        .as_u64()
        .unwrap();
    assert!(
        segments > received.packets,
        "{segments}: no super-packet passed"
    );
    let frames = copies.frames(segments as usize);
    assert_eq!(frames.len() as u64, segments);
    assert!(frames.iter().all(|frame| frame.len() <= 1_514));
    let stream: BTreeMap<u32, Vec<u8>> = frames
        .iter()
        .map(|frame| segment(frame))
        .filter(|(_, bytes)| !bytes.is_empty())
        .collect();
    // The stream is there without a gap, whatever was sent twice.
    let first = *stream.keys().next().unwrap();
    let mut next = first;
    for (sequence, bytes) in &stream {
        assert!(*sequence <= next, "a gap before {sequence}");
        assert!(bytes.iter().all(|byte| *byte == 0x5a));
        next = next.max(sequence + bytes.len() as u32);
    }
    assert_eq!((next - first) as usize, BYTES);
    assert_eq!(tap.counts("Failed").2, 0);
    // Left whole they are fewer and longer.
    tap.update(&["--whole"]);
    tcp::bulk(&lab.a, &lab.b, "10.9.0.2:5001", BYTES);
    wait_for("a super-packet", || {
        let frames = copies.frames(1);
        frames.iter().any(|frame| frame.len() > 9_100).then_some(())
    });
}

#[test]
fn a_monitor_may_be_in_another_namespace() {
    if !root_tests() {
        return;
    }
    let (lab, room, ids) = (Lab::new(), Net::new(), Net::new());
    pair(&room, "in0", &ids, "out0", 4);
    let skua = lab.skua();
    let frames = all_sorts();
    let mut copies = Listener::open(&ids, "out0", "");
    let mut originals = Listener::open(&lab.b, "vb", "");
    let usual = without_tap(&lab, &mut originals, &frames);
    let monitor = format!("in0@{}", room.name);
    let words = [
        "tap",
        "create",
        "--from",
        "pa",
        "--to",
        &monitor,
        "--direction",
        "in",
    ];
    let tap = Tap::of(&lab.switch, &skua, &words);
    send(&lab, &frames);
    assert_same(&copies.frames(frames.len()), &frames, "copies");
    assert_same(&originals.frames(frames.len()), &usual, "originals");
    tap.delete();
    for net in [&lab.switch, &room] {
        assert!(
            !net.ip("link").contains("sktap"),
            "the tap's own interfaces are left"
        );
    }
}

/// Frames of one conversation, both ways.
fn conversation(number: u32) -> [Vec<u8>; 2] {
    let flow = Flow::numbered(number);
    [flow, flow.reversed()].map(|flow| {
        let mut frame = flow.frame(80);
        frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, 2]);
        frame
    })
}

#[test]
fn conversations_are_spread_and_both_ways_stay_together() {
    if !root_tests() {
        return;
    }
    let (lab, second) = (Lab::new(), Net::new());
    pair(&lab.switch, "mon1", &second, "vm", 4);
    let skua = lab.skua();
    let mut listeners = [&lab.monitor, &second].map(|net| Listener::open(net, "vm", ""));
    let tap = Tap::create(&lab.switch, &skua, "--from pa --to mon0,mon1");
    let frames: Vec<Vec<u8>> = (0..500).flat_map(conversation).collect();
    send(&lab, &frames);
    wait_for("all copies", || {
        (tap.counts("Failed").1 == 1_000).then_some(())
    });
    let [one, other] = listeners.each_mut().map(|listener| listener.frames(200));
    assert_eq!(one.len() + other.len(), frames.len());
    assert!(one.len() % 2 == 0 && one.len() >= 200 && other.len() >= 200);
    for number in 0..500 {
        let [there, back] = conversation(number);
        assert_eq!(
            one.contains(&there),
            one.contains(&back),
            "conversation {number}"
        );
    }
    // One goes: the other gets all.
    lab.switch.ip("link set mon1 down");
    tap.wait("the loss", |tap| tap["Monitors"][1]["State"] == "error");
    send(&lab, &frames);
    assert_same(&listeners[0].frames(frames.len()), &frames, "all of them");
}

#[test]
fn whose_packets_is_said_by_thousands_of_addresses() {
    if !root_tests() {
        return;
    }
    let lab = Lab::new();
    let skua = lab.skua();
    let mut copies = Listener::open(&lab.monitor, "vm", "");
    let host = |n: u32| format!("10.77.{}.{}", n >> 8, n & 255);
    let host6 = |n: u32| format!("fd0a::{n:x}");
    let many: Vec<String> = (0..5_000).map(host).chain((0..500).map(host6)).collect();
    let lists = [
        ("--net", many.join(",") + ",10.3.0.0/16,fd07::/32"),
        ("--src-net", "10.4.0.0/16".to_owned()),
        ("--dst-mac", "02:00:00:00:00:fe".to_owned()),
    ];
    let mut words = vec!["tap", "create", "--from", "pa", "--to", "mon0"];
    for (flag, list) in &lists {
        words.extend([flag, list.as_str()]);
    }
    let tap = Tap::of(&lab.switch, &skua, &words);
    let udp = |from: &str, to: &str| {
        Packet::new()
            .ethernet(1, 2)
            .ipv4(from, to)
            .udp(1, 2)
            .build()
    };
    let six = |from: &str, to: &str| {
        Packet::new()
            .ethernet(1, 2)
            .ipv6(from, to)
            .udp(1, 2)
            .build()
    };
    let mut wanted = vec![
        udp("10.77.19.135", "1.1.1.1"),
        udp("1.1.1.1", "10.77.0.0"),
        udp("10.3.9.9", "1.1.1.1"),
        udp("1.1.1.1", "10.3.0.1"),
        udp("10.4.0.1", "1.1.1.1"),
        six("fd07::5", "fd99::1"),
        six("fd99::1", "fd07:0:1::1"),
        Packet::new()
            .ethernet(1, 0xfe)
            .ipv4("1.1.1.1", "2.2.2.2")
            .udp(1, 2)
            .build(),
        Packet::new()
            .ethernet(1, 2)
            .vlan(5)
            .ipv4("10.3.0.1", "2.2.2.2")
            .udp(1, 2)
            .build(),
    ];
    for n in 0..500 {
        wanted.push(udp("1.1.1.1", &host(n * 10)));
        wanted.push(six(&host6(n), "fd99::1"));
    }
    let others = [
        udp("10.77.19.136", "1.1.1.1"),
        six("fd0a::1f4", "fd99::1"),
        udp("1.1.1.1", "10.4.0.1"),
        six("fd99::1", "fd08::1"),
        Packet::new()
            .ethernet(0xfe, 2)
            .ipv4("1.1.1.1", "2.2.2.2")
            .udp(1, 2)
            .build(),
    ];
    send(&lab, &[&wanted[..], &others].concat());
    assert_same(&copies.frames(wanted.len()), &wanted, "by address");
    // Others in their place, without a word of the rest.
    tap.update(&["--net", "10.77.19.136", "--src-net", "", "--dst-mac", ""]);
    send(&lab, &[&wanted[..], &others].concat());
    assert_same(&copies.frames(1), &others[..1], "by other addresses");
}

#[test]
fn a_change_loses_no_packet_and_doubles_none() {
    const PACKETS: u64 = 60_000;
    if !root_tests() {
        return;
    }
    let lab = Lab::new();
    let skua = lab.skua();
    let mut copies = Listener::open(&lab.monitor, "vm", "");
    let tap = Tap::create(
        &lab.switch,
        &skua,
        "--from pa,pb --to mon0 --dedup --match udp",
    );
    let frame = |n: u64| {
        let mut frame = Flow::numbered(n as u32).frame(64);
        frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, 2]);
        frame
    };
    // Each choice takes all of it.
    let choices: [&[&str]; 4] = [
        &["--match", "udp port 6000", "--net", ""],
        &["--net", "10.0.0.0/8,172.16.0.1", "--match", "ip"],
        &["--match", "", "--src-mac", "02:00:00:00:00:01"],
        &[
            "--match",
            "not tcp",
            "--src-mac",
            "",
            "--net",
            "172.16.0.0/24",
        ],
    ];
    let mut found = Vec::new();
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| {
            let sender = lab.sender();
            let mut sent = 0;
            while sent < PACKETS {
                let before = sent;
                sent += sender.send(500, |n| frame(before + n)).sum.packets;
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
        });
        let mut changes = 0;
        while !sending.is_finished() {
            tap.update(choices[changes % choices.len()]);
            changes += 1;
            // A block of its ring each hundredth of a second, however little is in it.
            copies.read(&mut found);
        }
        assert!(changes >= 4, "{changes}");
    });
    found.extend(copies.frames(PACKETS as usize - found.len()));
    let expected: Vec<_> = (0..PACKETS).map(frame).collect();
    assert_same(&found, &expected, "through all changes");
    assert_eq!(tap.counts("Failed"), (2 * PACKETS, PACKETS, 0));
}

#[test]
fn a_tap_follows_its_query() {
    if !root_tests() {
        return;
    }
    let lab = Lab::new();
    let skua = lab.skua();
    let query = "G.V().Has('Name', Regex('p.*'), 'Type', 'veth')";
    let words = [
        "tap",
        "create",
        "--gremlin",
        query,
        "--to",
        "mon0",
        "--vlan",
        "20",
    ];
    let made = ask(&lab.switch, &skua, &words);
    let tap = Tap {
        net: &lab.switch,
        skua: &skua,
        id: made["UUID"].as_str().unwrap().to_owned(),
    };
    let names = |tap: &serde_json::Value, state: &str| {
        let sources = tap["Sources"].as_array().unwrap().clone();
        let mut names: Vec<_> = sources
            .into_iter()
            .filter(|source| source["State"] == state)
            .map(|source| source["Name"].as_str().unwrap().to_owned())
            .collect();
        names.sort();
        names.join(" ")
    };
    tap.wait("both ports", |tap| names(tap, "active") == "pa pb");
    let extra = Net::new();
    pair(&lab.switch, "pc", &extra, "vc", 5);
    tap.wait("the new one", |tap| names(tap, "active") == "pa pb pc");
    lab.switch.ip("link del pc");
    tap.wait("its end", |tap| {
        names(tap, "active") == "pa pb" && names(tap, "error") == "pc"
    });
}

/// A way from the switch to a remote monitor: `un0` 10.50.0.1 and fd50::1 — `far0` 10.50.0.2, fd50::2.
fn underlay(lab: &Lab) -> Net {
    let far = Net::new();
    pair(&lab.switch, "un0", &far, "far0", 5);
    for (net, interface, number) in [(&lab.switch, "un0", 1), (&far, "far0", 2)] {
        net.ip(&format!("link set {interface} mtu 9200"));
        net.sysctl(&format!("ipv6/conf/{interface}/disable_ipv6"), "0");
        net.ip(&format!("addr add 10.50.0.{number}/24 dev {interface}"));
        net.ip(&format!("addr add fd50::{number}/64 dev {interface} nodad"));
    }
    far
}

#[test]
fn tunnels_carry_copies_to_a_remote_monitor() {
    if !root_tests() {
        return;
    }
    let lab = Lab::new();
    let far = underlay(&lab);
    let skua = lab.skua();
    let frames = all_sorts();
    let mut originals = Listener::open(&lab.b, "vb", "");
    let usual = without_tap(&lab, &mut originals, &frames);
    // Target, what finds its packets, bytes before the copy, what stands there.
    let tunnels: [(&str, &str, usize, usize, &[u8]); 5] = [
        (
            "vxlan://10.50.0.2/42",
            "udp port 4789",
            50,
            42,
            &[8, 0, 0, 0, 0, 0, 42, 0],
        ),
        (
            "vxlan://[fd50::2]:8472/42",
            "udp port 8472",
            70,
            62,
            &[8, 0, 0, 0, 0, 0, 42, 0],
        ),
        (
            "geneve://10.50.0.2/66051",
            "udp port 6081",
            50,
            42,
            &[0, 0, 0x65, 0x58, 1, 2, 3, 0],
        ),
        (
            "erspan://10.50.0.2/5",
            "ip proto 47",
            54,
            34,
            &[0x10, 0, 0x22, 0xeb],
        ),
        (
            "erspan://[fd50::2]/5",
            "ip6 proto 47",
            74,
            54,
            &[0x10, 0, 0x22, 0xeb],
        ),
    ];
    for (target, filter, outer, at, head) in tunnels {
        let mut copies = Listener::open(&far, "far0", filter);
        // What leaves by the interface that is tapped, too, is known by its tunnel.
        // Nobody takes the tunnels' packets there, and the kernel says so.
        let not = "not arp and not ip6 multicast and not net fe80::/10 and \
                   not (icmp and host 10.50.0.2) and not (icmp6 and net fd50::/64)";
        let words = ["tap", "create", "--from", "pa,un0", "--to", target];
        let more = ["--vlan", "7", "--match", not];
        let tap = Tap::of(&lab.switch, &skua, &[&words[..], &more].concat());
        send(&lab, &frames);
        let found = copies.frames(frames.len());
        let number = tap.show()["Sources"]
            .as_array()
            .unwrap()
            .iter()
            .position(|source| source["Name"] == "pa")
            .unwrap() as u16;
        for (place, frame) in found.iter().enumerate() {
            assert_eq!(frame[at..at + head.len()], *head, "{target}");
            if target.starts_with("erspan") {
                assert_eq!(frame[at + 4..at + 8], (place as u32).to_be_bytes());
                assert_eq!(frame[at + 8..at + 12], [0x20, 0, 0, 5]);
            }
            if outer < 60 {
                assert_eq!(checksum::internet(&[&frame[14..34]]), 0, "{target}");
                let length = u16::from_be_bytes([frame[16], frame[17]]);
                assert_eq!(usize::from(length) + 14, frame.len());
            }
        }
        let inner: Vec<_> = found.iter().map(|frame| frame[outer..].to_vec()).collect();
        let expected: Vec<_> = frames
            .iter()
            .map(|frame| tagged(frame, 7 + number))
            .collect();
        assert_same(&inner, &expected, target);
        assert_same(&originals.frames(frames.len()), &usual, "originals");
        assert_eq!(tap.show()["Monitors"][0]["Failed"]["Packets"], 0);
        tap.delete();
    }
}

#[test]
fn a_real_tunnel_understands_ours_and_what_is_too_long_is_cut() {
    if !root_tests() {
        return;
    }
    let lab = Lab::new();
    let far = underlay(&lab);
    far.ip("link add vx0 mtu 8900 type vxlan id 42 local 10.50.0.2 dstport 4789 dev far0");
    far.ip("link set vx0 up");
    let skua = lab.skua();
    let frames: Vec<_> = (0..500)
        .map(|n| Flow::numbered(n).frame(60 + n as usize * 2))
        .collect();
    let mut copies = Listener::open(&far, "vx0", "");
    let tap = Tap::create(&lab.switch, &skua, "--from pa --to vxlan://10.50.0.2/42");
    send(&lab, &frames);
    assert_same(
        &copies.frames(frames.len()),
        &frames,
        "through the kernel's VXLAN",
    );
    lab.switch.ip("link set un0 mtu 700");
    // Longer than before, so that they are seen to be cut.
    tap.wait("the smaller interface", |tap| {
        send(&lab, &frames[499..]);
        tap["Monitors"][0]["Cut"]["Packets"] != 0
    });
    copies.frames(1);
    send(&lab, &frames);
    let cut: Vec<_> = frames
        .iter()
        .map(|frame| frame[..frame.len().min(700 + 14 - 50)].to_vec())
        .collect();
    assert_same(&copies.frames(frames.len()), &cut, "cut to fit");
    // The far side goes: originals do not.
    let mut originals = Listener::open(&lab.b, "vb", "");
    far.ip("link set far0 down");
    send(&lab, &frames);
    assert_eq!(originals.frames(frames.len()).len(), frames.len());
}

#[test]
fn packets_come_as_a_file_with_who_sent_them() {
    use std::{
        io::Write as _,
        net::{TcpListener, TcpStream},
    };
    if !root_tests() {
        return;
    }
    let lab = Lab::new().with_addresses();
    lab.switch.ip("addr add 10.9.0.9/24 dev br0");
    let skua = lab.skua();
    let options = "--from pa --cut 200";
    let expression = "tcp port 5002 or vlan 5";
    let words: Vec<&str> = options.split(' ').chain(["--match", expression]).collect();
    let written = ToFile::create(&lab.switch, &skua, "file", &words);
    let tap = &written.tap;
    let udp = |n: u64| Flow::numbered(n as u32).tagged(&[(0x8100, 5)], 100 + n as usize);
    lab.sender().send(300, udp);
    // This process serves in the switch's namespace.
    let listener = lab
        .switch
        .inside(|| TcpListener::bind("10.9.0.9:5002"))
        .unwrap();
    let mut stream = lab
        .a
        .inside(|| TcpStream::connect("10.9.0.9:5002"))
        .unwrap();
    let _served = listener.accept().unwrap();
    // A look at all sockets makes it known whose it is.
    skua.fresh_summary();
    stream.write_all(b"hello").unwrap();
    let (matched, copied, _) = wait_for("all of it", || {
        let counts = tap.counts("Full");
        (counts.0 > 304).then_some(counts)
    });
    assert_eq!(matched, copied);
    let text = written.read();
    let path = std::env::temp_dir().join(format!("skua-tap-{}.pcapng", std::process::id()));
    std::fs::write(&path, &text).unwrap();
    let mut file = pcap::Capture::from_file(&path).unwrap();
    let mut frames = Vec::new();
    while let Ok(packet) = file.next_packet() {
        frames.push((packet.data.to_vec(), packet.header.len));
    }
    let tagged: Vec<_> = frames
        .iter()
        .filter(|(data, _)| data[12..14] == [0x81, 0])
        .collect();
    assert_eq!(tagged.len(), 300);
    for (n, (data, length)) in (0..).zip(tagged) {
        let frame = udp(n);
        assert_eq!(*length as usize, frame.len());
        // The tag stands beside the packet and is not cut.
        assert_eq!(*data, frame[..frame.len().min(204)]);
    }
    let me = format!("({})", std::process::id());
    let has = |text: &[u8], part: &str| text.windows(part.len()).any(|w| w == part.as_bytes());
    assert!(has(&text, "pa") && has(&text, &me), "nobody is named");
    std::fs::remove_file(&path).unwrap();
    // Another that is made first and watched later; who does not watch loses, and it is counted.
    let tap = Tap::create(&lab.switch, &skua, "--from pa --to stream --match udp");
    let sent = lab.sender().send(40_000, udp_of(1_400));
    assert_eq!(sent.sum.packets, 40_000);
    let (_, copied, lost) = tap.counts("Full");
    assert!(copied > 0 && lost > 0, "{copied} {lost}");
    let metrics = skua.get("/metrics");
    assert!(
        metrics.contains("skua_tap_dropped_packets_total{"),
        "{metrics}"
    );
}

fn udp_of(size: usize) -> impl FnMut(u64) -> Vec<u8> {
    move |n| Flow::numbered(n as u32).frame(size)
}
