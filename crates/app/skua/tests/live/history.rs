//! What `skua run` remembers: over a kill, beside another process, on a full disk.

use std::{
    os::unix::fs::MetadataExt as _,
    path::Path,
    process::Command,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use serde_json::Value;
use skua_testkit::scratch;

use crate::{
    lab::{
        Flow, Net, SendMode, Sender, Skua, Wire, net, root_tests,
        skua::{self, NO_HISTORY},
        wait_for,
    },
    queries::ask,
};

/// `skua run` that keeps its history in a directory.
fn keeping(net: &Net, directory: &str) -> Command {
    let mut command = skua::command(net);
    command
        .args(["run", "--listen", "127.0.0.1:0", "--summary", "json"])
        .args(["--interface", "x0", "--scan-interval", "1s"])
        .env(NO_HISTORY.0, directory);
    command
}

fn status(skua: &Skua) -> Value {
    serde_json::from_str(&skua.get("/api/status")).unwrap()
}

/// Waits until all that the process knows is written.
fn written(skua: &Skua) {
    wait_for("the history to be written", || {
        let status = status(skua);
        let (graph, history) = (&status["graph"], &status["history"]);
        (history["last_event"] == graph["last_event"] && history["flow_queue_bytes"] == 0)
            .then_some(())
    });
}

fn now_ms() -> u128 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap().as_millis()
}

/// 20 conversations with 1 + 2 + … + 20 packets of 100 bytes.
fn send(sender: &Sender) {
    for number in 1..=20 {
        sender.repeat(u64::from(number), &Flow::numbered(number).frame(100));
    }
}

const UDP: &str = "Flows().Has('Transport.Protocol', 'UDP')";

/// Creates a capture and waits until it runs on a node; its UUID.
fn capture(net: &Net, skua: &Skua) -> String {
    let output = skua::command(net)
        .args(["capture", "--analyzer", &skua.address, "create"])
        .args([
            "--gremlin",
            "G.V().Has('Name', 'x0')",
            "--type",
            "afpacket",
            "--rawpacket-limit",
            "2",
        ])
        .output()
        .unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{err}");
    running_capture(skua, |_| true)
}

fn running_capture(skua: &Skua, wanted: impl Fn(&str) -> bool) -> String {
    wait_for("the capture to run", || {
        let status = status(skua);
        let captures = status["captures"].as_array().unwrap();
        let capture = captures.iter().find(|c| c["points"]["active"] == 1)?;
        let uuid = capture["uuid"].as_str().unwrap();
        wanted(uuid).then(|| uuid.to_owned())
    })
}

