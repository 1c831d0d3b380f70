//! Sources of graphs, flows, sockets and packets.

use crate::record::FlowRecord;
use skua_topology::{
    Direction, Edge, GraphError, IndexKey, Lookup, Node, Scan, SharedGraph, Value, Visit, Window,
};
use std::{ops::ControlFlow, sync::Arc};

/// Why a source cannot answer.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct SourceError(pub String);

/// A moment or time span of a query.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum When {
    /// The present.
    Now,
    /// A moment, ms since the Unix epoch.
    At(i64),
    /// True at some moment in this many ms before a moment; none: at any time before it.
    Between(i64, Option<i64>),
}

/// A graph with its history. Elements come with the part of the window in which they had this
/// state.
///
/// Visitors must not call the source: it may be locked while they run.
pub trait GraphSource: Sync {
    /// The window for a moment or span.
    fn window(&self, when: When) -> Result<Window, SourceError>;
    /// Visits nodes; the source decides how it finds an identifier or a key without an index.
    fn nodes(
        &self,
        window: Window,
        lookup: Lookup<'_>,
        visit: Visit<'_, Node>,
    ) -> Result<(), SourceError>;
    /// Visits edges.
    fn edges(
        &self,
        window: Window,
        lookup: Lookup<'_>,
        visit: Visit<'_, Edge>,
    ) -> Result<(), SourceError>;
    /// Visits the edges of a node; with `relation` at least those that have it.
    fn edges_of(
        &self,
        node: &str,
        window: Window,
        direction: Direction,
        relation: Option<&str>,
        visit: Visit<'_, Edge>,
    ) -> Result<(), SourceError>;
    /// Visits the nodes at the other ends of the edges of a node.
    fn neighbours(
        &self,
        node: &str,
        window: Window,
        direction: Direction,
        visit: Visit<'_, Node>,
    ) -> Result<(), SourceError>;
    /// At most how many nodes have a value under a key; none when the key has no index.
    fn estimate_nodes(&self, key: &str, value: &IndexKey) -> Option<usize>;
    /// As [`GraphSource::estimate_nodes`].
    fn estimate_edges(&self, key: &str, value: &IndexKey) -> Option<usize>;
}

/// The time in which flows were active. None: the present flows.
pub type FlowTime = Option<(i64, i64)>;

/// Which flows a source is to show.
#[derive(Clone, Copy, Debug)]
pub enum FlowLookup<'a> {
    /// All.
    All,
    /// Flows with a value of a key that [`FlowSource::estimate`] supports.
    Key(&'a str, &'a IndexKey),
}

/// A captured packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RawPacket {
    /// Ms since the Unix epoch.
    pub timestamp: i64,
    /// The same in ns.
    pub time_ns: u64,
    /// Position in its flow.
    pub index: i64,
    /// Bytes on the wire, of which `data` may be a part.
    pub length: u32,
    /// From the link layer on.
    pub data: Arc<[u8]>,
    /// As in capture files: 1 for Ethernet.
    pub link_type: u32,
}

/// A store of flows with its history. Visitors must not call it, as with [`GraphSource`].
pub trait FlowSource: Sync {
    /// Visits flows that were active at `time` (ms since the Unix epoch, from and to).
    fn flows(
        &self,
        lookup: FlowLookup<'_>,
        time: FlowTime,
        visit: &mut dyn FnMut(&dyn FlowRecord) -> ControlFlow<()>,
    ) -> Result<(), SourceError>;
    /// At most how many flows have a value under a key; none when the key has no index.
    fn estimate(&self, key: &str, value: &IndexKey) -> Option<usize>;
    /// The metrics of a flow over a span, by time. Each is a map with `Start`, `Last` and counters.
    fn metrics(&self, flow: &dyn FlowRecord, time: (i64, i64)) -> Result<Vec<Value>, SourceError>;
    /// The captured packets of a flow, by position.
    fn raw_packets(
        &self,
        flow: &dyn FlowRecord,
        time: FlowTime,
    ) -> Result<Vec<RawPacket>, SourceError>;
}

