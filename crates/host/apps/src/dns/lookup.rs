//! A question and its answer, as one record.

use std::net::SocketAddr;

use super::{Data, Message, PORT_LLMNR, PORT_MDNS, Resource, numbers};

/// Answers that a record keeps.
const MOST_ANSWERS: usize = 32;
/// Bytes of an answer's text.
const MOST_TEXT: usize = 512;

/// Which of the protocols with DNS's messages.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Dialect {
    /// DNS itself.
    #[default]
    Dns,
    /// Multicast DNS.
    Mdns,
    /// Link-local multicast name resolution.
    Llmnr,
}

impl Dialect {
    /// By the ports of a message.
    pub fn of(ports: [u16; 2]) -> Self {
        if ports.contains(&PORT_MDNS) {
            Self::Mdns
        } else if ports.contains(&PORT_LLMNR) {
            Self::Llmnr
        } else {
            Self::Dns
        }
    }

    /// Name in records.
    pub fn name(self) -> &'static str {
        match self {
            Self::Dns => "dns",
            Self::Mdns => "mdns",
            Self::Llmnr => "llmnr",
        }
    }
}

/// What became of a question.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Outcome {
    /// It was answered, perhaps with an error.
    Answered,
    /// No answer came in time.
    Timeout,
    /// The question of this answer was not seen.
    Unasked,
    /// Nobody asked, and nobody needs to: an announcement of mDNS.
    Announced,
    /// Watching ended before an answer could come, or too many questions were open.
    #[default]
    Open,
}

impl Outcome {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Answered,
        Self::Timeout,
        Self::Unasked,
        Self::Announced,
        Self::Open,
    ];

    /// Name in records.
    pub fn name(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Timeout => "timeout",
            Self::Unasked => "unasked",
            Self::Announced => "announced",
            Self::Open => "open",
        }
    }
}

/// A record of an answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    /// Type.
    pub kind: u16,
    /// Time to live in seconds.
    pub ttl: u32,
    /// What it says, as in a zone file.
    pub data: String,
}

/// A question and its answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lookup {
    /// When the question was first seen, or the answer without one, ns since the Unix epoch.
    pub time_ns: u64,
    /// Number of the network namespace where it was first seen.
    pub netns: u16,
    /// The interface there.
    pub ifindex: u32,
    /// Dialect.
    pub dialect: Dialect,
    /// Over TCP.
    pub tcp: bool,
    /// Who asks.
    pub client: SocketAddr,
    /// Who is asked; who answered, when a group was asked.
    pub server: SocketAddr,
    /// Identifier.
    pub id: u16,
    /// Opcode.
    pub opcode: u8,
    /// Name that is asked for, as it was sent.
    pub name: String,
    /// Type.
    pub kind: u16,
    /// Class.
    pub class: u16,
    /// What became of it.
    pub outcome: Outcome,
    /// Code of the answer.
    pub code: Option<u16>,
    /// Header flags of the answer.
    pub flags: u16,
    /// Answers, not more than 32.
    pub answers: Vec<Answer>,
    /// How many there were.
    pub answer_count: u16,
    /// From the first question to the answer, ns.
    pub latency_ns: Option<u64>,
    /// How often the same question was sent again.
    pub retries: u32,
    /// It asks again over TCP, since the answer over UDP was truncated.
    pub after_truncation: bool,
    /// Octets of a UDP answer that the client takes (EDNS); 0 without.
    pub udp_size: u16,
    /// Bytes of the question's and the answer's message.
    pub bytes: [u32; 2],
    /// The message was captured or sent in part: answers may be missing.
    pub cut: bool,
}

impl Lookup {
    /// Adds what an answer says.
    pub(super) fn answer(&mut self, message: &Message, bytes: u32) {
        self.code = Some(message.code());
        self.flags = message.flags;
        self.bytes[1] = bytes;
        self.cut |= message.fault.is_some();
        self.answer_count = message.counts[1];
        self.answers = message
            .answers()
            .iter()
            .take(MOST_ANSWERS)
            .map(answer)
            .collect();
    }

    /// With no more of the name than its last two labels, and without answers.
    pub fn redacted(mut self) -> Self {
        self.name = crate::redacted(&self.name);
        self.answers.clear();
        self
    }

    /// The least time to live of the answers, in seconds.
    pub fn ttl(&self) -> Option<u32> {
        self.answers.iter().map(|answer| answer.ttl).min()
    }

    /// Whether it did what the client wanted: an answer without an error.
    pub fn succeeded(&self) -> bool {
        self.code == Some(0)
    }
}

fn answer(record: &Resource) -> Answer {
    let mut data = match &record.data {
        Data::Address(address) => address.to_string(),
        other => other.to_string(),
    };
    if data.len() > MOST_TEXT {
        let end = (0..=MOST_TEXT).rev().find(|at| data.is_char_boundary(*at));
        data.truncate(end.unwrap_or(0));
        data.push('…');
    }
    Answer {
        kind: record.kind,
        ttl: record.ttl,
        data,
    }
}

/// Text of an answer: type and data.
pub(super) fn text(answer: &Answer) -> String {
    format!("{} {}", numbers::kind(answer.kind), answer.data)
}
