//! The graph: changes, limits, history.

use crate::{
    Change, Edge, Event, Map, Node, Subscription, Value,
    adjacency::{Adjacency, Relations},
    element::Element,
    event::Subscribers,
    table::{Table, unmarked},
    value::Names,
    window::Window,
};
use serde::{Deserialize, Serialize};
use std::{collections::VecDeque, sync::Arc};
use utoipa::ToSchema;

/// How much of the past is kept. Whichever limit is met first counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HistoryLimits {
    /// Ms.
    pub max_age: i64,
    /// Events.
    pub max_events: usize,
    /// Bytes that versions take which are not the current ones, and the list of events.
    pub max_bytes: usize,
}

impl Default for HistoryLimits {
    /// A day, a million events, 512 MiB.
    fn default() -> Self {
        Self {
            max_age: 24 * 3_600 * 1_000,
            max_events: 1_000_000,
            max_bytes: 512 << 20,
        }
    }
}

/// Settings of a graph.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// How much of the past is kept.
    pub history: HistoryLimits,
    /// Nodes that can exist at once.
    pub max_nodes: usize,
    /// Edges that can exist at once.
    pub max_edges: usize,
    /// Bytes of one element's metadata.
    pub max_metadata_bytes: usize,
    /// Keys of nodes that have an index, as [`Node::at`] understands them.
    pub node_indexes: Vec<String>,
    /// Indexed keys of edges. The relation is always indexed, for each node.
    pub edge_indexes: Vec<String>,
}

impl Default for Config {
    /// A million nodes, two million edges, 4 MiB of metadata each; indexes on the keys by which captures
    /// and flows are found.
    fn default() -> Self {
        let keys = |keys: &[&str]| keys.iter().map(|key| key.to_string()).collect();
        Self {
            history: HistoryLimits::default(),
            max_nodes: 1_000_000,
            max_edges: 2_000_000,
            max_metadata_bytes: 4 << 20,
            node_indexes: keys(&[
                "Name",
                "TID",
                "Type",
                "MAC",
                "PeerIntfMAC",
                "IfIndex",
                "@Host",
            ]),
            edge_indexes: keys(&["RelationType", "@Host"]),
        }
    }
}

/// Why a change or a view is refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum GraphError {
    /// Its identifier is taken.
    #[error("node {0:?} exists already")]
    NodeExists(Arc<str>),
    /// Its identifier is taken.
    #[error("edge {0:?} exists already")]
    EdgeExists(Arc<str>),
    /// There is none now.
    #[error("there is no node {0:?}")]
    NoNode(Arc<str>),
    /// There is none now.
    #[error("there is no edge {0:?}")]
    NoEdge(Arc<str>),
    /// An edge needs both its nodes.
    #[error("edge {edge:?} needs a node {node:?}, which does not exist")]
    NoEnd {
        /// The edge.
        edge: Arc<str>,
        /// The missing node.
        node: Arc<str>,
    },
    /// An identifier is empty or longer than 256 bytes.
    #[error("an identifier must have 1 to {MAX_ID} bytes")]
    BadId,
    /// [`Config::max_nodes`] or [`Config::max_edges`].
    #[error("the graph is full: {0} {1}")]
    Full(usize, &'static str),
    /// [`Config::max_metadata_bytes`].
    #[error("metadata of {id:?} takes {bytes} bytes; {limit} are allowed")]
    TooLarge {
        /// The element.
        id: Arc<str>,
        /// What it would take.
        bytes: usize,
        /// What is allowed.
        limit: usize,
    },
    /// Lists and maps inside each other.
    #[error("metadata of {0:?} is nested deeper than {MAX_DEPTH} levels")]
    TooDeep(Arc<str>),
    /// The requested moment is not kept (any more).
    #[error("nothing is kept of that time; history begins at {begins} ms")]
    BeforeHistory {
        /// Ms since the Unix epoch.
        begins: i64,
    },
    /// While a query ran, the history that it read exceeded its limits and was dropped.
    #[error("the history that the query read was dropped meanwhile: it exceeded its limits")]
    Forgotten,
    /// Events are not in order.
    #[error("event {found} cannot follow event {last}")]
    OutOfOrder {
        /// Last event of the graph.
        last: u64,
        /// The one that was to be replayed.
        found: u64,
    },
}

