//! Decoding of packets: link layer, VLAN, IP, transport, tunnels.
//!
//! [`decode`] follows `docs/accounting.md` section 2 to the letter, as the kernel programs do. It
//! allocates nothing, reads each header once and never fails on hostile bytes: what cannot be read
//! makes a level poorer, not an error. Only a frame without its link header is refused.

mod cursor;
mod ip;
mod level;
mod link;
mod lldp;
mod plain;
#[cfg(test)]
mod tests;
mod transport;
mod tunnel;
mod wireless;

pub use level::{
    Decoded, Fragment, Icmp, Level, MAX_LEVELS, Network, TcpSegment, Transport, Truncated, Tunnel,
};
pub use link::{ETHERTYPE_ARP, ETHERTYPE_IPV4, ETHERTYPE_IPV6, LinkType, VLAN_PRESENT};
pub use lldp::{ETHERTYPE_LLDP, Lldp, LldpAggregation, LldpError, LldpId, LldpProtocolVlan};
pub use plain::Plain;

use cursor::Cursor;

/// One captured frame (or super-packet, when the kernel joined several).
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// The captured bytes, from the link header on.
    pub data: &'a [u8],
    /// Length on the wire in bytes, without a stripped VLAN tag; from files the original length.
    pub wire_len: u32,
    /// How the bytes start.
    pub link: LinkType,
    /// Tag control information of a VLAN tag that the network card stripped.
    pub stripped_vlan: Option<u16>,
    /// `gso_segs`: number of wire packets in this one; 0 and 1 both mean one.
    pub segments: u16,
}

impl<'a> Frame<'a> {
    /// A whole Ethernet frame.
    pub fn ethernet(data: &'a [u8]) -> Self {
        Self {
            data,
            wire_len: u32::try_from(data.len()).unwrap_or(u32::MAX),
            link: LinkType::Ethernet,
            stripped_vlan: None,
            segments: 1,
        }
    }

    /// Whether this contains more than one wire packet.
    pub fn is_super_packet(&self) -> bool {
        self.segments > 1
    }
}

/// What to decode.
#[derive(Clone, Copy, Default, Debug)]
pub struct Options {
    /// Decode tunnels (`flow.tunnels`).
    pub tunnels: bool,
}

/// Decodes a frame.
///
/// # Errors
///
/// [`Truncated`] when not even the link header is there.
#[inline]
pub fn decode(frame: &Frame<'_>, options: Options) -> Result<Decoded, Truncated> {
    let mut decoded = Decoded::default();
    decode_into(frame, options, &mut decoded).map(|()| decoded)
}

/// Decodes a frame into `decoded`, which must be blank: what [`decode`] returns is copied on the
/// way, which costs a third of the time.
///
/// # Errors
///
/// [`Truncated`] when not even the link header is there.
#[inline]
pub fn decode_into(
    frame: &Frame<'_>,
    options: Options,
    decoded: &mut Decoded,
) -> Result<(), Truncated> {
    let mut cursor = Cursor::new(frame);
    link::start(&mut cursor, &mut decoded.outer, frame)?;
    if options.tunnels {
        decoded.child = tunnel::inner(&mut cursor, &decoded.outer);
        if let Some(child) = &decoded.child {
            decoded.grandchild = tunnel::inner(&mut cursor, child);
        }
    }
    Ok(())
}
