//! `skua run --collector` and `skua collector`: sums at the end are those at the start less what is
//! counted as lost.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, ChildStderr, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::lab::{
    Net, Skua, Wire, net, root_tests,
    skua::{self, NO_HISTORY},
    wait_for,
};

/// Names of the addresses of [`Wire`].
const RANGES: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../host/networks/tests/files/ranges.csv"
);

/// A collector at 10.7.0.2 for senders of 10.7.0.0/24.
pub struct Collector {
    child: Child,
    err: BufReader<ChildStderr>,
}

impl Collector {
    pub fn start(net: &Net) -> Self {
        Self::start_at(net, "10.7.0.2:6343", &[])
    }

    pub fn start_at(net: &Net, address: &str, more: &[&str]) -> Self {
        let mut child = skua::command(net)
            .args(["collector", "--listen", address])
            .args(["--allow", "10.7.0.0/24"])
            .args(["--summary", "json", "--metrics", "none"])
            .args(
                &["--window", "1s", "--wait", "5m"]
                    [..if more.contains(&"--window") { 0 } else { 4 }],
            )
            .args(more)
            .env("SKUA_NETWORKS_RANGES", RANGES)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut err = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        err.read_line(&mut line).unwrap();
        assert!(line.contains(address), "{line}");
        Self { child, err }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ctrl-C: its lines and its summary.
    pub fn stop(mut self) -> (Vec<Value>, Value) {
        let pid = Pid::from_raw(self.child.id() as i32).unwrap();
        kill_process(pid, Signal::INT).unwrap();
        let (mut out, mut summary) = (String::new(), String::new());
        let mut stdout = self.child.stdout.take().unwrap();
        // One may be the full pipe that the other waits for.
        std::thread::scope(|scope| {
            scope.spawn(|| stdout.read_to_string(&mut out).unwrap());
            self.err.read_to_string(&mut summary).unwrap();
        });
        assert!(self.child.wait().unwrap().success(), "{summary}");
        let summary = serde_json::from_str(summary.lines().last().unwrap()).unwrap();
        (skua::parse_lines(&out), summary)
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        // Ended already, mostly.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn agent(net: &Net, interface: &str) -> Skua {
    let arguments = format!(
        "--interface {interface} --scan-interval 200ms --exclude-self --collector 10.7.0.2:6343"
    );
    Skua::run(net, &arguments)
}

/// What an agent says of its collector.
fn export(skua: &Skua) -> Value {
    let status: Value = serde_json::from_str(&skua.get("/api/status")).unwrap();
    status["export"][0].clone()
}

/// Connections from the far end to a port of the near one, each with so many bytes.
pub fn connections(wire: &Wire, port: u16, count: usize) {
    let listener = wire
        .near
        .inside(|| TcpListener::bind(("10.7.0.2", port)).unwrap());
    let server = std::thread::spawn(move || {
        for _ in 0..count {
            let (mut stream, _) = listener.accept().unwrap();
            let mut all = Vec::new();
            stream.read_to_end(&mut all).unwrap();
        }
    });
    wire.far.inside(|| {
        for _ in 0..count {
            let mut stream = TcpStream::connect(("10.7.0.2", port)).unwrap();
            stream.write_all(&[7; 2_000]).unwrap();
        }
    });
    server.join().unwrap();
}

pub fn sum(value: &Value) -> (u64, u64) {
    let number = |name: &str| value[name].as_u64().unwrap();
    (number("packets"), number("bytes"))
}

/// Packets and bytes of lines, both ways.
pub fn sum_of<'a>(lines: impl IntoIterator<Item = &'a Value>) -> (u64, u64) {
    lines
        .into_iter()
        .flat_map(|line| [&line["client_sent"], &line["server_sent"]])
        .map(sum)
        .fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1))
}

