//! Keys of lines.

use std::{cmp::Ordering, net::IpAddr};

/// How the server's side was found, best first; by the agent or by the collector.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Rule {
    /// The kernel saw accept or connect.
    Kernel,
    /// A socket listens at its address and port.
    Listening,
    /// The other side sent the SYN.
    Syn,
    /// Only the other side's port is in its host's ephemeral range.
    Ephemeral,
    /// Only its port is below 1024.
    WellKnown,
    /// Unknown: the lower address is the client, and ports are not distinguished.
    Unknown,
}

impl Rule {
    /// By its number on the wire.
    pub(crate) fn of(number: u8) -> Self {
        match number {
            1 => Self::Kernel,
            2 => Self::Listening,
            3 => Self::Syn,
            4 => Self::Ephemeral,
            5 => Self::WellKnown,
            _ => Self::Unknown,
        }
    }

    /// Name in records.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Listening => "listening",
            Self::Syn => "syn",
            Self::Ephemeral => "ephemeral",
            Self::WellKnown => "well-known",
            Self::Unknown => "unknown",
        }
    }
}

/// A service and a client of it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Key {
    /// IP protocol.
    pub protocol: u8,
    /// The client.
    pub client: IpAddr,
    /// The server.
    pub server: IpAddr,
    /// The server's port; 0 without ports, or if the server's side is unknown.
    pub port: u16,
}

/// One side of a conversation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Side {
    pub(crate) address: IpAddr,
    pub(crate) port: u16,
}

/// A key, and which of two sides is the client in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Oriented {
    pub(crate) key: Key,
    /// Whether the first side is the client.
    pub(crate) client_first: bool,
    /// The client's port.
    pub(crate) client_port: u16,
}

impl Oriented {
    /// The key of a conversation between two sides. `serves`: whether the second is the server, none
    /// if unknown.
    pub(crate) fn new(protocol: u8, sides: [Side; 2], serves: Option<bool>) -> Self {
        let [first, second] = sides;
        let client_first = serves.unwrap_or_else(|| first.cmp(&second) != Ordering::Greater);
        let (client, server) = match client_first {
            true => (first, second),
            false => (second, first),
        };
        let port = match serves {
            Some(_) => server.port,
            None => 0,
        };
        Self {
            key: Key {
                protocol,
                client: client.address,
                server: server.address,
                port,
            },
            client_first,
            client_port: client.port,
        }
    }
}
