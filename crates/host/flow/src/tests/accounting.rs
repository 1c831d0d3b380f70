//! Keys, packets and bytes.

use super::{packets::*, *};
use crate::{EndReason, FlowKey, FragmentNotes, HashKey, Network, Outcome, Tunnel};
use std::time::Duration;

#[test]
fn both_directions_are_one_flow() {
    let flow = only(&[back(b"abc"), there(b""), back(b"")]);
    assert_eq!(flow.key.ip(&flow.key.lo), Some([10, 0, 0, 1].into()));
    assert_eq!(flow.key.ip(&flow.key.hi), Some([10, 0, 0, 2].into()));
    assert_eq!(flow.key.lo_port, 1000u16.to_be_bytes());
    assert_eq!(flow.key.hi_port, 2000u16.to_be_bytes());
    assert_eq!((flow.key.proto, flow.key.network()), (17, Network::V4));
    assert!(flow.key.ethernet() && !flow.lo_first);
    assert_eq!(flow.lo_sent, counted(1, 42));
    assert_eq!(flow.hi_sent, counted(2, 45 + 42));
    assert_eq!((flow.first_ns, flow.last_ns), (NOON, NOON + 2 * MS));
    assert_eq!(flow.end, Some(EndReason::Shutdown));
}

#[test]
fn equal_addresses_are_ordered_by_port_as_network_bytes() {
    // 256 is 01 00, 255 is 00 ff: as bytes in network order 255 is lower.
    let flow = only(&[ethernet(0x0800, &ipv4(1, 1, 17, &udp(256, 255, b"")))]);
    assert_eq!((flow.key.lo_port, flow.key.hi_port), ([0, 255], [1, 0]));
    assert!(!flow.lo_first);
}

#[test]
fn flows_without_ip_have_mac_addresses() {
    let flow = only(&[ethernet(0x0806, &[0; 46])]);
    assert_eq!((flow.key.detail, flow.key.proto), (0x0806, 0));
    assert_eq!(flow.key.network(), Network::None);
    assert_eq!(flow.key.lo[10..], [2, 0, 0, 0, 0, 1]);
    assert_eq!(flow.key.hi[10..], [2, 0, 0, 0, 0, 2]);
    assert!(flow.lo_first);
    assert_eq!(flow.lo_sent, counted(1, 60));
}

#[test]
fn packets_without_link_header() {
    let mut table = table();
    table.packet(ETH0, &raw(&ipv4(1, 2, 17, &udp(1, 2, b""))), NOON);
    table.packet(ETH0, &raw(&[0x70; 10]), NOON);
    let mut flows = finish(&mut table);
    flows.sort_by_key(|flow| flow.key.proto);
    assert_eq!((flows[0].key.lo, flows[0].key.detail), ([0; 16], 0));
    assert_eq!(flows[0].lo_sent, counted(1, 10));
    assert_eq!(flows[1].lo_sent, counted(1, 28));
    assert!(!flows[1].key.ethernet());
}

#[test]
fn icmp_queries_share_a_flow_and_know_who_asks() {
    let request = ethernet(0x0800, &ipv4(2, 1, 1, &icmp(8, 0, 77)));
    let reply = ethernet(0x0800, &ipv4(1, 2, 1, &icmp(0, 0, 77)));
    for frames in [
        [request.clone(), reply.clone()],
        [reply.clone(), request.clone()],
    ] {
        let flow = only(&frames);
        assert_eq!((flow.key.lo_port, flow.key.hi_port), ([8, 0], [8, 0]));
        assert_eq!(flow.key.detail, 77);
        assert_eq!(flow.tcp.lo_opened, Some(false), "hi asks");
        assert_eq!((flow.lo_sent.packets, flow.hi_sent.packets), (1, 1));
    }
    // Other identifiers and types are other flows.
    let mut table = table();
    let other = ethernet(0x0800, &ipv4(2, 1, 1, &icmp(8, 0, 78)));
    let unreachable = ethernet(0x0800, &ipv4(2, 1, 1, &icmp(3, 1, 77)));
    feed(&mut table, &[request, other, unreachable]);
    assert_eq!(table.len(), 3);

    for (one, two) in [
        (128, 129),
        (130, 131),
        (133, 134),
        (135, 136),
        (139, 140),
        (144, 145),
    ] {
        let there = ethernet(0x86dd, &ipv6(1, 2, 58, &icmp(one, 0, 5)));
        let back = ethernet(0x86dd, &ipv6(2, 1, 58, &icmp(two, 0, 5)));
        let flow = only(&[back, there]);
        assert_eq!(flow.key.lo_port, [one, 0]);
        assert_eq!(flow.key.detail, if one == 128 { 5 } else { 0 });
    }
    let flow = only(&[
        ethernet(0x0800, &ipv4(1, 2, 1, &icmp(9, 0, 1))),
        ethernet(0x0800, &ipv4(2, 1, 1, &icmp(10, 0, 1))),
    ]);
    assert_eq!((flow.key.lo_port, flow.key.detail), ([10, 0], 0));
}

