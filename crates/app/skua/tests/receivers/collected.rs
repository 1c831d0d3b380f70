//! What a probe yields, as conversations that can be compared.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use skua_flow::{FlowStore, StoreLimits};
use skua_probe::{Account, Probe, Wake};

/// Nothing takes longer.
const PATIENCE: Duration = Duration::from_secs(30);
const SEED: u64 = 1;

/// What one side sent to the other: packets and bytes.
pub type Sides = BTreeMap<Side, (u64, u64)>;

/// A direction of a conversation.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Side {
    pub protocol: String,
    pub from: (String, u64),
    pub to: (String, u64),
}

/// Records of a probe that has finished, and its account.
pub struct Collected {
    pub records: Vec<Value>,
    pub account: Account,
}

/// Drains a probe until `done` says that all is there, and finishes it.
pub fn collect(mut probe: impl Probe, done: impl Fn(&Account, u64) -> bool) -> Collected {
    let mut store = FlowStore::new(StoreLimits::default(), SEED, 1);
    let end = Instant::now() + PATIENCE;
    let mut names = BTreeMap::new();
    loop {
        // Of what is gone after the drain, too.
        let watched = probe.interfaces().into_iter();
        names.extend(watched.map(|w| ((w.netns, w.ifindex), w.name)));
        probe
            .drain(Wake::Interval, &mut |update| {
                store.apply(update);
            })
            .unwrap();
        let account = probe.account();
        if done(&account, store.summary().counted.packets) {
            break;
        }
        if Instant::now() > end {
            eprintln!(
                "not all came: {:?}, {:?}",
                account.received,
                store.summary()
            );
            break;
        }
        thread::sleep(Duration::from_millis(20));
    }
    probe
        .finish(&mut |update| {
            store.apply(update);
        })
        .unwrap();
    let account = probe.account();
    // What is in flows is what the store was given, point by point and in sum.
    assert_eq!(account.in_flows(), store.summary().counted);
    let records = store
        .iter()
        .map(|record| {
            let place = (record.key.netns, record.key.ifindex);
            let name = names.get(&place).map_or("", String::as_str);
            serde_json::to_value(record.line(name)).unwrap()
        })
        .collect();
    Collected { records, account }
}

/// Records of `skua replay` of a file.
pub fn replay(file: &Path) -> Vec<Value> {
    let output = Command::new(skua_testkit::program!())
        .env("SKUA_HISTORY_DIRECTORY", "")
        .args(["replay", "--output", "json"])
        .arg(file)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// What both sides of all records sent.
pub fn sides<'a>(records: impl IntoIterator<Item = &'a Value>) -> Sides {
    let mut sides = Sides::new();
    for record in records {
        let end = |name: &str| {
            let end = &record[name];
            let address = end["address"].as_str().unwrap_or_default().to_owned();
            (address, end["port"].as_u64().unwrap_or(0))
        };
        for (from, to, sent) in [("a", "b", "ab"), ("b", "a", "ba")] {
            let side = Side {
                protocol: record["protocol"].as_str().unwrap().to_owned(),
                from: end(from),
                to: end(to),
            };
            let packets = record[sent]["packets"].as_u64().unwrap();
            let bytes = record[sent]["bytes"].as_u64().unwrap();
            if packets > 0 {
                let sum = sides.entry(side).or_default();
                sum.0 += packets;
                sum.1 += bytes;
            }
        }
    }
    sides
}

/// A folder that goes with the value.
pub struct Folder(pub std::path::PathBuf);

impl Folder {
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("rx-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub fn file(&self, name: &str, bytes: &[u8]) -> std::path::PathBuf {
        let path = self.0.join(name);
        fs::write(&path, bytes).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
