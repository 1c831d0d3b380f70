#![allow(clippy::unwrap_used)]

use super::*;

/// Between the first packet of an entry and its last.
const AFTER: u64 = 7 * TICK;
const TICK: u64 = 4_000_000;

/// An entry that begins at `first_ns`, with what lo and hi sent.
fn entry(first_ns: u64, sent: [u64; 2]) -> Ended {
    let entry = Ended::read(&[0; size_of::<Ended>()]).unwrap();
    entry.slot.first.store(first_ns, Relaxed);
    entry.slot.last.store(7, Relaxed);
    for (word, sent) in entry.slot.sent.iter().zip(sent) {
        word.store(sent, Relaxed);
    }
    entry
}

/// Packets and bytes as programs count them.
fn sent(packets: u64, bytes: u64) -> u64 {
    (packets << SENT_PACKETS_SHIFT) + bytes
}

/// What a drain hands out that saw an entry begin at `first_ns` and takes its counters now.
fn handed_out(entry: &Ended, first_ns: u64) -> Vec<FlowUpdate> {
    let mut stats = DrainStats::default();
    let mut updates = Vec::new();
    let mut out = Output {
        stats: &mut stats,
        sink: &mut |update: &FlowUpdate| updates.push(*update),
        offset: 0,
        begun: first_ns + 2 * AFTER,
        ticks: Ticks {
            offset: 0,
            length_ns: TICK as i64,
        },
    };
    out.drain_entry(&entry.slot, &entry.cold, first_ns, None);
    updates
}

fn sums(update: &FlowUpdate) -> [u64; 4] {
    let (lo, hi) = (update.lo_sent, update.hi_sent);
    [lo.packets, lo.bytes, hi.packets, hi.bytes]
}

const A: u64 = COUNTED_ANEW;

#[test]
fn ports_that_are_used_again_while_counters_are_taken_leave_each_connection_its_own() {
    // Packets and bytes by lo are of the connection before, those by hi of the one that began at 20.
    let reused = entry(20, [sent(3, 300), A + sent(2, 200)]);
    let before = handed_out(&reused, 10);
    assert_eq!(before.len(), 1);
    assert_eq!(sums(&before[0]), [3, 300, 0, 0]);
    assert_eq!((before[0].first_ns, before[0].last_ns), (10, 10));
    assert_eq!(before[0].end, None);
    // With the next drain.
    let after = handed_out(&reused, 20);
    assert_eq!(after.len(), 1);
    assert_eq!(sums(&after[0]), [0, 0, 2, 200]);
    assert_eq!((after[0].first_ns, after[0].last_ns), (20, AFTER));
    assert!(handed_out(&reused, 20).is_empty());
}

#[test]
fn an_entry_whose_ports_were_used_again_does_not_end_as_the_one_before() {
    let Ended { slot, .. } = entry(20, [sent(1, 60), 0]);
    slot.state.store(SLOT_LIVE, Relaxed);
    assert!(!make_dying(&slot, SLOT_LIVE, 10));
    assert_eq!(slot.state.load(Relaxed), SLOT_LIVE);
    assert!(!make_dying(&slot, SLOT_TOMB, 20));
    assert!(make_dying(&slot, SLOT_LIVE, 20));
    assert_eq!(slot.state.load(Relaxed), SLOT_DYING);
}

#[test]
fn nothing_is_handed_out_of_a_connection_that_left_nothing() {
    let reused = entry(20, [A + sent(1, 60), A]);
    assert!(handed_out(&reused, 10).is_empty());
    assert_eq!(sums(&handed_out(&reused, 20)[0]), [1, 60, 0, 0]);
}

#[test]
fn a_mark_is_no_count() {
    let quiet = entry(10, [A, A]);
    assert!(handed_out(&quiet, 10).is_empty());
    let busy = entry(10, [A + sent(4, 400), A]);
    assert_eq!(sums(&handed_out(&busy, 10)[0]), [4, 400, 0, 0]);
}

#[test]
fn what_was_taken_twice_is_made_up_for() {
    // Linux before 5.12: a program took 2 packets of 150 bytes that a drain had taken as well.
    for mark in [0, A] {
        let entry = entry(10, [(mark).wrapping_sub(sent(2, 150)), 0]);
        assert!(handed_out(&entry, 10).is_empty(), "{mark}");
        // More packets, but fewer bytes: still too few.
        entry.slot.sent[0].fetch_add(sent(2, 120), Relaxed);
        assert!(handed_out(&entry, 10).is_empty(), "{mark}");
        entry.slot.sent[0].fetch_add(sent(3, 230), Relaxed);
        assert_eq!(sums(&handed_out(&entry, 10)[0]), [3, 200, 0, 0], "{mark}");
    }
}

#[test]
fn what_is_carried_is_counted_once_whenever_a_drain_comes() {
    let (packets, bytes) = (1 << 20, 3 << 20);
    let all = sent(packets, bytes);
    let carried = |entry: &Ended| entry.cold.carried[0].store(1, Relaxed);
    let sum_of_two_drains = |between: &dyn Fn(&Ended)| {
        let entry = entry(10, [all, 0]);
        let mut updates = handed_out(&entry, 10);
        between(&entry);
        entry.slot.sent[0].fetch_add(sent(5, 15), Relaxed);
        updates.extend(handed_out(&entry, 10));
        let sums = updates.iter().map(|update| update.lo_sent);
        sums.fold((0, 0), |(p, b), sent| (p + sent.packets, b + sent.bytes))
    };
    let expected = (packets + 5, bytes + 15);
    assert_eq!(sum_of_two_drains(&|_| ()), expected);
    // The program had added, the drain took all, then the program carried.
    let after = |entry: &Ended| {
        entry.slot.sent[0].fetch_sub(SENT_CARRY_PACKETS, Relaxed);
        carried(entry);
    };
    assert_eq!(sum_of_two_drains(&after), expected);
    // The program had subtracted, and added to `carried` after the drain.
    let entry = entry(10, [all - SENT_CARRY_PACKETS, 0]);
    assert_eq!(sums(&handed_out(&entry, 10)[0]), [0, bytes, 0, 0]);
    carried(&entry);
    entry.slot.sent[0].fetch_add(sent(5, 15), Relaxed);
    assert_eq!(sums(&handed_out(&entry, 10)[0]), [packets + 5, 15, 0, 0]);
}

#[test]
fn every_part_is_carried_in_its_own_unit() {
    let entry = entry(10, [sent(1, 1), sent(2, 2)]);
    entry.cold.carried[0].store(3 | 2 << 16, Relaxed);
    entry.cold.carried[1].store(1 << 16, Relaxed);
    let expected = [(3 << 20) + 1, (2 << 38) + 1, 2, (1 << 38) + 2];
    assert_eq!(sums(&handed_out(&entry, 10)[0]), expected);
}
