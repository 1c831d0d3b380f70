//! Steps that work on anything with keys.

use super::{
    Done, Run, Stage,
    scan::{dedup_key, identity, sort},
};
use crate::{
    check::Action,
    error::{Class, QueryError},
    record::{Leaf, Record},
};
use hashbrown::{HashMap, HashSet};
use skua_topology::{Map, Value};
use std::{ops::ControlFlow, sync::Arc};

/// Accessors of a list's elements.
pub(super) struct View<T> {
    pub record: fn(&T) -> &dyn Record,
    /// The value that `Dedup` uses without keys.
    pub id: fn(&T) -> Option<String>,
    /// The key that `Sort` uses by default.
    pub sort_by: &'static str,
    pub stage: fn(Vec<T>) -> Stage,
}

impl Run<'_> {
    /// Executes a step that works on any list of records; other steps are returned.
    pub(super) fn on_records<T>(
        &self,
        action: &Action,
        mut items: Vec<T>,
        view: &View<T>,
    ) -> Done<Result<Stage, Vec<T>>> {
        let record = view.record;
        let keep = match action {
            Action::Keep(filter) => {
                items
                    .retain(|item| self.budget.spend().is_continue() && filter.holds(record(item)));
                (view.stage)(items)
            }
            Action::Dedup(keys) => {
                let mut seen = HashSet::new();
                items.retain(|item| {
                    let identity = match keys[..] {
                        [] => (view.id)(item),
                        _ => dedup_key(record(item), keys),
                    };
                    self.budget.spend().is_continue()
                        && identity.is_none_or(|identity| seen.insert(identity))
                });
                (view.stage)(items)
            }
            Action::Range(from, to) => (view.stage)(range(items, *from, *to)),
            Action::Sort(order, key) => {
                let key = key.as_deref().unwrap_or(view.sort_by);
                sort(&mut items, *order, |item| record(item).get(key));
                (view.stage)(items)
            }
            Action::Count => Stage::Value(Value::Int(items.len() as i64)),
            Action::Values(key) => {
                let values = items.iter().filter_map(|item| self.get(record(item), key));
                Stage::Values(values.filter(|value| !is_empty(value)).collect())
            }
            Action::ValueMap(keys) => {
                let maps = items.iter().filter_map(|item| {
                    let values = keys.iter();
                    let found: Vec<_> = values
                        .filter_map(|key| Some((key.clone(), self.get(record(item), key)?)))
                        .collect();
                    (!found.is_empty()).then(|| Value::Map(Map::new(found)))
                });
                Stage::Values(maps.collect())
            }
            Action::Keys => {
                let mut seen: HashSet<String> = HashSet::new();
                let mut keys = Vec::new();
                for item in &items {
                    record(item).keys(&mut |key| {
                        if !seen.contains(key) && self.budget.hold(keys.len()).is_continue() {
                            seen.insert(key.to_owned());
                            keys.push(Value::from(key));
                        }
                    });
                }
                Stage::Values(keys)
            }
            Action::Sum(Some(key)) if is_traffic(key) => {
                let records = items.iter().map(record);
                Stage::Value(sum_of_conversations(records, key).value(key)?)
            }
            Action::Sum(Some(key)) => {
                let mut sum = Sum::default();
                for item in &items {
                    record(item).leaves(key, &mut |leaf| sum.add(leaf).is_break());
                }
                Stage::Value(sum.value(key)?)
            }
            _ => return Ok(Err(items)),
        };
        Ok(Ok(keep))
    }

    fn get(&self, record: &dyn Record, key: &str) -> Option<Value> {
        match self.budget.spend() {
            ControlFlow::Continue(()) => record.get(key),
            ControlFlow::Break(()) => None,
        }
    }

    pub(super) fn on_values(&self, action: &Action, values: Vec<Value>) -> Done<Stage> {
        if let Action::Sum(None) = action {
            let mut sum = Sum::default();
            for value in &values {
                value.each(&mut |value| {
                    Leaf::of(value).is_some_and(|leaf| sum.add(leaf).is_break())
                });
            }
            return Ok(Stage::Value(sum.value("")?));
        }
        if let Action::Sort(order, None) = action {
            let mut values = values;
            sort(&mut values, *order, |value| Some(value.clone()));
            return Ok(Stage::Values(values));
        }
        let view = View {
            record: |value: &Value| value,
            id: |value| Some(identity(value)),
            sort_by: "",
            stage: Stage::Values,
        };
        self.on_records(action, values, &view)?
            .map_err(|_| Self::misfit())
    }
}

