//! Metadata of the host's node that the configuration says, or files that it names.

use super::{Common, worker::Source};
use crate::{HostFile, HostMetadata, writer::now_ms};
use serde_json::Value as Json;
use skua_topology::{Map, Patch, Value};
use std::{
    collections::BTreeMap,
    io::Read as _,
    os::unix::fs::MetadataExt as _,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

/// Key of the values of files.
const CONFIG: &str = "Config";
/// Key of what is wrong with files, by name.
const ERRORS: &str = "ConfigErrors";
/// Key of the names of the keys that the configuration says, so that a later run removes what it no longer says.
const NAMES: &str = "ConfigKeys";
/// Bytes of a file at most.
const MOST_BYTES: u64 = 1 << 20;
/// Values in one file's part at most.
const MOST_VALUES: usize = 1_000;
/// Lists and maps in one another at most.
const MOST_DEPTH: usize = 16;
/// How often files are looked at.
const INTERVAL: Duration = Duration::from_secs(1);

/// What changes when a file does.
type Stamp = (u64, u64, i64, i64);

/// A file, with what was read of it last.
struct Known {
    file: HostFile,
    stamp: Option<Stamp>,
    read: Result<Value, String>,
}

/// Keeps the host's node as the configuration and the files say.
pub(super) struct Configured {
    common: Common,
    values: Map,
    files: Vec<Known>,
    begun: bool,
    next: Instant,
}

impl Configured {
    pub fn new(common: Common, metadata: &HostMetadata) -> Self {
        let unread = |file: &HostFile| Known {
            file: file.clone(),
            stamp: None,
            read: Err(String::new()),
        };
        Self {
            common,
            values: metadata.values.clone(),
            files: metadata.files.iter().map(unread).collect(),
            begun: false,
            next: Instant::now(),
        }
    }

    /// Reads the files that have changed; whether any has.
    fn refresh(&mut self) -> bool {
        let mut changed = !self.begun;
        for known in &mut self.files {
            let stamp = stamp(&known.file.path);
            if self.begun && stamp == known.stamp {
                continue;
            }
            known.stamp = stamp;
            let read = read(&known.file);
            if read == known.read {
                continue;
            }
            if let Err(error) = &read {
                tracing::warn!(error, "metadata of the host's node");
            }
            known.read = read;
            changed = true;
        }
        self.begun = true;
        changed
    }

    fn write(&self) {
        let (mut config, mut errors) = (BTreeMap::new(), BTreeMap::new());
        for known in &self.files {
            let name: Arc<str> = known.file.name.as_str().into();
            match &known.read {
                Ok(value) => drop(config.insert(name, value.clone())),
                Err(error) => drop(errors.insert(name, Value::from(error.as_str()))),
            }
        }
        let map = |all: BTreeMap<Arc<str>, Value>| {
            (!all.is_empty()).then(|| Value::from(Map::new(all.into_iter().collect())))
        };
        let names = self.values.iter().map(|(name, _)| Value::from(&**name));
        let names: Value = names.collect();
        let mut graph = self.common.graph.write();
        let Some(node) = graph.current_node(&self.common.host_node) else {
            return;
        };
        let mut patches: Vec<Patch> = Vec::new();
        let before = node.metadata.get(NAMES);
        if let Some(Value::List(before)) = before {
            let gone = before.iter().filter_map(Value::as_str);
            let gone = gone.filter(|name| self.values.get(name).is_none());
            patches.extend(gone.map(|name| Patch::Remove(name.into())));
        }
        let own = self.values.iter();
        patches.extend(own.map(|(name, value)| Patch::Set((&**name).into(), value.clone())));
        let names = (self.values.iter().next().is_some()).then_some(names);
        for (key, value) in [(CONFIG, map(config)), (ERRORS, map(errors)), (NAMES, names)] {
            match value {
                Some(value) => patches.push(Patch::Set(key.into(), value)),
                None if node.metadata.get(key).is_some() => {
                    patches.push(Patch::Remove(key.into()));
                }
                None => {}
            }
        }
        let written = graph.patch_node(&self.common.host_node, &patches, now_ms());
        if let Err(error) = written {
            tracing::warn!(%error, "metadata of the host's node");
        }
    }
}

impl Source for Configured {
    fn next(&self) -> Option<Instant> {
        (!self.begun || !self.files.is_empty()).then_some(self.next)
    }

    fn quiet_until(&self) -> Instant {
        self.next
    }

    fn work(&mut self, _called: bool) {
        if self.refresh() {
            self.write();
        }
        self.next = Instant::now() + INTERVAL;
    }
}

fn stamp(path: &Path) -> Option<Stamp> {
    let found = std::fs::metadata(path).ok()?;
    Some((found.ino(), found.len(), found.mtime(), found.mtime_nsec()))
}

/// What is at the selector of a file.
fn read(file: &HostFile) -> Result<Value, String> {
    let path = file.path.display();
    let text = content(&file.path).map_err(|error| format!("{path}: {error}"))?;
    let kind = &*file.kind;
    let all = parse(kind, &text).map_err(|error| format!("{path} is not {kind}: {error}"))?;
    let found = select(&all, &file.selector)
        .ok_or_else(|| format!("{path}: there is nothing at {}", file.selector))?;
    let mut values = 0;
    value(found, MOST_DEPTH, &mut values).map_err(|error| format!("{path}: {error}"))
}

fn content(path: &Path) -> Result<String, String> {
    let text = |error: std::io::Error| error.to_string();
    let found = std::fs::metadata(path).map_err(text)?;
    // A pipe or a device would never end, or would block.
    if !found.is_file() {
        return Err("is not a file".into());
    }
    let file = std::fs::File::open(path).map_err(text)?;
    let mut bytes = Vec::new();
    let read = file.take(MOST_BYTES + 1).read_to_end(&mut bytes);
    read.map_err(text)?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err("is longer than 1 MiB".into());
    }
    String::from_utf8(bytes).map_err(|_| "is not UTF-8".into())
}