#[test]
fn what_both_hosts_tell_is_counted_once_and_nothing_is_missing() {
    if !root_tests() {
        return;
    }
    let wire = Wire::new().with_addresses();
    let collector = Collector::start(&wire.near);
    let (far, near) = (agent(&wire.far, "g0"), agent(&wire.near, "x0"));
    far.wait_attached("g0");
    near.wait_attached("x0");
    connections(&wire, 8_080, 40);
    let (far_seen, near_seen) = (far.stop(), near.stop());
    let (lines, summary) = collector.stop();
    let started = far_seen.in_flows() + near_seen.in_flows();
    // ARP and the collector's datagrams at the near end aside, all of it is IP.
    let told = sum(&summary["exported"]);
    assert!(told.0 <= started.packets, "{summary}");
    assert_eq!(sum(&summary["got"]), told, "{summary}");
    assert_eq!(sum(&summary["missing"]), (0, 0), "{summary}");
    assert_eq!(summary["lost"], serde_json::json!({}), "{summary}");
    assert_eq!(sum_of(&lines), sum(&summary["counted"]));
    let (counted, elsewhere) = (sum(&summary["counted"]), sum(&summary["elsewhere"]));
    assert_eq!((counted.0 + elsewhere.0, counted.1 + elsewhere.1), told);
    // The service: each connection once, with all its packets, as both ends counted them.
    let service: Vec<_> = lines.iter().filter(|line| line["port"] == 8_080).collect();
    let all = |name: &str| -> u64 {
        service
            .iter()
            .map(|line| line[name].as_u64().unwrap())
            .sum()
    };
    assert_eq!((all("begun"), all("joined")), (40, 40), "{lines:?}");
    assert!(service.iter().all(|line| line["client"] == "10.7.0.1"));
    assert!(service.iter().all(|line| line["server"] == "10.7.0.2"));
    for side in ["client_network", "server_network"] {
        assert!(service.iter().all(|line| line[side] == "the wire"));
    }
    assert!(service.iter().any(|line| line["service_by"] == "kernel"));
    assert_eq!(sum_of(service.iter().copied()).0, elsewhere.0);
    for line in service {
        let between = &line["between_hosts"];
        for side in ["client", "server"] {
            assert_eq!(between[format!("{side}_packets")], 0);
            assert_eq!(between[format!("{side}_bytes")], 0);
        }
    }
}

/// What an agent says of the second of its collectors.
fn second_is_up(skua: &Skua) -> bool {
    let status: Value = serde_json::from_str(&skua.get("/api/status")).unwrap();
    status["export"][1]["up"].as_bool().unwrap()
}

/// Packets of a port in lines.
fn packets_of(lines: &[Value], port: u16) -> u64 {
    sum_of(lines.iter().filter(|line| line["port"] == port)).0
}

#[test]
fn the_part_of_a_collector_that_is_gone_goes_to_the_other_and_comes_back() {
    if !root_tests() {
        return;
    }
    let wire = Wire::new().with_addresses();
    // Several threads, and what they tell apart.
    let first = Collector::start_at(&wire.near, "10.7.0.2:6343", &["--threads", "2"]);
    let second = Collector::start_at(&wire.near, "10.7.0.2:6344", &[]);
    let far = Skua::run(
        &wire.far,
        "--interface g0 --scan-interval 200ms --exclude-self --collector 10.7.0.2:6343,10.7.0.2:6344",
    );
    far.wait_attached("g0");
    connections(&wire, 8_080, 40);
    // That all of it is told a later drain shows.
    let told = |port: u16, count: usize| {
        wait_for("flows that have ended and were told", || {
            let flows = far.flows();
            let ended = flows
                .iter()
                .filter(|flow| flow["b"]["port"] == port && flow["tcp"]["state"] == "closed");
            (ended.count() == count).then_some(())
        });
        let datagrams = || export(&far)["datagrams"].as_u64().unwrap();
        let before = datagrams();
        wait_for("datagrams after that", || {
            (datagrams() > before + 1).then_some(())
        });
    };
    told(8_080, 40);
    let (lines, _) = second.stop();
    let second_had = packets_of(&lines, 8_080);
    assert!(second_had > 0, "{lines:?}");
    wait_for("the second to be known as gone", || {
        (!second_is_up(&far)).then_some(())
    });
    connections(&wire, 8_081, 40);
    told(8_081, 40);
    let second = Collector::start_at(&wire.near, "10.7.0.2:6344", &[]);
    wait_for("the second to be known as back", || {
        second_is_up(&far).then_some(())
    });
    connections(&wire, 8_082, 40);
    told(8_082, 40);
    let flows = far.flows();
    far.stop();
    let ((first_lines, summary), (second_lines, _)) = (first.stop(), second.stop());
    let seen = |port: u16| -> u64 {
        let of_port = flows.iter().filter(|flow| flow["b"]["port"] == port);
        of_port
            .map(|flow| {
                flow["ab"]["packets"].as_u64().unwrap() + flow["ba"]["packets"].as_u64().unwrap()
            })
            .sum()
    };
    let packets = [8_080, 8_081, 8_082].map(|port| {
        (
            packets_of(&first_lines, port),
            packets_of(&second_lines, port),
        )
    });
    assert_eq!(packets[0].0 + second_had, seen(8_080), "{packets:?}");
    assert_eq!(packets[1], (seen(8_081), 0), "{summary}");
    assert_eq!(packets[2].0 + packets[2].1, seen(8_082), "{packets:?}");
    assert!(packets[2].1 > 0, "{packets:?}");
}

