//! Names of what sockets are, as records show them.

use crate::{End, Opener, Protocol, SocketState, TaskRule};

impl Protocol {
    /// Name in records.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }

    /// The protocol of this name.
    pub fn named(name: &str) -> Option<Self> {
        [Self::Tcp, Self::Udp]
            .into_iter()
            .find(|p| p.name() == name)
    }
}

impl SocketState {
    /// All states.
    pub const ALL: [Self; 13] = [
        Self::Established,
        Self::SynSent,
        Self::SynRecv,
        Self::FinWait1,
        Self::FinWait2,
        Self::TimeWait,
        Self::Close,
        Self::CloseWait,
        Self::LastAck,
        Self::Listen,
        Self::Closing,
        Self::UdpConnected,
        Self::UdpUnconnected,
    ];

    /// Name in records: those of RFC 9293 in lower case.
    pub fn name(self) -> &'static str {
        match self {
            Self::Established => "established",
            Self::SynSent => "syn-sent",
            Self::SynRecv => "syn-received",
            Self::FinWait1 => "fin-wait-1",
            Self::FinWait2 => "fin-wait-2",
            Self::TimeWait => "time-wait",
            Self::Close => "close",
            Self::CloseWait => "close-wait",
            Self::LastAck => "last-ack",
            Self::Listen => "listen",
            Self::Closing => "closing",
            Self::UdpConnected => "connected",
            Self::UdpUnconnected => "unconnected",
        }
    }
}

impl End {
    /// Names of all ends.
    pub fn names() -> [&'static str; 7] {
        [
            Self::Closed,
            Self::ResetLocal,
            Self::ResetRemote,
            Self::Refused,
            Self::TimedOut,
            Self::Error(0),
            Self::Vanished,
        ]
        .map(Self::name)
    }

    /// Name in records.
    pub fn name(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::ResetLocal => "reset-local",
            Self::ResetRemote => "reset-remote",
            Self::Refused => "refused",
            Self::TimedOut => "timed-out",
            Self::Error(_) => "error",
            Self::Vanished => "vanished",
        }
    }
}

impl Opener {
    /// Name in records, none when not known.
    pub fn name(self) -> Option<&'static str> {
        match self {
            Self::Unknown => None,
            Self::Local => Some("local"),
            Self::Remote => Some("remote"),
        }
    }
}

impl TaskRule {
    /// Name in records.
    pub fn name(self) -> &'static str {
        match self {
            Self::Accept => "accept",
            Self::Connect => "connect",
            Self::File => "file",
            Self::Close => "close",
            Self::Send => "send",
            Self::Create => "create",
            Self::Listener => "listener",
            Self::Unknown => "unknown",
        }
    }
}
