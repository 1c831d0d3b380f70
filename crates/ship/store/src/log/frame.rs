//! Frames: the units of a log.
//!
//! A header of 56 bytes, little-endian, then the payload:
//!
//! | offset | bytes | |
//! |---|---|---|
//! | 0 | 4 | `SkFr` |
//! | 4 | 1 | kind |
//! | 5 | 1 | 0 as it is, 1 LZ4 block |
//! | 6 | 2 | 0 |
//! | 8 | 4 | bytes of the payload in the file |
//! | 12 | 4 | bytes of the payload unpacked |
//! | 16 | 4 | records in it |
//! | 20 | 4 | CRC-32 (ISO-HDLC) of the payload in the file |
//! | 24 | 8 | records that were written to this log before it |
//! | 32 | 8 | least time that it is about, ms since the Unix epoch |
//! | 40 | 8 | greatest time |
//! | 48 | 4 | 0 |
//! | 52 | 4 | CRC-32 of the 52 bytes before and of the frame's offset (8 bytes), begun with the file's salt |
//!
//! Salt and offset make sure that only frames written at this position of this file are read: no text
//! that resembles a frame, and no old content of the disk's blocks.

use std::{borrow::Cow, ops::ControlFlow};

/// Bytes of a header.
pub const HEADER: usize = 56;
/// Most bytes of a payload, packed and unpacked. Writers stay well below.
pub const MAX_PAYLOAD: usize = 64 << 20;

const MAGIC: [u8; 4] = *b"SkFr";
const PLAIN: u8 = 0;
const LZ4: u8 = 1;
/// Smaller payloads are not compressed.
const WORTH_PACKING: usize = 64;

/// What a frame is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// A part of the graph's state.
    Checkpoint = 1,
    /// Events of the graph.
    Events = 2,
    /// Events of the graph are missing here.
    Gap = 3,
    /// Nothing happened up to this time.
    Alive = 4,
    /// Changes of flows.
    Flows = 16,
    /// Index of a finished file.
    Index = 255,
}

impl Kind {
    fn of(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Self::Checkpoint,
            2 => Self::Events,
            3 => Self::Gap,
            4 => Self::Alive,
            16 => Self::Flows,
            255 => Self::Index,
            _ => return None,
        })
    }
}

/// The header of a frame, and its position.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// What it is; none: made by a later program of the same format, to be passed over.
    pub kind: Option<Kind>,
    packing: u8,
    stored: u32,
    raw: u32,
    /// Records in it.
    pub count: u32,
    payload_crc: u32,
    /// Records before it.
    pub first: u64,
    /// Least time, ms since the Unix epoch.
    pub from: i64,
    /// Greatest time.
    pub to: i64,
}

fn word<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

fn header_crc(head: &[u8], salt: u32, offset: u64) -> u32 {
    let mut crc = crc32fast::Hasher::new_with_initial(salt);
    crc.update(head);
    crc.update(&offset.to_le_bytes());
    crc.finalize()
}

impl Header {
    /// The header at the start of `bytes`, which lie at `offset` of a file with `salt`; none if it is
    /// invalid.
    pub fn read(bytes: &[u8], salt: u32, offset: u64) -> Option<Self> {
        let head = bytes.get(..HEADER)?;
        if head[..4] != MAGIC {
            return None;
        }
        let crc = u32::from_le_bytes(word(head, 52)?);
        if header_crc(&head[..52], salt, offset) != crc {
            return None;
        }
        let header = Self {
            kind: Kind::of(head[4]),
            packing: head[5],
            stored: u32::from_le_bytes(word(head, 8)?),
            raw: u32::from_le_bytes(word(head, 12)?),
            count: u32::from_le_bytes(word(head, 16)?),
            payload_crc: u32::from_le_bytes(word(head, 20)?),
            first: u64::from_le_bytes(word(head, 24)?),
            from: i64::from_le_bytes(word(head, 32)?),
            to: i64::from_le_bytes(word(head, 40)?),
        };
        let fits = header.stored as usize <= MAX_PAYLOAD && header.raw as usize <= MAX_PAYLOAD;
        fits.then_some(header)
    }

    /// Bytes of the frame.
    pub fn size(&self) -> usize {
        HEADER + self.stored as usize
    }

