//! `--exclude-self`: what goes to and from our own API is left out, what else there is is not.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket},
    process::{Child, Command, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use skua_testkit::access::{BEARER, let_in};

/// A port that is free now.
fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.local_addr().unwrap().port()
}

fn start(port: u16, arguments: &[&str]) -> Child {
    let mut command = Command::new(skua_testkit::program!());
    let mut skua = let_in(&mut command)
        .env("SKUA_HISTORY_DIRECTORY", "")
        .args(["run", "--interface", "lo", "--summary", "json"])
        .args(["--listen", &format!("127.0.0.1:{port}")])
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut banner = String::new();
    BufReader::new(skua.stdout.take().unwrap())
        .read_line(&mut banner)
        .unwrap();
    assert!(banner.contains("watches 1 interface"), "{banner}");
    skua
}

fn get(port: u16, path: &str) -> String {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: {BEARER}\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    answer
}

/// Talks to the API and sends three datagrams; returns the last /api/flows and the summary.
fn observe(arguments: &[&str], port: u16, other: u16) -> (String, Value) {
    let skua = start(port, arguments);
    let sender = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let receiver = UdpSocket::bind((Ipv4Addr::LOCALHOST, other)).unwrap();
    for _ in 0..3 {
        get(port, "/api/summary");
        sender
            .send_to(b"others", receiver.local_addr().unwrap())
            .unwrap();
    }
    // Not sooner than the API thinks that what it knows is old.
    std::thread::sleep(std::time::Duration::from_millis(200));
    let flows = get(port, "/api/flows");
    kill_process(Pid::from_child(&skua), Signal::INT).unwrap();
    let output = skua.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", output.status);
    let errors = String::from_utf8(output.stderr).unwrap();
    let summary = errors
        .lines()
        .rev()
        .find(|line| line.starts_with('{'))
        .expect(&errors);
    (flows, serde_json::from_str(summary).unwrap())
}

/// Whether a flow has this port on either side.
fn has_port(flows: &str, port: u16) -> bool {
    flows
        .lines()
        .filter(|line| line.starts_with('{'))
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .any(|flow| flow["a"]["port"] == port || flow["b"]["port"] == port)
}

#[test]
fn own_conversations_are_left_out_and_counted() {
    let (port, other) = (free_port(), free_port());
    let (flows, summary) = observe(&["--exclude-self"], port, other);
    assert!(!has_port(&flows, port), "{flows}");
    assert!(has_port(&flows, other), "{flows}");
    // Four connections: at least SYN, SYN+ACK, ACK, request, answer and two FIN each.
    let own = summary["left_out"]["self"]["packets"].as_u64().unwrap();
    assert!(own >= 4 * 7, "{summary}");
    let seen = summary["seen"]["packets"].as_u64().unwrap();
    assert_eq!(
        summary["in_flows"]["packets"].as_u64().unwrap() + own,
        seen,
        "{summary}"
    );
}

#[test]
fn without_the_flag_they_are_there() {
    let (port, other) = (free_port(), free_port());
    let (flows, summary) = observe(&[], port, other);
    assert!(has_port(&flows, port), "{flows}");
    assert!(summary["left_out"]["self"].is_null(), "{summary}");
}
