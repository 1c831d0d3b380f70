//! Structures of our own and of hosts, byte by byte as docs/wire.md has them.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use skua_record::TcpCounters;
use std::net::IpAddr;

use proptest::prelude::*;
use skua_wire::sflow::{
    self, AgentReport, Conversation, ConversationTcp, Counters, CountersHead, CountersWriter,
    DataSource, FlowHead, Header, Hello, Name, Record, RecordWriter, Sample, ServiceName, Socket,
    SocketTcp, TcpInfo, Writer,
    own::{ReportInPlace, report},
};

const HEADER: Header = Header {
    agent: IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1)),
    sub_agent: 0,
    sequence: 1,
    uptime_ms: 0,
};
/// Bytes of datagram, sample and record before the record's body.
const BEFORE: usize = 28 + 8 + 32 + 8;

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(pair).collect()
}

fn written(write: impl FnOnce(&mut RecordWriter<'_>)) -> Vec<u8> {
    let mut out = Vec::new();
    Writer::new(&mut out, &HEADER).flow_sample(&FlowHead::default(), write);
    out
}

fn records(datagram: &[u8]) -> Vec<Record<'_>> {
    let read = sflow::decode(datagram).unwrap();
    let Some(Ok(Sample::Flow(sample))) = read.samples().next() else {
        panic!("no flow sample");
    };
    sample.records().map(Result::unwrap).collect()
}

fn golden(tag: u32, hex: &str, record: Record<'_>, write: impl FnOnce(&mut RecordWriter<'_>)) {
    let (body, datagram) = (bytes(hex), written(write));
    assert_eq!(datagram[BEFORE - 8..BEFORE - 4], tag.to_be_bytes());
    assert_eq!(datagram[BEFORE..], body);
    assert_eq!(records(&datagram), [record]);
}

const CONVERSATION: Conversation = Conversation {
    service: 0x81,
    end: 1,
    flags: 3,
    sampling: 1,
    id: 0x0102_0304_0506,
    tracking_id: 0x1112_1314_1516_1718,
    first_ns: 0x18ea_297e_3d45_e2d6,
    packets: [10, 9],
    bytes: [1_000, 90_000],
    new_packets: [5, 4],
    new_bytes: [500, u32::MAX],
};

#[test]
fn golden_conversation() {
    let hex = "01 81 01 03  00000001  0000010203040506  1112131415161718  18ea297e3d45e2d6
        000000000000000a 0000000000000009  00000000000003e8 0000000000015f90
        00000005 00000004  000001f4 ffffffff";
    golden(
        32473 << 12 | 1,
        hex,
        Record::Conversation(CONVERSATION),
        |out| out.conversation(&CONVERSATION),
    );
}

#[test]
fn golden_conversation_tcp() {
    let tcp = ConversationTcp {
        flags: [0x1b, 0x12],
        counters: TcpCounters {
            retransmitted: [1, 2],
            out_of_order: [3, 4],
            zero_window: [5, 6],
        },
        server_rtt_ns: 70_000,
        client_rtt_ns: 8,
    };
    let hex = "01 1b 12 00  00000001 00000002  00000003 00000004  00000005 00000006
        00011170  00000008";
    golden(32473 << 12 | 2, hex, Record::ConversationTcp(tcp), |out| {
        out.conversation_tcp(&tcp);
    });
}

#[test]
fn golden_reverse() {
    golden(32473 << 12 | 7, "01 00 0000", Record::Reverse, |out| {
        out.reverse()
    });
}

#[test]
fn golden_names() {
    let name = Name {
        by: ServiceName::Unit,
        process: "nginx",
        container: "",
        unit: "web.service",
    };
    let datagram = written(|out| out.names([1, 0], &[(1, name)]));
    assert_eq!(
        datagram[BEFORE - 8..BEFORE - 4],
        (32473u32 << 12 | 4).to_be_bytes()
    );
    let hex = "01 01 00 01  01 02 05 00 0b 000000  6e67696e78 7765622e73657276696365";
    assert_eq!(datagram[BEFORE..], bytes(hex));
    let [Record::Names(names)] = records(&datagram)[..] else {
        panic!("no names");
    };
    assert_eq!(names.sides, [1, 0]);
    let found: Vec<_> = names.definitions().map(Result::unwrap).collect();
    assert_eq!(found, [(1, name)]);
    assert_eq!(found[0].1.service(), "web.service");
    // Later in the datagram the number is enough.
    let datagram = written(|out| out.names([0, 1], &[]));
    assert_eq!(datagram[BEFORE..], bytes("01 00 01 00"));
}

