//! Reading the graph's history.

use super::codec::{Part, PartHead, events};
use crate::{
    StoreError,
    log::{DamageNotes, FrameAt, Part as LogPart, frame::Kind},
    store::Shared,
};
use skua_topology::{Edge, Event, Export, Graph, GraphError, Node};
use std::{
    collections::{BTreeMap, HashMap},
    ops::ControlFlow,
    sync::Arc,
};

/// Most gaps that are listed.
const MOST_GAPS: usize = 1_000;

/// Why the history of the graph has a gap. Within a gap the state before it is shown; at its end all
/// differences appear at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GapCause {
    /// No process ran, or it had not written yet.
    Restart,
    /// This many events were lost because they could not be written.
    Lost(u64),
    /// Files are damaged.
    Damage,
}

/// A time without knowledge of the graph.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HistoryGap {
    /// Last known moment before it, ms since the Unix epoch.
    pub from: i64,
    /// First known moment after it.
    pub to: i64,
    /// Why.
    pub cause: GapCause,
}

/// The result of loading a graph.
#[derive(Clone, Debug, Default)]
pub struct Restored {
    /// Events that were applied.
    pub events: u64,
    /// Start of the history, ms since the Unix epoch; none: it is empty.
    pub began: Option<i64>,
    /// End of the history: the end of the earlier process.
    pub ended: Option<i64>,
    /// Gaps, oldest first.
    pub gaps: Vec<HistoryGap>,
    /// Identifiers of the nodes that existed at the end, by [`Node::origin`].
    nodes: BTreeMap<Arc<str>, Vec<Arc<str>>>,
    /// The same for the edges.
    edges: BTreeMap<Arc<str>, Vec<Arc<str>>>,
}

impl Restored {
    /// The origins of nodes and edges that existed at the end of the earlier process and are not yet
    /// reconciled, with the number of their nodes and edges.
    pub fn origins(&self) -> BTreeMap<Arc<str>, (usize, usize)> {
        let mut origins: BTreeMap<_, (usize, usize)> = BTreeMap::new();
        for (origin, ids) in &self.nodes {
            origins.entry(origin.clone()).or_default().0 = ids.len();
        }
        for (origin, ids) in &self.edges {
            origins.entry(origin.clone()).or_default().1 = ids.len();
        }
        origins
    }

    /// Identifiers of the nodes of an origin that existed at the end of the process before.
    pub fn nodes_of(&self, origin: &str) -> &[Arc<str>] {
        self.nodes.get(origin).map_or(&[], |ids| ids)
    }

    /// Call it once an origin has listed all its elements: ends (deletes at `now`) its nodes and edges
    /// of the earlier process that no longer exist, and returns their number. The origin is then
    /// reconciled.
    ///
    /// They end *at the restart*, not when the earlier process ended: the time of their removal is
    /// unknown, most elements still exist, and the time of a graph never goes back. For the time
    /// between, the history shows the last known state; [`Restored::gaps`] and [`Restored::ended`]
    /// give that time.
    pub fn end_missing(
        &mut self,
        graph: &mut Graph,
        origin: &str,
        nodes_there: &dyn Fn(&Node) -> bool,
        edges_there: &dyn Fn(&Edge) -> bool,
        now: i64,
    ) -> usize {
        let mut ended = 0;
        for id in self.edges.remove(origin).unwrap_or_default() {
            let found = current_edge(graph, &id).filter(|edge| &*edge.element.origin == origin);
            if found.is_some_and(|edge| !edges_there(&edge)) && graph.delete_edge(&id, now).is_ok()
            {
                ended += 1;
            }
        }
        for id in self.nodes.remove(origin).unwrap_or_default() {
            let found = current_node(graph, &id).filter(|node| &*node.origin == origin);
            if found.is_some_and(|node| !nodes_there(&node)) && graph.delete_node(&id, now).is_ok()
            {
                ended += 1;
            }
        }
        ended
    }

    /// Ends all nodes and edges of origins that are not reconciled: of components that no longer run.
    /// Called at the start, before discovery, it ends everything, for sources with new identifiers in
    /// each run.
    pub fn end_rest(&mut self, graph: &mut Graph, now: i64) -> usize {
        let origins: Vec<_> = self.origins().into_keys().collect();
        let ended = origins
            .iter()
            .map(|origin| self.end_missing(graph, origin, &|_| false, &|_| false, now));
        ended.sum()
    }

    fn gap(&mut self, from: i64, to: i64, cause: GapCause) {
        if self.gaps.len() < MOST_GAPS {
            self.gaps.push(HistoryGap { from, to, cause });
        }
    }
}

