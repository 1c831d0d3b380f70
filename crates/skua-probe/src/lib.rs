//! Sources of flows. Each yields the same updates ([`skua_flow::FlowUpdate`]) and the same account
//! of what was seen and lost ([`Account`]).

pub mod account;
pub mod ebpf;
mod error;

pub use account::{Account, PointAccount};
pub use error::ProbeError;
