//! Services and their clients: ended and open connections summed up by client and server.

use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr},
};

use crate::{
    End, Opener, Owner, Owners, PairUpdate, Protocol, Renames, RttSum, SocketIndex, SocketRecord,
    Span, TcpMetrics, owner::OwnerId, record::ServiceSide,
};

/// New connections are counted over at least so long, ns: an answer on request is no interval.
const WINDOW_NS: u64 = 2_000_000_000;

/// Who is at an end of a connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum EdgeEnd {
    /// A service of this host, by its number.
    Service(u32),
    /// Another host, or an unknown process.
    Address(IpAddr),
    /// All others, when there were too many.
    Others,
}

/// A dependency: which service calls which.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct EdgeKey {
    /// The client.
    pub client: EdgeEnd,
    /// The server.
    pub server: EdgeEnd,
    /// Protocol.
    pub protocol: Protocol,
    /// Address that is called.
    pub address: IpAddr,
    /// Port that is called.
    pub port: u16,
}

/// Sums of connections.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Sums {
    /// Connections and attempts, open ones included.
    pub connections: u64,
    /// Of them open now.
    pub open: u64,
    /// Connections begun per second.
    pub rate: f64,
    /// Attempts that came to nothing.
    pub failed: u64,
    /// Of these, answered with a RST.
    pub refused: u64,
    /// No answer in time, to the attempt or to data.
    pub timed_out: u64,
    /// Reset by either side once established.
    pub reset: u64,
    /// Payload from client to server.
    pub to_server: u64,
    /// Payload from server to client.
    pub to_client: u64,
    /// Segments sent by our sockets that were polled.
    pub segments: u64,
    /// Of them sent again.
    pub retransmits: u64,
    /// Smoothed round-trip times.
    pub rtt: RttSum,
    /// First begin that is known, ns since the Unix epoch.
    pub first_ns: u64,
    /// Last end or poll, ns since the Unix epoch.
    pub last_ns: u64,
    /// Begun in the current window.
    begun: u64,
}

impl Sums {
    /// Adds others.
    pub fn add(&mut self, other: &Self) {
        self.connections += other.connections;
        self.open += other.open;
        self.rate += other.rate;
        self.failed += other.failed;
        self.refused += other.refused;
        self.timed_out += other.timed_out;
        self.reset += other.reset;
        self.to_server = self.to_server.saturating_add(other.to_server);
        self.to_client = self.to_client.saturating_add(other.to_client);
        self.segments = self.segments.saturating_add(other.segments);
        self.retransmits = self.retransmits.saturating_add(other.retransmits);
        self.rtt.add(&other.rtt);
        if self.first_ns == 0 || (other.first_ns != 0 && other.first_ns < self.first_ns) {
            self.first_ns = other.first_ns;
        }
        self.last_ns = self.last_ns.max(other.last_ns);
    }

    /// Share of segments that were sent again; none when none was sent.
    pub fn retransmit_share(&self) -> Option<f64> {
        (self.segments > 0).then(|| self.retransmits as f64 / self.segments as f64)
    }

    /// Adds a connection that is seen from `side`.
    fn add_socket(&mut self, record: &SocketRecord, client_side: bool) {
        self.connections += 1;
        let established = record.was_established();
        match record.end {
            None => self.open += 1,
            Some(End::Refused) => {
                self.failed += 1;
                self.refused += 1;
            }
            Some(End::TimedOut) => {
                self.timed_out += 1;
                self.failed += u64::from(!established);
            }
            Some(End::ResetLocal | End::ResetRemote) if established => self.reset += 1,
            Some(End::Error(_) | End::ResetLocal | End::ResetRemote) if !established => {
                self.failed += 1;
            }
            Some(_) => {}
        }
        if let Some(tcp) = &record.tcp {
            let (to_server, to_client) = directions(tcp, client_side);
            self.to_server = self.to_server.saturating_add(to_server);
            self.to_client = self.to_client.saturating_add(to_client);
            if tcp.srtt_us != 0 {
                self.rtt.sample(tcp.srtt_us);
            }
        }
        self.add_health(record);
        if record.start_ns != 0 && (self.first_ns == 0 || record.start_ns < self.first_ns) {
            self.first_ns = record.start_ns;
        }
        self.last_ns = self.last_ns.max(record.now_ns);
    }

