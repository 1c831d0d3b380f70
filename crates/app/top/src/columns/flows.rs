//! Columns of conversations.

use serde_json::{Value, json};

use super::{Column, column, endpoint, number, text};
use crate::format::{bit_rate, bytes, count, duration, nanoseconds};

fn seconds(flow: &Value) -> String {
    duration(flow["duration"].as_u64().unwrap_or(0))
}

/// What is known of both sides: `curl > nginx`, `curl >`, `> nginx`.
fn both(flow: &Value, of: impl Fn(&Value) -> String) -> String {
    let [a, b] = ["a", "b"].map(|side| of(&flow[side]));
    match (a.is_empty(), b.is_empty()) {
        (true, true) => String::new(),
        (false, true) => format!("{a} >"),
        (true, false) => format!("> {b}"),
        (false, false) => format!("{a} > {b}"),
    }
}

fn processes(flow: &Value) -> String {
    both(flow, |side| text(&side["process"]))
}

/// Number and name of the autonomous system of a side.
fn system(side: &Value) -> String {
    match side["asn"].as_u64() {
        Some(number) => {
            let named = format!("AS{number} {}", text(&side["organization"]));
            named.trim_end().to_owned()
        }
        None => String::new(),
    }
}

/// Address and port of a side, the name in the place of the address when it is known.
fn side(side: &Value) -> String {
    match side["name"].as_str() {
        Some(name) => endpoint(&json!({"address": name, "port": side["port"]})),
        None => endpoint(side),
    }
}

fn rate(flow: &Value) -> String {
    match flow["rate"]["bits_per_second"].as_f64() {
        Some(rate) if rate > 0.0 => bit_rate(rate),
        _ => "-".into(),
    }
}

fn tcp(flow: &Value) -> String {
    let tcp = &flow["tcp"];
    let state = text(&tcp["state"]);
    if state.is_empty() {
        return match text(&flow["end"]).as_str() {
            "" => String::new(),
            end => format!("({end})"),
        };
    }
    state
}

fn flags(flow: &Value) -> String {
    match (
        flow["tcp"]["ab_flags"].as_str(),
        flow["tcp"]["ba_flags"].as_str(),
    ) {
        (Some(a), Some(b)) => format!("{a}/{b}"),
        _ => String::new(),
    }
}

fn round_trip(flow: &Value) -> String {
    flow["tcp"]["handshake_rtt"]
        .as_u64()
        .map(nanoseconds)
        .unwrap_or_default()
}

/// Segments that were sent again, of both sides.
fn retransmitted(flow: &Value) -> String {
    let of = |side: &str| flow["tcp"][side].as_u64();
    match (of("ab_retransmitted"), of("ba_retransmitted")) {
        (None, None) => String::new(),
        (ab, ba) => count(ab.unwrap_or(0) + ba.unwrap_or(0)),
    }
}

/// The interface, and how many more have seen it.
fn interface(flow: &Value) -> String {
    match flow["points"].as_u64() {
        Some(points) => format!("{} +{}", text(&flow["interface"]), points.saturating_sub(1)),
        None => text(&flow["interface"]),
    }
}

fn amount(flow: &Value, way: &str) -> String {
    bytes(flow[way]["bytes"].as_u64().unwrap_or(0))
}

fn packets(flow: &Value, way: &str) -> String {
    count(flow[way]["packets"].as_u64().unwrap_or(0))
}

/// Columns of `skua flows`: what tells conversations apart first.
pub const FLOW_COLUMNS: [Column; 19] = [
    column("PROCESSES", 1, processes),
    column("PROTO", 0, |f| text(&f["protocol"])),
    column("FROM", 0, |f| side(&f["a"])),
    column("TO", 0, |f| side(&f["b"])),
    number("RATE", 2, rate),
    number("SENT", 3, |f| amount(f, "ab")),
    number("RECEIVED", 3, |f| amount(f, "ba")),
    number("AGE", 4, seconds),
    column("STATE", 5, tcp),
    number("RTT", 7, round_trip),
    column("COUNTRIES", 8, |f| both(f, |side| text(&side["country"]))),
    column("NETWORKS", 8, |f| both(f, |side| text(&side["network"]))),
    column("AS", 8, |f| both(f, system)),
    column("INTERFACE", 6, interface),
    number("SENT PKTS", 9, |f| packets(f, "ab")),
    number("RECEIVED PKTS", 9, |f| packets(f, "ba")),
    number("RETRANS", 9, retransmitted),
    column("FLAGS", 10, flags),
    column("COMMUNITY ID", 11, |f| text(&f["community_id"])),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_stand_beside_their_sides() {
        let of = |a: &str, b: &str| {
            processes(&serde_json::json!({"a": {"process": a}, "b": {"process": b}}))
        };
        assert_eq!(of("curl", "nginx"), "curl > nginx");
        assert_eq!(of("curl", ""), "curl >");
        assert_eq!(of("", "nginx"), "> nginx");
        assert_eq!(of("", ""), "");
        let known = serde_json::json!({
            "a": {"network": "office"},
            "b": {"country": "NO", "asn": 64501, "organization": "Example South"},
        });
        let cell = |title: &str| {
            let column = FLOW_COLUMNS.iter().find(|column| column.title == title);
            column.map(|column| (column.cell)(&known))
        };
        assert_eq!(cell("COUNTRIES").as_deref(), Some("> NO"));
        assert_eq!(cell("AS").as_deref(), Some("> AS64501 Example South"));
        assert_eq!(cell("NETWORKS").as_deref(), Some("office >"));
    }
}
