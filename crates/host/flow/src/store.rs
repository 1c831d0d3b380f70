//! Bounded history of flow records in memory.

use crate::{
    Counters, EndReason, Endpoint, FlowKey, FlowLine, FlowRecord, FlowUpdate, HashKey, Rate,
    Service,
    ends::Ends,
    index::{Index, KeyHash, Slot},
    merge::{Merge, stands_before},
    once::{Once, OnceTable, Others},
    query::{Finding, Found, Merged, Query, View},
    record::Rates,
    slab::Slab,
    window::{NONE, Windows},
};
use std::{
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
    /// conversations, what was counted lately.
    const BESIDE: usize = 18 + 16 + Ends::BYTES + Merge::BYTES + Windows::BYTES;

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
    /// What was counted of it lately, if anything.
    window: u32,
}

/// Of the records in the queue of ended ones those that have not ended for good.
#[derive(Default)]
struct Revocable {
    /// May go on in the same record.
    resting: u64,
    /// Went on after they had left the flow table.
    gone_on: u64,
}

impl Revocable {
    /// Counts a record once more, or with -1 once less.
    fn count(&mut self, stored: &StoredRecord, by: i64) {
        match stored.record.end {
            _ if !stored.queued => {}
            None => self.gone_on = self.gone_on.wrapping_add_signed(by),
            Some(end) if !is_over(end) => self.resting = self.resting.wrapping_add_signed(by),
            Some(_) => {}
        }
    }
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
    revocable: Revocable,
    /// Where the search for an active record to evict continues.
    hand: u32,
    secret: HashKey,
    sampling: u32,
    drained_ns: u64,
    /// What was counted lately, for rates.
    windows: Windows,
    /// Time since the drain before, none with the first.
    interval_ns: Option<u64>,
    /// Places of the records that this drain touched, once [`FlowStore::note_touched`] was called; one may
    /// be there twice.
    touched: Option<Vec<u32>>,
    /// What this drain adds to conversations, once [`FlowStore::note_touched`] was called.
    once: OnceTable,
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
                    window: NONE,
                },
            ),
            ends: Ends::new(secret),
            merge: Merge::new(secret),
            active: Index::default(),
            ended: VecDeque::new(),
            revocable: Revocable::default(),
            hand: 0,
            secret,
            sampling,
            drained_ns: 0,
            windows: Windows::new(limits.max_records()),
            interval_ns: None,
            touched: None,
            once: OnceTable::default(),
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
        let places = &mut self.places;
        self.windows.begin_drain(now_ns, |place, window| {
            let stored = &mut places[place];
            if stored.window == window {
                stored.window = NONE;
            }
        });
        if let Some(touched) = &mut self.touched {
            touched.clear();
            self.once.clear();
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
            self.once.end(
                self.drained_ns,
                touched,
                |place| &self.places[place].record,
                |place| self.merge.others(place),
                stands_before,
            );
        }
        // Most hosts see most conversations at one point.
        if !self.once.is_empty() {
            for at in 0..self.touched.as_ref().map_or(0, Vec::len) {
                if let Some(place) = self.touched.as_ref().and_then(|all| all.get(at)) {
                    self.complete(*place);
                }
            }
        }
    }

    /// Adds what a changed record knows of the sides of its conversation to the changed one that stands for it, for those
    /// who read only that.
    fn complete(&mut self, place: u32) {
        if self.once.get(place).is_none() {
            return;
        }
        let record = self.places[place].record;
        let best = self.merge.others(place).fold(place, |best, other| {
            let [one, two] = [best, other].map(|place| &self.places[place].record);
            let changed = self.once.get(other).is_some();
            if changed && stands_before(two, one) {
                other
            } else {
                best
            }
        });
        let stands = &mut self.places[best].record;
        for (owner, known) in stands.owners.iter_mut().zip(record.owners) {
            *owner = owner.or(known);
        }
        stands.service = Service::better(stands.service, record.service);
    }

    /// The records that the last drain touched; none before [`note_touched`](Self::note_touched).
    pub fn touched(&self) -> impl Iterator<Item = &FlowRecord> {
        let places = self.touched.iter().flatten();
        places.map(|place| &self.places[*place].record)
    }

    /// The same, each with what the drain added to its conversation.
    pub fn touched_once(&self) -> impl Iterator<Item = (&FlowRecord, Once)> {
        let places = self.touched.iter().flatten();
        places.map(|place| {
            let record = &self.places[*place].record;
            let once = self.once.get(*place).copied();
            let once = once.unwrap_or_else(|| Once::alone(record, self.drained_ns));
            (record, once)
        })
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
            let stored = &mut self.places[place];
            self.revocable.count(stored, -1);
            stored.record = record;
            self.revocable.count(stored, 1);
            if over {
                self.active.remove(hash, place);
            }
            self.queue_when_ended(place);
            return;
        }
        if !over && let Some(place) = self.active.find(hash, same_key) {
            let before = &mut self.places[place];
            self.revocable.count(before, -1);
            before.record.end = before.record.end.or(Some(EndReason::Idle));
            self.revocable.count(before, 1);
            self.active.remove(hash, place);
            self.queue_when_ended(place);
        }
        self.summary.flows += 1;
        let new = StoredRecord {
            record,
            used: true,
            queued: false,
            window: NONE,
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
            self.revocable.count(kept, 1);
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
        let (place, new) = match slot {
            Slot::Taken(slot) => {
                let place = slot.get().place;
                let stored = &mut places[place];
                self.revocable.count(stored, -1);
                let record = &mut stored.record;
                // Of two entries one may be idle while packets are counted in the other.
                let goes_on =
                    update.end == Some(EndReason::Idle) && record.last_ns > update.last_ns;
                record.apply(update, now_ns, interval_ns);
                if goes_on {
                    record.end = None;
                } else if update.end.is_some_and(is_over) {
                    slot.remove();
                }
                self.revocable.count(stored, 1);
                (place, false)
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
                    window: NONE,
                };
                let place = match places.insert(new) {
                    Some(place) => {
                        self.ends.set(place, &update.key);
                        if !update.end.is_some_and(is_over) {
                            slot.insert(place);
                        }
                        self.join(place);
                        place
                    }
                    None => self.replace(new),
                };
                (place, true)
            }
        };
        let stored = &mut self.places[place];
        stored.window = self.windows.add(place, stored.window, update);
        self.count_once(place, update, new);
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

    /// Finds what an update adds to the most that one point of its conversation counted.
    fn count_once(&mut self, place: u32, update: &FlowUpdate, new: bool) {
        let record = &self.places[place].record;
        let mut others = Others::default();
        // What is in a tunnel is in the sum of conversations with the tunnel's own packets.
        let mut outside = Others::default();
        for other in self.merge.others(place) {
            let record = &self.places[other].record;
            others.add(record);
            if record.key.tunnel().is_none() {
                outside.add(record);
            }
        }
        if self.touched.is_some() {
            self.once.note(place, (record, update), &others, new);
        }
        if update.key.tunnel().is_none() {
            let [lo, hi] = outside.added(record, update);
            *self.summary.conversations.get_or_insert_default() += lo + hi;
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
        self.windows.forget(place, self.places[place].window);
        self.summary.evicted += 1;
        self.summary.evicted_counted += self.places[place].record.total();
        place
    }

    /// The record that ended first, out of the queue and out of the index.
    fn next_ended(&mut self) -> Option<u32> {
        while let Some(place) = self.ended.pop_front() {
            self.revocable.count(&self.places[place], -1);
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

    /// The conversations that begin in the places from `from` on, at most so many places: of each the records, with where
    /// they are; by points each record alone.
    pub fn page(
        &self,
        from: u32,
        places: u32,
        view: View,
    ) -> impl Iterator<Item = impl Iterator<Item = (Found, &FlowRecord)> + Clone> {
        let to = from.saturating_add(places).min(self.places.end());
        (from..to).filter_map(move |place| {
            let alone = view == View::Points;
            // A conversation is met at its first place.
            let begins = self.places[place].used
                && (alone || self.merge.others(place).all(|other| place < other));
            begins.then(|| self.points(place, view))
        })
    }

    /// The record at a place and, but by points, those of other points of the same conversation.
    fn points(&self, place: u32, view: View) -> impl Iterator<Item = (Found, &FlowRecord)> + Clone {
        let others = (view == View::Conversations).then(|| self.merge.others(place));
        std::iter::once(place)
            .chain(others.into_iter().flatten())
            .map(|place| {
                let record = &self.places[place].record;
                let serial = record.serial;
                (Found { place, serial }, record)
            })
    }

    /// Where the next page begins, none after the last.
    pub fn after(&self, from: u32, places: u32) -> Option<u32> {
        let to = from.saturating_add(places);
        (to < self.places.end()).then_some(to)
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
        self.after(from, places)
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
    pub fn query<F: Fn(&FlowRecord) -> bool>(&self, query: &Query<F>) -> Vec<Merged> {
        let (found, _) = self.find(query);
        let found = found.into_iter().filter_map(|found| {
            let records = self.at(found, query.view).map(|(_, record)| record);
            let (_, mut merged) = query.merge(records)?;
            merged.rates = Rates::default();
            for (found, record) in self.at(found, query.view) {
                if (query.filter)(record) {
                    merged.rates.raise(self.rates(found));
                }
            }
            Some(merged)
        });
        found.collect()
    }

    /// Where the conversations are that a query asks for, and how many there are, those beyond its limit included.
    pub fn find<F: Fn(&FlowRecord) -> bool>(&self, query: &Query<F>) -> (Vec<Found>, usize) {
        let mut finding = Finding::new(query.sort, query.limit);
        for points in self.page(0, u32::MAX, query.view) {
            finding.add_wanted(query, points, |_, _| true, |found| self.rates(found));
        }
        finding.sorted()
    }

    /// The records of a conversation that was found before, as they are now; none when it was dropped.
    pub fn at(
        &self,
        found: Found,
        view: View,
    ) -> impl Iterator<Item = (Found, &FlowRecord)> + Clone {
        let place = &self.places[found.place];
        let there = place.used && place.record.serial == found.serial;
        let points = there.then(|| self.points(found.place, view));
        points.into_iter().flatten()
    }

    /// What both sides of a record send per second; nothing when it has ended.
    pub fn rates(&self, found: Found) -> Rates {
        let stored = &self.places[found.place];
        if stored.record.end.is_some_and(is_over) {
            return Rates::default();
        }
        self.windows
            .rates(found.place, stored.window, &stored.record)
    }

    /// The rate of the active record of a conversation.
    pub fn rate(&self, record: &FlowRecord) -> Rate {
        let serial = record.serial;
        let equal = |place| self.places[place].record.serial == serial;
        let place = self
            .active
            .find(KeyHash::new(&record.key, &self.secret), equal);
        place.map_or_else(Rate::default, |place| {
            self.rates(Found { place, serial }).total()
        })
    }

    /// A conversation with its current rate and its interface's name, ready to be written.
    pub fn line<'a>(&self, merged: &'a Merged, interface: &'a str) -> FlowLine<'a> {
        FlowLine {
            rate: merged.rates.total(),
            points: merged.points,
            ..merged.record.line(interface)
        }
    }

    /// Totals since the start and how much is kept now.
    pub fn summary(&self) -> Summary {
        Summary {
            // Active ones are in the index and in the queue.
            active: self.active.len() as u64 - self.revocable.resting,
            ended: self.ended.len() as u64 - self.revocable.gone_on,
            ..self.summary
        }
    }
}
