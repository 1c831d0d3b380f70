//! Our user-space path and `skua replay` against tshark, capture by capture.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::{collections::BTreeSet, path::Path};

use skua_truth::check::{Case, corpus_against_tshark, differ};
use skua_truth::conversation::ours;
use skua_truth::{expected, replay, table};

/// One test, because tshark takes longer to read the corpus than everything else here.
#[test]
fn flows_and_records_are_tsharks_conversations() {
    let program = replay::program().unwrap();
    corpus_against_tshark(|case| {
        [
            packets(case),
            tables(case),
            departures(case),
            records(&program, case),
        ]
        .concat()
    });
}

/// Flows against tshark's dissection of every packet.
fn packets(case: &Case) -> String {
    let mut wrong = String::new();
    for tunnels in [false, true] {
        let theirs = case.reader(tunnels).account(&case.packets);
        let ours = ours(&case.file, tunnels).unwrap();
        wrong += &differ(case, tunnels, &ours, &theirs);
    }
    wrong
}

/// Flows against the tables of `tshark -z conv`.
fn tables(case: &Case) -> String {
    let name = case.capture.name;
    let ours = ours(&case.file, false).unwrap();
    let first_ns = case.packets.first().map_or(0, |packet| packet.time_ns);
    let lines = table::compare(&case.rows, &ours.conversations, first_ns);
    let reason = expected::table_departure(name);
    // A departure that is listed and not met is as wrong as one that is not listed.
    if lines.is_empty() != reason.is_some() {
        return String::new();
    }
    format!("{name}: listed {reason:?}:\n    {}\n", lines.join("\n    "))
}

/// Records of `skua replay` against tshark's dissection of every packet.
fn records(program: &Path, case: &Case) -> String {
    let mut wrong = String::new();
    for tunnels in [false, true] {
        let theirs = case.reader(tunnels).account(&case.packets);
        match replay::account(program, &case.file, tunnels) {
            Ok(ours) => wrong += &differ(case, tunnels, &ours, &theirs),
            Err(error) => wrong += &format!("replay: {}: {error}\n", case.capture.name),
        }
    }
    wrong
}

/// The departures that were met against those that are listed.
fn departures(case: &Case) -> String {
    let mut reader = case.reader(true);
    reader.account(&case.packets);
    let expected = &case.expected;
    let mut listed: BTreeSet<_> = expected.rules.iter().copied().collect();
    listed.extend(expected.corrections.iter().map(|c| c.difference));
    if listed == reader.differences {
        return String::new();
    }
    format!(
        "{}: listed {listed:?}, met {:?}\n",
        case.capture.name, reader.differences
    )
}

#[test]
fn lists_name_captures_that_exist() {
    for name in expected::captures() {
        assert!(skua_testkit::named(name).is_some(), "{name}");
    }
}
