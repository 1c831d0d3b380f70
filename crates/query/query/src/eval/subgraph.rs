//! A graph of chosen elements.

use super::Observed;
use crate::source::{GraphSource, SourceError, When};
use hashbrown::HashMap;
use skua_topology::{Direction, Edge, Element, IndexKey, Lookup, Node, Visit, Window};
use std::{ops::ControlFlow, sync::Arc};

/// Nodes and edges between them. Edges of which a node is missing are left out.
pub(crate) struct SubGraph {
    nodes: Vec<Observed<Node>>,
    edges: Vec<Observed<Edge>>,
    by_id: HashMap<Arc<str>, Vec<usize>>,
    /// Edges of a node; the flag: the edge is outgoing.
    adjacency: HashMap<Arc<str>, Vec<(usize, bool)>>,
}

impl SubGraph {
    pub fn new(nodes: Vec<Observed<Node>>, mut edges: Vec<Observed<Edge>>) -> Self {
        let mut by_id: HashMap<Arc<str>, Vec<usize>> = HashMap::new();
        for (at, seen) in nodes.iter().enumerate() {
            by_id.entry(seen.item.id.clone()).or_default().push(at);
        }
        edges.retain(|seen| {
            by_id.contains_key(&seen.item.parent) && by_id.contains_key(&seen.item.child)
        });
        let mut adjacency: HashMap<Arc<str>, Vec<(usize, bool)>> = HashMap::new();
        for (at, seen) in edges.iter().enumerate() {
            adjacency
                .entry(seen.item.parent.clone())
                .or_default()
                .push((at, true));
            adjacency
                .entry(seen.item.child.clone())
                .or_default()
                .push((at, false));
        }
        Self {
            nodes,
            edges,
            by_id,
            adjacency,
        }
    }

    fn of_node(
        &self,
        node: &str,
        direction: Direction,
        visit: &mut dyn FnMut(&Observed<Edge>, bool) -> ControlFlow<()>,
    ) {
        for (at, out) in self.adjacency.get(node).into_iter().flatten() {
            let edge = &self.edges[*at];
            let wanted = match direction {
                Direction::Out => *out,
                Direction::In => !*out,
                Direction::Both => *out || edge.item.parent != edge.item.child,
            };
            if wanted && visit(edge, *out).is_break() {
                break;
            }
        }
    }
}

fn visit_all<T: Element>(
    items: &[Observed<T>],
    window: Window,
    lookup: Lookup<'_>,
    visit: Visit<'_, T>,
) {
    let wanted = |item: &T| match lookup {
        Lookup::All => true,
        Lookup::Id(id) => *item.base().id == *id,
        Lookup::Key(key, value) => item.visit(key, &mut |found| {
            found.each(&mut |found| IndexKey::of(found).as_ref() == Some(value))
        }),
    };
    for seen in items.iter().filter(|seen| wanted(&seen.item)) {
        if let Some(part) = seen.window.overlap(window)
            && visit(&seen.item, part).is_break()
        {
            break;
        }
    }
}

impl GraphSource for SubGraph {
    fn window(&self, _: When) -> Result<Window, SourceError> {
        Err(SourceError(
            "a graph that SubGraph made has no history".to_owned(),
        ))
    }

    fn nodes(
        &self,
        window: Window,
        lookup: Lookup<'_>,
        visit: Visit<'_, Node>,
    ) -> Result<(), SourceError> {
        let Lookup::Id(id) = lookup else {
            visit_all(&self.nodes, window, lookup, visit);
            return Ok(());
        };
        for at in self.by_id.get(id).into_iter().flatten() {
            visit_all(
                std::slice::from_ref(&self.nodes[*at]),
                window,
                Lookup::All,
                visit,
            );
        }
        Ok(())
    }

    fn edges(
        &self,
        window: Window,
        lookup: Lookup<'_>,
        visit: Visit<'_, Edge>,
    ) -> Result<(), SourceError> {
        visit_all(&self.edges, window, lookup, visit);
        Ok(())
    }

    fn edges_of(
        &self,
        node: &str,
        window: Window,
        direction: Direction,
        _: Option<&str>,
        visit: Visit<'_, Edge>,
    ) -> Result<(), SourceError> {
        self.of_node(
            node,
            direction,
            &mut |edge, _| match edge.window.overlap(window) {
                Some(part) => visit(&edge.item, part),
                None => ControlFlow::Continue(()),
            },
        );
        Ok(())
    }

    fn neighbours(
        &self,
        node: &str,
        window: Window,
        direction: Direction,
        visit: Visit<'_, Node>,
    ) -> Result<(), SourceError> {
        self.of_node(node, direction, &mut |edge, out| {
            let Some(window) = edge.window.overlap(window) else {
                return ControlFlow::Continue(());
            };
            let other = if out {
                &edge.item.child
            } else {
                &edge.item.parent
            };
            for at in self.by_id.get(other).into_iter().flatten() {
                let seen = &self.nodes[*at];
                if let Some(part) = seen.window.overlap(window) {
                    visit(&seen.item, part)?;
                }
            }
            ControlFlow::Continue(())
        });
        Ok(())
    }

    fn estimate_nodes(&self, _: &str, _: &IndexKey) -> Option<usize> {
        None
    }

    fn estimate_edges(&self, _: &str, _: &IndexKey) -> Option<usize> {
        None
    }
}
