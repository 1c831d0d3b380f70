//! What receivers got, and what they lost before it could become a flow.

use skua_wire::Step;

/// Why something that was sent to us, or that we got, is in no flow. The unit differs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum ReceiveCause {
    /// Datagrams (or streams of packets) that were wholly or in part unreadable.
    DecodeError,
    /// Sets of records (NetFlow 9, IPFIX) whose template did not come in time.
    NoTemplate,
    /// Units that were lost by their sequence numbers: datagrams of sFlow and NetFlow 9, records of NetFlow
    /// 5 and IPFIX.
    SequenceGap,
    /// Datagrams that the kernel dropped because our socket's queue was full.
    QueueFull,
    /// Datagrams of exporters above the limit of known ones.
    ExportersFull,
    /// Flow samples without a record that describes a packet.
    NoPacket,
    /// Datagrams, or connections, of senders that are not on the allow list (chosen).
    NotAllowed,
    /// Connections above the limit, or that were too slow.
    ConnectionLimit,
}

impl ReceiveCause {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 8] = [
        Self::DecodeError,
        Self::NoTemplate,
        Self::SequenceGap,
        Self::QueueFull,
        Self::ExportersFull,
        Self::NoPacket,
        Self::NotAllowed,
        Self::ConnectionLimit,
    ];

    /// Name in counters.
    pub fn name(self) -> &'static str {
        match self {
            Self::DecodeError => "decode_error",
            Self::NoTemplate => "no_template",
            Self::SequenceGap => "sequence_gap",
            Self::QueueFull => "receive_queue_full",
            Self::ExportersFull => "exporters_full",
            Self::NoPacket => "no_packet",
            Self::NotAllowed => "not_allowed",
            Self::ConnectionLimit => "connection_limit",
        }
    }
}

/// What a receiver got. All zero for other probes.
#[derive(Clone, Debug, Default)]
pub struct Received {
    /// Datagrams taken from the socket, or connections accepted; of all senders.
    pub datagrams: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Flow samples, flow records, or packets that were decoded: each is counted in flows, or at its
    /// capture point under a cause, but for those of [`ReceiveCause::NoPacket`].
    pub records: u64,
    /// Other things that were understood: counters samples, templates, options.
    pub others: u64,
    /// Things that were stepped over because they are not decoded.
    pub skipped: u64,
    /// Sets that wait for their template now.
    pub held: u64,
    /// Datagrams that came after others that were sent later (or twice).
    pub out_of_order: u64,
    /// Detected restarts of exporters.
    pub restarts: u64,
    /// Exporters known now.
    pub exporters: u64,
    /// Losses by cause.
    pub lost: [u64; ReceiveCause::ALL.len()],
    /// The last error of a datagram, and its sender.
    pub last_error: Option<String>,
}

impl Received {
    /// Adds to a cause.
    pub(crate) fn lose(&mut self, cause: ReceiveCause, units: u64) {
        self.lost[cause as usize] += units;
    }

    /// Counts the result of checking a sequence number.
    pub(crate) fn step(&mut self, step: Step) {
        let gap = &mut self.lost[ReceiveCause::SequenceGap as usize];
        *gap = (*gap + u64::from(step.lost)).saturating_sub(step.recovered.into());
        self.out_of_order += u64::from(step.late);
        self.restarts += u64::from(step.restarted);
    }

    /// Counts a datagram that is unreadable, at least in part.
    #[cold]
    pub(crate) fn unreadable(
        &mut self,
        from: impl std::fmt::Display,
        error: impl std::fmt::Display,
    ) {
        self.lose(ReceiveCause::DecodeError, 1);
        self.last_error = Some(format!("{from}: {error}"));
    }

    /// Losses by name, those of nothing left out.
    pub fn causes(&self) -> impl Iterator<Item = (ReceiveCause, u64)> + '_ {
        ReceiveCause::ALL
            .into_iter()
            .map(|cause| (cause, self.lost[cause as usize]))
            .filter(|(_, units)| *units > 0)
    }

    /// Units of a cause.
    pub fn of(&self, cause: ReceiveCause) -> u64 {
        self.lost[cause as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_in_the_order_of_their_numbers() {
        for (number, cause) in ReceiveCause::ALL.into_iter().enumerate() {
            assert_eq!(cause as usize, number);
        }
    }
}
