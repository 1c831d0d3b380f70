//! What goes in comes out: records through datagrams to lines, with losses, duplicates, restarts and
//! several agents on the way.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr},
    num::NonZeroU32,
};

use proptest::prelude::*;
use serde_json::Value;
use skua_collect::{
    Cause, Collector, CollectorConfig, Drain, Enrichment, Exporter, ExporterConfig, Offered, Shard,
    Tcp,
};
use skua_flow::{
    Counters, EndReason, FlowKey, FlowRecord, FlowStore, FlowUpdate, Ownership, Service,
    ServiceRule, StoreLimits,
};
use skua_wire::{
    netflow::v5,
    sflow::{Name, ServiceName, SocketTcp},
};

const SECOND: u64 = 1_000_000_000;
/// A moment at the beginning of a window.
const START: u64 = 1_800_000_000 * SECOND;

fn address(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, last)
}

/// A TCP conversation of a client (lower address) with a service of 10.0.0.200.
fn key(client: u8, client_port: u16, port: u16) -> FlowKey {
    FlowKey {
        lo: address(client).to_ipv6_mapped().octets(),
        hi: address(200).to_ipv6_mapped().octets(),
        lo_port: client_port.to_be_bytes(),
        hi_port: port.to_be_bytes(),
        ifindex: 2,
        proto: 6,
        // IPv4 in Ethernet.
        kind: 1 | 4,
        ..FlowKey::default()
    }
}

/// An agent: what its drains bring goes to datagrams.
struct Agent {
    address: IpAddr,
    store: FlowStore,
    exporter: Exporter,
    known: Neighbours,
    /// What it says of all records.
    moved: bool,
    /// Owners of the client and the service.
    owners: [Option<NonZeroU32>; 2],
    service_known: bool,
}

/// Knows owners 1 to 9, and what their sockets measure when that is not 0.
#[derive(Default)]
struct Neighbours {
    srtt_us: u32,
}

const SERVICES: [&str; 9] = ["a", "b", "c", "d", "e", "f", "g", "h", "i"];

impl Enrichment for Neighbours {
    fn name(&self, owner: NonZeroU32) -> Option<Name<'_>> {
        let unit = SERVICES.get(owner.get() as usize - 1)?;
        Some(Name {
            by: ServiceName::Unit,
            process: "sh",
            unit,
            ..Name::default()
        })
    }

    fn tcp(&self, _: &FlowRecord) -> Option<Tcp> {
        (self.srtt_us > 0).then_some(Tcp {
            socket: SocketTcp {
                destination: false,
                srtt_us: self.srtt_us,
            },
            info: None,
        })
    }
}

impl Agent {
    fn new(last: u8, instance: u64) -> Self {
        let address = address(last).into();
        Self {
            address,
            store: {
                let mut store = FlowStore::new(StoreLimits::default(), instance, 1);
                store.note_touched();
                store
            },
            exporter: Exporter::new(ExporterConfig {
                agent: address,
                sub_agent: 0,
                instance,
                started_ns: START - SECOND,
                datagram: 1_024,
                both_directions: true,
            }),
            known: Neighbours::default(),
            moved: false,
            owners: [None; 2],
            service_known: true,
        }
    }

    /// A drain at a moment.
    fn owned(mut self, client: u32, server: u32) -> Self {
        self.owners = [NonZeroU32::new(client), NonZeroU32::new(server)];
        self
    }

    fn drain(&mut self, now: u64, updates: &[FlowUpdate]) -> Vec<Vec<u8>> {
        self.store.begin_drain(now);
        for update in updates {
            self.store.apply_owned(update, |_| Ownership {
                service: self.service_known.then_some(Service {
                    lo: false,
                    by: ServiceRule::Kernel,
                }),
                owners: self.owners,
            });
        }
        self.store.end_drain();
        let mut datagrams = Vec::new();
        let records: Vec<FlowRecord> = self.store.touched().copied().collect();
        let drain = Drain {
            enrichment: &self.known,
            moved: &|_| self.moved,
            ..Drain::at(now)
        };
        self.exporter.export(records.iter(), &drain, |bytes| {
            datagrams.push(bytes.to_vec());
            Offered::Queued
        });
        datagrams
    }
}

fn update(key: FlowKey, at: u64, sent: [u64; 2]) -> FlowUpdate {
    let counters = |packets| Counters::new(packets, packets * 100);
    FlowUpdate {
        key,
        lo_sent: counters(sent[0]),
        hi_sent: counters(sent[1]),
        lo_first: true,
        first_ns: at,
        last_ns: at,
        ..FlowUpdate::default()
    }
}

fn collector() -> Collector {
    Collector::new(&CollectorConfig::default())
}

fn lines(collector: &mut Collector, now: u64) -> Vec<Value> {
    let mut lines = Vec::new();
    collector.close(now, &mut |line| {
        lines.push(serde_json::to_value(line).unwrap())
    });
    lines
}

fn finish(collector: &mut Collector, now: u64) -> Vec<Value> {
    let mut lines = Vec::new();
    collector.finish(now, &mut |line| {
        lines.push(serde_json::to_value(line).unwrap())
    });
    lines
}

