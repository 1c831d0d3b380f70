//! Receivers fed with datagrams made here: where conversations are counted, and that nothing is lost
//! without being counted.
#![allow(clippy::unwrap_used)]

use std::{
    net::{SocketAddr, UdpSocket},
    thread,
    time::{Duration, Instant},
};

use skua_flow::{Cause, Counters, FlowStore, FlowUpdate, Mark, StoreLimits};
use skua_probe::{
    Account, AddressEdit, Probe, Wake,
    receive::{FIRST_EXPORTER, NetflowProbe, ReceiveCause, ReceiverConfig, SflowProbe},
};
use skua_testkit::{Packet, named};
use skua_wire::{
    netflow::v5,
    sflow::{
        Conversation, CountersHead, DataSource, FlowHead, Header, InterfaceCounters, IpPacket,
        Port, RawHeader, Writer,
    },
};

fn config() -> ReceiverConfig {
    ReceiverConfig::loopback(0)
}

/// Sends datagrams to a probe from one socket.
struct Sender(UdpSocket);

impl Sender {
    fn to(address: SocketAddr) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(address).unwrap();
        Self(socket)
    }

    fn send(&self, datagram: &[u8]) {
        self.0.send(datagram).unwrap();
    }
}

/// Waits until a probe has taken so many datagrams, and has it finish.
fn finish(mut probe: impl Probe, datagrams: u64) -> (Vec<FlowUpdate>, Account) {
    let end = Instant::now() + Duration::from_secs(20);
    while probe.account().received.datagrams < datagrams && Instant::now() < end {
        thread::sleep(Duration::from_millis(1));
    }
    let mut updates = Vec::new();
    probe
        .drain(Wake::Interval, &mut |update| updates.push(*update))
        .unwrap();
    probe.finish(&mut |update| updates.push(*update)).unwrap();
    // The last ones only say that entries end.
    updates.retain(|update| !(update.lo_sent + update.hi_sent).is_zero());
    let account = probe.account();
    assert_eq!(account.received.datagrams, datagrams);
    (updates, account)
}

/// What all updates of a conversation add up to.
fn store(updates: &[FlowUpdate]) -> FlowStore {
    let mut store = FlowStore::new(StoreLimits::default(), 1, 1);
    for update in updates {
        store.apply(update);
    }
    store
}

fn header(sequence: u32) -> Header {
    Header {
        agent: "192.0.2.7".parse().unwrap(),
        sub_agent: 0,
        sequence,
        uptime_ms: 1_000,
    }
}

/// A sample of a port of the agent.
fn head(source: u32, input: u32, output: u32, rate: u32) -> FlowHead {
    FlowHead {
        source: DataSource {
            class: 0,
            index: source,
        },
        input: Port::interface(input),
        output: Port::interface(output),
        rate,
        ..FlowHead::default()
    }
}

fn raw(header: &[u8], wire_len: u32) -> RawHeader<'_> {
    RawHeader {
        protocol: 1,
        frame_length: wire_len + 4,
        stripped: 4,
        header,
    }
}

/// A datagram with one sample of a packet.
fn sample(sequence: u32, head: &FlowHead, packet: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    Writer::new(&mut out, &header(sequence)).flow_sample(head, |records| {
        records.raw_header(&raw(packet, packet.len() as u32));
    });
    out
}

fn request() -> Vec<u8> {
    let packet = Packet::new().ethernet(1, 2).ipv4("10.0.0.1", "10.0.0.2");
    packet.udp(5, 53).zeros(60).build()
}

fn reply() -> Vec<u8> {
    let packet = Packet::new().ethernet(2, 1).ipv4("10.0.0.2", "10.0.0.1");
    packet.udp(53, 5).zeros(160).build()
}

