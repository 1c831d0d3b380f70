//! NetFlow and IPFIX: golden bytes, templates, sequence numbers, and any bytes.
#![allow(clippy::unwrap_used)]

use std::{net::SocketAddr, time::Duration};

use proptest::prelude::*;
use skua_wire::netflow::{Decoder, Family, Flow, Limits, Outcome, v5};

const S: u64 = 1_000_000_000;
const MS: u64 = 1_000_000;
/// Time of export, s since the Unix epoch, and when the datagrams come.
const EXPORT: u32 = 1_763_700_000;
const NOW: u64 = EXPORT as u64 * S;

fn from() -> SocketAddr {
    "192.0.2.1:5000".parse().unwrap()
}

fn mapped(address: [u8; 4]) -> [u8; 16] {
    std::net::Ipv4Addr::from(address).to_ipv6_mapped().octets()
}

fn decode(decoder: &mut Decoder, datagram: &[u8]) -> (Vec<Flow>, Outcome) {
    decode_at(decoder, datagram, NOW)
}

fn decode_at(decoder: &mut Decoder, datagram: &[u8], now: u64) -> (Vec<Flow>, Outcome) {
    let mut flows = Vec::new();
    let outcome = decoder.decode(from(), datagram, now, &mut |flow, _| flows.push(*flow));
    assert_eq!(outcome.flows, flows.len() as u64);
    (flows, outcome)
}

/// Flows of a datagram that is right.
fn flows(decoder: &mut Decoder, datagram: &[u8]) -> Vec<Flow> {
    let (flows, outcome) = decode(decoder, datagram);
    assert_eq!(outcome.error, None);
    flows
}

fn put16(out: &mut Vec<u8>, values: &[u16]) {
    out.extend(values.iter().flat_map(|value| value.to_be_bytes()));
}

fn put32(out: &mut Vec<u8>, values: &[u32]) {
    out.extend(values.iter().flat_map(|value| value.to_be_bytes()));
}

/// A set, padded to four bytes.
fn set(id: u16, body: &[u8]) -> Vec<u8> {
    let padded = body.len().next_multiple_of(4);
    let mut out = Vec::new();
    put16(&mut out, &[id, padded as u16 + 4]);
    out.extend(body);
    out.resize(padded + 4, 0);
    out
}

fn v9(sequence: u32, uptime_ms: u32, sets: &[Vec<u8>]) -> Vec<u8> {
    let mut out = Vec::new();
    put16(&mut out, &[9, sets.len() as u16]);
    put32(&mut out, &[uptime_ms, EXPORT, sequence, 42]);
    out.extend(sets.concat());
    out
}

fn ipfix(sequence: u32, sets: &[Vec<u8>]) -> Vec<u8> {
    let body = sets.concat();
    let mut out = Vec::new();
    put16(&mut out, &[10, body.len() as u16 + 16]);
    put32(&mut out, &[EXPORT, sequence, 42]);
    out.extend(body);
    out
}

fn template(id: u16, fields: &[(u16, u16)]) -> Vec<u8> {
    let mut out = Vec::new();
    put16(&mut out, &[id, fields.len() as u16]);
    for (kind, length) in fields {
        put16(&mut out, &[*kind, *length]);
    }
    out
}

/// Addresses, ports, protocol, packets, bytes.
const SIMPLE: [(u16, u16); 7] = [(8, 4), (12, 4), (7, 2), (11, 2), (4, 1), (2, 4), (1, 4)];

fn simple(packets: u32) -> Vec<u8> {
    let mut out = vec![10, 0, 0, 1, 10, 0, 0, 2];
    put16(&mut out, &[40_000, 443]);
    out.push(6);
    put32(&mut out, &[packets, packets * 100]);
    out
}

