//! Collects rows and writes them on a thread of its own.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread::JoinHandle,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use bytes::Bytes;
use skua_collect::Line;

use crate::{
    batch::Batch,
    encode::{Encoded, encode_batch},
    error::{LakeError, Result},
    name::{self, FileName, Partition},
    rows::{Counted, FlowChange, Open, put_flow, put_line},
    schema::Table,
    storage::{Location, Storage},
};

/// Most rows of a batch, which is written at once.
const BATCH: usize = 65_536;
/// Memory of a row besides its columns: its texts, its entry among open conversations.
const BESIDE: usize = 256;
/// Most hours in a batch; only wrong clocks produce more.
const HOURS: usize = 72;
/// Waits after storage failed, the first and the longest.
const RETRY: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(30)];

/// How a lake is written.
#[derive(Clone, Debug)]
pub struct WriterConfig {
    /// Where it is.
    pub location: Location,
    /// Name of this host: files of several lie beside each other.
    pub host: String,
    /// Longest time until rows are stored, if the storage works.
    pub flush: Duration,
    /// Memory for rows that wait.
    pub memory: usize,
}

/// Rows that were lost, by cause.
#[derive(Debug, Default)]
struct Losses {
    /// Rows arrived faster than they could be written.
    queue_full: AtomicU64,
    /// While the disk was full.
    disk_full: AtomicU64,
    /// While storage failed.
    storage: AtomicU64,
    /// Rows of too many different hours, from wrong clocks.
    scattered: AtomicU64,
}

/// The status of writing.
#[derive(Clone, Debug, Default)]
pub struct WriterStats {
    /// Rows that are stored.
    pub rows: u64,
    /// Files that were made.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Rows that wait.
    pub waiting: u64,
    /// Rows that were lost, by cause.
    pub lost: Vec<(&'static str, u64)>,
    /// Rows with TCP counters (retransmitted and the like) of 0, because no earlier counters were known.
    pub tcp_unknown: u64,
    /// Why storage fails now.
    pub failing: Option<String>,
}

struct State {
    batch: Batch,
    open: Open,
    counted: Counted,
    /// When the first row of `batch` arrived.
    since: Option<Instant>,
    full: VecDeque<Batch>,
    /// Rows in all batches, that which is written included.
    waiting: usize,
    /// A flush was requested.
    hurry: bool,
    closed: bool,
    /// The storage failed after closing: the rest is lost without an attempt, so that closing takes no longer than
    /// one failure.
    given_up: bool,
    failing: Option<(String, bool)>,
}

impl State {
    fn rotate(&mut self) {
        if self.batch.is_empty() {
            return;
        }
        let table = self.batch.table();
        let full = std::mem::replace(&mut self.batch, Batch::new(table));
        self.full.push_back(full);
        self.open = Open::default();
        self.since = None;
    }
}

struct Shared {
    table: Table,
    storage: Arc<dyn Storage>,
    writer: String,
    flush: Duration,
    /// Rows in memory at most.
    most: usize,
    state: Mutex<State>,
    changed: Condvar,
    rows: AtomicU64,
    files: AtomicU64,
    bytes: AtomicU64,
    losses: Losses,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // A row that was incomplete at a panic has zeros.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lose(&self, state: &State, rows: u64) {
        let cause = match &state.failing {
            None => &self.losses.queue_full,
            Some((_, true)) => &self.losses.disk_full,
            Some((_, false)) => &self.losses.storage,
        };
        cause.fetch_add(rows, Relaxed);
    }
}

/// Writes a table of a lake, until it is dropped, which writes what waits.
pub struct Writer {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// Keeps others away.
    _lock: Option<std::fs::File>,
}