/// Longest identifier in bytes.
pub(crate) const MAX_ID: usize = 256;
/// Deepest nesting of metadata.
const MAX_DEPTH: usize = 32;

/// A change of metadata at a path ([`Map::with`], [`Map::without`]).
#[derive(Clone, PartialEq, Debug)]
pub enum Patch {
    /// Puts a value there.
    Set(Box<str>, Value),
    /// Removes the value.
    Remove(Box<str>),
}

fn patched(metadata: &Map, patches: &[Patch]) -> Map {
    patches
        .iter()
        .fold(metadata.clone(), |map, patch| match patch {
            Patch::Set(path, value) => map.with(path, value.clone()),
            Patch::Remove(path) => map.without(path),
        })
}

/// All nodes and edges of a moment. JSON as Skydive has it.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "PascalCase")]
pub struct Export {
    /// The nodes.
    #[serde(default)]
    pub nodes: Vec<Arc<Node>>,
    /// The edges.
    #[serde(default)]
    pub edges: Vec<Arc<Edge>>,
}

/// How large a graph is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stats {
    /// Nodes that exist.
    pub nodes: usize,
    /// Edges that exist.
    pub edges: usize,
    /// Events that can be read.
    pub events: usize,
    /// Number of the last event.
    pub last_event: u64,
    /// Start of the history, ms since the Unix epoch; none before the first event.
    pub begins: Option<i64>,
    /// Bytes that [`HistoryLimits::max_bytes`] counts.
    pub history_bytes: usize,
    /// Subscribers to changes.
    pub subscribers: usize,
    /// Each index of nodes with the number of its values.
    pub node_indexes: Vec<(String, usize)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    NodeAdded,
    NodeUpdated,
    NodeDeleted,
    EdgeAdded,
    EdgeUpdated,
    EdgeDeleted,
}

/// An event as it is kept: what it did is in the versions.
#[derive(Clone, Copy)]
struct Logged {
    time: i64,
    slot: u32,
    /// Bytes that the version takes which it ended, and the entry itself.
    bytes: u32,
    kind: Kind,
}

/// A graph with its history, in memory.
///
/// Elements never change: each change makes a new version and keeps the old one for the history. Each
/// change comes with its time, of one clock; where that goes back the graph's time stands still.
pub struct Graph {
    config: Config,
    pub(crate) nodes: Table<Node>,
    pub(crate) edges: Table<Edge>,
    /// By slot of the node.
    pub(crate) adjacency: Vec<Adjacency>,
    pub(crate) relations: Relations,
    names: Names,
    /// The events after `floor`.
    log: VecDeque<Logged>,
    /// Number of the last event that is forgotten.
    floor: u64,
    floor_time: Option<i64>,
    seq: u64,
    time: i64,
    history_bytes: usize,
    subscribers: Subscribers,
}

impl Graph {
    /// An empty graph.
    pub fn new(config: Config) -> Self {
        Self {
            nodes: Table::new(config.node_indexes.iter().map(String::as_str)),
            edges: Table::new(config.edge_indexes.iter().map(String::as_str)),
            config,
            adjacency: Vec::new(),
            relations: Relations::default(),
            names: Names::default(),
            log: VecDeque::new(),
            floor: 0,
            floor_time: None,
            seq: 0,
            time: i64::MIN,
            history_bytes: 0,
            subscribers: Subscribers::default(),
        }
    }

    /// Adds a node at `now` (ms since the Unix epoch). Its own times stay if they are not 0, and its revision.
    pub fn add_node(&mut self, node: Node, now: i64) -> Result<Arc<Node>, GraphError> {
        self.check_new_node(&node)?;
        let now = self.tick(now);
        let (slot, node) = self.place_node(node, now, self.seq + 1);
        self.log(Kind::NodeAdded, slot, 0, || Change::NodeAdded(node.clone()));
        Ok(node)
    }

