//! The stream jobs on real engines: one input through a job and through the graph in process comes to equal output.
//! `make test-stream` runs Flink's, also killed, and `make test-samza` Samza's.

#![allow(clippy::unwrap_used, reason = "tests")]
#![cfg(feature = "client")]

mod flink;
mod job;
mod samza;
#[path = "../kafka/support.rs"]
#[allow(dead_code, reason = "the other tests use more of it")]
mod support;
