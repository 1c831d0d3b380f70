//! Scans of nodes, edges or flows, with as much work in one pass as possible.

use super::{Done, Observed, Run, Stage, unavailable};
use crate::{
    check::{Kind, Order},
    filter::Filter,
    plan::{Access, Scan, Shape},
    record::{FlowRecord, Leaf, Record, SharedTexts},
    source::FlowLookup,
};
use hashbrown::HashSet;
use skua_topology::{Edge, IndexKey, Lookup, Node, Value, Visit, Window};
use std::{cmp, collections::BinaryHeap, ops::ControlFlow, sync::Arc};

/// Values to sort by: missing ones come last in any order.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct SortKey {
    value: Option<Value>,
    order: Order,
}

impl SortKey {
    pub fn new(value: Option<Value>, order: Order) -> Self {
        let value = value.filter(|value| !matches!(value, Value::Null));
        Self { value, order }
    }
}

impl Eq for SortKey {}

impl PartialOrd for SortKey {
    fn partial_cmp(&self, other: &Self) -> Option<cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for SortKey {
    fn cmp(&self, other: &Self) -> cmp::Ordering {
        match (&self.value, &other.value) {
            (None, None) => cmp::Ordering::Equal,
            (None, Some(_)) => cmp::Ordering::Greater,
            (Some(_), None) => cmp::Ordering::Less,
            (Some(a), Some(b)) if self.order == Order::Ascending => compare(a, b),
            (Some(a), Some(b)) => compare(b, a),
        }
    }
}

/// A total order: truth, numbers, texts, lists, maps.
fn compare(a: &Value, b: &Value) -> cmp::Ordering {
    fn rank(value: &Value) -> u8 {
        match value {
            Value::Null => 0,
            Value::Bool(_) => 1,
            Value::Int(_) | Value::Float(_) => 2,
            Value::Str(_) => 3,
            Value::List(_) => 4,
            Value::Map(_) => 5,
        }
    }
    match (a, b) {
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::Int(a), Value::Int(b)) => a.cmp(b),
        (Value::Str(a), Value::Str(b)) => a.cmp(b),
        (Value::List(a), Value::List(b)) => {
            let different = a.iter().zip(b.iter()).map(|(a, b)| compare(a, b));
            different
                .into_iter()
                .find(|order| order.is_ne())
                .unwrap_or(a.len().cmp(&b.len()))
        }
        _ => match (a.as_f64(), b.as_f64()) {
            (Some(a), Some(b)) => a.total_cmp(&b),
            _ => rank(a).cmp(&rank(b)),
        },
    }
}

/// The text by which values are distinguished.
pub(crate) fn identity(value: &Value) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// What `Dedup` distinguishes records by: the values of the keys, none when it has none of them.
pub(crate) fn dedup_key(record: &dyn Record, keys: &[Arc<str>]) -> Option<String> {
    let mut found = false;
    let mut identities = String::new();
    for key in keys {
        match record.get(key) {
            Some(value) => {
                found = true;
                identities.push_str(&identity(&value));
            }
            None => identities.push('-'),
        }
        identities.push('\n');
    }
    found.then_some(identities)
}

/// Filters, sorts and shapes the records of a scan.
struct Shaper<'a, T> {
    shape: &'a Shape,
    default_sort: &'static str,
    seen: HashSet<String>,
    items: Vec<T>,
    /// The best so far, if only the first of a sorted list are needed.
    heap: BinaryHeap<(SortKey, u64, Ranked<T>)>,
    keyed: Vec<(SortKey, T)>,
    count: usize,
    number: u64,
}

/// Excluded from comparisons.
struct Ranked<T>(T);

impl<T> PartialEq for Ranked<T> {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl<T> Eq for Ranked<T> {}

impl<T> PartialOrd for Ranked<T> {
    fn partial_cmp(&self, other: &Self) -> Option<cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Ranked<T> {
    fn cmp(&self, _: &Self) -> cmp::Ordering {
        cmp::Ordering::Equal
    }
}

impl<'a, T> Shaper<'a, T> {
    fn new(shape: &'a Shape, default_sort: &'static str) -> Self {
        Self {
            shape,
            default_sort,
            seen: HashSet::new(),
            items: Vec::new(),
            heap: BinaryHeap::new(),
            keyed: Vec::new(),
            count: 0,
            number: 0,
        }
    }

    /// Number of records in memory.
    fn kept(&self) -> usize {
        self.items.len() + self.heap.len() + self.keyed.len()
    }

    /// Number of entries in memory, keys of duplicates included.
    fn held(&self) -> usize {
        self.kept() + self.seen.len()
    }

