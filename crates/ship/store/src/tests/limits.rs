//! Limits of age and size.

use super::*;
use crate::log::now_ms;
use std::{fs, os::unix::fs::MetadataExt};

fn disk_usage(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    entries
        .map(|entry| entry.metadata().unwrap().blocks() * 512)
        .sum()
}

#[test]
fn the_limit_of_size_holds_after_every_write() {
    let dir = memory_dir();
    let most = 1 << 20;
    let store = open(dir.path(), bounded(most));
    let mut traffic = Traffic::new();
    let steps: Vec<_> = (0..1_000).map(plain_step).collect();
    let mut largest = 0;
    for _ in 0..100 {
        append(&store, &traffic.drain(10, &steps));
        let used = disk_usage(&dir.path().join("flows"));
        assert!(used <= most, "{used} bytes");
        largest = largest.max(used);
    }
    assert!(largest > most * 3 / 4, "only {largest} bytes are used");
    let stats = store.stats().flows;
    assert!(stats.expired > 0);
    assert_eq!(stats.lost.total(), 0);
    // The newest event exists.
    let mut newest = 0;
    let at = traffic.now_ns - 5 * SECOND;
    store.flows().scan(at, at, FlowLookup::All, &mut |_| {
        newest += 1;
        ControlFlow::Continue(())
    });
    assert_eq!(newest, 1_000);
    drop(store);
    let store = open(dir.path(), bounded(most / 2));
    append(&store, &traffic.drain(10, &steps));
    let used = disk_usage(&dir.path().join("flows"));
    assert!(used <= most / 2, "{used} bytes with a smaller limit");
}

#[test]
fn old_data_is_deleted_even_without_new_data() {
    let dir = memory_dir();
    let store = open(dir.path(), StoreConfig::default());
    let rows = Traffic::new().drain(10, &[plain_step(1)]);
    append(&store, &rows);
    let age = store_age();
    store.expire(now_ms() + age / 2);
    assert_eq!(all_flows(&store), 1, "times of packets do not count");
    store.expire(now_ms() + age + age / 8);
    assert_eq!(all_flows(&store), 0);
    assert_eq!(store.stats().flows.expired, 1);
    assert_eq!(store.stats().flows.bytes, 0);
    append(&store, &rows);
    drop(store);
    let store = open(dir.path(), StoreConfig::default());
    store.expire(now_ms() + age + age / 8);
    assert_eq!(all_flows(&store), 0, "likewise after a restart");
}

fn store_age() -> i64 {
    StoreConfig::default().flows.max_age.as_millis() as i64
}

#[test]
fn more_at_once_than_may_be_kept_is_lost_and_counted() {
    let dir = memory_dir();
    let store = open(dir.path(), bounded(8 << 10));
    let steps: Vec<_> = (0..2_000).map(plain_step).collect();
    append(&store, &Traffic::new().drain(10, &steps));
    assert_eq!(store.stats().flows.lost.too_large, 2_000);
    append(&store, &Traffic::new().drain(10, &steps[..10]));
    assert_eq!(all_flows(&store), 10);
}

#[test]
fn readers_are_not_disturbed_by_deletions() {
    let dir = memory_dir();
    let store = open(dir.path(), StoreConfig::default());
    let steps: Vec<_> = (0..10).map(plain_step).collect();
    append(&store, &Traffic::new().drain(10, &steps));
    let mut seen = 0;
    store.flows().scan(0, u64::MAX, FlowLookup::All, &mut |_| {
        store.expire(i64::MAX);
        seen += 1;
        ControlFlow::Continue(())
    });
    assert_eq!(seen, 10);
    assert_eq!(store.stats().flows.damage, crate::Damage::default());
}
