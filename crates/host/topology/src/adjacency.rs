//! Which edges a node has and had, by relation.

use crate::{
    postings::Postings,
    window::{Span, Window},
};
use hashbrown::HashMap;
use std::{ops::ControlFlow, sync::Arc};

/// Which edges of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// Those to its children.
    Out,
    /// Those from its parents.
    In,
    /// All; an edge from a node to itself once.
    Both,
}

/// A relation by number.
pub(crate) type Relation = u16;

/// Relations by name.
#[derive(Default)]
pub(crate) struct Relations(HashMap<Arc<str>, Relation>);

impl Relations {
    /// All that come when there are too many.
    const OTHER: Relation = Relation::MAX;
    const MOST: usize = 1_024;

    pub fn intern(&mut self, name: &str) -> Relation {
        if let Some(known) = self.0.get(name) {
            return *known;
        }
        if self.0.len() >= Self::MOST {
            return Self::OTHER;
        }
        let number = self.0.len() as Relation;
        self.0.insert(name.into(), number);
        number
    }

    /// Of an unknown one, those that it may be among.
    pub fn find(&self, name: &str) -> Relation {
        self.0.get(name).copied().unwrap_or(Self::OTHER)
    }
}

/// Edges of a node: one list for each relation and direction, for most nodes have many of one kind
/// or one of each.
#[derive(Default)]
pub(crate) struct Adjacency(Vec<(Relation, bool, Postings)>);

impl Adjacency {
    fn list(&mut self, relation: Relation, out: bool) -> &mut Postings {
        let known = self
            .0
            .iter()
            .position(|(r, o, _)| (*r, *o) == (relation, out));
        let at = known.unwrap_or_else(|| {
            self.0.push((relation, out, Postings::default()));
            self.0.len() - 1
        });
        &mut self.0[at].2
    }

    pub fn open(&mut self, relation: Relation, out: bool, edge: u32, seq: u64) {
        self.list(relation, out).open(edge, seq);
    }

    pub fn close(&mut self, relation: Relation, out: bool, edge: u32, seq: u64) {
        self.list(relation, out).close(edge, seq);
    }

    pub fn forget(&mut self, relation: Relation, out: bool, floor: u64) {
        self.list(relation, out).forget(floor);
        self.0.retain(|(_, _, postings)| !postings.is_empty());
    }

    /// Edges in `window` with the spans in which they had one relation; with `relation` only those that may
    /// have it. The flag says whether the edge is outgoing.
    pub fn visit(
        &self,
        window: Window,
        direction: Direction,
        relation: Option<Relation>,
        visit: &mut dyn FnMut(u32, bool, Span) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        for (kind, out, postings) in &self.0 {
            let wanted = match direction {
                Direction::Out => *out,
                Direction::In => !*out,
                Direction::Both => true,
            };
            if wanted && relation.is_none_or(|relation| relation == *kind) {
                postings.visit(window, 0, &mut |edge, span| visit(edge, *out, span))?;
            }
        }
        ControlFlow::Continue(())
    }

    /// At most how many edges a window has.
    pub fn len(&self, direction: Direction) -> usize {
        let lists = self.0.iter().filter(|(_, out, _)| match direction {
            Direction::Out => *out,
            Direction::In => !*out,
            Direction::Both => true,
        });
        lists.map(|(_, _, postings)| postings.len()).sum()
    }
}
