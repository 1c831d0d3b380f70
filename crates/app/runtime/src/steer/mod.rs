//! Detectors on values in packets, and what they do with them.

mod live;
mod manager;
pub mod metrics;
mod namespace;
mod stored;
pub mod view;
mod worker;

pub use manager::{SteerError, Steers};
