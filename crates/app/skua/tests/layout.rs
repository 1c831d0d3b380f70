//! The invariants of docs/architecture.md: between crates and between modules arrows go one way.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

type Graph = BTreeMap<String, BTreeSet<String>>;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

/// All Rust files below a folder.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
    found
}

/// Splits what stands in braces at commas of the first level.
fn parts(list: &str) -> Vec<&str> {
    let (mut depth, mut begin, mut parts) = (0, 0, Vec::new());
    for (at, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(list[begin..at].trim());
                begin = at + 1;
            }
            _ => {}
        }
    }
    parts.push(list[begin..].trim());
    parts.retain(|part| !part.is_empty());
    parts
}

/// First segments of what a `use` tree without spaces at its ends names.
fn expand(tree: &str, found: &mut BTreeSet<String>) {
    if let Some(list) = tree.strip_prefix('{').and_then(|t| t.strip_suffix('}')) {
        for part in parts(list) {
            expand(part, found);
        }
        return;
    }
    let first = tree.split("::").next().unwrap_or_default();
    let first = first.split_whitespace().next().unwrap_or_default();
    found.insert(first.to_owned());
}

/// What a file names of its own crate, tests aside: the modules behind `crate::`.
fn named(text: &str) -> BTreeSet<String> {
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
    let code: String = code
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .flat_map(|line| [line, " "])
        .collect();
    let mut found = BTreeSet::new();
    for (at, _) in code.match_indices("crate::") {
        let tree = &code[at + "crate::".len()..];
        let mut depth = 0;
        let end = tree.find(|c: char| {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => {}
            }
            depth < 0 || (depth == 0 && !(c.is_alphanumeric() || "_:}".contains(c)))
        });
        let tree = &tree[..end.unwrap_or(tree.len())];
        expand(tree.trim_end_matches(':'), &mut found);
    }
    found
}

/// The top module of a file.
fn module(folder: &Path, file: &Path) -> String {
    let relative = file.strip_prefix(folder).unwrap().with_extension("");
    relative
        .iter()
        .next()
        .unwrap()
        .to_string_lossy()
        .into_owned()
}

/// A way round in a graph, if there is one.
fn cycle(graph: &Graph) -> Option<Vec<&str>> {
    fn walk<'a>(
        graph: &'a Graph,
        at: &'a str,
        way: &mut Vec<&'a str>,
        done: &mut BTreeSet<&'a str>,
    ) -> bool {
        if let Some(begin) = way.iter().position(|seen| *seen == at) {
            way.drain(..begin);
            return true;
        }
        if !done.insert(at) {
            return false;
        }
        way.push(at);
        for next in graph.get(at).into_iter().flatten() {
            if walk(graph, next, way, done) {
                return true;
            }
        }
        way.pop();
        false
    }
    let mut done = BTreeSet::new();
    graph.keys().find_map(|begin| {
        let mut way = Vec::new();
        walk(graph, begin, &mut way, &mut done).then_some(way)
    })
}

#[test]
fn modules_of_the_program_do_not_know_each_other_in_a_circle() {
    let mut modules = 0;
    for entry in fs::read_dir(root().join("crates/app")).unwrap() {
        let folder = entry.unwrap().path().join("src");
        let mut graph = Graph::new();
        for file in sources(&folder) {
            let name = module(&folder, &file);
            // The root gathers all, and tests may know all.
            if ["lib", "main", "tests"].contains(&name.as_str()) {
                continue;
            }
            let known = graph.entry(name.clone()).or_default();
            for first in named(&fs::read_to_string(&file).unwrap()) {
                let is_module =
                    folder.join(&first).is_dir() || folder.join(format!("{first}.rs")).exists();
                if first != name && is_module {
                    known.insert(first);
                }
            }
        }
        modules += graph.len();
        assert_eq!(cycle(&graph), None, "modules of {}", folder.display());
    }
    assert!(modules > 100, "only {modules} modules were read");
}

#[test]
fn crates_know_only_those_above_them_in_the_table() {
    let page = fs::read_to_string(root().join("docs/architecture.md")).unwrap();
    let rooms: Vec<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `skua")?.split_once('`'))
        .map(|(name, _)| name)
        .collect();
    let mut members = 0;
    let groups = fs::read_dir(root().join("crates")).unwrap();
    let crates = groups.flat_map(|group| fs::read_dir(group.unwrap().path()).unwrap());
    for entry in crates {
        let manifest = entry.unwrap().path().join("Cargo.toml");
        let text = fs::read_to_string(&manifest).unwrap();
        let name = text
            .lines()
            .find_map(|line| line.strip_prefix("name = \"skua"));
        let name = name.unwrap().trim_end_matches('"');
        let place = |name: &str| rooms.iter().position(|room| *room == name);
        let own = place(name).unwrap_or_else(|| panic!("skua{name} is not in architecture.md"));
        members += 1;
        // Tests may use what they like.
        let code = text.split("[dev-dependencies]").next().unwrap();
        for line in code.lines().filter(|line| line.starts_with("skua-")) {
            let known = line.split([' ', '.', '=']).next().unwrap();
            let known = known.strip_prefix("skua").unwrap();
            let above = place(known).is_some_and(|place| place < own);
            assert!(above, "skua{name} knows skua{known}, which stands below it");
        }
    }
    assert_eq!(members, rooms.len(), "rooms without a crate");
}

#[test]
fn the_readers_of_this_test_see_what_is_there() {
    let text = "use crate::{a::{b, c::d}, e};\nfn f() { crate::g::h::i(); }\n// crate::no::no\n\
                #[cfg(test)]\nmod tests { use crate::x::y; }";
    assert_eq!(Vec::from_iter(named(text)), ["a", "e", "g"]);
    let graph = |edges: &[(&str, &str)]| {
        let mut graph = Graph::new();
        for (from, to) in edges {
            graph
                .entry((*from).into())
                .or_default()
                .insert((*to).into());
        }
        graph
    };
    assert_eq!(cycle(&graph(&[("a", "b"), ("b", "c"), ("a", "c")])), None);
    let round = graph(&[("a", "b"), ("b", "c"), ("c", "b")]);
    assert_eq!(cycle(&round), Some(vec!["b", "c"]));
}
