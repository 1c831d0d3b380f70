//! The client's reports: deliveries and errors.

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

/// Least time between two log messages of the same kind.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Index of the message that brokers are unreachable, after those of the causes.
const UNREACHABLE: usize = Cause::ALL.len();
const KINDS: usize = UNREACHABLE + 1;

/// What happened to lines.
pub(crate) struct State {
    address: String,
    pub(crate) acknowledged: AtomicU64,
    lost: [AtomicU64; Cause::ALL.len()],
    /// Lines that a client gave up after a fatal error, which it reports separately.
    given_up: AtomicU64,
    /// The client is giving up its lines at our request.
    pub(crate) handing_back: AtomicBool,
    /// Whether brokers could not be reached since the last acknowledgement.
    unreachable: AtomicBool,
    reason: Mutex<String>,
    logged: Mutex<[Option<Instant>; KINDS]>,
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
            address: format!("kafka://{}/{}", target.brokers, target.topic),
            acknowledged: AtomicU64::new(0),
            lost: Default::default(),
            given_up: AtomicU64::new(0),
            handing_back: AtomicBool::new(false),
            unreachable: AtomicBool::new(false),
            reason: Mutex::default(),
            logged: Mutex::default(),
        }
    }

    /// Whether this kind of message may be logged again.
    fn may_log(&self, kind: usize) -> bool {
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(last) = logged.get_mut(kind) else {
            return false;
        };
        let now = Instant::now();
        let may = last.is_none_or(|last| now.duration_since(last) >= LOG_INTERVAL);
        if may {
            *last = Some(now);
        }
        may
    }

    /// Counts a lost line, and logs the loss at a limited rate.
    pub(crate) fn lose(&self, cause: Cause, reason: &dyn Display) {
        self.lose_all(cause, 1, reason);
    }

    /// Counts lines that a client gave up, once the cause is known.
    pub(crate) fn settle(&self, cause: Cause, reason: &dyn Display) {
        match self.given_up.swap(0, Relaxed) {
            0 => {}
            lines => self.lose_all(cause, lines, reason),
        }
    }

    fn lose_all(&self, cause: Cause, lines: u64, reason: &dyn Display) {
        let lost = self.lost[cause as usize].fetch_add(lines, Relaxed) + lines;
        if !self.may_log(cause as usize) {
            return;
        }
        let address = &self.address;
        match cause {
            Cause::QueueFull => tracing::warn!(
                lost,
                "{address}: the queue is full, lines are lost (queue.buffering.max.messages, …kbytes)"
            ),
            Cause::TopicMissing => tracing::warn!(
                lost,
                "{address}: there is no such topic, lines are lost until it is created"
            ),
            Cause::NotAuthorized => tracing::warn!(
                lost,
                "{address}: may not write there, lines are lost; it takes the rights Write and Describe on the \
                 topic ({reason})"
            ),
            Cause::TooLarge => tracing::warn!(
                lost,
                "{address}: the topic takes no batch as large as ours, lines are lost; raise its \
                 max.message.bytes or lower batch.size ({reason})"
            ),
            Cause::TimedOut => tracing::warn!(
                lost,
                "{address}: lines have waited longer than message.timeout.ms and are lost"
            ),
            Cause::NotSent | Cause::NotAcknowledged => {}
            Cause::Refused => tracing::warn!(lost, "{address}: lines are lost: {reason}"),
        }
    }

    /// Logs that brokers are unreachable while lines wait.
    pub(crate) fn report(&self, waiting: i32) {
        if self.unreachable.load(Relaxed) && waiting > 0 && self.may_log(UNREACHABLE) {
            let reason = self.reason.lock().unwrap_or_else(PoisonError::into_inner);
            tracing::warn!(
                waiting,
                "{}: cannot be reached, retrying; {reason}",
                self.address
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
        if self.unreachable.load(Relaxed) && self.unreachable.swap(false, Relaxed) {
            tracing::warn!("{}: can be reached again", self.address);
            let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
            logged[UNREACHABLE] = None;
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
                self.unreachable.store(true, Relaxed);
                if self.may_log(UNREACHABLE) {
                    tracing::warn!("{}: {reason}; retrying", self.address);
                }
            }
            _ => tracing::debug!(?code, "{}: {reason}", self.address),
        }
    }
}

/// The client's access to the state.
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
