//! Detectors that outlive their process: kept over a restart, and left steering by a kill when that is
//! asked.

use std::path::Path;

use super::lab::{ALWAYS, Host, JUMPS};
use crate::lab::{Skua, root_tests, skua, wait_for};

/// `skua run` that keeps what it is told in a folder.
fn run(host: &Host, folder: &Path) -> Skua {
    let mut command = skua::command(&host.host);
    command
        .args(["run", "--listen", "127.0.0.1:0", "--interface", "gp0"])
        .args(["--summary", "json"])
        .env("SKUA_HISTORY_DIRECTORY", folder);
    Skua::run_command(&host.host, &mut command)
}

/// Pins of a host's detectors.
fn pins(host: &Host) -> Vec<String> {
    use std::os::unix::fs::MetadataExt as _;
    let namespace = std::fs::metadata(host.host.path()).unwrap().ino();
    let all = std::fs::read_dir("/sys/fs/bpf/skua-steer");
    if all.is_ok() {
        let rights = std::fs::metadata("/sys/fs/bpf/skua-steer").unwrap().mode();
        assert_eq!(rights & 0o777, 0o700, "for root alone");
    }
    let names = all.into_iter().flatten().map(|entry| {
        let name = entry.unwrap().file_name();
        name.into_string().unwrap()
    });
    names
        .filter(|name| name.starts_with(&format!("{namespace}:")))
        .collect()
}

fn stay() -> String {
    ALWAYS.replace("after: 500ms", "when_lost: stay")
}

#[test]
fn detectors_are_there_again_after_a_restart() {
    if !root_tests() {
        return;
    }
    let mut host = Host::new();
    let folder = host.folder("history");
    let skua = run(&host, &folder);
    host.apply(&skua, ALWAYS);
    let other = JUMPS.replace("jumps", "other").replace("gp0", "nowhere");
    assert!(
        host.apply(&skua, &other)
            .contains("other on nowhere: waiting")
    );
    let before = host.show(&skua);
    // Applied again, it is the same one.
    host.apply(&skua, &ALWAYS.replace("ring: 1", "ring: 2"));
    let again = host.show(&skua);
    assert_eq!(again["UUID"], before["UUID"]);
    skua.kill();
    assert_eq!(host.round(), (20, 0));
    let skua = run(&host, &folder);
    let after = host.wait_state(&skua, "active");
    for key in ["UUID", "Who", "CreatedAt", "Detector"] {
        assert_eq!(after[key], again[key], "{key}");
    }
    assert_eq!(after["Detector"]["ring"], 2);
    // Channels begin anew.
    assert_eq!(host.round(), (2, 18));
    host.ask(&skua, &["steer", "delete", "jumps"]).unwrap();
    skua.stop();
    let skua = run(&host, &folder);
    let list = host.ask(&skua, &["steer", "list"]).unwrap();
    assert!(list.contains("other") && !list.contains("jumps"), "{list}");
    drop(skua);
    // What the configuration forbids, or has itself, goes before what was kept.
    let forbidden = host.file("forbidden.yaml", "policy: {steer: forbidden}\n");
    let declared = host.file("declared.yaml", &other.replace("nowhere", "gp0"));
    let declares = format!("steer: {{files: [{declared}]}}\n");
    let declares = host.file("declares.yaml", &declares);
    for (config, wanted) in [(forbidden, "no detectors"), (declares, "other     gp0")] {
        let mut command = skua::command(&host.host);
        command
            .args(["run", "--listen", "127.0.0.1:0", "--interface", "gp0"])
            .args(["--config", &config])
            .env("SKUA_HISTORY_DIRECTORY", &folder);
        let skua = Skua::run_command(&host.host, &mut command);
        let list = host.ask(&skua, &["steer", "list"]).unwrap();
        assert!(list.contains(wanted), "{list}");
    }
}

#[test]
fn steering_goes_on_without_its_process_when_it_is_to_stay() {
    if !root_tests() {
        return;
    }
    let mut host = Host::new();
    let folder = host.folder("history");
    let skua = run(&host, &folder);
    host.apply(&skua, &stay());
    assert_eq!(host.show(&skua)["StaysWhenKilled"], true);
    assert_eq!(host.round(), (1, 19));
    // One in the place of the other: the pins go along.
    host.apply(&skua, &stay());
    assert_eq!(host.round(), (1, 19));
    assert_eq!(pins(&host).len(), 1);
    skua.kill();
    assert_eq!(host.round(), (0, 20));
    // Nobody is there who could tell the program.
    host.b.net.ip("link set vb0 down");
    assert_eq!(host.round(), (20, 0));
    host.b.net.ip("link set vb0 up");
    assert_eq!(host.round(), (0, 20));
    // Who comes next goes on with it, without a packet going astray.
    let skua = run(&host, &folder);
    host.wait_state(&skua, "active");
    assert_eq!(host.round(), (1, 19));
    assert_eq!(pins(&host).len(), 1);
    // An end in order is none of those that it is to outlive.
    skua.stop();
    assert!(pins(&host).is_empty());
    assert_eq!(host.round(), (20, 0));
    let skua = run(&host, &folder);
    host.wait_state(&skua, "active");
    host.ask(&skua, &["steer", "delete", "jumps"]).unwrap();
    assert!(pins(&host).is_empty());
    assert_eq!(host.round(), (20, 0));
    // Who knows nothing of what was left ends it.
    host.apply(&skua, &stay());
    skua.kill();
    assert_eq!(host.round(), (1, 19));
    let ignorant = Skua::run(&host.host, "--interface gp0");
    assert_eq!(host.round(), (20, 0));
    assert!(pins(&host).is_empty());
    // And so can somebody by hand, but not as long as its process is there.
    host.apply(&ignorant, &stay());
    host.ask(&ignorant, &["steer", "release"]).unwrap();
    assert_eq!(host.round(), (1, 19));
    ignorant.kill();
    let ended = host.release();
    assert!(ended.contains("jumps"), "{ended}");
    assert_eq!(host.round(), (20, 0));
    wait_for("the end of the pins", || {
        pins(&host).is_empty().then_some(())
    });
}

#[test]
fn the_program_sees_for_itself_that_its_target_is_down() {
    if !root_tests() {
        return;
    }
    let mut host = Host::new();
    let skua = Skua::run(&host.host, "--interface gp0");
    host.apply(&skua, &stay());
    let view = host.show(&skua);
    assert_eq!(view["Target"]["SeenByProgram"], true, "{view}");
    assert_eq!(host.round(), (1, 19));
    // User space hears of nothing.
    skua.halt();
    host.b.net.ip("link set vb0 down");
    assert_eq!(host.round(), (20, 0));
    host.b.net.ip("link set vb0 up");
    assert_eq!(host.round(), (0, 20));
    // The way into the pod does not need the near end: nothing is lost.
    host.host.ip("link set pb0 down");
    assert_eq!(host.round(), (0, 20));
    host.host.ip("link del pb0");
    assert_eq!(host.round(), (20, 0));
    skua.go_on();
    host.wait_state(&skua, "no target");
    assert_eq!(host.result(&skua, "no_target"), 40);
    host.pair("pb0", "vb0", &host.b.net, "10.1.0.3");
    host.wait_state(&skua, "active");
    assert_eq!(host.round(), (0, 20));
}
