//! Sampled packets of any source of sFlow.

use std::net::{IpAddr, Ipv6Addr};

use skua_packet::{Frame, LinkType, Network, Options, Transport};
use skua_wire::sflow::{IpPacket, RawHeader, header_protocol};

use crate::key::{Oriented, Rule, Side};

const SYN: u32 = 0x02;
const ACK: u32 = 0x10;
/// Ports below this are well-known.
const WELL_KNOWN: u16 = 1024;

/// The fields of a packet that count.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet {
    pub(crate) protocol: u8,
    /// Source and destination.
    pub(crate) sides: [Side; 2],
    tcp_flags: u32,
    /// Bytes on the wire.
    pub(crate) bytes: u64,
}

impl Packet {
    /// Reads the first bytes of a packet; none when it is not IP.
    pub(crate) fn of_header(raw: &RawHeader<'_>) -> Option<Self> {
        let link = match raw.protocol {
            header_protocol::ETHERNET => LinkType::Ethernet,
            header_protocol::IPV4 | header_protocol::IPV6 => LinkType::RawIp,
            _ => return None,
        };
        let frame = Frame {
            data: raw.header,
            wire_len: raw.wire_len(),
            link,
            stripped_vlan: None,
            segments: 1,
        };
        let level = skua_packet::decode(&frame, Options::default()).ok()?.outer;
        let address = |bytes: [u8; 16]| IpAddr::V6(Ipv6Addr::from(bytes)).to_canonical();
        let (ports, tcp_flags) = match level.transport {
            Transport::Ports { src, dst } => ([src, dst], 0),
            Transport::Tcp(tcp) => ([tcp.src_port, tcp.dst_port], tcp.flags.into()),
            Transport::None | Transport::Icmp(_) => ([0; 2], 0),
        };
        (level.network != Network::None).then(|| Self {
            protocol: level.proto,
            sides: [
                Side {
                    address: address(level.src),
                    port: ports[0],
                },
                Side {
                    address: address(level.dst),
                    port: ports[1],
                },
            ],
            tcp_flags,
            bytes: raw.wire_len().into(),
        })
    }

    /// The same of what an agent has read itself.
    pub(crate) fn of_ip(ip: &IpPacket) -> Option<Self> {
        let side = |address: IpAddr, port: u32| -> Option<Side> {
            Some(Side {
                address: address.to_canonical(),
                port: u16::try_from(port).ok()?,
            })
        };
        Some(Self {
            protocol: u8::try_from(ip.protocol).ok()?,
            sides: [
                side(ip.source, ip.source_port)?,
                side(ip.destination, ip.destination_port)?,
            ],
            tcp_flags: ip.tcp_flags,
            bytes: ip.length.into(),
        })
    }

    /// Which side offers a service, by this packet alone.
    pub(crate) fn oriented(&self) -> (Oriented, Rule) {
        const TCP: u8 = 6;
        let (serves, rule) = match (self.protocol, self.tcp_flags & (SYN | ACK)) {
            (TCP, SYN) => (Some(true), Rule::Syn),
            // SYN+ACK is the answer.
            (TCP, flags) if flags == SYN | ACK => (Some(false), Rule::Syn),
            _ => match well_known_serves(self.sides) {
                Some(serves) => (Some(serves), Rule::WellKnown),
                None => (None, Rule::Unknown),
            },
        };
        (Oriented::new(self.protocol, self.sides, serves), rule)
    }
}

/// Whether the second side is the server: only if exactly one port is well-known.
pub(crate) fn well_known_serves(sides: [Side; 2]) -> Option<bool> {
    match sides.map(|side| (1..WELL_KNOWN).contains(&side.port)) {
        [false, true] => Some(true),
        [true, false] => Some(false),
        _ => None,
    }
}
