//! The lake: flows and services as Parquet files by day and hour. Guide: `docs/lake.md`.

mod batch;
mod encode;
mod error;
mod file;
mod keeper;
mod lake;
mod name;
mod pages;
pub mod query;
mod rows;
mod schema;
mod storage;
#[cfg(test)]
mod tests;
mod writer;

pub use error::{LakeError, Result};
pub use keeper::{Keeper, KeeperStats, now_us};
pub use lake::{Lake, Listed, Retention, Tidied};
pub use name::time as rfc3339;
pub use rows::FlowChange;
pub use schema::{Column, Kind, Table, VERSION};
pub use storage::{Location, Stored};
pub use writer::{Writer, WriterConfig, WriterStats};
