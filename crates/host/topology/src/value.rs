//! Metadata: values as in JSON, made to be kept in many versions.
//!
//! Texts, lists and maps are shared between versions of an element: a new version costs what changed
//! in it and one array of references.

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{MapAccess, SeqAccess, Visitor},
    ser::{SerializeMap, SerializeSeq},
};
use std::{borrow::Cow, fmt, sync::Arc};

/// A value of metadata.
#[derive(Clone, Debug, Default)]
pub enum Value {
    /// Known to be nothing.
    #[default]
    Null,
    /// Truth.
    Bool(bool),
    /// Whole number. Those of JSON that do not fit are kept as [`Value::Float`].
    Int(i64),
    /// Number.
    Float(f64),
    /// Text.
    Str(Arc<str>),
    /// Values in order.
    List(Arc<[Value]>),
    /// Values by name.
    Map(Map),
}

/// Values by name, sorted by name.
#[derive(Clone, utoipa::ToSchema)]
#[schema(value_type = Object, as = Metadata)]
pub struct Map(Arc<[(Arc<str>, Value)]>);

/// What the head of an `Arc` adds to its content, in bytes.
const ARC_HEAD: usize = 16;

impl Value {
    /// The values at `path`, names separated by dots, until `visit` returns true; returns whether it did. A
    /// list in the path means each of its elements; one at the end is visited as a whole.
    ///
    /// A name may itself contain dots: the whole rest of the path is tried as a name first, then the
    /// shortest beginning that is one.
    pub fn at<'a>(&'a self, path: &str, visit: &mut dyn FnMut(&'a Value) -> bool) -> bool {
        match self {
            Self::Map(map) => map.at(path, visit),
            Self::List(items) => items
                .iter()
                .any(|item| matches!(item, Self::Map(_)) && item.at(path, visit)),
            _ => false,
        }
    }

    /// Visits the value itself, or when it is a list its elements, until `visit` returns true.
    pub fn each<'a>(&'a self, visit: &mut dyn FnMut(&'a Value) -> bool) -> bool {
        match self {
            Self::List(items) => items.iter().any(|item| item.each(visit)),
            other => visit(other),
        }
    }

    /// The text, if it is one.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::Str(text) => Some(text),
            _ => None,
        }
    }

    /// The whole number, if it is one, also when written as a float.
    pub fn as_int(&self) -> Option<i64> {
        match self {
            Self::Int(number) => Some(*number),
            // Every whole float in this range is an i64.
            Self::Float(float) if float.fract() == 0.0 && float.abs() < 9e18 => Some(*float as i64),
            _ => None,
        }
    }

    /// The number, if it is one.
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Self::Int(number) => Some(*number as f64),
            Self::Float(float) => Some(*float),
            _ => None,
        }
    }

    /// The map, if it is one.
    pub fn as_map(&self) -> Option<&Map> {
        match self {
            Self::Map(map) => Some(map),
            _ => None,
        }
    }

    /// Bytes on the heap, without the names in maps, which all elements share.
    pub fn heap_bytes(&self) -> usize {
        match self {
            Self::Null | Self::Bool(_) | Self::Int(_) | Self::Float(_) => 0,
            Self::Str(text) => ARC_HEAD + text.len(),
            Self::List(items) => {
                ARC_HEAD
                    + size_of_val::<[Value]>(items)
                    + items.iter().map(Self::heap_bytes).sum::<usize>()
            }
            Self::Map(map) => map.heap_bytes(),
        }
    }

    /// Lists and maps inside each other, 0 for a plain value; stops counting at `limit`.
    pub(crate) fn depth(&self, limit: usize) -> usize {
        if limit == 0 {
            return 0;
        }
        match self {
            Self::List(items) => {
                1 + items
                    .iter()
                    .map(|item| item.depth(limit - 1))
                    .max()
                    .unwrap_or(0)
            }
            Self::Map(map) => {
                1 + map
                    .iter()
                    .map(|(_, item)| item.depth(limit - 1))
                    .max()
                    .unwrap_or(0)
            }
            _ => 0,
        }
    }

    /// Bytes on the heap that `self` does not share with `other`.
    fn bytes_beside(&self, other: &Self) -> usize {
        match (self, other) {
            (value, other) if value.same_place(other) => 0,
            (Self::Map(inner), Self::Map(other)) => inner.bytes_beside(other),
            (Self::List(items), Self::List(other)) => {
                let own = |(item, other): (&Self, Option<&Self>)| match other {
                    Some(other) => item.bytes_beside(other),
                    None => item.heap_bytes(),
                };
                ARC_HEAD
                    + size_of_val::<[Value]>(items)
                    + aligned(items, other).map(own).sum::<usize>()
            }
            (value, _) => value.heap_bytes(),
        }
    }

    /// The same content, as [`Map::share`].
    fn share(&self, old: &Self, names: &mut Names) -> Self {
        match (self, old) {
            (value, old) if value == old => old.clone(),
            (Self::Map(inner), Self::Map(old)) => Self::Map(inner.clone().share(old, names)),
            (Self::List(items), Self::List(old)) => aligned(items, old)
                .map(|(item, old)| match old {
                    Some(old) => item.share(old, names),
                    None => names.intern_value(item),
                })
                .collect(),
            (value, _) => names.intern_value(value),
        }
    }

    fn same_place(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Str(a), Self::Str(b)) => Arc::ptr_eq(a, b),
            (Self::List(a), Self::List(b)) => Arc::ptr_eq(a, b),
            (Self::Map(a), Self::Map(b)) => Arc::ptr_eq(&a.0, &b.0),
            _ => false,
        }
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Null, Self::Null) => true,
            (Self::Bool(a), Self::Bool(b)) => a == b,
            (Self::Int(a), Self::Int(b)) => a == b,
            // A value that is not a number must still equal itself, or it would change forever.
            (Self::Float(a), Self::Float(b)) => a.to_bits() == b.to_bits() || a == b,
            (Self::Str(a), Self::Str(b)) => Arc::ptr_eq(a, b) || a == b,
            (Self::List(a), Self::List(b)) => Arc::ptr_eq(a, b) || a == b,
            (Self::Map(a), Self::Map(b)) => a == b,
            _ => false,
        }
    }
}

