//! Skua's own structures, for data without a standard one. `docs/wire.md` has their layout byte by
//! byte.
//!
//! Each begins with its version in one byte. Later versions only append fields, so that older readers
//! read the fields that they know; an incompatible change gets another format number.

use super::{tag, xdr::structure};
use crate::{DecodeError, Problem, reader::Reader};
use skua_record::TcpCounters;

/// The number that RFC 5612 sets aside for documentation: we have none registered with IANA.
pub const ENTERPRISE: u32 = 32473;

/// Version of all structures that are written, but the report's.
pub const OWN_VERSION: u8 = 1;

/// Tag of a flow record.
pub(super) const FLOW: u32 = tag(ENTERPRISE, 1);
/// Tag of a flow record.
pub(super) const FLOW_TCP: u32 = tag(ENTERPRISE, 2);
/// Tag of a flow record.
pub(super) const FLOW_NAMES: u32 = tag(ENTERPRISE, 4);
/// Tag of a flow record.
pub(super) const FLOW_SOCKET: u32 = tag(ENTERPRISE, 5);
/// Tag of a flow record.
pub(super) const FLOW_REVERSE: u32 = tag(ENTERPRISE, 7);
/// Tag of a counters record.
pub(super) const AGENT: u32 = tag(ENTERPRISE, 3);
/// Tag of a counters record.
pub(super) const HELLO: u32 = tag(ENTERPRISE, 6);

/// Tag of a counters record.
pub const SEAL: u32 = tag(ENTERPRISE, 8);
/// Bytes of a seal's code (HMAC-SHA-256), which is the end of a datagram and of all before it.
pub const SEAL_CODE: usize = 32;
/// Bytes of the name of its key.
pub const SEAL_NAME: usize = 8;
/// Bytes of a sample with a seal: tags and lengths of sample and record, sequence number, source and number of records;
/// version, time, name and code.
pub const SEAL_SAMPLE: usize = 8 + 12 + 8 + 4 + 8 + SEAL_NAME + SEAL_CODE;

/// Bits of [`Conversation::flags`].
pub mod flags {
    /// The first export of this record: all sums are new.
    pub const FIRST: u8 = 1;
    /// The source opened the conversation.
    pub const SOURCE_OPENED: u8 = 2;
    /// The destination opened the conversation.
    pub const DESTINATION_OPENED: u8 = 4;
    /// Other collectors may have received it since this one did: only the deltas count here.
    pub const MOVED: u8 = 8;
}

/// Bits of [`AgentReport::flags`].
pub mod report {
    /// The collector is to answer with a [`Hello`](super::Hello).
    pub const ASKS: u8 = 1;
}

/// Which side offers a service ([`Conversation::service`]).
pub mod service {
    /// The source does.
    pub const SOURCE: u8 = 0x40;
    /// The destination does.
    pub const DESTINATION: u8 = 0x80;
    /// The rule in the lower bits: 1 kernel, 2 listening, 3 syn, 4 ephemeral, 5 well-known.
    pub const RULE: u8 = 0x0f;
}

structure! {
    /// A conversation as counted at one capture point. Source and destination are those of the IP record
    /// ([`IpPacket`](super::IpPacket)) in the same sample; of pairs the source's is first. Counters are sums
    /// since the conversation began, so that a lost datagram does not falsify later ones.
    Conversation, "a conversation", version 1 {
        /// service: 0x40 the source offers it, 0x80 the destination, 0 not known; the lower four bits say how this is known: 1 `kernel`, 2 `listening`, 3 `syn`, 4 `ephemeral`, 5 `well-known` ([sockets.md](sockets.md) section 5)
        service: u8,
        /// end: 0 continues, 1 closed, 2 idle, 3 evicted (may continue), 4 the capture ended
        end: u8,
        /// flags: 1 first (nothing of this record was exported before), 2 the source opened the conversation, 4 the destination did, 8 moved (another collector may have received records since this one did: only the new packets count here)
        flags: u8,
    };
    {
        /// sampling: one in this many packets was counted; 1: all. Counters are not scaled up
        sampling: u32,
        /// identifier of the record, unique in a run of the agent
        id: u64,
        /// identifier of the conversation, the same at all points of all agents
        tracking_id: u64,
        /// first packet, ns since the Unix epoch
        first_ns: u64,
        /// packets that the source and the destination sent
        packets: [u64; 2],
        /// bytes that the source and the destination sent, with link-layer headers
        bytes: [u64; 2],
        /// packets of each that were not exported before; all ones: this many or more
        new_packets: [u32; 2],
        /// bytes of each that were not exported before; all ones: this many or more
        new_bytes: [u32; 2],
    }
}

structure! {
    /// TCP headers of a conversation; sums as in [`Conversation`].
    ConversationTcp, "a conversation's TCP", version 1 {
        /// all TCP flags of the source and of the destination
        flags: [u8; 2],
    };
    {
        /// Counters of segments.
        counters: TcpCounters,
        /// SYN to SYN+ACK, ns; 0 unknown
        server_rtt_ns: u32,
        /// SYN+ACK to ACK, ns; 0 unknown
        client_rtt_ns: u32,
    }
}

