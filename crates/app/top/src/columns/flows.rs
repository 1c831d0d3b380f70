//! Columns of conversations.

use serde_json::Value;

use super::{Column, endpoint, text};
use crate::format::{bit_rate, bytes, count, duration, nanoseconds};

fn seconds(flow: &Value) -> String {
    duration(flow["duration"].as_u64().unwrap_or(0))
}

/// Processes of both sides, if known: `curl > nginx`, `curl >`, `> nginx`.
fn processes(flow: &Value) -> String {
    let [a, b] = ["a", "b"].map(|side| text(&flow[side]["process"]));
    match (a.is_empty(), b.is_empty()) {
        (true, true) => String::new(),
        (false, true) => format!("{a} >"),
        (true, false) => format!("> {b}"),
        (false, false) => format!("{a} > {b}"),
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

/// Columns of `skua flows`.
pub const FLOW_COLUMNS: [Column; 15] = [
    Column {
        title: "INTERFACE",
        right: false,
        rank: 5,
        cell: |f| match f["points"].as_u64() {
            Some(points) => format!("{} +{}", text(&f["interface"]), points.saturating_sub(1)),
            None => text(&f["interface"]),
        },
    },
    Column {
        title: "PROTO",
        right: false,
        rank: 0,
        cell: |f| text(&f["protocol"]),
    },
    Column {
        title: "A (spoke first)",
        right: false,
        rank: 0,
        cell: |f| endpoint(&f["a"]),
    },
    Column {
        title: "B",
        right: false,
        rank: 0,
        cell: |f| endpoint(&f["b"]),
    },
    Column {
        title: "PROCESSES",
        right: false,
        rank: 4,
        cell: processes,
    },
    Column {
        title: "RATE",
        right: true,
        rank: 1,
        cell: rate,
    },
    Column {
        title: "A>B PKTS",
        right: true,
        rank: 7,
        cell: |f| count(f["ab"]["packets"].as_u64().unwrap_or(0)),
    },
    Column {
        title: "A>B",
        right: true,
        rank: 2,
        cell: |f| bytes(f["ab"]["bytes"].as_u64().unwrap_or(0)),
    },
    Column {
        title: "B>A PKTS",
        right: true,
        rank: 7,
        cell: |f| count(f["ba"]["packets"].as_u64().unwrap_or(0)),
    },
    Column {
        title: "B>A",
        right: true,
        rank: 2,
        cell: |f| bytes(f["ba"]["bytes"].as_u64().unwrap_or(0)),
    },
    Column {
        title: "AGE",
        right: true,
        rank: 3,
        cell: seconds,
    },
    Column {
        title: "STATE",
        right: false,
        rank: 4,
        cell: tcp,
    },
    Column {
        title: "RTT",
        right: true,
        rank: 6,
        cell: round_trip,
    },
    Column {
        title: "FLAGS",
        right: false,
        rank: 8,
        cell: flags,
    },
    Column {
        title: "COMMUNITY ID",
        right: false,
        rank: 9,
        cell: |f| text(&f["community_id"]),
    },
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
    }
}
