//! The sockets of the host: open ones, and as many that have ended as there is room for.

use std::{
    collections::{HashMap, VecDeque},
    ops::RangeInclusive,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use skua_flow::{FlowKey, FlowRecord, Ownership, Service, ServiceRule, Used};

use crate::{
    EdgeKey, End, Measured, Opener, OwnerId, PairUpdate, ServiceSide, Services, SocketIndex,
    SocketRecord, SocketState, SocketUpdate, Span, Sums, service::ServiceNames,
    service::pair_endpoints,
};

/// Most ended connections that wait to be summed up until both ends have been polled.
const PENDING: usize = 16_384;
/// Dependencies that are kept apart.
const DEPENDENCIES: usize = 65_536;
/// Sockets that ended stay joinable at least so long, ns: packets come as long as TIME-WAIT lasts
/// (60 s, `TCP_TIMEWAIT_LEN`).
const JOINABLE_NS: u64 = 90_000_000_000;
/// … and for so many intervals between drains.
const JOINABLE_DRAINS: u64 = 3;
/// How often sockets that are no longer joinable are forgotten, ns.
const FORGET_NS: u64 = 15_000_000_000;
/// Ports from here on are not for services alone (RFC 6335 section 6).
const WELL_KNOWN: u16 = 1024;

/// How much a [`SocketStore`] keeps.
#[derive(Clone, Debug)]
pub struct SocketStoreConfig {
    /// Open sockets at most.
    pub max_sockets: usize,
    /// Memory for sockets that have ended, bytes.
    pub history: usize,
    /// Ended connections come summed up ([`PairUpdate`]): a socket that a poll no longer sees is in a pair,
    /// not lost.
    pub aggregate: bool,
    /// Ports that the host gives to clients (`net.ipv4.ip_local_port_range`).
    pub ephemeral: RangeInclusive<u16>,
}

impl Default for SocketStoreConfig {
    fn default() -> Self {
        Self {
            max_sockets: 262_144,
            history: 32 << 20,
            aggregate: false,
            ephemeral: 32_768..=60_999,
        }
    }
}

/// What a store was given.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SocketCounts {
    /// Sockets that were met, open or ended.
    pub seen: u64,
    /// Sockets that ended; those of pairs included.
    pub ended: u64,
    /// Of them those that vanished without an end.
    pub vanished: u64,
    /// Open sockets above the limit.
    pub not_kept: u64,
    /// Ended sockets that were dropped from the full history.
    pub evicted: u64,
    /// Ended connections that came summed up.
    pub in_pairs: u64,
    /// Sockets above the limit of the index for flows.
    pub not_joined: u64,
    /// Conversations that matched several sockets of different owners at the first search (the ports were
    /// reused, or several processes listen at one), so that no pid is named.
    pub ambiguous: u64,
    /// Connections that were summed up under others because there were too many dependencies.
    pub other_dependencies: u64,
}

struct Open {
    record: SocketRecord,
    /// The poll that saw it last.
    poll: u64,
    /// The previous poll did not see it.
    missing: bool,
}

/// Where a socket was found. It may have been dropped when it is read there later.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FoundSocket {
    /// Open, by its identifier.
    Open(u64),
    /// Ended, by how many were kept before.
    Ended(u64),
}

/// See the module.
pub struct SocketStore {
    config: SocketStoreConfig,
    open: HashMap<u64, Open>,
    closed: VecDeque<SocketRecord>,
    index: SocketIndex,
    services: Services,
    /// Ended connections that are not summed up yet, and those that have begun.
    pending: Vec<(SocketRecord, bool)>,
    begun: Vec<u64>,
    pending_pairs: Vec<(PairUpdate, Option<OwnerId>)>,
    poll: u64,
    now_ns: u64,
    interval_ns: u64,
    forgot_ns: u64,
    counts: SocketCounts,
    /// [`SocketCounts::ambiguous`].
    ambiguous: AtomicU64,
}

impl SocketStore {
    /// An empty store.
    pub fn new(config: SocketStoreConfig) -> Self {
        Self {
            index: SocketIndex::new(config.max_sockets.saturating_mul(4)),
            services: Services::new(DEPENDENCIES),
            config,
            open: HashMap::new(),
            closed: VecDeque::new(),
            pending: Vec::new(),
            begun: Vec::new(),
            pending_pairs: Vec::new(),
            poll: 0,
            now_ns: 0,
            interval_ns: 0,
            forgot_ns: 0,
            counts: SocketCounts::default(),
            ambiguous: AtomicU64::new(0),
        }
    }

