//! Bounded history of flow records in memory.

use crate::{
    Counters, EndReason, Endpoint, FlowKey, FlowLine, FlowRecord, FlowUpdate, HashKey, Rate,
    Service,
    ends::Ends,
    index::{Index, KeyHash, Slot},
    merge::{Merge, stands_before},
    slab::Slab,
};
use std::{
    borrow::Cow,
    cmp::Ordering,
    collections::{HashMap, VecDeque},
    hash::{BuildHasher as _, RandomState},
    num::NonZeroU32,
    ops::ControlFlow,
};

/// The first drain has none before it: its rates count from the conversation's beginning, but over no
/// less than this, for one packet alone has no rate.
const FIRST_INTERVAL_NS: u64 = 1_000_000_000;

/// With how many updates the owners of a conversation are searched: its sockets may be reported a little
/// later than its first packets, but mostly the other side is on another host for ever.
pub const JOINS: u8 = 3;
/// How far the kernel's time of a packet may lag, nanoseconds: a tick of the slowest clock (HZ=100).
const TICK_NS: u64 = 10_000_000;
/// Records that are kept for a second question about their owners.
const MAX_UNOWNED: usize = 16_384;

/// The owners and the service of a conversation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ownership {
    /// Who owns the sockets of `lo` and `hi`: numbers of the caller's.
    pub owners: [Option<NonZeroU32>; 2],
    /// Which side offers a service.
    pub service: Option<Service>,
}

/// How much a [`FlowStore`] keeps.
#[derive(Clone, Copy, Debug)]
pub struct StoreLimits {
    /// The most records.
    pub records: usize,
    /// The most memory in bytes, index included.
    pub bytes: usize,
}

impl Default for StoreLimits {
    fn default() -> Self {
        Self {
            records: 1_000_000,
            bytes: 256 << 20,
        }
    }
}

impl StoreLimits {
    /// Bytes of index and lists per record at worst: a slot of the hash table with its tag just
    /// after it doubled, the lists of free and ended places at twice their length, marks of endpoints, links of
    /// conversations.
    const BESIDE: usize = 18 + 16 + Ends::BYTES + Merge::BYTES;

    /// The most records within both limits; at least one.
    fn max_records(&self) -> usize {
        let place = size_of::<StoredRecord>() + Self::BESIDE;
        self.records.min(self.bytes / place).max(1)
    }
}

/// Totals of everything that a store was given.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Summary {
    /// Packets and bytes of all updates, of flows outside of tunnels only: what flows inside
    /// tunnels carry is part of their parents.
    pub counted: Counters,
    /// Packets and bytes of flows inside tunnels.
    pub inside_tunnels: Counters,
    /// Packets and bytes of all conversations outside of tunnels, each once however many points have seen it: of each
    /// direction the most that one point counted. None where no conversations are kept.
    pub conversations: Option<Counters>,
    /// Records since the start.
    pub flows: u64,
    /// Records of active conversations now.
    pub active: u64,
    /// Records of ended conversations now.
    pub ended: u64,
    /// Records that left the store for lack of room, with their packets and bytes.
    pub evicted: u64,
    /// Packets and bytes of those.
    pub evicted_counted: Counters,
}

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
    /// Which records; a conversation is merged of those of its points that fit.
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
        Query {
            filter,
            updated_after_ns: self.updated_after_ns,
            active_only: self.active_only,
            view: self.view,
            sort: self.sort,
            limit: self.limit,
        }
    }
}

/// A conversation of an answer.
pub struct Merged<'a> {
    /// The record that stands for it, with what its other points know.
    pub record: Cow<'a, FlowRecord>,
    /// How many points of those that the query asks for have seen it.
    pub points: u32,
}

impl<'a> From<&'a FlowRecord> for Merged<'a> {
    /// What one point knows.
    fn from(record: &'a FlowRecord) -> Self {
        Self {
            record: Cow::Borrowed(record),
            points: 1,
        }
    }
}

/// Where a record was found, to be asked for again when the store was let go of meanwhile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Found {
    place: u32,
    serial: u64,
}