#[test]
fn later_fragments_take_the_ports_of_the_first() {
    let first = ethernet(
        0x0800,
        &ipv4_fragment(1, 2, 17, 0x2000, 9, &udp(1000, 2000, b"12345678")),
    );
    let later = ethernet(0x0800, &ipv4_fragment(1, 2, 17, 0x0002, 9, b"more"));
    let flow = only(&[first.clone(), later.clone()]);
    assert_eq!(flow.key.hi_port, 2000u16.to_be_bytes());
    assert_eq!(flow.lo_sent, counted(2, 50 + 38));

    // Another datagram, the other direction, another interface, or too early: no note.
    let other_id = ethernet(0x0800, &ipv4_fragment(1, 2, 17, 0x0002, 10, b"more"));
    let other_way = ethernet(0x0800, &ipv4_fragment(2, 1, 17, 0x0002, 9, b"more"));
    for frames in [[&first, &other_id], [&first, &other_way], [&later, &first]] {
        let mut table = table();
        feed(&mut table, &frames.map(Clone::clone));
        assert_eq!(table.len(), 2);
    }
    let mut table = table();
    table.packet(ETH0, &Frame::ethernet(&first), NOON);
    let eth1 = CapturePoint { ifindex: 3, ..ETH0 };
    table.packet(eth1, &Frame::ethernet(&later), NOON);
    let ports: Vec<_> = finish(&mut table).iter().map(|f| f.key.lo_port).collect();
    assert_eq!(ports.iter().filter(|port| **port == [0, 0]).count(), 1);

    // ICMP: type and identifier likewise.
    let first = ethernet(0x0800, &ipv4_fragment(1, 2, 1, 0x2000, 9, &icmp(8, 0, 77)));
    let later = ethernet(0x0800, &ipv4_fragment(1, 2, 1, 0x0001, 9, b"more"));
    assert_eq!(only(&[first, later]).key.detail, 77);
}

#[test]
fn fragment_notes_are_bounded() {
    let fragment = |id: u16, fragment| {
        ethernet(
            0x0800,
            &ipv4_fragment(1, 2, 17, fragment, id, &udp(1000, 2000, b"")),
        )
    };
    let mut frames: Vec<_> = (0..=FragmentNotes::LIMIT as u16)
        .map(|id| fragment(id, 0x2000))
        .collect();
    // The oldest was evicted for one too many, the second oldest stays.
    frames.push(fragment(0, 1));
    frames.push(fragment(1, 1));
    let mut table = table();
    feed(&mut table, &frames);
    let mut flows = finish(&mut table);
    flows.sort_by_key(|flow| flow.key.lo_port);
    let packets: Vec<_> = flows.iter().map(|flow| flow.lo_sent.packets).collect();
    assert_eq!(packets, [1, FragmentNotes::LIMIT as u64 + 2]);
}

