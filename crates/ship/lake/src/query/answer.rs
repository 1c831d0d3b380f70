//! Answers: groups with their sums.

use std::io::{self, Write};

use serde::ser::{Serialize, SerializeMap, Serializer};
use skua_record::time::UnixNs;

use super::{Order, field::Field};
use crate::{batch::NULL, schema::Kind};

/// Sums of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Sums {
    pub rows: u64,
    pub sent: [u64; 2],
    pub received: [u64; 2],
    pub retransmitted: u64,
    pub begun: u64,
    pub ended: u64,
    /// Handshakes, and the sum of their times, ns.
    pub rtt: [u64; 2],
    /// µs.
    pub first: i64,
    pub last: i64,
}

impl Default for Sums {
    fn default() -> Self {
        Self {
            rows: 0,
            sent: [0; 2],
            received: [0; 2],
            retransmitted: 0,
            begun: 0,
            ended: 0,
            rtt: [0; 2],
            first: i64::MAX,
            last: 0,
        }
    }
}

impl Sums {
    /// What groups are ordered by.
    pub fn rank(&self, order: Order) -> u64 {
        match order {
            Order::Bytes => self.sent[1].saturating_add(self.received[1]),
            Order::Packets => self.sent[0].saturating_add(self.received[0]),
            Order::Sent => self.sent[1],
            Order::Received => self.received[1],
            Order::Begun => self.begun,
            Order::Ended => self.ended,
            Order::Retransmitted => self.retransmitted,
            Order::Rtt => self.mean_rtt().unwrap_or(0),
            Order::Last => self.last.max(0).cast_unsigned(),
            // The latest first, as in `skua flows`.
            Order::First => self.first.max(0).cast_unsigned(),
        }
    }

    pub fn mean_rtt(&self) -> Option<u64> {
        let [count, sum] = self.rtt;
        sum.checked_div(count)
    }
}

/// A field's value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FieldValue {
    /// There is none.
    Absent,
    /// Integer.
    Number(i64),
    /// Text.
    Text(String),
}

impl std::fmt::Display for FieldValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Absent => Ok(()),
            Self::Number(number) => number.fmt(f),
            Self::Text(text) => f.write_str(text),
        }
    }
}

impl FieldValue {
    pub(crate) fn number(kind: Kind, number: i64) -> Self {
        match (kind, number) {
            (_, NULL) => Self::Absent,
            (Kind::Time, us) => {
                let ns = us.max(0).cast_unsigned().saturating_mul(1_000);
                Self::Text(UnixNs(ns).to_string())
            }
            (_, number) => Self::Number(number),
        }
    }
}

/// A group.
#[derive(Clone, PartialEq, Debug)]
pub struct Group {
    /// Values of the fields that were grouped by.
    pub values: Vec<FieldValue>,
    pub(crate) sums: Sums,
}

/// An answer.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Answer {
    /// Fields that the rows are grouped by.
    pub by: Vec<String>,
    /// The first groups in the requested order.
    pub groups: Vec<Group>,
    /// Groups in all.
    pub all_groups: usize,
    /// Length of the requested time as far as it was observed: from the first row to the last, s.
    pub seconds: f64,
    /// Rows read.
    pub rows: u64,
    /// Files that may contain matching rows.
    pub files: usize,
    /// Row groups that were read.
    pub read: usize,
    /// Row groups that could be passed over by statistics and bloom filters.
    pub pruned: usize,
    /// What could not be read, and is missing in the sums.
    pub damaged: Vec<String>,
}

/// Sums of a group, in the order in which they are written.
const SUMS: [&str; 13] = [
    "sent.packets",
    "sent.bytes",
    "received.packets",
    "received.bytes",
    "begun",
    "ended",
    "retransmitted",
    "handshakes",
    "handshake_rtt",
    "rate.bits_per_second",
    "start",
    "last",
    "rows",
];

impl Group {
    fn sum(&self, name: &str, seconds: f64) -> serde_json::Value {
        let sums = &self.sums;
        let time = |us: i64| FieldValue::number(Kind::Time, us).to_string().into();
        match name {
            "sent.packets" => sums.sent[0].into(),
            "sent.bytes" => sums.sent[1].into(),
            "received.packets" => sums.received[0].into(),
            "received.bytes" => sums.received[1].into(),
            "begun" => sums.begun.into(),
            "ended" => sums.ended.into(),
            "retransmitted" => sums.retransmitted.into(),
            "handshakes" => sums.rtt[0].into(),
            "handshake_rtt" => sums.mean_rtt().into(),
            "rate.bits_per_second" => {
                let bytes = sums.rank(Order::Bytes) as f64;
                ((bytes * 8_000.0 / seconds.max(0.001)).round() / 1_000.0).into()
            }
            "start" => time(sums.first),
            "last" => time(sums.last),
            _ => sums.rows.into(),
        }
    }
}

/// A group of an answer, as a JSON object.
struct Line<'a>(&'a Answer, &'a Group);

impl Serialize for Line<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(answer, group) = self;
        let mut map = serializer.serialize_map(None)?;
        for (name, value) in answer.by.iter().zip(&group.values) {
            match value {
                FieldValue::Absent => {}
                FieldValue::Number(number) => map.serialize_entry(name, number)?,
                FieldValue::Text(text) => map.serialize_entry(name, text)?,
            }
        }
        let mut inner: Option<(&str, serde_json::Map<_, _>)> = None;
        for name in SUMS {
            let value = group.sum(name, answer.seconds);
            let (object, own) = name.split_once('.').unwrap_or(("", name));
            if let Some((before, map_before)) = inner.take_if(|(before, _)| *before != object) {
                map.serialize_entry(before, &map_before)?;
            }
            match object {
                "" if value.is_null() => {}
                "" => map.serialize_entry(own, &value)?,
                object => {
                    let (_, inner) = inner.get_or_insert_with(|| (object, serde_json::Map::new()));
                    inner.insert(own.to_owned(), value);
                }
            }
        }
        map.end()
    }
}

impl Answer {
    pub(crate) fn fields(by: &[Field]) -> Vec<String> {
        by.iter().map(|field| field.name().to_owned()).collect()
    }

    /// Writes the groups, a JSON object a line.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn write_json(&self, out: &mut impl Write) -> io::Result<()> {
        for group in &self.groups {
            serde_json::to_writer(&mut *out, &Line(self, group))?;
            out.write_all(b"\n")?;
        }
        Ok(())
    }

    /// Writes the header of [`write_csv`](Self::write_csv).
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn write_csv_header(&self, out: &mut impl Write) -> io::Result<()> {
        let names = self.by.iter().map(String::as_str).chain(SUMS);
        let names: Vec<String> = names.map(|name| name.replace('.', "_")).collect();
        writeln!(out, "{}", names.join(","))
    }

    /// Writes the groups as CSV (RFC 4180, but LF).
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn write_csv(&self, out: &mut impl Write) -> io::Result<()> {
        for group in &self.groups {
            let sums = SUMS.map(|name| match group.sum(name, self.seconds) {
                serde_json::Value::Null => String::new(),
                serde_json::Value::String(text) => text,
                other => other.to_string(),
            });
            let values = group.values.iter().map(ToString::to_string).chain(sums);
            for (place, value) in values.enumerate() {
                let comma = if place == 0 { "" } else { "," };
                match value.contains([',', '"', '\n', '\r']) {
                    true => write!(out, "{comma}\"{}\"", value.replace('"', "\"\""))?,
                    false => write!(out, "{comma}{value}")?,
                }
            }
            out.write_all(b"\n")?;
        }
        Ok(())
    }
}
