//! Rules and groups.

use crate::{
    action::{Action, Budget, Instructions, int, list, texts, values},
    field::{self, Entry},
    message::Version,
    read::Reader,
};
use skua_topology::{Map, Value};
use std::{fmt::Write as _, time::Duration};

/// What tells one rule of a switch from another: table, priority and match.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Key {
    /// Its table.
    pub table: u8,
    /// Higher ones are asked first.
    pub priority: u16,
    /// The match as it was sent.
    pub fields: Box<[u8]>,
}

/// A rule.
#[derive(Clone, PartialEq, Debug)]
pub struct Rule {
    /// Which rule.
    pub key: Key,
    /// What its creator wrote.
    pub cookie: u64,
    /// Seconds without a packet after which it ends; 0: never.
    pub idle_timeout: u16,
    /// Seconds after which it ends; 0: never.
    pub hard_timeout: u16,
    /// What is evicted first, from OpenFlow 1.4 on.
    pub importance: u16,
    /// Bits of `OFPFF_…`.
    pub flags: u16,
    /// The match, as `ovs-ofctl` writes it.
    pub matched: String,
    /// The match in parts, as Skydive has it.
    pub filters: Value,
    /// What it does.
    pub instructions: Instructions,
    /// Counters; none in reports of changes.
    pub counters: Option<Counters>,
}

/// What a rule has matched.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Packets.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
    /// How long it is there.
    pub age: Duration,
}

const FLAGS: [(&str, &str); 5] = [
    ("SendFlowRem", "send_flow_rem"),
    ("CheckOverlap", "check_overlap"),
    ("ResetCounts", "reset_counts"),
    ("NoPktCounts", "no_packet_counts"),
    ("NoBytCounts", "no_byte_counts"),
];

/// Counters that are not kept.
fn known(counter: u64) -> u64 {
    if counter == u64::MAX { 0 } else { counter }
}

impl Rule {
    /// Reads an entry of a reply with rules, from its length on.
    pub(crate) fn entry(reader: &mut Reader, version: Version) -> Option<Self> {
        let mut head = *reader;
        let length = usize::from(head.u16()?);
        let mut body = Reader::new(reader.take(length)?.get(2..)?);
        let table = body.u8()?;
        body.skip(1)?;
        let age = Duration::from_secs(body.u32()?.into());
        let age = age + Duration::from_nanos(body.u32()?.into());
        let (priority, idle, hard) = (body.u16()?, body.u16()?, body.u16()?);
        let (flags, importance) = (body.u16()?, body.u16()?);
        body.skip(2)?;
        let cookie = body.u64()?;
        let (packets, bytes) = (body.u64()?, body.u64()?);
        let mut rule = Self::rest(&mut body, table, priority, cookie)?;
        rule.idle_timeout = idle;
        rule.hard_timeout = hard;
        rule.flags = flags;
        rule.importance = if version >= Version::V14 {
            importance
        } else {
            0
        };
        rule.counters = Some(Counters {
            packets: known(packets),
            bytes: known(bytes),
            age,
        });
        Some(rule)
    }

    /// Match and instructions.
    fn rest(body: &mut Reader, table: u8, priority: u16, cookie: u64) -> Option<Self> {
        let (kind, length) = (body.u16()?, usize::from(body.u16()?));
        if kind != 1 {
            return None;
        }
        let size = length.checked_sub(4)?;
        let fields = body.take(size)?;
        body.skip((8 - length % 8) % 8)?;
        let mut reader = Reader::new(fields);
        let mut entries: Vec<Entry> = Vec::new();
        while !reader.is_empty() {
            entries.push(field::entry(&mut reader)?);
        }
        Some(Self {
            key: Key {
                table,
                priority,
                fields: fields.into(),
            },
            cookie,
            idle_timeout: 0,
            hard_timeout: 0,
            importance: 0,
            flags: 0,
            matched: field::match_text(&entries),
            filters: entries
                .iter()
                .map(|entry| Value::from(entry.map()))
                .collect(),
            instructions: Instructions::read(body)?,
            counters: None,
        })
    }

    /// The rule as `ovs-ofctl add-flow` takes it, and `dump-flows` shows it.
    pub fn text(&self) -> String {
        let mut text = format!("table={}", self.key.table);
        for (name, value) in [
            ("idle_timeout", self.idle_timeout),
            ("hard_timeout", self.hard_timeout),
            ("importance", self.importance),
        ] {
            if value != 0 {
                let _ = write!(text, ",{name}={value}");
            }
        }
        let _ = write!(text, ",priority={}", self.key.priority);
        if !self.matched.is_empty() {
            let _ = write!(text, ",{}", self.matched);
        }
        let _ = write!(text, " actions={}", self.instructions.text());
        text
    }

    /// Names of the flags that are set, as Skydive has them.
    pub fn flag_map(&self) -> Map {
        let set = FLAGS.iter().enumerate();
        let set = set.filter(|(bit, _)| self.flags >> bit & 1 == 1);
        let set = set.map(|(_, (name, _))| ((*name).into(), Value::Bool(true)));
        Map::new(set.collect())
    }

    /// `Actions`, as Skydive has them: what is done at once; that it is dropped, if nothing is done at all.
    pub fn actions(&self) -> Value {
        if self.instructions.drops() {
            return [Action::new("drop", "drop").value()].into_iter().collect();
        }
        values(&self.instructions.apply)
    }

