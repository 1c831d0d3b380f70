//! What a collector got and lost.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use skua_wire::DecodeError;

use crate::HashMap;

/// Senders with unreadable datagrams that are listed.
const SENDERS: usize = 1_024;

/// Why received or expected data is missing from lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Cause {
    /// Datagrams that were wholly or in part unreadable.
    DecodeError,
    /// Datagrams that are missing by their sequence numbers.
    SequenceGap,
    /// Datagrams received twice, or far too late.
    Duplicate,
    /// Datagrams of agents beyond the most.
    AgentsFull,
    /// Datagrams of agents beyond the most of one address.
    SenderFull,
    /// Data of NetFlow and IPFIX that is missing by sequence numbers: datagrams of version 9, records of other
    /// versions.
    ExporterGap,
    /// Sets of records of NetFlow and IPFIX whose template never arrived.
    NoTemplate,
    /// Flow samples and records without an IP packet.
    NoPacket,
    /// Records whose window was closed.
    Late,
    /// Records of keys beyond the most of a window.
    KeysFull,
    /// Records of conversations beyond the limit; only the first observation point was counted.
    NotJoined,
    /// Records of conversations beyond the limit of compact entries, too: not counted.
    ConversationsFull,
    /// Definitions of names beyond the most: their sides are addresses in lines.
    NamesFull,
}

impl Cause {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 13] = [
        Self::DecodeError,
        Self::SequenceGap,
        Self::Duplicate,
        Self::AgentsFull,
        Self::SenderFull,
        Self::ExporterGap,
        Self::NoTemplate,
        Self::NoPacket,
        Self::Late,
        Self::KeysFull,
        Self::NotJoined,
        Self::ConversationsFull,
        Self::NamesFull,
    ];

    /// Name in counters.
    pub fn name(self) -> &'static str {
        match self {
            Self::DecodeError => "decode_error",
            Self::SequenceGap => "sequence_gap",
            Self::Duplicate => "duplicate",
            Self::AgentsFull => "agents_full",
            Self::SenderFull => "sender_agents_full",
            Self::ExporterGap => "exporter_gap",
            Self::NoTemplate => "no_template",
            Self::NoPacket => "no_packet",
            Self::Late => "late",
            Self::KeysFull => "keys_full",
            Self::NotJoined => "not_joined",
            Self::ConversationsFull => "conversations_full",
            Self::NamesFull => "names_full",
        }
    }
}

/// Units with packets and bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = Counters)]
pub struct Sum {
    /// Packets.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
}

impl Sum {
    pub(crate) const NONE: Self = Self {
        packets: 0,
        bytes: 0,
    };

    pub(crate) fn add(&mut self, packets: u64, bytes: u64) {
        self.packets = self.packets.saturating_add(packets);
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

/// All counts.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Datagrams received.
    pub datagrams: u64,
    /// Their bytes.
    pub datagram_bytes: u64,
    /// Records of conversations.
    pub records: u64,
    /// Records that added nothing new.
    pub old_records: u64,
    /// Records of conversations beyond the limit: not joined.
    pub untracked: u64,
    /// Sampled packets of others.
    pub samples: u64,
    /// Samples and records that were stepped over.
    pub skipped: u64,
    /// Restarts of agents.
    pub restarts: u64,
    /// Datagrams that agents had stored before they sent them.
    pub kept: u64,
    /// Records whose time was corrected because the agent's clock differs.
    pub clock_corrected: u64,
    /// Packets and bytes that records have added, of all agents.
    pub got: Sum,
    /// Of `got`: counted already from another observation point or agent.
    pub elsewhere: Sum,
    /// Of `got`: in a window that was closed.
    pub late: Sum,
    /// Of `got`: of keys beyond the most.
    pub keys_full: Sum,
    /// Of `got`: of conversations beyond the most, not counted.
    pub conversations_full: Sum,
    /// Of `got`: in lines, or in windows that are open.
    pub counted: Sum,
    /// Estimates from sampled packets of others, in lines or open windows.
    pub estimated: Sum,
    /// Units lost by cause.
    pub lost: [u64; Cause::ALL.len()],
    /// Unreadable datagrams by sender; of too many senders, those with the most.
    pub unreadable: HashMap<IpAddr, u64>,
    /// The last error in a datagram, with its sender.
    pub last_error: Option<String>,
}

impl Counts {
    pub(crate) fn unreadable(&mut self, from: IpAddr, error: &DecodeError) {
        self.lose(Cause::DecodeError, 1);
        if self.unreadable.len() >= SENDERS && !self.unreadable.contains_key(&from) {
            // Keep the senders with the most.
            let mut sent: Vec<_> = self.unreadable.values().copied().collect();
            sent.sort_unstable();
            let most = sent.get(SENDERS * 3 / 4).copied().unwrap_or(0);
            self.unreadable.retain(|_, datagrams| *datagrams > most);
        }
        *self.unreadable.entry(from).or_default() += 1;
        self.last_error = Some(format!("{from}: {error}"));
    }

    pub(crate) fn lose(&mut self, cause: Cause, units: u64) {
        self.lost[cause as usize] += units;
    }

    /// Units of a cause.
    pub fn of(&self, cause: Cause) -> u64 {
        self.lost[cause as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_in_the_order_of_their_numbers() {
        for (number, cause) in Cause::ALL.into_iter().enumerate() {
            assert_eq!(cause as usize, number);
        }
    }
}
