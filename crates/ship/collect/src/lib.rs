//! Export and collection: [`Exporter`] encodes flow records as sFlow datagrams; [`Collector`] reads those of many
//! agents, and of any other source of sFlow, NetFlow or IPFIX, and sums them up by service and window.
//! `docs/collector.md` has the rules, `docs/wire.md` the format.
//!
//! The crate does no input or output, so that tests need no network: datagrams are bytes, the time is an argument.

mod answer;
mod collector;
mod compact;
mod conversation;
mod counts;
mod exported;
mod exporter;
pub mod fields;
pub mod graph;
mod key;
mod line;
mod names;
mod reading;
mod sampled;
mod shard;
mod sketch;
mod stream;
mod summary;
mod sums;
mod window;

pub use answer::greet;
pub use collector::{Collector, CollectorConfig, Sender};
pub use counts::{Cause, Counts, Sum};
pub use exporter::{
    Drain, Enrichment, Exported, Exporter, ExporterConfig, LEAST as LEAST_DATAGRAM, NoEnrichment,
    Offered, Tcp,
};
pub use key::{Key, Rule};
pub use line::{Between, Exporters, Line, Ports, Rtt, Sent, Times};
pub use shard::Shard;
pub use sketch::{CLASSES, Sketch};
pub use stream::{AgentLine, RemovedAgents};
pub use summary::{Summary, Unreadable};
pub use sums::PORTS;

/// Hash tables with keys from the network: the secret seed prevents collision attacks.
type HashMap<K, V> = std::collections::HashMap<K, V, RandomState>;

/// The seed of tables.
type RandomState = foldhash::quality::RandomState;

/// Nanoseconds in a second.
const SECOND: u64 = 1_000_000_000;
