//! From a collector to a real Kafka broker, and the whole way from packets to a topic and a lake. `make test-kafka` runs
//! it; the whole way needs root.

#![allow(clippy::unwrap_used, reason = "tests")]
#![cfg(feature = "kafka")]

mod chain;
mod collector;
#[path = "../live/lab/mod.rs"]
#[allow(dead_code, unused_imports, reason = "other tests use more of it")]
mod lab;
mod process;
