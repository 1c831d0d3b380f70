//! Where our flows depart from tshark's view, by name and with the reason. `docs/truth.md` has the
//! same list for readers.

/// A kind of departure.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Difference {
    /// We give later fragments the first one's ports; tshark without reassembly shows none.
    LaterFragment,
    /// tshark shows the fields of a header that is cut off; we count the packet one layer lower.
    CutHeader,
    /// We end at a third VLAN tag; tshark reads on.
    ThirdTag,
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

/// Time as the capture was written, in ns after its first packet.
const fn time(packet: usize, after_ns: u64) -> Correction {
    Correction {
        time_ns: Some(skua_testkit::capture::EPOCH_NS + after_ns),
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
    CutHeader, FineClock, FrameCheckSequence, IpLength, LastExtension, LaterFragment, Nibble,
    NinthExtension, NotOurTunnel, OtherBlocks, Refused, SectionInterface, StreamPerSyn, ThirdTag,
    TunnelDepth,
};

const EXPECTED: &[Expected] = &[
    rules("vlan_three", &[ThirdTag]),
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
        &[ThirdTag],
        // GRE that says IPv4 around a packet of version 5: no child.
        &[Correction {
            levels: Some(1),
            ..at(2, Nibble)
        }],
    ),
    rules("pcap_fcs", &[FrameCheckSequence]),
    rules("pcapng_fcs", &[FrameCheckSequence]),
    corrections("pcapng_resolutions", &[], &[]),
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
