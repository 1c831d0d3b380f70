//! A bounded table of conversations that is fed by records of others instead of packets.

use std::{
    collections::{HashMap, hash_map::Entry as Slot},
    sync::Arc,
};

use skua_flow::{
    AddressSet, Ageing, CapturePoint, Cause, Conversation, Counters, Direction, Directions,
    Drained, EndReason, FlowKey, FlowUpdate, Joins, KnownPoints, PointCounters, PointTraffic,
};
use skua_packet::Level;

/// The most capture points with counters of their own.
const MOST_POINTS: usize = 4096;

/// A record: what one or both sides of a conversation sent.
pub(super) struct ConversationRecord<'a> {
    /// Where it was counted.
    pub(super) point: CapturePoint,
    /// Where it is counted if its conversation has an entry there.
    pub(super) joins: Joins<'a>,
    /// The conversation, as of a packet from source to destination.
    pub(super) level: Level,
    /// Ports, or ICMP type and code.
    pub(super) ports: skua_flow::Ports,
    /// Sent by the source, and by the destination.
    pub(super) sent: [Counters; 2],
    /// OR of the TCP flags likewise.
    pub(super) tcp_flags: [u8; 2],
    /// First and last packet, ns since the Unix epoch.
    pub(super) first_ns: u64,
    pub(super) last_ns: u64,
    /// Whether the source opened, if that is known.
    pub(super) source_opened: Option<bool>,
    /// The exporter says that the conversation is over.
    pub(super) ended: bool,
}

impl ConversationRecord<'_> {
    /// Whether `lo` spoke first: the source, unless it was silent.
    fn spoke_first(&self, from_lo: bool) -> bool {
        match self.sent[0].is_zero() && !self.sent[1].is_zero() {
            true => !from_lo,
            false => from_lo,
        }
    }
}

/// What exporters reported of a conversation since the last drain.
struct Entry {
    update: FlowUpdate,
    /// Time of the last report, ns since the Unix epoch by our clock: exporters' times may be long ago.
    heard_ns: u64,
    changed: bool,
    /// Directions in which packets of a side (0 lo, 1 hi) were seen: bit 0 in, 1 out.
    directions: [u8; 2],
    /// Its exporter said that it is over.
    ended: bool,
}

/// The table.
pub(super) struct Conversations {
    entries: HashMap<FlowKey, Entry>,
    most: usize,
    inserted: u64,
    known_points: KnownPoints,
    points: HashMap<CapturePoint, PointCounters>,
    addresses: Option<Arc<AddressSet>>,
}

fn direction_bit(direction: Direction) -> u8 {
    match direction {
        Direction::Ingress => 1,
        Direction::Egress => 2,
    }
}

fn other_direction_bit(bit: u8) -> u8 {
    3 - bit
}

