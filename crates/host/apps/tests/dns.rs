//! Messages of DNS, as hosts and as others send them.

#![allow(clippy::unwrap_used)]

use std::net::{IpAddr, SocketAddr};

use proptest::prelude::*;
use skua_apps::{
    Config, Event, Names, Stats, Watcher,
    dns::{
        Answer, Data, Dialect, Exchanges, Fault, Framing, Limits, Lookup, Message, Outcome, Place,
        Sent, flag, numbers,
    },
};
use skua_packet::Frame;

const S: u64 = 1_000_000_000;
const MS: u64 = 1_000_000;

/// A name on the wire.
fn name(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for label in text.split('.').filter(|label| !label.is_empty()) {
        bytes.push(label.len() as u8);
        bytes.extend(label.bytes());
    }
    bytes.push(0);
    bytes
}

fn header(id: u16, flags: u16, counts: [u16; 4]) -> Vec<u8> {
    let words = [id, flags].into_iter().chain(counts);
    words.flat_map(u16::to_be_bytes).collect()
}

fn query(id: u16, asked: &str, kind: u16) -> Vec<u8> {
    let mut bytes = header(id, flag::RD, [1, 0, 0, 0]);
    bytes.extend(name(asked));
    bytes.extend([kind.to_be_bytes(), 1u16.to_be_bytes()].concat());
    bytes
}

fn record(owner: &[u8], kind: u16, ttl: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = owner.to_vec();
    bytes.extend([kind.to_be_bytes(), 1u16.to_be_bytes()].concat());
    bytes.extend(ttl.to_be_bytes());
    bytes.extend((data.len() as u16).to_be_bytes());
    bytes.extend(data);
    bytes
}

/// The name of the question, by a pointer.
const ASKED: [u8; 2] = [0xc0, 12];

fn answer(id: u16, asked: &str, kind: u16, code: u16, records: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = query(id, asked, kind);
    bytes[2..4].copy_from_slice(&(flag::QR | flag::RD | flag::RA | code).to_be_bytes());
    bytes[6..8].copy_from_slice(&(records.len() as u16).to_be_bytes());
    bytes.extend(records.concat());
    bytes
}

fn client(port: u16) -> SocketAddr {
    SocketAddr::new([192, 0, 2, 1].into(), port)
}

fn server() -> SocketAddr {
    "192.0.2.53:53".parse().unwrap()
}

/// Exchanges with their records, and a clock.
struct World {
    exchanges: Exchanges,
    lookups: Vec<Lookup>,
    now: u64,
    place: Place,
    tcp: bool,
}

impl World {
    fn new(limits: Limits) -> Self {
        Self {
            exchanges: Exchanges::new(limits),
            lookups: Vec::new(),
            now: S,
            place: Place {
                ifindex: 2,
                ..Place::default()
            },
            tcp: false,
        }
    }

    fn send(&mut self, from: SocketAddr, to: SocketAddr, bytes: &[u8]) {
        let message = Message::read(bytes).unwrap();
        let sent = Sent {
            message: &message,
            bytes: bytes.len() as u32,
            time_ns: self.now,
            place: self.place,
            tcp: self.tcp,
            from,
            to,
        };
        let lookups = &mut self.lookups;
        self.exchanges
            .expire(self.now, &mut |lookup| lookups.push(lookup));
        self.exchanges
            .take(&sent, &mut |lookup| lookups.push(lookup));
    }

    fn expire(&mut self) {
        let lookups = &mut self.lookups;
        self.exchanges
            .expire(self.now, &mut |lookup| lookups.push(lookup));
    }

    fn outcomes(&self) -> Vec<Outcome> {
        self.lookups.iter().map(|lookup| lookup.outcome).collect()
    }
}

