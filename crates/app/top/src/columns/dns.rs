//! Columns of lookups.

use serde_json::Value;

use super::{Column, column, endpoint, number, text};
use crate::format::nanoseconds;

/// Columns of `skua dns`.
pub const LOOKUPS: [Column; 10] = [
    column("TIME", 0, |l| {
        // The time of day, to a ms.
        let time = text(&l["time"]);
        let day = time.split_once('T').map_or("", |(_, day)| day);
        day.get(..12)
            .unwrap_or(day)
            .trim_end_matches('Z')
            .to_owned()
    }),
    column("CLIENT", 1, |l| text(&l["client"]["address"])),
    column("SERVER", 2, |l| endpoint(&l["server"])),
    column("OVER", 5, |l| match &l["transport"] {
        // What is usual is not worth a column.
        over if over == "udp" => String::new(),
        over => text(over),
    }),
    column("TYPE", 0, |l| text(&l["type"])),
    column("NAME", 0, |l| text(&l["name"])),
    column("RESULT", 0, |l| match text(&l["code"]) {
        code if code.is_empty() => text(&l["outcome"]),
        code => code,
    }),
    number("TOOK", 0, |l| optional(&l["latency"], nanoseconds)),
    number("RETRIES", 3, |l| optional(&l["retries"], |n| n.to_string())),
    column("ANSWER", 4, answer),
];

/// Columns of `skua dns --summary`.
pub const NAME_SERVERS: [Column; 12] = [
    column("SERVER", 0, |s| text(&s["server"])),
    number("LOOKUPS", 0, |s| count(&s["lookups"])),
    number("ANSWERED", 3, |s| count(&s["answered"])),
    number("TIMEOUTS", 1, |s| count(&s["timeouts"])),
    number("ERRORS", 1, |s| count(&s["errors"])),
    number("NXDOMAIN", 4, |s| count(&s["nxdomain"])),
    number("SERVFAIL", 4, |s| count(&s["servfail"])),
    number("RETRIES", 3, |s| count(&s["retries"])),
    number("TRUNCATED", 5, |s| count(&s["truncated"])),
    number("P50", 0, |s| optional(&s["latency"]["p50"], nanoseconds)),
    number("P95", 0, |s| optional(&s["latency"]["p95"], nanoseconds)),
    number("P99", 2, |s| optional(&s["latency"]["p99"], nanoseconds)),
];

fn optional(value: &Value, show: impl Fn(u64) -> String) -> String {
    value.as_u64().map_or_else(String::new, show)
}

fn count(value: &Value) -> String {
    optional(value, |n| n.to_string())
}

/// The last answer, addresses without their type, and how many more there are.
fn answer(lookup: &Value) -> String {
    let answers = lookup["answers"].as_array().map_or(&[][..], Vec::as_slice);
    let texts: Vec<&str> = answers
        .iter()
        .filter_map(Value::as_str)
        .map(|answer| {
            let plain = answer
                .strip_prefix("A ")
                .or_else(|| answer.strip_prefix("AAAA "));
            plain.unwrap_or(answer)
        })
        .collect();
    match texts[..] {
        [] => String::new(),
        [one] => one.to_owned(),
        // Of aliases and addresses the address at the end says most.
        [.., last] => format!("{last} +{}", texts.len() - 1),
    }
}
