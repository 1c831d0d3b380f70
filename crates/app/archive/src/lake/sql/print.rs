//! Answers as text.

use skua_output as output;
use skua_output::OutputFormat;
use std::io::{self, Write};

/// Rows of a table at most: people read it, and it is in memory until its widths are known.
pub const ROWS: usize = 10_000;

/// Prints rows of texts.
pub struct Printer<W> {
    format: OutputFormat,
    out: W,
    /// Rows at most.
    most: usize,
    count: usize,
    names: Vec<String>,
    rows: Vec<Vec<Option<String>>>,
    cut: bool,
    written: bool,
}

impl<W: Write> Printer<W> {
    /// All rows, but of a table.
    pub fn new(format: OutputFormat, out: W) -> Self {
        Self {
            format,
            out,
            most: match format {
                OutputFormat::Table => ROWS,
                _ => usize::MAX,
            },
            count: 0,
            names: Vec::new(),
            rows: Vec::new(),
            cut: false,
            written: false,
        }
    }

    /// No more than so many rows.
    pub fn with_limit(self, most: usize) -> Self {
        Self { most, ..self }
    }

    /// Whether something is printed already.
    pub fn has_written(&self) -> bool {
        self.written
    }

    /// Names of the columns.
    pub fn header(&mut self, names: &[String]) -> io::Result<()> {
        self.names = names.to_vec();
        if self.format == OutputFormat::Csv {
            self.written = true;
            let names: Vec<_> = names.iter().cloned().map(Some).collect();
            self.csv(&names)?;
        }
        Ok(())
    }

    /// A row; false when no more are wanted.
    pub fn row(&mut self, cells: Vec<Option<String>>) -> io::Result<bool> {
        if self.count == self.most {
            self.cut = true;
            return Ok(false);
        }
        self.count += 1;
        match self.format {
            OutputFormat::Table => self.rows.push(cells),
            OutputFormat::Csv => self.csv(&cells)?,
            OutputFormat::Json => {
                self.written = true;
                let object = cells.first().and_then(Option::as_deref).unwrap_or("{}");
                writeln!(self.out, "{object}")?;
            }
        }
        Ok(true)
    }

    /// A row as CSV (RFC 4180, but LF); what is null is empty, and an empty text is in quotes.
    fn csv(&mut self, cells: &[Option<String>]) -> io::Result<()> {
        for (place, cell) in cells.iter().enumerate() {
            let comma = if place == 0 { "" } else { "," };
            let text = cell.as_deref().unwrap_or_default();
            let quotes =
                cell.is_some() && (text.is_empty() || text.contains([',', '"', '\n', '\r']));
            match quotes {
                true => write!(self.out, "{comma}\"{}\"", text.replace('"', "\"\""))?,
                false => write!(self.out, "{comma}{text}")?,
            }
        }
        self.out.write_all(b"\n")
    }

    /// No more rows come: where they went, and whether there were more than were wanted.
    pub fn finish(mut self) -> io::Result<(W, bool)> {
        if self.format == OutputFormat::Table {
            self.table()?;
        }
        self.out.flush()?;
        Ok((self.out, self.cut))
    }

    fn table(&mut self) -> io::Result<()> {
        let width = |text: &str| text.chars().count();
        let mut widths: Vec<usize> = self.names.iter().map(|name| width(name)).collect();
        let mut numbers = vec![!self.rows.is_empty(); self.names.len()];
        for row in &self.rows {
            for (place, cell) in row.iter().enumerate() {
                let Some(text) = cell else { continue };
                widths[place] = widths[place].max(width(text));
                numbers[place] &= text.parse::<f64>().is_ok();
            }
        }
        let titles: Vec<_> = self
            .names
            .iter()
            .map(|name| Some(name.to_uppercase()))
            .collect();
        let most = output::width();
        for row in std::iter::once(&titles).chain(&self.rows) {
            let mut line = String::new();
            for (place, cell) in row.iter().enumerate() {
                let text: String = cell
                    .iter()
                    .flat_map(|text| text.chars())
                    .map(output::harmless)
                    .collect();
                match numbers[place] {
                    true => line += &format!("{text:>0$}  ", widths[place]),
                    false => line += &format!("{text:<0$}  ", widths[place]),
                }
            }
            let line: String = line.trim_end().chars().take(most).collect();
            writeln!(self.out, "{line}")?;
        }
        Ok(())
    }
}