fn packets(lines: &[Value]) -> u64 {
    let sent = |line: &Value, side: &str| line[side]["packets"].as_u64().unwrap();
    lines
        .iter()
        .map(|line| sent(line, "client_sent") + sent(line, "server_sent"))
        .sum()
}

#[test]
fn clients_of_a_service_are_one_line_and_windows_close_in_time() {
    let (mut agent, mut collector) = (Agent::new(1, 7), collector());
    let at = START + SECOND;
    let updates: Vec<_> = (0..20)
        .map(|n| update(key(1, 40_000 + n, 443), at, [3, 2]))
        .collect();
    for datagram in agent.drain(at + SECOND, &updates) {
        assert!(datagram.len() <= 1_024);
        collector.datagram(agent.address, &datagram, at + SECOND);
    }
    assert!(lines(&mut collector, START + 24 * SECOND).is_empty());
    let lines = lines(&mut collector, START + 25 * SECOND);
    assert_eq!(lines.len(), 1, "{lines:?}");
    let line = &lines[0];
    assert_eq!(line["window"], "2027-01-15T08:00:00.000000000Z");
    assert_eq!(line["client"], "10.0.0.1");
    assert_eq!(line["server"], "10.0.0.200");
    assert_eq!(line["port"], 443);
    assert_eq!(line["service_by"], "kernel");
    assert_eq!(line["client_sent"]["packets"], 60);
    assert_eq!(line["server_sent"]["bytes"], 4_000);
    assert_eq!(line["begun"], 20);
    assert_eq!(line["client_ports"]["list"].as_array().unwrap().len(), 16);
    assert_eq!(line["client_ports"]["beyond"], 4);
}

#[test]
fn a_lost_datagram_is_told_and_what_it_had_comes_with_the_next_sums() {
    let (mut agent, mut collector) = (Agent::new(1, 7), collector());
    let one = key(1, 40_000, 443);
    let mut now = START;
    for round in 0..4 {
        now += SECOND;
        let datagrams = agent.drain(now, &[update(one, now, [10, 10])]);
        assert_eq!(datagrams.len(), 1);
        if round != 2 {
            collector.datagram(agent.address, &datagrams[0], now);
        }
    }
    let summary = collector.summary();
    assert_eq!(summary.lost["sequence_gap"], 1);
    let agent = &summary.agents[0];
    assert_eq!((agent.lost_datagrams, agent.lost_records), (1, 1));
    assert_eq!((summary.exported.packets, summary.got.packets), (80, 80));
    assert_eq!(packets(&finish(&mut collector, now)), 80);
}

#[test]
fn when_the_last_word_on_a_conversation_is_lost_exactly_that_is_missing() {
    let (mut agent, mut collector) = (Agent::new(1, 7), collector());
    let one = key(1, 40_000, 443);
    let first = agent.drain(START + SECOND, &[update(one, START, [10, 10])]);
    collector.datagram(agent.address, &first[0], START + SECOND);
    agent.drain(START + 2 * SECOND, &[update(one, START + SECOND, [4, 3])]);
    let last = agent.drain(START + 3 * SECOND, &[]);
    collector.datagram(agent.address, &last[0], START + 3 * SECOND);
    let summary = collector.summary();
    assert_eq!((summary.exported.packets, summary.missing.packets), (27, 7));
    assert_eq!(summary.missing.bytes, 700);
    assert_eq!(packets(&finish(&mut collector, START + 4 * SECOND)), 20);
}

/// What an exporter of NetFlow 5 sends in one datagram, sent at a moment, of packets of 100 bytes of each side.
fn exported(at: u64, one: &FlowKey, sent: [u32; 2]) -> Vec<u8> {
    let address = |bytes: [u8; 16]| [bytes[12], bytes[13], bytes[14], bytes[15]];
    let port = u16::from_be_bytes;
    let there = v5::Record {
        source: address(one.lo),
        destination: address(one.hi),
        source_port: port(one.lo_port),
        destination_port: port(one.hi_port),
        packets: sent[0],
        octets: sent[0] * 100,
        protocol: one.proto,
        tcp_flags: 0x10,
        first: 1_000,
        last: 1_000,
        ..v5::Record::default()
    };
    let back = v5::Record {
        source: there.destination,
        destination: there.source,
        source_port: there.destination_port,
        destination_port: there.source_port,
        packets: sent[1],
        octets: sent[1] * 100,
        ..there
    };
    let mut datagram = Vec::new();
    v5::Header {
        count: 2,
        uptime_ms: 1_000,
        unix_secs: (at / SECOND) as u32,
        ..v5::Header::default()
    }
    .encode(&mut datagram);
    there.encode(&mut datagram);
    back.encode(&mut datagram);
    datagram
}

