//! A flow, in the form common to all versions.

/// Network layer of a flow's addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Family {
    /// No IP addresses.
    #[default]
    None,
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// First bytes of a packet that a record has instead of fields (RFC 7133, PSAMP).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Section<'a> {
    /// The bytes.
    pub bytes: &'a [u8],
    /// They begin with the Ethernet header, else with the IP header.
    pub is_frame: bool,
    /// Bytes of the complete frame or IP packet; 0 unknown.
    pub length: u32,
}

/// Receives flows; those of sampled packets have a section.
pub type Sink<'s> = dyn FnMut(&Flow, Option<Section<'_>>) + 's;

/// A flow as exported. Pairs are of the direction from source to destination, and of the reverse
/// direction (RFC 5103; all 0 in records of one direction).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Flow {
    /// Network layer.
    pub family: Family,
    /// Source address, IPv4 as `::ffff:a.b.c.d`.
    pub source: [u8; 16],
    /// Destination address.
    pub destination: [u8; 16],
    /// Source port, 0 without.
    pub source_port: u16,
    /// Destination port, 0 without.
    pub destination_port: u16,
    /// IP protocol.
    pub protocol: u8,
    /// OR of the TCP flags.
    pub tcp_flags: [u8; 2],
    /// Packets.
    pub packets: [u64; 2],
    /// Bytes, see `link_bytes`.
    pub bytes: [u64; 2],
    /// Bytes are of the link layer, not of the IP packets.
    pub link_bytes: bool,
    /// ICMP type and code, `type << 8 | code`.
    pub icmp: Option<u16>,
    /// ifIndex of the ingress interface, 0 unknown.
    pub input: u32,
    /// ifIndex of the egress interface, 0 unknown.
    pub output: u32,
    /// Counted at egress (flowDirection 1).
    pub egress: bool,
    /// VLAN identifiers, outer and inner.
    pub vlan: [Option<u16>; 2],
    /// Source and destination MAC addresses.
    pub mac: Option<[[u8; 6]; 2]>,
    /// EtherType, 0 unknown.
    pub ethertype: u16,
    /// First packet, ns since the Unix epoch.
    pub first_ns: u64,
    /// Last packet, ns since the Unix epoch.
    pub last_ns: u64,
    /// One packet of this many was counted; `packets` and `bytes` are those counted.
    pub sampling: u32,
    /// flowEndReason of IPFIX, 0 unknown: 1 idle, 2 active timeout, 3 end seen, 4 forced, 5 lack of
    /// resources.
    pub end_reason: u8,
    /// Whether the source opened the conversation (biflowDirection), if known.
    pub source_opened: Option<bool>,
}
