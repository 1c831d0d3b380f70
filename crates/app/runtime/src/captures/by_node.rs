//! A capture that fits its type to each node: a part for each type that its nodes want.

use std::{
    net::SocketAddr,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use skua_control::capture::{
    Capture, CaptureRunner as _, CaptureType, NodePoint, PointState, Running,
};

use crate::captures::run::LocalRunner;

/// How long to wait until a part that could not be started is tried again.
const AGAIN: Duration = Duration::from_secs(5);

/// The nodes of one type.
struct Part {
    capture: Capture,
    points: Vec<NodePoint>,
    running: Result<Box<dyn Running>, (Instant, String)>,
}

impl Part {
    fn start(runner: &LocalRunner, capture: Capture, points: Vec<NodePoint>) -> Self {
        let checked = runner.check(&capture);
        let mut running = checked.and_then(|()| runner.start(&capture));
        if let Ok(running) = &mut running {
            running.set_points(&points);
        }
        Self {
            capture,
            points,
            running: running.map_err(|error| (Instant::now(), error)),
        }
    }
}

/// Parts of a capture.
pub struct ByNode {
    runner: LocalRunner,
    capture: Capture,
    parts: Mutex<Vec<Part>>,
}

impl ByNode {
    /// On no node yet.
    pub fn new(runner: &LocalRunner, capture: &Capture) -> Self {
        Self {
            runner: runner.clone(),
            capture: capture.clone(),
            parts: Mutex::default(),
        }
    }

    fn parts(&self) -> MutexGuard<'_, Vec<Part>> {
        // A panic half-way leaves parts that the next change replaces.
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn kind(&self, point: &NodePoint) -> CaptureType {
        self.capture.r#type.on(&point.kind)
    }
}

impl Running for ByNode {
    fn set_points(&mut self, points: &[NodePoint]) {
        let mut parts = self.parts();
        // A part without nodes stays: queries still ask for what it has counted.
        for part in &mut *parts {
            let of_kind = points
                .iter()
                .filter(|p| self.kind(p) == part.capture.r#type);
            let of_kind: Vec<_> = of_kind.cloned().collect();
            if part.points != of_kind {
                if let Ok(running) = &mut part.running {
                    running.set_points(&of_kind);
                }
                part.points = of_kind;
            }
        }
        for point in points {
            let kind = self.kind(point);
            if parts.iter().any(|part| part.capture.r#type == kind) {
                continue;
            }
            let of_kind = points.iter().filter(|p| self.kind(p) == kind).cloned();
            let capture = Capture {
                r#type: kind,
                ..self.capture.clone()
            };
            parts.push(Part::start(&self.runner, capture, of_kind.collect()));
        }
    }

    fn state(&self, point: &NodePoint) -> PointState {
        let kind = self.kind(point);
        let mut parts = self.parts();
        let Some(part) = parts.iter_mut().find(|part| part.capture.r#type == kind) else {
            return PointState::Pending;
        };
        if let Err((when, _)) = &part.running
            && when.elapsed() >= AGAIN
        {
            *part = Part::start(&self.runner, part.capture.clone(), part.points.clone());
        }
        match &part.running {
            Ok(running) => running.state(point),
            Err((_, error)) => PointState::Refused(error.clone()),
        }
    }

    fn listens_at(&self, point: &NodePoint) -> Option<SocketAddr> {
        let kind = self.kind(point);
        let parts = self.parts();
        let part = parts.iter().find(|part| part.capture.r#type == kind)?;
        part.running.as_ref().ok()?.listens_at(point)
    }
}