    /// The unpacked payload, from the bytes of the frame; none if it is damaged.
    pub fn payload<'a>(&self, frame: &'a [u8]) -> Option<Cow<'a, [u8]>> {
        let stored = frame.get(HEADER..self.size())?;
        if crc32fast::hash(stored) != self.payload_crc {
            return None;
        }
        match self.packing {
            PLAIN => Some(Cow::Borrowed(stored)),
            LZ4 => {
                let raw = lz4_flex::block::decompress(stored, self.raw as usize).ok()?;
                (raw.len() == self.raw as usize).then_some(Cow::Owned(raw))
            }
            _ => None,
        }
    }
}

/// A frame to write.
pub struct Frame {
    kind: Kind,
    packing: u8,
    raw: u32,
    /// Records in it.
    pub count: u32,
    /// Least time, ms since the Unix epoch.
    pub from: i64,
    /// Greatest time.
    pub to: i64,
    /// Space for the header, then the payload.
    bytes: Vec<u8>,
}

impl Frame {
    /// Packs a payload; none when it is larger than [`MAX_PAYLOAD`].
    pub fn new(kind: Kind, count: u32, (from, to): (i64, i64), payload: &[u8]) -> Option<Self> {
        if payload.len() > MAX_PAYLOAD {
            return None;
        }
        let mut bytes = vec![0; HEADER];
        let packed = (payload.len() >= WORTH_PACKING).then(|| lz4_flex::block::compress(payload));
        let packing = match packed {
            Some(packed) if packed.len() < payload.len() => {
                bytes.extend_from_slice(&packed);
                LZ4
            }
            _ => {
                bytes.extend_from_slice(payload);
                PLAIN
            }
        };
        Some(Self {
            kind,
            packing,
            raw: payload.len() as u32,
            count,
            from,
            to,
            bytes,
        })
    }

    /// Bytes of the frame.
    pub fn size(&self) -> usize {
        self.bytes.len()
    }

    /// The bytes to be written at `offset` of a file with `salt`, when `first` records were written
    /// before.
    pub fn finish(&mut self, first: u64, salt: u32, offset: u64) -> &[u8] {
        let (head, payload) = self.bytes.split_at_mut(HEADER);
        head[..4].copy_from_slice(&MAGIC);
        head[4] = self.kind as u8;
        head[5] = self.packing;
        head[8..12].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        head[12..16].copy_from_slice(&self.raw.to_le_bytes());
        head[16..20].copy_from_slice(&self.count.to_le_bytes());
        head[20..24].copy_from_slice(&crc32fast::hash(payload).to_le_bytes());
        head[24..32].copy_from_slice(&first.to_le_bytes());
        head[32..40].copy_from_slice(&self.from.to_le_bytes());
        head[40..48].copy_from_slice(&self.to.to_le_bytes());
        let crc = header_crc(&head[..52], salt, offset);
        head[52..56].copy_from_slice(&crc.to_le_bytes());
        &self.bytes
    }
}

/// What [`walk`] finds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Item {
    /// A frame, at an offset in the bytes.
    Frame(usize, Header),
    /// Bytes that are no frames, between frames: offset and length.
    Damage(usize, usize),
    /// Bytes that are no frames, at the end: offset and length.
    Torn(usize, usize),
}

/// Visits the frames in `bytes`, which are at `base` in a file with `salt`, and the bytes between
/// them. Payloads are not checked. Returns early when `visit` breaks.
pub fn walk(
    bytes: &[u8],
    salt: u32,
    base: u64,
    mut visit: impl FnMut(Item) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let whole = |at: usize| {
        let header = Header::read(&bytes[at..], salt, base + at as u64)?;
        (at + header.size() <= bytes.len()).then_some(header)
    };
    let mut at = 0;
    while at < bytes.len() {
        if let Some(header) = whole(at) {
            visit(Item::Frame(at, header))?;
            at += header.size();
            continue;
        }
        let next =
            (at + 1..bytes.len()).find(|next| bytes[*next] == MAGIC[0] && whole(*next).is_some());
        let Some(next) = next else {
            return visit(Item::Torn(at, bytes.len() - at));
        };
        visit(Item::Damage(at, next - at))?;
        at = next;
    }
    ControlFlow::Continue(())
}
