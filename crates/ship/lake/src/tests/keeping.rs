//! Compaction, retention, locks, faults of storage.

use super::*;
use crate::{LakeError, Retention};

/// µs, some minutes after the beginning.
fn after(minutes: i64) -> i64 {
    (BEGIN / 1_000) as i64 + minutes * 60_000_000
}

#[test]
fn many_small_files_become_one_and_sums_stay() {
    let place = TestLake::new();
    let writer = place.writer();
    for part in 0..12 {
        write(&writer, part * 50 + 1..part * 50 + 51, u64::from(part));
    }
    let lake = place.lake();
    let before = totals(&lake);
    let answer = |lake: &Lake| {
        lines(&ask(
            lake,
            always().by("service,process,client_address").unwrap(),
        ))
    };
    let groups = answer(&lake);
    let small = place.files();
    assert_eq!(small.len(), 12);
    let copies: Vec<_> = small
        .iter()
        .map(|path| std::fs::read(path).unwrap())
        .collect();
    // The hour is not over, but there are many.
    let done = lake.compact(Some("web-1"), after(1)).unwrap();
    assert_eq!(
        (done.from, done.into, done.rows, done.deleted),
        (12, 1, 600, 12)
    );
    assert_eq!(place.files().len(), 1);
    assert_eq!((totals(&lake), answer(&lake)), (before, groups.clone()));
    // Killed after each step: both files exist, and no row counts twice.
    for (path, copy) in small.iter().zip(&copies).rev() {
        std::fs::write(path, copy).unwrap();
        assert_eq!(totals(&lake), before);
    }
    assert_eq!(answer(&lake), groups);
    assert_eq!(lake.list().unwrap()[0].replaced, 12);
    write(&writer, 601..602, 20);
    // Nothing to compact; replaced files are deleted.
    let done = lake.compact(Some("web-1"), after(1)).unwrap();
    assert_eq!((done.from, done.deleted), (0, 12));
    assert_eq!(place.files().len(), 2);
    // When the hour is over all becomes one.
    let done = lake.compact(Some("other"), after(100)).unwrap();
    assert_eq!(done.from, 0);
    let done = lake.compact(None, after(100)).unwrap();
    assert_eq!((done.from, done.rows), (2, 601));
    let (packets, bytes, back) = before;
    assert_eq!(totals(&lake), (packets + 601, bytes + 60_100, back + 1_000));
    let listed = lake.list().unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!((listed[0].files, listed[0].replaced), (1, 0));
    assert_eq!(listed[0].directory, "flows/date=2026-11-21/hour=22");
}

#[test]
fn readers_get_the_same_sums_during_a_compaction() {
    let place = TestLake::new();
    let writer = place.writer();
    let lake = place.lake();
    let done = std::sync::atomic::AtomicBool::new(false);
    for part in 0..3u32 {
        for file in 0..12 {
            write(&writer, 1..40, u64::from(part * 12 + file));
        }
        let before = totals(&lake);
        done.store(false, std::sync::atomic::Ordering::SeqCst);
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut asked = 0;
                while !done.load(std::sync::atomic::Ordering::SeqCst) || asked == 0 {
                    assert_eq!(totals(&lake), before);
                    asked += 1;
                }
            });
            lake.compact(None, after(1)).unwrap();
            done.store(true, std::sync::atomic::Ordering::SeqCst);
            reader.join().unwrap();
        });
        assert_eq!(place.files().len(), part as usize + 1);
    }
}

/// Lists files like an engine without knowledge of Skua: names that end in .parquet and begin with no
/// dot.
fn listed(hour: &std::path::Path) -> Vec<crate::name::FileName> {
    let table = "flows/date=2026-11-21/hour=22/";
    std::fs::read_dir(hour)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".parquet") && !name.starts_with('.'))
        .map(|name| crate::name::FileName::parse(&(table.to_owned() + &name)).unwrap())
        .collect()
}

#[test]
fn a_listing_has_each_row_once() {
    let place = TestLake::new();
    let writer = place.writer();
    let (lake, done) = (place.lake(), std::sync::atomic::AtomicBool::new(false));
    let hour = place.directory.path().join("flows/date=2026-11-21/hour=22");
    write(&writer, 1..40, 0);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let (mut times, mut latest) = (0, 0);
            while !done.load(std::sync::atomic::Ordering::SeqCst) {
                let mut files = listed(&hour);
                let names = format!("{files:?}");
                let last = files.iter().map(|name| name.to).max().unwrap();
                let before = files.len();
                crate::name::without_replaced(&mut files, |name| name);
                assert_eq!(files.len(), before, "rows are there twice: {names}");
                // Flushes once visible stay visible: also those written while others are compacted.
                assert!(last >= latest, "{latest:x} is gone: {names}");
                (times, latest) = (times + 1, last);
            }
            times
        });
        scope.spawn(|| {
            for part in 0..60u32 {
                write(&writer, 1..40, u64::from(part));
            }
            done.store(true, std::sync::atomic::Ordering::SeqCst);
        });
        while !done.load(std::sync::atomic::Ordering::SeqCst) {
            lake.compact(None, after(1)).unwrap();
        }
        assert!(reader.join().unwrap() > 0);
    });
    assert_eq!(lines(&ask(&lake, always()))[0]["begun"], 61 * 39);
    let compacted = listed(&hour)
        .iter()
        .filter(|name| name.from < name.to)
        .count();
    assert!(compacted > 0, "nothing was compacted");
    assert!(!place.directory.path().join(".compacting").exists());
}

