//! Exports what drains change to collectors, and has the service graph of a host.

#![allow(
    missing_docs,
    reason = "a part of one program; what it shows, only that program sees"
)]

pub mod export;
pub mod services;
