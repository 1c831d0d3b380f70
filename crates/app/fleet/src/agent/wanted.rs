//! Captures that the analyzer wants, on a thread of their own: to start one takes time.

use skua_control::capture::{CaptureRunner, NodePoint, PointState, Running};
use std::{
    collections::BTreeMap,
    sync::{Arc, mpsc},
    thread::JoinHandle,
    time::{Duration, Instant},
};
use tokio::sync::watch;
use uuid::Uuid;

use crate::protocol::{Assigned, State};

/// Time between two reads of the states of captures: soon while one is pending, else seldom.
const SOON: Duration = Duration::from_millis(100);
const SELDOM: Duration = Duration::from_secs(1);

/// How long after a connect captures go on that the analyzer has not asked for: one that was started
/// again must see the graph first.
const SETTLE: Duration = Duration::from_secs(5);

/// How long they go on without an analyzer.
const ALONE: Duration = Duration::from_secs(600);

/// How long to wait until a capture that could not be started is tried again.
const AGAIN: Duration = Duration::from_secs(5);

/// What has happened.
pub enum Order {
    /// There is a connection.
    Connected,
    /// There is none any more.
    Gone,
    /// These are to run and no others.
    Captures(Vec<Assigned>),
}

/// Holds captures, and starts and ends them by orders.
pub struct Wanted {
    orders: Option<mpsc::Sender<Order>>,
    thread: Option<JoinHandle<()>>,
    states: watch::Receiver<Vec<State>>,
}

impl Wanted {
    /// None yet.
    pub fn start(runner: Arc<dyn CaptureRunner>) -> std::io::Result<Self> {
        let (orders, to_do) = mpsc::channel();
        let (sender, states) = watch::channel(Vec::new());
        let keeper = Keeper {
            runner,
            states: sender,
            list: Vec::new(),
            running: BTreeMap::new(),
            settled: Instant::now(),
            alone: Some(Instant::now()),
        };
        let thread = std::thread::Builder::new()
            .name("wanted".into())
            .spawn(move || keeper.work(&to_do))?;
        Ok(Self {
            orders: Some(orders),
            thread: Some(thread),
            states,
        })
    }

    /// Sends an order to the thread.
    pub fn send(&self, order: Order) {
        if let Some(orders) = &self.orders {
            // Its thread ends when this does.
            let _ = orders.send(order);
        }
    }

    /// The states of captures, whenever one changes.
    pub fn states(&self) -> watch::Receiver<Vec<State>> {
        self.states.clone()
    }
}

impl Drop for Wanted {
    fn drop(&mut self) {
        drop(self.orders.take());
        if let Some(thread) = self.thread.take() {
            // What panicked there is in the log.
            let _ = thread.join();
        }
    }
}

/// A capture that runs, or why it does not.
struct RunningCapture {
    assigned: Assigned,
    running: Result<Box<dyn Running>, (Instant, String)>,
}

impl RunningCapture {
    fn state(&self, point: &NodePoint) -> PointState {
        match &self.running {
            Ok(running) => running.state(point),
            Err((_, error)) => PointState::Refused(error.clone()),
        }
    }
}

struct Keeper {
    runner: Arc<dyn CaptureRunner>,
    states: watch::Sender<Vec<State>>,
    list: Vec<Assigned>,
    running: BTreeMap<Uuid, RunningCapture>,
    /// From when on nothing else runs.
    settled: Instant,
    alone: Option<Instant>,
}

impl Keeper {
    fn work(mut self, orders: &mpsc::Receiver<Order>) {
        let mut pause = SELDOM;
        loop {
            match orders.recv_timeout(pause) {
                Ok(Order::Connected) => {
                    self.alone = None;
                    self.settled = Instant::now() + SETTLE;
                }
                Ok(Order::Gone) => self.alone = Some(Instant::now()),
                Ok(Order::Captures(list)) => self.list = list,
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => return,
            }
            if self.alone.is_some_and(|since| since.elapsed() >= ALONE) && !self.list.is_empty() {
                tracing::warn!("no analyzer for long: its captures end");
                self.list.clear();
                self.running.clear();
            }
            self.bring_up_to_date();
            let states = self.read_states();
            let pending = states.iter().any(|s| s.state == PointState::Pending);
            pause = if pending { SOON } else { SELDOM };
            self.states.send_if_modified(|sent| {
                let changed = *sent != states;
                *sent = states;
                changed
            });
        }
    }

    fn bring_up_to_date(&mut self) {
        let wanted: BTreeMap<Uuid, &Assigned> = self
            .list
            .iter()
            .map(|assigned| (assigned.capture.uuid, assigned))
            .collect();
        if Instant::now() >= self.settled {
            self.running.retain(|id, _| wanted.contains_key(id));
        }
        for (id, assigned) in wanted {
            let same = self.running.get(&id).is_some_and(|kept| {
                let fresh = |failed: &(Instant, String)| failed.0.elapsed() < AGAIN;
                kept.assigned.capture == assigned.capture
                    && kept.running.as_ref().err().is_none_or(fresh)
            });
            if !same {
                // First the old one ends: both cannot run at once.
                self.running.remove(&id);
                let begun = self
                    .runner
                    .check(&assigned.capture)
                    .and_then(|()| self.runner.start(&assigned.capture));
                let mut running = begun.map_err(|error| (Instant::now(), error));
                if let Ok(running) = &mut running {
                    running.set_points(&assigned.points);
                }
                let assigned = assigned.clone();
                self.running
                    .insert(id, RunningCapture { assigned, running });
            } else if let Some(kept) = self.running.get_mut(&id)
                && kept.assigned.points != assigned.points
            {
                if let Ok(running) = &mut kept.running {
                    running.set_points(&assigned.points);
                }
                kept.assigned.points.clone_from(&assigned.points);
            }
        }
    }

    fn read_states(&self) -> Vec<State> {
        let of = |(id, kept): (&Uuid, &RunningCapture)| -> Vec<State> {
            let points = kept.assigned.points.iter();
            points
                .map(|point| State {
                    capture: *id,
                    node: point.node.clone(),
                    state: kept.state(point),
                    listens_at: kept.running.as_ref().ok().and_then(|r| r.listens_at(point)),
                })
                .collect()
        };
        self.running.iter().flat_map(of).collect()
    }
}
