//! The steering program and its reference in user space come to the same numbers and verdicts, bit by
//! bit: both are fed with a million random packets, whole and damaged, for detectors of all kinds.
//! Needs root.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::os::fd::{AsRawFd as _, BorrowedFd};

use skua_kernel::{
    flow::LinkKind,
    steer::{Deed, Event, Steering, Target},
};
use skua_steer::{Cause, Detector, Encoding, Fate, Reference, parse};
use skua_testkit::Random;

const SEED: u64 = 0x57ee_12ed;
/// Whether the kernel can take the program at all; on those before 5.12 it is told.
fn can_steer() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release
        .split('.')
        .map_while(|part| part.parse::<u32>().ok());
    let version = (numbers.next().unwrap(), numbers.next().unwrap());
    if version < (5, 12) {
        assert!(skua_kernel::steer::trial().is_err());
        eprintln!(
            "left out: {} has no bpf_check_mtu, steering needs 5.12",
            release.trim()
        );
    }
    version >= (5, 12)
}

/// Verdicts of the program (linux/pkt_cls.h).
const GO_ON: i32 = -1;
const DISCARD: i32 = 2;
const REDIRECT: i32 = 7;

/// In an emulated machine everything takes ten times as long.
fn packets(all: usize) -> usize {
    match std::env::var_os("SKUA_KERNEL_MATRIX") {
        Some(_) => all / 50,
        None => all,
    }
}

/// Gives a packet to the program: its verdict, and the packet behind it.
fn run(program: BorrowedFd<'_>, packet: &[u8], segments: u32) -> (i32, Vec<u8>) {
    try_run(program, packet, segments).unwrap()
}

/// As [`run`]; an error when the kernel does not take such a packet for a test.
fn try_run(
    program: BorrowedFd<'_>,
    packet: &[u8],
    segments: u32,
) -> std::io::Result<(i32, Vec<u8>)> {
    // struct __sk_buff (linux/bpf.h) as words
    let mut context = [0u32; 48];
    let mut out = vec![0u8; packet.len() + 64];
    let mut options = libbpf_sys::bpf_test_run_opts {
        sz: size_of::<libbpf_sys::bpf_test_run_opts>() as _,
        data_in: packet.as_ptr().cast(),
        data_size_in: packet.len() as u32,
        data_out: out.as_mut_ptr().cast(),
        data_size_out: out.len() as u32,
        repeat: 1,
        ..Default::default()
    };
    if segments > 1 {
        context[164 / 4] = segments;
        context[176 / 4] = 100;
        options.ctx_in = (&raw const context).cast();
        options.ctx_size_in = size_of_val(&context) as u32;
    }
    // SAFETY: all pointers are valid for their lengths during the call.
    let error = unsafe { libbpf_sys::bpf_prog_test_run_opts(program.as_raw_fd(), &mut options) };
    if error != 0 {
        return Err(std::io::Error::from_raw_os_error(-error));
    }
    out.truncate(options.data_size_out as usize);
    Ok((options.retval as i32, out))
}

