//! What watches a host, and what keeps what was seen.

#![allow(
    missing_docs,
    reason = "a part of one program; what it shows, only that program sees"
)]

pub mod actions;
pub mod agent;
pub mod alert_metrics;
pub mod capture_file;
pub mod captures;
pub mod copies;
pub mod drain_lock;
pub mod export;
pub mod fleet;
pub mod flow_lines;
pub mod flow_metrics;
pub mod graph;
pub mod groups;
pub mod history;
pub mod lake;
pub mod protocol;
pub mod record_filter;
pub mod rights;
pub mod services;
pub mod session;
pub mod sockets;
pub mod state;
pub mod steer;
pub mod summary;
pub mod tap;
