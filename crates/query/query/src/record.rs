//! Elements with values under keys: nodes, edges, flows, plain values.

use hashbrown::{Equivalent, HashSet};
use skua_topology::{Edge, Map, Node, Value};
use std::{
    any::Any,
    borrow::Cow,
    hash::{Hash, Hasher},
    net::IpAddr,
    sync::Arc,
};

/// A scalar value for predicates. Addresses are compared without formatting.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Leaf<'a> {
    /// Null, though the key exists.
    Null,
    /// Truth.
    Bool(bool),
    /// Integer.
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
    /// The leaf of a value that is no map and no list.
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
    /// Whether the key exists.
    fn has(&self, key: &str) -> bool;
    /// The value under a key.
    fn get(&self, key: &str) -> Option<Value>;
    /// All keys.
    fn keys(&self, add: &mut dyn FnMut(&str));
}

/// A flow, with those fields of [`FLOW_KEYS`] that are known.
pub trait FlowRecord: Record + Send + Sync {
    /// A copy of the flow to keep. Texts may be shared with other copies.
    fn keep(&self, texts: &mut SharedTexts) -> Arc<dyn FlowRecord>;
    /// Memory of a kept copy in bytes, without shared texts.
    fn bytes(&self) -> usize;
    /// All fields.
    fn to_value(&self) -> Value;
    /// The source's own type of a kept copy, so that the source recognises it.
    fn kept(&self) -> Option<&dyn Any> {
        None
    }
}

/// Texts shared by several kept flows, each list stored once.
#[derive(Default)]
pub struct SharedTexts {
    all: HashSet<Arc<[Box<str>]>>,
    bytes: usize,
}

/// A list of texts, for a lookup among the shared ones.
struct TextList<'a>(&'a [&'a str]);

impl Hash for TextList<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl Equivalent<Arc<[Box<str>]>> for TextList<'_> {
    fn equivalent(&self, key: &Arc<[Box<str>]>) -> bool {
        self.0.iter().copied().eq(key.iter().map(|text| &**text))
    }
}

impl SharedTexts {
    /// The shared copy of these texts.
    pub fn share(&mut self, texts: &[&str]) -> Arc<[Box<str>]> {
        if let Some(known) = self.all.get(&TextList(texts)) {
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

/// Keys in a map and in its nested maps, down to `depth`.
fn map_keys(map: &Map, prefix: &str, depth: usize, add: &mut dyn FnMut(&str)) {
    for (name, value) in map.iter() {
        let key = format!("{prefix}{name}");
        add(&key);
        if let (Value::Map(inner), true) = (value, depth > 0) {
            map_keys(inner, &format!("{key}."), depth - 1, add);
        }
    }
}

/// Depth of the keys of [`Record::keys`].
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
