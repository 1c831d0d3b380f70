//! Rates over a fixed window.

use crate::{Counters, EndReason, FlowKey, FlowStore, FlowUpdate, Query, StoreLimits, View};

const MS: u64 = 1_000_000;
const S: u64 = 1_000 * MS;
const NOON: u64 = 1_700_000_000 * S;

fn key(point: u32, port: u16) -> FlowKey {
    FlowKey {
        ifindex: point,
        proto: 17,
        kind: 1,
        lo_port: port.to_be_bytes(),
        ..FlowKey::default()
    }
}

/// What a sender of 2 Mbit/s (packets of 1,000 bytes, each 4 ms) adds from one moment to another.
fn steady(point: u32, from: u64, to: u64) -> FlowUpdate {
    let packets = to / (4 * MS) - from / (4 * MS);
    FlowUpdate {
        key: key(point, 1),
        lo_sent: Counters {
            packets,
            bytes: packets * 1_000,
        },
        first_ns: from,
        last_ns: to,
        ..FlowUpdate::default()
    }
}

fn rates(store: &FlowStore) -> Vec<f64> {
    let rows = store.query(&Query::all());
    rows.iter()
        .map(|row| row.rates.total().bits_per_second)
        .collect()
}

/// The store after drains at these moments (ms) of what `points` see, and the rate after each.
fn drained(points: u32, drains: impl IntoIterator<Item = u64>) -> (FlowStore, Vec<f64>) {
    let mut store = FlowStore::new(StoreLimits::default(), 1, 1);
    let (mut before, mut shown) = (NOON, Vec::new());
    for at in drains {
        let now = NOON + at * MS;
        store.begin_drain(now);
        for point in 0..points {
            store.apply(&steady(point, before, now));
        }
        store.end_drain();
        before = now;
        shown.extend(rates(&store));
    }
    (store, shown)
}

#[test]
fn a_steady_rate_reads_the_same_whoever_asks_and_however_often() {
    let each = |ms: u64| (1..30_000 / ms).map(move |n| n * ms);
    let uneven = (1..600).map(|n| n * 50 + [0, 7, 31, 13, 2][n as usize % 5]);
    for (name, drains) in [
        ("each 100 ms", each(100).collect::<Vec<u64>>()),
        ("each second", each(1_000).collect()),
        ("each 1.3 s", each(1_300).collect()),
        ("each 10 s", each(10_000).collect()),
        ("unevenly", uneven.collect()),
    ] {
        for points in [1, 3] {
            let (_, shown) = drained(points, drains.clone());
            // From the first second on: before, the sender has not sent for a second.
            let from = drains.iter().position(|at| *at >= 1_200).unwrap();
            for (at, rate) in drains.iter().zip(&shown).skip(from) {
                assert!((1.8e6..2.2e6).contains(rate), "{name} at {at} ms: {rate}");
            }
        }
    }
}

#[test]
fn short_conversations_add_up_to_what_was_counted() {
    // Each second another one of 125,000 bytes: 1 Mbit/s in all.
    let mut store = FlowStore::new(StoreLimits::default(), 1, 1);
    for tenth in 1..300_u64 {
        let now = NOON + tenth * 100 * MS;
        store.begin_drain(now);
        if tenth % 10 == 0 {
            store.apply(&FlowUpdate {
                key: key(0, u16::try_from(tenth).unwrap()),
                lo_sent: Counters {
                    packets: 125,
                    bytes: 125_000,
                },
                first_ns: now - 50 * MS,
                last_ns: now,
                ..FlowUpdate::default()
            });
        }
        store.end_drain();
        let all: f64 = rates(&store).iter().sum();
        // A window has five of them or one more, in five seconds or a little more.
        assert!(
            tenth < 80 || (0.75e6..1.25e6).contains(&all),
            "{tenth}: {all}"
        );
    }
}

#[test]
fn drains_within_a_slot_change_no_rate() {
    let (_, shown) = drained(1, (1..100).map(|n| n * 100));
    let mut values = shown.clone();
    values.dedup();
    assert!(values.len() < shown.len() / 5, "{values:?}");
}

#[test]
fn what_stops_has_no_rate_after_the_window_and_what_ends_has_none_at_once() {
    let (mut store, _) = drained(1, [1_000, 2_000, 3_000]);
    let mut shown = Vec::new();
    for second in 4..12 {
        store.begin_drain(NOON + second * S);
        store.end_drain();
        shown.extend(rates(&store));
    }
    assert!(
        shown[0] > 0.0 && shown.is_sorted_by(|a, b| a >= b),
        "{shown:?}"
    );
    assert_eq!(shown.last(), Some(&0.0), "{shown:?}");

    let (mut store, shown) = drained(1, [1_000, 2_000, 3_000]);
    assert!(shown[2] > 1e6);
    store.begin_drain(NOON + 4 * S);
    store.apply(&FlowUpdate {
        end: Some(EndReason::Closed),
        ..steady(0, NOON + 3 * S, NOON + 4 * S)
    });
    store.end_drain();
    assert_eq!(rates(&store), [0.0]);
}

#[test]
fn rates_of_points_are_merged_by_direction_and_sums_agree() {
    let (store, _) = drained(2, (1..10).map(|n| n * 1_000));
    let query = Query {
        view: View::Points,
        ..Query::all()
    };
    let points = store.query(&query);
    let merged = store.query(&Query::all());
    assert_eq!((points.len(), merged.len()), (2, 1));
    assert_eq!(merged[0].rates, points[0].rates);
}

#[test]
fn a_place_that_another_record_gets_has_only_its_own_rate() {
    let limits = StoreLimits {
        records: 2,
        bytes: usize::MAX,
    };
    let mut store = FlowStore::new(limits, 1, 1);
    for second in 1..20 {
        store.begin_drain(NOON + second * S);
        let port = u16::try_from(second).unwrap();
        store.apply(&FlowUpdate {
            key: key(0, port),
            lo_sent: Counters {
                packets: 1,
                bytes: 125,
            },
            first_ns: NOON + second * S - MS,
            last_ns: NOON + second * S,
            ..FlowUpdate::default()
        });
        store.end_drain();
        let row = store.query(&Query {
            limit: 1,
            ..Query::all()
        });
        // 1,000 bits in the second that is the least.
        assert!(row[0].rates.total().bits_per_second <= 1_000.0, "{second}");
    }
}