#[test]
fn golden_v5() {
    let golden: Vec<u8> = [
        &[
            0, 5, 0, 1, 0, 0, 0x27, 0x10, 0x69, 0x1f, 0xf2, 0x60, 0, 0, 1, 0,
        ][..],
        &[0, 0, 0, 9, 1, 2, 0x40, 10],
        &[
            10, 0, 0, 1, 10, 0, 0, 2, 10, 0, 0, 254, 0, 3, 0, 4, 0, 0, 0, 5, 0, 0, 1, 0xf4,
        ],
        &[
            0, 0, 0x1b, 0x58, 0, 0, 0x23, 0x28, 0x9c, 0x40, 1, 0xbb, 0, 0x1b, 6, 8,
        ],
        &[0xfd, 0xe8, 0xfd, 0xe9, 24, 16, 0, 0],
    ]
    .concat();
    let header = v5::Header {
        count: 1,
        uptime_ms: 10_000,
        unix_secs: 0x691f_f260,
        unix_nsecs: 256,
        sequence: 9,
        engine_type: 1,
        engine_id: 2,
        sampling: 0x400a,
    };
    let record = v5::Record {
        source: [10, 0, 0, 1],
        destination: [10, 0, 0, 2],
        next_hop: [10, 0, 0, 254],
        input: 3,
        output: 4,
        packets: 5,
        octets: 500,
        first: 7_000,
        last: 9_000,
        source_port: 40_000,
        destination_port: 443,
        tcp_flags: 0x1b,
        protocol: 6,
        tos: 8,
        source_as: 65_000,
        destination_as: 65_001,
        source_mask: 24,
        destination_mask: 16,
    };
    let mut written = Vec::new();
    header.encode(&mut written);
    record.encode(&mut written);
    assert_eq!(written, golden);
    let export_ns = 0x691f_f260 * S + 256;
    let expected = Flow {
        family: Family::V4,
        source: mapped([10, 0, 0, 1]),
        destination: mapped([10, 0, 0, 2]),
        source_port: 40_000,
        destination_port: 443,
        protocol: 6,
        tcp_flags: [0x1b, 0],
        packets: [5, 0],
        bytes: [500, 0],
        input: 3,
        output: 4,
        first_ns: export_ns - 3_000 * MS,
        last_ns: export_ns - 1_000 * MS,
        sampling: 10,
        ..Flow::default()
    };
    assert_eq!(flows(&mut Decoder::default(), &golden), [expected]);
}

#[test]
fn v5_whose_count_lies_is_refused() {
    let mut datagram = Vec::new();
    v5::Header {
        count: 2,
        ..v5::Header::default()
    }
    .encode(&mut datagram);
    v5::Record::default().encode(&mut datagram);
    let (flows, outcome) = decode(&mut Decoder::default(), &datagram);
    assert_eq!(flows, []);
    assert_eq!(
        outcome.error.unwrap().to_string(),
        "byte 24: the list of records needs 96 bytes, 48 are there"
    );
}

#[test]
fn v9_with_uptimes_and_options() {
    let mut fields = SIMPLE.to_vec();
    fields.extend([
        (22, 4),
        (21, 4),
        (10, 2),
        (14, 4),
        (48, 1),
        (61, 1),
        (58, 2),
        (6, 1),
    ]);
    // Options of scope "system" and of scope "interface": sampler 7 takes 1 of 100; a name.
    let mut sampler = Vec::new();
    put16(&mut sampler, &[257, 4, 12, 1, 4, 48, 1, 50, 4, 49, 1]);
    let mut name = Vec::new();
    put16(&mut name, &[258, 4, 4, 2, 4, 82, 8]);
    let options = [set(1, &sampler), set(1, &name)].concat();
    let sampling = [
        set(257, &[192, 0, 2, 1, 7, 0, 0, 0, 100, 2]),
        set(258, b"\0\0\0\x03uplink\0\0"),
    ]
    .concat();
    let mut record = simple(5);
    put32(&mut record, &[8_000, 9_500]);
    put16(&mut record, &[3]);
    put32(&mut record, &[4]);
    record.extend([7, 1, 0, 9, 0x12]);
    let mut decoder = Decoder::default();
    let data = set(256, &record);
    let datagram = v9(
        1,
        10_000,
        &[set(0, &template(256, &fields)), options, sampling, data],
    );
    let found = flows(&mut decoder, &datagram);
    let [flow] = found[..] else {
        panic!("{found:?}");
    };
    assert_eq!((flow.packets, flow.bytes), ([5, 0], [500, 0]));
    assert_eq!(
        (flow.first_ns, flow.last_ns),
        (NOW - 2_000 * MS, NOW - 500 * MS)
    );
    assert_eq!((flow.input, flow.output, flow.egress), (3, 4, true));
    assert_eq!(
        (flow.sampling, flow.vlan, flow.tcp_flags),
        (100, [Some(9), None], [0x12, 0])
    );
    assert_eq!(decoder.interface_name(from().ip(), 3), Some("uplink"));
    assert_eq!(decoder.interface_name(from().ip(), 4), None);
}