    /// Adds an edge, as [`Graph::add_node`]. Its nodes must exist.
    pub fn add_edge(&mut self, edge: Edge, now: i64) -> Result<Arc<Edge>, GraphError> {
        self.check_new_edge(&edge)?;
        let ends = self.ends(&edge)?;
        let now = self.tick(now);
        let (slot, edge) = self.place_edge(edge, ends, now, self.seq + 1);
        self.log(Kind::EdgeAdded, slot, 0, || Change::EdgeAdded(edge.clone()));
        Ok(edge)
    }

    /// Gives a node other metadata; none when they are what it has.
    pub fn update_node(
        &mut self,
        id: &str,
        metadata: Map,
        now: i64,
    ) -> Result<Option<Arc<Node>>, GraphError> {
        let (slot, old) = self.node_now(id)?;
        let Some((new, bytes)) = self.next_version(&*old, metadata, now)? else {
            return Ok(None);
        };
        let new = Arc::new(new);
        self.nodes.update(slot, new.clone(), self.seq + 1);
        self.log(Kind::NodeUpdated, slot, bytes, || {
            Change::NodeUpdated(new.clone())
        });
        Ok(Some(new))
    }

    /// Gives an edge other metadata; none when they are what it has.
    pub fn update_edge(
        &mut self,
        id: &str,
        metadata: Map,
        now: i64,
    ) -> Result<Option<Arc<Edge>>, GraphError> {
        let (slot, old) = self.edge_now(id)?;
        let Some((new, bytes)) = self.next_version(&*old, metadata, now)? else {
            return Ok(None);
        };
        let new = Arc::new(new);
        let seq = self.seq + 1;
        let (before, after) = (
            self.relations.find(old.relation()),
            self.relations.intern(new.relation()),
        );
        if before != after {
            let (parent, child) = self.ends(&old)?;
            for (node, out) in [(parent, true), (child, false)] {
                self.adjacency[node as usize].close(before, out, slot, seq);
                self.adjacency[node as usize].open(after, out, slot, seq);
            }
        }
        self.edges.update(slot, new.clone(), seq);
        self.log(Kind::EdgeUpdated, slot, bytes, || {
            Change::EdgeUpdated(new.clone())
        });
        Ok(Some(new))
    }

    /// Changes parts of a node's metadata; none when that changes nothing.
    pub fn patch_node(
        &mut self,
        id: &str,
        patches: &[Patch],
        now: i64,
    ) -> Result<Option<Arc<Node>>, GraphError> {
        let (_, old) = self.node_now(id)?;
        self.update_node(id, patched(&old.metadata, patches), now)
    }

    /// Changes parts of an edge's metadata; none when that changes nothing.
    pub fn patch_edge(
        &mut self,
        id: &str,
        patches: &[Patch],
        now: i64,
    ) -> Result<Option<Arc<Edge>>, GraphError> {
        let (_, old) = self.edge_now(id)?;
        self.update_edge(id, patched(&old.element.metadata, patches), now)
    }

    /// Deletes a node, before it its edges.
    pub fn delete_node(&mut self, id: &str, now: i64) -> Result<(), GraphError> {
        let (slot, old) = self.node_now(id)?;
        let now = self.tick(now);
        let mut edges = Vec::new();
        let _ = self.edges_of(
            slot,
            self.now(),
            crate::Direction::Both,
            None,
            &mut |edge, _| {
                edges.push(edge.element.id.clone());
                std::ops::ControlFlow::Continue(())
            },
        );
        for edge in edges {
            self.delete_edge(&edge, now)?;
        }
        let mut last = Node::clone(&old);
        last.deleted_at = Some(now);
        let last = Arc::new(last);
        self.nodes.delete(slot, last.clone(), self.seq + 1);
        let bytes = last.heap_bytes();
        self.log(Kind::NodeDeleted, slot, bytes, || Change::NodeDeleted(last));
        Ok(())
    }

