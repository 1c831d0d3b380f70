//! What decoding yields.

/// The most levels that are decoded: a packet, what it carries, and what that carries.
pub const MAX_LEVELS: usize = 3;

/// The frame is too short for its link header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the frame is too short for its link header")]
pub struct Truncated;

/// Network layer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Network {
    /// No IP: endpoints are MAC addresses, or nothing without an Ethernet header.
    #[default]
    None,
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// What a packet was found inside.
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
    /// MPLS, RFC 3032, also in UDP, RFC 7510.
    Mpls,
    /// ERSPAN types I, II and III: a mirrored packet in GRE (draft-foschiano-erspan-03).
    Erspan,
}

/// Place of a packet in a fragmented datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Fragment {
    /// A whole packet (also an IPv6 atomic fragment).
    #[default]
    Whole,
    /// Offset 0, more to come: has the transport header.
    First,
    /// Offset not 0: has no transport header.
    Later,
}

/// The decoded fields of a TCP header (RFC 9293).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TcpSegment {
    /// Source port.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgement number.
    pub ack: u32,
    /// Flags, FIN in bit 0 to CWR in bit 7.
    pub flags: u8,
    /// Window as in the header, not scaled.
    pub window: u16,
    /// Payload in bytes, by the IP length (`docs/accounting.md` section 2).
    pub payload_len: u32,
    /// TTL or hop limit of the IP header before it.
    pub hop_limit: u8,
}

/// The decoded fields of an ICMP or ICMPv6 header (RFC 792, RFC 4443).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Icmp {
    /// Message type.
    pub kind: u8,
    /// Code.
    pub code: u8,
    /// Identifier of queries that have one, else 0.
    pub id: u16,
}

/// The transport header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Transport {
    /// None that is read: other protocol, later fragment, malformed, no IP.
    #[default]
    None,
    /// UDP, UDP-Lite, SCTP, DCCP.
    Ports {
        /// Source port.
        src: u16,
        /// Destination port.
        dst: u16,
    },
    /// TCP.
    Tcp(TcpSegment),
    /// ICMP in IPv4, ICMPv6 in IPv6.
    Icmp(Icmp),
}

/// One packet: the frame itself, or one found inside a tunnel.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Level {
    /// Source address: IPv4 as `::ffff:a.b.c.d`; zero without IP.
    pub src: [u8; 16],
    /// Destination address.
    pub dst: [u8; 16],
    /// Destination MAC address, zero without an Ethernet header.
    pub mac_dst: [u8; 6],
    /// Source MAC address.
    pub mac_src: [u8; 6],
    /// Outer and inner VLAN: 0 none, else [`VLAN_PRESENT`](crate::VLAN_PRESENT)` | VID`.
    pub vlan: [u16; 2],
    /// Third and fourth VLAN, likewise.
    pub more_vlans: [u16; 2],
    /// EtherType after the VLAN tags, 0 for an 802.3 length or when unknown.
    pub ethertype: u16,
    /// Network layer.
    pub network: Network,
    /// IP protocol after the extension headers, 0 without IP.
    pub proto: u8,
    /// TTL of IPv4, hop limit of IPv6; 0 without IP.
    pub hop_limit: u8,
    /// Whether the packet starts with an Ethernet header.
    pub ethernet: bool,
    /// A header was cut off or impossible.
    pub malformed: bool,
    /// Place in a fragmented datagram.
    pub fragment: Fragment,
    /// Identification of the fragmented datagram, 0 for whole packets.
    pub fragment_id: u32,
    /// Transport header.
    pub transport: Transport,
    /// What this was found inside, none for the frame itself.
    pub tunnel: Option<Tunnel>,
    /// VNI, GRE key, session of ERSPAN or bottom MPLS label; 0 without.
    pub tunnel_id: u32,
    /// Bottom label of the MPLS labels before this, also in GRE.
    pub label: Option<u32>,
    /// Offset in the frame where this packet starts.
    pub start: u32,
    /// Offset in the frame of the payload after this packet's last known header. It may exceed the captured
    /// bytes when TCP options are cut off.
    pub payload: u32,
}

impl Level {
    /// Whether this is a request of ICMP echo; none when it is no echo.
    #[inline]
    pub fn echo_request(&self) -> Option<bool> {
        let Transport::Icmp(icmp) = self.transport else {
            return None;
        };
        match (self.network, icmp.kind) {
            (Network::V4, 8) | (Network::V6, 128) => Some(true),
            (Network::V4, 0) | (Network::V6, 129) => Some(false),
            _ => None,
        }
    }
}

/// A decoded frame with what it carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Decoded {
    /// The frame itself.
    pub outer: Level,
    /// What it carries, when tunnels are decoded.
    pub child: Option<Level>,
    /// What the child carries.
    pub grandchild: Option<Level>,
}

impl Decoded {
    /// The levels, outermost first.
    pub fn levels(&self) -> impl Iterator<Item = &Level> {
        std::iter::once(&self.outer)
            .chain(&self.child)
            .chain(&self.grandchild)
    }

    /// The innermost level.
    #[inline]
    pub fn innermost(&self) -> &Level {
        self.grandchild
            .as_ref()
            .or(self.child.as_ref())
            .unwrap_or(&self.outer)
    }

    /// Bytes of all headers up to the innermost payload: what each segment of a super-packet repeats.
    #[inline]
    pub fn header_len(&self) -> u32 {
        self.innermost().payload
    }

    /// Whether a header of any level was cut off or impossible.
    #[inline]
    pub fn malformed(&self) -> bool {
        let inner = |level: &Option<Level>| level.as_ref().is_some_and(|level| level.malformed);
        self.outer.malformed || inner(&self.child) || inner(&self.grandchild)
    }
}
