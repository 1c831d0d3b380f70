//! What collectors that know the standard alone get: both directions of a conversation, with the
//! interfaces where its packets came in and went out.
#![allow(clippy::unwrap_used)]

use std::net::Ipv4Addr;

use skua_collect::{Drain, Exporter, ExporterConfig, Offered};
use skua_flow::{Counters, Directions, FlowKey, FlowRecord, FlowUpdate};
use skua_wire::sflow::{self, Record, Sample};

/// Source, destination, packets that it stands for, bytes of each, input and output.
type Seen = (String, String, u32, u32, [u32; 2]);

/// The standard part of all samples of a record.
fn standard(record: &FlowRecord, both_directions: bool) -> Vec<Seen> {
    let mut exporter = Exporter::new(ExporterConfig {
        agent: [10, 0, 0, 9].into(),
        sub_agent: 0,
        instance: 1,
        started_ns: 0,
        datagram: 1_400,
        both_directions,
    });
    let mut seen = Vec::new();
    exporter.export([record].into_iter(), &Drain::at(2), |bytes| {
        let datagram = sflow::decode(bytes).unwrap();
        for sample in datagram.samples() {
            let Sample::Flow(sample) = sample.unwrap() else {
                continue;
            };
            let ip = sample.records().find_map(|record| match record.unwrap() {
                Record::Ip(ip) => Some(ip),
                _ => None,
            });
            let ip = ip.unwrap();
            let end = |address, port| format!("{address}:{port}");
            seen.push((
                end(ip.source, ip.source_port),
                end(ip.destination, ip.destination_port),
                sample.head.rate,
                ip.length,
                [sample.head.input, sample.head.output].map(|port| port.value),
            ));
        }
        Offered::Queued
    });
    seen
}

fn record(netns: u16, directions: u8, hi_packets: u64) -> FlowRecord {
    let update = FlowUpdate {
        key: FlowKey {
            lo: Ipv4Addr::new(10, 0, 0, 1).to_ipv6_mapped().octets(),
            hi: Ipv4Addr::new(10, 0, 0, 2).to_ipv6_mapped().octets(),
            lo_port: 40_000_u16.to_be_bytes(),
            hi_port: 443_u16.to_be_bytes(),
            ifindex: 7,
            netns,
            proto: 6,
            // IPv4 with an Ethernet header.
            kind: 1 | 4,
            ..FlowKey::default()
        },
        lo_first: true,
        lo_sent: Counters::new(10, 1_140),
        hi_sent: Counters::new(hi_packets, hi_packets * 1_014),
        directions: Directions(directions),
        ..FlowUpdate::default()
    };
    FlowRecord::new(&update, 1, 1, 1, 1)
}

#[test]
fn both_directions_are_samples_with_the_interfaces_where_packets_passed() {
    let (client, server) = ("10.0.0.1:40000".to_owned(), "10.0.0.2:443".to_owned());
    let there = |ports| (client.clone(), server.clone(), 10, 100, ports);
    let back = |ports| (server.clone(), client.clone(), 20, 1_000, ports);
    // The client is this host: what it sends goes out, what it gets comes in.
    let seen = standard(&record(0, 0b0110, 20), true);
    assert_eq!(seen, [there([0, 7]), back([7, 0])]);
    // Of a bridge's port in both ways; then not known.
    let seen = standard(&record(0, 0b1111, 20), true);
    assert_eq!(seen, [there([7, 7]), back([7, 7])]);
    let seen = standard(&record(0, 0, 20), true);
    assert_eq!(seen, [there([7, 0]), back([7, 0])]);
    // Another namespace has interfaces of the same numbers.
    let seen = standard(&record(3, 0b0110, 20), true);
    let other = (1 << 24) + 1;
    assert_eq!(seen, [there([0, other]), back([other, 0])]);
    // A side that was silent has no sample.
    assert_eq!(standard(&record(0, 0b0010, 0), true), [there([0, 7])]);
    assert_eq!(standard(&record(0, 0b0110, 20), false), [there([0, 7])]);
}
