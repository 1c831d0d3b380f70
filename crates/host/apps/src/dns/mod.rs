//! DNS over UDP and TCP (RFC 1035, RFC 7766), mDNS (RFC 6762) and LLMNR (RFC 4795).

mod exchange;
mod fields;
mod framing;
mod lookup;
mod message;
mod name;
pub mod numbers;

pub use exchange::{Exchanges, Limits, Place, Sent};
pub use fields::{
    FIELDS, LookupRecord, documentation, json_schema, write_csv_header, write_csv_row,
};
pub use framing::Framing;
pub use lookup::{Answer, Dialect, Lookup, Outcome};
pub use message::{Data, Edns, Fault, HEADER, Message, Question, Resource, flag};
pub use name::MOST_NAME;

/// Port of DNS.
pub const PORT: u16 = 53;
/// Port of mDNS.
pub const PORT_MDNS: u16 = 5353;
/// Port of LLMNR.
pub const PORT_LLMNR: u16 = 5355;

/// Whether a port is that of DNS or one of its dialects.
pub fn is_port(port: u16) -> bool {
    matches!(port, PORT | PORT_MDNS | PORT_LLMNR)
}

/// Whether a message is one of DNS: on its ports what has a question or an answer that can be read, elsewhere what can be
/// nothing else.
pub fn is_message(message: &Message, ports: [u16; 2]) -> bool {
    if !ports.into_iter().any(is_port) {
        return message.is_evident();
    }
    let something = !message.questions.is_empty() || !message.answers().is_empty();
    something || message.is_answer() && message.fault.is_none()
}
