//! Samples that describe a packet's headers instead of carrying them: the headers are rebuilt, so that such
//! samples are counted like others.

use std::net::IpAddr;

use skua_packet::{Frame, LinkType};
use skua_wire::sflow::{EthernetFrame, IpPacket};

const ETHERNET_LEN: usize = 14;
/// Ethernet, IPv6, TCP.
const MOST: usize = ETHERNET_LEN + 40 + 20;
const TCP: u8 = 6;

/// The described headers of a packet.
#[derive(Clone, Copy, Default)]
pub(super) struct Headers {
    pub(super) ethernet: Option<EthernetFrame>,
    pub(super) ip: Option<IpPacket>,
}

/// Room for the headers.
#[derive(Default)]
pub(super) struct Buffer {
    bytes: [[u8; 32]; MOST.div_ceil(32)],
    length: usize,
}

impl Buffer {
    fn put(&mut self, bytes: &[u8]) {
        let buffer = self.bytes.as_flattened_mut();
        let end = self.length + bytes.len();
        if let Some(place) = buffer.get_mut(self.length..end) {
            place.copy_from_slice(bytes);
            self.length = end;
        }
    }

    fn put16(&mut self, value: usize) {
        self.put(&u16::try_from(value).unwrap_or(u16::MAX).to_be_bytes());
    }

    fn bytes(&self) -> &[u8] {
        self.bytes
            .as_flattened()
            .get(..self.length)
            .unwrap_or_default()
    }
}

impl Headers {
    /// A packet with the known headers; none when none is known.
    pub(super) fn frame<'a>(&self, buffer: &'a mut Buffer) -> Option<Frame<'a>> {
        let (link, wire_len) = match (&self.ethernet, &self.ip) {
            (Some(ethernet), _) => (LinkType::Ethernet, ethernet.length),
            (None, Some(ip)) => (LinkType::RawIp, ip.length),
            (None, None) => return None,
        };
        if let Some(ethernet) = &self.ethernet {
            buffer.put(&ethernet.destination);
            buffer.put(&ethernet.source);
            buffer.put16(ethernet.kind as usize);
        }
        if let Some(ip) = &self.ip {
            put_ip(buffer, ip);
        }
        Some(Frame {
            data: buffer.bytes(),
            wire_len,
            link,
            stripped_vlan: None,
            segments: 1,
        })
    }
}

/// The length in the IP header covers no payload: nothing is known of sequence numbers, so that no
/// segment may be taken for one that came again.
fn put_ip(buffer: &mut Buffer, ip: &IpPacket) {
    let protocol = ip.protocol as u8;
    let transport = if protocol == TCP { 20 } else { 8 };
    match (ip.source, ip.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            buffer.put(&[0x45, ip.tos as u8]);
            buffer.put16(20 + transport);
            buffer.put(&[0, 0, 0, 0, 64, protocol, 0, 0]);
            buffer.put(&source.octets());
            buffer.put(&destination.octets());
        }
        (source, destination) => {
            buffer.put(&[0x60, 0, 0, 0]);
            buffer.put16(transport);
            buffer.put(&[protocol, 64]);
            for address in [source, destination] {
                match address {
                    IpAddr::V4(v4) => buffer.put(&v4.to_ipv6_mapped().octets()),
                    IpAddr::V6(v6) => buffer.put(&v6.octets()),
                }
            }
        }
    }
    match protocol {
        // What agents have in place of ports is type and code.
        1 | 58 => buffer.put(&[ip.source_port as u8, ip.destination_port as u8, 0, 0]),
        _ => {
            buffer.put16(ip.source_port as usize);
            buffer.put16(ip.destination_port as usize);
        }
    }
    if protocol == TCP {
        buffer.put(&[0, 0, 0, 0, 0, 0, 0, 0, 5 << 4, ip.tcp_flags as u8, 0, 1]);
        buffer.put(&[0; 4]);
    } else {
        buffer.put(&[0; 4]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skua_packet::{Icmp, Network, Options, Transport, decode};

    fn ip(protocol: u32, source: &str, destination: &str) -> IpPacket {
        IpPacket {
            length: 1_400,
            protocol,
            source: source.parse().unwrap(),
            destination: destination.parse().unwrap(),
            source_port: 8,
            destination_port: 443,
            tcp_flags: 0x18,
            tos: 0,
        }
    }

    #[test]
    fn headers_are_decoded_as_if_they_were_there() {
        let ethernet = EthernetFrame {
            length: 1_414,
            source: [2, 0, 0, 0, 0, 1],
            destination: [2, 0, 0, 0, 0, 2],
            kind: 0x86dd,
        };
        for (ethernet, ip, network) in [
            (None, ip(6, "10.0.0.1", "10.0.0.2"), Network::V4),
            (Some(ethernet), ip(6, "fd00::1", "fd00::2"), Network::V6),
        ] {
            let mut buffer = Buffer::default();
            let headers = Headers {
                ethernet,
                ip: Some(ip),
            };
            let frame = headers.frame(&mut buffer).unwrap();
            let decoded = decode(&frame, Options::default()).unwrap().outer;
            assert_eq!(decoded.network, network);
            assert!(!decoded.malformed);
            let Transport::Tcp(segment) = decoded.transport else {
                panic!("{decoded:?}");
            };
            assert_eq!((segment.src_port, segment.dst_port), (8, 443));
            assert_eq!((segment.flags, segment.payload_len), (0x18, 0));
            assert_eq!(
                frame.wire_len,
                if ethernet.is_some() { 1_414 } else { 1_400 }
            );
        }
    }

    #[test]
    fn other_protocols() {
        let mut buffer = Buffer::default();
        let headers = |ip| Headers {
            ethernet: None,
            ip: Some(ip),
        };
        let udp = headers(ip(17, "10.0.0.1", "10.0.0.2"));
        let decoded = decode(&udp.frame(&mut buffer).unwrap(), Options::default()).unwrap();
        let ports = Transport::Ports { src: 8, dst: 443 };
        assert_eq!(
            (decoded.outer.transport, decoded.malformed()),
            (ports, false)
        );
        let mut buffer = Buffer::default();
        let mut echo = ip(1, "10.0.0.1", "10.0.0.2");
        echo.destination_port = 0;
        let echo = headers(echo);
        let decoded = decode(&echo.frame(&mut buffer).unwrap(), Options::default()).unwrap();
        let icmp = Icmp {
            kind: 8,
            code: 0,
            id: 0,
        };
        assert_eq!(decoded.outer.transport, Transport::Icmp(icmp));
        assert!(Headers::default().frame(&mut Buffer::default()).is_none());
    }
}