    /// Adds a record; `id` identifies it without keys. Breaks when no more are needed.
    fn push(
        &mut self,
        record: &dyn Record,
        id: impl FnOnce() -> Option<String>,
        keep: impl FnOnce() -> T,
    ) -> ControlFlow<()> {
        if let Some(keys) = &self.shape.dedup {
            let identity = if keys.is_empty() {
                id()
            } else {
                dedup_key(record, keys)
            };
            if identity.is_some_and(|identity| !self.seen.insert(identity)) {
                return ControlFlow::Continue(());
            }
        }
        let (from, to) = self.shape.range.unwrap_or((0, usize::MAX));
        if let (Some((order, key)), false) = (&self.shape.sort, self.shape.count) {
            let key = key.as_deref().unwrap_or(self.default_sort);
            let key = SortKey::new(record.get(key), *order);
            if self.shape.range.is_none() {
                self.keyed.push((key, keep()));
                return ControlFlow::Continue(());
            }
            self.number += 1;
            let worse = |(worst, ..): &(SortKey, u64, Ranked<T>)| *worst <= key;
            if self.heap.len() >= to && self.heap.peek().is_none_or(worse) {
                return ControlFlow::Continue(());
            }
            self.heap.push((key, self.number, Ranked(keep())));
            if self.heap.len() > to {
                self.heap.pop();
            }
            return ControlFlow::Continue(());
        }
        self.count += 1;
        if self.count > from && self.count <= to && !self.shape.count {
            self.items.push(keep());
        }
        if self.count >= to {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }

    fn finish(self, stage: impl FnOnce(Vec<T>) -> Stage) -> Stage {
        let (from, to) = self.shape.range.unwrap_or((0, usize::MAX));
        if self.shape.count {
            let count = self.count.min(to).saturating_sub(from);
            return Stage::Value(Value::Int(count as i64));
        }
        let mut keyed = self.keyed;
        if !keyed.is_empty() {
            keyed.sort_by(|(a, _), (b, _)| a.cmp(b));
            return stage(keyed.into_iter().map(|(_, item)| item).collect());
        }
        if !self.heap.is_empty() {
            let sorted = self.heap.into_sorted_vec().into_iter().skip(from);
            return stage(sorted.map(|(_, _, Ranked(item))| item).collect());
        }
        stage(self.items)
    }
}

/// Whether an earlier value of an index finds the record too.
fn found_before(record: &dyn Record, before: &[(&Arc<str>, &IndexKey)]) -> bool {
    let equals =
        |leaf: Leaf<'_>, value: &IndexKey| IndexKey::of(&leaf.to_value()).as_ref() == Some(value);
    before
        .iter()
        .any(|(key, value)| record.leaves(key, &mut |leaf| equals(leaf, value)))
}

fn pairs<'a>(keys: &'a [Arc<str>], values: &'a [IndexKey]) -> Vec<(&'a Arc<str>, &'a IndexKey)> {
    keys.iter()
        .flat_map(|key| values.iter().map(move |value| (key, value)))
        .collect()
}

fn passes(filters: &[Filter], record: &dyn Record) -> bool {
    filters.iter().all(|filter| filter.holds(record))
}

type Source<'a, T> = &'a dyn Fn(Window, Lookup<'_>, Visit<'_, T>) -> Done<()>;

impl Run<'_> {
    pub fn scan(&self, scan: &Scan, stage: Stage) -> Done<Stage> {
        match (scan.kind, stage) {
            (Kind::Nodes, _) => {
                let source: Source<'_, Node> =
                    &|window, lookup, visit| Ok(self.graph().nodes(window, lookup, visit)?);
                let id = |node: &Arc<Node>| Some(node.id.to_string());
                self.scan_elements(scan, source, id, Stage::Nodes)
            }
            (Kind::Edges, _) => {
                let source: Source<'_, Edge> =
                    &|window, lookup, visit| Ok(self.graph().edges(window, lookup, visit)?);
                let id = |edge: &Arc<Edge>| Some(edge.element.id.to_string());
                self.scan_elements(scan, source, id, Stage::Edges)
            }
            (_, Stage::Nodes(nodes)) => {
                let tids = tids(nodes.iter());
                self.scan_flows(scan, Some(&tids))
            }
            (_, _) => self.scan_flows(scan, None),
        }
    }

