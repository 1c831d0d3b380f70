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
    let mut command = Command::new(env!("CARGO_BIN_EXE_skua"));
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
        let report: Value = serde_json::from_str(&standard_output(&output)).unwrap();
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
    assert!(found.contains(&format!("{place} does not tell")), "{found}");
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