    /// Says that a drain begins.
    pub fn begin_drain(&mut self, now_ns: u64) {
        self.interval_ns = now_ns.saturating_sub(self.now_ns);
        if self.now_ns == 0 {
            self.interval_ns = 0;
        }
        self.now_ns = now_ns;
        if now_ns.saturating_sub(self.forgot_ns) > FORGET_NS || self.index.is_tight() {
            self.forgot_ns = now_ns;
            let joinable = JOINABLE_NS.max(JOINABLE_DRAINS * self.interval_ns);
            // What ended before the last drain was joined by it.
            let joinable = if self.index.is_tight() {
                self.interval_ns
            } else {
                joinable
            };
            self.index.forget_before(now_ns.saturating_sub(joinable));
        }
    }

    /// Records the end of a socket.
    pub fn ended(
        &mut self,
        update: &SocketUpdate,
        owner: Option<OwnerId>,
        names: &dyn ServiceNames,
    ) {
        let (record, met) = match self.open.remove(&update.id) {
            Some(Open { mut record, .. }) => {
                record.apply(update, owner, self.now_ns);
                (record, true)
            }
            None => {
                self.counts.seen += 1;
                let record = SocketRecord::new(update, owner, self.now_ns);
                (record, record.start_ns == 0)
            }
        };
        self.close(record, met, names);
    }

    /// `met`: it was counted already when it began.
    fn close(&mut self, record: SocketRecord, met: bool, names: &dyn ServiceNames) {
        self.counts.ended += 1;
        self.index.put(&record);
        if record.peer().is_some() {
            self.pending.push((record, met));
            if self.pending.len() >= PENDING {
                self.settle(names);
            }
        }
        let most = self.config.history / size_of::<SocketRecord>();
        while self.closed.len() >= most.max(1) {
            self.closed.pop_front();
            self.counts.evicted += 1;
        }
        if most > 0 {
            self.closed.push_back(record);
        }
    }

    /// Starts a poll of all open sockets.
    pub fn begin_poll(&mut self) {
        self.poll += 1;
    }

    /// Takes an open socket.
    pub fn observe(&mut self, update: &SocketUpdate, owner: Option<OwnerId>) {
        let poll = self.poll;
        if let Some(open) = self.open.get_mut(&update.id) {
            open.record.apply(update, owner, self.now_ns);
            open.poll = poll;
            open.missing = false;
            self.index.put(&open.record);
            return;
        }
        if self.open.len() >= self.config.max_sockets {
            self.counts.not_kept += 1;
            return;
        }
        self.counts.seen += 1;
        let record = SocketRecord::new(update, owner, self.now_ns);
        self.index.put(&record);
        if record.peer().is_some() && record.start_ns != 0 && !self.config.aggregate {
            self.begun.push(record.id);
        }
        let open = Open {
            record,
            poll,
            missing: false,
        };
        self.open.insert(update.id, open);
    }

    /// Ends a poll. A socket that two polls in a row did not see, and whose end was not reported, has
    /// vanished: its end may be reported a moment after a poll that missed it.
    pub fn end_poll(&mut self, names: &dyn ServiceNames) {
        let mut vanished = Vec::new();
        for (id, open) in &mut self.open {
            if open.poll == self.poll {
                continue;
            }
            if std::mem::replace(&mut open.missing, true) {
                vanished.push(*id);
            }
        }
        for id in vanished {
            let Some(Open { mut record, .. }) = self.open.remove(&id) else {
                continue;
            };
            record.end = Some(End::Vanished);
            record.updated_ns = self.now_ns;
            if self.config.aggregate && !record.listens() {
                // Its numbers are in a pair.
                self.index.put(&record);
                continue;
            }
            self.counts.vanished += 1;
            self.close(record, true, names);
        }
        self.settle(names);
        // Many may have been open at once; their memory is not kept for ever.
        if self.open.capacity() > 4 * self.open.len().max(1024) {
            self.open.shrink_to_fit();
        }
        if self.pending.capacity() > 1024 {
            self.pending.shrink_to_fit();
        }
        self.services.follow(names);
        self.services.roll(self.now_ns);
    }

