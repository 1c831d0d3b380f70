//! Execution plans: scans that do as much as possible in one pass, then single steps.

use crate::{
    check::{Action, Checked, Kind, Order},
    error::Span,
    filter::{Filter, Literal, Term, Test},
    source::{FlowSource, GraphSource, Sources},
};
use skua_topology::IndexKey;
use std::{
    fmt::{self, Display, Formatter},
    sync::Arc,
};

/// What a scan does with what passes, in this order.
#[derive(Clone, Debug, Default)]
pub struct Shape {
    /// Removes duplicates.
    pub dedup: Option<Vec<Arc<str>>>,
    /// Sorts.
    pub sort: Option<(Order, Option<Arc<str>>)>,
    /// From one position up to before another.
    pub range: Option<(usize, usize)>,
    /// Only counts.
    pub count: bool,
}

/// How a scan finds its candidates.
#[derive(Clone, Debug, PartialEq)]
pub enum Access {
    /// All there is.
    All,
    /// One element.
    Id(Arc<str>),
    /// By an index: keys and values, each with each. `estimate` is at most how many there are.
    Index {
        /// The keys.
        keys: Vec<Arc<str>>,
        /// The values.
        values: Vec<IndexKey>,
        /// At most how many.
        estimate: usize,
    },
}

/// A part of a plan.
#[derive(Clone, Debug)]
pub enum Op {
    /// Scans nodes, edges or flows of the graph.
    Scan(Scan),
    /// A single step.
    Single(Checked),
}

/// A scan.
#[derive(Clone, Debug)]
pub struct Scan {
    /// The kind of elements.
    pub kind: Kind,
    /// Where to begin.
    pub access: Access,
    /// What must pass.
    pub filters: Vec<Filter>,
    /// The shape of the result.
    pub shape: Shape,
    /// Only flows captured on the nodes of the step before.
    pub of_nodes: bool,
    /// Its step.
    pub span: Span,
}

/// A plan. Its [`Display`] is what `explain` shows.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// The parts in order.
    pub ops: Vec<Op>,
}

/// Makes a plan of a checked query.
pub fn plan(steps: &[Checked], sources: &Sources<'_>) -> Plan {
    let mut ops = Vec::new();
    let mut steps = steps.iter().peekable();
    // The graph of SubGraph has no indexes.
    let mut own_graph = true;
    while let Some(step) = steps.next() {
        let first = match &step.action {
            Action::V(id) => Some((Kind::Nodes, id.clone(), Filter::default())),
            Action::E(id) => Some((Kind::Edges, id.clone(), Filter::default())),
            Action::Flows(filter) if matches!(step.input, Kind::Graph | Kind::Nodes) => {
                Some((Kind::Flows, None, filter.clone()))
            }
            _ => None,
        };
        let Some((kind, id, filter)) = first else {
            match &step.action {
                Action::SubGraph(_) => own_graph = false,
                Action::Graph => own_graph = true,
                _ => {}
            }
            ops.push(Op::Single(step.clone()));
            continue;
        };
        let mut filters = vec![filter];
        filters.retain(|filter| !filter.terms.is_empty());
        while let Some(Checked {
            action: Action::Keep(filter),
            ..
        }) = steps.next_if(|next| matches!(next.action, Action::Keep(_)))
        {
            filters.push(filter.clone());
        }
        let mut shape = Shape::default();
        while let Some(next) = steps.next_if(|next| shape.takes(&next.action)) {
            shape.apply(&next.action);
        }
        let access = match id {
            Some(id) => Access::Id(id),
            None if own_graph || kind == Kind::Flows => best_access(kind, &filters, sources),
            None => Access::All,
        };
        ops.push(Op::Scan(Scan {
            kind,
            access,
            filters,
            shape,
            of_nodes: step.input == Kind::Nodes,
            span: step.span,
        }));
    }
    Plan { ops }
}

impl Plan {
    /// Whether a step reads or yields this kind.
    pub fn touches(&self, kind: Kind) -> bool {
        self.ops.iter().any(|op| match op {
            Op::Scan(scan) => scan.kind == kind,
            Op::Single(step) => step.input == kind || step.output == kind,
        })
    }
}

impl Shape {
    /// Whether the next step can be done at once; each only after those before it in order.
    fn takes(&self, action: &Action) -> bool {
        let ended = self.range.is_some() || self.count;
        match action {
            Action::Dedup(_) => self.dedup.is_none() && self.sort.is_none() && !ended,
            Action::Sort(..) => self.sort.is_none() && !ended,
            Action::Range(..) => !ended,
            Action::Count => !self.count,
            _ => false,
        }
    }

    fn apply(&mut self, action: &Action) {
        match action {
            Action::Dedup(keys) => self.dedup = Some(keys.clone()),
            Action::Sort(order, key) => self.sort = Some((*order, key.clone())),
            Action::Range(from, to) => self.range = Some((*from, *to)),
            Action::Count => self.count = true,
            _ => {}
        }
    }
}

fn estimate(kind: Kind, key: &str, value: &IndexKey, sources: &Sources<'_>) -> Option<usize> {
    let graph: &dyn GraphSource = sources.graph;
    match kind {
        Kind::Nodes => graph.estimate_nodes(key, value),
        Kind::Edges => graph.estimate_edges(key, value),
        _ => sources
            .flows
            .and_then(|flows: &dyn FlowSource| flows.estimate(key, value)),
    }
}