#[test]
fn ipfix_with_everything_that_is_special() {
    // Reverse packets and bytes (RFC 5103), a field of a company of variable length, one of fixed
    // length, numbers of fewer bytes, times in ms.
    let mut fields = Vec::new();
    put16(&mut fields, &[300, 12]);
    put16(
        &mut fields,
        &[27, 16, 28, 16, 7, 2, 11, 2, 4, 1, 2, 3, 1, 8],
    );
    for (id, length) in [(2, 2), (1, 8)] {
        put16(&mut fields, &[0x8000 | id, length]);
        put32(&mut fields, &[29_305]);
    }
    put16(&mut fields, &[0x8000 | 1, 0xffff]);
    put32(&mut fields, &[9_999]);
    put16(&mut fields, &[152, 8, 153, 8]);
    let record = |name: &[u8]| {
        let mut out = Vec::new();
        for end in [1, 2] {
            out.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, end]);
        }
        put16(&mut out, &[40_000, 53]);
        out.extend([17, 0, 1, 0]);
        out.extend(25_600_u64.to_be_bytes());
        put16(&mut out, &[3]);
        out.extend(300_u64.to_be_bytes());
        if name.len() < 255 {
            out.push(name.len() as u8);
        } else {
            out.push(255);
            put16(&mut out, &[name.len() as u16]);
        }
        out.extend(name);
        let ms = NOW / MS;
        out.extend((ms - 70).to_be_bytes());
        out.extend((ms - 60).to_be_bytes());
        out
    };
    let records = [record(b"abc"), record(&[7; 300]), record(b"")].concat();
    let mut decoder = Decoder::default();
    let found = flows(
        &mut decoder,
        &ipfix(0, &[set(2, &fields), set(300, &records)]),
    );
    assert_eq!(found.len(), 3);
    for flow in found {
        assert_eq!(flow.family, Family::V6);
        assert_eq!((flow.source[15], flow.destination[15]), (1, 2));
        assert_eq!((flow.packets, flow.bytes), ([256, 3], [25_600, 300]));
        assert_eq!(
            (flow.first_ns, flow.last_ns),
            (NOW - 70 * MS, NOW - 60 * MS)
        );
        assert_eq!(flow.sampling, 1);
    }
    // Withdrawn: what comes then waits.
    let withdrawn = ipfix(3, &[set(2, &template(300, &[])), set(300, &record(b"x"))]);
    let (found, outcome) = decode(&mut decoder, &withdrawn);
    assert_eq!(
        (found.len(), outcome.held.sets, outcome.error),
        (0, 1, None)
    );
}

#[test]
fn link_bytes_are_preferred_and_totals_only_a_substitute() {
    let one = |fields: &[(u16, u16)], record: &[u8]| {
        let sets = [set(2, &template(256, fields)), set(256, record)];
        flows(&mut Decoder::default(), &ipfix(0, &sets))[0]
    };
    let flow = one(
        &[(1, 2), (352, 2), (85, 2), (2, 2), (86, 2)],
        &[0, 10, 0, 20, 0, 30, 0, 1, 0, 9],
    );
    assert_eq!(
        (flow.bytes[0], flow.packets[0], flow.link_bytes),
        (20, 1, true)
    );
    let flow = one(&[(85, 2), (86, 2)], &[0, 30, 0, 9]);
    assert_eq!(
        (flow.bytes[0], flow.packets[0], flow.link_bytes),
        (30, 9, false)
    );
}

#[test]
fn data_before_its_template_waits_for_a_while() {
    let mut decoder = Decoder::default();
    let templates = set(0, &template(256, &SIMPLE));
    let (none, outcome) = decode(&mut decoder, &v9(1, 0, &[set(256, &simple(5))]));
    assert_eq!((none.len(), outcome.held.sets, decoder.held()), (0, 1, 1));
    let (found, outcome) = decode(&mut decoder, &v9(2, 0, std::slice::from_ref(&templates)));
    assert_eq!(
        (found[0].packets[0], outcome.released, decoder.held()),
        (5, 1, 0)
    );
    // Too late.
    decode(
        &mut decoder,
        &v9(3, 0, &[set(257, &simple(5)), set(258, &simple(6))]),
    );
    let later = NOW + 61 * S;
    let late = set(0, &template(257, &SIMPLE));
    let (found, outcome) = decode_at(&mut decoder, &v9(4, 61_000, &[late]), later);
    assert_eq!(
        (found.len(), outcome.no_template.sets, decoder.held()),
        (0, 2, 0)
    );
    assert_eq!(outcome.no_template.bytes, 2 * 24);
}

