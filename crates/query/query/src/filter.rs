//! Predicates on values under keys.

use crate::record::{Leaf, Record};
use ipnet::IpNet;
use regex::Regex;
use skua_topology::{IndexKey, Value};
use std::{
    cmp::Ordering,
    fmt::{self, Display, Formatter, Write},
    net::IpAddr,
    sync::Arc,
};

/// A number as it was written.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Number {
    /// Integer.
    Int(i64),
    /// With a fraction.
    Float(f64),
}

impl Number {
    fn compare(self, leaf: Leaf<'_>) -> Option<Ordering> {
        let found = match leaf {
            Leaf::Int(number) => Self::Int(number),
            Leaf::Float(float) => Self::Float(float),
            Leaf::Str(text) => Self::Int(IndexKey::whole(text)?),
            _ => return None,
        };
        match (found, self) {
            (Self::Int(found), Self::Int(own)) => Some(found.cmp(&own)),
            (found, own) => found.float().partial_cmp(&own.float()),
        }
    }

    fn float(self) -> f64 {
        match self {
            Self::Int(number) => number as f64,
            Self::Float(float) => float,
        }
    }
}

impl Display for Number {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(number) => number.fmt(f),
            Self::Float(float) => float.fmt(f),
        }
    }
}

/// A value to compare with, in all forms of records and indexes.
#[derive(Clone, PartialEq, Debug)]
pub struct Literal {
    /// As it was written.
    pub value: Value,
    /// The form of indexes.
    pub key: IndexKey,
    ip: Option<IpAddr>,
    mac: Option<[u8; 6]>,
}

impl Literal {
    /// Of a plain value, none for others.
    pub fn new(value: Value) -> Option<Self> {
        let key = IndexKey::of(&value)?;
        let text = value.as_str().unwrap_or("");
        Some(Self {
            key,
            ip: text.parse().ok(),
            mac: mac(text),
            value,
        })
    }

    fn equals(&self, leaf: Leaf<'_>) -> bool {
        match leaf {
            Leaf::Null => false,
            Leaf::Bool(truth) => self.key == IndexKey::Bool(truth),
            Leaf::Int(number) => self.key == IndexKey::Int(number),
            Leaf::Float(float) => IndexKey::of(&Value::Float(float)).as_ref() == Some(&self.key),
            Leaf::Ip(ip) => self.ip == Some(ip),
            Leaf::Mac(mac) => self.mac == Some(mac),
            Leaf::Str(text) => match &self.key {
                IndexKey::Str(own) => **own == *text,
                IndexKey::Int(number) => IndexKey::whole(text) == Some(*number),
                _ => false,
            },
        }
    }
}

fn mac(text: &str) -> Option<[u8; 6]> {
    let mut bytes = [0; 6];
    let mut parts = text.split(':');
    for byte in &mut bytes {
        let part = parts.next().filter(|part| part.len() == 2)?;
        *byte = u8::from_str_radix(part, 16).ok()?;
    }
    parts.next().is_none().then_some(bytes)
}

impl Display for Literal {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.value {
            Value::Str(text) => crate::syntax::quoted(text, f),
            Value::Bool(true) => f.write_str("TRUE"),
            Value::Bool(false) => f.write_str("FALSE"),
            Value::Int(number) => number.fmt(f),
            Value::Float(float) => float.fmt(f),
            _ => Ok(()),
        }
    }
}

/// What a value must be.
#[derive(Clone, Debug)]
pub enum Test {
    /// The key exists.
    Exists,
    /// The key is not there.
    Absent,
    /// A value is this one.
    Equal(Literal),
    /// The key exists and no value equals this one.
    Ne(Literal),
    /// No value is this one.
    Nee(Literal),
    /// A value compares so.
    Compare(&'static str, fn(Ordering) -> bool, Number),
    /// A value lies between two numbers: that it may equal the first, name.
    Between(Number, Number, bool),
    /// A value lies outside of two numbers.
    Outside(Number, Number),
    /// A value is one of these.
    Within(Vec<Literal>),
    /// No value is one of these.
    Without(Vec<Literal>),
    /// A value matches.
    Regex(Arc<Regex>, String),
    /// A value is an address in the network.
    Net(IpNet),
}

impl Test {
    fn holds(&self, record: &dyn Record, key: &str) -> bool {
        let one_of = |list: &[Literal]| {
            record.leaves(key, &mut |leaf| {
                list.iter().any(|literal| literal.equals(leaf))
            })
        };
        let equals = |literal: &Literal| record.leaves(key, &mut |leaf| literal.equals(leaf));
        match self {
            Self::Exists => record.has(key),
            Self::Absent => !record.has(key),
            Self::Equal(literal) => equals(literal),
            Self::Ne(literal) => record.has(key) && !equals(literal),
            Self::Nee(literal) => !equals(literal),
            Self::Compare(_, fits, number) => {
                record.leaves(key, &mut |leaf| number.compare(leaf).is_some_and(fits))
            }
            Self::Between(low, high, closed) => record.leaves(key, &mut |leaf| {
                let above = low.compare(leaf).is_some_and(|order| match closed {
                    true => order.is_ge(),
                    false => order.is_gt(),
                });
                above && high.compare(leaf).is_some_and(Ordering::is_lt)
            }),
            Self::Outside(low, high) => record.leaves(key, &mut |leaf| {
                low.compare(leaf).is_some_and(Ordering::is_lt)
                    || high.compare(leaf).is_some_and(Ordering::is_gt)
            }),
            Self::Within(list) => one_of(list),
            Self::Without(list) => !one_of(list),
            Self::Regex(regex, _) => record.leaves(key, &mut |leaf| {
                leaf.text().is_some_and(|text| regex.is_match(&text))
            }),
            Self::Net(net) => record.leaves(key, &mut |leaf| match leaf {
                Leaf::Ip(ip) => net.contains(&ip),
                Leaf::Str(text) => address(text).is_some_and(|ip| net.contains(&ip)),
                _ => false,
            }),
        }
    }

