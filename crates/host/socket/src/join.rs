//! Which sockets a conversation belongs to: an index of endpoints, open and just closed.

use std::{
    collections::{HashMap, HashSet, hash_map::RandomState},
    hash::BuildHasher as _,
    net::{IpAddr, SocketAddr},
};

use hashbrown::{HashTable, hash_table::Entry as Slot};
use skua_flow::{FlowKey, Service, ServiceRule, Used};

use crate::{
    Opener, Protocol, SocketRecord, SocketState, TaskRule, TcpMetrics,
    listeners::{Listeners, Waiting},
    lives::{Found, LATE_NS, Lived, Lives, Span, choose},
    owner::OwnerId,
    record::is_wildcard,
};

/// What a conversation's sockets say about it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Joined {
    /// Owners of the sockets of `lo` and `hi`.
    pub owners: [Option<OwnerId>; 2],
    /// Which side offers the service, as far as sockets know.
    pub service: Option<Service>,
    /// On one of the sides several sockets of different owners fit, so that none is named, but what those
    /// that wait at one port share.
    pub ambiguous: bool,
}

/// A socket by its two endpoints. Both directions of a conversation, and the sockets at both of its
/// ends, have one hash.
#[derive(Clone, Copy)]
struct Entry {
    /// Of protocol and both endpoints, with a secret seed: taken for the endpoints themselves.
    hash: u64,
    /// Half of the local endpoint's hash: says which of the two is local.
    local: u32,
    netns: u32,
    owner: Option<OwnerId>,
    /// Distinguishes it from earlier and later sockets with the same endpoints.
    id: u64,
    life: Span,
    measured: Measured,
    opener: Opener,
    /// Its begin is when the process called connect, not only the latest that is possible.
    connects: bool,
}

impl Entry {
    /// Whether it may have been there when a handshake ended.
    fn may_have_opened(&self, opened_ns: u64) -> bool {
        !self.connects || self.life.first_ns <= opened_ns.saturating_add(LATE_NS)
    }
}

impl Lived for Entry {
    fn id(&self) -> u64 {
        self.id
    }

    fn life(&self) -> Span {
        self.life
    }

    fn is_alike(&self, other: &Self) -> bool {
        self.netns == other.netns && self.owner == other.owner && self.owner.is_some()
    }
}

/// TCP measurements of a socket, as of the last poll.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Measured {
    /// Smoothed round-trip time, µs; 0 unknown.
    pub srtt_us: u32,
    /// Its mean deviation, µs.
    pub rttvar_us: u32,
    /// Least round-trip time of the kernel's window, µs; 0 unknown.
    pub min_rtt_us: u32,
    /// Segments sent again since the start.
    pub retransmits: u32,
    /// Segments held for lost; that or more at the most.
    pub lost: u16,
    /// Congestion window, segments; that or more at the most.
    pub cwnd: u16,
    /// Maximum segment size for sending, bytes.
    pub mss: u16,
}

impl From<&TcpMetrics> for Measured {
    fn from(tcp: &TcpMetrics) -> Self {
        let narrow = |value: u32| u16::try_from(value).unwrap_or(u16::MAX);
        Self {
            srtt_us: tcp.srtt_us,
            rttvar_us: tcp.rttvar_us,
            min_rtt_us: tcp.min_rtt_us,
            retransmits: tcp.retransmits,
            lost: narrow(tcp.lost),
            cwnd: narrow(tcp.cwnd),
            mss: narrow(tcp.mss),
        }
    }
}

/// The index.
pub struct SocketIndex {
    seeds: [u64; 4],
    /// By the hash of the endpoints.
    entries: HashTable<(u64, Lives<Entry>)>,
    /// How many there are.
    connected: usize,
    limit: usize,
    /// Whether there are sums of the kernel among the entries.
    sums: bool,
    listeners: Listeners,
    /// Addresses of namespaces, by inode number.
    addresses: HashMap<u32, HashSet<IpAddr>>,
    /// Entries above the limit.
    dropped: u64,
}

/// Hashes of the endpoints of a conversation.
struct Pair {
    whole: u64,
    halves: [u32; 2],
}

impl SocketIndex {
    /// An empty index of at most `limit` sockets with a peer, and as many that wait.
    pub fn new(limit: usize) -> Self {
        let random = RandomState::new();
        Self {
            seeds: std::array::from_fn(|i| random.hash_one(i) | 1),
            entries: HashTable::new(),
            connected: 0,
            limit,
            sums: false,
            listeners: Listeners::new(),
            addresses: HashMap::new(),
            dropped: 0,
        }
    }