    /// Deletes an edge.
    pub fn delete_edge(&mut self, id: &str, now: i64) -> Result<(), GraphError> {
        let (slot, old) = self.edge_now(id)?;
        let (parent, child) = self.ends(&old)?;
        let now = self.tick(now);
        let seq = self.seq + 1;
        let relation = self.relations.find(old.relation());
        self.adjacency[parent as usize].close(relation, true, slot, seq);
        self.adjacency[child as usize].close(relation, false, slot, seq);
        let mut last = Edge::clone(&old);
        last.element.deleted_at = Some(now);
        let last = Arc::new(last);
        self.edges.delete(slot, last.clone(), seq);
        let bytes = last.element.heap_bytes();
        self.log(Kind::EdgeDeleted, slot, bytes, || Change::EdgeDeleted(last));
        Ok(())
    }

    /// Deletes all nodes of a host and their edges; returns how many nodes there were.
    pub fn delete_host(&mut self, host: &str, now: i64) -> Result<usize, GraphError> {
        let nodes = self.nodes.current_of_host(host, self.now());
        for node in &nodes {
            self.delete_node(&node.id, now)?;
        }
        Ok(nodes.len())
    }

    /// Applies a change again that was kept elsewhere. Events up to the last one that the graph has
    /// are passed over.
    pub fn replay(&mut self, event: &Event) -> Result<(), GraphError> {
        if event.seq <= self.seq {
            return Ok(());
        }
        if event.seq != self.seq + 1 {
            return Err(GraphError::OutOfOrder {
                last: self.seq,
                found: event.seq,
            });
        }
        let (time, id) = (event.time, event.change.element().id.clone());
        match &event.change {
            Change::NodeAdded(node) => self.add_node(Node::clone(node), time).map(drop),
            Change::NodeUpdated(node) => {
                self.update_node(&id, node.metadata.clone(), time).map(drop)
            }
            Change::NodeDeleted(_) => self.delete_node(&id, time),
            Change::EdgeAdded(edge) => self.add_edge(Edge::clone(edge), time).map(drop),
            Change::EdgeUpdated(edge) => self
                .update_edge(&id, edge.element.metadata.clone(), time)
                .map(drop),
            Change::EdgeDeleted(_) => self.delete_edge(&id, time),
        }
    }

    /// Adds all elements of an export, up to the first that is refused.
    pub fn import(&mut self, export: &Export, now: i64) -> Result<(), GraphError> {
        for node in &export.nodes {
            self.add_node(Node::clone(node), now)?;
        }
        for edge in &export.edges {
            self.add_edge(Edge::clone(edge), now)?;
        }
        Ok(())
    }

    /// A graph that begins with the state that another had after its event `last_event`; the next
    /// event is the one after it. Nothing is known of the time before `now`.
    pub fn restore(
        config: Config,
        state: &Export,
        last_event: u64,
        now: i64,
    ) -> Result<Self, GraphError> {
        let mut graph = Self::new(config);
        graph.tick(now);
        (graph.seq, graph.floor, graph.floor_time) = (last_event, last_event, Some(now));
        for node in &state.nodes {
            graph.check_new_node(node)?;
            graph.place_node(Node::clone(node), now, last_event);
        }
        for edge in &state.edges {
            graph.check_new_edge(edge)?;
            let ends = graph.ends(edge)?;
            graph.place_edge(Edge::clone(edge), ends, now, last_event);
        }
        Ok(graph)
    }

    /// What exists now.
    pub fn export(&self) -> Export {
        Export {
            nodes: self.nodes.current_items().cloned().collect(),
            edges: self.edges.current_items().cloned().collect(),
        }
    }

    /// What exists now of a host, found by the index of `@Host` where there is one.
    pub fn export_host(&self, host: &str) -> Export {
        let now = self.now();
        Export {
            nodes: self.nodes.current_of_host(host, now),
            edges: self.edges.current_of_host(host, now),
        }
    }

    /// Subscribes to all changes from now on. At most `capacity` events wait; further ones are lost, and
    /// the subscriber gets their number.
    pub fn subscribe(&mut self, capacity: usize) -> Subscription {
        self.subscribers.subscribe(capacity)
    }