/// Whether no more of a conversation can come after its entry ended like this. A conversation that a full
/// table evicted may continue in the same record. At the end of a capture all entries end, and a
/// conversation that two CPUs saw first at once has two.
fn is_over(end: EndReason) -> bool {
    !matches!(end, EndReason::Evicted | EndReason::Shutdown)
}

/// Whether a record's owners should be searched.
fn wants_owners(record: &FlowRecord) -> bool {
    record.joins < JOINS && record.owners.iter().any(Option::is_none)
}

/// Searches a conversation's owners; known ones that are not found again stay.
fn find_owners(record: &mut FlowRecord, owners: &mut impl FnMut(&FlowRecord) -> Ownership) {
    if !wants_owners(record) {
        return;
    }
    let found = owners(record);
    record.joins += 1;
    for (known, new) in record.owners.iter_mut().zip(found.owners) {
        *known = new.or(*known);
    }
    record.service = match (record.service, found.service) {
        (Some(known), Some(new)) if known.by < new.by => Some(known),
        (known, new) => new.or(known),
    };
}

/// A place for a record.
#[derive(Clone, Copy)]
struct StoredRecord {
    record: FlowRecord,
    used: bool,
    /// In the queue of ended records.
    queued: bool,
}

/// Sums up updates to records and keeps them within limits: active ones and, as long as there is
/// room, ended ones.
pub struct FlowStore {
    places: Slab<StoredRecord>,
    /// Marks of the endpoints in the record of each place.
    ends: Ends,
    /// Which places are of one conversation.
    merge: Merge,
    /// Places of active records by key.
    active: Index,
    /// Places of ended records, oldest first.
    ended: VecDeque<u32>,
    /// Where the search for an active record to evict continues.
    hand: u32,
    secret: HashKey,
    sampling: u32,
    drained_ns: u64,
    /// Time since the drain before, none with the first.
    interval_ns: Option<u64>,
    /// Places of the records that this drain touched, once [`FlowStore::note_touched`] was called; one may
    /// be there twice.
    touched: Option<Vec<u32>>,
    /// Places of the records whose owners are searched once more with the next drain.
    unowned: Vec<u32>,
    /// Records that were touched and removed before they could be reported.
    dropped_unreported: u64,
    /// The serial of the next record that this store makes.
    next_serial: u64,
    /// Places of the records that were made elsewhere, by their serials.
    put: HashMap<u64, u32>,
    summary: Summary,
}

impl FlowStore {
    /// An empty store. `seed` is the seed of the flow table, so that ids agree; `sampling` is 1
    /// when all packets are counted.
    pub fn new(limits: StoreLimits, seed: u64, sampling: u32) -> Self {
        let secret = HashKey::new(seed);
        Self {
            places: Slab::new(
                limits.max_records(),
                StoredRecord {
                    record: FlowRecord::with_secret(&FlowUpdate::default(), &secret, 1, 0, 0),
                    used: false,
                    queued: false,
                },
            ),
            ends: Ends::new(secret),
            merge: Merge::new(secret),
            active: Index::default(),
            ended: VecDeque::new(),
            hand: 0,
            secret,
            sampling,
            drained_ns: 0,
            interval_ns: None,
            touched: None,
            unowned: Vec::new(),
            dropped_unreported: 0,
            // Other in each store, process and host: serials of two that meet at an analyzer, or over a
            // restart in a history, are not the same.
            next_serial: RandomState::new().hash_one(0),
            put: HashMap::new(),
            summary: Summary {
                conversations: Some(Counters::default()),
                ..Summary::default()
            },
        }
    }

    /// Says that the updates that follow are of the drain at `now_ns`: rates count from the drain
    /// before.
    pub fn begin_drain(&mut self, now_ns: u64) {
        if self.drained_ns != 0 {
            self.interval_ns = Some(now_ns.saturating_sub(self.drained_ns));
        }
        self.drained_ns = now_ns;
        if let Some(touched) = &mut self.touched {
            touched.clear();
        }
    }

    /// From now on [`touched`](Self::touched) lists what each drain touches.
    pub fn note_touched(&mut self) {
        self.touched.get_or_insert_default();
    }

