//! Sockets, the processes and containers that own them, and the services they make.
//!
//! A socket probe yields [`SocketUpdate`]s, by the rules of `docs/sockets.md`.

mod cgroup;
mod container;
pub mod owner;
mod process;
mod runtime;
mod text;
pub mod update;
mod user;

pub use container::Runtime;
pub use owner::{Container, Owner, OwnerCounters, OwnerId, Owners, OwnersConfig, Pod};
pub use runtime::{RuntimeConfig, RuntimeCounters};
pub use update::{
    End, HookState, HookStatus, Opener, PairUpdate, Protocol, RttSum, SocketLosses, SocketState,
    SocketUpdate, Task, TaskRule, TcpMetrics,
};
