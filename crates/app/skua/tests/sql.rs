//! `skua sql`: what was written to a lake is what SQL finds, and nothing but that is to be had.

#![allow(clippy::unwrap_used, reason = "tests")]
#![cfg(feature = "sql")]

use std::{
    path::Path,
    process::{Command, Output},
    time::Duration,
};

use skua_flow::{Counters, FlowKey, FlowRecord, FlowUpdate, Once};
use skua_lake::{FlowChange, Lake, Table, Writer, WriterConfig};

/// 2026-11-21T22:00:00Z, ns.
const BEGIN: u64 = 1_795_298_400_000_000_000;
const SECOND: u64 = 1_000_000_000;

/// A conversation that has sent `port` packets and ten times as many bytes.
fn record(port: u16, second: u64) -> FlowRecord {
    let now = BEGIN + second * SECOND;
    let mut key = FlowKey {
        proto: 6,
        kind: 1,
        ifindex: 2,
        ..FlowKey::default()
    };
    key.lo[10..].copy_from_slice(&[0xff, 0xff, 10, 0, 0, 1]);
    key.hi[10..].copy_from_slice(&[0xff, 0xff, 10, 1, 0, 2]);
    key.lo_port = port.to_be_bytes();
    key.hi_port = 443u16.to_be_bytes();
    let update = FlowUpdate {
        key,
        lo_sent: Counters::new(port.into(), u64::from(port) * 10),
        lo_first: true,
        first_ns: now,
        last_ns: now,
        ..FlowUpdate::default()
    };
    FlowRecord::new(&update, 7, 1, now + SECOND, SECOND)
}

/// Ports 1 to 100, in ten files of one hour and one of the next.
fn fill(directory: &Path) {
    let config = WriterConfig {
        location: directory.to_str().unwrap().parse().unwrap(),
        host: "web-1".into(),
        flush: Duration::from_secs(3_600),
        memory: 16 << 20,
    };
    let writer = Writer::open(&config, Table::Flows).unwrap();
    for part in 0..11u16 {
        let second = if part == 10 { 3_600 } else { 1 };
        let ports = if part == 10 {
            91..101
        } else {
            part * 9 + 1..part * 9 + 10
        };
        let records: Vec<_> = ports.map(|port| record(port, second)).collect();
        writer.flows(records.iter().map(|record| FlowChange {
            once: Once::alone(record, record.updated_ns),
            record,
            host: "web-1",
            interface: "eth0".into(),
            parties: Default::default(),
        }));
        assert!(writer.flush(Duration::from_secs(60)));
    }
}

fn sql(directory: &Path, arguments: &[&str]) -> Output {
    Command::new(skua_testkit::program!())
        .env_remove("SKUA_NO_PAGE")
        .args(["sql", "--lake", directory.to_str().unwrap()])
        .args(arguments)
        .output()
        .unwrap()
}

fn answer(directory: &Path, arguments: &[&str]) -> String {
    let output = sql(directory, arguments);
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(
        output.status.success() && error.is_empty(),
        "{arguments:?}: {error}"
    );
    String::from_utf8(output.stdout).unwrap()
}

fn refused(directory: &Path, arguments: &[&str], words: &str) {
    let output = sql(directory, arguments);
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(
        !output.status.success() && output.stdout.is_empty(),
        "{arguments:?}"
    );
    assert!(
        error.contains(words) && error.lines().count() == 1,
        "{arguments:?}: {error}"
    );
}

#[test]
fn sql_asks_the_lake_and_changes_nothing() {
    let directory = std::env::temp_dir().join(format!("skua-sql-{}", std::process::id()));
    std::fs::create_dir(&directory).unwrap();
    let here = directory.as_path();
    // Before there is a file, tables are empty.
    assert_eq!(
        answer(here, &["--output", "csv", "select count(*) n from flows"]),
        "n\n0\n"
    );
    fill(here);
    let all = "select count(*) n, sum(ab_packets) packets, sum(ab_bytes) bytes, min(host) h, null x from flows;";
    let json = answer(here, &["--output", "json", all]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let wanted =
        serde_json::json!({"n": 100, "packets": 5_050, "bytes": 50_500, "h": "web-1", "x": null});
    assert_eq!(json, wanted);
    assert_eq!(
        answer(
            here,
            &[
                "--output",
                "csv",
                "select 'a,\"b' q, '' e, null n, max(a_port) p from flows"
            ]
        ),
        "q,e,n,p\n\"a,\"\"b\",\"\",,100\n"
    );
    assert_eq!(
        answer(
            here,
            &["from (select a_port p, 'x' t from flows order by p desc limit 2)"]
        ),
        "  P  T\n100  x\n 99  x\n"
    );
    let count = ["--output", "csv", "select count(*) from flows"];
    for (times, rows) in [
        (
            [
                "--since",
                "2026-11-21T23:00:00Z",
                "--until",
                "2026-11-22T00:00:00Z",
            ],
            10,
        ),
        (
            [
                "--since",
                "2026-11-21T22:00:01Z",
                "--until",
                "2026-11-21T22:00:02Z",
            ],
            90,
        ),
        (
            [
                "--since",
                "2026-11-21T22:00:02Z",
                "--until",
                "2026-11-21T23:00:00Z",
            ],
            0,
        ),
    ] {
        let csv = answer(here, &[&times[..], &count[..]].concat());
        assert_eq!(csv, format!("count_star()\n{rows}\n"));
    }
    // Compacted while it is asked: the sums stay.
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| {
            for _ in 0..5 {
                assert_eq!(answer(here, &count), "count_star()\n100\n");
            }
        });
        let lake = Lake::open(&here.to_str().unwrap().parse().unwrap()).unwrap();
        let day = (BEGIN / 1_000) as i64 + 24 * 3_600_000_000;
        assert_eq!(lake.compact(None, day).unwrap().from, 10);
        asking.join().unwrap();
    });
    let files = |at: &Path| walk(at).len();
    let before = files(here);
    let out = here.join("out.csv");
    let copy = format!("copy flows to '{}'", out.display());
    for statement in [
        &*copy,
        &format!("select 1; {copy}"),
        &format!("select 1) ; {copy}; select (1"),
        "drop view flows",
        "set memory_limit = '9GB'",
        "attach 'x.db'",
        "install httpfs",
    ] {
        refused(here, &[statement], "Parser Error");
    }
    refused(
        here,
        &["select * from read_csv('/etc/passwd')"],
        "Permission Error",
    );
    refused(here, &["select no_such from flows"], "no_such");
    assert_eq!(files(here), before);
    let much = "select list(a.a_port) from flows a, flows b, flows c, range(100) group by a.id, b.id, c.id";
    refused(
        here,
        &["--memory", "32MiB", "--timeout", "10m", much],
        "--memory",
    );
    let long = "select count(*) from range(100000000000) r, flows where r.range % 7 = flows.a_port";
    refused(here, &["--timeout", "1s", long], "no answer in 1s");
    std::fs::remove_dir_all(here).unwrap();
    refused(here, &["select 1"], "there is no lake at");
}

fn walk(at: &Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(at).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(walk(&path)),
            false => found.push(path),
        }
    }
    found
}
