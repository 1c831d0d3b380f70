//! Writing pcap (draft-ietf-opsawg-pcap) and pcapng (draft-ietf-opsawg-pcapng): one section, its interfaces, enhanced
//! packet blocks.

use std::io::{self, Write};

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const ENHANCED_PACKET: u32 = 6;

const BYTE_ORDER: u32 = 0x1a2b_3c4d;
/// The length of the section is not given.
const UNKNOWN_LENGTH: u64 = u64::MAX;

const COMMENT: u16 = 1;
const APPLICATION: u16 = 4;
const IF_NAME: u16 = 2;
const IF_TIMESTAMP_RESOLUTION: u16 = 9;
const PACKET_FLAGS: u16 = 2;

/// Options are at most so long, of a length field of 16 bits.
const MAX_OPTION: usize = 0xffff;

/// Direction of a packet at its interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// Received.
    Inbound,
    /// Sent.
    Outbound,
}

/// A packet to be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outgoing<'a> {
    /// Number of its interface, from [`PcapNgWriter::interface`].
    pub interface: u32,
    /// Time in ns since the Unix epoch.
    pub timestamp_ns: u64,
    /// The captured bytes, without frame check sequence.
    pub data: &'a [u8],
    /// Length on the wire in bytes.
    pub wire_len: u32,
    /// Its direction, if that is known.
    pub direction: Option<Direction>,
    /// Its comment; empty: none.
    pub comment: &'a str,
}

impl<'a> Outgoing<'a> {
    /// A whole packet without further information.
    pub fn new(interface: u32, timestamp_ns: u64, data: &'a [u8]) -> Self {
        Self {
            interface,
            timestamp_ns,
            data,
            wire_len: u32::try_from(data.len()).unwrap_or(u32::MAX),
            direction: None,
            comment: "",
        }
    }
}

/// Writes pcap, little-endian, times in ns, packets of one link type.
///
/// ```
/// use skua_file::PcapWriter;
/// let mut file = PcapWriter::new(Vec::new(), 1)?;
/// file.packet(1_700_000_000_000_000_000, &[0; 60], 60)?;
/// assert_eq!(file.into_inner().len(), 24 + 16 + 60);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct PcapWriter<W> {
    out: W,
}

impl<W: Write> PcapWriter<W> {
    /// Begins a file; `link_type` is a LINKTYPE_ number.
    ///
    /// # Errors
    ///
    /// When it cannot be written.
    pub fn new(mut out: W, link_type: u32) -> io::Result<Self> {
        const MAGIC_NS: u32 = 0xa1b2_3c4d;
        const LONGEST_PACKET: u32 = 262_144;
        let mut header = Vec::with_capacity(24);
        put32(&mut header, MAGIC_NS);
        put16(&mut header, 2);
        put16(&mut header, 4);
        header.extend_from_slice(&[0; 8]);
        put32(&mut header, LONGEST_PACKET);
        put32(&mut header, link_type);
        out.write_all(&header)?;
        Ok(Self { out })
    }

    /// Writes a packet: its time in ns since the Unix epoch, what is kept of it, and its length on the wire.
    ///
    /// # Errors
    ///
    /// When it cannot be written.
    pub fn packet(&mut self, time_ns: u64, data: &[u8], wire_len: u32) -> io::Result<()> {
        const SECOND: u64 = 1_000_000_000;
        let captured = u32::try_from(data.len())
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "packet of 4 GiB"))?;
        let mut header = Vec::with_capacity(16);
        put32(&mut header, (time_ns / SECOND) as u32);
        put32(&mut header, (time_ns % SECOND) as u32);
        put32(&mut header, captured);
        put32(&mut header, wire_len);
        self.out.write_all(&header)?;
        self.out.write_all(data)
    }

    /// Gives back what it wrote to.
    pub fn into_inner(self) -> W {
        self.out
    }
}

