//! NetFlow versions 5 and 9 (RFC 3954) and IPFIX (RFC 7011) over UDP.
//!
//! [`Decoder`] reads datagrams of any exporter and version and yields [`Flow`]s. For each
//! exporter's address, port, version and observation domain it stores templates, sampling rates and
//! sequence numbers, all within [`Limits`]. Data that arrives before its template is held for a
//! short time.

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

/// Whether a datagram has a supported version number; sFlow's differ.
pub fn is_netflow(datagram: &[u8]) -> bool {
    matches!(datagram, [0, 5 | 9 | 10, ..])
}

pub use clock::Clock;
pub use decoder::{Decoder, Limits, Outcome, SetCount};
pub use flow::{Family, Flow, Section, Sink};