#[test]
fn what_a_router_tells_of_a_hosts_conversation_is_counted_once() {
    for router_first in [false, true] {
        let (mut agent, mut collector) = (Agent::new(1, 7), collector());
        let router = IpAddr::from([10, 9, 0, 1]);
        let one = key(1, 40_000, 443);
        let now = START + SECOND;
        let datagrams = agent.drain(now, &[update(one, now, [30, 20])]);
        // It has seen two packets that did not get to the host.
        let exported = exported(now, &one, [30, 22]);
        let both = [(agent.address, &datagrams[0]), (router, &exported)];
        let order = if router_first { [1, 0] } else { [0, 1] };
        for place in order {
            let (from, bytes) = both[place];
            collector.datagram(from, bytes, now);
        }
        let lines = finish(&mut collector, START + 60 * SECOND);
        assert_eq!(packets(&lines), 52, "{lines:#?}");
        assert_eq!((lines.len(), &lines[0]["joined"]), (1, &1.into()));
        assert_eq!(lines[0]["service_by"], "kernel");
        let summary = collector.summary();
        assert_eq!(
            (summary.counted.packets, summary.elsewhere.packets),
            (52, 50)
        );
    }
}

#[test]
fn both_hosts_are_joined_and_their_difference_is_kept() {
    let (mut client, mut server) = (Agent::new(1, 7), Agent::new(2, 8));
    let mut collector = collector();
    let one = key(1, 40_000, 443);
    let end = |mut update: FlowUpdate| {
        update.end = Some(EndReason::Closed);
        update
    };
    // The server got two packets less than the client sent.
    for (agent, sent) in [(&mut client, [50, 40]), (&mut server, [48, 40])] {
        let now = START + SECOND;
        let updates = [end(update(one, START, sent))];
        for datagram in agent.drain(now, &updates) {
            collector.datagram(agent.address, &datagram, now);
        }
    }
    let lines = finish(&mut collector, START + 2 * SECOND);
    assert_eq!(lines.len(), 1);
    assert_eq!(packets(&lines), 90);
    let line = &lines[0];
    assert_eq!(line["joined"], 1);
    assert_eq!((&line["begun"], &line["ended"]), (&1.into(), &1.into()));
    assert_eq!(line["between_hosts"]["client_packets"], 2);
    assert_eq!(line["between_hosts"]["server_packets"], 0);
    let summary = collector.summary();
    assert_eq!(summary.elsewhere.packets, 88);
    assert_eq!(summary.counted.packets, 90);
}

#[test]
fn duplicates_and_late_windows_are_counted() {
    let (mut agent, mut collector) = (Agent::new(1, 7), collector());
    let one = key(1, 40_000, 443);
    let datagrams = agent.drain(START + SECOND, &[update(one, START, [5, 5])]);
    for _ in 0..2 {
        collector.datagram(agent.address, &datagrams[0], START + SECOND);
    }
    assert_eq!(collector.counts().of(Cause::Duplicate), 1);
    assert_eq!(packets(&lines(&mut collector, START + 100 * SECOND)), 10);
    // Told 99 s after it was seen.
    let late = agent.drain(
        START + 100 * SECOND,
        &[update(one, START + 2 * SECOND, [1, 1])],
    );
    collector.datagram(agent.address, &late[0], START + 101 * SECOND);
    let summary = collector.summary();
    assert_eq!(summary.lost["late"], 1);
    assert_eq!((summary.late.packets, summary.counted.packets), (2, 10));
    assert!(finish(&mut collector, START + 102 * SECOND).is_empty());
}

#[test]
fn an_agent_that_starts_anew_goes_on_where_it_was() {
    let mut collector = collector();
    let one = key(1, 40_000, 443);
    for (instance, at) in [(7, START + SECOND), (8, START + 30 * SECOND)] {
        let mut agent = Agent::new(1, instance);
        for datagram in agent.drain(at, &[update(one, at, [10, 0])]) {
            collector.datagram(agent.address, &datagram, at);
        }
    }
    assert_eq!(collector.counts().counted.packets, 20);
    assert_eq!(packets(&finish(&mut collector, START + 31 * SECOND)), 20);
}

#[test]
fn a_collector_that_comes_late_counts_what_is_new() {
    let (mut agent, mut collector) = (Agent::new(1, 7), collector());
    let one = key(1, 40_000, 443);
    agent.drain(START + SECOND, &[update(one, START, [1_000, 1_000])]);
    let now = START + 11 * SECOND;
    let datagrams = agent.drain(now, &[update(one, START + 10 * SECOND, [5, 5])]);
    collector.datagram(agent.address, &datagrams[0], now);
    let summary = collector.summary();
    assert_eq!(
        (
            summary.exported.packets,
            summary.got.packets,
            summary.missing.packets
        ),
        (10, 10, 0)
    );
    assert_eq!(summary.exported_before.packets, 2_000);
    // The next run of the agent, whose first datagram does not come.
    let mut agent = Agent::new(1, 8);
    agent.drain(now, &[update(key(2, 40_000, 443), now, [100, 100])]);
    let now = now + SECOND;
    let datagrams = agent.drain(now, &[update(key(3, 40_000, 443), now, [2, 2])]);
    collector.datagram(agent.address, &datagrams[0], now);
    let summary = collector.summary();
    assert_eq!(summary.exported_before.packets, 2_200);
    assert_eq!(summary.exported.packets, 14);
    assert_eq!(packets(&finish(&mut collector, now)), 14);
}