fn current_node(graph: &Graph, id: &str) -> Option<Arc<Node>> {
    let mut found = None;
    let _ = graph.node(id, graph.now(), &mut |node, _| {
        found = Some(node.clone());
        ControlFlow::Break(())
    });
    found
}

fn current_edge(graph: &Graph, id: &str) -> Option<Arc<Edge>> {
    let mut found = None;
    let lookup = skua_topology::Lookup::Id(id);
    let _ = graph.scan_edges(graph.now(), lookup, 0, 1, &mut |edge, _| {
        found = Some(edge.clone());
        ControlFlow::Break(())
    });
    found
}

/// Reads the history into `graph` and replaces its content. If the history exceeds the graph's limits,
/// only its end is read.
pub(crate) fn load(shared: &Shared, graph: &mut Graph) -> Result<Restored, StoreError> {
    let (parts, notes) = {
        let log = shared.graph();
        (log.parts(i64::MIN, i64::MAX), log.notes())
    };
    let start = first_needed(&parts, graph);
    let mut loaded = read(&parts[start..], &notes, graph);
    if loaded.1.is_none() && start > 0 {
        // The state at its beginning was not complete.
        loaded = read(&parts, &notes, graph);
    }
    let (mut restored, last) = loaded;
    restored.ended = last;
    if last.is_some() {
        let now = graph.export();
        for node in &now.nodes {
            let ids = restored.nodes.entry(node.origin.clone()).or_default();
            ids.push(node.id.clone());
        }
        for edge in &now.edges {
            let origin = edge.element.origin.clone();
            let ids = restored.edges.entry(origin).or_default();
            ids.push(edge.element.id.clone());
        }
    }
    Ok(restored)
}

/// Reads parts; none for the time when there was no state in them.
fn read(parts: &[LogPart], notes: &DamageNotes, graph: &mut Graph) -> (Restored, Option<i64>) {
    let mut loader = Loader {
        graph,
        restored: Restored::default(),
        state: None,
        gathered: None,
        broken: None,
        expected: None,
        last: i64::MIN,
    };
    let mut bytes = Vec::new();
    for part in parts {
        for placed in part.frames(&mut bytes, notes) {
            loader.frame(part, placed, &bytes, notes);
        }
    }
    let last = loader.state.is_some().then_some(loader.last);
    (loader.restored, last)
}

/// The first part of the last file with everything that the graph can keep.
fn first_needed(parts: &[LogPart], graph: &Graph) -> usize {
    let limits = graph.config().history;
    let newest = parts.iter().map(|part| part.group.to).max();
    let oldest = newest.map_or(i64::MIN, |newest| newest.saturating_sub(limits.max_age));
    let mut events = 0;
    let mut file_from = i64::MAX;
    for (at, part) in parts.iter().enumerate().rev() {
        events += part.group.count;
        file_from = file_from.min(part.group.from);
        let begins = at
            .checked_sub(1)
            .is_none_or(|before| parts[before].file() != part.file());
        if begins && (file_from <= oldest || events > limits.max_events as u64) {
            return at;
        }
    }
    0
}

/// The reader's position in the log.
struct Position {
    run: u64,
    seq: u64,
}

struct Loader<'a> {
    graph: &'a mut Graph,
    restored: Restored,
    /// None before the first state.
    state: Option<Position>,
    /// A state with parts still missing.
    gathered: Option<(PartHead, Export)>,
    /// Why events cannot be applied before the next state.
    broken: Option<GapCause>,
    /// Events written up to here, if known from frames.
    expected: Option<u64>,
    /// Latest time read.
    last: i64,
}