    /// Says that a drain is over: [`touched`](Self::touched) has each record once.
    pub fn end_drain(&mut self) {
        if let Some(touched) = &mut self.touched {
            touched.sort_unstable();
            touched.dedup();
        }
    }

    /// The records that the last drain touched; none before [`note_touched`](Self::note_touched).
    pub fn touched(&self) -> impl Iterator<Item = &FlowRecord> {
        let places = self.touched.iter().flatten();
        places.map(|place| &self.places[*place].record)
    }

    /// Records that a drain touched and that had to go for lack of room before its end.
    pub fn dropped_unreported(&self) -> u64 {
        self.dropped_unreported
    }

    /// Adds an update to its record and returns the record. Of two entries with one key, the older
    /// one's updates must come first.
    pub fn apply(&mut self, update: &FlowUpdate) -> &FlowRecord {
        let place = self.sum_up(update);
        &self.places[place].record
    }

    /// As [`apply`](Self::apply), and searches the conversation's owners by `owners`, with its first
    /// [`JOINS`] updates and until both are known.
    pub fn apply_owned(
        &mut self,
        update: &FlowUpdate,
        mut owners: impl FnMut(&FlowRecord) -> Ownership,
    ) -> &FlowRecord {
        let place = self.sum_up(update);
        let record = &mut self.places[place].record;
        find_owners(record, &mut owners);
        // Its socket may have been opened after the last poll of sockets, and no packet need follow.
        if wants_owners(record)
            && record.last_ns.saturating_add(TICK_NS) >= self.drained_ns
            && self.unowned.len() < MAX_UNOWNED
        {
            self.unowned.push(place);
        }
        &self.places[place].record
    }

    /// Searches the owners that were not known when the last drain read its conversations, of those that
    /// had packets after its poll of sockets. Belongs between [`begin_drain`](Self::begin_drain) and the
    /// first update.
    pub fn retry_owners(&mut self, mut owners: impl FnMut(&FlowRecord) -> Ownership) {
        for place in std::mem::take(&mut self.unowned) {
            let record = &mut self.places[place].record;
            let known = record.owners;
            find_owners(record, &mut owners);
            if record.owners != known
                && let Some(touched) = &mut self.touched
            {
                // The previous drain's increase was reported then.
                record.interval.lo_sent = Counters::default();
                record.interval.hi_sent = Counters::default();
                touched.push(place);
            }
        }
    }

    /// Replaces a record by its serial with one that was made elsewhere. One of the same key with another
    /// serial is another conversation between the same ports; the previous one has ended, though no message
    /// said so.
    pub fn put(&mut self, record: FlowRecord) {
        let hash = KeyHash::new(&record.key, &self.secret);
        let over = record.end.is_some_and(is_over);
        let same_key = |place: u32| self.places[place].record.key == record.key;
        let known = self.put.get(&record.serial).copied();
        // Serials come from elsewhere: one that two conversations have is no identity.
        if let Some(place) = known.filter(|place| same_key(*place)) {
            self.places[place].record = record;
            if over {
                self.active.remove(hash, place);
            }
            self.queue_when_ended(place);
            return;
        }
        if !over && let Some(place) = self.active.find(hash, same_key) {
            let before = &mut self.places[place].record;
            before.end = before.end.or(Some(EndReason::Idle));
            self.active.remove(hash, place);
            self.queue_when_ended(place);
        }
        self.summary.flows += 1;
        let new = StoredRecord {
            record,
            used: true,
            queued: false,
        };
        let place = match self.places.insert(new) {
            Some(place) => {
                self.ends.set(place, &record.key);
                self.join(place);
                if !over && let Slot::Free(slot) = self.active.entry(hash, |_| false) {
                    slot.insert(place);
                }
                place
            }
            None => self.replace(new),
        };
        self.put.insert(record.serial, place);
        self.queue_when_ended(place);
    }

    /// Ended records are the first to be dropped when the store is full.
    fn queue_when_ended(&mut self, place: u32) {
        let kept = &mut self.places[place];
        if kept.record.end.is_some() && !std::mem::replace(&mut kept.queued, true) {
            self.ended.push_back(place);
        }
    }

