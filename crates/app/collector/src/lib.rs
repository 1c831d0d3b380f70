//! `skua collector`: receives datagrams of agents and routers, sums them up, and writes lines.
//!
//! | module | |
//! |---|---|
//! | `command` | the command |
//! | `gate`, `receive` | which senders it accepts; the threads that receive and sum up |
//! | `received` | counts of datagrams received, and of those refused |
//! | `watch` | /metrics, /health, /ready, and what is logged |

#![allow(
    missing_docs,
    reason = "a part of one program; what it shows, only that program sees"
)]

pub mod command;
mod gate;
mod receive;
mod received;
mod watch;

pub use watch::METRICS;
