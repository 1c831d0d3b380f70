//! The flow record: a conversation as users see it.

use crate::{
    Carries, Counters, Directions, EndReason, FlowKey, FlowUpdate, HashKey, LinkUpdate, Network,
    TcpUpdate,
    community::{CommunityId, community_id},
    fields, tcp,
};
use serde::{Deserialize, Serialize, Serializer};
use skua_apps::tls::ClientHello;
use std::{net::SocketAddr, num::NonZeroU32, sync::Arc};

/// Traffic per second.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Rate {
    /// Bits per second on the wire.
    pub bits_per_second: f64,
    /// Wire packets per second.
    pub packets_per_second: f64,
}

impl Rate {
    /// The rate of what was counted in `ns`.
    pub fn over(counters: Counters, ns: u64) -> Self {
        let per_second = 1e9 / ns.max(1) as f64;
        Self {
            bits_per_second: counters.bytes as f64 * 8.0 * per_second,
            packets_per_second: counters.packets as f64 * per_second,
        }
    }
}

/// What both sides of a conversation send per second, over a window of about five seconds.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Rates {
    /// Sent by `lo`.
    pub lo: Rate,
    /// Sent by `hi`.
    pub hi: Rate,
}

impl Rates {
    /// Both directions.
    pub fn total(&self) -> Rate {
        Rate {
            bits_per_second: self.lo.bits_per_second + self.hi.bits_per_second,
            packets_per_second: self.lo.packets_per_second + self.hi.packets_per_second,
        }
    }

    /// Brings both up to what another point of the conversation has seen.
    pub fn raise(&mut self, other: Self) {
        for (own, other) in [(&mut self.lo, other.lo), (&mut self.hi, other.hi)] {
            own.bits_per_second = own.bits_per_second.max(other.bits_per_second);
            own.packets_per_second = own.packets_per_second.max(other.packets_per_second);
        }
    }
}

/// What a drain added to a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Interval {
    /// Sent by `lo`.
    pub lo_sent: Counters,
    /// Sent by `hi`.
    pub hi_sent: Counters,
    /// Time since the drain before, in ns.
    pub ns: u64,
    /// Last packet that was known before the drain, of a new record its first; ns since the Unix epoch.
    pub since_ns: u64,
}

impl Interval {
    /// What an update adds that comes with a drain `ns` after the one before.
    fn of(update: &FlowUpdate, ns: u64, since_ns: u64) -> Self {
        Self {
            lo_sent: update.lo_sent,
            hi_sent: update.hi_sent,
            ns,
            since_ns,
        }
    }

    /// The rate over the interval.
    pub fn rate(&self) -> Rate {
        Rate::over(self.lo_sent + self.hi_sent, self.ns)
    }

    /// The same of both sides.
    pub fn rates(&self) -> Rates {
        Rates {
            lo: Rate::over(self.lo_sent, self.ns),
            hi: Rate::over(self.hi_sent, self.ns),
        }
    }
}

/// State of a TCP conversation as its flags show it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TcpState {
    /// A SYN and nothing after it.
    SynSent,
    /// SYN+ACK, not acknowledged yet.
    SynReceived,
    /// Acknowledged packets.
    Established,
    /// FIN from one side.
    Closing,
    /// FIN from both sides.
    Closed,
    /// RST without FIN from both sides.
    Reset,
}

impl TcpState {
    /// Name in records.
    pub fn name(self) -> &'static str {
        match self {
            Self::SynSent => "syn-sent",
            Self::SynReceived => "syn-received",
            Self::Established => "established",
            Self::Closing => "closing",
            Self::Closed => "closed",
            Self::Reset => "reset",
        }
    }

    /// The state that flags of both sides show, none when they show nothing.
    pub fn of(tcp: &TcpUpdate) -> Option<Self> {
        let [lo, hi] = tcp.flags;
        let either = lo | hi;
        if lo & hi & tcp::FIN != 0 {
            return Some(Self::Closed);
        }
        if either & tcp::RST != 0 {
            return Some(Self::Reset);
        }
        if either & tcp::FIN != 0 {
            return Some(Self::Closing);
        }
        let (opener, other) = match tcp.lo_opened {
            Some(true) => (lo, hi),
            Some(false) => (hi, lo),
            // Under way when the capture began.
            None => return (either & tcp::ACK != 0).then_some(Self::Established),
        };
        // The opener's first packet has no ACK, all that follow have.
        match (opener & tcp::ACK != 0, other & tcp::SYN != 0) {
            (true, _) => Some(Self::Established),
            (false, true) => Some(Self::SynReceived),
            (false, false) => Some(Self::SynSent),
        }
    }
}

