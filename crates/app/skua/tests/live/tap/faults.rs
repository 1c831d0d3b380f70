//! Wrong ways that are not taken, and what happens when things go and come.

use std::os::fd::AsFd as _;

use serde_json::json;
use skua_kernel::{Direction, attached_tcx};

use super::{Lab, Listener, Tap, ask, pair, refused, run};
use crate::lab::{Flow, Net, Skua, packet::tagging_program, root_tests, skua, wait_for};

fn frame(number: u64) -> Vec<u8> {
    let mut frame = Flow::numbered(number as u32).frame(100);
    frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, 2]);
    frame
}

/// Sends so many frames from `a`; all of them reach `b`.
fn send(lab: &Lab, count: u64) {
    let mut originals = Listener::open(&lab.b, "vb", "");
    let sent = lab.sender().send(count, frame);
    assert_eq!(sent.sum.packets, count);
    assert_eq!(originals.frames(count as usize).len() as u64, count);
}

#[test]
fn a_monitor_that_goes_takes_no_original_along() {
    if !root_tests() {
        return;
    }
    let lab = Lab::new();
    let skua = lab.skua();
    for straight in [false, true] {
        if straight {
            lab.switch.ethtool("mon0", "tso off gso off tx off");
        }
        let mut copies = Listener::open(&lab.monitor, "vm", "");
        let tap = Tap::create(&lab.switch, &skua, "--from pa --to mon0");
        assert_eq!(tap.show()["Monitors"][0]["Direct"], straight);
        send(&lab, 500);
        assert_eq!(copies.frames(500).len(), 500);
        lab.switch.ip("link set mon0 down");
        // Also before anybody has noticed.
        send(&lab, 500);
        let told = tap.wait("the loss", |tap| tap["Monitors"][0]["State"] == "error");
        assert!(
            told["Error"].as_str().unwrap().contains("mon0 is down"),
            "{told}"
        );
        send(&lab, 500);
        assert!(tap.counts("NoMonitor").2 >= 500);
        lab.switch.ip("link set mon0 up");
        tap.wait("the return", |tap| tap["Monitors"][0]["State"] == "active");
        // Whoever listened lost its interface for a while.
        let mut copies = Listener::open(&lab.monitor, "vm", "");
        send(&lab, 500);
        assert_eq!(copies.frames(500).len(), 500);
        tap.delete();
    }
    // Gone altogether, and another one in its place.
    let tap = Tap::create(&lab.switch, &skua, "--from pa --to mon0");
    lab.switch.ip("link del mon0");
    send(&lab, 500);
    tap.wait("the end", |tap| tap["Monitors"][0]["State"] == "error");
    send(&lab, 500);
    pair(&lab.switch, "mon0", &lab.monitor, "vm", 3);
    tap.wait("the return", |tap| tap["Monitors"][0]["State"] == "active");
    let mut copies = Listener::open(&lab.monitor, "vm", "");
    send(&lab, 500);
    assert_eq!(copies.frames(500).len(), 500);
}

#[test]
fn copies_are_not_copied() {
    if !root_tests() {
        return;
    }
    let (lab, second) = (Lab::new(), Net::new());
    pair(&lab.switch, "mon1", &second, "vm", 4);
    let skua = lab.skua();
    let told = refused(
        &lab.switch,
        &skua,
        &["tap", "create", "--from", "pa,mon0", "--to", "mon0"],
    );
    assert!(told.contains("copied again"), "{told}");
    // Found by a query it is left out.
    let query = "G.V().Has('Name', Within('pa', 'mon0'))";
    let words = [
        "tap",
        "create",
        "--gremlin",
        query,
        "--to",
        "mon0",
        "--name",
        "one",
    ];
    ask(&lab.switch, &skua, &words);
    let one = Tap {
        net: &lab.switch,
        skua: &skua,
        id: "one".into(),
    };
    let seen = one.wait("both", |tap| tap["Sources"].as_array().unwrap().len() == 2);
    let monitor = seen["Sources"]
        .as_array()
        .unwrap()
        .iter()
        .find(|s| s["Name"] == "mon0");
    let error = monitor.unwrap()["Error"].as_str().unwrap().to_owned();
    assert!(error.contains("monitor of this tap"), "{error}");
    // Two taps that feed each other, the straight way and the other.
    for straight in [false, true] {
        if straight {
            for monitor in ["mon0", "mon1"] {
                lab.switch.ethtool(monitor, "tso off gso off tx off");
            }
        }
        let there = Tap::create(&lab.switch, &skua, "--from mon0 --to mon1 --name there");
        let back = Tap::create(&lab.switch, &skua, "--from mon1 --to mon0 --name back");
        let mut copies = Listener::open(&lab.monitor, "vm", "");
        let mut others = Listener::open(&second, "vm", "");
        send(&lab, 300);
        assert_eq!(copies.frames(300).len(), 300);
        assert_eq!(others.frames(0).len(), 0);
        assert_eq!(there.counts("Copy"), (0, 0, 300));
        assert_eq!(back.counts("Copy"), (0, 0, 0));
        there.delete();
        back.delete();
    }
}