/// One collector after the other gets what two hosts export of one conversation, whose drains are seconds apart. What one of them
/// has exported to the collector before is known to the next one only when that host exports more: then it counts so much less.
#[test]
fn collectors_that_take_over_from_each_other_count_each_packet_once() {
    let one = key(1, 40_000, 443);
    for (apart, begin) in (0..6).flat_map(|apart| (0..17).map(move |begin| (apart, begin))) {
        let mut agents = [Agent::new(1, 7), Agent::new(2, 8)];
        let (mut collector, mut counted) = (collector(), 0);
        // Ten packets a second each way; of each agent, up to when it has exported.
        let mut exported = [START; 2];
        for second in 1..=72 {
            let now = START + second * SECOND;
            if second % 17 == begin && second < 55 {
                counted += packets(&finish(&mut collector, now));
                collector = self::collector();
            }
            for (number, agent) in agents.iter_mut().enumerate() {
                if second % 6 != [0, apart][number] && second != 72 {
                    continue;
                }
                let sent = (now - exported[number]) / SECOND * 10;
                exported[number] = now;
                for datagram in agent.drain(now, &[update(one, now, [sent, sent])]) {
                    collector.datagram(agent.address, &datagram, now);
                }
            }
        }
        let summary = collector.summary();
        assert_eq!(summary.missing.packets, 0);
        let known = summary.counted.packets + summary.elsewhere.packets;
        assert_eq!(summary.got.packets, known);
        counted += packets(&finish(&mut collector, START + 73 * SECOND));
        assert_eq!(counted, 2 * 72 * 10, "{apart} s apart, from {begin} s on");
    }
}

#[test]
fn a_wrong_clock_is_shown_and_its_times_are_set_right() {
    for hours in [5, -5] {
        let (mut agent, mut collector) = (Agent::new(1, 7), collector());
        let now = START + SECOND;
        let theirs = now.saturating_add_signed(-hours * 3_600 * SECOND as i64);
        let datagrams = agent.drain(theirs, &[update(key(1, 40_000, 443), theirs, [5, 5])]);
        collector.datagram(agent.address, &datagrams[0], now);
        let summary = collector.summary();
        assert_eq!(summary.agents[0].clock_ms, hours * 3_600_000);
        assert_eq!(summary.clock_corrected, 1);
        let lines = finish(&mut collector, START + 2 * SECOND);
        assert_eq!(lines[0]["window"], "2027-01-15T08:00:00.000000000Z");
    }
}

#[test]
fn keys_conversations_and_agents_are_bounded() {
    let config = CollectorConfig {
        max_keys: 2,
        max_conversations: 3,
        max_agents: 1,
        ..CollectorConfig::default()
    };
    let (mut agent, mut collector) = (Agent::new(1, 7), Collector::new(&config));
    let now = START + SECOND;
    let updates: Vec<_> = (0..5)
        .map(|n| update(key(1, 40_000, 443 + n), START, [3, 2]))
        .collect();
    for datagram in agent.drain(now, &updates) {
        collector.datagram(agent.address, &datagram, now);
    }
    let mut other = Agent::new(2, 8);
    for datagram in other.drain(now, &updates) {
        collector.datagram(other.address, &datagram, now);
    }
    let summary = collector.summary();
    assert_eq!(summary.lost["keys_full"], 3);
    assert_eq!(summary.keys_full.packets, 15);
    assert!(summary.lost["agents_full"] > 0);
    assert_eq!((summary.untracked, summary.conversations), (2, 3));
    assert_eq!(summary.got.packets, 25);
    assert_eq!(packets(&finish(&mut collector, now)), 10);
}

/// Short connections, exported by both of their hosts, two interfaces each.
fn short_connections(collector: &mut Collector, count: u16, rounds: u64) -> u64 {
    let mut agents = [Agent::new(1, 7), Agent::new(2, 8)];
    let mut sent = 0;
    for round in 0..rounds {
        let now = START + round * 2 * SECOND;
        let updates: Vec<_> = (0..count)
            .flat_map(|n| {
                let mut one = update(key(1, 1_000 + n, 443 + round as u16), now, [3, 2]);
                one.end = Some(EndReason::Closed);
                let mut other = one;
                other.key.ifindex = 3;
                sent += 5;
                [one, other]
            })
            .collect();
        for agent in &mut agents {
            for datagram in agent.drain(now + SECOND, &updates) {
                collector.datagram(agent.address, &datagram, now + SECOND);
            }
        }
    }
    sent
}

#[test]
fn a_full_table_of_conversations_counts_none_twice_and_says_what_it_did_not_join() {
    let config = CollectorConfig {
        max_conversations: 50,
        ..CollectorConfig::default()
    };
    let mut collector = Collector::new(&config);
    let mut agents = [Agent::new(1, 7), Agent::new(2, 8)];
    // They go on: none of them ends.
    let mut sent = 0;
    for round in 0..3 {
        let now = START + round * SECOND;
        let updates: Vec<_> = (0..1_000)
            .map(|n| {
                let mut update = update(key(1, 1_000 + n, 443), now, [3, 2]);
                update.first_ns = START;
                update
            })
            .collect();
        sent += 5_000;
        for agent in &mut agents {
            for datagram in agent.drain(now, &updates) {
                collector.datagram(agent.address, &datagram, now);
            }
        }
    }
    let summary = collector.summary();
    assert_eq!(summary.counted.packets, sent);
    assert_eq!(summary.elsewhere.packets, sent);
    assert_eq!(summary.got.packets, 2 * sent);
    assert!(summary.lost["not_joined"] > 2_000, "{:?}", summary.lost);
    assert_eq!(packets(&finish(&mut collector, START + 4 * SECOND)), sent);
}

