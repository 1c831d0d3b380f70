//! Skua's own structures, for data without a standard one. `docs/wire.md` has their layout byte by
//! byte.
//!
//! Each begins with its version in one byte. Later versions only append fields, so that older readers
//! read the fields that they know; an incompatible change gets another format number.

use super::tag;
use crate::{DecodeError, Problem, reader::Reader};
use skua_record::TcpCounters;

/// The number that RFC 5612 sets aside for documentation: we have none registered with IANA.
pub const ENTERPRISE: u32 = 32473;

/// Version of all structures that are written, but the report's.
pub const OWN_VERSION: u8 = 1;
/// Version of the agent's report.
const REPORT_VERSION: u8 = 2;

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

/// A conversation as counted at one capture point. Source and destination are those of the IP record
/// ([`IpPacket`](super::IpPacket)) in the same sample; of pairs the source's is first. Counters are sums
/// since the conversation began, so that a lost datagram does not falsify later ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Conversation {
    /// The server's side, see [`service`]; 0 if unknown.
    pub service: u8,
    /// 0 open, 1 closed, 2 idle, 3 evicted from the table, 4 the capture ended.
    pub end: u8,
    /// See [`flags`].
    pub flags: u8,
    /// One packet of this many was counted, 1: all; the counters are not scaled up.
    pub sampling: u32,
    /// Identifies the record among those of the agent's run.
    pub id: u64,
    /// Identifies the conversation, the same at each point of each agent.
    pub tracking_id: u64,
    /// First packet, ns since the Unix epoch.
    pub first_ns: u64,
    /// Packets that each side sent.
    pub packets: [u64; 2],
    /// Bytes that each side sent, with link-layer headers.
    pub bytes: [u64; 2],
    /// Packets of each side since the last export; all ones for that and more.
    pub new_packets: [u32; 2],
    /// Bytes of each side since the last export; all ones for that and more.
    pub new_bytes: [u32; 2],
}

/// TCP headers of a conversation; sums as in [`Conversation`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ConversationTcp {
    /// All flags of each side.
    pub flags: [u8; 2],
    /// Counters of segments.
    pub counters: TcpCounters,
    /// SYN to SYN+ACK, ns; 0 unknown.
    pub server_rtt_ns: u32,
    /// SYN+ACK to ACK, ns; 0 unknown.
    pub client_rtt_ns: u32,
}

/// Sums exported in the datagrams of a stream before this one. Without losses the collector has
/// received exactly these.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AgentReport {
    /// See [`report`].
    pub flags: u8,
    /// The agent's clock, ns since the Unix epoch.
    pub now_ns: u64,
    /// Other in each run of the agent.
    pub instance: u64,
    /// Conversation records exported.
    pub records: u64,
    /// Packets exported as new in them.
    pub packets: u64,
    /// Bytes exported as new in them.
    pub bytes: u64,
    /// Conversation records that could not be exported.
    pub lost: u64,
    /// How long the agent stored the datagram, ms: the clock and all times in it are that much older.
    pub kept_ms: u32,
}

/// An agent's question whether a collector is reachable, or the answer to it, or to a datagram that requests one
/// ([`report::ASKS`]). The header is that of the agent's stream in both, so that an answer is no longer than the
/// question.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Hello {
    /// Whether it is an answer.
    pub answers: bool,
    /// In an answer: the greatest sequence number received of this run of the agent, 0: none.
    pub sequence: u32,
    /// The agent's run, as in its [`AgentReport`].
    pub instance: u64,
    /// In an answer another number in each run of the collector.
    pub collector: u64,
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

fn pair<T>(mut read: impl FnMut() -> Result<T, DecodeError>) -> Result<[T; 2], DecodeError> {
    Ok([read()?, read()?])
}

impl Conversation {
    #[inline]
    pub(super) fn decode(body: &mut Reader<'_>) -> Result<Self, DecodeError> {
        const WHAT: &str = "a conversation";
        let [service, end, flags] = version(body, WHAT)?;
        Ok(Self {
            service,
            end,
            flags,
            sampling: body.u32(WHAT)?,
            id: body.u64(WHAT)?,
            tracking_id: body.u64(WHAT)?,
            first_ns: body.u64(WHAT)?,
            packets: pair(|| body.u64(WHAT))?,
            bytes: pair(|| body.u64(WHAT))?,
            new_packets: pair(|| body.u32(WHAT))?,
            new_bytes: pair(|| body.u32(WHAT))?,
        })
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[OWN_VERSION, self.service, self.end, self.flags]);
        out.extend_from_slice(&self.sampling.to_be_bytes());
        for value in [self.id, self.tracking_id, self.first_ns] {
            out.extend_from_slice(&value.to_be_bytes());
        }
        for value in [self.packets, self.bytes].as_flattened() {
            out.extend_from_slice(&value.to_be_bytes());
        }
        for value in [self.new_packets, self.new_bytes].as_flattened() {
            out.extend_from_slice(&value.to_be_bytes());
        }
    }
}

impl ConversationTcp {
    #[inline]
    pub(super) fn decode(body: &mut Reader<'_>) -> Result<Self, DecodeError> {
        const WHAT: &str = "a conversation's TCP";
        let [source, destination, _] = version(body, WHAT)?;
        Ok(Self {
            flags: [source, destination],
            counters: {
                let mut all = TcpCounters::default().all();
                for counter in all.as_flattened_mut() {
                    *counter = body.u32(WHAT)?;
                }
                TcpCounters::of(all)
            },
            server_rtt_ns: body.u32(WHAT)?,
            client_rtt_ns: body.u32(WHAT)?,
        })
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[OWN_VERSION, self.flags[0], self.flags[1], 0]);
        let pairs = self.counters.all();
        let times = [self.server_rtt_ns, self.client_rtt_ns];
        for value in pairs.as_flattened().iter().chain(&times) {
            out.extend_from_slice(&value.to_be_bytes());
        }
    }
}

impl AgentReport {
    pub(super) fn decode(body: &mut Reader<'_>) -> Result<Self, DecodeError> {
        const WHAT: &str = "an agent's report";
        let [flags, ..] = version(body, WHAT)?;
        Ok(Self {
            flags,
            now_ns: body.u64(WHAT)?,
            instance: body.u64(WHAT)?,
            records: body.u64(WHAT)?,
            packets: body.u64(WHAT)?,
            bytes: body.u64(WHAT)?,
            lost: body.u64(WHAT)?,
            // Of version 2.
            kept_ms: body.u32(WHAT).unwrap_or(0),
        })
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[REPORT_VERSION, self.flags, 0, 0]);
        for value in [
            self.now_ns,
            self.instance,
            self.records,
            self.packets,
            self.bytes,
            self.lost,
        ] {
            out.extend_from_slice(&value.to_be_bytes());
        }
        out.extend_from_slice(&self.kept_ms.to_be_bytes());
    }
}

impl Hello {
    pub(super) fn decode(body: &mut Reader<'_>) -> Result<Self, DecodeError> {
        const WHAT: &str = "a hello";
        let [kind, ..] = version(body, WHAT)?;
        Ok(Self {
            answers: kind == 2,
            sequence: body.u32(WHAT)?,
            instance: body.u64(WHAT)?,
            collector: body.u64(WHAT)?,
        })
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[OWN_VERSION, 1 + u8::from(self.answers), 0, 0]);
        out.extend_from_slice(&self.sequence.to_be_bytes());
        out.extend_from_slice(&self.instance.to_be_bytes());
        out.extend_from_slice(&self.collector.to_be_bytes());
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
