//! The flow table of the user-space path: AF_PACKET, pcap and replay.

use crate::{
    CapturePoint, Cause, Conversation, Counters, EndReason, FlowKey, FlowUpdate, FragmentNotes,
    PointCounters, point::Points, slab::Slab, tcp,
};
use hashbrown::{HashTable, hash_table::Entry as Slot};
use skua_packet::{Frame, Level, Options, Transport};
use std::{
    hash::{BuildHasher, Hasher, RandomState},
    time::Duration,
};

/// A closed TCP conversation ends after this much silence.
const CLOSED_SILENCE_NS: u64 = 5_000_000_000;

/// Bytes of a VLAN tag.
const TAG_LEN: u64 = 4;

/// Settings of a [`FlowTable`].
#[derive(Clone, Copy, Debug)]
pub struct TableConfig {
    /// The most entries (`flow.max_entries`); entries that ended count until the next drain.
    pub max_entries: usize,
    /// An entry ends after this much silence (`flow.idle_timeout`), none: never.
    pub idle_timeout: Option<Duration>,
    /// Look into tunnels (`flow.tunnels`).
    pub tunnels: bool,
    /// Secret of the key hash.
    pub seed: u64,
}

impl Default for TableConfig {
    fn default() -> Self {
        Self {
            max_entries: 500_000,
            idle_timeout: Some(Duration::from_secs(60)),
            tunnels: false,
            seed: RandomState::new().build_hasher().finish(),
        }
    }
}

/// What became of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Counted in a flow.
    Counted,
    /// Counted as a loss.
    Lost(Cause),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Free,
    Live,
    /// Its ports were used again: out of the index, ends with the next drain.
    Ended,
}

/// One entry: what is compared, what every packet changes, what TCP adds; a cache line each.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Entry {
    key: FlowKey,
    tunnel_id: u32,
    state: State,
    lo_first: bool,
    /// `[0]` by lo, `[1]` by hi, since the last drain.
    sent: [Counters; 2],
    first_ns: u64,
    last_ns: u64,
    tcp: tcp::Tcp,
}

impl Entry {
    fn blank() -> Self {
        Self {
            key: FlowKey::default(),
            tunnel_id: 0,
            state: State::Free,
            lo_first: false,
            sent: [Counters::default(); 2],
            first_ns: 0,
            last_ns: 0,
            tcp: tcp::Tcp::default(),
        }
    }

    fn changed(&self) -> bool {
        self.sent.iter().any(|sent| !sent.is_zero())
    }

    /// Why the entry ends now, if it does.
    fn aged(&self, now_ns: u64, idle_ns: u64) -> Option<EndReason> {
        let silence = now_ns.saturating_sub(self.last_ns);
        if self.tcp.closed() && silence >= CLOSED_SILENCE_NS {
            Some(EndReason::Closed)
        } else if silence >= idle_ns {
            Some(EndReason::Idle)
        } else {
            None
        }
    }

    fn drain(&mut self, end: Option<EndReason>) -> FlowUpdate {
        let [lo_sent, hi_sent] = std::mem::take(&mut self.sent);
        FlowUpdate {
            key: self.key,
            lo_sent,
            hi_sent,
            lo_first: self.lo_first,
            first_ns: self.first_ns,
            last_ns: self.last_ns,
            tunnel_id: self.tunnel_id,
            tcp: self.tcp.drain(),
            end,
        }
    }
}

/// A bounded flow table; counts packets by the rules of `docs/accounting.md`.
///
/// All times are ns since the Unix epoch and come from the caller, so that files and tests have
/// their own clock.
pub struct FlowTable {
    options: Options,
    idle_ns: u64,
    seed: u64,
    entries: Slab<Entry>,
    index: HashTable<u32>,
    /// Entries whose ports were used again, oldest first.
    ended: Vec<u32>,
    fragments: FragmentNotes,
    points: Points,
}

