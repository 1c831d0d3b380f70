//! All detectors of this host.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use skua_config::{Config, Permission};
use skua_control::Resources;
use skua_kernel::steer::{self, Counts};
use skua_process::host::unix_ms;
use skua_steer::{Detector, Written};
use uuid::Uuid;

use crate::steer::{
    live::State,
    stored::{self, StoredDetector},
    view::{SteerChannels, SteerEvents, SteerView},
    worker::Running,
};

/// Why a detector is not made or found.
#[derive(Debug, thiserror::Error)]
pub enum SteerError {
    /// The configuration does not allow it.
    #[error("steering is forbidden here (policy.steer)")]
    Forbidden,
    /// This process watches no host.
    #[error("an analyzer steers nothing itself: apply detectors at the agent of the host")]
    Elsewhere,
    /// There are as many as there may be.
    #[error("there are {0} detectors already (steer.max)")]
    TooMany(u32),
    /// There is none of this name.
    #[error("no detector {0}")]
    Unknown(String),
    /// It cannot be as it is.
    #[error(transparent)]
    Wrong(#[from] skua_steer::SteerError),
    /// It cannot be started.
    #[error("the detector cannot be started: {0}")]
    Failed(String),
}

/// A detector that was applied.
pub struct Steer {
    pub id: Uuid,
    pub detector: Detector,
    pub who: String,
    pub created_ms: i64,
    pub running: Running,
}

/// All of them.
#[derive(Clone)]
pub struct Steers(Arc<Shared>);

struct Shared {
    permission: Permission,
    max: u32,
    here: bool,
    all: Mutex<Vec<Arc<Steer>>>,
    kept: Resources<StoredDetector>,
    ended: AtomicBool,
    /// One is applied at a time: starting takes a while, and names are unique.
    turn: Mutex<()>,
}

/// Who applies what stands in the configuration.
const FILE: &str = "the configuration";

impl Steers {
    /// Starts those of the configuration and those that were kept. `here`: this process watches a host.
    pub fn start(config: &Config, here: bool) -> anyhow::Result<Self> {
        let permission = config.policy.steer;
        let declared = config.steer.declared(permission)?;
        let steers = Self(Arc::new(Shared {
            permission,
            max: config.steer.max,
            here,
            all: Mutex::default(),
            kept: stored::open(config),
            ended: AtomicBool::new(false),
            turn: Mutex::default(),
        }));
        for detector in declared {
            let steer = steers.launch(detector, Uuid::new_v4(), FILE, unix_ms())?;
            if let State::Failed(why) = &steer.running.live().state {
                return Err(SteerError::Failed(why.clone()).into());
            }
            steers.put(steer);
        }
        if here {
            steers.resume();
            // Those that go on have ended theirs.
            for detector in steer::release(false) {
                tracing::warn!(detector, "what a killed process had left steering is ended");
            }
        }
        Ok(steers)
    }

    /// Starts those that were kept. A warning names what cannot be started, which is tried again at the next start.
    fn resume(&self) {
        for kept in self.0.kept.all() {
            let name = kept.detector.name();
            if self.find(name).is_ok() {
                tracing::warn!(
                    detector = name,
                    "the configuration has one of this name, which goes before what was applied by hand"
                );
                continue;
            }
            let launched = match kept.detector.checked() {
                Ok(detector) => self.launch(detector, kept.uuid, &kept.who, kept.created_at),
                Err(error) => Err(error.into()),
            };
            match launched {
                Ok(steer) => drop(self.put(steer)),
                Err(error) => {
                    tracing::warn!(detector = name, %error, "a detector is not there again");
                }
            }
        }
    }

    fn all(&self) -> MutexGuard<'_, Vec<Arc<Steer>>> {
        self.0.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether one may be applied now.
    fn check(&self, name: &str, who: &str) -> Result<(), SteerError> {
        if self.0.permission == Permission::Forbidden {
            tracing::warn!(
                who,
                detector = name,
                "steering was asked for, which is forbidden"
            );
            return Err(SteerError::Forbidden);
        }
        if !self.0.here {
            return Err(SteerError::Elsewhere);
        }
        if self.0.ended.load(Ordering::Relaxed) {
            return Err(SteerError::Failed("skua ends".into()));
        }
        let all = self.all();
        let new = all.iter().all(|steer| steer.detector.name != name);
        match new && all.len() >= self.0.max as usize {
            true => Err(SteerError::TooMany(self.0.max)),
            false => Ok(()),
        }
    }

