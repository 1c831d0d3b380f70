//! Messages of JSON-RPC and what is in them, RFC 7047 section 4.

use crate::{Change, Error, Monitored, Row};
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, Visitor},
};
use serde_json::{Map, Value, json, value::RawValue};
use std::{
    collections::{HashMap, HashSet},
    fmt,
};
use uuid::Uuid;

/// Longest row as it is sent, in bytes: a bridge with 65,000 ports. In memory a number takes twelve
/// times what it takes in a message, so this also bounds what reading a row can take.
const MAX_ROW: usize = 4 << 20;

/// A received message: a request, a notification (without `id`) or an answer (without `method`). Its parts
/// are parsed only when their type is known.
#[derive(Debug, Default, Deserialize)]
pub struct Message {
    /// Which request this is, or answers.
    #[serde(default)]
    pub id: Option<Box<RawValue>>,
    /// The requested method.
    #[serde(default)]
    pub method: Option<String>,
    /// Of the method.
    #[serde(default)]
    pub params: Option<Box<RawValue>>,
    /// The answer.
    #[serde(default)]
    pub result: Option<Box<RawValue>>,
    /// Why there is none.
    #[serde(default)]
    pub error: Option<Box<RawValue>>,
}

fn broken(error: serde_json::Error) -> Error {
    Error::Protocol(error.to_string())
}

/// The changes in an update notification's parameters: `[monitor, table-updates]`.
pub fn notified(params: &str, monitored: &[Monitored], limit: usize) -> Result<Vec<Change>, Error> {
    #[derive(Deserialize)]
    struct Params<'a>(IgnoredAny, #[serde(borrow)] &'a RawValue);
    let Params(_, updates) = serde_json::from_str(params).map_err(broken)?;
    changes(updates.get(), monitored, limit)
}

/// The changes in a `<table-updates>` object (RFC 7047 section 4.1.6). Refused when a table is not
/// monitored, and when the rows take more than `limit` bytes of memory.
pub fn changes(updates: &str, monitored: &[Monitored], limit: usize) -> Result<Vec<Change>, Error> {
    let mut sink = Sink {
        monitored,
        limit,
        bytes: 0,
        over: false,
        changes: Vec::new(),
    };
    let mut deserializer = serde_json::Deserializer::from_str(updates);
    let done = Tables(&mut sink).deserialize(&mut deserializer);
    match done.and_then(|()| deserializer.end()) {
        Ok(()) => Ok(sink.changes),
        Err(_) if sink.over => Err(Error::TooLarge {
            what: "an update",
            limit,
        }),
        Err(error) => Err(broken(error)),
    }
}

struct Sink<'m> {
    monitored: &'m [Monitored],
    limit: usize,
    bytes: usize,
    over: bool,
    changes: Vec<Change>,
}

/// Reads the tables of an update, row by row, so that no more of them is in memory than is kept.
struct Tables<'s, 'm>(&'s mut Sink<'m>);

impl<'de> DeserializeSeed<'de> for Tables<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Tables<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("tables by name")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(name) = map.next_key::<String>()? {
            let known = self.0.monitored.iter().find(|m| m.table == name);
            let table = known.ok_or_else(|| A::Error::custom("a table that is not monitored"))?;
            map.next_value_seed(Rows {
                table: table.table,
                sink: self.0,
            })?;
        }
        Ok(())
    }
}

struct Rows<'s, 'm> {
    table: &'static str,
    sink: &'s mut Sink<'m>,
}

impl<'de> DeserializeSeed<'de> for Rows<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Rows<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("rows by identifier")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        /// What was before is in our copy.
        #[derive(Deserialize)]
        struct Update {
            #[serde(default)]
            new: Option<Row>,
        }
        while let Some(id) = map.next_key::<String>()? {
            let id = Uuid::try_parse(&id).map_err(|_| A::Error::custom("not a UUID"))?;
            let update: &RawValue = map.next_value()?;
            self.sink.over = update.get().len() > MAX_ROW.min(self.sink.limit);
            if self.sink.over {
                return Err(A::Error::custom("too much"));
            }
            let update: Update = serde_json::from_str(update.get()).map_err(A::Error::custom)?;
            let row = update.new;
            self.sink.bytes += size_of::<Change>() + row.as_ref().map_or(0, Row::bytes);
            self.sink.over = self.sink.bytes > self.sink.limit;
            if self.sink.over {
                return Err(A::Error::custom("too much"));
            }
            self.sink.changes.push(Change {
                table: self.table,
                id,
                row,
            });
        }
        Ok(())
    }
}

/// The columns that a database has, by table, of the answer to `get_schema`.
pub fn schema(result: &str) -> Result<HashMap<String, HashSet<String>>, Error> {
    #[derive(Deserialize)]
    struct Schema {
        tables: HashMap<String, Table>,
    }
    #[derive(Deserialize)]
    struct Table {
        columns: HashMap<String, IgnoredAny>,
    }
    let schema: Schema = serde_json::from_str(result).map_err(broken)?;
    let columns = |table: Table| table.columns.into_keys().collect();
    let tables = schema.tables.into_iter();
    Ok(tables.map(|(name, table)| (name, columns(table))).collect())
}

/// The request object of `monitor`: the monitored columns that exist.
pub(crate) fn monitor_request(
    monitored: &[Monitored],
    schema: &HashMap<String, HashSet<String>>,
) -> Value {
    let mut tables = Map::new();
    for wanted in monitored {
        if let Some(columns) = schema.get(wanted.table) {
            let there = wanted
                .columns
                .iter()
                .filter(|name| columns.contains(**name));
            let columns: Vec<_> = there.collect();
            tables.insert(wanted.table.to_owned(), json!({ "columns": columns }));
        }
    }
    Value::Object(tables)
}

