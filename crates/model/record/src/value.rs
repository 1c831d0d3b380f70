//! Values of fields. Nothing is formatted before it is written.

use std::{fmt, net::IpAddr};

use serde::{Serialize, Serializer};

use crate::time::UnixNs;

/// Value of a field; `O` are those that only one kind of record has.
pub enum Value<'a, O> {
    /// The field is left out.
    Absent,
    /// Whole number.
    Integer(u64),
    /// Number.
    Number(f64),
    /// Text, perhaps a name from outside: any characters.
    Text(&'a str),
    /// Number in the place of a name.
    Numeral(u64),
    /// Address.
    Ip(IpAddr),
    /// ns since the Unix epoch.
    Time(u64),
    /// A value of this kind of record alone.
    Other(O),
}

impl<'a, O> Value<'a, O> {
    /// The value of something that may be missing.
    pub fn or_absent<T>(value: Option<T>, some: impl FnOnce(T) -> Self) -> Self {
        value.map_or(Self::Absent, some)
    }

    /// A number whose 0 means that there is none.
    pub fn nonzero(value: u64) -> Self {
        match value {
            0 => Self::Absent,
            value => Self::Integer(value),
        }
    }

    /// A text whose emptiness means that there is none.
    pub fn nonempty(text: &'a str) -> Self {
        match text {
            "" => Self::Absent,
            text => Self::Text(text),
        }
    }

    /// To a thousandth: more digits would only feign precision.
    pub fn rounded(value: f64) -> Self {
        Self::Number((value * 1000.0).round() / 1000.0)
    }

    /// Nothing when `absent`.
    pub fn unless(self, absent: bool) -> Self {
        if absent { Self::Absent } else { self }
    }

    /// Whether the field is left out.
    pub fn is_absent(&self) -> bool {
        matches!(self, Self::Absent)
    }
}

impl<O: fmt::Display> fmt::Display for Value<'_, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent => Ok(()),
            Self::Integer(value) | Self::Numeral(value) => value.fmt(f),
            Self::Number(value) => value.fmt(f),
            Self::Text(value) => f.write_str(value),
            Self::Ip(value) => value.fmt(f),
            Self::Time(value) => UnixNs(*value).fmt(f),
            Self::Other(value) => value.fmt(f),
        }
    }
}

impl<O: fmt::Display + Serialize> Serialize for Value<'_, O> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Absent => serializer.serialize_none(),
            Self::Integer(value) => serializer.serialize_u64(*value),
            Self::Number(value) => serializer.serialize_f64(*value),
            Self::Text(value) => serializer.serialize_str(value),
            Self::Other(value) => value.serialize(serializer),
            shown => serializer.collect_str(shown),
        }
    }
}

/// For records without values of their own.
#[derive(Clone, Copy, Debug)]
pub enum NoOther {}

impl fmt::Display for NoOther {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {}
    }
}

impl Serialize for NoOther {
    fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        match *self {}
    }
}
