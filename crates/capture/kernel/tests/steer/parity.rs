//! The steering program and its reference in user space come to the same numbers and verdicts, bit by
//! bit: both are fed with a million random packets, whole and damaged, for detectors of all kinds.

use skua_kernel::{
    flow::LinkKind,
    steer::{Event, Steering},
};
use skua_steer::{Classification, Detector, Encoding, Reference};
use skua_testkit::Random;

use crate::frames::{DISCARD, GO_ON, Shape, can_steer, detector, packets, try_run};

const SEED: u64 = 0x57ee_12ed;

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
type Comparable = (u32, bool, i64, i64, i64, u64);

fn comparable(event: &Event) -> Comparable {
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
    let (mut wanted, mut events): (Vec<Comparable>, Vec<Comparable>) = (Vec::new(), Vec::new());
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
        if let Classification::Sampled {
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
            steering
                .events(|event| events.push(comparable(&event)))
                .unwrap();
        }
    }
    steering
        .events(|event| events.push(comparable(&event)))
        .unwrap();
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
    assert_eq!(counts.fired, counts.results.values().sum::<u64>());
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