impl Conversations {
    pub(super) fn new(most: usize) -> Self {
        Self {
            entries: HashMap::new(),
            most,
            inserted: 0,
            known_points: KnownPoints::default(),
            points: HashMap::new(),
            addresses: None,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn inserted(&self) -> u64 {
        self.inserted
    }

    pub(super) fn set_addresses(&mut self, set: Arc<AddressSet>) {
        self.addresses = (!set.is_empty()).then_some(set);
    }

    pub(super) fn points(&self) -> impl Iterator<Item = (CapturePoint, &PointCounters)> {
        self.points
            .iter()
            .map(|(point, counters)| (*point, counters))
    }

    /// Counts a record that came at `now_ns`.
    pub(super) fn add(&mut self, record: &ConversationRecord<'_>, now_ns: u64) {
        let all = record.sent[0] + record.sent[1];
        let left_out = self.addresses.as_ref();
        if left_out.is_some_and(|set| set.leaves_out(&record.level)) {
            self.lose(record.point, Cause::AddressSet, all);
            return;
        }
        let (point, Conversation { key, from_lo }) = self.place(record);
        let has_room = self.entries.len() < self.most;
        let entry = match self.entries.entry(key) {
            Slot::Occupied(slot) => slot.into_mut(),
            Slot::Vacant(_) if !has_room => {
                self.lose(record.point, Cause::table_full(key.proto), all);
                return;
            }
            Slot::Vacant(slot) => {
                self.inserted += 1;
                self.known_points.insert(&key);
                slot.insert(Entry::new(key, record.spoke_first(from_lo), record))
            }
        };
        entry.add(record, point.direction, from_lo, now_ns);
    }

    /// Where a record is counted, and its key there.
    fn place(&self, record: &ConversationRecord<'_>) -> (CapturePoint, Conversation) {
        let at = |point| Conversation::new(point, &record.level, &record.ports, [0; 6]);
        let directions = |key: &FlowKey| self.entries.get(key).map(Entry::directions);
        let point = record
            .joins
            .point(record.point, &self.known_points, at, directions);
        (point, at(point))
    }

    /// Counts what is in no conversation.
    pub(super) fn lose(&mut self, point: CapturePoint, cause: Cause, counters: Counters) {
        let full = self.points.len() >= MOST_POINTS && !self.points.contains_key(&point);
        let point = if full { CapturePoint::OTHER } else { point };
        self.points.entry(point).or_default().add(cause, counters);
    }

    /// Yields what changed, and ends what is silent for long.
    pub(super) fn drain(&mut self, ageing: &Ageing, mut sink: impl FnMut(&FlowUpdate)) -> Drained {
        let mut drained = Drained::default();
        self.entries.retain(|key, entry| {
            let end = entry.aged(ageing);
            if entry.changed || end.is_some() {
                entry.drain(end, &mut drained, &mut sink);
            }
            if end.is_some() {
                self.known_points.remove(key);
            }
            end.is_none()
        });
        drained
    }

    /// Yields the last update of every entry and empties the table.
    pub(super) fn finish(&mut self, mut sink: impl FnMut(&FlowUpdate)) -> Drained {
        let mut drained = Drained::default();
        self.known_points = KnownPoints::default();
        for (_, mut entry) in self.entries.drain() {
            entry.drain(Some(EndReason::Shutdown), &mut drained, &mut sink);
        }
        drained
    }
}

impl Entry {
    fn new(key: FlowKey, from_lo: bool, record: &ConversationRecord<'_>) -> Self {
        Self {
            update: FlowUpdate {
                key,
                lo_first: from_lo,
                first_ns: record.first_ns,
                last_ns: record.last_ns,
                ..FlowUpdate::default()
            },
            heard_ns: 0,
            changed: false,
            directions: [0; 2],
            ended: false,
        }
    }

    fn add(
        &mut self,
        record: &ConversationRecord<'_>,
        direction: Direction,
        from_lo: bool,
        now_ns: u64,
    ) {
        let update = &mut self.update;
        let [by_source, by_destination] = record.sent;
        let [source, destination] = if from_lo { [0, 1] } else { [1, 0] };
        let (lo, hi) = match from_lo {
            true => (by_source, by_destination),
            false => (by_destination, by_source),
        };
        update.lo_sent += lo;
        update.hi_sent += hi;
        update.tcp.flags[source] |= record.tcp_flags[0];
        update.tcp.flags[destination] |= record.tcp_flags[1];
        // Exporters send the two directions in any order: the earlier one spoke first.
        if record.first_ns < update.first_ns {
            update.first_ns = record.first_ns;
            update.lo_first = record.spoke_first(from_lo);
        }
        update.last_ns = update.last_ns.max(record.last_ns);
        if let Some(opened) = record.source_opened {
            update.tcp.lo_opened.get_or_insert(opened == from_lo);
        }
        if !by_source.is_zero() {
            self.directions[source] |= direction_bit(direction);
        }
        if !by_destination.is_zero() {
            self.directions[destination] |= other_direction_bit(direction_bit(direction));
        }
        self.heard_ns = now_ns;
        self.changed = true;
        self.ended = record.ended;
    }

    fn directions(&self) -> Directions {
        Directions(self.directions[0] | self.directions[1] << 2)
    }

    /// Why the entry ends now, if it does.
    fn aged(&self, ageing: &Ageing) -> Option<EndReason> {
        let silence = ageing.now_ns.saturating_sub(self.heard_ns);
        if self.ended && silence >= ageing.closed_ns {
            Some(EndReason::Closed)
        } else if silence >= ageing.idle_ns {
            Some(ageing.idle_reason)
        } else {
            None
        }
    }

    fn drain(
        &mut self,
        end: Option<EndReason>,
        drained: &mut Drained,
        sink: &mut impl FnMut(&FlowUpdate),
    ) {
        let directions = self.directions();
        let update = &mut self.update;
        update.end = end;
        update.directions = directions;
        drained.updates += 1;
        let place = (update.key.netns, update.key.ifindex);
        let traffic: &mut PointTraffic = drained.traffic.entry(place).or_default();
        for (directions, sent) in self
            .directions
            .into_iter()
            .zip([update.lo_sent, update.hi_sent])
        {
            traffic.add(directions & 1 != 0, directions & 2 != 0, sent);
        }
        sink(update);
        update.lo_sent = Counters::default();
        update.hi_sent = Counters::default();
        self.changed = false;
    }
}