/// A conversation at one capture point, summed up from its updates.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct FlowRecord {
    /// The conversation.
    pub key: FlowKey,
    /// 48-bit identifier, [`FlowKey::id48`]; flows inside tunnels name their parent by it.
    pub id: u64,
    /// Identity of the record: given by the [`FlowStore`](crate::FlowStore) that made it, with the first
    /// update, and the same wherever the record travels. A conversation that uses the same ports again
    /// has another one. Times are no identity: clocks are set, and converted with an error.
    pub serial: u64,
    /// Sent by `lo`.
    pub lo_sent: Counters,
    /// Sent by `hi`.
    pub hi_sent: Counters,
    /// First packet, ns since the Unix epoch.
    pub first_ns: u64,
    /// Last packet, ns since the Unix epoch.
    pub last_ns: u64,
    /// Drain that changed the record last, ns since the Unix epoch.
    pub updated_ns: u64,
    /// What that drain added.
    pub interval: Interval,
    /// TCP details; counters are totals, not differences.
    pub tcp: TcpUpdate,
    /// What the link layer shows; the counter is a total.
    pub link: LinkUpdate,
    /// Packets that are fragments.
    pub fragments: u64,
    /// What its packets carry, if tunnels are decoded.
    pub carries: Carries,
    /// VNI, GRE key, session of ERSPAN or MPLS label of a flow inside a tunnel.
    pub tunnel_id: u32,
    /// Inside a tunnel the [identifier](FlowKey::id48) of the flow that carried the first packet, else 0.
    pub parent: u64,
    /// One in so many packets was counted, 1: all. Counters of our own captures are not scaled up; those
    /// from exporters (sFlow, NetFlow, IPFIX) are.
    pub sampling: u32,
    /// Whether `lo` spoke first, so that it is `a`.
    pub lo_first: bool,
    /// Why the conversation ended, none while it is active.
    pub end: Option<EndReason>,
    /// The owners of the sockets of `lo` and `hi`: numbers of the caller, who set them.
    pub owners: [Option<NonZeroU32>; 2],
    /// Which side offers a service.
    pub service: Option<Service>,
    /// How often owners were searched.
    pub joins: u8,
    /// In which directions the packets of each side passed. Not in histories.
    pub directions: Directions,
}

/// The side of a conversation that offers a service.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Service {
    /// Whether it is `lo`.
    pub lo: bool,
    /// How that is known.
    pub by: ServiceRule,
}

impl Service {
    /// Of what two points know, what is known better.
    pub(crate) fn better(own: Option<Self>, others: Option<Self>) -> Option<Self> {
        match (own, others) {
            (Some(own), Some(others)) if others.by < own.by => Some(others),
            (own, others) => own.or(others),
        }
    }
}

/// How the service's side is known, best first (`docs/sockets.md` section 5).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum ServiceRule {
    /// Accept or connect was seen.
    Kernel,
    /// A socket listens at its address and port.
    Listening,
    /// The other side sent the SYN.
    Syn,
    /// Only the other side's port is in the host's ephemeral range.
    Ephemeral,
    /// Only its port is below 1024.
    WellKnown,
}

impl ServiceRule {
    /// Name in records.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Listening => "listening",
            Self::Syn => "syn",
            Self::Ephemeral => "ephemeral",
            Self::WellKnown => "well-known",
        }
    }
}

impl FlowRecord {
    /// The record of a conversation's first update. `interval_ns` is the time since the drain
    /// before the one at `now_ns`; `seed` is the seed of the flow table.
    pub fn new(
        update: &FlowUpdate,
        seed: u64,
        sampling: u32,
        now_ns: u64,
        interval_ns: u64,
    ) -> Self {
        let secret = HashKey::new(seed);
        Self::with_secret(update, &secret, sampling, now_ns, interval_ns)
    }

