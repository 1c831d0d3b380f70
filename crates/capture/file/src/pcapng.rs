//! pcapng, draft-ietf-opsawg-pcapng: sections, interfaces and packets; all else is stepped over.

mod clock;
mod options;

use std::collections::HashMap;
use std::io::Read;

use crate::error::{Failure, Problem};
use crate::input::Input;
use crate::{
    Found, Interface, LinkType, MAX_INTERFACES, MAX_PACKET_BYTES, supported, u16_at, u32_at,
};
use clock::Clock;

/// Block type of a section header, the same in both byte orders.
pub(super) const MAGIC: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const OBSOLETE_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const NAMES: u32 = 4;
const STATISTICS: u32 = 5;
const ENHANCED_PACKET: u32 = 6;

/// Type, two lengths.
const FRAME: u32 = 12;
/// An enhanced packet block up to the packet's bytes.
const PACKET_HEADER: u32 = 28;
/// Longest block that must be read whole: a packet and space for options.
const MAX_BLOCK: u32 = MAX_PACKET_BYTES + (1 << 20);

/// An interface as the current section numbers it.
struct Local {
    /// Index in the file's list.
    index: u32,
    number: u16,
    link_type: Option<LinkType>,
    snap_length: u32,
    clock: Clock,
    fcs: u32,
}

/// What makes interfaces of two sections the same: name or place, and link type.
type Identity = (Result<Box<str>, usize>, u16);

pub(super) struct PcapNg {
    big: bool,
    section: Vec<Local>,
    interfaces: Vec<Interface>,
    /// Index in `interfaces`, and the number of the section that used it last.
    known: HashMap<Identity, (u32, u64)>,
    section_number: u64,
}

impl PcapNg {
    pub(super) fn start<R: Read>(input: &mut Input<R>) -> Result<Self, Failure> {
        let mut this = Self {
            big: false,
            section: Vec::new(),
            interfaces: Vec::new(),
            known: HashMap::new(),
            section_number: 0,
        };
        this.section_header(input)?;
        Ok(this)
    }

    pub(super) fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    /// Whether the next block is one of a packet and wholly in the buffer.
    #[inline]
    fn has_packet<R>(&self, input: &Input<R>) -> bool {
        let have = input.available().len();
        let kind = u32_at(input.read(0), self.big);
        have >= FRAME as usize
            && matches!(kind, ENHANCED_PACKET | OBSOLETE_PACKET | SIMPLE_PACKET)
            && have >= u32_at(input.read(4), self.big) as usize
    }

    /// Takes packets that are wholly in the buffer, until `found` has `max` or one is not as it
    /// should be.
    ///
    /// # Errors
    ///
    /// What stopped it: packets before were found all the same.
    pub(super) fn batch<R: Read>(
        &mut self,
        input: &mut Input<R>,
        max: usize,
        found: &mut Vec<Found>,
    ) -> Result<(), Failure> {
        while found.len() < max {
            self.enhanced(input, max, found);
            if found.len() >= max || !self.has_packet(input) {
                break;
            }
            match self.next(input)? {
                Some(packet) => found.push(packet),
                None => break,
            }
        }
        Ok(())
    }

    /// Takes enhanced packet blocks, of which files mostly consist. What is not as it should be is
    /// left to [`PcapNg::next`], which says what is wrong.
    fn enhanced<R>(&self, input: &mut Input<R>, max: usize, found: &mut Vec<Found>) {
        let (start, bytes, big) = (input.position(), input.available(), self.big);
        let mut at = 0;
        while found.len() < max {
            let rest = &bytes[at..];
            let Some(block) = rest.first_chunk().map(|header| Enhanced::read(header, big)) else {
                break;
            };
            let Some(room) = block.length.checked_sub(PACKET_HEADER + 4) else {
                break;
            };
            let Some(again) = rest.get(block.length as usize - 4..block.length as usize) else {
                break;
            };
            let same = again.first_chunk().map(|again| u32_at(*again, big)) == Some(block.length);
            let whole = block.kind == ENHANCED_PACKET
                && block.length.is_multiple_of(4)
                && block.length <= MAX_BLOCK
                && block.captured <= room
                && same;
            let local = self.section.get(block.interface as usize);
            let (true, Some(local)) = (whole, local) else {
                break;
            };
            let Some(link_type) = local.link_type else {
                break;
            };
            found.push(block.found(local, link_type, start + at + PACKET_HEADER as usize));
            at += block.length as usize;
        }
        input.consume(at);
    }

    #[inline]
    pub(super) fn next<R: Read>(&mut self, input: &mut Input<R>) -> Result<Option<Found>, Failure> {
        loop {
            if !input.ensure(FRAME as usize)? {
                return match input.available().len() {
                    0 => Ok(None),
                    have => Err(cut_off(input.offset(), have as u64)),
                };
            }
            let kind = u32_at(input.read(0), self.big);
            match kind {
                ENHANCED_PACKET | OBSOLETE_PACKET => {
                    return self.packet(input, kind).map(Some);
                }
                SIMPLE_PACKET => return self.simple_packet(input).map(Some),
                SECTION_HEADER => self.section_header(input)?,
                INTERFACE => self.interface(input)?,
                _ => {
                    let length = self.block_length(input, FRAME)?;
                    self.step_over(input, length)?;
                }
            }
        }
    }