    fn sum_up(&mut self, update: &FlowUpdate) -> u32 {
        let counters = update.lo_sent + update.hi_sent;
        match update.key.tunnel() {
            None => self.summary.counted += counters,
            Some(_) => self.summary.inside_tunnels += counters,
        }
        let now_ns = self.drained_ns;
        let interval_ns = self.interval_ns.unwrap_or_else(|| {
            now_ns
                .saturating_sub(update.first_ns)
                .max(FIRST_INTERVAL_NS)
        });
        let places = &mut self.places;
        let hash = KeyHash::new(&update.key, &self.secret);
        let slot = self
            .active
            .entry(hash, |place| places[place].record.key == update.key);
        let place = match slot {
            Slot::Taken(slot) => {
                let place = slot.get().place;
                let record = &mut places[place].record;
                // Of two entries one may be idle while packets are counted in the other.
                let goes_on =
                    update.end == Some(EndReason::Idle) && record.last_ns > update.last_ns;
                record.apply(update, now_ns, interval_ns);
                if goes_on {
                    record.end = None;
                } else if update.end.is_some_and(is_over) {
                    slot.remove();
                }
                place
            }
            Slot::Free(slot) => {
                self.summary.flows += 1;
                let record = FlowRecord::with_secret(
                    update,
                    &self.secret,
                    self.sampling,
                    now_ns,
                    interval_ns,
                );
                let serial = self.next_serial;
                self.next_serial = serial.wrapping_add(1);
                let new = StoredRecord {
                    record: FlowRecord { serial, ..record },
                    used: true,
                    queued: false,
                };
                match places.insert(new) {
                    Some(place) => {
                        self.ends.set(place, &update.key);
                        if !update.end.is_some_and(is_over) {
                            slot.insert(place);
                        }
                        self.join(place);
                        place
                    }
                    None => self.replace(new),
                }
            }
        };
        self.count_once(place, update);
        self.queue_when_ended(place);
        if let Some(touched) = &mut self.touched {
            touched.push(place);
        }
        place
    }

    fn join(&mut self, place: u32) {
        let places = &self.places;
        self.merge.join(place, |place| &places[place].record);
    }

    /// Adds to the sum of conversations what an update adds to the most that one point counted.
    fn count_once(&mut self, place: u32, update: &FlowUpdate) {
        if update.key.tunnel().is_some() {
            return;
        }
        let own = &self.places[place].record;
        let mut others = [Counters::default(); 2];
        for other in self.merge.others(place) {
            let record = &self.places[other].record;
            if record.key.tunnel().is_none() {
                others[0].raise(record.lo_sent);
                others[1].raise(record.hi_sent);
            }
        }
        for (own, (others, new)) in [
            (own.lo_sent, (others[0], update.lo_sent)),
            (own.hi_sent, (others[1], update.hi_sent)),
        ] {
            let beyond = |own: u64, others: u64, new: u64| own.saturating_sub(others).min(new);
            *self.summary.conversations.get_or_insert_default() += Counters {
                packets: beyond(own.packets, others.packets, new.packets),
                bytes: beyond(own.bytes, others.bytes, new.bytes),
            };
        }
    }

    /// Puts a new record into the full store.
    fn replace(&mut self, new: StoredRecord) -> u32 {
        let place = self.evict();
        self.places[place] = new;
        self.ends.set(place, &new.record.key);
        self.join(place);
        if !new.record.end.is_some_and(is_over) {
            let hash = KeyHash::new(&new.record.key, &self.secret);
            let slot = self.active.entry(hash, |_| false);
            if let Slot::Free(slot) = slot {
                slot.insert(place);
            }
        }
        place
    }

