//! Operations of transactions, RFC 7047 section 5.2.

use crate::Error;
use serde_json::{Map, Value, json};
use uuid::Uuid;

/// A reference to a row that exists.
pub(super) fn uuid(id: Uuid) -> Value {
    json!(["uuid", id.to_string()])
}

/// A reference to a row that the same transaction makes.
pub(super) fn named(name: &str) -> Value {
    json!(["named-uuid", name])
}

pub(super) fn set(items: impl IntoIterator<Item = Value>) -> Value {
    json!(["set", items.into_iter().collect::<Vec<_>>()])
}

pub(super) fn map<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Value {
    json!(["map", pairs.into_iter().collect::<Vec<_>>()])
}

/// The condition that selects one row.
fn only(id: Uuid) -> Value {
    json!([["_uuid", "==", uuid(id)]])
}

pub(super) fn insert(table: &str, name: &str, row: Value) -> Value {
    json!({"op": "insert", "table": table, "uuid-name": name, "row": row})
}

pub(super) fn update(table: &str, id: Uuid, row: Value) -> Value {
    json!({"op": "update", "table": table, "where": only(id), "row": row})
}

/// Adds to (`insert`) or removes from (`delete`) a column's set.
pub(super) fn mutate(table: &str, id: Uuid, mutations: &[(&str, &str, Value)]) -> Value {
    json!({"op": "mutate", "table": table, "where": only(id), "mutations": mutations})
}

/// The rows under a condition; all columns, when none are named.
pub(super) fn select(table: &str, condition: Value, columns: Option<&[&str]>) -> Value {
    let mut operation = json!({"op": "select", "table": table, "where": condition});
    if let Some(columns) = columns {
        operation["columns"] = json!(columns);
    }
    operation
}

pub(super) fn select_row(table: &str, id: Uuid) -> Value {
    select(table, only(id), None)
}

/// The transaction fails unless a row has these columns.
pub(super) fn expect(table: &str, id: Uuid, columns: &Map<String, Value>) -> Value {
    let names: Vec<_> = columns.keys().collect();
    json!({
        "op": "wait", "timeout": 0, "table": table, "where": only(id),
        "columns": names, "until": "==", "rows": [columns],
    })
}

/// Has Open vSwitch say when it is as the transaction left the database: `cur_cfg` becomes what
/// `next_cfg` is now.
pub(super) fn next_configuration() -> [Value; 2] {
    let all = json!([]);
    [
        json!({"op": "mutate", "table": "Open_vSwitch", "where": all, "mutations": [["next_cfg", "+=", 1]]}),
        select("Open_vSwitch", all, Some(&["next_cfg"])),
    ]
}

/// The number that [`next_configuration`] gave, taken from the end of the results.
pub(super) fn configuration(results: &mut Vec<Value>) -> Result<i64, Error> {
    let wrong = || Error::Protocol("a transaction without all its results".to_owned());
    let last = results.pop().ok_or_else(wrong)?;
    results.pop().ok_or_else(wrong)?;
    last["rows"][0]["next_cfg"].as_i64().ok_or_else(wrong)
}

/// The identifier of an inserted row.
pub(super) fn inserted(result: &Value) -> Result<Uuid, Error> {
    let id = result["uuid"][1].as_str();
    let id = id.and_then(|id| Uuid::try_parse(id).ok());
    id.ok_or_else(|| Error::Protocol("an insertion without identifier".to_owned()))
}

/// The rows of a selection.
pub(super) fn selected(result: &Value) -> &[Value] {
    result["rows"].as_array().map_or(&[], Vec::as_slice)
}