#[test]
fn tags_and_super_packets() {
    let mut table = table();
    let data = client(ACK, 1, &[0; 3000]);
    let frame = Frame {
        segments: 3,
        stripped_vlan: Some(7),
        ..Frame::ethernet(&data)
    };
    table.packet(ETH0, &frame, NOON);
    let flow = finish(&mut table)[0];
    assert_eq!(flow.key.vlan, [0x1007, 0]);
    // Three packets, each with its tag and its 54 bytes of headers.
    assert_eq!(flow.lo_sent, counted(3, 3000 + 3 * 58));
    let notes = points(&table);
    assert_eq!(notes[Cause::Segmented], counted(2, 2 * 58));
    assert_eq!(notes[Cause::TagBytes], counted(1, 4));
    assert_eq!(notes.lost(), counted(0, 0));
    // Without what the notes say it is what the interface counts.
    assert_eq!(flow.lo_sent.bytes - 2 * 58 - 4, data.len() as u64);
}

#[test]
fn bytes_are_those_on_the_wire() {
    let mut table = table();
    let data = there(b"");
    let frame = Frame {
        wire_len: 1500,
        ..Frame::ethernet(&data)
    };
    table.packet(ETH0, &frame, NOON);
    assert_eq!(finish(&mut table)[0].lo_sent, counted(1, 1500));
}

#[test]
fn malformed_packets_stay_in_flows_and_are_noted_once() {
    let mut table = table();
    // A transport header that is cut off: IP flow without ports.
    feed(&mut table, &[ethernet(0x0800, &ipv4(1, 2, 6, &[0; 19]))]);
    // An IP header that is cut off: MAC addresses. Both levels of a tunnel: one note for each packet.
    feed(&mut table, &[ethernet(0x0800, &[0x45; 19])]);
    feed(&mut table, &[vxlan(1, &ethernet(0x0800, &[0x45; 19]))]);
    assert_eq!(lost(&table, Cause::Malformed), counted(3, 0));
    assert_eq!(points(&table).lost(), counted(0, 0));
    let flows = finish(&mut table);
    let tcp = flows.iter().find(|f| f.key.proto == 6).unwrap();
    assert_eq!((tcp.key.lo_port, tcp.key.network()), ([0; 2], Network::V4));
    assert_eq!(tcp.tcp.flags, [0; 2]);
    let none = flows.iter().filter(|f| f.key.network() == Network::None);
    assert!(none.clone().all(|f| f.key.detail == 0x0800));
    assert_eq!(none.count(), 2);
}

#[test]
fn truncated_frames_are_lost() {
    let mut table = table();
    let outcome = table.packet(ETH0, &Frame::ethernet(&[0; 13]), NOON);
    assert_eq!(outcome, Outcome::Lost(Cause::Truncated));
    table.packets(&[captured(Frame::ethernet(&[0; 10]), NOON)]);
    assert_eq!(lost(&table, Cause::Truncated), counted(2, 23));
    assert!(table.is_empty());
}

#[test]
fn children_are_counted_beside_their_parents() {
    let mut table = table();
    let inner = there(b"hello");
    let outer = vxlan(77, &inner);
    feed(&mut table, std::slice::from_ref(&outer));
    let flows = finish(&mut table);
    let child = flows.iter().find(|f| f.key.tunnel().is_some()).unwrap();
    let parent = flows.iter().find(|f| f.key.tunnel().is_none()).unwrap();
    assert_eq!(parent.lo_sent, counted(1, outer.len() as u64));
    assert_eq!(child.lo_sent, counted(1, inner.len() as u64));
    assert_eq!(
        (child.key.tunnel(), child.tunnel_id),
        (Some(Tunnel::Vxlan), 77)
    );
    assert_eq!(child.parent, parent.key.id48(&HashKey::new(table.seed())));
    assert_eq!(parent.parent, 0);
}

