//! Compacts a lake and deletes old files, periodically.

use std::{
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread::JoinHandle,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use crate::{
    error::{LakeError, Result},
    lake::{Lake, Retention, Tidied},
};

/// Maintains a lake until it is dropped.
pub struct Keeper {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    ended: Mutex<bool>,
    changed: Condvar,
    compacted: AtomicU64,
    deleted: AtomicU64,
    failed: AtomicU64,
}

/// What a keeper has done since it began.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct KeeperStats {
    /// Files that were compacted into others.
    pub compacted: u64,
    /// Files that were deleted.
    pub deleted: u64,
    /// Attempts that failed, or found damaged files.
    pub failed: u64,
}

/// The time now, µs since the Unix epoch.
pub fn now_us() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_micros() as i64)
}

impl Keeper {
    /// Starts the maintenance, each `interval`.
    ///
    /// # Errors
    ///
    /// If no thread can be started.
    pub fn start(
        lake: Lake,
        host: String,
        retention: Retention,
        interval: Duration,
    ) -> Result<Self> {
        let shared = Arc::new(Shared {
            ended: Mutex::new(false),
            changed: Condvar::new(),
            compacted: AtomicU64::new(0),
            deleted: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        });
        let theirs = shared.clone();
        let thread = std::thread::Builder::new()
            .name("skua-lake-keep".into())
            .spawn(move || {
                while theirs.wait(interval) {
                    let now = now_us();
                    theirs.note("compacted", lake.compact(Some(&host), now));
                    if theirs.has_ended() {
                        break;
                    }
                    theirs.note("cleaned", lake.expire(&retention, now));
                }
            })
            .map_err(|error| LakeError::storage("a thread", error))?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// Work done so far.
    pub fn stats(&self) -> KeeperStats {
        KeeperStats {
            compacted: self.shared.compacted.load(Relaxed),
            deleted: self.shared.deleted.load(Relaxed),
            failed: self.shared.failed.load(Relaxed),
        }
    }
}

impl Shared {
    /// Waits for `interval`; false if it is stopped.
    fn wait(&self, interval: Duration) -> bool {
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        let wait = self
            .changed
            .wait_timeout_while(ended, interval, |ended| !*ended);
        !*wait.unwrap_or_else(PoisonError::into_inner).0
    }

    fn has_ended(&self) -> bool {
        *self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, what: &str, done: Result<Tidied>) {
        match done {
            Ok(done) => {
                self.compacted.fetch_add(done.from as u64, Relaxed);
                self.deleted.fetch_add(done.deleted as u64, Relaxed);
                self.failed.fetch_add(done.damaged as u64, Relaxed);
            }
            // Another process is compacting.
            Err(LakeError::Locked(_)) => {}
            Err(error) => {
                self.failed.fetch_add(1, Relaxed);
                tracing::warn!(%error, "the lake cannot be {what}");
            }
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        *self
            .shared
            .ended
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // What panicked there is in the log.
            let _ = thread.join();
        }
    }
}