#[test]
fn files_that_a_killed_compaction_left_are_deleted() {
    let place = TestLake::new();
    let writer = place.writer();
    write(&writer, 1..40, 0);
    let before = totals(&place.lake());
    let aside = place.directory.path().join(".compacting/flows");
    let made = aside.join("date=2026-11-21,hour=22");
    std::fs::create_dir_all(&made).unwrap();
    std::fs::copy(&place.files()[0], made.join("x.parquet")).unwrap();
    assert_eq!(totals(&place.lake()), before);
    place.lake().compact(None, after(1)).unwrap();
    assert!(!aside.exists());
    assert_eq!(totals(&place.lake()), before);
}

#[test]
fn old_and_excess_hours_are_deleted() {
    let place = TestLake::new();
    let writer = place.writer();
    for hour in 0..6u64 {
        write(&writer, 1..101, hour * 3_600);
    }
    let lake = place.lake();
    let left = |lake: &Lake| lake.list().unwrap().len();
    let retention = |hours: u64, max_bytes| Retention {
        max_age: Duration::from_secs(hours * 3_600),
        max_bytes,
    };
    let now = after(6 * 60);
    assert_eq!(
        lake.expire(&retention(24, u64::MAX), now).unwrap().deleted,
        0
    );
    assert_eq!(
        lake.expire(&retention(4, u64::MAX), now).unwrap().deleted,
        2
    );
    assert_eq!(left(&lake), 4);
    let size = lake.list().unwrap()[0].bytes;
    let done = lake
        .expire(&retention(24, 2 * size + size / 2), now)
        .unwrap();
    assert_eq!((done.deleted, left(&lake)), (2, 2));
    assert!(
        lake.list().unwrap()[0]
            .directory
            .ends_with("date=2026-11-22/hour=02")
    );
}

#[test]
fn one_process_writes() {
    let place = TestLake::new();
    let _first = place.writer();
    let second = Writer::open(&place.config(), Table::Flows);
    assert!(matches!(second, Err(LakeError::Locked(_))));
    // Of another table, or under another name, it may.
    Writer::open(&place.config(), Table::Services).unwrap();
    let config = WriterConfig {
        host: "web-2".into(),
        ..place.config()
    };
    Writer::open(&config, Table::Flows).unwrap();
}

#[test]
fn rows_wait_for_storage_and_losses_are_counted() {
    let place = TestLake::new();
    let config = WriterConfig {
        memory: 600 * 700,
        ..place.config()
    };
    let writer = Writer::open(&config, Table::Flows).unwrap();
    // A file where the day's directory should be.
    let obstacle = place.directory.path().join("flows/date=2026-11-21");
    std::fs::write(&obstacle, "").unwrap();
    let records =
        |numbers: std::ops::Range<u32>| -> Vec<_> { numbers.map(|n| (n, record(n, 0))).collect() };
    put(&writer, &records(1..101));
    assert!(!writer.flush(MINUTE));
    let stats = writer.stats();
    assert!(
        stats.failing.is_some() && stats.lost.is_empty(),
        "{stats:?}"
    );
    put(&writer, &records(101..2_001));
    let stats = writer.stats();
    let (cause, lost) = stats.lost[0];
    assert_eq!(cause, "storage_failed");
    assert_eq!(stats.waiting + lost, 2_000);
    // These need no new row: more packets of a conversation with a row, and changes without packets.
    let mut still = record(1_999, 0);
    (still.interval.lo_sent, still.interval.hi_sent) = Default::default();
    put(&writer, &[(101, record(101, 0)), (1_999, still)]);
    let stats = writer.stats();
    assert_eq!((stats.waiting, stats.lost[0].1), (2_000 - lost, lost));
    std::fs::remove_file(&obstacle).unwrap();
    // No restart: the next attempt succeeds.
    let begin = std::time::Instant::now();
    while writer.stats().failing.is_some() {
        assert!(begin.elapsed() < MINUTE);
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(writer.flush(MINUTE));
    let stats = writer.stats();
    assert_eq!(
        (stats.rows, stats.waiting, stats.failing),
        (2_000 - lost, 0, None)
    );
    drop(writer);
    assert_eq!(
        lines(&ask(&place.lake(), always()))[0]["begun"],
        2_000 - lost
    );
}

#[test]
fn clocks_that_are_wrong_make_no_end_of_files() {
    let place = TestLake::new();
    let writer = place.writer();
    let records: Vec<_> = (0..100)
        .map(|n| (n, record(n, u64::from(n) * 3_600)))
        .collect();
    put(&writer, &records);
    assert!(writer.flush(MINUTE));
    let stats = writer.stats();
    assert_eq!(stats.files, 72);
    assert_eq!(stats.lost, [("scattered_times", 28)]);
}
