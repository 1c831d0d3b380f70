//! `skua capture` against a running `skua run`, as people type it.

use std::{
    io::{BufRead as _, BufReader},
    net::UdpSocket,
    process::Stdio,
};

use serde_json::{Value, json};
use skua_testkit::access::BEARER;
use skua_wire::sflow::{CountersHead, DataSource, Header, InterfaceCounters, Writer};

use crate::lab::{
    Flow, Net, SendMode, Sender, Skua, Sum, Wire, root_tests,
    skua::{self, NO_HISTORY, parse_lines},
    wait_for,
};

/// Runs `skua ARGS…`: its standard output, or what it says against it.
fn ask(net: &Net, skua: &Skua, args: &[&str]) -> Result<Vec<u8>, String> {
    let output = skua::command(net)
        .args(args)
        .env("SKUA_ANALYZER", &skua.address)
        .output()
        .unwrap();
    match output.status.success() {
        true => Ok(output.stdout),
        false => Err(String::from_utf8(output.stderr).unwrap()),
    }
}

/// An answer as JSON.
fn object(net: &Net, skua: &Skua, args: &[&str]) -> Value {
    serde_json::from_slice(&ask(net, skua, args).unwrap()).unwrap()
}

/// Makes a capture and gives back its identifier.
fn create(net: &Net, skua: &Skua, query: &str, more: &[&str]) -> String {
    let args = [&["capture", "create", "--gremlin", query], more].concat();
    let made = object(net, skua, &args);
    made["UUID"].as_str().unwrap().to_owned()
}

/// Waits until a capture is active on so many nodes.
fn wait_active(net: &Net, skua: &Skua, id: &str, nodes: usize) {
    wait_for(&format!("{id} on {nodes} nodes"), || {
        let capture = object(net, skua, &["capture", "get", id]);
        let all = capture["Nodes"].as_array().unwrap();
        let active = all.iter().all(|node| node["State"] == "active");
        assert!(all.iter().all(|node| node["Host"].is_string()), "{all:?}");
        (all.len() == nodes && active).then_some(())
    });
}

/// Waits until a capture has counted so much.
fn wait_counted(net: &Net, skua: &Skua, id: &str, sum: Sum) {
    let total = |key: &str| {
        let query = format!("G.Flows().Has('CaptureID', '{id}').Sum('Metric.{key}')");
        object(net, skua, &["query", &query, "--format", "json"])
            .as_u64()
            .unwrap_or_default()
    };
    wait_for(&format!("{sum:?} in {id}"), || {
        let packets = total("ABPackets") + total("BAPackets");
        assert!(packets <= sum.packets, "{packets} in {id}");
        (packets == sum.packets).then_some(())
    });
    assert_eq!(total("ABBytes") + total("BABytes"), sum.bytes);
}

const NEAR: &str = "G.V().Has('Name', 'x0')";

#[test]
fn a_capture_follows_a_node_that_comes_later_and_goes() {
    if !root_tests() {
        return;
    }
    let wire = Wire::new();
    let net = &wire.near;
    let skua = Skua::run(net, "--interface x0");
    let id = create(net, &skua, "G.V().Has('Name', 'late0')", &[]);
    let list = || String::from_utf8(ask(net, &skua, &["capture", "list"]).unwrap()).unwrap();
    assert!(list().contains("no node now"), "{}", list());
    net.veth("late0", &wire.far, "late1");
    wait_active(net, &skua, &id, 1);
    assert!(list().contains("active"), "{}", list());
    let sender = Sender::open(&wire.far, "late1", SendMode::Queue);
    sender.repeat(70, &Flow::numbered(1).frame(100));
    wait_counted(net, &skua, &id, Sum::new(70, 7_000));
    // The node says so, too.
    let noted = object(
        net,
        &skua,
        &[
            "query",
            "G.V().Has('Name', 'late0').Values('Captures')",
            "--format",
            "json",
        ],
    );
    assert_eq!(noted[0][0]["ID"], id, "{noted}");
    assert_eq!(noted[0][0]["State"], "active", "{noted}");
    net.ip("link del late0");
    wait_active(net, &skua, &id, 0);
    // What it counted is still there.
    wait_counted(net, &skua, &id, Sum::new(70, 7_000));
}

