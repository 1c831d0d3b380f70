//! Section 4: TCP.

use super::{packets::*, *};
use crate::{EndReason, TcpState};

/// Client and server segments with their times in ms after noon.
fn at(frames: &[(u64, Vec<u8>)]) -> FlowUpdate {
    let mut table = table();
    for (ms, frame) in frames {
        table.packet(ETH0, &Frame::ethernet(frame), NOON + ms * MS);
    }
    finish(&mut table)[0]
}

#[test]
fn handshake_times_and_flags() {
    let flow = at(&[
        (0, client(SYN, 10, b"")),
        (1, client(SYN, 10, b"")),
        (30, server(SYN | ACK, 20, b"")),
        (32, server(SYN | ACK, 20, b"")),
        (33, server(ACK, 21, b"")),
        (37, client(ACK, 11, b"")),
        (90, client(ACK, 11, b"")),
    ]);
    assert_eq!(flow.tcp.flags, [SYN | ACK, SYN | ACK]);
    assert_eq!(flow.tcp.server_rtt_ns, 30 * MS);
    assert_eq!(flow.tcp.client_rtt_ns, 7 * MS);
    assert_eq!(flow.tcp.lo_opened, Some(true));
    // SYN and SYN+ACK that came again.
    assert_eq!(flow.tcp.counters.retransmitted, [1, 1]);
}

#[test]
fn handshakes_seen_in_part() {
    // Without the SYN the destination of the SYN+ACK opened; its RST does not count as the ACK.
    let flow = at(&[
        (0, server(SYN | ACK, 20, b"")),
        (2, client(RST | ACK, 11, b"")),
        (5, client(ACK, 11, b"")),
    ]);
    assert_eq!(flow.tcp.lo_opened, Some(true));
    assert_eq!(
        (flow.tcp.server_rtt_ns, flow.tcp.client_rtt_ns),
        (0, 5 * MS)
    );
    let flow = at(&[(0, client(ACK, 1, b"x")), (9, server(ACK, 1, b"y"))]);
    assert_eq!(flow.tcp.lo_opened, None);
    assert_eq!((flow.tcp.server_rtt_ns, flow.tcp.client_rtt_ns), (0, 0));
    // RTTs saturate below 2³² ns and are never 0.
    let flow = at(&[
        (0, client(SYN, 10, b"")),
        (60_000, server(SYN | ACK, 20, b"")),
        (60_000, client(ACK, 11, b"")),
    ]);
    assert_eq!(flow.tcp.server_rtt_ns, u64::from(u32::MAX));
    assert_eq!(flow.tcp.client_rtt_ns, 1);
}

#[test]
fn retransmissions_and_reordering() {
    // Lost and sent again much later; the sequence wraps.
    let start = u32::MAX - 4;
    let data = |offset: u32| client(ACK, start.wrapping_add(offset), &[0; 10]);
    let flow = at(&[(0, data(0)), (1, data(10)), (9, data(0))]);
    assert_eq!(
        (
            flow.tcp.counters.retransmitted,
            flow.tcp.counters.out_of_order
        ),
        ([1, 0], [0, 0])
    );

    // A gap that is filled within 3 ms, and one that is filled later.
    let flow = at(&[(0, data(0)), (1, data(20)), (3, data(10)), (4, data(30))]);
    assert_eq!(
        (
            flow.tcp.counters.retransmitted,
            flow.tcp.counters.out_of_order
        ),
        ([0, 0], [1, 0])
    );
    let flow = at(&[(0, data(0)), (1, data(20)), (4, data(10)), (5, data(30))]);
    assert_eq!(
        (
            flow.tcp.counters.retransmitted,
            flow.tcp.counters.out_of_order
        ),
        ([1, 0], [0, 0])
    );

    // A late segment that ends beyond what was seen advances.
    let long = client(ACK, start, &[0; 30]);
    let flow = at(&[(0, data(0)), (9, long), (10, data(30))]);
    assert_eq!(flow.tcp.counters.retransmitted, [1, 0]);

    // Directions do not mix.
    let flow = at(&[(0, server(ACK, 5, b"abc")), (9, server(ACK, 5, b"abc"))]);
    assert_eq!(flow.tcp.counters.retransmitted, [0, 1]);
}

