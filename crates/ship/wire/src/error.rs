//! Decoding errors.

/// A datagram, or a part of it, cannot be decoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("byte {at}: {problem}")]
pub struct DecodeError {
    /// Offset in the datagram.
    pub at: usize,
    /// The problem there.
    pub problem: Problem,
}

/// Kinds of problems.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Problem {
    /// More bytes are announced or needed than received.
    #[error("{what} needs {need} bytes, {have} are there")]
    CutOff {
        /// The part that is truncated.
        what: &'static str,
        /// Bytes that it needs.
        need: usize,
        /// Bytes received.
        have: usize,
    },
    /// An unsupported version.
    #[error("{protocol} version {version} is not decoded")]
    Version {
        /// The protocol.
        protocol: &'static str,
        /// The datagram's version.
        version: u32,
    },
    /// Neither none, IPv4 nor IPv6.
    #[error("address type {0} is not known")]
    AddressType(u32),
    /// A length that cannot be.
    #[error("{what} cannot have length {length}")]
    Length {
        /// The part.
        what: &'static str,
        /// The length in the datagram.
        length: usize,
    },
    /// A message whose length field differs from its datagram's length.
    #[error("the length field has {stated} bytes, the datagram {have}")]
    MessageLength {
        /// The length field, header included.
        stated: usize,
        /// The bytes received.
        have: usize,
    },
    /// Text that is not UTF-8.
    #[error("{0} is not UTF-8")]
    Text(&'static str),
    /// A template that cannot be used.
    #[error("template {id}: {why}")]
    Template {
        /// Its number.
        id: u16,
        /// Why not.
        why: &'static str,
    },
    /// A limit of the decoder is reached.
    #[error("too many {0} are kept already")]
    TooMany(&'static str),
}