/// What one packet adds, the same for each of its levels but for the bytes.
struct Amount {
    packets: u64,
    /// Length on the wire of what was captured, with a stripped tag.
    wire: u64,
    /// Bytes that each further segment of a super-packet repeats.
    headers: u64,
    now_ns: u64,
}

impl Amount {
    /// Packets, and bytes from an offset on.
    fn from(&self, start: u64) -> Counters {
        let repeated = (self.packets - 1) * self.headers.saturating_sub(start);
        Counters::new(self.packets, self.wire.saturating_sub(start) + repeated)
    }
}

impl FlowTable {
    /// An empty table. It takes memory as flows come.
    pub fn new(config: &TableConfig) -> Self {
        let idle = config.idle_timeout.map_or(u128::MAX, |t| t.as_nanos());
        Self {
            options: Options {
                tunnels: config.tunnels,
            },
            idle_ns: u64::try_from(idle).unwrap_or(u64::MAX),
            seed: config.seed,
            entries: Slab::new(config.max_entries, Entry::blank()),
            index: HashTable::new(),
            ended: Vec::new(),
            fragments: FragmentNotes::default(),
            points: Points::default(),
        }
    }

    /// Entries in use.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether no entry is in use.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Secret of the key hash, which also makes the ids of records.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Counts a packet.
    pub fn packet(&mut self, point: CapturePoint, frame: &Frame<'_>, now_ns: u64) -> Outcome {
        let tag = match frame.stripped_vlan {
            Some(_) => TAG_LEN,
            None => 0,
        };
        let mut amount = Amount {
            packets: u64::from(frame.segments.max(1)),
            wire: u64::from(frame.wire_len) + tag,
            headers: 0,
            now_ns,
        };
        let decoded = skua_packet::decode(frame, self.options);
        if let Ok(decoded) = &decoded {
            amount.headers = u64::from(decoded.header_len()) + tag;
            if decoded.malformed() {
                self.points
                    .add(point, Cause::Malformed, Counters::new(1, 0));
            }
        }
        if tag != 0 {
            self.points
                .add(point, Cause::TagBytes, Counters::new(1, tag));
        }
        if frame.is_super_packet() {
            let repeated = amount.packets - 1;
            let added = Counters::new(repeated, repeated * amount.headers);
            self.points.add(point, Cause::Segmented, added);
        }
        let Ok(decoded) = decoded else {
            return self.lose(point, Cause::Truncated, amount.from(0));
        };

        let outer = amount.from(0);
        let Some(parent) = self.level(point, &decoded.outer, [0; 6], outer, now_ns) else {
            return self.lose(point, Cause::table_full(decoded.outer.proto), outer);
        };
        if let Some(child) = &decoded.child {
            self.children(
                point,
                &parent,
                child,
                decoded.grandchild.as_ref(),
                tag,
                &amount,
            );
        }
        Outcome::Counted
    }

    /// Counts what a packet carries; its levels find their parents by the keys above them.
    fn children(
        &mut self,
        point: CapturePoint,
        parent: &FlowKey,
        child: &Level,
        grandchild: Option<&Level>,
        tag: u64,
        amount: &Amount,
    ) {
        let mut parent = *parent;
        for level in std::iter::once(child).chain(grandchild) {
            let counters = amount.from(u64::from(level.start) + tag);
            let field = parent.child_parent(self.seed, level.tunnel_id);
            match self.level(point, level, field, counters, amount.now_ns) {
                Some(key) => parent = key,
                None => {
                    self.points.add(point, Cause::ChildFull, counters);
                    return;
                }
            }
        }
    }

