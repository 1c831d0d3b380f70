//! Agents that ask whether a collector is there, and what they had kept meanwhile.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::net::{IpAddr, Ipv4Addr};

use serde_json::Value;
use skua_collect::{Collector, CollectorConfig, Drain, Exporter, ExporterConfig, Offered, greet};
use skua_flow::{Counters, FlowKey, FlowRecord, FlowUpdate};
use skua_wire::sflow::{
    self, Counters as Found, Header, Hello, Sample,
    own::{ReportInPlace, report},
};

const SECOND: u64 = 1_000_000_000;
const START: u64 = 1_800_000_000 * SECOND;
const AGENT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));

fn exporter(instance: u64) -> Exporter {
    Exporter::new(ExporterConfig {
        agent: AGENT,
        sub_agent: 0,
        instance,
        started_ns: START,
        datagram: 1_400,
        both_directions: true,
    })
}

/// The datagram of a drain with a conversation that sent so many packets since the one before.
fn drain(exporter: &mut Exporter, now: u64, port: u16) -> Vec<u8> {
    let update = FlowUpdate {
        key: FlowKey {
            lo: Ipv4Addr::new(10, 0, 0, 1).to_ipv6_mapped().octets(),
            hi: Ipv4Addr::new(10, 0, 0, 2).to_ipv6_mapped().octets(),
            lo_port: port.to_be_bytes(),
            hi_port: 443u16.to_be_bytes(),
            ifindex: 2,
            proto: 6,
            kind: 1 | 4,
            ..FlowKey::default()
        },
        lo_sent: Counters::new(3, 300),
        lo_first: true,
        first_ns: now,
        last_ns: now,
        ..FlowUpdate::default()
    };
    let record = FlowRecord::new(&update, u64::from(port), 1, 1, 1);
    let mut datagrams = Vec::new();
    exporter.export([record].iter(), &Drain::at(now), |bytes| {
        datagrams.push(bytes.to_vec());
        Offered::Queued
    });
    datagrams.remove(0)
}

fn kept(mut datagram: Vec<u8>, until: u64) -> Vec<u8> {
    ReportInPlace::of(&mut datagram).unwrap().kept_until(until);
    datagram
}

fn close(collector: &mut Collector, now: u64) -> Vec<(String, u64)> {
    let mut lines = Vec::new();
    collector.close(now, &mut |line| {
        let line = serde_json::to_value(line).unwrap();
        let packets = line["client_sent"]["packets"].as_u64().unwrap()
            + line["server_sent"]["packets"].as_u64().unwrap();
        lines.push((line["window"].as_str().unwrap().to_owned(), packets));
    });
    lines
}

#[test]
fn what_was_kept_counts_in_its_own_window_though_that_was_closed() {
    // The agent's clock is five hours slow: that is known by what comes late, too.
    for hours in [0, 5] {
        let theirs = |s: u64| START + s * SECOND - hours * 3_600 * SECOND;
        let ours = |s: u64| START + s * SECOND;
        let mut agent = exporter(7);
        let mut collector = Collector::new(&CollectorConfig::default());
        let before = drain(&mut agent, theirs(1), 1_000);
        collector.datagram(AGENT, &before, ours(1));
        // Two windows that nobody exported in time, and one that comes at once.
        let away = [12, 25].map(|s| drain(&mut agent, theirs(s), 1_000 + s as u16));
        assert_eq!(close(&mut collector, ours(600)).len(), 1);
        for datagram in away {
            collector.datagram(AGENT, &kept(datagram, theirs(600)), ours(600));
        }
        let now = drain(&mut agent, theirs(601), 2_000);
        collector.datagram(AGENT, &now, ours(601));
        // They are written together, when a window's length is over.
        assert_eq!(collector.next_close(), Some(ours(610)));
        assert_eq!(close(&mut collector, ours(609)), []);
        let window = |text: &str| (format!("2027-01-15T08:{text}.000000000Z"), 3);
        assert_eq!(
            close(&mut collector, ours(610)),
            [window("00:10"), window("00:20")]
        );
        assert_eq!(close(&mut collector, ours(640)), [window("10:00")]);
        let summary = collector.summary();
        assert_eq!(summary.lost, Default::default());
        assert_eq!((summary.kept_datagrams, summary.keys), (2, 0));
        assert_eq!(summary.counted.packets, 12);
        let clock_ms = summary.agents[0].clock_ms;
        assert_eq!(clock_ms, hours as i64 * 3_600_000);
    }
}

#[test]
fn what_is_a_week_old_is_late_and_many_old_windows_are_bounded() {
    let mut agent = exporter(7);
    let mut collector = Collector::new(&CollectorConfig {
        max_keys: 3,
        ..CollectorConfig::default()
    });
    let old: Vec<_> = (0..10)
        .map(|n| drain(&mut agent, START + n * 60 * SECOND, n as u16 + 1))
        .collect();
    let week = START + 604_800 * SECOND;
    close(&mut collector, week);
    for (number, datagram) in old.into_iter().enumerate() {
        let now = week + if number < 5 { 3_600 * SECOND } else { 0 };
        collector.datagram(AGENT, &kept(datagram, now), now);
    }
    let summary = collector.summary();
    assert_eq!((summary.lost["late"], summary.lost["keys_full"]), (5, 2));
    assert_eq!(summary.keys, 3);
}

