//! What watches a host, and what keeps what was seen.

#![allow(
    missing_docs,
    reason = "a part of one program; what it shows, only that program sees"
)]

pub mod actions;
pub mod agent;
pub mod alert_metrics;
pub mod captures;
pub mod fleet;
pub mod graph;
pub mod history;
pub mod lake;
pub mod protocol;
pub mod steer;
pub mod tap;
