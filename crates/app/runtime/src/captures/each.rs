//! Captures that have something of their own for each node: a receiver, a mirror, an exporter.

use skua_control::capture::{NodePoint, PointState, Running};
use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
    time::{Duration, Instant},
};

/// After a failure, it is tried again so much later.
const AGAIN: Duration = Duration::from_secs(5);

/// What runs for one node. Dropping it ends it.
pub trait Opened: Send {
    /// Its status.
    fn state(&self) -> PointState;
    /// Where it listens.
    fn listens_at(&self) -> Option<SocketAddr>;
}

/// Opens what runs for a node. May wait; called from a thread of its own.
pub type Open = dyn FnMut(&NodePoint) -> anyhow::Result<Box<dyn Opened>> + Send;

/// What has happened to a node.
enum NodeState {
    Opened(Box<dyn Opened>),
    Failed(String, Instant),
}

#[derive(Default)]
struct Wanted {
    points: Vec<NodePoint>,
    /// Counts what was wanted, so that it is seen that something else is.
    edits: u64,
    stop: bool,
}

#[derive(Default)]
struct Inner {
    wanted: Mutex<Wanted>,
    changed: Condvar,
    places: Mutex<BTreeMap<Arc<str>, NodeState>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing is left half-changed.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A capture with a thread that opens and closes: neither may hold up other captures.
pub struct Each {
    inner: Arc<Inner>,
    thread: Option<JoinHandle<()>>,
}

impl Each {
    /// On no node yet.
    pub fn start(mut open: Box<Open>) -> std::io::Result<Self> {
        let inner = Arc::new(Inner::default());
        let theirs = inner.clone();
        let thread = std::thread::Builder::new()
            .name("capture-nodes".into())
            .spawn(move || theirs.follow(&mut open))?;
        Ok(Self {
            inner,
            thread: Some(thread),
        })
    }
}

impl Inner {
    fn follow(&self, open: &mut Open) {
        let mut seen = 0;
        loop {
            let (points, stop) = {
                let wanted = lock(&self.wanted);
                let rests = |wanted: &mut Wanted| !wanted.stop && wanted.edits == seen;
                let waited = self.changed.wait_timeout_while(wanted, AGAIN, rests);
                let (wanted, _) = waited.unwrap_or_else(PoisonError::into_inner);
                seen = wanted.edits;
                (wanted.points.clone(), wanted.stop)
            };
            let points = if stop { Vec::new() } else { points };
            self.bring_up_to_date(&points, seen, open);
            if stop {
                return;
            }
        }
    }

    /// Whether something else is wanted by now.
    fn is_outdated(&self, edits: u64) -> bool {
        let wanted = lock(&self.wanted);
        wanted.stop || wanted.edits != edits
    }

    fn bring_up_to_date(&self, points: &[NodePoint], edits: u64, open: &mut Open) {
        let wanted = |node: &Arc<str>| points.iter().any(|point| point.node == *node);
        let gone: Vec<NodeState> = {
            let mut places = lock(&self.places);
            let gone: Vec<_> = places
                .keys()
                .filter(|node| !wanted(node))
                .cloned()
                .collect();
            gone.iter().filter_map(|node| places.remove(node)).collect()
        };
        // Without the lock: this may wait.
        drop(gone);
        for point in points {
            if self.is_outdated(edits) {
                return;
            }
            match lock(&self.places).get(&point.node) {
                Some(NodeState::Opened(_)) => continue,
                Some(NodeState::Failed(_, when)) if when.elapsed() < AGAIN => continue,
                _ => {}
            }
            let place = match open(point) {
                Ok(opened) => NodeState::Opened(opened),
                Err(error) => NodeState::Failed(skua_output::one_line(&error), Instant::now()),
            };
            lock(&self.places).insert(point.node.clone(), place);
        }
    }
}

impl Running for Each {
    fn set_points(&mut self, points: &[NodePoint]) {
        let mut wanted = lock(&self.inner.wanted);
        wanted.points = points.to_vec();
        wanted.edits += 1;
        self.inner.changed.notify_all();
    }

    fn state(&self, point: &NodePoint) -> PointState {
        match lock(&self.inner.places).get(&point.node) {
            Some(NodeState::Opened(opened)) => opened.state(),
            Some(NodeState::Failed(why, _)) => PointState::Refused(why.clone()),
            None => PointState::Pending,
        }
    }

    fn listens_at(&self, point: &NodePoint) -> Option<SocketAddr> {
        match lock(&self.inner.places).get(&point.node)? {
            NodeState::Opened(opened) => opened.listens_at(),
            NodeState::Failed(..) => None,
        }
    }
}

impl Drop for Each {
    fn drop(&mut self) {
        lock(&self.inner.wanted).stop = true;
        self.inner.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // What panicked there is in the log.
            let _ = thread.join();
        }
    }
}
