//! Lines of a collector in Kafka: the message ([`encode`], whose schema is in `proto/`), where it goes
//! ([`Target`]), the producer that sends it ([`Producer`]), and the service graph that is made of it ([`ServiceGraph`]), by the
//! same definition as the job in `stream/flink`. `docs/kafka.md` explains it to users.
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
pub use message::{LineMessage, RttClass, VERSION, encode, schema};
pub use producer::{BUILT, Producer};
pub use service_graph::{Outcome, Row, ServiceGraph, ServiceGraphConfig};
pub use target::{Format, Target};
