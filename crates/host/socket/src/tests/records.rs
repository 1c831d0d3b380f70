//! JSON, CSV and schema.

use serde_json::Value;
use skua_flow::{ConversationOwner, ServiceRule};

use super::*;
use crate::{ServiceSide, SocketLine, SocketRecord, call, fields, fields::FIELDS};

fn line<'a>(record: &'a SocketRecord, process: &'a str) -> SocketLine<'a> {
    SocketLine {
        record,
        owner: ConversationOwner {
            process,
            pid: 7,
            uid: Some(33),
            container: "web",
            pod: "shop",
            unit: "docker.service",
            ..ConversationOwner::default()
        },
        ns_pid: 4,
        executable: "/usr/bin/x",
        service: Some(ServiceSide {
            local: false,
            by: ServiceRule::Kernel,
        }),
    }
}

fn samples() -> [SocketRecord; 3] {
    let mut full = tcp(1, 1, "10.0.0.9:40000", "10.0.0.2:80", Opener::Local);
    full.end = Some(End::Error(113));
    let metrics = full.tcp.as_mut().unwrap();
    metrics.min_rtt_us = 5;
    metrics.delivery_rate = 9;
    let waits = listener(2, 1, Protocol::Tcp, "[::]:80");
    let udp = listener(3, 1, Protocol::Udp, "0.0.0.0:53");
    [full, waits, udp].map(|update| SocketRecord::new(&update, owner(1), NOON))
}

/// The value of a field.
fn at<'a>(json: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(json, |json, name| json.get(name))
}

#[test]
fn csv_has_the_fields_of_json() {
    let mut seen = vec![false; FIELDS.len()];
    for record in samples() {
        let line = line(&record, "curl");
        let json = serde_json::to_value(line).unwrap();
        let mut row = Vec::new();
        fields::write_csv_row(&mut row, &line).unwrap();
        let row = String::from_utf8(row).unwrap();
        let cells: Vec<_> = row.trim_end_matches('\n').split(',').collect();
        assert_eq!(cells.len(), FIELDS.len());
        for (place, field) in FIELDS.iter().enumerate() {
            let text = match at(&json, field.path) {
                None => {
                    assert!(!field.absent.is_empty(), "{}", field.path);
                    continue;
                }
                Some(Value::String(text)) => text.clone(),
                Some(number) => number.to_string(),
            };
            seen[place] = true;
            assert_eq!(cells[place], text, "{}", field.path);
        }
    }
    for (field, seen) in FIELDS.iter().zip(seen) {
        assert!(seen, "no record has {}", field.path);
    }
}

#[test]
fn json_has_the_promised_shape() {
    let [record, ..] = samples();
    let json = serde_json::to_string(&line(&record, "a\u{1b}\"b\n")).unwrap();
    assert!(!json.contains(['\n', '\u{1b}']), "{json}");
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["process"], "a\u{1b}\"b\n");
    assert_eq!(json["user"], "33", "a number where there is no name");
    assert_eq!(json["local"]["port"], 40_000);
    assert_eq!(json["end"], "error");
    assert_eq!(json["errno"], 113);
    assert_eq!(json["tcp"]["srtt"], 300);
    assert_eq!(json["service"]["side"], "remote");
    assert_eq!(json["age"], S);
}

#[test]
fn schemas_name_every_field() {
    let schemas = [
        (
            fields::json_schema(),
            FIELDS.iter().map(|f| f.path).collect::<Vec<_>>(),
        ),
        (
            call::json_schema(),
            call::FIELDS.iter().map(|f| f.path).collect(),
        ),
    ];
    for (schema, paths) in schemas {
        for path in paths {
            let found = path
                .split('.')
                .try_fold(&schema, |schema, name| schema["properties"].get(name));
            assert!(found.is_some_and(|f| f["type"].is_string()), "{path}");
        }
    }
}
