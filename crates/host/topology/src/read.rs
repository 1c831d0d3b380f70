//! Reading a graph through a window.

use crate::{
    Direction, Edge, Graph, GraphError, IndexKey, Node, Window, element::Element, table::Table,
    window::Span,
};
use std::{ops::ControlFlow, sync::Arc};

/// Which elements to read.
#[derive(Clone, Copy, Debug)]
pub enum Lookup<'a> {
    /// All.
    All,
    /// The element with this identifier.
    Id(&'a str),
    /// Elements with a value under a key that has an index.
    Key(&'a str, &'a IndexKey),
}

/// How a part of a scan ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scan {
    /// Nothing is left.
    Done,
    /// There may be more from here on.
    More(u32),
    /// The visitor has stopped.
    Stopped,
}

/// Visits a version and the part of the window in which it was the valid one.
pub type Visit<'a, T> = &'a mut dyn FnMut(&Arc<T>, Window) -> ControlFlow<()>;

/// Reads one kind of elements.
fn scan<T: Element>(
    table: &Table<T>,
    window: Window,
    lookup: Lookup<'_>,
    from: u32,
    most: usize,
    visit: Visit<'_, T>,
) -> Scan {
    let mut next = None;
    let mut left = most;
    let mut last = u32::MAX;
    // A slot may be visited several times; a part ends only between slots.
    let mut part = |slot: u32, item: &Arc<T>, part: Window| {
        if slot != last && left == 0 {
            next = Some(slot);
            return ControlFlow::Break(());
        }
        left = left.saturating_sub(1);
        last = slot;
        visit(item, part)
    };
    let end = match lookup {
        Lookup::All => (from..table.slots()).try_for_each(|slot| {
            table.versions(slot, window, &mut |item, seen| part(slot, item, seen))
        }),
        Lookup::Id(id) => match table.slot(id) {
            Some(slot) if slot >= from => {
                table.versions(slot, window, &mut |item, seen| part(slot, item, seen))
            }
            _ => ControlFlow::Continue(()),
        },
        Lookup::Key(key, value) => match table.index(key) {
            Some(index) => table.having(index, value, window, from, &mut part),
            None => ControlFlow::Continue(()),
        },
    };
    match (end, next) {
        (ControlFlow::Continue(()), _) => Scan::Done,
        (ControlFlow::Break(()), Some(next)) => Scan::More(next),
        (ControlFlow::Break(()), None) => Scan::Stopped,
    }
}

impl Graph {
    /// Visits nodes in the order in which they came (a freed place is used again). After about `most` of
    /// them it returns [`Scan::More`], so that the reader can unlock the graph between parts; the next part
    /// begins there.
    pub fn scan_nodes(
        &self,
        window: Window,
        lookup: Lookup<'_>,
        from: u32,
        most: usize,
        visit: Visit<'_, Node>,
    ) -> Result<Scan, GraphError> {
        self.check(window)?;
        Ok(scan(&self.nodes, window, lookup, from, most, visit))
    }

    /// Visits edges, as [`Graph::scan_nodes`].
    pub fn scan_edges(
        &self,
        window: Window,
        lookup: Lookup<'_>,
        from: u32,
        most: usize,
        visit: Visit<'_, Edge>,
    ) -> Result<Scan, GraphError> {
        self.check(window)?;
        Ok(scan(&self.edges, window, lookup, from, most, visit))
    }

    /// The versions of a node that `window` sees.
    pub fn node(
        &self,
        id: &str,
        window: Window,
        visit: Visit<'_, Node>,
    ) -> Result<ControlFlow<()>, GraphError> {
        self.check(window)?;
        Ok(match self.nodes.slot(id) {
            Some(slot) => self.nodes.versions(slot, window, visit),
            None => ControlFlow::Continue(()),
        })
    }

    /// The versions of the edges of a node that `window` sees. With `relation` only those that may
    /// have it: with very many relations some that do not come along.
    pub fn edges(
        &self,
        id: &str,
        window: Window,
        direction: Direction,
        relation: Option<&str>,
        visit: Visit<'_, Edge>,
    ) -> Result<ControlFlow<()>, GraphError> {
        self.check(window)?;
        Ok(match self.nodes.slot(id) {
            Some(slot) => self.edges_of(slot, window, direction, relation, visit),
            None => ControlFlow::Continue(()),
        })
    }

    /// The versions of the nodes at the other ends of a node's edges, once for each edge, as they
    /// were while the edge was there.
    pub fn neighbours(
        &self,
        id: &str,
        window: Window,
        direction: Direction,
        visit: Visit<'_, Node>,
    ) -> Result<ControlFlow<()>, GraphError> {
        self.check(window)?;
        let Some(slot) = self.nodes.slot(id) else {
            return Ok(ControlFlow::Continue(()));
        };
        let adjacency = &self.adjacency[slot as usize];
        Ok(
            adjacency.visit(window, direction, None, &mut |edge, out, span| {
                let Some((parent, child)) = self.ends_during(edge, window, span) else {
                    return ControlFlow::Continue(());
                };
                if direction == Direction::Both && !out && parent == child {
                    return ControlFlow::Continue(());
                }
                let other = if out { child } else { parent };
                self.nodes.versions(other, window.within(span), visit)
            }),
        )
    }

    /// At most how many elements [`Lookup::Key`] finds; none when the key has no index.
    pub fn estimate_nodes(&self, key: &str, value: &IndexKey) -> Option<usize> {
        Some(self.nodes.index(key)?.estimate(value))
    }

    /// As [`Graph::estimate_nodes`].
    pub fn estimate_edges(&self, key: &str, value: &IndexKey) -> Option<usize> {
        Some(self.edges.index(key)?.estimate(value))
    }

    /// At most how many edges a node has.
    pub fn degree(&self, id: &str, direction: Direction) -> usize {
        let slot = self.nodes.slot(id);
        slot.map_or(0, |slot| self.adjacency[slot as usize].len(direction))
    }

    pub(crate) fn edges_of(
        &self,
        slot: u32,
        window: Window,
        direction: Direction,
        relation: Option<&str>,
        visit: Visit<'_, Edge>,
    ) -> ControlFlow<()> {
        let relation = relation.map(|name| self.relations.find(name));
        let adjacency = &self.adjacency[slot as usize];
        adjacency.visit(window, direction, relation, &mut |edge, out, span| {
            self.edges
                .versions(edge, window.within(span), &mut |edge, part| {
                    if direction == Direction::Both && !out && edge.parent == edge.child {
                        return ControlFlow::Continue(());
                    }
                    visit(edge, part)
                })
        })
    }

    /// Slots of the nodes that an edge had in `span`.
    fn ends_during(&self, edge: u32, window: Window, span: Span) -> Option<(u32, u32)> {
        let mut ends = None;
        let _ = self
            .edges
            .versions(edge, window.within(span), &mut |edge, _| {
                ends = self
                    .nodes
                    .slot(&edge.parent)
                    .zip(self.nodes.slot(&edge.child));
                ControlFlow::Break(())
            });
        ends
    }

    fn check(&self, window: Window) -> Result<(), GraphError> {
        if self.remembers(window) {
            Ok(())
        } else {
            Err(GraphError::Forgotten)
        }
    }
}