/// Whether a key counts packets or bytes of flows.
fn is_traffic(key: &str) -> bool {
    let counter = key.strip_prefix("LastUpdate").unwrap_or(key);
    let counters = [
        "Metric.ABPackets",
        "Metric.ABBytes",
        "Metric.BAPackets",
        "Metric.BABytes",
    ];
    counters.contains(&counter)
}

/// The sum over flows, a conversation counted once: at each point it passes the same packets go by, so that of its points
/// the one with the most counts. What belongs to no conversation counts by itself.
fn sum_of_conversations<'a>(records: impl Iterator<Item = &'a dyn Record>, key: &str) -> Sum {
    let mut rest = Sum::default();
    let mut conversations: HashMap<String, HashMap<String, i128>> = HashMap::new();
    for record in records {
        let Some(id) = dedup_key(record, &["TrackingID".into()]) else {
            record.leaves(key, &mut |leaf| rest.add(leaf).is_break());
            continue;
        };
        let place = ["Host", "NodeTID", "Interface", "CaptureID"].map(Arc::from);
        let point = dedup_key(record, &place).unwrap_or_default();
        record.leaves(key, &mut |leaf| {
            let Leaf::Int(number) = leaf else {
                return rest.add(leaf).is_break();
            };
            let points = conversations.entry_ref(&*id).or_default();
            *points.entry_ref(&*point).or_default() += i128::from(number);
            false
        });
    }
    let most = |points: &HashMap<String, i128>| points.values().max().copied().unwrap_or(0);
    rest.whole += conversations.values().map(most).sum::<i128>();
    rest
}

/// Lists and maps without content are no values.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::List(items) => items.is_empty(),
        Value::Map(map) => map.is_empty(),
        _ => false,
    }
}

pub(super) fn range<T>(mut items: Vec<T>, from: usize, to: usize) -> Vec<T> {
    items.truncate(to);
    items.drain(..from.min(items.len()));
    items
}

/// A sum of numbers, an integer if all are.
#[derive(Default)]
pub(super) struct Sum {
    whole: i128,
    float: f64,
    floats: bool,
    other: Option<String>,
}

impl Sum {
    pub fn add(&mut self, leaf: Leaf<'_>) -> ControlFlow<()> {
        match leaf {
            Leaf::Int(number) => self.whole += i128::from(number),
            Leaf::Float(float) => {
                self.float += float;
                self.floats = true;
            }
            Leaf::Null => {}
            other => {
                self.other
                    .get_or_insert_with(|| identity(&other.to_value()));
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    }

    pub fn value(self, key: &str) -> Done<Value> {
        if let Some(other) = self.other {
            let what = if key.is_empty() {
                String::new()
            } else {
                format!(" under {key:?}")
            };
            let message = format!("only numbers have a sum; the values{what} include {other}");
            return Err(QueryError::new(Class::Query, message));
        }
        Ok(match i64::try_from(self.whole) {
            Ok(whole) if !self.floats => Value::Int(whole),
            _ => Value::Float(self.whole as f64 + self.float),
        })
    }
}

/// Lists by identifier, in the order of the identifiers' first coming.
pub(super) fn by_id<T>(items: impl IntoIterator<Item = (Arc<str>, T)>) -> super::ById<Vec<T>> {
    let mut places: hashbrown::HashMap<Arc<str>, usize> = hashbrown::HashMap::new();
    let mut lists: super::ById<Vec<T>> = Vec::new();
    for (id, item) in items {
        let place = *places.entry(id.clone()).or_insert_with(|| {
            lists.push((id, Vec::new()));
            lists.len() - 1
        });
        lists[place].1.push(item);
    }
    lists
}

/// Memory of a value that was made for a query.
pub(super) fn value_bytes(value: &Value) -> usize {
    size_of::<Value>() + value.heap_bytes()
}

/// Memory of a list of them with what it belongs to.
pub(super) fn list_bytes(list: &[Value]) -> usize {
    /// An identifier, and the heads of both.
    const ENTRY: usize = 128;
    ENTRY + list.iter().map(value_bytes).sum::<usize>()
}
