//! Where a collector's lines go.

use std::io::Write;

use clap::ValueEnum;
use skua_collect::Line;

/// Kinds of sinks.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum SinkKind {
    /// One JSON object a line on standard output
    Stdout,
}

/// A place that takes lines.
pub enum Sink {
    /// Standard output.
    Stdout(std::io::BufWriter<std::io::Stdout>),
}

impl Sink {
    /// Opens it.
    pub fn open(kind: SinkKind) -> Self {
        match kind {
            SinkKind::Stdout => Self::Stdout(std::io::BufWriter::new(std::io::stdout())),
        }
    }

    /// Puts a line in.
    pub fn put(&mut self, line: &Line<'_>) -> std::io::Result<()> {
        match self {
            Self::Stdout(out) => {
                serde_json::to_writer(&mut *out, line)?;
                out.write_all(b"\n")
            }
        }
    }

    /// All that was put in is on its way.
    pub fn flush(&mut self) -> std::io::Result<()> {
        match self {
            Self::Stdout(out) => out.flush(),
        }
    }
}
