//! Datagrams that are wrong, strange or too many, sent to a running `skua collector`: each is counted by its cause and
//! by who sent it, what an agent tells meanwhile is counted exactly, and memory has a limit.

use std::{
    net::{Ipv4Addr, UdpSocket},
    time::Duration,
};

use serde_json::{Value, json};
use skua_wire::sflow::{header_protocol, tag};

use crate::{
    collect::{Collector, agent, connections, sum, sum_of},
    lab::{Net, Wire, root_tests},
};

const FLOW_SAMPLE: u32 = tag(0, 1);
const COUNTERS_SAMPLE: u32 = tag(0, 2);
const RAW_HEADER: u32 = tag(0, 1);
const IPV4: u32 = tag(0, 3);
const OURS: u32 = 32_473;
/// Bytes of a datagram before its samples.
const HEADER: usize = 28;

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// A sample or a record: its tag, its length, and what is in it.
fn framed(tag: u32, body: &[u8]) -> Vec<u8> {
    lying(tag, body.len() as u32, body)
}

/// Likewise with any length.
fn lying(tag: u32, length: u32, body: &[u8]) -> Vec<u8> {
    [&words(&[tag, length]), body].concat()
}

/// A flow sample that says that it has so many records.
fn sample_of(count: u32, records: &[u8]) -> Vec<u8> {
    [&words(&[1, 1, 1, 1, 0, 0, 0, count]), records].concat()
}

fn sample(records: &[Vec<u8>]) -> Vec<u8> {
    framed(
        FLOW_SAMPLE,
        &sample_of(records.len() as u32, &records.concat()),
    )
}

/// 0:3 of a packet of 100 bytes of UDP to port 53, from any of 2²⁴ clients.
fn ip(client: u32) -> Vec<u8> {
    let (client, server) = (0xac00_0000 | client, 0xc633_6401);
    framed(IPV4, &words(&[100, 17, client, server, 40_000, 53, 0, 0]))
}

/// 0:1 of a packet, without padding: for those of a multiple of four bytes.
fn raw(protocol: u32, packet: &[u8]) -> Vec<u8> {
    let length = packet.len() as u32;
    let head = words(&[protocol, length, 0, length]);
    framed(RAW_HEADER, &[&head, packet].concat())
}

/// IPv4 with nothing but a header around something.
fn in_ip(protocol: u8, inner: &[u8]) -> Vec<u8> {
    let [high, low] = (20 + inner.len() as u16).to_be_bytes();
    let head = [0x45, 0, high, low, 0, 0, 0, 0, 64, protocol, 0, 0];
    [&head[..], &[10, 0, 0, 1, 10, 0, 0, 2], inner].concat()
}

/// Who sends from an address of its own.
struct Sender {
    address: Ipv4Addr,
    socket: UdpSocket,
    sequence: u32,
    sent: u64,
}

impl Sender {
    fn new(net: &Net, address: [u8; 4]) -> Self {
        let address = Ipv4Addr::from(address);
        net.ip(&format!("addr add {address}/32 dev lo"));
        let socket = net.inside(|| UdpSocket::bind((address, 0)).unwrap());
        Self {
            address,
            socket,
            sequence: 0,
            sent: 0,
        }
    }

    fn send(&mut self, bytes: &[u8]) {
        self.socket.send_to(bytes, "10.7.0.2:6343").unwrap();
        self.sent += 1;
    }

    /// The next datagram, which says that it has so many samples.
    fn next(&mut self, sub_agent: u32, count: u32, samples: &[u8]) -> Vec<u8> {
        self.sequence += 1;
        let agent = u32::from(self.address);
        let header = [5, 1, agent, sub_agent, self.sequence, 1, count];
        [&words(&header), samples].concat()
    }

    fn send_samples(&mut self, samples: &[Vec<u8>]) {
        let bytes = self.next(0, samples.len() as u32, &samples.concat());
        self.send(&bytes);
    }

    /// As a summary tells of it.
    fn line(&self) -> Value {
        json!({"from": self.address.to_string(), "datagrams": self.sent})
    }
}

/// A datagram that ends anywhere, also before its header does.
fn cut(sender: &mut Sender) {
    let packet = in_ip(17, &words(&[40_000 << 16 | 53, 8 << 16]));
    let records = [ip(1), raw(header_protocol::IPV4, &packet)];
    let samples = sample(&records);
    for end in (0..HEADER + samples.len()).step_by(3) {
        let before = sender.sequence;
        let whole = sender.next(0, 1, &samples);
        sender.send(&whole[..end]);
        if end < HEADER {
            // Nobody reads its number.
            sender.sequence = before;
        }
    }
}

