//! What has values under keys: nodes, edges, flows, plain values.

use hashbrown::{Equivalent, HashSet};
use skua_topology::{Edge, Map, Node, Value};
use std::{
    any::Any,
    borrow::Cow,
    hash::{Hash, Hasher},
    net::IpAddr,
    sync::Arc,
};

/// A plain value as predicates see it. Addresses need no text to be compared.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Leaf<'a> {
    /// Nothing, though the key is there.
    Null,
    /// Truth.
    Bool(bool),
    /// Whole number.
    Int(i64),
    /// Number.
    Float(f64),
    /// Text.
    Str(&'a str),
    /// IP address.
    Ip(IpAddr),
    /// Ethernet address.
    Mac([u8; 6]),
}

impl Leaf<'_> {
    /// Of a value that is no map and no list.
    pub fn of(value: &Value) -> Option<Leaf<'_>> {
        Some(match value {
            Value::Null => Leaf::Null,
            Value::Bool(truth) => Leaf::Bool(*truth),
            Value::Int(number) => Leaf::Int(*number),
            Value::Float(float) => Leaf::Float(*float),
            Value::Str(text) => Leaf::Str(text),
            Value::List(_) | Value::Map(_) => return None,
        })
    }

    /// As a value.
    pub fn to_value(self) -> Value {
        match self {
            Self::Null => Value::Null,
            Self::Bool(truth) => truth.into(),
            Self::Int(number) => number.into(),
            Self::Float(float) => Value::Float(float),
            Self::Str(text) => text.into(),
            Self::Ip(_) | Self::Mac(_) => Value::Str(self.text().unwrap_or_default().into()),
        }
    }

    /// The text, also of an address.
    pub fn text(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::Str(text) => Some(Cow::Borrowed(text)),
            Self::Ip(ip) => Some(Cow::Owned(ip.to_string())),
            Self::Mac([a, b, c, d, e, f]) => Some(Cow::Owned(format!(
                "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}"
            ))),
            _ => None,
        }
    }
}

/// Something with values under keys, which are names separated by dots.
pub trait Record {
    /// The plain values under `key`, of lists each element, until `visit` returns true; returns
    /// whether it did.
    fn leaves(&self, key: &str, visit: &mut dyn FnMut(Leaf<'_>) -> bool) -> bool;
    /// Whether the key is there.
    fn has(&self, key: &str) -> bool;
    /// The value under a key.
    fn get(&self, key: &str) -> Option<Value>;
    /// All keys.
    fn keys(&self, add: &mut dyn FnMut(&str));
}

/// A flow, with the fields of [`FLOW_KEYS`] as far as they are known.
pub trait FlowRecord: Record + Send + Sync {
    /// The flow, to be kept for a while. What texts it has in common with others can be shared.
    fn keep(&self, texts: &mut SharedTexts) -> Arc<dyn FlowRecord>;
    /// Bytes of memory of it when it is kept, without what is shared.
    fn bytes(&self) -> usize;
    /// All of it.
    fn to_value(&self) -> Value;
    /// What its source made of it when it was kept, to be known again there.
    fn kept(&self) -> Option<&dyn Any> {
        None
    }
}

/// Texts that several kept flows have in common, each list of them once.
#[derive(Default)]
pub struct SharedTexts {
    all: HashSet<Arc<[Box<str>]>>,
    bytes: usize,
}

/// A list of texts that is looked for among those that are shared.
struct Asked<'a>(&'a [&'a str]);

impl Hash for Asked<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl Equivalent<Arc<[Box<str>]>> for Asked<'_> {
    fn equivalent(&self, key: &Arc<[Box<str>]>) -> bool {
        self.0.iter().copied().eq(key.iter().map(|text| &**text))
    }
}

impl SharedTexts {
    /// These texts, in the memory of the same that were asked for before.
    pub fn share(&mut self, texts: &[&str]) -> Arc<[Box<str>]> {
        if let Some(known) = self.all.get(&Asked(texts)) {
            return known.clone();
        }
        let new: Arc<[Box<str>]> = texts.iter().map(|text| Box::from(*text)).collect();
        self.bytes += texts
            .iter()
            .map(|text| text.len() + size_of::<Box<str>>())
            .sum::<usize>();
        self.all.insert(new.clone());
        new
    }

    /// Bytes of all of them.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Fields of flows that steps rely on.
pub const FLOW_KEYS: &[&str] = &[
    "UUID",
    "TrackingID",
    "NodeTID",
    "LayersPath",
    "Application",
    "Link.A",
    "Link.B",
    "Network.A",
    "Network.B",
    "Transport.A",
    "Transport.B",
    "Transport.Protocol",
    "Metric",
    "LastUpdateMetric",
    "Start",
    "Last",
];

fn value_leaves(value: &Value, visit: &mut dyn FnMut(Leaf<'_>) -> bool) -> bool {
    value.each(&mut |value| Leaf::of(value).is_some_and(&mut *visit))
}

/// Keys in a map, also those of maps in it, as far down as people look.
fn map_keys(map: &Map, prefix: &str, depth: usize, add: &mut dyn FnMut(&str)) {
    for (name, value) in map.iter() {
        let key = format!("{prefix}{name}");
        add(&key);
        if let (Value::Map(inner), true) = (value, depth > 0) {
            map_keys(inner, &format!("{key}."), depth - 1, add);
        }
    }
}

/// How deep [`Record::keys`] looks.
const KEY_DEPTH: usize = 4;

impl Record for Node {
    fn leaves(&self, key: &str, visit: &mut dyn FnMut(Leaf<'_>) -> bool) -> bool {
        self.at(key, &mut |value| value_leaves(value, visit))
    }

    fn has(&self, key: &str) -> bool {
        self.at(key, &mut |_| true)
    }

    fn get(&self, key: &str) -> Option<Value> {
        self.lookup(key).map(Cow::into_owned)
    }

    fn keys(&self, add: &mut dyn FnMut(&str)) {
        for key in [
            "@CreatedAt",
            "@Host",
            "@ID",
            "@Origin",
            "@Revision",
            "@UpdatedAt",
        ] {
            add(key);
        }
        if self.deleted_at.is_some() {
            add("@DeletedAt");
        }
        map_keys(&self.metadata, "", KEY_DEPTH, add);
    }
}

impl Record for Edge {
    fn leaves(&self, key: &str, visit: &mut dyn FnMut(Leaf<'_>) -> bool) -> bool {
        self.at(key, &mut |value| value_leaves(value, visit))
    }

    fn has(&self, key: &str) -> bool {
        self.at(key, &mut |_| true)
    }

    fn get(&self, key: &str) -> Option<Value> {
        self.lookup(key).map(Cow::into_owned)
    }

    fn keys(&self, add: &mut dyn FnMut(&str)) {
        add("@Child");
        add("@Parent");
        self.element.keys(add);
    }
}

impl Record for Value {
    fn leaves(&self, key: &str, visit: &mut dyn FnMut(Leaf<'_>) -> bool) -> bool {
        self.at(key, &mut |value| value_leaves(value, visit))
    }

    fn has(&self, key: &str) -> bool {
        self.at(key, &mut |_| true)
    }

    fn get(&self, key: &str) -> Option<Value> {
        self.as_map()?.lookup(key).map(Cow::into_owned)
    }

    fn keys(&self, add: &mut dyn FnMut(&str)) {
        if let Value::Map(map) = self {
            map_keys(map, "", KEY_DEPTH, add);
        }
    }
}