    /// Learns what processes share that wait at one port; `shared` says it of two owners. Belongs after
    /// [`end_poll`](Self::end_poll).
    pub fn share_ports(&mut self, shared: &mut dyn FnMut(OwnerId, OwnerId) -> Option<OwnerId>) {
        self.index.share_ports(shared);
    }

    /// Takes ended connections that the kernel summed up.
    pub fn pair(&mut self, update: &PairUpdate, owner: Option<OwnerId>, names: &dyn ServiceNames) {
        self.counts.ended += update.connections;
        self.counts.in_pairs += update.connections;
        let (local, remote) = pair_endpoints(update);
        self.index.put_addresses(
            update.protocol,
            update.netns,
            (local, remote),
            owner,
            update.opener,
            Span {
                first_ns: update.first_ns,
                last_ns: update.last_ns,
            },
        );
        self.pending_pairs.push((*update, owner));
        if self.pending_pairs.len() >= PENDING {
            self.settle(names);
        }
    }

    /// Sums up what has waited.
    fn settle(&mut self, names: &dyn ServiceNames) {
        for (record, met) in std::mem::take(&mut self.pending) {
            let side = self.service_of(&record);
            self.services.ended(&record, met, side, &self.index, names);
        }
        for (pair, owner) in std::mem::take(&mut self.pending_pairs) {
            self.services.pair(&pair, owner, &self.index, names);
        }
        for id in std::mem::take(&mut self.begun) {
            let Some(open) = self.open.get(&id) else {
                continue;
            };
            let side = self.service_of(&open.record);
            self.services.begun(&open.record, side, &self.index, names);
        }
    }

    /// Which side of a socket offers the service (`docs/sockets.md` section 5).
    pub fn service_of(&self, record: &SocketRecord) -> Option<ServiceSide> {
        let side = |local, by| Some(ServiceSide { local, by });
        if record.listens() {
            return self.offers(record).then_some(ServiceSide {
                local: true,
                by: ServiceRule::Listening,
            });
        }
        let remote = record.remote?;
        match record.opener {
            Opener::Local => return side(false, ServiceRule::Kernel),
            Opener::Remote => return side(true, ServiceRule::Kernel),
            Opener::Unknown => {}
        }
        let (protocol, netns) = (record.protocol, record.netns);
        if self.index.listens_at(protocol, netns, record.local) {
            return side(true, ServiceRule::Listening);
        }
        if self.index.waits_at(protocol, netns, remote, record.life()) {
            return side(false, ServiceRule::Listening);
        }
        let (lo, by) = self.by_ports(record.local.port(), remote.port())?;
        side(lo, by)
    }

    /// Whether an unconnected socket offers a service: TCP always, UDP unless its port is one of those that
    /// the host gives to clients.
    fn offers(&self, record: &SocketRecord) -> bool {
        record.state == SocketState::Listen || !self.config.ephemeral.contains(&record.local.port())
    }

    /// Whether the first of two ports is the service's, and by which rule.
    fn by_ports(&self, first: u16, second: u16) -> Option<(bool, ServiceRule)> {
        let ephemeral = |port| self.config.ephemeral.contains(&port);
        if ephemeral(first) != ephemeral(second) {
            return Some((ephemeral(second), ServiceRule::Ephemeral));
        }
        if (first < WELL_KNOWN) != (second < WELL_KNOWN) {
            return Some((first < WELL_KNOWN, ServiceRule::WellKnown));
        }
        None
    }

    /// Whose a conversation is, by the sockets that are known; `netns` is the inode number of the
    /// namespace in which it was captured, 0 when not known.
    pub fn join(&self, flow: &FlowRecord, netns: u32) -> Ownership {
        let key: &FlowKey = &flow.key;
        if !key.has_ports() {
            return Ownership::default();
        }
        let joined = self.index.join(key, netns, span_of(flow), opened_ns(flow));
        if joined.ambiguous && flow.joins == 0 {
            self.ambiguous.fetch_add(1, Relaxed);
        }
        let service = joined
            .service
            .or_else(|| {
                let opened = flow.tcp.lo_opened?;
                Some(Service {
                    lo: !opened,
                    by: ServiceRule::Syn,
                })
            })
            .or_else(|| {
                let [lo, hi] = [key.lo_port, key.hi_port].map(u16::from_be_bytes);
                let (lo, by) = self.by_ports(lo, hi)?;
                Some(Service { lo, by })
            });
        Ownership {
            owners: joined.owners.map(|owner| owner.map(OwnerId::number)),
            service,
        }
    }

