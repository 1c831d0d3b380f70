//! Agents and analyzers as processes of their own: the graph, flows and captures between them.

pub mod fleet;
pub mod protocol;
mod remote;
pub mod server;
pub mod uplink;
