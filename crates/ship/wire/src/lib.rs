//! Formats in which others tell of flows and packets: sFlow version 5, NetFlow versions 5 and 9,
//! IPFIX.
//!
//! Decoders borrow from the datagram and allocate nothing per record; what they keep between
//! datagrams (templates, sequence numbers) is bounded. Hostile bytes give a [`DecodeError`], which
//! says what is wrong and at which byte of the datagram.

mod error;
pub mod netflow;
mod reader;
mod sequence;
pub mod sflow;

pub use error::{DecodeError, Problem};
pub use sequence::{Sequence, Step};