    /// As [`new`](Self::new), with what the seed gives.
    pub(crate) fn with_secret(
        update: &FlowUpdate,
        secret: &HashKey,
        sampling: u32,
        now_ns: u64,
        interval_ns: u64,
    ) -> Self {
        Self {
            key: update.key,
            id: update.key.id48(secret),
            serial: 0,
            lo_sent: update.lo_sent,
            hi_sent: update.hi_sent,
            first_ns: update.first_ns,
            last_ns: update.last_ns,
            updated_ns: now_ns,
            interval: Interval::of(update, interval_ns, update.first_ns),
            tcp: update.tcp,
            link: update.link,
            fragments: update.fragments,
            carries: update.carries,
            tunnel_id: update.tunnel_id,
            parent: update.parent,
            sampling: sampling.max(update.sampling),
            lo_first: update.lo_first,
            end: update.end,
            owners: [None; 2],
            service: None,
            joins: 0,
            directions: update.directions,
        }
    }

    /// Adds a further update.
    pub fn apply(&mut self, update: &FlowUpdate, now_ns: u64, interval_ns: u64) {
        self.lo_sent += update.lo_sent;
        self.hi_sent += update.hi_sent;
        if self.updated_ns == now_ns {
            // Another entry of the conversation in the same drain.
            self.interval.lo_sent += update.lo_sent;
            self.interval.hi_sent += update.hi_sent;
            self.interval.since_ns = self.interval.since_ns.min(update.first_ns);
        } else {
            self.interval = Interval::of(update, interval_ns, self.last_ns);
        }
        self.first_ns = self.first_ns.min(update.first_ns);
        self.last_ns = self.last_ns.max(update.last_ns);
        self.updated_ns = now_ns;
        self.end = update.end;
        self.directions |= update.directions;
        self.sampling = self.sampling.max(update.sampling);
        self.tcp.apply(&update.tcp);
        self.link.apply(&update.link);
        self.fragments = self.fragments.saturating_add(update.fragments);
        self.carries = self.carries.or(update.carries);
    }

    /// Sent by `a`, who spoke first.
    pub fn ab(&self) -> Counters {
        if self.lo_first {
            self.lo_sent
        } else {
            self.hi_sent
        }
    }

    /// Sent by `b`.
    pub fn ba(&self) -> Counters {
        if self.lo_first {
            self.hi_sent
        } else {
            self.lo_sent
        }
    }

    /// Sent and received by the side that offers the service, else by the one that spoke first.
    pub fn sent_by_service(&self) -> [Counters; 2] {
        if self.service.map_or(self.lo_first, |service| service.lo) {
            [self.lo_sent, self.hi_sent]
        } else {
            [self.hi_sent, self.lo_sent]
        }
    }

    /// TCP segments that were sent again, of both sides.
    pub fn retransmitted(&self) -> u64 {
        let [lo, hi] = self.tcp.counters.retransmitted;
        u64::from(lo) + u64::from(hi)
    }

    /// Both directions.
    pub fn total(&self) -> Counters {
        self.lo_sent + self.hi_sent
    }

    /// Address and port of `a`, as in the key.
    pub fn a(&self) -> (&[u8; 16], u16) {
        self.endpoint(self.lo_first)
    }

    /// Address and port of `b`, as in the key.
    pub fn b(&self) -> (&[u8; 16], u16) {
        self.endpoint(!self.lo_first)
    }

    fn endpoint(&self, lo: bool) -> (&[u8; 16], u16) {
        let (address, port) = if lo {
            (&self.key.lo, self.key.lo_port)
        } else {
            (&self.key.hi, self.key.hi_port)
        };
        let port = if self.key.has_ports() { port } else { [0; 2] };
        (address, u16::from_be_bytes(port))
    }

    /// Whether `a` opened the conversation, see [`TcpUpdate::lo_opened`].
    pub fn a_opened(&self) -> Option<bool> {
        self.tcp.lo_opened.map(|lo| lo == self.lo_first)
    }

    /// One of the pairs in [`TcpUpdate`], `a` first.
    pub fn by_a<T: Copy>(&self, [lo, hi]: [T; 2]) -> [T; 2] {
        if self.lo_first { [lo, hi] } else { [hi, lo] }
    }

    /// State of a TCP conversation.
    pub fn tcp_state(&self) -> Option<TcpState> {
        (self.key.proto == 6)
            .then(|| TcpState::of(&self.tcp))
            .flatten()
    }

