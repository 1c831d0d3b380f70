//! Sends lines to Kafka.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use rdkafka::{
    ClientConfig,
    error::{KafkaError, RDKafkaErrorCode as Code},
    producer::{BaseRecord, Producer as _, PurgeConfig, ThreadedProducer},
};
use skua_collect::Line;

use crate::{
    Cause, Error, Format, Target, message,
    reports::{Reports, State, cause_of},
    settings,
};

/// Whether the client is built in.
pub const BUILT: bool = true;

/// How long the end waits for acknowledgements.
const LAST_WAIT: Duration = Duration::from_secs(10);
/// Longest time in which the client returns unsent lines.
const HAND_BACK: Duration = Duration::from_secs(5);
/// A client with a fatal error is replaced, at most once in this time.
const REPLACE_AFTER: Duration = Duration::from_secs(10);

/// Sends lines; lines that cannot be sent are counted by cause. Only [`finish`](Self::finish) blocks.
pub struct Producer {
    target: Target,
    config: ClientConfig,
    client: ThreadedProducer<Reports>,
    made: Instant,
    state: Arc<State>,
    bytes: Vec<u8>,
    key: String,
}

impl Producer {
    /// Makes a client; brokers need not be there yet.
    pub fn open(target: &Target) -> Result<Self, Error> {
        let mut config = ClientConfig::new();
        let environment = std::env::vars_os().filter_map(|(name, value)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        });
        for (name, value) in settings::all(target, environment)? {
            config.set(name, value);
        }
        let state = Arc::new(State::new(target));
        Ok(Self {
            target: target.clone(),
            client: client(&config, &state)?,
            config,
            made: Instant::now(),
            state,
            bytes: Vec::new(),
            key: String::new(),
        })
    }

    /// Queues a line, unless the queue is full.
    pub fn put(&mut self, line: &Line<'_>) {
        self.bytes.clear();
        match self.target.format {
            Format::Protobuf => message::encode(line, &mut self.bytes),
            Format::Json => {
                if let Err(error) = serde_json::to_writer(&mut self.bytes, line) {
                    tracing::debug!(%error, "a line cannot be written as JSON");
                    self.state.lose(Cause::Refused, &error);
                    return;
                }
            }
        }
        message::write_key(line, &mut self.key);
        let record = BaseRecord::to(&self.target.topic)
            .key(&self.key)
            .payload(&self.bytes);
        if let Err((error, _)) = self.client.send(record) {
            self.refused(&error);
        }
    }

    fn refused(&mut self, error: &KafkaError) {
        let fatal = match error.rdkafka_error_code() {
            Some(Code::Fatal) => self.client.client().fatal_error(),
            _ => None,
        };
        match fatal {
            Some((code, reason)) => self.state.lose(cause_of(code), &reason),
            None => {
                let code = error.rdkafka_error_code().unwrap_or(Code::Unknown);
                self.state.lose(cause_of(code), error);
            }
        }
    }

    /// Call it regularly: reports errors, and replaces a client with a fatal error.
    pub fn poll(&mut self) {
        self.state.report(self.client.in_flight_count());
        let Some((code, reason)) = self.client.client().fatal_error() else {
            return;
        };
        self.state.settle(cause_of(code), &reason);
        if self.made.elapsed() < REPLACE_AFTER {
            return;
        }
        tracing::info!(%reason, "Kafka: starting a new client");
        self.made = Instant::now();
        match client(&self.config, &self.state) {
            Ok(new) => {
                self.hand_back();
                self.client = new;
            }
            Err(error) => tracing::warn!(%error, "Kafka: cannot start a new client"),
        }
    }

    /// Waits, within limits, until all lines are acknowledged.
    pub fn finish(&mut self) {
        if self.client.flush(LAST_WAIT).is_err() {
            self.hand_back();
        }
        match self.client.client().fatal_error() {
            Some((code, reason)) => self.state.settle(cause_of(code), &reason),
            None => self.state.settle(Cause::NotSent, &""),
        }
        self.state.report(0);
    }

    /// Gives up and counts lines without an acknowledgement.
    fn hand_back(&self) {
        self.state.handing_back.store(true, Relaxed);
        self.client.purge(PurgeConfig::default().queue().inflight());
        if let Err(error) = self.client.flush(HAND_BACK) {
            tracing::debug!(%error, "Kafka's client did not hand back all lines");
        }
        self.state.handing_back.store(false, Relaxed);
    }

    /// Lines that are in Kafka.
    pub fn acknowledged(&self) -> u64 {
        self.state.acknowledged.load(Relaxed)
    }

    /// Lines that are not, or not surely, by cause.
    pub fn lost(&self) -> Vec<(Cause, u64)> {
        self.state.lost()
    }
}

fn client(config: &ClientConfig, state: &Arc<State>) -> Result<ThreadedProducer<Reports>, Error> {
    let made = config.create_with_context(Reports(state.clone()));
    made.map_err(|error| match error {
        // Its other form shows the value, which may be a secret.
        KafkaError::ClientConfig(_, said, name, _) => Error::Client(format!("{said} ({name})")),
        error => Error::Client(error.to_string()),
    })
}
