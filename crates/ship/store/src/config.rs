//! Settings of a store.

use std::time::Duration;

/// How much of a log is kept. Whichever limit is met first counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// What is older goes, in parts of a sixteenth of this.
    pub max_age: Duration,
    /// The most bytes on the disk, as `du` counts them. It holds at every moment: room is made before
    /// something is written, in parts of an eighth of this.
    pub max_bytes: u64,
}

/// Settings of a store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoreConfig {
    /// Of the graph's events.
    pub graph: Limits,
    /// Of flows.
    pub flows: Limits,
    /// How often what was written is forced onto the disk (`fdatasync`): so much may be missing after
    /// the machine lost power. What was written is there after the process was killed, whatever is set
    /// here. 0: with every write.
    pub sync_interval: Duration,
    /// How long after a write that failed the next one is tried. Until then what comes is counted as
    /// lost at once.
    pub retry_interval: Duration,
    /// Events of the graph that may wait for the disk. What does not fit is lost: the history then has
    /// a gap with a name, after which it goes on with the whole state.
    pub graph_queue: usize,
    /// Bytes of flows, packed, that may wait for the disk.
    pub flow_queue_bytes: usize,
    /// How long events of the graph are gathered before they are written. So much may be missing after
    /// the process was killed.
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
