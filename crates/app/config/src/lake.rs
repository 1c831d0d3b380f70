//! Keys of the configuration.

use std::time::Duration;

use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};
use skua_lake::{Location, Retention, WriterConfig};

use crate::{size, time};

/// The least memory for rows.
const MEMORY: u64 = 1 << 20;

/// How a lake is written and kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LakeSettings {
    /// Where it is, empty: nowhere.
    pub directory: String,
    /// Age of rows that are written.
    #[serde(with = "time")]
    pub flush: Duration,
    /// Memory for rows that wait.
    #[serde(with = "size")]
    pub memory: u64,
    /// What is older is deleted.
    #[serde(with = "time")]
    pub max_age: Duration,
    /// Bytes at most.
    #[serde(with = "size")]
    pub max_size: u64,
    /// Time between compactions.
    #[serde(with = "time")]
    pub compact: Duration,
}

impl Default for LakeSettings {
    fn default() -> Self {
        Self {
            directory: String::new(),
            flush: Duration::from_secs(60),
            memory: 128 << 20,
            max_age: Duration::from_secs(30 * 24 * 3_600),
            max_size: 32 << 30,
            compact: Duration::from_secs(300),
        }
    }
}

impl LakeSettings {
    /// Where it is, none for nowhere.
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

    /// How long what is kept.
    pub fn retention(&self) -> Retention {
        Retention {
            max_age: self.max_age,
            max_bytes: self.max_size,
        }
    }
}
