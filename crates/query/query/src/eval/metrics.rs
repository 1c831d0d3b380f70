//! Counters over time.

use super::{
    ById, Done, Flow, Observed, Run, Stage,
    flows::{flows_bytes, uuid},
    values::{Sum, by_id, list_bytes, range},
};
use crate::{
    check::{Action, Order},
    error::{Class, QueryError},
    record::Record,
};
use hashbrown::HashSet;
use skua_topology::{Map, Node, Value};
use std::{collections::BTreeMap, sync::Arc};

const START: &str = "Start";
const LAST: &str = "Last";
/// Gauges: of several values the maximum is used.
const GAUGES: &[&str] = &["RTT"];
const DEFAULT_KEY: &str = "LastUpdateMetric";
/// Most slices of `Aggregates`.
const MAX_SLICES: i128 = 10_000;

fn time(metric: &Value, key: &str) -> i64 {
    let time = metric.as_map().and_then(|map| map.get(key));
    time.and_then(Value::as_int).unwrap_or(0)
}

impl Run<'_> {
    pub(super) fn node_metrics(&self, nodes: &[Observed<Node>], key: Option<&str>) -> Done<Stage> {
        let key = match key {
            None => DEFAULT_KEY,
            Some("SFlow") => "SFlow.LastUpdateMetric",
            Some("Ovs") => "Ovs.LastUpdateMetric",
            Some(other) => other,
        };
        let mut seen = HashSet::new();
        let mut found = Vec::new();
        for node in nodes {
            if self.budget.hold(found.len()).is_break() {
                break;
            }
            let Some(metric @ Value::Map(_)) = node.item.get(key) else {
                continue;
            };
            // In a time span, only the counts within it.
            let (start, last) = (time(&metric, START), time(&metric, LAST));
            let inside = match self.flow_time {
                Some((from, to)) if from < to => start >= from && last <= to,
                _ => true,
            };
            if inside && seen.insert((node.item.id.clone(), start)) {
                found.push((node.item.id.clone(), metric));
            }
        }
        super::scan::sort(&mut found, Order::Ascending, |(_, metric)| {
            Some(Value::Int(time(metric, START)))
        });
        Ok(Stage::Metrics(by_id(found)))
    }

    pub(super) fn flow_metrics(&self, flows: Vec<Flow>, key: Option<&str>) -> Done<Stage> {
        let mut all = Vec::new();
        let mut held = 0;
        // Each flow is dropped once its metrics are read.
        let mut bytes = flows_bytes(&flows);
        for flow in flows {
            bytes -= flow.bytes();
            let metrics = match (self.flow_time, self.sources.flows, key) {
                (Some((from, to)), Some(source), None) => {
                    // At a moment all that was counted up to then.
                    let from = if from < to { from } else { i64::MIN };
                    source.metrics(&*flow, (from, to))?
                }
                _ => {
                    let of = |key: &str| flow.get(key).filter(|value| value.as_map().is_some());
                    // Before the first update there is only the sum.
                    let metric = match key {
                        Some(key) => of(key),
                        None => of(DEFAULT_KEY).or_else(|| of("Metric")),
                    };
                    metric.into_iter().collect()
                }
            };
            held += metrics.len();
            bytes += list_bytes(&metrics);
            if self.budget.hold(held).is_break() || self.budget.hold_bytes(bytes).is_break() {
                break;
            }
            if !metrics.is_empty() {
                all.push((uuid(&*flow), metrics));
            }
        }
        Ok(Stage::Metrics(all))
    }

    pub(super) fn on_metrics(&self, action: &Action, metrics: ById<Vec<Value>>) -> Done<Stage> {
        let every = || metrics.iter().flat_map(|(_, list)| list);
        match action {
            Action::Count => Ok(Stage::Value(Value::Int(metrics.len() as i64))),
            Action::Range(from, to) => Ok(Stage::Metrics(range(metrics, *from, *to))),
            Action::Keys => {
                let mut keys = Vec::new();
                if let Some(first) = every().next() {
                    first.keys(&mut |key| keys.push(Value::from(key)));
                }
                Ok(Stage::Values(keys))
            }
            Action::Sum(Some(key)) => {
                let mut sum = Sum::default();
                for metric in every() {
                    metric.leaves(key, &mut |leaf| sum.add(leaf).is_break());
                }
                Ok(Stage::Value(sum.value(key)?))
            }
            Action::Sum(None) => {
                let mut total = Total::default();
                every().for_each(|metric| total.add(metric));
                Ok(Stage::Value(total.value().unwrap_or(Value::Null)))
            }
            Action::Aggregates(slice) => {
                let metrics: Vec<&Value> = every().collect();
                let slices = self.aggregate(&metrics, *slice)?;
                Ok(Stage::Metrics(vec![("Aggregated".into(), slices)]))
            }
            _ => Err(Self::misfit()),
        }
    }

    /// Sums in slices of `slice` ms. Counts over several slices are divided among them by time, so
    /// that nothing is lost or counted twice.
    fn aggregate(&self, metrics: &[&Value], slice: i64) -> Done<Vec<Value>> {
        let starts = metrics.iter().map(|metric| time(metric, START));
        let lasts = metrics.iter().map(|metric| time(metric, LAST));
        let (Some(first), Some(last)) = (starts.min(), lasts.max()) else {
            return Ok(Vec::new());
        };
        // A requested time span defines the start of slices.
        let (from, to) = match self.flow_time {
            Some((i64::MIN, to)) => (first.min(to), to),
            Some((from, to)) if from < to => (from, to),
            _ => (first, last),
        };
        let (from, to, slice) = (i128::from(from), i128::from(to), i128::from(slice));
        let count = ((to - from).max(1) + slice - 1) / slice;
        if count > MAX_SLICES {
            let message = format!("{count} slices are too many; {MAX_SLICES} are allowed");
            return Err(QueryError::new(Class::Limit, message)
                .help("a longer slice or a shorter span make it less"));
        }
        let mut totals: BTreeMap<i128, Total> = BTreeMap::new();
        for metric in metrics {
            let start = i128::from(time(metric, START));
            let end = i128::from(time(metric, LAST)).max(start);
            let (low, high) = (start.max(from), end.min(to));
            if low > high || (low == high && start < end) {
                continue;
            }
            // A span without length belongs to the slice around it; the last slice has its end.
            let at = |time: i128| ((time - from) / slice).min(count - 1);
            for at in at(low)..=at((high - 1).max(low)) {
                if self.budget.spend().is_break() {
                    self.budget.check()?;
                }
                let part = (
                    low.max(from + at * slice),
                    high.min(from + (at + 1) * slice),
                );
                totals
                    .entry(at)
                    .or_default()
                    .add_part(metric, (start, end), part);
            }
        }
        let slices = totals.into_iter().filter_map(|(at, total)| {
            let low = from + at * slice;
            let high = (low + slice).min(to);
            total.between(low as i64, high as i64)
        });
        Ok(slices.collect())
    }
}

