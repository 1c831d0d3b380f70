//! Reads capture files, pcap and pcapng, from a file or a pipe; [`PcapNgWriter`] writes pcapng.
//!
//! A streaming reader with a bounded buffer that hands out packets without copying them. Formats:
//! draft-ietf-opsawg-pcap and draft-ietf-opsawg-pcapng. Damage is one error with its byte offset, after
//! which a pcapng reader can resume; a truncated last record (of a writer that was killed) is a warning,
//! and everything before it is kept.
//!
//! Written here and not taken from `pcap-parser`: `skua replay` promises the offset of an error, truncation
//! distinguished from damage, skipping blocks of any length, and link types per interface; and it takes a
//! third of the time per packet (`docs/truth.md` has the numbers).

mod error;
mod input;
mod pcap;
mod pcapng;
mod write;

use std::fs::File;
use std::io::Read;
use std::path::Path;

pub use error::{CutOff, FileError, Problem};
pub use skua_packet::LinkType;
pub use write::{Direction, Outgoing, PcapNgWriter, PcapWriter};

use error::Failure;
use input::Input;

/// Most bytes that one packet may have. Larger lengths mean that the file is damaged.
pub const MAX_PACKET_BYTES: u32 = 1 << 20;

/// Most interfaces that one file may have.
pub const MAX_INTERFACES: usize = 65_536;

/// A packet, borrowed from the reader's buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packet<'a> {
    /// Index in [`CaptureFile::interfaces`].
    pub interface: u32,
    /// How the bytes start.
    pub link_type: LinkType,
    /// Time in ns since the Unix epoch; 0 for pcapng's simple packet blocks, which have none.
    pub timestamp_ns: u64,
    /// The captured bytes, without frame check sequence.
    pub data: &'a [u8],
    /// Length on the wire in bytes, without frame check sequence.
    pub wire_len: u32,
}

/// An interface that the file speaks of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Interface {
    /// Name; pcap has none, in pcapng it is optional.
    pub name: Option<Box<str>>,
    /// LINKTYPE_ number.
    pub link_type: u16,
}

/// The next packet's position in the buffer.
#[derive(Clone, Copy, Debug)]
struct Found {
    interface: u32,
    link_type: LinkType,
    timestamp_ns: u64,
    data: usize,
    len: u32,
    wire_len: u32,
}

impl Found {
    #[inline]
    fn packet<'a>(&self, buffer: &'a [u8]) -> Packet<'a> {
        Packet {
            interface: self.interface,
            link_type: self.link_type,
            timestamp_ns: self.timestamp_ns,
            data: buffer
                .get(self.data..self.data + self.len as usize)
                .unwrap_or_default(),
            wire_len: self.wire_len,
        }
    }
}

enum Reader {
    Pcap(pcap::Pcap),
    PcapNg(pcapng::PcapNg),
}

impl Reader {
    #[inline]
    fn next<R: Read>(&mut self, input: &mut Input<R>) -> Result<Option<Found>, Failure> {
        match self {
            Self::Pcap(pcap) => pcap.next(input),
            Self::PcapNg(pcapng) => pcapng.next(input),
        }
    }

    /// Takes packets that are wholly in the buffer, which does not move, until `found` has `max`.
    fn batch<R: Read>(
        &mut self,
        input: &mut Input<R>,
        max: usize,
        found: &mut Vec<Found>,
    ) -> Result<(), Failure> {
        match self {
            Self::Pcap(pcap) => {
                pcap.batch(input, max, found);
                Ok(())
            }
            Self::PcapNg(pcapng) => pcapng.batch(input, max, found),
        }
    }
}

/// A capture file that is being read.
///
/// ```no_run
/// use skua_file::CaptureFile;
/// let mut file = CaptureFile::open("traffic.pcap".as_ref())?;
/// while let Some(packet) = file.next_packet()? {
///     println!("{} ns, {} bytes", packet.timestamp_ns, packet.wire_len);
/// }
/// if let Some(warning) = file.cut_off() {
///     eprintln!("{warning}");
/// }
/// # Ok::<(), skua_file::FileError>(())
/// ```
pub struct CaptureFile<R> {
    name: Box<str>,
    input: Input<R>,
    reader: Reader,
    cut_off: Option<CutOff>,
    ended: bool,
    /// Packets of the batch that was handed out last; kept to save allocations.
    batch: Vec<Found>,
    /// The error that ended that batch: returned by the next call.
    failure: Option<Failure>,
}

/// Packets that lie in the reader's buffer at the same time.
#[derive(Clone, Debug)]
pub struct Packets<'a> {
    found: std::slice::Iter<'a, Found>,
    bytes: &'a [u8],
}

impl<'a> Iterator for Packets<'a> {
    type Item = Packet<'a>;

    #[inline]
    fn next(&mut self) -> Option<Packet<'a>> {
        let found = self.found.next()?;
        Some(found.packet(self.bytes))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.found.size_hint()
    }
}

impl ExactSizeIterator for Packets<'_> {}

impl CaptureFile<File> {
    /// Opens a file.
    ///
    /// # Errors
    ///
    /// When it cannot be opened or does not start like a capture file that is supported.
    pub fn open(path: &Path) -> Result<Self, FileError> {
        let name = path.display().to_string();
        match File::open(path) {
            Ok(file) => Self::new(&name, file),
            Err(source) => Err(FileError::Open {
                file: name.into(),
                source,
            }),
        }
    }
}

