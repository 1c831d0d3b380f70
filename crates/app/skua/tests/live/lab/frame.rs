//! Conversations and their frames.

use std::net::Ipv4Addr;

use skua_testkit::{Packet, flag};

/// Stations that the frames go between; the second is nobody, so that the receiving host looks no
/// further and answers nothing.
const SENDER: u8 = 1;
const NOBODY: u8 = 0x99;

/// Protocols with a loss counter each.
pub const CLASSES: [(u8, &str); 4] = [(17, "udp"), (6, "tcp"), (1, "icmp"), (47, "other")];

/// A conversation over IPv4.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flow {
    /// IP protocol.
    pub protocol: u8,
    pub from: Ipv4Addr,
    pub to: Ipv4Addr,
    /// Ports; identifier and sequence number of ICMP.
    pub ports: (u16, u16),
}

impl Flow {
    /// One of 2^24 UDP conversations.
    pub fn numbered(number: u32) -> Self {
        let [_, a, b, c] = number.to_be_bytes();
        Self {
            protocol: 17,
            from: Ipv4Addr::new(10, a, b, c),
            to: Ipv4Addr::new(172, 16, 0, 1),
            ports: (5000, 6000),
        }
    }

    pub fn with_protocol(self, protocol: u8) -> Self {
        Self { protocol, ..self }
    }

    /// The way back.
    pub fn reversed(self) -> Self {
        Self {
            protocol: self.protocol,
            from: self.to,
            to: self.from,
            ports: (self.ports.1, self.ports.0),
        }
    }

    /// A frame of `size` bytes that the datagram fills.
    pub fn frame(self, size: usize) -> Vec<u8> {
        self.tagged(&[], size)
    }

    /// A frame of 60 bytes with the shortest datagram and padding behind it.
    pub fn padded(self) -> Vec<u8> {
        let packet = Packet::new().ethernet(SENDER, NOBODY);
        self.over(packet).build_padded()
    }

    /// A frame of `size` bytes with VLAN tags (TPID, VID), outermost first.
    pub fn tagged(self, tags: &[(u16, u16)], size: usize) -> Vec<u8> {
        let mut packet = Packet::new().ethernet(SENDER, NOBODY);
        for (tpid, vid) in tags {
            packet = packet.tag(*tpid, *vid);
        }
        fill(self.over(packet), size)
    }

    /// An IP packet of `size` bytes.
    pub fn packet(self, size: usize) -> Vec<u8> {
        fill(self.over(Packet::new()), size)
    }

    fn over(self, packet: Packet) -> Packet {
        let packet = packet.ipv4(&self.from.to_string(), &self.to.to_string());
        let (source, destination) = self.ports;
        match self.protocol {
            6 => packet.tcp(source, destination, flag::ACK),
            17 => packet.udp(source, destination),
            1 => packet.icmp(8, 0, source, destination),
            47 => packet.gre(),
            other => panic!("no frames of protocol {other}"),
        }
    }
}

fn fill(packet: Packet, size: usize) -> Vec<u8> {
    let short = size - packet.build().len();
    packet.zeros(short).build()
}

/// Frames of many conversations, quicker made than each on its own: those of
/// [`Flow::numbered`] without right IP checksum, which nobody on the way looks at.
pub struct Crowd(Vec<u8>);

impl Crowd {
    pub fn new(size: usize) -> Self {
        Self(Flow::numbered(0).frame(size))
    }

    pub fn frame(&self, number: u32) -> Vec<u8> {
        let mut frame = self.0.clone();
        // Source address: 14 bytes Ethernet, 12 into IP.
        frame[26..30].copy_from_slice(&Flow::numbered(number).from.octets());
        frame
    }
}
