//! One captured packet, as the kernel hands it over.

/// Direction of a packet, and its addressee (PACKET_HOST…, linux/if_packet.h).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Received, for this machine.
    Host,
    /// Received, for all.
    Broadcast,
    /// Received, for a group.
    Multicast,
    /// Received, for another machine (promiscuous, bridge).
    OtherHost,
    /// Sent by this machine.
    Outgoing,
    /// Not known: libpcap does not report it.
    Unknown,
}

impl Direction {
    /// From `sll_pkttype`.
    pub(crate) fn from_packet_type(packet_type: u8) -> Self {
        match packet_type {
            libc::PACKET_HOST => Self::Host,
            libc::PACKET_BROADCAST => Self::Broadcast,
            libc::PACKET_MULTICAST => Self::Multicast,
            libc::PACKET_OTHERHOST => Self::OtherHost,
            libc::PACKET_OUTGOING => Self::Outgoing,
            _ => Self::Unknown,
        }
    }

    /// Whether the packet left this machine at this interface.
    pub fn is_outgoing(self) -> bool {
        self == Self::Outgoing
    }
}

/// A VLAN tag that the network card or the kernel took out of the packet; it was the outermost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vlan {
    /// Tag control information: priority (3 bits), DEI (1), VLAN id (12).
    pub tci: u16,
    /// EtherType of the tag: 0x8100 or 0x88a8.
    pub tpid: u16,
}

/// What a super-packet will be, or has been, cut into (VIRTIO_NET_HDR_GSO_…,
/// linux/virtio_net.h).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GsoKind {
    /// TCP segments in IPv4.
    Tcp4,
    /// TCP segments in IPv6.
    Tcp6,
    /// IP fragments of one UDP datagram; Linux itself stopped making them in 4.14.
    UdpFragments,
    /// UDP datagrams.
    UdpDatagrams,
}

/// How a super-packet is cut (`struct virtio_net_hdr`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gso {
    /// What it is cut into.
    pub kind: GsoKind,
    /// Bytes of transport payload in each packet on the wire but the last.
    pub size: u16,
    /// Where the (innermost) transport header starts in the packet's data.
    pub transport: Option<u16>,
}

/// What a super-packet is on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segments {
    /// Packets on the wire, at least 1.
    pub count: u32,
    /// Bytes from the start of the link layer to the innermost transport payload; they are
    /// repeated in each packet on the wire.
    pub headers: u32,
}

const TCP_HEADER: usize = 20;
const UDP_HEADER: u32 = 8;

/// A captured packet. Its bytes lie in the capture's buffer.
#[derive(Debug, Clone, Copy)]
pub struct Packet<'a> {
    /// The packet from the link layer on (from the network layer on interfaces without link
    /// header), at most as much as [`crate::Options::snaplen`] says.
    pub data: &'a [u8],
    /// Length of the whole packet in bytes: of `data` before it was cut. A tag in `vlan` is not
    /// in it; a super-packet is one packet here.
    pub length: u32,
    /// Time of capture: nanoseconds since 1970 (CLOCK_REALTIME). Packets that came on different CPUs
    /// may be handed over some microseconds out of order.
    pub timestamp_ns: u64,
    /// VLAN tag that is not in `data`.
    pub vlan: Option<Vlan>,
    /// Direction of the packet.
    pub direction: Direction,
    /// Index of the interface; 0 with libpcap.
    pub ifindex: u32,
    /// For a super-packet: how it is cut. Always `None` with libpcap.
    pub gso: Option<Gso>,
}

