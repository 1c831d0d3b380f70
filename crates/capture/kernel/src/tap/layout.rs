//! The structs of `bpf/tap/tap.h`.

use std::net::IpAddr;

use crate::bindings::tap as c;
pub(super) use crate::{
    bindings::tap::{
        TapCounters, TapMonitorCounters, TapPacket, TapSettings as Settings, TapSource,
    },
    plain::Plain,
};

/// Places that conversations are spread over.
pub const OUTPUTS: usize = c::OUTPUTS as usize;
/// Sources of a tap at most.
pub const MAX_SOURCES: usize = c::MAX_SOURCES as usize;

/// `may_be_host`: which of the bits is that of an address.
pub(super) fn host_bit(octets: &[u8]) -> usize {
    let words = octets.chunks_exact(4);
    let hash = words.fold(0u32, |hash, word| {
        let word = u32::from_ne_bytes([word[0], word[1], word[2], word[3]]);
        (hash ^ word).wrapping_mul(c::HOST_FACTOR)
    });
    (hash >> (32 - c::HOST_BITS)) as usize
}

/// Why a packet that matched was not copied.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Cause {
    /// It was copied where it came in.
    Duplicate,
    /// Left out by sampling.
    Sampled,
    /// Over the rate.
    RateLimit,
    /// No monitor is up.
    NoMonitor,
    /// The monitor's queue or the ring is full.
    Full,
    /// Longer than the monitor takes.
    TooBig,
    /// The kernel could not copy or send it.
    Failed,
    /// It is a copy itself.
    Copy,
}

impl Cause {
    /// All, in the kernel's order.
    pub const ALL: [Self; 8] = [
        Self::Duplicate,
        Self::Sampled,
        Self::RateLimit,
        Self::NoMonitor,
        Self::Full,
        Self::TooBig,
        Self::Failed,
        Self::Copy,
    ];

    /// Name as users see it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Duplicate => "Duplicate",
            Self::Sampled => "Sampled",
            Self::RateLimit => "RateLimit",
            Self::NoMonitor => "NoMonitor",
            Self::Full => "Full",
            Self::TooBig => "TooBig",
            Self::Failed => "Failed",
            Self::Copy => "Copy",
        }
    }
}

/// Packets, and their bytes from the link header on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Count {
    /// Packets; of a super-packet its segments.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
}

impl std::ops::AddAssign for Count {
    fn add_assign(&mut self, other: Self) {
        self.packets = self.packets.wrapping_add(other.packets);
        self.bytes = self.bytes.wrapping_add(other.bytes);
    }
}

/// What happened to the packets of one source in one direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SourceCounters {
    /// Wanted.
    pub matched: Count,
    /// Copied.
    pub copied: Count,
    /// Not copied, by [`Cause`].
    pub dropped: [Count; Cause::ALL.len()],
}

/// Results of copies sent to a monitor.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MonitorCounters {
    /// Handed to its interface.
    pub sent: Count,
    /// Cut before.
    pub cut: Count,
    /// Longer than its interface takes.
    pub too_big: Count,
    /// Could not be tagged, cut or encapsulated.
    pub failed: Count,
    /// Packets that another program sent through the tap's own interface.
    pub strange: Count,
}

impl From<c::TapCount> for Count {
    fn from(count: c::TapCount) -> Self {
        Self {
            packets: count.packets,
            bytes: count.bytes,
        }
    }
}

impl SourceCounters {
    /// Of all CPUs.
    pub(super) fn read(per_cpu: &[Vec<u8>]) -> Self {
        let mut sum = Self::default();
        for one in per_cpu.iter().filter_map(|bytes| TapCounters::read(bytes)) {
            sum += Self {
                matched: one.matched.into(),
                copied: one.copied.into(),
                dropped: one.dropped.map(Count::from),
            };
        }
        sum
    }
}

impl std::ops::AddAssign for SourceCounters {
    fn add_assign(&mut self, other: Self) {
        self.matched += other.matched;
        self.copied += other.copied;
        for (sum, more) in self.dropped.iter_mut().zip(other.dropped) {
            *sum += more;
        }
    }
}

impl MonitorCounters {
    /// Of all CPUs.
    pub(super) fn read(per_cpu: &[Vec<u8>]) -> Self {
        let mut sum = Self::default();
        let counters = per_cpu.iter();
        for one in counters.filter_map(|bytes| TapMonitorCounters::read(bytes)) {
            sum.sent += one.sent.into();
            sum.cut += one.cut.into();
            sum.too_big += one.too_big.into();
            sum.failed += one.failed.into();
            sum.strange += one.strange.into();
        }
        sum
    }
}

/// Where copies go that fall to one of [`OUTPUTS`] places.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Output {
    /// Interface in the namespace of the sources; 0: they go nowhere.
    pub ifindex: u32,
    /// Number of the monitor.
    pub monitor: u32,
    /// Longest packet without its Ethernet header; 0: not checked here.
    pub mtu: u32,
}

impl Output {
    pub(super) fn layout(self) -> c::TapOutput {
        c::TapOutput {
            ifindex: self.ifindex,
            monitor: self.monitor,
            mtu: self.mtu,
            pad: 0,
        }
    }
}

/// What is put around a copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Encapsulation {
    /// Nothing.
    #[default]
    Plain,
    /// VXLAN (RFC 7348).
    Vxlan,
    /// GENEVE (RFC 8926).
    Geneve,
    /// ERSPAN type III over GRE (draft-foschiano-erspan-03).
    Erspan,
}

/// A monitor as the delivering program sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Monitor {
    /// Interface in the namespace of the monitor.
    pub ifindex: u32,
    /// Longest packet that it takes, without Ethernet header.
    pub mtu: u32,
    /// What is put around copies.
    pub encapsulation: Encapsulation,
    /// VNI, or session.
    pub id: u32,
    /// Addresses of the tunnel: this side, the other.
    pub addresses: (IpAddr, IpAddr),
    /// MAC addresses of the interface and the next hop.
    pub macs: ([u8; 6], [u8; 6]),
    /// UDP port of the other side.
    pub port: u16,
}

impl Monitor {
    pub(super) fn layout(&self) -> c::TapMonitor {
        let (local, remote) = self.addresses;
        let (local_mac, remote_mac) = self.macs;
        c::TapMonitor {
            ifindex: self.ifindex,
            mtu: self.mtu,
            encapsulation: match self.encapsulation {
                Encapsulation::Plain => c::TAP_PLAIN,
                Encapsulation::Vxlan => c::TAP_VXLAN,
                Encapsulation::Geneve => c::TAP_GENEVE,
                Encapsulation::Erspan => c::TAP_ERSPAN,
            },
            id: self.id,
            remote: octets(remote),
            local: octets(local),
            remote_mac,
            local_mac,
            port: self.port,
            ipv6: remote.is_ipv6().into(),
            ttl: 64,
        }
    }
}

/// An address in network order; IPv4 in the first four bytes.
fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => {
            let mut octets = [0; 16];
            octets[..4].copy_from_slice(&v4.octets());
            octets
        }
        IpAddr::V6(v6) => v6.octets(),
    }
}
