//! What is counted of ended records, and what is found page by page.

use proptest::{collection::vec, prelude::*};

use crate::{
    Counters, EndReason, Finding, FlowKey, FlowRecord, FlowStore, FlowUpdate, Query, SortBy,
    StoreLimits, View,
};

const S: u64 = 1_000_000_000;

fn store(records: usize, drains: &[Vec<(u8, u8, u64)>]) -> FlowStore {
    let limits = StoreLimits {
        records,
        ..StoreLimits::default()
    };
    let mut store = FlowStore::new(limits, 1, 1);
    for (drain, updates) in drains.iter().enumerate() {
        let now = (drain as u64 + 1) * S;
        store.begin_drain(now);
        for (flow, end, bytes) in updates {
            store.apply(&FlowUpdate {
                key: FlowKey {
                    lo_port: [1, *flow],
                    hi_port: [2, 0],
                    proto: 17,
                    kind: 1,
                    ..FlowKey::default()
                },
                lo_sent: Counters {
                    packets: 1,
                    bytes: *bytes,
                },
                first_ns: now - S / 2,
                last_ns: now - bytes % 2,
                end: match end {
                    0 => Some(EndReason::Evicted),
                    1 => Some(EndReason::Idle),
                    2 => Some(EndReason::Closed),
                    3 => Some(EndReason::Shutdown),
                    _ => None,
                },
                ..FlowUpdate::default()
            });
        }
    }
    store
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn active_and_ended_records_are_those_that_are_there(
        records in 1usize..12,
        drains in vec(vec((0u8..16, 0u8..8, 0u64..100), 0..24), 1..8),
    ) {
        let store = store(records, &drains);
        let active = store.iter().filter(|record| record.end.is_none()).count();
        let summary = store.summary();
        prop_assert_eq!(summary.active, active as u64);
        prop_assert_eq!(summary.ended, (store.iter().count() - active) as u64);
    }

    #[test]
    fn what_is_found_page_by_page_is_what_is_found_at_once(
        drains in vec(vec((0u8..255, 3u8..8, 0u64..50), 0..200), 1..4),
        places in 1u32..40,
        limit in prop_oneof![0usize..20, Just(usize::MAX)],
        sort in prop_oneof![
            Just(SortBy::Rate), Just(SortBy::Bytes), Just(SortBy::Packets), Just(SortBy::Last), Just(SortBy::First)
        ],
    ) {
        let store = store(10_000, &drains);
        let mut finding = Finding::new(sort, limit);
        let (mut from, mut most) = (Some(0), 0);
        while let Some(place) = from {
            let page: Vec<_> = store.page(place, places, View::Points).flatten().collect();
            most = most.max(page.len());
            for (found, record) in page {
                finding.add(found, record, &|| store.rates(found));
            }
            from = store.after(place, places);
        }
        prop_assert!(most <= places as usize);
        let (found, all) = finding.sorted();
        prop_assert_eq!(all, store.iter().count());
        let at = |found| store.at(found, View::Points).map(|(_, record)| record);
        let paged: Vec<&FlowRecord> = found.into_iter().flat_map(at).collect();
        let query = Query { view: View::Points, sort, limit, ..Query::all() };
        let at_once = store.query(&query);
        prop_assert_eq!(&paged, &at_once.iter().map(|merged| &merged.record).collect::<Vec<_>>());

        // Beside an order that is made of the records themselves.
        let rank = |record: &FlowRecord| match sort {
            SortBy::Rate => store.rate(record).bits_per_second,
            SortBy::Bytes => record.total().bytes as f64,
            SortBy::Packets => record.total().packets as f64,
            SortBy::Last => record.last_ns as f64,
            SortBy::First => record.first_ns as f64,
            SortBy::Sent => record.sent_by_service()[0].bytes as f64,
            SortBy::Received => record.sent_by_service()[1].bytes as f64,
            SortBy::Begun => 1.0,
            SortBy::Ended => f64::from(u8::from(record.end.is_some())),
            SortBy::Retransmitted => record.retransmitted() as f64,
            SortBy::Rtt => record.handshake_rtt_ns().unwrap_or(0) as f64,
        };
        let mut all: Vec<_> = store.iter().collect();
        all.sort_by(|a, b| rank(b).total_cmp(&rank(a)));
        let ranks = |records: &[&FlowRecord]| records.iter().map(|record| rank(record)).collect::<Vec<_>>();
        prop_assert_eq!(ranks(&paged), ranks(&all[..limit.min(all.len())]));
    }
}
