//! Moments and spans of the history.

/// The part of the history that is read: the state at a moment, or all that was true at some moment of a
/// span. Moments are numbers of events, so that several changes within a millisecond stay apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Window {
    /// The state after this event is the first that counts.
    pub(crate) lo: u64,
    /// The state after this event is the last that counts.
    pub(crate) hi: u64,
    /// `hi` of the window of which this one is a part: the last event that the reader knows.
    pub(crate) known: u64,
    /// Start, ms since the Unix epoch.
    pub from: i64,
    /// End, ms since the Unix epoch.
    pub to: i64,
    /// Whether the end is now.
    pub live: bool,
}

/// Numbers of the events that began and ended something; `until` is `u64::MAX` while it lasts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Span {
    pub since: u64,
    pub until: u64,
}

impl Span {
    pub const OPEN: u64 = u64::MAX;
}

impl Window {
    /// Whether this is one moment.
    pub fn is_moment(&self) -> bool {
        self.lo == self.hi
    }

    /// The part that both show, none if there is none.
    pub fn overlap(self, other: Self) -> Option<Self> {
        let both = Self {
            lo: self.lo.max(other.lo),
            hi: self.hi.min(other.hi),
            ..self
        };
        (both.lo <= both.hi).then_some(both)
    }

    pub(crate) fn includes(&self, span: Span) -> bool {
        span.since <= self.hi && span.until > self.lo
    }

    /// The part of `self` in which `span` was true.
    pub(crate) fn within(self, span: Span) -> Self {
        Self {
            lo: self.lo.max(span.since),
            hi: self.hi.min(span.until.saturating_sub(1)),
            ..self
        }
    }
}
