//! What acts on a host that is watched - captures, taps, detectors - and what answers queries.

#![allow(
    missing_docs,
    reason = "a part of one program; what it shows, only that program sees"
)]

pub mod actions;
pub mod alert_metrics;
pub mod captures;
mod flow_acls;
pub mod graph_metrics;
pub mod host_sockets;
pub mod query_engine;
pub mod steer;
pub mod tap;
