//! A client that reconnects automatically.

use crate::{
    Change, DATABASE, Error, Monitored, Target,
    session::{Inbox, Stream},
    wire::{self, Message},
};
use serde_json::{Value, json, value::RawValue};
use std::{
    collections::HashMap,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{RecvTimeoutError, SyncSender, sync_channel},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// What a server may use up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Bytes of a message.
    pub message: usize,
    /// Bytes in memory of the copy of the monitored tables, and of the changes in one update.
    pub memory: usize,
    /// Bytes of the answer to a request.
    pub answer: usize,
    /// For a message, from its first byte to its last.
    pub message_time: Duration,
    /// For connecting, for the answer to a request, and for a write.
    pub patience: Duration,
}

impl Default for Limits {
    /// 32 MiB, 128 MiB, 4 MiB, 30 s, 10 s.
    fn default() -> Self {
        Self {
            message: 32 << 20,
            memory: 128 << 20,
            answer: 4 << 20,
            message_time: Duration::from_secs(30),
            patience: Duration::from_secs(10),
        }
    }
}

/// Settings of a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClientConfig {
    /// The server.
    pub target: Target,
    /// Which of its databases.
    pub database: &'static str,
    /// After so long a silence an echo is sent; after as long again the connection is given up.
    pub probe_interval: Duration,
    /// Pause before the second attempt to connect. It doubles with each further one.
    pub backoff: Duration,
    /// Longest pause.
    pub backoff_max: Duration,
    /// Name of a lock (RFC 7047 section 4.1.8) that is held as long as there is a connection.
    pub lock: Option<String>,
    /// What the server may use up.
    pub limits: Limits,
}

impl ClientConfig {
    /// As Open vSwitch's own clients do it: an echo after 5 s, attempts after 1 to 8 s.
    pub fn new(target: Target) -> Self {
        Self {
            target,
            database: DATABASE,
            probe_interval: Duration::from_secs(5),
            backoff: Duration::from_secs(1),
            backoff_max: Duration::from_secs(8),
            lock: None,
            limits: Limits::default(),
        }
    }
}

/// Receives the rows of the monitored tables. Called on the client's thread; while a call lasts nothing
/// more is read. An error ends the connection, and the client reconnects.
pub trait Watcher: Send + 'static {
    /// There is a connection, and these are all rows. Earlier rows are no longer valid.
    fn begin(&mut self, rows: Vec<Change>) -> Result<(), Error>;
    /// What one update changed.
    fn change(&mut self, changes: Vec<Change>) -> Result<(), Error>;
    /// There is no connection any more.
    fn end(&mut self, why: &Error);
}

/// What a client saw so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ClientCounters {
    /// Attempts to connect.
    pub attempts: u64,
    /// Attempts that received all rows.
    pub connections: u64,
    /// Connections that ended.
    pub disconnections: u64,
    /// Messages of the server.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Messages without use: answers that came too late, unknown requests.
    pub unknown: u64,
}

#[derive(Default)]
struct Counted {
    attempts: AtomicU64,
    connections: AtomicU64,
    disconnections: AtomicU64,
    messages: AtomicU64,
    bytes: AtomicU64,
    unknown: AtomicU64,
}

type Answer = Result<Box<RawValue>, Error>;

#[derive(Default)]
struct Link {
    stream: Option<Arc<Stream>>,
    /// All rows are there.
    ready: bool,
    /// Why there is no connection.
    why: Option<String>,
    pending: HashMap<u64, SyncSender<Answer>>,
}

struct Shared {
    config: ClientConfig,
    monitored: Vec<Monitored>,
    link: Mutex<Link>,
    changed: Condvar,
    stopping: AtomicBool,
    next_id: AtomicU64,
    counted: Counted,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Link> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    fn new_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }
}

/// A connection to a server's database and the thread that keeps it. Dropping it ends both.
pub struct Client {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Client {
    /// Starts to connect, and to give `watcher` the rows of the tables.
    pub fn start(
        config: ClientConfig,
        monitored: Vec<Monitored>,
        watcher: impl Watcher,
    ) -> Result<Self, Error> {
        let target = config.target.to_string();
        let shared = Arc::new(Shared {
            config,
            monitored,
            link: Mutex::default(),
            changed: Condvar::new(),
            stopping: AtomicBool::new(false),
            next_id: AtomicU64::new(1),
            counted: Counted::default(),
        });
        let worker = Worker {
            shared: shared.clone(),
            watcher,
        };
        let thread = thread::Builder::new().name("ovsdb".to_owned());
        let thread = thread.spawn(move || worker.run());
        Ok(Self {
            shared,
            thread: Some(thread.map_err(|source| Error::Io {
                target,
                action: "starting a thread",
                source,
            })?),
        })
    }

