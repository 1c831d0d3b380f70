//! Where our flows depart from tshark's view, by name and with the reason. `docs/truth.md` has the
//! same list for readers.

/// A kind of departure.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Difference {
    /// We give later fragments the first one's ports; tshark without reassembly shows none.
    LaterFragment,
    /// tshark shows the fields of a header that is cut off; we count the packet one layer lower.
    CutHeader,
    /// We end at a fifth VLAN tag; tshark reads on.
    FifthTag,
    /// We end at the ninth IPv6 extension header; tshark reads on.
    NinthExtension,
    /// tshark looks into something that is no tunnel of ours.
    NotOurTunnel,
    /// tshark looks into more than three levels.
    TunnelDepth,
    /// tshark starts a TCP stream with each new SYN; we only after the old connection closed.
    StreamPerSyn,
    /// tshark counts the FCS that the file says packets end with.
    FrameCheckSequence,
    /// tshark ends at the IP length, we at the captured bytes.
    IpLength,
    /// tshark takes mobility, HIP and shim6 headers as the last.
    LastExtension,
    /// tshark refuses a header that our rules accept.
    Refused,
    /// tshark shows journal entries and custom blocks of pcapng as packets.
    OtherBlocks,
    /// tshark's arithmetic overflows with clocks finer than ns.
    FineClock,
    /// tshark takes interfaces of a later section for those of the first.
    SectionInterface,
    /// tshark goes by the EtherType, we by the version nibble, or the other way round.
    Nibble,
}

/// What our flows say of one packet where tshark's fields do not tell it.
#[derive(Clone, Copy, Debug)]
pub struct Correction {
    /// Number of the packet in its capture, from 1.
    pub packet: usize,
    /// Kind of departure.
    pub difference: Difference,
    /// Keep this many levels; the other fields are about the innermost that is kept.
    pub levels: Option<usize>,
    /// IP protocol.
    pub protocol: Option<u8>,
    /// Ports, or type and code.
    pub ports: Option<(u16, u16)>,
    /// ICMP identifier.
    pub id: Option<u16>,
    /// IP addresses.
    pub addresses: Option<(&'static str, &'static str)>,
    /// No IP but this EtherType.
    pub no_ip: Option<u16>,
    /// Time of the packet in ns.
    pub time_ns: Option<u64>,
    /// Interface of the packet.
    pub interface: Option<&'static str>,
}

/// All departures of one capture.
#[derive(Clone, Copy, Debug)]
pub struct Expected {
    /// Name of the capture.
    pub capture: &'static str,
    /// Departures that apply by rule.
    pub rules: &'static [Difference],
    /// Departures of single packets.
    pub corrections: &'static [Correction],
}

/// Names of all captures that are listed here.
pub fn captures() -> impl Iterator<Item = &'static str> {
    let tables = TABLE_DEPARTURES.iter().map(|(name, _)| *name);
    EXPECTED
        .iter()
        .map(|expected| expected.capture)
        .chain(tables)
}

/// Departures of a capture; none listed, none allowed.
pub fn of(capture: &str) -> Expected {
    EXPECTED
        .iter()
        .find(|expected| expected.capture == capture)
        .copied()
        .unwrap_or(Expected {
            capture: "",
            rules: &[],
            corrections: &[],
        })
}

const fn at(packet: usize, difference: Difference) -> Correction {
    Correction {
        packet,
        difference,
        levels: None,
        protocol: None,
        ports: None,
        id: None,
        addresses: None,
        no_ip: None,
        time_ns: None,
        interface: None,
    }
}

const fn ports(packet: usize, difference: Difference, ports: (u16, u16)) -> Correction {
    Correction {
        ports: Some(ports),
        ..at(packet, difference)
    }
}

const fn interface(packet: usize, interface: &'static str) -> Correction {
    Correction {
        interface: Some(interface),
        ..at(packet, Difference::SectionInterface)
    }
}

