//! Settings of a store.

use std::time::Duration;

/// Limits of a log. The first limit that is reached applies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Older files are deleted, in parts of a sixteenth of this.
    pub max_age: Duration,
    /// The most bytes on the disk, as `du` counts them. Never exceeded: space is freed before a
    /// write, in parts of an eighth of this.
    pub max_bytes: u64,
}

/// Settings of a store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoreConfig {
    /// Of the graph's events.
    pub graph: Limits,
    /// Of flows.
    pub flows: Limits,
    /// How often writes are synced to the disk (`fdatasync`): a power failure may lose this much. A
    /// killed process loses no finished write, whatever the value. 0: sync every write.
    pub sync_interval: Duration,
    /// Pause after a failed write. Meanwhile new data is counted as lost at once.
    pub retry_interval: Duration,
    /// Events of the graph that may wait for the disk. Events beyond it are lost: the history then has
    /// a recorded gap, after which it continues with the complete state.
    pub graph_queue: usize,
    /// Bytes of flows, packed, that may wait for the disk.
    pub flow_queue_bytes: usize,
    /// How long events of the graph are collected before a write. A killed process loses this much.
    pub gather: Duration,
}

impl Default for StoreConfig {
    /// A day each, 512 MiB for the graph and 4 GiB for flows; synced each second.
    fn default() -> Self {
        let day = Duration::from_secs(24 * 3_600);
        Self {
            graph: Limits {
                max_age: day,
                max_bytes: 512 << 20,
            },
            flows: Limits {
                max_age: day,
                max_bytes: 4 << 30,
            },
            sync_interval: Duration::from_secs(1),
            retry_interval: Duration::from_secs(1),
            graph_queue: 65_536,
            flow_queue_bytes: 64 << 20,
            gather: Duration::from_millis(100),
        }
    }
}