/// The kinds of files, as the configuration names them.
pub(crate) const KINDS: [&str; 8] = [
    "json",
    "yaml",
    "yml",
    "toml",
    "ini",
    "properties",
    "props",
    "prop",
];

fn parse(kind: &str, text: &str) -> Result<Json, String> {
    let one_line = |error: String| error.lines().next().unwrap_or_default().to_owned();
    match kind {
        "json" => serde_json::from_str(text).map_err(|error| error.to_string()),
        "yaml" | "yml" => serde_yaml_ng::from_str(text).map_err(|error| error.to_string()),
        "toml" => toml::from_str(text).map_err(|error| one_line(error.to_string())),
        "ini" => lines(text, true),
        _ => lines(text, false),
    }
}

/// `key = value` or `key: value` in lines, in sections where the format has them.
fn lines(text: &str, sections: bool) -> Result<Json, String> {
    let mut all = serde_json::Map::new();
    let mut section = String::new();
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with(['#', ';', '!']) {
            continue;
        }
        if sections && let Some(name) = line.strip_prefix('[') {
            let name = name.strip_suffix(']');
            section = name
                .ok_or(format!("line {} has no ]", at + 1))?
                .trim()
                .into();
            continue;
        }
        let (key, value) = line
            .split_once('=')
            .or_else(|| line.split_once(':'))
            .ok_or(format!("line {} has no =", at + 1))?;
        let value = Json::from(value.trim());
        let key = key.trim().to_owned();
        match &*section {
            "" => drop(all.insert(key, value)),
            name => {
                let inner = all
                    .entry(name)
                    .or_insert_with(|| Json::Object(serde_json::Map::new()));
                let inner = inner.as_object_mut();
                let inner = inner.ok_or(format!("[{name}] is a key, too"))?;
                inner.insert(key, value);
            }
        }
    }
    Ok(Json::Object(all))
}

/// What is at a path with dots; names may have dots themselves.
fn select<'a>(all: &'a Json, path: &str) -> Option<&'a Json> {
    if path.is_empty() {
        return Some(all);
    }
    if let Some(found) = all.get(path) {
        return Some(found);
    }
    let ends = path.match_indices('.').map(|(at, _)| at);
    ends.filter_map(|at| select(all.get(&path[..at])?, &path[at + 1..]))
        .next()
}

fn value(json: &Json, depth: usize, count: &mut usize) -> Result<Value, String> {
    *count += 1;
    if *count > MOST_VALUES {
        return Err(format!("more than {MOST_VALUES} values"));
    }
    let depth = depth.checked_sub(1);
    let depth = depth.ok_or_else(|| format!("more than {MOST_DEPTH} levels"))?;
    Ok(match json {
        Json::Null => Value::Null,
        Json::Bool(truth) => Value::from(*truth),
        Json::String(text) => Value::from(text.as_str()),
        Json::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) => Value::Int(whole),
            (None, Some(part)) => Value::Float(part),
            (None, None) => Value::from(number.to_string().as_str()),
        },
        Json::Array(list) => {
            let all = list.iter().map(|one| value(one, depth, count));
            all.collect::<Result<Vec<Value>, String>>()?
                .into_iter()
                .collect()
        }
        Json::Object(map) => {
            let all = map.iter();
            let all = all.map(|(key, one)| Ok((key.as_str().into(), value(one, depth, count)?)));
            Value::from(Map::new(all.collect::<Result<Vec<_>, String>>()?))
        }
    })
}

/// Values of the configuration as metadata.
pub(crate) fn configured(values: &serde_json::Map<String, Json>) -> Result<Map, String> {
    let mut count = 0;
    match value(&Json::Object(values.clone()), MOST_DEPTH, &mut count)? {
        Value::Map(map) => Ok(map),
        _ => Ok(Map::default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_file_has_values_at_a_path() {
        let files = [
            ("json", r#"{"rack": {"name": "r7", "row": 3}}"#),
            ("yaml", "rack:\n  name: r7\n  row: 3\n"),
            ("toml", "[rack]\nname = 'r7'\nrow = 3\n"),
            ("ini", "; here\n[rack]\nname = r7\nrow: 3\n"),
            ("properties", "# here\nrack.name=r7\nrack.row=3\n"),
        ];
        for (kind, text) in files {
            let all = parse(kind, text).unwrap();
            let found = select(&all, "rack.name").unwrap();
            assert_eq!(found, "r7", "{kind}");
            assert_eq!(select(&all, "rack.nothing"), None, "{kind}");
            let row = select(&all, "rack.row").unwrap();
            assert!(*row == 3 || *row == "3", "{kind}: {row}");
        }
    }

    #[test]
    fn what_is_wrong_is_said_in_one_line() {
        let wrong = [
            ("json", "{"),
            ("yaml", "a: [\n"),
            ("toml", "a = = b\nc"),
            ("ini", "[a\n"),
            ("ini", "nothing"),
            ("ini", "a=1\n[a]\nb=2"),
            ("properties", "nothing"),
        ];
        for (kind, text) in wrong {
            let error = parse(kind, text).unwrap_err();
            assert!(
                !error.is_empty() && !error.contains('\n'),
                "{kind}: {error}"
            );
        }
        let deep = format!("{}1{}", "[".repeat(60), "]".repeat(60));
        let many = format!("[{}1]", "1,".repeat(2_000));
        for text in [deep, many] {
            let all = parse("json", &text).unwrap();
            assert!(value(&all, MOST_DEPTH, &mut 0).is_err());
        }
    }
}