#[test]
fn question_and_answer_are_one_record() {
    let mut world = World::new(Limits::default());
    world.send(client(4000), server(), &query(7, "API.example.com", 1));
    world.now += 3 * MS;
    let records = [
        record(&ASKED, numbers::CNAME, 300, &name("edge.example.net")),
        record(
            &name("edge.example.net"),
            numbers::A,
            20,
            &[198, 51, 100, 4],
        ),
    ];
    // The case of the name is the client's own affair.
    world.send(
        server(),
        client(4000),
        &answer(7, "api.Example.com", 1, 0, &records),
    );
    let [lookup] = &world.lookups[..] else {
        panic!("{:?}", world.lookups)
    };
    assert_eq!(lookup.name, "API.example.com");
    assert_eq!((lookup.outcome, lookup.code), (Outcome::Answered, Some(0)));
    assert_eq!((lookup.latency_ns, lookup.ttl()), (Some(3 * MS), Some(20)));
    assert_eq!(
        lookup.answers,
        [
            Answer {
                kind: 5,
                ttl: 300,
                data: "edge.example.net".into()
            },
            Answer {
                kind: 1,
                ttl: 20,
                data: "198.51.100.4".into()
            },
        ]
    );
    let line: serde_json::Value = serde_json::to_value(lookup).unwrap();
    assert_eq!(line["answers"][1], "A 198.51.100.4");
    assert_eq!(line["flags"], serde_json::json!(["rd", "ra"]));
    // Both names lead there, and the one that was asked for is shown.
    let mut names = Names::new(16);
    names.learn(lookup);
    let at = |ip: [u8; 4], ns| names.of(client(0).ip(), IpAddr::from(ip), ns).cloned();
    assert_eq!(
        at([198, 51, 100, 4], 2 * S).as_deref(),
        Some("api.example.com")
    );
    assert_eq!(at([198, 51, 100, 4], S / 2), None, "before anybody asked");
    assert_eq!(at([198, 51, 100, 5], 2 * S), None);
}

#[test]
fn the_same_message_at_several_interfaces_is_one_and_a_repetition_is_a_retry() {
    let mut world = World::new(Limits::default());
    let question = query(7, "a.example", 1);
    for ifindex in [2, 3, 4] {
        world.place.ifindex = ifindex;
        world.send(client(4000), server(), &question);
    }
    // Sent again, and again seen at all three.
    world.now += S;
    for ifindex in [2, 3, 4] {
        world.place.ifindex = ifindex;
        world.send(client(4000), server(), &question);
    }
    let reply = answer(7, "a.example", 1, 3, &[]);
    for ifindex in [4, 3, 2] {
        world.place.ifindex = ifindex;
        world.send(server(), client(4000), &reply);
    }
    let [lookup] = &world.lookups[..] else {
        panic!("{:?}", world.lookups)
    };
    assert_eq!((lookup.retries, lookup.code), (1, Some(3)));
    assert_eq!(lookup.latency_ns, Some(S));
    // Port and identifier are used again: that is another one.
    world.place.ifindex = 2;
    world.send(client(4000), server(), &question);
    world.send(server(), client(4000), &reply);
    assert_eq!(world.outcomes(), [Outcome::Answered; 2]);
}

