//! A flow as queries see it.

use crate::field::{self, Visit};
use skua_flow::{ConversationOwner, Counters, FlowRecord};
use skua_query::{FlowRecord as Flow, Leaf, Record, SharedTexts};
use skua_state::FlowPlace;
use skua_topology::{Map, Value};
use std::{any::Any, sync::Arc};

/// A flow with all that is known of it, while it is visited.
#[derive(Clone, Copy, Debug)]
pub struct FlowView<'a> {
    /// The record.
    pub record: &'a FlowRecord,
    /// Where it was captured.
    pub place: &'a Arc<FlowPlace>,
    /// Who owns the sockets of `lo` and `hi`.
    pub parties: [ConversationOwner<'a>; 2],
    /// Packets that are kept of it.
    pub raw_packets: usize,
}

impl FlowView<'_> {
    /// One of a pair of `lo` and `hi`, that of `a` first.
    pub(crate) fn by_a<T: Copy>(&self, pair: [T; 2]) -> [T; 2] {
        self.record.by_a(pair)
    }

    /// What the last drain that touched it added, `a`'s first.
    pub(crate) fn last(&self) -> [Counters; 2] {
        let interval = self.record.interval;
        self.by_a([interval.lo_sent, interval.hi_sent])
    }
}

/// Whether `key` is one of `prefix`'s parts.
fn inside(key: &str, prefix: &str) -> bool {
    key.strip_prefix(prefix)
        .is_some_and(|rest| rest.starts_with('.'))
}

/// Puts a value under a path into nested entries.
fn put(entries: &mut Vec<(Arc<str>, Value)>, path: &str, value: Value) {
    let Some((name, rest)) = path.split_once('.') else {
        entries.push((path.into(), value));
        return;
    };
    // Parts of one map follow one another.
    match entries.last_mut() {
        Some((last, Value::Map(map))) if **last == *name => *map = map.with(rest, value),
        _ => {
            let mut inner = Vec::new();
            put(&mut inner, rest, value);
            entries.push((name.into(), Map::new(inner).into()));
        }
    }
}

impl Record for FlowView<'_> {
    fn leaves(&self, key: &str, visit: &mut dyn FnMut(Leaf<'_>) -> bool) -> bool {
        field::getter(key).is_some_and(|getter| getter.show(self, visit))
    }

    fn has(&self, key: &str) -> bool {
        self.leaves(key, &mut |_| true)
            || field::KEYS
                .iter()
                .any(|k| inside(k, key) && self.leaves(k, &mut |_| true))
    }

    fn get(&self, key: &str) -> Option<Value> {
        let mut value = None;
        self.leaves(key, &mut |leaf| {
            value = Some(leaf.to_value());
            true
        });
        if value.is_some() {
            return value;
        }
        let mut entries = Vec::new();
        for part in field::KEYS.iter().filter(|k| inside(k, key)) {
            self.leaves(part, &mut |leaf| {
                put(&mut entries, &part[key.len() + 1..], leaf.to_value());
                true
            });
        }
        (!entries.is_empty()).then(|| Map::new(entries).into())
    }

    fn keys(&self, add: &mut dyn FnMut(&str)) {
        // Those of one map follow one another.
        let mut last = "";
        for key in field::KEYS.iter() {
            if self.leaves(key, &mut |_| true) {
                if let Some((map, _)) = key.split_once('.')
                    && map != last
                {
                    last = map;
                    add(map);
                }
                add(key);
            }
        }
    }
}

impl Flow for FlowView<'_> {
    fn keep(&self, texts: &mut SharedTexts) -> Arc<dyn Flow> {
        Arc::new(KeptFlow {
            record: *self.record,
            place: self.place.clone(),
            parties: self.parties.map(|party| KeptParty::of(&party, texts)),
            raw_packets: self.raw_packets,
        })
    }

    fn bytes(&self) -> usize {
        KeptFlow::BYTES
    }

    fn to_value(&self) -> Value {
        let mut entries = Vec::new();
        for key in field::KEYS.iter() {
            self.leaves(key, &mut |leaf| {
                put(&mut entries, key, leaf.to_value());
                true
            });
        }
        Map::new(entries).into()
    }
}

/// A [`ConversationOwner`] that is kept.
#[derive(Clone, Debug, Default)]
struct KeptParty {
    /// Process, user, container, pod and unit.
    texts: Option<Arc<[Box<str>]>>,
    pid: u32,
    uid: Option<u32>,
}

impl KeptParty {
    fn of(party: &ConversationOwner<'_>, shared: &mut SharedTexts) -> Self {
        let texts = [
            party.process,
            party.user,
            party.container,
            party.pod,
            party.unit,
        ];
        let known = texts.iter().any(|text| !text.is_empty());
        Self {
            texts: known.then(|| shared.share(&texts)),
            pid: party.pid,
            uid: party.uid,
        }
    }

    fn party(&self) -> ConversationOwner<'_> {
        let texts = self.texts.as_deref().unwrap_or_default();
        let text = |place: usize| texts.get(place).map_or("", |text| &**text);
        let [process, user, container, pod, unit] = std::array::from_fn(text);
        ConversationOwner {
            process,
            pid: self.pid,
            user,
            uid: self.uid,
            container,
            pod,
            unit,
        }
    }
}

/// A flow that is kept for an answer.
#[derive(Clone, Debug)]
pub struct KeptFlow {
    record: FlowRecord,
    place: Arc<FlowPlace>,
    parties: [KeptParty; 2],
    raw_packets: usize,
}

impl KeptFlow {
    /// Memory of one, with the counts of who holds it.
    const BYTES: usize = size_of::<Self>() + 2 * size_of::<usize>();

    /// As it was when it was kept.
    pub fn view(&self) -> FlowView<'_> {
        FlowView {
            record: &self.record,
            place: &self.place,
            parties: self.parties.each_ref().map(KeptParty::party),
            raw_packets: self.raw_packets,
        }
    }
}

impl Record for KeptFlow {
    fn leaves(&self, key: &str, visit: &mut Visit<'_>) -> bool {
        self.view().leaves(key, visit)
    }

    fn has(&self, key: &str) -> bool {
        self.view().has(key)
    }

    fn get(&self, key: &str) -> Option<Value> {
        self.view().get(key)
    }

    fn keys(&self, add: &mut dyn FnMut(&str)) {
        self.view().keys(add);
    }
}

impl Flow for KeptFlow {
    fn keep(&self, _: &mut SharedTexts) -> Arc<dyn Flow> {
        Arc::new(self.clone())
    }

    fn bytes(&self) -> usize {
        Self::BYTES
    }

    fn to_value(&self) -> Value {
        self.view().to_value()
    }

    fn kept(&self) -> Option<&dyn Any> {
        Some(self)
    }
}