/// Runs `skua run` at the far end, for which the name `collectors.test` means what a file says.
fn with_hosts(net: &Net, hosts: &Path, more: &[&str]) -> Skua {
    let script = r#"mount --make-rprivate / && mount --bind "$1" /etc/hosts && shift && exec "$@""#;
    let mut command = net.command("unshare");
    command
        .args(["--mount", "--", "sh", "-c", script, "own"])
        .arg(hosts)
        .arg(skua_testkit::program!())
        .args(["run", "--listen", "127.0.0.1:0", "--summary", "json"])
        .args([
            "--interface",
            "g0",
            "--scan-interval",
            "200ms",
            "--exclude-self",
        ])
        .args(["--collector", "collectors.test:6343"])
        .args(more)
        .env("SKUA_CONFIG", "/dev/null")
        .env("SKUA_EXPORT_LOOK_UP", "1s")
        .env(NO_HISTORY.0, NO_HISTORY.1);
    Skua::run_command(net, &mut command)
}

#[test]
fn collectors_that_come_go_and_move_in_the_dns_are_told_without_a_restart() {
    if !root_tests() {
        return;
    }
    let wire = Wire::new().with_addresses();
    for address in ["10.7.0.3/24", "10.7.0.4/24"] {
        wire.near.ip(&format!("address add {address} dev x0"));
    }
    let name = format!("skua-hosts-{}", std::process::id());
    let hosts = Removed(std::env::temp_dir().join(name));
    // In place: what is mounted is this file.
    let mean = |addresses: &[&str]| {
        let lines = addresses
            .iter()
            .map(|one| format!("{one} collectors.test\n"));
        std::fs::write(&hosts.0, lines.collect::<String>()).unwrap();
    };
    // Nobody at first: an agent begins nevertheless.
    mean(&[]);
    let at = |address| Collector::start_at(&wire.near, address, &[]);
    let collectors = ["10.7.0.2:6343", "10.7.0.3:6343", "10.7.0.4:6343"].map(at);
    let far = with_hosts(&wire.far, &hosts.0, &[]);
    far.wait_attached("g0");
    let status: Value = serde_json::from_str(&far.get("/api/status")).unwrap();
    assert_eq!(status["export"][0]["collector"], "collectors.test:6343");
    assert!(status["export"][0]["address"].is_null(), "{status}");
    let told_now = || -> Vec<String> {
        let status: Value = serde_json::from_str(&far.get("/api/status")).unwrap();
        let all = status["export"].as_array().unwrap().iter();
        let there = all.filter(|one| one["left"] != true && !one["address"].is_null());
        let mut there: Vec<_> = there
            .map(|one| one["address"].as_str().unwrap().to_owned())
            .collect();
        there.sort();
        there
    };
    mean(&["10.7.0.2"]);
    wait_for("the first collector", || {
        (told_now() == ["10.7.0.2:6343"]).then_some(())
    });
    // One that goes on all the time.
    let listener = wire
        .near
        .inside(|| TcpListener::bind(("10.7.0.2", 9_000)).unwrap());
    let mut stays = wire
        .far
        .inside(|| TcpStream::connect(("10.7.0.2", 9_000)).unwrap());
    let (mut peer, _) = listener.accept().unwrap();
    let mut phase = |port: u16, addresses: &[&str], expected: &[&str]| {
        mean(addresses);
        wait_for("the collectors of the name", || {
            (told_now() == expected).then_some(())
        });
        connections(&wire, port, 40);
        stays.write_all(&[7; 5_000]).unwrap();
        peer.read_exact(&mut [0; 5_000]).unwrap();
        wait_for("flows that have ended", || {
            let flows = far.flows();
            let ended = flows
                .iter()
                .filter(|flow| flow["b"]["port"] == port && flow["tcp"]["state"] == "closed");
            (ended.count() == 40).then_some(())
        });
    };
    phase(8_080, &["10.7.0.2"], &["10.7.0.2:6343"]);
    phase(
        8_081,
        &["10.7.0.3", "10.7.0.2"],
        &["10.7.0.2:6343", "10.7.0.3:6343"],
    );
    phase(8_082, &["10.7.0.3"], &["10.7.0.3:6343"]);
    phase(8_083, &["10.7.0.4"], &["10.7.0.4:6343"]);
    // A name that nobody knows for a time changes nothing.
    phase(8_084, &[], &["10.7.0.4:6343"]);
    let flows = far.flows();
    far.stop();
    let lines = collectors.map(|collector| collector.stop().0);
    let seen = |port: u16| -> u64 {
        let of_port = flows.iter().filter(|flow| flow["b"]["port"] == port);
        of_port
            .map(|flow| {
                flow["ab"]["packets"].as_u64().unwrap() + flow["ba"]["packets"].as_u64().unwrap()
            })
            .sum()
    };
    let had = |port| lines.each_ref().map(|lines| packets_of(lines, port));
    assert_eq!(had(8_080), [seen(8_080), 0, 0]);
    let [one, two, _] = had(8_081);
    assert!(
        one > 0 && two > 0 && one + two == seen(8_081),
        "{one} {two}"
    );
    assert_eq!(had(8_082), [0, seen(8_082), 0]);
    assert_eq!(had(8_083), [0, 0, seen(8_083)]);
    assert_eq!(had(8_084), [0, 0, seen(8_084)]);
    // Each packet of what went on is in one line, whoever was told.
    let stayed = had(9_000);
    assert_eq!(stayed.iter().sum::<u64>(), seen(9_000), "{stayed:?}");
    assert!(
        stayed[0] > 0 && stayed[1] > 0 && stayed[2] > 0,
        "{stayed:?}"
    );
}

