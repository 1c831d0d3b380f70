//! Columns of conversations summed up by process.

use serde_json::Value;

use super::{Column, column, number, place, text};
use crate::format::{bit_rate, bytes, count};

fn of(group: &Value, side: &str) -> String {
    bytes(group[side]["bytes"].as_u64().unwrap_or(0))
}

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