impl Map {
    /// Of names and values; of those under one name the last stays.
    pub fn new(mut entries: Vec<(Arc<str>, Value)>) -> Self {
        if !entries.is_sorted_by(|a, b| a.0 < b.0) {
            entries.reverse();
            entries.sort_by(|a, b| a.0.cmp(&b.0));
            entries.dedup_by(|later, kept| later.0 == kept.0);
        }
        Self(entries.into())
    }

    /// How many names.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Names and values, by name.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&Arc<str>, &Value)> {
        self.0.iter().map(|(name, value)| (name, value))
    }

    /// The value of a name that is taken as it stands.
    pub fn get(&self, name: &str) -> Option<&Value> {
        let found = self.0.binary_search_by(|(key, _)| (**key).cmp(name)).ok()?;
        Some(&self.0[found].1)
    }

    /// As [`Value::at`].
    pub fn at<'a>(&'a self, path: &str, visit: &mut dyn FnMut(&'a Value) -> bool) -> bool {
        if let Some(value) = self.get(path) {
            return visit(value);
        }
        for (dot, _) in path.match_indices('.') {
            if let Some(value) = self.get(&path[..dot]) {
                return value.at(&path[dot + 1..], visit);
            }
        }
        false
    }

    /// The value at `path`; when lists lie on the way, the list of what is found in them.
    pub fn lookup(&self, path: &str) -> Option<Cow<'_, Value>> {
        let mut found: Vec<&Value> = Vec::new();
        self.at(path, &mut |value| {
            found.push(value);
            false
        });
        match found[..] {
            [] => None,
            [one] if !self.passes_list(path) => Some(Cow::Borrowed(one)),
            _ => Some(Cow::Owned(Value::List(
                found.into_iter().cloned().collect(),
            ))),
        }
    }

    /// Whether a list lies on the way to `path`: an answer must not have another form when that has one element.
    fn passes_list(&self, path: &str) -> bool {
        if self.get(path).is_some() {
            return false;
        }
        let mut dots = path.match_indices('.');
        let first = dots.find_map(|(dot, _)| Some((dot, self.get(&path[..dot])?)));
        match first {
            Some((_, Value::List(_))) => true,
            Some((dot, Value::Map(inner))) => inner.passes_list(&path[dot + 1..]),
            _ => false,
        }
    }

    /// With `value` at `path`. Names in the path that are missing or are no maps become maps.
    #[must_use]
    pub fn with(&self, path: &str, value: Value) -> Self {
        let (name, rest) = match path.split_once('.') {
            Some((name, rest)) if self.get(path).is_none() => (name, Some(rest)),
            _ => (path, None),
        };
        let value = match rest {
            None => value,
            Some(rest) => {
                let inner = self.get(name).and_then(Value::as_map).cloned();
                Value::Map(inner.unwrap_or_default().with(rest, value))
            }
        };
        let mut entries = self.0.to_vec();
        match entries.binary_search_by(|(key, _)| (**key).cmp(name)) {
            Ok(at) => entries[at].1 = value,
            Err(at) => entries.insert(at, (name.into(), value)),
        }
        Self(entries.into())
    }

    /// Without what is at `path`.
    #[must_use]
    pub fn without(&self, path: &str) -> Self {
        let mut entries = self.0.to_vec();
        if let Ok(at) = entries.binary_search_by(|(key, _)| (**key).cmp(path)) {
            entries.remove(at);
        } else if let Some((name, rest)) = path.split_once('.')
            && let Ok(at) = entries.binary_search_by(|(key, _)| (**key).cmp(name))
            && let Value::Map(inner) = &entries[at].1
        {
            entries[at].1 = Value::Map(inner.without(rest));
        }
        Self(entries.into())
    }

    /// Bytes on the heap, as [`Value::heap_bytes`].
    pub fn heap_bytes(&self) -> usize {
        ARC_HEAD
            + size_of_val::<[(Arc<str>, Value)]>(&self.0)
            + self
                .0
                .iter()
                .map(|(_, value)| value.heap_bytes())
                .sum::<usize>()
    }

    /// Bytes on the heap that `self` does not share with `other`.
    pub(crate) fn bytes_beside(&self, other: &Self) -> usize {
        if Arc::ptr_eq(&self.0, &other.0) {
            return 0;
        }
        let own = |(name, value): &(Arc<str>, Value)| match other.get(name) {
            Some(theirs) => value.bytes_beside(theirs),
            None => value.heap_bytes(),
        };
        ARC_HEAD
            + size_of_val::<[(Arc<str>, Value)]>(&self.0)
            + self.0.iter().map(own).sum::<usize>()
    }

    /// The same content, sharing the memory of equal parts of `old`, with names from `names`.
    pub(crate) fn share(self, old: &Self, names: &mut Names) -> Self {
        if self == *old {
            return old.clone();
        }
        let entries = self.0.iter().map(|(name, value)| {
            let value = match old.get(name) {
                Some(before) => value.share(before, names),
                None => names.intern_value(value),
            };
            (names.intern(name), value)
        });
        Self(entries.collect())
    }
}