#[test]
fn names_are_cut_and_other_bytes_than_text_are_refused() {
    let long = "ä".repeat(41);
    let name = Name {
        process: &long,
        ..Name::default()
    };
    let mut datagram = written(|out| out.names([1, 1], &[(1, name)]));
    let [Record::Names(names)] = records(&datagram)[..] else {
        panic!("no names");
    };
    let (_, found) = names.definitions().next().unwrap().unwrap();
    assert_eq!(found.process, "ä".repeat(40));
    datagram[BEFORE + 13] = b'x';
    let [Record::Names(names)] = records(&datagram)[..] else {
        panic!("no names");
    };
    assert!(names.definitions().next().unwrap().is_err());
    // A length that lies.
    datagram[BEFORE + 6] = 200;
    let [Record::Names(names)] = records(&datagram)[..] else {
        panic!("no names");
    };
    assert_eq!(names.definitions().filter(Result::is_err).count(), 1);
}

#[test]
fn golden_socket_tcp() {
    let tcp = SocketTcp {
        destination: true,
        srtt_us: 1_500,
    };
    let hex = "01 02 0000  000005dc";
    golden(32473 << 12 | 5, hex, Record::SocketTcp(tcp), |out| {
        out.socket_tcp(&tcp);
    });
}

#[test]
fn golden_agent_report() {
    let report = AgentReport {
        flags: report::ASKS,
        now_ns: 1,
        instance: 2,
        records: 3,
        packets: 4,
        bytes: 5,
        lost: 6,
        kept_ms: 7,
    };
    let mut datagram = Vec::new();
    let head = CountersHead {
        sequence: 9,
        source: DataSource { class: 3, index: 0 },
    };
    Writer::new(&mut datagram, &HEADER).counters_sample(&head, |out| out.agent(&report));
    let hex = "00000002 0000004c  00000009 03000000  00000001  07ed9003 00000038
        02 01 00 00  0000000000000001 0000000000000002 0000000000000003
        0000000000000004 0000000000000005 0000000000000006 00000007";
    assert_eq!(datagram[28..], bytes(hex));
    let read = sflow::decode(&datagram).unwrap();
    let Some(Ok(Sample::Counters(sample))) = read.samples().next() else {
        panic!("no counters sample");
    };
    let found: Vec<_> = sample.records().map(Result::unwrap).collect();
    assert_eq!(found, [Counters::Agent(report)]);
}

