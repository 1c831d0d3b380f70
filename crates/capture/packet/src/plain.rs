//! The fast path through the headers of most packets.

use crate::{
    Frame, LinkType, Network, Options, TcpSegment,
    cursor::be16,
    link::{ETHERTYPE_IPV4, ETHERTYPE_IPV6},
    transport, tunnel,
};

const TCP: u8 = 6;
const UDP: u8 = 17;

/// Where the IP header begins, and where what follows it does.
const IP_AT: usize = 14;
const IPV4_END: usize = IP_AT + 20;
const IPV6_END: usize = IP_AT + 40;

/// What [`decode`](crate::decode) finds in a whole TCP or UDP packet that is one level, directly in
/// IP without options or extension headers, in Ethernet without tags, well-formed, and alone in its
/// frame. All in registers: the order of tests and loads is that of a packet, and nothing that such
/// a packet does not have is written down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Plain<'a> {
    /// IPv4 or IPv6.
    pub network: Network,
    /// TCP or UDP.
    pub proto: u8,
    /// Bytes of the source address, as two little-endian words; IPv4 as `::ffff:a.b.c.d`.
    pub src: [u64; 2],
    /// Bytes of the destination address.
    pub dst: [u64; 2],
    /// Source and destination port in network byte order, as one little-endian word.
    pub ports: u32,
    /// TTL or hop limit.
    hop_limit: u8,
    /// Header of TCP without its options, and length of the payload: decoded on demand.
    tcp: Option<(&'a [u8; 20], u32)>,
}

impl<'a> Plain<'a> {
    /// Reads the headers; none when the packet is of another kind, which says nothing about it.
    // By force, as below: what it finds is to stay in registers.
    #[inline(always)]
    pub fn read(frame: &Frame<'a>, options: Options) -> Option<Self> {
        if frame.link != LinkType::Ethernet
            || frame.stripped_vlan.is_some()
            || frame.is_super_packet()
        {
            return None;
        }
        // The shortest case, UDP over IPv4.
        let head: &[u8; IPV4_END + 8] = frame.data.first_chunk()?;
        match be16(head[12], head[13]) {
            ETHERTYPE_IPV4 => {
                // Version and header length; flag for more fragments and offset.
                if head[IP_AT] != 0x45 || be16(head[20], head[21]) & 0x3fff != 0 {
                    return None;
                }
                let total = be16(head[16], head[17]);
                let packet = Self {
                    network: Network::V4,
                    proto: head[23],
                    hop_limit: head[22],
                    src: mapped(head[26..].first_chunk()?),
                    dst: mapped(head[30..].first_chunk()?),
                    ports: u32::from_le_bytes(*head[34..].first_chunk()?),
                    tcp: None,
                };
                packet.transport::<IPV4_END>(frame, options, total, 20)
            }
            ETHERTYPE_IPV6 => {
                let head: &[u8; IPV6_END + 8] = frame.data.first_chunk()?;
                if head[IP_AT] >> 4 != 6 {
                    return None;
                }
                let packet = Self {
                    network: Network::V6,
                    proto: head[20],
                    hop_limit: head[21],
                    src: words(head[22..].first_chunk()?),
                    dst: words(head[38..].first_chunk()?),
                    ports: u32::from_le_bytes(*head[54..].first_chunk()?),
                    tcp: None,
                };
                packet.transport::<IPV6_END>(frame, options, be16(head[18], head[19]), 0)
            }
            _ => None,
        }
    }

    /// Source port.
    #[inline]
    pub fn src_port(&self) -> u16 {
        u16::from_be_bytes((self.ports as u16).to_le_bytes())
    }

    /// Destination port.
    #[inline]
    pub fn dst_port(&self) -> u16 {
        u16::from_be_bytes(((self.ports >> 16) as u16).to_le_bytes())
    }

    /// With TCP.
    #[inline]
    pub fn segment(&self) -> Option<TcpSegment> {
        let (header, payload_len) = self.tcp?;
        Some(transport::segment(header, payload_len, self.hop_limit))
    }

    // Not inlined: the CPU would load the port in any case.
    #[inline(never)]
    fn may_be_tunnel(&self) -> bool {
        tunnel::is_udp_tunnel(self.dst_port())
    }

    /// The rest, for a transport header at `AT`. `said` is the length that the IP header says, of
    /// which `own` bytes are its own; 0 says nothing.
    #[inline(always)]
    fn transport<const AT: usize>(
        mut self,
        frame: &Frame<'a>,
        options: Options,
        said: u16,
        own: u32,
    ) -> Option<Self> {
        match self.proto {
            UDP if options.tunnels && self.may_be_tunnel() => None,
            UDP => Some(self),
            TCP => {
                let header: &[u8; 20] = frame.data.get(AT..)?.first_chunk()?;
                let header_len = transport::tcp_header_len(header)?;
                let payload_len = match u32::from(said) {
                    0 => frame.wire_len.saturating_sub(AT as u32 + header_len),
                    said => said.saturating_sub(own).saturating_sub(header_len),
                };
                self.tcp = Some((header, payload_len));
                Some(self)
            }
            _ => None,
        }
    }
}

/// An IPv4 address as `::ffff:a.b.c.d`.
#[inline]
fn mapped(address: &[u8; 4]) -> [u64; 2] {
    [
        0,
        0xffff_0000 | u64::from(u32::from_le_bytes(*address)) << 32,
    ]
}

#[inline]
fn words(bytes: &[u8; 16]) -> [u64; 2] {
    let whole = u128::from_le_bytes(*bytes);
    [whole as u64, (whole >> 64) as u64]
}