/// A sum of metrics.
#[derive(Default)]
struct Total {
    counters: BTreeMap<Arc<str>, i64>,
    start: Option<i64>,
    last: i64,
}

impl Total {
    fn add(&mut self, metric: &Value) {
        let (start, last) = (time(metric, START), time(metric, LAST));
        self.start = Some(self.start.map_or(start, |before| before.min(start)));
        self.last = self.last.max(last);
        let span = (i128::from(start), i128::from(last).max(i128::from(start)));
        self.add_part(metric, span, span);
    }

    /// Adds a metric's share in a part of its span. The parts add up to the total: each gets the
    /// counts up to its end minus those up to its start.
    fn add_part(&mut self, metric: &Value, span: (i128, i128), part: (i128, i128)) {
        let length = span.1 - span.0;
        let up_to = |value: i64, at: i128| match length {
            0 => i128::from(value),
            _ => i128::from(value) * (at - span.0) / length,
        };
        for (name, value) in metric.as_map().into_iter().flat_map(Map::iter) {
            let (Some(value), false) = (value.as_int(), matches!(&**name, START | LAST)) else {
                continue;
            };
            let counter = self.counters.entry(name.clone()).or_default();
            if GAUGES.contains(&&**name) {
                *counter = value.max(*counter);
                continue;
            }
            let share = match length {
                0 => i128::from(value),
                _ => up_to(value, part.1) - up_to(value, part.0),
            };
            *counter = counter.saturating_add(i64::try_from(share).unwrap_or(i64::MAX));
        }
    }

    fn value(self) -> Option<Value> {
        let (start, last) = (self.start?, self.last);
        self.between(start, last)
    }

    /// None when all counters are 0.
    fn between(self, start: i64, last: i64) -> Option<Value> {
        let counted = self.start.is_some() || self.counters.values().any(|value| *value != 0);
        let mut entries: Vec<(Arc<str>, Value)> = self
            .counters
            .into_iter()
            .map(|(name, value)| (name, Value::Int(value)))
            .collect();
        entries.push((START.into(), Value::Int(start)));
        entries.push((LAST.into(), Value::Int(last)));
        counted.then(|| Value::Map(Map::new(entries)))
    }
}
