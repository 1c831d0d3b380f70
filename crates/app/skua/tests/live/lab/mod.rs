//! The laboratory: network namespaces, exact traffic and the `skua` command under test.

pub mod base;
pub mod frame;
pub mod net;
pub mod packet;
pub mod skua;
pub mod tcp;

pub use base::{Sum, root_tests, wait_for};
pub use frame::Flow;
pub use net::{Counters, Net, Wire};
pub use packet::{SendMode, Sender, Sent};
pub use skua::{Report, Skua};

/// Names of network namespaces begin so.
pub const PREFIX: &str = "lv";