impl Default for Map {
    fn default() -> Self {
        Self(Arc::from([]))
    }
}

impl PartialEq for Map {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0 == other.0
    }
}

impl fmt::Debug for Map {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl<const N: usize> From<[(&str, Value); N]> for Map {
    fn from(entries: [(&str, Value); N]) -> Self {
        Self::new(
            entries
                .into_iter()
                .map(|(name, value)| (name.into(), value))
                .collect(),
        )
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Str(text.into())
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Int(number)
    }
}

impl From<bool> for Value {
    fn from(truth: bool) -> Self {
        Self::Bool(truth)
    }
}

impl From<Map> for Value {
    fn from(map: Map) -> Self {
        Self::Map(map)
    }
}

impl FromIterator<Value> for Value {
    fn from_iter<I: IntoIterator<Item = Value>>(items: I) -> Self {
        Self::List(items.into_iter().collect())
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Bool(truth) => serializer.serialize_bool(*truth),
            Self::Int(number) => serializer.serialize_i64(*number),
            Self::Float(float) => serializer.serialize_f64(*float),
            Self::Str(text) => serializer.serialize_str(text),
            Self::List(items) => {
                let mut list = serializer.serialize_seq(Some(items.len()))?;
                for item in items.iter() {
                    list.serialize_element(item)?;
                }
                list.end()
            }
            Self::Map(map) => map.serialize(serializer),
        }
    }
}