    /// Searches for the next readable block after damage, by its type and its two equal lengths; false at
    /// the end. Skips at least one byte.
    pub(super) fn resume<R: Read>(&self, input: &mut Input<R>) -> Result<bool, Failure> {
        input.skip(1)?;
        while input.ensure(FRAME as usize)? {
            let window = input.available().windows(8);
            let next = window.clone().position(|head| self.may_begin(head));
            let Some(at) = next else {
                // The last bytes may be the start of one.
                input.consume(window.len());
                continue;
            };
            input.consume(at);
            if self.whole_block(input, FRAME).is_ok() && self.has_room(input) {
                return Ok(true);
            }
            input.consume(1);
        }
        Ok(false)
    }

    /// Whether a searched block may begin with these bytes.
    fn may_begin(&self, head: &[u8]) -> bool {
        const KINDS: [u32; 6] = [
            INTERFACE,
            OBSOLETE_PACKET,
            SIMPLE_PACKET,
            NAMES,
            STATISTICS,
            ENHANCED_PACKET,
        ];
        let word = |at: usize| head.get(at..).and_then(<[u8]>::first_chunk).copied();
        let (Some(kind), Some(length)) = (word(0), word(4)) else {
            return false;
        };
        let length = u32_at(length, self.big);
        let fits = (FRAME..=MAX_BLOCK).contains(&length) && length.is_multiple_of(4);
        fits && (KINDS.contains(&u32_at(kind, self.big)) || kind == MAGIC)
    }

    /// Whether a packet, if the block that starts here has one, is of an interface that is known and fits into it.
    fn has_room<R>(&self, input: &Input<R>) -> bool {
        let block = Enhanced::read(&input.read(0), self.big);
        block.kind != ENHANCED_PACKET
            || (self.section.len() > block.interface as usize
                && block.captured <= block.original
                && block.length >= PACKET_HEADER + 4
                && block.captured <= block.length - PACKET_HEADER - 4)
    }

    /// Length of the block that starts here.
    #[inline]
    fn block_length<R>(&self, input: &Input<R>, least: u32) -> Result<u32, Failure> {
        let length = u32_at(input.read(4), self.big);
        if length < least || !length.is_multiple_of(4) {
            let problem = Problem::BlockLength { length, least };
            return Err(Failure::at(input.offset(), problem));
        }
        Ok(length)
    }

    /// Makes the whole block that starts here available and compares its two lengths.
    #[inline]
    fn whole_block<R: Read>(&self, input: &mut Input<R>, least: u32) -> Result<u32, Failure> {
        let length = self.block_length(input, least)?;
        if length > MAX_BLOCK {
            return Err(Failure::at(input.offset(), Problem::BlockTooLong(length)));
        }
        if !input.ensure(length as usize)? {
            return Err(cut_off(input.offset(), input.available().len() as u64));
        }
        let again = u32_at(input.read(length as usize - 4), self.big);
        if again != length {
            let problem = Problem::BlockLengthsDiffer(length, again);
            return Err(Failure::at(input.offset(), problem));
        }
        Ok(length)
    }

    /// Steps over a block of any length without holding it.
    fn step_over<R: Read>(&self, input: &mut Input<R>, length: u32) -> Result<(), Failure> {
        let offset = input.offset();
        let had = input.skip(u64::from(length) - 4)?;
        if !input.ensure(4)? {
            return Err(cut_off(offset, had + input.available().len() as u64));
        }
        let again = u32_at(input.read(0), self.big);
        if again != length {
            let problem = Problem::BlockLengthsDiffer(length, again);
            return Err(Failure::at(offset, problem));
        }
        input.consume(4);
        Ok(())
    }

    fn section_header<R: Read>(&mut self, input: &mut Input<R>) -> Result<(), Failure> {
        const LEAST: u32 = 28;
        let offset = input.offset();
        if !input.ensure(LEAST as usize)? {
            return Err(cut_off(offset, input.available().len() as u64));
        }
        self.big = match input.read(8) {
            [0x4d, 0x3c, 0x2b, 0x1a] => false,
            [0x1a, 0x2b, 0x3c, 0x4d] => true,
            _ => return Err(Failure::at(offset, Problem::ByteOrder)),
        };
        let length = self.block_length(input, LEAST)?;
        let (major, minor) = (
            u16_at(input.read(12), self.big),
            u16_at(input.read(14), self.big),
        );
        if major != 1 {
            let problem = Problem::Version {
                format: "pcapng",
                major,
                minor,
                supported: "1",
            };
            return Err(Failure::at(offset, problem));
        }
        self.section.clear();
        self.section_number += 1;
        self.step_over(input, length)
    }

