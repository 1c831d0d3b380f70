//! Neighbours: link-layer addresses of network-layer addresses, and the forwarding tables of bridges
//! and VXLAN.

use crate::attribute::{attributes, read_ip, read_u16, read_u32};
use std::net::IpAddr;

const AF_BRIDGE: u8 = 7;
// linux/neighbour.h
const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;
const NDA_VLAN: u16 = 5;
const NDA_VNI: u16 = 7;
const NDA_MASTER: u16 = 9;

/// A neighbour, or an entry of a forwarding table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Neighbour {
    /// Index of the interface.
    pub ifindex: u32,
    /// It is an entry of a forwarding table (AF_BRIDGE).
    pub forwarding: bool,
    /// Network-layer address; of a forwarding entry that of the other end of the tunnel.
    pub ip: Option<IpAddr>,
    /// Link-layer address.
    pub mac: Vec<u8>,
    /// NUD_… of linux/neighbour.h, one bit.
    pub state: u16,
    /// NTF_… of linux/neighbour.h.
    pub flags: u8,
    /// VLAN of a forwarding entry.
    pub vlan: Option<u16>,
    /// Network identifier of a tunnel, when it is not the interface's own.
    pub vni: Option<u32>,
    /// Index of the bridge that the forwarding entry is of.
    pub master: Option<u32>,
}

/// Decodes the payload of an RTM_NEWNEIGH or RTM_DELNEIGH (`struct ndmsg`).
pub(crate) fn decode(payload: &[u8]) -> Option<Neighbour> {
    let (head, rest) = payload.split_first_chunk::<12>()?;
    let mut neighbour = Neighbour {
        ifindex: u32::from_ne_bytes([head[4], head[5], head[6], head[7]]),
        forwarding: head[0] == AF_BRIDGE,
        ip: None,
        mac: Vec::new(),
        state: u16::from_ne_bytes([head[8], head[9]]),
        flags: head[10],
        vlan: None,
        vni: None,
        master: None,
    };
    for (kind, value) in attributes(rest) {
        match kind {
            NDA_DST => neighbour.ip = read_ip(value),
            NDA_LLADDR => neighbour.mac = value.to_vec(),
            NDA_VLAN => neighbour.vlan = read_u16(value),
            NDA_VNI => neighbour.vni = read_u32(value),
            NDA_MASTER => neighbour.master = read_u32(value),
            _ => {}
        }
    }
    Some(neighbour)
}