    /// Whether there is a connection and the watcher has all rows.
    pub fn is_connected(&self) -> bool {
        self.shared.lock().ready
    }

    /// Waits until there is a connection; else says why there is none.
    pub fn wait_connected(&self, patience: Duration) -> Result<(), Error> {
        let link = self.shared.lock();
        let waited = self
            .shared
            .changed
            .wait_timeout_while(link, patience, |link| !link.ready);
        let (link, _) = waited.unwrap_or_else(PoisonError::into_inner);
        match (&link.why, link.ready) {
            (_, true) => Ok(()),
            (Some(why), _) => Err(Error::Request(why.clone())),
            (None, _) => Err(Error::Timeout {
                what: "connection",
                patience,
            }),
        }
    }

    /// Sends a request and waits for the answer's result.
    pub fn request(&self, method: &str, params: Value) -> Result<Box<RawValue>, Error> {
        let patience = self.shared.config.limits.patience;
        let id = self.shared.new_id();
        let (sender, receiver) = sync_channel(1);
        let stream = {
            let mut link = self.shared.lock();
            let stream = link.stream.clone().ok_or(Error::Disconnected)?;
            link.pending.insert(id, sender);
            stream
        };
        let message = json!({"id": id, "method": method, "params": params});
        let answer = stream.send(&message).and_then(|()| {
            receiver
                .recv_timeout(patience)
                .map_err(|error| match error {
                    RecvTimeoutError::Disconnected => Error::Disconnected,
                    RecvTimeoutError::Timeout => Error::Timeout {
                        what: "answer",
                        patience,
                    },
                })?
        });
        self.shared.lock().pending.remove(&id);
        answer
    }

    /// Carries out operations (RFC 7047 section 5.2) as one transaction and returns their results. When one
    /// fails all fail, and nothing was changed.
    pub fn transact(&self, operations: Vec<Value>) -> Result<Vec<Value>, Error> {
        let mut params = vec![json!(self.shared.config.database)];
        params.extend(operations);
        wire::results(self.request("transact", Value::Array(params))?.get())
    }

