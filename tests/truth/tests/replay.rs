//! `skua replay` on damaged files.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::{path::Path, process::Command};

use skua_testkit::{Outcome, damaged};
use skua_truth::replay;

#[test]
fn damaged_files_end_in_one_line() {
    let program = replay::program().unwrap();
    let directory = tempfile::tempdir().unwrap();
    for case in damaged() {
        let file = directory.path().join(case.name);
        std::fs::write(&file, &case.bytes).unwrap();
        let output = replay::run(&program, &file, false).unwrap();
        let messages = String::from_utf8(output.stderr).unwrap();
        let place = |offset| format!("{}: byte {offset}: ", file.display());
        match case.outcome {
            Outcome::Error {
                packets,
                offset,
                says,
                beyond,
            } => {
                // What is before the damage counts, and what can be read behind it.
                assert_eq!(output.status.success(), packets > 0, "{}", case.name);
                assert!(messages.contains(&place(offset)), "{messages}");
                assert!(messages.contains(says), "{messages}");
                if packets > 0 {
                    let all = packets + beyond;
                    assert_eq!(seen(&messages), all as u64, "{}", case.name);
                } else {
                    assert_eq!(messages.lines().count(), 1, "{messages}");
                }
                strict(&program, &file, &place(offset));
            }
            Outcome::Warning { packets, offset } => {
                assert!(output.status.success(), "{}: {messages}", case.name);
                assert!(messages.contains(&place(offset)), "{messages}");
                assert_eq!(seen(&messages), packets as u64, "{}", case.name);
                strict(&program, &file, &place(offset));
            }
            Outcome::Fine { packets } => {
                assert!(output.status.success(), "{}: {messages}", case.name);
                assert_eq!(messages.lines().count(), 1, "{messages}");
                assert_eq!(seen(&messages), packets as u64, "{}", case.name);
            }
        }
    }
}

/// With `--strict` a file that cannot be read to its end is an error, after what could be read.
fn strict(program: &Path, file: &Path, place: &str) {
    let output = Command::new(program)
        .args(["replay", "--strict", "--output", "json"])
        .arg(file)
        .output()
        .unwrap();
    let messages = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{messages}");
    let last = messages.lines().last().unwrap();
    assert!(
        last.starts_with("skua: ") && last.contains(place),
        "{messages}"
    );
}

/// Packets seen, by the summary in the last line.
fn seen(messages: &str) -> u64 {
    let summary: serde_json::Value =
        serde_json::from_str(messages.lines().last().unwrap()).unwrap();
    summary["seen"]["packets"].as_u64().unwrap()
}