/// Time of a packet of `pcapng_resolutions`, where the pauses of ten interfaces and `pauses` more
/// came before.
const fn picoseconds(packet: usize, pauses: u64) -> Correction {
    let steps = (packet as u64 - 1) * 1_000_003;
    let time_ns = skua_testkit::capture::EPOCH_NS + steps + (10 + pauses) * 1_234_567_891;
    Correction {
        time_ns: Some(time_ns),
        ..at(packet, Difference::FineClock)
    }
}

const fn rules(capture: &'static str, rules: &'static [Difference]) -> Expected {
    Expected {
        capture,
        rules,
        corrections: &[],
    }
}

const fn corrections(
    capture: &'static str,
    rules: &'static [Difference],
    corrections: &'static [Correction],
) -> Expected {
    Expected {
        capture,
        rules,
        corrections,
    }
}

use Difference::{
    CutHeader, FifthTag, FrameCheckSequence, IpLength, LastExtension, LaterFragment, Nibble,
    NinthExtension, NotOurTunnel, OtherBlocks, Refused, StreamPerSyn, TunnelDepth,
};

const EXPECTED: &[Expected] = &[
    rules("vlan_three", &[FifthTag]),
    rules("pppoe", &[NotOurTunnel]),
    corrections(
        "raw_ip",
        &[CutHeader],
        &[
            // Version nibble 0: no IP for us, IPv4 for tshark.
            Correction {
                no_ip: Some(0),
                ..at(5, Nibble)
            },
            // Three bytes that start with 4: IPv4 that is malformed for us.
            Correction {
                no_ip: Some(0x0800),
                ..at(9, Nibble)
            },
        ],
    ),
    rules("ipv4_malformed", &[Nibble]),
    corrections(
        "ipv4_lengths",
        &[],
        &[
            // Total length 19: less than a header, which we do not look at.
            Correction {
                addresses: Some(("10.0.0.1", "10.0.0.2")),
                protocol: Some(17),
                ..ports(2, Refused, (40_000, 7))
            },
            // Total length 20: nothing after the IP header.
            ports(3, IpLength, (40_000, 7)),
            ports(11, IpLength, (40_000, 80)),
        ],
    ),
    rules("ipv4_fragments", &[LaterFragment]),
    rules("ipv4_fragments_late", &[LaterFragment]),
    corrections(
        "ipv4_fragments_protocols",
        &[LaterFragment],
        &[
            // Eight bytes of TCP and padding behind, which we read as the rest of the header.
            ports(7, IpLength, (0, 0)),
            ports(8, IpLength, (0, 0)),
        ],
    ),
    corrections(
        "ipv6_extensions",
        &[],
        &[
            ports(4, LastExtension, (40_000, 7)),
            ports(5, LastExtension, (40_000, 7)),
        ],
    ),
    corrections(
        "ipv6_extensions_many",
        &[NinthExtension],
        &[Correction {
            protocol: Some(51),
            ..at(5, LastExtension)
        }],
    ),
    // Payload length 0 with bytes behind.
    corrections(
        "ipv6_malformed",
        &[CutHeader],
        &[ports(7, IpLength, (40_000, 7))],
    ),
    rules("ipv6_fragments", &[LaterFragment]),
    rules("transport_cut", &[CutHeader]),
    rules("snap_64", &[CutHeader]),
    rules("snap_40", &[CutHeader]),
    rules("tcp_reuse_half_closed", &[StreamPerSyn]),
    rules("tcp_syn_again", &[StreamPerSyn]),
    rules("vxlan", &[NotOurTunnel]),
    rules("geneve", &[NotOurTunnel]),
    rules("mpls", &[NotOurTunnel]),
    rules("tunnels_deep", &[TunnelDepth]),
    rules("tunnels_cut", &[CutHeader]),
    rules("tunnels_fragments", &[LaterFragment]),
    corrections(
        "tunnels_inner_malformed",
        &[],
        // GRE that says IPv4 around a packet of version 5: no child.
        &[Correction {
            levels: Some(1),
            ..at(2, Nibble)
        }],
    ),
    rules("pcap_fcs", &[FrameCheckSequence]),
    rules("pcapng_fcs", &[FrameCheckSequence]),
    // The interface that counts ps.
    corrections(
        "pcapng_resolutions",
        &[],
        &[
            picoseconds(61, 0),
            picoseconds(62, 0),
            picoseconds(63, 0),
            picoseconds(64, 1),
            picoseconds(65, 1),
            picoseconds(66, 1),
        ],
    ),
    rules("linux_cooked", &[Nibble]),
    rules("linux_cooked_2", &[Nibble]),
    rules("pcapng_odd_blocks", &[OtherBlocks]),
    corrections(
        "pcapng_sections",
        &[],
        &[
            interface(7, "eth9"),
            interface(8, "eth9"),
            interface(9, "eth9"),
        ],
    ),
    rules("mixed_snap_96", &[CutHeader]),
];

