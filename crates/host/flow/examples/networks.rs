//! What it costs to say whose addresses are: writes records of random addresses as JSON, with and without files.
//! `make bench-networks ARGS="COUNTRIES.mmdb SYSTEMS.mmdb"`; the names of ranges are made here.
#![allow(clippy::unwrap_used, reason = "a benchmark")]

use std::{
    fs,
    hint::black_box,
    io::Write as _,
    net::Ipv4Addr,
    time::{Duration, Instant},
};

use skua_flow::{Counters, FlowKey, FlowRecord, FlowUpdate};
use skua_networks::{Files, follow};

const RECORDS: u32 = 100_000;
const RANGES: u32 = 100_000;
const ROUNDS: usize = 9;

/// Records from one host to as many addresses as `bits` choose.
fn records(bits: u32) -> Vec<FlowRecord> {
    let mut random = 7u32;
    let record = |_| {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        // Spread over all of the Internet, however few.
        let chosen = (random >> 8) & ((1 << bits) - 1);
        let address = Ipv4Addr::from(chosen.wrapping_mul(0x9e37_79b1) | 0x0100_0000);
        let mut key = FlowKey {
            kind: 1,
            proto: 6,
            ..FlowKey::default()
        };
        key.lo[12..].copy_from_slice(&[10, 0, 0, 1]);
        key.hi[12..].copy_from_slice(&address.octets());
        key.hi_port = 443u16.to_be_bytes();
        let update = FlowUpdate {
            key,
            lo_sent: Counters {
                packets: 10,
                bytes: 1_000,
            },
            ..FlowUpdate::default()
        };
        FlowRecord::new(&update, 1, 1, 1, 1)
    };
    (0..RECORDS).map(record).collect()
}

/// The least time of all rounds, and bytes written.
fn write(records: &[FlowRecord]) -> (Duration, usize) {
    let mut out = Vec::with_capacity(100 << 20);
    let mut best = Duration::MAX;
    for _ in 0..ROUNDS {
        out.clear();
        let begin = Instant::now();
        for record in records {
            serde_json::to_writer(&mut out, &record.line("eth0")).unwrap();
        }
        best = best.min(begin.elapsed());
        black_box(&out);
    }
    (best, out.len())
}

/// KiB in memory now.
fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    line.unwrap()
        .split_whitespace()
        .nth(1)
        .unwrap()
        .parse()
        .unwrap()
}

fn main() {
    let databases: Vec<std::path::PathBuf> = std::env::args().skip(1).map(Into::into).collect();
    let ranges =
        std::env::temp_dir().join(format!("skua-bench-networks-{}.csv", std::process::id()));
    let mut file = std::io::BufWriter::new(fs::File::create(&ranges).unwrap());
    for number in 0..RANGES {
        let net = Ipv4Addr::from(number.wrapping_mul(0x9e37_79b1) & 0xffff_ff00);
        writeln!(file, "{net}/24,range {}", number % 1_000).unwrap();
    }
    drop(file);
    let kinds = [
        ("256 addresses", 8),
        ("65,536 addresses", 16),
        ("as many as records", 24),
    ];
    let kinds = kinds.map(|(name, bits)| (name, records(bits)));
    let without = kinds.each_ref().map(|(_, records)| write(records));
    let before = resident();
    let begin = Instant::now();
    follow(&Files {
        databases: databases.clone(),
        ranges: vec![ranges.clone()],
        services: Some("/etc/services".into()),
    });
    let (read, files) = (begin.elapsed(), resident());
    println!(
        "{} databases, {RANGES} ranges: read in {} ms, {} MiB",
        databases.len(),
        read.as_millis(),
        (files - before) >> 10
    );
    println!(
        "| records of | ns a record without | with files | ratio | bytes a record |\n|---|---:|---:|---:|---:|"
    );
    for ((name, records), (without, _)) in kinds.iter().zip(without) {
        let (with, bytes) = write(records);
        let each = |time: Duration| time.as_nanos() as f64 / f64::from(RECORDS);
        println!(
            "| {name} | {:.0} | {:.0} | {:.2} | {} |",
            each(without),
            each(with),
            each(with) / each(without),
            bytes / records.len()
        );
    }
    println!(
        "names and what threads remember: {} KiB",
        resident() - files
    );
    fs::remove_file(&ranges).unwrap();
}