#[test]
fn keep_alives_and_pure_acknowledgements_are_not_late() {
    let flow = at(&[
        (0, client(ACK, 100, b"abc")),
        (10, client(ACK, 102, b"")),
        (20, client(ACK, 102, b"c")),
        (30, client(ACK, 50, b"")),
        (40, client(ACK, 103, b"d")),
    ]);
    assert_eq!(flow.tcp.counters.retransmitted, [0, 0]);
    // Two bytes are no keep-alive, nor is a FIN.
    let flow = at(&[
        (0, client(ACK, 100, b"abc")),
        (10, client(ACK, 101, b"bc")),
        (20, client(ACK | FIN, 102, b"")),
    ]);
    assert_eq!(flow.tcp.counters.retransmitted, [2, 0]);
}

#[test]
fn zero_windows() {
    let window = |flags, window| {
        ethernet(
            0x0800,
            &ipv4(2, 1, 6, &tcp_window(80, 1000, flags, 1, window, b"")),
        )
    };
    let flow = only(&[
        window(ACK, 0),
        window(SYN | ACK, 0),
        window(RST, 0),
        window(ACK, 1),
        window(ACK | FIN, 0),
    ]);
    assert_eq!(flow.tcp.counters.zero_window, [0, 2]);
}

#[test]
fn closed_conversations_end_after_five_seconds() {
    for last in [server(RST, 1, b""), server(FIN | ACK, 1, b"")] {
        let mut table = table();
        feed(&mut table, &[client(FIN | ACK, 1, b""), last]);
        assert_eq!(drain(&mut table, NOON + 5 * S)[0].end, None);
        let ended = drain(&mut table, NOON + 5 * S + MS);
        assert_eq!(ended[0].end, Some(EndReason::Closed));
    }
    let mut half = table();
    feed(&mut half, &[client(FIN | ACK, 1, b""), server(ACK, 1, b"")]);
    assert_eq!(drain(&mut half, NOON + 50 * S)[0].end, None);
}

#[test]
fn a_syn_after_the_end_begins_a_new_entry() {
    let frames = [
        client(SYN, 1, b""),
        server(RST | ACK, 0, b""),
        client(SYN, 5, b""),
        server(SYN | ACK, 9, b""),
    ];
    // One by one, and all four in one batch.
    let mut one = table();
    feed(&mut one, &frames);
    let mut batch = table();
    let packets: Vec<_> = frames
        .iter()
        .zip(0..)
        .map(|(frame, ms)| captured(Frame::ethernet(frame), NOON + ms * MS))
        .collect();
    batch.packets(&packets);
    for mut table in [one, batch] {
        assert_eq!(table.len(), 2);
        let updates = drain(&mut table, NOON + S);
        let [old, new] = updates[..] else {
            panic!("{updates:?}")
        };
        assert_eq!((old.end, new.end), (Some(EndReason::Closed), None));
        assert_eq!((old.first_ns, new.first_ns), (NOON, NOON + 2 * MS));
        assert_eq!(
            (old.tcp.flags, new.tcp.flags),
            ([SYN, RST | ACK], [SYN, SYN | ACK])
        );
        assert_eq!(old.lo_sent.packets + new.lo_sent.packets, 2);
        assert_eq!(table.len(), 1);
    }
    // A SYN in a conversation that is not over is one of its segments.
    let flow = only(&[
        client(SYN, 1, b""),
        server(FIN, 1, b""),
        client(SYN, 1, b""),
    ]);
    assert_eq!(flow.lo_sent.packets, 2);
    // SYN+ACK begins nothing.
    assert_eq!(
        only(&[client(RST, 1, b""), client(SYN | ACK, 1, b"")])
            .lo_sent
            .packets,
        2
    );
}

