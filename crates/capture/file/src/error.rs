//! What may be wrong with a capture file, in one line each.

use std::fmt;
use std::io;

use crate::{MAX_INTERFACES, MAX_PACKET_BYTES};

/// A capture file cannot be read (further).
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It cannot be opened.
    #[error("{file}: {source}")]
    Open {
        /// File name.
        file: Box<str>,
        /// Reason.
        source: io::Error,
    },
    /// Reading failed.
    #[error("{file}: byte {offset}: {source}")]
    Read {
        /// File name.
        file: Box<str>,
        /// Offset of the record that was to be read.
        offset: u64,
        /// Reason.
        source: io::Error,
    },
    /// The contents are wrong or not supported.
    #[error("{file}: byte {offset}: {problem}")]
    Contents {
        /// File name.
        file: Box<str>,
        /// Offset of the record, block or field.
        offset: u64,
        /// What is wrong.
        problem: Problem,
    },
}

/// What is wrong with a capture file.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Problem {
    /// No bytes.
    #[error("the file is empty")]
    Empty,
    /// Fewer bytes than a magic number has.
    #[error("{bytes} bytes are too short for a capture file")]
    TooShort {
        /// Bytes in the file.
        bytes: usize,
    },
    /// Compressed.
    #[error("compressed with {0}; decompress it first, for example: {0} -dc FILE | skua replay -")]
    Compressed(&'static str),
    /// Unknown magic number.
    #[error("neither pcap nor pcapng (starts with {:02x} {:02x} {:02x} {:02x})", .0[0], .0[1], .0[2], .0[3])]
    UnknownFormat([u8; 4]),
    /// A format version that is not supported.
    #[error("{format} version {major}.{minor} is not supported (only {supported})")]
    Version {
        /// pcap or pcapng.
        format: &'static str,
        /// Major version.
        major: u16,
        /// Minor version.
        minor: u16,
        /// What is supported.
        supported: &'static str,
    },
    /// The file header is not all there.
    #[error("the file header is cut off")]
    HeaderCutOff,
    /// A link type that is not decoded.
    #[error(
        "link type {0} is not supported (supported: 1 Ethernet; 101, 228, 229, 12 and 14 raw IP; \
         113 and 276 Linux cooked; 0 and 108 BSD loopback; 105 and 127 IEEE 802.11; 239 NFLOG)"
    )]
    LinkType(u16),
    /// A packet's length is impossible.
    #[error("packet record of {0} bytes exceeds {MAX_PACKET_BYTES}; file is cut off or damaged")]
    PacketTooLong(u32),
    /// A packet exceeds its block.
    #[error(
        "packet of {packet} bytes does not fit into its block of {block} bytes; file is damaged"
    )]
    PacketBeyondBlock {
        /// Captured length in the block.
        packet: u32,
        /// Block length.
        block: u32,
    },
    /// A block's length is impossible.
    #[error(
        "block of {length} bytes is impossible (at least {least}, and a multiple of 4); \
         file is damaged"
    )]
    BlockLength {
        /// The length in its header.
        length: u32,
        /// Least length of a block of its type.
        least: u32,
    },
    /// A block is too long for its type.
    #[error("block of {0} bytes exceeds what a block of its type may have; file is damaged")]
    BlockTooLong(u32),
    /// The length at a block's end is another than the one at its start.
    #[error("the block's lengths differ ({0} at its start, {1} at its end); file is damaged")]
    BlockLengthsDiffer(u32, u32),
    /// The byte-order magic of a section header is wrong.
    #[error("wrong byte-order magic in a section header; file is damaged")]
    ByteOrder,
    /// An option exceeds its block.
    #[error("option {code} of {length} bytes reaches beyond its block; file is damaged")]
    Option {
        /// Option code.
        code: u16,
        /// Option length.
        length: u16,
    },
    /// A packet names an interface that was not described.
    #[error("packet on interface {0}, which the file has not described; file is damaged")]
    UnknownInterface(u32),
    /// Too many interfaces.
    #[error("more than {MAX_INTERFACES} interfaces; file is damaged")]
    TooManyInterfaces,
}

impl Problem {
    pub(super) fn unknown_format(magic: [u8; 4]) -> Self {
        match magic {
            [0x1f, 0x8b, ..] => Self::Compressed("gzip"),
            [0x28, 0xb5, 0x2f, 0xfd] => Self::Compressed("zstd"),
            [0xfd, b'7', b'z', b'X'] => Self::Compressed("xz"),
            [b'B', b'Z', b'h', _] => Self::Compressed("bzip2"),
            [0x04, 0x22, 0x4d, 0x18] => Self::Compressed("lz4"),
            magic => Self::UnknownFormat(magic),
        }
    }
}

/// The last record is cut off, as when the writer was killed; everything before it was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CutOff {
    /// File name.
    pub file: Box<str>,
    /// Offset of the record.
    pub offset: u64,
    /// Bytes that are there of it.
    pub have: u64,
}

impl fmt::Display for CutOff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: byte {}: the last record is cut off after {} bytes; everything before it was read",
            self.file, self.offset, self.have
        )
    }
}

/// A failure before it is known which file it is about.
#[derive(Debug)]
pub(crate) enum Failure {
    Read(io::Error),
    Contents { offset: u64, problem: Problem },
    CutOff { offset: u64, have: u64 },
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Read(error)
    }
}

impl Failure {
    pub(super) fn at(offset: u64, problem: Problem) -> Self {
        Self::Contents { offset, problem }
    }

    /// The error for the user; `offset` is where reading stopped.
    pub(super) fn named(self, file: &str, offset: u64) -> FileError {
        let file = file.into();
        match self {
            Self::Read(source) => FileError::Read {
                file,
                offset,
                source,
            },
            Self::Contents { offset, problem } => FileError::Contents {
                file,
                offset,
                problem,
            },
            Self::CutOff { offset, .. } => FileError::Contents {
                file,
                offset,
                problem: Problem::HeaderCutOff,
            },
        }
    }
}
