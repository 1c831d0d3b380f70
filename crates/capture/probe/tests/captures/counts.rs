//! Several probes on one interface: each counts everything.

use skua_probe::{PointSet, PointState, Wake};

use crate::lab::{
    Counters, Flow, Kind, Running, Seen, SendMode, Sender, Sent, Sum, Wanted, Wire, point,
    root_tests,
};

/// Frames of TCP and UDP both ways, of all sizes.
fn traffic(wire: &Wire) -> (Sent, Sent) {
    let there = Sender::open(&wire.far, "g0", SendMode::Bypass);
    let back = Sender::open(&wire.near, "x0", SendMode::Queue);
    let frame = |number: u64, flow: Flow| {
        let protocol = [6, 17, 17][number as usize % 3];
        flow.with_protocol(protocol)
            .frame(60 + number as usize % 1400)
    };
    let (mut received, mut answered) = (Sent::default(), Sent::default());
    for _ in 0..4 {
        received += there.send(2_500, |n| frame(n, Flow::numbered(n as u32 % 500)));
        answered += back.send(1_500, |n| {
            frame(n, Flow::numbered(n as u32 % 500).reversed())
        });
    }
    assert_eq!((received.error, answered.error), (None, None));
    (received, answered)
}

fn assert_all(what: &str, kind: Kind, seen: &Seen, counted: Counters, answered: Sent) {
    let sent = counted.tx + answered.dropped;
    assert_eq!(seen.in_flows(), counted.rx + sent, "{what} {kind:?}");
    assert_eq!(seen.seen(), seen.in_flows(), "{what} {kind:?}");
    if kind.has_directions() {
        assert_eq!(seen.directions(), (counted.rx, sent), "{what} {kind:?}");
    }
    assert_eq!(seen.flows.len(), 1000, "{what} {kind:?}");
}

#[test]
fn two_captures_and_the_default_probe_count_everything() {
    if !root_tests() {
        return;
    }
    for kind in Kind::here(Kind::SHARED) {
        let wire = Wire::new();
        let x0 = point(&wire.near, "x0");
        let default = Running::start_in(Some(&wire.near), &Wanted::default_probe(kind));
        let captures = [0, 1].map(|_| Running::start(&Wanted::points(kind, &[x0])));
        for capture in &captures {
            let state = capture.points().state(x0);
            assert_eq!(state, Some(PointState::Active), "{kind:?}");
        }
        let before = wire.near.counters("x0");
        let (received, answered) = traffic(&wire);
        let counted = wire.near.settled_counters("x0") - before;
        assert_eq!((counted.rx, counted.tx), (received.sum, answered.sum));
        // They end one after the other, which takes nothing from those that go on.
        let [first, second] = captures.map(Running::stop);
        assert_all("first", kind, &first, counted, answered);
        assert_all("second", kind, &second, counted, answered);
        assert_all("default", kind, &default.stop(), counted, answered);
        if kind == Kind::CLSACT {
            let left = wire.near.exec("tc filter show dev x0 ingress");
            assert_eq!(left, "", "classifiers are left behind");
        }
    }
}

/// Captures of all kinds at once, each beside the others.
#[test]
fn captures_of_every_type_on_one_interface() {
    if !root_tests() {
        return;
    }
    let wire = Wire::new();
    let x0 = point(&wire.near, "x0");
    let start = |kind| (kind, Running::start(&Wanted::points(kind, &[x0])));
    let captures: Vec<_> = Kind::here(Kind::SHARED).into_iter().map(start).collect();
    let before = wire.near.counters("x0");
    let (_, answered) = traffic(&wire);
    let counted = wire.near.settled_counters("x0") - before;
    for (kind, capture) in captures {
        assert_all("one", kind, &capture.stop(), counted, answered);
    }
}

/// One that ends does not take the classifier of another with it, whichever came first.
#[test]
fn classifiers_stand_side_by_side() {
    if !root_tests() {
        return;
    }
    let wire = Wire::new();
    let x0 = point(&wire.near, "x0");
    let sender = Sender::open(&wire.far, "g0", SendMode::Bypass);
    let frame = Flow::numbered(1).frame(100);
    let first = Running::start(&Wanted::points(Kind::CLSACT, &[x0]));
    let second = Running::start(&Wanted::points(Kind::CLSACT, &[x0]));
    let mut sent = [sender.repeat(100, &frame).sum; 2];
    wire.near.settled_counters("x0");
    assert_eq!(first.stop().in_flows(), sent[0]);
    let third = Running::start(&Wanted::points(Kind::CLSACT, &[x0]));
    sent[0] = sender.repeat(50, &frame).sum;
    sent[1] += sent[0];
    wire.near.settled_counters("x0");
    assert_eq!(third.stop().in_flows(), sent[0]);
    sent[1] += sender.repeat(25, &frame).sum;
    wire.near.settled_counters("x0");
    assert_eq!(second.stop().in_flows(), sent[1]);
}

