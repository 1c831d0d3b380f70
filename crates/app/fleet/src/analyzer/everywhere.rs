//! Captures here and at agents: each host's part of the nodes goes to who can capture there.

use skua_control::capture::{Capture, CaptureRunner, NodePoint, PointState, Running};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use crate::analyzer::Fleet;

/// How long to wait until a capture that could not be started here is tried again.
const AGAIN: Duration = Duration::from_secs(5);

/// Runs captures here and on the hosts of agents.
pub struct Everywhere {
    /// On our own host; none when nothing is captured here.
    pub local: Option<Arc<dyn CaptureRunner>>,
    /// The others.
    pub fleet: Fleet,
}

/// The part of a capture on our own host.
#[derive(Default)]
struct Here {
    running: Option<Box<dyn Running>>,
    points: Vec<NodePoint>,
    failed: Option<(Instant, String)>,
}

struct RunsEverywhere {
    capture: Capture,
    runner: Option<Arc<dyn CaptureRunner>>,
    here: Mutex<Here>,
    fleet: Fleet,
    hosts: BTreeSet<Arc<str>>,
}

impl CaptureRunner for Everywhere {
    fn check(&self, capture: &Capture) -> Result<(), String> {
        match &self.local {
            Some(local) => local.check(capture),
            None => Ok(()),
        }
    }

    fn start(&self, capture: &Capture) -> Result<Box<dyn Running>, String> {
        Ok(Box::new(RunsEverywhere {
            capture: capture.clone(),
            runner: self.local.clone(),
            here: Mutex::default(),
            fleet: self.fleet.clone(),
            hosts: BTreeSet::new(),
        }))
    }
}

impl RunsEverywhere {
    fn here(&self) -> MutexGuard<'_, Here> {
        // A panic half-way leaves a capture that is tried again.
        self.here.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the part here when there is something to capture and it does not run.
    fn start_here(&self, here: &mut Here) {
        let tried = here.failed.as_ref().map(|(when, _)| when.elapsed());
        if here.points.is_empty()
            || here.running.is_some()
            || tried.is_some_and(|since| since < AGAIN)
        {
            return;
        }
        let Some(runner) = &self.runner else { return };
        match runner.start(&self.capture) {
            Ok(mut running) => {
                running.set_points(&here.points);
                here.running = Some(running);
                here.failed = None;
            }
            Err(error) => here.failed = Some((Instant::now(), error)),
        }
    }
}

impl Running for RunsEverywhere {
    fn set_points(&mut self, points: &[NodePoint]) {
        let mut by_host: BTreeMap<Arc<str>, Vec<NodePoint>> = BTreeMap::new();
        for point in points {
            let list = by_host.entry(point.host.clone()).or_default();
            list.push(point.clone());
        }
        let mut here = self.here();
        here.points = by_host.remove(self.fleet.host()).unwrap_or_default();
        let Here {
            running, points, ..
        } = &mut *here;
        match running {
            Some(running) => running.set_points(points),
            None => self.start_here(&mut here),
        }
        drop(here);
        let before = std::mem::take(&mut self.hosts);
        for host in before.iter().filter(|host| !by_host.contains_key(*host)) {
            self.fleet.assign(host, &self.capture, Vec::new());
        }
        for (host, points) in by_host {
            self.fleet.assign(&host, &self.capture, points);
            self.hosts.insert(host);
        }
    }

    fn state(&self, point: &NodePoint) -> PointState {
        if point.host != *self.fleet.host() {
            return self.fleet.state(self.capture.uuid, point);
        }
        if self.runner.is_none() {
            return PointState::Refused("an analyzer captures nothing itself".into());
        }
        let mut here = self.here();
        self.start_here(&mut here);
        match (&here.running, &here.failed) {
            (Some(running), _) => running.state(point),
            (None, Some((_, error))) => PointState::Refused(error.clone()),
            (None, None) => PointState::Pending,
        }
    }

    fn listens_at(&self, point: &NodePoint) -> Option<SocketAddr> {
        if point.host != *self.fleet.host() {
            return self.fleet.listens_at(self.capture.uuid, point);
        }
        self.here().running.as_ref()?.listens_at(point)
    }
}

impl Drop for RunsEverywhere {
    fn drop(&mut self) {
        for host in &self.hosts {
            self.fleet.assign(host, &self.capture, Vec::new());
        }
    }
}
