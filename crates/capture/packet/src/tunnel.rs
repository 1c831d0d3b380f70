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
/// EtherTypes of ERSPAN, types I and II, and III.
const ETHERTYPE_ERSPAN: u16 = 0x88be;
const ETHERTYPE_ERSPAN_III: u16 = 0x22eb;
/// The most labels of a stack that are read.
const MAX_LABELS: usize = 8;

/// UDP destination ports.
const VXLAN_IANA: u16 = 4789;
const VXLAN_LINUX: u16 = 8472;
const GENEVE: u16 = 6081;
const MPLS: u16 = 6635;

/// Whether UDP packets to a port are decoded as tunnels.
#[inline]
pub(crate) fn is_udp_tunnel(dst: u16) -> bool {
    matches!(dst, VXLAN_IANA | VXLAN_LINUX | GENEVE | MPLS)
}

/// How the inner packet starts.
enum Inner {
    Ethernet,
    Ip,
}

/// A tunnel header.
struct Header {
    tunnel: Tunnel,
    id: u32,
    inner: Inner,
    /// Bottom MPLS label.
    label: Option<u32>,
}

impl Header {
    fn new(tunnel: Tunnel, id: u32, inner: Inner) -> Self {
        Self {
            tunnel,
            id,
            inner,
            label: None,
        }
    }

    fn mpls(cursor: &mut Cursor<'_>) -> Option<Self> {
        let label = labels(cursor)?;
        Some(Self {
            label: Some(label),
            ..Self::new(Tunnel::Mpls, label, Inner::Ip)
        })
    }
}

/// The packet inside `outer`, whose headers end at its `payload`; none when it carries none of the
/// known kinds or the tunnel header is cut off.
pub(crate) fn inner(cursor: &mut Cursor<'_>, outer: &Level) -> Option<Level> {
    if outer.fragment == Fragment::Later || outer.malformed {
        return None;
    }
    cursor.seek(outer.payload);
    let header = match (outer.network, outer.proto, outer.transport) {
        (Network::None, ..) if ETHERTYPE_MPLS.contains(&outer.ethertype) => Header::mpls(cursor)?,
        (Network::None, ..) => return None,
        (_, 17, Transport::Ports { dst, .. }) => match dst {
            VXLAN_IANA | VXLAN_LINUX => vxlan(cursor)?,
            GENEVE => geneve(cursor)?,
            MPLS => Header::mpls(cursor)?,
            _ => return None,
        },
        (_, 47, _) => gre(cursor)?,
        (_, 4 | 41, _) => Header::new(Tunnel::IpInIp, 0, Inner::Ip),
        _ => return None,
    };
    let mut level = Level {
        tunnel: Some(header.tunnel),
        tunnel_id: header.id,
        label: header.label,
        start: cursor.at(),
        ..Level::default()
    };
    match header.inner {
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
fn vxlan(cursor: &mut Cursor<'_>) -> Option<Header> {
    let header: &[u8; 8] = cursor.read()?;
    (header[0] & 0x08 != 0).then_some(Header::new(Tunnel::Vxlan, vni(header), Inner::Ethernet))
}

/// GENEVE: version and option length, flags, protocol, VNI, reserved, options.
fn geneve(cursor: &mut Cursor<'_>) -> Option<Header> {
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
    Some(Header::new(Tunnel::Geneve, vni(header), inner))
}

/// GRE: flags and version, protocol, then checksum, key, sequence number as the flags say.
fn gre(cursor: &mut Cursor<'_>) -> Option<Header> {
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
    let mut label = None;
    let inner = match be16(header[2], header[3]) {
        ETHERTYPE_BRIDGING => Inner::Ethernet,
        ETHERTYPE_IPV4 | ETHERTYPE_IPV6 => Inner::Ip,
        mpls if ETHERTYPE_MPLS.contains(&mpls) => {
            label = Some(labels(cursor)?);
            Inner::Ip
        }
        // Type I has no header, and GRE no sequence number before it.
        ETHERTYPE_ERSPAN if flags & SEQUENCE == 0 => {
            return Some(Header::new(Tunnel::Erspan, 0, Inner::Ethernet));
        }
        ETHERTYPE_ERSPAN => return erspan2(cursor),
        ETHERTYPE_ERSPAN_III => return erspan3(cursor),
        _ => return None,
    };
    Some(Header {
        label,
        ..Header::new(Tunnel::Gre, key, inner)
    })
}

/// The session of an ERSPAN header.
fn session(high: u8, low: u8) -> u32 {
    u32::from(be16(high, low) & 0x03ff)
}

/// ERSPAN type II: version and VLAN, flags and session, port.
fn erspan2(cursor: &mut Cursor<'_>) -> Option<Header> {
    let header: &[u8; 8] = cursor.read()?;
    let id = session(header[2], header[3]);
    (header[0] >> 4 == 1).then_some(Header::new(Tunnel::Erspan, id, Inner::Ethernet))
}

/// ERSPAN type III: version and VLAN, flags and session, time, group; frame type, hardware,
/// direction, granularity and whether a header of the platform follows.
fn erspan3(cursor: &mut Cursor<'_>) -> Option<Header> {
    let header: &[u8; 12] = cursor.read()?;
    let last = be16(header[10], header[11]);
    if header[0] >> 4 != 2 {
        return None;
    }
    if last & 1 != 0 {
        cursor.read::<8>()?;
    }
    let inner = match last >> 10 & 0x1f {
        0 => Inner::Ethernet,
        2 => Inner::Ip,
        _ => return None,
    };
    Some(Header::new(
        Tunnel::Erspan,
        session(header[2], header[3]),
        inner,
    ))
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