/// Finds sockets. Without one, the metadata `Sockets` of nodes is used.
pub trait SocketSource: Sync {
    /// The sockets on a node, each a map.
    fn of_node(&self, node: &Node, window: Window) -> Result<Vec<Value>, SourceError>;
    /// The sockets at both ends of a flow.
    fn of_flow(&self, flow: &dyn FlowRecord, time: FlowTime) -> Result<Vec<Value>, SourceError>;
}

/// Finds what decides about flows.
pub trait AclSource: Sync {
    /// The ACLs of a flow, each a map.
    fn of_flow(&self, flow: &dyn FlowRecord) -> Result<Vec<Value>, SourceError>;
}

/// A compiled expression.
pub type PacketTest = Box<dyn Fn(&[u8]) -> bool>;

/// Compiles pcap expressions.
pub trait PacketFilters: Sync {
    /// Compiles an expression for packets of a link type; the error describes the mistake.
    fn compile(&self, expression: &str, link_type: u32) -> Result<PacketTest, String>;
}

/// Everything a query can be about.
#[derive(Clone, Copy)]
pub struct Sources<'a> {
    /// The graph.
    pub graph: &'a dyn GraphSource,
    /// The flows, where there are any.
    pub flows: Option<&'a dyn FlowSource>,
    /// The sockets; see [`SocketSource`].
    pub sockets: Option<&'a dyn SocketSource>,
    /// For `BPF`.
    pub filters: Option<&'a dyn PacketFilters>,
    /// For `ACLs`, where a switch can be asked.
    pub acls: Option<&'a dyn AclSource>,
}

impl<'a> Sources<'a> {
    /// Only a graph.
    pub fn graph(graph: &'a dyn GraphSource) -> Self {
        Self {
            graph,
            flows: None,
            sockets: None,
            filters: None,
            acls: None,
        }
    }
}

impl From<GraphError> for SourceError {
    fn from(error: GraphError) -> Self {
        Self(match error {
            GraphError::BeforeHistory { begins } => format!(
                "nothing is kept of that time; history begins at {}",
                crate::time::show(begins)
            ),
            error => error.to_string(),
        })
    }
}

/// Elements that are scanned under one lock.
const PART: usize = 1_024;

impl GraphSource for SharedGraph {
    fn window(&self, when: When) -> Result<Window, SourceError> {
        let graph = self.read();
        Ok(match when {
            When::Now => graph.now(),
            When::At(time) => graph.at(time)?,
            When::Between(end, duration) => graph.between(end, duration.unwrap_or(i64::MAX))?,
        })
    }

    fn nodes(
        &self,
        window: Window,
        lookup: Lookup<'_>,
        visit: Visit<'_, Node>,
    ) -> Result<(), SourceError> {
        let mut from = 0;
        loop {
            // Each part releases the lock.
            let part = self.read().scan_nodes(window, lookup, from, PART, visit)?;
            let Scan::More(next) = part else {
                return Ok(());
            };
            from = next;
        }
    }

    fn edges(
        &self,
        window: Window,
        lookup: Lookup<'_>,
        visit: Visit<'_, Edge>,
    ) -> Result<(), SourceError> {
        let mut from = 0;
        loop {
            // Each part releases the lock.
            let part = self.read().scan_edges(window, lookup, from, PART, visit)?;
            let Scan::More(next) = part else {
                return Ok(());
            };
            from = next;
        }
    }

    fn edges_of(
        &self,
        node: &str,
        window: Window,
        direction: Direction,
        relation: Option<&str>,
        visit: Visit<'_, Edge>,
    ) -> Result<(), SourceError> {
        let _ = self
            .read()
            .edges(node, window, direction, relation, visit)?;
        Ok(())
    }

    fn neighbours(
        &self,
        node: &str,
        window: Window,
        direction: Direction,
        visit: Visit<'_, Node>,
    ) -> Result<(), SourceError> {
        let _ = self.read().neighbours(node, window, direction, visit)?;
        Ok(())
    }

    fn estimate_nodes(&self, key: &str, value: &IndexKey) -> Option<usize> {
        self.read().estimate_nodes(key, value)
    }

    fn estimate_edges(&self, key: &str, value: &IndexKey) -> Option<usize> {
        self.read().estimate_edges(key, value)
    }
}
