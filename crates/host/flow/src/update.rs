//! What a drain of a flow table yields: differences since the drain before.

use serde::{Deserialize, Serialize};
use skua_record::TcpCounters;

use crate::FlowKey;

/// Packets and bytes of one direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Counters {
    /// Wire packets.
    pub packets: u64,
    /// Link-layer bytes on the wire, without preamble and FCS.
    pub bytes: u64,
}

impl Counters {
    /// Both parts.
    pub fn new(packets: u64, bytes: u64) -> Self {
        Self { packets, bytes }
    }

    /// Whether nothing was counted.
    pub fn is_zero(&self) -> bool {
        self.packets == 0 && self.bytes == 0
    }
}

impl std::ops::AddAssign for Counters {
    /// Saturates: files may claim any length for any number of packets.
    fn add_assign(&mut self, other: Self) {
        self.packets = self.packets.saturating_add(other.packets);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

impl std::ops::Add for Counters {
    type Output = Self;

    fn add(mut self, other: Self) -> Self {
        self += other;
        self
    }
}

/// Why an entry ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum EndReason {
    /// TCP closed by FIN from both sides or by RST.
    Closed,
    /// Nothing seen for the idle timeout.
    Idle,
    /// Evicted because the table was full; the conversation may continue.
    Evicted,
    /// The capture ended.
    Shutdown,
}

/// TCP details, `[0]` for packets sent by `lo`, `[1]` by `hi`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct TcpUpdate {
    /// OR of all flags seen since the entry began (not a difference).
    pub flags: [u8; 2],
    /// Counters of segments, differences.
    pub counters: TcpCounters,
    /// SYN to SYN+ACK in ns, 0 unknown, at most 2³² − 1.
    pub server_rtt_ns: u64,
    /// SYN+ACK to ACK in ns, 0 unknown, at most 2³² − 1.
    pub client_rtt_ns: u64,
    /// Who opened: `Some(true)` lo, `Some(false)` hi, `None` unknown. TCP: by SYN; ICMP queries: who
    /// sends the requests.
    pub lo_opened: Option<bool>,
    /// Where there is no [`server_rtt_ns`](Self::server_rtt_ns): SYN to the RST that refused it, or a request of ICMP echo
    /// to its reply, the last one; in ns, 0 unknown, at most 2³² − 1.
    pub reply_ns: u64,
    /// TTL or hop limit of the first SYN of each side, 0 none seen.
    pub syn_ttl: [u8; 2],
    /// First SYN of each side, ns since the Unix epoch, 0 none seen; of `syn_ns`, `fin_ns` and `rst_ns`.
    pub syn_ns: [u64; 2],
    /// First FIN of each side.
    pub fin_ns: [u64; 2],
    /// First RST, of the side that sent it.
    pub rst_ns: [u64; 2],
    /// Gaps in the sequence numbers, difference.
    pub skipped: [u32; 2],
    /// Bytes that were missing in them, difference.
    pub skipped_bytes: [u64; 2],
}

impl TcpUpdate {
    /// Time until the first answer, in ns: SYN to SYN+ACK or RST, ICMP echo to its reply.
    pub fn rtt_ns(&self) -> Option<u64> {
        [self.server_rtt_ns, self.reply_ns]
            .into_iter()
            .find(|ns| *ns != 0)
    }

    /// Adds what a further update of the conversation knows; its counters are differences.
    pub(crate) fn apply(&mut self, new: &Self) {
        for side in 0..2 {
            self.flags[side] |= new.flags[side];
            self.skipped[side] = self.skipped[side].saturating_add(new.skipped[side]);
            self.skipped_bytes[side] =
                self.skipped_bytes[side].saturating_add(new.skipped_bytes[side]);
        }
        self.counters.add(&new.counters);
        if self.server_rtt_ns == 0 {
            self.server_rtt_ns = new.server_rtt_ns;
        }
        if self.client_rtt_ns == 0 {
            self.client_rtt_ns = new.client_rtt_ns;
        }
        if new.reply_ns != 0 {
            self.reply_ns = new.reply_ns;
        }
        self.lo_opened = self.lo_opened.or(new.lo_opened);
        self.note(new);
    }

    /// Takes over what is noted once and not known yet.
    fn note(&mut self, other: &Self) {
        for side in 0..2 {
            if self.syn_ttl[side] == 0 {
                self.syn_ttl[side] = other.syn_ttl[side];
            }
            for (own, other) in [
                (&mut self.syn_ns, &other.syn_ns),
                (&mut self.fin_ns, &other.fin_ns),
                (&mut self.rst_ns, &other.rst_ns),
            ] {
                if own[side] == 0 {
                    own[side] = other[side];
                }
            }
        }
    }

