//! Taps: their API and commands.

pub mod live;
pub mod sockets;