    /// Sockets above the limit.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Bytes of memory.
    pub fn memory(&self) -> usize {
        let lives = self.entries.iter().map(|(_, lives)| lives.capacity());
        self.entries.capacity() * (size_of::<(u64, Lives<Entry>)>() + 1)
            + lives.sum::<usize>() * size_of::<Entry>()
            + self.listeners.memory()
    }

    /// Says which addresses a namespace has: a socket that is bound to none has them all.
    pub fn set_addresses(&mut self, netns: u32, addresses: impl IntoIterator<Item = IpAddr>) {
        let addresses = addresses.into_iter().map(|a| a.to_canonical()).collect();
        self.addresses.insert(netns, addresses);
    }

    /// The addresses of a namespace; none when they were not set.
    pub fn addresses(&self, netns: u32) -> Option<impl Iterator<Item = IpAddr>> {
        Some(self.addresses.get(&netns)?.iter().copied())
    }

    /// Forgets the addresses of namespaces that are not among `there`.
    pub fn retain_namespaces(&mut self, there: &[u32]) {
        self.addresses.retain(|netns, _| there.contains(netns));
    }

    #[inline]
    fn endpoint(&self, address: &[u8; 16], port: u16) -> u64 {
        let whole = u128::from_le_bytes(*address);
        let [s0, s1, s2, _] = self.seeds;
        let address = mix(whole as u64 ^ s0, (whole >> 64) as u64 ^ s1);
        mix(address ^ u64::from(port), s2)
    }

    #[inline]
    fn pair(&self, protocol: u8, a: u64, b: u64) -> Pair {
        Pair {
            whole: mix(a.wrapping_add(b) ^ u64::from(protocol), self.seeds[3]),
            halves: [(a >> 32) as u32, (b >> 32) as u32],
        }
    }

    fn pair_of(&self, protocol: Protocol, local: SocketAddr, remote: SocketAddr) -> Pair {
        let endpoint = |a: SocketAddr| self.endpoint(&octets(a.ip()), a.port());
        self.pair(protocol.number(), endpoint(local), endpoint(remote))
    }

    /// Adds a socket, or updates it.
    pub fn put(&mut self, record: &SocketRecord) {
        let life = record.life();
        if let Some(remote) = record.remote
            && !is_wildcard(record.local.ip())
        {
            let pair = self.pair_of(record.protocol, record.local, remote);
            self.put_pair(Entry {
                hash: pair.whole,
                local: pair.halves[0],
                netns: record.netns,
                owner: record.owner,
                id: record.id,
                life,
                measured: record.tcp.as_ref().map(Measured::from).unwrap_or_default(),
                opener: record.opener,
                connects: record.owner_by == TaskRule::Connect,
            });
        }
        if matches!(
            record.state,
            SocketState::Listen | SocketState::UdpUnconnected
        ) {
            let kept = self.listeners.put(record, life, self.limit);
            self.dropped += u64::from(!kept);
        }
    }

    /// Adds a pair of the aggregate mode: conversations between two addresses whose ephemeral port is not
    /// known.
    pub fn put_addresses(
        &mut self,
        protocol: Protocol,
        netns: u32,
        (local, remote): (SocketAddr, SocketAddr),
        owner: Option<OwnerId>,
        opener: Opener,
        life: Span,
    ) {
        self.sums = true;
        let pair = self.pair_of(protocol, local, remote);
        // A sum for each owner, from its first connection on: they may be there at the same time.
        let id = owner.map_or(0, |owner| owner.number().get().into());
        let known = self
            .entries
            .find(pair.whole, |(hash, _)| *hash == pair.whole);
        let since = known.and_then(|(_, lives)| {
            let mut same = lives.iter().filter(|e| e.id == id && e.netns == netns);
            same.find(|e| e.local == pair.halves[0]).map(|e| e.life)
        });
        self.put_pair(Entry {
            hash: pair.whole,
            local: pair.halves[0],
            netns,
            owner,
            id,
            life: Span {
                first_ns: since.map_or(life.first_ns, |since| since.first_ns.min(life.first_ns)),
                last_ns: since.map_or(life.last_ns, |since| since.last_ns.max(life.last_ns)),
            },
            measured: Measured::default(),
            opener,
            connects: false,
        });
    }

    fn put_pair(&mut self, new: Entry) {
        let full = self.connected >= self.limit;
        let same = |e: &Entry| e.id == new.id && e.local == new.local && e.netns == new.netns;
        let slot = self
            .entries
            .entry(new.hash, |(hash, _)| *hash == new.hash, |(hash, _)| *hash);
        match slot {
            Slot::Occupied(mut lives) => {
                let lives = &mut lives.get_mut().1;
                if full && !lives.iter().any(same) {
                    self.dropped += 1;
                } else {
                    self.connected += usize::from(lives.put(new, same));
                }
            }
            Slot::Vacant(_) if full => self.dropped += 1,
            Slot::Vacant(slot) => {
                slot.insert((new.hash, Lives::new(new)));
                self.connected += 1;
            }
        }
    }

