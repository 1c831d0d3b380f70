//! sFlow: golden bytes of each structure, and any bytes.
#![allow(clippy::unwrap_used)]

use std::net::IpAddr;

use proptest::prelude::*;
use skua_wire::sflow::{
    self, Counters, CountersHead, DataSource, EthernetCounters, EthernetFrame, ExtendedRouter,
    ExtendedSwitch, FlowHead, Header, InterfaceCounters, IpPacket, Port, RawHeader, Record, Sample,
    Writer, header_protocol,
};

/// Numbers as XDR has them.
fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

const HEADER: [u32; 7] = [5, 1, 0x0a00_0001, 2, 77, 123_456, 1];

fn header() -> Header {
    Header {
        agent: "10.0.0.1".parse().unwrap(),
        sub_agent: 2,
        sequence: 77,
        uptime_ms: 123_456,
    }
}

fn head() -> FlowHead {
    FlowHead {
        sequence: 9,
        source: DataSource { class: 0, index: 3 },
        rate: 512,
        pool: 4_608,
        drops: 1,
        input: Port::interface(3),
        output: Port {
            format: 2,
            value: 4,
        },
    }
}

/// The datagram with one flow sample, its parts as the specification draws them.
fn flow_datagram(sample: &[u32], record_tag: u32, record: &[u8]) -> Vec<u8> {
    let mut body = words(sample);
    body.extend(words(&[1, record_tag, record.len() as u32]));
    body.extend(record);
    body
}

fn with_header(tag: u32, body: Vec<u8>) -> Vec<u8> {
    let mut datagram = words(&HEADER);
    datagram.extend(words(&[tag, body.len() as u32]));
    datagram.extend(body);
    datagram
}

const COMPACT: [u32; 7] = [9, 3, 512, 4_608, 1, 3, 2 << 30 | 4];

