//! Tables for people: columns that fit the terminal, units, colours only on a terminal.

#![allow(
    missing_docs,
    reason = "a part of one program; what it shows, only that program sees"
)]

use std::io::{self, BufWriter, IsTerminal as _, Write};

use anyhow::Context as _;
use clap::ValueEnum;
use serde_json::Value;

pub use skua_top::{
    columns::{Column, FLOW_COLUMNS, column, endpoint, fit, named, text},
    format::{bit_rate, bytes, count, counted, nanoseconds, protocol},
    text::harmless,
};

/// Formats of tables.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum OutputFormat {
    /// For people
    Table,
    /// One JSON object a line
    Json,
    /// Comma-separated values with a header
    Csv,
}

/// Whether an error means that our output has no reader any more.
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

/// Columns of the terminal, or `usize::MAX` without one.
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

/// Prints an object over several lines.
pub fn pretty(value: &Value) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, value)?;
    writeln!(out)?;
    Ok(())
}

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

/// Prints records in the selected format.
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

    /// Shows only these columns, in this order, whatever the terminal; with none all that fit.
    pub fn with_columns(mut self, names: &[String]) -> anyhow::Result<Self> {
        if names.is_empty() {
            return Ok(self);
        }
        let columns = named(self.columns, names).map_err(|name| {
            let all: Vec<_> = self.columns.iter().map(Column::name).collect();
            anyhow::anyhow!("there is no column \"{name}\": {}", all.join(", "))
        })?;
        // A command prints one table.
        self.columns = columns.leak();
        self.wide = true;
        Ok(self)
    }

    fn width(&self) -> usize {
        if self.wide { usize::MAX } else { width() }
    }

    /// Prints new records; on a terminal the table replaces the last one.
    pub fn follow(&mut self, lines: &[u8]) -> anyhow::Result<()> {
        let mut out = io::stdout().lock();
        if self.format == OutputFormat::Table && io::stdout().is_terminal() {
            // Clears the screen and moves the cursor to the top left.
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
        let (shown, widths) = fit(columns, &self.widths, self.ends.is_empty(), width);
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

/// Elements of a list, none when it is none.
pub fn each(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// A text of an object.
pub fn text_of<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
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
                "PROTO  FROM               TO                 RATE     SENT  RECEIVED   AGE  INTERFACE    SENT PKTS  RECEIVED PKTS",
                "udp    10.0.0.1:5         [fd00::2]:53          -  2.0 KiB       0 B  1.5s  eth0                 1              0",
                "arp    02:00:00:00:00:01  ff:ff:ff:ff:ff:ff     -     84 B       0 B  0.0s  a-long-name          2              0",
            ]
        );
        assert_eq!(table(FLOWS, 1, usize::MAX).len(), 2);
        assert_eq!(table("", 9, usize::MAX).len(), 1);
    }

    #[test]
    fn a_narrow_terminal_keeps_what_matters() {
        let narrow = table(FLOWS, 9, 45);
        assert_eq!(narrow[0], "PROTO  FROM               TO");
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
                titles.contains("SENT PKTS"),
                titles.contains("RECEIVED PKTS"),
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
        assert!(lines[1].contains("  e\u{fffd}[2Jth\u{fffd}0 "), "{lines:?}");
        assert!(
            lines[1].contains("\u{fffd}evil\u{fffd}\u{fffd} >"),
            "{lines:?}"
        );
    }

    #[test]
    fn a_cause_is_printed_once() {
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
