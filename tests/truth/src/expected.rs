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

const EXPECTED: &[Expected] = &[];
