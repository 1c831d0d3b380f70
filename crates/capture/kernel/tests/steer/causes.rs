//! Packets that are no sample: each is counted by why, and passes as it came.

use std::collections::BTreeMap;

use skua_kernel::{flow::LinkKind, steer::Steering};
use skua_steer::{Cause, Reference};

use crate::frames::{GO_ON, Shape, can_steer, detector, run};

/// Payloads begin with a channel of two bytes; a value of this detector is an ASCII number of at most
/// 20 characters.
const DECIMAL: &str = "preset: ewma-64\nmatch: ''\naction: {drop: true}\n";

fn with(settings: &str) -> String {
    format!("channel: {{offset: 0, width: 2}}\nvalue: {{{settings}}}\naction: {{drop: true}}\n")
}

/// Bytes of a frame changed from a place on.
fn changed(frame: Vec<u8>, at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut frame = frame;
    frame[at..at + bytes.len()].copy_from_slice(bytes);
    frame
}

#[test]
fn each_cause_is_counted_and_the_packet_passes_untouched() {
    if !can_steer() {
        return;
    }
    let plain = Shape::default();
    let (tcp, fragment) = (
        Shape { tcp: true, ..plain },
        Shape {
            fragment: true,
            ..plain
        },
    );
    let six = Shape { six: true, ..plain };
    let sample = plain.frame(b"\0\x01100");
    let ip = 14;
    let udp = ip + 20;
    let far = with("offset: 1000, width: 4, encoding: unsigned");
    let end = with("offset: 3, width: 4, encoding: unsigned");
    let whole = with("offset: 2, width: 8, encoding: unsigned");
    let signed = with("offset: 2, width: 8, encoding: signed");
    let float = with("offset: 2, encoding: float");
    let double = with("offset: 2, encoding: double");
    let of = |number: &[u8]| plain.frame(&[b"\0\x01", number].concat());
    let cases: Vec<(&str, &str, Vec<u8>, Cause)> = vec![
        (
            "ARP",
            DECIMAL,
            changed(sample.clone(), 12, &[8, 6]),
            Cause::NoPayload,
        ),
        (
            "ICMP",
            DECIMAL,
            changed(sample.clone(), ip + 9, &[1]),
            Cause::NoPayload,
        ),
        (
            "a fragment",
            DECIMAL,
            fragment.frame(b"\0\x01100"),
            Cause::Fragment,
        ),
        (
            "IPv6, a fragment",
            DECIMAL,
            Shape {
                six: true,
                ..fragment
            }
            .frame(b"\0\x01100"),
            Cause::Fragment,
        ),
        (
            "IPv6, nine extension headers",
            DECIMAL,
            Shape { extra: 9, ..six }.frame(b"\0\x01100"),
            Cause::NoPayload,
        ),
        (
            "IP says more",
            DECIMAL,
            changed(sample.clone(), ip + 2, &[0xff, 0xff]),
            Cause::Short,
        ),
        (
            "IP says less than its header",
            DECIMAL,
            changed(sample.clone(), ip + 2, &[0, 19]),
            Cause::Short,
        ),
        (
            "IPv6 says more",
            DECIMAL,
            changed(six.frame(b"\0\x01100"), ip + 4, &[0xff, 0xff]),
            Cause::Short,
        ),
        (
            "UDP says more",
            DECIMAL,
            changed(sample.clone(), udp + 4, &[0xff, 0xff]),
            Cause::Short,
        ),
        (
            "UDP says less than its header",
            DECIMAL,
            changed(sample.clone(), udp + 4, &[0, 7]),
            Cause::Short,
        ),
        (
            "TCP's header says more",
            DECIMAL,
            changed(tcp.frame(b"\0\x01100"), udp + 12, &[0xf0]),
            Cause::Short,
        ),
        (
            "no payload at all",
            DECIMAL,
            plain.frame(b""),
            Cause::Beyond,
        ),
        ("half a channel", DECIMAL, plain.frame(b"\0"), Cause::Beyond),
        (
            "a channel and no value",
            DECIMAL,
            plain.frame(b"\0\x01"),
            Cause::Beyond,
        ),
        (
            "an offset behind the end",
            &far,
            of(&[0; 30]),
            Cause::Beyond,
        ),
        (
            "a value that reaches over the end",
            &end,
            of(&[0; 4]),
            Cause::Beyond,
        ),
        (
            "padding is no value",
            &end,
            Shape {
                padding: 18,
                ..plain
            }
            .frame(b"\0\x01\0"),
            Cause::Beyond,
        ),
        (
            "the first channel too many",
            DECIMAL,
            plain.frame(b"\0\x40100"),
            Cause::Channel,
        ),
        (
            "the last channel there is",
            DECIMAL,
            plain.frame(b"\xff\xff100"),
            Cause::Channel,
        ),
        ("letters", DECIMAL, of(b"ten"), Cause::NoNumber),
        ("two points", DECIMAL, of(b"1.2.3"), Cause::NoNumber),
        ("a sign alone", DECIMAL, of(b"-"), Cause::NoNumber),
        ("an exponent", DECIMAL, of(b"1e5"), Cause::NoNumber),
        ("NaN", &float, of(&f32::NAN.to_be_bytes()), Cause::NoNumber),
        (
            "infinite",
            &double,
            of(&f64::NEG_INFINITY.to_be_bytes()),
            Cause::NoNumber,
        ),
        (
            "too many digits",
            DECIMAL,
            of(b"4398046511104"),
            Cause::Overflow,
        ),
        (
            "the largest integer",
            &whole,
            of(&[0xff; 8]),
            Cause::Overflow,
        ),
        (
            "the least integer",
            &signed,
            of(&i64::MIN.to_be_bytes()),
            Cause::Overflow,
        ),
        (
            "the largest float",
            &float,
            of(&f32::MAX.to_be_bytes()),
            Cause::Overflow,
        ),
        (
            "the largest double",
            &double,
            of(&f64::MAX.to_be_bytes()),
            Cause::Overflow,
        ),
    ];
    let mut loaded = BTreeMap::new();
    for (what, settings, frame, cause) in cases {
        let detector = detector(settings);
        let (steering, untouched) = loaded.entry(settings).or_insert_with(|| {
            let steering = Steering::load(&detector, LinkKind::Ethernet).unwrap();
            (steering, BTreeMap::<Cause, u64>::new())
        });
        let (verdict, out) = run(steering.program().unwrap(), &frame, 1);
        assert_eq!((verdict, out), (GO_ON, frame.clone()), "{what}");
        *untouched.entry(cause).or_default() += 1;
        let mut counts = steering.counts().unwrap();
        counts.untouched.retain(|_, count| *count > 0);
        assert_eq!(
            (&counts.untouched, counts.sampled),
            (&*untouched, 0),
            "{what}"
        );
        assert_eq!(
            Reference::new(&detector).unwrap().read(&frame),
            Err(cause),
            "{what}"
        );
    }
    // The largest that fits, so that the limits are where they should be; and numbers as long as they
    // may be.
    for (settings, number) in [
        (DECIMAL, b"4398046511103".to_vec()),
        (DECIMAL, b"  +5000000.820000003".to_vec()),
        (DECIMAL, b"00000000000000000007".to_vec()),
        (&whole, ((1u64 << 42) - 1).to_be_bytes().to_vec()),
        (&signed, (1 - (1i64 << 42)).to_be_bytes().to_vec()),
    ] {
        let (steering, _) = &loaded[settings];
        let before = steering.counts().unwrap().sampled;
        run(steering.program().unwrap(), &of(&number), 1);
        let after = steering.counts().unwrap().sampled;
        assert_eq!(after, before + 1, "{settings}: {number:x?}");
    }
    // As many extension headers as are stepped over.
    let steering = &loaded[DECIMAL].0;
    for extra in [7, 8] {
        let frame = Shape { extra, ..six }.frame(b"\0\x01100");
        let before = steering.counts().unwrap().sampled;
        run(steering.program().unwrap(), &frame, 1);
        assert_eq!(steering.counts().unwrap().sampled, before + 1, "{extra}");
    }
}
