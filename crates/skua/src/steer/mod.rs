//! Detectors on values in packets, and what they do with them.

pub mod api;
pub mod command;
mod kept;
mod live;
mod manager;
mod place;
mod replay;
mod settings;
mod view;
mod watch;
mod worker;

pub use manager::{SteerError, Steers};
pub use settings::SteerSettings;
