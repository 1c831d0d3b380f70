//! Sections 3 and 4: what few packets show, MAC addresses, labels, fragments, times of TCP.

use super::{packets::*, *};
use crate::{FlowRecord, Layers};

/// The frame from one MAC address to another, each a number.
fn between(mut frame: Vec<u8>, from: u8, to: u8) -> Vec<u8> {
    frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, to]);
    frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, from]);
    frame
}

/// Frames with their times in ms after noon.
fn at(frames: &[(u64, Vec<u8>)]) -> FlowUpdate {
    let mut table = table();
    for (ms, frame) in frames {
        table.packet(ETH0, &Frame::ethernet(frame), NOON + ms * MS);
    }
    let updates = finish(&mut table);
    assert_eq!(updates.len(), 1, "{updates:#?}");
    updates[0]
}

#[test]
fn the_first_addresses_stay_and_changes_of_a_side_count() {
    let lo = |from, to| between(there(b""), from, to);
    let hi = |from, to| between(back(b""), from, to);
    let macs = |flow: &FlowUpdate| flow.link.macs.map(|mac| mac[5]);
    // The answer comes from another router than the question goes to: no change.
    let flow = at(&[
        (0, lo(1, 2)),
        (1, hi(3, 1)),
        (20_000, lo(1, 2)),
        (40_000, hi(3, 1)),
    ]);
    assert_eq!((macs(&flow), flow.link.moved), ([1, 2], 0));
    // Each side changes once; what comes within moments is not looked at.
    let flow = at(&[
        (0, lo(1, 2)),
        (1, hi(2, 1)),
        (2, lo(7, 8)),
        (3, lo(1, 2)),
        (20_000, lo(1, 4)),
        (40_000, hi(4, 1)),
        (60_000, lo(1, 4)),
    ]);
    assert_eq!((macs(&flow), flow.link.moved), ([1, 2], 2));
    // The side that answers is `lo` here.
    let flow = at(&[(0, hi(2, 1)), (1, lo(1, 2))]);
    assert_eq!((macs(&flow), flow.lo_first), ([1, 2], false));
    let record = FlowRecord::new(&flow, 1, 1, NOON, 1);
    assert_eq!(record.macs().map(|mac| mac.unwrap()[5]), [2, 1]);
    // Loopback has zeros.
    let mut zeros = there(b"");
    zeros[..12].fill(0);
    let record = FlowRecord::new(&at(&[(0, zeros)]), 1, 1, NOON, 1);
    assert_eq!(record.macs(), [None, None]);
}

#[test]
fn a_connection_that_reuses_ports_has_addresses_of_its_own() {
    let mut table = table();
    let frames = [
        between(client(SYN, 1, b""), 1, 2),
        between(server(RST | ACK, 0, b""), 2, 1),
        between(client(SYN, 900, b""), 1, 3),
    ];
    feed(&mut table, &frames);
    let mut flows = finish(&mut table);
    flows.sort_by_key(|flow| flow.first_ns);
    let macs: Vec<_> = flows.iter().map(|flow| flow.link.macs[1][5]).collect();
    assert_eq!(macs, [2, 3]);
    // How long the refusal took.
    assert_eq!([0, 1].map(|at| flows[at].tcp.rtt_ns()), [Some(MS), None]);
}

#[test]
fn times_and_ttl_of_a_connection() {
    let mut syn = client(SYN, 10, b"");
    syn[22] = 57;
    let flow = at(&[
        (0, syn),
        (30, server(SYN | ACK, 20, b"")),
        (31, client(ACK, 11, b"")),
        (40, server(FIN | ACK, 21, b"")),
        (41, client(FIN | ACK, 11, b"")),
        (50, client(FIN | ACK, 11, b"")),
        (60, client(RST, 12, b"")),
    ]);
    let tcp = flow.tcp;
    assert_eq!(tcp.syn_ttl, [57, 64]);
    assert_eq!(tcp.syn_ns, [NOON, NOON + 30 * MS]);
    assert_eq!(tcp.fin_ns, [NOON + 41 * MS, NOON + 40 * MS]);
    assert_eq!(tcp.rst_ns, [NOON + 60 * MS, 0]);
    assert_eq!(tcp.rtt_ns(), Some(30 * MS));
    let record = FlowRecord::new(&flow, 1, 1, NOON, 1);
    assert_eq!(record.handshake_rtt_ns(), Some(31 * MS));
}

#[test]
fn gaps_count_with_their_bytes_also_if_they_are_filled_later() {
    let mut table = table();
    feed(
        &mut table,
        &[
            client(ACK, 100, b"0123"),
            client(ACK, 204, b"0123"),
            client(ACK, 104, b"0123"),
            server(ACK, 7, b"0"),
            server(ACK, 9, b"0"),
        ],
    );
    let drained = drain(&mut table, NOON + S);
    assert_eq!(drained[0].tcp.skipped, [1, 1]);
    assert_eq!(drained[0].tcp.skipped_bytes, [100, 1]);
    let mut record = FlowRecord::new(&drained[0], 1, 1, NOON, 1);
    let frame = client(ACK, 1_000, b"0");
    table.packet(ETH0, &Frame::ethernet(&frame), NOON + S);
    record.apply(&finish(&mut table)[0], NOON + 2 * S, S);
    assert_eq!(record.tcp.skipped, [2, 1]);
    assert_eq!(record.tcp.skipped_bytes[0], 100 + 1_000 - 208);
}