    /// Starts a detector; the one before of its name steers until the new one is there.
    fn launch(
        &self,
        detector: Detector,
        id: Uuid,
        who: &str,
        created_ms: i64,
    ) -> Result<Arc<Steer>, SteerError> {
        self.check(&detector.name, who)?;
        tracing::info!(
            who,
            detector = detector.name,
            interface = detector.interface,
            action = detector.action.name(),
            dry_run = detector.dry_run,
            "a detector is applied"
        );
        let running =
            Running::start(&detector).map_err(|error| SteerError::Failed(error.to_string()))?;
        Ok(Arc::new(Steer {
            id,
            detector,
            who: who.to_owned(),
            created_ms,
            running,
        }))
    }

    /// Puts one in, in the place of that of its name; gives that back.
    fn put(&self, steer: Arc<Steer>) -> Option<Arc<Steer>> {
        let mut all = self.all();
        let same = |other: &&mut Arc<Steer>| other.detector.name == steer.detector.name;
        match all.iter_mut().find(same) {
            Some(place) => Some(std::mem::replace(place, steer)),
            None => {
                all.push(steer);
                None
            }
        }
    }

    /// Starts a detector, in place of one of the same name when there is one, and keeps it over a
    /// restart; says whether there was one.
    pub fn apply(&self, written: Written, who: &str) -> Result<(SteerView, bool), SteerError> {
        let detector = written.checked()?;
        let _turn = self.0.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.find(&detector.name).ok();
        let id = before.map_or_else(Uuid::new_v4, |before| before.id);
        let steer = self.launch(detector, id, who, unix_ms())?;
        if let State::Failed(why) = &steer.running.live().state {
            return Err(SteerError::Failed(why.clone()));
        }
        let kept = StoredDetector {
            uuid: id,
            who: who.to_owned(),
            created_at: steer.created_ms,
            detector: written,
        };
        if let Err(error) = self.0.kept.put_all(vec![kept]) {
            tracing::warn!(%error, "a detector cannot be kept over a restart");
        }
        let view = steer.view();
        let before = self.put(steer);
        Ok((view, before.is_some()))
    }

    /// The status of all.
    pub fn list(&self) -> Vec<SteerView> {
        let all = self.all().clone();
        all.iter().map(|steer| steer.view()).collect()
    }

    fn find(&self, name: &str) -> Result<Arc<Steer>, SteerError> {
        let all = self.all();
        let found = all
            .iter()
            .find(|s| s.detector.name == name || s.id.to_string() == name);
        found
            .cloned()
            .ok_or_else(|| SteerError::Unknown(name.escape_debug().to_string()))
    }

    /// The status of one, by name or identifier.
    pub fn get(&self, name: &str) -> Result<SteerView, SteerError> {
        Ok(self.find(name)?.view())
    }

    /// Channels of one: those that matter most first, at most so many.
    pub fn channels(&self, name: &str, most: usize) -> Result<SteerChannels, SteerError> {
        let channels = self.find(name)?.channels(most);
        channels.map_err(|error| SteerError::Failed(error.to_string()))
    }

    /// Events of one from a number on.
    pub fn events(&self, name: &str, since: u64) -> Result<SteerEvents, SteerError> {
        Ok(self.find(name)?.events(since))
    }

    /// Ends one, by name or identifier.
    pub fn delete(&self, name: &str, who: &str) -> Result<SteerView, SteerError> {
        let _turn = self.0.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let found = self.find(name)?;
        self.all().retain(|steer| steer.id != found.id);
        // One of the configuration was never kept.
        let _ = self.0.kept.remove(&found.id.to_string());
        let detector = &found.detector.name;
        tracing::info!(who, detector, "a detector is deleted");
        let view = found.view();
        // Before the answer: then nothing is steered any more.
        found.running.end();
        Ok(view)
    }

    /// Ends all: the process ends. They are there again at the next start.
    pub fn end(&self) {
        let _turn = self.0.turn.lock().unwrap_or_else(PoisonError::into_inner);
        self.0.ended.store(true, Ordering::Relaxed);
        let all = self.all().clone();
        all.iter().for_each(|steer| steer.running.end());
    }

    /// Name and counts of each, for metrics.
    pub fn counts(&self) -> Vec<(String, Counts)> {
        let all = self.all().clone();
        let counts = |steer: &Arc<Steer>| {
            let live = steer.running.live();
            let counts = live.steering.as_ref()?.counts().ok()?;
            Some((steer.detector.name.clone(), counts))
        };
        all.iter().filter_map(counts).collect()
    }
}