    fn scan_elements<T: Record>(
        &self,
        scan: &Scan,
        source: Source<'_, T>,
        id: fn(&Arc<T>) -> Option<String>,
        stage: fn(Vec<Observed<T>>) -> Stage,
    ) -> Done<Stage> {
        let mut shaper = Shaper::new(&scan.shape, "@CreatedAt");
        let none = scan.shape.range.is_some_and(|(from, to)| from >= to);
        let mut take = |item: &Arc<T>, window: Window, before: &[(&Arc<str>, &IndexKey)]| {
            self.budget.hold(shaper.held())?;
            if !passes(&scan.filters, &**item) || found_before(&**item, before) {
                return ControlFlow::Continue(());
            }
            shaper.push(
                &**item,
                || id(item),
                || Observed {
                    item: item.clone(),
                    window,
                },
            )
        };
        match &scan.access {
            _ if none => {}
            Access::All => source(self.window()?, Lookup::All, &mut |item, window| {
                take(item, window, &[])
            })?,
            Access::Id(wanted) => {
                let mut found = false;
                source(self.window()?, Lookup::Id(wanted), &mut |item, window| {
                    found = true;
                    take(item, window, &[])
                })?;
                if !found {
                    let what = if scan.kind == Kind::Nodes {
                        "node"
                    } else {
                        "edge"
                    };
                    return Err(unavailable(&format!("there is no {what} {wanted:?}")));
                }
            }
            Access::Index { keys, values, .. } => {
                let pairs = pairs(keys, values);
                for (at, (key, value)) in pairs.iter().enumerate() {
                    let mut ended = false;
                    source(
                        self.window()?,
                        Lookup::Key(key, value),
                        &mut |item, window| {
                            let flow = take(item, window, &pairs[..at]);
                            ended = flow.is_break();
                            flow
                        },
                    )?;
                    if ended {
                        break;
                    }
                }
            }
        }
        Ok(shaper.finish(stage))
    }

    pub fn scan_flows(&self, scan: &Scan, nodes: Option<&HashSet<Arc<str>>>) -> Done<Stage> {
        let Some(source) = self.sources.flows else {
            return Err(unavailable("there is no store of flows here"));
        };
        let mut shaper = Shaper::new(&scan.shape, "Last");
        let none = scan.shape.range.is_some_and(|(from, to)| from >= to)
            || nodes.is_some_and(HashSet::is_empty);
        let mut texts = SharedTexts::default();
        let mut take = |flow: &dyn FlowRecord, before: &[(&Arc<str>, &IndexKey)]| {
            self.budget.hold(shaper.held())?;
            // All are of about the same size.
            let bytes = shaper.kept() * flow.bytes();
            self.budget.hold_bytes(bytes + texts.bytes())?;
            let captured = nodes.is_none_or(|nodes| {
                flow.leaves("NodeTID", &mut |tid| {
                    tid.text().is_some_and(|tid| nodes.contains(&*tid))
                })
            });
            if !captured || !passes(&scan.filters, flow) || found_before(flow, before) {
                return ControlFlow::Continue(());
            }
            let id = || {
                let tracking = flow.get("TrackingID").or_else(|| flow.get("UUID"));
                tracking.as_ref().map(identity)
            };
            shaper.push(flow, id, || flow.keep(&mut texts))
        };
        // The lookup by nodes may leave fewer flows than the one by the flows' own fields.
        let tid: Arc<str> = "NodeTID".into();
        let by_node = nodes
            .filter(|nodes| nodes.len() <= 1_000)
            .and_then(|nodes| {
                let mut values: Vec<IndexKey> = nodes
                    .iter()
                    .filter_map(|tid| IndexKey::of(&Value::Str(tid.clone())))
                    .collect();
                values.sort();
                let sum: Option<usize> = values
                    .iter()
                    .map(|value| source.estimate(&tid, value))
                    .sum();
                Some((values, sum?))
            });
        let keys_of_nodes = [tid];
        let lookups = match (&scan.access, &by_node) {
            _ if none => Some(Vec::new()),
            (Access::Index { estimate, .. }, Some((values, sum))) if sum < estimate => {
                Some(pairs(&keys_of_nodes, values))
            }
            (Access::Index { keys, values, .. }, _) => Some(pairs(keys, values)),
            (_, Some((values, _))) => Some(pairs(&keys_of_nodes, values)),
            _ => None,
        };
        let Some(lookups) = lookups else {
            source.flows(FlowLookup::All, self.flow_time, &mut |flow| take(flow, &[]))?;
            return Ok(shaper.finish(Stage::Flows));
        };
        // A flow has one node: only lookups by other keys can find it twice.
        let once = lookups
            .first()
            .is_some_and(|(key, _)| ***key == *keys_of_nodes[0]);
        for (at, (key, value)) in lookups.iter().enumerate() {
            let before = if once { &[][..] } else { &lookups[..at] };
            let mut ended = false;
            source.flows(FlowLookup::Key(key, value), self.flow_time, &mut |flow| {
                let next = take(flow, before);
                ended = next.is_break();
                next
            })?;
            if ended {
                break;
            }
        }
        Ok(shaper.finish(Stage::Flows))
    }
}

/// Identifiers of capture nodes in flows.
pub(crate) fn tids<'a>(nodes: impl Iterator<Item = &'a Observed<Node>>) -> HashSet<Arc<str>> {
    let tid = |seen: &Observed<Node>| match seen.item.metadata.get("TID") {
        Some(Value::Str(tid)) => Some(tid.clone()),
        _ => None,
    };
    nodes.filter_map(tid).collect()
}

/// Sorts by a key, those that lack it last.
pub(crate) fn sort<T>(items: &mut [T], order: Order, key: impl Fn(&T) -> Option<Value>) {
    items.sort_by_cached_key(|item| SortKey::new(key(item), order));
}
