//! All detectors of this host.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use skua_kernel::steer::{Counts, Event};
use skua_steer::{Channel, Detector};
use uuid::Uuid;

use super::{
    live::{Live, State},
    worker::Running,
};
use crate::{
    config::{Config, Permission},
    graph::unix_ms,
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
struct Steer {
    id: Uuid,
    detector: Detector,
    who: String,
    created_ms: i64,
    running: Running,
}

/// All of them.
#[derive(Clone)]
pub struct Steers(Arc<Shared>);

struct Shared {
    permission: Permission,
    max: u32,
    here: bool,
    all: Mutex<Vec<Arc<Steer>>>,
    /// One is applied at a time: starting takes a while, and names are unique.
    turn: Mutex<()>,
}

/// Who applies what stands in the configuration.
const FILE: &str = "the configuration";

impl Steers {
    /// Starts those of the configuration. `here`: this process watches a host.
    pub fn start(config: &Config, here: bool) -> anyhow::Result<Self> {
        let permission = config.policy.steer;
        let declared = config.steer.declared(permission)?;
        let steers = Self(Arc::new(Shared {
            permission,
            max: config.steer.max,
            here,
            all: Mutex::default(),
            turn: Mutex::default(),
        }));
        for detector in declared {
            steers.apply(detector, FILE)?;
        }
        Ok(steers)
    }

    fn all(&self) -> MutexGuard<'_, Vec<Arc<Steer>>> {
        self.0.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a detector, in place of one of the same name when there is one; says whether there was.
    pub fn apply(&self, detector: Detector, who: &str) -> Result<(Value, bool), SteerError> {
        let name = detector.name.clone();
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
        let _turn = self.0.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let same = |all: &[Arc<Steer>]| all.iter().position(|s| s.detector.name == name);
        let full = {
            let all = self.all();
            same(&all).is_none() && all.len() >= self.0.max as usize
        };
        if full {
            return Err(SteerError::TooMany(self.0.max));
        }
        tracing::info!(
            who,
            detector = name,
            interface = detector.interface,
            action = detector.action.name(),
            dry_run = detector.dry_run,
            "a detector is applied"
        );
        // The one before steers until the new one is there.
        let running =
            Running::start(&detector).map_err(|error| SteerError::Failed(error.to_string()))?;
        if let State::Failed(why) = &running.live().state {
            return Err(SteerError::Failed(why.clone()));
        }
        let steer = Arc::new(Steer {
            id: Uuid::new_v4(),
            detector,
            who: who.to_owned(),
            created_ms: unix_ms(),
            running,
        });
        let view = steer.view();
        let mut all = self.all();
        let before = match same(&all).and_then(|place| all.get_mut(place)) {
            Some(place) => Some(std::mem::replace(place, steer)),
            None => {
                all.push(steer);
                None
            }
        };
        drop(all);
        Ok((view, before.is_some()))
    }

    /// What is told of all.
    pub fn list(&self) -> Vec<Value> {
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

    /// What is told of one, by name or identifier.
    pub fn get(&self, name: &str) -> Result<Value, SteerError> {
        Ok(self.find(name)?.view())
    }

    /// Channels of one: those that matter most first, at most so many.
    pub fn channels(&self, name: &str, most: usize) -> Result<Value, SteerError> {
        let steer = self.find(name)?;
        steer.channels(most)
    }

    /// Events of one from a number on.
    pub fn events(&self, name: &str, since: u64) -> Result<Value, SteerError> {
        let steer = self.find(name)?;
        let mut live = steer.running.live();
        live.take_events();
        let (events, next) = live.events_since(since);
        let events: Vec<_> = events
            .map(|(number, (time, event))| steer.event(number, *time, event))
            .collect();
        Ok(json!({"Events": events, "Next": next}))
    }

    /// Ends one, by name or identifier.
    pub fn delete(&self, name: &str, who: &str) -> Result<Value, SteerError> {
        let found = self.find(name)?;
        self.all().retain(|steer| steer.id != found.id);
        let detector = &found.detector.name;
        tracing::info!(who, detector, "a detector is deleted");
        let view = found.view();
        // Before the answer: then nothing is steered any more.
        if let Some(steer) = Arc::into_inner(found) {
            drop(steer);
        }
        Ok(view)
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

/// MAC address as people write it.
fn mac(address: [u8; 6]) -> String {
    address.map(|byte| format!("{byte:02x}")).join(":")
}

impl Steer {
    /// A fixed-point number as a number.
    fn number(&self, fixed: i64) -> f64 {
        fixed as f64 / f64::from(1u32 << self.detector.fraction)
    }

    fn view(&self) -> Value {
        let live = self.running.live();
        let (state, reason) = live.state.told();
        let mut view = json!({
            "UUID": self.id,
            "Name": self.detector.name,
            "Interface": self.detector.interface,
            "Action": self.detector.action.name(),
            "DryRun": self.detector.dry_run,
            "State": state,
            "Who": self.who,
            "CreatedAt": self.created_ms,
            "Detector": self.detector,
            "TargetLosses": live.target_losses,
        });
        if let Some(reason) = reason {
            view["Reason"] = reason.into();
        }
        if let Some(hook) = live.hook {
            view["Hook"] = hook.name().into();
        }
        if let Some(target) = &live.target {
            view["Target"] = json!({
                "Index": target.ifindex,
                "Peer": target.peer,
                "MAC": mac(target.destination),
                "SourceMAC": mac(target.source),
            });
        }
        self.add_counts(&mut view, &live);
        view
    }

    fn add_counts(&self, view: &mut Value, live: &Live) {
        let Some(steering) = &live.steering else {
            return;
        };
        match steering.counts() {
            Ok(counts) => view["Counts"] = counts_view(&counts),
            Err(error) => view["Reason"] = error.to_string().into(),
        }
        let memory: u64 = steering.map_memory().iter().map(|(_, bytes)| bytes).sum();
        view["Memory"] = memory.into();
    }

    fn channels(&self, most: usize) -> Result<Value, SteerError> {
        let failed = |error: skua_kernel::KernelError| SteerError::Failed(error.to_string());
        let live = self.running.live();
        let Some(steering) = &live.steering else {
            return Ok(json!({"Channels": [], "Used": 0}));
        };
        let mut all = steering.channels().map_err(failed)?;
        let used = all.len();
        if used > most {
            all.sort_by_key(|(number, c)| (!c.active, std::cmp::Reverse(c.fired), *number));
            all.truncate(most);
            all.sort_by_key(|(number, _)| *number);
        }
        let mut views = Vec::with_capacity(all.len());
        for (number, _) in all {
            // With its ring, which is of the same moment.
            if let Some(channel) = steering.channel(number).map_err(failed)? {
                views.push(self.channel(number, &channel));
            }
        }
        Ok(json!({"Channels": views, "Used": used}))
    }

    fn channel(&self, number: u32, channel: &Channel) -> Value {
        let depth = u64::from(self.detector.ring);
        let full = channel.count >= depth;
        let state = match channel {
            _ if !full => "filling",
            _ if channel.active => "fired",
            _ if channel.count <= depth + u64::from(self.detector.warm_up) => "warming up",
            _ => "calm",
        };
        let samples: Vec<_> = channel.samples().copied().collect();
        let offset = skua_kernel::unix_offset_ns();
        let last = samples.last().copied().unwrap_or_default();
        json!({
            "Channel": number,
            "State": state,
            "Samples": channel.count,
            "Fired": channel.fired,
            "Passed": channel.count - channel.fired.min(channel.count),
            "Value": self.number(last.value),
            "Last": last.time_ns.saturating_add_signed(offset),
            // Until the ring is full it is the sum.
            "Average": full.then(|| self.number(channel.ewma)),
            "Ring": samples.iter().map(|s| self.number(s.value)).collect::<Vec<_>>(),
        })
    }

    fn event(&self, number: u64, time_ns: u64, event: &Event) -> Value {
        json!({
            "Number": number,
            "Time": time_ns,
            "Channel": event.channel,
            "Event": if event.fired { "fired" } else { "released" },
            "Value": self.number(event.value),
            "Before": self.number(event.before),
            "After": self.number(event.after),
            "Sample": event.count,
        })
    }
}

/// Counts by name.
fn counts_view(counts: &Counts) -> Value {
    let untouched = counts.untouched.iter();
    let untouched: serde_json::Map<String, Value> = untouched
        .map(|(cause, count)| (cause.name().to_owned(), (*count).into()))
        .collect();
    let deeds = counts.deeds.iter();
    let deeds: serde_json::Map<String, Value> = deeds
        .map(|(deed, count)| (deed.name().to_owned(), (*count).into()))
        .collect();
    json!({
        "Matched": counts.matched,
        "Sampled": counts.sampled,
        "Fired": counts.fired,
        "Passed": counts.sampled - counts.fired.min(counts.sampled),
        "Untouched": untouched,
        "Deeds": deeds,
        "EventsLost": counts.events_lost,
    })
}
