//! `--all-netns`: capture points are distinguished by namespace and index.

use crate::lab::{Flow, Net, SendMode, Sender, Skua, Sum, root_tests, skua::sum_of, wait_for};

/// Both directions of both kinds of link.
const FOR_FURTHER_NAMESPACES: u64 = 4;

/// A wire into a namespace whose end there is called and numbered as in all others.
fn wired(near: &Net) -> Net {
    let far = Net::new();
    near.ip(&format!(
        "link add x0 index 77 type veth peer name g0 netns {}",
        far.name
    ));
    near.ip("link set x0 up");
    far.ip("link set g0 up");
    far
}

pub fn attached(skua: &Skua, net: &Net) -> Option<()> {
    let report = skua.summary();
    let points = report.0["interfaces"].as_array().unwrap();
    points
        .iter()
        .any(|p| p["netns"] == net.name && p["interface"] == "x0")
        .then_some(())
}

#[test]
fn the_same_index_in_two_namespaces() {
    if !root_tests() {
        return;
    }
    let home = Net::new();
    let rooms = [Net::new(), Net::new()];
    let fars: Vec<Net> = rooms.iter().map(wired).collect();
    let skua = Skua::run_among(
        &home,
        &[&rooms[0], &rooms[1]],
        "--interface x0 --max-entries 1000 --scan-interval 100ms",
    );
    // One more that comes later.
    let late = Net::new();
    let late_far = wired(&late);
    skua.show(&late);
    wait_for("the later namespace", || attached(&skua, &late));

    // The same conversation in all three, distinguished by its size.
    let flow = Flow::numbered(1);
    let all = [
        (&rooms[0], &fars[0]),
        (&rooms[1], &fars[1]),
        (&late, &late_far),
    ];
    let mut sent = Vec::new();
    for (number, (_, far)) in all.iter().enumerate() {
        let sender = Sender::open(far, "g0", SendMode::Bypass);
        sent.push(sender.repeat(1000 + number as u64, &flow.frame(100 + number)));
    }
    let flows = skua.flows();
    // Since 6.2, and this machine's kernel is newer: further namespaces take no further programs.
    let programs = |skua: &Skua| skua.summary().0["programs"]["loaded"].as_u64().unwrap();
    let all_loaded = programs(&skua);
    let report = skua.stop();
    let alone = Skua::run(&home, "--interface lo --max-entries 1000");
    assert_eq!(all_loaded, programs(&alone) + FOR_FURTHER_NAMESPACES);
    alone.stop();
    for ((near, _), sent) in all.iter().zip(sent) {
        let name = format!("{}/x0", near.name);
        let mine: Vec<_> = flows.iter().filter(|f| f["interface"] == name).collect();
        assert_eq!(mine.len(), 1, "{name}");
        assert_eq!(sum_of(mine), sent.sum);
        let points = report.0["interfaces"].as_array().unwrap();
        let point = points.iter().find(|p| p["netns"] == near.name).unwrap();
        assert_eq!(Sum::of(&point["ingress"]), sent.sum);
        assert_eq!(Sum::of(&point["egress"]), Sum::ZERO);
        assert_eq!(near.counters("x0").rx, sent.sum);
    }
}

#[test]
fn a_namespace_that_goes_keeps_what_was_counted_in_it() {
    if !root_tests() {
        return;
    }
    let home = Net::new();
    let near = Net::new();
    let far = wired(&near);
    let skua = Skua::run_among(
        &home,
        &[&near],
        "--interface x0 --max-entries 1000 --scan-interval 100ms",
    );
    wait_for("the namespace", || attached(&skua, &near));
    let sent =
        Sender::open(&far, "g0", SendMode::Bypass).repeat(5000, &Flow::numbered(1).frame(64));
    let name = format!("{}/x0", near.name);
    skua.hide(&near);
    drop(near);
    drop(far);
    wait_for("end of the namespace", || {
        skua.summary().find("x0").is_none().then_some(())
    });
    let flows = skua.flows();
    let report = skua.stop();
    assert_eq!(
        sum_of(flows.iter().filter(|f| f["interface"] == name)),
        sent.sum
    );
    assert!(report.find("x0").is_none());
    assert_eq!(report.seen(), sent.sum);
}

/// Moved to another namespace and back, with the same index.
#[test]
fn an_interface_that_moves_is_followed() {
    if !root_tests() {
        return;
    }
    let near = Net::new();
    let other = Net::new();
    let far = wired(&near);
    let skua = Skua::run_among(
        &near,
        &[&other],
        "--interface x0 --max-entries 1000 --scan-interval 1h",
    );
    let sender = Sender::open(&far, "g0", SendMode::Bypass);
    let frame = Flow::numbered(1).frame(64);
    let mut home = sender.repeat(1000, &frame);
    near.ip(&format!("link set x0 netns {}", other.name));
    wait_for("x0 elsewhere", || attached(&skua, &other));
    other.ip("link set x0 up");
    let away = sender.repeat(500, &frame);
    other.ip(&format!("link set x0 netns {}", near.name));
    near.ip("link set x0 up");
    wait_for("x0 at home", || {
        let report = skua.summary();
        let points = report.0["interfaces"].as_array().unwrap().clone();
        points
            .iter()
            .any(|p| p["netns"] == "" && p["interface"] == "x0" && p["attached"] == true)
            .then_some(())
    });
    home += sender.repeat(300, &frame);
    let flows = skua.flows();
    assert_eq!(skua.stop().seen(), home.sum + away.sum);
    let of = |name: &str| sum_of(flows.iter().filter(|f| f["interface"] == name));
    assert_eq!(of("x0"), home.sum);
    assert_eq!(of(&format!("{}/x0", other.name)), away.sum);
}
