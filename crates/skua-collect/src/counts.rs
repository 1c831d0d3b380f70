//! What a collector got and lost.

use serde::Serialize;

use crate::stream::AgentLine;

/// Why something that came, or should have come, is in no line as it should be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Cause {
    /// Datagrams that were wholly or in part unreadable.
    DecodeError,
    /// Datagrams that sequence numbers tell were sent and did not come.
    SequenceGap,
    /// Datagrams that came twice, or far too late.
    Duplicate,
    /// Datagrams of agents beyond the most.
    AgentsFull,
    /// Flow samples without an IP packet.
    NoPacket,
    /// Records whose window had been closed.
    Late,
    /// Records of keys beyond the most of a window.
    KeysFull,
}

impl Cause {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 7] = [
        Self::DecodeError,
        Self::SequenceGap,
        Self::Duplicate,
        Self::AgentsFull,
        Self::NoPacket,
        Self::Late,
        Self::KeysFull,
    ];

    /// Name in counters.
    pub fn name(self) -> &'static str {
        match self {
            Self::DecodeError => "decode_error",
            Self::SequenceGap => "sequence_gap",
            Self::Duplicate => "duplicate",
            Self::AgentsFull => "agents_full",
            Self::NoPacket => "no_packet",
            Self::Late => "late",
            Self::KeysFull => "keys_full",
        }
    }
}

/// Units with packets and bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Sum {
    /// Packets.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
}

impl Sum {
    pub(crate) fn add(&mut self, packets: u64, bytes: u64) {
        self.packets = self.packets.saturating_add(packets);
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

/// Everything that is counted.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Datagrams that came.
    pub datagrams: u64,
    /// Their bytes.
    pub datagram_bytes: u64,
    /// Records of conversations.
    pub records: u64,
    /// Those that told nothing that was not known.
    pub old_records: u64,
    /// Records of conversations that there was no room to remember: counted, but not joined.
    pub untracked: u64,
    /// Sampled packets of others.
    pub samples: u64,
    /// Samples and records that were stepped over.
    pub skipped: u64,
    /// Times that an agent was seen to start anew.
    pub restarts: u64,
    /// Records whose time was set right by more than a moment.
    pub clock_corrected: u64,
    /// Packets and bytes that records have added, of all agents.
    pub got: Sum,
    /// Of `got`: also told by another point or agent, and not counted again.
    pub elsewhere: Sum,
    /// Of `got`: in a window that was closed.
    pub late: Sum,
    /// Of `got`: of keys beyond the most.
    pub keys_full: Sum,
    /// Of `got`: in lines, or in windows that are open.
    pub counted: Sum,
    /// Estimates from sampled packets of others, in lines or open windows.
    pub estimated: Sum,
    /// Units lost by cause.
    pub lost: [u64; Cause::ALL.len()],
    /// What was last wrong with a datagram, and who sent it.
    pub last_error: Option<String>,
}

impl Counts {
    pub(crate) fn lose(&mut self, cause: Cause, units: u64) {
        self.lost[cause as usize] += units;
    }

    /// Units of a cause.
    pub fn of(&self, cause: Cause) -> u64 {
        self.lost[cause as usize]
    }
}

/// All sums, to be written.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// Datagrams that came.
    pub datagrams: u64,
    /// Their bytes.
    pub datagram_bytes: u64,
    /// Records of conversations.
    pub records: u64,
    /// Those that told nothing that was not known.
    pub old_records: u64,
    /// Those that could not be joined for lack of room.
    pub untracked: u64,
    /// Sampled packets of others.
    pub samples: u64,
    /// Samples and records that were stepped over.
    pub skipped: u64,
    /// Times that an agent started anew.
    pub restarts: u64,
    /// Records whose time was set right.
    pub clock_corrected: u64,
    /// What agents say that they told.
    pub told: Sum,
    /// What of it came: `told` less `missing`.
    pub got: Sum,
    /// What did not come.
    pub missing: Sum,
    /// Of `got`, told by several.
    pub elsewhere: Sum,
    /// Of `got`, too late.
    pub late: Sum,
    /// Of `got`, of keys beyond the most.
    pub keys_full: Sum,
    /// Of `got`, in lines.
    pub counted: Sum,
    /// Estimates from samples of others, in lines, too.
    pub estimated: Sum,
    /// Units lost by cause, those of nothing left out.
    pub lost: std::collections::BTreeMap<&'static str, u64>,
    /// Lines that were written.
    pub lines: u64,
    /// Conversations that are remembered.
    pub conversations: usize,
    /// Agents.
    pub agents: Vec<AgentLine>,
    /// What was last wrong with a datagram.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
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
