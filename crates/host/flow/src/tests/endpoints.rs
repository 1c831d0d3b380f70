//! Searching endpoints in the store.

use super::{NOON, S};
use crate::{
    Counters, EndReason, Endpoint, FlowKey, FlowRecord, FlowStore, FlowUpdate, StoreLimits,
};
use proptest::{collection::vec, prelude::*};
use std::{collections::BTreeMap, ops::ControlFlow};

/// Few endpoints, so that they meet, places are used again, and one address is at both sides.
fn address(number: u8) -> [u8; 16] {
    let mut address = [0; 16];
    address[10..].copy_from_slice(&[0xff, 0xff, 10, 0, 0, number]);
    address
}

fn key((lo, hi, lo_port, hi_port): (u8, u8, u8, u8)) -> FlowKey {
    FlowKey {
        lo: address(lo),
        hi: address(hi),
        lo_port: [0, lo_port],
        hi_port: [0, hi_port],
        proto: 6,
        kind: 1,
        ..FlowKey::default()
    }
}

/// The records that `scan` shows in steps of so many places, by identity; none twice.
fn shown(
    store: &FlowStore,
    has: impl Fn(&FlowRecord) -> bool,
    scan: impl Fn(&FlowStore, u32, &mut dyn FnMut(&FlowRecord) -> ControlFlow<()>) -> Option<u32>,
) -> BTreeMap<(u64, u64), FlowKey> {
    let (mut found, mut from) = (BTreeMap::new(), Some(0));
    while let Some(next) = from {
        from = scan(store, next, &mut |record| {
            if has(record) {
                let before = found.insert((record.id, record.first_ns), record.key);
                assert_eq!(before, None);
            }
            ControlFlow::Continue(())
        });
    }
    found
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn no_record_is_hidden_from_who_looks_for_its_endpoint(
        steps in vec((any::<bool>(), any::<bool>(), (0u8..6, 0u8..6, 0u8..4, 0u8..4)), 1..300),
        records in 1usize..150,
        part in 1u32..100,
        seed in any::<u64>(),
    ) {
        let mut store = FlowStore::new(StoreLimits { records, bytes: usize::MAX }, seed, 1);
        for (at, (put, ends, sides)) in steps.iter().enumerate() {
            let now = NOON + at as u64 * S;
            store.begin_drain(now);
            let update = FlowUpdate {
                key: key(*sides),
                lo_sent: Counters::new(1, 60),
                first_ns: now,
                last_ns: now,
                end: ends.then_some(EndReason::Closed),
                ..FlowUpdate::default()
            };
            match put {
                true => store.put(FlowRecord {
                    serial: at as u64,
                    ..FlowRecord::new(&update, seed, 1, now, S)
                }),
                false => {
                    store.apply(&update);
                }
            }
        }
        let all = |endpoint, has: &dyn Fn(&FlowRecord) -> bool| {
            let asked = shown(&store, has, |store, from, visit| {
                store.scan_endpoint(from, part, endpoint, visit)
            });
            let known = shown(&store, has, |store, from, visit| store.scan(from, part, visit));
            (asked, known)
        };
        for number in 0..6 {
            let wanted = address(number);
            let has = |r: &FlowRecord| r.key.lo == wanted || r.key.hi == wanted;
            let (asked, known) = all(Endpoint::Address(wanted), &has);
            prop_assert_eq!(asked, known);
        }
        for number in 0..4 {
            let wanted = [0, number];
            let has = |r: &FlowRecord| r.key.lo_port == wanted || r.key.hi_port == wanted;
            let (asked, known) = all(Endpoint::Port(number.into()), &has);
            prop_assert_eq!(asked, known);
        }
    }
}

#[test]
fn who_looks_for_an_endpoint_is_shown_few_others_and_can_stop() {
    let mut store = FlowStore::new(StoreLimits::default(), 11, 1);
    store.begin_drain(NOON);
    for number in 0u32..5_000 {
        let [_, _, high, low] = number.to_be_bytes();
        let mut key = key((1, 1, 0, 0));
        key.hi[14..].copy_from_slice(&[high, low]);
        store.apply(&FlowUpdate {
            key,
            ..FlowUpdate::default()
        });
    }
    let mut wanted = address(0);
    wanted[14..].copy_from_slice(&[9, 9]);
    let mut met = 0;
    let end = store.scan_endpoint(0, u32::MAX, Endpoint::Address(wanted), &mut |_| {
        met += 1;
        ControlFlow::Continue(())
    });
    assert_eq!(end, None);
    // One is right; 16 bits distinguish 5,000, but for one in thirteen searches.
    assert!((1..10).contains(&met), "{met}");
    let mut met = 0;
    let stopped = store.scan_endpoint(0, 100, Endpoint::Address(address(1)), &mut |_| {
        met += 1;
        ControlFlow::Break(())
    });
    assert_eq!((met, stopped), (1, None));
}
