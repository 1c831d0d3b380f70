//! Wireshark captures through `skua extcap`.

use std::{net::UdpSocket, os::unix::fs::symlink, process::Stdio};

use skua_testkit::access::TOKEN;

use crate::lab::{Skua, Wire, root_tests};

/// Runs tshark with a folder in the place of its own one of extcaps.
const IN_FOLDER: &str = r#"
    place=$(tshark -G folders 2>/dev/null | sed -n 's/^\(Global \)\{0,1\}Extcap path:[[:space:]]*//p' | head -n 1)
    mount --bind "$0" "$place" && exec tshark "$@""#;

#[test]
fn tshark_captures_what_it_asks_for() {
    if !root_tests() {
        return;
    }
    let wire = Wire::new();
    wire.near.ip("address add 10.9.4.1/24 dev x0");
    wire.far.ip("address add 10.9.4.2/24 dev g0");
    let folder = skua_testkit::scratch::directory("extcap");
    let link = format!("{}/skua", folder.path());
    symlink(skua_testkit::program!(), link).unwrap();
    let skua = Skua::run(&wire.near, "--interface x0");
    skua.wait_attached("x0");
    let tshark = |arguments: &[&str]| {
        let mut command = wire.near.command("unshare");
        command
            .args(["--mount", "sh", "-c", IN_FOLDER, folder.path()])
            .args(arguments)
            .env("SKUA_ANALYZER", &skua.address)
            .env("SKUA_TOKEN", TOKEN)
            .stdin(Stdio::null());
        command
    };
    let list = tshark(&["-D"]).output().unwrap();
    let list = String::from_utf8_lossy(&list.stdout).into_owned();
    assert!(list.contains("skua (Skua: packets by process"), "{list}");

    let mut capture = tshark(&["-i", "skua", "-f", "udp port 7400", "-c", "3", "-l"]);
    capture.args(["-T", "fields", "-e", "udp.dstport", "-e", "udp.length"]);
    let mut capture = capture
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let sender = wire
        .near
        .inside(|| UdpSocket::bind("10.9.4.1:7402").unwrap());
    let _receiver = wire
        .far
        .inside(|| UdpSocket::bind("10.9.4.2:7400").unwrap());
    let mut ended = None;
    for _ in 0..1200 {
        // The others do not match.
        sender.send_to(&[1; 10], "10.9.4.2:7401").unwrap();
        sender.send_to(&[1; 20], "10.9.4.2:7400").unwrap();
        ended = capture.try_wait().unwrap();
        if ended.is_some() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    if ended.is_none() {
        capture.kill().unwrap();
    }
    let output = capture.wait_with_output().unwrap();
    let (out, errors) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(ended.is_some(), "tshark does not end: {out}{errors}");
    let lines: Vec<&str> = out.lines().take(3).collect();
    assert_eq!(lines, ["7400\t28"; 3], "{out}{errors}");
    skua.stop();
}