#[test]
fn several_captures_on_a_node_count_each_their_own() {
    if !root_tests() {
        return;
    }
    let wire = Wire::new();
    let net = &wire.near;
    let skua = Skua::run(net, "--interface x0");
    let types = ["ebpf", "afpacket", "pcap"];
    let everything = types.map(|kind| create(net, &skua, NEAR, &["--type", kind]));
    let bpf = "udp and greater 200";
    let chosen = types.map(|kind| create(net, &skua, NEAR, &["--type", kind, "--bpf", bpf]));
    // The same once more is refused, a short one passes.
    let again = ask(
        net,
        &skua,
        &["capture", "create", "--gremlin", NEAR, "--type", "ebpf"],
    );
    assert!(again.unwrap_err().contains(&everything[0]));
    let short = create(net, &skua, NEAR, &["--ttl", "1s", "--bpf", "icmp"]);
    for id in everything.iter().chain(&chosen) {
        wait_active(net, &skua, id, 1);
    }
    let sender = Sender::open(&wire.far, "g0", SendMode::Queue);
    sender.repeat(50, &Flow::numbered(1).frame(100));
    sender.repeat(30, &Flow::numbered(2).frame(300));
    for id in &everything {
        wait_counted(net, &skua, id, Sum::new(80, 14_000));
    }
    for id in &chosen {
        wait_counted(net, &skua, id, Sum::new(30, 9_000));
    }
    wait_for("the end of the short one", || {
        let lines = ask(net, &skua, &["capture", "list", "--output", "json"]).unwrap();
        let lines = parse_lines(std::str::from_utf8(&lines).unwrap());
        assert!(lines.len() >= 6, "{lines:?}");
        lines.iter().all(|line| line["UUID"] != short).then_some(())
    });
    ask(
        net,
        &skua,
        &["capture", "delete", &everything[0], &chosen[1]],
    )
    .unwrap();
    sender.repeat(20, &Flow::numbered(3).frame(300));
    wait_counted(net, &skua, &everything[1], Sum::new(100, 20_000));
    wait_counted(net, &skua, &chosen[0], Sum::new(50, 15_000));
}

#[test]
fn packets_are_watched_by_tshark() {
    if !root_tests() {
        return;
    }
    let wire = Wire::new();
    let net = &wire.near;
    let skua = Skua::run(net, "--interface x0");
    let sender = Sender::open(&wire.far, "g0", SendMode::Queue);
    for way in ["-r", "-i"] {
        let mut watch = skua::command(net)
            .args(["capture", "watch", "--gremlin", NEAR])
            .args(["--bpf", "udp and greater 200"])
            .env("SKUA_ANALYZER", &skua.address)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut tshark = net
            .command("tshark")
            .args([
                "-l",
                "-n",
                way,
                "-",
                "-T",
                "fields",
                "-e",
                "frame.len",
                "-c",
                "3",
            ])
            .stdin(watch.stdout.take().unwrap())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(tshark.stdout.take().unwrap()).lines();
        let seen = std::thread::spawn(move || lines.map(Result::unwrap).collect::<Vec<_>>());
        // When it listens it does not say.
        wait_for(&format!("tshark {way}"), || {
            sender.repeat(1, &Flow::numbered(1).frame(100));
            sender.repeat(1, &Flow::numbered(2).frame(300));
            seen.is_finished().then_some(())
        });
        assert!(tshark.wait().unwrap().success());
        assert_eq!(seen.join().unwrap(), ["300"; 3], "tshark {way} -");
        watch.kill().unwrap();
        watch.wait().unwrap();
        // It lasts as long as it is watched.
        wait_for("the end of the capture", || {
            sender.repeat(1, &Flow::numbered(2).frame(300));
            let lines = ask(net, &skua, &["capture", "list", "--output", "json"]).unwrap();
            lines.is_empty().then_some(())
        });
    }
}

