//! Detectors on values in packets, and what they do with them.

mod kept;
mod live;
mod manager;
pub mod metrics;
mod place;
pub mod view;
mod worker;

pub use manager::{SteerError, Steers};
