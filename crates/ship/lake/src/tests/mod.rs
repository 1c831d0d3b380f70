//! The whole lake: answers are what was written.

mod damage;
mod keeping;
mod questions;
mod services;
#[cfg(feature = "remote")]
mod stores;

use std::time::Duration;

use skua_flow::{
    ConversationOwner, Counters, EndReason, FlowKey, FlowRecord, FlowUpdate, Once, Service,
    ServiceRule, TcpUpdate,
};

use crate::{
    FlowChange, Lake, Location, Table, Writer, WriterConfig,
    query::{Answer, Question},
};

/// 2026-11-21T22:00:00Z, ns.
pub const BEGIN: u64 = 1_795_298_400_000_000_000;
pub const SECOND: u64 = 1_000_000_000;
pub const MINUTE: Duration = Duration::from_secs(60);

pub struct TestLake {
    pub directory: tempfile::TempDir,
}

impl TestLake {
    pub fn new() -> Self {
        Self {
            directory: tempfile::tempdir().unwrap(),
        }
    }

    pub fn location(&self) -> Location {
        self.directory.path().to_str().unwrap().parse().unwrap()
    }

    pub fn config(&self) -> WriterConfig {
        WriterConfig {
            location: self.location(),
            host: "web-1".into(),
            flush: Duration::from_secs(3_600),
            memory: 64 << 20,
        }
    }

    pub fn writer(&self) -> Writer {
        Writer::open(&self.config(), Table::Flows).unwrap()
    }

    pub fn lake(&self) -> Lake {
        Lake::open(&self.location()).unwrap()
    }

    /// Paths of files of Parquet.
    pub fn files(&self) -> Vec<std::path::PathBuf> {
        fn walk(at: &std::path::Path, found: &mut Vec<std::path::PathBuf>) {
            for entry in std::fs::read_dir(at).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    walk(&path, found);
                } else if path.extension().is_some_and(|e| e == "parquet") {
                    found.push(path);
                }
            }
        }
        let mut found = Vec::new();
        walk(self.directory.path(), &mut found);
        found.sort();
        found
    }
}

/// Conversation `number` at `second`: 10.0.0.x:40000+n calls 10.1.0.y:443, and has sent n more packets of 100
/// bytes, and got one of 1,000.
pub fn record(number: u32, second: u64) -> FlowRecord {
    let now = BEGIN + second * SECOND;
    let mut key = FlowKey {
        proto: 6,
        kind: 1 | skua_flow::KIND_ETHERNET,
        ifindex: 2,
        ..FlowKey::default()
    };
    key.lo[10..].copy_from_slice(&[0xff, 0xff, 10, 0, 0, (number % 200) as u8]);
    key.hi[10..].copy_from_slice(&[0xff, 0xff, 10, 1, 0, (number % 7) as u8]);
    key.lo_port = (40_000 + (number % 20_000) as u16).to_be_bytes();
    key.hi_port = 443u16.to_be_bytes();
    let update = FlowUpdate {
        key,
        lo_sent: Counters::new(number.into(), u64::from(number) * 100),
        hi_sent: Counters::new(1, 1_000),
        lo_first: true,
        first_ns: now,
        last_ns: now + SECOND / 2,
        tcp: TcpUpdate {
            flags: [0x12, 0x12],
            server_rtt_ns: 1_000,
            client_rtt_ns: 500,
            lo_opened: Some(true),
            ..TcpUpdate::default()
        },
        end: number.is_multiple_of(2).then_some(EndReason::Closed),
        ..FlowUpdate::default()
    };
    let mut record = FlowRecord::new(&update, 7, 1, now + SECOND, SECOND);
    record.service = Some(Service {
        lo: false,
        by: ServiceRule::Syn,
    });
    record
}

pub fn parties(number: u32) -> [ConversationOwner<'static>; 2] {
    const CLIENTS: [&str; 3] = ["curl", "wget", "ssh"];
    let client = ConversationOwner {
        process: CLIENTS[number as usize % 3],
        pid: 100 + number % 3,
        user: "root",
        ..ConversationOwner::default()
    };
    // The servers 0 to 2 are on this host, too.
    let server = match number % 7 {
        n @ 0..3 => ConversationOwner {
            process: "nginx",
            pid: 7 + n,
            unit: "nginx.service",
            ..ConversationOwner::default()
        },
        _ => ConversationOwner::default(),
    };
    [client, server]
}

pub fn put(writer: &Writer, records: &[(u32, FlowRecord)]) {
    writer.flows(records.iter().map(|(number, record)| FlowChange {
        once: Once::alone(record, record.updated_ns),
        record,
        host: "web-1",
        interface: "eth0".into(),
        parties: parties(*number),
    }));
}

/// Conversations of some numbers, at a second, written at once.
pub fn write(writer: &Writer, numbers: std::ops::Range<u32>, second: u64) {
    let records: Vec<_> = numbers.map(|n| (n, record(n, second))).collect();
    put(writer, &records);
    assert!(writer.flush(MINUTE), "{:?}", writer.stats());
}

/// Everything from before the beginning until hours after it.
pub fn always() -> Question {
    let us = (BEGIN / 1_000) as i64;
    Question::new(Table::Flows, us - 7_200_000_000, us + 40 * 3_600_000_000)
}

pub fn ask(lake: &Lake, question: Question) -> Answer {
    let answer = lake.ask(&question).unwrap();
    assert!(answer.damaged.is_empty(), "{:?}", answer.damaged);
    answer
}

/// The groups as JSON.
pub fn lines(answer: &Answer) -> Vec<serde_json::Value> {
    let mut out = Vec::new();
    answer.write_json(&mut out).unwrap();
    out.split(|b| *b == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_slice(line).unwrap())
        .collect()
}

/// Packets and bytes sent, and bytes received, of all.
pub fn totals(lake: &Lake) -> (u64, u64, u64) {
    let all = lines(&ask(lake, always()));
    let Some(all) = all.first() else {
        return (0, 0, 0);
    };
    let number = |side: &str, what: &str| all[side][what].as_u64().unwrap();
    // From the service's side.
    (
        number("received", "packets"),
        number("received", "bytes"),
        number("sent", "bytes"),
    )
}
