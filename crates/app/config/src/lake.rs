//! Keys of the configuration.

use std::time::Duration;

use anyhow::{Context as _, bail};
use skua_lake::{Location, Retention, WriterConfig};

use crate::section::section;

/// The least memory for rows.
const MEMORY: u64 = 1 << 20;

section! {
    /// How a lake is written, and how long files are kept.
    LakeSettings {
        /// where flows are written as Parquet, for `skua flows --since 1h --by process` or any engine: a directory,
        /// s3://BUCKET/PREFIX or hdfs://HOST:PORT/PATH (docs/lake.md); empty: nowhere
        directory: String = String::new();
        /// longest time from a drain until its rows are in the lake; a crash may lose the rows of that time
        #[serde(with = "crate::time")]
        flush: Duration = Duration::from_secs(60);
        /// memory for rows that wait to be written to the lake; rows beyond it are dropped and counted
        #[serde(with = "crate::size")]
        memory: u64 = 128 << 20;
        /// older files are deleted from the lake, by the hour
        #[serde(with = "crate::time")]
        max_age: Duration = Duration::from_secs(30 * 24 * 3_600);
        /// maximum size of the lake; the oldest hours are deleted first
        #[serde(with = "crate::size")]
        max_size: u64 = 32 << 30;
        /// time between compactions of the lake: many small files become few large ones
        #[serde(with = "crate::time")]
        compact: Duration = Duration::from_secs(300);
    }
}

impl LakeSettings {
    /// Its location, none without a lake.
    pub fn location(&self) -> anyhow::Result<Option<Location>> {
        match self.directory.as_str() {
            "" => Ok(None),
            text => text.parse().map(Some).context("lake.directory"),
        }
    }

    /// What cannot be.
    pub fn check(&self) -> anyhow::Result<()> {
        self.location()?;
        if self.memory < MEMORY {
            bail!("lake.memory is {}; at least 1MiB, please", self.memory);
        }
        for (key, time) in [("flush", self.flush), ("compact", self.compact)] {
            if time < Duration::from_secs(1) {
                bail!("lake.{key} must be at least 1s");
            }
        }
        Ok(())
    }

    /// For a writer.
    pub fn writer(&self, location: Location, host: &str) -> WriterConfig {
        WriterConfig {
            location,
            host: host.into(),
            flush: self.flush,
            memory: usize::try_from(self.memory).unwrap_or(usize::MAX),
        }
    }

    /// How long files are kept.
    pub fn retention(&self) -> Retention {
        Retention {
            max_age: self.max_age,
            max_bytes: self.max_size,
        }
    }
}
