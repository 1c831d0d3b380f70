//! What is asked of a store: which conversations, in which order, and how their points are merged.

use crate::{FlowRecord, Rates, merge::stands_before};
use std::cmp::Reverse;

/// Order of query results; the greatest first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SortBy {
    /// Current bits per second.
    #[default]
    Rate,
    /// Bytes in both directions.
    Bytes,
    /// Packets in both directions.
    Packets,
    /// Time of the last packet.
    Last,
    /// Time of the first packet.
    First,
    /// Bytes sent by the side that offers the service, else by the one that spoke first.
    Sent,
    /// Bytes received by that side.
    Received,
    /// Conversations that began.
    Begun,
    /// Conversations that ended.
    Ended,
    /// Retransmitted TCP segments.
    Retransmitted,
    /// Time of TCP's handshake.
    Rtt,
}

impl SortBy {
    /// All with their names.
    pub const ALL: [(&'static str, Self); 11] = [
        ("rate", Self::Rate),
        ("bytes", Self::Bytes),
        ("packets", Self::Packets),
        ("last", Self::Last),
        ("start", Self::First),
        ("sent", Self::Sent),
        ("received", Self::Received),
        ("begun", Self::Begun),
        ("ended", Self::Ended),
        ("retransmits", Self::Retransmitted),
        ("rtt", Self::Rtt),
    ];

    /// The order with a name.
    pub fn named(name: &str) -> Option<Self> {
        let found = Self::ALL.iter().find(|(known, _)| *known == name);
        found.map(|(_, sort)| *sort)
    }

    /// What records are ordered by, as a number.
    fn rank(self, record: &FlowRecord, rates: &dyn Fn() -> Rates) -> u64 {
        match self {
            // Bits of floats that are not negative are in their order.
            Self::Rate => rates().total().bits_per_second.to_bits(),
            Self::Bytes => record.total().bytes,
            Self::Packets => record.total().packets,
            Self::Last => record.last_ns,
            Self::First => record.first_ns,
            Self::Sent => record.sent_by_service()[0].bytes,
            Self::Received => record.sent_by_service()[1].bytes,
            Self::Begun => 1,
            Self::Ended => u64::from(record.end.is_some()),
            Self::Retransmitted => record.retransmitted(),
            Self::Rtt => record.handshake_rtt_ns().unwrap_or(0),
        }
    }
}

/// What the records of an answer are of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum View {
    /// Each conversation once, however many points have seen it.
    #[default]
    Conversations,
    /// Each conversation at each point that has seen it.
    Points,
}

/// What to take out of a store.
#[derive(Clone, Copy)]
pub struct Query<F> {
    /// Which records; a conversation is merged of those of its points that match.
    pub filter: F,
    /// Only what a drain has changed after this moment, ns since the Unix epoch; 0 for all.
    pub updated_after_ns: u64,
    /// Only what has not ended.
    pub active_only: bool,
    /// What an answer's records are of.
    pub view: View,
    /// Order.
    pub sort: SortBy,
    /// The most records.
    pub limit: usize,
}

impl Query<fn(&FlowRecord) -> bool> {
    /// All conversations, those with the highest rate first.
    pub fn all() -> Self {
        Self {
            filter: |_| true,
            updated_after_ns: 0,
            active_only: false,
            view: View::default(),
            sort: SortBy::default(),
            limit: usize::MAX,
        }
    }
}

impl<F> Query<F> {
    /// The same with another filter.
    pub fn with_filter<G: Fn(&FlowRecord) -> bool>(self, filter: G) -> Query<G> {
        self.having(filter)
    }

    /// A query for the same with another filter.
    pub fn having<G>(&self, filter: G) -> Query<G> {
        Query {
            filter,
            updated_after_ns: self.updated_after_ns,
            active_only: self.active_only,
            view: self.view,
            sort: self.sort,
            limit: self.limit,
        }
    }

    /// Merges those records of one conversation that match, with where they are in it; none when the query does not ask
    /// for it. Returns which of them stands for it, too.
    pub fn merge_matching<'a>(
        &self,
        matching: impl Iterator<Item = (usize, &'a FlowRecord)> + Clone,
    ) -> Option<(usize, Merged)> {
        let first = matching.clone().reduce(|best, other| {
            if stands_before(other.1, best.1) {
                other
            } else {
                best
            }
        });
        let (at, first) = first?;
        let mut merged = Merged::from(first);
        for (_, record) in matching.filter(|(other, _)| *other != at) {
            merged.record.merge(record);
            merged.points += 1;
        }
        self.wants(&merged.record).then_some((at, merged))
    }

