//! What is wrong with a datagram.

/// A datagram, or a part of it, cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("byte {at}: {problem}")]
pub struct DecodeError {
    /// Offset in the datagram.
    pub at: usize,
    /// What is wrong there.
    pub problem: Problem,
}

/// What is wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Problem {
    /// More bytes are announced or needed than are there.
    #[error("{what} needs {need} bytes, {have} are there")]
    CutOff {
        /// The part that is cut off.
        what: &'static str,
        /// Bytes that it needs.
        need: usize,
        /// Bytes that are there.
        have: usize,
    },
    /// Another version than what is decoded.
    #[error("{protocol} version {version} is not decoded")]
    Version {
        /// The protocol.
        protocol: &'static str,
        /// The version that the datagram says.
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
        /// What it says.
        length: usize,
    },
    /// A message that says another length than its datagram has.
    #[error("the message says {told} bytes, the datagram has {have}")]
    MessageLength {
        /// What it says, its header included.
        told: usize,
        /// What is there.
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
    /// There is no room for what must be kept.
    #[error("too many {0} are kept already")]
    TooMany(&'static str),
}
