//! Damaged and hostile files: named, never a wrong answer, a panic or no end of memory.

use super::*;
use crate::{encode::footer, name::FileName};

fn one() -> (TestLake, Lake, std::path::PathBuf, Vec<u8>) {
    let place = TestLake::new();
    let writer = place.writer();
    write(&writer, 1..401, 0);
    drop(writer);
    let path = place.files().remove(0);
    let bytes = std::fs::read(&path).unwrap();
    let lake = place.lake();
    (place, lake, path, bytes)
}

fn everything() -> Question {
    let names = "service,process,client_address,container,interface,host";
    always()
        .by(names)
        .unwrap()
        .where_("address!=10.9.9.9")
        .unwrap()
}

/// A generator of numbers that are the same each time.
struct Dice(u64);

impl Dice {
    fn throw(&mut self, below: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) as usize % below
    }
}

#[test]
fn any_wrong_byte_is_found_before_it_is_decoded() {
    let (_place, lake, path, bytes) = one();
    let whole = lake.ask(&everything()).unwrap();
    assert!(whole.damaged.is_empty());
    let mut dice = Dice(1);
    let (mut named, mut unread) = (0, 0);
    for _ in 0..200 {
        let mut wrong = bytes.clone();
        let at = dice.throw(bytes.len());
        wrong[at] ^= 1 << dice.throw(8);
        std::fs::write(&path, &wrong).unwrap();
        let answer = lake.ask(&everything()).unwrap();
        if answer.damaged.is_empty() {
            // The byte is in a column that the query does not read.
            assert_eq!(answer, whole, "byte {at}");
            unread += 1;
        } else {
            assert_eq!((answer.groups.len(), answer.damaged.len()), (0, 1));
            let name = path.file_name().unwrap().to_str().unwrap();
            assert!(answer.damaged[0].contains(name), "{:?}", answer.damaged);
            named += 1;
        }
    }
    assert!(named > 50 && unread > 0, "{named} {unread}");
}

#[test]
fn truncated_and_empty_files_are_named_and_not_compacted() {
    let (place, lake, path, bytes) = one();
    let writer = place.writer();
    write(&writer, 401..501, 1);
    write(&writer, 501..601, 2);
    for length in [0, 3, 11, 12, bytes.len() / 2, bytes.len() - 1] {
        std::fs::write(&path, &bytes[..length]).unwrap();
        let answer = lake.ask(&always()).unwrap();
        assert_eq!(answer.damaged.len(), 1, "{length}");
        assert_eq!(lines(&answer)[0]["begun"], 200);
    }
    // The other files are compacted; the damaged one stays for manual recovery.
    let done = lake.compact(None, i64::MAX / 2).unwrap();
    assert_eq!(
        (done.damaged, done.from, done.into, done.rows),
        (1, 2, 1, 200)
    );
    assert_eq!(done.deleted, 2);
    assert_eq!(
        std::fs::metadata(&path).unwrap().len(),
        bytes.len() as u64 - 1
    );
}

/// Damage with forged checksums.
#[test]
fn forged_files_neither_panic_nor_fill_memory() {
    let (_place, lake, path, bytes) = one();
    let parsed = |path: &std::path::Path| {
        let parts: Vec<_> = path
            .iter()
            .rev()
            .take(4)
            .map(|p| p.to_str().unwrap())
            .collect();
        let path: Vec<_> = parts.into_iter().rev().collect();
        FileName::parse(&path.join("/")).unwrap()
    };
    let name = parsed(&path);
    let root = path.ancestors().nth(4).unwrap().to_owned();
    std::fs::remove_file(&path).unwrap();
    let begin = bytes.len() - footer(&bytes).unwrap().len();
    let mut dice = Dice(2);
    crate::file::FORGED.set(true);
    let (mut refused, mut taken) = (0, 0);
    for _ in 0..400 {
        let mut wrong = bytes.clone();
        for _ in 0..=dice.throw(3) {
            let at = match dice.throw(3) {
                0 => dice.throw(begin),
                _ => begin + dice.throw(bytes.len() - begin),
            };
            wrong[at] = dice.throw(256) as u8;
        }
        let check = footer(&wrong).map_or(0, crc32fast::hash);
        let path = root.join(
            FileName {
                check,
                ..name.clone()
            }
            .path(),
        );
        std::fs::write(&path, &wrong).unwrap();
        match lake.ask(&everything()) {
            Ok(answer) if answer.damaged.is_empty() => taken += 1,
            _ => refused += 1,
        }
        std::fs::remove_file(&path).unwrap();
    }
    assert!(refused > 20 && taken > 20, "{refused} {taken}");
}
