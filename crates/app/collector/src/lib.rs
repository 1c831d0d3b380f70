//! `skua collector`: receives what agents and routers send, sums it up, writes it.
//!
//! | module | |
//! |---|---|
//! | `command` | the command |
//! | `gate`, `receive` | whose datagrams it takes, and the threads that take them and sum them up |
//! | `received` | what was received, and what was not taken |
//! | `watch` | /metrics, /health, /ready, and what is logged |
//! | `sink` | where lines go |

#![allow(
    missing_docs,
    reason = "a part of one program; what it shows, only that program sees"
)]

pub mod command;
mod gate;
mod receive;
mod received;
mod sink;
mod watch;

pub use watch::METRICS;
