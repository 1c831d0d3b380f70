//! Nodes, edges and rules of users: their API and commands.

pub mod api;
pub mod command;