    /// Whether it is a negative test: of two sides, both must match.
    fn is_negative(&self) -> bool {
        matches!(
            self,
            Self::Absent | Self::Ne(_) | Self::Nee(_) | Self::Without(_)
        )
    }
}

/// The address in `10.0.0.1` or `10.0.0.1/24`.
pub(crate) fn address(text: &str) -> Option<IpAddr> {
    text.split_once('/')
        .map_or(text, |(address, _)| address)
        .parse()
        .ok()
}

impl Display for Test {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let list = |f: &mut Formatter<'_>, list: &[Literal]| {
            for (at, literal) in list.iter().enumerate() {
                write!(f, "{}{literal}", if at > 0 { ", " } else { "" })?;
            }
            Ok(())
        };
        match self {
            Self::Exists => f.write_str("exists"),
            Self::Absent => f.write_str("is absent"),
            Self::Equal(literal) => write!(f, "= {literal}"),
            Self::Ne(literal) => write!(f, "exists and is not {literal}"),
            Self::Nee(literal) => write!(f, "is not {literal}"),
            Self::Compare(sign, _, number) => write!(f, "{sign} {number}"),
            Self::Between(low, high, closed) => {
                write!(f, "in {}{low}, {high})", if *closed { '[' } else { '(' })
            }
            Self::Outside(low, high) => write!(f, "outside [{low}, {high}]"),
            Self::Within(literals) => {
                f.write_str("one of ")?;
                list(f, literals)
            }
            Self::Without(literals) => {
                f.write_str("none of ")?;
                list(f, literals)
            }
            Self::Regex(_, pattern) => write!(f, "matches {pattern:?}"),
            Self::Net(net) => write!(f, "in {net}"),
        }
    }
}

/// A test of one or several keys.
#[derive(Clone, Debug)]
pub struct Term {
    /// As it was written.
    pub key: Arc<str>,
    /// The keys of both sides, when the key names a pair.
    pub sides: Option<[Arc<str>; 2]>,
    /// What its value must be.
    pub test: Test,
}

impl Term {
    /// A test of one key.
    pub fn new(key: &str, test: Test) -> Self {
        Self {
            key: key.into(),
            sides: None,
            test,
        }
    }

    /// The keys that are tested.
    pub fn keys(&self) -> &[Arc<str>] {
        match &self.sides {
            Some(sides) => sides,
            None => std::slice::from_ref(&self.key),
        }
    }

    fn holds(&self, record: &dyn Record) -> bool {
        match &self.sides {
            None => self.test.holds(record, &self.key),
            Some([a, b]) if self.test.is_negative() => {
                self.test.holds(record, a) && self.test.holds(record, b)
            }
            Some([a, b]) => self.test.holds(record, a) || self.test.holds(record, b),
        }
    }
}

/// Several terms.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Whether one match is enough.
    pub any: bool,
    /// Without terms everything passes.
    pub terms: Vec<Term>,
}

impl Filter {
    /// Whether `record` passes.
    pub fn holds(&self, record: &dyn Record) -> bool {
        if self.any && !self.terms.is_empty() {
            self.terms.iter().any(|term| term.holds(record))
        } else {
            self.terms.iter().all(|term| term.holds(record))
        }
    }

    /// The value that a key must have, if it must have just one text.
    pub fn fixed(&self, key: &str) -> Option<&str> {
        if self.any && self.terms.len() > 1 {
            return None;
        }
        self.terms.iter().find_map(|term| match &term.test {
            Test::Equal(literal) if *term.key == *key => literal.value.as_str(),
            _ => None,
        })
    }
}

impl Display for Filter {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (at, Term { key, test, sides }) in self.terms.iter().enumerate() {
            let joint = match (at, self.any) {
                (0, _) => "",
                (_, true) => " or ",
                (_, false) => " and ",
            };
            f.write_str(joint)?;
            f.write_str(key)?;
            if sides.is_some() {
                f.write_str(".A/.B")?;
            }
            f.write_char(' ')?;
            test.fmt(f)?;
        }
        Ok(())
    }
}