#[test]
fn no_answer_is_a_result_and_so_is_an_answer_without_a_question() {
    let mut world = World::new(Limits::default());
    world.send(client(4000), server(), &query(7, "lost.example", 1));
    world.now += 4 * S;
    world.send(client(4000), server(), &query(7, "lost.example", 1));
    world.now += 4 * S;
    world.expire();
    assert!(world.lookups.is_empty(), "it was asked again");
    world.now += 2 * S;
    world.expire();
    assert_eq!(world.outcomes(), [Outcome::Timeout]);
    assert_eq!(world.lookups[0].retries, 1);
    assert!(world.exchanges.is_empty());
    // Too late, at two interfaces.
    let late = answer(7, "lost.example", 1, 0, &[]);
    world.send(server(), client(4000), &late);
    world.place.ifindex = 3;
    world.send(server(), client(4000), &late);
    assert_eq!(world.outcomes()[1..], [Outcome::Unasked]);
    assert_eq!(world.lookups[1].client, client(4000));
    // Texts from outside are quoted.
    let text = record(&ASKED, numbers::TXT, 1, b"\x05a,\"b\n");
    world.send(
        server(),
        client(4001),
        &answer(7, "x,y.example", 16, 0, &[text]),
    );
    let odd = world.lookups.pop().unwrap();
    let mut row = Vec::new();
    skua_apps::dns::write_csv_row(&mut row, &odd).unwrap();
    let row = String::from_utf8(row).unwrap();
    assert!(row.contains(r#","x,y.example",TXT,"#), "{row}");
    assert!(
        row.contains(r#","TXT ""a,""b\010""","#) && row.lines().count() == 1,
        "{row}"
    );
    // A new question after it is one.
    world.send(client(4000), server(), &query(7, "lost.example", 1));
    world.send(server(), client(4000), &late);
    assert_eq!(world.outcomes()[2..], [Outcome::Answered]);
}

#[test]
fn an_answer_to_another_question_is_none() {
    let mut world = World::new(Limits::default());
    world.send(client(4000), server(), &query(7, "bank.example", 1));
    let forged = record(&ASKED, numbers::A, 60, &[203, 0, 113, 66]);
    world.send(
        server(),
        client(4000),
        &answer(7, "other.example", 1, 0, &[forged]),
    );
    assert_eq!(world.outcomes(), [Outcome::Unasked]);
    assert_eq!(world.exchanges.mismatched, 1);
    // Without a question it answers what waits.
    let refused = header(7, flag::QR | 5, [0; 4]);
    world.send(server(), client(4000), &refused);
    assert_eq!(world.lookups[1].name, "bank.example");
    assert_eq!(world.lookups[1].code, Some(5));
}

#[test]
fn what_was_truncated_is_asked_again_over_tcp() {
    let mut world = World::new(Limits::default());
    world.send(client(4000), server(), &query(7, "big.example", 16));
    world.send(
        server(),
        client(4000),
        &answer(7, "big.example", 16, flag::TC, &[]),
    );
    world.tcp = true;
    world.send(client(5000), server(), &query(8, "big.example", 16));
    world.send(
        server(),
        client(5000),
        &answer(8, "big.example", 16, 0, &[]),
    );
    let follows: Vec<bool> = world.lookups.iter().map(|l| l.after_truncation).collect();
    assert_eq!(follows, [false, true]);
    assert_ne!(world.lookups[0].flags & flag::TC, 0);
}

#[test]
fn groups_are_asked_and_anybody_answers() {
    let mut world = World::new(Limits::default());
    let group: SocketAddr = "224.0.0.251:5353".parse().unwrap();
    let host = |last: u8| SocketAddr::new([192, 0, 2, last].into(), 5353);
    let kind = numbers::A.to_be_bytes();
    let mut question = header(0, 0, [1, 0, 0, 0]);
    // The top bit of the class wants the answer for the client alone.
    question.extend([&name("printer.local")[..], &kind, &[0x80, 1]].concat());
    world.send(host(1), group, &question);
    world.now += MS;
    let mut reply = header(0, flag::QR | flag::AA, [0, 1, 0, 0]);
    reply.extend(record(
        &name("Printer.local"),
        numbers::A,
        120,
        &[192, 0, 2, 9],
    ));
    world.send(host(9), group, &reply);
    let mut announcement = header(0, flag::QR | flag::AA, [0, 1, 0, 0]);
    announcement.extend(record(&name("new.local"), numbers::A, 120, &[192, 0, 2, 8]));
    world.send(host(8), group, &announcement);
    world.send(host(8), group, &announcement);
    assert_eq!(world.outcomes(), [Outcome::Answered, Outcome::Announced]);
    let answered = &world.lookups[0];
    assert_eq!((answered.dialect, answered.class), (Dialect::Mdns, 1));
    assert_eq!((answered.client, answered.server), (host(1), host(9)));
    // LLMNR: the question goes to a group, the answer comes back to the client.
    let llmnr: SocketAddr = "224.0.0.252:5355".parse().unwrap();
    let responder: SocketAddr = "192.0.2.7:5355".parse().unwrap();
    world.send(client(6000), llmnr, &query(3, "pc", 1));
    world.send(responder, client(6000), &answer(3, "pc", 1, 0, &[]));
    assert_eq!(world.lookups[2].outcome, Outcome::Answered);
    assert_eq!(world.lookups[2].server, responder);
}

#[test]
fn questions_that_wait_are_limited() {
    let limits = Limits {
        questions: 100,
        ..Limits::default()
    };
    let mut world = World::new(limits);
    for id in 0..1000 {
        world.send(client(4000), server(), &query(id, "flood.example", 1));
    }
    assert_eq!((world.exchanges.len(), world.exchanges.evicted), (100, 900));
    assert_eq!(world.outcomes(), [Outcome::Open; 900]);
    let lookups = &mut world.lookups;
    world.exchanges.finish(&mut |lookup| lookups.push(lookup));
    assert_eq!(world.lookups.len(), 1000);
}

#[test]
fn names_that_lead_in_circles_or_are_too_long_end() {
    let read = |bytes: &[u8]| Message::read(bytes).unwrap();
    let with_name = |name: &[u8]| {
        let mut bytes = header(1, 0, [1, 0, 0, 0]);
        bytes.extend(name);
        bytes.extend([0, 1, 0, 1]);
        bytes
    };
    // To itself, to each other, forward.
    for circle in [
        &[0xc0, 12][..],
        &[1, b'a', 0xc0, 12],
        &[0xc0, 14, 0xc0, 12],
        &[0xc0, 20],
    ] {
        let message = read(&with_name(circle));
        assert_eq!(message.fault, Some(Fault::Malformed), "{circle:?}");
        assert!(message.questions.is_empty());
    }
    // 256 octets are one too many.
    let long = |labels: usize, last: usize| {
        let mut name = [&[63][..], &[b'x'; 63]].concat().repeat(labels);
        name.push(last as u8);
        name.extend(vec![b'y'; last]);
        name.push(0);
        name
    };
    assert_eq!(read(&with_name(&long(3, 61))).fault, None);
    assert_eq!(read(&with_name(&long(3, 62))).fault, Some(Fault::Malformed));
    assert_eq!(
        read(&with_name(&long(1000, 63))).fault,
        Some(Fault::Malformed)
    );
    // A record whose data points forward into what follows.
    let mut bytes = answer(
        1,
        "a.example",
        1,
        0,
        &[record(&ASKED, numbers::CNAME, 1, &[0xc0, 100])],
    );
    bytes.extend([0; 100]);
    assert_eq!(read(&bytes).fault, Some(Fault::Malformed));
    // 8,000 records, each by a chain of pointers: what is kept has a bound.
    let chain: Vec<u8> = (0..30u16)
        .flat_map(|i| (0xc000 | (12 + 2 * i)).to_be_bytes())
        .collect();
    let mut bytes = header(1, flag::QR, [0, 5000, 0, 0]);
    bytes.extend([&[0, 0][..], &chain].concat());
    assert!(read(&bytes).answers().len() <= 64);
    let records = vec![record(&ASKED, numbers::A, 1, &[1; 4]); 4000];
    let message = read(&answer(1, "a.example", 1, 0, &records));
    assert_eq!((message.answers().len(), message.fault), (64, None));
}

#[test]
fn what_is_cut_off_is_read_as_far_as_it_goes() {
    let records = [
        record(&ASKED, numbers::A, 60, &[1; 4]),
        record(&ASKED, numbers::A, 60, &[2; 4]),
    ];
    let whole = answer(1, "api.example.com", 1, 0, &records);
    for length in 12..whole.len() {
        let message = Message::read(&whole[..length]).unwrap();
        assert_eq!(message.fault, Some(Fault::Short), "{length}");
    }
    let message = Message::read(&whole[..whole.len() - 1]).unwrap();
    assert_eq!((message.questions.len(), message.answers().len()), (1, 1));
    assert_eq!(
        message.answers()[0].data,
        Data::Address(IpAddr::from([1; 4]))
    );
    assert!(Message::read(&whole[..11]).is_none());
}

/// An Ethernet frame with a UDP datagram or a TCP segment over IPv4.
fn frame(
    protocol: u8,
    from: SocketAddr,
    to: SocketAddr,
    transport: &[u8],
    payload: &[u8],
) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
    let length = (20 + transport.len() + payload.len()) as u16;
    let (IpAddr::V4(src), IpAddr::V4(dst)) = (from.ip(), to.ip()) else {
        unreachable!()
    };
    frame.extend([0x45, 0]);
    frame.extend(length.to_be_bytes());
    frame.extend([0, 0, 0, 0, 64, protocol, 0, 0]);
    frame.extend([src.octets(), dst.octets()].concat());
    frame.extend([transport, payload].concat());
    // Short frames are padded.
    frame.resize(frame.len().max(60), 0xee);
    frame
}

fn udp(from: SocketAddr, to: SocketAddr, payload: &[u8]) -> Vec<u8> {
    let ports = [from.port().to_be_bytes(), to.port().to_be_bytes()].concat();
    let length = (8 + payload.len() as u16).to_be_bytes();
    frame(
        17,
        from,
        to,
        &[&ports[..], &length, &[0, 0]].concat(),
        payload,
    )
}

fn tcp(from: SocketAddr, to: SocketAddr, seq: u32, flags: u8, payload: &[u8]) -> Vec<u8> {
    let ports = [from.port().to_be_bytes(), to.port().to_be_bytes()].concat();
    let rest = [0, 0, 0, 0, 0x50, flags, 0xff, 0xff, 0, 0, 0, 0];
    frame(
        6,
        from,
        to,
        &[&ports[..], &seq.to_be_bytes(), &rest].concat(),
        payload,
    )
}

fn watch(frames: &[Vec<u8>]) -> (Vec<Lookup>, Stats) {
    let mut watcher = Watcher::new(Config::default());
    let mut lookups = Vec::new();
    for (i, frame) in frames.iter().enumerate() {
        let time = S + i as u64 * MS;
        watcher.packet(
            &Frame::ethernet(frame),
            Place::default(),
            time,
            &mut |event| {
                if let Event::Lookup(lookup) = event {
                    lookups.push(lookup);
                }
            },
        );
    }
    watcher.finish(&mut |event| {
        if let Event::Lookup(lookup) = event {
            lookups.push(lookup);
        }
    });
    (lookups, watcher.stats())
}

#[test]
fn dns_is_found_on_any_port_and_other_things_are_not_taken_for_it() {
    let odd: SocketAddr = "192.0.2.53:5300".parse().unwrap();
    let (lookups, _) = watch(&[
        udp(client(4000), odd, &query(1, "odd.example", 1)),
        udp(odd, client(4000), &answer(1, "odd.example", 1, 0, &[])),
    ]);
    assert_eq!(lookups.len(), 1);
    assert_eq!(lookups[0].outcome, Outcome::Answered);
    // NTP, nothing, text, QUIC; on the port of DNS junk is counted.
    let ntp = [&[0x23, 0, 6, 0xec][..], &[0; 44]].concat();
    let quic = [&[0xc3, 0, 0, 0, 1, 8][..], &[7; 1200]].concat();
    for other in [
        &ntp[..],
        b"",
        b"GET / HTTP/1.1\r\n\r\n",
        &quic,
        &[0; 12],
        &[0xff; 40],
    ] {
        let (lookups, stats) = watch(&[udp(client(4000), odd, other)]);
        assert!(lookups.is_empty() && stats.dns_malformed == 0, "{other:?}");
    }
    let (lookups, stats) = watch(&[udp(client(4000), server(), b"junk that is no question")]);
    assert_eq!((lookups.len(), stats.dns_malformed), (0, 1));
}

#[test]
fn over_tcp_any_cut_into_segments_gives_the_same() {
    let framed =
        |message: Vec<u8>| [(message.len() as u16).to_be_bytes().to_vec(), message].concat();
    let asked = [
        framed(query(1, "a.example", 1)),
        framed(query(2, "b.example", 28)),
    ]
    .concat();
    let record = record(&ASKED, numbers::A, 60, &[1; 4]);
    let said = [
        framed(answer(2, "b.example", 28, 3, &[])),
        framed(answer(1, "a.example", 1, 0, &[record])),
    ]
    .concat();
    for port in [53, 8053] {
        let server = SocketAddr::new(server().ip(), port);
        let run = |cuts: &[usize], reverse: bool, junk: bool| {
            let mut frames = vec![
                tcp(client(4000), server, 99, 0x02, &[]),
                tcp(server, client(4000), u32::MAX - 20, 0x12, &[]),
            ];
            let mut seq = 100u32;
            let mut pieces = Vec::new();
            let mut begin = 0;
            for end in cuts.iter().copied().chain([asked.len()]) {
                let piece = &asked[begin..end];
                pieces.push(tcp(client(4000), server, seq, 0x18, piece));
                seq = seq.wrapping_add(piece.len() as u32);
                begin = end;
            }
            if reverse {
                pieces.reverse();
            }
            frames.extend(pieces);
            if junk {
                // Sent again with other contents: what came first counts.
                frames.push(tcp(
                    client(4000),
                    server,
                    100,
                    0x18,
                    &vec![b'!'; asked.len()],
                ));
            }
            frames.push(tcp(server, client(4000), u32::MAX - 19, 0x18, &said[..30]));
            frames.push(tcp(server, client(4000), 10, 0x18, &said[30..]));
            let (mut lookups, stats) = watch(&frames);
            lookups
                .iter_mut()
                .for_each(|l| (l.time_ns, l.latency_ns) = (0, None));
            (lookups, stats.gaps)
        };
        let (whole, gaps) = run(&[], false, false);
        assert_eq!((whole.len(), gaps), (2, 0), "{port}");
        assert!(
            whole
                .iter()
                .all(|l| l.tcp && l.outcome == Outcome::Answered)
        );
        // Also the two octets of length alone.
        for cut in 1..asked.len() {
            for (reverse, junk) in [(false, false), (true, false), (false, true)] {
                assert_eq!(run(&[cut], reverse, junk), (whole.clone(), 0), "{cut}");
            }
        }
        let each: Vec<usize> = (1..asked.len()).collect();
        assert_eq!(run(&each[..each.len().min(200)], false, false).0, whole);
    }
}

#[test]
fn connections_are_limited() {
    let mut watcher = Watcher::new(Config {
        connections: 10,
        ..Config::default()
    });
    let web: SocketAddr = "192.0.2.80:80".parse().unwrap();
    let mut send = |to, port, payload: &[u8]| {
        let frame = tcp(client(port), to, 5, 0x18, payload);
        watcher.packet(&Frame::ethernet(&frame), Place::default(), S, &mut |_| {});
        watcher.stats().connections_evicted
    };
    // Of what is nothing for us nothing is lost.
    for port in 1000..1100 {
        assert_eq!(send(web, port, b"GET / HTTP/1.1\r\n\r\n"), 0);
    }
    let question = query(1, "a.example", 1);
    let framed = [&(question.len() as u16).to_be_bytes()[..], &question].concat();
    for port in 2000..2100 {
        send(server(), port, &framed);
    }
    assert_eq!(send(server(), 3000, &framed), 91);
}

proptest! {
    #[test]
    fn no_bytes_make_the_parser_fail(mut bytes in proptest::collection::vec(any::<u8>(), 0..600), counts in any::<[u8; 4]>()) {
        // With small counts it reaches the records.
        for (i, count) in counts.iter().enumerate() {
            if let Some(place) = bytes.get_mut(4 + 2 * i..6 + 2 * i) {
                place.copy_from_slice(&[0, count % 4]);
            }
        }
        if let Some(message) = Message::read(&bytes) {
            for record in message.sections.iter().flatten() {
                let text = record.data.to_string();
                prop_assert!(!text.contains(char::is_control));
            }
        }
        let frame = udp(client(4000), server(), &bytes);
        watch(&[frame]);
    }

    #[test]
    fn any_cuts_give_the_same_messages(
        messages in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..300), 0..5),
        cuts in proptest::collection::vec(1usize..50, 0..40),
    ) {
        let stream: Vec<u8> = messages
            .iter()
            .flat_map(|m| [(m.len() as u16).to_be_bytes().to_vec(), m.clone()].concat())
            .collect();
        let (mut framing, mut found) = (Framing::default(), Vec::new());
        let mut rest = &stream[..];
        for cut in cuts {
            let (now, later) = rest.split_at(cut.min(rest.len()));
            framing.feed(now, &mut |m| found.push(m.to_vec()));
            rest = later;
        }
        framing.feed(rest, &mut |m| found.push(m.to_vec()));
        prop_assert_eq!(found, messages);
    }
}
