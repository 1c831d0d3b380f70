//! What the client reports: deliveries, and what is wrong.

use std::{
    fmt::Display,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use rdkafka::{
    ClientContext,
    config::RDKafkaLogLevel,
    error::{KafkaError, RDKafkaErrorCode as Code},
    message::DeliveryResult,
    producer::ProducerContext,
};

use crate::{Cause, Target};

/// The same trouble is spoken of so often.
const SAID_EVERY: Duration = Duration::from_secs(60);

/// What there is to say, by kind.
const AWAY: usize = Cause::ALL.len();
const KINDS: usize = AWAY + 1;

/// What happened to lines.
pub(crate) struct State {
    place: String,
    pub(crate) acknowledged: AtomicU64,
    lost: [AtomicU64; Cause::ALL.len()],
    /// Lines that a client gave up by itself, because it cannot go on; why, it says elsewhere.
    given_up: AtomicU64,
    /// A client was told to give up its lines.
    pub(crate) handing_back: AtomicBool,
    /// Whether brokers could not be reached since the last acknowledgement.
    away: AtomicBool,
    reason: Mutex<String>,
    said: Mutex<[Option<Instant>; KINDS]>,
}

/// Which cause an error is.
pub(crate) fn cause_of(code: Code) -> Cause {
    match code {
        Code::QueueFull => Cause::QueueFull,
        Code::UnknownTopic | Code::UnknownTopicOrPartition | Code::UnknownPartition => {
            Cause::TopicMissing
        }
        Code::TopicAuthorizationFailed | Code::ClusterAuthorizationFailed => Cause::NotAuthorized,
        Code::MessageSizeTooLarge | Code::InvalidMessageSize => Cause::TooLarge,
        Code::MessageTimedOut => Cause::TimedOut,
        Code::PurgeQueue => Cause::NotSent,
        Code::PurgeInflight => Cause::NotAcknowledged,
        _ => Cause::Refused,
    }
}

impl State {
    pub(crate) fn new(target: &Target) -> Self {
        Self {
            place: format!("kafka://{}/{}", target.brokers, target.topic),
            acknowledged: AtomicU64::new(0),
            lost: Default::default(),
            given_up: AtomicU64::new(0),
            handing_back: AtomicBool::new(false),
            away: AtomicBool::new(false),
            reason: Mutex::default(),
            said: Mutex::default(),
        }
    }

    /// Whether it is time to speak of this again.
    fn may_say(&self, kind: usize) -> bool {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(last) = said.get_mut(kind) else {
            return false;
        };
        let now = Instant::now();
        let may = last.is_none_or(|last| now.duration_since(last) >= SAID_EVERY);
        if may {
            *last = Some(now);
        }
        may
    }

    /// Counts a line that is lost, and says so now and then.
    pub(crate) fn lose(&self, cause: Cause, reason: &dyn Display) {
        self.lose_all(cause, 1, reason);
    }

    /// Counts what a client has given up by itself, now that it is known why.
    pub(crate) fn settle(&self, cause: Cause, reason: &dyn Display) {
        match self.given_up.swap(0, Relaxed) {
            0 => {}
            lines => self.lose_all(cause, lines, reason),
        }
    }

    fn lose_all(&self, cause: Cause, lines: u64, reason: &dyn Display) {
        let lost = self.lost[cause as usize].fetch_add(lines, Relaxed) + lines;
        if !self.may_say(cause as usize) {
            return;
        }
        let place = &self.place;
        match cause {
            Cause::QueueFull => tracing::warn!(
                lost,
                "{place}: the queue is full, lines are lost (queue.buffering.max.messages, …kbytes)"
            ),
            Cause::TopicMissing => tracing::warn!(
                lost,
                "{place}: there is no such topic, lines are lost until someone makes it"
            ),
            Cause::NotAuthorized => tracing::warn!(
                lost,
                "{place}: may not write there, lines are lost; it takes the rights Write and Describe on the \
                 topic ({reason})"
            ),
            Cause::TooLarge => tracing::warn!(
                lost,
                "{place}: the topic takes no batch as large as ours, lines are lost; raise its \
                 max.message.bytes or lower batch.size ({reason})"
            ),
            Cause::TimedOut => tracing::warn!(
                lost,
                "{place}: lines have waited longer than message.timeout.ms and are lost"
            ),
            Cause::NotSent | Cause::NotAcknowledged => {}
            Cause::Refused => tracing::warn!(lost, "{place}: lines are lost: {reason}"),
        }
    }

    /// Says that brokers are away as long as lines wait for them.
    pub(crate) fn report(&self, waiting: i32) {
        if self.away.load(Relaxed) && waiting > 0 && self.may_say(AWAY) {
            let reason = self.reason.lock().unwrap_or_else(PoisonError::into_inner);
            tracing::warn!(
                waiting,
                "{}: cannot be reached, tried again and again; {reason}",
                self.place
            );
        }
    }

    pub(crate) fn lost(&self) -> Vec<(Cause, u64)> {
        let counts = Cause::ALL.into_iter().zip(&self.lost);
        counts
            .map(|(cause, lines)| (cause, lines.load(Relaxed)))
            .filter(|(_, lines)| *lines > 0)
            .collect()
    }

    fn delivered(&self) {
        self.acknowledged.fetch_add(1, Relaxed);
        if self.away.load(Relaxed) && self.away.swap(false, Relaxed) {
            tracing::warn!("{}: can be reached again", self.place);
            let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
            said[AWAY] = None;
        }
    }

    fn trouble(&self, code: Code, reason: &str) {
        reason.clone_into(&mut self.reason.lock().unwrap_or_else(PoisonError::into_inner));
        match code {
            Code::AllBrokersDown
            | Code::BrokerTransportFailure
            | Code::Resolve
            | Code::Authentication
            | Code::SaslAuthenticationFailed
            | Code::SSL => {
                self.away.store(true, Relaxed);
                if self.may_say(AWAY) {
                    tracing::warn!("{}: {reason}; tried again and again", self.place);
                }
            }
            _ => tracing::debug!(?code, "{}: {reason}", self.place),
        }
    }
}

/// The client's way to the state.
#[derive(Clone)]
pub(crate) struct Reports(pub(crate) Arc<State>);

impl ClientContext for Reports {
    fn log(&self, _: RDKafkaLogLevel, facility: &str, message: &str) {
        tracing::debug!(facility, "{message}");
    }

    fn error(&self, error: KafkaError, reason: &str) {
        let code = error.rdkafka_error_code().unwrap_or(Code::Unknown);
        self.0.trouble(code, reason);
    }
}

impl ProducerContext for Reports {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        match result {
            Ok(_) => self.0.delivered(),
            Err((error, _)) => {
                let code = error.rdkafka_error_code().unwrap_or(Code::Unknown);
                let purged = matches!(code, Code::PurgeQueue | Code::PurgeInflight);
                match purged && !self.0.handing_back.load(Relaxed) {
                    true => _ = self.0.given_up.fetch_add(1, Relaxed),
                    false => self.0.lose(cause_of(code), error),
                }
            }
        }
    }
}