#[test]
fn connections_that_have_ended_at_both_hosts_leave_room_for_others_at_once() {
    let config = CollectorConfig {
        max_conversations: 1_000,
        ..CollectorConfig::default()
    };
    let mut collector = Collector::new(&config);
    let sent = short_connections(&mut collector, 500, 20);
    let summary = collector.summary();
    assert_eq!((summary.untracked, summary.conversations), (0, 0));
    assert!(summary.compact_conversations >= 5_000);
    assert_eq!(summary.counted.packets, sent);
    assert_eq!(summary.got.packets, 4 * sent);
    assert!(summary.lost.is_empty(), "{:?}", summary.lost);
    let lines = finish(&mut collector, START + 60 * SECOND);
    let sum = |name: &str| {
        lines
            .iter()
            .map(|line| line[name].as_u64().unwrap())
            .sum::<u64>()
    };
    assert_eq!(
        (sum("begun"), sum("ended"), sum("joined")),
        (10_000, 10_000, 10_000)
    );
}

#[test]
fn a_port_that_is_used_again_at_once_is_another_connection_at_both_hosts() {
    let (mut agents, mut collector) = ([Agent::new(1, 7), Agent::new(2, 8)], collector());
    for round in 0..10 {
        let now = START + round * SECOND;
        let mut one = update(key(1, 40_000, 443), now, [3, 2]);
        one.end = Some(EndReason::Closed);
        agents.reverse();
        for agent in &mut agents {
            for datagram in agent.drain(now, &[one]) {
                collector.datagram(agent.address, &datagram, now);
            }
        }
    }
    let summary = collector.summary();
    assert_eq!((summary.got.packets, summary.counted.packets), (100, 50));
    let lines = finish(&mut collector, START + 11 * SECOND);
    let sum = |name: &str| {
        lines
            .iter()
            .map(|line| line[name].as_u64().unwrap())
            .sum::<u64>()
    };
    assert_eq!((sum("begun"), sum("ended")), (10, 10));
}

#[test]
fn what_no_room_at_all_is_found_for_is_not_counted_and_said() {
    let config = CollectorConfig {
        max_conversations: 0,
        ..CollectorConfig::default()
    };
    let mut collector = Collector::new(&config);
    let mut sent = 0;
    for client in [1, 2] {
        let mut agent = Agent::new(client, client.into());
        let updates: Vec<_> = (0..40_000)
            .map(|n| update(key(client, n, 443), START, [3, 2]))
            .collect();
        for datagram in agent.drain(START, &updates) {
            collector.datagram(agent.address, &datagram, START);
        }
        sent += 200_000;
    }
    let summary = collector.summary();
    assert_eq!(summary.lost["conversations_full"], 80_000 - 65_536);
    assert_eq!(summary.counted.packets, 65_536 * 5);
    assert_eq!(
        summary.conversations_full.packets + summary.counted.packets,
        sent
    );
}

/// A datagram without samples.
fn empty(agent: u8, sub_agent: u32, sequence: u32) -> Vec<u8> {
    [
        5,
        1,
        u32::from_be_bytes([10, 9, 9, agent]),
        sub_agent,
        sequence,
        1,
        0,
    ]
    .iter()
    .flat_map(|word: &u32| word.to_be_bytes())
    .collect()
}

#[test]
fn a_flood_of_agents_from_one_address_takes_that_address_places_only_and_they_age() {
    let (mut known, mut collector) = (Agent::new(1, 7), collector());
    let one = key(1, 40_000, 443);
    let mut now = START;
    let export = |agent: &mut Agent, collector: &mut Collector, now| {
        for datagram in agent.drain(now, &[update(one, now, [3, 2])]) {
            collector.datagram(agent.address, &datagram, now);
        }
    };
    export(&mut known, &mut collector, now);
    let flooder: IpAddr = address(99).into();
    for sub_agent in 0..50_000 {
        let datagram = empty(1, sub_agent, 1);
        assert_eq!(datagram.len(), 28);
        collector.datagram(flooder, &datagram, now);
    }
    assert_eq!(collector.counts().of(Cause::AgentsFull), 0);
    assert_eq!(collector.counts().of(Cause::SenderFull), 50_000 - 1_024);
    // Those who are known, and others, are heard.
    let mut other = Agent::new(2, 8);
    now += SECOND;
    export(&mut known, &mut collector, now);
    export(&mut other, &mut collector, now);
    assert_eq!(collector.summary().agents.len(), 1_026);
    // Nobody has to begin anew.
    now += 2 * 60 * SECOND;
    lines(&mut collector, now);
    let summary = collector.summary();
    assert_eq!(
        (summary.agents.len(), summary.removed_agents.agents),
        (2, 1_024)
    );
}

