//! Capture points and what is counted beside the flows there.

use crate::Counters;
use hashbrown::HashMap;

/// Direction of a packet at an interface.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub enum Direction {
    /// Into the host; also packets of files that do not say.
    #[default]
    Ingress,
    /// Out of the host.
    Egress,
}

/// Where packets are seen.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct CapturePoint {
    /// The agent's number of the network namespace, 0 its own.
    pub netns: u16,
    /// Interface index.
    pub ifindex: u32,
    /// Direction at the interface. It is no part of the flow key.
    pub direction: Direction,
}

impl CapturePoint {
    /// Has the counters of all points above the limit.
    pub const OTHER: Self = Self {
        netns: u16::MAX,
        ifindex: 0,
        direction: Direction::Ingress,
    };
}

/// What is counted per capture point (`docs/accounting.md` section 5); losses first, then notes
/// about packets that are in flows all the same. The numbers are those of `enum point_cause` in
/// `bpf/flow/flow.h`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Cause {
    /// No entry was free for TCP.
    TableFullTcp,
    /// No entry was free for UDP.
    TableFullUdp,
    /// No entry was free for ICMP or ICMPv6.
    TableFullIcmp,
    /// No entry was free for another protocol.
    TableFullOther,
    /// Did not match the filter.
    Filtered,
    /// The address set left it out.
    AddressSet,
    /// Sampling left it out.
    SampledOut,
    /// Our own traffic, left out.
    Own,
    /// Too short for a link header.
    Truncated,
    /// Could not be read at all.
    NoDecode,
    /// Lost before decoding, because the packet ring was full (packets as captured; their bytes are not
    /// known).
    RingFull,
    /// Lost by a network card that had no free buffer (DPDK; bytes are not known).
    NoBuffer,
    /// Came to a network card with an error (DPDK; bytes are not known).
    DeviceError,
    /// Note: a header was cut off or impossible (packets as captured, no bytes).
    Malformed,
    /// Note: what counting super-packets as wire packets added to what the interface counts.
    Segmented,
    /// Note: what counting stripped VLAN tags added to what the interface counts (bytes; packets
    /// as captured).
    TagBytes,
    /// Note: flows inside tunnels that found no entry; the parent has the packets.
    ChildFull,
    /// Note: packets to keep as the first of their flow that did not fit into the ring to user space.
    RawLost,
    /// Note: packets for a live stream that did not fit into the ring to user space.
    LiveLost,
    /// Note: SYNs counted in the previous closed connection between the same ports, because the ring to
    /// send that one was full (packets, no bytes).
    ReuseMerged,
    /// Note: packets with what is said in conversations (`app.enabled`) that were not read, beyond `app.rate`.
    HeadLimit,
    /// Note: packets with what is said in conversations that did not fit into the ring to user space.
    HeadLost,
}

impl Cause {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 22] = [
        Self::TableFullTcp,
        Self::TableFullUdp,
        Self::TableFullIcmp,
        Self::TableFullOther,
        Self::Filtered,
        Self::AddressSet,
        Self::SampledOut,
        Self::Own,
        Self::Truncated,
        Self::NoDecode,
        Self::RingFull,
        Self::NoBuffer,
        Self::DeviceError,
        Self::Malformed,
        Self::Segmented,
        Self::TagBytes,
        Self::ChildFull,
        Self::RawLost,
        Self::LiveLost,
        Self::ReuseMerged,
        Self::HeadLimit,
        Self::HeadLost,
    ];

    /// `table_full` of the class of an IP protocol.
    pub fn table_full(proto: u8) -> Self {
        match proto {
            6 => Self::TableFullTcp,
            17 => Self::TableFullUdp,
            1 | 58 => Self::TableFullIcmp,
            _ => Self::TableFullOther,
        }
    }

    /// Whether the packets are in no flow.
    pub fn is_loss(self) -> bool {
        (self as usize) < Self::Malformed as usize
    }

    /// Name in counters and records.
    pub fn name(self) -> &'static str {
        match self {
            Self::TableFullTcp => "table_full_tcp",
            Self::TableFullUdp => "table_full_udp",
            Self::TableFullIcmp => "table_full_icmp",
            Self::TableFullOther => "table_full_other",
            Self::Filtered => "filtered",
            Self::AddressSet => "address_set",
            Self::SampledOut => "sampled_out",
            Self::Own => "self",
            Self::Truncated => "truncated",
            Self::NoDecode => "no_decode",
            Self::RingFull => "ring_full",
            Self::NoBuffer => "no_buffer",
            Self::DeviceError => "device_error",
            Self::Malformed => "malformed",
            Self::Segmented => "segmented",
            Self::TagBytes => "tag_bytes",
            Self::ChildFull => "child_full",
            Self::RawLost => "raw_lost",
            Self::LiveLost => "live_lost",
            Self::HeadLimit => "head_limit",
            Self::HeadLost => "head_lost",
            Self::ReuseMerged => "reuse_merged",
        }
    }
}