fn answer(bytes: Option<&[u8]>) -> Option<(Header, Hello)> {
    let read = sflow::decode(bytes?).unwrap();
    let Some(Ok(Sample::Counters(sample))) = read.samples().next() else {
        panic!("no counters sample");
    };
    match sample.records().next() {
        Some(Ok(Found::Hello(hello))) => Some((read.header, hello)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn who_asks_is_answered_how_far_he_has_come_and_nobody_else_is() {
    let mut agent = exporter(7);
    let mut collector = Collector::new(&CollectorConfig {
        instance: 99,
        ..CollectorConfig::default()
    });
    let now = START + SECOND;
    let first = drain(&mut agent, now, 1);
    assert_eq!(collector.datagram(AGENT, &first, now), None);
    let mut second = drain(&mut agent, now, 2);
    let mut third = drain(&mut agent, now, 3);
    for datagram in [&mut second, &mut third] {
        ReportInPlace::of(datagram).unwrap().set(report::ASKS);
    }
    let (header, hello) = answer(collector.datagram(AGENT, &third, now)).unwrap();
    assert_eq!((header.agent, header.sub_agent), (AGENT, 0));
    let expected = Hello {
        answers: true,
        sequence: 3,
        instance: 7,
        collector: 99,
    };
    assert_eq!(hello, expected);
    // One that was overtaken; then one that comes twice.
    for _ in 0..2 {
        let found = answer(collector.datagram(AGENT, &second, now));
        assert_eq!(found.unwrap().1, expected);
    }
    // A question alone is in no count but that of datagrams.
    let mut question = Vec::new();
    let asks = |instance| Hello {
        instance,
        ..Hello::default()
    };
    greet(&mut question, &header, &asks(7));
    let answered = collector.datagram(AGENT, &question, now).unwrap();
    assert!(answered.len() <= question.len());
    assert_eq!(answer(Some(answered)).unwrap().1, expected);
    // Another run, or a stranger: that we are here, and nothing of others.
    greet(&mut question, &header, &asks(8));
    let found = answer(collector.datagram(AGENT, &question, now));
    assert_eq!(found.unwrap().1.sequence, 0);
    // An answer is not answered.
    greet(&mut question, &header, &expected);
    assert_eq!(collector.datagram(AGENT, &question, now), None);
    assert_eq!(collector.datagram(AGENT, b"rubbish", now), None);
}

#[test]
fn lines_say_who_told_of_them() {
    let mut collector = Collector::new(&CollectorConfig::default());
    let mut agent = exporter(7);
    let now = START + SECOND;
    collector.datagram(AGENT, &drain(&mut agent, now, 1), now);
    let mut lines = Vec::<Value>::new();
    collector.finish(now, &mut |line| {
        lines.push(serde_json::to_value(line).unwrap());
    });
    assert_eq!(lines[0]["exporters"], serde_json::json!(["10.0.0.1"]));
}

/// Each length, count and address in a datagram is made to lie, one after the other, and it is cut everywhere.
#[test]
fn datagrams_that_lie_are_counted_by_who_sent_them_and_hide_nothing_that_comes_later() {
    let mut agent = exporter(7);
    let good = drain(&mut agent, START, 1);
    let liar = IpAddr::from([10, 9, 9, 9]);
    let mut collector = Collector::new(&CollectorConfig::default());
    let mut number = 0u32;
    let mut numbered = |bytes: &[u8]| {
        number += 1;
        let mut bytes = bytes.to_vec();
        if let Some(sequence) = bytes.get_mut(16..20) {
            sequence.copy_from_slice(&number.to_be_bytes());
        }
        bytes
    };
    for length in 0..good.len() {
        collector.datagram(liar, &numbered(&good[..length]), START);
    }
    let summary = collector.summary();
    assert_eq!(summary.lost["decode_error"], good.len() as u64);
    assert_eq!(summary.unreadable[0].from, liar);
    for at in (0..good.len() - 3).step_by(4) {
        for lie in [0, 1, 3, 0x7fff_ffff, 0x8000_0000, u32::MAX] {
            let mut wrong = numbered(&good);
            wrong[at..at + 4].copy_from_slice(&lie.to_be_bytes());
            collector.datagram(liar, &wrong, START);
        }
    }
    let summary = collector.summary();
    assert!(summary.agents.len() < 64 && summary.keys < 1_024);
    collector.datagram(AGENT, &drain(&mut agent, START + SECOND, 2), START + SECOND);
    let mut found = false;
    collector.finish(START + SECOND, &mut |line| {
        found |= line.exporters.iter().any(|agent| agent == AGENT);
    });
    assert!(found);
    // From the stranger it is another stream.
    let ours = |agent: &&skua_collect::AgentLine| agent.from == AGENT;
    let summary = collector.summary();
    assert_eq!(summary.agents.iter().find(ours).unwrap().records, 1);
}