#[test]
fn programs_of_others_stay_where_they_are() {
    if !root_tests() {
        return;
    }
    let lab = Lab::new();
    let ifindex = lab.switch.ifindex("pa");
    let attach = || {
        let program = tagging_program(77);
        let attached = lab.switch.inside(|| {
            skua_kernel::Attachment::new(
                program.as_fd(),
                ifindex,
                Direction::Egress,
                skua_kernel::HookKind::Tcx,
            )
            .unwrap()
        });
        (program, attached)
    };
    let listed = || {
        let all = lab
            .switch
            .inside(|| attached_tcx(ifindex, Direction::Egress))
            .unwrap();
        all.into_iter()
            .map(|(program, _)| program)
            .collect::<Vec<_>>()
    };
    let _before = attach();
    let first = listed();
    let skua = lab.skua();
    skua.wait_attached("pa");
    let watched = listed();
    let one = Tap::create(&lab.switch, &skua, "--from pa --to mon0 --match udp");
    let two = Tap::create(&lab.switch, &skua, "--from pa --to mon0 --match tcp");
    let _after = attach();
    let others = |all: &[u32]| -> Vec<u32> {
        let known = [&first[..], &watched].concat();
        all.iter()
            .copied()
            .filter(|program| known.contains(program))
            .collect()
    };
    let all = listed();
    assert_eq!(all.len(), watched.len() + 3);
    assert_eq!(others(&all), watched);
    one.update(&["--match", "ip"]);
    two.update(&["--net", "10.0.0.0/8"]);
    // At the same places, with other programs.
    let updated = listed();
    assert_eq!(updated.len(), all.len());
    let theirs: Vec<_> = all
        .iter()
        .map(|program| others(&[*program]).len())
        .collect();
    let now: Vec<_> = updated
        .iter()
        .map(|program| others(&[*program]).len())
        .collect();
    assert_eq!(now, theirs);
    one.delete();
    two.delete();
    assert_eq!(others(&listed()), watched);
    assert_eq!(listed().len(), watched.len() + 1);
}

#[test]
fn sources_that_return_keep_their_number() {
    if !root_tests() {
        return;
    }
    let lab = Lab::new();
    let skua = lab.skua();
    let tap = Tap::create(
        &lab.switch,
        &skua,
        "--from pb,pa --to mon0 --vlan 50 --direction in",
    );
    lab.switch.ip("link del pa");
    let told = tap.wait("the loss", |tap| tap["State"] == "partial");
    assert!(told["Error"].as_str().unwrap().contains("pa"), "{told}");
    pair(&lab.switch, "pa", &lab.a, "va", 1);
    lab.switch.ip("link set pa master br0");
    let back = tap.wait("the return", |tap| tap["State"] == "active");
    let vlans: Vec<_> = back["Sources"]
        .as_array()
        .unwrap()
        .iter()
        .map(|source| (source["Name"].clone(), source["VLAN"].clone()))
        .collect();
    assert!(vlans.contains(&(json!("pa"), json!(50))) || vlans.contains(&(json!("pa"), json!(51))));
    let vlan = vlans
        .iter()
        .find(|(name, _)| name == "pa")
        .unwrap()
        .1
        .as_u64()
        .unwrap();
    let mut copies = Listener::open(&lab.monitor, "vm", "");
    send(&lab, 200);
    let found = copies.frames(200);
    assert!(found.len() == 200 && found.iter().all(|f| f[12..16] == [0x81, 0, 0, vlan as u8]));
}

#[test]
fn samples_and_rates_are_kept_and_counted() {
    if !root_tests() {
        return;
    }
    let lab = Lab::new();
    let skua = lab.skua();
    let tap = Tap::create(&lab.switch, &skua, "--from pa --to mon0 --sampling 10");
    let mut copies = Listener::open(&lab.monitor, "vm", "");
    send(&lab, 20_000);
    let (matched, copied, left_out) = tap.counts("Sampled");
    assert_eq!((matched, copied + left_out), (20_000, 20_000));
    // Thirty standard deviations.
    assert!((800..3_200).contains(&copied), "{copied}");
    assert_eq!(copies.frames(copied as usize).len() as u64, copied);
    tap.delete();
    let tap = Tap::create(&lab.switch, &skua, "--from pa --to mon0 --packet-rate 100");
    send(&lab, 20_000);
    let (matched, copied, over) = tap.counts("RateLimit");
    assert_eq!((matched, copied + over), (20_000, 20_000));
    assert!(copied >= 1 && over > 0, "{copied}");
    assert_eq!(copies.frames(copied as usize).len() as u64, copied);
    tap.delete();
    let tap = Tap::create(&lab.switch, &skua, "--from pa --to mon0 --bit-rate 8000");
    send(&lab, 20_000);
    assert!(tap.counts("RateLimit").2 > 0);
}

