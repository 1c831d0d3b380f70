//! What exporters of NetFlow and IPFIX send is in lines like what agents send, each packet once.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::net::{IpAddr, SocketAddr};

use proptest::prelude::*;
use serde_json::Value;
use skua_collect::{Cause, Collector, CollectorConfig, Shard, Summary};
use skua_wire::netflow::v5;

const SECOND: u64 = 1_000_000_000;
/// A moment at the beginning of a window.
const START: u64 = 1_800_000_000 * SECOND;
/// Uptime of exporters then, ms.
const UPTIME: u32 = 1_000_000;
const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;

fn exporter(last: u8) -> SocketAddr {
    ([10, 9, 0, last], 2_055).into()
}

/// A datagram that is sent so many seconds after the beginning.
fn datagram(sequence: u32, sampling: u16, at: u32, records: &[v5::Record]) -> Vec<u8> {
    let mut out = Vec::new();
    let header = v5::Header {
        count: records.len() as u16,
        uptime_ms: UPTIME + at * 1_000,
        unix_secs: (START / SECOND) as u32 + at,
        sequence,
        sampling,
        ..v5::Header::default()
    };
    header.encode(&mut out);
    for record in records {
        record.encode(&mut out);
    }
    out
}

/// Packets of 100 bytes between a client and a server's port 443, in a time in seconds.
fn record(to_server: bool, packets: u32, tcp_flags: u8, (first, last): (u32, u32)) -> v5::Record {
    let (client, server) = (([10, 0, 0, 9], 40_000, 1), ([10, 0, 0, 2], 443, 2));
    let (from, to) = match to_server {
        true => (client, server),
        false => (server, client),
    };
    v5::Record {
        source: from.0,
        destination: to.0,
        source_port: from.1,
        destination_port: to.1,
        input: from.2,
        output: to.2,
        packets,
        octets: packets * 100,
        first: UPTIME + first * 1_000,
        last: UPTIME + last * 1_000,
        protocol: 6,
        tcp_flags,
        ..v5::Record::default()
    }
}

fn now(at: u32) -> u64 {
    START + u64::from(at) * SECOND
}

fn finish(mut collector: Collector, at: u32) -> (Vec<Value>, Summary) {
    let mut lines = Vec::new();
    collector.finish(now(at), &mut |line| {
        lines.push(serde_json::to_value(line).unwrap())
    });
    (lines, collector.summary())
}

fn sent(lines: &[Value]) -> [u64; 2] {
    ["client_sent", "server_sent"].map(|name| {
        let packets = |line: &Value| line[name]["packets"].as_u64().unwrap();
        let bytes = |line: &Value| line[name]["bytes"].as_u64().unwrap();
        assert!(lines.iter().all(|line| bytes(line) == packets(line) * 100));
        lines.iter().map(packets).sum()
    })
}

fn sum(lines: &[Value], name: &str) -> u64 {
    lines.iter().map(|line| line[name].as_u64().unwrap()).sum()
}

#[test]
fn the_two_records_of_a_conversation_are_one_and_exporters_on_its_way_count_it_once() {
    let mut collector = Collector::new(&CollectorConfig::default());
    let there = record(true, 10, SYN | ACK | FIN, (1, 3));
    let back = record(false, 8, SYN | ACK | FIN, (1, 3));
    // The second one did not see all of it, and exports it long after.
    let [less, all] = [record(true, 7, ACK | FIN, (2, 3)), back];
    collector.datagram(exporter(1), &datagram(0, 0, 5, &[there]), now(5));
    collector.datagram(exporter(2), &datagram(0, 0, 9, &[less]), now(9));
    collector.datagram(exporter(1), &datagram(1, 0, 20, &[back]), now(20));
    collector.datagram(exporter(2), &datagram(1, 0, 25, &[all]), now(25));
    let (lines, summary) = finish(collector, 60);
    assert_eq!(sent(&lines), [10, 8]);
    assert!(lines.iter().all(|line| line["port"] == 443));
    assert!(lines.iter().all(|line| line["client"] == "10.0.0.9"));
    assert!(lines.iter().all(|line| line["service_by"] == "well-known"));
    let times = ["begun", "ended", "reset", "joined"].map(|name| sum(&lines, name));
    assert_eq!(times, [1, 1, 0, 1], "{lines:#?}");
    assert_eq!((summary.got.packets, summary.counted.packets), (33, 18));
    assert_eq!(
        (summary.elsewhere.packets, summary.missing.packets),
        (15, 0)
    );
    assert_eq!(summary.lost, [].into());
    let agents: Vec<_> = summary
        .agents
        .iter()
        .map(|one| (one.exports, one.records))
        .collect();
    assert_eq!(agents, [(true, 2), (true, 2)]);
}