#[test]
fn both_directions_inside_a_tunnel_are_one_conversation_whatever_the_outer_source_ports_are() {
    // VXLAN; GENEVE with Ethernet inside. Both have the identifier in the same place.
    for (port, header) in [
        (4789, [8, 0, 0, 0, 0, 0, 3, 0]),
        (6081, [0, 0, 0x65, 0x58, 0, 0, 3, 0]),
    ] {
        let carried = |src, dst, source_port, inner: &[u8]| {
            let payload = [&header[..], inner].concat();
            ethernet(
                0x0800,
                &ipv4(src, dst, 17, &udp(source_port, port, &payload)),
            )
        };
        let mut table = table();
        let packets = [
            carried(8, 9, 50_001, &there(b"hello")),
            carried(9, 8, 60_002, &back(b"hello yourself")),
            // Another pair of hosts is another tunnel.
            carried(8, 10, 50_001, &there(b"hello")),
        ];
        feed(&mut table, &packets);
        let flows = finish(&mut table);
        let mut inside: Vec<_> = flows
            .iter()
            .filter(|flow| flow.key.tunnel().is_some())
            .collect();
        inside.sort_by_key(|flow| flow.lo_sent.packets + flow.hi_sent.packets);
        let [elsewhere, both] = inside[..] else {
            panic!("{port}: {inside:?}");
        };
        assert_eq!((both.lo_sent.packets, both.hi_sent.packets), (1, 1));
        assert_eq!(
            (elsewhere.lo_sent.packets, elsewhere.hi_sent.packets),
            (1, 0)
        );
        assert_eq!((both.tunnel_id, elsewhere.tunnel_id), (3, 3));
        // The parent is the flow of the first packet.
        let secret = HashKey::new(table.seed());
        let parent = flows
            .iter()
            .find(|flow| flow.key.id48(&secret) == both.parent)
            .unwrap();
        assert_eq!(parent.key.lo_port, 50_001_u16.to_be_bytes());
    }
}

#[test]
fn what_carried_a_flow_is_freed_with_it() {
    let mut table = table_with(|config| config.max_entries = 4);
    for vni in 1..20 {
        feed(&mut table, &[vxlan(vni, &there(b"hello"))]);
        let flows = finish(&mut table);
        let child = flows.iter().find(|f| f.key.tunnel().is_some()).unwrap();
        assert_eq!(child.tunnel_id, u32::from(vni));
        assert_ne!(child.parent, 0);
    }
}

#[test]
fn grandchildren_name_children_and_replies_find_them() {
    let nested = |src, dst| {
        let inner = ipv4(src, dst, 4, &ipv4(src + 2, dst + 2, 17, &udp(7, 7, b"")));
        vxlan(5, &ethernet(0x0800, &inner))
    };
    let mut table = table();
    feed(&mut table, &[nested(1, 2), nested(2, 1)]);
    let flows = finish(&mut table);
    assert_eq!(flows.len(), 3);
    let of = |tunnel| flows.iter().find(|f| f.key.tunnel() == tunnel).unwrap();
    let (child, grandchild) = (of(Some(Tunnel::Vxlan)), of(Some(Tunnel::IpInIp)));
    assert_eq!(
        (grandchild.lo_sent.packets, grandchild.hi_sent.packets),
        (1, 1)
    );
    let id = child.key.id48(&HashKey::new(table.seed()));
    assert_eq!(grandchild.parent, id);
}

#[test]
fn super_packets_repeat_the_inner_headers() {
    let inner = client(ACK, 1, &[0; 2000]);
    let data = vxlan(1, &inner);
    let frame = Frame {
        segments: 2,
        ..Frame::ethernet(&data)
    };
    // Also when the flow inside is not wanted: this is what is on the wire.
    for tunnels in [true, false] {
        let mut table = table_with(|config| config.tunnels = tunnels);
        table.packets(&[captured(frame, NOON)]);
        let flows = finish(&mut table);
        let sent = |child: bool| {
            let flow = flows.iter().find(|f| f.key.tunnel().is_some() == child);
            flow.map(|flow| flow.lo_sent)
        };
        assert_eq!(sent(false), Some(counted(2, 2000 + 2 * (50 + 54))));
        let child = tunnels.then_some(counted(2, 2000 + 2 * 54));
        assert_eq!(sent(true), child);
    }
}

#[test]
fn a_full_table_loses_by_class_and_keeps_what_it_has() {
    let mut table = table_with(|config| config.max_entries = 1);
    feed(
        &mut table,
        &[
            there(b""),
            client(SYN, 1, b""),
            there(b""),
            ethernet(0x0806, &[0; 46]),
        ],
    );
    let echo = ethernet(0x86dd, &ipv6(1, 2, 58, &icmp(128, 0, 1)));
    table.packets(&[captured(Frame::ethernet(&echo), NOON)]);
    assert_eq!(lost(&table, Cause::TableFullTcp), counted(1, 54));
    assert_eq!(lost(&table, Cause::TableFullOther), counted(1, 60));
    assert_eq!(lost(&table, Cause::TableFullIcmp), counted(1, 62));
    assert_eq!(finish(&mut table)[0].lo_sent.packets, 2);

    // A child without an entry is a note, not a loss.
    let mut table = table_with(|config| config.max_entries = 1);
    feed(&mut table, &[vxlan(1, &there(b""))]);
    assert_eq!(points(&table).lost(), counted(0, 0));
    assert_eq!(lost(&table, Cause::ChildFull), counted(1, 42));
}

