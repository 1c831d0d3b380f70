//! One process a directory, and formats.

use super::*;
use crate::StoreError;
use std::fs;

fn refused(dir: &Path) -> StoreError {
    match Store::open(dir, StoreConfig::default()) {
        Ok(_) => panic!("opened"),
        Err(error) => error,
    }
}

#[test]
fn a_second_opener_gets_the_name_of_the_process_that_has_it() {
    let dir = memory_dir();
    let store = open(dir.path(), StoreConfig::default());
    let error = refused(dir.path());
    let own = std::process::id();
    assert!(
        matches!(error, StoreError::InUse { pid: Some(pid), .. } if pid == own),
        "{error}"
    );
    assert!(
        error.to_string().contains(&format!("process {own}")),
        "{error}"
    );
    drop(store);
    drop(open(dir.path(), StoreConfig::default()));
}

#[test]
fn a_newer_format_is_refused_and_left_alone() {
    let dir = memory_dir();
    drop(open(dir.path(), StoreConfig::default()));
    fs::write(dir.path().join("format"), "skua-history 2\n").unwrap();
    let error = refused(dir.path());
    assert!(
        matches!(
            error,
            StoreError::Newer {
                found: 2,
                known: 1,
                ..
            }
        ),
        "{error}"
    );
    let text = fs::read_to_string(dir.path().join("format")).unwrap();
    assert_eq!(text, "skua-history 2\n");
}

#[test]
fn a_damaged_format_does_not_cost_the_history() {
    let dir = memory_dir();
    let store = open(dir.path(), StoreConfig::default());
    append(&store, &Traffic::new().drain(10, &[plain_step(1)]));
    drop(store);
    fs::write(dir.path().join("format"), [0; 5]).unwrap();
    let store = open(dir.path(), StoreConfig::default());
    assert_eq!(all_flows(&store), 1);
}

#[test]
fn a_directory_of_something_else_is_refused() {
    let dir = memory_dir();
    fs::write(dir.path().join("letter.txt"), "Dear …").unwrap();
    assert!(matches!(refused(dir.path()), StoreError::Foreign { .. }));
    let file = dir.path().join("letter.txt");
    assert!(matches!(refused(&file), StoreError::Io { .. }));
}
