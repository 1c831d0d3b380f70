//! Link layers and VLAN tags.

use crate::{
    Frame, Level, Truncated,
    cursor::{Cursor, be16},
    ip, wireless,
};

/// EtherType of IPv4.
pub const ETHERTYPE_IPV4: u16 = 0x0800;
/// EtherType of ARP.
pub const ETHERTYPE_ARP: u16 = 0x0806;
/// EtherType of IPv6.
pub const ETHERTYPE_IPV6: u16 = 0x86dd;
/// `vlan`: a tag is present.
pub const VLAN_PRESENT: u16 = 0x1000;

/// Values below are an IEEE 802.3 length.
const ETHERTYPE_MIN: u16 = 0x0600;

/// The most VLAN tags that are stepped over.
const MAX_TAGS: usize = 4;

/// How captured bytes start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LinkType {
    /// Ethernet header of 14 bytes.
    #[default]
    Ethernet,
    /// An IP header at once: tun, IP tunnels.
    RawIp,
    /// Linux "cooked" capture, 16 bytes.
    LinuxSll,
    /// Linux "cooked" capture version 2, 20 bytes.
    LinuxSll2,
    /// BSD loopback: address family in 4 bytes, in the byte order of the writer.
    BsdNull,
    /// OpenBSD loopback: address family in 4 bytes, network byte order.
    BsdLoop,
    /// IEEE 802.11 frame.
    Ieee80211,
    /// Radiotap header and IEEE 802.11 frame.
    Radiotap,
    /// Attributes of Linux's NFLOG, of which one is an IP packet.
    Nflog,
}

impl LinkType {
    /// The link type of a LINKTYPE_ number of pcap files
    /// (<https://www.tcpdump.org/linktypes.html>); none for what is not decoded.
    pub fn from_pcap(linktype: u32) -> Option<Self> {
        match linktype {
            0 => Some(Self::BsdNull),
            1 => Some(Self::Ethernet),
            // LINKTYPE_RAW, DLT_RAW of BSD and OpenBSD, LINKTYPE_IPV4, LINKTYPE_IPV6
            101 | 12 | 14 | 228 | 229 => Some(Self::RawIp),
            108 => Some(Self::BsdLoop),
            113 => Some(Self::LinuxSll),
            105 => Some(Self::Ieee80211),
            127 => Some(Self::Radiotap),
            239 => Some(Self::Nflog),
            276 => Some(Self::LinuxSll2),
            _ => None,
        }
    }

    /// The LINKTYPE_ number under which files have such packets.
    pub fn to_pcap(self) -> u32 {
        match self {
            Self::BsdNull => 0,
            Self::Ethernet => 1,
            Self::RawIp => 101,
            Self::BsdLoop => 108,
            Self::LinuxSll => 113,
            Self::LinuxSll2 => 276,
            Self::Ieee80211 => 105,
            Self::Radiotap => 127,
            Self::Nflog => 239,
        }
    }
}

/// Decodes a frame's first level from its link header on.
#[inline]
pub(crate) fn start(
    cursor: &mut Cursor<'_>,
    level: &mut Level,
    frame: &Frame<'_>,
) -> Result<(), Truncated> {
    if let Some(tci) = frame.stripped_vlan {
        level.vlan[0] = vlan(tci);
    }
    match frame.link {
        LinkType::Ethernet => ethernet(cursor, level),
        LinkType::RawIp => {
            raw(cursor, level);
            Some(())
        }
        LinkType::LinuxSll => cooked(cursor, level),
        LinkType::LinuxSll2 => cooked2(cursor, level),
        LinkType::BsdNull | LinkType::BsdLoop => loopback(cursor, level),
        LinkType::Ieee80211 => {
            wireless::frame(cursor, false).map(|ethertype| tagged(cursor, level, ethertype))
        }
        LinkType::Radiotap => {
            wireless::radiotap(cursor).map(|ethertype| tagged(cursor, level, ethertype))
        }
        LinkType::Nflog => {
            wireless::nflog(cursor).map(|family| of_family(cursor, level, family.into()))
        }
    }
    .ok_or(Truncated)
}

/// Ethernet header, VLAN tags and what follows; none when the header is cut off.
#[inline]
pub(crate) fn ethernet(cursor: &mut Cursor<'_>, level: &mut Level) -> Option<()> {
    let header: &[u8; 14] = cursor.read()?;
    level.ethernet = true;
    level.mac_dst.copy_from_slice(&header[..6]);
    level.mac_src.copy_from_slice(&header[6..12]);
    tagged(cursor, level, be16(header[12], header[13]));
    Some(())
}

/// Packet without link header: the version nibble decides.
#[inline]
pub(crate) fn raw(cursor: &mut Cursor<'_>, level: &mut Level) {
    let ethertype = match cursor.peek::<1>().map(|b| b[0] >> 4) {
        Some(4) => ETHERTYPE_IPV4,
        Some(6) => ETHERTYPE_IPV6,
        _ => 0,
    };
    ip::network(cursor, level, ethertype);
}

/// SLL: packet type, ARPHRD, address length, address (8), protocol.
fn cooked(cursor: &mut Cursor<'_>, level: &mut Level) -> Option<()> {
    let header: &[u8; 16] = cursor.read()?;
    tagged(cursor, level, be16(header[14], header[15]));
    Some(())
}

/// SLL2: protocol, reserved, interface index, ARPHRD, packet type, address length, address (8).
fn cooked2(cursor: &mut Cursor<'_>, level: &mut Level) -> Option<()> {
    let header: &[u8; 20] = cursor.read()?;
    tagged(cursor, level, be16(header[0], header[1]));
    Some(())
}

/// BSD loopback; the families of all systems that write such files.
fn loopback(cursor: &mut Cursor<'_>, level: &mut Level) -> Option<()> {
    let header: &[u8; 4] = cursor.read()?;
    // Families fit into one byte, so whichever end is not zero holds it.
    let family = match u32::from_be_bytes(*header) {
        small @ 0..=0xff => small,
        _ => u32::from_le_bytes(*header),
    };
    of_family(cursor, level, family);
    Some(())
}

/// A packet of an address family.
fn of_family(cursor: &mut Cursor<'_>, level: &mut Level, family: u32) {
    let ethertype = match family {
        2 => ETHERTYPE_IPV4,
        10 | 24 | 28 | 30 => ETHERTYPE_IPV6,
        _ => 0,
    };
    ip::network(cursor, level, ethertype);
}

/// VLAN tags (at most four together with a stripped one), then the network layer.
#[inline]
fn tagged(cursor: &mut Cursor<'_>, level: &mut Level, mut ethertype: u16) {
    let mut tags = usize::from(level.vlan[0] != 0);
    while matches!(ethertype, 0x8100 | 0x88a8 | 0x9100) && tags < MAX_TAGS {
        let Some(tag) = cursor.read::<4>() else { break };
        let vlan = vlan(be16(tag[0], tag[1]));
        match tags {
            0 | 1 => level.vlan[tags] = vlan,
            _ => level.more_vlans[tags - 2] = vlan,
        }
        ethertype = be16(tag[2], tag[3]);
        tags += 1;
    }
    if ethertype < ETHERTYPE_MIN {
        ethertype = 0;
    }
    ip::network(cursor, level, ethertype);
}

fn vlan(tci: u16) -> u16 {
    VLAN_PRESENT | tci & 0x0fff
}