#[test]
fn drains_yield_differences_of_what_changed() {
    let mut table = table();
    feed(&mut table, &[there(b""), back(b""), client(SYN, 1, b"")]);
    assert_eq!(drain(&mut table, NOON + S).len(), 2);
    assert_eq!(drain(&mut table, NOON + S), []);
    table.packet(ETH0, &Frame::ethernet(&back(b"")), NOON + 2 * S);
    let updates = drain(&mut table, NOON + 2 * S);
    assert_eq!(updates.len(), 1);
    assert_eq!(
        (updates[0].lo_sent, updates[0].hi_sent),
        (counted(0, 0), counted(1, 42))
    );
    assert!(updates[0].lo_first && updates[0].first_ns == NOON && updates[0].end.is_none());
    // The last updates come even when nothing changed.
    let last = finish(&mut table);
    assert_eq!(last.len(), 2);
    assert!(
        last.iter()
            .all(|u| u.end == Some(EndReason::Shutdown) && u.lo_sent.is_zero())
    );
    assert!(table.is_empty());
}

#[test]
fn idle_entries_end_and_leave_room() {
    let mut table = table_with(|config| config.max_entries = 1);
    feed(&mut table, &[there(b"")]);
    assert_eq!(drain(&mut table, NOON + 120 * S - 1)[0].end, None);
    let ended = drain(&mut table, NOON + 120 * S);
    assert_eq!(
        (ended[0].end, ended[0].lo_sent),
        (Some(EndReason::Idle), counted(0, 0))
    );
    assert!(table.is_empty());
    feed(&mut table, &[client(SYN, 1, b"")]);
    assert_eq!(points(&table).lost(), counted(0, 0));

    let mut forever = table_with(|config| config.idle_timeout = None);
    feed(&mut forever, &[there(b"")]);
    assert_eq!(drain(&mut forever, u64::MAX)[0].end, None);
    let mut short = table_with(|config| config.idle_timeout = Some(Duration::from_secs(1)));
    feed(&mut short, &[there(b"")]);
    assert_eq!(drain(&mut short, NOON + S)[0].end, Some(EndReason::Idle));
}

#[test]
fn clocks_may_go_back() {
    let mut table = table();
    for now in [NOON, NOON - S, NOON - MS] {
        table.packet(ETH0, &Frame::ethernet(&there(b"")), now);
    }
    let flow = drain(&mut table, NOON - 2 * S)[0];
    assert_eq!(
        (flow.first_ns, flow.last_ns, flow.end),
        (NOON - S, NOON, None)
    );
}

#[test]
fn the_words_of_a_key_are_its_bytes_in_their_order() {
    let flow = only(&[there(b"")]);
    let words: Vec<u64> = flow.key.words().into();
    let mut bytes = Vec::new();
    for word in words {
        bytes.extend(word.to_le_bytes());
    }
    let mut expected = Vec::new();
    expected.extend(flow.key.lo);
    expected.extend(flow.key.hi);
    expected.extend(flow.key.lo_port);
    expected.extend(flow.key.hi_port);
    expected.extend(flow.key.ifindex.to_le_bytes());
    expected.extend(flow.key.netns.to_le_bytes());
    expected.extend(flow.key.vlan.iter().flat_map(|v| v.to_le_bytes()));
    expected.extend([flow.key.proto, flow.key.kind]);
    expected.extend(flow.key.detail.to_le_bytes());
    expected.extend(flow.key.tunnel_hash);
    assert_eq!(bytes, expected);
    let hash = |seed| FlowKey::default().hash64(&HashKey::new(seed));
    assert_ne!(hash(1), hash(2));
}
