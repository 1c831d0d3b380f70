//! A conversation that several points have seen is one row, and counts once.

use crate::{
    Counters, Directions, EndReason, FlowKey, FlowRecord, FlowStore, FlowUpdate, Merged, Query,
    StoreLimits, View,
};
use proptest::prelude::*;

const S: u64 = 1_000_000_000;

fn counters(packets: u64) -> Counters {
    Counters {
        packets,
        bytes: packets * 100,
    }
}

/// What a drain says of conversation `flow` at interface `ifindex`, from second `first` to `last`.
fn update(flow: u8, ifindex: u32, sent: u64, (first, last): (u64, u64)) -> FlowUpdate {
    let address = |host: u8| [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, host];
    FlowUpdate {
        key: FlowKey {
            lo: address(1),
            hi: address(flow),
            lo_port: [1, 2],
            hi_port: [0, 80],
            ifindex,
            proto: 17,
            kind: 1 | crate::KIND_ETHERNET,
            ..FlowKey::default()
        },
        lo_sent: counters(sent),
        hi_sent: counters(sent / 2),
        first_ns: first * S,
        last_ns: last * S,
        lo_first: true,
        ..FlowUpdate::default()
    }
}

fn store(records: usize) -> FlowStore {
    let limits = StoreLimits {
        records,
        bytes: usize::MAX,
    };
    let mut store = FlowStore::new(limits, 7, 1);
    store.begin_drain(100 * S);
    store
}

fn rows(store: &FlowStore, view: View) -> Vec<Merged> {
    let query = Query {
        view,
        ..Query::all()
    };
    store.query(&query)
}

fn sum<'a>(records: impl IntoIterator<Item = &'a FlowRecord>) -> Counters {
    records
        .into_iter()
        .map(FlowRecord::total)
        .fold(Counters::default(), |sum, one| sum + one)
}

#[test]
fn a_conversation_over_five_interfaces_is_one_row_with_the_most_that_one_counted() {
    let mut store = store(100);
    for (ifindex, sent) in [(7, 100), (3, 98), (9, 100), (4, 100), (12, 60)] {
        store.apply(&update(2, ifindex, sent, (10, 20)));
    }
    let one = rows(&store, View::Conversations);
    assert_eq!(one.len(), 1);
    assert_eq!(one[0].points, 5);
    assert_eq!(one[0].record.total(), counters(150));
    assert_eq!(
        one[0].record.key.ifindex, 3,
        "what was there first stands for all"
    );
    assert_eq!(rows(&store, View::Points).len(), 5);
    assert_eq!(store.summary().conversations, Some(counters(150)));
    assert_eq!(store.summary().counted, counters(150 * 3 + 147 + 90));
    // They go on: each point adds to its own, the sum takes what exceeds the most.
    store.begin_drain(110 * S);
    for ifindex in [7, 3, 9] {
        store.apply(&update(2, ifindex, 10, (10, 105)));
    }
    assert_eq!(store.summary().conversations, Some(counters(165)));
    assert_eq!(
        rows(&store, View::Conversations)[0].record.total(),
        counters(165)
    );
}

#[test]
fn the_hosts_own_interface_stands_for_the_conversation() {
    let mut store = store(100);
    let mut pod = update(2, 2, 10, (10, 20));
    pod.key.netns = 4;
    store.apply(&pod);
    store.apply(&update(2, 30, 10, (10, 20)));
    let mut inside = update(2, 5, 10, (10, 20));
    inside.key.kind |= 1 << crate::key::KIND_TUNNEL_SHIFT;
    inside.key.vlan = [0x1064, 0];
    inside.key.tunnel_hash = [1; 6];
    store.apply(&inside);
    let one = rows(&store, View::Conversations);
    assert_eq!((one.len(), one[0].points), (1, 3));
    assert_eq!(
        (one[0].record.key.netns, one[0].record.key.ifindex),
        (0, 30)
    );
}

#[test]
fn a_filter_that_fits_some_points_merges_those() {
    let mut store = store(100);
    store.apply(&update(2, 3, 100, (10, 20)));
    store.apply(&update(2, 4, 60, (10, 20)));
    store.apply(&update(2, 5, 80, (10, 20)));
    let found = store.find(&Query::all().with_filter(|r| r.key.ifindex != 3));
    assert_eq!((found.0.len(), found.1), (1, 1));
    let query = Query::all().with_filter(|r| r.key.ifindex != 3);
    let merged = &store.query(&query)[0];
    assert_eq!(store.at(found.0[0], View::Conversations).count(), 3);
    assert_eq!((merged.points, merged.record.total()), (2, counters(120)));
}

#[test]
fn ports_that_are_used_again_are_another_conversation_at_every_point() {
    let mut store = store(100);
    let over = |ifindex, sent, time| FlowUpdate {
        end: Some(EndReason::Closed),
        ..update(2, ifindex, sent, time)
    };
    // In user space each interface has a table of its own: one point says all of it before the next one.
    for ifindex in [3, 4, 5] {
        for life in 1..5 {
            store.apply(&over(ifindex, life * 10, (10 * life, 10 * life + 5)));
        }
    }
    let rows = rows(&store, View::Conversations);
    assert_eq!(rows.len(), 4);
    assert!(rows.iter().all(|row| row.points == 3));
    assert_eq!(sum(rows.iter().map(|r| &r.record)), counters(150));
}

