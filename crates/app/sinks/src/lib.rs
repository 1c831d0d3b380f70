//! The sinks of a collector's lines. A sink that fails or is too slow counts its losses by cause, and
//! delays neither the collector nor other sinks.

mod analyzer;
mod kafka;
mod parquet;
mod stdout;

use std::{collections::BTreeMap, str::FromStr};

use anyhow::bail;
use skua_collect::Line;
use skua_config::{Config, arguments::AnalyzerArguments};
use skua_lake::Location;

/// A sink as it is named on the command line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SinkName {
    /// One JSON object a line on standard output.
    Stdout,
    /// Nowhere: for the sums alone.
    Nowhere,
    /// The graph of services of an analyzer or a `skua run`, at this address or at that of `--analyzer`.
    Analyzer(Option<String>),
    /// A lake: Parquet in a directory or an object store.
    Lake(Location),
    /// A topic in Kafka.
    Kafka(skua_kafka::Target),
}

/// How names of lakes begin.
const LAKES: [&str; 4] = ["parquet://", "file://", "s3://", "hdfs://"];

impl FromStr for SinkName {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "stdout" => Ok(Self::Stdout),
            "none" => Ok(Self::Nowhere),
            "analyzer" => Ok(Self::Analyzer(None)),
            _ if LAKES.iter().any(|begin| text.starts_with(begin)) => Ok(Self::Lake(text.parse()?)),
            _ if text.starts_with("kafka://") => Ok(Self::Kafka(text.parse()?)),
            _ => match text.strip_prefix("analyzer://") {
                Some(place) if !place.is_empty() => Ok(Self::Analyzer(Some(place.to_owned()))),
                _ => bail!(
                    "there is no sink `{text}`; there are: stdout, none, analyzer://HOST:PORT, \
                     kafka://BROKER:PORT[,…]/TOPIC[?OPTION=VALUE&…], parquet://DIR, \
                     s3://BUCKET/PREFIX, hdfs://HOST:PORT/PATH"
                ),
            },
        }
    }
}

/// A destination of lines.
pub trait Sink: Send {
    /// Accepts a line without blocking: each sink that has to wait has a bounded queue.
    fn put(&mut self, line: &Line<'_>) -> anyhow::Result<()>;

    /// Windows were closed: sends the lines that were put in.
    fn flush(&mut self) -> anyhow::Result<()>;

    /// Waits, within limits, until all lines are delivered.
    fn finish(&mut self) -> anyhow::Result<()> {
        self.flush()
    }

    /// Lines that were put in and lost, by cause, since the start.
    fn lost(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}

/// Discards lines.
struct Nowhere;

impl Sink for Nowhere {
    fn put(&mut self, _: &Line<'_>) -> anyhow::Result<()> {
        Ok(())
    }

    fn flush(&mut self) -> anyhow::Result<()> {
        Ok(())
    }
}

/// All sinks of a collector.
pub struct Sinks(Vec<Box<dyn Sink>>);

impl Sinks {
    /// Opens the sinks; `analyzer` has the server and the credentials of a sink of that kind; `config` has the host's
    /// name and the settings of a lake.
    ///
    /// # Errors
    ///
    /// If one cannot be opened.
    pub fn open(
        names: &[SinkName],
        analyzer: &AnalyzerArguments,
        config: &Config,
    ) -> anyhow::Result<Self> {
        let open = |name: &SinkName| -> anyhow::Result<Box<dyn Sink>> {
            Ok(match name {
                SinkName::Stdout => Box::new(stdout::Stdout::open(names.len() == 1)?),
                SinkName::Nowhere => Box::new(Nowhere),
                SinkName::Analyzer(place) => {
                    let mut analyzer = analyzer.clone();
                    if let Some(place) = place {
                        analyzer.address.clone_from(place);
                    }
                    Box::new(analyzer::Analyzer::open(analyzer)?)
                }
                SinkName::Lake(location) => Box::new(parquet::Parquet::open(location, config)?),
                SinkName::Kafka(target) => Box::new(kafka::Kafka::open(target)?),
            })
        };
        Ok(Self(names.iter().map(open).collect::<Result<_, _>>()?))
    }

    /// Puts a line into each.
    pub fn put(&mut self, line: &Line<'_>) -> anyhow::Result<()> {
        self.each(|sink| sink.put(line))
    }

    /// Windows were closed.
    pub fn flush(&mut self) -> anyhow::Result<()> {
        self.each(|sink| sink.flush())
    }

    /// Delivers the remaining lines.
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

    /// Calls each sink, and returns the first error.
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
