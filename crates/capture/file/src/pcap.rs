//! pcap, draft-ietf-opsawg-pcap, and the variant with longer record headers.

use std::io::Read;

use crate::error::{Failure, Problem};
use crate::input::Input;
use crate::{Found, Interface, LinkType, MAX_PACKET_BYTES, supported, u16_at, u32_at};

const FILE_HEADER: usize = 24;

/// What the magic number says.
#[derive(Clone, Copy)]
pub(super) struct Variant {
    big: bool,
    ns_per_tick: u64,
    record_header: usize,
}

impl Variant {
    pub(super) fn from_magic(magic: [u8; 4]) -> Option<Self> {
        let variant = |big| {
            let (ns_per_tick, record_header) = match u32_at(magic, big) {
                0xa1b2_c3d4 => (1000, 16),
                0xa1b2_3c4d => (1, 16),
                // Kuznetzov's patched libpcap: interface index, protocol and packet type follow.
                0xa1b2_cd34 => (1000, 24),
                _ => return None,
            };
            Some(Self {
                big,
                ns_per_tick,
                record_header,
            })
        };
        variant(false).or_else(|| variant(true))
    }
}

pub(super) struct Pcap {
    variant: Variant,
    link_type: LinkType,
    /// Bytes of frame check sequence at each packet's end.
    fcs: u32,
    /// How the two lengths of a record stand.
    lengths: Lengths,
    interfaces: [Interface; 1],
}

/// Before version 2.3 the length on the wire stood before that in the file; writers of 2.3 did either.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lengths {
    /// As since 2.4.
    CapturedFirst,
    /// As before 2.3.
    OriginalFirst,
    /// 2.3: the smaller one is the length in the file, for nothing can be captured that was not there.
    SmallerCaptured,
}

impl Pcap {
    pub(super) fn start<R: Read>(input: &mut Input<R>, variant: Variant) -> Result<Self, Failure> {
        if !input.ensure(FILE_HEADER)? {
            return Err(Failure::at(0, Problem::HeaderCutOff));
        }
        let big = variant.big;
        let (major, minor) = (u16_at(input.read(4), big), u16_at(input.read(6), big));
        let lengths = match minor {
            ..3 => Lengths::OriginalFirst,
            3 => Lengths::SmallerCaptured,
            4.. => Lengths::CapturedFirst,
        };
        if major != 2 {
            let problem = Problem::Version {
                format: "pcap",
                major,
                minor,
                supported: "2.x",
            };
            return Err(Failure::at(4, problem));
        }
        let network = u32_at(input.read(20), big);
        let number = network as u16;
        let Some(link_type) = supported(number) else {
            return Err(Failure::at(20, Problem::LinkType(number)));
        };
        // Bit 26: the length of the FCS, in units of 16 bits, is in the highest four bits.
        let fcs = match network & 1 << 26 {
            0 => 0,
            _ => (network >> 28) * 2,
        };
        input.consume(FILE_HEADER);
        Ok(Self {
            variant,
            link_type,
            fcs,
            lengths,
            interfaces: [Interface {
                name: None,
                link_type: number,
            }],
        })
    }

    pub(super) fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    /// Takes records that are wholly in the buffer, until `found` has `max` or one is not as it
    /// should be.
    pub(super) fn batch<R>(&self, input: &mut Input<R>, max: usize, found: &mut Vec<Found>) {
        // Old files are rare: their records are taken one by one.
        if self.lengths != Lengths::CapturedFirst {
            return;
        }
        match self.variant.big {
            false => self.batch_of::<false, R>(input, max, found),
            true => self.batch_of::<true, R>(input, max, found),
        }
    }

    fn batch_of<const BIG: bool, R>(
        &self,
        input: &mut Input<R>,
        max: usize,
        found: &mut Vec<Found>,
    ) {
        let record_header = self.variant.record_header;
        let (start, bytes) = (input.position(), input.available());
        let mut at = 0;
        while found.len() < max {
            let rest = &bytes[at..];
            let Some(header) = rest.first_chunk() else {
                break;
            };
            let record = Record::read(header, BIG);
            let total = record_header + record.captured as usize;
            if record.captured > MAX_PACKET_BYTES || rest.len() < total {
                break;
            }
            found.push(self.found(&record, start + at + record_header));
            at += total;
        }
        input.consume(at);
    }

    /// A record whose bytes begin at `data` in the buffer.
    #[inline]
    fn found(&self, record: &Record, data: usize) -> Found {
        let wire_len = record.original.saturating_sub(self.fcs);
        Found {
            interface: 0,
            link_type: self.link_type,
            timestamp_ns: u64::from(record.seconds) * 1_000_000_000
                + u64::from(record.ticks) * self.variant.ns_per_tick,
            data,
            len: record.captured.min(wire_len),
            wire_len,
        }
    }

    #[inline]
    pub(super) fn next<R: Read>(&mut self, input: &mut Input<R>) -> Result<Option<Found>, Failure> {
        let Variant {
            big, record_header, ..
        } = self.variant;
        if !input.ensure(record_header)? {
            return match input.available().len() {
                0 => Ok(None),
                have => Err(cut_off(input, have)),
            };
        }
        let record = Record::read(&input.read(0), big).ordered(self.lengths);
        let captured = record.captured;
        if captured > MAX_PACKET_BYTES {
            let problem = Problem::PacketTooLong(captured);
            return Err(Failure::at(input.offset(), problem));
        }
        let total = record_header + captured as usize;
        if !input.ensure(total)? {
            return Err(cut_off(input, input.available().len()));
        }
        let data = input.consume(total) + record_header;
        Ok(Some(self.found(&record, data)))
    }
}

/// What all variants have before each packet.
struct Record {
    seconds: u32,
    ticks: u32,
    captured: u32,
    original: u32,
}

impl Record {
    #[inline]
    fn ordered(self, lengths: Lengths) -> Self {
        let swapped = match lengths {
            Lengths::CapturedFirst => false,
            Lengths::OriginalFirst => true,
            Lengths::SmallerCaptured => self.captured > self.original,
        };
        if !swapped {
            return self;
        }
        Self {
            captured: self.original,
            original: self.captured,
            ..self
        }
    }

    #[inline]
    fn read(header: &[u8; 16], big: bool) -> Self {
        let word = |i: usize| {
            let bytes = [header[i], header[i + 1], header[i + 2], header[i + 3]];
            u32_at(bytes, big)
        };
        Self {
            seconds: word(0),
            ticks: word(4),
            captured: word(8),
            original: word(12),
        }
    }
}

#[cold]
fn cut_off<R>(input: &Input<R>, have: usize) -> Failure {
    Failure::CutOff {
        offset: input.offset(),
        have: have as u64,
    }
}