#[test]
fn what_was_before_a_kill_is_there_again() {
    if !root_tests() {
        return;
    }
    let wire = Wire::new();
    let net = &wire.near;
    let directory = scratch::directory("killed");
    let first = Skua::run_command(net, &mut keeping(net, directory.path()));
    let id = capture(net, &first);
    net.ip("link add lbgone type bridge");
    wait_for("the interface in the graph", || {
        (ask(net, &first, "G.V().Has('Name', 'lbgone').Count()") == 1).then_some(())
    });
    send(&Sender::open(&wire.far, "g0", SendMode::Queue));
    let sum = |skua: &Skua, at: &str, what: &str, of: &str| {
        let query = format!("G{at}.{UDP}.{what}.Sum('Metric.AB{of}')");
        ask(net, skua, &query).as_u64().unwrap()
    };
    let mine = format!("Has('CaptureID', '{id}')");
    // The capture's flows stand for those that are always watched: with both each packet counts once.
    let all = "HasKey('UUID')";
    for what in [mine.as_str(), all] {
        wait_for("all packets", || {
            (sum(&first, "", what, "Packets") == 210).then_some(())
        });
    }
    let moment = now_ms();
    // A moment lies behind us only once the clock has gone on.
    std::thread::sleep(Duration::from_secs(1));
    net.ip("link del lbgone");
    wait_for("the interface to go", || {
        (ask(net, &first, "G.V().Has('Name', 'lbgone').Count()") == 0).then_some(())
    });
    written(&first);
    first.kill();

    let again = Skua::run_command(net, &mut keeping(net, directory.path()));
    assert_eq!(running_capture(&again, |_| true), id);
    assert_eq!(ask(net, &again, "G.V().Has('Name', 'lbgone').Count()"), 0);
    let ago = format!(".At('-{}ms')", now_ms() - moment);
    let gone = format!("G{ago}.V().Has('Name', 'lbgone').Values('Type')");
    assert_eq!(ask(net, &again, &gone), serde_json::json!(["bridge"]));
    // All that was drained, of each capture, at a moment and over a time.
    let back = (now_ms() - moment) / 1000 + 20;
    let over = format!(".At(NOW, {back})");
    for (what, at) in [(mine.as_str(), &ago), (all, &ago), (all, &over)] {
        assert_eq!(sum(&again, at, what, "Packets"), 210, "{at} {what}");
        assert_eq!(sum(&again, at, what, "Bytes"), 21_000, "{at} {what}");
    }
    // In slices of ten seconds they add up to the same.
    let slices = ask(
        net,
        &again,
        &format!("G{over}.{UDP}.{all}.Metrics().Aggregates(10)"),
    );
    let mut packets = 0;
    sum_under(&slices, "ABPackets", &mut packets);
    assert_eq!(packets, 210, "{slices}");
}

