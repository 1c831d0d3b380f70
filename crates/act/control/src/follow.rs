//! Threads that work a round whenever the graph changes, and not too often.

use skua_topology::{Closer, SharedGraph};
use std::{
    io,
    sync::{Arc, Condvar, Mutex, PoisonError},
    thread::JoinHandle,
    time::{Duration, Instant},
};

/// Time to wait after a change for others, so that one round serves many.
pub(crate) const SETTLE: Duration = Duration::from_millis(50);

/// Rounds take at most one part of so many of a core.
const SHARE: u32 = 5;

/// Events that wait; when more come, a round follows all the same.
const EVENTS: usize = 256;

/// Time that a thread waits for a change; the closer wakes it at the end.
const ATTENTION: Duration = Duration::from_secs(3_600);

/// What has happened since the last wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Happened {
    /// The graph has changed.
    pub graph: bool,
    /// The list of what is to be done has changed.
    pub asked: bool,
    /// It is time to end.
    pub end: bool,
}

/// Wakes a thread.
#[derive(Default)]
pub(crate) struct Signal {
    happened: Mutex<Happened>,
    woken: Condvar,
}

impl Signal {
    fn change(&self, change: impl FnOnce(&mut Happened)) {
        let mut happened = self.happened.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut happened);
        self.woken.notify_all();
    }

    /// The list of what is to be done has changed.
    pub fn ask(&self) {
        self.change(|happened| happened.asked = true);
    }

    /// It is time to end, for good.
    pub fn end(&self) {
        self.change(|happened| happened.end = true);
    }

    fn ended(&self) -> bool {
        let happened = self.happened.lock().unwrap_or_else(PoisonError::into_inner);
        happened.end
    }

    /// Waits until something has happened, at most so long.
    pub fn wait(&self, patience: Duration) -> Happened {
        let happened = self.happened.lock().unwrap_or_else(PoisonError::into_inner);
        let nothing = |happened: &mut Happened| *happened == Happened::default();
        let waited = self
            .woken
            .wait_timeout_while(happened, patience, nothing)
            .unwrap_or_else(PoisonError::into_inner);
        let mut happened = waited.0;
        let end = happened.end;
        std::mem::replace(
            &mut *happened,
            Happened {
                end,
                ..Happened::default()
            },
        )
    }

    /// Waits until it is time to end, at most so long; whether it is.
    pub fn wait_for_end(&self, patience: Duration) -> bool {
        let happened = self.happened.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self
            .woken
            .wait_timeout_while(happened, patience, |happened| !happened.end);
        waited.unwrap_or_else(PoisonError::into_inner).0.end
    }
}

/// Two threads: the graph wakes the first, the second works the rounds. Dropping it ends both.
pub(crate) struct Follower {
    signal: Arc<Signal>,
    closer: Closer,
    worker: Option<JoinHandle<()>>,
}

impl Follower {
    /// Calls `round` at once, whenever the graph has changed, on a request, and after the time
    /// that `round` returned.
    pub fn start(
        name: &str,
        graph: &SharedGraph,
        signal: Arc<Signal>,
        mut round: impl FnMut(Happened) -> Duration + Send + 'static,
    ) -> io::Result<Self> {
        let events = graph.write().subscribe(EVENTS);
        let closer = events.closer();
        let watched = signal.clone();
        let watch = move || {
            while !watched.ended() && !events.is_closed() {
                if events.next(ATTENTION).is_none() {
                    continue;
                }
                if watched.wait_for_end(SETTLE) {
                    return;
                }
                while events.try_next().is_some() {}
                // Only now: the round that follows sees what has happened meanwhile.
                watched.change(|happened| happened.graph = true);
            }
        };
        let waiting = signal.clone();
        let work = move || {
            let mut happened = Happened {
                graph: true,
                asked: true,
                end: false,
            };
            while !happened.end {
                let began = Instant::now();
                let patience = round(happened);
                let rest = (began.elapsed() * (SHARE - 1)).min(patience);
                if waiting.wait_for_end(rest) {
                    return;
                }
                happened = waiting.wait(patience.saturating_sub(rest));
            }
        };
        let thread = |name: String| std::thread::Builder::new().name(name);
        let worker = thread(name.into()).spawn(work)?;
        let follower = Self {
            signal,
            closer,
            worker: Some(worker),
        };
        // It ends by itself; no thread waits for that.
        thread(format!("{name}-wake")).spawn(watch)?;
        Ok(follower)
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.signal.end();
        self.closer.close();
        if let Some(thread) = self.worker.take() {
            // A thread that panicked has nothing left to end.
            let _ = thread.join();
        }
    }
}
