//! Columns of sockets, services and dependencies.

use serde_json::Value;

use super::{Column, endpoint, text};
use crate::format::{self, bytes, count};

pub(super) const fn column(
    title: &'static str,
    right: bool,
    rank: u8,
    cell: fn(&Value) -> String,
) -> Column {
    Column {
        title,
        right,
        rank,
        cell,
    }
}

/// What a process runs in: container, else unit.
pub fn place(value: &Value) -> String {
    for name in ["container", "pod", "unit"] {
        match value[name].as_str() {
            None => {}
            // An id, of which runtimes show 12 digits.
            Some(id) if id.len() == 64 && id.bytes().all(|b| b.is_ascii_hexdigit()) => {
                return id[..12].to_owned();
            }
            Some(name) => return name.to_owned(),
        }
    }
    String::new()
}

fn optional(value: &Value, show: impl FnOnce(u64) -> String) -> String {
    value.as_u64().map(show).unwrap_or_default()
}

pub(super) fn microseconds(value: &Value) -> String {
    match value.as_f64() {
        None => String::new(),
        Some(us) => format::nanoseconds((us * 1e3) as u64),
    }
}

fn state(socket: &Value) -> String {
    match socket["end"].as_str() {
        None => text(&socket["state"]),
        Some("error") => format!("errno {}", socket["errno"]),
        Some(end) => end.to_owned(),
    }
}

fn opener(socket: &Value) -> String {
    match socket["opened_by"].as_str() {
        Some("local") => "->",
        Some("remote") => "<-",
        _ => "",
    }
    .to_owned()
}

fn age(socket: &Value) -> String {
    optional(&socket["age"], |ns| match ns {
        0..1_000_000_000 => format::nanoseconds(ns),
        _ => format::duration(ns),
    })
}

fn remote(socket: &Value) -> String {
    if socket["remote"].is_null() {
        return optional(&socket["backlog"]["waiting"], |waiting| {
            format!("{waiting} of {} wait", socket["backlog"]["limit"])
        });
    }
    endpoint(&socket["remote"])
}

/// Columns of `skua sockets`.
pub const SOCKETS: [Column; 21] = [
    column("PROTO", false, 5, |s| text(&s["protocol"])),
    column("PROCESS", false, 0, |s| text(&s["process"])),
    column("PID", true, 4, |s| optional(&s["pid"], |n| n.to_string())),
    column("USER", false, 9, |s| text(&s["user"])),
    column("CONTAINER/UNIT", false, 8, place),
    column("LOCAL", false, 0, |s| endpoint(&s["local"])),
    column("", false, 1, opener),
    column("REMOTE", false, 0, remote),
    column("STATE", false, 3, state),
    column("AGE", true, 6, age),
    column("SENT", true, 1, |s| optional(&s["sent"]["bytes"], bytes)),
    column("RECEIVED", true, 1, |s| {
        optional(&s["received"]["bytes"], bytes)
    }),
    column("RTT", true, 2, |s| microseconds(&s["tcp"]["srtt"])),
    column("RTTVAR", true, 10, |s| microseconds(&s["tcp"]["rttvar"])),
    column("MIN RTT", true, 10, |s| microseconds(&s["tcp"]["min_rtt"])),
    column("RETRANS", true, 7, |s| {
        optional(&s["tcp"]["retransmits"], count)
    }),
    column("LOST", true, 11, |s| optional(&s["tcp"]["lost"], count)),
    column("CWND", true, 12, |s| optional(&s["tcp"]["cwnd"], count)),
    column("MSS", true, 12, |s| optional(&s["tcp"]["mss"], count)),
    column("RATE", true, 11, |s| {
        optional(&s["tcp"]["delivery_rate"], |rate| {
            format::bit_rate(rate as f64 * 8.0)
        })
    }),
    column("SEGMENTS", true, 13, |s| {
        optional(&s["sent"]["segments"], |sent| {
            format!(
                "{}/{}",
                count(sent),
                optional(&s["received"]["segments"], count)
            )
        })
    }),
];