#[test]
fn a_full_table_ends_the_old_entry_all_the_same() {
    let mut table = table_with(|config| config.max_entries = 1);
    feed(
        &mut table,
        &[
            client(RST, 1, b""),
            client(SYN, 1, b""),
            client(ACK, 2, b""),
        ],
    );
    assert_eq!(lost(&table, Cause::TableFullTcp), counted(2, 108));
    let old = drain(&mut table, NOON);
    assert_eq!(
        (old.len(), old[0].end, old[0].lo_sent.packets),
        (1, Some(EndReason::Closed), 1)
    );
    assert!(table.is_empty());
}

#[test]
fn states_by_flags() {
    let state = |frames: &[Vec<u8>]| TcpState::of(&only(frames).tcp);
    let (syn, syn_ack) = (client(SYN, 1, b""), server(SYN | ACK, 1, b""));
    let ack = client(ACK, 2, b"");
    assert_eq!(state(std::slice::from_ref(&syn)), Some(TcpState::SynSent));
    let opening = [syn, syn_ack.clone()];
    assert_eq!(state(&opening), Some(TcpState::SynReceived));
    assert_eq!(state(&[syn_ack]), Some(TcpState::SynReceived));
    let open = [&opening[..], std::slice::from_ref(&ack)].concat();
    assert_eq!(state(&open), Some(TcpState::Established));
    assert_eq!(state(&[ack]), Some(TcpState::Established), "under way");
    let fin = [&open[..], &[client(FIN | ACK, 2, b"")]].concat();
    assert_eq!(state(&fin), Some(TcpState::Closing));
    let both = [&fin[..], &[server(FIN | ACK, 2, b"")]].concat();
    assert_eq!(state(&both), Some(TcpState::Closed));
    let reset = [&both[..], &[server(RST, 2, b"")]].concat();
    assert_eq!(
        state(&reset),
        Some(TcpState::Closed),
        "FIN from both came before"
    );
    assert_eq!(
        state(&[&open[..], &[server(RST, 2, b"")]].concat()),
        Some(TcpState::Reset)
    );
    assert_eq!(state(&[client(0, 1, b"")]), None);
}

/// Packets of a conversation that is known go the short way: it must see that one is over, that
/// its entry is not the live one any more, and that its place is another's now.
#[test]
fn the_short_way_knows_what_is_over() {
    // Each packet is a batch of its own, so that none goes the long way because of one before.
    let single = |table: &mut FlowTable, frame: &[u8], ms| {
        let mut batch = crate::Batch::default();
        batch.push(table, captured(Frame::ethernet(frame), NOON + ms * MS));
        batch.flush(table);
    };
    let over = [
        client(SYN, 1, b""),
        client(ACK, 2, b"a"),
        server(RST | ACK, 0, b""),
    ];
    for max_entries in [1, 2] {
        let mut table = table_with(|config| config.max_entries = max_entries);
        for (frame, ms) in over.iter().zip(0..) {
            single(&mut table, frame, ms);
        }
        // The conversation is over: this begins another, which may not fit.
        single(&mut table, &client(SYN, 9, b""), 10);
        single(&mut table, &client(ACK, 10, b"b"), 11);
        let room = max_entries == 2;
        let missing = lost(&table, Cause::TableFullTcp);
        assert_eq!(missing.packets, if room { 0 } else { 2 });
        let updates = drain(&mut table, NOON + 20 * MS);
        assert_eq!(updates[0].lo_sent.packets, 2);
        assert_eq!(updates[0].hi_sent.packets, 1);
        assert_eq!(updates.len(), max_entries);
        assert!(!room || updates[1].lo_sent.packets == 2);

        // Idle ones leave; another conversation takes the place.
        assert!(drain(&mut table, NOON + 500 * S).len() <= 1);
        assert!(table.is_empty());
        single(&mut table, &there(b"x"), 600_000);
        single(&mut table, &client(ACK, 11, b"c"), 600_001);
        let after = finish(&mut table);
        assert_eq!(after[0].lo_sent.packets, 1);
        assert!(!room || after[1].lo_sent.packets == 1);
    }
}