    /// What TCP measured of a conversation, see [`SocketIndex::measured`].
    pub fn measured(&self, flow: &FlowRecord, netns: u32) -> Option<(bool, Measured)> {
        self.index.measured(&flow.key, netns, span_of(flow))
    }

    /// The index.
    pub fn index(&self) -> &SocketIndex {
        &self.index
    }

    /// The index, to set addresses.
    pub fn index_mut(&mut self) -> &mut SocketIndex {
        &mut self.index
    }

    /// Open sockets, in no order.
    pub fn open(&self) -> impl Iterator<Item = &SocketRecord> {
        self.open.values().map(|open| &open.record)
    }

    /// Sockets that have ended, the oldest first.
    pub fn closed(&self) -> impl Iterator<Item = &SocketRecord> {
        self.closed.iter()
    }

    /// Where sockets are: open ones, in no order, and those that have ended when they are wanted, too.
    pub fn places(&self, ended: bool) -> Vec<FoundSocket> {
        let begin = self.counts.evicted;
        let end = begin + if ended { self.closed.len() as u64 } else { 0 };
        let open = self.open.keys().copied().map(FoundSocket::Open);
        open.chain((begin..end).map(FoundSocket::Ended)).collect()
    }

    /// Number of open sockets.
    pub fn open_count(&self) -> usize {
        self.open.len()
    }

    /// The socket at a place where one was found, if it is still there.
    pub fn at(&self, found: FoundSocket) -> Option<&SocketRecord> {
        match found {
            FoundSocket::Open(id) => self.open.get(&id).map(|open| &open.record),
            FoundSocket::Ended(number) => {
                let place = number.checked_sub(self.counts.evicted)?;
                self.closed.get(usize::try_from(place).ok()?)
            }
        }
    }

    /// Dependencies with their sums, open connections included.
    pub fn dependencies(&mut self, names: &dyn ServiceNames) -> HashMap<EdgeKey, Sums> {
        let sides: Vec<_> = self
            .open()
            .map(|record| (*record, self.service_of(record)))
            .collect();
        let open = sides.iter().map(|(record, side)| (record, *side));
        self.services.with_open(open, &self.index, names)
    }

    /// Name of a service by the number in [`EdgeKey`].
    pub fn service_name(&self, number: u32) -> &str {
        self.services.name(number)
    }

    /// Notes every owner that a socket has, active where it is open.
    pub fn owners(&self, used: &mut Used) {
        let mut note = |owner: Option<OwnerId>, active| {
            if let Some(owner) = owner {
                used.note(owner.number(), active);
            }
        };
        self.open().for_each(|record| note(record.owner, true));
        self.closed.iter().for_each(|r| note(r.owner, false));
        self.pending.iter().for_each(|(r, _)| note(r.owner, false));
        self.pending_pairs
            .iter()
            .for_each(|(_, owner)| note(*owner, false));
        self.index.owners(used);
    }

    /// What was taken so far.
    pub fn counts(&self) -> SocketCounts {
        SocketCounts {
            not_joined: self.index.dropped(),
            ambiguous: self.ambiguous.load(Relaxed),
            other_dependencies: self.services.overflowed(),
            ..self.counts
        }
    }

    /// Bytes of memory, about.
    pub fn memory(&self) -> usize {
        self.open.capacity() * (size_of::<Open>() + size_of::<u64>() + 1)
            + (self.closed.capacity() + self.pending.capacity()) * size_of::<SocketRecord>()
            + self.index.memory()
    }
}

/// When a conversation's packets came.
fn span_of(flow: &FlowRecord) -> Span {
    Span {
        first_ns: flow.first_ns,
        last_ns: flow.last_ns,
    }
}

/// When the handshake ended, ns since the Unix epoch; none if it was not seen whole.
fn opened_ns(flow: &FlowRecord) -> Option<u64> {
    let rtt_ns = flow.handshake_rtt_ns()?;
    let opener = usize::from(!flow.tcp.lo_opened?);
    match flow.tcp.syn_ns[opener] {
        0 => None,
        syn_ns => Some(syn_ns.saturating_add(rtt_ns)),
    }
}
