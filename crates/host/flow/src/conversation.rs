//! From a decoded packet to its conversation: flow key and direction.

use crate::{CapturePoint, FlowKey, key};
use lru::LruCache;
use skua_packet::{Fragment, Icmp, Level, Network, Plain, Transport};
use std::num::NonZeroUsize;

/// What the transport header adds to the key, seen from the packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ports {
    /// Source port, network byte order; ICMP: type and code.
    pub src: [u8; 2],
    /// Destination port; ICMP: type and code.
    pub dst: [u8; 2],
    /// Identifier of an ICMP query.
    pub id: u16,
    /// Whether this is the request of an ICMP query pair, none for anything else.
    pub request: Option<bool>,
}

impl Ports {
    /// Reads them from a decoded transport header.
    #[inline]
    pub fn of(transport: &Transport, network: Network) -> Self {
        match *transport {
            Transport::None => Self::default(),
            Transport::Ports { src, dst } => Self::pair(src, dst),
            Transport::Tcp(segment) => Self::pair(segment.src_port, segment.dst_port),
            Transport::Icmp(icmp) => Self::icmp(icmp, network),
        }
    }

    fn pair(src: u16, dst: u16) -> Self {
        Self {
            src: src.to_be_bytes(),
            dst: dst.to_be_bytes(),
            ..Self::default()
        }
    }

    fn icmp(icmp: Icmp, network: Network) -> Self {
        let (kind, request) = match icmp_request(icmp.kind, network) {
            Some(request) => (request, Some(request == icmp.kind)),
            None => (icmp.kind, None),
        };
        Self {
            src: [kind, icmp.code],
            dst: [kind, icmp.code],
            id: icmp.id,
            request,
        }
    }
}

/// The request type of an ICMP query pair that `kind` belongs to.
fn icmp_request(kind: u8, network: Network) -> Option<u8> {
    let pairs: &[(u8, u8)] = match network {
        Network::V4 => &[(8, 0), (13, 14), (15, 16), (17, 18), (10, 9)],
        Network::V6 => &[
            (128, 129),
            (130, 131),
            (133, 134),
            (135, 136),
            (139, 140),
            (144, 145),
        ],
        Network::None => &[],
    };
    pairs
        .iter()
        .find(|(request, reply)| kind == *request || kind == *reply)
        .map(|(request, _)| *request)
}

/// The reply type to an ICMP request type, none when it is no query.
pub(crate) fn icmp_reply(request: u8, network: Network) -> Option<u8> {
    (0..=u8::MAX)
        .find(|kind| *kind != request && icmp_request(*kind, network) == Some(request))
        .filter(|_| icmp_request(request, network) == Some(request))
}

/// A datagram of which fragments are seen (`struct fragment_key` in `bpf/flow/flow.h`).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Datagram {
    src: [u8; 16],
    dst: [u8; 16],
    ifindex: u32,
    id: u32,
    netns: u16,
    proto: u8,
}

/// Ports that first fragments noted for later ones: a bounded LRU.
pub struct FragmentNotes {
    notes: LruCache<Datagram, Ports>,
}

impl FragmentNotes {
    /// The most datagrams that are kept in mind.
    pub const LIMIT: usize = 1024;

    /// Ports of a packet; notes those of first fragments and takes those of later ones from notes.
    #[inline]
    pub fn ports(&mut self, point: CapturePoint, level: &Level) -> Ports {
        match level.fragment {
            Fragment::Whole => Ports::of(&level.transport, level.network),
            Fragment::First | Fragment::Later => self.fragment(point, level),
        }
    }

    #[cold]
    fn fragment(&mut self, point: CapturePoint, level: &Level) -> Ports {
        let datagram = Datagram {
            src: level.src,
            dst: level.dst,
            ifindex: point.ifindex,
            id: level.fragment_id,
            netns: point.netns,
            proto: level.proto,
        };
        if level.fragment == Fragment::Later {
            return self.notes.get(&datagram).copied().unwrap_or_default();
        }
        let ports = Ports::of(&level.transport, level.network);
        if level.transport != Transport::None {
            self.notes.put(datagram, ports);
        }
        ports
    }
}

impl Default for FragmentNotes {
    fn default() -> Self {
        const LIMIT: NonZeroUsize = NonZeroUsize::new(FragmentNotes::LIMIT).unwrap();
        Self {
            notes: LruCache::new(LIMIT),
        }
    }
}

