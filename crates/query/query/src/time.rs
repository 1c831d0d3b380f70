//! Times and durations as queries spell them.

use jiff::{Timestamp, fmt::rfc2822, tz::TimeZone};

const UNITS: &[(&str, f64)] = &[
    ("ns", 1e-6),
    ("us", 1e-3),
    ("µs", 1e-3),
    ("ms", 1.0),
    ("s", 1e3),
    ("m", 60e3),
    ("h", 3_600e3),
    ("d", 86_400e3),
];

/// A duration as `5m`, `-1h30m` or `1.5s`, in ms.
pub(crate) fn duration(text: &str) -> Option<i64> {
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(0);
    }
    let mut sum = 0.0;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !(c.is_ascii_digit() || c == '.'))?;
        let number: f64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let end = rest
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(rest.len());
        let (_, ms) = UNITS.iter().find(|(unit, _)| *unit == &rest[..end])?;
        sum += number * ms;
        rest = &rest[end..];
    }
    (sum < 9e15).then_some((sign * sum).round() as i64)
}

/// A moment as RFC 3339 or RFC 1123 write it, in ms since the Unix epoch.
pub(crate) fn moment(text: &str) -> Option<i64> {
    if let Ok(time) = text.parse::<Timestamp>() {
        return Some(time.as_millisecond());
    }
    // RFC 1123 with Go's name of the zone.
    let text = text
        .strip_suffix("UTC")
        .map_or(text.to_owned(), |rest| format!("{rest}GMT"));
    let zoned = rfc2822::DateTimeParser::new().parse_zoned(&text).ok()?;
    Some(zoned.timestamp().as_millisecond())
}

/// RFC 3339 with ms.
pub(crate) fn show(ms: i64) -> String {
    match Timestamp::from_millisecond(ms) {
        Ok(time) => time
            .to_zoned(TimeZone::UTC)
            .strftime("%Y-%m-%dT%H:%M:%S%.3fZ")
            .to_string(),
        Err(_) => format!("{ms} ms"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        for (text, ms) in [
            ("5m", 300_000),
            ("-5m", -300_000),
            ("-1h30m", -5_400_000),
            ("1.5s", 1_500),
            ("250ms", 250),
            ("0", 0),
            ("2d", 172_800_000),
            ("+3us", 0),
        ] {
            assert_eq!(duration(text), Some(ms), "{text}");
        }
        for bad in [
            "",
            "-",
            "5",
            "m",
            "5x",
            "5m3",
            "..s",
            "1.2.3s",
            "99999999999999999999d",
        ] {
            assert_eq!(duration(bad), None, "{bad}");
        }
    }

    #[test]
    fn moments() {
        let noon = 1_714_564_800_000;
        for text in [
            "2024-05-01T12:00:00Z",
            "2024-05-01T14:00:00+02:00",
            "2024-05-01T12:00:00.000Z",
            "Wed, 01 May 2024 12:00:00 GMT",
            "Wed, 01 May 2024 12:00:00 UTC",
            "Wed, 01 May 2024 14:00:00 +0200",
        ] {
            assert_eq!(moment(text), Some(noon), "{text}");
        }
        assert_eq!(show(noon), "2024-05-01T12:00:00.000Z");
        for bad in ["", "yesterday", "2024-05-01", "2024-13-01T00:00:00Z"] {
            assert_eq!(moment(bad), None, "{bad}");
        }
    }
}