#[test]
fn samples_are_scaled_and_nothing_is_lost_uncounted() {
    let mut config = config();
    config.table.max_entries = 300;
    let probe = SflowProbe::start(config).unwrap();
    let sender = Sender::to(probe.address());
    let capture = named("mixed").unwrap();
    let mut sent = Counters::default();
    for (number, record) in capture.records.iter().take(3_000).enumerate() {
        let rate = 1 + number as u32 % 7 * 100;
        // Cut as agents do, some so short that there is no link header.
        let length = if number % 50 == 0 { 9 } else { 128 };
        let cut = &record.data[..record.data.len().min(length)];
        let mut datagram = Vec::new();
        let head = head(3, 3, 4, rate);
        Writer::new(&mut datagram, &header(number as u32)).flow_sample(&head, |records| {
            records.raw_header(&raw(cut, record.wire_length));
        });
        sender.send(&datagram);
        if number % 100 == 0 {
            thread::sleep(Duration::from_millis(1));
        }
        let rate = u64::from(rate);
        sent += Counters::new(rate, rate * u64::from(record.wire_length));
    }
    let (updates, account) = finish(probe, 3_000);
    let counted = store(&updates).summary().counted;
    assert_eq!(account.in_flows(), counted);
    assert_eq!(account.seen(), sent);
    let lost: Vec<Cause> = account.causes().iter().map(|(cause, ..)| *cause).collect();
    assert!(
        lost.contains(&Cause::Truncated) && lost.contains(&Cause::TableFullUdp),
        "{lost:?}"
    );
    assert_eq!(account.received.records, 3_000);
    assert_eq!(
        account.received.causes().count(),
        0,
        "{:?}",
        account.received
    );
    assert!(updates.iter().all(|update| update.sampling <= 601));
}

#[test]
fn both_directions_are_one_where_only_incoming_packets_are_sampled() {
    let probe = SflowProbe::start(config()).unwrap();
    let sender = Sender::to(probe.address());
    sender.send(&sample(1, &head(3, 3, 4, 10), &request()));
    sender.send(&sample(2, &head(4, 4, 3, 10), &reply()));
    sender.send(&sample(3, &head(3, 3, 4, 10), &request()));
    let (updates, account) = finish(probe, 3);
    let [update] = updates[..] else {
        panic!("{updates:?}");
    };
    assert_eq!((update.key.netns, update.key.ifindex), (FIRST_EXPORTER, 3));
    assert_eq!(
        (update.lo_sent, update.hi_sent),
        (Counters::new(20, 2_040), Counters::new(10, 2_020))
    );
    assert!(update.lo_first && update.sampling == 10);
    let point = &account.points[&(FIRST_EXPORTER, 3)];
    assert_eq!(point.interface, "agent 192.0.2.7 from 127.0.0.1 ifIndex 3");
    assert_eq!(
        (point.flows.ingress.packets, point.flows.egress.packets),
        (20, 10)
    );
}

#[test]
fn outgoing_samples_count_where_they_were_taken() {
    let probe = SflowProbe::start(config()).unwrap();
    let sender = Sender::to(probe.address());
    // Both ports sample both directions: the exporter reports each packet twice.
    let mut sequence = 0;
    let mut send = |source, input, output, packet: &[u8]| {
        sequence += 1;
        sender.send(&sample(sequence, &head(source, input, output, 1), packet));
    };
    send(4, 3, 4, &request());
    send(3, 4, 3, &reply());
    for _ in 0..5 {
        send(3, 3, 4, &request());
        send(4, 3, 4, &request());
        send(4, 4, 3, &reply());
        send(3, 4, 3, &reply());
    }
    let (updates, _) = finish(probe, 22);
    let mut found: Vec<_> = updates
        .iter()
        .map(|u| (u.key.ifindex, u.lo_sent.packets, u.hi_sent.packets))
        .collect();
    found.sort_unstable();
    assert_eq!(found, [(3, 5, 6), (4, 6, 5)]);
}

