//! Sockets: how they are watched, and what is shown of them.

pub mod calls;
pub mod listening;
pub mod metrics;
pub mod query;
pub mod report;
mod start;
pub mod tables;

pub use start::{Started, start};
