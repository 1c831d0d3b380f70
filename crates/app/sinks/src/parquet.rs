//! The table `services` of a lake.

use skua_archive::lake::LakeWriter;
use skua_collect::Line;
use skua_config::Config;
use skua_lake::{Location, Table};
use std::time::Duration;

use crate::Sink;

/// Longest wait at the end.
const PATIENCE: Duration = Duration::from_secs(30);

/// A lake, with the keys `lake.…` of the configuration except the directory.
pub struct Parquet {
    lake: LakeWriter,
    host: String,
}

impl Parquet {
    /// Opens it.
    pub fn open(location: &Location, config: &Config) -> anyhow::Result<Self> {
        let host = config.host_name();
        Ok(Self {
            lake: LakeWriter::at(location.clone(), &config.lake, &host, Table::Services)?,
            host,
        })
    }
}

impl Sink for Parquet {
    fn put(&mut self, line: &Line<'_>) -> anyhow::Result<()> {
        self.lake.writer().line(&self.host, line);
        Ok(())
    }

    /// A file for each window would be too many: rows are written when they are `lake.flush` old.
    fn flush(&mut self) -> anyhow::Result<()> {
        Ok(())
    }

    fn finish(&mut self) -> anyhow::Result<()> {
        self.lake.writer().flush(PATIENCE);
        self.lake.finish();
        Ok(())
    }

    fn lost(&self) -> Vec<(&'static str, u64)> {
        self.lake.writer().stats().lost
    }
}
