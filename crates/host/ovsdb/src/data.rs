//! Values of OVSDB, RFC 7047 section 5.1.

use serde::{
    Deserialize, Deserializer,
    de::{Error as _, IgnoredAny, SeqAccess, Visitor},
};
use std::{collections::HashMap, fmt, sync::Arc};
use uuid::Uuid;

/// A single value.
#[derive(Clone, PartialEq, Debug)]
pub enum Atom {
    /// `integer`
    Int(i64),
    /// `real`
    Real(f64),
    /// `boolean`
    Bool(bool),
    /// `string`
    Str(Arc<str>),
    /// `uuid`
    Uuid(Uuid),
}

impl Atom {
    /// The text, if it is one.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::Str(text) => Some(text),
            _ => None,
        }
    }

    /// The whole number, if it is one.
    pub fn as_int(&self) -> Option<i64> {
        match self {
            Self::Int(number) => Some(*number),
            _ => None,
        }
    }

    /// The identifier, if it is one.
    pub fn as_uuid(&self) -> Option<Uuid> {
        match self {
            Self::Uuid(id) => Some(*id),
            _ => None,
        }
    }

    fn bytes(&self) -> usize {
        size_of::<Self>()
            + match self {
                Self::Str(text) => 16 + text.len(),
                _ => 0,
            }
    }
}

/// What a column holds.
#[derive(Clone, PartialEq, Debug)]
pub enum Datum {
    /// Values in no order; a column with a single value is a set of one.
    Set(Vec<Atom>),
    /// Pairs in no order.
    Map(Vec<(Atom, Atom)>),
}

impl Datum {
    fn bytes(&self) -> usize {
        match self {
            Self::Set(atoms) => atoms.iter().map(Atom::bytes).sum(),
            Self::Map(pairs) => pairs.iter().map(|(k, v)| k.bytes() + v.bytes()).sum(),
        }
    }
}

/// The columns of a row that are known. JSON as in updates.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(transparent)]
pub struct Row(HashMap<Box<str>, Datum>);

impl Row {
    /// What a column holds.
    pub fn get(&self, column: &str) -> Option<&Datum> {
        self.0.get(column)
    }

    /// The values of a column that holds a set, or one value.
    pub fn set(&self, column: &str) -> &[Atom] {
        match self.get(column) {
            Some(Datum::Set(atoms)) => atoms,
            _ => &[],
        }
    }

    /// The pairs of a column that holds a map.
    pub fn map(&self, column: &str) -> &[(Atom, Atom)] {
        match self.get(column) {
            Some(Datum::Map(pairs)) => pairs,
            _ => &[],
        }
    }

    /// The text in a column, none when it is empty.
    pub fn text(&self, column: &str) -> Option<&str> {
        self.set(column).first()?.as_str()
    }

    /// The whole number in a column.
    pub fn int(&self, column: &str) -> Option<i64> {
        self.set(column).first()?.as_int()
    }

    /// Whether a column holds true; none when it holds no truth.
    pub fn truth(&self, column: &str) -> Option<bool> {
        match self.set(column).first()? {
            Atom::Bool(truth) => Some(*truth),
            _ => None,
        }
    }

    /// The row that a column refers to.
    pub fn uuid(&self, column: &str) -> Option<Uuid> {
        self.set(column).first()?.as_uuid()
    }

    /// The rows that a column refers to.
    pub fn uuids(&self, column: &str) -> impl Iterator<Item = Uuid> + '_ {
        self.set(column).iter().filter_map(Atom::as_uuid)
    }

    /// The text under a key of a column that holds a map of texts.
    pub fn text_at(&self, column: &str, key: &str) -> Option<&str> {
        let found = self
            .map(column)
            .iter()
            .find(|(k, _)| k.as_str() == Some(key));
        found?.1.as_str()
    }

    /// About how many bytes of memory it takes.
    pub fn bytes(&self) -> usize {
        let columns = self.0.iter();
        64 + columns
            .map(|(k, v)| 64 + k.len() + v.bytes())
            .sum::<usize>()
    }
}

fn identifier<E: serde::de::Error>(text: &str) -> Result<Uuid, E> {
    Uuid::try_parse(text).map_err(|_| E::custom("not a UUID"))
}

impl<'de> Deserialize<'de> for Atom {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AtomVisitor)
    }
}

struct AtomVisitor;

