//! When sockets with the same endpoints were there: ports are used again, and what is seen of a
//! conversation belongs to the socket that was there at that time.

use std::{cmp::Ordering, time::Duration};

/// How much later than its timestamp a packet may have come, ns: the kernel's coarse clock ticks every 10
/// ms at the slowest (HZ=100), and the wall clock's offset is held to a millisecond.
pub(crate) const LATE_NS: u64 = 11_000_000;
/// Most lives before the requested time that are searched: sockets with the same endpoints follow one
/// another, so only those of both ends in several namespaces may exist at the same time.
const MOST: usize = 64;

/// The time from the first packet of a conversation to the last, or from the begin of a socket to its end
/// or the last poll that saw it; ns since the Unix epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// First packet; 0 when it began before the probe.
    pub first_ns: u64,
    /// Last packet so far.
    pub last_ns: u64,
}

impl Span {
    /// Time before a moment.
    pub fn before(ns: u64, time: Duration) -> Self {
        Self {
            first_ns: ns.saturating_sub(time.as_nanos() as u64),
            last_ns: ns,
        }
    }

    /// Whether something was there for a part of this time; `late_ns`: that much later packets may have come.
    fn meets(self, life: Self, late_ns: u64) -> bool {
        life.first_ns <= self.last_ns.saturating_add(late_ns) && life.last_ns >= self.first_ns
    }
}

/// What has a life and an owner.
pub(crate) trait Lived {
    /// Distinguishes it from others with the same endpoints.
    fn id(&self) -> u64;
    /// When it existed.
    fn life(&self) -> Span;
    /// Whether it does not matter which of both it is.
    fn is_alike(&self, other: &Self) -> bool;
}

/// What was found for a time.
pub(crate) enum Found<'a, T> {
    /// Nothing was there.
    Nothing,
    /// This one was there.
    One(&'a T),
    /// More than one may have been meant, this one among them.
    Several(&'a T),
}

// Not derived: T need not be Copy.
impl<T> Clone for Found<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Found<'_, T> {}

impl<'a, T> Found<'a, T> {
    pub fn one(self) -> Option<&'a T> {
        match self {
            Self::One(one) => Some(one),
            Self::Nothing | Self::Several(_) => None,
        }
    }
}

/// The one that was there in a time. Of several that fit, one that fits exactly is taken before those that
/// fit only because times are not exact; when that leaves several that differ, it is not known which is meant.
pub(crate) fn choose<'a, T: Lived>(
    all: impl Iterator<Item = &'a T> + Clone,
    span: Span,
) -> Found<'a, T> {
    let only = |late_ns| {
        let mut found = Found::Nothing;
        for one in all.clone().filter(|one| span.meets(one.life(), late_ns)) {
            found = match found {
                Found::Nothing => Found::One(one),
                Found::One(other) if other.is_alike(one) => Found::One(other),
                _ => return Found::Several(one),
            };
        }
        found
    };
    match only(LATE_NS) {
        several @ Found::Several(_) => match only(0) {
            Found::Nothing => several,
            exact => exact,
        },
        found => found,
    }
}

/// The sockets that have had the same endpoints, by their begin.
pub(crate) struct Lives<T>(Vec<T>);

impl<T: Lived> Lives<T> {
    pub fn new(first: T) -> Self {
        Self(vec![first])
    }

    fn order(one: &T, first_ns: u64, id: u64) -> Ordering {
        (one.life().first_ns, one.id()).cmp(&(first_ns, id))
    }

    /// Takes one, or what has changed of it; says whether it is new.
    pub fn put(&mut self, new: T, same: impl Fn(&T) -> bool) -> bool {
        let (first_ns, id) = (new.life().first_ns, new.id());
        let at = self
            .0
            .partition_point(|one| Self::order(one, first_ns, id).is_lt());
        // Mostly it is where its begin says. What began before we did has another begin when that is learnt.
        let known = self.0[at..]
            .iter()
            .take_while(|one| Self::order(one, first_ns, id).is_eq())
            .position(&same)
            .map(|after| at + after)
            .or_else(|| {
                let unknown = self.0.iter().take_while(|one| one.life().first_ns == 0);
                unknown
                    .take(MOST)
                    .position(|one| one.id() == id && same(one))
            });
        match known {
            Some(known) if known == at || self.0[known].life().first_ns == first_ns => {
                self.0[known] = new;
                false
            }
            Some(known) => {
                self.0.remove(known);
                self.0.insert(at - usize::from(known < at), new);
                false
            }
            None => {
                self.0.insert(at, new);
                true
            }
        }
    }

    /// Those that may have been there in a time.
    pub fn near(&self, span: Span) -> impl Iterator<Item = &T> + Clone {
        let latest = span.last_ns.saturating_add(LATE_NS);
        let end = self.0.partition_point(|one| one.life().first_ns <= latest);
        let begin = end.saturating_sub(MOST);
        let unknown = self.0[..begin]
            .iter()
            .take_while(|one| one.life().first_ns == 0);
        unknown.take(MOST).chain(&self.0[begin..end])
    }

    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter()
    }

    pub fn retain(&mut self, stays: impl Fn(&T) -> bool) {
        self.0.retain(stays);
        if self.0.capacity() > 4 * self.0.len().max(1) {
            self.0.shrink_to_fit();
        }
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn capacity(&self) -> usize {
        self.0.capacity()
    }
}