    /// Adds what another point knows of the same conversation: of each counter the most.
    pub(crate) fn merge(&mut self, other: &Self) {
        let mut more = other.counters.all().into_iter();
        self.counters = self.counters.map(|[lo, hi]| {
            let [more_lo, more_hi] = more.next().unwrap_or_default();
            [lo.max(more_lo), hi.max(more_hi)]
        });
        for side in 0..2 {
            self.flags[side] |= other.flags[side];
            self.skipped[side] = self.skipped[side].max(other.skipped[side]);
            self.skipped_bytes[side] = self.skipped_bytes[side].max(other.skipped_bytes[side]);
        }
        self.lo_opened = self.lo_opened.or(other.lo_opened);
        let whole = |tcp: &Self| tcp.server_rtt_ns != 0 && tcp.client_rtt_ns != 0;
        if !whole(self) && whole(other) {
            self.server_rtt_ns = other.server_rtt_ns;
            self.client_rtt_ns = other.client_rtt_ns;
        }
        if self.reply_ns == 0 {
            self.reply_ns = other.reply_ns;
        }
        self.note(other);
    }
}

/// What the link layer shows of an entry, `[0]` of `lo`, `[1]` of `hi`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct LinkUpdate {
    /// MAC addresses of the first packet, all zero without an Ethernet header.
    pub macs: [[u8; 6]; 2],
    /// How often a side sent with other addresses than before, difference. Not each packet is compared
    /// (`docs/accounting.md` section 3).
    pub moved: u32,
    /// Third and fourth VLAN tag, as in [`FlowKey::vlan`].
    pub inner_tags: [u16; 2],
    /// Bottom MPLS label before the packets of each side.
    pub labels: [Option<u32>; 2],
}

impl LinkUpdate {
    fn has_macs(&self) -> bool {
        self.macs != [[0; 6]; 2]
    }

    /// Adds a further update.
    pub(crate) fn apply(&mut self, new: &Self) {
        self.moved = self.moved.saturating_add(new.moved);
        // An entry that was evicted and came back.
        if self.has_macs() && new.has_macs() && self.macs != new.macs && new.moved == 0 {
            self.moved = self.moved.saturating_add(1);
        }
        self.note(new);
    }

    /// Takes over what is not known yet.
    pub(crate) fn note(&mut self, other: &Self) {
        if !self.has_macs() {
            self.macs = other.macs;
        }
        if self.inner_tags == [0; 2] {
            self.inner_tags = other.inner_tags;
        }
        for (own, other) in self.labels.iter_mut().zip(other.labels) {
            *own = own.or(other);
        }
    }
}

/// What the packets of a flow carry: a tunnel's number as in the key's `kind`, plus 8 with MPLS labels before what it
/// carries; 0 nothing that is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Carries(pub u8);

impl Carries {
    const LABELS: u8 = 8;

    /// Of a tunnel, with labels or not.
    pub fn new(tunnel: skua_packet::Tunnel, labels: bool) -> Self {
        Self(crate::key::tunnel_number(tunnel) | if labels { Self::LABELS } else { 0 })
    }

    /// The tunnel.
    pub fn tunnel(self) -> Option<skua_packet::Tunnel> {
        crate::key::numbered_tunnel(self.0 & 7)
    }

    /// Whether MPLS labels are before what it carries.
    pub fn has_labels(self) -> bool {
        self.0 & Self::LABELS != 0
    }

    /// What is known of either.
    pub(crate) fn or(self, other: Self) -> Self {
        if self.0 == 0 { other } else { self }
    }
}

/// In which directions the packets of each side passed the interface: bit 0 those of `lo` came in, bit 1
/// they went out; bits 2 and 3 likewise of `hi`. None: not known.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Directions(pub u8);

impl Directions {
    /// Whether packets of `lo`, or of `hi`, came in, and whether they went out.
    pub fn of(self, lo: bool) -> (bool, bool) {
        let bits = self.0 >> if lo { 0 } else { 2 };
        (bits & 1 != 0, bits & 2 != 0)
    }
}

impl std::ops::BitOrAssign for Directions {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

/// Difference of one entry since the drain before.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FlowUpdate {
    /// The conversation.
    pub key: FlowKey,
    /// Sent by `lo`, difference.
    pub lo_sent: Counters,
    /// Sent by `hi`, difference.
    pub hi_sent: Counters,
    /// Whether the first packet of this entry came from `lo`.
    pub lo_first: bool,
    /// First packet of the entry, ns since the Unix epoch.
    pub first_ns: u64,
    /// Last packet of the entry, ns since the Unix epoch.
    pub last_ns: u64,
    /// Tunnel network identifier (VNI, GRE key, session of ERSPAN, MPLS label) of a flow inside a tunnel.
    pub tunnel_id: u32,
    /// Inside a tunnel the [identifier](FlowKey::id48) of the flow that carried the first packet, else 0.
    pub parent: u64,
    /// TCP details.
    pub tcp: TcpUpdate,
    /// What the link layer shows.
    pub link: LinkUpdate,
    /// Packets that are fragments, difference.
    pub fragments: u64,
    /// What its packets carry, if tunnels are decoded.
    pub carries: Carries,
    /// One in so many packets was seen, and the counters are estimates, scaled up by that; 0: they are
    /// exact.
    pub sampling: u32,
    /// Set with the last update of an entry.
    pub end: Option<EndReason>,
    /// Of the packets of the entry.
    pub directions: Directions,
}
