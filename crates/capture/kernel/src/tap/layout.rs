//! The structs of `bpf/tap/tap.h`.

use std::net::IpAddr;

/// `OUTPUTS` of `bpf/tap/tap.h`: places that conversations are spread over.
pub const OUTPUTS: usize = 64;
/// `MAX_SOURCES`.
pub const MAX_SOURCES: usize = 1024;

/// `HOST_BITS`.
pub(super) const HOST_BITS: u32 = 19;
/// `HOST_FACTOR`.
const HOST_FACTOR: u32 = 0x9e37_79b1;

/// `may_be_host`: which of the bits is that of an address.
pub(super) fn host_bit(octets: &[u8]) -> usize {
    let words = octets.chunks_exact(4);
    let hash = words.fold(0u32, |hash, word| {
        let word = u32::from_ne_bytes([word[0], word[1], word[2], word[3]]);
        (hash ^ word).wrapping_mul(HOST_FACTOR)
    });
    (hash >> (32 - HOST_BITS)) as usize
}

/// Bits of `tap_settings.flags`.
pub(super) mod flag {
    pub const HOSTS4: u32 = 1 << 0;
    pub const HOSTS6: u32 = 1 << 1;
    pub const PREFIXES4: u32 = 1 << 2;
    pub const PREFIXES6: u32 = 1 << 3;
    pub const MACS: u32 = 1 << 4;
    pub const SOCKETS: u32 = 1 << 5;
    pub const DEDUP: u32 = 1 << 6;
    pub const RATE: u32 = 1 << 7;
    pub const BALANCE: u32 = 1 << 8;
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
    /// The monitor's queue, or the ring, has no room.
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

/// What became of the packets of one source in one direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SourceCounters {
    /// Wanted.
    pub matched: Count,
    /// Copied.
    pub copied: Count,
    /// Not copied, by [`Cause`].
    pub dropped: [Count; Cause::ALL.len()],
}

/// What became of copies on their way to a monitor.
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
    /// What somebody else sent on the tap's own way.
    pub strange: Count,
}

/// Adds up `Count`s that stand one after the other, of all CPUs.
fn sums<const N: usize>(per_cpu: &[Vec<u8>]) -> [Count; N] {
    let mut sums = [Count::default(); N];
    let word = |bytes: &[u8]| {
        bytes
            .first_chunk()
            .map_or(0, |word| u64::from_ne_bytes(*word))
    };
    for cpu in per_cpu {
        for (sum, bytes) in sums.iter_mut().zip(cpu.chunks_exact(16)) {
            *sum += Count {
                packets: word(bytes),
                bytes: word(&bytes[8..]),
            };
        }
    }
    sums
}

impl SourceCounters {
    pub(super) fn read(per_cpu: &[Vec<u8>]) -> Self {
        let [matched, copied, dropped @ ..] = sums::<{ 2 + Cause::ALL.len() }>(per_cpu);
        Self {
            matched,
            copied,
            dropped,
        }
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
    pub(super) fn read(per_cpu: &[Vec<u8>]) -> Self {
        let [sent, cut, too_big, failed, strange] = sums(per_cpu);
        Self {
            sent,
            cut,
            too_big,
            failed,
            strange,
        }
    }
}

/// Where copies go that fall to one of [`OUTPUTS`] places.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Output {
    /// Interface in the namespace of the sources; 0: they go nowhere.
    pub ifindex: u32,
    /// Number of the monitor.
    pub monitor: u32,
    /// Longest packet without its Ethernet header; 0: that is looked at later.
    pub mtu: u32,
}

impl Output {
    pub(super) fn bytes(self) -> [u8; 16] {
        words([self.ifindex, self.monitor, self.mtu, 0])
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
    pub(super) fn bytes(&self) -> [u8; 64] {
        let mut bytes = [0; 64];
        let encapsulation = match self.encapsulation {
            Encapsulation::Plain => 0,
            Encapsulation::Vxlan => 1,
            Encapsulation::Geneve => 2,
            Encapsulation::Erspan => 3,
        };
        let head: [u8; 16] = words([self.ifindex, self.mtu, encapsulation, self.id]);
        bytes[..16].copy_from_slice(&head);
        let (local, remote) = self.addresses;
        for (place, address) in [(16, remote), (32, local)] {
            match address {
                IpAddr::V4(v4) => bytes[place..place + 4].copy_from_slice(&v4.octets()),
                IpAddr::V6(v6) => bytes[place..place + 16].copy_from_slice(&v6.octets()),
            }
        }
        bytes[48..54].copy_from_slice(&self.macs.1);
        bytes[54..60].copy_from_slice(&self.macs.0);
        bytes[60..62].copy_from_slice(&self.port.to_ne_bytes());
        bytes[62] = remote.is_ipv6().into();
        bytes[63] = 64;
        bytes
    }
}

pub(super) fn words<const W: usize, const N: usize>(words: [u32; W]) -> [u8; N] {
    let mut bytes = [0; N];
    for (place, word) in bytes.chunks_exact_mut(4).zip(words) {
        place.copy_from_slice(&word.to_ne_bytes());
    }
    bytes
}

/// `struct tap_settings`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Settings {
    pub process: u32,
    pub tap: u32,
    pub flags: u32,
    pub sampling: u32,
    pub packet_time: u64,
    pub bit_time: u64,
    pub burst: u64,
    pub cut: u32,
    pub vlan: u32,
}

impl Settings {
    pub(super) fn bytes(&self) -> [u8; 48] {
        let mut bytes = [0; 48];
        let head: [u8; 16] = words([self.process, self.tap, self.flags, self.sampling]);
        bytes[..16].copy_from_slice(&head);
        for (place, time) in [
            (16, self.packet_time),
            (24, self.bit_time),
            (32, self.burst),
        ] {
            bytes[place..place + 8].copy_from_slice(&time.to_ne_bytes());
        }
        let tail: [u8; 8] = words([self.cut, self.vlan]);
        bytes[40..].copy_from_slice(&tail);
        bytes
    }
}
