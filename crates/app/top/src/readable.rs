//! Values of details as people read them.

use jiff::{Timestamp, tz::Offset};

use crate::format::{bit_rate, bytes, count, duration, nanoseconds};

/// A time of RFC 3339 in UTC as a time of the reader's zone; none when the text is no such time.
fn local(text: &str, zone: fn(i64) -> i32) -> Option<String> {
    let at: Timestamp = text.ends_with('Z').then(|| text.parse().ok())??;
    let ahead = zone(at.as_second());
    let here = Offset::from_seconds(ahead).ok()?.to_datetime(at);
    let sign = if ahead < 0 { '-' } else { '+' };
    let minutes = ahead.abs() / 60;
    let zone = match ahead {
        0 => "UTC".to_owned(),
        _ => format!("{sign}{:02}:{:02}", minutes / 60, minutes % 60),
    };
    Some(format!("{} {zone}", here.strftime("%Y-%m-%d %H:%M:%S%.3f")))
}

fn time(ns: u64) -> String {
    match ns {
        0..1_000_000_000 => nanoseconds(ns),
        _ => duration(ns),
    }
}

/// Flags of TCP by their letters.
fn flags(letters: &str) -> Option<String> {
    let names = letters.chars().map(|letter| {
        Some(match letter {
            'F' => "FIN",
            'S' => "SYN",
            'R' => "RST",
            'P' => "PSH",
            'A' => "ACK",
            'U' => "URG",
            'E' => "ECE",
            'C' => "CWR",
            _ => return None,
        })
    });
    let names: Option<Vec<_>> = names.collect();
    names.map(|names| names.join(" "))
}

/// A value as people read it: units, times in the reader's zone, names. What needs no words stays as it is.
pub fn readable(name: &str, value: &str, zone: fn(i64) -> i32) -> String {
    let last = name.rsplit('.').next().unwrap_or(name);
    if let Some(text) = local(value, zone) {
        return text;
    }
    if let Ok(number) = value.parse::<u64>() {
        return match last {
            "duration" | "age" | "rtt" | "handshake_rtt" | "server_rtt" | "client_rtt" => {
                time(number)
            }
            "srtt" | "rttvar" | "min_rtt" => nanoseconds(number.saturating_mul(1_000)),
            "bytes" => format!("{} ({number})", bytes(number)),
            "bits_per_second" => bit_rate(number as f64),
            "packets_per_second" => format!("{}/s", count(number)),
            "delivery_rate" => bit_rate(number as f64 * 8.0),
            _ => value.to_owned(),
        };
    }
    if let Ok(number) = value.parse::<f64>() {
        return match last {
            "bits_per_second" => bit_rate(number),
            "packets_per_second" => format!("{number:.1}/s"),
            "p50" | "p95" | "p99" => nanoseconds((number.max(0.0) * 1e3) as u64),
            "share" => format!("{:.2} %", number * 100.0),
            _ => value.to_owned(),
        };
    }
    let named = match (last, value) {
        ("ab_flags" | "ba_flags", letters) => {
            return flags(letters).unwrap_or_else(|| letters.to_owned());
        }
        ("state", "syn-sent") => "SYN sent, no answer",
        ("state", "syn-received") => "SYN answered, not acknowledged",
        ("state", "closing") => "closed by one side",
        ("end", "idle") => "no packets for a while",
        ("end", "evicted") => "left the full table",
        ("end", "shutdown") => "the capture ended",
        ("opened_by", "a") => "a (the side that spoke first)",
        ("by", "kernel") => "accept or connect was seen",
        ("by", "listening") => "a socket listens there",
        ("by", "syn") => "by who sent the SYN",
        ("by", "ephemeral") => "the other port is an ephemeral one",
        ("by", "well-known") => "its port is below 1024",
        (_, text) => text,
    };
    named.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_readers_zone() {
        let utc: fn(i64) -> i32 = |_| 0;
        let berlin: fn(i64) -> i32 = |_| 3_600;
        let newfoundland: fn(i64) -> i32 = |_| -12_600;
        let of = |text, zone| readable("start", text, zone);
        assert_eq!(
            of("2026-11-21T10:00:00.123456789Z", utc),
            "2026-11-21 10:00:00.123 UTC"
        );
        assert_eq!(
            of("2026-12-31T23:30:00Z", berlin),
            "2027-01-01 00:30:00.000 +01:00"
        );
        assert_eq!(
            of("2024-03-01T01:00:00Z", newfoundland),
            "2024-02-29 21:30:00.000 -03:30"
        );
        for other in ["2026-11-21", "T", "2026-13-21T10:00:00Z", "äöüäöüäöüäöüZ"] {
            assert_eq!(of(other, utc), other);
        }
    }

    #[test]
    fn numbers_have_units_and_states_have_names() {
        let of = |name, value| readable(name, value, |_| 0);
        assert_eq!(of("duration", "1500000000"), "1.5s");
        assert_eq!(of("tcp.handshake_rtt", "12000000"), "12.0 ms");
        assert_eq!(of("rtt", "21602"), "22 us");
        assert_eq!(of("ab.bytes", "15000"), "14.6 KiB (15000)");
        assert_eq!(of("rate.bits_per_second", "8000000.0"), "8.0 Mbit/s");
        assert_eq!(of("tcp.ab_flags", "SPA"), "SYN PSH ACK");
        assert_eq!(of("end", "idle"), "no packets for a while");
        assert_eq!(of("a.port", "443"), "443");
        assert_eq!(of("a.process", "idle"), "idle");
    }
}
