//! Protocols of flow and packet export: sFlow version 5, NetFlow versions 5 and 9, IPFIX.
//!
//! Decoders borrow from the datagram and allocate nothing per record; their state between datagrams
//! (templates, sequence numbers) is bounded. Malformed bytes give a [`DecodeError`] with the
//! problem and its offset in the datagram.

mod error;
pub mod netflow;
mod reader;
mod sequence;
pub mod sflow;

pub use error::{DecodeError, Problem};
pub use sequence::{Sequence, Step};
