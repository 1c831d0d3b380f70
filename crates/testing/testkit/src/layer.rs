//! One header each: its fields, what it says of the next, and its bytes.
//!
//! `Option` fields are worked out from the rest of the packet when `None`; giving one makes a
//! packet that contradicts itself, which is what most malformed packets are.

use crate::checksum::{crc32c, internet};
use crate::packet::{v4, v6};

macro_rules! layers {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Any header, or payload.
        #[derive(Clone, Debug)]
        pub enum Layer {
            $($(#[$doc])* $name($name),)*
            /// Bytes as they are.
            Payload(Vec<u8>),
        }
        $(impl From<$name> for Layer {
            fn from(layer: $name) -> Self {
                Layer::$name(layer)
            }
        })*
    };
}

layers! {
    /// IEEE 802.3.
    Ethernet,
    /// IEEE 802.1Q tag.
    Vlan,
    /// IEEE 802.2.
    Llc,
    /// RFC 826.
    Arp,
    /// RFC 3032.
    Mpls,
    /// RFC 2516.
    Pppoe,
    /// RFC 791.
    Ipv4,
    /// RFC 8200.
    Ipv6,
    /// RFC 8200 section 4.
    Extension,
    /// RFC 4302.
    Ah,
    /// RFC 4303.
    Esp,
    /// RFC 9293.
    Tcp,
    /// RFC 768.
    Udp,
    /// RFC 3828.
    UdpLite,
    /// RFC 9260.
    Sctp,
    /// RFC 4340.
    Dccp,
    /// RFC 792 and RFC 4443.
    Icmp,
    /// RFC 2784 and RFC 2890.
    Gre,
    /// RFC 7348.
    Vxlan,
    /// RFC 8926.
    Geneve,
}

/// Ethernet header.
#[derive(Clone, Debug)]
pub struct Ethernet {
    /// Source address.
    pub source: [u8; 6],
    /// Destination address.
    pub destination: [u8; 6],
    /// EtherType or 802.3 length.
    pub ethertype: Option<u16>,
}

/// VLAN tag: its own EtherType, tag control information, EtherType of what follows.
#[derive(Clone, Debug)]
pub struct Vlan {
    /// EtherType of this tag.
    pub tpid: u16,
    /// Priority, drop eligibility and VLAN identifier.
    pub tci: u16,
    /// EtherType of what follows.
    pub ethertype: Option<u16>,
}

/// 802.2 header.
#[derive(Clone, Debug)]
pub struct Llc {
    /// Destination service access point.
    pub dsap: u8,
    /// Source service access point.
    pub ssap: u8,
    /// Control field.
    pub control: u8,
}

/// ARP packet for IPv4 over Ethernet.
#[derive(Clone, Debug)]
pub struct Arp {
    /// 1 request, 2 reply.
    pub operation: u16,
    /// Sender's hardware and protocol address.
    pub sender: ([u8; 6], [u8; 4]),
    /// Target's hardware and protocol address.
    pub target: ([u8; 6], [u8; 4]),
}

/// MPLS label.
#[derive(Clone, Debug)]
pub struct Mpls {
    /// 20-bit label.
    pub label: u32,
    /// Bottom of stack.
    pub bottom: Option<bool>,
}

/// PPPoE header, with the PPP protocol number after it in a session.
#[derive(Clone, Debug)]
pub struct Pppoe {
    /// 0 is a session packet, others discovery.
    pub code: u8,
    /// Session identifier.
    pub session: u16,
}

/// IPv4 header.
#[derive(Clone, Debug, Default)]
pub struct Ipv4 {
    /// Source address.
    pub source: [u8; 4],
    /// Destination address.
    pub destination: [u8; 4],
    /// DSCP and ECN.
    pub tos: u8,
    /// Identification.
    pub id: u16,
    /// Fragment offset in units of 8 bytes.
    pub offset: u16,
    /// More fragments.
    pub more: bool,
    /// Options, padded to four bytes when encoded.
    pub options: Vec<u8>,
    /// Protocol.
    pub protocol: Option<u8>,
    /// Version, 4.
    pub version: Option<u8>,
    /// Header length in units of 4 bytes.
    pub header_words: Option<u8>,
    /// Total length.
    pub total_length: Option<u16>,
}

impl Ipv4 {
    /// Header between two addresses.
    pub fn between(source: &str, destination: &str) -> Self {
        Self {
            source: v4(source),
            destination: v4(destination),
            ..Self::default()
        }
    }

    /// Header of a fragment; `offset` in units of 8 bytes.
    pub fn fragment(mut self, id: u16, protocol: u8, offset: u16, more: bool) -> Self {
        (self.id, self.protocol) = (id, Some(protocol));
        (self.offset, self.more) = (offset, more);
        self
    }
}

/// IPv6 header.
#[derive(Clone, Debug, Default)]
pub struct Ipv6 {
    /// Source address.
    pub source: [u8; 16],
    /// Destination address.
    pub destination: [u8; 16],
    /// 20-bit flow label.
    pub flow_label: u32,
    /// Next header.
    pub next: Option<u8>,
    /// Version, 6.
    pub version: Option<u8>,
    /// Payload length.
    pub payload_length: Option<u16>,
}

impl Ipv6 {
    /// Header between two addresses.
    pub fn between(source: &str, destination: &str) -> Self {
        Self {
            source: v6(source),
            destination: v6(destination),
            ..Self::default()
        }
    }
}

/// IPv6 extension header.
#[derive(Clone, Debug)]
pub struct Extension {
    /// Its number: 0, 43, 44, 60, 135, 139, 140 …
    pub number: u8,
    /// Everything after the next-header byte, the length byte included.
    pub rest: Vec<u8>,
    /// Next header.
    pub next: Option<u8>,
}

impl Extension {
    /// Header with the length byte worked out and `body` padded to a multiple of eight bytes:
    /// with PadN options for hop-by-hop (0) and destination (60) options, else with zeros.
    pub fn padded(number: u8, body: &[u8]) -> Self {
        let mut rest = vec![0];
        rest.extend_from_slice(body);
        let missing = (8 - (rest.len() + 1) % 8) % 8;
        match (number, missing) {
            (0 | 60, 1) => rest.push(0),
            (0 | 60, n) if n >= 2 => {
                rest.extend_from_slice(&[1, (n - 2) as u8]);
                rest.resize(rest.len() + n - 2, 0);
            }
            (_, n) => rest.resize(rest.len() + n, 0),
        }
        rest[0] = ((rest.len() + 1) / 8 - 1) as u8;
        Self {
            number,
            rest,
            next: None,
        }
    }

    /// Fragment header; `offset` in units of 8 bytes.
    pub fn fragment(id: u32, offset: u16, more: bool) -> Self {
        let mut rest = vec![0];
        rest.extend_from_slice(&(offset << 3 | u16::from(more)).to_be_bytes());
        rest.extend_from_slice(&id.to_be_bytes());
        Self {
            number: 44,
            rest,
            next: None,
        }
    }

    /// The same header saying that `next` follows.
    pub fn then(mut self, next: u8) -> Self {
        self.next = Some(next);
        self
    }
}

/// Authentication header.
#[derive(Clone, Debug)]
pub struct Ah {
    /// Security parameters index.
    pub spi: u32,
    /// Sequence number.
    pub sequence: u32,
    /// Integrity check value, a multiple of four bytes.
    pub icv: Vec<u8>,
    /// Next header.
    pub next: Option<u8>,
}

/// ESP header.
#[derive(Clone, Debug)]
pub struct Esp {
    /// Security parameters index.
    pub spi: u32,
    /// Sequence number.
    pub sequence: u32,
}

/// TCP header.
#[derive(Clone, Debug)]
pub struct Tcp {
    /// Source port.
    pub source: u16,
    /// Destination port.
    pub destination: u16,
    /// Sequence number.
    pub sequence: u32,
    /// Acknowledgement number.
    pub acknowledgement: u32,
    /// Flags, see [`crate::flag`].
    pub flags: u8,
    /// Window.
    pub window: u16,
    /// Options, padded to four bytes when encoded.
    pub options: Vec<u8>,
    /// Data offset in units of 4 bytes.
    pub offset_words: Option<u8>,
}

impl Default for Tcp {
    fn default() -> Self {
        Self {
            source: 0,
            destination: 0,
            sequence: 0,
            acknowledgement: 0,
            flags: 0,
            window: 64_240,
            options: Vec::new(),
            offset_words: None,
        }
    }
}

/// UDP header.
#[derive(Clone, Debug)]
pub struct Udp {
    /// Source port.
    pub source: u16,
    /// Destination port.
    pub destination: u16,
    /// Length of header and payload.
    pub length: Option<u16>,
    /// Checksum.
    pub checksum: Option<u16>,
}

impl Udp {
    /// Header between two ports.
    pub fn ports(source: u16, destination: u16) -> Self {
        Self {
            source,
            destination,
            length: None,
            checksum: None,
        }
    }
}

/// UDP-Lite header.
#[derive(Clone, Debug)]
pub struct UdpLite {
    /// Source port.
    pub source: u16,
    /// Destination port.
    pub destination: u16,
    /// Bytes that the checksum covers, 0 for all.
    pub coverage: u16,
}

/// SCTP common header.
#[derive(Clone, Debug)]
pub struct Sctp {
    /// Source port.
    pub source: u16,
    /// Destination port.
    pub destination: u16,
    /// Verification tag.
    pub tag: u32,
}

/// DCCP generic header with a long sequence number.
#[derive(Clone, Debug)]
pub struct Dccp {
    /// Source port.
    pub source: u16,
    /// Destination port.
    pub destination: u16,
    /// Packet type: 0 request, 1 response, 2 data …
    pub kind: u8,
}

/// ICMP or ICMPv6 header.
#[derive(Clone, Debug)]
pub struct Icmp {
    /// ICMPv6, with a checksum over the pseudo-header.
    pub v6: bool,
    /// Type.
    pub kind: u8,
    /// Code.
    pub code: u8,
    /// The four bytes after the checksum: identifier and sequence number, MTU …
    pub rest: [u8; 4],
}

impl Icmp {
    /// ICMP with identifier and sequence number.
    pub fn v4(kind: u8, code: u8, id: u16, sequence: u16) -> Self {
        let (id, sequence) = (id.to_be_bytes(), sequence.to_be_bytes());
        Self {
            v6: false,
            kind,
            code,
            rest: [id[0], id[1], sequence[0], sequence[1]],
        }
    }

    /// ICMPv6 with identifier and sequence number.
    pub fn v6(kind: u8, code: u8, id: u16, sequence: u16) -> Self {
        Self {
            v6: true,
            ..Self::v4(kind, code, id, sequence)
        }
    }
}

/// GRE header.
#[derive(Clone, Debug, Default)]
pub struct Gre {
    /// Key.
    pub key: Option<u32>,
    /// Sequence number.
    pub sequence: Option<u32>,
    /// With a checksum.
    pub checksum: bool,
    /// EtherType of what follows.
    pub protocol: Option<u16>,
    /// Version; 1 is PPTP's.
    pub version: u8,
}

/// VXLAN header.
#[derive(Clone, Copy, Debug)]
pub struct Vxlan {
    /// 24-bit network identifier.
    pub vni: u32,
    /// Flags; 0x08 says that the identifier is valid.
    pub flags: u8,
}

/// GENEVE header.
#[derive(Clone, Debug, Default)]
pub struct Geneve {
    /// 24-bit network identifier.
    pub vni: u32,
    /// Options, a multiple of four bytes.
    pub options: Vec<u8>,
    /// EtherType of what follows.
    pub protocol: Option<u16>,
    /// Version, 0.
    pub version: u8,
    /// Length of the options in units of 4 bytes.
    pub option_words: Option<u8>,
}

impl Layer {
    /// How Ethernet, VLAN, GRE and GENEVE name this.
    fn ethertype(&self) -> u16 {
        match self {
            Layer::Vlan(vlan) => vlan.tpid,
            Layer::Arp(_) => 0x0806,
            Layer::Ipv4(_) => 0x0800,
            Layer::Ipv6(_) => 0x86dd,
            Layer::Mpls(_) => 0x8847,
            Layer::Pppoe(p) if p.code == 0 => 0x8864,
            Layer::Pppoe(_) => 0x8863,
            Layer::Ethernet(_) => 0x6558,
            // Reserved for local experiments.
            _ => 0x88b5,
        }
    }

    /// How IP names this.
    fn protocol(&self) -> u8 {
        match self {
            Layer::Icmp(icmp) if icmp.v6 => 58,
            Layer::Icmp(_) => 1,
            Layer::Ipv4(_) => 4,
            Layer::Tcp(_) => 6,
            Layer::Udp(_) => 17,
            Layer::Dccp(_) => 33,
            Layer::Ipv6(_) => 41,
            Layer::Gre(_) => 47,
            Layer::Esp(_) => 50,
            Layer::Ah(_) => 51,
            Layer::Extension(extension) => extension.number,
            Layer::Sctp(_) => 132,
            Layer::UdpLite(_) => 136,
            Layer::Mpls(_) => 137,
            Layer::Ethernet(_) => 143,
            // Reserved for experiments, RFC 3692.
            _ => 253,
        }
    }

    /// Header and payload; `outer` are the headers around it, `next` the one after it.
    pub(crate) fn encode(&self, outer: &[Layer], next: Option<&Layer>, inner: Vec<u8>) -> Vec<u8> {
        let ethertype =
            |given: Option<u16>| given.unwrap_or_else(|| next.map_or(0x88b5, Layer::ethertype));
        let protocol =
            |given: Option<u8>| given.unwrap_or_else(|| next.map_or(59, Layer::protocol));
        let mut out = Vec::with_capacity(inner.len() + 40);
        match self {
            Layer::Payload(bytes) => out.extend_from_slice(bytes),
            Layer::Ethernet(ethernet) => {
                out.extend_from_slice(&ethernet.destination);
                out.extend_from_slice(&ethernet.source);
                let kind = match (ethernet.ethertype, next) {
                    (None, Some(Layer::Llc(_))) => inner.len() as u16,
                    (given, _) => ethertype(given),
                };
                out.extend_from_slice(&kind.to_be_bytes());
            }
            Layer::Vlan(vlan) => {
                out.extend_from_slice(&vlan.tci.to_be_bytes());
                let kind = match (vlan.ethertype, next) {
                    (None, Some(Layer::Llc(_))) => inner.len() as u16,
                    (given, _) => ethertype(given),
                };
                out.extend_from_slice(&kind.to_be_bytes());
            }
            Layer::Llc(llc) => out.extend_from_slice(&[llc.dsap, llc.ssap, llc.control]),
            Layer::Arp(arp) => {
                out.extend_from_slice(&[0, 1, 8, 0, 6, 4]);
                out.extend_from_slice(&arp.operation.to_be_bytes());
                for (hardware, address) in [&arp.sender, &arp.target] {
                    out.extend_from_slice(hardware);
                    out.extend_from_slice(address);
                }
            }
            Layer::Mpls(mpls) => {
                let bottom = mpls.bottom.unwrap_or(!matches!(next, Some(Layer::Mpls(_))));
                let word = mpls.label << 12 | u32::from(bottom) << 8 | 64;
                out.extend_from_slice(&word.to_be_bytes());
            }
            Layer::Pppoe(pppoe) => {
                out.extend_from_slice(&[0x11, pppoe.code]);
                out.extend_from_slice(&pppoe.session.to_be_bytes());
                let ppp: &[u8] = match (pppoe.code, next) {
                    (0, Some(Layer::Ipv6(_))) => &[0x00, 0x57],
                    (0, Some(Layer::Ipv4(_))) => &[0x00, 0x21],
                    _ => &[],
                };
                out.extend_from_slice(&((inner.len() + ppp.len()) as u16).to_be_bytes());
                out.extend_from_slice(ppp);
            }
            Layer::Ipv4(ip) => ip.encode(protocol(ip.protocol), inner.len(), &mut out),
            Layer::Ipv6(ip) => {
                let version = u32::from(ip.version.unwrap_or(6));
                out.extend_from_slice(&(version << 28 | ip.flow_label).to_be_bytes());
                let length = ip.payload_length.unwrap_or(inner.len() as u16);
                out.extend_from_slice(&length.to_be_bytes());
                out.extend_from_slice(&[protocol(ip.next), 64]);
                out.extend_from_slice(&ip.source);
                out.extend_from_slice(&ip.destination);
            }
            Layer::Extension(extension) => {
                out.push(protocol(extension.next));
                out.extend_from_slice(&extension.rest);
            }
            Layer::Ah(ah) => {
                out.extend_from_slice(&[protocol(ah.next), (1 + ah.icv.len() / 4) as u8, 0, 0]);
                out.extend_from_slice(&ah.spi.to_be_bytes());
                out.extend_from_slice(&ah.sequence.to_be_bytes());
                out.extend_from_slice(&ah.icv);
            }
            Layer::Esp(esp) => {
                out.extend_from_slice(&esp.spi.to_be_bytes());
                out.extend_from_slice(&esp.sequence.to_be_bytes());
            }
            Layer::Tcp(tcp) => {
                tcp.encode(&mut out);
                let sum = with_pseudo_header(outer, 6, &[&out, &inner]);
                out[16..18].copy_from_slice(&sum.to_be_bytes());
            }
            Layer::Udp(udp) => {
                out.extend_from_slice(&udp.source.to_be_bytes());
                out.extend_from_slice(&udp.destination.to_be_bytes());
                let length = udp.length.unwrap_or((8 + inner.len()) as u16);
                out.extend_from_slice(&length.to_be_bytes());
                out.extend_from_slice(&[0, 0]);
                let sum = udp.checksum.unwrap_or_else(|| {
                    // 0 would say "no checksum".
                    match with_pseudo_header(outer, 17, &[&out, &inner]) {
                        0 => 0xffff,
                        sum => sum,
                    }
                });
                out[6..8].copy_from_slice(&sum.to_be_bytes());
            }
            Layer::UdpLite(udp) => {
                out.extend_from_slice(&udp.source.to_be_bytes());
                out.extend_from_slice(&udp.destination.to_be_bytes());
                out.extend_from_slice(&udp.coverage.to_be_bytes());
                out.extend_from_slice(&[0, 0]);
                let covered = match usize::from(udp.coverage) {
                    0 => inner.len(),
                    n => n.saturating_sub(8).min(inner.len()),
                };
                let sum =
                    pseudo_header_sum(outer, 136, 8 + inner.len(), &[&out, &inner[..covered]]);
                out[6..8].copy_from_slice(&sum.to_be_bytes());
            }
            Layer::Sctp(sctp) => {
                out.extend_from_slice(&sctp.source.to_be_bytes());
                out.extend_from_slice(&sctp.destination.to_be_bytes());
                out.extend_from_slice(&sctp.tag.to_be_bytes());
                out.extend_from_slice(&[0; 4]);
                let sum = crc32c(&[out.as_slice(), &inner].concat());
                out[8..12].copy_from_slice(&sum.to_le_bytes());
            }
            Layer::Dccp(dccp) => {
                // RFC 4340 section 5.1 with X = 1; types 1, 3 to 9 need an acknowledgement too.
                out.extend_from_slice(&dccp.source.to_be_bytes());
                out.extend_from_slice(&dccp.destination.to_be_bytes());
                let extra: &[u8] = match dccp.kind {
                    0 => &[0, 0, 0, 7],
                    1 => &[0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 7],
                    2 => &[],
                    7 => &[0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0],
                    _ => &[0, 0, 0, 0, 0, 0, 0, 1],
                };
                let words = (16 + extra.len()) / 4;
                out.extend_from_slice(&[words as u8, 0, 0, 0, dccp.kind << 1 | 1, 0]);
                out.extend_from_slice(&[0, 0, 0, 0, 0, 1]);
                out.extend_from_slice(extra);
                let sum = with_pseudo_header(outer, 33, &[&out, &inner]);
                out[6..8].copy_from_slice(&sum.to_be_bytes());
            }
            Layer::Icmp(icmp) => {
                out.extend_from_slice(&[icmp.kind, icmp.code, 0, 0]);
                out.extend_from_slice(&icmp.rest);
                let sum = if icmp.v6 {
                    with_pseudo_header(outer, 58, &[&out, &inner])
                } else {
                    internet(&[&out, &inner])
                };
                out[2..4].copy_from_slice(&sum.to_be_bytes());
            }
            Layer::Gre(gre) => {
                let flags = u16::from(gre.checksum) << 15
                    | u16::from(gre.key.is_some()) << 13
                    | u16::from(gre.sequence.is_some()) << 12
                    | u16::from(gre.version);
                out.extend_from_slice(&flags.to_be_bytes());
                out.extend_from_slice(&ethertype(gre.protocol).to_be_bytes());
                if gre.checksum {
                    out.extend_from_slice(&[0; 4]);
                }
                for word in [gre.key, gre.sequence].into_iter().flatten() {
                    out.extend_from_slice(&word.to_be_bytes());
                }
                if gre.checksum {
                    let sum = internet(&[&out, &inner]);
                    out[4..6].copy_from_slice(&sum.to_be_bytes());
                }
            }
            Layer::Vxlan(vxlan) => {
                out.extend_from_slice(&[vxlan.flags, 0, 0, 0]);
                out.extend_from_slice(&(vxlan.vni << 8).to_be_bytes());
            }
            Layer::Geneve(geneve) => {
                let words = geneve
                    .option_words
                    .unwrap_or((geneve.options.len() / 4) as u8);
                out.extend_from_slice(&[geneve.version << 6 | words, 0]);
                out.extend_from_slice(&ethertype(geneve.protocol).to_be_bytes());
                out.extend_from_slice(&(geneve.vni << 8).to_be_bytes());
                out.extend_from_slice(&geneve.options);
            }
        }
        out.extend_from_slice(&inner);
        out
    }
}

impl Ipv4 {
    fn encode(&self, protocol: u8, payload: usize, out: &mut Vec<u8>) {
        let mut options = self.options.clone();
        options.resize(options.len().next_multiple_of(4), 0);
        let words = (5 + options.len() / 4) as u8;
        out.push(self.version.unwrap_or(4) << 4 | (self.header_words.unwrap_or(words) & 15));
        out.push(self.tos);
        let total = 20 + options.len() + payload;
        out.extend_from_slice(&self.total_length.unwrap_or(total as u16).to_be_bytes());
        out.extend_from_slice(&self.id.to_be_bytes());
        out.extend_from_slice(&(u16::from(self.more) << 13 | self.offset).to_be_bytes());
        out.extend_from_slice(&[64, protocol, 0, 0]);
        out.extend_from_slice(&self.source);
        out.extend_from_slice(&self.destination);
        out.extend_from_slice(&options);
        let sum = internet(&[out]);
        out[10..12].copy_from_slice(&sum.to_be_bytes());
    }
}

impl Tcp {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut options = self.options.clone();
        options.resize(options.len().next_multiple_of(4), 0);
        out.extend_from_slice(&self.source.to_be_bytes());
        out.extend_from_slice(&self.destination.to_be_bytes());
        out.extend_from_slice(&self.sequence.to_be_bytes());
        out.extend_from_slice(&self.acknowledgement.to_be_bytes());
        let words = self.offset_words.unwrap_or((5 + options.len() / 4) as u8);
        out.extend_from_slice(&[words << 4, self.flags]);
        out.extend_from_slice(&self.window.to_be_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&options);
    }
}

