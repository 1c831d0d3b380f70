//! Numbers as people read them.

/// A number with its noun, like `2 interfaces`.
pub fn counted(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

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

/// Bytes with a binary unit, like `1.5 MiB`.
pub fn bytes(value: u64) -> String {
    scaled(
        value as f64,
        1024.0,
        &["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"],
    )
}

/// Bits per second with a decimal unit, like `1.5 Mbit/s`.
pub fn bit_rate(value: f64) -> String {
    scaled(
        value,
        1000.0,
        &["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"],
    )
}

/// A count, above a million with a decimal unit.
pub fn count(value: u64) -> String {
    if value < 1_000_000 {
        value.to_string()
    } else {
        scaled(value as f64, 1000.0, &["", "k", "M", "G", "T", "P", "E"]).replace(' ', "")
    }
}

fn scaled(value: f64, step: f64, units: &[&str]) -> String {
    let mut value = value;
    let mut unit = 0;
    while value >= step && unit + 1 < units.len() {
        value /= step;
        unit += 1;
    }
    if unit == 0 || value >= 100.0 {
        format!("{value:.0} {}", units[unit])
    } else {
        format!("{value:.1} {}", units[unit])
    }
}

/// Time with a fitting unit, from ns.
pub fn nanoseconds(value: u64) -> String {
    match value {
        0..1_000 => format!("{value} ns"),
        1_000..1_000_000 => format!("{:.0} us", value as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} ms", value as f64 / 1e6),
        _ => format!("{:.1} s", value as f64 / 1e9),
    }
}

/// A long time, from ns.
pub fn duration(ns: u64) -> String {
    match ns {
        0..60_000_000_000 => format!("{:.1}s", ns as f64 / 1e9),
        _ => {
            let s = ns / 1_000_000_000;
            if s < 3600 {
                format!("{}m{:02}s", s / 60, s % 60)
            } else {
                format!("{}h{:02}m", s / 3600, s / 60 % 60)
            }
        }
    }
}
