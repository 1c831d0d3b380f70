//! Sources of flows. Each yields the same updates ([`skua_flow::FlowUpdate`]) and the same account
//! of what was seen and lost ([`Account`]); those that are live are [`Probe`]s. Sources of sockets are
//! [`SocketProbe`]s.

pub mod account;
mod addresses;
pub mod ebpf;
mod error;
mod follow;
mod interfaces;
pub mod packets;
mod points;
mod probe;
pub mod receive;
mod select;
pub mod socket;
pub mod userspace;
mod watch;

/// Reading of capture files.
pub use skua_file as file;

pub use account::{Account, PointAccount};
pub use addresses::{AddressChange, AddressEdit, LiveAddresses};
pub use error::ProbeError;
pub use packets::{PacketStream, Packets, PacketsConfig, Streamed};
pub use points::{LivePoints, PointId, PointSet, PointState};
pub use probe::{Description, Probe, Wake, Watched, WatchedNamespace};
pub use select::Selection;
pub use socket::SocketProbe;
pub use userspace::unix_ns;
pub use watch::{link_kind, unknown_interface};
