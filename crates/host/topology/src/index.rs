//! Secondary indexes: from a value to the elements that have or had it.

use crate::{
    Value,
    element::Element,
    postings::Postings,
    window::{Span, Window},
};
use hashbrown::HashMap;
use std::{ops::ControlFlow, sync::Arc};

/// A plain value as indexes and predicates compare it: a number and its decimal text are equal, and so
/// are a whole number and the float that it is.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum IndexKey {
    /// Truth.
    Bool(bool),
    /// Whole number, or its text.
    Int(i64),
    /// Bits of a number that is not whole.
    Float(u64),
    /// Text that is no whole number.
    Str(Arc<str>),
}

impl IndexKey {
    /// The key of a plain value, none for lists, maps and null.
    pub fn of(value: &Value) -> Option<Self> {
        Some(match value {
            Value::Bool(truth) => Self::Bool(*truth),
            Value::Str(text) => match Self::whole(text) {
                Some(number) => Self::Int(number),
                None => Self::Str(text.clone()),
            },
            Value::Int(number) => Self::Int(*number),
            Value::Float(float) => match value.as_int() {
                Some(number) => Self::Int(number),
                None => Self::Float(float.to_bits()),
            },
            Value::Null | Value::List(_) | Value::Map(_) => return None,
        })
    }

    /// The number whose decimal text this is, as `42`, but not `042` or `+42`.
    pub fn whole(text: &str) -> Option<i64> {
        let digits = text.strip_prefix('-').unwrap_or(text);
        let plain = match digits.as_bytes() {
            [b'0'] => digits.len() == text.len(),
            [b'1'..=b'9', rest @ ..] => rest.len() < 19 && rest.iter().all(u8::is_ascii_digit),
            _ => false,
        };
        if plain { text.parse().ok() } else { None }
    }
}

/// Values under one key.
pub(crate) struct Index {
    pub key: Box<str>,
    values: HashMap<IndexKey, Postings>,
}

impl Index {
    pub fn new(key: &str) -> Self {
        Self {
            key: key.into(),
            values: HashMap::new(),
        }
    }

    /// Each value once, sorted.
    fn keys<T: Element>(&self, item: &T) -> Vec<IndexKey> {
        let mut keys = Vec::new();
        item.visit(&self.key, &mut |value| {
            value.each(&mut |value| {
                keys.extend(IndexKey::of(value));
                false
            })
        });
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    /// Notes that `slot` changed from `old` to `new` with the event `seq`.
    pub fn change<T: Element>(&mut self, slot: u32, old: Option<&T>, new: Option<&T>, seq: u64) {
        let before = old.map_or(Vec::new(), |item| self.keys(item));
        let after = new.map_or(Vec::new(), |item| self.keys(item));
        for gone in before.iter().filter(|key| !after.contains(key)) {
            if let Some(postings) = self.values.get_mut(gone) {
                postings.close(slot, seq);
            }
        }
        for come in after.into_iter().filter(|key| !before.contains(key)) {
            self.values.entry(come).or_default().open(slot, seq);
        }
    }

    /// Forgets what ended up to `floor` of the values of a version that is forgotten.
    pub fn forget<T: Element>(&mut self, item: &T, floor: u64) {
        for key in self.keys(item) {
            if let Some(postings) = self.values.get_mut(&key) {
                postings.forget(floor);
                if postings.is_empty() {
                    self.values.remove(&key);
                }
            }
        }
    }

    /// At most how many elements have `value`.
    pub fn estimate(&self, value: &IndexKey) -> usize {
        self.values.get(value).map_or(0, Postings::len)
    }

    pub fn visit(
        &self,
        value: &IndexKey,
        window: Window,
        from: u32,
        visit: &mut dyn FnMut(u32, Span) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        match self.values.get(value) {
            Some(postings) => postings.visit(window, from, visit),
            None => ControlFlow::Continue(()),
        }
    }

    /// How many values are known.
    pub fn len(&self) -> usize {
        self.values.len()
    }
}
