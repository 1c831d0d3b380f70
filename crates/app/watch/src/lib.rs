//! Watches a host: its flows and sockets, and what is shown of them.

#![allow(
    missing_docs,
    reason = "a part of one program; what it shows, only that program sees"
)]

pub mod capture_file;
pub mod dns;
pub mod dns_metrics;
pub mod filter;
pub mod flow_lines;
pub mod flow_metrics;
pub mod groups;
pub mod heads;
pub mod record_filter;
pub mod rights;
pub mod session;
pub mod sockets;
pub mod summary;