structure! {
    /// What TCP measured at the socket of one side.
    SocketTcp, "a socket's TCP", version 1 {
        /// whose socket: 1 the source's, 2 the destination's
        destination: bool,
    };
    {
        /// smoothed round-trip time, µs; 0 unknown
        srtt_us: u32,
    }
}

structure! {
    /// Sums exported in the datagrams of a stream before this one. Without losses the collector has
    /// received exactly these.
    AgentReport, "an agent's report", version 2 {
        /// flags: 1 asks the collector to answer with a hello
        flags: u8,
    };
    {
        /// the agent's clock, ns since the Unix epoch
        now_ns: u64,
        /// a number that differs in each run of the agent
        instance: u64,
        /// conversations exported (flow samples)
        records: u64,
        /// packets in them that were not exported before, and in those beyond the agent's queue
        packets: u64,
        /// their bytes
        bytes: u64,
        /// conversations that the agent could not export because the queue was full
        lost: u64,
    }
    since 2 {
        /// how long the agent stored the datagram before it sent it, ms. The clock above, the uptime and all times in the datagram are older by this
        kept_ms: u32,
    }
}

structure! {
    /// An agent's question whether a collector is reachable, or the answer to it, or to a datagram that requests one
    /// ([`report::ASKS`]). The header is that of the agent's stream in both, so that an answer is no longer than the
    /// question.
    Hello, "a hello", version 1 {
        /// 1 asks, 2 answers
        answers: bool,
    };
    {
        /// in an answer: the greatest sequence number received from this run of the agent, 0: none
        sequence: u32,
        /// the agent's run, as in its report: nobody can answer without knowing it
        instance: u64,
        /// in an answer: a number that differs in each run of the collector
        collector: u64,
    }
}

pub(super) fn version(body: &mut Reader<'_>, what: &'static str) -> Result<[u8; 3], DecodeError> {
    let before = *body;
    match *body.array::<4>(what)? {
        [0, ..] => Err(before.error(Problem::Version {
            protocol: what,
            version: 0,
        })),
        [_, a, b, c] => Ok([a, b, c]),
    }
}

/// The agent's report at the start of a datagram that [`Writer`](super::Writer) wrote, to be changed in place
/// before sending.
#[derive(Debug)]
pub struct ReportInPlace<'a>(&'a mut [u8]);

impl<'a> ReportInPlace<'a> {
    /// Of a datagram; none when it does not begin with one.
    pub fn of(datagram: &'a mut [u8]) -> Option<Self> {
        let word = |at: usize| -> Option<u32> {
            let bytes = datagram.get(at..at + 4)?;
            Some(u32::from_be_bytes(bytes.try_into().ok()?))
        };
        // Behind the header: tag and length of the sample, its number, source and count; tag and length of the record.
        let sample = match word(4)? {
            super::ADDRESS_V4 => 28,
            _ => 40,
        };
        let begins = word(sample)? == super::COUNTERS_SAMPLE
            && word(sample + 20)? == AGENT
            && word(sample + 24)? == 56;
        let body = datagram.get_mut(sample + 28..sample + 84)?;
        begins.then_some(Self(body))
    }

    /// The agent's run.
    pub fn instance(&self) -> u64 {
        let bytes = self.0.get(12..20).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, u64::from_be_bytes)
    }

    /// Sets flags of [`report`].
    pub fn set(&mut self, flags: u8) {
        if let Some(place) = self.0.get_mut(1) {
            *place |= flags;
        }
    }

    /// Sets how long it was stored, at a time of the agent's clock, ns since the Unix epoch.
    pub fn kept_until(&mut self, now_ns: u64) {
        let written = self.0.get(4..12).and_then(|bytes| bytes.try_into().ok());
        let kept_ms = now_ns.saturating_sub(written.map_or(now_ns, u64::from_be_bytes)) / 1_000_000;
        if let Some(place) = self.0.get_mut(52..56) {
            place.copy_from_slice(&u32::try_from(kept_ms).unwrap_or(u32::MAX).to_be_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sflow::xdr::Documented as _;

    #[test]
    fn the_tables_of_the_documentation_are_up_to_date() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/wire.md");
        let page = std::fs::read_to_string(path).unwrap();
        let mut made = page.clone();
        for (tag, table) in [
            (FLOW, Conversation::documentation()),
            (FLOW_TCP, ConversationTcp::documentation()),
            (AGENT, AgentReport::documentation()),
            (FLOW_SOCKET, SocketTcp::documentation()),
            (HELLO, Hello::documentation()),
        ] {
            let title = format!("\n## {ENTERPRISE}:{} ", tag & 0xfff);
            let chapter = made.find(&title).unwrap();
            let from = chapter + made[chapter..].find("| offset |").unwrap();
            let to = from + made[from..].find("\n\n").unwrap() + 1;
            made.replace_range(from..to, &table);
        }
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(path, made).unwrap();
            return;
        }
        assert!(
            page == made,
            "out of date: run `UPDATE_DOCS=1 cargo test -p skua-wire documentation`"
        );
    }
}
