//! Agents and their analyzer: the agent's end of the connection, the analyzer's, and the messages between them.

#![allow(
    missing_docs,
    reason = "a part of one program; what it shows, only that program sees"
)]

pub mod agent;
pub mod analyzer;
pub mod protocol;