    /// Removes a record from the full store and returns its place: the one that ended first, or when all
    /// are active one that this drain did not touch, if such a one is near.
    fn evict(&mut self) -> u32 {
        const SEARCH: u32 = 64;
        let place = match self.next_ended() {
            Some(place) => place,
            None => {
                let from = self.hand;
                let len = self.places.end();
                let quiet = (0..SEARCH)
                    .map(|step| (from + step) % len)
                    .find(|place| self.places[*place].record.updated_ns < self.drained_ns);
                let place = quiet.unwrap_or(from % len);
                self.hand = (place + 1) % len;
                let hash = KeyHash::new(&self.places[place].record.key, &self.secret);
                self.active.remove(hash, place);
                place
            }
        };
        if self.touched.is_some() && self.places[place].record.updated_ns == self.drained_ns {
            self.dropped_unreported += 1;
        }
        if !self.put.is_empty() {
            self.put.remove(&self.places[place].record.serial);
        }
        let places = &self.places;
        self.merge.leave(place, |place| &places[place].record);
        self.summary.evicted += 1;
        self.summary.evicted_counted += self.places[place].record.total();
        place
    }

    /// The record that ended first, out of the queue and out of the index.
    fn next_ended(&mut self) -> Option<u32> {
        while let Some(place) = self.ended.pop_front() {
            self.places[place].queued = false;
            let FlowRecord { key, end, .. } = self.places[place].record;
            match end {
                // It continued after it had left the flow table.
                None => {}
                Some(end) => {
                    if !is_over(end) {
                        self.active.remove(KeyHash::new(&key, &self.secret), place);
                    }
                    return Some(place);
                }
            }
        }
        None
    }

    /// The active record of a conversation.
    pub fn get(&self, key: &FlowKey) -> Option<&FlowRecord> {
        let equal = |place| self.places[place].record.key == *key;
        let place = self.active.find(KeyHash::new(key, &self.secret), equal)?;
        Some(&self.places[place].record)
    }