impl<'de> Visitor<'de> for AtomVisitor {
    type Value = Atom;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number, a text, a truth or [\"uuid\", …]")
    }

    fn visit_bool<E>(self, truth: bool) -> Result<Atom, E> {
        Ok(Atom::Bool(truth))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Atom, E> {
        Ok(Atom::Int(number))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Atom, E> {
        Ok(i64::try_from(number).map_or(Atom::Real(number as f64), Atom::Int))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Atom, E> {
        Ok(Atom::Real(number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Atom, E> {
        Ok(Atom::Str(text.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Atom, A::Error> {
        match seq.next_element::<String>()?.as_deref() {
            Some("uuid") => uuid_of(&mut seq).map(Atom::Uuid),
            _ => Err(A::Error::custom("expected [\"uuid\", …]")),
        }
    }
}

fn uuid_of<'de, A: SeqAccess<'de>>(seq: &mut A) -> Result<Uuid, A::Error> {
    match seq.next_element::<String>()? {
        Some(text) => identifier(&text),
        None => Err(A::Error::custom("no UUID")),
    }
}

impl<'de> Deserialize<'de> for Datum {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(DatumVisitor)
    }
}

struct DatumVisitor;

impl<'de> Visitor<'de> for DatumVisitor {
    type Value = Datum;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value of OVSDB")
    }

    fn visit_bool<E: serde::de::Error>(self, truth: bool) -> Result<Datum, E> {
        AtomVisitor.visit_bool(truth).map(single)
    }

    fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<Datum, E> {
        AtomVisitor.visit_i64(number).map(single)
    }

    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<Datum, E> {
        AtomVisitor.visit_u64(number).map(single)
    }

    fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<Datum, E> {
        AtomVisitor.visit_f64(number).map(single)
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Datum, E> {
        AtomVisitor.visit_str(text).map(single)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Datum, A::Error> {
        let missing = || A::Error::custom("nothing after the kind of a value");
        let datum = match seq.next_element::<String>()?.as_deref() {
            Some("uuid") => single(Atom::Uuid(uuid_of(&mut seq)?)),
            Some("set") => Datum::Set(seq.next_element()?.ok_or_else(missing)?),
            Some("map") => Datum::Map(seq.next_element()?.ok_or_else(missing)?),
            _ => return Err(A::Error::custom("neither uuid nor set nor map")),
        };
        match seq.next_element::<IgnoredAny>()? {
            None => Ok(datum),
            Some(_) => Err(A::Error::custom("too much after the kind of a value")),
        }
    }
}

fn single(atom: Atom) -> Datum {
    Datum::Set(vec![atom])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_the_protocol_writes_them() {
        let id = "550e8400-e29b-41d4-a716-446655440000";
        let row = format!(
            r#"{{"name":"br0","ports":["uuid","{id}"],"tag":["set",[]],"trunks":["set",[1,2]],
                "stp":false,"rate":1.5,"options":["map",[["peer","p1"],["key",7]]],"big":18446744073709551615}}"#
        );
        let row: Row = serde_json::from_str(&row).unwrap();
        assert_eq!(row.text("name"), Some("br0"));
        assert_eq!(row.uuid("ports"), Some(Uuid::parse_str(id).unwrap()));
        assert_eq!(row.int("tag"), None);
        assert_eq!(row.set("trunks"), [Atom::Int(1), Atom::Int(2)]);
        assert_eq!(row.truth("stp"), Some(false));
        assert_eq!(row.set("rate"), [Atom::Real(1.5)]);
        assert_eq!(row.text_at("options", "peer"), Some("p1"));
        assert_eq!(row.text_at("options", "key"), None);
        assert_eq!(row.map("options").len(), 2);
        assert!(matches!(row.set("big"), [Atom::Real(_)]));
    }

    #[test]
    fn what_is_no_value_is_refused() {
        for text in [
            "null",
            "{}",
            "[]",
            r#"["uuid"]"#,
            r#"["uuid","x"]"#,
            r#"["set",1]"#,
            r#"["set",[["set",[]]]]"#,
            r#"["map",[[1]]]"#,
            r#"["map",[[1,2,3]]]"#,
            r#"["set",[],[]]"#,
            r#"["named-uuid","a"]"#,
            &"[".repeat(100_000),
        ] {
            assert!(serde_json::from_str::<Datum>(text).is_err(), "{text:.40}");
        }
    }
}
