//! The capture points of a running probe, which can be changed at any time.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use rustix::event::{EventfdFlags, eventfd};

use crate::ProbeError;

/// An interface, as the graph names it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PointId {
    /// Inode number of its network namespace.
    pub netns: u64,
    /// Its index there.
    pub ifindex: u32,
}

impl fmt::Display for PointId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "interface {} of namespace {}", self.ifindex, self.netns)
    }
}

/// Capture points; may be empty.
pub type PointSet = BTreeSet<PointId>;

/// What has happened to a capture point.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PointState {
    /// Not attached yet, and why.
    Waiting(String),
    /// Packets are counted.
    Active,
    /// It cannot be attached to, and why. It is tried again when it is added again.
    Refused(String),
    /// There is no such interface (any more). It is counted again when it comes back in the same namespace;
    /// else it is searched again when the set is replaced or it is added.
    Gone,
}

impl PointState {
    /// One word.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Waiting(_) => "waiting",
            Self::Active => "active",
            Self::Refused(_) => "refused",
            Self::Gone => "gone",
        }
    }

    /// Why it is not active.
    pub fn reason(&self) -> &str {
        match self {
            Self::Waiting(reason) | Self::Refused(reason) => reason,
            Self::Active => "",
            Self::Gone => "there is no such interface any more",
        }
    }

    fn new() -> Self {
        Self::Waiting("not attached yet".to_owned())
    }
}

/// The points of a probe, and how to change them. Clones are the same points.
#[derive(Clone)]
pub struct LivePoints(Arc<Inner>);

struct Inner {
    /// Readable when the points have been changed (an eventfd).
    wake: OwnedFd,
    table: Mutex<Table>,
    settled: Condvar,
}

#[derive(Default)]
struct Table {
    points: BTreeMap<PointId, PointState>,
    /// Changes made, and how many of these the probe has carried out.
    edits: u64,
    done: u64,
}

impl LivePoints {
    /// Points to begin with.
    ///
    /// # Errors
    ///
    /// When the system gives no descriptor.
    pub fn new(points: PointSet) -> Result<Self, ProbeError> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| ProbeError::Wait(error.into()))?;
        let live = Self(Arc::new(Inner {
            wake,
            table: Mutex::default(),
            settled: Condvar::new(),
        }));
        live.replace(points);
        Ok(live)
    }

    /// Replaces the set of points. Those that stay keep their state; missing ones are searched again.
    pub fn replace(&self, points: PointSet) {
        self.edit(|table| {
            table.retain(|point, state| *state != PointState::Gone && points.contains(point));
            for point in points {
                table.entry(point).or_insert_with(PointState::new);
            }
        });
    }

    /// Adds a point; one that was refused or is missing is tried again.
    pub fn add(&self, point: PointId) {
        self.edit(|table| {
            let state = table.entry(point).or_insert_with(PointState::new);
            if *state != PointState::Active {
                *state = PointState::new();
            }
        });
    }

    /// Removes a point.
    pub fn remove(&self, point: PointId) {
        self.edit(|table| {
            table.remove(&point);
        });
    }

    /// The points.
    pub fn set(&self) -> PointSet {
        self.lock().points.keys().copied().collect()
    }

    /// The points with their states.
    pub fn states(&self) -> Vec<(PointId, PointState)> {
        let table = self.lock();
        let states = table.points.iter();
        states
            .map(|(point, state)| (*point, state.clone()))
            .collect()
    }

    /// What has happened to a point; none: it is not in the set.
    pub fn state(&self, point: PointId) -> Option<PointState> {
        self.lock().points.get(&point).cloned()
    }

    /// Waits until the probe has applied all changes that were made before this call; false on timeout. The
    /// probe does so while it waits ([`crate::Probe::wait`]).
    pub fn settle(&self, timeout: Duration) -> bool {
        let until = Instant::now() + timeout;
        let mut table = self.lock();
        let edits = table.edits;
        while table.done < edits {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let (guard, _) = self
                .0
                .settled
                .wait_timeout(table, left)
                .unwrap_or_else(PoisonError::into_inner);
            table = guard;
        }
        true
    }

    fn edit(&self, change: impl FnOnce(&mut BTreeMap<PointId, PointState>)) {
        let mut table = self.lock();
        change(&mut table.points);
        table.edits += 1;
        drop(table);
        // It cannot be full: it is read before it has been written to so often.
        let _ = rustix::io::write(&self.0.wake, &1u64.to_ne_bytes());
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        // Each change is made as a whole.
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to carry out the changes: their number, to be given to [`done`](Self::done).
    pub(crate) fn begin(&self) -> u64 {
        let _ = rustix::io::read(&self.0.wake, &mut [0; 8]);
        self.lock().edits
    }

    /// Changes up to a number have been carried out.
    pub(crate) fn done(&self, edits: u64) {
        let mut table = self.lock();
        table.done = table.done.max(edits);
        drop(table);
        self.0.settled.notify_all();
    }

    /// Whether a point should be attached to when its interface appears.
    pub(crate) fn awaits(&self, point: PointId) -> bool {
        let state = self.state(point);
        matches!(state, Some(PointState::Waiting(_) | PointState::Gone))
    }

    /// Notes what has happened to a point, if it still is in the set.
    pub(crate) fn note(&self, point: PointId, state: PointState) {
        if let Some(known) = self.lock().points.get_mut(&point) {
            *known = state;
        }
    }

    /// Records that interfaces of a namespace were removed.
    pub(crate) fn mark_removed(&self, netns: u64, gone: impl Fn(u32) -> bool) {
        for (point, state) in &mut self.lock().points {
            if point.netns == netns && gone(point.ifindex) {
                *state = PointState::Gone;
            }
        }
    }
}

impl fmt::Debug for LivePoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.states()).finish()
    }
}

impl AsFd for LivePoints {
    /// Readable when the points have been changed.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.wake.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(ifindex: u32) -> PointId {
        PointId { netns: 1, ifindex }
    }

    #[test]
    fn edits_change_the_set_and_states_stay() {
        let live = LivePoints::new([point(1), point(2)].into()).unwrap();
        assert_eq!(live.set(), [point(1), point(2)].into());
        assert!(live.awaits(point(1)));
        live.note(point(1), PointState::Active);
        live.note(point(2), PointState::Refused("no".into()));
        live.note(point(9), PointState::Active);
        live.replace([point(1), point(2), point(3)].into());
        assert_eq!(live.state(point(1)), Some(PointState::Active));
        assert_eq!(live.state(point(2)).unwrap().reason(), "no");
        assert_eq!(live.state(point(9)), None);
        live.add(point(1));
        live.add(point(2));
        assert_eq!(live.state(point(1)), Some(PointState::Active));
        assert!(live.awaits(point(2)) && live.awaits(point(3)));
        live.remove(point(1));
        live.mark_removed(1, |ifindex| ifindex == 3);
        live.mark_removed(2, |_| true);
        let names: Vec<_> = live.states().iter().map(|(_, s)| s.name()).collect();
        assert_eq!(names, ["waiting", "gone"]);
    }

    #[test]
    fn a_change_is_settled_when_it_was_carried_out() {
        let live = LivePoints::new(PointSet::new()).unwrap();
        assert!(!live.settle(Duration::ZERO));
        let edits = live.begin();
        live.add(point(1));
        live.done(edits);
        assert!(!live.settle(Duration::ZERO));
        let probe = live.clone();
        std::thread::scope(|scope| {
            scope.spawn(|| assert!(live.settle(Duration::from_secs(60))));
            probe.done(probe.begin());
        });
    }
}
