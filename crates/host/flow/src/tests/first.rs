//! The first packets of each entry.

use super::{NOON, S, captured, drain, finish, lost, packets::*, table, table_with};
use crate::{Cause, Outcome};
use skua_packet::Frame;

/// Places of packets among the first two of their entries.
fn places(table: &mut crate::FlowTable, frames: &[&Vec<u8>], now_ns: u64) -> Vec<Option<u8>> {
    let place = |frame: &&Vec<u8>| {
        let (outcome, first) = table.count_first(&captured(Frame::ethernet(frame), now_ns), 2);
        assert_eq!(outcome, Outcome::Counted);
        first.map(|first| first.index)
    };
    frames.iter().map(place).collect()
}

#[test]
fn each_entry_has_its_first_packets_told_whichever_way_they_are_counted() {
    let mut table = table();
    let plain = ethernet(0x0800, &ipv4(1, 2, 17, &udp(5, 6, b"x")));
    let back = ethernet(0x0800, &ipv4(2, 1, 17, &udp(6, 5, b"x")));
    let arp = ethernet(0x0806, &[0; 28]);
    let first = ethernet(
        0x0800,
        &ipv4_fragment(3, 4, 17, 0x2000, 9, &udp(7, 8, b"y")),
    );
    let later = ethernet(0x0800, &ipv4_fragment(3, 4, 17, 1, 9, b"z"));
    let frames = [
        &plain, &arp, &first, &back, &plain, &later, &arp, &later, &arp,
    ];
    let one = Some(1);
    let two = Some(2);
    assert_eq!(
        places(&mut table, &frames, NOON),
        [one, one, one, two, None, two, two, None, None]
    );
    // A drain that ends nothing changes nothing.
    drain(&mut table, NOON + S);
    assert_eq!(places(&mut table, &[&plain], NOON + S), [None]);
    // The entry ends; the next one has first packets again.
    drain(&mut table, NOON + 1000 * S);
    assert_eq!(
        places(&mut table, &[&plain, &back, &plain], NOON + 1001 * S),
        [one, two, None]
    );
    let counted: u64 = finish(&mut table)
        .iter()
        .map(|update| update.lo_sent.packets + update.hi_sent.packets)
        .sum();
    assert_eq!(counted, 3);
}

#[test]
fn ports_that_are_used_again_have_first_packets_again() {
    let mut table = table();
    let frame = |flags| ethernet(0x0800, &ipv4(1, 2, 6, &tcp(5, 6, flags, 1, b"")));
    let (syn, reset) = (frame(SYN), frame(RST));
    assert_eq!(
        places(&mut table, &[&syn, &reset, &reset, &syn, &syn, &syn], NOON),
        [Some(1), Some(2), None, Some(1), Some(2), None]
    );
}

#[test]
fn what_is_in_no_flow_is_not_among_the_first() {
    let mut table = table_with(|config| config.max_entries = 1);
    let frame = |source| ethernet(0x0800, &ipv4(source, 9, 17, &udp(5, 6, b"x")));
    assert_eq!(places(&mut table, &[&frame(1)], NOON), [Some(1)]);
    let full = frame(2);
    let (outcome, first) = table.count_first(&captured(Frame::ethernet(&full), NOON), 2);
    assert_eq!((outcome, first), (Outcome::Lost(Cause::TableFullUdp), None));
    let short = captured(Frame::ethernet(&full[..5]), NOON);
    assert_eq!(
        table.count_first(&short, 2),
        (Outcome::Lost(Cause::Truncated), None)
    );
    assert_eq!(lost(&table, Cause::Truncated).packets, 1);
    // None requested: counted as usual.
    let same = frame(1);
    let (outcome, first) = table.count_first(&captured(Frame::ethernet(&same), NOON), 0);
    assert_eq!((outcome, first), (Outcome::Counted, None));
}
