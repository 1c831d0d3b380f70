//! Each packet arrives where it should, once.

use std::collections::BTreeMap;

use skua_kernel::{Attachment, Direction, HookKind, attached_tcx};

use super::lab::{ALWAYS, Host, JUMPS};
use crate::lab::{Net, Skua, packet::tagging_program, root_tests, skua};

#[test]
fn packets_of_a_channel_that_jumps_arrive_in_the_other_pod_and_only_there() {
    if !root_tests() {
        return;
    }
    let mut host = Host::new();
    let skua = Skua::run(&host.host, "--interface gp0");
    assert_eq!(host.apply(&skua, JUMPS), "jumps on gp0: active\n");
    let detector = skua_steer::parse(JUMPS).unwrap().remove(0);
    let mut channels = BTreeMap::new();
    let mut expected = Vec::new();
    for round in 0..400u32 {
        for channel in 0..5u16 {
            let level = match round {
                // Channel 3 jumps up, channel 4 down.
                200.. if channel == 3 => 900.0,
                300.. if channel == 4 => -500.0,
                _ => 100.0,
            };
            let value = level + f64::from(round % 7) / 4.0;
            let number = host.send(channel, value);
            let sample = skua_steer::Sample {
                time_ns: 0,
                value: (value * 256.0) as i64,
            };
            let state = channels
                .entry(channel)
                .or_insert_with(|| skua_steer::Channel::new(&detector));
            if state.judge(&detector, sample).fired {
                expected.push(number);
            }
        }
    }
    assert!(expected.len() > 5 && expected.len() < 100, "{expected:?}");
    let (_, b) = host.all_once(0..2_000);
    assert_eq!(b, expected);
    let view = host.show(&skua);
    let counts = &view["Counts"];
    assert_eq!(
        (
            &counts["Sampled"],
            &counts["Fired"],
            &view["Target"]["Peer"]
        ),
        (&2_000.into(), &expected.len().into(), &true.into())
    );
    assert_eq!(view["Target"]["MAC"], "02:00:00:00:00:03");
    // The probe counts them all, for it stands before the detector.
    let text = host
        .ask(
            &skua,
            &["steer", "watch", "jumps", "--count", "1", "-o", "json"],
        )
        .unwrap();
    let lines = skua::parse_lines(&text);
    let fired: Vec<_> = lines.iter().filter(|l| l["Event"] == "fired").collect();
    assert_eq!(fired.len(), 2, "{text}");
    assert_eq!(
        (&fired[0]["Channel"], &fired[1]["Channel"]),
        (&3.into(), &4.into())
    );
    assert!(
        fired[0]["After"].as_f64() > fired[0]["Before"].as_f64(),
        "{text}"
    );
    let last = lines.last().unwrap();
    assert_eq!(last["Used"], 5, "{text}");
    assert_eq!(
        last["Channels"][3]["Passed"],
        400 - last["Channels"][3]["Fired"].as_u64().unwrap()
    );
    let metrics = skua.get("/metrics");
    let line = format!(
        "skua_steer_fired_total{{detector=\"jumps\",result=\"acted\"}} {}",
        expected.len()
    );
    assert!(metrics.contains(&line), "{metrics}");
}

#[test]
fn nothing_is_lost_or_doubled_when_detectors_come_and_go() {
    if !root_tests() {
        return;
    }
    let mut host = Host::new();
    let skua = Skua::run(&host.host, "--interface gp0");
    let file = host.file("always.yaml", ALWAYS);
    let address = skua.address.clone();
    let near = host.host.path();
    let turning = std::thread::spawn(move || {
        for _ in 0..6 {
            for action in [
                &["apply", &file][..],
                &["apply", &file],
                &["delete", "jumps"],
            ] {
                let done = std::process::Command::new("nsenter")
                    .args([
                        &format!("--net={near}"),
                        "--",
                        skua_testkit::program!(),
                        "steer",
                    ])
                    .args(action)
                    .env("SKUA_ANALYZER", &address)
                    .env("SKUA_TOKEN", skua_testkit::access::TOKEN)
                    .status();
                assert!(done.unwrap().success());
            }
        }
    });
    while !turning.is_finished() {
        let value = host.sent % 2;
        host.send(1, 100.0 + value as f64);
    }
    turning.join().unwrap();
    let (a, b) = host.all_once(0..host.sent);
    assert!(!a.is_empty() && !b.is_empty(), "{} {}", a.len(), b.len());
    // With the last one gone, all go the usual way.
    let before = host.sent;
    for value in 0..50 {
        host.send(1, f64::from(value));
    }
    let (a, _) = host.all_once(before..before + 50);
    assert_eq!(a.len(), 50);
}