    /// Forgets sockets that ended before a moment, ns since the Unix epoch.
    pub fn forget_before(&mut self, ns: u64) {
        let stays = |life: Span| life.last_ns >= ns;
        let mut connected = 0;
        self.entries.retain(|(_, lives)| {
            lives.retain(|e| stays(e.life));
            connected += lives.len();
            lives.len() > 0
        });
        self.connected = connected;
        if self.entries.capacity() > 4 * self.entries.len().max(1024) {
            self.entries.shrink_to_fit(|(hash, _)| *hash);
        }
        self.listeners.forget_before(ns);
    }

    /// Whether less than a quarter of the limit is free.
    pub fn is_tight(&self) -> bool {
        self.connected > self.limit / 4 * 3
    }

    /// The sockets of a conversation in the namespace with this inode number (0: not known), that existed
    /// when it did. Those of the namespace itself first, else the only one of any namespace with these
    /// endpoints. `opened_ns`: when the handshake ended, if it was seen; a process that connected after it used the ports
    /// again, although packets came even later (from another processor).
    pub fn join(&self, key: &FlowKey, netns: u32, span: Span, opened_ns: Option<u64>) -> Joined {
        let protocol = match key.proto {
            6 => Protocol::Tcp,
            17 => Protocol::Udp,
            _ => return Joined::default(),
        };
        let ports = [key.lo_port, key.hi_port].map(u16::from_be_bytes);
        let addresses = [&key.lo, &key.hi];
        let ends: [u64; 2] = std::array::from_fn(|i| self.endpoint(addresses[i], ports[i]));
        let pair = self.pair(key.proto, ends[0], ends[1]);
        let mut sides = self.sides(&pair, netns, span);
        if let Some(opened_ns) = opened_ns {
            for found in &mut sides {
                if matches!(found, Found::One(entry) if !entry.may_have_opened(opened_ns)) {
                    *found = Found::Nothing;
                }
            }
        }
        let mut joined = Joined::default();
        if self.sums && sides.iter().all(|found| matches!(found, Found::Nothing)) {
            // In aggregate mode only addresses and the service's port are known.
            for service in 0..2 {
                let client = self.endpoint(addresses[1 - service], 0);
                let mut halves = [0; 2];
                halves[service] = (ends[service] >> 32) as u32;
                halves[1 - service] = (client >> 32) as u32;
                let whole = self.pair(key.proto, ends[service], client).whole;
                sides = self.sides(&Pair { whole, halves }, netns, span);
                if sides.iter().any(|found| !matches!(found, Found::Nothing)) {
                    break;
                }
            }
        }
        for (side, found) in sides.iter().enumerate() {
            joined.ambiguous |= matches!(found, Found::Several(_));
            let Some(entry) = found.one() else { continue };
            joined.owners[side] = entry.owner;
            let lo = match entry.opener {
                Opener::Unknown => continue,
                Opener::Local => side == 1,
                Opener::Remote => side == 0,
            };
            joined.service = Some(Service {
                lo,
                by: ServiceRule::Kernel,
            });
        }
        if joined.service.is_some() && joined.owners.iter().all(Option::is_some) {
            return joined;
        }
        for side in 0..2 {
            if !self.may_listen(protocol, ports[side]) {
                continue;
            }
            let Some(ip) = key.ip(addresses[side]) else {
                continue;
            };
            // With several matching connections none is named, nor a listener in their place.
            if matches!(sides[side], Found::Several(_)) {
                continue;
            }
            let Some(found) = self.listener(protocol, netns, ip, ports[side], span) else {
                continue;
            };
            if joined.owners[side].is_none() {
                joined.owners[side] = found.owner;
                joined.ambiguous |= found.is_ambiguous;
            }
            if joined.service.is_none()
                && let Some(calls) = found.calls
            {
                joined.service = Some(if calls {
                    Service {
                        lo: side == 1,
                        by: ServiceRule::Kernel,
                    }
                } else {
                    Service {
                        lo: side == 0,
                        by: ServiceRule::Listening,
                    }
                });
            }
        }
        joined
    }