#[test]
fn what_waits_is_bounded() {
    let limits = Limits {
        held_bytes: 1_000,
        ..Limits::default()
    };
    let mut decoder = Decoder::new(limits);
    let (mut held, mut lost) = (0, 0);
    for sequence in 0..100 {
        let (_, outcome) = decode(&mut decoder, &v9(sequence, 0, &[set(256, &simple(5))]));
        held += outcome.held.sets;
        lost += outcome.no_template.sets;
    }
    assert_eq!((held, lost + decoder.held() as u64), (100, 100));
    assert!(decoder.held() > 0 && decoder.held() < 10);
    assert_eq!(decoder.give_up().sets + lost, 100);
}

#[test]
fn sessions_templates_and_fields_are_bounded() {
    let limits = Limits {
        sessions: 3,
        templates: 4,
        fields: 7,
        all_fields: 50,
        ..Limits::default()
    };
    let mut decoder = Decoder::new(limits);
    for id in 256..266 {
        let now = NOW + u64::from(id) * S;
        decode_at(
            &mut decoder,
            &v9(u32::from(id), 0, &[set(0, &template(id, &SIMPLE))]),
            now,
        );
    }
    // Of the ten the last four are known.
    let data = |id: u16| v9(1, 0, &[set(id, &simple(1))]);
    let known = (256..266).filter(|id| decode(&mut decoder, &data(*id)).0.len() == 1);
    assert_eq!(known.collect::<Vec<_>>(), [262, 263, 264, 265]);
    let (_, outcome) = decode(
        &mut decoder,
        &v9(1, 0, &[set(0, &template(300, &[(1, 4); 8]))]),
    );
    let error = outcome.error.unwrap().to_string();
    assert_eq!(error, "byte 24: template 300: too many fields");
    for port in 1..6 {
        let other = SocketAddr::from(([192, 0, 2, 2], port));
        let templates = set(0, &template(256, &SIMPLE));
        let outcome = decoder.decode(other, &v9(1, 0, &[templates]), NOW, &mut |_, _| {});
        assert_eq!(outcome.error.is_some(), port > 2, "{outcome:?}");
    }
    assert_eq!(decoder.sessions(), 3);
    // All is forgotten after two hours of silence.
    let later = NOW + Duration::from_secs(3 * 3600).as_nanos() as u64;
    let outcome = decoder.decode(
        "192.0.2.9:9".parse().unwrap(),
        &data(256),
        later,
        &mut |_, _| {},
    );
    assert_eq!((outcome.error, decoder.sessions()), (None, 1));
}

#[test]
fn templates_that_make_no_sense_are_refused() {
    let refused = |body: Vec<u8>| {
        let (_, outcome) = decode(&mut Decoder::default(), &ipfix(0, &[body]));
        outcome.error.unwrap().to_string()
    };
    assert_eq!(
        refused(set(2, &template(255, &SIMPLE))),
        "byte 20: template 255: the number is less than 256"
    );
    assert_eq!(
        refused(set(2, &template(256, &[(1, 0), (2, 0)]))),
        "byte 20: template 256: its records have no bytes"
    );
    let cut = refused(set(2, &template(256, &SIMPLE)[..12]));
    assert_eq!(cut, "byte 32: a template needs 2 bytes, 0 are there");
    // A length that is wrong does not loop.
    let mut wrong = Vec::new();
    put16(&mut wrong, &[256, 3]);
    assert_eq!(refused(wrong), "byte 16: a set cannot have length 3");
    // What is wrong in one set does not hide the next.
    let sets = [
        set(2, &template(255, &SIMPLE)),
        set(2, &template(256, &SIMPLE)),
        set(256, &simple(3)),
    ];
    let (found, outcome) = decode(&mut Decoder::default(), &ipfix(0, &sets));
    assert_eq!((found.len(), outcome.error.is_some()), (1, true));
}

