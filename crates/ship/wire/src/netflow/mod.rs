//! NetFlow versions 5 and 9 (RFC 3954) and IPFIX (RFC 7011), as they come over UDP.
//!
//! [`Decoder`] takes datagrams of any exporter and version and yields [`Flow`]s. It keeps, for each
//! exporter's address, port, version and observation domain, templates, sampling rates and sequence
//! numbers, all within [`Limits`]. Data that comes before its template is held for a short while.

mod clock;
mod decoder;
mod element;
mod flow;
mod hold;
mod options;
mod packet;
mod session;
mod template;
pub mod v5;

/// Whether a datagram says that it is of a version that is read here; those of sFlow do not.
pub fn is_netflow(datagram: &[u8]) -> bool {
    matches!(datagram, [0, 5 | 9 | 10, ..])
}

pub use clock::Clock;
pub use decoder::{Decoder, Limits, Outcome, SetCount};
pub use flow::{Family, Flow, Section, Sink};