/// Why the tables of `tshark -z conv` are not our flows, for captures where they are not.
pub fn table_departure(capture: &str) -> Option<&'static str> {
    TABLE_DEPARTURES
        .iter()
        .find(|(name, _)| *name == capture)
        .map(|(_, reason)| *reason)
}

const TABLE_DEPARTURES: &[(&str, &str)] = &[
    ("vlan_three", FIFTH),
    ("pppoe", PPPOE),
    ("linux_cooked", NIB),
    ("linux_cooked_2", NIB),
    ("ipv4_lengths", LEN),
    ("ipv4_fragments", FRAG),
    ("ipv4_fragments_late", FRAG),
    ("ipv4_fragments_protocols", FRAG),
    ("ipv6_extensions", EXT),
    ("ipv6_extensions_many", NINTH),
    ("ipv6_malformed", LEN),
    ("ipv6_fragments", FRAG),
    ("ipv6_fragments_no_first", FRAG),
    ("udp_lengths", UDPLEN),
    ("ah", AH),
    ("transport_cut", CUT),
    ("snap_64", CUT),
    ("snap_40", CUT),
    ("tcp_reuse_half_closed", SYN),
    ("tcp_syn_again", SYN),
    ("vxlan", INNER),
    ("geneve", INNER),
    ("gre", INNER),
    ("gre_ethernet", INNER),
    ("ip_in_ip", INNER),
    ("mpls", INNER),
    ("mpls_udp", INNER),
    ("erspan", INNER),
    ("tunnels_nested", INNER),
    ("tunnels_deep", INNER),
    ("tunnels_cut", INNER),
    ("tunnels_fragments", INNER),
    ("tunnels_same_inner", INNER),
    ("tunnels_inner_malformed", INNER),
    ("mixed", INNER),
    ("mixed_snap_96", INNER),
    ("pcap_fcs", FCS),
    ("pcapng_fcs", FCS),
    ("pcapng_resolutions", CLOCK),
];

const FIFTH: &str = "tshark reads on after the fifth tag";
const PPPOE: &str = "tshark reads PPPoE sessions";
const NIB: &str = "tshark reads IPv6 where the link header says IPv4";
const LEN: &str = "tshark ends at the IP length and shows no ports behind it";
const FRAG: &str = "only first fragments are in tshark's tables";
const EXT: &str = "tshark takes mobility and HIP headers as the last";
const NINTH: &str = "tshark reads on after the ninth extension header";
const UDPLEN: &str = "tshark leaves packets with a wrong UDP length out of its table";
const AH: &str = "AH in IPv4 is a protocol of its own for us; tshark reads on";
const CUT: &str = "tshark leaves packets with a cut-off transport header out of its tables";
const SYN: &str = "tshark starts a stream with each new SYN";
const INNER: &str = "tshark's tables count packets inside of others, too";
const FCS: &str = "tshark counts the FCS";
const CLOCK: &str = "tshark's arithmetic overflows with clocks finer than ns";
