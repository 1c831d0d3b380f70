//! One packet: from its template to its bytes.

use crate::{InjectError, checksum::Sum};
use std::{
    fmt,
    net::{IpAddr, Ipv6Addr},
    str::FromStr,
};

/// A link-layer address.
pub type Mac = [u8; 6];

/// Longest payload in bytes: with all headers below the 65,535 of IPv4.
pub const MAX_PAYLOAD: usize = 65_000;

/// Flags of TCP (RFC 9293 section 3.1).
pub mod flags {
    /// No more data.
    pub const FIN: u8 = 1;
    /// Opens a connection.
    pub const SYN: u8 = 2;
    /// Resets it.
    pub const RST: u8 = 4;
    /// The receiver delivers the data at once.
    pub const PSH: u8 = 8;
    /// The acknowledgement number means something.
    pub const ACK: u8 = 16;
    /// The urgent pointer means something.
    pub const URG: u8 = 32;

    /// Letters as tcpdump shows them: `S`, `SA`, `FPU`; `.` is ACK too.
    pub fn parse(text: &str) -> Result<u8, String> {
        text.chars().try_fold(0, |flags, letter| {
            Ok(flags
                | match letter.to_ascii_uppercase() {
                    'F' => FIN,
                    'S' => SYN,
                    'R' => RST,
                    'P' => PSH,
                    'A' | '.' => ACK,
                    'U' => URG,
                    _ => {
                        return Err(format!(
                            "there is no TCP flag {letter:?}: the flags are F, S, R, P, A and U"
                        ));
                    }
                })
        })
    }
}

/// Kinds of packets, named as Skydive does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// ICMP echo request over IPv4.
    Icmp4,
    /// ICMPv6 echo request.
    Icmp6,
    /// TCP over IPv4.
    Tcp4,
    /// TCP over IPv6.
    Tcp6,
    /// UDP over IPv4.
    Udp4,
    /// UDP over IPv6.
    Udp6,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Icmp4,
        Self::Icmp6,
        Self::Tcp4,
        Self::Tcp6,
        Self::Udp4,
        Self::Udp6,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Icmp4 => "icmp4",
            Self::Icmp6 => "icmp6",
            Self::Tcp4 => "tcp4",
            Self::Tcp6 => "tcp6",
            Self::Udp4 => "udp4",
            Self::Udp6 => "udp6",
        }
    }

    /// Whether the packet is IPv6.
    pub fn is_ipv6(self) -> bool {
        matches!(self, Self::Icmp6 | Self::Tcp6 | Self::Udp6)
    }

    /// Whether it has ports, and not an identifier.
    pub fn has_ports(self) -> bool {
        !matches!(self, Self::Icmp4 | Self::Icmp6)
    }

    /// IP protocol.
    fn protocol(self) -> u8 {
        match self {
            Self::Icmp4 => 1,
            Self::Icmp6 => 58,
            Self::Tcp4 | Self::Tcp6 => 6,
            Self::Udp4 | Self::Udp6 => 17,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|kind| kind.name() == text);
        found.ok_or_else(|| {
            format!("\"{text}\" is not a type: icmp4, icmp6, tcp4, tcp6, udp4 or udp6")
        })
    }
}

/// Source and destination addresses of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Addresses {
    /// Source and destination of the link layer; none on interfaces without it.
    pub macs: Option<(Mac, Mac)>,
    /// Source.
    pub from: IpAddr,
    /// Destination.
    pub to: IpAddr,
}

/// All of a packet except its payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Template {
    /// What it is.
    pub kind: Kind,
    /// Source and destination addresses.
    pub addresses: Addresses,
    /// Source port.
    pub source_port: u16,
    /// Destination port.
    pub destination_port: u16,
    /// Identifier of ICMP.
    pub icmp_id: u16,
    /// Sequence number of ICMP, or of TCP.
    pub sequence: u32,
    /// [`flags`] of TCP.
    pub flags: u8,
    /// Time to live; IPv6: hop limit.
    pub ttl: u8,
}

