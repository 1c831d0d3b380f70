//! A directory with a history.

use crate::{
    FlowHistory, LogStats, Restored, StoreConfig, StoreError, graph,
    lock::DirLock,
    log::{self, Log, now_ms},
};
use skua_topology::Graph;
use std::{
    path::Path,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
    time::{Duration, Instant},
};

/// Which log a file belongs to.
const GRAPH: u32 = 1;
const FLOWS: u32 = 2;

/// Interval of deleting old files.
const EXPIRE: Duration = Duration::from_secs(30);

/// How a store is, for metrics and for people.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct StoreStats {
    /// The graph's log; its records are events.
    pub graph: LogStats,
    /// The log of flows; its records are changes of flows.
    pub flows: LogStats,
    /// Bytes of flows that wait for the disk.
    pub flow_queue_bytes: usize,
}

#[derive(Default)]
struct Signal {
    dirty: bool,
    stop: bool,
}

/// Shared by the writers. The directory is unlocked when the last of them is dropped.
pub(crate) struct Shared {
    pub config: StoreConfig,
    graph: Mutex<Log>,
    flows: Mutex<Log>,
    signal: Mutex<Signal>,
    signalled: Condvar,
    // Dropped after the logs.
    _lock: DirLock,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code panics in the middle of changing a log.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub fn graph(&self) -> MutexGuard<'_, Log> {
        lock(&self.graph)
    }

    pub fn flows(&self) -> MutexGuard<'_, Log> {
        lock(&self.flows)
    }

    /// Reports a write, which is to be synced in time.
    pub fn written(&self) {
        if self.config.sync_interval.is_zero() {
            return self.sync();
        }
        let mut signal = lock(&self.signal);
        if !std::mem::replace(&mut signal.dirty, true) {
            self.signalled.notify_all();
        }
    }

    /// Syncs all writes.
    pub fn sync(&self) {
        for log in [&self.graph, &self.flows] {
            // Without the lock: writers must not wait for the sync.
            let Some((segments, dir)) = lock(log).take_unsynced() else {
                continue;
            };
            if let Err(error) = log::sync(&segments, &dir) {
                lock(log).sync_failed(&error);
            }
        }
    }

    fn expire(&self, now: i64) {
        for log in [&self.graph, &self.flows] {
            lock(log).expire(now);
        }
    }

    /// Syncs and expires until stopped. Without writes it wakes up only to expire.
    fn keep_up(&self) {
        let mut expired = Instant::now();
        loop {
            let mut signal = lock(&self.signal);
            if !signal.dirty && !signal.stop {
                let rest = EXPIRE.saturating_sub(expired.elapsed());
                let waited = self.signalled.wait_timeout(signal, rest);
                signal = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
            if signal.dirty && !signal.stop {
                // More writes may follow: the interval counts from the first.
                let waited = self.signalled.wait_timeout_while(
                    signal,
                    self.config.sync_interval,
                    |signal| !signal.stop,
                );
                signal = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
            let stop = signal.stop;
            signal.dirty = false;
            drop(signal);
            self.sync();
            if stop {
                return;
            }
            if expired.elapsed() >= EXPIRE {
                expired = Instant::now();
                self.expire(now_ms());
            }
        }
    }
}

/// The history on disk: a directory that this process has alone.
pub struct Store {
    shared: Arc<Shared>,
    flows: FlowHistory,
    thread: Option<JoinHandle<()>>,
}

impl Store {
    /// Opens the history in `dir`, or starts one there.
    ///
    /// Unfinished writes of a killed process are truncated; damaged parts are skipped, counted
    /// ([`LogStats::damage`]) and logged once. Data beyond the limits is deleted.
    ///
    /// # Errors
    ///
    /// If another process uses it, if a later version wrote it, if the directory has other files, or
    /// if the kernel refuses to read or make it.
    pub fn open(dir: &Path, config: StoreConfig) -> Result<Self, StoreError> {
        let lock = DirLock::acquire(dir)?;
        let open = |name, tag, limits| Log::open(dir, name, tag, limits, config.retry_interval);
        let shared = Arc::new(Shared {
            graph: Mutex::new(open("graph", GRAPH, config.graph)?),
            flows: Mutex::new(open("flows", FLOWS, config.flows)?),
            signal: Mutex::default(),
            signalled: Condvar::new(),
            _lock: lock,
            config,
        });
        shared.expire(now_ms());
        let begin = |error| StoreError::io("start a thread for", dir)(error);
        let flows = FlowHistory::start(shared.clone()).map_err(begin)?;
        let thread = {
            let shared = shared.clone();
            std::thread::Builder::new()
                .name("history".into())
                .spawn(move || shared.keep_up())
                .map_err(begin)?
        };
        Ok(Self {
            shared,
            flows,
            thread: Some(thread),
        })
    }

    /// Fills `graph` with the stored history, the past included: events keep their times, so that
    /// `At('-5m')` means the same as before the restart. The graph's former content and its
    /// subscribers are removed: call it before anything else.
    ///
    /// All nodes and edges that existed when the earlier process ended exist again. Their sources
    /// must report which no longer exist: [`Restored::end_missing`].
    ///
    /// # Errors
    ///
    /// Never because of damaged files: all readable parts are used.
    pub fn load_graph(&self, graph: &mut Graph) -> Result<Restored, StoreError> {
        graph::load(&self.shared, graph)
    }

    /// The history of flows.
    pub fn flows(&self) -> &FlowHistory {
        &self.flows
    }

    /// Syncs all writes so far.
    pub fn sync(&self) {
        self.shared.sync();
    }

    /// Deletes data that is too old at `now` (ms since the Unix epoch). The store also does that
    /// periodically, by the system's clock.
    pub fn expire(&self, now: i64) {
        self.shared.expire(now);
    }

    /// How it is.
    pub fn stats(&self) -> StoreStats {
        StoreStats {
            graph: self.shared.graph().stats(),
            flows: self.shared.flows().stats(),
            flow_queue_bytes: self.flows.queued_bytes(),
        }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        lock(&self.shared.signal).stop = true;
        self.shared.signalled.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
