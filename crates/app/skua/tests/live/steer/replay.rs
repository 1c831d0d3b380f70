//! Detectors on a capture file.

use super::lab::JUMPS;
use crate::lab::skua;

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
        let output = std::process::Command::new(skua_testkit::program!())
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
