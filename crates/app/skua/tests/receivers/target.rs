//! A capture's flows as NetFlow 5, received by a capture of our own and by nfcapd.

use std::{fs, process::Command, time::Duration};

use rustix::process::Signal;
use serde_json::{Value, json};
use skua_testkit::{
    lab::root_tests,
    process::{Process, Tcpdump},
};

use crate::{
    switch::Switch,
    truth::{Knows, Skua, Talk, command, recording, send, wait},
};

const ON_LINK: &str = "G.V().Has('Name', 'p1', 'Type', 'veth')";

/// Makes a capture that also goes elsewhere.
fn sending(skua: &Skua<'_>, port: &Value, more: &[&str]) -> String {
    let target = format!("127.0.0.1:{port}");
    let mut all = vec!["capture", "create", "--gremlin", ON_LINK];
    all.extend(["--target", &target, "--target-type", "NetFlowV5"]);
    all.extend(["--pollinginterval", "1"]);
    all.extend(more);
    let made: Value = serde_json::from_slice(&skua.ask(&all)).unwrap();
    made["UUID"].as_str().unwrap().to_owned()
}

/// What happened to what a capture sent, by the status.
fn sent(skua: &Skua<'_>, id: &str) -> Value {
    let status = skua.status();
    let captures = status["captures"].as_array().unwrap();
    let of = captures.iter().find(|capture| capture["uuid"] == id);
    of.unwrap()["target"].clone()
}

/// Without link headers, as NetFlow has it.
fn ip(talk: Talk) -> Talk {
    let header = |name: &str| if name.contains("43000") { 18 } else { 14 };
    let of = |(name, (packets, bytes)): (String, (u64, u64))| {
        let bytes = bytes - packets * header(&name);
        (name, (packets, bytes))
    };
    talk.into_iter().map(of).collect()
}

/// nfcapd on a free port, which writes to a folder.
struct Nfcapd {
    process: Process,
    port: Value,
}

impl Nfcapd {
    fn start(switch: &Switch) -> Option<Self> {
        Command::new("nfcapd").arg("-V").output().ok()?;
        let free = || {
            std::net::UdpSocket::bind("127.0.0.1:0")
                .unwrap()
                .local_addr()
                .unwrap()
                .port()
        };
        let port = switch.net.inside(free);
        let folder = switch.path("nfcapd");
        fs::create_dir(&folder).unwrap();
        let mut nfcapd = command(switch, "nfcapd");
        nfcapd.args(["-w", &folder, "-p", &port.to_string()]);
        nfcapd.args(["-b", "127.0.0.1", "-t", "3600"]);
        let process = Process::start(&mut nfcapd);
        let bound = format!("127.0.0.1:{port}");
        wait("nfcapd", || {
            let sockets = switch.net.exec("ss -Hlnu");
            sockets.contains(&bound).then_some(()).ok_or(json!(sockets))
        });
        Some(Self {
            process,
            port: json!(port),
        })
    }

    /// Ends it: packets and bytes of the recording's addresses that it has seen.
    fn sum(mut self, switch: &Switch) -> (u64, u64) {
        self.process.end(Signal::TERM);
        let output = Command::new("nfdump")
            .args([
                "-R",
                &switch.path("nfcapd"),
                "-q",
                "-N",
                "-o",
                "fmt:%pkt %byt",
                "net 10.99.0.0/16",
            ])
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let number = |text: &str| text.parse::<u64>().unwrap();
        text.lines().fold((0, 0), |sum, line| {
            let mut words = line.split_whitespace();
            let mut next = || number(words.next().unwrap());
            (sum.0 + next(), sum.1 + next())
        })
    }
}

