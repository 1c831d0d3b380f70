//! Where a collector's lines go: any number of sinks. One that fails or cannot keep up counts what it
//! lost, by cause, and holds up neither the collector nor the others.

mod parquet;
mod stdout;

use std::{collections::BTreeMap, str::FromStr};

use anyhow::bail;
use skua_collect::Line;
use skua_lake::Location;

/// A sink as it is named on the command line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SinkName {
    /// One JSON object a line on standard output.
    Stdout,
    /// A lake: Parquet in a directory or an object store.
    Lake(Location),
}

/// How names of lakes begin.
const LAKES: [&str; 4] = ["parquet://", "file://", "s3://", "hdfs://"];

impl FromStr for SinkName {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "stdout" => Ok(Self::Stdout),
            _ if LAKES.iter().any(|begin| text.starts_with(begin)) => Ok(Self::Lake(text.parse()?)),
            _ => bail!(
                "there is no sink `{text}`; there are: stdout, parquet://DIR, s3://BUCKET/PREFIX, \
                 hdfs://HOST:PORT/PATH"
            ),
        }
    }
}

/// A place that takes lines.
pub trait Sink {
    /// Takes a line, at once: a sink that has to wait for others keeps a bounded queue.
    fn put(&mut self, line: &Line<'_>) -> anyhow::Result<()>;

    /// Windows were closed: what was put in is to be on its way.
    fn flush(&mut self) -> anyhow::Result<()>;

    /// Nothing more comes: waits, within limits, until all is where it should be.
    fn finish(&mut self) -> anyhow::Result<()> {
        self.flush()
    }

    /// Lines that were put in and lost, by cause, since the start.
    fn lost(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}

/// All sinks of a collector.
pub struct Sinks(Vec<Box<dyn Sink>>);

impl Sinks {
    /// Opens them.
    pub fn open(names: &[SinkName]) -> anyhow::Result<Self> {
        let open = |name: &SinkName| -> anyhow::Result<Box<dyn Sink>> {
            Ok(match name {
                SinkName::Stdout => Box::new(stdout::Stdout::open()),
                SinkName::Lake(location) => Box::new(parquet::Parquet::open(location)?),
            })
        };
        names
            .iter()
            .map(open)
            .collect::<anyhow::Result<_>>()
            .map(Self)
    }

    /// Puts a line into each.
    pub fn put(&mut self, line: &Line<'_>) -> anyhow::Result<()> {
        self.each(|sink| sink.put(line))
    }

    /// Windows were closed.
    pub fn flush(&mut self) -> anyhow::Result<()> {
        self.each(|sink| sink.flush())
    }

    /// Nothing more comes.
    pub fn finish(&mut self) -> anyhow::Result<()> {
        self.each(|sink| sink.finish())
    }

    /// Lines lost, by cause.
    pub fn lost(&self) -> BTreeMap<&'static str, u64> {
        let mut sums = BTreeMap::new();
        for (cause, lines) in self.0.iter().flat_map(|sink| sink.lost()) {
            *sums.entry(cause).or_default() += lines;
        }
        sums
    }

    /// Asks each of them, and says what the first that failed said.
    fn each(
        &mut self,
        mut ask: impl FnMut(&mut dyn Sink) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let mut answer = Ok(());
        for sink in &mut self.0 {
            let said = ask(&mut **sink);
            answer = answer.and(said);
        }
        answer
    }
}