    /// Whether it asks for a conversation that matches.
    fn wants(&self, merged: &FlowRecord) -> bool {
        // Files without times have drains at 0.
        let after = self.updated_after_ns;
        (after == 0 || merged.updated_ns > after) && !(self.active_only && merged.end.is_some())
    }
}

impl<F: Fn(&FlowRecord) -> bool> Query<F> {
    /// Merges the records of one conversation, as far as they match; none when the query does not ask for it. Returns
    /// which of them stands for it, too.
    pub fn merge<'a>(
        &self,
        records: impl Iterator<Item = &'a FlowRecord> + Clone,
    ) -> Option<(usize, Merged)> {
        self.merge_matching(
            records
                .enumerate()
                .filter(|(_, record)| (self.filter)(record)),
        )
    }
}

/// A conversation of an answer.
pub struct Merged {
    /// The record that stands for it, with what its other points know.
    pub record: FlowRecord,
    /// How many points of those that match have seen it.
    pub points: u32,
    /// What both sides send; who merges knows it.
    pub rates: Rates,
}

impl From<&FlowRecord> for Merged {
    /// What one point knows.
    fn from(record: &FlowRecord) -> Self {
        Self {
            record: *record,
            points: 1,
            rates: record.interval.rates(),
        }
    }
}

/// Where a record was found, to be asked for again after the store was unlocked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Found {
    pub(crate) place: u32,
    pub(crate) serial: u64,
}

/// What was found so far: of each conversation only where it is and what it is ordered by, and hardly more than the
/// limit.
pub struct Finding {
    sort: SortBy,
    limit: usize,
    found: Vec<Ranked>,
    all: usize,
}

/// Equal ones keep their order from query to query.
struct Ranked {
    order: (Reverse<u64>, u64, u64),
    found: Found,
}

impl Finding {
    /// Nothing found yet; at most `limit` conversations are wanted.
    pub fn new(sort: SortBy, limit: usize) -> Self {
        Self {
            sort,
            limit,
            found: Vec::new(),
            all: 0,
        }
    }

    /// Adds the conversation of these records, if a query asks for it and it is wanted when they are merged.
    pub fn add_wanted<'a, F: Fn(&FlowRecord) -> bool>(
        &mut self,
        query: &Query<F>,
        mut points: impl Iterator<Item = (Found, &'a FlowRecord)> + Clone,
        wanted: impl Fn(&FlowRecord, &dyn Fn() -> Rates) -> bool,
        rates: impl Fn(Found) -> Rates,
    ) {
        let mut others = points.clone();
        if let (Some((found, record)), None) = (others.next(), others.next()) {
            // Most conversations have one point, and a record is larger than what is asked of it.
            let rates = || rates(found);
            if (query.filter)(record) && query.wants(record) && wanted(record, &rates) {
                self.add(found, record, &rates);
            }
            return;
        }
        let records = points.clone().map(|(_, record)| record);
        let matching = points.clone().filter(|(_, record)| (query.filter)(record));
        let all = || {
            matching
                .clone()
                .fold(Rates::default(), |mut all, (found, _)| {
                    all.raise(rates(found));
                    all
                })
        };
        if let Some((at, merged)) = query.merge(records)
            && wanted(&merged.record, &all)
            && let Some((found, _)) = points.nth(at)
        {
            self.add(found, &merged.record, &all);
        }
    }

    /// Adds a record with its rates.
    pub fn add(&mut self, found: Found, record: &FlowRecord, rates: &dyn Fn() -> Rates) {
        const SLACK: usize = 1_024;
        let rank = self.sort.rank(record, rates);
        self.all += 1;
        self.found.push(Ranked {
            order: (Reverse(rank), record.first_ns, record.id),
            found,
        });
        if self.found.len() >= self.limit.saturating_mul(2).max(SLACK) {
            self.cut();
        }
    }

    /// Forgets what is beyond the limit.
    fn cut(&mut self) {
        if self.limit < self.found.len() {
            // Only what is shown has to be sorted.
            self.found
                .select_nth_unstable_by_key(self.limit, |ranked| ranked.order);
            self.found.truncate(self.limit);
        }
    }

    /// Where those are that are wanted, in their order, and how many there are with those beyond the limit.
    pub fn sorted(mut self) -> (Vec<Found>, usize) {
        self.cut();
        self.found.sort_unstable_by_key(|ranked| ranked.order);
        let found = self.found.into_iter().map(|ranked| ranked.found);
        (found.collect(), self.all)
    }
}
