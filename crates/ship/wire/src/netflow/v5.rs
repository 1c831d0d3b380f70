//! NetFlow version 5: a header of 24 bytes and up to 30 records of 48 bytes.

use super::{Clock, Family, Flow};
use crate::{DecodeError, Problem, reader::Reader};

/// Version number.
pub const VERSION: u16 = 5;
/// Bytes of the header.
pub const HEADER_LEN: usize = 24;
/// Bytes of a record.
pub const RECORD_LEN: usize = 48;

/// Header of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Header {
    /// Number of records.
    pub count: u16,
    /// Time since the exporter started, ms.
    pub uptime_ms: u32,
    /// Time of export, s since the Unix epoch.
    pub unix_secs: u32,
    /// And ns.
    pub unix_nsecs: u32,
    /// Number of the first record.
    pub sequence: u32,
    /// Kind of the flow-switching engine.
    pub engine_type: u8,
    /// Its number.
    pub engine_id: u8,
    /// Sampling mode in the upper two bits, interval in the lower 14.
    pub sampling: u16,
}

/// A record.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Record {
    /// Source address.
    pub source: [u8; 4],
    /// Destination address.
    pub destination: [u8; 4],
    /// Next router.
    pub next_hop: [u8; 4],
    /// Input interface.
    pub input: u16,
    /// Output interface.
    pub output: u16,
    /// Packets.
    pub packets: u32,
    /// Bytes of the IP packets.
    pub octets: u32,
    /// Uptime at the first packet, ms.
    pub first: u32,
    /// Uptime at the last packet, ms.
    pub last: u32,
    /// Source port.
    pub source_port: u16,
    /// Destination port; ICMP: type and code.
    pub destination_port: u16,
    /// OR of the TCP flags.
    pub tcp_flags: u8,
    /// IP protocol.
    pub protocol: u8,
    /// Type of service.
    pub tos: u8,
    /// Autonomous system of the source.
    pub source_as: u16,
    /// Of the destination.
    pub destination_as: u16,
    /// Bits of the source's prefix.
    pub source_mask: u8,
    /// Of the destination's.
    pub destination_mask: u8,
}

impl Header {
    /// Reads it, from the version on.
    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        const WHAT: &str = "the header";
        reader.u16(WHAT)?;
        Ok(Self {
            count: reader.u16(WHAT)?,
            uptime_ms: reader.u32(WHAT)?,
            unix_secs: reader.u32(WHAT)?,
            unix_nsecs: reader.u32(WHAT)?,
            sequence: reader.u32(WHAT)?,
            engine_type: reader.u8(WHAT)?,
            engine_id: reader.u8(WHAT)?,
            sampling: reader.u16(WHAT)?,
        })
    }

    /// Writes it, with the version.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&VERSION.to_be_bytes());
        out.extend_from_slice(&self.count.to_be_bytes());
        for value in [
            self.uptime_ms,
            self.unix_secs,
            self.unix_nsecs,
            self.sequence,
        ] {
            out.extend_from_slice(&value.to_be_bytes());
        }
        out.extend_from_slice(&[self.engine_type, self.engine_id]);
        out.extend_from_slice(&self.sampling.to_be_bytes());
    }

    /// The exporter's clock.
    pub fn clock(&self) -> Clock {
        Clock {
            export_ns: u64::from(self.unix_secs) * 1_000_000_000
                + u64::from(self.unix_nsecs.min(999_999_999)),
            uptime_ms: Some(self.uptime_ms),
        }
    }

    /// One packet of this many is counted.
    pub fn sampling_rate(&self) -> u32 {
        u32::from(self.sampling & 0x3fff).max(1)
    }
}

impl Record {
    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        const WHAT: &str = "a record";
        // One length check for the whole record.
        let mut r = reader.part(RECORD_LEN, WHAT)?;
        let record = Self {
            source: *r.array(WHAT)?,
            destination: *r.array(WHAT)?,
            next_hop: *r.array(WHAT)?,
            input: r.u16(WHAT)?,
            output: r.u16(WHAT)?,
            packets: r.u32(WHAT)?,
            octets: r.u32(WHAT)?,
            first: r.u32(WHAT)?,
            last: r.u32(WHAT)?,
            source_port: r.u16(WHAT)?,
            destination_port: r.u16(WHAT)?,
            tcp_flags: r.array::<2>(WHAT)?[1],
            protocol: r.u8(WHAT)?,
            tos: r.u8(WHAT)?,
            source_as: r.u16(WHAT)?,
            destination_as: r.u16(WHAT)?,
            source_mask: r.u8(WHAT)?,
            destination_mask: r.u8(WHAT)?,
        };
        Ok(record)
    }

    /// Writes it.
    pub fn encode(&self, out: &mut Vec<u8>) {
        for address in [self.source, self.destination, self.next_hop] {
            out.extend_from_slice(&address);
        }
        out.extend_from_slice(&self.input.to_be_bytes());
        out.extend_from_slice(&self.output.to_be_bytes());
        for value in [self.packets, self.octets, self.first, self.last] {
            out.extend_from_slice(&value.to_be_bytes());
        }
        out.extend_from_slice(&self.source_port.to_be_bytes());
        out.extend_from_slice(&self.destination_port.to_be_bytes());
        out.extend_from_slice(&[0, self.tcp_flags, self.protocol, self.tos]);
        out.extend_from_slice(&self.source_as.to_be_bytes());
        out.extend_from_slice(&self.destination_as.to_be_bytes());
        out.extend_from_slice(&[self.source_mask, self.destination_mask, 0, 0]);
    }

    pub(super) fn flow(&self, clock: &Clock, sampling: u32) -> Flow {
        let last_ns = clock.at_uptime(self.last, None);
        Flow {
            family: Family::V4,
            source: mapped(self.source),
            destination: mapped(self.destination),
            source_port: self.source_port,
            destination_port: self.destination_port,
            protocol: self.protocol,
            tcp_flags: [self.tcp_flags, 0],
            packets: [u64::from(self.packets), 0],
            bytes: [u64::from(self.octets), 0],
            icmp: (self.protocol == 1).then_some(self.destination_port),
            input: u32::from(self.input),
            output: u32::from(self.output),
            first_ns: clock.at_uptime(self.first, None).min(last_ns),
            last_ns,
            sampling,
            ..Flow::default()
        }
    }
}

pub(super) fn mapped([a, b, c, d]: [u8; 4]) -> [u8; 16] {
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d]
}

/// Decodes the records of a datagram; records before an error are passed on.
pub(super) fn records(
    header: &Header,
    reader: &mut Reader<'_>,
    sink: &mut dyn FnMut(&Flow),
) -> (u32, Result<(), DecodeError>) {
    let (clock, sampling) = (header.clock(), header.sampling_rate());
    if header.count == 0 || usize::from(header.count) > reader.left() / RECORD_LEN {
        let need = usize::from(header.count.max(1)) * RECORD_LEN;
        let error = reader.error(Problem::CutOff {
            what: "the list of records",
            need,
            have: reader.left(),
        });
        return (0, Err(error));
    }
    for done in 0..u32::from(header.count) {
        match Record::decode(reader) {
            Ok(record) => sink(&record.flow(&clock, sampling)),
            Err(error) => return (done, Err(error)),
        }
    }
    (u32::from(header.count), Ok(()))
}