impl Loader<'_> {
    fn frame(&mut self, part: &LogPart, placed: FrameAt, bytes: &[u8], notes: &DamageNotes) {
        let header = placed.header;
        if self
            .expected
            .is_some_and(|expected| header.first != expected)
        {
            self.damaged();
        }
        self.expected = Some(header.first.saturating_add(header.count.into()));
        let Some(payload) = part.payload(bytes, placed, notes) else {
            return self.damaged();
        };
        let sound = match header.kind {
            Some(Kind::Checkpoint) => self.checkpoint(&payload),
            Some(Kind::Events) => {
                let read = events(&payload, &mut |event| self.event(event));
                read.is_ok()
            }
            Some(Kind::Gap) => {
                let lost = payload.get(..8).and_then(|lost| lost.try_into().ok());
                self.broken = lost.map(|lost| GapCause::Lost(u64::from_le_bytes(lost)));
                lost.is_some()
            }
            Some(Kind::Alive) if self.broken.is_none() && self.state.is_some() => {
                // Expire by the header's time: the clock continues, and old elements keep their
                // age.
                self.graph.expire(header.to);
                self.last = self.last.max(header.to);
                true
            }
            // Of a later program, or not of this log.
            _ => true,
        };
        if !sound {
            part.note(placed, notes);
            self.damaged();
        }
    }

    fn damaged(&mut self) {
        self.broken.get_or_insert(GapCause::Damage);
    }

    fn checkpoint(&mut self, payload: &[u8]) -> bool {
        let Some((head, rest)) = PartHead::read(payload) else {
            return false;
        };
        let here = self.state.as_ref();
        let is_known = here.is_some_and(|place| (place.run, place.seq) == (head.run, head.seq));
        if is_known && self.broken.is_none() {
            return true;
        }
        let Ok(part) = Part::read(rest) else {
            self.gathered = None;
            return false;
        };
        let next = match self.gathered.take() {
            Some((before, export))
                if (before.run, before.seq, before.part + 1) == (head.run, head.seq, head.part) =>
            {
                Some(export)
            }
            _ => (head.part == 0).then(Export::default),
        };
        let Some(mut export) = next else {
            // Its beginning was lost.
            return true;
        };
        export.nodes.extend(part.nodes);
        export.edges.extend(part.edges);
        if head.last {
            self.take_state(head, &export);
        } else {
            self.gathered = Some((head, export));
        }
        true
    }

    fn take_state(&mut self, head: PartHead, export: &Export) {
        let place = Position {
            run: head.run,
            seq: head.seq,
        };
        match &self.state {
            None => {
                let config = self.graph.config().clone();
                match Graph::restore(config, export, head.seq, head.time) {
                    Ok(graph) => *self.graph = graph,
                    Err(error) => {
                        tracing::warn!(%error, "a stored state of the graph cannot be used");
                        return;
                    }
                }
                self.restored.began = Some(head.time);
            }
            Some(before) => {
                let same_run = before.run == head.run;
                if let Err(error) = become_state(self.graph, export, head.time) {
                    tracing::warn!(%error, "a stored state of the graph cannot be used");
                    self.broken.get_or_insert(GapCause::Damage);
                    return;
                }
                let cause = match self.broken {
                    Some(cause) => cause,
                    None if same_run => GapCause::Damage,
                    None => GapCause::Restart,
                };
                self.restored.gap(self.last, head.time, cause);
            }
        }
        self.state = Some(place);
        self.broken = None;
        self.last = self.last.max(head.time);
    }

    fn event(&mut self, mut event: Event) {
        let (Some(place), None) = (&mut self.state, &self.broken) else {
            return;
        };
        if event.seq <= place.seq {
            return;
        }
        if event.seq != place.seq.saturating_add(1) {
            return self.damaged();
        }
        place.seq = event.seq;
        self.last = self.last.max(event.time);
        // Event numbers start again in each process.
        event.seq = self.graph.last_event() + 1;
        if self.graph.replay(&event).is_err() {
            return self.damaged();
        }
        self.restored.events += 1;
    }
}

/// Changes the graph at `time` so that it is as `state`.
fn become_state(graph: &mut Graph, state: &Export, time: i64) -> Result<(), GraphError> {
    let nodes: HashMap<&str, &Arc<Node>> =
        state.nodes.iter().map(|node| (&*node.id, node)).collect();
    let edges: HashMap<&str, &Arc<Edge>> = state
        .edges
        .iter()
        .map(|edge| (&*edge.element.id, edge))
        .collect();
    let same_node = |a: &Node, b: &Node| (&a.host, &a.origin) == (&b.host, &b.origin);
    let now = graph.export();
    for edge in &now.edges {
        let stays = edges.get(&*edge.element.id).is_some_and(|other| {
            (&edge.parent, &edge.child) == (&other.parent, &other.child)
                && same_node(&edge.element, &other.element)
        });
        if !stays {
            graph.delete_edge(&edge.element.id, time)?;
        }
    }
    for node in &now.nodes {
        let stays = nodes
            .get(&*node.id)
            .is_some_and(|other| same_node(node, other));
        if !stays {
            graph.delete_node(&node.id, time)?;
        }
    }
    for node in &state.nodes {
        match graph.update_node(&node.id, node.metadata.clone(), time) {
            Err(GraphError::NoNode(_)) => graph.add_node(Node::clone(node), time).map(drop)?,
            other => other.map(drop)?,
        }
    }
    for edge in &state.edges {
        match graph.update_edge(&edge.element.id, edge.element.metadata.clone(), time) {
            Err(GraphError::NoEdge(_)) => graph.add_edge(Edge::clone(edge), time).map(drop)?,
            other => other.map(drop)?,
        }
    }
    Ok(())
}