#[test]
fn kept_packets_are_a_capture_file() {
    if !root_tests() {
        return;
    }
    let wire = Wire::new();
    let net = &wire.near;
    let skua = Skua::run(net, "--interface x0");
    let id = create(net, &skua, NEAR, &["--rawpacket-limit", "4"]);
    wait_active(net, &skua, &id, 1);
    let sender = Sender::open(&wire.far, "g0", SendMode::Queue);
    let frames = [Flow::numbered(1).frame(100), Flow::numbered(2).frame(1_200)];
    for frame in &frames {
        sender.repeat(9, frame);
    }
    wait_counted(net, &skua, &id, Sum::new(18, 9 * 1_300));
    let packets = format!("G.Flows().Has('CaptureID', '{id}').RawPackets()");
    let file = ask(net, &skua, &["query", &packets, "--format", "pcap"]).unwrap();
    let path = std::env::temp_dir().join(format!("ct-{}.pcap", std::process::id()));
    std::fs::write(&path, &file).unwrap();
    let mut capture = pcap::Capture::from_file(&path).unwrap();
    let mut seen = Vec::new();
    while let Ok(packet) = capture.next_packet() {
        seen.push((packet.header.len as usize, packet.data.to_vec()));
    }
    std::fs::remove_file(&path).unwrap();
    let expected: Vec<_> = frames
        .iter()
        .flat_map(|frame| vec![(frame.len(), frame.clone()); 4])
        .collect();
    assert_eq!(seen, expected);
    // The same file, uploaded, is the same flows.
    let url = format!("http://{}/api/pcap", skua.address);
    let post = |body: &[u8]| {
        net.inside(|| {
            let agent = ureq::Agent::config_builder()
                .http_status_as_error(false)
                .build();
            let request = agent.new_agent().post(&url);
            let request = request
                .content_type("application/vnd.tcpdump.pcap")
                .header("Authorization", BEARER);
            let mut answer = request.send(body).unwrap();
            let text = answer.body_mut().read_to_string().unwrap();
            (answer.status().as_u16(), text)
        })
    };
    let (status, text) = post(&file);
    assert_eq!(status, 202, "{text}");
    let answer: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (&answer["Packets"], &answer["Flows"]),
        (&json!(8), &json!(2))
    );
    let uploaded = answer["UUID"].as_str().unwrap();
    wait_counted(net, &skua, uploaded, Sum::new(8, 4 * 1_300));
    // What is none is refused, and so is what is too large.
    let (status, text) = post(b"GET / HTTP/1.1\r\n\r\n this is no capture file");
    assert_eq!(status, 400, "{text}");
    assert_eq!(post(&vec![0; (64 << 20) + 1]).0, 413);
    // Of the last eight files the flows are there, of others not.
    for _ in 0..8 {
        assert_eq!(post(&file).0, 202);
    }
    let query = format!("G.Flows().Has('CaptureID', '{uploaded}').Count()");
    assert_eq!(object(net, &skua, &["query", &query]), 0);
    // Without packets the file has its header only; what is none is refused.
    let file = |query: &str| ask(net, &skua, &["query", query, "--format", "pcap"]);
    assert!(file("G.V()").unwrap_err().contains("RawPackets()"));
    let query = format!("G.Flows().Has('CaptureID', '{uploaded}').RawPackets()");
    assert_eq!(file(&query).unwrap().len(), 24);
}

#[test]
fn what_a_type_cannot_do_is_refused() {
    if !root_tests() {
        return;
    }
    let wire = Wire::new();
    let net = &wire.near;
    let skua = Skua::run(net, "--interface x0");
    let refused = |more: &[&str]| {
        let args = [&["capture", "create", "--gremlin", NEAR], more].concat();
        ask(net, &skua, &args).unwrap_err()
    };
    for (more, why) in [
        (&["--type", "netflow", "--bpf", "udp"][..], "BPFFilter"),
        (
            &["--type", "netflow", "--samplingrate", "8"],
            "SamplingRate",
        ),
        (
            &["--type", "pcapsocket", "--rawpacket-limit", "3"],
            "RawPacketLimit",
        ),
        (&["--type", "ebpf", "--port", "7"], "Port"),
        (&["--type", "sflow", "--listen", "example"], "no IP address"),
        (&["--type", "ebpf", "--target", "10.0.0.1"], "TargetType"),
        #[cfg(not(feature = "dpdk"))]
        (&["--type", "dpdk"], "dpdk"),
    ] {
        let error = refused(more);
        assert!(error.contains(why), "{more:?}: {error}");
    }
    // Not on a node of Open vSwitch: it is made, and says that it has no node and why.
    let id = create(net, &skua, NEAR, &["--type", "ovsmirror"]);
    let capture = object(net, &skua, &["capture", "get", &id]);
    assert_eq!(capture["UnfitNodes"], 1, "{capture:#}");
    let list = String::from_utf8(ask(net, &skua, &["capture", "list"]).unwrap()).unwrap();
    assert!(list.contains("Open vSwitch"), "{list}");
}

