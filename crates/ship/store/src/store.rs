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

/// Old files are looked for this often.
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

/// What the writers have in common. The directory is let go of when the last of them is gone.
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
    // Nothing panics half-way through a change of a log.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub fn graph(&self) -> MutexGuard<'_, Log> {
        lock(&self.graph)
    }

    pub fn flows(&self) -> MutexGuard<'_, Log> {
        lock(&self.flows)
    }

    /// Says that something was written, which is to be forced onto the disk in time.
    pub fn written(&self) {
        if self.config.sync_interval.is_zero() {
            return self.sync();
        }
        let mut signal = lock(&self.signal);
        if !std::mem::replace(&mut signal.dirty, true) {
            self.signalled.notify_all();
        }
    }

    /// Forces onto the disk what was written.
    pub fn sync(&self) {
        for log in [&self.graph, &self.flows] {
            // Not locked meanwhile: who writes must not wait for the disk.
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

    /// Syncs and expires until it is told to stop. Asleep while nothing is written, but for expiring.
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
                // More may come: the interval counts from the first write.
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
    /// Opens the history in `dir`, or begins one there.
    ///
    /// What a killed process had begun to write is cut off; what is damaged is left out, counted
    /// ([`LogStats::damage`]) and said in the log once. What is too old by now is deleted.
    ///
    /// # Errors
    ///
    /// When another process has it, when it was written by a later program, when there are other files
    /// in the directory, or when the kernel refuses to read or make it.
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

    /// Fills `graph` with what is kept, the past included: events have their times, so that
    /// `At('-5m')` means the same as before the restart. Everything that the graph had is gone, its
    /// subscribers too: to be called before anything else is done with it.
    ///
    /// All nodes and edges that existed when the process before ended exist again. Who discovers them
    /// has to say which are not there any more: [`Restored::end_missing`].
    ///
    /// # Errors
    ///
    /// None that damage of the files causes: what can be read is used.
    pub fn load_graph(&self, graph: &mut Graph) -> Result<Restored, StoreError> {
        graph::load(&self.shared, graph)
    }

    /// The history of flows.
    pub fn flows(&self) -> &FlowHistory {
        &self.flows
    }

    /// Forces onto the disk what was written until now.
    pub fn sync(&self) {
        self.shared.sync();
    }

    /// Deletes what is too old at `now` (ms since the Unix epoch). It does so by itself, too, with the
    /// system's clock.
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