impl Packet<'_> {
    /// What a super-packet is on the wire. `None` for an ordinary packet, and for a super-packet
    /// that the kernel says too little about.
    pub fn segments(&self) -> Option<Segments> {
        let gso = self.gso.filter(|gso| gso.size > 0)?;
        let transport = gso.transport?;
        let header = match gso.kind {
            GsoKind::Tcp4 | GsoKind::Tcp6 => {
                let tcp = self.data.get(usize::from(transport)..)?.get(..TCP_HEADER)?;
                let length = u32::from(tcp[12] >> 4) * 4;
                (length as usize >= TCP_HEADER).then_some(length)?
            }
            GsoKind::UdpDatagrams => UDP_HEADER,
            GsoKind::UdpFragments => return None,
        };
        let headers = u32::from(transport) + header;
        let payload = self.length.checked_sub(headers)?;
        Some(Segments {
            count: payload.div_ceil(u32::from(gso.size)).max(1),
            headers,
        })
    }

    /// Bytes on the wire: headers of a super-packet as often as they are sent, and a tag that is
    /// not in `data`; no frame check sequence.
    pub fn wire_bytes(&self) -> u64 {
        let tag = if self.vlan.is_some() { 4 } else { 0 };
        let length = u64::from(self.length) + tag;
        match self.segments() {
            None => length,
            Some(segments) => {
                length + u64::from(segments.count - 1) * (u64::from(segments.headers) + tag)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(data: &[u8], length: u32, gso: Option<Gso>) -> Packet<'_> {
        Packet {
            data,
            length,
            timestamp_ns: 0,
            vlan: None,
            direction: Direction::Host,
            ifindex: 1,
            gso,
        }
    }

    /// Ethernet, IPv4 and TCP with 32 bytes of header.
    fn tcp() -> [u8; 66] {
        let mut data = [0; 66];
        data[14 + 20 + 12] = 8 << 4;
        data
    }

    const TCP4: Gso = Gso {
        kind: GsoKind::Tcp4,
        size: 1448,
        transport: Some(34),
    };

    #[test]
    fn the_last_segment_may_be_short() {
        let data = tcp();
        for (payload, count) in [(1448, 1), (1449, 2), (2896, 2), (2897, 3), (65_160, 45)] {
            let packet = packet(&data, 66 + payload, Some(TCP4));
            assert_eq!(
                packet.segments(),
                Some(Segments { count, headers: 66 }),
                "{payload}"
            );
            assert_eq!(packet.wire_bytes(), u64::from(payload + count * 66));
        }
    }

    #[test]
    fn a_stripped_tag_is_on_every_segment() {
        let data = tcp();
        let mut packet = packet(&data, 66 + 2896, Some(TCP4));
        packet.vlan = Some(Vlan {
            tci: 5,
            tpid: 0x8100,
        });
        assert_eq!(packet.wire_bytes(), 2896 + 2 * 70);
        packet.gso = None;
        assert_eq!(packet.wire_bytes(), 66 + 2896 + 4);
    }

    #[test]
    fn udp_datagrams() {
        let gso = Gso {
            kind: GsoKind::UdpDatagrams,
            size: 1000,
            transport: Some(34),
        };
        let packet = packet(&[0; 64], 42 + 2500, Some(gso));
        assert_eq!(
            packet.segments(),
            Some(Segments {
                count: 3,
                headers: 42
            })
        );
    }

    #[test]
    fn too_little_is_not_guessed() {
        let data = tcp();
        let without = |gso| packet(&data, 5000, Some(gso)).segments();
        assert_eq!(without(Gso { size: 0, ..TCP4 }), None);
        assert_eq!(
            without(Gso {
                transport: None,
                ..TCP4
            }),
            None
        );
        assert_eq!(
            without(Gso {
                transport: Some(60),
                ..TCP4
            }),
            None
        );
        assert_eq!(
            without(Gso {
                transport: Some(u16::MAX),
                ..TCP4
            }),
            None
        );
        assert_eq!(
            without(Gso {
                kind: GsoKind::UdpFragments,
                ..TCP4
            }),
            None
        );
        // A TCP header shorter than 20 bytes, and a length below the headers.
        assert_eq!(packet(&[0; 66], 5000, Some(TCP4)).segments(), None);
        assert_eq!(packet(&data, 40, Some(TCP4)).segments(), None);
    }
}