#[test]
fn a_long_conversation_is_in_the_windows_of_its_records_and_ports_used_again_begin_another() {
    let mut collector = Collector::new(&CollectorConfig::default());
    let mut lines = Vec::new();
    for minute in 0..5 {
        let begins = if minute == 0 { SYN } else { 0 };
        let there = record(true, 60, begins | ACK, (60 * minute, 60 * minute + 59));
        let back = record(false, 30, begins | ACK, (60 * minute, 60 * minute + 59));
        let at = 60 * minute + 90;
        // Its window was closed 15 s after its end, and has a line more.
        collector.close(now(at), &mut |line| {
            lines.push(serde_json::to_value(line).unwrap())
        });
        let bytes = datagram(2 * minute, 0, at, &[there, back]);
        collector.datagram(exporter(1), &bytes, now(at));
    }
    // Refused twice, with the same ports.
    for (number, at) in [(0, 400), (1, 410)] {
        let attempt = record(true, 1, SYN, (at, at));
        let answer = record(false, 1, RST | ACK, (at, at));
        let bytes = datagram(10 + 2 * number, 0, at + 1, &[attempt, answer]);
        collector.datagram(exporter(1), &bytes, now(at + 1));
    }
    let (last, summary) = finish(collector, 500);
    lines.extend(last);
    assert_eq!(sent(&lines), [302, 152]);
    let windows: Vec<_> = lines
        .iter()
        .filter(|line| line["client_sent"]["packets"] == 60)
        .map(|line| line["window"].as_str().unwrap()[11..19].to_owned())
        .collect();
    assert_eq!(
        windows,
        ["08:00:50", "08:01:50", "08:02:50", "08:03:50", "08:04:50"]
    );
    assert_eq!(sum(&lines, "begun"), 2, "{lines:#?}");
    assert_eq!((summary.late.packets, summary.lost), (0, [].into()));
}

#[test]
fn what_was_sampled_is_an_estimate_and_adds_up() {
    let mut collector = Collector::new(&CollectorConfig::default());
    // One of 100 packets, deterministic.
    let sampling = 1 << 14 | 100;
    let there = record(true, 3, ACK, (1, 3));
    collector.datagram(exporter(1), &datagram(0, sampling, 5, &[there]), now(5));
    let (lines, summary) = finish(collector, 60);
    assert_eq!(sent(&lines), [300, 0]);
    assert_eq!(sum(&lines, "samples"), 1);
    assert_eq!(
        (summary.estimated.packets, summary.counted.packets),
        (300, 0)
    );
    assert_eq!((summary.exported.packets, summary.missing.packets), (3, 0));
}