/// What an answer says: the result, or why it was refused.
pub(crate) fn outcome(message: Message) -> Result<Box<RawValue>, Error> {
    match (message.error, message.result) {
        (Some(error), _) => Err(refusal(error.get())),
        (None, Some(result)) => Ok(result),
        (None, None) => Err(Error::Protocol("an answer without a result".to_owned())),
    }
}

/// An error of the protocol, text or object, whatever else it may be.
fn refusal(error: &str) -> Error {
    /// Longest part of a server's text that is shown.
    const MOST: usize = 512;
    let cut = |text: &str| text.chars().take(MOST).collect::<String>();
    #[derive(Deserialize)]
    struct Object {
        error: String,
        #[serde(default)]
        details: Option<String>,
    }
    let (error, details) = match serde_json::from_str::<Object>(error) {
        Ok(object) => (cut(&object.error), object.details.unwrap_or_default()),
        Err(_) => match serde_json::from_str::<String>(error) {
            Ok(text) => (cut(&text), String::new()),
            Err(_) => ("unknown error".to_owned(), error.to_owned()),
        },
    };
    Error::Refused {
        error,
        details: cut(&details),
    }
}

/// The results of a transaction's operations, or the first error among them. After a failed operation
/// come nulls; a commit that failed adds an error at the end (RFC 7047 section 4.1.3).
pub(crate) fn results(result: &str) -> Result<Vec<Value>, Error> {
    let results: Vec<Value> = serde_json::from_str(result).map_err(broken)?;
    let failed = |value: &&Value| value.get("error").is_some_and(|error| !error.is_null());
    match results.iter().find(failed) {
        Some(error) => Err(refusal(&error.to_string())),
        None => Ok(results),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn monitored() -> Vec<Monitored> {
        vec![Monitored::new("Bridge", &["name"])]
    }

    #[test]
    fn an_update_says_what_became_of_each_row() {
        let (a, b) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let text = format!(
            r#"["m",{{"Bridge":{{"{a}":{{"new":{{"name":"x"}}}},"{b}":{{"old":{{"name":"y"}}}}}}}}]"#
        );
        let changes = notified(&text, &monitored(), 10_000).unwrap();
        assert_eq!(changes[0].id, a);
        assert_eq!(changes[0].row.as_ref().unwrap().text("name"), Some("x"));
        assert_eq!((changes[1].id, &changes[1].row), (b, &None));
        assert!(matches!(
            notified(&text, &monitored(), 200),
            Err(Error::TooLarge { limit: 200, .. })
        ));
        let other = text.replace("Bridge", "Port");
        assert!(notified(&other, &monitored(), 10_000).is_err());
    }

    #[test]
    fn errors_of_transactions_are_found() {
        assert_eq!(results("[{},null]").unwrap().len(), 2);
        let error = results(r#"[{},{"error":"timed out","details":"no"},null]"#).unwrap_err();
        assert_eq!(error.to_string(), "OVSDB: refused: timed out (no)");
        assert!(results("{}").is_err());
        assert_eq!(
            refusal("7").to_string(),
            "OVSDB: refused: unknown error (7)"
        );
    }

    #[test]
    fn only_columns_that_exist_are_asked_for() {
        let text = r#"{"name":"x","tables":{"Bridge":{"columns":{"a":{"type":"string"}}}}}"#;
        let wanted = [Monitored::new("Bridge", &["a", "b"])];
        let request = monitor_request(&wanted, &schema(text).unwrap());
        assert_eq!(request, json!({"Bridge": {"columns": ["a"]}}));
    }

    /// Texts that are nearly updates.
    fn nearly() -> impl Strategy<Value = String> {
        let word = prop::sample::select(vec![
            "[",
            "]",
            "{",
            "}",
            ",",
            ":",
            "\"Bridge\"",
            "\"new\"",
            "\"old\"",
            "\"set\"",
            "\"map\"",
            "\"uuid\"",
            "null",
            "1",
            "1e400",
            "-9223372036854775809",
            "\"\\u0000\"",
            "\"00000000-0000-0000-0000-000000000001\"",
            "\"name\"",
            "true",
            "[\"set\",[]]",
            "{\"Bridge\":{\"00000000-0000-0000-0000-000000000001\":",
        ]);
        prop::collection::vec(word, 0..40).prop_map(|words| words.concat())
    }

    proptest! {
        #[test]
        fn no_text_breaks_the_reading(text in prop_oneof![nearly(), ".*"]) {
            let _ = changes(&text, &monitored(), 1_000);
            let _ = notified(&text, &monitored(), 1_000);
            let _ = results(&text);
            let _ = schema(&text);
            let _ = refusal(&text);
            let _ = serde_json::from_str::<Message>(&text);
        }

        /// What is written as an update is read as the same rows.
        #[test]
        fn updates_are_read_as_written(
            rows in prop::collection::hash_map(any::<u128>(), prop::option::of(".{0,20}"), 0..20)
        ) {
            let updates: Map<String, Value> = rows.iter().map(|(id, name)| {
                let update = match name {
                    Some(name) => json!({"new": {"name": name}}),
                    None => json!({"old": {"name": "x"}}),
                };
                (Uuid::from_u128(*id).to_string(), update)
            }).collect();
            let text = json!({ "Bridge": updates }).to_string();
            let read = changes(&text, &monitored(), 1 << 20).unwrap();
            prop_assert_eq!(read.len(), rows.len());
            for change in read {
                let name = change.row.as_ref().and_then(|row| row.text("name"));
                prop_assert_eq!(name, rows[&change.id.as_u128()].as_deref());
            }
        }
    }
}