    /// Counts one level of a packet; none when no entry is free, else its key.
    #[inline]
    fn level(
        &mut self,
        point: CapturePoint,
        level: &Level,
        parent: [u8; 6],
        counters: Counters,
        now_ns: u64,
    ) -> Option<FlowKey> {
        let ports = self.fragments.ports(point, level);
        let Conversation { key, from_lo } = Conversation::new(point, level, &ports, parent);
        let side = usize::from(!from_lo);
        let (seed, entries) = (self.seed, &mut self.entries);
        let slot = self.index.entry(
            key.hash64(seed),
            |place| entries[*place].key == key,
            |place| entries[*place].key.hash64(seed),
        );
        let segment = match &level.transport {
            Transport::Tcp(segment) => Some(segment),
            _ => None,
        };
        let begin = |entries: &mut Slab<Entry>| {
            entries.insert(Entry {
                key,
                tunnel_id: level.tunnel_id,
                state: State::Live,
                lo_first: from_lo,
                first_ns: now_ns,
                tcp: tcp::Tcp::opened_by(ports.request.map(|request| request == from_lo)),
                ..Entry::blank()
            })
        };
        let place = match slot {
            Slot::Occupied(mut slot) => {
                let place = *slot.get();
                let opens = segment.is_some_and(|s| s.flags & (tcp::SYN | tcp::ACK) == tcp::SYN);
                if opens && entries[place].tcp.closed() {
                    entries[place].state = State::Ended;
                    self.ended.push(place);
                    let Some(place) = begin(entries) else {
                        slot.remove();
                        return None;
                    };
                    *slot.get_mut() = place;
                    place
                } else {
                    place
                }
            }
            Slot::Vacant(slot) => {
                let place = begin(entries)?;
                slot.insert(place);
                place
            }
        };
        let entry = &mut entries[place];
        entry.sent[side] += counters;
        entry.last_ns = now_ns;
        if let Some(segment) = segment {
            entry.tcp.segment(side, segment, now_ns);
        }
        Some(key)
    }

    fn lose(&mut self, point: CapturePoint, cause: Cause, counters: Counters) -> Outcome {
        self.points.add(point, cause, counters);
        Outcome::Lost(cause)
    }

    /// Counts packets that the caller left out or could not give: filtered, sampled, own traffic,
    /// an unknown link type.
    pub fn count(&mut self, point: CapturePoint, cause: Cause, counters: Counters) {
        self.points.add(point, cause, counters);
    }

    /// Losses and notes of all capture points since the start.
    pub fn points(&self) -> impl Iterator<Item = (CapturePoint, &PointCounters)> {
        self.points.iter()
    }

    /// Yields what changed since the drain before and ends what is silent for long. Of two entries
    /// with one key, the older comes first.
    pub fn drain(&mut self, now_ns: u64, mut yield_update: impl FnMut(&FlowUpdate)) {
        self.drain_ended(&mut yield_update);
        for place in 0..self.entries.end() {
            let entry = &mut self.entries[place];
            if entry.state != State::Live {
                continue;
            }
            let end = entry.aged(now_ns, self.idle_ns);
            if end.is_none() && !entry.changed() {
                continue;
            }
            yield_update(&entry.drain(end));
            if end.is_some() {
                let hash = entry.key.hash64(self.seed);
                if let Ok(slot) = self.index.find_entry(hash, |found| *found == place) {
                    slot.remove();
                }
                self.entries.remove(place);
            }
        }
    }

    /// Yields the last update of every entry and empties the table.
    pub fn finish(&mut self, mut yield_update: impl FnMut(&FlowUpdate)) {
        self.drain_ended(&mut yield_update);
        self.index.clear();
        for place in 0..self.entries.end() {
            if self.entries[place].state == State::Live {
                yield_update(&self.entries[place].drain(Some(EndReason::Shutdown)));
                self.entries.remove(place);
            }
        }
    }

    fn drain_ended(&mut self, yield_update: &mut impl FnMut(&FlowUpdate)) {
        for place in self.ended.drain(..) {
            yield_update(&self.entries[place].drain(Some(EndReason::Closed)));
            self.entries.remove(place);
        }
    }
}