#[test]
fn what_is_lost_on_the_way_and_what_cannot_be_read_is_counted() {
    let mut collector = Collector::new(&CollectorConfig::default());
    let one = record(true, 3, ACK, (1, 3));
    collector.datagram(exporter(1), &datagram(0, 0, 5, &[one]), now(5));
    // Seven records in between did not come.
    collector.datagram(exporter(1), &datagram(8, 0, 6, &[one]), now(6));
    // A set of IPFIX without its template, and what is cut off.
    let mut set = vec![0, 10, 0, 24];
    for word in [(START / SECOND) as u32, 0, 1] {
        set.extend(word.to_be_bytes());
    }
    set.extend([1, 0, 0, 8, 1, 2, 3, 4]);
    collector.datagram(exporter(2), &set, now(6));
    collector.datagram(exporter(3), &datagram(0, 0, 6, &[one])[..30], now(6));
    let (_, summary) = finish(collector, 200);
    let lost = |cause: Cause| summary.lost.get(cause.name()).copied().unwrap_or(0);
    let causes = [Cause::ExporterGap, Cause::NoTemplate, Cause::DecodeError];
    assert_eq!(causes.map(lost), [7, 1, 1], "{:?}", summary.lost);
    assert_eq!(summary.unreadable[0].from, IpAddr::from([10, 9, 0, 3]));
    // A sender without flows takes no place.
    assert_eq!(summary.agents.len(), 1);
}

#[test]
fn an_exporter_whose_clock_is_wrong_tells_of_now() {
    let mut collector = Collector::new(&CollectorConfig::default());
    let one = record(true, 3, ACK, (1, 3));
    // It is an hour behind.
    collector.datagram(exporter(1), &datagram(0, 0, 5, &[one]), now(3_605));
    let (lines, summary) = finish(collector, 3_700);
    assert_eq!(lines[0]["window"], "2027-01-15T09:00:00.000000000Z");
    assert_eq!(
        (summary.clock_corrected, summary.agents[0].clock_ms),
        (1, 3_600_000)
    );
}

proptest! {
    /// Exporters cut a conversation into records as they like, and export them when they like: of each direction the
    /// most that one of them counted is in lines.
    #[test]
    fn of_each_direction_the_most_that_one_exporter_counted_is_in_lines(
        mut exports in prop::collection::vec((0..3u8, any::<bool>(), 1..50u32, 0..120u32, 0..60u32), 1..60),
        shards in 1..4u32,
    ) {
        let mut collectors: Vec<_> = (0..shards)
            .map(|number| Collector::new(&CollectorConfig {
                shard: Shard::new(number, shards, 7),
                ..CollectorConfig::default()
            }))
            .collect();
        exports.sort_by_key(|(_, _, _, first, later)| first + later);
        let (mut sums, mut numbers) = ([[0; 2]; 3], [0; 3]);
        let mut lines = Vec::new();
        for (who, to_server, packets, first, later) in exports {
            let at = first + later;
            let one = record(to_server, packets, ACK, (first, first));
            let number: &mut u32 = &mut numbers[usize::from(who)];
            let bytes = datagram(*number, 0, at, &[one]);
            *number += 1;
            sums[usize::from(who)][usize::from(!to_server)] += u64::from(packets);
            for collector in &mut collectors {
                collector.close(now(at), &mut |line| lines.push(serde_json::to_value(line).unwrap()));
                collector.datagram(exporter(who), &bytes, now(at));
            }
        }
        let mut summary: Option<Summary> = None;
        for collector in collectors {
            let (last, one) = finish(collector, 400);
            lines.extend(last);
            match &mut summary {
                Some(all) => all.add_shard(&one),
                None => summary = Some(one),
            }
        }
        let summary = summary.unwrap();
        let most = [0, 1].map(|side| sums.iter().map(|one| one[side]).max().unwrap());
        prop_assert_eq!(sent(&lines), most);
        let all: u64 = sums.iter().flatten().sum();
        prop_assert_eq!(summary.exported.packets, all);
        prop_assert_eq!((summary.got.packets, summary.missing.packets), (all, 0));
        prop_assert_eq!(summary.counted.packets + summary.elsewhere.packets, all);
        prop_assert!(summary.lost.is_empty(), "{:?}", summary.lost);
    }
}
