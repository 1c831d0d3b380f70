//! Watches a host: its flows and sockets, the state that they are in, and how that is read.

#![allow(
    missing_docs,
    reason = "a part of one program; what it shows, only that program sees"
)]

pub mod capture_file;
pub mod copies;
pub mod drain_lock;
pub mod flow_lines;
pub mod flow_metrics;
pub mod groups;
pub mod record_filter;
pub mod rights;
pub mod session;
pub mod sockets;
pub mod state;
pub mod summary;
