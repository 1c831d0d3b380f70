//! Taps: their API and commands.

pub mod api;
pub mod command;
mod live;
pub mod sockets;
