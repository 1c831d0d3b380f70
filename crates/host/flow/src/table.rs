//! The flow table of the user-space path: AF_PACKET, pcap and replay.

use crate::{
    AddressSet, CapturePoint, Cause, Conversation, Counters, Direction, Directions, EndReason,
    FlowKey, FlowUpdate, FragmentNotes, HashKey, Joins, KnownPoints, PointCounters, PointTraffic,
    Ports, TcpUpdate,
    cold::{self, Cold, Sight},
    conversation::is_plain,
    index::{Index, KeyHash, Slot},
    point::Points,
    recent::Recent,
    slab::Slab,
    tcp::{self, DetailsOf},
};
use hashbrown::HashMap;
use skua_packet::{
    Decoded, Fragment, Frame, Level, Options, Plain, TcpSegment, Transport, decode_into,
};
use std::{
    hash::{BuildHasher, Hasher, RandomState},
    sync::Arc,
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
    /// Decode tunnels (`flow.tunnels`).
    pub tunnels: bool,
    /// Secret of the key hash.
    pub seed: u64,
}

impl Default for TableConfig {
    fn default() -> Self {
        Self {
            max_entries: 500_000,
            idle_timeout: Some(Duration::from_secs(120)),
            tunnels: false,
            seed: RandomState::new().build_hasher().finish(),
        }
    }
}

/// What happened to a packet.
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

/// One entry, two cache lines that are fetched together: what is compared, and what every packet
/// changes.
#[derive(Clone, Copy)]
#[repr(C, align(128))]
struct Entry {
    key: FlowKey,
    /// Place of what carries the flow, [`NO_CARRIER`] outside of tunnels.
    carrier: u32,
    /// Place of the TCP details.
    details: u32,
    /// `[0]` by lo, `[1]` by hi, since the last drain.
    sent: [Counters; 2],
    first_ns: u64,
    last_ns: u64,
    tcp: tcp::Tcp,
    state: State,
    lo_first: bool,
    lo_opened: Option<bool>,
    /// As in [`Directions`].
    directions: u8,
}

/// What carried the packet that began an entry inside a tunnel.
#[derive(Clone, Copy, Default)]
struct Carrier {
    tunnel_id: u32,
    /// As [`FlowUpdate::parent`].
    parent: u64,
}

/// Place of no carrier.
const NO_CARRIER: u32 = u32::MAX;

/// Puts the entry that an arrival begins into a free place.
#[inline]
fn insert(
    entries: &mut Slab<Entry>,
    carriers: &mut Slab<Carrier>,
    arrival: &Arrival,
) -> Option<u32> {
    let place = entries.insert(Entry::begin(arrival))?;
    if let Some(carrier) = arrival.carrier {
        entries[place].carrier = carriers.insert(carrier).unwrap_or(NO_CARRIER);
    }
    Some(place)
}

/// Bit of [`Directions`] for packets of a side (0 lo, 1 hi) in a direction.
#[inline]
fn direction_bit(side: usize, direction: Direction) -> u8 {
    1 << (2 * side + usize::from(direction == Direction::Egress))
}

const _: () = assert!(size_of::<Entry>() == 128);

impl Entry {
    fn blank() -> Self {
        Self {
            key: FlowKey::default(),
            carrier: NO_CARRIER,
            details: tcp::NO_DETAILS,
            sent: [Counters::default(); 2],
            first_ns: 0,
            last_ns: 0,
            tcp: tcp::Tcp::default(),
            state: State::Free,
            lo_first: false,
            lo_opened: None,
            directions: 0,
        }
    }

    /// The entry that an arrival begins.
    fn begin(arrival: &Arrival) -> Self {
        Self {
            key: arrival.key,
            first_ns: arrival.share.now_ns,
            state: State::Live,
            lo_first: arrival.share.from_lo,
            lo_opened: arrival.lo_opened,
            ..Self::blank()
        }
    }

    fn changed(&self) -> bool {
        self.sent.iter().any(|sent| !sent.is_zero())
    }

    /// Why the entry ends now, if it does.
    fn aged(&self, ageing: &Ageing) -> Option<EndReason> {
        let silence = ageing.now_ns.saturating_sub(self.last_ns);
        if self.tcp.closed() && silence >= ageing.closed_ns {
            Some(EndReason::Closed)
        } else if silence >= ageing.idle_ns {
            Some(ageing.idle_reason)
        } else {
            None
        }
    }