#[test]
fn programs_of_others_stay_where_they_are() {
    if !root_tests() {
        return;
    }
    let mut host = Host::new();
    let ifindex = host.host.ifindex("gp0");
    host.host.exec("tc qdisc add dev gp0 clsact");
    host.host
        .exec("tc filter add dev gp0 ingress protocol ip u32 match u32 0 0 flowid 1:1");
    let theirs = tagging_program(0);
    let attach = || {
        let program = std::os::fd::AsFd::as_fd(&theirs);
        host.host
            .inside(|| Attachment::new(program, ifindex, Direction::Egress, HookKind::Tcx))
            .unwrap()
    };
    let _theirs = [attach()];
    let list = |net: &Net, direction| net.inside(|| attached_tcx(ifindex, direction).unwrap());
    let egress = list(&host.host, Direction::Egress);
    let skua = Skua::run(&host.host, "--interface gp0");
    let before = list(&host.host, Direction::Ingress);
    assert_eq!(before.len(), 1, "the probe's");
    host.apply(&skua, ALWAYS);
    let with = list(&host.host, Direction::Ingress);
    assert_eq!(with.len(), 2);
    assert_eq!(
        with[0], before[0],
        "the detector is behind those that were there"
    );
    let first = ALWAYS.replace("watchdog", "order: first\nwatchdog");
    host.apply(&skua, &first);
    let with = list(&host.host, Direction::Ingress);
    assert_eq!((with.len(), with[1]), (2, before[0]));
    for value in 0..20u32 {
        host.send(1, f64::from(value % 2));
    }
    host.all_once(0..20);
    host.ask(&skua, &["steer", "delete", "jumps"]).unwrap();
    assert_eq!(list(&host.host, Direction::Ingress), before);
    drop(skua);
    let filters = host.host.exec("tc filter show dev gp0 ingress");
    assert!(filters.contains("u32"), "{filters}");
    let left = list(&host.host, Direction::Egress);
    assert!(
        egress.iter().all(|program| left.contains(program)),
        "{left:?}"
    );
}

#[test]
fn a_dry_run_reports_and_does_nothing() {
    if !root_tests() {
        return;
    }
    let mut host = Host::new();
    let skua = Skua::run(&host.host, "--interface gp0");
    let file = host.file("detector.yaml", ALWAYS);
    host.ask(&skua, &["steer", "apply", "--dry-run", &file])
        .unwrap();
    for value in 0..30u32 {
        host.send(1, f64::from(value % 2));
    }
    let (a, b) = host.all_once(0..30);
    assert_eq!((a.len(), b.len()), (30, 0));
    assert_eq!(host.result(&skua, "reported"), 29);
    let wrong = host.file("wrong.yaml", &ALWAYS.replace("shift: 63", "shift: 64"));
    let refusal = host.ask(&skua, &["steer", "apply", &wrong]).unwrap_err();
    assert!(
        refusal.contains("threshold.shift is 64, must be 0 to 63"),
        "{refusal}"
    );
    let missing = host.ask(&skua, &["steer", "show", "other"]).unwrap_err();
    assert!(missing.contains("no detector other"), "{missing}");
}

#[test]
fn copies_drops_and_a_way_out_of_an_interface() {
    if !root_tests() {
        return;
    }
    let mut host = Host::new();
    host.host.ip("link add x0 type veth peer name x1");
    for end in ["x0", "x1"] {
        host.host.ip(&format!("link set {end} up"));
    }
    // The detector's namespace is not that of `skua run`.
    let other = Net::new();
    let skua = Skua::run(&other, "--interface lo");
    let detector = |action: &str| {
        let (head, _) = ALWAYS.split_once("action:").unwrap();
        head.to_owned() + "action: " + action + "\nnetns: "
    };
    for (action, to_a, net, interface, copies) in [
        ("{mirror: {to: pb0}}", 20, &host.b.net.name, "vb0", 19),
        ("{redirect: {to: x0}}", 1, &host.host.name, "x1", 19),
        ("{drop: true}", 1, &host.host.name, "x1", 0),
        ("{mark: 7}", 20, &host.host.name, "x1", 0),
    ]
    .map(|(action, to_a, net, interface, copies)| (action, to_a, net.clone(), interface, copies))
    {
        let file = host.file(
            "detector.yaml",
            &(detector(action) + &host.host.name + "\n"),
        );
        let applied = skua::command(&other)
            .args(["steer", "apply", &file, "--analyzer", &skua.address])
            .output()
            .unwrap();
        assert_eq!(
            String::from_utf8(applied.stdout).unwrap(),
            "jumps on gp0: active\n"
        );
        let received = || -> u64 {
            let path = format!("/sys/class/net/{interface}/statistics/rx_packets");
            let text = crate::lab::net::run(
                std::process::Command::new("ip").args(["netns", "exec", &net, "cat", &path]),
            );
            text.trim().parse().unwrap()
        };
        let before = received();
        for value in 0..20u32 {
            host.send(1, f64::from(value % 2));
        }
        host.arrived();
        assert_eq!(host.a.take().len(), to_a, "{action}");
        assert_eq!(received() - before, copies, "{action}");
        assert_eq!(host.b.count(), 0);
    }
}
