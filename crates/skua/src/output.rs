//! Tables for people: columns that fit the terminal, units, colours only on a terminal.

use std::io::{self, IsTerminal as _, Write};

use serde_json::Value;

/// Whether an error means that nobody reads our output any more.
pub fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|e| e.downcast_ref::<io::Error>())
        .any(|e| e.kind() == io::ErrorKind::BrokenPipe)
}

/// An error with its causes; those that the text before names already are left out.
pub fn one_line(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text += ": ";
            text += &cause;
        }
    }
    text
}

/// A number with its noun, like `2 interfaces`.
pub fn counted(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
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

/// Columns of a terminal, or as many as wanted when there is none.
pub fn width() -> usize {
    if !io::stdout().is_terminal() {
        return usize::MAX;
    }
    terminal_size::terminal_size().map_or(80, |(w, _)| usize::from(w.0))
}

/// Rows of a terminal.
pub fn height() -> usize {
    terminal_size::terminal_size().map_or(24, |(_, h)| usize::from(h.0))
}

/// A column of a table.
struct Column {
    title: &'static str,
    right: bool,
    /// Columns with greater numbers are left out first when the terminal is narrow, those of the
    /// same number together.
    rank: u8,
    cell: fn(&Value) -> String,
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn endpoint(value: &Value) -> String {
    let address = text(&value["address"]);
    match value["port"].as_u64() {
        Some(0) | None => address,
        Some(port) if address.contains(':') => format!("[{address}]:{port}"),
        Some(port) => format!("{address}:{port}"),
    }
}

fn seconds(flow: &Value) -> String {
    let ns = flow["duration"].as_u64().unwrap_or(0);
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

const FLOW_COLUMNS: [Column; 14] = [
    Column {
        title: "INTERFACE",
        right: false,
        rank: 5,
        cell: |f| text(&f["interface"]),
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

/// Writes flows (as parsed JSON lines) as a table at most `width` columns wide.
pub fn flow_table(out: &mut impl Write, flows: &[Value], width: usize) -> io::Result<()> {
    table(out, &FLOW_COLUMNS, flows, width)
}

fn table(out: &mut impl Write, columns: &[Column], rows: &[Value], width: usize) -> io::Result<()> {
    let cells: Vec<Vec<String>> = columns
        .iter()
        .map(|c| rows.iter().map(c.cell).collect())
        .collect();
    let widths: Vec<usize> = columns
        .iter()
        .zip(&cells)
        .map(|(c, cells)| {
            cells
                .iter()
                .map(String::len)
                .max()
                .unwrap_or(0)
                .max(c.title.len())
        })
        .collect();
    // Columns without content are not shown; of the others as many as fit.
    let mut shown: Vec<usize> = (0..columns.len())
        .filter(|i| rows.is_empty() || cells[*i].iter().any(|c| !c.is_empty()))
        .collect();
    let needed = |shown: &[usize]| shown.iter().map(|i| widths[*i] + 2).sum::<usize>();
    while needed(&shown) > width.saturating_add(2) {
        let Some(last) = shown.iter().copied().max_by_key(|i| (columns[*i].rank, *i)) else {
            break;
        };
        if columns[last].rank == 0 {
            break;
        }
        shown.retain(|i| columns[*i].rank != columns[last].rank);
    }
    let mut line = String::new();
    let mut write_line = |out: &mut dyn Write, cell: &dyn Fn(usize) -> String| {
        line.clear();
        for i in &shown {
            let text = cell(*i);
            if columns[*i].right {
                line += &format!("{text:>w$}  ", w = widths[*i]);
            } else {
                line += &format!("{text:<w$}  ", w = widths[*i]);
            }
        }
        let fitting: String = line.trim_end().chars().take(width).collect();
        writeln!(out, "{fitting}")
    };
    write_line(out, &|i| columns[i].title.to_owned())?;
    let mut row = 0;
    while row < rows.len() {
        write_line(out, &|i| cells[i][row].clone())?;
        row += 1;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn titles(width: usize) -> String {
        let side = json!({"packets": 12, "bytes": 3456});
        let flow = json!({
            "interface": "eth0", "protocol": "TCP", "duration": 5_000_000_000u64,
            "a": {"address": "192.0.2.1", "port": 40000},
            "b": {"address": "192.0.2.2", "port": 443},
            "ab": side, "ba": side, "community_id": "1:LQU9qZlK+B5F3KDmev6m5PMibrg=",
            "tcp": {"state": "established", "ab_flags": "SPA", "ba_flags": "SPA", "handshake_rtt": 1000},
        });
        let mut out = Vec::new();
        flow_table(&mut out, &[flow], width).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.lines().all(|l| l.len() <= width), "{text}");
        text.lines().next().unwrap().to_owned()
    }

    #[test]
    fn both_directions_are_shown_or_none() {
        for width in 20..220 {
            let titles = titles(width);
            assert_eq!(
                titles.contains("A>B PKTS"),
                titles.contains("B>A PKTS"),
                "{width}: {titles}"
            );
            assert_eq!(
                titles.replace("A>B PKTS", "").contains("A>B"),
                titles.replace("B>A PKTS", "").contains("B>A"),
                "{width}: {titles}"
            );
        }
        assert!(titles(200).contains("COMMUNITY ID"));
        assert!(!titles(80).contains("PKTS"));
    }

    #[test]
    fn a_cause_is_said_once() {
        let error = anyhow::anyhow!("No such file or directory (os error 2)")
            .context("/nope: No such file or directory (os error 2)")
            .context("replay");
        assert_eq!(
            one_line(&error),
            "replay: /nope: No such file or directory (os error 2)"
        );
    }

    #[test]
    fn one_is_singular() {
        assert_eq!(counted(1, "interface"), "1 interface");
        assert_eq!(counted(0, "interface"), "0 interfaces");
    }
}
