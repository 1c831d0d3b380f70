//! Which sockets a conversation belongs to: an index of endpoints, open and just closed.

use std::{
    collections::{HashMap, HashSet, hash_map::RandomState},
    hash::BuildHasher as _,
    net::{IpAddr, SocketAddr},
};

use hashbrown::HashTable;
use skua_flow::{FlowKey, Service, ServiceRule};

use crate::{
    Opener, Protocol, SocketRecord, SocketState, TcpMetrics, owner::OwnerId, record::is_wildcard,
};

const NS: u64 = 1_000_000_000;
/// The seconds of an entry whose socket is open.
const OPEN: u32 = 0;

/// What a conversation's sockets say about it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Joined {
    /// Owners of the sockets of `lo` and `hi`.
    pub owners: [Option<OwnerId>; 2],
    /// Which side offers the service, as far as sockets know.
    pub service: Option<Service>,
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
    /// When it ended, seconds since the Unix epoch, [`OPEN`] while it is open.
    ended_s: u32,
    measured: Measured,
    opener: Opener,
}

/// What a socket's TCP has measured of its connection, as of the last look.
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

/// A socket that waits for others.
#[derive(Clone, Copy)]
struct Listener {
    id: u64,
    /// It spoke first: it waits for answers only.
    calls: bool,
    netns: u32,
    address: IpAddr,
    owner: Option<OwnerId>,
    ended_s: u32,
}

