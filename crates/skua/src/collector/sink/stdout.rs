//! One JSON object a line on standard output.

use std::io::{BufWriter, Stdout as Out, Write};

use skua_collect::Line;

use super::Sink;

/// Standard output. When nobody reads it any more the collector ends.
pub struct Stdout(BufWriter<Out>);

impl Stdout {
    /// Opens it.
    pub fn open() -> Self {
        Self(BufWriter::new(std::io::stdout()))
    }
}

impl Sink for Stdout {
    fn put(&mut self, line: &Line<'_>) -> anyhow::Result<()> {
        serde_json::to_writer(&mut self.0, line)?;
        Ok(self.0.write_all(b"\n")?)
    }

    fn flush(&mut self) -> anyhow::Result<()> {
        Ok(self.0.flush()?)
    }
}