impl Writer {
    /// Opens a lake for writing.
    ///
    /// # Errors
    ///
    /// When storage fails, or another process of this host writes this table.
    pub fn open(config: &WriterConfig, table: Table) -> Result<Self> {
        let storage = config.location.open()?;
        let writer = name::writer(&config.host);
        let lock = storage.lock(table.name(), &writer)?;
        let row = Batch::row_bytes(table) + BESIDE;
        let shared = Arc::new(Shared {
            table,
            storage,
            writer,
            flush: config.flush,
            most: (config.memory / row).max(1),
            state: Mutex::new(State {
                batch: Batch::new(table),
                open: Open::default(),
                counted: Counted::default(),
                since: None,
                full: VecDeque::new(),
                waiting: 0,
                hurry: false,
                closed: false,
                given_up: false,
                failing: None,
            }),
            changed: Condvar::new(),
            rows: AtomicU64::new(0),
            files: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            losses: Losses::default(),
        });
        let theirs = shared.clone();
        let thread = std::thread::Builder::new()
            .name("skua-lake".into())
            .spawn(move || write(&theirs))
            .map_err(|error| LakeError::storage("a thread", error))?;
        Ok(Self {
            shared,
            thread: Mutex::new(Some(thread)),
            _lock: lock,
        })
    }

    /// Adds the changes of drains. Does not wait for the storage; what does not fit is counted.
    pub fn flows<'a>(&self, changes: impl Iterator<Item = FlowChange<'a>>) {
        self.put(changes, |state, change, room| {
            put_flow(
                &mut state.batch,
                &mut state.open,
                &mut state.counted,
                &change,
                room,
            )
        });
    }

    /// Adds a line of the collector on a host, like [`flows`](Self::flows).
    pub fn line(&self, collector: &str, line: &Line<'_>) {
        self.put(std::iter::once(line), |state, line, room| {
            if room {
                put_line(&mut state.batch, collector, line);
            }
            room
        });
    }

    /// `put` gets whether a row fits, and returns whether the item was stored.
    fn put<T>(&self, items: impl Iterator<Item = T>, put: impl Fn(&mut State, T, bool) -> bool) {
        let mut state = self.shared.state();
        let mut lost = 0;
        let before = state.full.len();
        for item in items {
            let room = state.waiting < self.shared.most && !state.closed;
            let rows = state.batch.rows();
            if !put(&mut state, item, room) {
                lost += 1;
            }
            state.waiting += state.batch.rows() - rows;
            if state.batch.rows() >= BATCH {
                state.rotate();
            }
        }
        if lost > 0 {
            self.shared.lose(&state, lost);
        }
        let first = state.since.is_none() && !state.batch.is_empty();
        if first {
            state.since = Some(Instant::now());
        }
        let wake = first || state.full.len() > before;
        drop(state);
        if wake {
            self.shared.changed.notify_all();
        }
    }

    /// Writes all rows and waits: false if the storage fails, or it takes longer than `patience`.
    pub fn flush(&self, patience: Duration) -> bool {
        let mut state = self.shared.state();
        state.hurry = true;
        self.shared.changed.notify_all();
        let wait = self
            .shared
            .changed
            .wait_timeout_while(state, patience, |state| {
                state.waiting > 0 && state.failing.is_none()
            });
        let (state, _) = wait.unwrap_or_else(PoisonError::into_inner);
        state.waiting == 0
    }

    /// Its status.
    pub fn stats(&self) -> WriterStats {
        let shared = &self.shared;
        let state = shared.state();
        let losses = &shared.losses;
        let lost = [
            ("queue_full", &losses.queue_full),
            ("disk_full", &losses.disk_full),
            ("storage_failed", &losses.storage),
            ("scattered_times", &losses.scattered),
        ];
        WriterStats {
            rows: shared.rows.load(Relaxed),
            files: shared.files.load(Relaxed),
            bytes: shared.bytes.load(Relaxed),
            waiting: state.waiting as u64,
            lost: lost
                .into_iter()
                .map(|(cause, rows)| (cause, rows.load(Relaxed)))
                .filter(|(_, rows)| *rows > 0)
                .collect(),
            tcp_unknown: state.counted.unknown,
            failing: state.failing.as_ref().map(|(error, _)| error.clone()),
        }
    }
}