    /// TCP's measurements of a conversation, and whether at the socket of `lo`. When both sockets are here,
    /// those of the client.
    pub fn measured(&self, key: &FlowKey, netns: u32, span: Span) -> Option<(bool, Measured)> {
        if key.proto != Protocol::Tcp.number() {
            return None;
        }
        let lo = self.endpoint(&key.lo, u16::from_be_bytes(key.lo_port));
        let hi = self.endpoint(&key.hi, u16::from_be_bytes(key.hi_port));
        let sides = self.sides(&self.pair(key.proto, lo, hi), netns, span);
        let known = sides.iter().zip([true, false]).filter_map(|(entry, lo)| {
            let entry = entry.one()?;
            let measured = entry.measured;
            (measured.srtt_us > 0).then_some((entry.opener != Opener::Local, lo, measured))
        });
        let (_, lo, measured) = known.min_by_key(|(answered, ..)| *answered)?;
        Some((lo, measured))
    }

    /// The sockets at the two sides of a pair that were there in a time.
    #[inline]
    fn sides(&self, pair: &Pair, netns: u32, span: Span) -> [Found<'_, Entry>; 2] {
        let Some((_, lives)) = self
            .entries
            .find(pair.whole, |(hash, _)| *hash == pair.whole)
        else {
            return [Found::Nothing; 2];
        };
        pair.halves.map(|half| {
            let side = lives.near(span).filter(move |e| e.local == half);
            match choose(side.clone().filter(|e| e.netns == netns), span) {
                Found::Nothing => choose(side, span),
                found => found,
            }
        })
    }

    fn may_listen(&self, protocol: Protocol, port: u16) -> bool {
        self.listeners.may_listen(protocol, port)
    }

    /// The listener at an address of a namespace in a time.
    fn listener(
        &self,
        protocol: Protocol,
        netns: u32,
        address: IpAddr,
        port: u16,
        span: Span,
    ) -> Option<Waiting> {
        let is_local = |netns, address| self.is_local(netns, address);
        self.listeners
            .find(protocol, netns, address, port, span, is_local)
    }

    fn is_local(&self, netns: u32, address: IpAddr) -> bool {
        address.is_loopback()
            || self
                .addresses
                .get(&netns)
                .is_some_and(|there| there.contains(&address))
    }

    /// Whether a socket waits for others at a local endpoint of a namespace.
    pub fn listens_at(&self, protocol: Protocol, netns: u32, local: SocketAddr) -> bool {
        self.listeners.listens_at(protocol, netns, local)
    }

    /// Whether a socket waits at an endpoint that a socket of this namespace is connected to.
    pub fn waits_at(&self, protocol: Protocol, netns: u32, remote: SocketAddr, span: Span) -> bool {
        self.may_listen(protocol, remote.port())
            && self
                .listener(protocol, netns, remote.ip(), remote.port(), span)
                .is_some_and(|found| found.calls == Some(false))
    }

    /// Learns what sockets have in common that wait at one address; `shared` says what two owners share.
    pub fn share_ports(&mut self, shared: &mut dyn FnMut(OwnerId, OwnerId) -> Option<OwnerId>) {
        self.listeners.share(shared);
    }

    /// Notes every owner that is in the index.
    pub fn owners(&self, used: &mut Used) {
        let entries = self.entries.iter().flat_map(|(_, lives)| lives.iter());
        let entries = entries.filter_map(|e| e.owner);
        for owner in entries {
            used.note(owner.number(), false);
        }
        self.listeners.owners(used);
    }

    /// The socket at the other end of a connection, when that is on this host, too; else the owner of
    /// the socket that waits there.
    pub fn peer(
        &self,
        protocol: Protocol,
        netns: u32,
        local: SocketAddr,
        remote: SocketAddr,
        span: Span,
    ) -> Option<Peer> {
        let pair = self.pair_of(protocol, remote, local);
        let peer = |owner| {
            Some(Peer {
                owner,
                connected: true,
            })
        };
        match self.sides(&pair, netns, span)[0] {
            Found::One(entry) => return peer(entry.owner),
            // The kernel's sums do not say which of several processes each connection was of.
            Found::Several(one) if self.sums => return peer(one.owner),
            Found::Several(_) => return peer(None),
            Found::Nothing => {}
        }
        if !self.may_listen(protocol, remote.port()) {
            return None;
        }
        let found = self.listener(protocol, netns, remote.ip(), remote.port(), span)?;
        if found.is_ambiguous && found.owner.is_none() {
            return None;
        }
        Some(Peer {
            owner: found.owner,
            connected: found.calls == Some(true),
        })
    }
}

/// The other end of a connection on this host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Peer {
    /// Its owner.
    pub owner: Option<OwnerId>,
    /// Whether it is the connection's own socket, not only the one that waits.
    pub connected: bool,
}

/// Multiplies and folds (as wyhash does): every bit of the result depends on every bit given.
#[inline]
fn mix(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

/// An address as flow keys have it.
fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}
