//! Records as users see them. Every field of a record is defined once, as a [`Field`]: its JSON, its
//! CSV, their schema and its line in the documentation come from there.

mod tcp;
pub mod time;
mod value;

use std::{fmt, io};

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

/// A field of a record.
pub struct Field<R: Record> {
    /// Place in the JSON object, `ab.packets` being `packets` in the object `ab`.
    pub path: &'static str,
    /// Type of the value.
    pub kind: FieldType,
    /// Unit of the value, empty for none.
    pub unit: &'static str,
    /// When the field is left out, empty for never.
    pub absent: &'static str,
    /// What the value means.
    pub meaning: &'static str,
    /// How it is found.
    pub value: R::Getter,
}

impl<R: Record> Field<R> {
    /// A field, its parts in the order of the table in the documentation.
    pub const fn new(
        path: &'static str,
        kind: FieldType,
        unit: &'static str,
        absent: &'static str,
        meaning: &'static str,
        value: R::Getter,
    ) -> Self {
        Self {
            path,
            kind,
            unit,
            absent,
            meaning,
            value,
        }
    }
}

// Derived they would want that of `R`, which is only a name.
impl<R: Record> Clone for Field<R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R: Record> Copy for Field<R> {}

/// Type of a field, in the words of JSON Schema.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FieldType {
    /// Text.
    String,
    /// Whole number, not negative.
    Integer,
    /// Number, not negative.
    Number,
    /// List of whole numbers; in CSV separated by spaces.
    Integers,
}

impl FieldType {
    /// Name in the documentation.
    pub fn name(self) -> &'static str {
        match self {
            Self::String => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Integers => "integers",
        }
    }
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
    for (place, field) in fields.iter().enumerate() {
        separate(out, place)?;
        match R::get(field.value, line) {
            // Only names from outside can hold characters that need quotes.
            Value::Text(text) if text.contains([',', '"', '\n', '\r']) => {
                write!(out, "\"{}\"", text.replace('"', "\"\""))?;
            }
            value => write!(out, "{value}")?,
        }
    }
    out.write_all(b"\n")
}

fn separate(out: &mut impl io::Write, place: usize) -> io::Result<()> {
    if place == 0 {
        return Ok(());
    }
    out.write_all(b",")
}

/// The fields as a Markdown table.
pub fn markdown<R: Record>(fields: &[Field<R>]) -> String {
    let mut text =
        String::from("| field | type | unit | meaning | left out |\n|---|---|---|---|---|\n");
    for field in fields {
        let cells = [
            &format!("`{}`", field.path),
            field.kind.name(),
            field.unit,
            field.meaning,
            field.absent,
        ];
        text.push_str(&format!("| {} |\n", cells.join(" | ")));
    }
    text
}

/// JSON Schema (2020-12) of a record.
pub fn json_schema<R: Record>(title: &str, fields: &[Field<R>]) -> serde_json::Value {
    let mut properties = serde_json::Map::new();
    let mut required = Vec::new();
    let mut rest = fields;
    while let [first, ..] = rest {
        let (fields, after) = rest.split_at(group_len::<R>(rest));
        rest = after;
        let (name, schema) = match first.path.split_once('.') {
            None => (first.path, field_schema::<R>(first)),
            Some((name, _)) => (name, object_schema::<R>(fields)),
        };
        if fields.iter().any(|field| field.absent.is_empty()) {
            required.push(name);
        }
        properties.insert(name.into(), schema);
    }
    serde_json::json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
        "type": "object",
        "properties": properties,
        "required": required,
    })
}

fn object_schema<R: Record>(fields: &[Field<R>]) -> serde_json::Value {
    let properties: serde_json::Map<_, _> = fields
        .iter()
        .map(|field| (own_name::<R>(field).into(), field_schema::<R>(field)))
        .collect();
    let required: Vec<_> = fields
        .iter()
        .filter(|field| field.absent.is_empty())
        .map(own_name::<R>)
        .collect();
    serde_json::json!({"type": "object", "properties": properties, "required": required})
}

fn field_schema<R: Record>(field: &Field<R>) -> serde_json::Value {
    let description = match field.unit {
        "" => field.meaning.to_owned(),
        unit => format!("{} ({unit})", field.meaning),
    };
    match field.kind {
        FieldType::Integers => serde_json::json!({
            "type": "array", "items": {"type": "integer", "minimum": 0}, "description": description,
        }),
        FieldType::String => serde_json::json!({"type": "string", "description": description}),
        number => serde_json::json!({
            "type": number.name(), "minimum": 0, "description": description,
        }),
    }
}