impl Serialize for Map {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.len()))?;
        for (name, value) in self.iter() {
            map.serialize_entry(&**name, value)?;
        }
        map.end()
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, truth: bool) -> Result<Value, E> {
        Ok(Value::Bool(truth))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        Ok(Value::Int(number))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        Ok(i64::try_from(number).map_or(Value::Float(number as f64), Value::Int))
    }

    fn visit_f64<E>(self, float: f64) -> Result<Value, E> {
        Ok(Value::Float(float))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::from(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(Value::List(items.into()))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry::<Arc<str>, Value>()? {
            entries.push(entry);
        }
        Ok(Value::Map(Map::new(entries)))
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

impl<'de> Deserialize<'de> for Map {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match deserializer.deserialize_any(ValueVisitor)? {
            Value::Map(map) => Ok(map),
            Value::Null => Ok(Self::default()),
            _ => Err(serde::de::Error::custom("metadata must be an object")),
        }
    }
}

/// Each element of a list with the one of another version of it that it most likely was: equal ones at the begin
/// and at the end belong together, those between by their order. So one that comes or goes moves no other.
fn aligned<'a>(
    items: &'a [Value],
    old: &'a [Value],
) -> impl Iterator<Item = (&'a Value, Option<&'a Value>)> {
    let same = |(item, old): &(&Value, &Value)| item == old;
    let begin = items.iter().zip(old).take_while(same).count();
    let (items_end, old_end) = (items[begin..].iter().rev(), old[begin..].iter().rev());
    let end = items_end.zip(old_end).take_while(same).count();
    let (middle, old_middle) = (items.len() - end, old.len() - end);
    items.iter().enumerate().map(move |(at, item)| {
        let place = if at < middle {
            Some(at).filter(|at| *at < old_middle)
        } else {
            Some(at - middle + old_middle)
        };
        (item, place.and_then(|place| old.get(place)))
    })
}

/// Names of metadata, each kept once.
#[derive(Default)]
pub(crate) struct Names(hashbrown::HashSet<Arc<str>>);

impl Names {
    /// Probes use some hundreds of names; more come only from labels, which may be anything.
    const MOST: usize = 65_536;
    /// Long texts are hardly ever equal.
    const LONGEST: usize = 64;

    pub(crate) fn intern(&mut self, name: &Arc<str>) -> Arc<str> {
        if let Some(known) = self.0.get(&**name) {
            return known.clone();
        }
        if self.0.len() < Self::MOST && name.len() <= Self::LONGEST {
            self.0.insert(name.clone());
        }
        name.clone()
    }

