//! Sources of flows. Each yields the same updates ([`skua_flow::FlowUpdate`]) and the same account
//! of what was seen and lost ([`Account`]).

pub mod account;
pub mod ebpf;
mod error;

/// Reading of capture files.
pub use skua_file as file;

pub use account::{Account, PointAccount};
pub use error::ProbeError;
