//! Columns of interfaces: sums of the API, with the rates that the view has made of two of them.

use serde_json::Value;

use super::{Column, column, number, text};
use crate::format::{bit_rate, bytes, count};

fn rate(interface: &Value, key: &str) -> String {
    match interface["rate"][key].as_f64() {
        Some(rate) if rate > 0.0 => bit_rate(rate),
        _ => "-".into(),
    }
}

fn sum(interface: &Value, way: &str, key: &str) -> u64 {
    interface[way][key].as_u64().unwrap_or(0)
}

/// `CAUSE NUMBER, …`.
fn causes(interface: &Value) -> String {
    let causes = interface["not_in_flows"].as_object().into_iter().flatten();
    let causes = causes
        .map(|(cause, sum)| format!("{cause} {}", count(sum["packets"].as_u64().unwrap_or(0))));
    causes.collect::<Vec<_>>().join(", ")
}

/// Columns of interfaces.
pub const INTERFACES: [Column; 9] = [
    column("INTERFACE", 0, |i| text(&i["interface"])),
    column("NAMESPACE", 3, |i| match &i["netns"] {
        Value::String(name) => name.clone(),
        Value::Number(number) if number.as_u64() != Some(0) => number.to_string(),
        _ => String::new(),
    }),
    column("HOOK", 5, |i| match i["attached"].as_bool() {
        Some(false) => format!("{} (gone)", text(&i["hook"])),
        _ => text(&i["hook"]),
    }),
    number("IN", 0, |i| rate(i, "in_bits_per_second")),
    number("OUT", 0, |i| rate(i, "out_bits_per_second")),
    number("IN TOTAL", 1, |i| bytes(sum(i, "ingress", "bytes"))),
    number("OUT TOTAL", 1, |i| bytes(sum(i, "egress", "bytes"))),
    number("PACKETS", 4, |i| {
        count(sum(i, "ingress", "packets") + sum(i, "egress", "packets"))
    }),
    column("NOT IN FLOWS", 2, causes),
];