#[test]
fn state_files_that_cannot_be_used_do_not_stop_the_start() {
    if !root_tests() {
        return;
    }
    const KINDS: [&str; 8] = [
        "captures",
        "taps",
        "alerts",
        "nodes",
        "edges",
        "noderules",
        "edgerules",
        "detectors",
    ];
    let wire = Wire::new();
    let net = &wire.near;
    let directory = scratch::directory("state");
    let file = |name: &str| directory.join(name);
    let unusable = ["", r#"[{"UUID""#, r#"{"version": 99, "items": {}}"#];
    for (number, kind) in KINDS.iter().enumerate() {
        std::fs::write(
            file(&format!("{kind}.json")),
            unusable[number % unusable.len()],
        )
        .unwrap();
    }
    let skua = Skua::run_command(net, &mut keeping(net, directory.path()));
    send(&Sender::open(&wire.far, "g0", SendMode::Queue));
    wait_for("all packets", || {
        let query = format!("G.{UDP}.Sum('Metric.ABPackets')");
        (ask(net, &skua, &query) == 210).then_some(())
    });
    let id = capture(net, &skua);
    let (_, err) = skua.stop_with_errors();
    for (number, kind) in KINDS.iter().enumerate() {
        let aside = format!("{kind}.json.unusable-1");
        assert!(err.contains(&aside), "no word of {aside}: {err}");
        let kept = std::fs::read_to_string(file(&aside)).unwrap();
        assert_eq!(kept, unusable[number % unusable.len()]);
    }
    let rights = std::fs::metadata(file("captures.json")).unwrap().mode();
    assert_eq!(rights & 0o777, 0o600);
    // What was made after that is there again.
    let again = Skua::run_command(net, &mut keeping(net, directory.path()));
    assert_eq!(running_capture(&again, |_| true), id);
}

/// Adds up all numbers under a key, wherever it is.
fn sum_under(value: &Value, key: &str, sum: &mut u64) {
    match value {
        Value::Array(list) => list.iter().for_each(|item| sum_under(item, key, sum)),
        Value::Object(map) => {
            for (name, item) in map {
                match item.as_u64() {
                    Some(number) if name == key => *sum += number,
                    _ => sum_under(item, key, sum),
                }
            }
        }
        _ => {}
    }
}

#[test]
fn a_second_process_on_the_same_directory_is_refused() {
    if !root_tests() {
        return;
    }
    let wire = Wire::new();
    let directory = scratch::directory("taken");
    let first = Skua::run_command(&wire.near, &mut keeping(&wire.near, directory.path()));
    let second = keeping(&wire.near, directory.path()).output().unwrap();
    assert_eq!(second.status.code(), Some(1));
    let error = String::from_utf8(second.stderr).unwrap();
    assert_eq!(
        error,
        format!(
            "skua: the history in {}/history is in use by process {}; stop it, or choose another \
             directory\n",
            directory.path(),
            first.pid()
        )
    );
    // The first one is none the worse for it.
    assert!(status(&first)["history"]["graph"]["failing"].is_null());
}

/// Runs `skua run` for which a directory of this machine is an empty one of so many bytes.
fn with_own(net: &Net, directory: &str, size: &str, setting: &str) -> Skua {
    let script = r#"mount --make-rprivate / && mkdir -p "$1" &&
        mount -t tmpfs -o "size=$2" tmpfs "$1" && shift 2 && exec "$@""#;
    let mut command = net.command("unshare");
    command
        .args(["--mount", "--", "sh", "-c", script, "own", directory, size])
        .arg(skua_testkit::program!())
        .args(["run", "--listen", "127.0.0.1:0", "--summary", "json"])
        .args(["--interface", "x0", "--scan-interval", "1s"])
        .env("SKUA_CONFIG", "/dev/null")
        .env(NO_HISTORY.0, setting);
    Skua::run_command(net, &mut command)
}

/// Runs a program where a process sees its files.
fn beside(skua: &Skua, program: &str) -> Command {
    let mut command = Command::new("nsenter");
    command
        .arg(format!("--mount=/proc/{0}/ns/mnt", skua.pid()))
        .arg(format!("--net=/proc/{0}/ns/net", skua.pid()))
        .args(["--", program]);
    command
}

#[test]
fn unasked_the_history_is_kept_by_the_first_process() {
    if !root_tests() {
        return;
    }
    let wire = Wire::new();
    let net = &wire.near;
    let first = with_own(net, "/var/lib", "64m", "auto");
    assert_eq!(
        status(&first)["history"]["directory"],
        "/var/lib/skua/history"
    );
    let mut second = beside(&first, skua_testkit::program!());
    second
        .args(["run", "--listen", "127.0.0.1:0", "--summary", "json"])
        .args(["--interface", "x0"])
        .env("SKUA_CONFIG", "/dev/null")
        .env_remove(NO_HISTORY.0);
    let second = Skua::run_command(net, &mut second);
    assert!(status(&second)["history"].is_null());
    let (_, errors) = second.stop_with_errors();
    let warning = format!(
        "no history is kept: the history in /var/lib/skua/history is in use by process {}",
        first.pid()
    );
    assert!(errors.contains(&warning), "{errors}");
}

#[test]
fn a_full_disk_is_said_and_overcome() {
    if !root_tests() {
        return;
    }
    let wire = Wire::new();
    let net = &wire.near;
    let directory = scratch::directory("full");
    let skua = with_own(net, directory.path(), "8m", directory.path());
    let filler = Path::new(directory.path()).join("filler");
    // What is left after this fits nothing more.
    let mut fill = beside(&skua, "dd");
    fill.args(["if=/dev/zero", "bs=4k"])
        .arg(format!("of={}", filler.display()));
    let full = fill.output().unwrap();
    assert!(!full.status.success(), "the disk is not full");
    let sender = Sender::open(&wire.far, "g0", SendMode::Queue);
    let mut sent = 0;
    let failing = wait_for("the history to fail", || {
        send(&sender);
        sent += 210;
        let status = status(&skua);
        let flows = &status["history"]["flows"];
        flows["lost"]["disk_full"]
            .as_u64()
            .filter(|lost| *lost > 0)?;
        flows["failing"].as_str().map(str::to_owned)
    });
    assert!(failing.contains("No space left"), "{failing}");
    let doctor = || {
        let mut doctor = skua::command(net);
        doctor.args(["doctor", "--analyzer", &skua.address]);
        net::run(&mut doctor)
    };
    let said = doctor();
    assert!(
        said.contains("the history of flows cannot be written"),
        "{said}"
    );
    // Memory goes on.
    let in_memory = format!("G.{UDP}.Sum('Metric.ABPackets')");
    wait_for("all packets", || {
        (ask(net, &skua, &in_memory) == sent).then_some(())
    });
    net::run(beside(&skua, "rm").arg(&filler));
    let written = |status: &Value| status["history"]["flows"]["written"].as_u64().unwrap();
    let before = written(&status(&skua));
    wait_for("the history to go on", || {
        send(&sender);
        let status = status(&skua);
        let flows = &status["history"]["flows"];
        (flows["failing"].is_null() && written(&status) > before).then_some(())
    });
    // What was lost stays said.
    let said = doctor();
    assert!(
        said.contains("were lost because the disk was full"),
        "{said}"
    );
    let metrics = skua.get("/metrics");
    let failing = r#"skua_store_failing{log="flows"} 0"#;
    assert!(metrics.contains(failing), "{metrics}");
    let line = metrics
        .lines()
        .find(|line| line.starts_with(r#"skua_store_lost_total{log="flows",cause="disk_full"}"#));
    assert!(!line.unwrap().ends_with(" 0"), "{line:?}");
}

#[test]
fn captures_are_counted_everywhere() {
    if !root_tests() {
        return;
    }
    let wire = Wire::new();
    let net = &wire.near;
    let skua = Skua::run(net, "--interface x0");
    let id = capture(net, &skua);
    send(&Sender::open(&wire.far, "g0", SendMode::Queue));
    let found = wait_for("all packets of the capture", || {
        let status = status(&skua);
        (status["captures"][0]["in_flows"]["packets"] == 210).then(|| status.clone())
    });
    let capture = &found["captures"][0];
    assert_eq!(capture["uuid"], id.as_str());
    assert_eq!(capture["type"], "afpacket");
    assert_eq!(
        capture["points"],
        serde_json::json!({"active": 1, "pending": 0, "error": 0})
    );
    // Of twenty conversations the first two packets, and of one there is only one.
    assert_eq!(capture["raw_packets"]["kept"], 39);
    assert!(found["history"].is_null());
    assert_eq!(found["discovery"]["running"], true);
    // The topology may still grow between the two answers.
    wait_for("the same number of nodes in status and query", || {
        let nodes = ask(net, &skua, "G.V().Count()");
        (status(&skua)["graph"]["nodes"] == nodes).then_some(())
    });
    let metrics = skua.get("/metrics");
    for (series, value) in [
        (
            "skua_capture_points{capture=\"ID\",type=\"afpacket\",state=\"active\"}",
            1,
        ),
        (
            "skua_capture_flow_packets_total{capture=\"ID\",type=\"afpacket\"}",
            210,
        ),
        (
            "skua_capture_raw_packets_kept_total{capture=\"ID\",type=\"afpacket\"}",
            39,
        ),
        (
            "skua_capture_lost_packets_total{capture=\"ID\",type=\"afpacket\",cause=\"ring_full\"}",
            0,
        ),
        ("skua_captures", 1),
    ] {
        let line = format!("\n{} {value}\n", series.replace("ID", &id));
        assert!(metrics.contains(&line), "no {line} in {metrics}");
    }
    let mut doctor = skua::command(net);
    doctor.args(["doctor", "--analyzer", &skua.address]);
    let said = net::run(&mut doctor);
    assert!(
        said.contains(&format!("capture   {id} by afpacket: 1 active")),
        "{said}"
    );
    assert!(said.contains("packets: 39 kept"), "{said}");
    assert!(said.contains("history   not on disk"), "{said}");
}