/// A record is read from golden bytes, and written as these.
fn golden(
    tag: u32,
    bytes: &[u8],
    expected: Record<'_>,
    write: impl FnOnce(&mut sflow::RecordWriter<'_>),
) {
    let datagram = with_header(1, flow_datagram(&COMPACT, tag, bytes));
    let read = sflow::decode(&datagram).unwrap();
    assert_eq!((read.header, read.count), (header(), 1));
    let Sample::Flow(sample) = read.samples().next().unwrap().unwrap() else {
        panic!("no flow sample");
    };
    assert_eq!(sample.head, head());
    let records: Vec<_> = sample.records().map(Result::unwrap).collect();
    assert_eq!(records, [expected]);
    let mut written = Vec::new();
    Writer::new(&mut written, &header()).flow_sample(&head(), write);
    assert_eq!(written, datagram);
}

#[test]
fn golden_raw_header() {
    let mut bytes = words(&[1, 1_518, 4, 5]);
    bytes.extend([1, 2, 3, 4, 5, 0, 0, 0]);
    let raw = RawHeader {
        protocol: header_protocol::ETHERNET,
        frame_length: 1_518,
        stripped: 4,
        header: &[1, 2, 3, 4, 5],
    };
    assert_eq!(raw.wire_len(), 1_514);
    golden(1, &bytes, Record::RawHeader(raw), |out| {
        out.raw_header(&raw)
    });
}

#[test]
fn golden_ethernet() {
    let mut bytes = words(&[64]);
    bytes.extend([2, 0, 0, 0, 0, 1, 0, 0, 2, 0, 0, 0, 0, 2, 0, 0]);
    bytes.extend(words(&[0x800]));
    let frame = EthernetFrame {
        length: 64,
        source: [2, 0, 0, 0, 0, 1],
        destination: [2, 0, 0, 0, 0, 2],
        kind: 0x800,
    };
    golden(2, &bytes, Record::Ethernet(frame), |out| {
        out.ethernet(&frame)
    });
}

#[test]
fn golden_ip() {
    let ip = |source: &str, destination: &str| IpPacket {
        length: 1_500,
        protocol: 6,
        source: source.parse().unwrap(),
        destination: destination.parse().unwrap(),
        source_port: 40_000,
        destination_port: 443,
        tcp_flags: 0x18,
        tos: 8,
    };
    let v4 = ip("192.0.2.1", "198.51.100.2");
    let bytes = words(&[1_500, 6, 0xc000_0201, 0xc633_6402, 40_000, 443, 0x18, 8]);
    golden(3, &bytes, Record::Ip(v4), |out| out.ip(&v4));
    let v6 = ip("fd00::1", "fd00::2");
    let bytes = words(&[
        1_500,
        6,
        0xfd00_0000,
        0,
        0,
        1,
        0xfd00_0000,
        0,
        0,
        2,
        40_000,
        443,
        0x18,
        8,
    ]);
    golden(4, &bytes, Record::Ip(v6), |out| out.ip(&v6));
}

#[test]
fn golden_extended() {
    let switch = ExtendedSwitch {
        source_vlan: 10,
        source_priority: 1,
        destination_vlan: 20,
        destination_priority: 2,
    };
    let bytes = words(&[10, 1, 20, 2]);
    golden(1001, &bytes, Record::Switch(switch), |out| {
        out.switch(&switch)
    });
    let router = ExtendedRouter {
        next_hop: "fd00::9".parse().unwrap(),
        source_mask: 24,
        destination_mask: 48,
    };
    let bytes = words(&[2, 0xfd00_0000, 0, 0, 9, 24, 48]);
    golden(1002, &bytes, Record::Router(router), |out| {
        out.router(&router)
    });
    let tag = sflow::tag(0xfffff, 1);
    let other = Record::Other {
        tag,
        body: &[1, 2, 3, 4],
    };
    golden(tag, &[1, 2, 3, 4], other, |out| {
        out.other(tag, &[1, 2, 3, 4])
    });
}

#[test]
fn golden_expanded_flow_sample() {
    let head = FlowHead {
        source: DataSource {
            class: 0,
            index: 0x0100_0000,
        },
        input: Port::interface(0x4000_0000),
        ..head()
    };
    let sample = [9, 0, 0x0100_0000, 512, 4_608, 1, 0, 0x4000_0000, 2, 4];
    let datagram = with_header(3, flow_datagram(&sample, 1001, &words(&[1, 0, 1, 0])));
    let read = sflow::decode(&datagram).unwrap();
    let Sample::Flow(flow) = read.samples().next().unwrap().unwrap() else {
        panic!("no flow sample");
    };
    assert_eq!(flow.head, head);
    let mut written = Vec::new();
    Writer::new(&mut written, &header()).flow_sample(&head, |records| {
        records.switch(&ExtendedSwitch {
            source_vlan: 1,
            destination_vlan: 1,
            ..ExtendedSwitch::default()
        });
    });
    assert_eq!(written, datagram);
}

#[test]
fn golden_counters() {
    let interface = InterfaceCounters {
        index: 3,
        kind: 6,
        speed: 10_000_000_000,
        direction: 1,
        status: 3,
        in_octets: 1 << 40,
        in_unicast: 11,
        in_multicast: 12,
        in_broadcast: 13,
        in_discards: 14,
        in_errors: 15,
        in_unknown_protocols: 16,
        out_octets: 2 << 40,
        out_unicast: 21,
        out_multicast: 22,
        out_broadcast: 23,
        out_discards: 24,
        out_errors: 25,
        promiscuous: 2,
    };
    let ethernet = EthernetCounters {
        alignment_errors: 1,
        symbol_errors: 13,
        ..EthernetCounters::default()
    };
    let interface_words = words(&[
        3,
        6,
        2,
        1_410_065_408,
        1,
        3,
        1 << 8,
        0,
        11,
        12,
        13,
        14,
        15,
        16,
        2 << 8,
        0,
        21,
        22,
        23,
        24,
        25,
        2,
    ]);
    let ethernet_words = words(&[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 13]);
    for expanded in [false, true] {
        let index = if expanded { 0x0100_0003 } else { 3 };
        let mut body = match expanded {
            false => words(&[8, index, 2]),
            true => words(&[8, 0, index, 2]),
        };
        body.extend(words(&[1, 88]));
        body.extend(&interface_words);
        body.extend(words(&[2, 52]));
        body.extend(&ethernet_words);
        let datagram = with_header(if expanded { 4 } else { 2 }, body);
        let read = sflow::decode(&datagram).unwrap();
        let Sample::Counters(sample) = read.samples().next().unwrap().unwrap() else {
            panic!("no counters sample");
        };
        let head = CountersHead {
            sequence: 8,
            source: DataSource { class: 0, index },
        };
        assert_eq!(sample.head, head);
        let records: Vec<_> = sample.records().map(Result::unwrap).collect();
        let expected = [Counters::Interface(interface), Counters::Ethernet(ethernet)];
        assert_eq!(records, expected);
        let mut written = Vec::new();
        Writer::new(&mut written, &header()).counters_sample(&head, |records| {
            records.interface(&interface);
            records.ethernet(&ethernet);
        });
        assert_eq!(written, datagram);
    }
}

#[test]
fn agents_with_ipv6_and_without_an_address() {
    for (address, expected) in [
        (vec![2, 0xfd00_0000, 0, 0, 1], "fd00::1"),
        (vec![0], "0.0.0.0"),
    ] {
        let mut datagram = vec![5];
        datagram.extend(address);
        datagram.extend([0, 1, 2, 0]);
        let datagram = words(&datagram);
        let agent: IpAddr = expected.parse().unwrap();
        assert_eq!(sflow::decode(&datagram).unwrap().header.agent, agent);
    }
}

/// Longer structures than known, unknown ones, and samples after damaged ones are read.
#[test]
fn what_comes_after_the_unknown_is_read() {
    let mut record = words(&[10, 1, 20, 2]);
    record.extend(words(&[0xdead_beef, 7]));
    let known = flow_datagram(&COMPACT, 1001, &record);
    let damaged = flow_datagram(&COMPACT, 1001, &words(&[10]));
    let mut datagram = words(&[5, 1, 0x0a00_0001, 2, 77, 123_456, 4]);
    for (tag, body) in [(sflow::tag(4_413, 1), &known), (1, &damaged), (1, &known)] {
        datagram.extend(words(&[tag, body.len() as u32]));
        datagram.extend(body);
    }
    let read = sflow::decode(&datagram).unwrap();
    let mut samples = read.samples();
    assert_eq!(
        samples.next(),
        Some(Ok(Sample::Other {
            tag: sflow::tag(4_413, 1)
        }))
    );
    let Some(Ok(Sample::Flow(sample))) = samples.next() else {
        panic!("no flow sample");
    };
    let error = sample.records().next().unwrap().unwrap_err().to_string();
    let at = 28 + 8 + known.len() + 8 + 28 + 4 + 8;
    let text = format!("byte {at}: extended switch data needs 16 bytes, 4 are there");
    assert_eq!(error, text);
    let Some(Ok(Sample::Flow(sample))) = samples.next() else {
        panic!("no flow sample");
    };
    assert!(matches!(
        sample.records().next(),
        Some(Ok(Record::Switch(_)))
    ));
    // Announced, but not there.
    let error = samples.next().unwrap().unwrap_err();
    assert_eq!(error.at, datagram.len());
    assert_eq!(samples.next(), None);
}

#[test]
fn other_versions_are_named() {
    let error = sflow::decode(&words(&[4, 1])).unwrap_err().to_string();
    assert_eq!(error, "byte 0: sFlow version 4 is not decoded");
    let error = sflow::decode(&words(&[5, 7])).unwrap_err().to_string();
    assert_eq!(error, "byte 4: address type 7 is not known");
}

/// Reads everything.
fn read_all(bytes: &[u8]) -> usize {
    let Ok(datagram) = sflow::decode(bytes) else {
        return 0;
    };
    let mut parts = 0;
    for sample in datagram.samples() {
        match sample {
            Ok(Sample::Flow(sample)) => {
                for record in sample.records() {
                    if let Ok(Record::RawHeader(raw)) = record {
                        assert!(raw.wire_len() <= raw.frame_length);
                    }
                    parts += 1;
                }
            }
            Ok(Sample::Counters(sample)) => parts += sample.records().count(),
            Ok(Sample::Other { .. }) | Err(_) => parts += 1,
        }
    }
    parts
}

proptest! {
    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        // Each part has at least a tag and a length, but for one that is cut off in each sample.
        prop_assert!(read_all(&bytes) <= bytes.len() / 4 + 1);
        let mut with_head = words(&HEADER[..6]);
        with_head.extend(bytes);
        read_all(&with_head);
    }

    #[test]
    fn what_is_written_is_read(
        rate in any::<u32>(), class in 0..300_u32, index in any::<u32>(),
        input in any::<u32>(), output in (0..4_u32, any::<u32>()),
        header_bytes in prop::collection::vec(any::<u8>(), 0..200),
        samples in 1..5_usize, change in any::<(u16, u8)>(),
    ) {
        let head = FlowHead {
            sequence: 1,
            source: DataSource { class, index },
            rate,
            pool: 0,
            drops: 0,
            input: Port::interface(input),
            output: Port { format: output.0, value: output.1 },
        };
        let raw = RawHeader {
            protocol: 1,
            frame_length: 1_000,
            stripped: 4,
            header: &header_bytes,
        };
        let mut out = vec![0xaa];
        let mut writer = Writer::new(&mut out, &header());
        for _ in 0..samples {
            writer.flow_sample(&head, |records| records.raw_header(&raw));
        }
        prop_assert_eq!(writer.len(), out.len() - 1);
        let datagram = sflow::decode(&out[1..]).unwrap();
        let mut count = 0;
        for sample in datagram.samples() {
            let Sample::Flow(sample) = sample.unwrap() else { panic!("no flow sample") };
            prop_assert_eq!(sample.head, head);
            let records: Vec<_> = sample.records().map(Result::unwrap).collect();
            prop_assert_eq!(records, [Record::RawHeader(raw)]);
            count += 1;
        }
        prop_assert_eq!(count, samples);
        // One byte changed, and cut anywhere.
        let at = usize::from(change.0) % out.len();
        out[at] ^= change.1;
        read_all(&out[1..]);
        read_all(&out[1.min(at)..at]);
    }
}
