//! `skua sql` and `/api/sql`: any question about the lake, by an embedded engine. Only builds with the feature `sql`
//! have it.

#[cfg(feature = "sql")]
mod copies;
#[cfg(feature = "sql")]
pub mod engine;
#[cfg(feature = "sql")]
pub mod print;

use std::{path::PathBuf, time::Duration};

use clap::Args;
use skua_config::arguments::Printing;
use skua_lake::Location;

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  skua sql 'select service, sum(ab_bytes + ba_bytes) bytes from flows group by all order by 2 desc limit 10'
  skua sql --since 1day --output csv 'select * from flows where b_port = 53'
  skua sql 'describe flows'                 the columns; docs/lake.md says what they mean
  skua sql - < question.sql
It needs a build with --features sql (docs/lake.md).")]
#[cfg_attr(not(feature = "sql"), allow(dead_code, reason = "no engine asks"))]
pub struct SqlArguments {
    /// A SELECT of the tables flows and services, in DuckDB's SQL; - reads it from standard input
    #[arg(value_name = "SELECT")]
    pub statement: String,
    /// Only rows since so long ago (1h, 3days) or a moment (2026-11-21T10:00:00Z): fewer files are opened
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,
    /// Only rows before this moment, or so long ago
    #[arg(long, value_name = "TIME")]
    pub until: Option<String>,
    /// Where the lake is: a directory, s3://BUCKET/PREFIX or hdfs://HOST:PORT/PATH [default: lake.directory of the
    /// configuration]
    #[arg(long, value_name = "PLACE")]
    pub lake: Option<Location>,
    /// Memory at most; a question that needs more fails
    #[arg(long, value_name = "SIZE", default_value = "512MiB", value_parser = skua_config::size::parse)]
    pub memory: u64,
    /// Bytes at most that are copied from a lake in S3 or HDFS, to the directory for temporary files
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = skua_config::size::parse)]
    pub copy: u64,
    /// Time at most
    #[arg(long, value_name = "TIME", default_value = "1m", value_parser = skua_config::arguments::duration)]
    pub timeout: Duration,
    #[command(flatten)]
    pub print: Printing,
    /// Configuration file [default: /etc/skua.yaml if it is there]
    #[arg(long, value_name = "FILE", env = "SKUA_CONFIG")]
    pub config: Option<PathBuf>,
}

/// `skua sql`.
#[cfg(feature = "sql")]
pub fn sql(arguments: &SqlArguments) -> anyhow::Result<()> {
    engine::run(arguments)
}

/// `skua sql`, where there is no engine.
#[cfg(not(feature = "sql"))]
pub fn sql(_: &SqlArguments) -> anyhow::Result<()> {
    anyhow::bail!(NO_ENGINE)
}

#[cfg(not(feature = "sql"))]
pub const NO_ENGINE: &str = "this skua was built without an SQL engine: build it with \
    `DUCKDB_LIB_DIR=$(packaging/duckdb) cargo build --release -p skua --features sql` (docs/lake.md); \
    `skua flows --since` asks the lake without one";
