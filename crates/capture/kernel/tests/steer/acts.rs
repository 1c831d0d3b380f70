//! What the steering program decides, and what it does with packets.

use skua_kernel::{
    flow::LinkKind,
    steer::{ActionResult, Steering, Target},
};
use skua_steer::Cause;

use crate::frames::{DISCARD, GO_ON, REDIRECT, Shape, can_steer, checksum, detector, packets, run};

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
    assert_eq!(counts.results[&ActionResult::Acted], discarded);
    let (least, most) = (-1_000 << 8, 5_000 << 8);
    assert!((least..=most).contains(&channel.ewma), "{}", channel.ewma);
    for sample in &channel.ring {
        assert!(values.contains(&((sample.value >> 8) as i32)), "{sample:?}");
    }
    // Each change of state was told or counted, and they come in turns: not by `count`, which a sample gets after it was judged.
    let mut events = Vec::new();
    steering.events(|event| events.push(event)).unwrap();
    let lost = steering.counts().unwrap().events_lost;
    if lost == 0 {
        let fired = events.iter().filter(|event| event.fired).count();
        assert_eq!(fired, events.len().div_ceil(2));
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
        ..Target::default()
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
            assert_eq!(
                steering.counts().unwrap().results[&ActionResult::NoTarget],
                1
            );
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
            assert_eq!(
                steering.counts().unwrap().results[&ActionResult::NoTarget],
                3
            );
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
        ..Target::default()
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
    // A busy machine may take a while from the heartbeat to the packets.
    let lost = "preset: ewma-64\naction: {drop: true}\nwatchdog: {after: 2s";
    for (settings, verdict, result) in [
        (format!("{lost}}}\n"), GO_ON, ActionResult::Unwatched),
        (
            format!("{lost}, when_lost: stay}}\n"),
            DISCARD,
            ActionResult::Acted,
        ),
    ] {
        let steering = Steering::load(&detector(&settings), LinkKind::Ethernet).unwrap();
        steering.beat();
        assert_eq!(fire(&steering, Shape::default()).0, DISCARD);
        std::thread::sleep(std::time::Duration::from_millis(2_100));
        let spike = Shape::default().frame(b"\0\x0199000");
        assert_eq!(run(steering.program().unwrap(), &spike, 1).0, verdict);
        let before = if result == ActionResult::Acted { 2 } else { 1 };
        assert_eq!(steering.counts().unwrap().results[&result], before);
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
    for (settings, result) in [
        (
            "action: {drop: true}\ndry_run: true\n",
            ActionResult::Reported,
        ),
        ("action: {report: true}\n", ActionResult::Reported),
        ("action: {mark: 7}\n", ActionResult::Acted),
    ] {
        let detector = detector(&format!("preset: ewma-64\n{settings}"));
        let steering = Steering::load(&detector, LinkKind::Ethernet).unwrap();
        let (verdict, out, spike) = fire(&steering, Shape::default());
        assert_eq!((verdict, out), (GO_ON, spike));
        assert_eq!(steering.counts().unwrap().results[&result], 1);
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
