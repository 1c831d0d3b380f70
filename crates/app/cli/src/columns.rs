//! Columns of tables show fields that are defined: what is renamed would else be an empty column.

use serde_json::{Value, json};
use skua_record::{Field, Record, json_schema};
use skua_top::columns::{
    Column, DEPENDENCIES, EDGES, FLOW_COLUMNS, LOOKUPS, NAME_SERVERS, SERVICES, SOCKETS,
};

/// A record that has each field, by its schema; numbers are this.
fn sample(schema: &Value, number: u64) -> Value {
    let text = schema["format"]
        .as_str()
        .map_or("text", |_| "2026-11-25T02:20:11Z");
    match schema["type"].as_str() {
        Some("object") => {
            let properties = schema["properties"].as_object().into_iter().flatten();
            properties
                .map(|(name, of)| (name.clone(), sample(of, number)))
                .collect()
        }
        Some("array") => json!([sample(&schema["items"], number)]),
        Some("string") => text.into(),
        _ => number.into(),
    }
}

fn all_show_something<R: Record>(columns: &[Column], fields: &[Field<R>]) {
    let schema = json_schema("", fields);
    // An IP protocol, and a number that is not rounded to 0 s.
    let records = [7, 7_000_000_000].map(|number| sample(&schema, number));
    // Who opened a connection is an arrow without a title.
    for column in columns.iter().filter(|column| !column.title.is_empty()) {
        let without = (column.cell)(&Value::Null);
        let shows = |record| (column.cell)(record) != without;
        assert!(records.iter().any(shows), "{}", column.title);
    }
}

#[test]
fn every_column_shows_a_field_that_is_defined() {
    all_show_something(&FLOW_COLUMNS, skua_flow::fields::FIELDS);
    all_show_something(&SOCKETS, skua_socket::fields::FIELDS);
    for columns in [&SERVICES[..], &DEPENDENCIES] {
        all_show_something(columns, skua_socket::call::FIELDS);
    }
    all_show_something(&LOOKUPS, skua_apps::dns::FIELDS);
    all_show_something(&NAME_SERVERS, skua_watch::dns::SUMMARY);
    all_show_something(&EDGES, skua_collect::graph::FIELDS);
}
