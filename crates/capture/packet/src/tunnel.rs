//! Decoding tunnels.

use crate::{
    Fragment, Level, Network, Transport, Tunnel,
    cursor::{Cursor, be16},
    link::{self, ETHERTYPE_IPV4, ETHERTYPE_IPV6},
};

/// EtherType of transparent Ethernet bridging.
const ETHERTYPE_BRIDGING: u16 = 0x6558;
/// EtherTypes of MPLS, unicast and multicast (RFC 5332).
const ETHERTYPE_MPLS: std::ops::RangeInclusive<u16> = 0x8847..=0x8848;
/// The most labels of a stack that are read.
const MAX_LABELS: usize = 8;

/// UDP destination ports.
const VXLAN_IANA: u16 = 4789;
const VXLAN_LINUX: u16 = 8472;
const GENEVE: u16 = 6081;

/// Whether UDP packets to a port are decoded as tunnels.
#[inline]
pub(crate) fn is_udp_tunnel(dst: u16) -> bool {
    matches!(dst, VXLAN_IANA | VXLAN_LINUX | GENEVE)
}

/// How the inner packet starts.
enum Inner {
    Ethernet,
    Ip,
}

/// The packet inside `outer`, whose headers end at its `payload`; none when it carries none of the
/// known kinds or the tunnel header is cut off.
pub(crate) fn inner(cursor: &mut Cursor<'_>, outer: &Level) -> Option<Level> {
    if outer.fragment == Fragment::Later || outer.malformed {
        return None;
    }
    cursor.seek(outer.payload);
    let (tunnel, tunnel_id, inner) = match (outer.network, outer.proto, outer.transport) {
        (Network::None, ..) if ETHERTYPE_MPLS.contains(&outer.ethertype) => {
            (Tunnel::Mpls, labels(cursor)?, Inner::Ip)
        }
        (Network::None, ..) => return None,
        (_, 17, Transport::Ports { dst, .. }) => match dst {
            VXLAN_IANA | VXLAN_LINUX => vxlan(cursor)?,
            GENEVE => geneve(cursor)?,
            _ => return None,
        },
        (_, 47, _) => gre(cursor)?,
        (_, 4 | 41, _) => (Tunnel::IpInIp, 0, Inner::Ip),
        _ => return None,
    };
    let mut level = Level {
        tunnel: Some(tunnel),
        tunnel_id,
        start: cursor.at(),
        ..Level::default()
    };
    match inner {
        Inner::Ethernet => link::ethernet(cursor, &mut level)?,
        Inner::Ip => {
            if !matches!(cursor.peek::<1>()?[0] >> 4, 4 | 6) {
                return None;
            }
            link::raw(cursor, &mut level);
        }
    }
    Some(level)
}

/// VXLAN: flags, reserved, VNI (24 bits), reserved.
fn vxlan(cursor: &mut Cursor<'_>) -> Option<(Tunnel, u32, Inner)> {
    let header: &[u8; 8] = cursor.read()?;
    (header[0] & 0x08 != 0).then_some((Tunnel::Vxlan, vni(header), Inner::Ethernet))
}

/// GENEVE: version and option length, flags, protocol, VNI, reserved, options.
fn geneve(cursor: &mut Cursor<'_>) -> Option<(Tunnel, u32, Inner)> {
    let header: &[u8; 8] = cursor.read()?;
    let options = usize::from(header[0] & 0x3f) * 4;
    if header[0] >> 6 != 0 || !cursor.has(options) {
        return None;
    }
    cursor.skip(options);
    let inner = match be16(header[2], header[3]) {
        ETHERTYPE_BRIDGING => Inner::Ethernet,
        ETHERTYPE_IPV4 | ETHERTYPE_IPV6 => Inner::Ip,
        _ => return None,
    };
    Some((Tunnel::Geneve, vni(header), inner))
}

/// GRE: flags and version, protocol, then checksum, key, sequence number as the flags say.
fn gre(cursor: &mut Cursor<'_>) -> Option<(Tunnel, u32, Inner)> {
    const CHECKSUM: u8 = 0x80;
    const ROUTING: u8 = 0x40;
    const KEY: u8 = 0x20;
    const SEQUENCE: u8 = 0x10;
    let header: &[u8; 4] = cursor.read()?;
    let flags = header[0];
    if header[1] & 0x07 != 0 || flags & ROUTING != 0 {
        return None;
    }
    if flags & CHECKSUM != 0 {
        cursor.read::<4>()?;
    }
    let key = match flags & KEY {
        0 => 0,
        _ => u32::from_be_bytes(*cursor.read()?),
    };
    if flags & SEQUENCE != 0 {
        cursor.read::<4>()?;
    }
    let inner = match be16(header[2], header[3]) {
        ETHERTYPE_BRIDGING => Inner::Ethernet,
        ETHERTYPE_IPV4 | ETHERTYPE_IPV6 => Inner::Ip,
        mpls if ETHERTYPE_MPLS.contains(&mpls) => {
            labels(cursor)?;
            Inner::Ip
        }
        _ => return None,
    };
    Some((Tunnel::Gre, key, inner))
}

/// Steps over an MPLS label stack and returns its bottom label.
fn labels(cursor: &mut Cursor<'_>) -> Option<u32> {
    for _ in 0..MAX_LABELS {
        let entry = u32::from_be_bytes(*cursor.read()?);
        if entry & 0x100 != 0 {
            return Some(entry >> 12);
        }
    }
    None
}

fn vni(header: &[u8; 8]) -> u32 {
    u32::from_be_bytes([0, header[4], header[5], header[6]])
}
