//! Taps: their API and commands.

pub mod live;
pub mod metrics;
pub mod sockets;