    /// Time from SYN to ACK in ns, none when the handshake was not seen whole.
    pub fn handshake_rtt_ns(&self) -> Option<u64> {
        match (self.tcp.server_rtt_ns, self.tcp.client_rtt_ns) {
            (0, _) | (_, 0) => None,
            (server, client) => Some(server + client),
        }
    }

    /// MAC addresses of `a` and `b`, none where there are none.
    pub fn macs(&self) -> [Option<[u8; 6]>; 2] {
        let known = match self.key.network() {
            Network::None if self.key.ethernet() => {
                [&self.key.lo, &self.key.hi].map(|address| address.last_chunk().copied())
            }
            _ => self.link.macs.map(|mac| (mac != [0; 6]).then_some(mac)),
        };
        self.by_a(known)
    }

    /// All VLAN identifiers, outermost first.
    pub fn vlan_ids(&self) -> impl Iterator<Item = u16> + '_ {
        let inner = self.link.inner_tags.iter().filter(|tag| **tag != 0);
        let inner = inner.map(|tag| tag & 0x0fff);
        self.key.vlan_ids().chain(inner)
    }

    /// Community ID version 1, none without IP.
    pub fn community_id(&self) -> Option<CommunityId> {
        community_id(&self.key, self.tcp.lo_opened.unwrap_or(self.lo_first))
    }

    /// The name by which the address of `a`, or of `b`, was found, when DNS is read.
    pub fn name_of(&self, a: bool) -> Option<Arc<str>> {
        let [own, other] = if a {
            [self.a().0, self.b().0]
        } else {
            [self.b().0, self.a().0]
        };
        let (own, other) = (self.key.ip(own)?, self.key.ip(other)?);
        skua_apps::names::of(other, own, self.first_ns)
    }

    /// What the client said first in TLS, when that is read.
    pub fn hello(&self) -> Option<Arc<ClientHello>> {
        if self.key.proto != 6 {
            return None;
        }
        let end = |(address, port)| Some(SocketAddr::new(self.key.ip(address)?, port));
        let (a, b) = (end(self.a())?, end(self.b())?);
        skua_apps::hellos::of(a, b, [self.first_ns, self.last_ns])
    }

    /// Whether DNS is spoken: one side is a server that has answered.
    pub fn is_dns(&self) -> bool {
        [self.a(), self.b()].into_iter().any(|(address, port)| {
            let address = self.key.ip(address);
            address.is_some_and(|ip| skua_apps::names::is_server(SocketAddr::new(ip, port)))
        })
    }

    /// The record with its interface's name, ready to be written.
    pub fn line<'a>(&'a self, interface: &'a str) -> FlowLine<'a> {
        FlowLine {
            record: self,
            interface,
            points: 1,
            rate: self.interval.rate(),
            owners: [ConversationOwner::default(); 2],
        }
    }
}

/// The process that owns a side's socket. Empty or 0: not known.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ConversationOwner<'a> {
    /// Name of the process; any characters.
    pub process: &'a str,
    /// Process identifier.
    pub pid: u32,
    /// Name of the user.
    pub user: &'a str,
    /// Number of the user, shown without a name.
    pub uid: Option<u32>,
    /// Container: name or identifier.
    pub container: &'a str,
    /// Kubernetes pod.
    pub pod: &'a str,
    /// systemd unit.
    pub unit: &'a str,
}

impl<'a> ConversationOwner<'a> {
    /// Value of a field for the user.
    pub fn user_value<O>(&self) -> skua_record::Value<'a, O> {
        match (self.user, self.uid) {
            ("", Some(uid)) => skua_record::Value::Numeral(uid.into()),
            (name, _) => skua_record::Value::nonempty(name),
        }
    }
}

/// A flow record as it is written, as JSON by [`Serialize`] or as a CSV row; both have the fields
/// of [`fields::FIELDS`].
#[derive(Clone, Copy, Debug)]
pub struct FlowLine<'a> {
    /// The record.
    pub record: &'a FlowRecord,
    /// Name of its interface.
    pub interface: &'a str,
    /// How many points the record is merged of.
    pub points: u32,
    /// The current rate, see [`crate::FlowStore::rates`].
    pub rate: Rate,
    /// Who owns the sockets of `lo` and `hi`.
    pub owners: [ConversationOwner<'a>; 2],
}

impl Serialize for FlowLine<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        fields::serialize(self, serializer)
    }
}