#[test]
fn with_keys_a_collector_believes_only_who_has_one() {
    use std::os::unix::fs::PermissionsExt as _;
    if !root_tests() {
        return;
    }
    let wire = Wire::new().with_addresses();
    let secrets = ["0", "1", "2"].map(|digit| digit.repeat(64));
    let file = |name: &str, lines: &[(&str, &String)]| {
        let name = format!("skua-{name}-{}", std::process::id());
        let file = Removed(std::env::temp_dir().join(name));
        let lines = lines
            .iter()
            .map(|(name, secret)| format!("{name} {secret}\n"));
        std::fs::write(&file.0, lines.collect::<String>()).unwrap();
        let mode = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(&file.0, mode).unwrap();
        file
    };
    let known = file("known", &[("fleet", &secrets[0]), ("next", &secrets[1])]);
    let (good, bad) = (
        file("good", &[("fleet", &secrets[0])]),
        file("bad", &[("fleet", &secrets[2])]),
    );
    let keys = ["--keys", known.0.to_str().unwrap()];
    let collector = Collector::start_at(&wire.near, "10.7.0.2:6343", &keys);
    let run = |net: &Net, interface: &str, key: Option<&Removed>| {
        let mut command = skua::command(net);
        command
            .args(["run", "--listen", "127.0.0.1:0", "--summary", "json"])
            .args(["--interface", interface, "--scan-interval", "200ms"])
            .args(["--exclude-self", "--collector", "10.7.0.2:6343"])
            .env("SKUA_LOG", "info");
        if let Some(key) = key {
            command.env("SKUA_EXPORT_KEY_FILE", &key.0);
        }
        Skua::run_command(net, &mut command)
    };
    let far = run(&wire.far, "g0", Some(&good));
    let (near, plain) = (
        run(&wire.near, "x0", Some(&bad)),
        run(&wire.near, "x0", None),
    );
    far.wait_attached("g0");
    near.wait_attached("x0");
    plain.wait_attached("x0");
    connections(&wire, 8_080, 20);
    wait_for("an answer, which is sealed as well", || {
        (export(&far)["answers"] == true).then_some(())
    });
    // Another key, while both go on.
    std::fs::write(&good.0, format!("next {}\n", secrets[1])).unwrap();
    // What is sent a second after the last look at the file has one before.
    std::thread::sleep(std::time::Duration::from_millis(1_100));
    connections(&wire, 8_081, 20);
    assert_eq!(export(&near)["answers"], false);
    let (report, said) = far.stop_with_errors();
    assert!(said.contains("export.key_file read again"), "{said}");
    let seen = report.in_flows();
    near.stop();
    plain.stop();
    let (lines, summary) = collector.stop();
    assert_eq!(summary["agents"].as_array().unwrap().len(), 1, "{summary}");
    assert_eq!(summary["agents"][0]["agent"], "10.7.0.1");
    assert_eq!(sum(&summary["missing"]), (0, 0), "{summary}");
    for port in [8_080, 8_081] {
        let begun = lines.iter().filter(|line| line["port"] == port);
        let begun: u64 = begun.map(|line| line["begun"].as_u64().unwrap()).sum();
        assert_eq!(begun, 20, "{lines:?}");
    }
    assert!(sum(&summary["counted"]).0 <= seen.packets);
    let lost = |cause: &str| summary["lost"][cause].as_u64().unwrap_or(0);
    assert!(
        lost("seal_wrong") > 0 && lost("seal_missing") > 0,
        "{summary}"
    );
    assert_eq!(summary["strangers"][0]["from"], "10.7.0.2", "{summary}");
}