    /// `WriteActions`: what is done at the end of all tables.
    pub fn write_actions(&self) -> Value {
        values(&self.instructions.write)
    }
}

/// A change of rules.
#[derive(Clone, PartialEq, Debug)]
pub enum Update {
    /// A rule is new, or does something else now.
    Set(Box<Rule>),
    /// A rule is gone.
    Removed(Key),
    /// What changed cannot be told: everything has to be requested again.
    Unknown,
}

impl Update {
    pub(crate) fn entry(reader: &mut Reader) -> Option<Self> {
        let mut head = *reader;
        let length = usize::from(head.u16()?);
        let mut body = Reader::new(reader.take(length)?.get(2..)?);
        let event = body.u16()?;
        if !matches!(event, 0..=3) {
            return Some(Self::Unknown);
        }
        let table = body.u8()?;
        body.skip(1)?;
        let (idle, hard, priority) = (body.u16()?, body.u16()?, body.u16()?);
        body.skip(4)?;
        let cookie = body.u64()?;
        let mut rule = Rule::rest(&mut body, table, priority, cookie)?;
        rule.idle_timeout = idle;
        rule.hard_timeout = hard;
        Some(match event {
            2 => Self::Removed(rule.key),
            _ => Self::Set(Box::new(rule)),
        })
    }
}

/// A bucket of a group.
#[derive(Clone, PartialEq, Debug)]
pub struct Bucket {
    /// Its share of packets, in groups that choose one.
    pub weight: u16,
    /// Port whose state decides whether it is used; all ones: none.
    pub watch_port: u32,
    /// Group likewise.
    pub watch_group: u32,
    /// What it does.
    pub actions: Vec<Action>,
}

/// A group.
#[derive(Clone, PartialEq, Debug)]
pub struct Group {
    /// Its number.
    pub id: u32,
    /// `all`, `select`, `indirect` or `ff`.
    pub kind: &'static str,
    /// What it chooses from.
    pub buckets: Vec<Bucket>,
}

/// Buckets of a group at most.
const MAX_BUCKETS: usize = 256;

impl Group {
    pub(crate) fn entry(reader: &mut Reader) -> Option<Self> {
        let mut head = *reader;
        let length = usize::from(head.u16()?);
        let mut body = Reader::new(reader.take(length)?.get(2..)?);
        let kind = match body.u8()? {
            0 => "all",
            1 => "select",
            2 => "indirect",
            3 => "ff",
            _ => "unknown",
        };
        body.skip(1)?;
        let id = body.u32()?;
        let mut buckets = Vec::new();
        let mut budget = Budget::new();
        while !body.is_empty() && buckets.len() < MAX_BUCKETS {
            let mut head = body;
            let length = usize::from(head.u16()?);
            let mut part = Reader::new(body.take(length)?.get(2..)?);
            let weight = part.u16()?;
            let (watch_port, watch_group) = (part.u32()?, part.u32()?);
            part.skip(4)?;
            buckets.push(Bucket {
                weight,
                watch_port,
                watch_group,
                actions: list(&mut part, &mut budget)?,
            });
        }
        Some(Self { id, kind, buckets })
    }

    /// The group as `ovs-ofctl add-group` takes it.
    pub fn text(&self) -> String {
        let mut text = format!("group_id={},type={}", self.id, self.kind);
        for bucket in &self.buckets {
            text.push_str(",bucket=");
            if self.kind == "select" {
                let _ = write!(text, "weight:{},", bucket.weight);
            }
            if bucket.watch_port != u32::MAX {
                let _ = write!(text, "watch_port:{},", field::port(bucket.watch_port));
            }
            if bucket.watch_group != u32::MAX {
                let _ = write!(text, "watch_group:{},", bucket.watch_group);
            }
            let actions = match bucket.actions.is_empty() {
                true => "drop".to_owned(),
                false => texts(&bucket.actions),
            };
            let _ = write!(text, "actions={actions}");
        }
        text
    }

    /// `Buckets`, as Skydive has them.
    pub fn bucket_values(&self) -> Value {
        let buckets = self.buckets.iter().map(|bucket| {
            Value::from(Map::from([
                ("Len", 0.into()),
                ("Weight", int(bucket.weight)),
                ("WatchPort", int(bucket.watch_port)),
                ("WatchGroup", int(bucket.watch_group)),
                ("Actions", values(&bucket.actions)),
            ]))
        });
        buckets.collect()
    }
}

/// What a group has matched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupCounters {
    /// Its number.
    pub id: u32,
    /// What it matched.
    pub counters: Counters,
}

impl GroupCounters {
    pub(crate) fn entry(reader: &mut Reader) -> Option<Self> {
        let mut head = *reader;
        let length = usize::from(head.u16()?);
        let mut body = Reader::new(reader.take(length)?.get(2..)?);
        body.skip(2)?;
        let id = body.u32()?;
        body.skip(8)?;
        let (packets, bytes) = (body.u64()?, body.u64()?);
        let age = Duration::from_secs(body.u32()?.into());
        let age = age + Duration::from_nanos(body.u32()?.into());
        Some(Self {
            id,
            counters: Counters {
                packets: known(packets),
                bytes: known(bytes),
                age,
            },
        })
    }
}