    /// Adds the other direction, as the socket at the other end measured it.
    fn add_health(&mut self, record: &SocketRecord) {
        if let Some(tcp) = &record.tcp {
            self.segments = self.segments.saturating_add(tcp.segments_sent);
            self.retransmits = self.retransmits.saturating_add(tcp.retransmits.into());
        }
    }

    fn add_pair(&mut self, pair: &PairUpdate, client_side: bool) {
        self.connections += pair.connections;
        self.begun += pair.connections;
        self.failed += pair.failed;
        self.reset += pair.reset;
        let (to_server, to_client) = directions(&pair.tcp, client_side);
        self.to_server = self.to_server.saturating_add(to_server);
        self.to_client = self.to_client.saturating_add(to_client);
        self.rtt.add(&pair.rtt);
        self.add_pair_health(pair);
        if self.first_ns == 0 || pair.first_ns < self.first_ns {
            self.first_ns = pair.first_ns;
        }
        self.last_ns = self.last_ns.max(pair.last_ns);
    }

    fn add_pair_health(&mut self, pair: &PairUpdate) {
        self.segments = self.segments.saturating_add(pair.tcp.segments_sent);
        self.retransmits = self.retransmits.saturating_add(pair.tcp.retransmits.into());
    }
}

/// Payload (to the server, to the client).
fn directions(tcp: &TcpMetrics, client_side: bool) -> (u64, u64) {
    if client_side {
        (tcp.bytes_sent, tcp.bytes_received)
    } else {
        (tcp.bytes_received, tcp.bytes_sent)
    }
}

impl RttSum {
    /// Adds a connection's smoothed round-trip time.
    pub fn sample(&mut self, us: u32) {
        if self.count == 0 || us < self.min_us {
            self.min_us = us;
        }
        self.max_us = self.max_us.max(us);
        self.count += 1;
        self.sum_us = self.sum_us.saturating_add(us.into());
        let place = (us.max(1).ilog2() as usize).min(self.histogram.len() - 1);
        self.histogram[place] = self.histogram[place].saturating_add(1);
    }

    /// Adds others.
    pub fn add(&mut self, other: &Self) {
        if other.count == 0 {
            return;
        }
        if self.count == 0 || other.min_us < self.min_us {
            self.min_us = other.min_us;
        }
        self.max_us = self.max_us.max(other.max_us);
        self.count += other.count;
        self.sum_us = self.sum_us.saturating_add(other.sum_us);
        for (sum, more) in self.histogram.iter_mut().zip(other.histogram) {
            *sum = sum.saturating_add(more);
        }
    }

    /// The round-trip time, µs, that a share of the connections does not exceed; none without
    /// samples. Classes of the histogram double: it is off by less than a factor of 2.
    pub fn quantile(&self, share: f64) -> Option<f64> {
        let all: u64 = self.histogram.iter().map(|n| u64::from(*n)).sum();
        if all == 0 {
            return None;
        }
        let target = share * all as f64;
        let mut below = 0.0;
        for (place, count) in self.histogram.iter().enumerate() {
            let count = f64::from(*count);
            if count > 0.0 && below + count >= target {
                let floor = if place == 0 {
                    0.0
                } else {
                    (1u64 << place) as f64
                };
                let width = (1u64 << (place + 1)) as f64 - floor;
                let us = floor + width * (target - below) / count;
                return Some(us.clamp(self.min_us.into(), self.max_us.into()));
            }
            below += count;
        }
        Some(self.max_us.into())
    }
}

/// Names of owners' services.
pub trait ServiceNames {
    /// Name of the service that an owner belongs to: container, unit or process.
    fn service(&self, owner: OwnerId) -> Option<&str>;

    /// Services that got another name meanwhile; none where that never happens.
    fn renames(&self) -> Option<&Renames> {
        None
    }
}

impl ServiceNames for Owners {
    fn service(&self, owner: OwnerId) -> Option<&str> {
        let name = self.get(owner).map(Owner::service);
        // Several processes of different names, not in a service of systemd.
        name.filter(|name| !name.is_empty())
    }

    fn renames(&self) -> Option<&Renames> {
        Some(Self::renames(self))
    }
}