    /// Forgets what is too old at `now`. Changes do so by themselves; this is for quiet times.
    pub fn expire(&mut self, now: i64) {
        self.tick(now);
        self.trim();
    }

    /// The events after the one with number `seq`: an error when some are forgotten.
    pub fn events_since(&self, seq: u64) -> Result<impl Iterator<Item = Event> + '_, GraphError> {
        if seq < self.floor {
            return Err(GraphError::Forgotten);
        }
        let skip = usize::try_from(seq - self.floor).unwrap_or(usize::MAX);
        let events = self.log.iter().enumerate().skip(skip);
        Ok(events.filter_map(|(at, logged)| {
            let seq = self.floor + 1 + at as u64;
            let node = || self.nodes.of_event(logged.slot, seq).cloned();
            let edge = || self.edges.of_event(logged.slot, seq).cloned();
            // The last version is marked as deleted once it is, which was not known before.
            let past_node = || node().map(unmarked);
            let past_edge = || edge().map(unmarked);
            let change = match logged.kind {
                Kind::NodeAdded => Change::NodeAdded(past_node()?),
                Kind::NodeUpdated => Change::NodeUpdated(past_node()?),
                Kind::NodeDeleted => Change::NodeDeleted(node()?),
                Kind::EdgeAdded => Change::EdgeAdded(past_edge()?),
                Kind::EdgeUpdated => Change::EdgeUpdated(past_edge()?),
                Kind::EdgeDeleted => Change::EdgeDeleted(edge()?),
            };
            let time = logged.time;
            Some(Event { seq, time, change })
        }))
    }

    /// The present.
    pub fn now(&self) -> Window {
        Window {
            lo: self.seq,
            hi: self.seq,
            known: self.seq,
            from: self.time,
            to: self.time,
            live: true,
        }
    }

    /// The state at a moment, ms since the Unix epoch; of the future that of now.
    pub fn at(&self, time: i64) -> Result<Window, GraphError> {
        let moment = self.seq_at(time)?;
        Ok(Window {
            lo: moment,
            hi: moment,
            known: moment,
            from: time,
            to: time,
            live: false,
        })
    }

    /// All that was true at some moment of the `duration` ms before `end`, within the kept history.
    pub fn between(&self, end: i64, duration: i64) -> Result<Window, GraphError> {
        let hi = self.seq_at(end)?;
        let from = end.saturating_sub(duration.max(0));
        let lo = self.seq_at(from).unwrap_or(self.floor);
        Ok(Window {
            lo,
            hi,
            known: hi,
            from,
            to: end,
            live: false,
        })
    }

    /// Number of the last event up to `time`.
    fn seq_at(&self, time: i64) -> Result<u64, GraphError> {
        let begins = self
            .floor_time
            .or_else(|| self.log.front().map(|first| first.time));
        if let Some(begins) = begins.filter(|begins| time < *begins) {
            return Err(GraphError::BeforeHistory { begins });
        }
        Ok(self.floor + self.log.partition_point(|logged| logged.time <= time) as u64)
    }

    /// Whether all of `window` is still kept.
    pub fn remembers(&self, window: Window) -> bool {
        window.lo >= self.floor
    }

    /// How large it is.
    pub fn stats(&self) -> Stats {
        let indexes = self.nodes.index_sizes();
        Stats {
            nodes: self.nodes.len(),
            edges: self.edges.len(),
            events: self.log.len(),
            last_event: self.seq,
            begins: self
                .floor_time
                .or_else(|| self.log.front().map(|first| first.time)),
            history_bytes: self.history_bytes,
            subscribers: self.subscribers.len(),
            node_indexes: indexes
                .map(|(key, values)| (key.to_owned(), values))
                .collect(),
        }
    }

    /// Number of the last event, 0 before the first.
    pub fn last_event(&self) -> u64 {
        self.seq
    }

    /// Its settings.
    pub fn config(&self) -> &Config {
        &self.config
    }

    fn check_new_node(&self, node: &Node) -> Result<(), GraphError> {
        self.check_new(node)?;
        if self
            .nodes
            .slot(&node.id)
            .is_some_and(|slot| self.nodes.current(slot).is_some())
        {
            return Err(GraphError::NodeExists(node.id.clone()));
        }
        if self.nodes.len() >= self.config.max_nodes {
            return Err(GraphError::Full(self.nodes.len(), "nodes"));
        }
        Ok(())
    }

    fn check_new_edge(&self, edge: &Edge) -> Result<(), GraphError> {
        let id = &edge.element.id;
        self.check_new(&edge.element)?;
        if self
            .edges
            .slot(id)
            .is_some_and(|slot| self.edges.current(slot).is_some())
        {
            return Err(GraphError::EdgeExists(id.clone()));
        }
        if self.edges.len() >= self.config.max_edges {
            return Err(GraphError::Full(self.edges.len(), "edges"));
        }
        Ok(())
    }

    /// Slots of the nodes of an edge, which must exist.
    fn ends(&self, edge: &Edge) -> Result<(u32, u32), GraphError> {
        let end = |node: &Arc<str>| {
            let slot = self.nodes.slot(node);
            let slot = slot.filter(|slot| self.nodes.current(*slot).is_some());
            slot.ok_or_else(|| GraphError::NoEnd {
                edge: edge.element.id.clone(),
                node: node.clone(),
            })
        };
        Ok((end(&edge.parent)?, end(&edge.child)?))
    }

    fn place_node(&mut self, mut node: Node, now: i64, seq: u64) -> (u32, Arc<Node>) {
        self.prepare(&mut node, now);
        let node = Arc::new(node);
        let slot = self.nodes.add(node.clone(), seq);
        let needed = self.nodes.slots() as usize;
        self.adjacency
            .resize_with(needed.max(self.adjacency.len()), Adjacency::default);
        (slot, node)
    }

    fn place_edge(
        &mut self,
        mut edge: Edge,
        (parent, child): (u32, u32),
        now: i64,
        seq: u64,
    ) -> (u32, Arc<Edge>) {
        if let (Some(parent), Some(child)) = (self.nodes.current(parent), self.nodes.current(child))
        {
            // The same texts, in the same memory.
            edge.parent = parent.id.clone();
            edge.child = child.id.clone();
        }
        self.prepare(&mut edge.element, now);
        let relation = self.relations.intern(edge.relation());
        let edge = Arc::new(edge);
        let slot = self.edges.add(edge.clone(), seq);
        self.adjacency[parent as usize].open(relation, true, slot, seq);
        self.adjacency[child as usize].open(relation, false, slot, seq);
        (slot, edge)
    }

    /// Checks whether the identifier and metadata of a new element are valid.
    ///
    /// # Errors
    ///
    /// The first invalid one.
    pub fn check_new(&self, element: &Node) -> Result<(), GraphError> {
        if element.id.is_empty() || element.id.len() > MAX_ID {
            return Err(GraphError::BadId);
        }
        self.check_metadata(&element.id, &element.metadata)
    }

    fn check_metadata(&self, id: &Arc<str>, metadata: &Map) -> Result<(), GraphError> {
        let deepest = metadata
            .iter()
            .map(|(_, value)| value.depth(MAX_DEPTH))
            .max();
        if deepest.is_some_and(|depth| depth >= MAX_DEPTH) {
            return Err(GraphError::TooDeep(id.clone()));
        }
        let bytes =
            metadata.heap_bytes() + metadata.iter().map(|(name, _)| name.len()).sum::<usize>();
        if bytes > self.config.max_metadata_bytes {
            return Err(GraphError::TooLarge {
                id: id.clone(),
                bytes,
                limit: self.config.max_metadata_bytes,
            });
        }
        Ok(())
    }

    fn tick(&mut self, now: i64) -> i64 {
        self.time = self.time.max(now);
        self.time
    }

    fn prepare(&mut self, element: &mut Node, now: i64) {
        let kept = |time: i64| if time == 0 { now } else { time };
        element.created_at = kept(element.created_at);
        element.updated_at = kept(element.updated_at);
        element.revision = element.revision.max(0);
        element.deleted_at = None;
        let metadata = std::mem::take(&mut element.metadata);
        element.metadata = metadata.share(&Map::default(), &mut self.names);
        for text in [&mut element.host, &mut element.origin] {
            *text = self.names.intern(text);
        }
    }

    /// The version after `old`, and the bytes that only `old` takes then; none when nothing changed.
    fn next_version<T: Element>(
        &mut self,
        old: &T,
        metadata: Map,
        now: i64,
    ) -> Result<Option<(T, usize)>, GraphError> {
        let before = &old.base().metadata;
        if metadata == *before {
            return Ok(None);
        }
        self.check_metadata(&old.base().id, &metadata)?;
        let now = self.tick(now);
        let mut new = old.clone();
        let base = new.base_mut();
        base.metadata = metadata.share(before, &mut self.names);
        base.updated_at = now;
        base.revision = base.revision.saturating_add(1);
        let bytes = size_of::<T>() + before.bytes_beside(&base.metadata);
        Ok(Some((new, bytes)))
    }

    /// A node as it is now.
    pub fn current_node(&self, id: &str) -> Option<Arc<Node>> {
        self.node_now(id).ok().map(|(_, node)| node)
    }

    /// An edge as it is now.
    pub fn current_edge(&self, id: &str) -> Option<Arc<Edge>> {
        self.edge_now(id).ok().map(|(_, edge)| edge)
    }

    fn node_now(&self, id: &str) -> Result<(u32, Arc<Node>), GraphError> {
        let slot = self.nodes.slot(id);
        let found = slot.and_then(|slot| Some((slot, self.nodes.current(slot)?.clone())));
        found.ok_or_else(|| GraphError::NoNode(id.into()))
    }

    fn edge_now(&self, id: &str) -> Result<(u32, Arc<Edge>), GraphError> {
        let slot = self.edges.slot(id);
        let found = slot.and_then(|slot| Some((slot, self.edges.current(slot)?.clone())));
        found.ok_or_else(|| GraphError::NoEdge(id.into()))
    }

    fn log(&mut self, kind: Kind, slot: u32, bytes: usize, change: impl FnOnce() -> Change) {
        self.seq += 1;
        let bytes = u32::try_from(bytes + size_of::<Logged>()).unwrap_or(u32::MAX);
        self.history_bytes += bytes as usize;
        self.log.push_back(Logged {
            time: self.time,
            slot,
            bytes,
            kind,
        });
        if self.subscribers.any() {
            self.subscribers.publish(Event {
                seq: self.seq,
                time: self.time,
                change: change(),
            });
        }
        self.trim();
    }

    fn trim(&mut self) {
        let limits = self.config.history;
        while let Some(oldest) = self.log.front() {
            let too_much = self.log.len() > limits.max_events
                || self.history_bytes > limits.max_bytes
                || oldest.time < self.time.saturating_sub(limits.max_age);
            if !too_much {
                break;
            }
            self.forget_one();
        }
    }

    fn forget_one(&mut self) {
        let Some(oldest) = self.log.pop_front() else {
            return;
        };
        self.floor += 1;
        self.floor_time = Some(oldest.time);
        self.history_bytes -= oldest.bytes as usize;
        let (slot, seq) = (oldest.slot, self.floor);
        match oldest.kind {
            Kind::NodeAdded | Kind::EdgeAdded => {}
            Kind::NodeUpdated | Kind::NodeDeleted => {
                let forgotten = self.nodes.forget(slot, seq);
                if forgotten.is_some_and(|forgotten| forgotten.last) {
                    self.adjacency[slot as usize] = Adjacency::default();
                }
            }
            Kind::EdgeUpdated | Kind::EdgeDeleted => {
                if let Some(forgotten) = self.edges.forget(slot, seq) {
                    let edge = forgotten.item;
                    let relation = self.relations.find(edge.relation());
                    let ends = [(&edge.parent, true), (&edge.child, false)];
                    for (node, out) in ends {
                        if let Some(node) = self.nodes.slot(node) {
                            self.adjacency[node as usize].forget(relation, out, seq);
                        }
                    }
                }
            }
        }
    }
}