/// A datagram whose one sample is this.
fn greeting(agent: IpAddr, write: impl FnOnce(&mut CountersWriter<'_>)) -> Vec<u8> {
    let header = Header { agent, ..HEADER };
    let mut datagram = Vec::new();
    Writer::new(&mut datagram, &header).counters_sample(&CountersHead::default(), write);
    datagram
}

fn counters(datagram: &[u8]) -> Counters {
    match sflow::decode(datagram).unwrap().samples().next() {
        Some(Ok(Sample::Counters(sample))) => sample.records().next().unwrap().unwrap(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn golden_hello() {
    let answer = Hello {
        answers: true,
        sequence: 7,
        instance: 0x0102_0304_0506_0708,
        collector: 9,
    };
    let datagram = greeting(HEADER.agent, |out| out.hello(&answer));
    let hex = "07ed9006 00000018  01 02 0000 00000007 0102030405060708 0000000000000009";
    assert_eq!(datagram[28 + 20..], bytes(hex));
    assert_eq!(counters(&datagram), Counters::Hello(answer));
}

#[test]
fn reports_are_changed_in_place_and_nothing_else_is() {
    for agent in ["192.0.2.1", "2001:db8::1"] {
        let agent = agent.parse().unwrap();
        let written = AgentReport {
            now_ns: 5_000_000,
            ..AgentReport::default()
        };
        let mut datagram = greeting(agent, |out| out.agent(&written));
        let mut place = ReportInPlace::of(&mut datagram).unwrap();
        place.set(report::ASKS);
        place.kept_until(3_605_000_000);
        let changed = AgentReport {
            flags: report::ASKS,
            kept_ms: 3_600,
            ..written
        };
        assert_eq!(counters(&datagram), Counters::Agent(changed));
        let mut other = greeting(agent, |out| out.hello(&Hello::default()));
        assert!(ReportInPlace::of(&mut other).is_none());
    }
    for length in 0..120 {
        assert!(ReportInPlace::of(&mut vec![0; length]).is_none());
    }
}

#[test]
fn a_report_of_version_1_is_read() {
    let mut datagram = greeting(HEADER.agent, |out| {
        let mut body = vec![1, 0, 0, 0];
        body.extend([0; 48]);
        out.other(32473 << 12 | 3, &body);
    });
    assert_eq!(counters(&datagram), Counters::Agent(AgentReport::default()));
    assert!(ReportInPlace::of(&mut datagram).is_none());
}

#[test]
fn golden_standard_records_of_hosts() {
    golden(
        1043,
        "18ea297e3d45e2d6",
        Record::Timestamp(0x18ea_297e_3d45_e2d6),
        |out| {
            out.timestamp(0x18ea_297e_3d45_e2d6);
        },
    );
    let socket = Socket {
        protocol: 6,
        local: "192.0.2.1".parse().unwrap(),
        remote: "198.51.100.2".parse().unwrap(),
        local_port: 443,
        remote_port: 40_000,
    };
    let hex = "00000006 c0000201 c6336402 000001bb 00009c40";
    golden(2100, hex, Record::Socket(socket), |out| out.socket(&socket));
    let socket = Socket {
        local: "fd00::1".parse().unwrap(),
        remote: "fd00::2".parse().unwrap(),
        ..socket
    };
    let hex = "00000006 fd000000000000000000000000000001 fd000000000000000000000000000002
        000001bb 00009c40";
    golden(2101, hex, Record::Socket(socket), |out| out.socket(&socket));
    let info = TcpInfo {
        direction: 1,
        send_mss: 2,
        receive_mss: 3,
        unacked: 4,
        lost: 5,
        retransmitted: 6,
        pmtu: 7,
        rtt_us: 8,
        rtt_variance_us: 9,
        congestion_window: 10,
        reordering: 11,
        min_rtt_us: 12,
    };
    let hex = "00000001 00000002 00000003 00000004 00000005 00000006
        00000007 00000008 00000009 0000000a 0000000b 0000000c";
    golden(2209, hex, Record::TcpInfo(info), |out| out.tcp_info(&info));
    // As we send it.
    let info = TcpInfo {
        send_mss: 1_448,
        lost: 1,
        retransmitted: 3,
        rtt_us: 1_500,
        rtt_variance_us: 250,
        congestion_window: 10,
        min_rtt_us: 1_200,
        ..TcpInfo::default()
    };
    let hex = "00000000 000005a8 00000000 00000000 00000001 00000003
        00000000 000005dc 000000fa 0000000a 00000000 000004b0";
    golden(2209, hex, Record::TcpInfo(info), |out| out.tcp_info(&info));
}

#[test]
fn a_later_version_is_read_as_far_as_it_is_known() {
    let mut body = bytes("02 81 01 03");
    body.extend(&written(|out| out.conversation(&CONVERSATION))[BEFORE + 4..]);
    body.extend([0xff; 12]);
    let tag = sflow::tag(sflow::ENTERPRISE, 1);
    let datagram = written(|out| out.other(tag, &body));
    assert_eq!(records(&datagram), [Record::Conversation(CONVERSATION)]);
}

#[test]
fn version_0_and_what_is_cut_off_are_errors() {
    let tag = sflow::tag(sflow::ENTERPRISE, 1);
    let whole = written(|out| out.conversation(&CONVERSATION));
    let body = &whole[BEFORE..];
    for cut in (0..body.len()).step_by(4) {
        let datagram = written(|out| out.other(tag, &body[..cut]));
        let read = sflow::decode(&datagram).unwrap();
        let Some(Ok(Sample::Flow(sample))) = read.samples().next() else {
            panic!("no flow sample");
        };
        assert!(sample.records().next().unwrap().is_err(), "{cut}");
    }
    let mut zero = body.to_vec();
    zero[0] = 0;
    let datagram = written(|out| out.other(tag, &zero));
    let read = sflow::decode(&datagram).unwrap();
    let Some(Ok(Sample::Flow(sample))) = read.samples().next() else {
        panic!("no flow sample");
    };
    let error = sample.records().next().unwrap().unwrap_err();
    assert_eq!(
        error.to_string(),
        "byte 76: a conversation version 0 is not decoded"
    );
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        bytes in any::<[u8; 3]>(),
        sampling: u32,
        ids in any::<[u64; 3]>(),
        sums in any::<[u64; 4]>(),
        new in any::<[u32; 4]>(),
    ) {
        let [service, end, flags] = bytes;
        let conversation = Conversation {
            service,
            end,
            flags,
            sampling,
            id: ids[0],
            tracking_id: ids[1],
            first_ns: ids[2],
            packets: [sums[0], sums[1]],
            bytes: [sums[2], sums[3]],
            new_packets: [new[0], new[1]],
            new_bytes: [new[2], new[3]],
        };
        let datagram = written(|out| out.conversation(&conversation));
        prop_assert_eq!(records(&datagram), [Record::Conversation(conversation)]);
    }
}
