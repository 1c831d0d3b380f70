//! Interfaces that come, go and change while `skua run` watches.

use crate::lab::{
    Flow, Net, SendMode, Sender, Sent, Skua, Sum, root_tests, skua::sum_of, wait_for,
};

/// Two namespaces without a wire yet.
fn unwired() -> (Net, Net) {
    (Net::new(), Net::new())
}

fn of_interface(skua: &Skua, interface: &str) -> Sum {
    sum_of(skua.flows().iter().filter(|f| f["interface"] == interface))
}

#[test]
fn an_interface_that_is_made_later_is_watched_from_then_on() {
    if !root_tests() {
        return;
    }
    let (far, near) = unwired();
    let skua = Skua::run(&near, "--max-entries 1000");
    far.veth("g0", &near, "x0");
    skua.wait_attached("x0");
    let before = near.counters("x0");
    let sender = Sender::open(&far, "g0", SendMode::Bypass);
    let frame = Flow::numbered(1).frame(77);
    let mut sent = sender.repeat(1000, &frame);

    // Another name: the same capture point.
    near.ip("link set x0 down");
    near.ip("link set x0 name uplink");
    near.ip("link set uplink up");
    skua.wait_attached("uplink");
    sent += sender.repeat(1000, &frame);
    assert_eq!(of_interface(&skua, "uplink"), Sum::new(2000, 2000 * 77));

    // Down and up again.
    near.ip("link set uplink down");
    // A packet to an interface that is down is dropped by the other end.
    let refused = sender.repeat(100, &frame);
    assert_eq!((refused.sum, refused.dropped.packets), (Sum::ZERO, 100));
    near.ip("link set uplink up");
    sent += sender.repeat(1000, &frame);

    let report = skua.stop();
    let counted = near.settled_counters("uplink") - before;
    assert_eq!(counted.rx, sent.sum);
    assert_eq!(report.directions("uplink"), (counted.rx, Sum::ZERO));
}

/// Sends past the hook on egress until the interface is gone.
fn until_gone(sender: &Sender, frames: &[Vec<u8>]) -> Sent {
    let mut sent = Sent::default();
    while sent.error.is_none() {
        sent += sender.send(10_000, |n| frames[n as usize % frames.len()].clone());
    }
    sent
}

#[test]
fn an_interface_that_is_deleted_under_load_keeps_what_it_counted() {
    if !root_tests() {
        return;
    }
    let (far, near) = unwired();
    far.veth("g0", &near, "x0");
    let skua = Skua::run(
        &near,
        "--interface x0 --max-entries 1000 --scan-interval 50ms",
    );
    let frames: Vec<_> = (0..50).map(|n| Flow::numbered(n).frame(80)).collect();
    let sender = Sender::open(&near, "x0", SendMode::Queue);
    let sent = std::thread::scope(|scope| {
        let load = scope.spawn(|| until_gone(&sender, &frames));
        wait_for("load", || {
            (near.counters("x0").tx.packets > 50_000).then_some(())
        });
        near.ip("link del x0");
        load.join().unwrap()
    });
    wait_for("end of x0", || {
        skua.summary().find("x0").is_none().then_some(())
    });
    let flows = skua.flows();
    let report = skua.stop();
    // The hook has seen what was sent or dropped behind it. The frame that met the end may have
    // come as far as the hook, or not.
    let least = sent.sum;
    let most = sent.sum + sent.dropped + Sum::new(1, 80);
    assert!(sent.dropped.packets <= 64, "{sent:?}");
    assert!(
        least.within(report.seen()) && report.seen().within(most),
        "{least:?} {:?} {most:?}",
        report.seen()
    );
    assert_eq!(report.seen().bytes, 80 * report.seen().packets);
    assert_eq!(report.in_flows(), report.seen());
    assert_eq!(sum_of(&flows), report.in_flows());
    assert_eq!(flows.len(), 50);
}

/// Deleted and made again with the same index between two drains, as container runtimes do.
#[test]
fn an_interface_that_takes_the_place_of_a_deleted_one_is_watched() {
    if !root_tests() {
        return;
    }
    let (far, near) = unwired();
    let make = |mtu: u32| {
        far.ip("link add g0 type veth peer name g1");
        far.ip(&format!("link set g1 netns {}", near.name));
        near.ip("link set g1 name spare");
        near.ip(&format!(
            "link add x0 index 77 mtu {mtu} type veth peer name y0 netns {}",
            far.name
        ));
        near.ip("link set x0 up");
        far.ip("link set y0 up");
    };
    make(1500);
    let skua = Skua::run(&near, "--max-entries 1000 --scan-interval 1h");
    skua.wait_attached("x0");
    let frame = Flow::numbered(1).frame(77);
    let mut sent = Sender::open(&far, "y0", SendMode::Bypass).repeat(100, &frame);
    near.ip("link del x0");
    far.ip("link del g0");
    make(1400);
    skua.wait_attached("x0");
    let before = near.counters("x0");
    let again = Sender::open(&far, "y0", SendMode::Bypass).repeat(500, &frame);
    sent += again;
    let flows = skua.flows();
    let report = skua.stop();
    assert_eq!((near.settled_counters("x0") - before).rx, again.sum);
    let of_x0 = sum_of(flows.iter().filter(|f| f["interface"] == "x0"));
    assert_eq!(of_x0, sent.sum, "{}", report.0);
    // Index and namespace are the same: it is the same capture point.
    assert_eq!(report.directions("x0"), (sent.sum, Sum::ZERO));
}

/// Interfaces that come and go all the time do no harm.
#[test]
fn many_interfaces_come_and_go() {
    if !root_tests() {
        return;
    }
    let (far, near) = unwired();
    let skua = Skua::run(&near, "--max-entries 1000 --scan-interval 50ms");
    for _ in 0..20 {
        far.veth("g0", &near, "x0");
        near.ip("link del x0");
    }
    far.veth("g0", &near, "x0");
    skua.wait_attached("x0");
    let sent =
        Sender::open(&far, "g0", SendMode::Bypass).repeat(1000, &Flow::numbered(1).frame(77));
    let report = skua.stop();
    assert_eq!(report.directions("x0").0, sent.sum);
}