/// Most values that are looked up one after the other.
const MAX_LOOKUPS: usize = 64;

/// Keys one of which must have one of some values for the filter to match.
fn candidates(filter: &Filter) -> Vec<(&[Arc<str>], Vec<&Literal>)> {
    fn of_term(term: &Term) -> Option<Vec<&Literal>> {
        match &term.test {
            Test::Equal(literal) => Some(vec![literal]),
            Test::Within(literals) if literals.len() <= MAX_LOOKUPS => {
                Some(literals.iter().collect())
            }
            _ => None,
        }
    }
    if !filter.any {
        let terms = filter.terms.iter();
        return terms
            .filter_map(|term| Some((term.keys(), of_term(term)?)))
            .collect();
    }
    // Either of several is as one of several values, when all are under the same key.
    let Some(first) = filter.terms.first() else {
        return Vec::new();
    };
    let same = filter.terms.iter().all(|term| term.key == first.key);
    let all: Option<Vec<Vec<&Literal>>> = filter.terms.iter().map(of_term).collect();
    match all.map(|all| all.concat()) {
        Some(all) if same && all.len() <= MAX_LOOKUPS => vec![(first.keys(), all)],
        _ => Vec::new(),
    }
}

/// The term with an index that leaves the fewest candidates.
fn best_access(kind: Kind, filters: &[Filter], sources: &Sources<'_>) -> Access {
    let mut best = Access::All;
    let mut least = usize::MAX;
    for (keys, literals) in filters.iter().flat_map(candidates) {
        let mut values: Vec<IndexKey> = Vec::with_capacity(literals.len());
        for literal in literals {
            if !values.contains(&literal.key) {
                values.push(literal.key.clone());
            }
        }
        let pairs = keys
            .iter()
            .flat_map(|key| values.iter().map(move |value| (key, value)));
        let sum = pairs
            .map(|(key, value)| estimate(kind, key, value, sources))
            .sum();
        if let Some(sum) = sum
            && sum < least
        {
            least = sum;
            best = Access::Index {
                keys: keys.to_vec(),
                values,
                estimate: sum,
            };
        }
    }
    best
}

impl Display for Plan {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (at, op) in self.ops.iter().enumerate() {
            write!(f, "{}. ", at + 1)?;
            match op {
                Op::Scan(scan) => scan.fmt(f)?,
                Op::Single(step) => single(step, f)?,
            }
            f.write_str("\n")?;
        }
        Ok(())
    }
}

fn single(step: &Checked, f: &mut Formatter<'_>) -> fmt::Result {
    let what = match step.name {
        crate::syntax::StepName::Has
        | crate::syntax::StepName::HasEither
        | crate::syntax::StepName::HasKey
        | crate::syntax::StepName::HasNot => "filter",
        _ => step.name.name(),
    };
    write!(f, "{what}: {} to {}", step.input.name(), step.output.name())?;
    let filter = match &step.action {
        Action::Keep(filter)
        | Action::Step(_, filter)
        | Action::StepEdges(_, filter)
        | Action::Ends(_, filter)
        | Action::SubGraph(filter)
        | Action::FlowNodes(_, filter)
        | Action::Walk(_, filter, _)
        | Action::Path(filter, _) => filter,
        _ => return Ok(()),
    };
    if filter.terms.is_empty() {
        return Ok(());
    }
    write!(f, ", {filter}")?;
    let by_relation = matches!(step.action, Action::StepEdges(..) | Action::Walk(..))
        && filter.fixed(skua_topology::Edge::RELATION).is_some();
    f.write_str(if by_relation {
        ", by the index of relations"
    } else {
        ""
    })
}

impl Display for Scan {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let kind = self.kind.name();
        match &self.access {
            Access::All => write!(f, "all {kind}")?,
            Access::Id(id) => write!(f, "{kind} by ID {id:?}")?,
            Access::Index {
                keys,
                values,
                estimate,
            } => {
                let values = if values.len() == 1 {
                    "one value"
                } else {
                    "several values"
                };
                write!(
                    f,
                    "{kind} by index {} with {values}, at most {estimate}",
                    keys.join(" and ")
                )?;
            }
        }
        if self.of_nodes {
            f.write_str(", captured on the nodes")?;
        }
        for (at, filter) in self.filters.iter().enumerate() {
            write!(f, "{}{filter}", if at == 0 { "; filter " } else { " and " })?;
        }
        if let Some(keys) = &self.shape.dedup {
            let by = if keys.is_empty() {
                "identity".to_owned()
            } else {
                keys.join(", ")
            };
            write!(f, "; dedup by {by}")?;
        }
        if let Some((order, key)) = &self.shape.sort {
            let order = if *order == Order::Ascending {
                "ascending"
            } else {
                "descending"
            };
            write!(f, "; sort {order} by {}", key.as_deref().unwrap_or("time"))?;
        }
        if let Some((from, to)) = self.shape.range {
            write!(f, "; positions {from} to {to}")?;
            if self.shape.sort.is_none() {
                f.write_str(", no more are read")?;
            }
        }
        f.write_str(if self.shape.count { "; count" } else { "" })
    }
}
