//! The alerts of this process.

use super::{
    ActionSettings, Alert, AlertEvent, AlertStatus, AlertTurn, DeliveryCounters,
    action::Action,
    delivery::Deliveries,
    rounds::{Round, Rounds},
};
use crate::{
    follow::{Follower, Happened, Signal},
    resource::{ResourceError, Resources},
};
use serde::Serialize;
use skua_sources::{
    Querier,
    ask::{self, unix_ms},
};
use skua_topology::SharedGraph;
use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    },
    time::{Duration, Instant},
};
use uuid::Uuid;

/// Time between rounds that find alerts which have expired.
const ATTENTION: Duration = Duration::from_secs(10);

/// Time between rounds without alerts.
const REST: Duration = Duration::from_secs(3_600);

/// Why something cannot be done with alerts.
#[derive(Debug, thiserror::Error)]
pub enum AlertError {
    /// Something is wrong with the alert.
    #[error("{0}")]
    Wrong(String),
    /// It cannot be kept, or is not there.
    #[error(transparent)]
    Resource(#[from] ResourceError),
}

/// What alerts have done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct AlertCounters {
    /// Queries that were asked.
    pub asked: u64,
    /// Queries among them that had no answer.
    pub unanswered: u64,
    /// How often alerts have fired.
    pub fired: u64,
    /// How often they were over.
    pub resolved: u64,
    /// Events that subscribers were too slow for.
    pub lost: u64,
    /// Their actions.
    #[serde(flatten)]
    pub actions: DeliveryCounters,
}

#[derive(Default)]
struct Counters {
    asked: AtomicU64,
    unanswered: AtomicU64,
    fired: AtomicU64,
    resolved: AtomicU64,
    lost: AtomicU64,
}

/// Events of alerts as they happen. Dropping it ends the subscription.
pub struct AlertSubscription(Receiver<Arc<AlertEvent>>);

impl AlertSubscription {
    /// The next event, waiting for it at most so long. None also when there will be no more.
    pub fn next(&self, patience: Duration) -> Option<Arc<AlertEvent>> {
        self.0.recv_timeout(patience).ok()
    }
}

struct Inner {
    alerts: Resources<Alert>,
    deliveries: Deliveries,
    status: Mutex<BTreeMap<Uuid, AlertStatus>>,
    subscribers: Mutex<Vec<SyncSender<Arc<AlertEvent>>>>,
    counters: Counters,
    /// Ends a query that runs.
    cancel: AtomicBool,
}

/// Watches alerts on a thread of its own, which takes at most a fifth of a core.
pub struct AlertManager {
    // First, so that the thread ends before the rest.
    _follower: Follower,
    signal: Arc<Signal>,
    inner: Arc<Inner>,
}

