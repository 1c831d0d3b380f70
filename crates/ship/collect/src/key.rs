//! What is summed up together.

use std::{cmp::Ordering, net::IpAddr};

/// How the service's side is known, best first; agents tell it, or the collector finds out.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Rule {
    /// Accept or connect was seen in the kernel.
    Kernel,
    /// A socket listens at its address and port.
    Listening,
    /// The other side sent the SYN.
    Syn,
    /// Only the other side's port is in its host's ephemeral range.
    Ephemeral,
    /// Only its port is below 1024.
    WellKnown,
    /// It is not known: the lower address stands as client, and ports are not distinguished.
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

/// A service and who uses it from where.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Key {
    /// IP protocol.
    pub protocol: u8,
    /// Who uses it.
    pub client: IpAddr,
    /// Who offers it.
    pub server: IpAddr,
    /// The service's port; 0 without ports, or when the service's side is not known.
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
    /// Of a conversation between two sides; `serves` says whether the second offers the service, none
    /// when that is not known.
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