#[test]
fn missing_records_and_datagrams_are_counted() {
    let mut decoder = Decoder::default();
    let templates = set(2, &template(256, &SIMPLE));
    let data = set(256, &[simple(1), simple(2), simple(3)].concat());
    let mut lost = 0;
    for sequence in [0, 3, 6, 12, 9, 15] {
        let (_, outcome) = decode(
            &mut decoder,
            &ipfix(sequence, &[templates.clone(), data.clone()]),
        );
        lost += i64::from(outcome.step.lost) - i64::from(outcome.step.recovered);
        assert_eq!(outcome.step.late, sequence == 9);
    }
    assert_eq!(lost, 0);
    let mut lost = 0;
    for sequence in [5, 6, 9, 10] {
        let (_, outcome) = decode(&mut decoder, &v9(sequence, 1_000, &[]));
        lost += outcome.step.lost;
    }
    assert_eq!(lost, 2);
}

#[test]
fn a_restart_that_is_supposed_takes_no_template_away() {
    // RFC 7011 section 8: templates stay until they change, are withdrawn or expire.
    let mut decoder = Decoder::default();
    let templates = set(0, &template(256, &SIMPLE));
    decode(&mut decoder, &v9(11, 3_600_000, &[templates]));
    // Up for less long, and numbers that begin again.
    let (found, outcome) = decode(&mut decoder, &v9(1, 50, &[set(256, &simple(1))]));
    assert!(outcome.step.restarted, "{outcome:?}");
    assert_eq!((found.len(), outcome.held.sets), (1, 0));
    // Exporters whose clock jumps with each datagram, and whose numbers mean something else.
    for (sequence, uptime_ms) in [(7, 1), (1 << 30, 4_000_000_000), (3, 2_000_000_000), (9, 0)] {
        let datagram = v9(sequence, uptime_ms, &[set(256, &simple(1))]);
        assert_eq!(flows(&mut decoder, &datagram).len(), 1);
    }
    // Told anew with other fields, it is that one.
    let other = template(256, &[(2, 4), (1, 4)]);
    flows(&mut decoder, &v9(10, 60_000, &[set(0, &other)]));
    let short = set(256, &[0; 8]);
    assert_eq!(flows(&mut decoder, &v9(11, 61_000, &[short])).len(), 1);
}

#[test]
fn a_field_of_variable_length_in_version_9_loses_no_record() {
    let mut fields = SIMPLE.to_vec();
    fields.push((96, 0xffff));
    let mut records = Vec::new();
    for text in [&b"http"[..], b"", &[b'x'; 300]] {
        records.extend(simple(1));
        match u8::try_from(text.len()) {
            Ok(length) => records.push(length),
            Err(_) => {
                records.push(255);
                put16(&mut records, &[text.len() as u16]);
            }
        }
        records.extend(text);
    }
    let templates = set(0, &template(256, &fields));
    let datagram = v9(1, 1, &[templates, set(256, &records)]);
    assert_eq!(flows(&mut Decoder::default(), &datagram).len(), 3);
}

#[test]
fn a_message_that_says_a_wrong_length_loses_no_record() {
    let templates = set(2, &template(256, &SIMPLE));
    let data = set(256, &[simple(1), simple(2)].concat());
    let whole = ipfix(0, &[templates, data]);
    for wrong in [-2_i16, -20, 2, 1000] {
        let mut datagram = whole.clone();
        let length = (datagram.len() as u16).wrapping_add_signed(wrong);
        datagram[2..4].copy_from_slice(&length.to_be_bytes());
        let (found, outcome) = decode(&mut Decoder::default(), &datagram);
        assert_eq!(found.len(), 2, "{wrong}");
        assert_eq!(
            outcome.error.unwrap().to_string(),
            format!(
                "byte 2: the length field has {length} bytes, the datagram {}",
                whole.len()
            )
        );
    }
    // Of a datagram that was cut off the records count that came.
    let cut = &whole[..whole.len() - 3];
    let (found, outcome) = decode(&mut Decoder::default(), cut);
    assert_eq!(found.len(), 1);
    let error = outcome.error.unwrap().to_string();
    assert_eq!(error, "byte 56: a set needs 44 bytes, 41 are there");
}