/// The index.
pub struct SocketIndex {
    seeds: [u64; 4],
    entries: HashTable<Entry>,
    limit: usize,
    /// Whether there are sums of the kernel among the entries.
    sums: bool,
    listeners: HashMap<(Protocol, u16), Vec<Listener>>,
    listening: usize,
    /// A bit for each port in `listeners`, TCP first: most ports are not there.
    ports: Box<[[u64; 1024]; 2]>,
    /// Addresses of namespaces, by inode number.
    addresses: HashMap<u32, HashSet<IpAddr>>,
    /// Entries that found no room.
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
            limit,
            sums: false,
            listeners: HashMap::new(),
            listening: 0,
            ports: Box::new([[0; 1024]; 2]),
            addresses: HashMap::new(),
            dropped: 0,
        }
    }

    /// Sockets that found no room.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Bytes of memory.
    pub fn memory(&self) -> usize {
        self.entries.capacity() * (size_of::<Entry>() + 1)
            + self.listening * (size_of::<Listener>() + 32)
    }

    /// Says which addresses a namespace has: a socket that is bound to none has them all.
    pub fn set_addresses(&mut self, netns: u32, addresses: impl IntoIterator<Item = IpAddr>) {
        let addresses = addresses.into_iter().map(|a| a.to_canonical()).collect();
        self.addresses.insert(netns, addresses);
    }

    /// The addresses of a namespace; none when nobody has said which they are.
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

    /// Takes a socket, or what has changed of it.
    pub fn put(&mut self, record: &SocketRecord) {
        let ended_s = match record.end {
            None => OPEN,
            Some(_) => ((record.now_ns / NS) as u32).max(OPEN + 1),
        };
        if let Some(remote) = record.remote
            && !is_wildcard(record.local.ip())
        {
            let pair = self.pair_of(record.protocol, record.local, remote);
            self.put_pair(
                &pair,
                record.netns,
                record.owner,
                (
                    record.opener,
                    record.tcp.as_ref().map(Measured::from).unwrap_or_default(),
                ),
                ended_s,
            );
        }
        if matches!(
            record.state,
            SocketState::Listen | SocketState::UdpUnconnected
        ) {
            self.put_listener(record, ended_s);
        }
    }

    /// Takes a pair of the aggregate mode: conversations between two addresses whose ephemeral port
    /// is not known.
    pub fn put_addresses(
        &mut self,
        protocol: Protocol,
        netns: u32,
        (local, remote): (SocketAddr, SocketAddr),
        owner: Option<OwnerId>,
        opener: Opener,
        last_ns: u64,
    ) {
        self.sums = true;
        let pair = self.pair_of(protocol, local, remote);
        let ended_s = ((last_ns / NS) as u32).max(OPEN + 1);
        self.put_pair(&pair, netns, owner, (opener, Measured::default()), ended_s);
    }

    fn put_pair(
        &mut self,
        pair: &Pair,
        netns: u32,
        owner: Option<OwnerId>,
        (opener, measured): (Opener, Measured),
        ended_s: u32,
    ) {
        let new = Entry {
            hash: pair.whole,
            local: pair.halves[0],
            netns,
            owner,
            ended_s,
            measured,
            opener,
        };
        let same = |e: &Entry| e.hash == new.hash && e.local == new.local && e.netns == new.netns;
        if let Some(entry) = self.entries.find_mut(new.hash, same) {
            // The ports may be in use again already when the end of their last use is told.
            if ended_s == OPEN || entry.ended_s != OPEN || entry.owner == owner {
                *entry = new;
            }
            return;
        }
        if self.entries.len() >= self.limit {
            self.dropped += 1;
            return;
        }
        self.entries.insert_unique(new.hash, new, |e| e.hash);
    }

    fn put_listener(&mut self, record: &SocketRecord, ended_s: u32) {
        let (port, protocol) = (record.local.port(), record.protocol);
        if port == 0 {
            return;
        }
        let there = self.listeners.entry((protocol, port)).or_default();
        let new = Listener {
            id: record.id,
            calls: !record.listens(),
            netns: record.netns,
            address: record.local.ip(),
            owner: record.owner,
            ended_s,
        };
        if let Some(old) = there.iter_mut().find(|l| l.id == new.id) {
            *old = new;
        } else if self.listening >= self.limit {
            self.dropped += 1;
        } else {
            there.push(new);
            self.listening += 1;
            self.ports[protocol as usize][usize::from(port) / 64] |= 1 << (port % 64);
        }
    }

    /// Forgets sockets that ended before a moment, ns since the Unix epoch.
    pub fn forget_before(&mut self, ns: u64) {
        let before = (ns / NS) as u32;
        let stays = |ended_s: u32| ended_s == OPEN || ended_s >= before;
        self.entries.retain(|e| stays(e.ended_s));
        let ports = &mut self.ports;
        let mut listening = 0;
        self.listeners.retain(|(protocol, port), there| {
            there.retain(|l| stays(l.ended_s));
            listening += there.len();
            if there.is_empty() {
                ports[*protocol as usize][usize::from(*port) / 64] &= !(1 << (port % 64));
            }
            !there.is_empty()
        });
        self.listening = listening;
    }

    /// Whether there is no room for half as many more.
    pub fn is_tight(&self) -> bool {
        self.entries.len() > self.limit / 4 * 3
    }

    /// The sockets of a conversation in the namespace with this inode number (0: not known). Those
    /// of the namespace itself first, else the only one of any namespace with these endpoints.
    pub fn join(&self, key: &FlowKey, netns: u32) -> Joined {
        let protocol = match key.proto {
            6 => Protocol::Tcp,
            17 => Protocol::Udp,
            _ => return Joined::default(),
        };
        let ports = [key.lo_port, key.hi_port].map(u16::from_be_bytes);
        let addresses = [&key.lo, &key.hi];
        let ends: [u64; 2] = std::array::from_fn(|i| self.endpoint(addresses[i], ports[i]));
        let pair = self.pair(key.proto, ends[0], ends[1]);
        let mut sides = self.sides(&pair, netns);
        let mut joined = Joined::default();
        if self.sums && sides.iter().all(Option::is_none) {
            // In aggregate mode only addresses and the service's port are known.
            for service in 0..2 {
                let client = self.endpoint(addresses[1 - service], 0);
                let mut halves = [0; 2];
                halves[service] = (ends[service] >> 32) as u32;
                halves[1 - service] = (client >> 32) as u32;
                let whole = self.pair(key.proto, ends[service], client).whole;
                sides = self.sides(&Pair { whole, halves }, netns);
                if sides.iter().any(Option::is_some) {
                    break;
                }
            }
        }
        for (side, found) in sides.iter().enumerate() {
            let Some(entry) = found else { continue };
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
            let Some(listener) = self.listener(protocol, netns, ip, ports[side]) else {
                continue;
            };
            if joined.owners[side].is_none() {
                joined.owners[side] = listener.owner;
            }
            if joined.service.is_none() {
                joined.service = Some(match listener.calls {
                    false => Service {
                        lo: side == 0,
                        by: ServiceRule::Listening,
                    },
                    true => Service {
                        lo: side == 1,
                        by: ServiceRule::Kernel,
                    },
                });
            }
        }
        joined
    }

    /// What TCP measured of a conversation, and whether at the socket of `lo`. When both sockets are here, that of
    /// who called.
    pub fn measured(&self, key: &FlowKey, netns: u32) -> Option<(bool, Measured)> {
        if key.proto != Protocol::Tcp.number() {
            return None;
        }
        let lo = self.endpoint(&key.lo, u16::from_be_bytes(key.lo_port));
        let hi = self.endpoint(&key.hi, u16::from_be_bytes(key.hi_port));
        let sides = self.sides(&self.pair(key.proto, lo, hi), netns);
        let known = sides.iter().zip([true, false]).filter_map(|(entry, lo)| {
            let entry = (*entry)?;
            let measured = entry.measured;
            (measured.srtt_us > 0).then_some((entry.opener != Opener::Local, lo, measured))
        });
        let (_, lo, measured) = known.min_by_key(|(answered, ..)| *answered)?;
        Some((lo, measured))
    }

    /// The sockets at the two sides of a pair.
    #[inline]
    fn sides(&self, pair: &Pair, netns: u32) -> [Option<&Entry>; 2] {
        let mut here = [None; 2];
        let mut elsewhere = [None; 2];
        let mut several = [false; 2];
        for entry in self.entries.iter_hash(pair.whole) {
            if entry.hash != pair.whole {
                continue;
            }
            for side in 0..2 {
                if entry.local != pair.halves[side] {
                    continue;
                }
                if entry.netns == netns {
                    here[side] = Some(entry);
                } else if elsewhere[side].replace(entry).is_some() {
                    several[side] = true;
                }
            }
        }
        std::array::from_fn(|side| here[side].or(elsewhere[side].filter(|_| !several[side])))
    }

    #[inline]
    fn may_listen(&self, protocol: Protocol, port: u16) -> bool {
        self.ports[protocol as usize][usize::from(port) / 64] >> (port % 64) & 1 != 0
    }

    /// The socket that waits at an address of a namespace: one that is bound to it first.
    fn listener(
        &self,
        protocol: Protocol,
        netns: u32,
        address: IpAddr,
        port: u16,
    ) -> Option<&Listener> {
        let there = self.listeners.get(&(protocol, port))?;
        let address = address.to_canonical();
        let here = || there.iter().filter(|l| l.netns == netns);
        here()
            .find(|l| l.address == address)
            .or_else(|| here().find(|l| is_wildcard(l.address) && self.is_local(netns, address)))
            .or_else(|| {
                // In another namespace that has this address, when there is only one.
                let mut elsewhere = there.iter().filter(|l| {
                    !address.is_loopback()
                        && (l.address == address
                            || is_wildcard(l.address) && self.is_local(l.netns, address))
                });
                elsewhere.next().filter(|_| elsewhere.next().is_none())
            })
    }

    fn is_local(&self, netns: u32, address: IpAddr) -> bool {
        address.is_loopback()
            || self
                .addresses
                .get(&netns)
                .is_some_and(|there| there.contains(&address))
    }

    /// Whether a socket waits at a local endpoint of a namespace. Here the wildcard needs no list of
    /// addresses: the endpoint is a socket's own.
    pub fn listens_at(&self, protocol: Protocol, netns: u32, local: SocketAddr) -> bool {
        self.may_listen(protocol, local.port())
            && self
                .listeners
                .get(&(protocol, local.port()))
                .is_some_and(|there| {
                    there.iter().any(|l| {
                        !l.calls
                            && l.netns == netns
                            && (is_wildcard(l.address) || l.address == local.ip())
                    })
                })
    }

    /// Whether a socket waits at an endpoint that a socket of this namespace is connected to.
    pub fn waits_at(&self, protocol: Protocol, netns: u32, remote: SocketAddr) -> bool {
        self.may_listen(protocol, remote.port())
            && self
                .listener(protocol, netns, remote.ip(), remote.port())
                .is_some_and(|l| !l.calls)
    }

    /// Calls `used` with every owner that is in the index.
    pub fn owners(&self, used: &mut dyn FnMut(OwnerId)) {
        let entries = self.entries.iter().filter_map(|e| e.owner);
        let listeners = self.listeners.values().flatten().filter_map(|l| l.owner);
        entries.chain(listeners).for_each(used);
    }

    /// The socket at the other end of a connection, when that is on this host, too; else the owner of
    /// the socket that waits there.
    pub fn peer(
        &self,
        protocol: Protocol,
        netns: u32,
        local: SocketAddr,
        remote: SocketAddr,
    ) -> Option<Peer> {
        let pair = self.pair_of(protocol, remote, local);
        if let Some(entry) = self.sides(&pair, netns)[0] {
            return Some(Peer {
                owner: entry.owner,
                connected: true,
            });
        }
        if !self.may_listen(protocol, remote.port()) {
            return None;
        }
        let listener = self.listener(protocol, netns, remote.ip(), remote.port())?;
        Some(Peer {
            owner: listener.owner,
            connected: listener.calls,
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
