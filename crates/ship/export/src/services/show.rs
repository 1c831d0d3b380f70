//! Edges as JSON, CSV, Graphviz, and as a table.

use std::{fmt::Write as _, io};

use serde_json::Value;
use skua_collect::graph::{Change, Edge};
use skua_output::{Column, bytes, count, nanoseconds, text};

/// Name of an IP protocol, its number when it has none.
pub fn protocol(number: u8) -> String {
    match number {
        1 => "icmp".into(),
        6 => "tcp".into(),
        17 => "udp".into(),
        58 => "icmp6".into(),
        132 => "sctp".into(),
        other => other.to_string(),
    }
}

/// One JSON object a line.
pub fn json(edges: &[Edge]) -> Vec<u8> {
    let mut lines = Vec::new();
    for edge in edges {
        // Writing to memory does not fail.
        let _ = serde_json::to_writer(&mut lines, edge);
        lines.push(b'\n');
    }
    lines
}

/// Columns of CSV, with where they are in the JSON object.
const CSV: [(&str, &[&str]); 24] = [
    ("client", &["/client/service", "/client/address"]),
    ("server", &["/server/service", "/server/address"]),
    ("protocol", &["/protocol"]),
    ("port", &["/port"]),
    ("client_sent_packets", &["/client_sent/packets"]),
    ("client_sent_bytes", &["/client_sent/bytes"]),
    ("server_sent_packets", &["/server_sent/packets"]),
    ("server_sent_bytes", &["/server_sent/bytes"]),
    ("connections", &["/connections"]),
    ("ended", &["/ended"]),
    ("refused", &["/failures/refused"]),
    ("timed_out", &["/failures/timed_out"]),
    ("reset", &["/reset"]),
    ("retransmitted_client", &["/retransmitted/client"]),
    ("retransmitted_server", &["/retransmitted/server"]),
    ("rtt_count", &["/rtt/count"]),
    ("rtt_min_us", &["/rtt/min_us"]),
    ("rtt_p50_us", &["/rtt/p50_us"]),
    ("rtt_p95_us", &["/rtt/p95_us"]),
    ("rtt_p99_us", &["/rtt/p99_us"]),
    ("rtt_max_us", &["/rtt/max_us"]),
    ("first", &["/first"]),
    ("last", &["/last"]),
    ("change", &["/change"]),
];

/// The header of CSV.
pub fn csv_header(out: &mut Vec<u8>) -> io::Result<()> {
    out.extend_from_slice(CSV.map(|(name, _)| name).join(",").as_bytes());
    out.push(b'\n');
    Ok(())
}

/// Rows of CSV, without header.
pub fn csv(edges: &[Edge]) -> Vec<u8> {
    let mut out = String::new();
    for edge in edges {
        let value = serde_json::to_value(edge).unwrap_or_default();
        let cells = CSV.map(|(_, places)| {
            let found = places.iter().find_map(|place| value.pointer(place));
            match found {
                None => String::new(),
                Some(Value::String(text)) if text.contains([',', '"', '\n', '\r']) => {
                    format!("\"{}\"", text.replace('"', "\"\""))
                }
                Some(Value::String(text)) => text.clone(),
                Some(other) => other.to_string(),
            }
        });
        out.push_str(&cells.join(","));
        out.push('\n');
    }
    out.into_bytes()
}

/// A drawing for Graphviz: new edges are bold, those that have vanished dashed, those with failures red.
pub fn dot(edges: &[Edge]) -> Vec<u8> {
    let mut out = String::from("digraph services {\n  rankdir=LR;\n  node [shape=box];\n");
    let quoted = |text: String| text.replace('\\', "\\\\").replace('"', "\\\"");
    for edge in edges {
        let (client, server) = (edge.client.to_string(), edge.server.to_string());
        let failed = edge.failures.refused + edge.failures.timed_out;
        let mut label = format!(
            "{} {}\\n{}, {} connections",
            protocol(edge.protocol),
            edge.port,
            bytes(edge.bytes()),
            count(edge.connections),
        );
        if let Some(p95) = edge.rtt.and_then(|rtt| rtt.p95_us) {
            let p95 = nanoseconds(p95.saturating_mul(1_000));
            let _ = write!(label, "\\np95 {p95}");
        }
        if failed > 0 {
            let _ = write!(label, "\\n{} failed", count(failed));
        }
        let style = match edge.change {
            Some(Change::New) => ", style=bold",
            Some(Change::Vanished) => ", style=dashed",
            None => "",
        };
        let colour = if failed > 0 { ", color=red" } else { "" };
        let _ = writeln!(
            out,
            "  \"{}\" -> \"{}\" [label=\"{label}\"{style}{colour}];",
            quoted(client),
            quoted(server),
        );
    }
    out.push_str("}\n");
    out.into_bytes()
}

const fn column(title: &'static str, right: bool, rank: u8, cell: fn(&Value) -> String) -> Column {
    Column {
        title,
        right,
        rank,
        cell,
    }
}

fn party(value: &Value) -> String {
    match value["service"].as_str() {
        Some(name) => name.to_owned(),
        None => text(&value["address"]),
    }
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

fn microseconds(value: &Value) -> String {
    value
        .as_u64()
        .map(|us| nanoseconds(us.saturating_mul(1_000)))
        .unwrap_or_default()
}

fn moment(value: &Value) -> String {
    // To the second.
    let text = value.as_str().unwrap_or_default();
    text.split('.').next().unwrap_or_default().replace('T', " ")
}

/// Columns of `skua services --graph`.
pub const COLUMNS: [Column; 15] = [
    column("CLIENT", false, 0, |e| party(&e["client"])),
    column("SERVER", false, 0, |e| party(&e["server"])),
    column("PROTO", false, 3, |e| {
        protocol(u8::try_from(number(&e["protocol"])).unwrap_or_default())
    }),
    column("PORT", true, 0, |e| number(&e["port"]).to_string()),
    column("CONNS", true, 0, |e| count(number(&e["connections"]))),
    column("FAILED", true, 1, |e| {
        let failures = &e["failures"];
        count(number(&failures["refused"]) + number(&failures["timed_out"]))
    }),
    column("TO SERVER", true, 1, |e| {
        bytes(number(&e["client_sent"]["bytes"]))
    }),
    column("TO CLIENT", true, 1, |e| {
        bytes(number(&e["server_sent"]["bytes"]))
    }),
    column("RTT P50", true, 4, |e| microseconds(&e["rtt"]["p50_us"])),
    column("P95", true, 2, |e| microseconds(&e["rtt"]["p95_us"])),
    column("P99", true, 5, |e| microseconds(&e["rtt"]["p99_us"])),
    column("RETRANS", true, 4, |e| {
        let again = &e["retransmitted"];
        count(number(&again["client"]) + number(&again["server"]))
    }),
    column("FIRST", false, 7, |e| moment(&e["first"])),
    column("LAST", false, 6, |e| moment(&e["last"])),
    column("CHANGE", false, 2, |e| text(&e["change"])),
];
