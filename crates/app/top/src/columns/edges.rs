//! Columns of edges of the service graph.

use serde_json::Value;

use super::{
    Column,
    sockets::{caller, column, microseconds, number, size},
    text,
};
use crate::format::{count, protocol};

/// A time to the second.
fn moment(value: &Value) -> String {
    let text = value.as_str().unwrap_or_default();
    text.split('.').next().unwrap_or_default().replace('T', " ")
}

/// The sum of two fields of an object.
fn both(object: &Value, fields: [&str; 2]) -> String {
    count(
        fields
            .iter()
            .filter_map(|field| object[field].as_u64())
            .sum(),
    )
}

/// Columns of `skua services --graph`.
pub const EDGES: [Column; 15] = [
    column("CLIENT", false, 0, |e| caller(&e["client"])),
    column("SERVER", false, 0, |e| caller(&e["server"])),
    column("PROTO", false, 3, |e| {
        let number = e["protocol"].as_u64().unwrap_or_default();
        protocol(u8::try_from(number).unwrap_or_default())
    }),
    column("PORT", true, 0, |e| {
        e["port"].as_u64().unwrap_or(0).to_string()
    }),
    column("CONNS", true, 0, |e| number(&e["connections"])),
    column("FAILED", true, 1, |e| {
        both(&e["failures"], ["refused", "timed_out"])
    }),
    column("TO SERVER", true, 1, |e| size(&e["client_sent"]["bytes"])),
    column("TO CLIENT", true, 1, |e| size(&e["server_sent"]["bytes"])),
    column("RTT P50", true, 4, |e| microseconds(&e["rtt"]["p50_us"])),
    column("P95", true, 2, |e| microseconds(&e["rtt"]["p95_us"])),
    column("P99", true, 5, |e| microseconds(&e["rtt"]["p99_us"])),
    column("RETRANS", true, 4, |e| {
        both(&e["retransmitted"], ["client", "server"])
    }),
    column("FIRST", false, 7, |e| moment(&e["first"])),
    column("LAST", false, 6, |e| moment(&e["last"])),
    column("CHANGE", false, 2, |e| text(&e["change"])),
];

/// Columns of `skua services --since`.
pub const LATELY: [Column; 11] = [
    column("CLIENT", false, 0, |e| caller(&e["client"])),
    column("SERVER", false, 0, |e| caller(&e["server"])),
    column("PORT", true, 1, |e| {
        e["port"]
            .as_u64()
            .map(|port| port.to_string())
            .unwrap_or_default()
    }),
    column("CONNS", true, 0, |e| number(&e["connections"])),
    column("NEW/S", true, 3, |e| {
        let begun = e["connections"].as_u64().unwrap_or(0) as f64;
        match e["seconds"].as_u64() {
            Some(seconds) if begun > 0.0 => format!("{:.1}", begun / seconds.max(1) as f64),
            _ => "-".into(),
        }
    }),
    column("FAILED", true, 1, |e| number(&e["failed"])),
    column("RESET", true, 3, |e| number(&e["reset"])),
    column("BYTES", true, 2, |e| size(&e["bytes"])),
    column("RTT P50", true, 1, |e| microseconds(&e["rtt"]["p50_us"])),
    column("P95", true, 1, |e| microseconds(&e["rtt"]["p95_us"])),
    column("RETRANS", true, 1, |e| {
        let share = e["retransmitted"].as_u64().unwrap_or(0) as f64
            / e["packets"].as_u64().unwrap_or(0).max(1) as f64;
        format!("{:.2}%", share * 100.0)
    }),
];