#[test]
fn places_of_agents_that_are_silent_go_to_others_and_their_sums_stay() {
    let config = CollectorConfig {
        max_agents: 4,
        ..CollectorConfig::default()
    };
    let mut collector = Collector::new(&config);
    let mut now = START;
    for round in 0..10u8 {
        for number in 0..4u8 {
            let client = 1 + round * 4 + number;
            let mut agent = Agent::new(client, client.into());
            for step in 0..2 {
                now += SECOND;
                let sent = update(key(client, 40_000, 443), now, [3, 2]);
                let datagrams = agent.drain(now, &[sent]);
                // The last is lost, which the next says.
                if (round, step) != (9, 1) {
                    collector.datagram(agent.address, &datagrams[0], now);
                }
                let hello = agent.drain(now, &[]);
                collector.datagram(agent.address, &hello[0], now);
            }
        }
        assert!(!collector.summary().lost.contains_key("agents_full"));
        now += 1_000 * SECOND;
        lines(&mut collector, now);
    }
    let summary = collector.summary();
    assert_eq!(
        summary.removed_agents.agents,
        40 - summary.agents.len() as u64
    );
    assert!(summary.removed_agents.agents >= 36);
    assert_eq!(summary.exported.packets, 400);
    assert_eq!((summary.got.packets, summary.missing.packets), (380, 20));
}

/// A line's client, server, and packets.
fn short(lines: &[Value]) -> Vec<(String, String, u64)> {
    let name = |line: &Value, side: &str| line[side].as_str().unwrap_or("?").to_owned();
    let mut all: Vec<_> = lines
        .iter()
        .map(|line| {
            (
                name(line, "client_service"),
                name(line, "server_service"),
                packets(std::slice::from_ref(line)),
            )
        })
        .collect();
    all.sort();
    all
}

#[test]
fn services_on_one_host_are_told_apart_by_their_names() {
    let (mut one, mut other) = (Agent::new(1, 7).owned(1, 0), Agent::new(1, 8).owned(2, 0));
    let mut collector = collector();
    let now = START + SECOND;
    let calls = |from: u16| -> Vec<_> {
        let call = |n| update(key(1, from + n, 443), START, [3, 2]);
        (0..9).map(call).collect()
    };
    for (agent, from) in [(&mut one, 40_000), (&mut other, 50_000)] {
        let datagrams = agent.drain(now, &calls(from));
        // A name is defined once in each datagram.
        assert!(datagrams.len() > 1);
        for datagram in datagrams {
            let count = datagram.windows(2).filter(|two| *two == b"sh").count();
            assert_eq!(count, 1);
            collector.datagram(agent.address, &datagram, now);
        }
    }
    let lines = finish(&mut collector, now);
    let expected = [("a", "?", 45), ("b", "?", 45)].map(|(c, s, n)| (c.into(), s.into(), n));
    assert_eq!(short(&lines), expected);
}

#[test]
fn what_a_second_host_knows_goes_for_all_of_a_conversation() {
    let (mut server, mut client) = (Agent::new(200, 7).owned(0, 3), Agent::new(1, 8).owned(1, 0));
    server.service_known = false;
    let mut collector = collector();
    let one = key(1, 40_000, 443);
    // Which side offers the service only the second knows; the next window has begun by then.
    for (agent, at) in [
        (&mut server, START + 9 * SECOND),
        (&mut client, START + 11 * SECOND),
    ] {
        agent.known.srtt_us = 500;
        for datagram in agent.drain(at, &[update(one, at, [5, 4])]) {
            collector.datagram(agent.address, &datagram, at);
        }
    }
    let lines = finish(&mut collector, START + 12 * SECOND);
    let lines: Vec<_> = lines
        .into_iter()
        .filter(|line| packets(std::slice::from_ref(line)) > 0)
        .collect();
    assert_eq!(short(&lines), [("a".into(), "c".into(), 9)]);
    let line = &lines[0];
    assert_eq!(line["port"], 443);
    assert_eq!(line["service_by"], "kernel");
    assert_eq!(line["client_ports"]["list"], serde_json::json!([40_000]));
    assert_eq!(line["rtt"]["count"], 1);
    assert_eq!(line["rtt"]["classes"], serde_json::json!([[470, 1]]));
}

#[test]
fn a_conversation_stays_joined_when_more_is_known_of_it() {
    let mut collector = collector();
    let one = key(1, 40_000, 443);
    let third = Agent::new(3, 9).owned(1, 3);
    for mut agent in [Agent::new(200, 7), Agent::new(1, 8), third] {
        for datagram in agent.drain(START + SECOND, &[update(one, START, [5, 4])]) {
            collector.datagram(agent.address, &datagram, START + SECOND);
        }
    }
    let lines = finish(&mut collector, START + 2 * SECOND);
    assert_eq!(short(&lines), [("a".into(), "c".into(), 9)]);
    assert_eq!(
        (&lines[0]["joined"], &lines[0]["begun"]),
        (&1.into(), &1.into())
    );
}

