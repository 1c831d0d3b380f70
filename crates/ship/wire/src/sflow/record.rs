//! Records of flow samples.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{
    Conversation, ConversationTcp, ETHERNET_FRAME, EXTENDED_ROUTER, EXTENDED_SWITCH, IPV4, IPV6,
    Names, RAW_HEADER, SOCKET_IPV4, SOCKET_IPV6, Socket, SocketTcp, TCP_INFO, TIMESTAMP, TcpInfo,
    datagram::address, own, sample::Framed, xdr::structure,
};
use crate::{DecodeError, reader::Reader};

/// Protocols of raw headers ([`RawHeader::protocol`]).
pub mod header_protocol {
    /// An Ethernet header.
    pub const ETHERNET: u32 = 1;
    /// An IPv4 header.
    pub const IPV4: u32 = 11;
    /// An IPv6 header.
    pub const IPV6: u32 = 12;
}

/// The first bytes of a sampled packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RawHeader<'a> {
    /// Protocol of the first header, see [`header_protocol`].
    pub protocol: u32,
    /// Bytes of the complete packet on the wire; of Ethernet with frame check sequence.
    pub frame_length: u32,
    /// Bytes removed before `header` was copied, such as the frame check sequence.
    pub stripped: u32,
    /// The bytes.
    pub header: &'a [u8],
}

impl RawHeader<'_> {
    /// Bytes of the packet without frame check sequence.
    pub fn wire_len(&self) -> u32 {
        const FCS: u32 = 4;
        match self.protocol {
            // Agents that leave it out of the length cannot have sent more than the packet.
            header_protocol::ETHERNET => {
                let there = u32::try_from(self.header.len()).unwrap_or(u32::MAX);
                let there = match self.stripped {
                    0 => there.saturating_sub(FCS),
                    _ => there,
                };
                self.frame_length
                    .saturating_sub(FCS)
                    .max(there.min(self.frame_length))
            }
            _ => self.frame_length,
        }
    }
}

/// The Ethernet header of a sampled packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EthernetFrame {
    /// Bytes of the packet without lower-layer encapsulations.
    pub length: u32,
    /// Source MAC address.
    pub source: [u8; 6],
    /// Destination MAC address.
    pub destination: [u8; 6],
    /// EtherType.
    pub kind: u32,
}

/// The IP header of a sampled packet, of a packet without lower layers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IpPacket {
    /// Bytes of the IP packet.
    pub length: u32,
    /// IP protocol.
    pub protocol: u32,
    /// Source address, of the same family as the destination.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// Source port, 0 without.
    pub source_port: u32,
    /// Destination port, 0 without.
    pub destination_port: u32,
    /// TCP flags.
    pub tcp_flags: u32,
    /// Type of service, or IPv6 priority.
    pub tos: u32,
}

structure! {
    /// A switch's data of a packet.
    ExtendedSwitch, "extended switch data";
    {
        /// Ingress VLAN, 0 for none.
        source_vlan: u32,
        /// Ingress priority, IEEE 802.1p.
        source_priority: u32,
        /// Egress VLAN.
        destination_vlan: u32,
        /// Egress priority.
        destination_priority: u32,
    }
}

/// A router's data of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExtendedRouter {
    /// The next router.
    pub next_hop: IpAddr,
    /// Bits of the source's prefix.
    pub source_mask: u32,
    /// Bits of the destination's prefix.
    pub destination_mask: u32,
}