#[test]
fn a_filter_judges_what_was_sampled() {
    let mut config = config();
    config.table.filter = "src port 53".into();
    let probe = SflowProbe::start(config).unwrap();
    let sender = Sender::to(probe.address());
    sender.send(&sample(1, &head(1, 1, 2, 10), &request()));
    sender.send(&sample(2, &head(2, 2, 1, 10), &reply()));
    let (updates, account) = finish(probe, 2);
    let bytes = |packet: &[u8]| 10 * packet.len() as u64;
    let counted = store(&updates).summary().counted;
    assert_eq!(counted, Counters::new(10, bytes(&reply())));
    // As many as the sample stands for.
    let causes = account.causes();
    let filtered = causes.iter().find(|(cause, ..)| *cause == Cause::Filtered);
    assert_eq!(filtered.unwrap().2, Counters::new(10, bytes(&request())));
    let mut config = ReceiverConfig::loopback(0);
    config.table.filter = "src prot 53".into();
    assert!(SflowProbe::start(config).is_err());
}

#[test]
fn a_sample_that_only_ends_a_conversation_is_no_packet() {
    let probe = SflowProbe::start(config()).unwrap();
    let sender = Sender::to(probe.address());
    let ip = IpPacket {
        length: 100,
        protocol: 17,
        source: "10.0.0.1".parse().unwrap(),
        destination: "10.0.0.2".parse().unwrap(),
        source_port: 40_000,
        destination_port: 53,
        tcp_flags: 0,
        tos: 0,
    };
    // As Skua tells of three packets, then that there will be no more; and an agent that does not know its rate.
    let samples = [(3, true, 100), (0, true, 0), (0, false, 100)];
    for (sequence, (rate, told, length)) in (1..).zip(samples) {
        let mut datagram = Vec::new();
        let mut writer = Writer::new(&mut datagram, &header(sequence));
        writer.flow_sample(&head(3, 3, 0, rate), |records| {
            records.ip(&IpPacket { length, ..ip });
            if told {
                records.conversation(&Conversation::default());
            }
        });
        sender.send(&datagram);
    }
    let (updates, account) = finish(probe, 3);
    assert_eq!(account.received.records, 3);
    assert_eq!(updates.len(), 1);
    assert_eq!(updates[0].lo_sent, Counters::new(4, 400));
}

#[test]
fn samples_without_a_header_and_counters() {
    let probe = SflowProbe::start(config()).unwrap();
    let counters = probe.counters();
    let sender = Sender::to(probe.address());
    let mut out = Vec::new();
    let mut writer = Writer::new(&mut out, &header(1));
    let ip = IpPacket {
        length: 1_000,
        protocol: 6,
        source: "fd00::1".parse().unwrap(),
        destination: "fd00::2".parse().unwrap(),
        source_port: 40_000,
        destination_port: 443,
        tcp_flags: 0x12,
        tos: 0,
    };
    writer.flow_sample(&head(3, 3, 4, 2), |records| records.ip(&ip));
    writer.flow_sample(&head(3, 3, 4, 2), |records| {
        records.other(0x1234_5000, &[0; 4])
    });
    for octets in [1, 2] {
        let head = CountersHead {
            sequence: 1,
            source: DataSource { class: 0, index: 9 },
        };
        let interface = InterfaceCounters {
            in_octets: octets,
            ..InterfaceCounters::default()
        };
        writer.counters_sample(&head, |records| records.interface(&interface));
    }
    sender.send(&out);
    let (updates, account) = finish(probe, 1);
    assert_eq!(updates.len(), 1);
    assert_eq!(updates[0].lo_sent, Counters::new(2, 2_000));
    assert_eq!(updates[0].tcp.flags, [0x12, 0]);
    assert_eq!(account.received.of(ReceiveCause::NoPacket), 1);
    let latest = counters.latest();
    assert_eq!(
        (
            latest.len(),
            latest[0].ifindex,
            latest[0].interface.in_octets
        ),
        (1, 9, 2)
    );
}