    /// Counts a packet; returns whether it is to be looked at: [`Cold::look`].
    #[inline(always)]
    fn add(
        &mut self,
        share: &Share,
        segment: Option<&TcpSegment>,
        details: &mut Slab<tcp::Details>,
    ) -> bool {
        let side = share.side();
        let now_ns = share.now_ns;
        self.sent[side] += share.counters;
        let direction = direction_bit(side, share.direction);
        let mut look = self.directions & direction == 0 || cold::is_time(self.last_ns, now_ns);
        self.directions |= direction;
        // Clocks of files may go back.
        self.first_ns = self.first_ns.min(now_ns);
        self.last_ns = self.last_ns.max(now_ns);
        if let Some(segment) = segment {
            let details = DetailsOf {
                all: details,
                place: &mut self.details,
            };
            let opened = &mut self.lo_opened;
            look |= self.tcp.segment(side, segment, now_ns, opened, details);
        }
        look
    }

    fn drain(
        &mut self,
        end: Option<EndReason>,
        details: &mut Slab<tcp::Details>,
        carriers: &Slab<Carrier>,
        cold: &mut Cold,
    ) -> FlowUpdate {
        let (link, fragments, carries) = cold.drain();
        let carrier = match self.carrier {
            NO_CARRIER => Carrier::default(),
            place => carriers[place],
        };
        let details = (self.details != tcp::NO_DETAILS).then(|| &mut details[self.details]);
        let [lo_sent, hi_sent] = std::mem::take(&mut self.sent);
        FlowUpdate {
            key: self.key,
            lo_sent,
            hi_sent,
            lo_first: self.lo_first,
            first_ns: self.first_ns,
            last_ns: self.last_ns,
            tunnel_id: carrier.tunnel_id,
            parent: carrier.parent,
            tcp: TcpUpdate {
                lo_opened: self.lo_opened,
                ..match (self.key.is_icmp(), details) {
                    (true, Some(details)) => details.echo_update(),
                    (_, details) => self.tcp.drain(details),
                }
            },
            link,
            fragments,
            carries,
            sampling: 0,
            end,
            directions: Directions(self.directions),
        }
    }
}

/// Whether a packet begins a new conversation between the ports of one that is over.
#[inline]
fn reopens(entry: &Entry, segment: Option<&TcpSegment>) -> bool {
    let opens = |segment: &TcpSegment| segment.flags & (tcp::SYN | tcp::ACK) == tcp::SYN;
    segment.is_some_and(opens) && entry.tcp.closed()
}

/// A bounded flow table; counts packets by the rules of `docs/accounting.md`.
///
/// All times are ns since the Unix epoch and come from the caller, so that files and tests have
/// their own clock.
pub struct FlowTable {
    options: Options,
    idle_ns: u64,
    seed: u64,
    secret: HashKey,
    entries: Slab<Entry>,
    /// At most one for each entry.
    details: Slab<tcp::Details>,
    /// Of flows inside tunnels.
    carriers: Slab<Carrier>,
    /// By place, what few packets touch; extended on demand.
    cold: Vec<Cold>,
    index: Index,
    /// Hints past the index, for packets that [`Plain`] reads.
    recent: Recent,
    /// Entries whose ports were used again, oldest first.
    ended: Vec<u32>,
    fragments: FragmentNotes,
    points: Points,
    /// Which packets are counted, none: all.
    addresses: Option<Arc<AddressSet>>,
    /// Entries made since the start.
    inserted: u64,
    /// By place, how many packets [`FlowTable::count_first`] reported of an entry; extended on demand.
    first_packets: Vec<u8>,
    /// Only of tables for packets of other devices.
    known_points: Option<KnownPoints>,
}

/// A packet among the first of its flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct First {
    /// The flow.
    pub key: FlowKey,
    /// Place among them, from 1 on.
    pub index: u8,
}

/// Which entries a drain ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ageing {
    /// Time of the drain, ns since the Unix epoch.
    pub now_ns: u64,
    /// Ends after so much silence, in ns.
    pub idle_ns: u64,
    /// Why it ends then.
    pub idle_reason: EndReason,
    /// A closed TCP conversation ends after so much silence, in ns.
    pub closed_ns: u64,
}

/// What a drain did.
#[derive(Clone, Debug, Default)]
pub struct Drained {
    /// Updates handed out.
    pub updates: u64,
    /// Differences by (namespace, interface index), flows inside tunnels left out.
    pub traffic: HashMap<(u16, u32), PointTraffic>,
}

