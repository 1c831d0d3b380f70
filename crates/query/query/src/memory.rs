//! A store of flows in memory: for tests, and as an example of what a [`FlowSource`] has to do.

use crate::{
    record::{FlowRecord, Leaf, Record, SharedTexts},
    source::{FlowLookup, FlowSource, FlowTime, RawPacket, SourceError},
};
use hashbrown::HashMap;
use skua_topology::{IndexKey, Value};
use std::{
    ops::ControlFlow,
    sync::{Arc, PoisonError, RwLock},
};

/// A flow as a map.
#[derive(Clone, PartialEq, Debug)]
pub struct ValueFlow(pub Value);

impl Record for ValueFlow {
    fn leaves(&self, key: &str, visit: &mut dyn FnMut(Leaf<'_>) -> bool) -> bool {
        self.0.leaves(key, visit)
    }

    fn has(&self, key: &str) -> bool {
        self.0.has(key)
    }

    fn get(&self, key: &str) -> Option<Value> {
        self.0.get(key)
    }

    fn keys(&self, add: &mut dyn FnMut(&str)) {
        self.0.keys(add);
    }
}

impl FlowRecord for ValueFlow {
    fn keep(&self, _: &mut SharedTexts) -> Arc<dyn FlowRecord> {
        Arc::new(self.clone())
    }

    fn bytes(&self) -> usize {
        size_of::<Self>() + self.0.heap_bytes()
    }

    fn to_value(&self) -> Value {
        self.0.clone()
    }
}

struct Index {
    key: Box<str>,
    places: HashMap<IndexKey, Vec<u32>>,
}

struct Flows<F> {
    flows: Vec<Arc<F>>,
    indexes: Vec<Index>,
}

/// Flows with indexes on some keys. Values under these keys must not change.
pub struct MemoryFlows<F> {
    inner: RwLock<Flows<F>>,
    /// How long after its last packet a flow counts as active, in ms.
    pub expire: i64,
    /// Metrics over time by UUID.
    pub metrics: HashMap<Arc<str>, Vec<Value>>,
    /// Packets by UUID.
    pub packets: HashMap<Arc<str>, Vec<RawPacket>>,
}

fn index_key(leaf: Leaf<'_>) -> Option<IndexKey> {
    IndexKey::of(&leaf.to_value())
}

impl<F: FlowRecord> MemoryFlows<F> {
    /// An empty store with indexes on `keys`.
    pub fn new(keys: &[&str], expire: i64) -> Self {
        let index = |key: &&str| Index {
            key: (*key).into(),
            places: HashMap::new(),
        };
        Self {
            inner: RwLock::new(Flows {
                flows: Vec::new(),
                indexes: keys.iter().map(index).collect(),
            }),
            expire,
            metrics: HashMap::new(),
            packets: HashMap::new(),
        }
    }

    /// Adds a flow and returns its index.
    pub fn add(&self, flow: F) -> usize {
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        let place = inner.flows.len();
        for index in &mut inner.indexes {
            let mut keys = Vec::new();
            flow.leaves(&index.key, &mut |leaf| {
                keys.extend(index_key(leaf));
                false
            });
            for key in keys {
                index.places.entry(key).or_default().push(place as u32);
            }
        }
        inner.flows.push(Arc::new(flow));
        place
    }

    /// Replaces a flow by a newer version.
    pub fn update(&self, place: usize, change: impl FnOnce(&F) -> F) {
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(flow) = inner.flows.get_mut(place) {
            *flow = Arc::new(change(flow));
        }
    }

    fn active(&self, flow: &F, time: FlowTime) -> bool {
        let Some((from, to)) = time else {
            return true;
        };
        let int = |key: &str| flow.get(key).and_then(|value| value.as_int()).unwrap_or(0);
        int("Start") <= to && int("Last") >= from.saturating_sub(self.expire)
    }
}

/// Flows that are scanned under one lock.
const PART: usize = 4_096;

impl<F: FlowRecord> FlowSource for MemoryFlows<F> {
    fn flows(
        &self,
        lookup: FlowLookup<'_>,
        time: FlowTime,
        visit: &mut dyn FnMut(&dyn FlowRecord) -> ControlFlow<()>,
    ) -> Result<(), SourceError> {
        let mut next = 0;
        loop {
            let inner = self.inner.read().unwrap_or_else(PoisonError::into_inner);
            let places = match lookup {
                FlowLookup::All => None,
                FlowLookup::Key(key, value) => {
                    let index = inner.indexes.iter().find(|index| *index.key == *key);
                    let index = index.ok_or_else(|| SourceError(format!("{key} has no index")))?;
                    Some(index.places.get(value).map_or(&[][..], Vec::as_slice))
                }
            };
            let length = places.map_or(inner.flows.len(), <[u32]>::len);
            let end = (next + PART).min(length);
            for at in next..end {
                let place = places.map_or(at, |places| places[at] as usize);
                let flow = &inner.flows[place];
                if self.active(flow, time) && visit(&**flow).is_break() {
                    return Ok(());
                }
            }
            if end == length {
                return Ok(());
            }
            next = end;
        }
    }

    fn estimate(&self, key: &str, value: &IndexKey) -> Option<usize> {
        let inner = self.inner.read().unwrap_or_else(PoisonError::into_inner);
        let index = inner.indexes.iter().find(|index| *index.key == *key)?;
        Some(index.places.get(value).map_or(0, Vec::len))
    }

    fn metrics(
        &self,
        flow: &dyn FlowRecord,
        (from, to): (i64, i64),
    ) -> Result<Vec<Value>, SourceError> {
        let Some(Value::Str(uuid)) = flow.get("UUID") else {
            return Ok(Vec::new());
        };
        let metrics = self.metrics.get(&uuid).into_iter().flatten();
        let int = |metric: &Value, key: &str| metric.get(key).and_then(|value| value.as_int());
        let inside = |metric: &&Value| {
            int(metric, "Start").is_some_and(|start| start >= from)
                && int(metric, "Last").is_some_and(|last| last <= to)
        };
        Ok(metrics.filter(inside).cloned().collect())
    }

    fn raw_packets(
        &self,
        flow: &dyn FlowRecord,
        time: FlowTime,
    ) -> Result<Vec<RawPacket>, SourceError> {
        let Some(Value::Str(uuid)) = flow.get("UUID") else {
            return Ok(Vec::new());
        };
        let packets = self.packets.get(&uuid).into_iter().flatten();
        let inside = |packet: &&RawPacket| match time {
            Some((from, to)) if from < to => (from..=to).contains(&packet.timestamp),
            Some((_, to)) => packet.timestamp <= to,
            None => true,
        };
        Ok(packets.filter(inside).cloned().collect())
    }
}