/// Counters of one capture point by cause.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PointCounters([Counters; Cause::ALL.len()]);

impl PointCounters {
    /// Adds to a cause.
    pub fn add(&mut self, cause: Cause, counters: Counters) {
        self[cause] += counters;
    }

    /// Causes that were counted.
    pub fn iter(&self) -> impl Iterator<Item = (Cause, Counters)> + '_ {
        Cause::ALL
            .into_iter()
            .map(|cause| (cause, self[cause]))
            .filter(|(_, counters)| !counters.is_zero())
    }

    /// Packets and bytes that are in no flow.
    pub fn lost(&self) -> Counters {
        self.iter()
            .filter(|(cause, _)| cause.is_loss())
            .fold(Counters::default(), |sum, (_, counters)| sum + counters)
    }
}

impl std::ops::Index<Cause> for PointCounters {
    type Output = Counters;

    fn index(&self, cause: Cause) -> &Counters {
        &self.0[cause as usize]
    }
}

impl std::ops::IndexMut<Cause> for PointCounters {
    fn index_mut(&mut self, cause: Cause) -> &mut Counters {
        &mut self.0[cause as usize]
    }
}

/// Packets and bytes in flows (without those inside tunnels) of one capture point.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PointTraffic {
    /// Of flows whose every packet from one side was received by this interface.
    pub ingress: Counters,
    /// Likewise, sent.
    pub egress: Counters,
    /// Of flows where one side's packets were both received and sent here.
    pub mixed: Counters,
}

impl PointTraffic {
    /// Adds what one side of a flow sent; `received` and `sent` say which ways its packets took.
    pub fn add(&mut self, received: bool, sent: bool, counters: Counters) {
        match (received, sent) {
            (true, false) => self.ingress += counters,
            (false, true) => self.egress += counters,
            _ => self.mixed += counters,
        }
    }
}

impl std::ops::AddAssign for PointTraffic {
    fn add_assign(&mut self, other: Self) {
        self.ingress += other.ingress;
        self.egress += other.egress;
        self.mixed += other.mixed;
    }
}

/// The most capture points with counters of their own: files may name billions of interfaces.
const MAX_POINTS: usize = 4096;

/// Counters of all capture points.
#[derive(Default)]
pub(crate) struct Points {
    counters: HashMap<CapturePoint, PointCounters>,
}

impl Points {
    /// Adds to a cause of a point.
    pub(crate) fn add(&mut self, point: CapturePoint, cause: Cause, counters: Counters) {
        let point = if self.counters.len() < MAX_POINTS || self.counters.contains_key(&point) {
            point
        } else {
            CapturePoint::OTHER
        };
        self.counters.entry(point).or_default().add(cause, counters);
    }

    /// Forgets both directions of an interface.
    pub(crate) fn remove(&mut self, netns: u16, ifindex: u32) {
        self.counters
            .retain(|point, _| (point.netns, point.ifindex) != (netns, ifindex));
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (CapturePoint, &PointCounters)> {
        self.counters
            .iter()
            .map(|(point, counters)| (*point, counters))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_in_the_order_of_their_numbers() {
        for (number, cause) in Cause::ALL.into_iter().enumerate() {
            assert_eq!(cause as usize, number);
        }
        assert!(Cause::DeviceError.is_loss() && !Cause::Malformed.is_loss());
    }

    #[test]
    fn points_are_bounded_and_nothing_is_lost() {
        let mut points = Points::default();
        for ifindex in 0..2 * MAX_POINTS as u32 {
            let point = CapturePoint {
                ifindex,
                ..Default::default()
            };
            points.add(point, Cause::Truncated, Counters::new(1, 10));
        }
        assert_eq!(points.iter().count(), MAX_POINTS + 1);
        let sum = points
            .iter()
            .fold(Counters::default(), |sum, (_, c)| sum + c.lost());
        assert_eq!(
            sum,
            Counters::new(2 * MAX_POINTS as u64, 20 * MAX_POINTS as u64)
        );
    }
}
