//! Sources of flows. Each yields the same updates ([`skua_flow::FlowUpdate`]) and the same account
//! of what was seen and lost ([`Account`]); those that are live are [`Probe`]s.

pub mod account;
mod addresses;
pub mod ebpf;
mod error;
mod probe;
mod select;
pub mod userspace;
mod watch;

/// Reading of capture files.
pub use skua_file as file;

pub use account::{Account, PointAccount};
pub use addresses::{AddressChange, AddressEdit, LiveAddresses};
pub use error::ProbeError;
pub use probe::{Description, Probe, Wake, Watched};
pub use select::Selection;
pub use watch::{link_kind, unknown_interface};