/// Lengths and counts that are not true. Samples that are read nevertheless, and such without a packet.
fn lies(sender: &mut Sender) -> Lied {
    let good = sample(&[ip(2)]);
    let long = u32::MAX;
    // More samples than there are.
    for count in [2, long] {
        let bytes = sender.next(0, count, &good);
        sender.send(&bytes);
    }
    let mut told = Lied {
        samples: 2,
        no_packet: 0,
    };
    let body = sample_of(1, &ip(2));
    let words_of = |length: usize| words(&vec![1; length]);
    // Samples that are longer than their datagram, or shorter than what they begin with.
    for length in [body.len() as u32 + 4, long, long - 3] {
        sender.send_samples(&[lying(FLOW_SAMPLE, length, &body)]);
    }
    for length in 0..7 {
        sender.send_samples(&[framed(FLOW_SAMPLE, &words_of(length))]);
    }
    sender.send_samples(&[framed(COUNTERS_SAMPLE, &words_of(2))]);
    // More records than there are: what is there is read.
    for count in [2, long] {
        sender.send_samples(&[framed(FLOW_SAMPLE, &sample_of(count, &ip(2)))]);
        told.samples += 1;
    }
    // Records that are longer than their sample, or shorter than their structure.
    for record in [
        lying(IPV4, 36, &words_of(8)),
        lying(IPV4, long, &words_of(8)),
        framed(IPV4, &words_of(7)),
        framed(tag(0, 4), &words_of(8)),
        framed(RAW_HEADER, &words(&[1, 100, 0, 100, 0])),
        framed(RAW_HEADER, &words(&[1, 100, 0, long, 0])),
    ] {
        sender.send_samples(&[sample(&[record])]);
        told.no_packet += 1;
    }
    // Ours, which are too short, of a version that there cannot be, or have names that are longer than they are.
    let names = words(&[0x0101_0001, 0x0100_ff00, 0]);
    for (format, body) in [
        (1, words_of(19)),
        (1, words_of(0)),
        (2, words_of(8)),
        (4, names),
        (5, words(&[0, 0])),
    ] {
        sender.send_samples(&[sample(&[ip(2), framed(tag(OURS, format), &body)])]);
        told.samples += 1;
    }
    for (format, length) in [(3, 12), (6, 5)] {
        let record = framed(tag(OURS, format), &words_of(length));
        let body = [words(&[1, 3 << 24, 1]), record].concat();
        sender.send_samples(&[framed(COUNTERS_SAMPLE, &body)]);
    }
    told
}

struct Lied {
    samples: u64,
    no_packet: u64,
}

/// Versions and kinds of addresses that there are not.
fn versions(sender: &mut Sender) {
    for version in [0, 1, 2, 4, 6, 9, 10, u32::MAX] {
        let bytes = words(&[version, 1, 0x0a07_000d, 0, 1, 1, 0]);
        sender.send(&bytes);
    }
    for family in [3, u32::MAX] {
        sender.send(&words(&[5, family, 0x0a07_000d, 0, 1, 1, 0]));
    }
}

/// What nobody knows, which is stepped over: how much.
fn unknown(sender: &mut Sender) -> u64 {
    let strange = |tag| framed(tag, &words(&[u32::MAX; 5]));
    let tags = [tag(0, 4_000), tag(OURS, 4_000), tag(9, 1), u32::MAX];
    for tag in tags {
        sender.send_samples(&[strange(tag), sample(&[strange(tag), ip(3), strange(tag)])]);
    }
    3 * tags.len() as u64
}

/// What is inside of itself: samples in samples, datagrams in packets in datagrams, headers in headers.
fn nested(sender: &mut Sender) {
    let mut inside = sample(&[ip(4)]);
    for _ in 0..8 {
        inside = sample(&[framed(FLOW_SAMPLE, &inside), ip(4)]);
    }
    sender.send_samples(&[inside]);
    let mut packet = in_ip(17, &words(&[40_000 << 16 | 53, 8 << 16]));
    for _ in 0..6 {
        let bytes = sender.next(0, 1, &sample(&[raw(header_protocol::IPV4, &packet)]));
        sender.sequence -= 1;
        let udp = words(&[40_000 << 16 | 6_343, (8 + bytes.len() as u32) << 16]);
        packet = in_ip(17, &[udp, bytes].concat());
    }
    sender.send_samples(&[sample(&[raw(header_protocol::IPV4, &packet)])]);
    let mut packet = in_ip(17, &words(&[40_000 << 16 | 53, 8 << 16]));
    for _ in 0..60 {
        packet = in_ip(4, &packet);
    }
    sender.send_samples(&[sample(&[raw(header_protocol::IPV4, &packet)])]);
    // VLAN tags without end, and as many options of IPv6.
    let mut frame = vec![2; 12];
    frame.extend([0x81, 0, 0, 1].repeat(300));
    sender.send_samples(&[sample(&[raw(header_protocol::ETHERNET, &frame)])]);
    let mut packet = words(&[6 << 28, 1_200 << 16, 0, 0, 0, 1, 0, 0, 0, 2]);
    packet.extend([60, 0, 1, 4, 0, 0, 0, 0].repeat(150));
    sender.send_samples(&[sample(&[raw(header_protocol::IPV6, &packet)])]);
}