/// Writes one section of pcapng, little-endian, times in ns. Each block is written at once, so that
/// a reader at the other end of a pipe never waits for a part of one.
///
/// ```
/// use skua_file::{Outgoing, PcapNgWriter};
/// let mut file = PcapNgWriter::new(Vec::new(), "skua")?;
/// let eth0 = file.interface("eth0", 1, 0)?;
/// file.packet(&Outgoing::new(eth0, 1_700_000_000_000_000_000, &[0; 60]))?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct PcapNgWriter<W> {
    out: W,
    interfaces: u32,
    /// The block that is being made; kept to save allocations.
    block: Vec<u8>,
}

impl<W: Write> PcapNgWriter<W> {
    /// Begins a section; `application` is the writing program.
    ///
    /// # Errors
    ///
    /// When it cannot be written.
    pub fn new(out: W, application: &str) -> io::Result<Self> {
        let mut this = Self {
            out,
            interfaces: 0,
            block: Vec::new(),
        };
        this.block(SECTION_HEADER, |block| {
            put32(block, BYTE_ORDER);
            put16(block, 1);
            put16(block, 0);
            block.extend_from_slice(&UNKNOWN_LENGTH.to_le_bytes());
            if !application.is_empty() {
                option(block, APPLICATION, application.as_bytes());
                end_of_options(block);
            }
        })?;
        Ok(this)
    }

    /// Describes an interface and returns its number. `link_type` is a LINKTYPE_ number;
    /// `snap_length` is the most bytes of a packet, 0 for no limit.
    ///
    /// # Errors
    ///
    /// When it cannot be written.
    pub fn interface(&mut self, name: &str, link_type: u16, snap_length: u32) -> io::Result<u32> {
        self.block(INTERFACE, |block| {
            put16(block, link_type);
            put16(block, 0);
            put32(block, snap_length);
            if !name.is_empty() {
                option(block, IF_NAME, name.as_bytes());
            }
            option(block, IF_TIMESTAMP_RESOLUTION, &[9]);
            end_of_options(block);
        })?;
        let number = self.interfaces;
        self.interfaces += 1;
        Ok(number)
    }

    /// Writes a packet.
    ///
    /// # Errors
    ///
    /// When it cannot be written, or its interface was not described.
    pub fn packet(&mut self, packet: &Outgoing<'_>) -> io::Result<()> {
        if packet.interface >= self.interfaces {
            let text = format!("interface {} was not described", packet.interface);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let captured = u32::try_from(packet.data.len())
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "packet of 4 GiB"))?;
        self.block(ENHANCED_PACKET, |block| {
            put32(block, packet.interface);
            put32(block, (packet.timestamp_ns >> 32) as u32);
            put32(block, packet.timestamp_ns as u32);
            put32(block, captured);
            put32(block, packet.wire_len);
            block.extend_from_slice(packet.data);
            pad(block);
            if !packet.comment.is_empty() {
                option(block, COMMENT, packet.comment.as_bytes());
            }
            if let Some(direction) = packet.direction {
                let flags: u32 = match direction {
                    Direction::Inbound => 1,
                    Direction::Outbound => 2,
                };
                option(block, PACKET_FLAGS, &flags.to_le_bytes());
            }
            if packet.direction.is_some() || !packet.comment.is_empty() {
                end_of_options(block);
            }
        })
    }

    /// Has everything written out that a buffer below holds.
    ///
    /// # Errors
    ///
    /// When it cannot be written.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// What it writes to.
    pub fn get_ref(&self) -> &W {
        &self.out
    }

    /// Returns the writer.
    pub fn into_inner(self) -> W {
        self.out
    }

    fn block(&mut self, kind: u32, body: impl FnOnce(&mut Vec<u8>)) -> io::Result<()> {
        let block = &mut self.block;
        block.clear();
        put32(block, kind);
        put32(block, 0);
        body(block);
        let length = u32::try_from(block.len() + 4)
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "block of 4 GiB"))?;
        put32(block, length);
        block[4..8].copy_from_slice(&length.to_le_bytes());
        self.out.write_all(block)
    }
}

fn put16(block: &mut Vec<u8>, value: u16) {
    block.extend_from_slice(&value.to_le_bytes());
}

fn put32(block: &mut Vec<u8>, value: u32) {
    block.extend_from_slice(&value.to_le_bytes());
}

