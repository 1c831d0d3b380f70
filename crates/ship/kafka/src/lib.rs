//! A collector's lines in Kafka: the message ([`LineMessage`], schema in `proto/`), the target ([`Target`]), the
//! producer ([`Producer`]), and the service graph of the lines ([`ServiceGraph`]), with the same definition as
//! the job in `stream/flink`. Guide: `docs/kafka.md`.
//!
//! librdkafka is linked only with the feature `client` ([`BUILT`]); without it, [`Producer::open`] returns an
//! error with the remedy.

mod cause;
mod error;
#[cfg_attr(
    not(feature = "client"),
    allow(dead_code, reason = "the client uses it")
)]
mod message;
#[cfg_attr(not(feature = "client"), path = "absent.rs")]
mod producer;
#[cfg(feature = "client")]
mod reports;
mod service_graph;
#[cfg_attr(
    not(feature = "client"),
    allow(dead_code, reason = "the client uses it")
)]
mod settings;
mod target;

pub use cause::Cause;
pub use error::Error;
pub use message::{LineMessage, RttClass, VERSION};
pub use producer::{BUILT, Producer};
pub use service_graph::{Outcome, Row, ServiceGraph, ServiceGraphConfig};
pub use target::{Format, Target};