fn detector(settings: &str) -> Detector {
    let text = format!("name: test\ninterface: eth0\n{settings}");
    let mut all = parse(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    all.remove(0)
}

fn checksum(parts: &[&[u8]]) -> u16 {
    let mut sum = 0u64;
    for part in parts {
        for pair in part.chunks(2) {
            let low = pair.get(1).copied().unwrap_or(0);
            sum += u64::from(u16::from_be_bytes([pair[0], low]));
        }
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// How a frame is built.
#[derive(Clone, Copy, Default)]
struct Shape {
    six: bool,
    tcp: bool,
    tags: usize,
    /// Words of IPv4 options, or IPv6 extension headers.
    extra: usize,
    fragment: bool,
    /// Bytes behind the end of IP.
    padding: usize,
}

impl Shape {
    fn random(random: &mut Random) -> Self {
        Self {
            six: random.one_in(3),
            tcp: random.one_in(4),
            tags: if random.one_in(4) {
                random.below(4) as usize
            } else {
                0
            },
            extra: if random.one_in(4) {
                random.below(8) as usize
            } else {
                0
            },
            fragment: random.one_in(50),
            padding: if random.one_in(5) {
                random.below(20) as usize
            } else {
                0
            },
        }
    }

    fn frame(self, payload: &[u8]) -> Vec<u8> {
        let mut transport = Vec::new();
        transport.extend([0x12, 0x34, 0x23, 0x28]);
        if self.tcp {
            transport.extend([0, 0, 0, 1, 0, 0, 0, 0, 0x50, 0x18, 0x10, 0, 0, 0, 0, 0]);
        } else {
            transport.extend((8 + payload.len() as u16).to_be_bytes());
            transport.extend([0, 0]);
        }
        let protocol = if self.tcp { 6 } else { 17 };
        transport.extend(payload);
        let (source, destination) = match self.six {
            true => (vec![0xfd; 16], vec![0xfe; 16]),
            false => (vec![10, 0, 0, 1], vec![10, 0, 0, 2]),
        };
        let length = transport.len() as u32;
        let pseudo = [&length.to_be_bytes()[..], &[0, 0, 0, protocol]].concat();
        let sum = checksum(&[&source, &destination, &pseudo, &transport]);
        let sum = if sum == 0 && !self.tcp { 0xffff } else { sum };
        let at = if self.tcp { 16 } else { 6 };
        transport[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
        for tag in 0..self.tags {
            frame.extend(if tag == 0 { [0x88, 0xa8] } else { [0x81, 0x00] });
            frame.extend([0, 7]);
        }
        if self.six {
            frame.extend([0x86, 0xdd]);
            self.add_ip6(&mut frame, protocol, &source, &destination, &transport);
        } else {
            frame.extend([0x08, 0x00]);
            self.add_ip4(&mut frame, protocol, &source, &destination, &transport);
        }
        frame.resize(frame.len() + self.padding, 0x2e);
        frame
    }

    fn add_ip4(self, frame: &mut Vec<u8>, protocol: u8, from: &[u8], to: &[u8], rest: &[u8]) {
        let size = 20 + self.extra.min(10) * 4;
        let mut header = vec![0x40 | (size / 4) as u8, 0];
        header.extend(((size + rest.len()) as u16).to_be_bytes());
        header.extend([
            0,
            1,
            if self.fragment { 0x20 } else { 0x40 },
            0,
            64,
            protocol,
            0,
            0,
        ]);
        header.extend(from.iter().chain(to));
        header.resize(size, 1);
        let sum = checksum(&[&header]);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        frame.extend(header);
        frame.extend(rest);
    }

    fn add_ip6(self, frame: &mut Vec<u8>, protocol: u8, from: &[u8], to: &[u8], rest: &[u8]) {
        let mut body = Vec::new();
        let mut kinds: Vec<u8> = (0..self.extra).map(|i| [0, 60, 43, 51][i % 4]).collect();
        if self.fragment {
            kinds.push(44);
        }
        let first = kinds.first().copied().unwrap_or(protocol);
        for (i, kind) in kinds.iter().enumerate() {
            let next = kinds.get(i + 1).copied().unwrap_or(protocol);
            body.extend(match kind {
                44 => [next, 0, 0, 1, 0, 0, 0, 9].to_vec(),
                // In words of 4 bytes, two less than there are.
                51 => [vec![next, 2], vec![0; 14]].concat(),
                _ => [vec![next, 1], vec![0; 14]].concat(),
            });
        }
        body.extend(rest);
        frame.extend([0x60, 0, 0, 0]);
        frame.extend((body.len() as u16).to_be_bytes());
        frame.extend([first, 64]);
        frame.extend(from.iter().chain(to));
        frame.extend(body);
    }
}

/// Values of a channel: they wander about a level, and jump up and down.
fn value(random: &mut Random, encoding: Encoding) -> f64 {
    let level = match random.below(8) {
        0 => 0.0,
        1 => 1e3,
        2 => -1e3,
        3 => 5e6,
        _ => 100.0,
    };
    let wander = (random.below(1_000) as f64 - 500.0) / 100.0;
    match (encoding, random.below(64)) {
        (_, 0) => 1e300,
        (_, 1) => f64::NAN,
        (_, 2) => 1e14,
        (_, 3) => -7e13,
        (Encoding::Unsigned, _) => (level + wander).abs(),
        _ => level + wander,
    }
}

fn ordered(bytes: &[u8], little: bool) -> Vec<u8> {
    match little {
        true => bytes.iter().rev().copied().collect(),
        false => bytes.to_vec(),
    }
}

fn encoded(random: &mut Random, detector: &Detector) -> Vec<u8> {
    let field = detector.value;
    let value = value(random, field.encoding);
    let little = field.order == skua_steer::ByteOrder::Little;
    let whole = |raw: u64| raw.to_be_bytes()[8 - usize::from(field.width)..].to_vec();
    let bytes = match field.encoding {
        Encoding::Unsigned if random.one_in(40) => whole(random.bits()),
        Encoding::Unsigned => whole(value as u64),
        Encoding::Signed if random.one_in(40) => whole(random.bits()),
        Encoding::Signed => whole(value as i64 as u64),
        Encoding::Float if random.one_in(40) => whole(random.bits()),
        Encoding::Float => (value as f32).to_be_bytes().to_vec(),
        Encoding::Double if random.one_in(40) => whole(random.bits()),
        Encoding::Double => value.to_be_bytes().to_vec(),
        Encoding::Decimal => return decimal(random, value),
    };
    ordered(&bytes, little)
}

fn decimal(random: &mut Random, value: f64) -> Vec<u8> {
    match random.below(12) {
        0 => {
            let any = b"0123456789.+- ,;xe\0\n";
            (0..random.below(24)).map(|_| *random.pick(any)).collect()
        }
        1 => format!("{value:.0}\n").into_bytes(),
        2 => format!("  {value:+.11}|").into_bytes(),
        _ => format!("{value:.3}").into_bytes(),
    }
}

/// Lays a field into a payload.
fn lay(payload: &mut Vec<u8>, offset: u32, bytes: &[u8]) {
    let end = offset as usize + bytes.len();
    if payload.len() < end {
        payload.resize(end, b' ');
    }
    payload[offset as usize..end].copy_from_slice(bytes);
}

fn packet(random: &mut Random, detector: &Detector) -> Vec<u8> {
    let mut payload = Vec::new();
    if let Some(channel) = detector.channel {
        let number = match random.below(60) {
            0 => random.bits(),
            1 => u64::from(detector.channels),
            // Few, so that their rings fill up.
            _ => random.below(u64::from(detector.channels).min(6)),
        };
        let bytes = &number.to_be_bytes()[8 - usize::from(channel.width)..];
        let little = channel.order == skua_steer::ByteOrder::Little;
        lay(&mut payload, channel.offset, &ordered(bytes, little));
    }
    let bytes = encoded(random, detector);
    lay(&mut payload, detector.value.offset, &bytes);
    if random.one_in(30) {
        payload.truncate(random.below(payload.len() as u64 + 1) as usize);
    }
    let mut frame = Shape::random(random).frame(&payload);
    if random.one_in(20) {
        frame.truncate(14.max(random.below(frame.len() as u64 + 1) as usize));
    }
    if random.one_in(20) {
        for _ in 0..=random.below(4) {
            let at = random.below(frame.len() as u64) as usize;
            frame[at] = random.bits() as u8;
        }
    }
    frame
}

/// A detector with settings by chance.
fn any_detector(random: &mut Random, turn: usize) -> Detector {
    let encodings = ["unsigned", "signed", "float", "double", "decimal"];
    let encoding = encodings[turn % encodings.len()];
    let width = match encoding {
        "unsigned" | "signed" => format!("width: {}, ", random.pick(&[1, 2, 4, 8])),
        "decimal" if random.one_in(2) => format!("width: {}, ", 1 + random.below(20)),
        _ => String::new(),
    };
    let order = random.pick(&["big", "little"]);
    let other_order = random.pick(&["big", "little"]);
    let (threshold, release) = (any_threshold(random), any_threshold(random));
    let text = format!(
        "match: '{}'\nfrom: {}\nchannels: {}\n{}value: {{offset: {}, {width}encoding: {encoding}, \
         order: {order}}}\nfraction: {}\nring: {}\nsmoothing: {}\nthreshold: {threshold}\n\
         release: {release}\nwarm_up: {}\nhold: {}\nclock: {}\naction: {{drop: true}}\n\
         watchdog: {{when_lost: stay}}\n",
        random.pick(&[
            "",
            "udp",
            "ip or ip6",
            "greater 60",
            "udp port 9000 or vlan"
        ]),
        random.pick(&["payload", "payload", "payload", "ip", "frame"]),
        random.pick(&[1, 4, 64, 300]),
        match random.one_in(5) {
            true => String::new(),
            false => format!(
                "channel: {{offset: {}, width: {}, order: {other_order}}}\n",
                random.below(12),
                random.pick(&[1, 2, 4, 8])
            ),
        },
        random.below(60),
        random.below(25),
        random.pick(&[1, 2, 10, 64]),
        random.below(7),
        random.pick(&[0, 0, 5]),
        random.pick(&["0s", "0s", "1ms", "20ms"]),
        random.pick(&["coarse", "exact"]),
    );
    detector(&text)
}

fn any_threshold(random: &mut Random) -> String {
    match random.one_in(2) {
        true => format!("{{shift: {}}}", random.below(9)),
        false => format!(
            "{{percent: {}}}",
            random.pick(&["0.01", "2.5", "20", "1000"])
        ),
    }
}

/// What an event and a verdict must agree on.
type Told = (u32, bool, i64, i64, i64, u64);

fn told(event: &Event) -> Told {
    let Event {
        channel,
        fired,
        value,
        before,
        after,
        count,
        ..
    } = *event;
    (channel, fired, value, before, after, count)
}

/// Feeds both, and compares after each packet; returns how many were sampled and fired.
fn compare(random: &mut Random, detector: &Detector, packets: usize) -> (u64, u64) {
    let mut steering = Steering::load(detector, LinkKind::Ethernet).unwrap();
    let mut reference = Reference::new(detector).unwrap();
    let (mut wanted, mut events): (Vec<Told>, Vec<Told>) = (Vec::new(), Vec::new());
    for number in 0..packets {
        let frame = packet(random, detector);
        // Some kernels take no test packet that ends before the header of IP does.
        let verdict = match try_run(steering.program().unwrap(), &frame, 1) {
            Ok((verdict, _)) => verdict,
            Err(error) if frame.len() < 14 + 40 => {
                assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
                continue;
            }
            Err(error) => panic!("{error}: {frame:02x?}"),
        };
        let channel = reference.read(&frame).map(|(channel, _)| channel);
        let found = channel
            .ok()
            .and_then(|channel| steering.channel(channel).unwrap());
        let last = found
            .as_ref()
            .and_then(|found| found.samples().last().copied());
        let outcome = reference.packet(&frame, last.map_or(0, |sample| sample.time_ns));
        let expected = if outcome.fired() { DISCARD } else { GO_ON };
        let place = || format!("packet {number} {frame:02x?}\n{detector:?}\n{outcome:?}");
        assert_eq!(verdict, expected, "{}", place());
        if let Fate::Sampled {
            channel,
            value,
            verdict,
        } = outcome.fate
        {
            assert_eq!(
                found.as_ref(),
                reference.channels().get(&channel),
                "{}",
                place()
            );
            if verdict.changed {
                let (before, after) = (verdict.before, verdict.after);
                wanted.push((channel, verdict.fired, value, before, after, verdict.count));
            }
        }
        if number % 500 == 0 {
            steering.events(|event| events.push(told(&event))).unwrap();
        }
    }
    steering.events(|event| events.push(told(&event))).unwrap();
    assert_eq!(events, wanted);
    let (counts, tally) = (steering.counts().unwrap(), reference.tally());
    assert_eq!(
        (
            counts.matched,
            counts.sampled,
            counts.fired,
            counts.events_lost
        ),
        (tally.matched, tally.sampled, tally.fired, 0)
    );
    for (cause, count) in &counts.untouched {
        assert_eq!(
            *count,
            tally.untouched.get(cause).copied().unwrap_or(0),
            "{cause:?}"
        );
    }
    let untouched: u64 = counts.untouched.values().sum();
    assert_eq!(counts.matched, counts.sampled + untouched);
    assert_eq!(counts.fired, counts.deeds.values().sum::<u64>());
    let all = steering.channels().unwrap();
    assert_eq!(all.len(), reference.channels().len());
    (tally.sampled, tally.fired)
}

#[test]
fn a_million_packets_come_to_the_same_as_in_user_space() {
    if !can_steer() {
        return;
    }
    let random = &mut Random::new(SEED);
    let (mut sampled, mut fired) = (0, 0);
    for turn in 0..50 {
        let detector = any_detector(random, turn);
        let (s, f) = compare(random, &detector, packets(20_000));
        sampled += s;
        fired += f;
    }
    // Neither is the case by chance or never.
    assert!(sampled > packets(200_000) as u64, "{sampled}");
    assert!(
        fired > sampled / 100 && fired < sampled,
        "{fired} of {sampled}"
    );
}

#[test]
fn the_preset_judges_as_the_issue_says() {
    if !can_steer() {
        return;
    }
    let detector = detector("preset: ewma-64\naction: {drop: true}\n");
    let steering = Steering::load(&detector, LinkKind::Ethernet).unwrap();
    let verdict = |channel: u16, value: &str| {
        let payload = [&channel.to_be_bytes()[..], value.as_bytes()].concat();
        run(
            steering.program().unwrap(),
            &Shape::default().frame(&payload),
            1,
        )
        .0
    };
    // Not until the ring is full, whatever comes.
    for value in [
        "100", "0", "900", "100", "100", "100", "100", "100", "100", "400",
    ] {
        assert_eq!(verdict(7, value), GO_ON);
    }
    let ewma = steering.channel(7).unwrap().unwrap().ewma;
    assert_eq!(ewma, 200 << 8, "the ring's mean");
    // |new - old| = 25, old >> 3 = 25: not more.
    assert_eq!(verdict(7, "400"), GO_ON);
    assert_eq!(steering.channel(7).unwrap().unwrap().ewma, 225 << 8);
    // Up and down: more than an eighth.
    assert_eq!(verdict(7, "451"), DISCARD);
    assert_eq!(verdict(7, "-2"), DISCARD);
    assert_eq!(verdict(7, "225"), GO_ON);
    // Other channels know nothing of it; there are 64.
    assert_eq!(verdict(63, "5000"), GO_ON);
    assert_eq!(verdict(64, "5000"), GO_ON);
    assert_eq!(steering.counts().unwrap().untouched[&Cause::Channel], 1);
}

#[test]
fn many_cpus_write_one_channel() {
    if !can_steer() {
        return;
    }
    let settings = "channel: {offset: 0, width: 2}\nvalue: {offset: 2, width: 4, encoding: signed}\n\
                    smoothing: 1\nthreshold: {percent: 10}\nring: 64\naction: {drop: true}\nwatchdog: {when_lost: stay}\n";
    let detector = detector(settings);
    let mut steering = Steering::load(&detector, LinkKind::Ethernet).unwrap();
    let each = packets(50_000) as u64;
    let values = [1_000i32, 1_010, -1_000, 5_000];
    let discarded: u64 = std::thread::scope(|scope| {
        let program = steering.program().unwrap();
        let threads: Vec<_> = values
            .iter()
            .map(|value| {
                let payload = [&[0, 3][..], &value.to_be_bytes()].concat();
                let frame = Shape::default().frame(&payload);
                scope.spawn(move || {
                    let all = (0..each).map(|_| run(program, &frame, 1).0);
                    all.filter(|verdict| *verdict == DISCARD).count() as u64
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum()
    });
    let channel = steering.channel(3).unwrap().unwrap();
    let counts = steering.counts().unwrap();
    assert_eq!(channel.count, each * values.len() as u64);
    assert_eq!(
        (counts.matched, counts.sampled),
        (channel.count, channel.count)
    );
    assert_eq!((channel.fired, counts.fired), (discarded, discarded));
    assert_eq!(counts.deeds[&Deed::Acted], discarded);
    let (least, most) = (-1_000 << 8, 5_000 << 8);
    assert!((least..=most).contains(&channel.ewma), "{}", channel.ewma);
    for sample in &channel.ring {
        assert!(values.contains(&((sample.value >> 8) as i32)), "{sample:?}");
    }
    // Each change of state was told or counted, and they come in turns.
    let mut events = Vec::new();
    steering.events(|event| events.push(event)).unwrap();
    let lost = steering.counts().unwrap().events_lost;
    events.sort_by_key(|event| event.count);
    if lost == 0 {
        for (i, event) in events.iter().enumerate() {
            assert_eq!(event.fired, i % 2 == 0, "{event:?}");
        }
    }
    assert!(!events.is_empty());
}

#[test]
fn packets_of_several_datagrams_are_left_alone() {
    if !can_steer() {
        return;
    }
    let detector = detector("preset: ewma-64\naction: {drop: true}\n");
    let steering = Steering::load(&detector, LinkKind::Ethernet).unwrap();
    let frame = Shape::default().frame(b"\0\x01100.5");
    for _ in 0..20 {
        assert_eq!(run(steering.program().unwrap(), &frame, 3).0, GO_ON);
    }
    let counts = steering.counts().unwrap();
    assert_eq!(
        (counts.matched, counts.untouched[&Cause::Aggregated]),
        (20, 20)
    );
    assert!(steering.channels().unwrap().is_empty());
}

/// Makes a detector fire with the next packet, and gives that to it.
fn fire(steering: &Steering, shape: Shape) -> (i32, Vec<u8>, Vec<u8>) {
    let calm = shape.frame(b"\0\x01100");
    let program = steering.program().unwrap();
    for _ in 0..10 {
        let (verdict, out) = run(program, &calm, 1);
        assert_eq!((verdict, out), (GO_ON, calm.clone()), "untouched");
    }
    let spike = shape.frame(b"\0\x01900");
    let (verdict, out) = run(program, &spike, 1);
    (verdict, out, spike)
}

#[test]
fn a_redirect_rewrites_what_is_asked_and_checksums_stay_right() {
    if !can_steer() {
        return;
    }
    let target = Target {
        ifindex: 1,
        peer: false,
        destination: [2, 0, 0, 0, 0, 0x0b],
        source: [2, 0, 0, 0, 0, 0x0a],
    };
    let shapes = [(false, false), (false, true), (true, false), (true, true)];
    for (six, tcp) in shapes {
        for (settings, rewritten) in [
            ("", false),
            (", port: 9001", true),
            (
                if six {
                    ", address: 'fd00::b'"
                } else {
                    ", address: 10.9.8.7"
                },
                true,
            ),
            (
                match six {
                    true => ", address: 'fd00::b', port: 9001",
                    false => ", address: 10.9.8.7, port: 9001",
                },
                true,
            ),
        ] {
            let shape = Shape {
                six,
                tcp,
                tags: 1,
                ..Shape::default()
            };
            let detector = detector(&format!(
                "preset: ewma-64\nmatch: ''\naction: {{redirect: {{to: lo{settings}}}}}\n"
            ));
            let steering = Steering::load(&detector, LinkKind::Ethernet).unwrap();
            // Without a target packets pass, and it is counted.
            let (verdict, out, spike) = fire(&steering, shape);
            assert_eq!((verdict, out), (GO_ON, spike));
            assert_eq!(steering.counts().unwrap().deeds[&Deed::NoTarget], 1);
            steering.set_target(Some(&target)).unwrap();
            steering.beat();
            let spike = shape.frame(b"\0\x019000");
            let (verdict, out) = run(steering.program().unwrap(), &spike, 1);
            assert_eq!(verdict, REDIRECT, "{settings}");
            assert_eq!(out[..6], target.destination);
            assert_eq!(out[6..12], target.source);
            assert_eq!(out.len(), spike.len());
            let ip = 18;
            let transport = ip + if six { 40 } else { 20 };
            if !six {
                assert_eq!(checksum(&[&out[ip..transport]]), 0, "{settings}");
            }
            let addresses = if six {
                ip + 8..ip + 40
            } else {
                ip + 12..ip + 20
            };
            let length = (out.len() - transport) as u32;
            let pseudo = [
                &length.to_be_bytes()[..],
                &[0, 0, 0, if tcp { 6 } else { 17 }],
            ];
            let sum = checksum(&[&out[addresses], &pseudo.concat(), &out[transport..]]);
            assert_eq!(sum, 0, "{settings}");
            assert_eq!(out[12..] != spike[12..], rewritten, "{settings}");
            if settings.contains("port") {
                assert_eq!(out[transport + 2..transport + 4], 9001u16.to_be_bytes());
            }
            if settings.contains("address") {
                let end: &[u8] = if six { &[0, 0, 0xb] } else { &[9, 8, 7] };
                assert_eq!(&out[transport - 3..transport], end);
            }
            // Gone before user space has heard of it.
            let gone = Target {
                ifindex: 0x7fff_fff0,
                ..target
            };
            steering.set_target(Some(&gone)).unwrap();
            assert_eq!(
                run(steering.program().unwrap(), &spike, 1),
                (GO_ON, spike.clone())
            );
            steering.set_target(None).unwrap();
            let more = shape.frame(b"\0\x0199000");
            assert_eq!(
                run(steering.program().unwrap(), &more, 1),
                (GO_ON, more.clone())
            );
            assert_eq!(steering.counts().unwrap().deeds[&Deed::NoTarget], 3);
        }
    }
}

#[test]
fn a_udp_packet_without_checksum_stays_without() {
    if !can_steer() {
        return;
    }
    let detector =
        detector("preset: ewma-64\naction: {redirect: {to: lo, address: 10.9.8.7, port: 9001}}\n");
    let steering = Steering::load(&detector, LinkKind::Ethernet).unwrap();
    let target = Target {
        ifindex: 1,
        peer: false,
        destination: [2; 6],
        source: [4; 6],
    };
    steering.set_target(Some(&target)).unwrap();
    fire(&steering, Shape::default());
    let mut spike = Shape::default().frame(b"\0\x0199000");
    spike[14 + 20 + 6..14 + 20 + 8].fill(0);
    let (verdict, out) = run(steering.program().unwrap(), &spike, 1);
    assert_eq!(verdict, REDIRECT);
    assert_eq!(out[14 + 20 + 6..14 + 20 + 8], [0, 0]);
    assert_eq!(out[14 + 16..14 + 20], [10, 9, 8, 7]);
}

#[test]
fn nothing_is_done_when_nobody_watches() {
    if !can_steer() {
        return;
    }
    let lost = "preset: ewma-64\naction: {drop: true}\nwatchdog: {after: 100ms";
    for (settings, verdict, deed) in [
        (format!("{lost}}}\n"), GO_ON, Deed::Unwatched),
        (format!("{lost}, when_lost: stay}}\n"), DISCARD, Deed::Acted),
    ] {
        let steering = Steering::load(&detector(&settings), LinkKind::Ethernet).unwrap();
        steering.beat();
        assert_eq!(fire(&steering, Shape::default()).0, DISCARD);
        std::thread::sleep(std::time::Duration::from_millis(150));
        let spike = Shape::default().frame(b"\0\x0199000");
        assert_eq!(run(steering.program().unwrap(), &spike, 1).0, verdict);
        let before = if deed == Deed::Acted { 2 } else { 1 };
        assert_eq!(steering.counts().unwrap().deeds[&deed], before);
        steering.beat();
        let spike = Shape::default().frame(b"\0\x01999000");
        assert_eq!(run(steering.program().unwrap(), &spike, 1).0, DISCARD);
    }
}

#[test]
fn a_dry_run_and_a_mark_let_packets_pass() {
    if !can_steer() {
        return;
    }
    for (settings, deed) in [
        ("action: {drop: true}\ndry_run: true\n", Deed::Reported),
        ("action: {report: true}\n", Deed::Reported),
        ("action: {mark: 7}\n", Deed::Acted),
    ] {
        let detector = detector(&format!("preset: ewma-64\n{settings}"));
        let steering = Steering::load(&detector, LinkKind::Ethernet).unwrap();
        let (verdict, out, spike) = fire(&steering, Shape::default());
        assert_eq!((verdict, out), (GO_ON, spike));
        assert_eq!(steering.counts().unwrap().deeds[&deed], 1);
    }
}

#[test]
fn sixty_four_thousand_channels() {
    if !can_steer() {
        return;
    }
    let detector = detector(
        "channels: 65536\nring: 1\nchannel: {offset: 0, width: 2}\n\
         value: {offset: 2, width: 4, encoding: unsigned}\naction: {report: true}\n",
    );
    let steering = Steering::load(&detector, LinkKind::Ethernet).unwrap();
    for channel in (0..=u16::MAX).step_by(257) {
        let payload = [&channel.to_be_bytes()[..], &[0, 0, 1, 0]].concat();
        run(
            steering.program().unwrap(),
            &Shape::default().frame(&payload),
            1,
        );
    }
    let all = steering.channels().unwrap();
    assert_eq!(all.len(), 256);
    assert!(
        all.iter()
            .all(|(number, c)| number % 257 == 0 && c.count == 1 && c.ewma == 256 << 8)
    );
}