/// A record of a flow sample.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Record<'a> {
    /// The packet's first bytes.
    RawHeader(RawHeader<'a>),
    /// Its Ethernet header.
    Ethernet(EthernetFrame),
    /// Its IPv4 or IPv6 header.
    Ip(IpPacket),
    /// Of a switch.
    Switch(ExtendedSwitch),
    /// Of a router.
    Router(ExtendedRouter),
    /// When it was observed, ns since the Unix epoch.
    Timestamp(u64),
    /// The socket that it belongs to.
    Socket(Socket),
    /// TCP's state of the connection.
    TcpInfo(TcpInfo),
    /// Of Skua: the conversation.
    Conversation(Conversation),
    /// Of Skua: the conversation's TCP headers.
    ConversationTcp(ConversationTcp),
    /// Of Skua: the sample's packets are in the conversation of the sample before, too; it is for collectors that
    /// do not know [`Conversation`](Self::Conversation).
    Reverse,
    /// Of Skua: owners of both sides.
    Names(Names<'a>),
    /// Of Skua: measurements of one side's socket.
    SocketTcp(SocketTcp),
    /// An unsupported record.
    Other {
        /// Its tag, see [`tag`](super::tag).
        tag: u32,
        /// Its bytes, without padding.
        body: &'a [u8],
    },
}

/// Iterates over the records of a flow sample.
#[derive(Clone, Copy, Debug)]
pub struct Records<'a>(pub(super) Framed<'a>);

#[inline]
pub(super) fn decode(tag: u32, mut body: Reader<'_>) -> Result<Record<'_>, DecodeError> {
    Ok(match tag {
        RAW_HEADER => {
            const WHAT: &str = "a raw packet header";
            Record::RawHeader(RawHeader {
                protocol: body.u32(WHAT)?,
                frame_length: body.u32(WHAT)?,
                stripped: body.u32(WHAT)?,
                header: body.opaque(WHAT)?.rest(),
            })
        }
        ETHERNET_FRAME => {
            const WHAT: &str = "Ethernet frame data";
            let length = body.u32(WHAT)?;
            let mut mac = || body.array::<8>(WHAT);
            let (source, destination) = (mac()?, mac()?);
            let [s0, s1, s2, s3, s4, s5, ..] = *source;
            let [d0, d1, d2, d3, d4, d5, ..] = *destination;
            Record::Ethernet(EthernetFrame {
                length,
                source: [s0, s1, s2, s3, s4, s5],
                destination: [d0, d1, d2, d3, d4, d5],
                kind: body.u32(WHAT)?,
            })
        }
        IPV4 | IPV6 => Record::Ip(ip(&mut body, tag == IPV6)?),
        EXTENDED_SWITCH => Record::Switch(ExtendedSwitch::decode(&mut body)?),
        EXTENDED_ROUTER => {
            const WHAT: &str = "extended router data";
            Record::Router(ExtendedRouter {
                next_hop: address(&mut body, WHAT)?,
                source_mask: body.u32(WHAT)?,
                destination_mask: body.u32(WHAT)?,
            })
        }
        TIMESTAMP => Record::Timestamp(body.u64("a timestamp")?),
        SOCKET_IPV4 | SOCKET_IPV6 => Record::Socket(Socket::decode(&mut body, tag == SOCKET_IPV6)?),
        TCP_INFO => Record::TcpInfo(TcpInfo::decode(&mut body)?),
        own::FLOW => Record::Conversation(Conversation::decode(&mut body)?),
        own::FLOW_NAMES => Record::Names(Names::decode(&mut body)?),
        own::FLOW_SOCKET => Record::SocketTcp(SocketTcp::decode(&mut body)?),
        own::FLOW_TCP => Record::ConversationTcp(ConversationTcp::decode(&mut body)?),
        own::FLOW_REVERSE => {
            own::version(&mut body, "a reverse direction").map(|_| Record::Reverse)?
        }
        tag => Record::Other {
            tag,
            body: body.rest(),
        },
    })
}

fn ip(body: &mut Reader<'_>, v6: bool) -> Result<IpPacket, DecodeError> {
    const WHAT: &str = "IP packet data";
    let (length, protocol) = (body.u32(WHAT)?, body.u32(WHAT)?);
    let mut address = || -> Result<IpAddr, DecodeError> {
        Ok(match v6 {
            false => Ipv4Addr::from(*body.array::<4>(WHAT)?).into(),
            true => Ipv6Addr::from(*body.array::<16>(WHAT)?).into(),
        })
    };
    let (source, destination) = (address()?, address()?);
    Ok(IpPacket {
        length,
        protocol,
        source,
        destination,
        source_port: body.u32(WHAT)?,
        destination_port: body.u32(WHAT)?,
        tcp_flags: body.u32(WHAT)?,
        tos: body.u32(WHAT)?,
    })
}
