//! Tables for people: columns that fit the terminal, units, colours only on a terminal.

use std::io::{self, BufWriter, IsTerminal as _, Write};

use anyhow::Context as _;
use serde_json::Value;

use crate::args::OutputFormat;

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
pub struct Column {
    pub title: &'static str,
    pub right: bool,
    /// Columns with greater numbers are left out first when the terminal is narrow.
    pub rank: u8,
    pub cell: fn(&Value) -> String,
}

/// A text, empty when there is none.
pub fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// A column whose cells begin at the left.
pub const fn column(title: &'static str, rank: u8, cell: fn(&Value) -> String) -> Column {
    Column {
        title,
        right: false,
        rank,
        cell,
    }
}

/// Prints an object over several lines.
pub fn pretty(value: &Value) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, value)?;
    writeln!(out)?;
    Ok(())
}

/// Address and port, as one writes them.
pub fn endpoint(value: &Value) -> String {
    let address = text(&value["address"]);
    match value["port"].as_u64() {
        Some(0) | None => address,
        Some(port) if address.contains(':') => format!("[{address}]:{port}"),
        Some(port) => format!("{address}:{port}"),
    }
}

fn seconds(flow: &Value) -> String {
    duration(flow["duration"].as_u64().unwrap_or(0))
}

/// Processes of both sides, as far as they are known: `curl > nginx`, `curl >`, `> nginx`.
fn processes(flow: &Value) -> String {
    let [a, b] = ["a", "b"].map(|side| text(&flow[side]["process"]));
    match (a.is_empty(), b.is_empty()) {
        (true, true) => String::new(),
        (false, true) => format!("{a} >"),
        (true, false) => format!("> {b}"),
        (false, false) => format!("{a} > {b}"),
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

/// Writes records (as JSON lines), at most `limit` of them, as a table at most `width` columns wide.
pub fn table(
    out: &mut impl Write,
    columns: &[Column],
    lines: &[u8],
    limit: usize,
    width: usize,
) -> anyhow::Result<()> {
    let mut cells = Cells::new(columns);
    let lines = lines.split(|b| *b == b'\n').filter(|line| !line.is_empty());
    for line in lines.take(limit) {
        cells.push(&serde_json::from_slice(line).context("cannot read a record")?);
    }
    // The lines of a table of many flows are not worth a system call each.
    let mut out = BufWriter::new(out);
    cells.write(&mut out, width)?;
    Ok(out.flush()?)
}

/// Prints records in the format that was asked for.
pub struct Printer {
    format: OutputFormat,
    columns: &'static [Column],
    header: fn(&mut Vec<u8>) -> io::Result<()>,
    wide: bool,
    headed: bool,
}

impl Printer {
    /// For records with these columns and this CSV header; `wide`: all columns, whatever the
    /// terminal.
    pub fn new(
        format: OutputFormat,
        columns: &'static [Column],
        header: fn(&mut Vec<u8>) -> io::Result<()>,
        wide: bool,
    ) -> Self {
        Self {
            format,
            columns,
            header,
            wide,
            headed: false,
        }
    }

    /// For flows.
    pub fn of_flows(format: OutputFormat) -> Self {
        Self::new(
            format,
            &FLOW_COLUMNS,
            skua_flow::fields::write_csv_header,
            false,
        )
    }

    fn width(&self) -> usize {
        if self.wide { usize::MAX } else { width() }
    }

    /// Prints what is new; on a terminal a table is drawn over the last one.
    pub fn follow(&mut self, lines: &[u8]) -> anyhow::Result<()> {
        let mut out = io::stdout().lock();
        if self.format == OutputFormat::Table && io::stdout().is_terminal() {
            // Clears the screen and goes home.
            write!(out, "\x1b[2J\x1b[H")?;
            let fit = height().saturating_sub(2).max(1);
            table(&mut out, self.columns, lines, fit, self.width())?;
            return Ok(());
        }
        self.print(&mut out, lines)
    }

    /// Prints all.
    pub fn finish(&mut self, lines: &[u8]) -> anyhow::Result<()> {
        self.print(&mut io::stdout().lock(), lines)
    }

    fn print(&mut self, out: &mut impl Write, lines: &[u8]) -> anyhow::Result<()> {
        match self.format {
            OutputFormat::Json => out.write_all(lines)?,
            OutputFormat::Csv => {
                if !std::mem::replace(&mut self.headed, true) {
                    let mut header = Vec::new();
                    (self.header)(&mut header)?;
                    out.write_all(&header)?;
                }
                out.write_all(lines)?;
            }
            OutputFormat::Table => {
                table(out, self.columns, lines, usize::MAX, self.width())?;
            }
        }
        out.flush()?;
        Ok(())
    }
}

/// What is shown for a character: names come from outside, and some characters drive terminals, end
/// the line or turn the direction of writing.
fn harmless(c: char) -> char {
    match c {
        '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2066}'..='\u{2069}'
        | '\u{feff}' => char::REPLACEMENT_CHARACTER,
        c if c.is_control() => char::REPLACEMENT_CHARACTER,
        c => c,
    }
}

/// Text of all cells, one after the other: tables may have millions of rows.
struct Cells<'c> {
    columns: &'c [Column],
    text: String,
    /// Where each cell ends.
    ends: Vec<usize>,
    /// Longest cell of each column, 0 when all are empty.
    widths: Vec<usize>,
}

impl<'c> Cells<'c> {
    fn new(columns: &'c [Column]) -> Self {
        Self {
            columns,
            text: String::new(),
            ends: Vec::new(),
            widths: vec![0; columns.len()],
        }
    }

    fn push(&mut self, row: &Value) {
        for (column, width) in self.columns.iter().zip(&mut self.widths) {
            let cell = (column.cell)(row);
            self.text.extend(cell.chars().map(harmless));
            self.ends.push(self.text.len());
            *width = cell.chars().count().max(*width);
        }
    }

    fn write<'a>(&'a self, out: &mut impl Write, width: usize) -> io::Result<()> {
        let columns = self.columns;
        let empty = self.ends.is_empty();
        let widths: Vec<usize> = columns
            .iter()
            .zip(&self.widths)
            .map(|(column, width)| column.title.len().max(*width))
            .collect();
        // Columns without content are not shown; of the others as many as fit.
        let mut shown: Vec<usize> = (0..columns.len())
            .filter(|i| empty || self.widths[*i] > 0)
            .collect();
        let needed = |shown: &[usize]| shown.iter().map(|i| widths[*i] + 2).sum::<usize>();
        while needed(&shown) > width.saturating_add(2) {
            let Some(last) = shown.iter().copied().max_by_key(|i| (columns[*i].rank, *i)) else {
                break;
            };
            if columns[last].rank == 0 {
                break;
            }
            // What belongs together goes together: packets of both directions have one rank.
            let rank = columns[last].rank;
            shown.retain(|i| columns[*i].rank != rank);
        }
        let mut line = String::new();
        let mut write_line = |cell: &dyn Fn(usize) -> &'a str| {
            line.clear();
            for i in &shown {
                let (text, wide) = (cell(*i), widths[*i]);
                let padding = wide.saturating_sub(text.chars().count()) + 2;
                if columns[*i].right {
                    line.extend(std::iter::repeat_n(' ', padding - 2));
                    line += text;
                    line += "  ";
                } else {
                    line += text;
                    line.extend(std::iter::repeat_n(' ', padding));
                }
            }
            let fitting = line.trim_end();
            let end = match fitting.char_indices().nth(width) {
                Some((end, _)) => end,
                None => fitting.len(),
            };
            writeln!(out, "{}", fitting[..end].trim_end())
        };
        write_line(&|i| columns[i].title)?;
        for row in 0..self.ends.len() / columns.len() {
            write_line(&|i| self.cell(row, i))?;
        }
        Ok(())
    }

    fn cell(&self, row: usize, column: usize) -> &str {
        let at = row * self.columns.len() + column;
        let start = if at == 0 { 0 } else { self.ends[at - 1] };
        &self.text[start..self.ends[at]]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(lines: &str, limit: usize, width: usize) -> Vec<String> {
        let mut out = Vec::new();
        super::table(&mut out, &FLOW_COLUMNS, lines.as_bytes(), limit, width).unwrap();
        let text = String::from_utf8(out).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    const FLOWS: &str = concat!(
        r#"{"interface":"eth0","protocol":"udp","a":{"address":"10.0.0.1","port":5},"#,
        r#""b":{"address":"fd00::2","port":53},"ab":{"packets":1,"bytes":2048},"#,
        r#""ba":{"packets":0,"bytes":0},"duration":1500000000}"#,
        "\n",
        r#"{"interface":"a-long-name","protocol":"arp","a":{"address":"02:00:00:00:00:01"},"#,
        r#""b":{"address":"ff:ff:ff:ff:ff:ff"},"ab":{"packets":2,"bytes":84},"#,
        r#""ba":{"packets":0,"bytes":0}}"#,
        "\n"
    );

    #[test]
    fn columns_are_aligned_and_those_without_content_left_out() {
        assert_eq!(
            table(FLOWS, 9, usize::MAX),
            [
                "INTERFACE    PROTO  A (spoke first)    B                  RATE  A>B PKTS      A>B  B>A PKTS  B>A   AGE",
                "eth0         udp    10.0.0.1:5         [fd00::2]:53          -         1  2.0 KiB         0  0 B  1.5s",
                "a-long-name  arp    02:00:00:00:00:01  ff:ff:ff:ff:ff:ff     -         2     84 B         0  0 B  0.0s",
            ]
        );
        assert_eq!(table(FLOWS, 1, usize::MAX).len(), 2);
        assert_eq!(table("", 9, usize::MAX).len(), 1);
    }

    #[test]
    fn a_narrow_terminal_keeps_what_matters() {
        let narrow = table(FLOWS, 9, 45);
        assert_eq!(narrow[0], "PROTO  A (spoke first)    B");
        assert!(narrow.iter().all(|line| line.chars().count() <= 45));
        assert_eq!(table(FLOWS, 9, 5)[1], "udp");
    }

    fn titles(width: usize) -> String {
        let side = r#"{"packets":12,"bytes":3456}"#;
        let flow = format!(
            r#"{{"interface":"eth0","protocol":"TCP","duration":5000000000,"a":{{"address":"192.0.2.1","port":40000}},"b":{{"address":"192.0.2.2","port":443}},"ab":{side},"ba":{side},"community_id":"1:LQU9qZlK+B5F3KDmev6m5PMibrg=","tcp":{{"state":"established","ab_flags":"SPA","ba_flags":"SPA","handshake_rtt":1000}}}}"#
        );
        let lines = table(&flow, 1, width);
        assert!(lines.iter().all(|l| l.len() <= width), "{lines:?}");
        lines[0].clone()
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
        }
        assert!(titles(200).contains("COMMUNITY ID"));
        assert!(!titles(80).contains("PKTS"));
    }

    #[test]
    fn bad_names_do_not_break_the_terminal() {
        let flow = r#"{"interface":"e\u001b[2Jth\n0","protocol":"tcp","a":{"address":"10.0.0.1","port":5,"process":"\u202eevil\u0007\u009b"},"b":{"address":"10.0.0.2","port":53}}"#;
        let lines = table(flow, 1, usize::MAX);
        assert_eq!(lines.len(), 2);
        assert!(
            lines[1].starts_with("e\u{fffd}[2Jth\u{fffd}0 "),
            "{lines:?}"
        );
        assert!(
            lines[1].contains("\u{fffd}evil\u{fffd}\u{fffd} >"),
            "{lines:?}"
        );
    }

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