#[test]
fn two_vlans_of_an_interface_are_one_conversation_only_when_packets_come_in_by_one_and_go_out_by_the_other()
 {
    let tagged = |vlan: u16, directions| {
        let mut update = update(2, 3, 10, (10, 20));
        update.key.vlan = [0x1000 | vlan, 0];
        update.directions = Directions(directions);
        update
    };
    // What of `lo` came in and of `hi` went out, the other way round, and not known.
    for (one, other, rows_wanted) in [(9, 6, 1), (9, 9, 2), (1, 9, 2), (0, 0, 2), (0, 9, 2)] {
        let mut store = store(100);
        store.apply(&tagged(10, one));
        store.apply(&tagged(20, other));
        let rows = rows(&store, View::Conversations);
        assert_eq!(rows.len(), rows_wanted, "{one} {other}");
    }
}

#[test]
fn loopback_of_each_namespace_is_its_own() {
    let mut store = store(100);
    for netns in 0..3 {
        let mut local = update(1, 1, 10, (10, 20));
        let address = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1];
        (local.key.lo, local.key.hi, local.key.netns) = (address, address, netns);
        store.apply(&local);
    }
    assert_eq!(rows(&store, View::Conversations).len(), 3);
    assert_eq!(store.summary().conversations, Some(counters(45)));
}

#[test]
fn a_stranger_who_uses_one_port_again_and_again_makes_no_long_rings() {
    let mut store = store(100_000);
    for life in 0..50_000 {
        store.apply(&FlowUpdate {
            end: Some(EndReason::Closed),
            ..update(2, 3, 1, (life, life))
        });
    }
    for ifindex in 0..1000 {
        store.apply(&update(3, ifindex, 1, (1, 2)));
    }
    let most = rows(&store, View::Conversations);
    assert!(most.iter().all(|row| row.points <= 64));
    assert_eq!(most.len(), 50_000 + 1000usize.div_ceil(64));
}

#[test]
fn what_a_drain_adds_to_a_conversation_is_at_the_record_that_stands_for_it() {
    let mut store = store(100);
    store.note_touched();
    let drain = |store: &mut FlowStore, at: u64, updates: &[(u32, u64, bool)]| {
        store.begin_drain(at * S);
        for (ifindex, sent, ends) in updates {
            store.apply(&FlowUpdate {
                end: ends.then_some(EndReason::Closed),
                ..update(2, *ifindex, *sent, (10, at))
            });
        }
        store.end_drain();
        let all = store.touched_once();
        let all = all.map(|(r, once)| (r.key.ifindex, (once.lo_sent, once.begun, once.ended)));
        all.collect::<std::collections::BTreeMap<_, _>>()
    };
    let nothing = (counters(0), false, false);
    let first = drain(
        &mut store,
        100,
        &[(9, 100, false), (4, 98, false), (7, 99, false)],
    );
    let expected = [
        (4, (counters(100), true, false)),
        (7, nothing),
        (9, nothing),
    ];
    assert_eq!(first, expected.into());
    // The point that stands for it is quiet, and has counted two less: the others have that added, too.
    let second = drain(&mut store, 101, &[(9, 10, false), (7, 11, false)]);
    assert_eq!(
        second,
        [(7, (counters(10), false, false)), (9, nothing)].into()
    );
    // It goes on at one point when it has ended at two.
    let third = drain(&mut store, 102, &[(9, 1, true), (7, 1, true)]);
    assert_eq!(
        third,
        [(7, (counters(1), false, false)), (9, nothing)].into()
    );
    let last = drain(&mut store, 103, &[(4, 20, true)]);
    assert_eq!(last, [(4, (counters(7), false, true))].into());
    assert_eq!(
        rows(&store, View::Conversations)[0].record.lo_sent,
        counters(118)
    );
}

proptest! {
    /// Whatever comes and goes, each record is in one conversation, which is shown once, and no row has less than one
    /// of its points.
    #[test]
    fn rows_are_a_partition_of_the_records(
        events in proptest::collection::vec((2u8..5, 1u32..5, 1u64..50, 0u64..40, any::<bool>()), 1..200),
        room in 3usize..40,
    ) {
        let mut store = store(room);
        store.note_touched();
        let (mut once, mut begun) = (Counters::default(), 0);
        let mut end_drain = |store: &mut FlowStore| {
            store.end_drain();
            for (_, added) in store.touched_once() {
                once += added.lo_sent + added.hi_sent;
                begun += usize::from(added.begun);
            }
        };
        for (at, (flow, ifindex, sent, first, ends)) in events.into_iter().enumerate() {
            if at % 7 == 0 {
                end_drain(&mut store);
                store.begin_drain((100 + at as u64) * S);
            }
            store.apply(&FlowUpdate {
                end: ends.then_some(EndReason::Closed),
                ..update(flow, ifindex, sent, (first, first + 3))
            });
        }
        end_drain(&mut store);
        let points = rows(&store, View::Points);
        let merged = rows(&store, View::Conversations);
        // What drains say to have added is the sum of conversations, but for what left before its drain ended.
        let counted = store.summary();
        if counted.evicted == 0 {
            prop_assert_eq!(counted.conversations, Some(once));
            prop_assert_eq!(begun, merged.len());
        } else {
            prop_assert!(once.packets <= counted.conversations.unwrap_or_default().packets);
        }
        prop_assert_eq!(points.len(), store.iter().count());
        prop_assert_eq!(merged.iter().map(|m| m.points as usize).sum::<usize>(), points.len());
        for row in &merged {
            let most = points
                .iter()
                .filter(|p| p.record.key.across_points() == row.record.key.across_points())
                .map(|p| p.record.lo_sent.packets)
                .max();
            prop_assert!(Some(row.record.lo_sent.packets) <= most);
        }
        prop_assert!(counted.conversations.unwrap_or_default().packets <= counted.counted.packets);
    }
}
