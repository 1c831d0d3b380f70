//! The flow key: what makes two packets part of the same conversation.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Key of a flow; the same 56 bytes as `struct flow_key` in `bpf/flow/flow.h`
/// (`docs/accounting.md` section 1 describes each field).
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct FlowKey {
    /// Lower endpoint address, IPv4 as `::ffff:a.b.c.d`, MAC in the last 6 bytes.
    pub lo: [u8; 16],
    /// Higher endpoint address.
    pub hi: [u8; 16],
    /// Port of `lo`, network byte order; ICMP: type and code.
    pub lo_port: [u8; 2],
    /// Port of `hi`, network byte order; ICMP: type and code.
    pub hi_port: [u8; 2],
    /// Interface index.
    pub ifindex: u32,
    /// The agent's number of the network namespace, 0 its own.
    pub netns: u16,
    /// Outer and inner VLAN: 0 none, else `0x1000 | VID`.
    pub vlan: [u16; 2],
    /// IP protocol, 0 without IP.
    pub proto: u8,
    /// Network layer, link layer and tunnel kind, see the accessors.
    pub kind: u8,
    /// EtherType without IP, identifier of ICMP queries, else 0.
    pub detail: u16,
    /// Hash of the parent flow and tunnel identifier, 0 outside of tunnels.
    pub parent: [u8; 6],
}

const _: () = assert!(size_of::<FlowKey>() == 56);

/// Network layer of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Network {
    /// No IP: endpoints are MAC addresses.
    None,
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// What a flow was found inside.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tunnel {
    /// VXLAN, RFC 7348.
    Vxlan,
    /// GENEVE, RFC 8926.
    Geneve,
    /// GRE, RFC 2784 and 2890.
    Gre,
    /// IP in IP, RFC 2003, 2473 and 4213.
    IpInIp,
    /// MPLS, RFC 3032.
    Mpls,
}

/// `kind`: has an Ethernet header.
pub const KIND_ETHERNET: u8 = 1 << 2;
/// `kind`: shift of the tunnel number.
pub const KIND_TUNNEL_SHIFT: u8 = 3;

/// EtherType of ARP.
pub const ETHERTYPE_ARP: u16 = 0x0806;
/// `vlan`: a tag is present.
pub const VLAN_PRESENT: u16 = 0x1000;

impl FlowKey {
    /// Network layer.
    pub fn network(&self) -> Network {
        match self.kind & 3 {
            1 => Network::V4,
            2 => Network::V6,
            _ => Network::None,
        }
    }

    /// Whether the packets have an Ethernet header.
    pub fn ethernet(&self) -> bool {
        self.kind & KIND_ETHERNET != 0
    }

    /// The tunnel that the flow was found inside.
    pub fn tunnel(&self) -> Option<Tunnel> {
        match self.kind >> KIND_TUNNEL_SHIFT & 7 {
            1 => Some(Tunnel::Vxlan),
            2 => Some(Tunnel::Geneve),
            3 => Some(Tunnel::Gre),
            4 => Some(Tunnel::IpInIp),
            5 => Some(Tunnel::Mpls),
            _ => None,
        }
    }

    /// VLAN identifiers, outermost first.
    pub fn vlan_ids(&self) -> impl Iterator<Item = u16> + '_ {
        self.vlan.iter().filter(|v| **v & VLAN_PRESENT != 0).map(|v| v & 0x0fff)
    }

    /// Whether the protocol has ports (TCP, UDP, UDP-Lite, SCTP, DCCP).
    pub fn has_ports(&self) -> bool {
        matches!(self.proto, 6 | 17 | 33 | 132 | 136) && self.network() != Network::None
    }

    /// Whether this is ICMP in IPv4 or ICMPv6 in IPv6.
    pub fn is_icmp(&self) -> bool {
        matches!((self.network(), self.proto), (Network::V4, 1) | (Network::V6, 58))
    }

    /// IP address of an endpoint as stored, none for MAC addresses.
    pub fn ip(&self, address: &[u8; 16]) -> Option<IpAddr> {
        match self.network() {
            Network::None => None,
            Network::V4 => {
                Some(Ipv4Addr::new(address[12], address[13], address[14], address[15]).into())
            }
            Network::V6 => Some(Ipv6Addr::from(*address).into()),
        }
    }
}