#[test]
fn a_second_xdp_program_is_refused_with_a_reason() {
    if !root_tests() || Kind::here([Kind::XDP]).is_empty() {
        return;
    }
    let wire = Wire::new();
    let x0 = point(&wire.near, "x0");
    let first = Running::start(&Wanted::points(Kind::XDP, &[x0]));
    assert_eq!(first.points().state(x0), Some(PointState::Active));
    let second = Running::start(&Wanted::points(Kind::XDP, &[x0]));
    let state = second.points().state(x0).unwrap();
    assert_eq!(state.name(), "refused");
    assert!(state.reason().contains("takes one only"), "{state:?}");
    let sent =
        Sender::open(&wire.far, "g0", SendMode::Bypass).repeat(100, &Flow::numbered(1).frame(80));
    wire.near.settled_counters("x0");
    assert_eq!(second.stop().seen(), Sum::ZERO);
    assert_eq!(first.stop().in_flows(), sent.sum);
    // Now there is room.
    let third = Running::start(&Wanted::points(Kind::XDP, &[x0]));
    assert_eq!(third.points().state(x0), Some(PointState::Active));
}

#[test]
fn each_capture_has_a_filter_of_its_own() {
    if !root_tests() {
        return;
    }
    let shared = Kind::SHARED.map(|kind| (kind, 0..5));
    // One at a time.
    let xdp = [0, 2].map(|filter| (Kind::XDP, filter..filter + 1));
    for (kind, some) in shared.into_iter().chain(xdp) {
        if Kind::here([kind]).is_empty() {
            continue;
        }
        let wire = Wire::new();
        let x0 = point(&wire.near, "x0");
        let filters = &["tcp", "udp", "udp and net 10.0.0.0/24", "icmp", ""][some.clone()];
        let start = |filter: &&str| {
            let capture = Running::start(&Wanted::points(kind, &[x0]).filter(filter));
            assert_eq!(capture.points().state(x0), Some(PointState::Active));
            capture
        };
        let captures: Vec<_> = filters.iter().map(start).collect();
        let before = wire.near.counters("x0");
        let sender = Sender::open(&wire.far, "g0", SendMode::Bypass);
        let (mut tcp, mut udp, mut few) = (Sum::ZERO, Sum::ZERO, Sum::ZERO);
        let sent = sender.send(5_000, |n| {
            let flow = Flow::numbered(n as u32 % 1024);
            let protocol = [6, 17, 17][n as usize % 3];
            let frame = flow.with_protocol(protocol).frame(60 + n as usize % 900);
            let one = Sum::new(1, frame.len() as u64);
            match protocol {
                6 => tcp += one,
                _ => udp += one,
            }
            if protocol == 17 && n % 1024 < 256 {
                few += one;
            }
            frame
        });
        let counted = (wire.near.settled_counters("x0") - before).rx;
        assert_eq!(counted, sent.sum);
        let expected = &[tcp, udp, few, Sum::ZERO, sent.sum][some];
        for ((capture, filter), expected) in captures.into_iter().zip(filters).zip(expected) {
            let seen = capture.stop();
            assert_eq!(seen.in_flows(), *expected, "{filter} {kind:?}");
            let left = counted - *expected;
            assert_eq!(seen.cause("filtered"), left, "{filter} {kind:?}");
            assert_eq!(seen.seen(), counted, "{filter} {kind:?}");
        }
    }
}

/// With nothing to watch a probe is not woken by its interval.
#[test]
fn an_empty_set_of_points_rests() {
    if !root_tests() {
        return;
    }
    for kind in Kind::here([Kind::TCX, Kind::AFPACKET]) {
        let mut wanted = Wanted::points(kind, &[]);
        wanted.scan_interval = std::time::Duration::from_millis(1);
        let mut probe = wanted.start().unwrap();
        let until = std::time::Instant::now() + std::time::Duration::from_millis(100);
        assert_eq!(probe.wait(None, Some(until)).unwrap(), Wake::Caller);
        assert!(probe.interfaces().is_empty());
        assert_eq!(probe.account().drains, 0);
        assert_eq!(probe.points().unwrap().set(), PointSet::new());
    }
}