    /// What the client saw so far.
    pub fn counters(&self) -> ClientCounters {
        let counted = &self.shared.counted;
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ClientCounters {
            attempts: read(&counted.attempts),
            connections: read(&counted.connections),
            disconnections: read(&counted.disconnections),
            messages: read(&counted.messages),
            bytes: read(&counted.bytes),
            unknown: read(&counted.unknown),
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        {
            let link = self.shared.lock();
            self.shared.stopping.store(true, Ordering::Relaxed);
            if let Some(stream) = &link.stream {
                stream.close();
            }
        }
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What the next answer has to be.
enum Phase {
    Schema(u64),
    Rows(u64),
    Ready,
}

struct Worker<W> {
    shared: Arc<Shared>,
    watcher: W,
}

impl<W: Watcher> Worker<W> {
    fn run(mut self) {
        let config = self.shared.config.clone();
        let mut pause = config.backoff;
        let mut logged = String::new();
        while !self.shared.stopping() {
            count(&self.shared.counted.attempts);
            let begun = Instant::now();
            let why = match self.session() {
                Ok(()) => Error::Closed,
                Err(error) => error,
            };
            let was_ready = self.hang_up(&why);
            if was_ready {
                count(&self.shared.counted.disconnections);
                self.watcher.end(&why);
                // A server that closed at once may well do the same again.
                if begun.elapsed() >= config.backoff_max {
                    pause = config.backoff;
                }
            }
            if self.shared.stopping() {
                break;
            }
            let why = why.to_string();
            if was_ready || logged != why {
                tracing::warn!(target: "ovsdb", "{why}; trying again");
                logged = why;
            }
            let link = self.shared.lock();
            let _ = self
                .shared
                .changed
                .wait_timeout_while(link, pause, |_| !self.shared.stopping());
            pause = (pause * 2).min(config.backoff_max);
        }
    }

    /// Fails all pending requests. Returns whether the watcher had rows.
    fn hang_up(&self, why: &Error) -> bool {
        let mut link = self.shared.lock();
        let pending = std::mem::take(&mut link.pending);
        if let Some(stream) = link.stream.take() {
            stream.close();
        }
        link.why = Some(why.to_string());
        let was_ready = std::mem::take(&mut link.ready);
        drop(link);
        drop(pending);
        self.shared.changed.notify_all();
        was_ready
    }

    fn session(&mut self) -> Result<(), Error> {
        let shared = self.shared.clone();
        let config = &shared.config;
        let stream = Arc::new(Stream::open(&config.target, config.limits.patience)?);
        {
            let mut link = shared.lock();
            if shared.stopping() {
                return Err(Error::Stopped);
            }
            link.stream = Some(stream.clone());
        }
        let mut inbox = Inbox::new(stream.clone(), config)?;
        if let Some(lock) = &config.lock {
            stream.send(&json!({"id": "lock", "method": "lock", "params": [lock]}))?;
        }
        let id = shared.new_id();
        stream.send(&json!({"id": id, "method": "get_schema", "params": [config.database]}))?;
        inbox.expect(Some("schema"));
        let mut phase = Phase::Schema(id);
        loop {
            let (message, length) = inbox.next()?;
            count(&shared.counted.messages);
            shared
                .counted
                .bytes
                .fetch_add(length as u64, Ordering::Relaxed);
            match message.method.as_deref() {
                Some("echo") => self.echo(&stream, message)?,
                Some("update") => {
                    if !matches!(phase, Phase::Ready) {
                        return Err(Error::Protocol("an update before all rows".to_owned()));
                    }
                    let params = message.params.as_deref().map_or("null", RawValue::get);
                    let limit = config.limits.memory;
                    let changes = wire::notified(params, &shared.monitored, limit)?;
                    self.watcher.change(changes)?;
                }
                Some(_) => self.refuse(&stream, message)?,
                None => {
                    let id = message.id.as_ref().and_then(|id| id.get().parse().ok());
                    match phase {
                        Phase::Schema(awaited) if id == Some(awaited) => {
                            let schema = wire::schema(wire::outcome(message)?.get())?;
                            let id = shared.new_id();
                            let tables = wire::monitor_request(&shared.monitored, &schema);
                            let params = json!([config.database, "skua", tables]);
                            stream
                                .send(&json!({"id": id, "method": "monitor", "params": params}))?;
                            inbox.expect(Some("rows"));
                            phase = Phase::Rows(id);
                        }
                        Phase::Rows(awaited) if id == Some(awaited) => {
                            let rows = wire::outcome(message)?;
                            let limit = config.limits.memory;
                            let rows = wire::changes(rows.get(), &shared.monitored, limit)?;
                            inbox.expect(None);
                            if let Err(error) = self.watcher.begin(rows) {
                                self.watcher.end(&error);
                                return Err(error);
                            }
                            phase = Phase::Ready;
                            count(&shared.counted.connections);
                            shared.lock().ready = true;
                            shared.changed.notify_all();
                        }
                        _ => self.answer(id, message),
                    }
                }
            }
        }
    }

    fn answer(&self, id: Option<u64>, message: Message) {
        let Some(id) = id else {
            // The client's own requests have a text as identifier.
            let ours = |id: Box<RawValue>| matches!(id.get(), "\"echo\"" | "\"lock\"");
            if !message.id.is_some_and(ours) {
                count(&self.shared.counted.unknown);
            }
            return;
        };
        let limit = self.shared.config.limits.answer;
        let long = |part: &Option<Box<RawValue>>| {
            part.as_ref().is_some_and(|part| part.get().len() > limit)
        };
        let waiting = self.shared.lock().pending.remove(&id);
        let Some(sender) = waiting else {
            count(&self.shared.counted.unknown);
            return;
        };
        let answer = if long(&message.result) || long(&message.error) {
            Err(Error::TooLarge {
                what: "an answer",
                limit,
            })
        } else {
            wire::outcome(message)
        };
        // The caller may have stopped waiting.
        let _ = sender.try_send(answer);
    }

    fn echo(&self, stream: &Stream, message: Message) -> Result<(), Error> {
        /// Open vSwitch sends `[]`.
        const MOST: usize = 64 << 10;
        let params = message.params.as_deref().map_or("[]", RawValue::get);
        if params.len() > MOST {
            let what = "an echo";
            return Err(Error::TooLarge { what, limit: MOST });
        }
        let params: Value = parse(params)?;
        reply(stream, &message.id, params, Value::Null)
    }

    fn refuse(&self, stream: &Stream, message: Message) -> Result<(), Error> {
        count(&self.shared.counted.unknown);
        reply(stream, &message.id, Value::Null, json!("unknown method"))
    }
}

/// Answers a request; a notification, which has no identifier, gets no answer.
fn reply(
    stream: &Stream,
    id: &Option<Box<RawValue>>,
    result: Value,
    error: Value,
) -> Result<(), Error> {
    /// No sensible identifier is longer.
    const MOST: usize = 1 << 10;
    match id.as_deref().map(RawValue::get) {
        None => Ok(()),
        Some(id) if id.len() > MOST => Err(Error::TooLarge {
            what: "an identifier",
            limit: MOST,
        }),
        Some(id) => {
            let id: Value = parse(id)?;
            stream.send(&json!({"id": id, "result": result, "error": error}))
        }
    }
}

fn parse(text: &str) -> Result<Value, Error> {
    serde_json::from_str(text).map_err(|error| Error::Protocol(error.to_string()))
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