#[test]
fn echo_takes_as_long_as_its_last_reply() {
    let ping = |kind| {
        let (src, dst) = if kind == 8 { (1, 2) } else { (2, 1) };
        ethernet(0x0800, &ipv4(src, dst, 1, &icmp(kind, 0, 7)))
    };
    let flow = at(&[
        (0, ping(8)),
        (3, ping(0)),
        (1_000, ping(8)),
        (1_004, ping(0)),
        (1_005, ping(0)),
    ]);
    assert_eq!(flow.tcp.rtt_ns(), Some(4 * MS));
    // A reply without its request.
    assert_eq!(at(&[(0, ping(0)), (3, ping(8))]).tcp.rtt_ns(), None);
    let ping6 = |kind| {
        let (src, dst) = if kind == 128 { (1, 2) } else { (2, 1) };
        ethernet(0x86dd, &ipv6(src, dst, 58, &icmp(kind, 0, 7)))
    };
    let flow = at(&[(0, ping6(128)), (9, ping6(129))]);
    assert_eq!(flow.tcp.rtt_ns(), Some(9 * MS));
    let record = FlowRecord::new(&flow, 1, 1, NOON, 1);
    assert_eq!(
        Layers(&record).to_string(),
        "Ethernet/IPv6/ICMPv6/ICMPv6Echo"
    );
}

#[test]
fn fragments_count_in_their_flow() {
    let piece = |fragment| {
        let packet = ipv4_fragment(1, 2, 17, fragment, 9, &udp(1, 2, b"12345678"));
        ethernet(0x0800, &packet)
    };
    let flow = only(&[piece(0x2000), piece(0x2002), piece(4)]);
    assert_eq!((flow.fragments, flow.lo_sent.packets), (3, 3));
    assert_eq!(only(&[there(b"")]).fragments, 0);
}

#[test]
fn both_directions_under_labels_of_their_own_are_one_conversation() {
    let labelled = |labels: &[u32], frame: Vec<u8>| {
        let (last, first) = labels.split_last().unwrap();
        let mut bytes = Vec::new();
        for label in first {
            bytes.extend((label << 12 | 64).to_be_bytes());
        }
        bytes.extend((last << 12 | 0x100 | 64).to_be_bytes());
        bytes.extend(&frame[14..]);
        ethernet(0x8847, &bytes)
    };
    let mut table = table_with(|config| config.tunnels = true);
    let frames = [
        labelled(&[30, 500], there(b"")),
        between(labelled(&[0], back(b"")), 2, 1),
    ];
    feed(&mut table, &frames);
    let flows = finish(&mut table);
    let (outer, inner): (Vec<&FlowUpdate>, Vec<&FlowUpdate>) =
        flows.iter().partition(|flow| flow.parent == 0);
    assert_eq!((outer.len(), inner.len()), (1, 1), "{flows:#?}");
    assert_eq!(inner[0].link.labels, [Some(500), Some(0)]);
    assert_eq!((inner[0].lo_sent.packets, inner[0].hi_sent.packets), (1, 1));
    let path = |flow| Layers(&FlowRecord::new(flow, 1, 1, NOON, 1)).to_string();
    assert_eq!(
        [path(outer[0]), path(inner[0])],
        ["Ethernet/MPLS", "IPv4/UDP"]
    );
}

#[test]
fn a_path_ends_with_the_tunnel_that_is_decoded() {
    let path = |frame: &[u8]| {
        let mut table = table_with(|config| config.tunnels = true);
        table.packet(ETH0, &Frame::ethernet(frame), NOON);
        let flows = finish(&mut table);
        let outer = flows.iter().find(|flow| flow.parent == 0).unwrap();
        Layers(&FlowRecord::new(outer, 1, 1, NOON, 1)).to_string()
    };
    let gre = |protocol: u16, rest: &[u8]| {
        let [high, low] = protocol.to_be_bytes();
        let header = [&[0, 0, high, low], rest].concat();
        ethernet(0x0800, &ipv4(1, 2, 47, &header))
    };
    let frame = there(b"");
    assert_eq!(path(&vxlan(5, &frame)), "Ethernet/IPv4/UDP/VXLAN");
    assert_eq!(path(&gre(0x0800, &frame[14..])), "Ethernet/IPv4/GRE");
    assert_eq!(path(&gre(0x88be, &frame)), "Ethernet/IPv4/GRE/ERSPAN");
    let label = [&[0, 1, 1, 64], &frame[14..]].concat();
    assert_eq!(path(&gre(0x8847, &label)), "Ethernet/IPv4/GRE/MPLS");
    let in_udp = ethernet(0x0800, &ipv4(1, 2, 17, &udp(50_000, 6635, &label)));
    assert_eq!(path(&in_udp), "Ethernet/IPv4/UDP/MPLS");
    // Nothing is inside.
    assert_eq!(path(&vxlan(5, b"")), "Ethernet/IPv4/UDP");
}

#[test]
fn third_and_fourth_tags_are_known_and_distinguish() {
    let tagged = |tags: &[u16]| {
        let inner = there(b"")[14..].to_vec();
        let (first, others) = tags.split_first().unwrap();
        let nested = others
            .iter()
            .rev()
            .fold((0x0800, inner), |(kind, bytes), vid| {
                (0x8100, tag(*vid, kind, &bytes))
            });
        ethernet(0x88a8, &tag(*first, nested.0, &nested.1))
    };
    let mut table = table();
    feed(
        &mut table,
        &[
            tagged(&[1, 2, 3, 4]),
            tagged(&[1, 2, 3, 5]),
            tagged(&[1, 2, 3]),
        ],
    );
    let mut ids: Vec<Vec<u16>> = finish(&mut table)
        .iter()
        .map(|flow| FlowRecord::new(flow, 1, 1, NOON, 1).vlan_ids().collect())
        .collect();
    ids.sort();
    assert_eq!(ids, [vec![1, 2, 3], vec![1, 2, 3, 4], vec![1, 2, 3, 5]]);
}