/// 32473:1 of a conversation that sent one packet of 100 bytes.
fn conversation(id: u32) -> Vec<u8> {
    let head = [0x0100_0001, 1, 0, id, 0, id, 0, 1];
    let sums = [0, 1, 0, 0, 0, 100, 0, 0, 1, 0, 100, 0];
    framed(tag(OURS, 1), &words(&[&head[..], &sums].concat()))
}

/// Packets and bytes of both.
fn plus(one: (u64, u64), other: (u64, u64)) -> (u64, u64) {
    (one.0 + other.0, one.1 + other.1)
}

#[test]
fn whatever_is_sent_is_counted_and_what_an_agent_tells_meanwhile_is_exact() {
    if !root_tests() {
        return;
    }
    let wire = Wire::new().with_addresses();
    // Nobody here sends more than a hundred datagrams in a tenth of a second but who floods.
    let collector = Collector::start_at(&wire.near, "10.7.0.2:6343", &["--sender-rate", "1000"]);
    let far = agent(&wire.far, "g0");
    far.wait_attached("g0");
    let [
        mut cutter,
        mut liar,
        mut older,
        mut unknowing,
        mut nesting,
        mut loud,
    ] = [11, 12, 13, 14, 15, 16].map(|last| Sender::new(&wire.near, [10, 7, 0, last]));
    let mut strangers = [2, 3].map(|last| Sender::new(&wire.near, [10, 8, 0, last]));
    connections(&wire, 8_080, 10);
    cut(&mut cutter);
    let lied = lies(&mut liar);
    connections(&wire, 8_080, 10);
    versions(&mut older);
    let skipped = unknown(&mut unknowing);
    nested(&mut nesting);
    for (stranger, count) in strangers.iter_mut().zip([7, 5]) {
        for _ in 0..count {
            stranger.send_samples(&[sample(&[ip(5)])]);
        }
    }
    connections(&wire, 8_080, 10);
    let samples = sample(&[ip(6)]).repeat(8);
    let flood: Vec<_> = (0..10_000).map(|_| loud.next(0, 8, &samples)).collect();
    for datagram in flood {
        loud.send(&datagram);
    }
    connections(&wire, 8_080, 10);
    let seen = far.stop().in_flows();
    let (lines, summary) = collector.stop();
    // What is wrong, by who sent it.
    let lost = |cause: &str| summary["lost"][cause].as_u64().unwrap_or(0);
    let wrong = [&cutter, &liar, &older];
    assert_eq!(
        summary["unreadable"],
        json!(wrong.map(Sender::line)),
        "{summary}"
    );
    let sent: u64 = wrong.iter().map(|sender| sender.sent).sum();
    assert_eq!(lost("decode_error"), sent, "{summary}");
    let last = format!("{}: ", older.address);
    assert!(summary["last_error"].as_str().unwrap().starts_with(&last));
    assert_eq!(
        summary["strangers"],
        json!(strangers.each_ref().map(Sender::line))
    );
    assert_eq!(lost("not_allowed"), 12);
    let refused = lost("over_rate");
    assert!(refused > 0, "{summary}");
    assert_eq!(
        summary["flooding"],
        json!([{"from": loud.address.to_string(), "datagrams": refused}])
    );
    assert_eq!(lost("receive_queue_full"), 0);
    // What of it could be read is: behind the unknown, before the wrong, and in what was not too many.
    assert_eq!(summary["skipped"], skipped, "{summary}");
    assert_eq!(lost("no_packet"), lied.no_packet + 1, "{summary}");
    let read = lied.samples + 4 + (nesting.sent - 1) + 8 * (loud.sent - refused);
    assert_eq!(summary["samples"], read, "{summary}");
    // Who is an agent: the gaps are where datagrams were too many.
    for agent in summary["agents"].as_array().unwrap() {
        let gaps = match agent["from"] == loud.address.to_string() {
            true => lost("sequence_gap"),
            false => 0,
        };
        assert_eq!(agent["lost_datagrams"], gaps, "{agent}");
    }
    assert!(lost("sequence_gap") <= refused, "{summary}");
    assert_eq!(lost("duplicate"), 0, "{summary}");
    // The good, to the byte.
    let told = sum(&summary["exported"]);
    assert_eq!(told, (seen.packets, seen.bytes), "{summary}");
    assert_eq!(sum(&summary["got"]), told, "{summary}");
    assert_eq!(sum(&summary["counted"]), told, "{summary}");
    let all = plus(told, sum(&summary["estimated"]));
    assert_eq!(sum_of(&lines), all, "{summary}");
    let begun = lines.iter().filter(|line| line["port"] == 8_080);
    let begun: u64 = begun.map(|line| line["begun"].as_u64().unwrap()).sum();
    assert_eq!(begun, 40, "{lines:?}");
}