#[test]
fn counters_that_come_by_sflow_are_metadata_of_the_node() {
    if !root_tests() {
        return;
    }
    let wire = Wire::new();
    let net = &wire.near;
    let skua = Skua::run(net, "--interface x0");
    let id = create(net, &skua, NEAR, &["--type", "sflow", "--bpf", "udp"]);
    wait_active(net, &skua, &id, 1);
    let capture = object(net, &skua, &["capture", "get", &id]);
    let port = capture["Nodes"][0]["Port"].as_u64().unwrap() as u16;
    let socket = net.inside(|| UdpSocket::bind("127.0.0.1:0").unwrap());
    let send = |sequence: u32, in_unicast: u32| {
        let (mut out, agent) = (Vec::new(), "192.0.2.7".parse().unwrap());
        let header = Header {
            agent,
            sub_agent: 0,
            sequence,
            uptime_ms: 1_000 * sequence,
        };
        let head = CountersHead {
            sequence,
            source: DataSource { class: 0, index: 9 },
        };
        let interface = InterfaceCounters {
            in_unicast,
            ..InterfaceCounters::default()
        };
        Writer::new(&mut out, &header).counters_sample(&head, |records| {
            records.interface(&interface);
        });
        socket.send_to(&out, ("127.0.0.1", port)).unwrap();
    };
    let shown = || {
        let nodes = object(net, &skua, &["query", NEAR, "--format", "json"]);
        nodes[0]["Metadata"]["SFlow"].clone()
    };
    let wait = |total: u64, more: u64| {
        wait_for(&format!("{total} packets"), || {
            let sflow = shown();
            let is = |part: &str, n: u64| sflow[part]["IfInUcastPkts"] == n;
            (is("Metric", total) && is("LastUpdateMetric", more)).then_some(())
        });
    };
    send(1, 10);
    wait(10, 10);
    send(2, 17);
    wait(17, 7);
    assert_eq!(shown()["IfMetrics"]["9"]["IfInUcastPkts"], 17);
    ask(net, &skua, &["capture", "delete", &id]).unwrap();
    wait_for("no counters", || shown().is_null().then_some(()));
    skua.stop();
}

#[test]
fn captures_of_the_configuration_run_from_the_start_and_once() {
    if !root_tests() {
        return;
    }
    let wire = Wire::new();
    let net = &wire.near;
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let write = |captures: &str| {
        let text =
            format!("captures: {{startup: {captures}}}\nagent: {{metadata: {{rack: r7}}}}\n");
        std::fs::write(path("config"), text).unwrap();
    };
    let declared = format!("[{{gremlin: \"{NEAR}\", type: ebpf, bpf: udp, name: first}}]");
    write(&declared);
    let args = format!("--interface x0 --config {}", path("config"));
    let run = || {
        let mut command = skua::command(net);
        command
            .args(["run", "--listen", "127.0.0.1:0", "--summary", "json"])
            .args(args.split_whitespace())
            .env(NO_HISTORY.0, path("kept"));
        Skua::run_command(net, &mut command)
    };
    let skua = run();
    let all = |skua: &Skua| {
        let answer: Value = serde_json::from_str(&skua.get("/api/capture")).unwrap();
        let all = answer.as_object().unwrap().values();
        let mut all: Vec<(String, String)> = all
            .map(|capture| {
                let text = |key: &str| capture[key].as_str().unwrap().to_owned();
                (text("UUID"), text("Name"))
            })
            .collect();
        all.sort_by(|a, b| a.1.cmp(&b.1));
        all
    };
    let before = all(&skua);
    assert_eq!(before.len(), 1);
    assert_eq!(before[0].1, "first");
    wait_active(net, &skua, &before[0].0, 1);
    let theirs = create(net, &skua, NEAR, &["--name", "theirs", "--bpf", "tcp"]);
    let rack = object(
        net,
        &skua,
        &["query", "G.V().Has('Type', 'host').Values('rack')"],
    );
    assert_eq!(rack, json!(["r7"]));
    skua.stop();

    // Declared twice, and once what somebody made: each of them is there once.
    let one = declared.trim_matches(['[', ']']);
    write(&format!(
        "[{one}, {one}, {{gremlin: \"{NEAR}\", type: auto, bpf: tcp}}]"
    ));
    let skua = run();
    let again = all(&skua);
    assert_eq!(
        again,
        [before[0].clone(), (theirs.clone(), "theirs".into())]
    );
    wait_active(net, &skua, &before[0].0, 1);
    wait_active(net, &skua, &theirs, 1);
    skua.stop();

    // No longer declared, it is gone; one that cannot be is refused by name.
    write("[]");
    let skua = run();
    assert_eq!(all(&skua), [(theirs, "theirs".into())]);
    skua.stop();
    write("[{gremlin: \"G.V(\"}]");
    let output = skua::output(net, &format!("run {args}"));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(
        !output.status.success() && text.contains("captures.startup[0]"),
        "{text}"
    );
}