impl Drained {
    fn count(&mut self, update: &FlowUpdate) {
        self.updates += 1;
        if update.key.tunnel().is_some() {
            return;
        }
        let place = (update.key.netns, update.key.ifindex);
        let traffic = self.traffic.entry(place).or_default();
        for (lo, sent) in [(true, update.lo_sent), (false, update.hi_sent)] {
            let (ingress, egress) = update.directions.of(lo);
            traffic.add(ingress, egress, sent);
        }
    }
}

/// A captured packet for [`FlowTable::packets`].
#[derive(Clone, Copy, Debug)]
pub struct Captured<'a> {
    /// Where it was seen.
    pub point: CapturePoint,
    /// The packet.
    pub frame: Frame<'a>,
    /// When, ns since the Unix epoch.
    pub now_ns: u64,
}

/// A packet that another device sampled, for [`FlowTable::sampled`].
#[derive(Clone, Copy)]
pub struct Sampled<'a> {
    /// Where it came in, or where it was seen going out.
    pub point: CapturePoint,
    /// Where it is counted if its conversation has an entry there.
    pub joins: Joins<'a>,
    /// The packet.
    pub frame: Frame<'a>,
    /// When, ns since the Unix epoch.
    pub now_ns: u64,
    /// It represents so many packets of its length.
    pub rate: u32,
}

/// Packets that are looked up together, so that the memory that they need is fetched at once.
const BATCH: usize = 16;

/// Collects packets for a call of [`FlowTable::packets`].
pub struct Batch<'a> {
    packets: [Captured<'a>; BATCH],
    len: usize,
}

impl Default for Batch<'_> {
    fn default() -> Self {
        let none = Captured {
            point: CapturePoint::default(),
            frame: Frame::ethernet(&[]),
            now_ns: 0,
        };
        Self {
            packets: [none; BATCH],
            len: 0,
        }
    }
}

impl<'a> Batch<'a> {
    /// Adds a packet; the table counts when enough are there.
    // Forced: else each packet is copied through memory into the function.
    #[inline(always)]
    pub fn push(&mut self, table: &mut FlowTable, packet: Captured<'a>) {
        // Packets of one conversation keep their order: none overtakes those that wait.
        if self.len == 0 && table.known(&packet) {
            return;
        }
        self.packets[self.len] = packet;
        self.len += 1;
        if self.len == BATCH {
            self.flush(table);
        }
    }

    /// Has the table count the pending packets.
    pub fn flush(&mut self, table: &mut FlowTable) {
        table.batch(&self.packets[..self.len]);
        self.len = 0;
    }
}

/// What one packet adds, the same for each of its levels but for the bytes.
struct Amount {
    packets: u64,
    /// Length on the wire of what was captured, with a stripped tag.
    wire: u64,
    /// Bytes that each further segment of a super-packet repeats.
    headers: u64,
    /// Bytes of a stripped tag.
    tag: u64,
    /// The captured packets represent so many of their kind.
    rate: u64,
}

impl Amount {
    fn new(frame: &Frame<'_>, decoded: Option<&Decoded>) -> Self {
        let tag = match frame.stripped_vlan {
            Some(_) => TAG_LEN,
            None => 0,
        };
        Self {
            packets: u64::from(frame.segments.max(1)),
            wire: u64::from(frame.wire_len) + tag,
            headers: decoded.map_or(0, |decoded| u64::from(decoded.header_len()) + tag),
            tag,
            rate: 1,
        }
    }

    /// Of the whole packet.
    fn all(&self) -> Counters {
        let repeated = (self.packets - 1) * self.headers;
        self.scaled(self.wire + repeated)
    }

    fn scaled(&self, bytes: u64) -> Counters {
        Counters::new(self.packets * self.rate, bytes.saturating_mul(self.rate))
    }

    /// From an offset in the captured bytes on.
    fn from(&self, start: u32) -> Counters {
        let start = u64::from(start) + self.tag;
        let repeated = (self.packets - 1) * self.headers.saturating_sub(start);
        self.scaled(self.wire.saturating_sub(start) + repeated)
    }
}

/// What one level of a packet adds to its entry.
struct Share {
    counters: Counters,
    now_ns: u64,
    from_lo: bool,
    direction: Direction,
}