/// Returns when all that was sent before is summed up: then comes the answer to a hello.
fn wait_summed(net: &Net, sender: &mut Sender) {
    let hello = words(&[0x0101_0000, 0, 0, 1, 0, 0]);
    let body = [words(&[1, 3 << 24, 1]), framed(tag(OURS, 6), &hello)];
    let asking = sender.next(0, 1, &framed(COUNTERS_SAMPLE, &body.concat()));
    sender.send(&asking);
    net.inside(|| {
        let patience = Some(Duration::from_secs(60));
        sender.socket.set_read_timeout(patience).unwrap();
        assert!(sender.socket.recv(&mut [0; 200]).unwrap() > HEADER);
    });
}

/// The most memory that a process has had, bytes.
fn most_memory(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let number = line.unwrap().trim().trim_end_matches(" kB");
    number.parse::<u64>().unwrap() * 1_024
}

#[test]
fn what_has_no_room_is_counted_and_takes_no_memory() {
    if !root_tests() {
        return;
    }
    const SENDERS: u8 = 17;
    const EACH: u32 = 1_000;
    /// Of each kind in a datagram: packets, and records of conversations.
    const SAMPLES: u32 = 4;
    /// Agents that a collector knows at most.
    const AGENTS: u64 = 16_384;
    let net = Net::new();
    net.ip("addr add 10.7.0.2/32 dev lo");
    let limits = ["--max-keys", "1000", "--max-conversations", "1000"];
    let collector = Collector::start_at(&net, "10.7.0.2:6343", &limits);
    let mut asking = Sender::new(&net, [10, 7, 0, 3]);
    wait_summed(&net, &mut asking);
    let before = most_memory(collector.pid());
    let mut key = 0;
    for last in 0..SENDERS {
        let mut sender = Sender::new(&net, [10, 7, 0, 100 + last]);
        for sub_agent in 0..EACH {
            let mut samples = Vec::new();
            for _ in 0..SAMPLES {
                samples.extend(sample(&[ip(key)]));
                samples.extend(sample(&[ip(key + 1), conversation(key)]));
                key += 2;
            }
            let bytes = sender.next(sub_agent, 2 * SAMPLES, &samples);
            sender.send(&bytes);
        }
        wait_summed(&net, &mut asking);
    }
    let memory = most_memory(collector.pid()) - before;
    let (lines, summary) = collector.stop();
    let lost = |cause: &str| summary["lost"][cause].as_u64().unwrap_or(0);
    let sent = u64::from(SENDERS) * u64::from(EACH);
    assert_eq!(lost("agents_full"), sent - AGENTS, "{}", summary["lost"]);
    let taken = AGENTS * u64::from(SAMPLES);
    assert_eq!(summary["samples"], taken);
    assert_eq!(summary["records"], taken);
    assert_eq!(summary["untracked"], taken - 1_000);
    // Each is one packet of 100 bytes, in a line or not.
    let all = (2 * taken, 200 * taken);
    let counted = plus(sum(&summary["counted"]), sum(&summary["estimated"]));
    assert_eq!(plus(counted, sum(&summary["keys_full"])), all);
    assert_eq!(lost("keys_full"), sum(&summary["keys_full"]).0);
    assert_eq!(sum_of(&lines), counted);
    assert_eq!(counted, (1_000, 100_000));
    // 33 to 36 MB; without limits more than 108 MB.
    assert!(memory < 56 << 20, "{memory} bytes");
}