/// Sums by dependency.
pub struct Services {
    names: Vec<String>,
    numbers: HashMap<String, u32>,
    edges: HashMap<EdgeKey, Sums>,
    limit: usize,
    window_ns: u64,
    /// Connections that were counted under others because there were too many.
    overflowed: u64,
    /// Changes of names that were applied.
    renames: u64,
}

/// What an edge is made from.
#[derive(Clone, Copy)]
pub(crate) struct Ends {
    pub protocol: Protocol,
    pub netns: u32,
    pub local: SocketAddr,
    pub remote: SocketAddr,
    pub owner: Option<OwnerId>,
    /// When it was there.
    pub life: Span,
    /// Whether the local side calls.
    pub client_side: bool,
}

impl Services {
    /// At most `limit` dependencies.
    pub fn new(limit: usize) -> Self {
        Self {
            names: Vec::new(),
            numbers: HashMap::new(),
            edges: HashMap::new(),
            limit,
            window_ns: 0,
            overflowed: 0,
            renames: 0,
        }
    }

    /// Connections that were summed up under others for lack of room.
    pub fn overflowed(&self) -> u64 {
        self.overflowed
    }

    /// Name of a service.
    pub fn name(&self, number: u32) -> &str {
        self.names.get(number as usize).map_or("", String::as_str)
    }

    fn number(&mut self, name: &str) -> Option<u32> {
        if let Some(number) = self.numbers.get(name) {
            return Some(*number);
        }
        if self.names.len() >= self.limit {
            return None;
        }
        let number = self.names.len() as u32;
        self.names.push(name.to_owned());
        self.numbers.insert(name.to_owned(), number);
        Some(number)
    }

    /// Moves sums under a container's id to its name.
    pub(crate) fn follow(&mut self, names: &dyn ServiceNames) {
        let Some(renames) = names.renames() else {
            return;
        };
        for (former, now) in renames.since(self.renames) {
            self.rename(former, now);
        }
        self.renames = renames.count();
    }

    fn rename(&mut self, former: &str, now: &str) {
        let Some(number) = self.numbers.remove(former) else {
            return;
        };
        // Another container of this name existed: mostly it was created again.
        if let Some(&known) = self.numbers.get(now) {
            let (from, to) = (EdgeEnd::Service(number), EdgeEnd::Service(known));
            let moved: Vec<_> = self
                .edges
                .extract_if(|key, _| key.client == from || key.server == from)
                .collect();
            for (mut key, sums) in moved {
                for edge_end in [&mut key.client, &mut key.server] {
                    if *edge_end == from {
                        *edge_end = to;
                    }
                }
                self.edges.entry(key).or_default().add(&sums);
            }
        } else {
            self.numbers.insert(now.to_owned(), number);
            now.clone_into(&mut self.names[number as usize]);
        }
    }

    fn edge_end(
        &mut self,
        owner: Option<OwnerId>,
        address: IpAddr,
        names: &dyn ServiceNames,
    ) -> EdgeEnd {
        match owner.and_then(|owner| names.service(owner)) {
            None => EdgeEnd::Address(address),
            Some(name) => match self.number(name) {
                Some(number) => EdgeEnd::Service(number),
                None => EdgeEnd::Others,
            },
        }
    }

    /// The dependency that a connection belongs to, and whether the client's socket, which is also on this
    /// host, represents it instead.
    fn edge(
        &mut self,
        ends: &Ends,
        index: &SocketIndex,
        names: &dyn ServiceNames,
    ) -> (EdgeKey, bool) {
        let peer = index.peer(
            ends.protocol,
            ends.netns,
            ends.local,
            ends.remote,
            ends.life,
        );
        let own = self.edge_end(ends.owner, ends.local.ip(), names);
        let other_owner = peer.and_then(|peer| peer.owner);
        let other = self.edge_end(other_owner, ends.remote.ip(), names);
        let (client, server, called) = if ends.client_side {
            (own, other, ends.remote)
        } else {
            (other, own, ends.local)
        };
        let key = EdgeKey {
            client,
            server,
            protocol: ends.protocol,
            address: called.ip(),
            port: called.port(),
        };
        (key, !ends.client_side && peer.is_some_and(|p| p.connected))
    }