/// An address as one of IPv6.
pub(crate) fn mapped(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;
/// Header lengths without options.
const IPV4_HEADER: usize = 20;
const TCP_HEADER: usize = 20;
const UDP_HEADER: usize = 8;
const ICMP_HEADER: usize = 8;
/// TCP's window: what a host offers that has no window scaling.
const WINDOW: u16 = 65_535;

impl Template {
    /// Whether it fits together.
    pub fn check(&self, payload: usize) -> Result<(), InjectError> {
        let (from, to) = (self.addresses.from, self.addresses.to);
        let wanted = if self.kind.is_ipv6() { "IPv6" } else { "IPv4" };
        for address in [from, to] {
            if address.is_ipv6() != self.kind.is_ipv6() {
                return Err(InjectError::Packet(format!(
                    "{} needs {wanted} addresses, and {address} is none",
                    self.kind
                )));
            }
        }
        if payload > MAX_PAYLOAD {
            return Err(InjectError::Packet(format!(
                "a payload of {payload} bytes: at most {MAX_PAYLOAD}"
            )));
        }
        Ok(())
    }

    /// Writes the frame into `frame` and replaces its content.
    pub fn write(&self, payload: &[u8], frame: &mut Vec<u8>) {
        frame.clear();
        let Addresses { macs, from, to } = self.addresses;
        let ipv6 = self.kind.is_ipv6();
        if let Some((source, destination)) = macs {
            frame.extend(destination);
            frame.extend(source);
            let ethertype = if ipv6 { ETHERTYPE_IPV6 } else { ETHERTYPE_IPV4 };
            frame.extend(ethertype.to_be_bytes());
        }
        let header = match self.kind {
            Kind::Icmp4 | Kind::Icmp6 => ICMP_HEADER,
            Kind::Tcp4 | Kind::Tcp6 => TCP_HEADER,
            Kind::Udp4 | Kind::Udp6 => UDP_HEADER,
        };
        let length = header + payload.len().min(MAX_PAYLOAD);
        match (from, to) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                let start = frame.len();
                frame.extend([0x45, 0]);
                frame.extend(((IPV4_HEADER + length) as u16).to_be_bytes());
                // Identification 0: the packet must not be fragmented (RFC 6864).
                frame.extend([0, 0, 0x40, 0, self.ttl, self.kind.protocol(), 0, 0]);
                frame.extend(from.octets());
                frame.extend(to.octets());
                let sum = Sum::default().bytes(&frame[start..]).finish();
                frame[start + 10..start + 12].copy_from_slice(&sum.to_be_bytes());
            }
            (from, to) => {
                frame.extend([0x60, 0, 0, 0]);
                frame.extend((length as u16).to_be_bytes());
                frame.extend([self.kind.protocol(), self.ttl]);
                frame.extend(mapped(from).octets());
                frame.extend(mapped(to).octets());
            }
        }
        let start = frame.len();
        self.write_transport(length as u16, frame);
        frame.extend(&payload[..payload.len().min(MAX_PAYLOAD)]);
        let sum = match self.kind {
            Kind::Icmp4 => Sum::default(),
            _ => Sum::default().pseudo(from, to, self.kind.protocol(), length),
        };
        let sum = match (sum.bytes(&frame[start..]).finish(), self.kind) {
            // In UDP, 0 means that there is no checksum (RFC 768).
            (0, Kind::Udp4 | Kind::Udp6) => 0xffff,
            (sum, _) => sum,
        };
        let place = start
            + match self.kind {
                Kind::Icmp4 | Kind::Icmp6 => 2,
                Kind::Tcp4 | Kind::Tcp6 => 16,
                Kind::Udp4 | Kind::Udp6 => 6,
            };
        frame[place..place + 2].copy_from_slice(&sum.to_be_bytes());
    }

    /// The transport header without its checksum.
    fn write_transport(&self, length: u16, frame: &mut Vec<u8>) {
        match self.kind {
            Kind::Icmp4 | Kind::Icmp6 => {
                let echo = if self.kind == Kind::Icmp4 { 8 } else { 128 };
                frame.extend([echo, 0, 0, 0]);
                frame.extend(self.icmp_id.to_be_bytes());
                frame.extend((self.sequence as u16).to_be_bytes());
            }
            Kind::Tcp4 | Kind::Tcp6 => {
                frame.extend(self.source_port.to_be_bytes());
                frame.extend(self.destination_port.to_be_bytes());
                frame.extend(self.sequence.to_be_bytes());
                frame.extend([0; 4]);
                frame.extend([(TCP_HEADER / 4 * 16) as u8, self.flags]);
                frame.extend(WINDOW.to_be_bytes());
                frame.extend([0; 4]);
            }
            Kind::Udp4 | Kind::Udp6 => {
                frame.extend(self.source_port.to_be_bytes());
                frame.extend(self.destination_port.to_be_bytes());
                frame.extend(length.to_be_bytes());
                frame.extend([0; 2]);
            }
        }
    }
}
