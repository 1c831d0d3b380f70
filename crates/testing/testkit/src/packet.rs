//! The packet builder: a stack of headers, outermost first.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::layer::{
    Ah, Dccp, Esp, Ethernet, Extension, Geneve, Gre, Icmp, Ipv4, Ipv6, Layer, Mpls, Sctp, Tcp, Udp,
    UdpLite, Vlan, Vxlan,
};

/// A packet under construction. Each call adds the next inner header; [`Packet::build`] fills in
/// the lengths, next-protocol fields and checksums that were not given.
///
/// ```
/// use skua_testkit::Packet;
/// let bytes = Packet::new().ethernet(1, 2).vlan(7).ipv4("10.0.0.1", "10.0.0.2").udp(5, 6).zeros(10).build();
/// assert_eq!(bytes.len(), 14 + 4 + 20 + 8 + 10);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Packet {
    layers: Vec<Layer>,
}

impl Packet {
    /// An empty packet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds any header.
    pub fn layer(mut self, layer: impl Into<Layer>) -> Self {
        self.layers.push(layer.into());
        self
    }

    /// Adds an Ethernet header between two stations, see [`mac`].
    pub fn ethernet(self, source: u8, destination: u8) -> Self {
        self.layer(Ethernet {
            source: mac(source),
            destination: mac(destination),
            ethertype: None,
        })
    }

    /// Adds an 802.1Q tag.
    pub fn vlan(self, vid: u16) -> Self {
        self.tag(0x8100, vid)
    }

    /// Adds a tag with this EtherType (0x8100, 0x88a8, 0x9100 …).
    pub fn tag(self, tpid: u16, tci: u16) -> Self {
        self.layer(Vlan {
            tpid,
            tci,
            ethertype: None,
        })
    }

    /// Adds an IPv4 header. An address that cannot be read is 0.0.0.0, which tests notice.
    pub fn ipv4(self, source: &str, destination: &str) -> Self {
        self.layer(Ipv4::between(source, destination))
    }

    /// Adds an IPv6 header. An address that cannot be read is ::, which tests notice.
    pub fn ipv6(self, source: &str, destination: &str) -> Self {
        self.layer(Ipv6::between(source, destination))
    }

    /// Adds an IPv6 extension header of this number with a body that [`Extension::padded`] makes.
    pub fn extension(self, number: u8, body: &[u8]) -> Self {
        self.layer(Extension::padded(number, body))
    }

    /// Adds an IPv6 fragment header; `offset` in units of 8 bytes.
    pub fn fragment6(self, id: u32, offset: u16, more: bool) -> Self {
        self.layer(Extension::fragment(id, offset, more))
    }

    /// Adds an authentication header.
    pub fn ah(self, spi: u32, sequence: u32) -> Self {
        self.layer(Ah {
            spi,
            sequence,
            icv: vec![0xa5; 12],
            next: None,
        })
    }

    /// Adds an ESP header; what follows counts as encrypted.
    pub fn esp(self, spi: u32, sequence: u32) -> Self {
        self.layer(Esp { spi, sequence })
    }

    /// Adds a TCP header with these flags and no options.
    pub fn tcp(self, source: u16, destination: u16, flags: u8) -> Self {
        self.layer(Tcp {
            source,
            destination,
            flags,
            ..Tcp::default()
        })
    }

    /// Adds a UDP header.
    pub fn udp(self, source: u16, destination: u16) -> Self {
        self.layer(Udp::ports(source, destination))
    }

    /// Adds a UDP-Lite header that covers everything.
    pub fn udplite(self, source: u16, destination: u16) -> Self {
        self.layer(UdpLite {
            source,
            destination,
            coverage: 0,
        })
    }

    /// Adds an SCTP common header; chunks are payload.
    pub fn sctp(self, source: u16, destination: u16, tag: u32) -> Self {
        self.layer(Sctp {
            source,
            destination,
            tag,
        })
    }

    /// Adds a DCCP header of this packet type with a long sequence number.
    pub fn dccp(self, source: u16, destination: u16, kind: u8) -> Self {
        self.layer(Dccp {
            source,
            destination,
            kind,
        })
    }

    /// Adds an ICMP header with identifier and sequence number.
    pub fn icmp(self, kind: u8, code: u8, id: u16, sequence: u16) -> Self {
        self.layer(Icmp::v4(kind, code, id, sequence))
    }

    /// Adds an ICMPv6 header with identifier and sequence number.
    pub fn icmpv6(self, kind: u8, code: u8, id: u16, sequence: u16) -> Self {
        self.layer(Icmp::v6(kind, code, id, sequence))
    }

    /// Adds a GRE header without optional fields.
    pub fn gre(self) -> Self {
        self.layer(Gre::default())
    }

    /// Adds UDP to port 4789 and a VXLAN header.
    pub fn vxlan(self, vni: u32) -> Self {
        self.udp(49_152 + (vni % 1000) as u16, 4789)
            .layer(Vxlan { vni, flags: 0x08 })
    }

    /// Adds UDP to port 6081 and a GENEVE header without options.
    pub fn geneve(self, vni: u32) -> Self {
        self.udp(50_152 + (vni % 1000) as u16, 6081).layer(Geneve {
            vni,
            ..Geneve::default()
        })
    }

    /// Adds an MPLS label; the bottom of the stack is set automatically.
    pub fn mpls(self, label: u32) -> Self {
        self.layer(Mpls {
            label,
            bottom: None,
        })
    }

    /// Adds bytes as they are.
    pub fn payload(self, bytes: &[u8]) -> Self {
        self.layer(Layer::Payload(bytes.to_vec()))
    }

    /// Adds `count` zero bytes.
    pub fn zeros(self, count: usize) -> Self {
        self.layer(Layer::Payload(vec![0; count]))
    }

    /// The packet's bytes.
    pub fn build(&self) -> Vec<u8> {
        let mut inner = Vec::new();
        for (i, layer) in self.layers.iter().enumerate().rev() {
            inner = layer.encode(&self.layers[..i], self.layers.get(i + 1), inner);
        }
        inner
    }

    /// The packet's bytes, padded with zeros to Ethernet's least length without FCS.
    pub fn build_padded(&self) -> Vec<u8> {
        let mut bytes = self.build();
        bytes.resize(bytes.len().max(60), 0);
        bytes
    }
}

/// Address of station `n`: 02:00:00:00:00:n, locally administered; 255 is broadcast.
pub fn mac(n: u8) -> [u8; 6] {
    match n {
        255 => [255; 6],
        n => [2, 0, 0, 0, 0, n],
    }
}

pub(crate) fn v4(text: &str) -> [u8; 4] {
    text.parse().unwrap_or(Ipv4Addr::UNSPECIFIED).octets()
}

pub(crate) fn v6(text: &str) -> [u8; 16] {
    text.parse().unwrap_or(Ipv6Addr::UNSPECIFIED).octets()
}
