//! The corpus, capture by capture, with tshark's view of each.

use std::path::{Path, PathBuf};

use skua_testkit::{Capture, Entry, corpus};

use crate::conversation::{Account, Conversation};
use crate::expected::{self, Difference, Expected};
use crate::reading::Reader;
use crate::table::Row;
use crate::tshark::{self, Dissection};

/// A capture as a file, and what tshark says of it.
#[derive(Debug)]
pub struct Case {
    /// The capture.
    pub capture: Capture,
    /// Its file.
    pub file: PathBuf,
    /// tshark's dissection.
    pub packets: Vec<Dissection>,
    /// tshark's tables.
    pub rows: Vec<Row>,
    /// What departs from it.
    pub expected: Expected,
}

impl Case {
    fn new(entry: &Entry, directory: &Path) -> Result<Self, String> {
        let capture = entry.capture();
        let file = directory.join(capture.file_name());
        std::fs::write(&file, capture.bytes())
            .map_err(|error| format!("{}: {error}", file.display()))?;
        let (packets, rows) = tshark::dissect(&file)?;
        let count = packets.iter().filter(|p| p.link.is_some()).count();
        if count != capture.records.len() {
            return Err(format!("{entry:?}: tshark sees {count} packets"));
        }
        Ok(Self {
            expected: expected::of(entry.name),
            capture,
            file,
            packets,
            rows,
        })
    }

    /// Makes flows of tshark's dissection.
    pub fn reader(&self, tunnels: bool) -> Reader<'static> {
        let one_entry = self.expected.rules.contains(&Difference::StreamPerSyn);
        let fcs = u32::from(self.capture.interfaces[0].fcs_bytes);
        Reader::new(tunnels, self.expected.corrections, fcs, one_entry)
    }
}

/// Checks every capture, several at a time because tshark takes a while to start.
///
/// # Panics
///
/// With all that the checks return, when that is anything.
pub fn corpus_against_tshark(check: impl Fn(&Case) -> String + Sync) {
    let directory = match tempfile::tempdir() {
        Ok(directory) => directory,
        Err(error) => panic!("{error}"),
    };
    let entries: Vec<_> = corpus().collect();
    let one = |entry: &Entry| match Case::new(entry, directory.path()) {
        Ok(case) => check(&case),
        Err(error) => error + "\n",
    };
    let wrong: String = std::thread::scope(|scope| {
        let workers: Vec<_> = entries
            .chunks(entries.len().div_ceil(4))
            .map(|part| scope.spawn(|| part.iter().map(|entry| one(entry)).collect::<String>()))
            .collect();
        let results = workers.into_iter().map(|worker| worker.join());
        results
            .map(|result| result.unwrap_or_else(|_| "a check panicked\n".into()))
            .collect()
    });
    assert!(wrong.is_empty(), "\n{wrong}");
}

/// What is in one account and not in the other, nothing when they are equal.
pub fn differ(case: &Case, tunnels: bool, ours: &Account, theirs: &Account) -> String {
    if ours == theirs {
        return String::new();
    }
    let only = |a: &[Conversation], b: &[Conversation]| -> String {
        a.iter()
            .filter(|c| !b.contains(c))
            .map(|c| format!("    {c:?}\n"))
            .collect()
    };
    format!(
        "{}, tunnels {tunnels}:\n  only ours:\n{}  only tshark's:\n{}  truncated: {:?}, {:?}\n",
        case.capture.name,
        only(&ours.conversations, &theirs.conversations),
        only(&theirs.conversations, &ours.conversations),
        ours.truncated,
        theirs.truncated
    )
}