    fn sums(&mut self, key: EdgeKey) -> &mut Sums {
        let key = if self.edges.len() < self.limit || self.edges.contains_key(&key) {
            key
        } else {
            self.overflowed += 1;
            EdgeKey {
                client: EdgeEnd::Others,
                ..key
            }
        };
        self.edges.entry(key).or_default()
    }

    /// Adds an ended connection. `met`: it was counted already when it began.
    pub(crate) fn ended(
        &mut self,
        record: &SocketRecord,
        met: bool,
        side: Option<ServiceSide>,
        index: &SocketIndex,
        names: &dyn ServiceNames,
    ) {
        let Some(ends) = ends(record, side) else {
            return;
        };
        let (key, twice) = self.edge(&ends, index, names);
        let sums = self.sums(key);
        if twice {
            sums.add_health(record);
        } else {
            sums.add_socket(record, ends.client_side);
            sums.begun += u64::from(!met);
        }
    }

    /// Counts a connection that has begun.
    pub(crate) fn begun(
        &mut self,
        record: &SocketRecord,
        side: Option<ServiceSide>,
        index: &SocketIndex,
        names: &dyn ServiceNames,
    ) {
        if let Some(ends) = ends(record, side) {
            let (key, twice) = self.edge(&ends, index, names);
            if !twice {
                self.sums(key).begun += 1;
            }
        }
    }

    /// Adds ended connections that the kernel summed up.
    pub(crate) fn pair(
        &mut self,
        pair: &PairUpdate,
        owner: Option<OwnerId>,
        index: &SocketIndex,
        names: &dyn ServiceNames,
    ) {
        let client_side = pair.opener != Opener::Remote;
        let (local, remote) = pair_endpoints(pair);
        let ends = Ends {
            protocol: pair.protocol,
            netns: pair.netns,
            local,
            remote,
            owner,
            life: Span {
                first_ns: pair.first_ns,
                last_ns: pair.last_ns,
            },
            client_side,
        };
        let (key, twice) = self.edge(&ends, index, names);
        let sums = self.sums(key);
        if twice {
            sums.add_pair_health(pair);
        } else {
            sums.add_pair(pair, client_side);
        }
    }

    /// Ends the window in which new connections are counted, when it was long enough.
    pub(crate) fn roll(&mut self, now_ns: u64) {
        let passed = now_ns.saturating_sub(self.window_ns);
        if self.window_ns != 0 && passed < WINDOW_NS {
            return;
        }
        for sums in self.edges.values_mut() {
            sums.rate = if self.window_ns == 0 {
                0.0
            } else {
                sums.begun as f64 * 1e9 / passed as f64
            };
            sums.begun = 0;
        }
        self.window_ns = now_ns;
    }

    /// All dependencies, with the connections that are open.
    pub(crate) fn with_open<'a>(
        &mut self,
        open: impl Iterator<Item = (&'a SocketRecord, Option<ServiceSide>)>,
        index: &SocketIndex,
        names: &dyn ServiceNames,
    ) -> HashMap<EdgeKey, Sums> {
        self.follow(names);
        let mut edges = self.edges.clone();
        for (record, side) in open {
            let Some(ends) = ends(record, side) else {
                continue;
            };
            let (key, twice) = self.edge(&ends, index, names);
            let sums = edges.entry(key).or_default();
            if twice {
                sums.add_health(record);
            } else {
                sums.add_socket(record, ends.client_side);
            }
        }
        edges
    }
}

/// The ends of a connection; none without peer, or when it is not known which side serves.
fn ends(record: &SocketRecord, side: Option<ServiceSide>) -> Option<Ends> {
    Some(Ends {
        protocol: record.protocol,
        netns: record.netns,
        local: record.local,
        remote: record.peer()?,
        owner: record.owner,
        life: record.life(),
        client_side: !side?.local,
    })
}

/// Local and remote endpoint of a pair, with port 0 for the one that is not known.
pub(crate) fn pair_endpoints(pair: &PairUpdate) -> (SocketAddr, SocketAddr) {
    let (local, remote) = match pair.opener {
        Opener::Remote => (pair.service_port, 0),
        Opener::Local | Opener::Unknown => (0, pair.service_port),
    };
    (
        SocketAddr::new(pair.local.to_canonical(), local),
        SocketAddr::new(pair.remote.to_canonical(), remote),
    )
}