#[test]
fn flows_are_sent_as_netflow_5() {
    if !root_tests() {
        return;
    }
    let switch = Switch::new("target");
    let skua = Skua::run(&switch);
    let collector = skua.create("netflow", "G.V().Has('Type', 'host')");
    let port = skua.active(&collector)["Port"].clone();
    let capture = sending(&skua, &port, &[]);
    skua.active(&capture);
    let nfcapd = Nfcapd::start(&switch);
    let other = nfcapd.as_ref().map(|nfcapd| {
        let id = sending(&skua, &nfcapd.port, &["--type", "afpacket"]);
        skua.active(&id);
        id
    });
    // Nobody is there.
    let lonely = sending(&skua, &json!(9), &["--type", "pcap"]);
    skua.active(&lonely);

    let frames = recording();
    let uploaded = skua.upload(&crate::truth::file(&frames));
    let truth = ip(skua.talk(uploaded["UUID"].as_str().unwrap(), Knows::Netflow5));
    // Twice, so that conversations that go on are told of more than once.
    let twice =
        |(name, (packets, bytes)): (&String, &(u64, u64))| (name.clone(), (2 * packets, 2 * bytes));
    let twice: Talk = truth.iter().map(twice).collect();
    for truth in [&truth, &twice] {
        send(&switch, &frames);
        wait("the collector's flows", || {
            let seen = skua.talk(&collector, Knows::Netflow5);
            let ours = seen.into_iter().filter(|(name, _)| name.contains("10.99."));
            let ours: Talk = ours.collect();
            let found = json!({"seen": ours, "truth": truth});
            (ours == *truth).then_some(()).ok_or(found)
        });
    }
    let told = sent(&skua, &capture);
    assert!(
        told["records"].as_u64() >= Some(twice.len() as u64 * 2),
        "{told}"
    );
    assert!(told["left_out"]["not_ipv4"].as_u64() >= Some(3), "{told}");
    assert_eq!(told["lost"]["send_failed"], 0);
    // Numbers and uptimes fit together: the receiver found no gap.
    let status = skua.status();
    let captures = status["captures"].as_array().unwrap();
    let of = captures.iter().find(|c| c["uuid"] == *collector).unwrap();
    assert_eq!(of["lost"], json!({}), "{of:#}");

    if let (Some(nfcapd), Some(other)) = (nfcapd, other) {
        // What is left is told when the capture ends.
        skua.ask(&["capture", "delete", &other]);
        let sum = twice
            .values()
            .fold((0, 0), |sum, of| (sum.0 + of.0, sum.1 + of.1));
        assert_eq!(nfcapd.sum(&switch), sum);
    } else {
        skua_testkit::untested("nfcapd", "what nfcapd reads of NetFlow: it is not here");
    }
    // What the host of a target refuses, because nobody is there, is counted.
    wait("refusals", || {
        let told = sent(&skua, &lonely);
        let lost = told["lost"]["send_failed"].as_u64() > Some(0);
        lost.then_some(()).ok_or(told)
    });
}

#[test]
fn packets_are_sent_as_erspan() {
    if !root_tests() {
        return;
    }
    let switch = Switch::new("erspan");
    let skua = Skua::run(&switch);
    // A collector is what hears GRE on loopback.
    let mut collector = Tcpdump::start(&switch.net, "lo", &["-Q", "in", "ip proto 47"]);
    let mut all = vec!["capture", "create", "--gremlin", ON_LINK];
    all.extend(["--target", "127.0.0.1/5", "--target-type", "ERSPANv1"]);
    all.extend(["--pollinginterval", "1", "--type"]);
    for kind in ["ebpf", "afpacket"] {
        let made: Value = serde_json::from_slice(&skua.ask(&[&all[..], &[kind]].concat())).unwrap();
        let id = made["UUID"].as_str().unwrap().to_owned();
        skua.active(&id);
        let frames = recording();
        let before = sent(&skua, &id)["records"].as_u64().unwrap();
        send(&switch, &frames);
        let wanted = before + frames.len() as u64;
        // The kernels of the hosts send, too: all is there when no more comes.
        let mut last = 0;
        wait("all copies", || {
            std::thread::sleep(Duration::from_secs(1));
            let status = sent(&skua, &id);
            let lost = &status["lost"];
            assert_eq!(
                (&lost["send_failed"], &lost["queue_full"]),
                (&json!(0), &json!(0))
            );
            let records = status["records"].as_u64().unwrap();
            let done = records >= wanted && records == last;
            last = records;
            done.then_some(()).ok_or(status)
        });
        skua.ask(&["capture", "delete", &id]);
    }
    collector.stop();
    // As tshark understands them: the frames that were sent, each twice (one by each type).
    let mut tshark = Command::new("tshark");
    tshark.arg("-r").arg(collector.file()).arg("-Y");
    tshark.arg("erspan.spanid == 5 && (ip.addr == 10.99.0.0/24 || ipv6.addr == fd99::/64)");
    tshark.args(["-T", "fields", "-e", "frame.len", "-e", "_ws.malformed"]);
    let output = tshark.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let mut lengths: Vec<usize> = text
        .lines()
        .map(|line| {
            line.trim()
                .parse()
                .expect("a length, and nothing malformed")
        })
        .collect();
    lengths.sort_unstable();
    // Ethernet of loopback, IPv4, GRE and ERSPAN before each.
    let frames = recording();
    let mut wanted: Vec<usize> = frames.iter().flat_map(|(_, f)| [f.len() + 50; 2]).collect();
    wanted.sort_unstable();
    assert_eq!(lengths, wanted);
}