#[test]
fn names_beyond_the_most_are_counted_and_their_sides_are_addresses() {
    let config = CollectorConfig {
        max_names: 1,
        ..CollectorConfig::default()
    };
    let (mut agent, mut collector) = (Agent::new(1, 7).owned(1, 2), Collector::new(&config));
    let now = START + SECOND;
    for datagram in agent.drain(now, &[update(key(1, 40_000, 443), START, [1, 1])]) {
        collector.datagram(agent.address, &datagram, now);
    }
    assert_eq!(collector.counts().of(Cause::NamesFull), 1);
    let lines = finish(&mut collector, now);
    assert_eq!(short(&lines), [("a".into(), "?".into(), 2)]);
}

#[test]
fn attempts_that_failed_are_told_by_how() {
    const SYN: u8 = 2;
    const RST: u8 = 4;
    const ACK: u8 = 16;
    let (mut agent, mut collector) = (Agent::new(1, 7), collector());
    let ends = [
        ([SYN, RST | ACK], [1, 1], EndReason::Closed),
        ([SYN, 0], [3, 0], EndReason::Idle),
        ([SYN | ACK, SYN | ACK | RST], [5, 5], EndReason::Closed),
        ([SYN | ACK | 1, SYN | ACK | 1], [5, 5], EndReason::Closed),
    ];
    let updates: Vec<_> = (0..)
        .zip(ends)
        .map(|(n, (flags, sent, end))| {
            let mut update = update(key(1, 40_000 + n, 443), START, sent);
            update.tcp.flags = flags;
            update.tcp.lo_opened = Some(true);
            update.end = Some(end);
            update
        })
        .collect();
    let now = START + SECOND;
    for datagram in agent.drain(now, &updates) {
        collector.datagram(agent.address, &datagram, now);
    }
    let line = &finish(&mut collector, now)[0];
    let counts = ["ended", "refused", "timed_out", "reset"].map(|name| line[name].as_u64());
    assert_eq!(counts, [4, 1, 1, 1].map(Some), "{line}");
}

#[test]
fn a_conversation_that_others_were_told_of_counts_with_what_is_new() {
    let (mut agent, mut collector) = (Agent::new(1, 7), collector());
    let one = key(1, 40_000, 443);
    let mut now = START;
    for round in 0..3 {
        now += SECOND;
        agent.moved = round == 2;
        let datagrams = agent.drain(now, &[update(one, now, [10, 10])]);
        // The second went to another collector.
        if round != 1 {
            collector.datagram(agent.address, &datagrams[0], now);
        }
    }
    assert_eq!(packets(&finish(&mut collector, now)), 40);
}

#[test]
fn shards_together_count_what_one_collector_does() {
    let shards = |of| -> Vec<_> {
        (0..of)
            .map(|number| {
                Collector::new(&CollectorConfig {
                    shard: Shard::new(number, of, 7),
                    ..CollectorConfig::default()
                })
            })
            .collect()
    };
    let results = [1, 3].map(|of| {
        let (mut all, now) = (shards(of), START + SECOND);
        for who in [1, 2] {
            let mut agent = Agent::new(who, who.into()).owned(1, 2);
            let updates: Vec<_> = (0..100u8)
                .map(|n| {
                    update(
                        key(n, 40_000, 443),
                        START,
                        [u64::from(n) + u64::from(who), 1],
                    )
                })
                .collect();
            let datagrams = agent.drain(now, &updates);
            // One is lost.
            for datagram in datagrams[..1]
                .iter()
                .chain(&datagrams[2..])
                .chain(&agent.drain(now, &[]))
            {
                for shard in &mut all {
                    shard.datagram(agent.address, datagram, now);
                }
            }
        }
        let mut written: Vec<_> = all.iter_mut().flat_map(|one| finish(one, now)).collect();
        written.sort_by_key(|line| line["client"].to_string());
        let mut sums = all.iter().map(Collector::summary);
        let mut sum = sums.next().unwrap();
        sums.for_each(|other| sum.add_shard(&other));
        (written, serde_json::to_value(sum).unwrap())
    });
    assert!(results[0].0.len() > 90);
    assert!(results[0].1["missing"]["packets"].as_u64() > Some(0));
    assert_eq!(results[0], results[1]);
}

#[test]
fn samples_with_hardly_a_header_hide_nothing() {
    use skua_wire::sflow::{FlowHead, Header, RawHeader, Writer};
    let header = Header {
        agent: address(9).into(),
        sub_agent: 0,
        sequence: 1,
        uptime_ms: 1,
    };
    let packet = |header| RawHeader {
        protocol: 1,
        frame_length: 100,
        stripped: 4,
        header,
    };
    let mut whole = vec![0; 12];
    whole.extend([
        8, 0, 0x45, 0, 0, 82, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
    ]);
    whole.extend([0x9c, 0x40, 0, 53, 0, 62, 0, 0]);
    let mut datagram = Vec::new();
    let mut writer = Writer::new(&mut datagram, &header);
    for bytes in [&[][..], &[0], &[0, 1], &whole] {
        writer.flow_sample(&FlowHead::default(), |out| out.raw_header(&packet(bytes)));
    }
    let mut collector = collector();
    collector.datagram(IpAddr::from(address(9)), &datagram, START);
    assert_eq!(collector.counts().of(Cause::NoPacket), 3);
    assert_eq!(collector.counts().of(Cause::DecodeError), 0);
    let lines = finish(&mut collector, START + SECOND);
    assert_eq!((&lines[0]["port"], packets(&lines)), (&53.into(), 1));
}

