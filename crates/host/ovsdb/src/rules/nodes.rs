//! From rules and groups to metadata, with Skydive's names where it has them.

use skua_openflow::{Counters, Group, Rule};
use skua_topology::{Map, Value};

/// Longest `Name`, in characters.
const MAX_NAME: usize = 80;

/// What has been counted, and when that was read.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Reading {
    pub packets: i64,
    pub bytes: i64,
    /// Ms since the Unix epoch.
    pub time: i64,
}

impl Reading {
    pub fn new(counters: Counters, time: i64) -> Self {
        let int = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        Self {
            packets: int(counters.packets),
            bytes: int(counters.bytes),
            time,
        }
    }

    /// `Metric`.
    pub fn metric(&self) -> Value {
        Map::from([
            ("RxPackets", self.packets.into()),
            ("RxBytes", self.bytes.into()),
            ("Last", self.time.into()),
        ])
        .into()
    }

    /// `LastUpdateMetric`; none when something went back.
    pub fn since(&self, before: &Self) -> Option<Value> {
        let packets = self.packets.checked_sub(before.packets)?;
        let bytes = self.bytes.checked_sub(before.bytes)?;
        (packets >= 0 && bytes >= 0).then(|| {
            Map::from([
                ("RxPackets", packets.into()),
                ("RxBytes", bytes.into()),
                ("Start", before.time.into()),
                ("Last", self.time.into()),
            ])
            .into()
        })
    }
}

fn name(text: &str) -> Value {
    match text.char_indices().nth(MAX_NAME) {
        Some((end, _)) => format!("{}…", &text[..end]).as_str().into(),
        None => text.into(),
    }
}

/// Metadata of a rule, but for counters.
pub(super) fn rule(id: &str, rule: &Rule) -> Map {
    let text = rule.text();
    let int = |number: u16| Value::Int(number.into());
    let mut map = vec![
        ("Name", name(&text)),
        ("Type", "ofrule".into()),
        ("TID", id.into()),
        ("UUID", id.into()),
        ("Rule", text.as_str().into()),
        ("Cookie", format!("{:#x}", rule.cookie).as_str().into()),
        ("Table", Value::Int(rule.key.table.into())),
        ("Priority", int(rule.key.priority)),
        ("IdleTimeout", int(rule.idle_timeout)),
        ("HardTimeout", int(rule.hard_timeout)),
        ("Importance", int(rule.importance)),
        ("Flags", rule.flag_map().into()),
        ("Filters", rule.filters.clone()),
        ("Actions", rule.actions()),
        ("WriteActions", rule.write_actions()),
    ];
    if let Some(table) = rule.instructions.goto_table {
        map.push(("GotoTable", Value::Int(table.into())));
    }
    let map = map.into_iter().map(|(key, value)| (key.into(), value));
    Map::new(map.collect())
}

/// Metadata of a group, but for counters.
pub(super) fn group(id: &str, group: &Group) -> Map {
    let text = group.text();
    Map::from([
        ("Name", name(&text)),
        ("Type", "ofgroup".into()),
        ("TID", id.into()),
        ("UUID", id.into()),
        ("Group", text.as_str().into()),
        ("GroupId", Value::Int(group.id.into())),
        ("GroupType", group.kind.into()),
        ("Buckets", group.bucket_values()),
    ])
}