/// A file that is removed when dropped.
struct Removed(PathBuf);

impl Drop for Removed {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn who_depends_on_whom_is_known_on_the_host_and_from_a_collector() {
    if !root_tests() {
        return;
    }
    let wire = Wire::new().with_addresses();
    // Knows nothing itself; a collector brings it lines.
    let mut command = skua::command(&wire.near);
    command
        .args(["run", "--listen", "127.0.0.1:0", "--summary", "json"])
        .args(["--interface", "lo"])
        .env("SKUA_SOCKETS_GRAPH", "0");
    let analyzer = Skua::run_command(&wire.near, &mut command);
    let sink = format!("analyzer://{}", analyzer.address);
    let collector = Collector::start_at(
        &wire.near,
        "10.7.0.2:6343",
        &["--sink", &sink, "--wait", "1s", "--window", "1s"],
    );
    let far = agent(&wire.far, "g0");
    far.wait_attached("g0");
    connections(&wire, 8_080, 20);
    let edges = |skua: &Skua| skua::parse_lines(&skua.get("/api/services/graph?port=8080"));
    for (who, skua) in [("the host itself", &far), ("the collector", &analyzer)] {
        let edge = wait_for("all connections in the graph", || {
            let found = edges(skua);
            let whole = found.len() == 1 && found[0]["ended"] == 20;
            whole.then(|| found[0].clone())
        });
        // The test is client and server; both know it by its name.
        let name = &edge["client"]["service"];
        assert!(
            name.is_string() && *name == edge["server"]["service"],
            "{who}: {edge}"
        );
        assert_eq!(
            (&edge["connections"], &edge["protocol"]),
            (&20.into(), &6.into())
        );
        let flows = far.flows();
        let of_port = flows.iter().filter(|flow| flow["b"]["port"] == 8_080);
        let bytes = |way: &str| -> u64 {
            of_port
                .clone()
                .map(|flow| flow[way]["bytes"].as_u64().unwrap())
                .sum()
        };
        assert_eq!(edge["client_sent"]["bytes"], bytes("ab"), "{who}");
        assert_eq!(edge["server_sent"]["bytes"], bytes("ba"), "{who}");
        assert!(
            edge["rtt"]["p95_us"].as_u64() >= edge["rtt"]["p50_us"].as_u64(),
            "{edge}"
        );
        assert!(edge["rtt"]["count"].as_u64() >= Some(20), "{edge}");
    }
    let show = |format: &str| {
        let line = format!(
            "services --graph --output {format} --analyzer {}",
            far.address
        );
        let shown = skua::output(&wire.far, &line);
        assert!(
            shown.status.success(),
            "{}",
            String::from_utf8_lossy(&shown.stderr)
        );
        String::from_utf8(shown.stdout).unwrap()
    };
    assert!(show("table").contains("8080"));
    assert!(show("csv").lines().count() > 1);
    let dot = show("dot");
    assert!(
        dot.starts_with("digraph services {") && dot.contains("tcp 8080"),
        "{dot}"
    );
    far.stop();
    let (_, summary) = collector.stop();
    assert_eq!(summary["lost"], serde_json::json!({}), "{summary}");
    analyzer.stop();
}

/// Datagrams that nftables dropped.
fn dropped(net: &Net) -> u64 {
    let text = net.exec("nft -j list counter ip skua lost");
    let found: Value = serde_json::from_str(&text).unwrap();
    let list = found["nftables"].as_array().unwrap();
    let counter = list.iter().find_map(|item| item.get("counter")).unwrap();
    counter["packets"].as_u64().unwrap()
}

#[test]
fn datagrams_that_are_dropped_on_the_way_are_told_exactly() {
    if !root_tests() {
        return;
    }
    let wire = Wire::new().with_addresses();
    let collector = Collector::start(&wire.near);
    let mut command = skua::command(&wire.far);
    // Conversations that have ended are soon not told of any more: what is lost then stays lost.
    command
        .args(["run", "--listen", "127.0.0.1:0", "--summary", "json"])
        .args([
            "--interface",
            "g0",
            "--scan-interval",
            "200ms",
            "--exclude-self",
        ])
        .args(["--collector", "10.7.0.2:6343"])
        .env("SKUA_FLOW_CLOSED_TIMEOUT", "100ms");
    let far = Skua::run_command(&wire.far, &mut command);
    far.wait_attached("g0");
    // The first datagram comes: before it nobody can know what was sent.
    connections(&wire, 8_080, 1);
    wait_for("the first datagram", || {
        let told = export(&far)["records"].as_u64().unwrap();
        (told > 0).then_some(())
    });
    // Each second one is dropped where it comes in.
    let rules = "add table ip skua\n\
         add counter ip skua lost\n\
         add chain ip skua in { type filter hook input priority 0; }\n\
         add rule ip skua in udp dport 6343 numgen inc mod 2 0 counter name lost drop\n";
    let mut nft = wire
        .near
        .command("nft")
        .args(["-f", "-"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    nft.stdin
        .take()
        .unwrap()
        .write_all(rules.as_bytes())
        .unwrap();
    assert!(nft.wait().unwrap().success());
    wait_for("datagrams that are dropped", || {
        connections(&wire, 8_081, 30);
        (dropped(&wire.near) >= 20).then_some(())
    });
    // No conversation is told of when that is over.
    wait_for("the end of all connections", || {
        let flows = far.flows();
        flows
            .iter()
            .all(|flow| !flow["end"].is_null())
            .then_some(())
    });
    net::run(
        wire.near
            .command("nft")
            .args(["flush", "chain", "ip", "skua", "in"]),
    );
    // Something that comes says what was told before.
    let before = export(&far)["datagrams"].as_u64().unwrap();
    wait_for("another datagram", || {
        (export(&far)["datagrams"].as_u64().unwrap() > before + 1).then_some(())
    });
    let lost = dropped(&wire.near);
    let seen = far.stop();
    let (lines, summary) = collector.stop();
    assert_eq!(summary["lost"]["sequence_gap"], lost, "{summary}");
    let agent = &summary["agents"][0];
    assert_eq!(agent["lost_datagrams"], lost, "{summary}");
    assert!(agent["lost_records"].as_u64().unwrap() > 0, "{summary}");
    // Sums at the end are those at the start less exactly what is missing.
    let (told, missing) = (sum(&summary["exported"]), sum(&summary["missing"]));
    let got = sum(&summary["got"]);
    assert_eq!((got.0 + missing.0, got.1 + missing.1), told, "{summary}");
    assert!(missing.0 > 0, "{summary}");
    assert_eq!(sum_of(&lines), got, "{summary}");
    let flows = seen.in_flows();
    assert_eq!(told, (flows.packets, flows.bytes), "{summary}");
}

/// Drops all datagrams to the collector where they come in, without ICMP; or no longer.
fn hide(net: &Net, hidden: bool) {
    let rules = match hidden {
        true => {
            "add table ip wall; add chain ip wall in { type filter hook input priority 0; }; \
             add rule ip wall in udp dport 6343 drop"
        }
        false => "delete table ip wall",
    };
    net::run(net.command("nft").arg(rules));
}

#[test]
fn a_collector_that_falls_silent_without_icmp_is_missed_and_told_later_from_disk() {
    if !root_tests() {
        return;
    }
    let wire = Wire::new().with_addresses();
    let collector = Collector::start(&wire.near);
    let folder = std::env::temp_dir().join(format!("skua-live-spool-{}", std::process::id()));
    let far = Skua::run(
        &wire.far,
        &format!(
            "--interface g0 --scan-interval 200ms --exclude-self --collector 10.7.0.2:6343 --spool {}",
            folder.display()
        ),
    );
    far.wait_attached("g0");
    connections(&wire, 8_080, 5);
    wait_for("an answer", || {
        let status = export(&far);
        (status["answers"] == true && status["up"] == true).then_some(())
    });
    hide(&wire.near, true);
    connections(&wire, 8_081, 20);
    wait_for("the collector to be missed, and datagrams on disk", || {
        let status = export(&far);
        let kept = status["spool"]["datagrams"].as_u64().unwrap();
        (status["up"] == false && kept > 10).then_some(())
    });
    connections(&wire, 8_082, 20);
    wait_for("the end of all connections", || {
        let flows = far.flows();
        let open = |flow: &Value| flow["b"]["port"] == 8_082 && flow["end"].is_null();
        (flows.iter().any(|flow| flow["b"]["port"] == 8_082) && !flows.iter().any(open))
            .then_some(())
    });
    hide(&wire.near, false);
    wait_for("all that was on disk to be sent", || {
        let status = export(&far);
        (status["up"] == true && status["spool"]["datagrams"] == 0).then_some(())
    });
    let lost = export(&far)["lost"].clone();
    let seen = far.stop();
    let (lines, summary) = collector.stop();
    // Whoever cleans up must not hide what went wrong.
    let _ = std::fs::remove_dir_all(folder);
    assert!(
        lost.as_object().unwrap().values().all(|count| count == 0),
        "{lost}"
    );
    assert_eq!(summary["lost"], serde_json::json!({}), "{summary}");
    assert_eq!(sum(&summary["missing"]), (0, 0), "{summary}");
    assert!(
        summary["kept_datagrams"].as_u64().unwrap() > 10,
        "{summary}"
    );
    let flows = seen.in_flows();
    assert_eq!(sum(&summary["exported"]), (flows.packets, flows.bytes));
    assert_eq!(sum_of(&lines), (flows.packets, flows.bytes), "{summary}");
}

#[test]
fn a_far_address_needs_a_list_of_who_may_send() {
    if !root_tests() {
        return;
    }
    let net = Net::new();
    let refused = skua::output(&net, "collector --listen 10.7.0.2:6343");
    assert!(!refused.status.success());
    let err = String::from_utf8(refused.stderr).unwrap();
    assert!(err.contains("--allow"), "{err}");
}
