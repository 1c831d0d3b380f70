//! Targets, interfaces and user space that vanish and return.

use skua_kernel::{Direction, attached_tcx};

use super::lab::{ALWAYS, Host};
use crate::lab::{Skua, root_tests, wait_for};

#[test]
fn packets_pass_while_the_target_is_gone() {
    if !root_tests() {
        return;
    }
    let mut host = Host::new();
    let skua = Skua::run(&host.host, "--interface gp0");
    host.apply(&skua, ALWAYS);
    host.send(1, 1.0);
    assert_eq!(host.all_once(0..1).0.len(), 1);
    assert_eq!(host.round(), (0, 20));
    // The other end goes down, and comes up.
    host.b.net.ip("link set vb0 down");
    let view = host.wait_state(&skua, "no target");
    assert!(
        view["Reason"].as_str().unwrap().contains("carrier"),
        "{view}"
    );
    assert_eq!(host.round(), (20, 0));
    assert_eq!(host.result(&skua, "no_target"), 20);
    host.b.net.ip("link set vb0 up");
    host.wait_state(&skua, "active");
    assert_eq!(host.round(), (0, 20));
    // The pair is deleted, and there is another one of the same name.
    host.host.ip("link del pb0");
    let view = host.wait_state(&skua, "no target");
    assert!(
        view["Reason"].as_str().unwrap().contains("not there"),
        "{view}"
    );
    assert_eq!(host.round(), (20, 0));
    assert_eq!(host.result(&skua, "no_target"), 40);
    let b = &host.b.net;
    host.pair("pb0", "vb0", b, "10.1.0.3");
    host.wait_state(&skua, "active");
    assert_eq!(host.round(), (0, 20));
    assert_eq!(host.show(&skua)["TargetLosses"], 2);
    // The interface that packets come in by goes and comes back; the channels are as they were.
    let samples = host.show(&skua)["Counts"]["Sampled"].clone();
    host.host.ip("link del gp0");
    host.wait_state(&skua, "waiting");
    host.pair("gp0", "g0", &host.sender, "10.1.0.1");
    host.host.ip("link set gp0 master br0");
    host.sender
        .ip("neigh add 10.1.0.2 lladdr 02:00:00:00:00:02 dev g0 nud permanent");
    host.wait_state(&skua, "active");
    assert_eq!(host.show(&skua)["Counts"]["Sampled"], samples);
    assert_eq!(host.round(), (0, 20));
}

#[test]
fn nothing_is_steered_by_who_is_halted_or_killed() {
    if !root_tests() {
        return;
    }
    let mut host = Host::new();
    let skua = Skua::run(&host.host, "--interface gp0");
    host.apply(&skua, ALWAYS);
    // The first fills the ring.
    assert_eq!(host.round(), (1, 19));
    skua.halt();
    wait_for("the watchdog", || (host.round() == (20, 0)).then_some(()));
    skua.go_on();
    wait_for("the detector again", || {
        (host.round() == (0, 20)).then_some(())
    });
    assert!(host.result(&skua, "unwatched") >= 20);
    let ifindex = host.host.ifindex("gp0");
    let attached = || {
        host.host
            .inside(|| attached_tcx(ifindex, Direction::Ingress).unwrap())
    };
    assert!(!attached().is_empty());
    skua.kill();
    wait_for("end of the links", || attached().is_empty().then_some(()));
    assert_eq!(host.round(), (20, 0));
}
