//! Points that are added, removed and lost while traffic runs.

use std::{
    os::unix::fs::MetadataExt as _,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use skua_probe::{PointId, PointState};

use crate::lab::{
    Flow, Kind, Net, Running, Seen, SendMode, Sender, Sum, Wanted, Wire, frame::Crowd, point,
    root_tests, stay_on_one_cpu, wait_for,
};

/// Numbers of the frames that were counted: each frame is a flow.
fn numbers(seen: &Seen) -> Vec<u32> {
    let mut numbers: Vec<u32> = seen
        .flows
        .iter()
        .map(|(key, kept)| {
            assert_eq!((kept.sum.packets, kept.sum.bytes), (1, 64), "{key:?}");
            let [.., a, b, c] = key.lo;
            u32::from_be_bytes([0, a, b, c])
        })
        .collect();
    numbers.sort_unstable();
    numbers
}

/// What is counted is one piece of the traffic without a hole, which begins between the interface's
/// counters before and after the point was added, and ends between those before and after it was
/// taken out.
#[test]
fn a_point_that_comes_and_goes_counts_all_between() {
    if !root_tests() {
        return;
    }
    for kind in Kind::here([Kind::XDP].into_iter().chain(Kind::SHARED)) {
        let wire = Wire::new();
        let x0 = point(&wire.near, "x0");
        let capture = Running::start(&Wanted::points(kind, &[]));
        // Beside it one that stays.
        let other = (kind != Kind::XDP).then(|| Running::start(&Wanted::points(kind, &[x0])));
        let count = || wire.near.counters("x0").rx.packets;
        let base = count();
        let stop = AtomicBool::new(false);
        let rounds = 2;
        let mut bounds = Vec::new();
        let sent = std::thread::scope(|scope| {
            let traffic = scope.spawn(|| {
                stay_on_one_cpu();
                let sender = Sender::open(&wire.far, "g0", SendMode::Bypass);
                let crowd = Crowd::new(64);
                let mut next = 0;
                while !stop.load(Ordering::Relaxed) && next < 1 << 22 {
                    let sent = sender.send(32, |n| crowd.frame(next + n as u32));
                    assert_eq!((sent.error, sent.dropped), (None, Sum::ZERO));
                    next += 32;
                    std::thread::sleep(Duration::from_millis(1));
                }
                next
            });
            let more = |packets: u64| {
                let until = count() + packets;
                wait_for("traffic", || (count() >= until).then_some(()));
            };
            for _ in 0..rounds {
                more(500);
                let added = count() - base;
                capture.points().add(x0);
                capture.settle();
                assert_eq!(
                    capture.points().state(x0),
                    Some(PointState::Active),
                    "{kind:?}"
                );
                let active = count() - base;
                more(1000);
                let removing = count() - base;
                capture.points().remove(x0);
                capture.settle();
                assert_eq!(capture.points().state(x0), None);
                let removed = count() - base;
                more(500);
                bounds.push([added, active, removing, removed]);
            }
            stop.store(true, Ordering::Relaxed);
            traffic.join().unwrap()
        });
        let seen = capture.stop();
        let numbers = numbers(&seen);
        let mut pieces: Vec<(u64, u64)> = Vec::new();
        for number in numbers.into_iter().map(u64::from) {
            match pieces.last_mut() {
                Some((_, end)) if *end == number => *end += 1,
                _ => pieces.push((number, number + 1)),
            }
        }
        assert_eq!(
            pieces.len(),
            rounds,
            "{kind:?}: holes: {pieces:?}, {bounds:?}"
        );
        for ((begin, end), [added, active, removing, removed]) in pieces.iter().zip(bounds) {
            assert!(
                (added..=active).contains(begin),
                "{kind:?}: {begin} {added} {active}"
            );
            assert!(
                (removing..=removed).contains(end),
                "{kind:?}: {end} {removing} {removed}"
            );
        }
        if let Some(other) = other {
            wire.near.settled_counters("x0");
            let all = other.stop();
            assert_eq!(
                all.in_flows(),
                Sum::new(sent.into(), 64 * u64::from(sent)),
                "{kind:?}"
            );
        }
    }
}

/// What was seen before the interface was deleted is counted, and the point says that it is gone.
#[test]
fn an_interface_that_is_deleted_ends_its_point() {
    if !root_tests() {
        return;
    }
    for kind in Kind::here([Kind::XDP].into_iter().chain(Kind::SHARED)) {
        let wire = Wire::new();
        wire.far.veth("g1", &wire.near, "x1");
        let points = ["x0", "x1"].map(|interface| point(&wire.near, interface));
        let capture = Running::start(&Wanted::points(kind, &points));
        let frame = Flow::numbered(1).frame(200);
        let mut sent = Sum::ZERO;
        for interface in ["g0", "g1"] {
            let sender = Sender::open(&wire.far, interface, SendMode::Bypass);
            sent += sender.repeat(1000, &frame).sum;
        }
        wire.near.settled_counters("x1");
        wire.near.ip("link del x0");
        let live = capture.points();
        wait_for("end of the point", || {
            (live.state(points[0]) == Some(PointState::Gone)).then_some(())
        });
        assert_eq!(live.state(points[1]), Some(PointState::Active), "{kind:?}");
        sent += Sender::open(&wire.far, "g1", SendMode::Bypass)
            .repeat(500, &frame)
            .sum;
        wire.near.settled_counters("x1");
        // Adding it again looks again, and finds nothing.
        live.add(points[0]);
        capture.settle();
        assert_eq!(live.state(points[0]), Some(PointState::Gone));
        assert_eq!(capture.stop().in_flows(), sent, "{kind:?}");
    }
}

/// Deleted in the middle of the traffic: all that the interface has received is counted.
#[test]
fn nothing_is_lost_of_an_interface_that_is_deleted_under_load() {
    if !root_tests() {
        return;
    }
    for kind in Kind::here([Kind::TCX, Kind::CLSACT, Kind::SOCKET, Kind::AFPACKET]) {
        let wire = Wire::new();
        let x0 = point(&wire.near, "x0");
        let capture = Running::start(&Wanted::points(kind, &[x0]));
        let crowd = Crowd::new(64);
        let sent = std::thread::scope(|scope| {
            let traffic = scope.spawn(|| {
                stay_on_one_cpu();
                let sender = Sender::open(&wire.far, "g0", SendMode::Bypass);
                sender.send(60_000, |n| {
                    // Who deletes it may be slow: the last half lasts for half a minute.
                    if n > 30_000 {
                        std::thread::sleep(Duration::from_millis(1));
                    } else if n % 64 == 0 {
                        std::thread::sleep(Duration::from_micros(200));
                    }
                    crowd.frame(n as u32)
                })
            });
            let counters = || wire.near.counters("x0").rx.packets;
            wait_for("traffic", || (counters() > 5_000).then_some(()));
            wire.near.ip("link del x0");
            traffic.join().unwrap()
        });
        assert!(sent.error.is_some(), "deleted too late");
        wait_for("end of the point", || {
            (capture.points().state(x0) == Some(PointState::Gone)).then_some(())
        });
        let seen = capture.stop();
        let numbers = numbers(&seen);
        // The last ones may still have been in the receiver's queue, which goes with the interface.
        assert!(numbers.len() > 5_000, "{kind:?}");
        let expected: Vec<u32> = (0..numbers.len() as u32).collect();
        assert_eq!(numbers, expected, "{kind:?}: there are holes");
        assert!(numbers.len() as u64 <= sent.sum.packets + sent.dropped.packets + 64);
    }
}

/// Namespaces that are made after the probe, and deleted before it.
#[test]
fn points_in_namespaces_that_come_and_go() {
    if !root_tests() {
        return;
    }
    for kind in Kind::here([Kind::TCX, Kind::AFPACKET]) {
        let capture = Running::start(&Wanted::points(kind, &[]));
        let wire = Wire::new();
        let x0 = point(&wire.near, "x0");
        let nobody = PointId { ifindex: 99, ..x0 };
        let nowhere = PointId {
            netns: 1,
            ifindex: 1,
        };
        let live = capture.points();
        live.replace([x0, nobody, nowhere].into());
        capture.settle();
        assert_eq!(live.state(x0), Some(PointState::Active), "{kind:?}");
        assert_eq!(live.state(nobody), Some(PointState::Gone));
        assert_eq!(live.state(nowhere), Some(PointState::Gone));
        let sender = Sender::open(&wire.far, "g0", SendMode::Bypass);
        let sent = sender.repeat(300, &Flow::numbered(1).frame(99)).sum;
        wire.near.settled_counters("x0");
        drop(wire);
        wait_for("end of the point", || {
            (live.state(x0) == Some(PointState::Gone)).then_some(())
        });
        assert_eq!(capture.stop().in_flows(), sent, "{kind:?}");
    }
}

/// Our own namespace is one like the others.
#[test]
fn points_in_the_namespace_of_the_probe() {
    if !root_tests() {
        return;
    }
    for kind in Kind::here([Kind::TCX, Kind::CLSACT, Kind::AFPACKET]) {
        let wire = Wire::new();
        let x0 = point(&wire.near, "x0");
        let capture = Running::start_in(Some(&wire.near), &Wanted::points(kind, &[x0]));
        let own = std::fs::metadata(wire.near.path()).unwrap().ino();
        assert_eq!(own, x0.netns);
        let sender = Sender::open(&wire.far, "g0", SendMode::Bypass);
        let frame = Flow::numbered(1).frame(70);
        let mut sent = sender.repeat(100, &frame).sum;
        wire.near.settled_counters("x0");
        capture.points().replace([].into());
        capture.settle();
        sender.repeat(100, &frame);
        wire.near.settled_counters("x0");
        capture.points().add(x0);
        capture.settle();
        sent += sender.repeat(100, &frame).sum;
        wire.near.settled_counters("x0");
        let seen = capture.stop();
        assert_eq!(seen.in_flows(), sent, "{kind:?}");
        assert!(seen.flows.keys().all(|key| key.netns == 0));
    }
}

/// libpcap does not open what is down: the point waits, and says why.
#[test]
fn a_point_that_is_down_waits_with_libpcap() {
    if !root_tests() {
        return;
    }
    let net = Net::new();
    let peer = Net::new();
    peer.veth("g0", &net, "x0");
    net.ip("link set x0 down");
    let x0 = point(&net, "x0");
    let capture = Running::start(&Wanted::points(Kind::PCAP, &[x0]));
    let state = capture.points().state(x0).unwrap();
    assert_eq!(state.name(), "waiting", "{state:?}");
    assert!(state.reason().contains("x0"), "{state:?}");
    net.ip("link set x0 up");
    wait_for("the point", || {
        (capture.points().state(x0) == Some(PointState::Active)).then_some(())
    });
    let sent = Sender::open(&peer, "g0", SendMode::Bypass).repeat(10, &Flow::numbered(1).frame(80));
    net.settled_counters("x0");
    assert_eq!(capture.stop().in_flows(), sent.sum);
}

/// Moved away and back: the point is gone, and counts again.
#[test]
fn an_interface_that_comes_back_is_counted_again() {
    if !root_tests() {
        return;
    }
    for kind in Kind::here([Kind::TCX, Kind::CLSACT, Kind::AFPACKET]) {
        let wire = Wire::new();
        let elsewhere = Net::new();
        let x0 = point(&wire.near, "x0");
        let capture = Running::start(&Wanted::points(kind, &[x0]));
        let live = capture.points();
        let reach = |state: PointState| {
            wait_for("change of the point", || {
                (live.state(x0).as_ref() == Some(&state)).then_some(())
            });
        };
        let sender = Sender::open(&wire.far, "g0", SendMode::Bypass);
        let frame = Flow::numbered(1).frame(90);
        let mut sent = sender.repeat(100, &frame).sum;
        wire.near.settled_counters("x0");
        wire.near
            .ip(&format!("link set x0 netns {}", elsewhere.name));
        reach(PointState::Gone);
        elsewhere.ip("link set x0 up");
        sender.repeat(100, &frame);
        elsewhere.settled_counters("x0");
        elsewhere.ip(&format!("link set x0 netns {}", wire.near.name));
        assert_eq!(point(&wire.near, "x0"), x0);
        reach(PointState::Active);
        wire.near.ip("link set x0 up");
        sent += sender.repeat(100, &frame).sum;
        wire.near.settled_counters("x0");
        assert_eq!(capture.stop().in_flows(), sent, "{kind:?}");
    }
}