/// Pads to four bytes. Blocks begin with eight bytes, so the buffer's length decides.
fn pad(block: &mut Vec<u8>) {
    block.resize(block.len().next_multiple_of(4), 0);
}

fn option(block: &mut Vec<u8>, code: u16, value: &[u8]) {
    let value = &value[..value.len().min(MAX_OPTION)];
    put16(block, code);
    put16(block, value.len() as u16);
    block.extend_from_slice(value);
    pad(block);
}

fn end_of_options(block: &mut Vec<u8>) {
    put32(block, 0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CaptureFile;

    #[test]
    fn what_is_written_is_read() {
        let mut out = PcapNgWriter::new(Vec::new(), "skua test").unwrap();
        let names = [("eth0", 1), ("tun0", 101)];
        for (number, (name, link)) in names.into_iter().enumerate() {
            assert_eq!(out.interface(name, link, 0).unwrap(), number as u32);
        }
        let data: Vec<u8> = (0..=255).collect();
        let packets: Vec<Outgoing<'_>> = (0..200)
            .map(|i| Outgoing {
                wire_len: 1_000 + i as u32,
                direction: [None, Some(Direction::Inbound), Some(Direction::Outbound)][i % 3],
                comment: ["", "a", "ünf", "abcd"][i % 4],
                ..Outgoing::new(i as u32 % 2, u64::MAX / 3 + i as u64, &data[..i])
            })
            .collect();
        for packet in &packets {
            out.packet(packet).unwrap();
        }
        let bytes = out.into_inner();
        let mut file = CaptureFile::new("x", &bytes[..]).unwrap();
        for packet in &packets {
            let read = file.next_packet().unwrap().unwrap();
            assert_eq!(read.interface, packet.interface);
            assert_eq!(read.timestamp_ns, packet.timestamp_ns);
            assert_eq!((read.data, read.wire_len), (packet.data, packet.wire_len));
        }
        assert_eq!(file.next_packet().unwrap(), None);
        assert_eq!(file.offset(), bytes.len() as u64);
        let read = file.interfaces().iter();
        let read: Vec<_> = read
            .map(|i| (i.name.as_deref().unwrap(), i.link_type))
            .collect();
        assert_eq!(read, names);
    }

    #[test]
    fn golden_blocks() {
        let mut out = PcapNgWriter::new(Vec::new(), "").unwrap();
        out.interface("lo", 1, 0x1000).unwrap();
        out.packet(&Outgoing {
            direction: Some(Direction::Outbound),
            comment: "hi",
            ..Outgoing::new(0, 0x0102_0304_0506_0708, &[0xaa])
        })
        .unwrap();
        let mut golden = vec![0x0a, 0x0d, 0x0d, 0x0a, 28, 0, 0, 0, 0x4d, 0x3c, 0x2b, 0x1a];
        golden.extend([1, 0, 0, 0]);
        golden.extend([0xff; 8]);
        golden.extend([28, 0, 0, 0]);
        golden.extend([1, 0, 0, 0, 40, 0, 0, 0, 1, 0, 0, 0, 0, 0x10, 0, 0]);
        golden.extend([
            2, 0, 2, 0, b'l', b'o', 0, 0, 9, 0, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0,
        ]);
        golden.extend([40, 0, 0, 0]);
        golden.extend([6, 0, 0, 0, 56, 0, 0, 0, 0, 0, 0, 0]);
        golden.extend([
            4, 3, 2, 1, 8, 7, 6, 5, 1, 0, 0, 0, 1, 0, 0, 0, 0xaa, 0, 0, 0,
        ]);
        golden.extend([
            1, 0, 2, 0, b'h', b'i', 0, 0, 2, 0, 4, 0, 2, 0, 0, 0, 0, 0, 0, 0,
        ]);
        golden.extend([56, 0, 0, 0]);
        assert_eq!(out.into_inner(), golden);
    }

    #[test]
    fn unknown_interfaces_are_refused() {
        let mut out = PcapNgWriter::new(Vec::new(), "x").unwrap();
        assert!(out.packet(&Outgoing::new(0, 0, &[])).is_err());
    }
}
