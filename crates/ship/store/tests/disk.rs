//! A disk that is full, and one that can only be read. Needs root, for a file system of its own.

#![allow(clippy::unwrap_used)]

mod common;

use common::{PATIENCE, append, graph, number, numbers, set_number};
use skua_store::{GraphJournal, Store, StoreConfig, StoreStats};
use std::{
    fs,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// A file system in memory; gone when dropped.
struct SmallDisk(TempDir);

fn run(command: &str, args: &[&str]) {
    let status = Command::new(command).args(args).status().unwrap();
    assert!(
        status.success(),
        "{command} {args:?}: {status} (this test needs root)"
    );
}

impl SmallDisk {
    fn new(size: &str) -> Self {
        let dir = TempDir::with_prefix("st-disk-").unwrap();
        let options = format!("size={size}");
        let path = dir.path().to_str().unwrap();
        run("mount", &["-t", "tmpfs", "-o", &options, "st-disk", path]);
        Self(dir)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn remount(&self, mode: &str) {
        let options = format!("remount,{mode}");
        run("mount", &["-o", &options, self.path().to_str().unwrap()]);
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: a test that fails leaves files open.
        let _ = Command::new("umount").arg("-l").arg(self.path()).status();
    }
}

fn config() -> StoreConfig {
    StoreConfig {
        gather: Duration::from_millis(1),
        retry_interval: Duration::from_millis(1),
        ..StoreConfig::default()
    }
}

/// Appends drains of 100 until `enough`, and returns the next number.
fn append_until(store: &Store, mut next: u64, enough: impl Fn(&StoreStats) -> bool) -> u64 {
    let end = Instant::now() + PATIENCE;
    while !enough(&store.stats()) {
        assert!(Instant::now() < end, "{:?}", store.stats());
        append(store, next..next + 100);
        assert!(store.flows().flush(PATIENCE));
        next += 100;
    }
    next
}

#[test]
fn a_full_disk_is_survived_and_left_behind() {
    let disk = SmallDisk::new("512k");
    let dir = disk.path().join("history");
    let store = Store::open(&dir, config()).unwrap();
    let graph_now = graph(&store);
    let journal = GraphJournal::start(&store, &graph_now).unwrap();
    set_number(&graph_now, 1);
    assert!(journal.flush(PATIENCE));
    append(&store, 0..100);
    assert!(store.flows().flush(PATIENCE));
    let ballast = disk.path().join("ballast");
    let _ = fs::write(&ballast, vec![1; 1 << 20]);

    let next = append_until(&store, 100, |stats| stats.flows.lost.disk_full > 0);
    let failing = store.stats().flows.failing.unwrap();
    assert!(failing.contains("No space"), "{failing}");
    // The graph goes on in memory; its file may have room in its last block.
    let mut state = 1;
    while !journal.stats().broken {
        state += 1;
        set_number(&graph_now, state);
        journal.flush(PATIENCE);
    }
    set_number(&graph_now, state + 1);
    assert_eq!(number(&graph_now), state + 1);

    fs::remove_file(&ballast).unwrap();
    let lost = store.stats().flows.lost;
    let next = append_until(&store, next, |stats| {
        stats.flows.failing.is_none() && stats.flows.written > 100
    });
    let end = Instant::now() + PATIENCE;
    while journal.stats().broken {
        assert!(Instant::now() < end, "{:?}", store.stats().graph);
        std::thread::sleep(Duration::from_millis(5));
    }
    set_number(&graph_now, state + 2);
    assert!(journal.flush(PATIENCE));

    let stats = store.stats();
    assert_eq!(stats.flows.lost.total(), stats.flows.lost.disk_full);
    assert!(stats.flows.lost.disk_full >= lost.disk_full);
    assert_eq!(stats.flows.written + stats.flows.lost.disk_full, next);
    assert_eq!(numbers(&store).len() as u64, stats.flows.written);
    assert!(stats.graph.lost.disk_full > 0, "{:?}", stats.graph);
    drop(journal);
    drop(store);

    let store = Store::open(&dir, config()).unwrap();
    assert_eq!(numbers(&store).len() as u64, stats.flows.written);
    assert_eq!(store.stats().flows.damage, Default::default());
    let restored = graph(&store);
    assert_eq!(number(&restored), state + 2);
}

#[test]
fn a_disk_that_becomes_read_only_and_comes_back() {
    let disk = SmallDisk::new("4m");
    let dir = disk.path().join("history");
    let store = Store::open(&dir, config()).unwrap();
    append(&store, 0..100);
    assert!(store.flows().flush(PATIENCE));
    // The kernel does not make a disk read-only while files are open for writing, unless the disk
    // itself fails. So it is first full, whereupon nothing stays open.
    let ballast = disk.path().join("ballast");
    let _ = fs::write(&ballast, vec![1; 8 << 20]);
    let next = append_until(&store, 100, |stats| stats.flows.lost.disk_full > 0);
    fs::remove_file(&ballast).unwrap();
    disk.remount("ro");
    let next = append_until(&store, next, |stats| stats.flows.lost.io > 0);
    let failing = store.stats().flows.failing.unwrap();
    assert!(failing.contains("Read-only"), "{failing}");
    assert_eq!(
        numbers(&store).len() as u64,
        store.stats().flows.written,
        "what was is read"
    );
    disk.remount("rw");
    let before = store.stats().flows.written;
    let next = append_until(&store, next, |stats| stats.flows.written > before);
    let stats = store.stats().flows;
    assert_eq!(stats.failing, None);
    assert_eq!(stats.written + stats.lost.total(), next);
    drop(store);
    let store = Store::open(&dir, config()).unwrap();
    assert_eq!(numbers(&store).len() as u64, stats.written);
}

#[test]
fn a_disk_that_is_read_only_from_the_start_is_refused() {
    let disk = SmallDisk::new("4m");
    disk.remount("ro");
    let Err(error) = Store::open(&disk.path().join("history"), config()) else {
        panic!("opened");
    };
    assert!(error.to_string().contains("Read-only"), "{error}");
}
