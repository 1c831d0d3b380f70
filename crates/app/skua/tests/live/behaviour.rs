//! What users and programs meet: formats, errors, the API, rest.

use std::{
    collections::HashMap, fs::File, io::Read as _, path::PathBuf, process::Stdio, time::Duration,
};

use rustix::process::Signal;

use crate::lab::{
    Flow, Net, Report, SendMode, Sender, Skua, Sum, Wire,
    frame::Crowd,
    root_tests,
    skua::{self, parse_lines, sum_of},
    tcp, wait_for,
};

/// A file that is removed when dropped.
struct Temporary(PathBuf);

impl Temporary {
    fn new(name: &str, text: &str) -> Self {
        let path = std::env::temp_dir().join(format!("lv-{}-{name}", std::process::id()));
        std::fs::write(&path, text).unwrap();
        Self(path)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// One line on standard error, status 1, nothing on standard output; gives back the line.
fn refusal(net: &Net, args: &str) -> String {
    let output = skua::output(net, args);
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{args}: {text}");
    assert!(output.stdout.is_empty(), "{args}");
    assert_eq!(text.lines().count(), 1, "{args}: {text}");
    text
}

#[test]
fn mistakes_are_told_in_one_line() {
    if !root_tests() {
        return;
    }
    let wire = Wire::new();
    let near = &wire.near;
    near.veth("uplink0", &wire.far, "g1");
    let text = refusal(near, "flows --interface uplnk0 --duration 1s");
    assert!(
        text.contains("uplnk0") && text.contains("did you mean uplink0?"),
        "{text}"
    );
    let text = refusal(near, "run --listen 127.0.0.1:0 --interface wlan7");
    assert!(text.contains("wlan7") && text.contains("uplink0"), "{text}");

    let file = Temporary::new("key.yaml", "flow:\n  max_entires: 5\n");
    let text = refusal(near, &format!("run --config {}", file.0.display()));
    assert!(
        text.contains("line 2") && text.contains("max_entires"),
        "{text}"
    );
    assert!(text.contains("did you mean max_entries?"), "{text}");

    let there = Skua::run(near, "--interface x0 --max-entries 1000");
    let text = refusal(
        near,
        &format!("run --listen {} --interface x0", there.address),
    );
    assert!(
        text.contains(&there.address) && text.contains("--listen"),
        "{text}"
    );
    there.stop();
}

/// A `skua flows` that captures on its own, ended by Ctrl-C before its time: flows on standard
/// output, the summary as the last line on standard error.
fn capture(near: &Net, args: &str, traffic: impl FnOnce()) -> (String, Report) {
    let mut command = skua::command(near);
    command
        .args(["flows", "--interface", "x0", "--duration", "1h"])
        .args(["--max-entries", "1000", "--summary", "json"])
        .args(args.split_whitespace());
    let skua = Skua::start(near, &mut command);
    wait_for("attachment", || {
        let links = std::fs::read_dir(format!("/proc/{}/fdinfo", skua.pid())).unwrap();
        let attached = links
            .flatten()
            .filter(|l| {
                // Not those of the proof of hooks, on loopback of a namespace of its own, or detached there.
                std::fs::read_to_string(l.path()).is_ok_and(|text| {
                    let elsewhere = ["ifindex:\t0\n", "ifindex:\t1\n"];
                    text.contains("link_type:\ttcx") && !elsewhere.iter().any(|e| text.contains(e))
                })
            })
            .count();
        (attached == 2).then_some(())
    });
    traffic();
    let (report, out) = skua.stop_with_output();
    (out, report)
}

#[test]
fn flows_as_json_in_the_shape_that_is_promised() {
    if !root_tests() {
        return;
    }
    let wire = Wire::new().with_addresses();
    let before = wire.near.counters("x0");
    let (out, report) = capture(&wire.near, "--output json", || {
        tcp::bulk(&wire.far, &wire.near, "10.7.0.2:5001", 1 << 20);
        let sender = Sender::open(&wire.far, "g0", SendMode::Bypass);
        sender.repeat(3, &Flow::numbered(7).frame(80));
        sender.repeat(2, &Flow::numbered(7).tagged(&[(0x8100, 5)], 84));
        sender.repeat(4, &Flow::numbered(9).with_protocol(1).frame(98));
    });
    let flows = parse_lines(&out);
    let counted = wire.near.settled_counters("x0") - before;
    assert_eq!(flows.len(), 4);
    assert_eq!(sum_of(&flows), report.in_flows());
    assert_eq!(
        report.seen(),
        counted.rx + counted.tx + report.note("segmented")
    );
    for flow in &flows {
        assert_eq!(flow["interface"], "x0");
        for side in ["a", "b"] {
            assert!(flow[side]["address"].is_string(), "{flow}");
            assert!(flow[side]["port"].is_u64(), "{flow}");
        }
        for time in ["start", "last"] {
            let time = flow[time].as_str().unwrap();
            // 2026-11-21T10:00:00.000000001Z
            assert_eq!(time.len(), 30, "{time}");
            assert!(time.ends_with('Z') && time.as_bytes()[10] == b'T', "{time}");
        }
        assert!(flow["start"].as_str() <= flow["last"].as_str(), "{flow}");
        assert!(flow["community_id"].as_str().unwrap().starts_with("1:"));
    }
    let of = |layers: &str| flows.iter().find(|f| f["layers"] == layers).unwrap();
    let udp = of("Ethernet/IPv4/UDP");
    assert_eq!(udp["protocol"], "udp");
    assert_eq!(
        udp["a"],
        serde_json::json!({"address": "10.0.0.7", "port": 5000})
    );
    assert_eq!(
        udp["b"],
        serde_json::json!({"address": "172.16.0.1", "port": 6000})
    );
    assert_eq!(Sum::of(&udp["ab"]), Sum::new(3, 240));
    assert_eq!(Sum::of(&udp["ba"]), Sum::ZERO);
    let vlan = of("Ethernet/Dot1Q/IPv4/UDP");
    assert_eq!(vlan["vlans"], serde_json::json!([5]));
    assert_eq!(Sum::of(&vlan["ab"]), Sum::new(2, 168));
    assert_eq!(of("Ethernet/IPv4/ICMPv4")["protocol"], "icmp");
    let tcp = of("Ethernet/IPv4/TCP");
    assert_eq!(tcp["a"]["address"], "10.7.0.1");
    assert_eq!(
        tcp["b"],
        serde_json::json!({"address": "10.7.0.2", "port": 5001})
    );
    assert_eq!(tcp["tcp"]["state"], "closed");
    assert!(tcp["tcp"]["handshake_rtt"].as_u64().unwrap() > 0);
}

#[test]
fn flows_as_csv_and_as_a_table() {
    if !root_tests() {
        return;
    }
    let wire = Wire::new();
    let sender = Sender::open(&wire.far, "g0", SendMode::Bypass);
    let traffic = || {
        for n in 0..5 {
            sender.repeat(n + 1, &Flow::numbered(n as u32).frame(100));
        }
    };
    let (out, _) = capture(&wire.near, "--output csv --sort packets", traffic);
    let mut lines = out.lines().map(|l| l.split(',').collect::<Vec<_>>());
    let header = lines.next().unwrap();
    let column = |name: &str| {
        header
            .iter()
            .position(|h| *h == name)
            .unwrap_or_else(|| panic!("no {name} in {header:?}"))
    };
    let (packets, bytes) = (column("ab_packets"), column("ab_bytes"));
    let rows: Vec<_> = lines.collect();
    let counts: Vec<_> = rows.iter().map(|r| (r[packets], r[bytes])).collect();
    assert!(rows.iter().all(|r| r.len() == header.len()), "{out}");
    assert_eq!(
        counts,
        [
            ("5", "500"),
            ("4", "400"),
            ("3", "300"),
            ("2", "200"),
            ("1", "100")
        ]
    );

    let (out, _) = capture(&wire.near, "--sort packets --limit 2", traffic);
    let lines: Vec<_> = out.lines().collect();
    assert_eq!(lines.len(), 3, "{out}");
    assert!(
        lines[0].contains("PROTO") && lines[0].contains("SENT"),
        "{out}"
    );
    assert!(lines[1].contains("10.0.0.4:5000"), "{out}");
    assert!(lines[2].contains("10.0.0.3:5000"), "{out}");
}

/// Output of a program on a terminal of 80 columns.
fn on_terminal(net: &Net, args: &str) -> String {
    use rustix::{
        pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
        termios::{Winsize, tcsetwinsize},
    };
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap();
    let terminal = File::options()
        .read(true)
        .write(true)
        .open(name.to_str().unwrap())
        .unwrap();
    let size = Winsize {
        ws_row: 24,
        ws_col: 80,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(&terminal, size).unwrap();
    let mut child = skua::command(net)
        .args(args.split_whitespace())
        .stdout(Stdio::from(terminal))
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut text = Vec::new();
    let mut part = [0; 4096];
    let mut master = File::from(master);
    // It ends with an error when the other side has been closed.
    while let Ok(length @ 1..) = master.read(&mut part) {
        text.extend(&part[..length]);
    }
    assert!(child.wait().unwrap().success());
    String::from_utf8(text).unwrap()
}

#[test]
fn a_table_fits_80_columns() {
    if !root_tests() {
        return;
    }
    let wire = Wire::new().with_addresses();
    let skua = Skua::run(&wire.near, "--interface x0 --max-entries 1000");
    tcp::bulk(&wire.far, &wire.near, "10.7.0.2:5001", 4 << 20);
    let sender = Sender::open(&wire.far, "g0", SendMode::Bypass);
    let mut flow = Flow::numbered(1);
    flow.from = [255, 255, 255, 255].into();
    flow.to = [255, 255, 255, 254].into();
    flow.ports = (65535, 65534);
    sender.repeat(1000, &flow.frame(1500));
    let out = on_terminal(&wire.near, &format!("flows --analyzer {}", skua.address));
    skua.stop();
    let lines: Vec<_> = out.lines().map(str::trim_end).collect();
    assert_eq!(lines.len(), 3, "{out}");
    for line in &lines {
        assert!(line.chars().count() <= 80, "{line}");
    }
    assert!(out.contains("255.255.255.255:65535"), "{out}");
    assert!(out.contains("10.7.0.2:5001"), "{out}");
}

#[test]
fn flows_of_a_running_probe_on_another_port() {
    if !root_tests() {
        return;
    }
    let wire = Wire::new();
    let skua = Skua::run(&wire.near, "--interface x0 --max-entries 1000");
    let sender = Sender::open(&wire.far, "g0", SendMode::Bypass);
    let sent = sender.send(500, |n| Flow::numbered(n as u32 % 5).frame(64));
    let args = format!("flows --analyzer {} --output json", skua.address);
    let output = skua::output(&wire.near, &args);
    assert!(output.status.success(), "{output:?}");
    let flows = parse_lines(&String::from_utf8(output.stdout).unwrap());
    assert_eq!(flows.len(), 5);
    assert_eq!(sum_of(&flows), sent.sum);

    let limited = skua::output(&wire.near, &format!("{args} --limit 2"));
    assert_eq!(
        parse_lines(&String::from_utf8(limited.stdout).unwrap()).len(),
        2
    );
    assert_eq!(skua.stop().seen(), sent.sum);
}

/// Of more conversations than there is memory for, those that are not kept are told.
#[test]
fn what_does_not_fit_into_the_history_is_counted() {
    if !root_tests() {
        return;
    }
    const FLOWS: u64 = 20_000;
    let wire = Wire::new();
    let file = Temporary::new("history.yaml", "history:\n  memory: 1MiB\n");
    let skua = Skua::run(
        &wire.near,
        &format!(
            "--interface x0 --max-entries 50000 --config {}",
            file.0.display()
        ),
    );
    let sender = Sender::open(&wire.far, "g0", SendMode::Bypass);
    let crowd = Crowd::new(66);
    let sent = sender.send(FLOWS, |n| crowd.frame(n as u32));
    let kept = skua.flows();
    let summary = skua.fresh_summary();
    let not_kept = summary.0["not_kept"].clone();
    assert!(!kept.is_empty());
    assert_eq!(summary.number("flows"), sent.sum.packets);
    assert_eq!(
        kept.len() as u64 + not_kept["flows"].as_u64().unwrap(),
        sent.sum.packets
    );
    assert_eq!(sum_of(&kept) + Sum::of(&not_kept), sent.sum);
    // What is counted does not depend on what is kept.
    let report = skua.stop();
    assert_eq!(report.in_flows(), sent.sum);
    assert_eq!(report.all_lost(), Sum::ZERO);
}

/// Metrics as (name, labels) → value.
fn metrics(text: &str) -> Vec<(String, HashMap<String, String>, f64)> {
    text.lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| {
            let (series, value) = line.rsplit_once(' ').unwrap();
            let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
            let labels = labels
                .trim_end_matches('}')
                .split(',')
                .filter_map(|label| label.split_once('='))
                .map(|(key, value)| (key.to_owned(), value.trim_matches('"').to_owned()))
                .collect();
            (name.to_owned(), labels, value.parse().unwrap())
        })
        .collect()
}

#[test]
fn metrics_are_the_sums_of_the_summary() {
    if !root_tests() {
        return;
    }
    let wire = Wire::new();
    let skua = Skua::run(&wire.near, "--interface x0 --max-entries 100");
    let there = Sender::open(&wire.far, "g0", SendMode::Bypass);
    let back = Sender::open(&wire.near, "x0", SendMode::Queue);
    skua.halt();
    there.send(300, |n| Flow::numbered(n as u32).frame(64));
    back.send(50, |n| Flow::numbered(n as u32).reversed().frame(70));
    there.repeat(10, &Flow::numbered(1).tagged(&[(0x8100, 5)], 84));
    skua.go_on();
    let summary = skua.fresh_summary();
    let values = metrics(&skua.get("/metrics"));
    let of = |name: &str, label: (&str, &str)| {
        let found: Vec<_> = values
            .iter()
            .filter(|(n, labels, _)| n == name && labels.get(label.0).is_some_and(|v| v == label.1))
            .collect();
        found.iter().map(|(_, _, value)| *value as u64).sum::<u64>()
    };
    let sum = |family: &str, label| {
        Sum::new(
            of(&format!("skua_{family}_packets_total"), label),
            of(&format!("skua_{family}_bytes_total"), label),
        )
    };
    let (ingress, egress) = summary.directions("x0");
    assert_eq!(sum("flow", ("direction", "ingress")), ingress);
    assert_eq!(sum("flow", ("direction", "egress")), egress);
    assert_eq!(sum("flow", ("interface", "x0")), summary.in_flows());
    let lost = summary.lost("table_full_udp");
    assert!(lost.packets >= 150, "{lost:?}");
    assert_eq!(sum("lost", ("cause", "table_full_udp")), lost);
    assert_eq!(sum("lost", ("interface", "x0")), summary.all_lost());
    assert_eq!(
        sum("noted", ("cause", "tag_bytes")),
        summary.note("tag_bytes")
    );
    assert_eq!(summary.note("tag_bytes"), Sum::new(10, 40));
    let single = |name: &str| values.iter().find(|(n, ..)| n == name).unwrap().2 as u64;
    assert_eq!(single("skua_flows_total"), summary.number("flows"));
    assert_eq!(
        Some(single("skua_table_max_entries")),
        summary.0["table"]["max_entries"].as_u64()
    );
    let report = skua.stop();
    assert_eq!(report.seen(), summary.seen());
}

/// A field of /proc/PID/status of a process, of all its threads together.
fn of_threads(pid: u32, field: &str) -> u64 {
    std::fs::read_dir(format!("/proc/{pid}/task"))
        .unwrap()
        .map(|task| std::fs::read_to_string(task.unwrap().path().join("status")).unwrap())
        .map(|status| field_of(&status, field))
        .sum()
}

fn field_of(status: &str, field: &str) -> u64 {
    status
        .lines()
        .find_map(|line| line.strip_prefix(field))
        .and_then(|rest| rest.split_whitespace().next())
        .unwrap()
        .parse()
        .unwrap()
}

/// Memory that belongs to the process alone, in KiB, without the pages of its file: of a debug build these say nothing, and
/// those with addresses count as its own once they are relocated.
fn own_memory(pid: u32) -> u64 {
    let program = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap();
    let program = program.to_str().unwrap();
    let (mut own, mut of_program) = (0, false);
    for line in std::fs::read_to_string(format!("/proc/{pid}/smaps"))
        .unwrap()
        .lines()
    {
        if let Some(size) = line.strip_prefix("Anonymous:") {
            let size: u64 = size.trim().trim_end_matches(" kB").parse().unwrap();
            own += if of_program { 0 } else { size };
        } else if !line.split(' ').next().unwrap().ends_with(':') {
            of_program = line.ends_with(program);
        }
    }
    own
}

#[test]
fn a_probe_without_work_rests() {
    if !root_tests() {
        return;
    }
    let wire = Wire::new();
    let mut command = skua::command(&wire.near);
    command
        .args(["run", "--interface", "x0", "--scan-interval", "1h"])
        .args(["--listen", "127.0.0.1:0", "--summary", "json"])
        // Those of other tests on this host would be work.
        .env("SKUA_SOCKETS_ENABLED", "false");
    let skua = Skua::run_command(&wire.near, &mut command);
    // Threads are still on their way to their first wait. What wakes up by itself never leaves 3 s in between.
    wait_for("rest", || {
        let before = of_threads(skua.pid(), "voluntary_ctxt_switches:");
        std::thread::sleep(Duration::from_secs(3));
        let after = of_threads(skua.pid(), "voluntary_ctxt_switches:");
        (after == before).then_some(())
    });
    let own = own_memory(skua.pid());
    eprintln!("memory of an idle probe: {own} KiB");
    assert!(own < 10 << 10, "{own} KiB");
    skua.stop();
}

/// SIGTERM is as good as Ctrl-C.
#[test]
fn terminated_by_its_supervisor_it_prints_its_summary() {
    if !root_tests() {
        return;
    }
    let wire = Wire::new();
    let skua = Skua::run(&wire.near, "--interface x0 --max-entries 1000");
    let sender = Sender::open(&wire.far, "g0", SendMode::Bypass);
    let sent = sender.repeat(10, &Flow::numbered(1).frame(64));
    skua.signal(Signal::TERM);
    assert_eq!(skua.ended().0.seen(), sent.sum);
}

#[test]
fn xdp_is_in_the_driver_or_says_that_it_is_generic() {
    if !root_tests() {
        return;
    }
    // A veth takes XDP programs for packets that fit into a page only.
    for (mtu, expected) in [(1500, "xdp"), (9000, "generic xdp")] {
        let wire = Wire::new();
        wire.far.ip(&format!("link set g0 mtu {mtu}"));
        wire.near.ip(&format!("link set x0 mtu {mtu}"));
        let skua = Skua::run(&wire.near, "--type xdp --interface x0 --max-entries 1000");
        let (report, errors) = skua.stop_with_errors();
        let interfaces = report.0["interfaces"].as_array().unwrap();
        assert_eq!(interfaces[0]["hook"], expected, "{errors}");
        let says = errors.contains("joined from segments");
        assert_eq!(says, expected != "xdp", "{errors}");
    }
}

/// Status 1 and nothing on standard output; gives back standard error: a warning, and the error.
fn refused_xdp(net: &Net, args: &str) -> String {
    let output = skua::output(net, args);
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{args}: {text}");
    assert!(output.stdout.is_empty(), "{args}");
    text.lines().last().unwrap_or_default().to_owned()
}

#[test]
fn where_another_xdp_program_is_it_is_named_and_nothing_runs() {
    if !root_tests() {
        return;
    }
    for mtu in [1500, 9000] {
        let wire = Wire::new();
        wire.far.ip(&format!("link set g0 mtu {mtu}"));
        wire.near.ip(&format!("link set x0 mtu {mtu}"));
        let first = Skua::run(&wire.near, "--type xdp --interface x0 --max-entries 1000");
        let text = refused_xdp(
            &wire.near,
            "run --type xdp --interface x0 --max-entries 1000 --listen 127.0.0.1:0",
        );
        assert!(text.contains("XDP program already (flow_xdp_"), "{text}");
        let text = refused_xdp(
            &wire.near,
            "flows --type xdp --interface x0 --max-entries 1000 --duration 1s",
        );
        assert!(text.contains("XDP program already (flow_xdp_"), "{text}");
        first.stop();
    }
}
