/// Why a line is not in Kafka, or not certainly.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Cause {
    /// The queue was full: brokers are away or too slow.
    QueueFull,
    /// There is no such topic.
    TopicMissing,
    /// The user may not write to it.
    NotAuthorized,
    /// The broker refuses batches of this size.
    TooLarge,
    /// Any other error of the broker or the client.
    Refused,
    /// It waited longer than `message.timeout.ms` (by default there is no such limit).
    TimedOut,
    /// Skua ended before it could be sent.
    NotSent,
    /// Skua ended before the broker acknowledged it; it may be stored.
    NotAcknowledged,
}

impl Cause {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 8] = [
        Self::QueueFull,
        Self::TopicMissing,
        Self::NotAuthorized,
        Self::TooLarge,
        Self::Refused,
        Self::TimedOut,
        Self::NotSent,
        Self::NotAcknowledged,
    ];

    /// Name in counters.
    pub fn name(self) -> &'static str {
        match self {
            Self::QueueFull => "kafka_queue_full",
            Self::TopicMissing => "kafka_refused_topic_missing",
            Self::NotAuthorized => "kafka_refused_not_authorized",
            Self::TooLarge => "kafka_refused_too_large",
            Self::Refused => "kafka_refused_other",
            Self::TimedOut => "kafka_timed_out",
            Self::NotSent => "kafka_not_sent",
            Self::NotAcknowledged => "kafka_not_acknowledged",
        }
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