#[test]
fn what_is_too_long_for_a_monitor_is_counted() {
    if !root_tests() {
        return;
    }
    let lab = Lab::new();
    let skua = lab.skua();
    lab.switch.ip("link set mon0 mtu 1000");
    let tap = Tap::create(&lab.switch, &skua, "--from pa --to mon0");
    let mut copies = Listener::open(&lab.monitor, "vm", "");
    let mut originals = Listener::open(&lab.b, "vb", "");
    let long = |n: u64| {
        let mut frame =
            Flow::numbered(n as u32).frame(if n.is_multiple_of(2) { 1_015 } else { 1_014 });
        frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, 2]);
        frame
    };
    lab.sender().send(100, long);
    assert_eq!(originals.frames(100).len(), 100);
    assert_eq!(copies.frames(50).len(), 50);
    assert_eq!(tap.show()["Monitors"][0]["TooBig"]["Packets"], 50);
    lab.switch.ethtool("mon0", "tso off gso off tx off");
    tap.wait("the straight way", |tap| {
        tap["Monitors"][0]["Direct"] == true
    });
    lab.sender().send(100, long);
    assert_eq!(originals.frames(100).len(), 100);
    assert_eq!(copies.frames(50).len(), 50);
    assert_eq!(tap.counts("TooBig").2, 50);
}

#[test]
fn everything_goes_with_skua() {
    if !root_tests() {
        return;
    }
    let lab = Lab::new();
    let skua = lab.skua();
    Tap::create(&lab.switch, &skua, "--from pa,pb --to mon0");
    assert!(lab.switch.ip("link").contains("sktap"));
    skua.stop();
    let programs = |interface: &str| {
        let ifindex = lab.switch.ifindex(interface);
        [Direction::Ingress, Direction::Egress].map(|direction| {
            lab.switch
                .inside(|| attached_tcx(ifindex, direction))
                .unwrap()
                .len()
        })
    };
    assert_eq!((programs("pa"), programs("pb")), ([0, 0], [0, 0]));
    assert!(!lab.switch.ip("link").contains("sktap"));
    // Killed, its programs go; what is left besides goes when the next one taps there.
    let skua = lab.skua();
    Tap::create(&lab.switch, &skua, "--from pa,pb --to mon0");
    skua.kill();
    wait_for("the end of its programs", || {
        (programs("pa") == [0, 0]).then_some(())
    });
    let left = lab.switch.ip("link").matches("sktap").count();
    let skua = lab.skua();
    let tap = Tap::create(&lab.switch, &skua, "--from pa --to mon0");
    assert!(lab.switch.ip("link").matches("sktap").count() <= left.max(4));
    tap.delete();
    assert!(!lab.switch.ip("link").contains("sktap"));
    send(&lab, 100);
}

#[test]
fn policy_and_configuration_hold() {
    if !root_tests() {
        return;
    }
    let lab = Lab::new();
    let file = std::env::temp_dir().join(format!("skua-tap-{}.yaml", std::process::id()));
    let path = file.to_str().unwrap();
    std::fs::write(&file, "policy: {tap: forbidden}\n").unwrap();
    let args = format!("--max-entries 1000 --config {path}");
    let skua = Skua::run(&lab.switch, &args);
    let told = refused(
        &lab.switch,
        &skua,
        &["tap", "create", "--from", "pa", "--to", "mon0"],
    );
    assert!(told.contains("policy.tap"), "{told}");
    skua.stop();
    std::fs::write(
        &file,
        "taps: [{name: always, from: [pa], to: [mon0], match: udp}]\n",
    )
    .unwrap();
    let skua = Skua::run(&lab.switch, &args);
    let tap = Tap {
        net: &lab.switch,
        skua: &skua,
        id: "always".into(),
    };
    let seen = tap.wait("the tap", |tap| tap["State"] == "active");
    assert_eq!(seen["Declared"], true);
    let told = refused(&lab.switch, &skua, &["tap", "delete", "always"]);
    assert!(told.contains("configuration"), "{told}");
    let mut copies = Listener::open(&lab.monitor, "vm", "");
    send(&lab, 100);
    assert_eq!(copies.frames(100).len(), 100);
    for args in [&["tap", "list"][..], &["tap", "show", "always"]] {
        let output = run(&lab.switch, &skua, args);
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains("pa") && text.contains("100"), "{text}");
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
    }
    skua.stop();
    std::fs::write(
        &file,
        "policy: {tap: forbidden}\ntaps: [{from: [pa], to: [mon0]}]\n",
    )
    .unwrap();
    let output = skua::output(&lab.switch, &format!("run --listen 127.0.0.1:0 {args}"));
    std::fs::remove_file(&file).unwrap();
    assert!(!output.status.success());
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.contains("policy.tap"), "{told}");
}