impl Share {
    #[inline]
    fn side(&self) -> usize {
        usize::from(!self.from_lo)
    }

    #[inline]
    fn of(packet: &Captured<'_>, from_lo: bool) -> Self {
        Self {
            counters: Counters::new(1, packet.frame.wire_len.into()),
            now_ns: packet.now_ns,
            from_lo,
            direction: packet.point.direction,
        }
    }
}

/// One level of a packet, before it is added to its entry.
struct Arrival {
    key: FlowKey,
    hash: KeyHash,
    share: Share,
    segment: Option<TcpSegment>,
    carrier: Option<Carrier>,
    /// For an entry that begins with this packet.
    lo_opened: Option<bool>,
    sight: Sight,
}

/// A packet that was decoded for [`FlowTable::packets`].
#[allow(clippy::large_enum_variant, reason = "sixteen of them, on the stack")]
enum Prepared {
    Arrival(Arrival),
    /// Left out and counted so.
    LeftOut,
    /// A fragment, or with something inside: for [`FlowTable::packet`].
    NotSimple,
}

impl Prepared {
    #[inline]
    fn arrival(&self) -> Option<&Arrival> {
        match self {
            Self::Arrival(arrival) => Some(arrival),
            _ => None,
        }
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
            secret: HashKey::new(config.seed),
            entries: Slab::new(config.max_entries, Entry::blank()),
            details: Slab::new(config.max_entries, tcp::Details::default()),
            carriers: Slab::new(config.max_entries, Carrier::default()),
            cold: Vec::new(),
            index: Index::default(),
            recent: Recent::default(),
            ended: Vec::new(),
            fragments: FragmentNotes::default(),
            points: Points::default(),
            addresses: None,
            inserted: 0,
            first_packets: Vec::new(),
            known_points: None,
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

    /// Entries made since the start.
    pub fn inserted(&self) -> u64 {
        self.inserted
    }

    /// Secret of the key hash, which also makes the ids of records.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Counts from the next packet on only what a set does not leave out.
    pub fn set_addresses(&mut self, addresses: Arc<AddressSet>) {
        self.addresses = (!addresses.is_empty()).then_some(addresses);
    }

    #[inline]
    fn left_out_by_address(&self, level: &Level) -> bool {
        self.addresses
            .as_ref()
            .is_some_and(|addresses| addresses.leaves_out(level))
    }

    /// Counts packets, in their order; quicker than one by one.
    pub fn packets(&mut self, mut packets: &[Captured<'_>]) {
        while let [first, rest @ ..] = packets {
            if self.known(first) {
                packets = rest;
                continue;
            }
            let batch;
            (batch, packets) = packets.split_at(packets.len().min(BATCH));
            self.batch(batch);
        }
    }

    /// The fast path through a packet's headers, not usable with an address set.
    #[inline(always)]
    fn plain<'a>(&self, frame: &Frame<'a>) -> Option<Plain<'a>> {
        match self.addresses {
            None => Plain::read(frame, self.options),
            Some(_) => None,
        }
    }

    /// Counts the usual packets of a recent conversation; false, with no change, for others. Most packets
    /// need no more than this.
    #[inline(always)]
    fn known(&mut self, packet: &Captured<'_>) -> bool {
        self.known_at(packet).is_some()
    }

    /// As [`known`](Self::known), with the place of the entry.
    #[inline(always)]
    fn known_at(&mut self, packet: &Captured<'_>) -> Option<u32> {
        let plain = self.plain(&packet.frame)?;
        let (place, from_lo) = self.recent.get(&plain)?;
        let entry = self.entries.get_mut(place)?;
        let segment = plain.segment();
        let right = entry.state == State::Live
            && is_plain(&entry.key, from_lo, packet.point, &plain)
            && !reopens(entry, segment.as_ref());
        if right {
            let share = Share::of(packet, from_lo);
            if entry.add(&share, segment.as_ref(), &mut self.details) {
                self.look(place, share.side(), &Sight::PLAIN, packet.frame.data);
            }
        }
        right.then_some(place)
    }

