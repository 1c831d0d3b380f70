//! The history of graph and flows on disk: exact, recent, embedded.
//!
//! A [`Store`] is a directory that one process has. In it are two logs, one of the graph and one of
//! flows: files that are only ever added to, in frames with checksums. A file is deleted as a
//! whole when it is too old or too much is there. What is kept where, and what is lost when, is
//! described in `docs/history.md`.
//!
//! - The graph: [`Store::load_graph`] at the start, then a [`GraphJournal`], which subscribes to it.
//! - Flows: a [`FlowBatch`] for each drain goes to [`FlowHistory::append`]; [`FlowHistory::scan`] and
//!   [`FlowHistory::changes`] answer questions about the past.
//!
//! Both write behind whoever counts packets or changes the graph: nobody waits for a disk. What cannot
//! be written is counted by cause ([`StoreStats`]).

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

    /// Reads bytes as every kind of payload, and what they hold to the end.
    pub fn payload(bytes: &[u8]) {
        graph::check(bytes);
        flow::check(bytes);
    }

    /// Reads a file of any content as one of a log, all that is in it included.
    pub fn file(path: &Path) {
        payloads(path, &mut payload);
    }

    /// Visits the payloads of a file of a log.
    pub fn payloads(path: &Path, visit: &mut dyn FnMut(&[u8])) {
        log::check(path, visit);
    }
}
