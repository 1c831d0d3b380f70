//! `skua replay` against tshark, and on damaged files.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use skua_testkit::{Outcome, damaged};
use skua_truth::check::{corpus_against_tshark, differ};
use skua_truth::replay;

#[test]
fn records_are_tsharks_conversations() {
    let program = replay::program().unwrap();
    corpus_against_tshark(|case| {
        let mut wrong = String::new();
        for tunnels in [false, true] {
            let theirs = case.reader(tunnels).account(&case.packets);
            match replay::account(&program, &case.file, tunnels) {
                Ok(ours) => wrong += &differ(case, tunnels, &ours, &theirs),
                Err(error) => wrong += &format!("{}: {error}\n", case.capture.name),
            }
        }
        wrong
    });
}

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
            Outcome::Error { offset, says, .. } => {
                assert!(!output.status.success(), "{}", case.name);
                assert_eq!(messages.lines().count(), 1, "{messages}");
                assert!(messages.contains(&place(offset)), "{messages}");
                assert!(messages.contains(says), "{messages}");
            }
            Outcome::Warning { packets, offset } => {
                assert!(output.status.success(), "{}: {messages}", case.name);
                assert!(messages.contains(&place(offset)), "{messages}");
                assert_eq!(seen(&messages), packets as u64, "{}", case.name);
            }
            Outcome::Fine { packets } => {
                assert!(output.status.success(), "{}: {messages}", case.name);
                assert_eq!(messages.lines().count(), 1, "{messages}");
                assert_eq!(seen(&messages), packets as u64, "{}", case.name);
            }
        }
    }
}

/// Packets seen, by the summary in the last line.
fn seen(messages: &str) -> u64 {
    let summary: serde_json::Value =
        serde_json::from_str(messages.lines().last().unwrap()).unwrap();
    summary["seen"]["packets"].as_u64().unwrap()
}
