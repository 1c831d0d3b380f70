//! Sockets, the processes and containers that own them, and the services they make.
//!
//! A socket probe yields [`SocketUpdate`]s, by the rules of `docs/sockets.md`.

pub mod call;
mod cgroup;
mod container;
pub mod fields;
mod join;
mod listeners;
mod lives;
mod names;
pub mod owner;
mod process;
mod record;
mod renames;
mod runtime;
mod service;
mod store;
#[cfg(test)]
mod tests;
mod text;
pub mod update;
mod user;

pub use cgroup::{CgroupMount, cgroup_mounts};
pub use container::{Runtime, container_of_cgroup};
pub use join::{Joined, Measured, Peer, SocketIndex};
pub use lives::Span;
pub use owner::{Container, Owner, OwnerCounters, OwnerId, Owners, OwnersConfig, Pod};
pub use process::Pids;
pub use record::{ServiceSide, SocketLine, SocketRecord, conversation_owner};
pub use renames::Renames;
pub use runtime::{Instance, RuntimeConfig, RuntimeCounters};
pub use service::{EdgeEnd, EdgeKey, ServiceNames, Services, Sums};
pub use store::{FoundSocket, SocketCounts, SocketStore, SocketStoreConfig};
pub use update::{
    End, HookState, HookStatus, Opener, PairUpdate, Protocol, RttSum, SocketLosses, SocketState,
    SocketUpdate, Task, TaskRule, TcpMetrics,
};