/// The conversation of a packet and the packet's place in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Conversation {
    /// Flow key.
    pub key: FlowKey,
    /// Whether the packet was sent by `lo`.
    pub from_lo: bool,
}

impl Conversation {
    /// The conversation of a packet whose headers were read the short way; the same as by
    /// [`Conversation::new`].
    #[inline]
    pub fn plain(point: CapturePoint, packet: &Plain<'_>) -> Self {
        let address =
            |words: [u64; 2]| (u128::from(words[0]) | u128::from(words[1]) << 64).to_le_bytes();
        let side = |words, port: u16| (u128::from_be_bytes(address(words)), port);
        let src = side(packet.src, packet.src_port());
        let dst = side(packet.dst, packet.dst_port());
        let from_lo = src <= dst;
        let (lo, hi) = if from_lo { (src, dst) } else { (dst, src) };
        let key = FlowKey {
            lo: lo.0.to_be_bytes(),
            hi: hi.0.to_be_bytes(),
            lo_port: lo.1.to_be_bytes(),
            hi_port: hi.1.to_be_bytes(),
            ifindex: point.ifindex,
            netns: point.netns,
            proto: packet.proto,
            kind: plain_kind(packet),
            ..FlowKey::default()
        };
        Self { key, from_lo }
    }

    /// The conversation of a decoded packet. `tunnel_hash` is that of the tunnel around
    /// it, [`FlowKey::tunnel_hash`].
    #[inline]
    pub fn new(point: CapturePoint, level: &Level, ports: &Ports, tunnel_hash: [u8; 6]) -> Self {
        let (network, src, dst, detail) = match level.network {
            Network::None => (
                0,
                mac_address(level.mac_src),
                mac_address(level.mac_dst),
                level.ethertype,
            ),
            Network::V4 => (1, level.src, level.dst, ports.id),
            Network::V6 => (2, level.src, level.dst, ports.id),
        };
        let from_lo = (u128::from_be_bytes(src), u16::from_be_bytes(ports.src))
            <= (u128::from_be_bytes(dst), u16::from_be_bytes(ports.dst));
        let (lo, hi, lo_port, hi_port) = if from_lo {
            (src, dst, ports.src, ports.dst)
        } else {
            (dst, src, ports.dst, ports.src)
        };
        let ethernet = if level.ethernet {
            key::KIND_ETHERNET
        } else {
            0
        };
        let tunnel = level.tunnel.map_or(0, key::tunnel_number);
        let key = FlowKey {
            lo,
            hi,
            lo_port,
            hi_port,
            ifindex: point.ifindex,
            netns: point.netns,
            vlan: level.vlan,
            proto: level.proto,
            kind: network | ethernet | tunnel << key::KIND_TUNNEL_SHIFT,
            detail,
            tunnel_hash: key::mix_in(tunnel_hash, level.more_vlans),
        };
        Self { key, from_lo }
    }
}

/// The `kind` of a key.
#[inline]
fn plain_kind(packet: &Plain<'_>) -> u8 {
    let network = match packet.network {
        Network::None => 0,
        Network::V4 => 1,
        Network::V6 => 2,
    };
    network | key::KIND_ETHERNET
}

/// Whether `key` is that of [`Conversation::plain`], given that its `lo` (or else `hi`) sent the
/// packet.
#[inline]
pub(crate) fn is_plain(
    key: &FlowKey,
    from_lo: bool,
    point: CapturePoint,
    packet: &Plain<'_>,
) -> bool {
    let ports = packet.ports;
    let (lo, hi, ports) = match from_lo {
        true => (packet.src, packet.dst, ports),
        false => (packet.dst, packet.src, ports.rotate_left(16)),
    };
    let expected = [
        lo[0],
        lo[1],
        hi[0],
        hi[1],
        u64::from(ports) | u64::from(point.ifindex) << 32,
        u64::from(point.netns)
            | u64::from(packet.proto) << 48
            | u64::from(plain_kind(packet)) << 56,
        0,
    ];
    key.is(expected)
}

/// A MAC address as flow keys hold it; all zero stays all zero.
fn mac_address(mac: [u8; 6]) -> [u8; 16] {
    let mut address = [0; 16];
    address[10..].copy_from_slice(&mac);
    address
}
