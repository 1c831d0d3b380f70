//! The history of graph and flows on disk: exact, recent, embedded.
//!
//! A [`Store`] is a directory that one process owns. It has two logs, one of the graph and one of
//! flows: append-only files of frames with checksums. A file is deleted when it is too old or the log
//! is too large. `docs/history.md` describes the content of files and possible losses.
//!
//! - The graph: [`Store::load_graph`] at the start, then a [`GraphJournal`], which subscribes to it.
//! - Flows: a [`FlowBatch`] for each drain goes to [`FlowHistory::append`]; [`FlowHistory::scan`] and
//!   [`FlowHistory::changes`] query the past.
//!
//! Both write in the background: neither counting packets nor changing the graph waits for a disk.
//! Data that cannot be written is counted by cause ([`StoreStats`]).

mod config;
mod error;
mod flow;
mod graph;
mod lock;
mod log;
mod store;
#[cfg(test)]
mod tests;

pub use config::{Limits, StoreConfig};
pub use error::StoreError;
pub use flow::{FlowBatch, FlowChange, FlowContext, FlowHistory, FlowId, FlowLookup, StoredFlow};
pub use graph::{GapCause, GraphJournal, HistoryGap, JournalStats, Restored};
pub use log::{Damage, LogStats, Lost};
pub use store::{Store, StoreStats};

/// For fuzzing.
pub mod check {
    use crate::{flow, graph, log};
    use std::path::Path;

    /// Decodes bytes as every kind of payload.
    pub fn payload(bytes: &[u8]) {
        graph::check(bytes);
        flow::check(bytes);
    }

    /// Reads a file of any content as a log file.
    pub fn file(path: &Path) {
        payloads(path, &mut payload);
    }

    /// Visits the payloads of a file of a log.
    pub fn payloads(path: &Path, visit: &mut dyn FnMut(&[u8])) {
        log::check(path, visit);
    }
}