    fn interface<R: Read>(&mut self, input: &mut Input<R>) -> Result<(), Failure> {
        let offset = input.offset();
        let length = self.whole_block(input, FRAME + 8)? as usize;
        let number = u16_at(input.read(8), self.big);
        let body = &input.available()[16..length - 4];
        let described = options::interface(body, self.big, number)
            .map_err(|problem| Failure::at(offset, problem))?;
        if self.section.len() >= MAX_INTERFACES {
            return Err(Failure::at(offset, Problem::TooManyInterfaces));
        }
        let index = self
            .index_of(described.interface)
            .ok_or(Failure::at(offset, Problem::TooManyInterfaces))?;
        self.section.push(Local {
            index,
            number,
            link_type: supported(number),
            snap_length: u32_at(input.read(12), self.big),
            clock: described.clock,
            fcs: described.fcs,
        });
        input.consume(length);
        Ok(())
    }

    /// Place of an interface in the file's list, which it is added to when new; none when the list
    /// is full.
    fn index_of(&mut self, interface: Interface) -> Option<u32> {
        let place = self.section.len();
        let identity = (interface.name.clone().ok_or(place), interface.link_type);
        // Two equal ones of one section stay two.
        if let Some((index, section)) = self.known.get_mut(&identity)
            && *section != self.section_number
        {
            *section = self.section_number;
            return Some(*index);
        }
        if self.interfaces.len() >= MAX_INTERFACES {
            return None;
        }
        let index = self.interfaces.len() as u32;
        self.interfaces.push(interface);
        let used = (index, self.section_number);
        self.known.entry(identity).or_insert(used);
        Some(index)
    }

    #[inline]
    fn local<R>(&self, input: &Input<R>, id: u32) -> Result<(&Local, LinkType), Failure> {
        let Some(local) = self.section.get(id as usize) else {
            return Err(Failure::at(input.offset(), Problem::UnknownInterface(id)));
        };
        match local.link_type {
            Some(link_type) => Ok((local, link_type)),
            None => Err(Failure::at(input.offset(), Problem::LinkType(local.number))),
        }
    }

    #[inline]
    fn packet<R: Read>(&self, input: &mut Input<R>, kind: u32) -> Result<Found, Failure> {
        let length = self.whole_block(input, PACKET_HEADER + 4)?;
        let mut block = Enhanced::read(&input.read(0), self.big);
        if kind == OBSOLETE_PACKET {
            let [a, b] = input.read(8);
            block.interface = u32::from(u16_at([a, b], self.big));
        }
        let (local, link_type) = self.local(input, block.interface)?;
        if block.captured > length - PACKET_HEADER - 4 {
            return Err(beyond_block(input.offset(), block.captured, length));
        }
        let data = input.consume(length as usize) + PACKET_HEADER as usize;
        Ok(block.found(local, link_type, data))
    }

    fn simple_packet<R: Read>(&self, input: &mut Input<R>) -> Result<Found, Failure> {
        const HEADER: u32 = 12;
        let length = self.whole_block(input, HEADER + 4)?;
        let original = u32_at(input.read(8), self.big);
        let (local, link_type) = self.local(input, 0)?;
        let captured = match local.snap_length {
            0 => original,
            snap_length => original.min(snap_length),
        };
        if captured > length - HEADER - 4 {
            return Err(beyond_block(input.offset(), captured, length));
        }
        let wire_len = original.saturating_sub(local.fcs);
        let data = input.consume(length as usize) + HEADER as usize;
        Ok(Found {
            interface: local.index,
            link_type,
            timestamp_ns: 0,
            data,
            len: captured.min(wire_len),
            wire_len,
        })
    }
}

/// What stands before the bytes of an enhanced packet block; the obsolete packet block differs in
/// the interface only, which has 16 bits there.
struct Enhanced {
    kind: u32,
    length: u32,
    interface: u32,
    ticks: u64,
    captured: u32,
    original: u32,
}

impl Enhanced {
    #[inline]
    fn read(header: &[u8; PACKET_HEADER as usize], big: bool) -> Self {
        let word = |i: usize| {
            u32_at(
                [header[i], header[i + 1], header[i + 2], header[i + 3]],
                big,
            )
        };
        Self {
            kind: word(0),
            length: word(4),
            interface: word(8),
            ticks: u64::from(word(12)) << 32 | u64::from(word(16)),
            captured: word(20),
            original: word(24),
        }
    }

    /// The packet, whose bytes begin at `data` in the buffer.
    #[inline]
    fn found(&self, local: &Local, link_type: LinkType, data: usize) -> Found {
        let wire_len = self.original.saturating_sub(local.fcs);
        Found {
            interface: local.index,
            link_type,
            timestamp_ns: local.clock.ns(self.ticks),
            data,
            len: self.captured.min(wire_len),
            wire_len,
        }
    }
}

#[cold]
fn cut_off(offset: u64, have: u64) -> Failure {
    Failure::CutOff { offset, have }
}

#[cold]
fn beyond_block(offset: u64, packet: u32, block: u32) -> Failure {
    Failure::at(offset, Problem::PacketBeyondBlock { packet, block })
}
