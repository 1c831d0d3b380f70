//! Packet injection: its API and commands.

pub mod api;
pub mod command;
