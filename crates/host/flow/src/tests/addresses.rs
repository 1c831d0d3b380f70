//! Packets that the address set leaves out.

use super::{packets::*, *};
use crate::{AddressSet, Mark, Outcome};
use std::sync::Arc;

fn set(marks: &[(&str, Mark)]) -> Arc<AddressSet> {
    let mut set = AddressSet::default();
    for (text, mark) in marks {
        set.insert(text.parse().unwrap(), *mark);
    }
    Arc::new(set)
}

fn causes(table: &FlowTable) -> Vec<(Cause, Counters)> {
    let all = table.points().flat_map(|(_, counters)| counters.iter());
    all.collect()
}

#[test]
fn what_is_left_out_is_counted_with_its_notes_and_not_as_malformed() {
    let mut table = table();
    table.set_addresses(set(&[("10.0.0.3", Mark::Exclude)]));
    // TCP that is cut off, as a super-packet of three with a stripped tag.
    let cut = ethernet(0x0800, &ipv4(3, 2, 6, &[0; 8]));
    let frame = Frame {
        stripped_vlan: Some(5),
        segments: 3,
        ..Frame::ethernet(&cut)
    };
    let outcome = table.packet(ETH0, &frame, NOON);
    assert_eq!(outcome, Outcome::Lost(Cause::AddressSet));
    // 42 bytes and the tag, of which 38 repeat.
    let expected = [
        (Cause::AddressSet, Counters::new(3, 46 + 2 * 38)),
        (Cause::Segmented, Counters::new(2, 2 * 38)),
        (Cause::TagBytes, Counters::new(1, 4)),
    ];
    assert_eq!(causes(&table), expected);
    assert!(table.is_empty());
}

#[test]
fn fragments_that_are_left_out_note_their_ports() {
    let first = ethernet(0x0800, &ipv4_fragment(1, 2, 17, 0x2000, 9, &udp(7, 8, b"")));
    let later = ethernet(0x0800, &ipv4_fragment(1, 2, 17, 1, 9, b"rest"));
    let mut table = table();
    table.set_addresses(set(&[("10.0.0.2", Mark::Exclude)]));
    feed(&mut table, &[first, later.clone()]);
    assert!(table.is_empty());
    table.set_addresses(set(&[]));
    feed(&mut table, &[later]);
    let flows = finish(&mut table);
    assert_eq!(flows.len(), 1);
    assert_eq!(flows[0].key.lo_port, 7u16.to_be_bytes());
}

#[test]
fn in_batches_as_one_by_one() {
    let set = set(&[
        ("10.0.0.0/29", Mark::Include),
        ("10.0.0.4/31", Mark::Exclude),
        ("2001:db8::/64", Mark::Include),
        ("2001:db8::2", Mark::Exclude),
    ]);
    let mut frames = Vec::new();
    for n in 0..200u16 {
        let (src, dst) = ((n % 11) as u8, (n % 7 + 3) as u8);
        let inner = udp(n, 9, b"");
        frames.push(match n % 6 {
            0 => ethernet(0x0806, &[0; 46]),
            1 => ethernet(0x86dd, &ipv6(src, dst, 17, &inner)),
            2 => ethernet(0x0800, &ipv4(src, dst, 4, &ipv4(src, dst, 17, &inner))),
            3 => ethernet(0x0800, &ipv4_fragment(src, dst, 17, 0x2000, n, &inner)),
            4 => vec![0; 9],
            _ => ethernet(0x0800, &ipv4(src, dst, 17, &inner)),
        });
    }
    let (mut one_by_one, mut in_batches) = (table(), table());
    one_by_one.set_addresses(Arc::clone(&set));
    in_batches.set_addresses(set);
    feed(&mut one_by_one, &frames);
    let captured: Vec<Captured<'_>> = frames
        .iter()
        .enumerate()
        .map(|(ms, frame)| Captured {
            point: ETH0,
            frame: Frame::ethernet(frame),
            now_ns: NOON + ms as u64 * MS,
        })
        .collect();
    in_batches.packets(&captured);
    assert_eq!(causes(&one_by_one), causes(&in_batches));
    let sorted = |table: &mut FlowTable| {
        let mut flows = finish(table);
        flows.sort_by_key(|flow| flow.key);
        flows
    };
    let flows = sorted(&mut one_by_one);
    assert_eq!(flows, sorted(&mut in_batches));
    let outer = flows.iter().filter(|flow| flow.key.tunnel().is_none());
    let in_flows: u64 = outer.map(|f| f.lo_sent.packets + f.hi_sent.packets).sum();
    let lost: u64 = one_by_one.points().map(|(_, c)| c.lost().packets).sum();
    assert_eq!(in_flows + lost, 200);
    assert!(in_flows > 20 && lost > 20, "{in_flows} {lost}");
}