pub(super) fn caller(end: &Value) -> String {
    let (name, address) = (text(&end["service"]), text(&end["address"]));
    if name.is_empty() { address } else { name }
}

fn called(calls: &Value) -> String {
    let name = text(&calls["server"]["service"]);
    let at = endpoint(&serde_json::json!({
        "address": calls["server"]["address"], "port": calls["port"],
    }));
    match (name.is_empty(), calls["server"]["address"].is_null()) {
        (true, _) => at,
        (false, true) => format!("{name}:{}", calls["port"]),
        (false, false) => format!("{name} {at}"),
    }
}

fn service(calls: &Value) -> String {
    let end = if calls["server"].is_null() {
        &calls["client"]
    } else {
        &calls["server"]
    };
    match text(&end["service"]) {
        name if name.is_empty() => match text(&end["address"]) {
            // A port with an unknown listener.
            _ if !calls["server"].is_null() => "?".to_owned(),
            address => address,
        },
        name => name,
    }
}

pub(super) fn number(value: &Value) -> String {
    count(value.as_u64().unwrap_or(0))
}

fn rate(calls: &Value) -> String {
    match calls["rate"].as_f64() {
        Some(rate) if rate >= 99.5 => format!("{rate:.0}"),
        Some(rate) if rate > 0.0 => format!("{rate:.1}"),
        _ => "-".to_owned(),
    }
}

fn share(calls: &Value) -> String {
    calls["segments"]["share"]
        .as_f64()
        .map(|share| format!("{:.2}%", share * 100.0))
        .unwrap_or_default()
}

pub(super) fn size(value: &Value) -> String {
    bytes(value.as_u64().unwrap_or(0))
}

const CONNECTIONS: Column = column("CONNS", true, 0, |c| number(&c["connections"]));
const NEW: Column = column("NEW/S", true, 1, rate);
const OPEN: Column = column("OPEN", true, 1, |c| number(&c["open"]));
const FAILED: Column = column("FAILED", true, 2, |c| number(&c["failed"]));
const RESET: Column = column("RESET", true, 5, |c| number(&c["reset"]));
const TIMED_OUT: Column = column("TIMED OUT", true, 8, |c| number(&c["timed_out"]));
const TO_SERVER: Column = column("TO SERVER", true, 3, |c| size(&c["bytes"]["to_server"]));
const TO_CLIENT: Column = column("TO CLIENT", true, 3, |c| size(&c["bytes"]["to_client"]));
const P50: Column = column("RTT P50", true, 4, |c| microseconds(&c["rtt"]["p50"]));
const P95: Column = column("P95", true, 6, |c| microseconds(&c["rtt"]["p95"]));
const P99: Column = column("P99", true, 6, |c| microseconds(&c["rtt"]["p99"]));
const RETRANSMITTED: Column = column("RETRANS", true, 7, share);

/// Columns of `skua services`, with or without `--clients`.
pub const SERVICES: [Column; 16] = [
    column("SERVICE", false, 0, service),
    column("PROTO", false, 1, |c| text(&c["protocol"])),
    column("PORT", true, 0, |c| optional(&c["port"], |p| p.to_string())),
    column("PEERS", true, 4, |c| number(&c["peers"])),
    CONNECTIONS,
    NEW,
    OPEN,
    FAILED,
    RESET,
    TIMED_OUT,
    TO_SERVER,
    TO_CLIENT,
    P50,
    P95,
    P99,
    RETRANSMITTED,
];

/// Columns of `skua services --dependencies`.
pub const DEPENDENCIES: [Column; 15] = [
    column("CLIENT", false, 0, |c| caller(&c["client"])),
    column("SERVER", false, 0, called),
    column("PROTO", false, 5, |c| text(&c["protocol"])),
    CONNECTIONS,
    NEW,
    OPEN,
    FAILED,
    RESET,
    TIMED_OUT,
    TO_SERVER,
    TO_CLIENT,
    P50,
    P95,
    P99,
    RETRANSMITTED,
];