impl Writer {
    /// Writes all rows, and ends. Rows that cannot be written now, or are added later, are lost.
    pub fn finish(&self) {
        self.shared.state().closed = true;
        self.shared.changed.notify_all();
        let thread = self
            .thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(thread) = thread {
            // What panicked there is in the log.
            let _ = thread.join();
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.finish();
    }
}

/// ms since the Unix epoch.
fn unix_ms() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_millis() as u64)
}

/// The thread: writes batches that are full or old.
fn write(shared: &Shared) {
    // Flushes are numbered by time; each of this process is later than the one before, whatever the clock does.
    let mut number = 0;
    let mut state = shared.state();
    loop {
        if let Some(batch) = state.full.pop_front() {
            drop(state);
            number = unix_ms().max(number + 1);
            write_batch(shared, &batch, number);
            state = shared.state();
            state.waiting -= batch.rows().min(state.waiting);
            shared.changed.notify_all();
            continue;
        }
        let age = state.since.map(|since| since.elapsed());
        let due = age.is_some_and(|age| age >= shared.flush);
        if due || state.hurry || state.closed {
            state.hurry = false;
            if !state.batch.is_empty() {
                state.rotate();
                continue;
            }
            if state.closed {
                return;
            }
        }
        state = match age {
            None => {
                let wait = shared.changed.wait(state);
                wait.unwrap_or_else(PoisonError::into_inner)
            }
            Some(age) => {
                let rest = shared.flush.saturating_sub(age);
                let wait = shared.changed.wait_timeout(state, rest);
                wait.unwrap_or_else(PoisonError::into_inner).0
            }
        };
    }
}

/// Writes a batch: a file for each hour.
fn write_batch(shared: &Shared, batch: &Batch, number: u64) {
    let mut hours: BTreeMap<Partition, Vec<u32>> = BTreeMap::new();
    let mut scattered = 0;
    let time = shared.table.time();
    for row in batch.sorted() {
        let partition = Partition::of(shared.table, batch.number(row as usize, time));
        if hours.len() >= HOURS && !hours.contains_key(&partition) {
            scattered += 1;
            continue;
        }
        hours.entry(partition).or_default().push(row);
    }
    if scattered > 0 {
        shared.losses.scattered.fetch_add(scattered, Relaxed);
    }
    for (partition, rows) in hours {
        let state = shared.state();
        if state.given_up {
            shared.lose(&state, rows.len() as u64);
            continue;
        }
        drop(state);
        match encode_batch(batch, &rows) {
            Ok(encoded) => put(shared, partition, encoded, number),
            Err(error) => {
                tracing::error!(%error, "rows cannot be written to the lake");
                shared.losses.storage.fetch_add(rows.len() as u64, Relaxed);
            }
        }
    }
}

/// Stores a file; retries until that succeeds or the writer ends.
fn put(shared: &Shared, partition: Partition, encoded: Encoded, number: u64) {
    let name = FileName {
        partition,
        writer: shared.writer.clone(),
        from: number,
        to: number,
        check: encoded.check,
    };
    let (path, bytes) = (name.path(), Bytes::from(encoded.bytes));
    let [mut pause, longest] = RETRY;
    loop {
        let done = shared.storage.put(&path, &bytes);
        let mut state = shared.state();
        let Err(error) = done else {
            if state.failing.take().is_some() {
                tracing::warn!("the lake is written again");
            }
            shared.rows.fetch_add(encoded.rows as u64, Relaxed);
            shared.files.fetch_add(1, Relaxed);
            shared.bytes.fetch_add(bytes.len() as u64, Relaxed);
            return;
        };
        if state.failing.is_none() {
            tracing::warn!(%error, "the lake cannot be written; rows wait");
        }
        state.failing = Some((error.to_string(), error.is_full()));
        shared.changed.notify_all();
        if state.closed {
            state.given_up = true;
            shared.lose(&state, encoded.rows as u64);
            return;
        }
        let wait = shared
            .changed
            .wait_timeout_while(state, pause, |state| !state.closed);
        drop(wait.unwrap_or_else(PoisonError::into_inner));
        pause = (pause * 2).min(longest);
    }
}
