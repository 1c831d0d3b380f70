//! tshark reads what an agent sends and finds nothing malformed.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::{net::Ipv4Addr, num::NonZeroU32, process::Command};

use skua_collect::{Drain, Enrichment, Exporter, ExporterConfig, Offered, Tcp};
use skua_flow::{Counters, EndReason, FlowKey, FlowRecord, FlowUpdate};
use skua_wire::sflow::{self, Name, Record, Sample, SocketTcp, TcpInfo};

/// Knows three owners, and a round-trip time of each conversation.
struct Owners;

impl Enrichment for Owners {
    fn name(&self, owner: NonZeroU32) -> Option<Name<'_>> {
        let process = ["a", "nginx", "a longer one"].get(owner.get() as usize - 1)?;
        Some(Name {
            process,
            ..Name::default()
        })
    }

    fn tcp(&self, _: &FlowRecord) -> Option<Tcp> {
        Some(Tcp {
            socket: SocketTcp {
                destination: true,
                srtt_us: 1_500,
            },
            info: Some(TcpInfo {
                direction: 2,
                send_mss: 1_448,
                retransmitted: 3,
                rtt_us: 1_500,
                congestion_window: 10,
                ..TcpInfo::default()
            }),
        })
    }
}

/// How many samples have the standard structure of TCP.
fn tcp_infos(datagram: &[u8]) -> usize {
    let read = sflow::decode(datagram).unwrap();
    let flows = read.samples().filter_map(|sample| match sample.unwrap() {
        Sample::Flow(sample) => Some(sample),
        _ => None,
    });
    let has = |sample: &sflow::FlowSample<'_>| {
        sample.records().any(|record| match record.unwrap() {
            Record::TcpInfo(info) => (info.direction, info.retransmitted) == (0, 3),
            _ => false,
        })
    };
    flows.filter(has).count()
}

/// A packet of UDP to port 6343 in IPv4, as a record of a pcap file.
fn record(datagram: &[u8]) -> Vec<u8> {
    let udp = 8 + datagram.len() as u16;
    let ip = 20 + udp;
    let mut out = Vec::new();
    for word in [1, 0, u32::from(ip), u32::from(ip)] {
        out.extend(word.to_le_bytes());
    }
    out.extend([0x45, 0]);
    out.extend(ip.to_be_bytes());
    out.extend([0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    for word in [40_000, 6_343, udp, 0] {
        out.extend(u16::to_be_bytes(word));
    }
    out.extend(datagram);
    out
}

#[test]
fn tshark_finds_nothing_malformed() {
    let mut exporter = Exporter::new(ExporterConfig {
        agent: [10, 0, 0, 1].into(),
        sub_agent: 0,
        instance: 1,
        started_ns: 0,
        datagram: 1_400,
        both_directions: true,
    });
    let update = |number: u16| FlowUpdate {
        key: FlowKey {
            lo: Ipv4Addr::new(10, 0, 0, 1).to_ipv6_mapped().octets(),
            hi: Ipv4Addr::new(10, 0, 0, 2).to_ipv6_mapped().octets(),
            lo_port: (40_000 + number).to_be_bytes(),
            hi_port: 443u16.to_be_bytes(),
            ifindex: 2,
            // One in another namespace, one of UDP, one in IPv6.
            netns: number % 2,
            proto: if number.is_multiple_of(3) { 17 } else { 6 },
            kind: if number.is_multiple_of(5) { 2 } else { 1 } | 4,
            ..FlowKey::default()
        },
        lo_sent: Counters::new(u64::from(number) + 1, 1_000),
        lo_first: true,
        hi_sent: Counters::new(3, 300),
        end: (number.is_multiple_of(4)).then_some(EndReason::Closed),
        ..FlowUpdate::default()
    };
    let records: Vec<_> = (0..60)
        .map(|number| FlowRecord {
            owners: [NonZeroU32::new(u32::from(number % 4)), None],
            ..FlowRecord::new(&update(number), 1, 1, 1, 1)
        })
        .collect();
    // Magic, version 2.4, snap length, and that packets begin with their IP header.
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4, 4 << 16 | 2, 0, 0, 65_535, 101] {
        file.extend(u32::to_le_bytes(word));
    }
    let (mut datagrams, mut infos) = (0, 0);
    let drain = Drain {
        enrichment: &Owners,
        ..Drain::at(1)
    };
    exporter.export(records.iter(), &drain, |datagram| {
        datagrams += 1;
        infos += tcp_infos(datagram);
        file.extend(record(datagram));
        Offered::Queued
    });
    assert!(datagrams > 5);
    // All are exported for the first time; a third is UDP.
    assert_eq!(infos, 40);
    let path = std::env::temp_dir().join(format!("col-tshark-{}.pcap", std::process::id()));
    std::fs::write(&path, file).unwrap();
    let run = |arguments: &[&str]| {
        let mut command = Command::new("tshark");
        let output = command
            .arg("-r")
            .arg(&path)
            .args(arguments)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let malformed = run(&["-Y", "_ws.malformed or _ws.expert"]);
    let text = run(&["-V"]);
    std::fs::remove_file(&path).unwrap();
    assert_eq!(malformed, "");
    // What it does not know it names, and goes on with the next sample.
    assert_eq!(text.matches("(2209)").count(), infos);
    // Of each conversation the standard record.
    let found = text.matches("Destination Port: 443").count();
    assert_eq!(
        found,
        records.len(),
        "{}",
        text.get(..3_000).unwrap_or(&text)
    );
}