impl AlertManager {
    /// Watches the alerts that were kept, and those to come.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn start(
        graph: &SharedGraph,
        querier: Arc<dyn Querier>,
        alerts: Resources<Alert>,
        settings: ActionSettings,
    ) -> std::io::Result<Self> {
        let inner = Arc::new(Inner {
            alerts,
            deliveries: Deliveries::new(settings),
            status: Mutex::default(),
            subscribers: Mutex::default(),
            counters: Counters::default(),
            cancel: AtomicBool::new(false),
        });
        let signal = Arc::new(Signal::default());
        let theirs = inner.clone();
        let mut rounds = Rounds::new(querier);
        let began = Instant::now();
        let round = move |happened: Happened| theirs.round(&mut rounds, began, happened);
        Ok(Self {
            _follower: Follower::start("alerts", graph, signal.clone(), round)?,
            signal,
            inner,
        })
    }

    /// Makes an alert.
    pub fn create(&self, mut alert: Alert) -> Result<Alert, AlertError> {
        self.check(&alert)?;
        alert.create_time = unix_ms();
        let alert = self.inner.alerts.add(alert)?;
        tracing::info!(id = %alert.uuid, expression = alert.expression, action = alert.action, "alert made");
        self.signal.ask();
        Ok(alert)
    }

    /// Changes one by a JSON patch (RFC 6902).
    pub fn patch(&self, id: &str, patch: &json_patch::Patch) -> Result<Alert, AlertError> {
        let before = self.inner.alerts.get(id)?;
        let wrong = |error: &dyn std::fmt::Display| AlertError::Wrong(error.to_string());
        let mut value = serde_json::to_value(&before).map_err(|error| wrong(&error))?;
        crate::patch::apply(&mut value, patch).map_err(|error| wrong(&error))?;
        let mut after: Alert = serde_json::from_value(value).map_err(|error| wrong(&error))?;
        (after.uuid, after.create_time) = (before.uuid, before.create_time);
        self.check(&after)?;
        self.inner.alerts.replace(after.clone())?;
        self.signal.ask();
        Ok(after)
    }

    /// Deletes one.
    pub fn delete(&self, id: &str) -> Result<Alert, AlertError> {
        let alert = self.inner.alerts.remove(id)?;
        self.signal.ask();
        Ok(alert)
    }

    /// All of them, their state, and why their last action failed.
    pub fn list(&self) -> Vec<(Alert, AlertStatus, Option<String>)> {
        let all = self.inner.alerts.all().into_iter();
        all.map(|alert| self.with_status(alert)).collect()
    }

    /// One of them.
    pub fn get(&self, id: &str) -> Result<(Alert, AlertStatus, Option<String>), AlertError> {
        Ok(self.with_status(self.inner.alerts.get(id)?))
    }

    /// Tells events from now on; when more than `capacity` wait, they are lost and counted.
    pub fn subscribe(&self, capacity: usize) -> AlertSubscription {
        let (sender, receiver) = sync_channel(capacity.max(1));
        self.inner.subscribers().push(sender);
        AlertSubscription(receiver)
    }

    /// What was done.
    pub fn counters(&self) -> AlertCounters {
        let counters = &self.inner.counters;
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        AlertCounters {
            asked: read(&counters.asked),
            unanswered: read(&counters.unanswered),
            fired: read(&counters.fired),
            resolved: read(&counters.resolved),
            lost: read(&counters.lost),
            actions: self.inner.deliveries.counters(),
        }
    }

    fn with_status(&self, alert: Alert) -> (Alert, AlertStatus, Option<String>) {
        let known = self.inner.status().get(&alert.uuid).cloned();
        let status = known.unwrap_or_else(|| AlertStatus {
            state: "new",
            // One that was kept and cannot be understood any more is not watched.
            error: alert.trigger().err().or_else(|| alert.hold().err()),
            ..AlertStatus::default()
        });
        let error = self.inner.deliveries.error(alert.uuid);
        (alert, status, error)
    }

    /// What is wrong with an alert.
    fn check(&self, alert: &Alert) -> Result<(), AlertError> {
        if alert.expression.trim().is_empty() {
            return Err(AlertError::Wrong("Expression is missing: a query".into()));
        }
        if alert
            .threshold
            .is_some_and(|threshold| !threshold.is_finite())
        {
            return Err(AlertError::Wrong("Threshold: a number".into()));
        }
        alert.trigger().map_err(AlertError::Wrong)?;
        alert.hold().map_err(AlertError::Wrong)?;
        Action::parse(&alert.action, self.inner.deliveries.settings())
            .map_err(AlertError::Wrong)?;
        ask::kind(&alert.expression)
            .map(drop)
            .map_err(AlertError::Wrong)
    }
}

impl Drop for AlertManager {
    fn drop(&mut self) {
        self.inner.cancel.store(true, Ordering::Relaxed);
    }
}

impl Inner {
    fn status(&self) -> MutexGuard<'_, BTreeMap<Uuid, AlertStatus>> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn subscribers(&self) -> MutexGuard<'_, Vec<SyncSender<Arc<AlertEvent>>>> {
        let subscribers = self.subscribers.lock();
        subscribers.unwrap_or_else(PoisonError::into_inner)
    }

    /// A round; returns the time until the next one.
    fn round(&self, rounds: &mut Rounds, began: Instant, happened: Happened) -> Duration {
        let (now, time) = (began.elapsed(), unix_ms());
        let (gone, _) = self.alerts.expire(time);
        if happened.asked || !gone.is_empty() {
            let alerts = self.alerts.all();
            self.deliveries
                .keep(|id| alerts.iter().any(|alert| alert.uuid == id));
            rounds.set_alerts(alerts, now);
        }
        let round = rounds.round(now, time, happened.graph, &self.cancel);
        *self.status() = rounds.status();
        let next = round.next;
        self.publish(round);
        let next = next.map(|next| next.saturating_sub(began.elapsed()));
        let attention = match self.alerts.is_empty() {
            // A new alert wakes the thread.
            true => REST,
            false => ATTENTION,
        };
        next.map_or(attention, |next| next.min(attention))
    }

    /// Counts what a round has found, and sends its events to actions and subscribers.
    fn publish(&self, round: Round) {
        let count = |counter: &AtomicU64, by| counter.fetch_add(by, Ordering::Relaxed);
        count(&self.counters.asked, round.asked);
        count(&self.counters.unanswered, round.failed);
        for (alert, event) in round.events {
            let counter = match event.state {
                AlertTurn::Fired => &self.counters.fired,
                AlertTurn::Resolved => &self.counters.resolved,
            };
            count(counter, 1);
            let name = &alert.name;
            tracing::info!(id = %alert.uuid, name, state = ?event.state, value = event.value, "alert");
            if let Ok(text) = serde_json::to_vec(&event) {
                self.deliveries.push(alert.uuid, &alert.action, text.into());
            }
            let event = Arc::new(event);
            self.subscribers()
                .retain(|subscriber| match subscriber.try_send(event.clone()) {
                    Ok(()) => true,
                    Err(TrySendError::Full(_)) => {
                        count(&self.counters.lost, 1);
                        true
                    }
                    Err(TrySendError::Disconnected(_)) => false,
                });
        }
    }
}