    /// All records, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &FlowRecord> {
        self.places.iter().filter(|p| p.used).map(|p| &p.record)
    }

    /// Visits the records in the places from `from` on, at most so many places, until `visit` breaks;
    /// returns where to continue, none after the last. For callers that must not lock the store for long: a
    /// record that changes its place meanwhile may be met twice or not at all, others are met once.
    pub fn scan(
        &self,
        from: u32,
        places: u32,
        visit: &mut dyn FnMut(&FlowRecord) -> ControlFlow<()>,
    ) -> Option<u32> {
        let to = from.saturating_add(places).min(self.places.end());
        for place in from..to {
            let place = &self.places[place];
            if place.used && visit(&place.record).is_break() {
                return None;
            }
        }
        (to < self.places.end()).then_some(to)
    }

    /// As [`scan`](Self::scan), of the records that have an endpoint on one of their sides, and few others. ICMP
    /// has its type and code where others have ports.
    pub fn scan_endpoint(
        &self,
        from: u32,
        places: u32,
        endpoint: Endpoint,
        visit: &mut dyn FnMut(&FlowRecord) -> ControlFlow<()>,
    ) -> Option<u32> {
        let to = from.saturating_add(places).min(self.places.end());
        let found = self.ends.find(from..to, endpoint, &mut |place| {
            let place = &self.places[place];
            if place.used {
                visit(&place.record)?;
            }
            ControlFlow::Continue(())
        });
        (found.is_continue() && to < self.places.end()).then_some(to)
    }

    /// Time of the last drain, ns since the Unix epoch; 0 before the first.
    pub fn drained_ns(&self) -> u64 {
        self.drained_ns
    }

    /// The conversations that a query asks for, in its order.
    pub fn query<F: Fn(&FlowRecord) -> bool>(&self, query: &Query<F>) -> Vec<Merged<'_>> {
        let (found, _) = self.find(query);
        let found = found.into_iter().filter_map(|at| self.at(at, query));
        found.collect()
    }

    /// Where the conversations are that a query asks for, 16 bytes for each, and how many there are, those beyond its
    /// limit included.
    pub fn find<F: Fn(&FlowRecord) -> bool>(&self, query: &Query<F>) -> (Vec<Found>, usize) {
        let mut found: Vec<Found> = (0..self.places.end())
            .filter(|place| self.merged(*place, query).is_some())
            .map(|place| Found {
                place,
                serial: self.places[place].record.serial,
            })
            .collect();
        let all = found.len();
        let record = |found: &Found| self.merge(found.place, query).record;
        let order = |a: &Found, b: &Found| self.order(query.sort, &record(b), &record(a));
        if query.limit < all {
            // Only what is shown has to be sorted.
            found.select_nth_unstable_by(query.limit, order);
            found.truncate(query.limit);
        }
        found.sort_unstable_by(order);
        (found, all)
    }

    /// A conversation that was found before, as it is now; none when it has gone.
    pub fn at<F: Fn(&FlowRecord) -> bool>(
        &self,
        found: Found,
        query: &Query<F>,
    ) -> Option<Merged<'_>> {
        let place = &self.places[found.place];
        (place.used && place.record.serial == found.serial).then(|| self.merge(found.place, query))
    }

    /// All conversations that a query asks for, in no order.
    pub fn conversations<F: Fn(&FlowRecord) -> bool>(
        &self,
        query: &Query<F>,
    ) -> impl Iterator<Item = Merged<'_>> {
        (0..self.places.end()).filter_map(|place| self.merged(place, query))
    }

    /// The conversation for which the record at a place stands, if a query asks for it.
    fn merged<F: Fn(&FlowRecord) -> bool>(
        &self,
        place: u32,
        query: &Query<F>,
    ) -> Option<Merged<'_>> {
        let StoredRecord { record, used, .. } = &self.places[place];
        if !used || !(query.filter)(record) {
            return None;
        }
        let stands_before = |other: u32| {
            let other = &self.places[other].record;
            stands_before(other, record) && (query.filter)(other)
        };
        if query.view == View::Conversations && self.merge.others(place).any(stands_before) {
            return None;
        }
        let merged = self.merge(place, query);
        let wanted = merged.record.updated_ns > query.updated_after_ns
            && !(query.active_only && merged.record.end.is_some());
        wanted.then_some(merged)
    }

    /// The record at a place with what the conversation's other points know, as far as a query asks for them.
    fn merge<F: Fn(&FlowRecord) -> bool>(&self, place: u32, query: &Query<F>) -> Merged<'_> {
        let mut merged = Merged::from(&self.places[place].record);
        if query.view == View::Conversations {
            for other in self.merge.others(place) {
                let record = &self.places[other].record;
                if (query.filter)(record) {
                    merged.record.to_mut().merge(record);
                    merged.points += 1;
                }
            }
        }
        merged
    }

    fn order(&self, sort: SortBy, a: &FlowRecord, b: &FlowRecord) -> Ordering {
        let rate = |r| self.rate(r).bits_per_second;
        match sort {
            SortBy::Rate => rate(a).total_cmp(&rate(b)),
            SortBy::Bytes => a.total().bytes.cmp(&b.total().bytes),
            SortBy::Packets => a.total().packets.cmp(&b.total().packets),
            SortBy::Last => a.last_ns.cmp(&b.last_ns),
            SortBy::First => a.first_ns.cmp(&b.first_ns),
        }
        // Equal ones keep their order from query to query.
        .then_with(|| (b.first_ns, b.id).cmp(&(a.first_ns, a.id)))
    }

    /// The rate of a record over the last interval: nothing when the last drain did not touch it.
    pub fn rate(&self, record: &FlowRecord) -> Rate {
        if record.updated_ns == self.drained_ns {
            record.interval.rate()
        } else {
            Rate::default()
        }
    }

    /// A conversation with its current rate and its interface's name, ready to be written.
    pub fn line<'a>(&self, merged: &'a Merged<'_>, interface: &'a str) -> FlowLine<'a> {
        FlowLine {
            rate: self.rate(&merged.record),
            points: merged.points,
            ..merged.record.line(interface)
        }
    }

    /// Totals since the start and how much is kept now.
    pub fn summary(&self) -> Summary {
        let (mut resting, mut gone_on) = (0, 0);
        for place in &self.ended {
            match self.places[*place].record.end {
                None => gone_on += 1,
                Some(end) => resting += u64::from(!is_over(end)),
            }
        }
        Summary {
            // Active ones are in the index and in the queue.
            active: self.active.len() as u64 - resting,
            ended: self.ended.len() as u64 - gone_on,
            ..self.summary
        }
    }
}
