//! Records as users see them. Every field of a record is defined once, as a [`Field`]: its JSON, its
//! CSV, their schema, its key in queries, its column in the lake, its type in the web page and its line in the
//! documentation come from there.

mod field;
mod schema;
mod tcp;
pub mod time;
mod value;

use std::{fmt, io};

pub use field::{Aggregation, Field, FieldType, Name, same};
pub use schema::{json_schema, markdown, typescript};
use serde::{Serialize, Serializer, ser::SerializeMap};
pub use tcp::TcpCounters;
pub use value::{NoOther, Value};

/// One list of several, which together must have `ALL` elements.
///
/// # Panics
///
/// When they have fewer; in a constant that is an error of the compiler.
pub const fn joined<T: Copy, const ALL: usize>(parts: &[&[T]]) -> [T; ALL] {
    let mut all = [parts[0][0]; ALL];
    let (mut part, mut from, mut at) = (0, 0, 0);
    while at < ALL {
        if from == parts[part].len() {
            (part, from) = (part + 1, 0);
        } else {
            all[at] = parts[part][from];
            (from, at) = (from + 1, at + 1);
        }
    }
    all
}

/// A kind of record.
pub trait Record: 'static {
    /// What a field's value is taken from: the record with the names that belong to it.
    type Line<'a>;
    /// Values that only this kind of record has; [`NoOther`] for none.
    type Other<'a>: fmt::Display + Serialize;
    /// How a field's value is found: `for<'a> fn(&Self::Line<'a>) -> Value<'a, Self::Other<'a>>`,
    /// which can only be written where the types are known.
    type Getter: Copy;

    /// Calls it.
    fn get<'a>(getter: Self::Getter, line: &Self::Line<'a>) -> Value<'a, Self::Other<'a>>;
}

/// Writes the JSON object of a record. Fields of one object stand together in `fields`.
///
/// # Errors
///
/// Those of the serializer.
pub fn serialize<R: Record, S: Serializer>(
    fields: &[Field<R>],
    line: &R::Line<'_>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(None)?;
    let mut rest = fields;
    while let [first, ..] = rest {
        let (fields, after) = rest.split_at(group_len::<R>(rest));
        rest = after;
        match first.path.split_once('.') {
            None => {
                let value = R::get(first.value, line);
                if !value.is_absent() {
                    map.serialize_entry(first.path, &value)?;
                }
            }
            Some((name, _)) => {
                if fields.iter().any(|f| !R::get(f.value, line).is_absent()) {
                    map.serialize_entry(name, &Group::<R> { fields, line })?;
                }
            }
        }
    }
    map.end()
}

/// Writes a row of a table as JSON: flat, under the names of [`Field::row`], times in ms since the Unix epoch. What is
/// left out of the record is empty or 0.
///
/// # Errors
///
/// Those of the serializer.
pub fn serialize_row<R: Record, M: SerializeMap>(
    fields: &[Field<R>],
    line: &R::Line<'_>,
    map: &mut M,
) -> Result<(), M::Error> {
    for field in fields {
        let Some(name) = field.message.get() else {
            continue;
        };
        match (R::get(field.value, line), field.kind) {
            (Value::Time(ns), _) => map.serialize_entry(name, &(ns / 1_000_000))?,
            (Value::Absent, FieldType::String) => map.serialize_entry(name, "")?,
            (Value::Absent, _) => map.serialize_entry(name, &0)?,
            (value, _) => map.serialize_entry(name, &value)?,
        }
    }
    Ok(())
}

/// How many fields at the start share an object; 1 for a field outside of objects.
fn group_len<R: Record>(fields: &[Field<R>]) -> usize {
    fn object<R: Record>(field: &Field<R>) -> Option<&'static str> {
        field.path.split_once('.').map(|(name, _)| name)
    }
    match fields.first().and_then(object::<R>) {
        None => 1,
        name => fields.iter().take_while(|f| object::<R>(f) == name).count(),
    }
}

/// Name of a field in its object.
fn own_name<R: Record>(field: &Field<R>) -> &'static str {
    field
        .path
        .split_once('.')
        .map_or(field.path, |(_, name)| name)
}

/// An object inside of the record's.
struct Group<'f, 'a, R: Record> {
    fields: &'f [Field<R>],
    line: &'f R::Line<'a>,
}

impl<R: Record> Serialize for Group<'_, '_, R> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for field in self.fields {
            let value = R::get(field.value, self.line);
            if !value.is_absent() {
                map.serialize_entry(own_name::<R>(field), &value)?;
            }
        }
        map.end()
    }
}

/// Writes the CSV header: the paths with `_` for `.`.
///
/// # Errors
///
/// Those of `out`.
pub fn write_csv_header<R: Record>(
    fields: &[Field<R>],
    out: &mut impl io::Write,
) -> io::Result<()> {
    for (place, field) in fields.iter().enumerate() {
        separate(out, place)?;
        out.write_all(field.path.replace('.', "_").as_bytes())?;
    }
    out.write_all(b"\n")
}

/// Writes a record as a CSV row (RFC 4180, but LF); fields that do not apply are empty.
///
/// # Errors
///
/// Those of `out`.
pub fn write_csv_row<R: Record>(
    fields: &[Field<R>],
    out: &mut impl io::Write,
    line: &R::Line<'_>,
) -> io::Result<()> {
    let mut own = String::new();
    for (place, field) in fields.iter().enumerate() {
        separate(out, place)?;
        match R::get(field.value, line) {
            // Only what comes from outside can hold characters that need quotes.
            Value::Text(text) => write_text(out, text)?,
            Value::Other(value) => {
                own.clear();
                // Writing to a string cannot fail.
                let _ = fmt::Write::write_fmt(&mut own, format_args!("{value}"));
                write_text(out, &own)?;
            }
            value => write!(out, "{value}")?,
        }
    }
    out.write_all(b"\n")
}

fn write_text(out: &mut impl io::Write, text: &str) -> io::Result<()> {
    match text.contains([',', '"', '\n', '\r']) {
        true => write!(out, "\"{}\"", text.replace('"', "\"\"")),
        false => out.write_all(text.as_bytes()),
    }
}

fn separate(out: &mut impl io::Write, place: usize) -> io::Result<()> {
    if place == 0 {
        return Ok(());
    }
    out.write_all(b",")
}