fn v5_datagram(sequence: u32, sampling: u16, records: &[v5::Record]) -> Vec<u8> {
    let mut out = Vec::new();
    let header = v5::Header {
        count: records.len() as u16,
        uptime_ms: 10_000,
        unix_secs: 1_763_700_000,
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

fn record(to_server: bool, packets: u32, first: u32) -> v5::Record {
    let (client, server) = (([10, 0, 0, 9], 40_000, 1), ([10, 0, 0, 2], 443, 2));
    let (from, to) = if to_server {
        (client, server)
    } else {
        (server, client)
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
        first,
        last: first + 10,
        protocol: 6,
        tcp_flags: if to_server { 0x1b } else { 0x13 },
        ..v5::Record::default()
    }
}

#[test]
fn two_flows_of_one_direction_become_one_conversation() {
    let probe = NetflowProbe::start(config()).unwrap();
    let sender = Sender::to(probe.address());
    // The exporter reports the answer first, and the conversation twice.
    sender.send(&v5_datagram(
        0,
        0,
        &[record(false, 7, 5_001), record(true, 5, 5_000)],
    ));
    sender.send(&v5_datagram(2, 0, &[record(true, 1, 6_000)]));
    let (updates, account) = finish(probe, 2);
    let store = store(&updates);
    let records: Vec<_> = store.iter().collect();
    let [record] = records[..] else {
        panic!("{records:?}");
    };
    assert_eq!(
        (record.ab(), record.ba()),
        (Counters::new(6, 600), Counters::new(7, 700))
    );
    assert_eq!(record.a().1, 40_000);
    assert_eq!(record.by_a(record.tcp.flags), [0x1b, 0x13]);
    assert_eq!(record.last_ns - record.first_ns, 1_010_000_000);
    assert_eq!(
        (account.seen(), record.sampling),
        (Counters::new(13, 1_300), 1)
    );
    let point = &account.points[&(FIRST_EXPORTER, 2)];
    assert_eq!(point.interface, "exporter 127.0.0.1 ifIndex 2");
    assert_eq!(
        (point.flows.ingress.packets, point.flows.egress.packets),
        (7, 6)
    );
}

#[test]
fn sampled_records_are_scaled_and_the_full_table_counts() {
    let mut config = config();
    config.table.max_entries = 2;
    let probe = NetflowProbe::start(config).unwrap();
    let sender = Sender::to(probe.address());
    let records: Vec<v5::Record> = (0..10)
        .map(|number| v5::Record {
            source_port: number,
            ..record(true, 3, 1_000)
        })
        .collect();
    sender.send(&v5_datagram(0, 100, &records));
    // Ten records are missing.
    sender.send(&v5_datagram(20, 100, &records));
    let (updates, account) = finish(probe, 2);
    assert!(updates.iter().all(|update| update.sampling == 100));
    assert_eq!(
        store(&updates).summary().counted,
        Counters::new(2 * 2 * 300, 2 * 2 * 30_000)
    );
    let full = Counters::new(8 * 2 * 300, 8 * 2 * 30_000);
    assert_eq!(
        account.causes(),
        [(Cause::TableFullTcp, "table_full_tcp", full)]
    );
    assert_eq!(account.received.of(ReceiveCause::SequenceGap), 10);
}

#[test]
fn who_is_not_allowed_and_what_is_unreadable_is_counted() {
    let mut config = config();
    config.allow = vec!["127.0.0.0/8".parse().unwrap()];
    let probe = NetflowProbe::start(config.clone()).unwrap();
    let sender = Sender::to(probe.address());
    let good = v5_datagram(0, 0, &[record(true, 1, 0)]);
    for datagram in [&good[..], b"hello", &[], &good[..60], &[0, 10, 0, 3]] {
        sender.send(datagram);
    }
    let (updates, account) = finish(probe, 5);
    assert_eq!(updates.len(), 1);
    assert_eq!(account.received.of(ReceiveCause::DecodeError), 4);
    let error = account.received.last_error.unwrap();
    assert!(
        error.ends_with("byte 2: a message cannot have length 3"),
        "{error}"
    );
    config.allow = vec!["192.0.2.0/24".parse().unwrap()];
    let probe = SflowProbe::start(config).unwrap();
    Sender::to(probe.address()).send(&sample(1, &head(1, 1, 2, 1), &request()));
    let (updates, account) = finish(probe, 1);
    assert_eq!(
        (updates.len(), account.received.of(ReceiveCause::NotAllowed)),
        (0, 1)
    );
}

#[test]
fn the_address_set_applies() {
    let mut config = config();
    config.table.max_addresses = 10;
    config.addresses = vec![("10.0.0.2/32".parse().unwrap(), Mark::Exclude)];
    let probe = NetflowProbe::start(config.clone()).unwrap();
    let sender = Sender::to(probe.address());
    sender.send(&v5_datagram(0, 0, &[record(true, 5, 0)]));
    let (updates, account) = finish(probe, 1);
    assert_eq!(updates, []);
    let left_out = (Cause::AddressSet, "address_set", Counters::new(5, 500));
    assert_eq!(account.causes(), [left_out]);
    // And may be changed at any time.
    let probe = SflowProbe::start(config).unwrap();
    probe.addresses().edit(AddressEdit::Replace(&[])).unwrap();
    Sender::to(probe.address()).send(&sample(1, &head(1, 1, 2, 1), &request()));
    let (updates, _) = finish(probe, 1);
    assert_eq!(updates.len(), 1);
}

#[test]
fn a_filter_judges_samples_and_what_it_leaves_out_is_counted() {
    let start = |expression: &str| {
        let mut config = config();
        config.table.filter = expression.into();
        SflowProbe::start(config)
    };
    // As Skydive's workflows write it: also behind a VLAN tag.
    let probe = start("(udp and dst port 53) or (vlan and udp and dst port 53)").unwrap();
    let sender = Sender::to(probe.address());
    sender.send(&sample(1, &head(3, 3, 4, 10), &request()));
    sender.send(&sample(2, &head(4, 4, 3, 10), &reply()));
    // Too short to say.
    sender.send(&sample(3, &head(3, 3, 4, 10), &request()[..20]));
    let (updates, account) = finish(probe, 3);
    let [update] = updates[..] else {
        panic!("{updates:?}");
    };
    assert_eq!(update.lo_sent, Counters::new(10, 1_020));
    assert_eq!(update.hi_sent, Counters::default());
    let left_out = (Cause::Filtered, "filtered", Counters::new(20, 2_220));
    assert_eq!(account.causes(), [left_out]);
    assert!(start("udp port").is_err());
}

#[test]
fn what_the_kernel_drops_is_counted() {
    let mut config = config();
    config.queue_bytes = 4_096;
    let probe = SflowProbe::start(config).unwrap();
    let sender = Sender::to(probe.address());
    let datagram = sample(1, &head(1, 1, 2, 1), &request());
    const SENT: u64 = 200_000;
    for _ in 0..SENT {
        sender.send(&datagram);
    }
    let end = Instant::now() + Duration::from_secs(20);
    let all = |probe: &SflowProbe| {
        let received = probe.received();
        received.datagrams + received.of(ReceiveCause::QueueFull)
    };
    while all(&probe) < SENT && Instant::now() < end {
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(all(&probe), SENT);
}

#[test]
fn an_address_in_use_is_said() {
    let probe = SflowProbe::start(config()).unwrap();
    let again = SflowProbe::start(ReceiverConfig::at(probe.address()));
    let error = again.err().unwrap().to_string();
    assert!(error.starts_with("cannot listen at 127.0.0.1:"), "{error}");
}

/// An IPFIX message with a template (ingressInterface, samplingPacketInterval, dataLinkFrameSize,
/// dataLinkFrameSection) and records of packets of 1,000 bytes, of which the exporter sends the first bytes.
fn ipfix_with_frames(frames: &[&[u8]]) -> Vec<u8> {
    let halves = |halves: &[u16]| -> Vec<u8> {
        let bytes = halves.iter().flat_map(|half| half.to_be_bytes());
        bytes.collect()
    };
    let fields = [[10, 4], [305, 4], [312, 2], [315, 0xffff]].concat();
    let template = [halves(&[2, 8 + 16, 256, 4]), halves(&fields)].concat();
    let mut records = Vec::new();
    for frame in frames {
        records.extend([0, 0, 0, 3, 0, 0, 0, 10]);
        records.extend(1000_u16.to_be_bytes());
        records.push(frame.len() as u8);
        records.extend(*frame);
    }
    let data = [halves(&[256, 4 + records.len() as u16]), records].concat();
    let length = 16 + template.len() + data.len();
    let mut message = halves(&[10, length as u16]);
    for word in [1_763_700_000_u32, 0, 1] {
        message.extend(word.to_be_bytes());
    }
    [message, template, data].concat()
}

#[test]
fn ipfix_records_with_sections_of_packets_are_flows() {
    let probe = NetflowProbe::start(config()).unwrap();
    let (request, reply) = (request(), reply());
    let frames = [&request[..60], &reply[..60], &request[..60], &request[..9]];
    Sender::to(probe.address()).send(&ipfix_with_frames(&frames));
    let (updates, account) = finish(probe, 1);
    assert_eq!(account.received.records, 4);
    let store = store(&updates);
    let flows: Vec<_> = store.iter().collect();
    let [flow] = flows[..] else {
        panic!("{flows:#?}");
    };
    let mut sent = [flow.lo_sent, flow.hi_sent];
    sent.sort_by_key(|sent| sent.packets);
    assert_eq!(sent, [Counters::new(10, 10_000), Counters::new(20, 20_000)]);
    assert_eq!(flow.key.ifindex, 3);
    assert!(flow.key.has_ports());
    // Of the last one not even the first header is there.
    let lost: Vec<_> = account.causes();
    assert!(
        lost.iter()
            .any(|(cause, _, sum)| *cause == Cause::Truncated && sum.packets == 10),
        "{lost:?}"
    );
}

/// What receivers say of conversations: interface, packets of `lo` and of `hi`.
fn by_interface(updates: &[FlowUpdate]) -> Vec<(u32, u64, u64)> {
    let mut found: Vec<_> = updates
        .iter()
        .map(|u| (u.key.ifindex, u.lo_sent.packets, u.hi_sent.packets))
        .collect();
    found.sort_unstable();
    found
}

/// Ports that are no interface: unknown, internal, discarded, several.
fn no_interface() -> [Port; 4] {
    let internal = Port::interface(Port::INTERNAL);
    let of_format = |format, value| Port { format, value };
    [
        Port::interface(0),
        internal,
        of_format(1, 258),
        of_format(2, 3),
    ]
}

#[test]
fn samples_of_unknown_interfaces_join_the_conversation() {
    for unknown in no_interface() {
        let probe = SflowProbe::start(config()).unwrap();
        let sender = Sender::to(probe.address());
        let bridge = DataSource { class: 2, index: 1 };
        let to = |source, input, output| FlowHead {
            source,
            input,
            output,
            rate: 1,
            ..FlowHead::default()
        };
        let known = Port::interface;
        let samples = [
            // Begins at 3; then the answer, going nobody knows where, and packets from nobody knows where.
            (to(bridge, known(3), unknown), request()),
            (to(bridge, known(4), unknown), reply()),
            (to(bridge, unknown, unknown), request()),
            (to(bridge, unknown, known(3)), reply()),
            (to(bridge, known(3), known(4)), request()),
        ];
        for (sequence, (head, packet)) in (1..).zip(&samples) {
            sender.send(&sample(sequence, head, packet));
        }
        let (updates, account) = finish(probe, 5);
        assert_eq!(by_interface(&updates), [(3, 3, 2)], "{unknown:?}");
        let traffic = &account.points[&(FIRST_EXPORTER, 3)].flows;
        let directions = (traffic.ingress.packets, traffic.egress.packets);
        assert_eq!(directions, (3, 2), "{unknown:?}");
    }
}

#[test]
fn a_conversation_that_began_at_an_unknown_interface_stays_one() {
    let probe = SflowProbe::start(config()).unwrap();
    let sender = Sender::to(probe.address());
    sender.send(&sample(1, &head(0, 0, 0, 1), &request()));
    sender.send(&sample(2, &head(4, 4, 3, 1), &reply()));
    sender.send(&sample(3, &head(3, 3, 4, 1), &request()));
    let (updates, _) = finish(probe, 3);
    assert_eq!(by_interface(&updates), [(0, 2, 1)]);
}

#[test]
fn unknown_interfaces_join_nothing_of_others() {
    let probe = SflowProbe::start(config()).unwrap();
    let sender = Sender::to(probe.address());
    let of_agent = |sequence, agent: &str, head: &FlowHead, packet: &[u8]| {
        let mut out = Vec::new();
        let header = Header {
            agent: agent.parse().unwrap(),
            ..header(sequence)
        };
        Writer::new(&mut out, &header).flow_sample(head, |records| {
            records.raw_header(&raw(packet, packet.len() as u32));
        });
        sender.send(&out);
    };
    of_agent(1, "192.0.2.7", &head(3, 3, 4, 1), &request());
    // Another agent, and another conversation of the same.
    of_agent(1, "192.0.2.8", &head(0, 0, 0, 1), &request());
    let other = Packet::new().ethernet(1, 2).ipv4("10.0.0.1", "10.0.0.2");
    let other = other.udp(6, 53).zeros(60).build();
    of_agent(2, "192.0.2.7", &head(0, 0, 0, 1), &other);
    let (updates, _) = finish(probe, 3);
    assert_eq!(by_interface(&updates), [(0, 1, 0), (0, 1, 0), (3, 1, 0)]);
}

#[test]
fn an_interface_that_counts_what_goes_out_joins_nothing_of_unknown_interfaces() {
    let probe = SflowProbe::start(config()).unwrap();
    let sender = Sender::to(probe.address());
    // Each packet is sampled where it came in, which the agent does not know, and where it went out.
    sender.send(&sample(1, &head(4, 0, 4, 1), &request()));
    sender.send(&sample(2, &head(0, 0, 4, 1), &request()));
    let (updates, _) = finish(probe, 2);
    assert_eq!(by_interface(&updates), [(0, 1, 0), (4, 1, 0)]);
}

#[test]
fn netflow_of_unknown_interfaces_joins_the_conversation() {
    let ways: [fn(v5::Record) -> v5::Record; 3] = [
        |r| v5::Record { output: 0, ..r },
        |r| v5::Record {
            input: 0,
            output: 0,
            ..r
        },
        |r| v5::Record { input: 0, ..r },
    ];
    for (number, way) in ways.into_iter().enumerate() {
        let probe = NetflowProbe::start(config()).unwrap();
        let sender = Sender::to(probe.address());
        sender.send(&v5_datagram(0, 0, &[record(true, 5, 5_000)]));
        let records = [way(record(false, 7, 5_001)), way(record(true, 1, 6_000))];
        sender.send(&v5_datagram(1, 0, &records));
        let (updates, account) = finish(probe, 2);
        let found = by_interface(&updates);
        let [(1, lo, hi)] = found[..] else {
            panic!("{number}: {found:?}");
        };
        // The server's address is the lower one.
        assert_eq!((lo, hi), (7, 6), "{number}");
        assert_eq!(account.seen(), Counters::new(13, 1_300));
    }
}
