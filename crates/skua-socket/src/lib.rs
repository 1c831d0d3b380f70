//! Sockets, the processes and containers that own them, and the services they make.
//!
//! A socket probe yields [`SocketUpdate`]s, by the rules of `docs/sockets.md`.

pub mod update;

pub use update::{
    End, HookState, HookStatus, Opener, PairUpdate, Protocol, RttSum, SocketLosses, SocketState,
    SocketUpdate, Task, TaskRule, TcpMetrics,
};