fn with_pseudo_header(outer: &[Layer], protocol: u8, parts: &[&[u8]]) -> u16 {
    let length = parts.iter().map(|part| part.len()).sum();
    pseudo_header_sum(outer, protocol, length, parts)
}

/// Checksum with the pseudo-header of the nearest IP header around (RFC 9293 section 3.1, RFC 8200
/// section 8.1), without one when there is none.
fn pseudo_header_sum(outer: &[Layer], protocol: u8, length: usize, parts: &[&[u8]]) -> u16 {
    let mut pseudo = Vec::with_capacity(40);
    for layer in outer.iter().rev() {
        match layer {
            Layer::Ipv4(ip) => {
                pseudo.extend_from_slice(&ip.source);
                pseudo.extend_from_slice(&ip.destination);
                pseudo.extend_from_slice(&[0, protocol]);
                pseudo.extend_from_slice(&(length as u16).to_be_bytes());
                break;
            }
            Layer::Ipv6(ip) => {
                pseudo.extend_from_slice(&ip.source);
                pseudo.extend_from_slice(&ip.destination);
                pseudo.extend_from_slice(&(length as u32).to_be_bytes());
                pseudo.extend_from_slice(&[0, 0, 0, protocol]);
                break;
            }
            _ => {}
        }
    }
    let mut all: Vec<&[u8]> = vec![&pseudo];
    all.extend_from_slice(parts);
    internet(&all)
}
