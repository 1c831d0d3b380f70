//! Columns of conversations summed up by process.

use serde_json::Value;

use super::{Column, column, number, place, text};
use crate::format::{bit_rate, bytes, count};

fn of(group: &Value, side: &str) -> String {
    bytes(group[side]["bytes"].as_u64().unwrap_or(0))
}

/// Columns of sums by process, container or service.
pub const GROUPS: [Column; 9] = [
    column("NAME", 0, |g| text(&g["name"])),
    column("IN", 4, |g| {
        place(&serde_json::json!({"container": g["place"]}))
    }),
    column("PROTO", 3, |g| text(&g["protocol"])),
    number("PORT", 1, |g| match g["port"].as_u64() {
        Some(port) => port.to_string(),
        None => String::new(),
    }),
    number("RATE", 0, |g| {
        bit_rate(g["rate"]["bits_per_second"].as_f64().unwrap_or(0.0))
    }),
    number("FLOWS", 2, |g| count(g["flows"].as_u64().unwrap_or(0))),
    number("ACTIVE", 3, |g| count(g["active"].as_u64().unwrap_or(0))),
    number("SENT", 1, |g| of(g, "sent")),
    number("RECEIVED", 1, |g| of(g, "received")),
];

/// Columns of the processes in the overview.
pub const PROCESSES: [Column; 6] = [
    column("PROCESS", 0, |g| text(&g["name"])),
    column("CONTAINER/UNIT", 4, |g| {
        place(&serde_json::json!({"container": g["place"]}))
    }),
    number("RATE", 0, |g| {
        bit_rate(g["rate"]["bits_per_second"].as_f64().unwrap_or(0.0))
    }),
    number("FLOWS", 1, |g| count(g["active"].as_u64().unwrap_or(0))),
    number("SENT", 2, |g| of(g, "sent")),
    number("RECEIVED", 2, |g| of(g, "received")),
];
