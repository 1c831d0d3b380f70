//! `skua steer` against a running `skua run`: packets of a channel that jumps arrive in another pod, and
//! only there; each packet arrives once, whatever comes and goes.

use std::{
    collections::BTreeMap,
    net::UdpSocket,
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use serde_json::Value;
use skua_kernel::{Attachment, Direction, HookKind, attached_tcx};

use crate::lab::{Net, Skua, packet::tagging_program, root_tests, skua, wait_for};

/// Sequence numbers that a pod has received.
struct Pod {
    net: Net,
    got: Arc<Mutex<Vec<u64>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Pod {
    fn new() -> Self {
        Self {
            net: Net::new(),
            got: Arc::default(),
            stop: Arc::default(),
            thread: None,
        }
    }

    /// Receives on a port from now on.
    fn listen(&mut self, port: u16) {
        let socket = self
            .net
            .inside(|| UdpSocket::bind(("0.0.0.0", port)).unwrap());
        socket
            .set_read_timeout(Some(Duration::from_millis(50)))
            .unwrap();
        let (got, stop) = (self.got.clone(), self.stop.clone());
        self.thread = Some(std::thread::spawn(move || {
            let mut buffer = [0; 256];
            while !stop.load(Ordering::Relaxed) {
                let Ok(length) = socket.recv(&mut buffer) else {
                    continue;
                };
                let text = std::str::from_utf8(&buffer[2..length]).unwrap();
                let number = text.split(';').nth(1).unwrap().parse().unwrap();
                got.lock().unwrap().push(number);
            }
        }));
    }

    fn count(&self) -> usize {
        self.got.lock().unwrap().len()
    }

    /// What came, in order of the numbers; then nothing has come.
    fn take(&self) -> Vec<u64> {
        let mut all = std::mem::take(&mut *self.got.lock().unwrap());
        all.sort_unstable();
        all
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A sender behind `gp0`, pod A behind `pa0`, which a bridge joins, and pod B behind `pb0`.
struct Host {
    sender: Net,
    host: Net,
    a: Pod,
    b: Pod,
    socket: Option<UdpSocket>,
    sent: u64,
    files: Vec<PathBuf>,
}

impl Drop for Host {
    fn drop(&mut self) {
        for file in &self.files {
            let _ = std::fs::remove_file(file);
        }
    }
}

const A: &str = "10.1.0.2:9000";

impl Host {
    fn new() -> Self {
        let mut host = Self {
            sender: Net::new(),
            host: Net::new(),
            a: Pod::new(),
            b: Pod::new(),
            socket: None,
            sent: 0,
            files: Vec::new(),
        };
        let net = &host.host;
        net.ip("link add br0 type bridge");
        net.ip("link set br0 up");
        for (near, far, peer, address) in [
            ("gp0", "g0", &host.sender, "10.1.0.1"),
            ("pa0", "va0", &host.a.net, "10.1.0.2"),
            ("pb0", "vb0", &host.b.net, "10.1.0.3"),
        ] {
            host.pair(near, far, peer, address);
        }
        for port in ["gp0", "pa0"] {
            net.ip(&format!("link set {port} master br0"));
        }
        // Nobody asks for addresses, so that only the test's packets are counted.
        host.sender
            .ip("neigh add 10.1.0.2 lladdr 02:00:00:00:00:02 dev g0 nud permanent");
        host.a.listen(9000);
        host.b.listen(9001);
        host.socket = Some(
            host.sender
                .inside(|| UdpSocket::bind("10.1.0.1:0").unwrap()),
        );
        host
    }

    fn pair(&self, near: &str, far: &str, peer: &Net, address: &str) {
        let last = address.rsplit('.').next().unwrap();
        self.host.ip(&format!(
            "link add {near} type veth peer name {far} address 02:00:00:00:00:0{last} netns {}",
            peer.name
        ));
        peer.ip(&format!("addr add {address}/24 dev {far}"));
        peer.ip(&format!("link set {far} up"));
        self.host.ip(&format!("link set {near} up"));
    }

    /// Sends a value of a channel; the packet's number.
    fn send(&mut self, channel: u16, value: f64) -> u64 {
        let number = self.sent;
        let text = format!("{value};{number}");
        let payload = [&channel.to_be_bytes()[..], text.as_bytes()].concat();
        self.socket.as_ref().unwrap().send_to(&payload, A).unwrap();
        self.sent += 1;
        // No queue on the way may fill up.
        if self.sent.is_multiple_of(50) {
            self.arrived();
        }
        number
    }

    /// Waits until everything has arrived somewhere that was sent since the pods were emptied.
    fn arrived(&self) {
        let (mut before, mut same) = (usize::MAX, 0);
        wait_for("end of the traffic", || {
            let now = self.a.count() + self.b.count();
            same = if now == before { same + 1 } else { 0 };
            before = now;
            // Twenty milliseconds each: long enough for what can still come.
            (same >= 2).then_some(())
        });
    }

    /// Takes what came, and checks that all numbers came, each once.
    fn all_once(&self, numbers: std::ops::Range<u64>) -> (Vec<u64>, Vec<u64>) {
        self.arrived();
        let (a, b) = (self.a.take(), self.b.take());
        let mut all = [a.as_slice(), b.as_slice()].concat();
        all.sort_unstable();
        assert_eq!(all, numbers.collect::<Vec<_>>(), "each once");
        (a, b)
    }

    fn file(&mut self, name: &str, text: &str) -> String {
        let path = std::env::temp_dir().join(format!("{}-{name}", self.host.name));
        std::fs::write(&path, text).unwrap();
        let name = path.to_str().unwrap().to_owned();
        self.files.push(path);
        name
    }

    fn ask(&self, skua: &Skua, args: &[&str]) -> Result<String, String> {
        let output = skua::command(&self.host)
            .args(args)
            .env("SKUA_ANALYZER", &skua.address)
            .output()
            .unwrap();
        match output.status.success() {
            true => Ok(String::from_utf8(output.stdout).unwrap()),
            false => Err(String::from_utf8(output.stderr).unwrap()),
        }
    }

    fn apply(&mut self, skua: &Skua, detector: &str) -> String {
        let file = self.file("detector.yaml", detector);
        self.ask(skua, &["steer", "apply", &file]).unwrap()
    }

    fn show(&self, skua: &Skua) -> Value {
        let text = self.ask(skua, &["steer", "show", "jumps"]).unwrap();
        serde_json::from_str(&text).unwrap()
    }

    fn wait_state(&self, skua: &Skua, state: &str) -> Value {
        wait_for(state, || {
            let view = self.show(skua);
            (view["State"] == state).then_some(view)
        })
    }

    fn deed(&self, skua: &Skua, name: &str) -> u64 {
        self.show(skua)["Counts"]["Deeds"][name].as_u64().unwrap()
    }
}

const JUMPS: &str = "\
name: jumps
preset: ewma-64
interface: gp0
match: udp dst port 9000
action:
  redirect: {to: pb0, address: 10.1.0.3, port: 9001}
";

/// Every packet behind the first fires.
const ALWAYS: &str = "\
name: jumps
preset: ewma-64
interface: gp0
match: udp dst port 9000
ring: 1
smoothing: 0
threshold: {shift: 63}
watchdog: {after: 500ms}
action:
  redirect: {to: pb0, address: 10.1.0.3, port: 9001}
";

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
        "skua_steer_fired_total{{detector=\"jumps\",became=\"acted\"}} {}",
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
                        env!("CARGO_BIN_EXE_skua"),
                        "steer",
                    ])
                    .args(action)
                    .env("SKUA_ANALYZER", &address)
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
fn packets_pass_while_the_target_is_gone() {
    if !root_tests() {
        return;
    }
    let mut host = Host::new();
    let skua = Skua::run(&host.host, "--interface gp0");
    host.apply(&skua, ALWAYS);
    host.send(1, 1.0);
    assert_eq!(host.all_once(0..1).0.len(), 1);
    let round = |host: &mut Host| {
        let before = host.sent;
        for value in 0..20u32 {
            host.send(1, f64::from(value % 2 + 5));
        }
        let (a, b) = host.all_once(before..before + 20);
        (a.len(), b.len())
    };
    assert_eq!(round(&mut host), (0, 20));
    // The other end goes down, and comes up.
    host.b.net.ip("link set vb0 down");
    let view = host.wait_state(&skua, "no target");
    assert!(
        view["Reason"].as_str().unwrap().contains("carrier"),
        "{view}"
    );
    assert_eq!(round(&mut host), (20, 0));
    assert_eq!(host.deed(&skua, "no_target"), 20);
    host.b.net.ip("link set vb0 up");
    host.wait_state(&skua, "active");
    assert_eq!(round(&mut host), (0, 20));
    // The pair is deleted, and there is another one of the same name.
    host.host.ip("link del pb0");
    let view = host.wait_state(&skua, "no target");
    assert!(
        view["Reason"].as_str().unwrap().contains("not there"),
        "{view}"
    );
    assert_eq!(round(&mut host), (20, 0));
    assert_eq!(host.deed(&skua, "no_target"), 40);
    let b = &host.b.net;
    host.pair("pb0", "vb0", b, "10.1.0.3");
    host.wait_state(&skua, "active");
    assert_eq!(round(&mut host), (0, 20));
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
    assert_eq!(round(&mut host), (0, 20));
}

#[test]
fn nothing_is_steered_by_who_is_halted_or_killed() {
    if !root_tests() {
        return;
    }
    let mut host = Host::new();
    let skua = Skua::run(&host.host, "--interface gp0");
    host.apply(&skua, ALWAYS);
    let round = |host: &mut Host| {
        let before = host.sent;
        for value in 0..20u32 {
            host.send(1, f64::from(value % 2 + 5));
        }
        let (a, b) = host.all_once(before..before + 20);
        (a.len(), b.len())
    };
    // The first fills the ring.
    assert_eq!(round(&mut host), (1, 19));
    skua.halt();
    wait_for("the watchdog", || {
        (round(&mut host) == (20, 0)).then_some(())
    });
    skua.go_on();
    wait_for("the detector again", || {
        (round(&mut host) == (0, 20)).then_some(())
    });
    assert!(host.deed(&skua, "unwatched") >= 20);
    let ifindex = host.host.ifindex("gp0");
    let attached = || {
        host.host
            .inside(|| attached_tcx(ifindex, Direction::Ingress).unwrap())
    };
    assert!(!attached().is_empty());
    skua.kill();
    wait_for("end of the links", || attached().is_empty().then_some(()));
    assert_eq!(round(&mut host), (20, 0));
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
fn the_policy_holds_against_everyone() {
    if !root_tests() {
        return;
    }
    let mut host = Host::new();
    let forbidden = host.file("forbidden.yaml", "policy: {steer: forbidden}\n");
    let skua = Skua::run(&host.host, &format!("--interface gp0 --config {forbidden}"));
    let file = host.file("detector.yaml", JUMPS);
    let refusal = host.ask(&skua, &["steer", "apply", &file]).unwrap_err();
    assert!(refusal.contains("policy.steer"), "{refusal}");
    assert_eq!(
        host.ask(&skua, &["steer", "list"]).unwrap(),
        "no detectors\n"
    );
    drop(skua);
    let both = format!("policy: {{steer: forbidden}}\nsteer: {{files: [{file}]}}\n");
    let both = host.file("both.yaml", &both);
    let output = skua::output(&host.host, &format!("run --config {both}"));
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("policy.steer forbids"), "{text}");
    // Declared and allowed: there from the start.
    let indented = JUMPS.replace('\n', "\n      ");
    let declared = format!("steer:\n  detectors:\n    - {}\n", indented.trim_end());
    let declared = host.file("declared.yaml", &declared);
    let skua = Skua::run(&host.host, &format!("--interface gp0 --config {declared}"));
    let view = host.wait_state(&skua, "active");
    assert_eq!(view["Who"], "the configuration");
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
    assert_eq!(host.deed(&skua, "reported"), 29);
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

/// A capture file of UDP datagrams to port 9000, a second apart.
fn capture(payloads: &[Vec<u8>]) -> Vec<u8> {
    // Magic number, version 2.4, 64 KiB of each packet, Ethernet.
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4u32, 4 << 16 | 2, 0, 0, 65_536, 1] {
        file.extend(word.to_le_bytes());
    }
    for (second, payload) in payloads.iter().enumerate() {
        let length = 42 + payload.len() as u32;
        for word in [second as u32, 0, length, length] {
            file.extend(word.to_le_bytes());
        }
        file.extend([2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0]);
        file.extend((length as u16 - 14).to_be_bytes());
        file.extend([0, 1, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        file.extend([4, 0, 0x23, 0x28]);
        file.extend((length as u16 - 34).to_be_bytes());
        file.extend([0, 0]);
        file.extend(payload);
    }
    file
}

#[test]
fn a_capture_file_shows_what_would_have_been_done() {
    let value = |text: &str| [&[0, 7], text.as_bytes()].concat();
    let mut payloads = vec![value("100.5"); 10];
    payloads.extend(["101", "900", "100", "no number", "1e99"].map(value));
    payloads.push(vec![0, 64, b'1']);
    let folder = std::env::temp_dir();
    let name = |end: &str| folder.join(format!("skua-steer-{}{end}", std::process::id()));
    let (pcap, yaml) = (name(".pcap"), name(".yaml"));
    std::fs::write(&pcap, capture(&payloads)).unwrap();
    std::fs::write(&yaml, JUMPS).unwrap();
    let run = |format: &str| {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_skua"))
            .args(["steer", "run", "--output", format])
            .arg(&yaml)
            .arg("--pcap")
            .arg(&pcap)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let (json, table) = (run("json"), run("table"));
    std::fs::remove_file(pcap).unwrap();
    std::fs::remove_file(yaml).unwrap();
    let lines = skua::parse_lines(&json);
    let events: Vec<_> = lines.iter().filter_map(|l| l["Event"].as_str()).collect();
    assert_eq!(events, ["fired", "released"], "{json}");
    assert_eq!(
        (&lines[0]["Time"], &lines[0]["Value"]),
        (&11_000_000_000u64.into(), &900.0.into())
    );
    let counts = &lines[2]["Counts"];
    assert_eq!(
        (&counts["matched"], &counts["sampled"], &counts["fired"]),
        (&16.into(), &13.into(), &1.into())
    );
    assert_eq!(counts["untouched"]["no_number"], 2);
    assert_eq!(counts["untouched"]["channel"], 1);
    assert!(
        table.contains("13 sampled on 1 channel, 1 would redirect"),
        "{table}"
    );
}
