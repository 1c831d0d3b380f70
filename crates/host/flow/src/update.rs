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
    /// sends the requests (the only field here that is not about TCP).
    pub lo_opened: Option<bool>,
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
    /// Tunnel network identifier (VNI, GRE key, MPLS label) of a flow inside a tunnel.
    pub tunnel_id: u32,
    /// Inside a tunnel the [identifier](FlowKey::id48) of the flow that carried the first packet, else 0.
    pub parent: u64,
    /// TCP details.
    pub tcp: TcpUpdate,
    /// One in so many packets was seen, and the counters are estimates, scaled up by that; 0: they are
    /// exact.
    pub sampling: u32,
    /// Set with the last update of an entry.
    pub end: Option<EndReason>,
    /// Of the packets of the entry.
    pub directions: Directions,
}