impl<R: Read> CaptureFile<R> {
    /// Reads a capture from anything, for example standard input; `name` is for messages.
    /// The reader needs no buffering of its own.
    ///
    /// # Errors
    ///
    /// When it does not start like a capture file that is supported.
    pub fn new(name: &str, reader: R) -> Result<Self, FileError> {
        let mut input = Input::new(reader);
        let reader = match start(&mut input) {
            Ok(reader) => reader,
            Err(failure) => return Err(failure.named(name, input.offset())),
        };
        Ok(Self {
            name: name.into(),
            input,
            reader,
            cut_off: None,
            ended: false,
            batch: Vec::new(),
            failure: None,
        })
    }

    /// The next packet, none at the end.
    ///
    /// # Errors
    ///
    /// When the file is damaged or cannot be read; after an error there are no more packets.
    #[inline]
    pub fn next_packet(&mut self) -> Result<Option<Packet<'_>>, FileError> {
        Ok(match self.advance()? {
            Some(found) => Some(found.packet(self.input.buffer())),
            None => None,
        })
    }

    /// The next packets, at most `max` (at least one): as many as lie in the buffer. None at the
    /// end. The same packets, errors and warnings as by [`next_packet`](Self::next_packet), but
    /// several packets may be held at once.
    ///
    /// # Errors
    ///
    /// As there. Packets before the damage come first.
    pub fn next_batch(&mut self, max: usize) -> Result<Option<Packets<'_>>, FileError> {
        self.batch.clear();
        let Some(first) = self.advance()? else {
            return Ok(None);
        };
        self.batch.push(first);
        self.failure = self
            .reader
            .batch(&mut self.input, max, &mut self.batch)
            .err();
        Ok(Some(Packets {
            found: self.batch.iter(),
            bytes: self.input.buffer(),
        }))
    }

    #[inline]
    fn advance(&mut self) -> Result<Option<Found>, FileError> {
        if self.ended {
            return Ok(None);
        }
        let found = match self.failure.take() {
            None => self.reader.next(&mut self.input),
            Some(failure) => Err(failure),
        };
        match found {
            Ok(Some(found)) => Ok(Some(found)),
            Ok(None) => {
                self.ended = true;
                Ok(None)
            }
            Err(failure) => self.fail(failure).map(|()| None),
        }
    }

    /// Tries to read on after an error, or after a last record that seems truncated. Returns how many bytes
    /// were skipped; none at the end of the file, and for pcap, whose records cannot be recognized among
    /// other bytes.
    ///
    /// # Errors
    ///
    /// When the file cannot be read.
    pub fn resume(&mut self) -> Result<Option<u64>, FileError> {
        let Reader::PcapNg(reader) = &self.reader else {
            return Ok(None);
        };
        let begin = self.input.offset();
        match reader.resume(&mut self.input) {
            Ok(false) => Ok(None),
            Ok(true) => {
                (self.ended, self.cut_off) = (false, None);
                Ok(Some(self.input.offset() - begin))
            }
            Err(failure) => Err(failure.named(&self.name, self.input.offset())),
        }
    }

    #[cold]
    fn fail(&mut self, failure: Failure) -> Result<(), FileError> {
        self.ended = true;
        match failure {
            Failure::CutOff { offset, have } => {
                self.cut_off = Some(CutOff {
                    file: self.name.clone(),
                    offset,
                    have,
                });
                Ok(())
            }
            failure => Err(failure.named(&self.name, self.input.offset())),
        }
    }

    /// The interfaces met so far; packets name them by index. An interface of a later pcapng
    /// section that has the same name (or, nameless, the same place) and link type as one of an
    /// earlier section is the same.
    pub fn interfaces(&self) -> &[Interface] {
        match &self.reader {
            Reader::Pcap(pcap) => pcap.interfaces(),
            Reader::PcapNg(pcapng) => pcapng.interfaces(),
        }
    }

    /// Byte offset of the record after the last packet.
    pub fn offset(&self) -> u64 {
        self.input.offset()
    }

    /// After the end: whether the last record was cut off, as a line to show.
    pub fn cut_off(&self) -> Option<&CutOff> {
        self.cut_off.as_ref()
    }
}

impl<R> std::fmt::Debug for CaptureFile<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CaptureFile")
            .field("name", &self.name)
            .field("offset", &self.input.offset())
            .finish_non_exhaustive()
    }
}

/// Detects the format by the first bytes.
fn start<R: Read>(input: &mut Input<R>) -> Result<Reader, Failure> {
    if !input.ensure(4)? {
        let problem = match input.available().len() {
            0 => Problem::Empty,
            bytes => Problem::TooShort { bytes },
        };
        return Err(Failure::at(0, problem));
    }
    let magic: [u8; 4] = input.read(0);
    if magic == pcapng::MAGIC {
        return Ok(Reader::PcapNg(pcapng::PcapNg::start(input)?));
    }
    match pcap::Variant::from_magic(magic) {
        Some(variant) => Ok(Reader::Pcap(pcap::Pcap::start(input, variant)?)),
        None => Err(Failure::at(0, Problem::unknown_format(magic))),
    }
}

/// The link type of packets that can be decoded.
fn supported(link_type: u16) -> Option<LinkType> {
    LinkType::from_pcap(u32::from(link_type))
}

fn u16_at(bytes: [u8; 2], big: bool) -> u16 {
    match big {
        true => u16::from_be_bytes(bytes),
        false => u16::from_le_bytes(bytes),
    }
}

#[inline]
fn u32_at(bytes: [u8; 4], big: bool) -> u32 {
    match big {
        true => u32::from_be_bytes(bytes),
        false => u32::from_le_bytes(bytes),
    }
}

fn u64_at(bytes: [u8; 8], big: bool) -> u64 {
    match big {
        true => u64::from_be_bytes(bytes),
        false => u64::from_le_bytes(bytes),
    }
}
