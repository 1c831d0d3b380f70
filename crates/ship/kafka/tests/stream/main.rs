//! The stream job on a real Flink (`make test-stream`): one input through the job and through the graph in process comes to
//! equal output, also when the job is killed.

#![allow(clippy::unwrap_used, reason = "tests")]
#![cfg(feature = "client")]

mod flink;
mod job;
#[path = "../kafka/support.rs"]
#[allow(dead_code, reason = "the other tests use more of it")]
mod support;