#[test]
fn who_sends_what_cannot_be_read_is_told() {
    let mut collector = collector();
    for (last, times) in [(1, 2), (2, 1)] {
        for _ in 0..times {
            collector.datagram(IpAddr::from(address(last)), b"nonsense", START);
        }
    }
    let summary = collector.summary();
    assert_eq!(summary.lost["decode_error"], 3);
    let by: Vec<_> = summary
        .unreadable
        .iter()
        .map(|one| (one.from, one.datagrams))
        .collect();
    assert_eq!(by, [(address(1).into(), 2), (address(2).into(), 1)]);
}

#[derive(Clone, Debug)]
struct Step {
    agent: bool,
    conversation: u8,
    sent: [u64; 2],
    end: bool,
    lost: bool,
    twice: bool,
    anew: bool,
}

fn step() -> impl Strategy<Value = Step> {
    (
        any::<bool>(),
        0..6u8,
        [0..50u64, 0..50u64],
        prop::bool::weighted(0.2),
        prop::bool::weighted(0.2),
        prop::bool::weighted(0.2),
        prop::bool::weighted(0.05),
    )
        .prop_map(|(agent, conversation, sent, end, lost, twice, anew)| Step {
            agent,
            conversation,
            sent,
            end,
            lost,
            twice,
            anew,
        })
}

proptest! {
    /// Whatever is lost, comes twice or starts anew: exported = got + missing, got = counted + elsewhere +
    /// late + of full keys, counted = the lines' sum.
    #[test]
    fn sums_at_the_end_are_those_at_the_start_less_what_is_counted_as_lost(
        steps in prop::collection::vec(step(), 1..60),
        max_conversations in prop_oneof![Just(1_000_000), 0..4usize],
    ) {
        let mut agents = [Agent::new(1, 100), Agent::new(2, 200)];
        let mut now = START;
        let mut collector = Collector::new(&CollectorConfig {
            max_conversations,
            ..CollectorConfig::default()
        });
        let (mut all, mut lost, mut written) = (0, 0, 0);
        // What was sent before the first datagram that comes nobody can know.
        for agent in &mut agents {
            let hello = agent.drain(now, &[]);
            collector.datagram(agent.address, &hello[0], now);
        }
        let mut open: BTreeMap<(bool, u8), u64> = BTreeMap::new();
        for (number, step) in steps.iter().enumerate() {
            now += SECOND;
            let agent = &mut agents[usize::from(step.agent)];
            if step.anew {
                // It says at its end what it exported.
                let last = agent.drain(now, &[]);
                collector.datagram(agent.address, &last[0], now);
                *agent = Agent::new(1 + u8::from(step.agent), 300 + number as u64);
                let hello = agent.drain(now, &[]);
                collector.datagram(agent.address, &hello[0], now);
                open.retain(|(who, _), _| *who != step.agent);
            }
            let mut update = update(key(1, 40_000 + u16::from(step.conversation), 443), now, step.sent);
            let place = (step.agent, step.conversation);
            update.first_ns = *open.entry(place).or_insert(now);
            if step.end {
                update.end = Some(EndReason::Closed);
                open.remove(&place);
            }
            all += step.sent[0] + step.sent[1];
            for datagram in agent.drain(now, &[update]) {
                if step.lost {
                    lost += 1;
                    continue;
                }
                collector.datagram(agent.address, &datagram, now);
                if step.twice {
                    collector.datagram(agent.address, &datagram, now);
                }
            }
            written += packets(&lines(&mut collector, now));
        }
        for agent in &mut agents {
            let last = agent.drain(now, &[]);
            collector.datagram(agent.address, &last[0], now);
        }
        written += packets(&finish(&mut collector, now));
        let summary = collector.summary();
        prop_assert_eq!(summary.exported.packets, all);
        prop_assert_eq!(summary.got.packets + summary.missing.packets, all);
        prop_assert_eq!(
            summary.counted.packets + summary.elsewhere.packets + summary.late.packets
                + summary.conversations_full.packets,
            summary.got.packets
        );
        prop_assert_eq!(written, summary.counted.packets);
        prop_assert_eq!(summary.lost.contains_key("not_joined"), summary.untracked > 0);
        prop_assert_eq!(summary.lost.get("sequence_gap").copied().unwrap_or(0), lost);
        let records: u64 = summary.agents.iter().map(|agent| agent.lost_records).sum();
        prop_assert_eq!(records, lost);
        if lost == 0 {
            prop_assert_eq!(summary.missing.packets, 0);
        }
    }

    /// Any bytes: nothing panics.
    #[test]
    fn any_bytes(
        bytes in prop::collection::vec(any::<u8>(), 0..300),
        place in 0..400usize,
        value: u8,
    ) {
        let mut collector = collector();
        collector.datagram(IpAddr::from(address(1)), &bytes, START);
        let mut agent = Agent::new(1, 7);
        let mut good = agent.drain(START, &[update(key(1, 40_000, 443), START, [5, 5])]).remove(0);
        let length = good.len();
        good[place % length] = value;
        for _ in 0..2 {
            collector.datagram(agent.address, &good, START);
        }
        finish(&mut collector, START);
    }
}
