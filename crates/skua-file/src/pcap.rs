//! pcap, draft-ietf-opsawg-pcap, and the variant with longer record headers.

use std::io::Read;

use crate::error::{Failure, Problem};
use crate::input::Input;
use crate::{Found, Interface, LinkType, MAX_PACKET_BYTES, supported, u16_at, u32_at};

const FILE_HEADER: usize = 24;

/// What the magic number tells.
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
    interfaces: [Interface; 1],
}

impl Pcap {
    pub(super) fn start<R: Read>(input: &mut Input<R>, variant: Variant) -> Result<Self, Failure> {
        if !input.ensure(FILE_HEADER)? {
            return Err(Failure::at(0, Problem::HeaderCutOff));
        }
        let big = variant.big;
        let (major, minor) = (u16_at(input.read(4), big), u16_at(input.read(6), big));
        // Before 2.4 the two lengths of a record may stand in either order.
        if major != 2 || minor < 4 {
            let problem = Problem::Version {
                format: "pcap",
                major,
                minor,
                supported: "2.4",
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
            interfaces: [Interface {
                name: None,
                link_type: number,
            }],
        })
    }

    pub(super) fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    /// Whether the whole next record is in the buffer.
    #[inline]
    pub(super) fn has_packet<R>(&self, input: &Input<R>) -> bool {
        let (header, have) = (self.variant.record_header, input.available().len());
        have >= header && {
            let captured = u32_at(input.read(8), self.variant.big) as usize;
            have - header >= captured
        }
    }

    #[inline]
    pub(super) fn next<R: Read>(&mut self, input: &mut Input<R>) -> Result<Option<Found>, Failure> {
        let Variant {
            big,
            ns_per_tick,
            record_header,
        } = self.variant;
        if !input.ensure(record_header)? {
            return match input.available().len() {
                0 => Ok(None),
                have => Err(cut_off(input, have)),
            };
        }
        let header: [u8; 16] = input.read(0);
        let word = |i: usize| {
            u32_at(
                [header[i], header[i + 1], header[i + 2], header[i + 3]],
                big,
            )
        };
        let (seconds, ticks, captured, original) = (word(0), word(4), word(8), word(12));
        if captured > MAX_PACKET_BYTES {
            let problem = Problem::PacketTooLong(captured);
            return Err(Failure::at(input.offset(), problem));
        }
        let total = record_header + captured as usize;
        if !input.ensure(total)? {
            return Err(cut_off(input, input.available().len()));
        }
        let wire_len = original.saturating_sub(self.fcs);
        let data = input.consume(total) + record_header;
        Ok(Some(Found {
            interface: 0,
            link_type: self.link_type,
            timestamp_ns: u64::from(seconds) * 1_000_000_000 + u64::from(ticks) * ns_per_tick,
            data: data..data + captured.min(wire_len) as usize,
            wire_len,
        }))
    }
}

#[cold]
fn cut_off<R>(input: &Input<R>, have: usize) -> Failure {
    Failure::CutOff {
        offset: input.offset(),
        have: have as u64,
    }
}