#[test]
fn sections_of_packets_are_handed_out() {
    let frame: Vec<u8> = (0..60).collect();
    for (fields, head, expected) in [
        // dataLinkFrameSize, dataLinkFrameSection; of fixed and of variable length.
        (
            vec![(10, 4), (312, 2), (315, 60)],
            vec![0, 0, 0, 7, 5, 220],
            (true, 1500),
        ),
        (
            vec![(10, 4), (312, 2), (315, 0xffff)],
            vec![0, 0, 0, 7, 5, 220, 60],
            (true, 1500),
        ),
        // ipTotalLength in place of the frame's.
        (vec![(224, 2), (315, 0xffff)], vec![1, 0, 60], (true, 270)),
        (vec![(224, 2), (313, 0xffff)], vec![1, 0, 60], (false, 256)),
        (vec![(315, 60)], vec![], (true, 0)),
    ] {
        let templates = set(2, &template(256, &fields));
        let record = [head, frame.clone()].concat();
        let mut body = Vec::new();
        // Not padded: a record might be read from that.
        put16(&mut body, &[256, 2 * record.len() as u16 + 4]);
        body.extend([record.clone(), record].concat());
        let datagram = ipfix(0, &[templates, body]);
        let mut sections = 0;
        let outcome = Decoder::default().decode(from(), &datagram, NOW, &mut |flow, section| {
            let section = section.unwrap();
            assert_eq!(section.bytes, frame);
            assert_eq!((section.is_frame, section.length), expected);
            assert_eq!(flow.packets, [0, 0]);
            sections += 1;
        });
        assert_eq!((sections, outcome.error), (2, None), "{fields:?}");
    }
}

proptest! {
    #[test]
    fn any_bytes(datagrams in prop::collection::vec(
        (prop::sample::select(vec![5_u16, 9, 10]), prop::collection::vec(any::<u8>(), 0..300)), 1..6,
    )) {
        let mut decoder = Decoder::default();
        for (version, bytes) in datagrams {
            let mut datagram = version.to_be_bytes().to_vec();
            datagram.extend(bytes);
            let (found, _) = decode(&mut decoder, &datagram);
            prop_assert!(found.len() <= datagram.len());
        }
    }

    #[test]
    fn any_template_and_any_record(
        fields in prop::collection::vec((0..400_u16, prop_oneof![0..20_u16, Just(0xffff)], any::<bool>()), 1..20),
        record in prop::collection::vec(any::<u8>(), 0..500),
        options in any::<bool>(), v9_too in any::<bool>(),
    ) {
        let mut body = Vec::new();
        if v9_too {
            match options {
                true => put16(&mut body, &[256, 4, fields.len() as u16 * 4 - 4]),
                false => put16(&mut body, &[256, fields.len() as u16]),
            }
        } else {
            put16(&mut body, &[256, fields.len() as u16]);
            if options {
                put16(&mut body, &[1]);
            }
        }
        for (id, length, reverse) in fields {
            if reverse && !v9_too {
                put16(&mut body, &[0x8000 | id, length]);
                put32(&mut body, &[29_305]);
            } else {
                put16(&mut body, &[id, length]);
            }
        }
        let set_id = match (v9_too, options) {
            (true, _) => u16::from(options),
            (false, _) => 2 + u16::from(options),
        };
        let sets = [set(256, &record), set(set_id, &body), set(256, &record)];
        let datagram = if v9_too { v9(1, 5, &sets) } else { ipfix(1, &sets) };
        let (found, _) = decode(&mut Decoder::default(), &datagram);
        for flow in found {
            prop_assert!(flow.first_ns <= flow.last_ns);
            prop_assert!(flow.sampling >= 1);
        }
    }

    #[test]
    fn v5_written_is_read(
        source in any::<[u8; 4]>(), ports in any::<(u16, u16)>(), counts in any::<(u32, u32)>(),
        times in any::<(u32, u32, u32)>(), count in 1..31_u16, sampling in any::<u16>(),
    ) {
        let header = v5::Header {
            count, uptime_ms: times.0, unix_secs: EXPORT, sampling, ..v5::Header::default()
        };
        let record = v5::Record {
            source,
            source_port: ports.0,
            destination_port: ports.1,
            packets: counts.0,
            octets: counts.1,
            first: times.1,
            last: times.2,
            protocol: 17,
            ..v5::Record::default()
        };
        let mut datagram = Vec::new();
        header.encode(&mut datagram);
        for _ in 0..count {
            record.encode(&mut datagram);
        }
        let found = flows(&mut Decoder::default(), &datagram);
        prop_assert_eq!(found.len(), usize::from(count));
        for flow in found {
            prop_assert_eq!(flow.source, mapped(source));
            prop_assert_eq!((flow.source_port, flow.destination_port), ports);
            prop_assert_eq!((flow.packets[0], flow.bytes[0]), (counts.0.into(), counts.1.into()));
            let age = times.0.wrapping_sub(times.2).cast_signed();
            prop_assert_eq!(flow.last_ns, (NOW as i64 - i64::from(age) * MS as i64) as u64);
        }
    }
}
