//! The history of flows: the changes of each drain.
//!
//! A row is one change of one flow: the record after a drain, and the deltas of that drain. So it holds
//! both the sums up to a moment and the differences, and a part of the history is readable without
//! earlier parts.
//!
//! The packets of a change lie between `since_ns` and the record's `last_ns`; the spans of the changes
//! of one flow follow one another without gaps. A flow *was active* in a time when one of its spans
//! overlaps that time.

mod block;
mod columns;
mod history;
mod queue;
mod scan;

pub use history::{FlowBatch, FlowHistory};

use skua_flow::{ConversationOwner, Counters, FlowKey, FlowRecord};
use std::{net::IpAddr, sync::Arc};

/// Where a flow was captured.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct FlowContext<'a> {
    /// Name of the host.
    pub host: &'a str,
    /// Identifier of the capture.
    pub capture: &'a str,
    /// `TID` of the node that it was captured on.
    pub node_tid: &'a str,
    /// Name of the interface.
    pub interface: &'a str,
}

/// What a drain changed of a flow.
#[derive(Clone, Copy, Debug)]
pub struct FlowChange<'a> {
    /// The record after it. Its numbers of owners are not stored: they are valid in one process
    /// only.
    pub record: &'a FlowRecord,
    /// What the drain added, of `lo` and of `hi`.
    pub added: [Counters; 2],
    /// Time of the last packet known before: the record's `last_ns` before this drain; of a new
    /// record its `first_ns`. Ns since the Unix epoch.
    pub since_ns: u64,
    /// Where it was captured.
    pub context: FlowContext<'a>,
    /// The owners of the sockets of `lo` and `hi`.
    pub parties: [ConversationOwner<'a>; 2],
}

/// A flow, or a change of one, out of the history.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct StoredFlow<'a> {
    /// The record.
    pub record: FlowRecord,
    /// Deltas since `since_ns`, of `lo` and of `hi`.
    pub added: [Counters; 2],
    /// Time of the last packet before those, ns since the Unix epoch.
    pub since_ns: u64,
    /// Where it was captured.
    pub context: FlowContext<'a>,
    /// The owners of the sockets of `lo` and `hi`.
    pub parties: [ConversationOwner<'a>; 2],
    /// Set when the flow began before the end of the requested time, but was first drained
    /// after it: the counters then say more than was counted by that time, for there is nothing before
    /// them.
    pub ahead: bool,
}

impl StoredFlow<'_> {
    /// Identifies the flow.
    pub fn identity(&self) -> FlowId {
        FlowId {
            host: self.context.host.into(),
            capture: self.context.capture.into(),
            id: self.record.id,
            serial: self.record.serial,
            first_ns: self.record.first_ns,
            last_ns: self.record.last_ns,
        }
    }
}

/// Identifies a flow: a conversation that ended and a later one with the same ports have the same
/// `id`, but not the same `serial`. The times narrow the search.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct FlowId {
    /// Name of the host.
    pub host: Arc<str>,
    /// Identifier of the capture.
    pub capture: Arc<str>,
    /// [`FlowRecord::id`].
    pub id: u64,
    /// [`FlowRecord::serial`].
    pub serial: u64,
    /// Time of its first packet, ns since the Unix epoch.
    pub first_ns: u64,
    /// Time of a later packet, or of the same, ns since the Unix epoch.
    pub last_ns: u64,
}

/// Selects flows.
#[derive(Clone, Copy)]
pub enum FlowLookup<'a> {
    /// All.
    All,
    /// Those captured on a node, by its `TID`.
    Node(&'a str),
    /// Those of captures, not those that are always watched.
    Captured,
    /// Those from or to an address.
    Address(IpAddr),
    /// Flows with matching keys, by tracking identifier for example.
    Key(&'a dyn Fn(&FlowKey) -> bool),
}

/// Reads bytes as a block, with all its rows.
pub(crate) fn check(bytes: &[u8]) {
    let mut scratch = block::Scratch::default();
    let tables = block::Tables::read(bytes);
    if let Some(rows) = tables.and_then(|tables| tables.rows(&mut scratch)) {
        for at in 0..rows.len() {
            let _ = rows.key(at).and_then(|key| rows.flow(at, key));
        }
    }
}