    fn intern_value(&mut self, value: &Value) -> Value {
        match value {
            Value::List(items) => items.iter().map(|item| self.intern_value(item)).collect(),
            Value::Map(map) => {
                let entries = map.iter();
                Value::Map(Map(entries
                    .map(|(name, value)| (self.intern(name), self.intern_value(value)))
                    .collect()))
            }
            plain => plain.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Map {
        serde_json::from_str(
            r#"{"Name": "eth0", "MTU": 1500, "IPV4": ["10.0.0.1/24", "10.0.0.2/24"],
                "Captures": [{"ID": "a", "State": "active"}, {"ID": "b"}],
                "Labels": {"app.kubernetes.io/name": "web"}, "Metric": {"RxBytes": 5}}"#,
        )
        .unwrap()
    }

    #[test]
    fn paths_go_through_maps_lists_and_names_with_dots() {
        let map = sample();
        let get = |path: &str| map.lookup(path).map(Cow::into_owned);
        assert_eq!(get("Metric.RxBytes"), Some(Value::Int(5)));
        assert_eq!(
            get("Captures.ID"),
            Some(["a", "b"].into_iter().map(Value::from).collect())
        );
        // Of one of them, too.
        let state = Some(["active"].into_iter().map(Value::from).collect());
        assert_eq!(get("Captures.State"), state);
        assert_eq!(get("Labels.app.kubernetes.io/name"), Some("web".into()));
        for missing in ["Metric.TxBytes", "Name.x", "IPV4.x", "", ".", "Captures."] {
            assert_eq!(get(missing), None, "{missing}");
        }
    }

    #[test]
    fn setting_and_removing_touch_nothing_else() {
        let map = sample()
            .with("Metric.TxBytes", 7.into())
            .with("Ovs.DBID.x", true.into());
        assert_eq!(
            map.lookup("Metric.RxBytes").as_deref(),
            Some(&Value::Int(5))
        );
        assert_eq!(
            map.lookup("Metric.TxBytes").as_deref(),
            Some(&Value::Int(7))
        );
        assert_eq!(
            map.lookup("Ovs.DBID.x").as_deref(),
            Some(&Value::Bool(true))
        );
        let map = map
            .without("Ovs")
            .without("Metric.TxBytes")
            .without("absent.path");
        assert_eq!(map, sample());
    }

    #[test]
    fn a_new_version_shares_what_is_equal() {
        let mut names = Names::default();
        let old = sample();
        let changed = serde_json::to_string(&old.with("MTU", 9000.into())).unwrap();
        let fresh: Map = serde_json::from_str(&changed).unwrap();
        assert!(fresh.bytes_beside(&old) > 300);
        let shared = fresh.clone().share(&old, &mut names);
        assert_eq!(shared, fresh);
        assert_eq!(shared.bytes_beside(&old), ARC_HEAD + 6 * 40);
        assert_eq!(fresh.share(&shared, &mut names).bytes_beside(&shared), 0);
    }

    #[test]
    fn a_list_shares_the_elements_that_stay() {
        let mut names = Names::default();
        let routes = |numbers: &[i64]| {
            let route = |number: &i64| {
                let prefix = format!("10.0.{number}.0/24");
                let hop = Map::from([("IP", "10.0.0.1".into()), ("Priority", (*number).into())]);
                let hops: Value = [Value::Map(hop)].into_iter().collect();
                Map::from([("Prefix", prefix.as_str().into()), ("NextHops", hops)])
            };
            let routes = numbers.iter().map(|number| Value::Map(route(number)));
            let table = Map::from([("ID", 254.into()), ("Routes", routes.collect())]);
            let tables: Value = [Value::Map(table)].into_iter().collect();
            Map::from([("RoutingTables", tables)])
        };
        let all: Vec<i64> = (0..100).collect();
        let without: Vec<i64> = all.iter().copied().filter(|n| *n != 40).collect();
        let changed: Vec<i64> = all
            .iter()
            .map(|n| if *n == 40 { 1_000 } else { *n })
            .collect();
        let old = routes(&all);
        let whole = old.heap_bytes();
        for (numbers, new) in [(&without, 0), (&changed, 1), (&all[..99].to_vec(), 0)] {
            let fresh = routes(numbers);
            let shared = fresh.clone().share(&old, &mut names);
            assert_eq!(shared, fresh);
            // The lists of references to what stays, and what is new.
            let references = size_of::<Value>() * numbers.len();
            let own = shared.bytes_beside(&old);
            assert!(own < references + 300 + new * 300, "{own} of {whole}");
            // Back again it shares what it can, and nothing has changed on the way.
            let back = routes(&all).share(&shared, &mut names);
            assert_eq!(back, old);
        }
        assert!(whole > 15_000, "{whole}");
    }

    #[test]
    fn elements_are_aligned_with_what_they_were() {
        let list = |text: &str| -> Vec<Value> {
            let letters = text.chars().map(|c| Value::from(c.to_string().as_str()));
            letters.collect()
        };
        for (items, old, want) in [
            ("abc", "abc", "abc"),
            ("abxc", "abc", "ab-c"),
            ("ac", "abc", "ac"),
            ("axc", "abc", "abc"),
            ("", "abc", ""),
            ("abc", "", "---"),
            ("aa", "a", "a-"),
            ("a", "aa", "a"),
            ("xbcd", "bcd", "-bcd"),
        ] {
            let (items, old) = (list(items), list(old));
            let name = |value: &Value| value.as_str().unwrap().to_owned();
            let pairs = aligned(&items, &old);
            let found: String = pairs.map(|(_, was)| was.map_or("-".into(), name)).collect();
            assert_eq!(found, want);
        }
    }

    #[test]
    fn of_equal_names_the_last_stays() {
        let map: Map = serde_json::from_str(r#"{"b": 1, "a": 2, "b": 3}"#).unwrap();
        assert_eq!(map, Map::from([("a", 2.into()), ("b", 3.into())]));
        assert_eq!(serde_json::to_string(&map).unwrap(), r#"{"a":2,"b":3}"#);
    }
}
