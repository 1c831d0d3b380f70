//! Our user-space path against tshark, capture by capture.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeSet;
use std::path::Path;

use skua_testkit::{Entry, corpus};
use skua_truth::conversation::{Account, Conversation, ours};
use skua_truth::expected::Difference;
use skua_truth::reading::Reader;
use skua_truth::{expected, table, tshark};

/// What is in one and not in the other.
fn difference(ours: &Account, theirs: &Account) -> String {
    let only = |a: &[Conversation], b: &[Conversation]| -> String {
        a.iter()
            .filter(|c| !b.contains(c))
            .map(|c| format!("    {c:?}\n"))
            .collect()
    };
    format!(
        "  only ours:\n{}  only tshark's:\n{}  truncated: {:?}, {:?}\n",
        only(&ours.conversations, &theirs.conversations),
        only(&theirs.conversations, &ours.conversations),
        ours.truncated,
        theirs.truncated
    )
}

/// What is wrong with one capture, nothing when all is well.
fn check(entry: &Entry, directory: &Path) -> String {
    let mut wrong = String::new();
    let capture = entry.capture();
    let file = directory.join(capture.file_name());
    std::fs::write(&file, capture.bytes()).unwrap();
    let (packets, rows) = tshark::dissect(&file).unwrap();
    let count = packets
        .iter()
        .filter(|packet| packet.link.is_some())
        .count();
    assert_eq!(count, capture.records.len(), "{entry:?}");
    let listed = expected::of(entry.name);
    let one_entry = listed.rules.contains(&Difference::StreamPerSyn);
    let fcs = u32::from(capture.interfaces[0].fcs_bytes);
    for tunnels in [false, true] {
        let mut reader = Reader::new(tunnels, listed.corrections, fcs, one_entry);
        let theirs = reader.account(&packets);
        let ours = ours(&file, tunnels).unwrap();
        if !tunnels {
            let first_ns = packets.first().map_or(0, |packet| packet.time_ns);
            let lines = table::compare(&rows, &ours.conversations, first_ns);
            let reason = expected::table_departure(entry.name);
            if lines.is_empty() == reason.is_some() {
                wrong += &format!("{entry:?}: table, listed {reason:?}:\n");
                wrong.extend(lines.iter().map(|line| format!("    {line}\n")));
            }
        }
        if ours != theirs {
            let difference = difference(&ours, &theirs);
            wrong += &format!("{entry:?}, tunnels {tunnels}:\n{difference}");
        }
        let mut named: BTreeSet<_> = listed.rules.iter().copied().collect();
        named.extend(listed.corrections.iter().map(|c| c.difference));
        if tunnels && named != reader.differences {
            let met = &reader.differences;
            wrong += &format!("{entry:?}: listed departures {named:?}, met {met:?}\n");
        }
    }
    wrong
}

#[test]
fn flows_are_tsharks_conversations() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    // tshark takes a while to start: several at a time.
    let entries: Vec<_> = corpus().collect();
    let wrong: String = std::thread::scope(|scope| {
        let workers: Vec<_> = entries
            .chunks(entries.len().div_ceil(4))
            .map(|part| {
                scope.spawn(move || -> String {
                    part.iter().map(|entry| check(entry, directory)).collect()
                })
            })
            .collect();
        workers.into_iter().map(|w| w.join().unwrap()).collect()
    });
    assert!(wrong.is_empty(), "\n{wrong}");
}
