//! The list of every `unsafe` (docs/unsafe.md) is that of the sources.

#![allow(clippy::unwrap_used)] // also in helpers, where clippy.toml does not allow it

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// File, function or implementation; number of the words `unsafe` there.
type List = BTreeMap<(String, String), usize>;

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && path.file_name().unwrap() != "target" {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// A line without its comment and its texts.
fn code(line: &str) -> String {
    let line = line.split("//").next().unwrap_or_default();
    line.split('"').step_by(2).collect()
}

fn words(code: &str) -> impl Iterator<Item = &str> {
    code.split(|c: char| !c.is_alphanumeric() && c != '_')
        .filter(|word| !word.is_empty())
}

/// What of a file is unsafe, by function, trait or implementation.
fn scan(text: &str) -> BTreeMap<String, usize> {
    let (mut found, mut place) = (BTreeMap::new(), "file".to_owned());
    for line in text.lines() {
        let code = code(line);
        let mut after_fn = words(&code).skip_while(|word| *word != "fn").skip(1);
        if let Some(name) = after_fn.next() {
            name.clone_into(&mut place);
        }
        let item = code.trim().trim_end_matches(['{', '}', ' ']);
        let is_item = item.starts_with("unsafe impl") || item.contains("unsafe trait");
        let count = words(&code).filter(|word| *word == "unsafe").count();
        if count > 0 {
            let place = if is_item { item } else { &place };
            *found.entry(place.to_owned()).or_default() += count;
        }
    }
    found
}

fn in_the_sources() -> List {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .unwrap();
    let mut files = Vec::new();
    sources(crates, &mut files);
    assert!(files.len() > 200, "only {} sources found", files.len());
    let mut list = List::new();
    for file in files {
        let name = file.strip_prefix(crates).unwrap().display().to_string();
        let in_program = !name.contains("/tests/") && !name.contains("/examples/");
        for (place, count) in scan(&fs::read_to_string(&file).unwrap()) {
            let place = if in_program { place } else { String::new() };
            *list.entry((name.clone(), place)).or_default() += count;
        }
    }
    // This file has the word in its own code.
    list.retain(|(file, _), _| !file.ends_with("/unsafe_list.rs"));
    list
}

fn in_the_document() -> List {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/unsafe.md");
    let text = fs::read_to_string(path).unwrap();
    let mut list = List::new();
    for line in text.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let name = |cell: &str| cell.trim_matches('`').to_owned();
        let (file, place, count) = match cells[..] {
            [file, place, count, breaks] => {
                assert!(breaks.len() > 15, "what would break it? {line}");
                (file, name(place), count)
            }
            [file, count] => (file, String::new(), count),
            _ => panic!("neither 2 nor 4 cells: {line}"),
        };
        let twice = list.insert((name(file), place), count.parse().unwrap());
        assert!(twice.is_none(), "twice: {line}");
    }
    list
}

#[test]
fn every_unsafe_stands_in_the_list() {
    let (sources, document) = (in_the_sources(), in_the_document());
    let keys: BTreeSet<_> = sources.keys().chain(document.keys()).collect();
    let wrong: Vec<String> = keys
        .into_iter()
        .filter(|key| sources.get(*key) != document.get(*key))
        .map(|key| {
            format!(
                "{key:?}: {} in the source, {} in docs/unsafe.md",
                sources.get(key).unwrap_or(&0),
                document.get(key).unwrap_or(&0)
            )
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_word_is_found_in_code_and_not_in_comments_and_texts() {
    let text = "fn a() {\n    // unsafe\n    let b = \"unsafe\"; unsafe { c(); unsafe { d() } }\n}\nunsafe impl Send for E {}\n";
    let expected = [
        ("a".to_owned(), 2),
        ("unsafe impl Send for E".to_owned(), 1),
    ];
    assert_eq!(scan(text), BTreeMap::from(expected));
}
