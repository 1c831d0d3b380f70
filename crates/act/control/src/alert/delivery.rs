//! Carries out actions, each alert's on a thread of its own while it has something to do: one that hangs
//! delays no other.

use super::action::{Action, ActionSettings};
use serde::Serialize;
use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use uuid::Uuid;

/// Events of an alert that wait; the oldest go when more come.
const WAITING: usize = 16;

/// How long what waits is still carried out when the process ends.
const LAST_WORK: Duration = Duration::from_secs(2);

/// What happened to actions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct DeliveryCounters {
    /// Carried out.
    pub delivered: u64,
    /// Tried once more.
    pub retries: u64,
    /// Given up.
    pub failed: u64,
    /// Left out because too many waited.
    pub dropped: u64,
}

#[derive(Default)]
struct Counters {
    delivered: AtomicU64,
    retries: AtomicU64,
    failed: AtomicU64,
    dropped: AtomicU64,
}

#[derive(Clone)]
struct Work {
    action: String,
    event: Arc<[u8]>,
}

/// What an alert has to do.
#[derive(Default)]
struct Queue {
    waiting: VecDeque<Work>,
    busy: bool,
    error: Option<String>,
}

#[derive(Default)]
struct State {
    queues: BTreeMap<Uuid, Queue>,
    /// Commands that run.
    commands: usize,
    end: bool,
}

struct Inner {
    settings: ActionSettings,
    state: Mutex<State>,
    changed: Condvar,
    counters: Counters,
}

/// Carries out actions.
pub(super) struct Deliveries(Arc<Inner>);

fn add(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Deliveries {
    pub fn new(settings: ActionSettings) -> Self {
        Self(Arc::new(Inner {
            settings,
            state: Mutex::default(),
            changed: Condvar::new(),
            counters: Counters::default(),
        }))
    }

    pub fn settings(&self) -> &ActionSettings {
        &self.0.settings
    }

    /// Has an alert's action carried out; returns at once.
    pub fn push(&self, alert: Uuid, action: &str, event: Arc<[u8]>) {
        if action.is_empty() {
            return;
        }
        let mut state = self.0.state();
        let queue = state.queues.entry(alert).or_default();
        if queue.waiting.len() >= WAITING {
            queue.waiting.pop_front();
            add(&self.0.counters.dropped);
        }
        queue.waiting.push_back(Work {
            action: action.into(),
            event,
        });
        if queue.busy {
            return;
        }
        queue.busy = true;
        drop(state);
        let inner = self.0.clone();
        let thread = std::thread::Builder::new().name("alert-action".into());
        if let Err(error) = thread.spawn(move || inner.work(alert)) {
            let mut state = self.0.state();
            if let Some(queue) = state.queues.get_mut(&alert) {
                queue.busy = false;
                queue.error = Some(error.to_string());
            }
        }
    }

    /// Why the last action of an alert failed, if it did.
    pub fn error(&self, alert: Uuid) -> Option<String> {
        self.0.state().queues.get(&alert)?.error.clone()
    }

    /// Forgets alerts that are no more; what they have begun goes on.
    pub fn keep(&self, alive: impl Fn(Uuid) -> bool) {
        let mut state = self.0.state();
        state.queues.retain(|id, queue| queue.busy || alive(*id));
    }

    pub fn counters(&self) -> DeliveryCounters {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &self.0.counters;
        DeliveryCounters {
            delivered: read(&counters.delivered),
            retries: read(&counters.retries),
            failed: read(&counters.failed),
            dropped: read(&counters.dropped),
        }
    }
}

impl Drop for Deliveries {
    fn drop(&mut self) {
        let inner = &self.0;
        let mut state = inner.state();
        let end = Instant::now() + LAST_WORK;
        while state.queues.values().any(|queue| queue.busy) && Instant::now() < end {
            state = inner.rest(state, end.saturating_duration_since(Instant::now()));
        }
        state.end = true;
        inner.changed.notify_all();
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics half-way through a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a change, at most so long.
    fn rest<'a>(&self, state: MutexGuard<'a, State>, patience: Duration) -> MutexGuard<'a, State> {
        let waited = self.changed.wait_timeout(state, patience);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    fn ended(&self) -> bool {
        self.state().end
    }

    /// Does what an alert has to do until there is nothing left.
    fn work(&self, alert: Uuid) {
        loop {
            let mut state = self.state();
            let end = state.end;
            let Some(queue) = state.queues.get_mut(&alert) else {
                return;
            };
            let Some(work) = queue.waiting.pop_front().filter(|_| !end) else {
                queue.busy = false;
                drop(state);
                self.changed.notify_all();
                return;
            };
            drop(state);
            let done = self.deliver(&work);
            let counter = match &done {
                Ok(()) => &self.counters.delivered,
                Err(error) => {
                    tracing::warn!(%alert, action = work.action, error, "an alert's action failed");
                    &self.counters.failed
                }
            };
            add(counter);
            if let Some(queue) = self.state().queues.get_mut(&alert) {
                queue.error = done.err();
            }
        }
    }

    fn deliver(&self, work: &Work) -> Result<(), String> {
        let action = Action::parse(&work.action, &self.settings)?;
        let _place = match action {
            Action::Command(_) => Some(self.place_for_command()?),
            _ => None,
        };
        let mut pause = self.settings.backoff;
        for attempt in 1.. {
            let done = action.carry_out(&work.event, &self.settings, &|| self.ended());
            match done {
                Ok(()) => return Ok(()),
                Err(failure) if !failure.again || attempt >= self.settings.attempts => {
                    return Err(failure.text);
                }
                Err(failure) => tracing::debug!(error = failure.text, "an alert's action failed"),
            }
            if self.pause(pause) {
                return Err("the process ends".into());
            }
            add(&self.counters.retries);
            pause *= 2;
        }
        Ok(())
    }

    /// Waits; whether the process ends meanwhile.
    fn pause(&self, pause: Duration) -> bool {
        let end = Instant::now() + pause;
        let mut state = self.state();
        while !state.end {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self.rest(state, left);
        }
        state.end
    }

    /// Waits until there is room for one more command.
    fn place_for_command(&self) -> Result<RunningCommand<'_>, String> {
        let mut state = self.state();
        while state.commands >= self.settings.commands_at_once {
            if state.end {
                return Err("the process ends".into());
            }
            state = self.rest(state, Duration::from_secs(1));
        }
        state.commands += 1;
        Ok(RunningCommand(self))
    }
}

/// Counts a command that runs.
struct RunningCommand<'a>(&'a Inner);

impl Drop for RunningCommand<'_> {
    fn drop(&mut self) {
        self.0.state().commands -= 1;
        self.0.changed.notify_all();
    }
}
