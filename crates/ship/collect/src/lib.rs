//! Both ends of the way from agents to collectors: [`Exporter`] puts flow records into sFlow datagrams,
//! [`Collector`] takes those of many agents, and of any other source of sFlow, NetFlow or IPFIX, and sums them up by
//! service and window. `docs/collector.md` says by which rules, `docs/wire.md` what is on the wire.
//!
//! Nothing here does input or output, so that everything can be tested without a network: datagrams come
//! and go as bytes, the time is an argument.

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
    Drain, Exported, Exporter, ExporterConfig, Known, LEAST as LEAST_DATAGRAM, Nothing, Offered,
    Tcp,
};
pub use key::{Key, Rule};
pub use line::{Between, Exporters, Line, Ports, Rtt, Sent, Times};
pub use shard::Shard;
pub use sketch::{CLASSES, Sketch};
pub use stream::{AgentLine, GoneAgents};
pub use summary::{Summary, Unreadable};
pub use sums::PORTS;

/// Tables by what agents say: with a secret seed, so that nobody can aim at one place.
type HashMap<K, V> = std::collections::HashMap<K, V, RandomState>;

/// The seed of tables.
type RandomState = foldhash::quality::RandomState;

/// Nanoseconds in a second.
const SECOND: u64 = 1_000_000_000;
