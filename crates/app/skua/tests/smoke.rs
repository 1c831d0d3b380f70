//! The command as it is, on any kernel: what it needs is there, or it does without.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::{
    net::{Ipv4Addr, UdpSocket},
    process::{Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

fn skua() -> Command {
    let mut command = Command::new(skua_testkit::program!());
    skua_testkit::access::let_in(&mut command);
    command
        .stdin(Stdio::null())
        .env("SKUA_HISTORY_DIRECTORY", "");
    command
}

fn standard_output(output: &Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {errors}", output.status);
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn a_conversation_on_loopback_is_seen() {
    let receiver = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = receiver.local_addr().unwrap().port();
    let capture = thread::spawn(|| {
        let arguments = [
            "flows",
            "--interface",
            "lo",
            "--duration",
            "4s",
            "--output",
            "json",
        ];
        skua().args(arguments).output().unwrap()
    });
    // Long enough for the slowest start, in an emulated machine.
    let sender = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let begin = Instant::now();
    while !capture.is_finished() && begin.elapsed() < Duration::from_secs(600) {
        sender
            .send_to(b"skua", receiver.local_addr().unwrap())
            .unwrap();
        thread::sleep(Duration::from_millis(50));
    }
    let lines = standard_output(&capture.join().unwrap());
    let flow = lines
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .find(|flow| flow["b"]["port"] == port)
        .unwrap_or_else(|| panic!("not among {lines}"));
    assert_eq!(flow["protocol"], "udp");
    assert_eq!(flow["layers"], "Ethernet/IPv4/UDP");
    // Ethernet, IPv4 and UDP headers and four bytes.
    let packets = flow["ab"]["packets"].as_u64().unwrap();
    assert!(packets > 5, "{packets}");
    assert_eq!(flow["ab"]["bytes"], packets * 46);
    assert_eq!(flow["ba"]["packets"], 0);
}

#[test]
fn the_doctor_knows_the_kernel() {
    let output = skua()
        .args(["doctor", "--output", "json"])
        .output()
        .unwrap();
    let report: Value = serde_json::from_str(&standard_output(&output)).unwrap();
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    assert_eq!(report["kernel"]["release"], release.trim());
    for hook in report["hooks"].as_array().unwrap() {
        let state = hook["state"].as_str().unwrap();
        assert!(["active", "unsupported"].contains(&state), "{hook}");
        assert_eq!(state == "active", hook["reason"] == "", "{hook}");
    }
}

#[test]
fn the_doctor_does_not_call_well_what_does_not_answer() {
    let advice = |arguments: &[&str]| {
        let mut command = skua();
        let output = command.args(["doctor", "--output", "json"]);
        let output = output.args(arguments).output().unwrap();
        // It reports on this host, and fails as what was named does not answer.
        assert_eq!(output.status.code(), Some(1));
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(report["running"].is_null());
        report["advice"].to_string()
    };
    // Nobody has the discard port of an address that is set aside for this.
    let place = "127.77.0.9:9";
    let found = advice(&["--analyzer", place]);
    assert!(
        found.contains(&format!("nothing answers at {place}")),
        "{found}"
    );
    // Somebody who says nothing that makes sense.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let place = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || listener.incoming().for_each(drop));
    let found = advice(&["--analyzer", &place]);
    assert!(
        found.contains(&format!("cannot read the status of {place}")),
        "{found}"
    );
}

#[cfg(not(feature = "sql"))]
#[test]
fn without_an_engine_sql_says_how_to_have_one() {
    let output = skua().args(["sql", "select 1"]).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && error.contains("--features sql"),
        "{error}"
    );
}

/// An sFlow datagram with packets of so many clients.
fn samples(sequence: u32, clients: std::ops::Range<u32>) -> Vec<u8> {
    use skua_wire::sflow::{DataSource, FlowHead, Header, IpPacket, Port, Writer};
    let mut datagram = Vec::new();
    let header = Header {
        agent: Ipv4Addr::LOCALHOST.into(),
        sub_agent: 0,
        sequence,
        uptime_ms: sequence,
    };
    let mut writer = Writer::new(&mut datagram, &header);
    for client in clients {
        let head = FlowHead {
            sequence: client,
            source: DataSource { class: 0, index: 2 },
            rate: 1,
            pool: client,
            drops: 0,
            input: Port::default(),
            output: Port::default(),
        };
        let ip = IpPacket {
            length: 100,
            protocol: 17,
            source: Ipv4Addr::from(0x0a01_0000 + client).into(),
            destination: [10, 0, 0, 9].into(),
            source_port: 40_000,
            destination_port: 53,
            tcp_flags: 0,
            tos: 0,
        };
        writer.flow_sample(&head, |out| out.ip(&ip));
    }
    datagram
}

#[test]
fn a_collector_can_be_watched_and_an_unread_output_stops_neither_its_other_sinks_nor_its_end() {
    use std::io::{BufRead as _, BufReader, Read as _, Write as _};
    const CLIENTS: u64 = 2_000;
    let lake = std::env::temp_dir().join(format!("skua-smoke-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&lake);
    let mut child = skua()
        .args(["collector", "--listen", "127.0.0.1:0"])
        .args(["--metrics", "127.0.0.1:0", "--summary", "json"])
        .args(["--window", "1s", "--wait", "1s", "--sink", "stdout"])
        .args(["--sink", &format!("parquet://{}", lake.display())])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut errors = BufReader::new(child.stderr.take().unwrap());
    let mut next = |begin: &str, end: char| {
        // Warnings may come before.
        loop {
            let mut line = String::new();
            assert!(errors.read_line(&mut line).unwrap() > 0);
            if let Some((_, rest)) = line.split_once(begin) {
                return rest.split(end).next().unwrap().to_owned();
            }
        }
    };
    let address = next("IPFIX at ", ';');
    let metrics = next("http://", '/');
    let get = |path: &str| {
        let mut stream = std::net::TcpStream::connect(&metrics).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {metrics}\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    };
    let value = |name: &str| {
        let text = get("/metrics");
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|line| line.trim().parse::<u64>().ok())
    };
    let wait = |name: &str, least: u64| {
        let begin = Instant::now();
        while value(name).is_none_or(|value| value < least) {
            assert!(
                begin.elapsed() < Duration::from_secs(120),
                "{}",
                get("/metrics")
            );
            thread::sleep(Duration::from_millis(100));
        }
    };
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    // Few datagrams, so that the socket's queue has room for them.
    for sequence in 0..CLIENTS as u32 / 100 {
        let clients = sequence * 100..(sequence + 1) * 100;
        let datagram = samples(sequence + 1, clients);
        socket.send_to(&datagram, &address).unwrap();
    }
    socket.send_to(b"no sFlow", &address).unwrap();
    // More than a pipe has room for.
    wait("skua_collector_lines_total ", CLIENTS);
    wait("skua_collector_lost_total{cause=\"decode_error\"} ", 1);
    for path in ["/health", "/ready"] {
        assert!(get(path).starts_with("HTTP/1.1 200"), "{}", get(path));
    }
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let begin = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begin.elapsed() > Duration::from_secs(120) {
            child.kill().unwrap();
            panic!("it did not end");
        }
        thread::sleep(Duration::from_millis(50));
    }
    let mut text = String::new();
    errors.read_to_string(&mut text).unwrap();
    let summary: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    let mut lines = Vec::new();
    child
        .stdout
        .take()
        .unwrap()
        .read_to_end(&mut lines)
        .unwrap();
    let written = lines.iter().filter(|byte| **byte == b'\n').count() as u64;
    let lost = summary["lost"]["stdout_not_read"].as_u64().unwrap();
    assert_eq!(written + lost, CLIENTS, "{summary}");
    assert_eq!(summary["lines"], CLIENTS);
    assert_eq!(summary["lost"]["decode_error"], 1);
    // The lake has all.
    let lost = summary["lost"].as_object().unwrap();
    assert!(
        lost.keys()
            .all(|cause| ["decode_error", "stdout_not_read"].contains(&&**cause)),
        "{summary}"
    );
    let files = Command::new("find")
        .arg(&lake)
        .args(["-name", "*.parquet"])
        .output()
        .unwrap();
    assert!(!files.stdout.is_empty());
    std::fs::remove_dir_all(&lake).unwrap();
}