    /// Counts packets that fit into one batch, the long way.
    fn batch(&mut self, batch: &[Captured<'_>]) {
        let mut arrivals: [Prepared; BATCH] = [const { Prepared::NotSimple }; BATCH];
        let mut places = [None; BATCH];
        for (arrival, packet) in arrivals.iter_mut().zip(batch) {
            *arrival = self.prepare(packet);
        }
        // Nothing in this loop waits for the memory of the packet before.
        for (place, arrival) in places
            .iter_mut()
            .zip(arrivals.iter().filter_map(Prepared::arrival))
        {
            *place = self.find(arrival);
        }
        let mut places = places.into_iter();
        for (arrival, packet) in arrivals.iter().zip(batch) {
            match arrival {
                Prepared::Arrival(arrival) => {
                    let place = places.next().flatten();
                    self.arrive_at(place, packet, arrival);
                }
                Prepared::LeftOut => {}
                Prepared::NotSimple => {
                    self.packet(packet.point, &packet.frame, packet.now_ns);
                }
            }
        }
    }

    /// The segments of a super-packet repeat the inner headers, too: then tunnels are decoded also when
    /// their flows are not counted.
    fn options_for(&self, frame: &Frame<'_>) -> Options {
        Options {
            tunnels: self.options.tunnels || frame.segments > 1,
        }
    }

    /// Decodes a packet that is one level and no fragment, and counts its notes.
    #[inline]
    fn prepare(&mut self, packet: &Captured<'_>) -> Prepared {
        if let Some(plain) = self.plain(&packet.frame) {
            let Conversation { key, from_lo } = Conversation::plain(packet.point, &plain);
            return Prepared::Arrival(Arrival {
                key,
                hash: KeyHash::new(&key, &self.secret),
                share: Share::of(packet, from_lo),
                segment: plain.segment(),
                carrier: None,
                lo_opened: None,
                sight: Sight::PLAIN,
            });
        }
        let mut decoded = Decoded::default();
        if decode_into(&packet.frame, self.options_for(&packet.frame), &mut decoded).is_err() {
            return Prepared::NotSimple;
        }
        let level = &decoded.outer;
        if level.fragment != Fragment::Whole || decoded.child.is_some() {
            return Prepared::NotSimple;
        }
        let amount = Amount::new(&packet.frame, Some(&decoded));
        if self.left_out_by_address(level) {
            self.notes(packet.point, &amount, false);
            self.points
                .add(packet.point, Cause::AddressSet, amount.all());
            return Prepared::LeftOut;
        }
        self.notes(packet.point, &amount, decoded.malformed());
        let ports = Ports::of(&level.transport, level.network);
        let counters = amount.all();
        let now_ns = packet.now_ns;
        let sight = Sight::of(level, None);
        Prepared::Arrival(self.arrival(
            packet.point,
            level,
            &ports,
            [0; 6],
            (counters, now_ns),
            sight,
        ))
    }

    /// The place of a live entry, with the entry on its way from memory.
    #[inline]
    fn find(&self, arrival: &Arrival) -> Option<u32> {
        let place = self.index.find(arrival.hash, |place| {
            self.entries[place].key.is(arrival.key.words())
        })?;
        // The second cache line of the entry.
        std::hint::black_box(self.entries[place].last_ns);
        Some(place)
    }

    /// Adds to the entry at a place that was found before, if it still is the right one.
    #[inline]
    fn arrive_at(&mut self, place: Option<u32>, packet: &Captured<'_>, arrival: &Arrival) {
        if let Some(place) = place {
            let entry = &self.entries[place];
            if entry.state == State::Live
                && entry.key.is(arrival.key.words())
                && !reopens(entry, arrival.segment.as_ref())
            {
                self.add(place, arrival, packet.frame.data);
                self.recent.put(&arrival.key, arrival.share.from_lo, place);
                return;
            }
        }
        if self.arrive(arrival, packet.frame.data).is_none() {
            self.lose(
                packet.point,
                Cause::table_full(arrival.key.proto),
                arrival.share.counters,
            );
        }
    }

    /// Counts a packet.
    pub fn packet(&mut self, point: CapturePoint, frame: &Frame<'_>, now_ns: u64) -> Outcome {
        self.sampled(&Sampled {
            point,
            joins: Joins::default(),
            frame: *frame,
            now_ns,
            rate: 1,
        })
    }

    /// Counts a packet, and says when it is among the `first` ones of its entry. Slower than
    /// [`packets`](Self::packets).
    pub fn count_first(&mut self, packet: &Captured<'_>, first: u8) -> (Outcome, Option<First>) {
        let counted = match self.known_at(packet) {
            Some(place) => Ok(place),
            None => self.sampled_at(&Sampled {
                point: packet.point,
                joins: Joins::default(),
                frame: packet.frame,
                now_ns: packet.now_ns,
                rate: 1,
            }),
        };
        match counted {
            Err(cause) => (Outcome::Lost(cause), None),
            Ok(place) => (Outcome::Counted, self.first_packet(place, first)),
        }
    }

    fn first_packet(&mut self, place: u32, first: u8) -> Option<First> {
        if first == 0 {
            return None;
        }
        let at = place as usize;
        if at >= self.first_packets.len() {
            self.first_packets.resize(at + 1, 0);
        }
        let first_packets = self.first_packets.get_mut(at)?;
        if *first_packets >= first {
            return None;
        }
        *first_packets += 1;
        let (key, index) = (self.entries[place].key, *first_packets);
        Some(First { key, index })
    }

    /// Remembers the interfaces of entries, for packets of devices that do not know theirs ([`Joins::anywhere`]).
    pub fn remember_interfaces(&mut self) {
        self.known_points = Some(KnownPoints::default());
    }

    /// The point at which a sampled packet is counted.
    fn point_of(&mut self, sampled: &Sampled<'_>, level: &Level) -> CapturePoint {
        let Some(known) = &self.known_points else {
            return sampled.point;
        };
        let ports = self.fragments.ports(sampled.point, level);
        let conversation = |point| Conversation::new(point, level, &ports, [0; 6]);
        let directions = |key: &FlowKey| {
            let equal = |place| self.entries[place].key.is(key.words());
            let place = self.index.find(KeyHash::new(key, &self.secret), equal)?;
            Some(Directions(self.entries[place].directions))
        };
        sampled
            .joins
            .point(sampled.point, known, conversation, directions)
    }

    /// Counts a packet that represents others, too.
    pub fn sampled(&mut self, sampled: &Sampled<'_>) -> Outcome {
        match self.sampled_at(sampled) {
            Ok(_) => Outcome::Counted,
            Err(cause) => Outcome::Lost(cause),
        }
    }

    /// The place of the entry of the packet's outermost level, or why it is in none.
    fn sampled_at(&mut self, sampled: &Sampled<'_>) -> Result<u32, Cause> {
        let Sampled { frame, now_ns, .. } = sampled;
        let now_ns = *now_ns;
        let mut decoded = Decoded::default();
        let truncated = decode_into(frame, self.options_for(frame), &mut decoded).is_err();
        let mut amount = Amount::new(frame, (!truncated).then_some(&decoded));
        amount.rate = u64::from(sampled.rate.max(1));
        let point = match truncated {
            false => self.point_of(sampled, &decoded.outer),
            true => sampled.point,
        };
        let malformed = match self.options.tunnels {
            true => decoded.malformed(),
            false => decoded.outer.malformed,
        };
        let left_out = !truncated && self.left_out_by_address(&decoded.outer);
        self.notes(point, &amount, malformed && !left_out);
        if left_out {
            // Should the set be changed before the later fragments come.
            self.fragments.ports(sampled.point, &decoded.outer);
            self.lose(point, Cause::AddressSet, amount.all());
            return Err(Cause::AddressSet);
        }
        if truncated {
            self.lose(point, Cause::Truncated, amount.all());
            return Err(Cause::Truncated);
        }
        let (mut tunnel_hash, mut carrier) = ([0; 6], None);
        let mut outermost = Err(Cause::NoDecode);
        for (depth, level) in decoded.levels().enumerate() {
            if depth > 0 && !self.options.tunnels {
                break;
            }
            let counters = match depth {
                0 => amount.all(),
                _ => amount.from(level.start),
            };
            let ports = self.fragments.ports(sampled.point, level);
            let child = decoded.levels().nth(depth + 1);
            let sight = Sight::of(level, child.filter(|_| self.options.tunnels));
            let counted = (counters, now_ns);
            let arrival = Arrival {
                carrier,
                ..self.arrival(point, level, &ports, tunnel_hash, counted, sight)
            };
            let inserted = self.inserted;
            match self.arrive(&arrival, frame.data) {
                Some(place) if depth == 0 => {
                    if let Some(known) = &mut self.known_points
                        && self.inserted != inserted
                    {
                        known.insert(&arrival.key);
                    }
                    outermost = Ok(place);
                }
                Some(_) => {}
                None if depth == 0 => {
                    let cause = Cause::table_full(level.proto);
                    self.lose(point, cause, counters);
                    return Err(cause);
                }
                None => {
                    self.points.add(point, Cause::ChildFull, counters);
                    break;
                }
            }
            if let Some(child) = child
                && let Some(tunnel) = child.tunnel
            {
                let (key, tunnel_id) = (&arrival.key, child.tunnel_id);
                tunnel_hash = key.tunnel_hash(&self.secret, tunnel, tunnel_id);
                carrier = Some(Carrier {
                    tunnel_id,
                    parent: key.id48(&self.secret),
                });
            }
        }
        outermost
    }

    #[inline]
    fn notes(&mut self, point: CapturePoint, amount: &Amount, malformed: bool) {
        if malformed {
            self.points
                .add(point, Cause::Malformed, Counters::new(1, 0));
        }
        if amount.tag != 0 {
            self.points
                .add(point, Cause::TagBytes, Counters::new(1, amount.tag));
        }
        if amount.packets > 1 {
            let repeated = amount.packets - 1;
            let added = Counters::new(repeated, repeated * amount.headers);
            self.points.add(point, Cause::Segmented, added);
        }
    }

    #[inline]
    fn arrival(
        &self,
        point: CapturePoint,
        level: &Level,
        ports: &Ports,
        tunnel_hash: [u8; 6],
        (counters, now_ns): (Counters, u64),
        sight: Sight,
    ) -> Arrival {
        let Conversation { key, from_lo } = Conversation::new(point, level, ports, tunnel_hash);
        Arrival {
            key,
            hash: KeyHash::new(&key, &self.secret),
            share: Share {
                counters,
                now_ns,
                from_lo,
                direction: point.direction,
            },
            segment: match level.transport {
                Transport::Tcp(segment) => Some(segment),
                _ => None,
            },
            carrier: None,
            lo_opened: ports.request.map(|request| request == from_lo),
            sight,
        }
    }

    /// Finds or makes the entry and adds to it; none when none is free.
    #[inline]
    fn arrive(&mut self, arrival: &Arrival, frame: &[u8]) -> Option<u32> {
        let entries = &mut self.entries;
        let slot = self.index.entry(arrival.hash, |place| {
            entries[place].key.is(arrival.key.words())
        });
        let place = match slot {
            Slot::Taken(mut slot) => {
                let place = slot.get().place;
                if reopens(&entries[place], arrival.segment.as_ref()) {
                    entries[place].state = State::Ended;
                    self.ended.push(place);
                    let Some(place) = insert(entries, &mut self.carriers, arrival) else {
                        slot.remove();
                        return None;
                    };
                    slot.get_mut().place = place;
                    self.inserted += 1;
                    place
                } else {
                    place
                }
            }
            Slot::Free(slot) => {
                let place = insert(entries, &mut self.carriers, arrival)?;
                slot.insert(place);
                self.inserted += 1;
                self.recent.fit(self.entries.len());
                place
            }
        };
        self.add(place, arrival, frame);
        self.recent.put(&arrival.key, arrival.share.from_lo, place);
        Some(place)
    }

    /// Adds a packet to its entry.
    #[inline(always)]
    fn add(&mut self, place: u32, arrival: &Arrival, frame: &[u8]) {
        let Arrival { share, sight, .. } = arrival;
        let entry = &mut self.entries[place];
        if entry.add(share, arrival.segment.as_ref(), &mut self.details) {
            self.look(place, share.side(), sight, frame);
        }
        if sight.fragment {
            self.cold_of(place).fragments(share.counters);
        }
        if let Some(request) = sight.echo {
            let mut details = DetailsOf {
                all: &mut self.details,
                place: &mut self.entries[place].details,
            };
            details.get().echo(request, share.now_ns);
        }
    }

    #[cold]
    fn look(&mut self, place: u32, side: usize, sight: &Sight, frame: &[u8]) {
        self.cold_of(place).look(side, sight, frame);
    }

    fn cold_of(&mut self, place: u32) -> &mut Cold {
        let at = place as usize;
        if at >= self.cold.len() {
            self.cold.resize(at + 1, Cold::default());
        }
        &mut self.cold[at]
    }

    /// Takes what is to be yielded of an entry.
    fn drain_place(&mut self, place: u32, end: Option<EndReason>) -> FlowUpdate {
        self.cold_of(place);
        let (entry, cold) = (&mut self.entries[place], &mut self.cold[place as usize]);
        entry.drain(end, &mut self.details, &self.carriers, cold)
    }

    fn lose(&mut self, point: CapturePoint, cause: Cause, counters: Counters) {
        self.points.add(point, cause, counters);
    }

    /// Counts a packet under a cause instead of in a flow, because a filter or sampling left it
    /// out.
    pub fn leave_out(&mut self, point: CapturePoint, frame: &Frame<'_>, cause: Cause) {
        let mut decoded = Decoded::default();
        // Only what a super-packet repeats has to be known.
        let known = frame.is_super_packet()
            && decode_into(frame, self.options_for(frame), &mut decoded).is_ok();
        let amount = Amount::new(frame, known.then_some(&decoded));
        self.notes(point, &amount, false);
        self.points.add(point, cause, amount.all());
    }

    /// The same of a packet that another device sampled.
    pub fn leave_out_sampled(&mut self, sampled: &Sampled<'_>, cause: Cause) {
        let mut amount = Amount::new(&sampled.frame, None);
        amount.rate = u64::from(sampled.rate.max(1));
        self.points.add(sampled.point, cause, amount.all());
    }

    /// Counts packets that the caller lost or could not give: an unknown link type, a full buffer.
    pub fn count(&mut self, point: CapturePoint, cause: Cause, counters: Counters) {
        self.points.add(point, cause, counters);
    }

    /// Losses and notes of all capture points since the start.
    pub fn points(&self) -> impl Iterator<Item = (CapturePoint, &PointCounters)> {
        self.points.iter()
    }

    /// Forgets the counters of an interface that was removed.
    pub fn remove_point(&mut self, netns: u16, ifindex: u32) {
        self.points.remove(netns, ifindex);
    }

    /// Yields what changed since the drain before and ends what is silent for long. Of two entries
    /// with one key, the older comes first.
    pub fn drain(&mut self, now_ns: u64, yield_update: impl FnMut(&FlowUpdate)) -> Drained {
        let ageing = Ageing {
            now_ns,
            idle_ns: self.idle_ns,
            idle_reason: EndReason::Idle,
            closed_ns: CLOSED_SILENCE_NS,
        };
        self.drain_aged(&ageing, yield_update)
    }

    /// As [`drain`](Self::drain), with the caller's word on what ends.
    pub fn drain_aged(
        &mut self,
        ageing: &Ageing,
        mut yield_update: impl FnMut(&FlowUpdate),
    ) -> Drained {
        let mut drained = Drained::default();
        self.drain_ended(&mut drained, &mut yield_update);
        for place in 0..self.entries.end() {
            let entry = &self.entries[place];
            if entry.state != State::Live {
                continue;
            }
            let end = entry.aged(ageing);
            if end.is_none() && !entry.changed() {
                continue;
            }
            let update = self.drain_place(place, end);
            drained.count(&update);
            yield_update(&update);
            if end.is_some() {
                self.index
                    .remove(KeyHash::new(&update.key, &self.secret), place);
                self.free(place);
            }
        }
        drained
    }

    /// Yields the last update of every entry and empties the table.
    pub fn finish(&mut self, mut yield_update: impl FnMut(&FlowUpdate)) -> Drained {
        let mut drained = Drained::default();
        self.drain_ended(&mut drained, &mut yield_update);
        self.index.clear();
        for place in 0..self.entries.end() {
            if self.entries[place].state == State::Live {
                let update = self.drain_place(place, Some(EndReason::Shutdown));
                drained.count(&update);
                yield_update(&update);
                self.free(place);
            }
        }
        drained
    }

    fn drain_ended(&mut self, drained: &mut Drained, yield_update: &mut impl FnMut(&FlowUpdate)) {
        for place in std::mem::take(&mut self.ended) {
            let update = self.drain_place(place, Some(EndReason::Closed));
            drained.count(&update);
            yield_update(&update);
            self.free(place);
        }
    }

    fn free(&mut self, place: u32) {
        let Entry {
            key,
            details,
            carrier,
            ..
        } = self.entries[place];
        if let Some(known) = &mut self.known_points {
            known.remove(&key);
        }
        if details != tcp::NO_DETAILS {
            self.details.remove(details);
        }
        if carrier != NO_CARRIER {
            self.carriers.remove(carrier);
        }
        self.entries.remove(place);
        if let Some(first_packets) = self.first_packets.get_mut(place as usize) {
            *first_packets = 0;
        }
        if let Some(cold) = self.cold.get_mut(place as usize) {
            *cold = Cold::default();
        }
    }
}
