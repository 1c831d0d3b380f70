//! A detector as the API shows it.

use std::{cmp::Reverse, collections::BTreeMap};

use serde::Serialize;
use skua_kernel::{
    KernelError,
    steer::{Counts, Event},
};
use skua_steer::{Channel, Detector};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::steer::{live::Live, manager::Steer};

/// A detector and its status.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "PascalCase")]
#[schema(as = Steer)]
pub struct SteerView {
    /// Identifier.
    #[serde(rename = "UUID")]
    pub uuid: Uuid,
    /// Its name.
    pub name: String,
    /// Where packets come in.
    pub interface: String,
    /// `report`, `redirect`, `mirror`, `mark` or `drop`.
    pub action: &'static str,
    /// Whether it only reports.
    pub dry_run: bool,
    /// `starting`, `waiting`, `no target`, `active` or `failed`.
    pub state: &'static str,
    /// Why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Who made it.
    pub who: String,
    /// When it was made, ms since the Unix epoch.
    pub created_at: i64,
    /// All settings, with their defaults.
    #[schema(value_type = Object)]
    pub detector: Detector,
    /// How it is attached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hook: Option<&'static str>,
    /// Where packets go now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<SteerTarget>,
    /// How often the target went away.
    pub target_losses: u64,
    /// It stays attached when the process is killed.
    pub stays_when_killed: bool,
    /// What the program has counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counts: Option<SteerCounts>,
    /// Bytes in the kernel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
}

/// Where packets go.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "PascalCase")]
pub struct SteerTarget {
    /// ifIndex of the interface.
    pub index: u32,
    /// Whether they go to its other end, in another namespace.
    pub peer: bool,
    /// MAC address that they go to.
    #[serde(rename = "MAC")]
    pub mac: String,
    /// MAC address that they come from.
    #[serde(rename = "SourceMAC")]
    pub source_mac: String,
    /// The program sees for itself that the target is down.
    pub seen_by_program: bool,
}

/// What the program has counted.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "PascalCase")]
pub struct SteerCounts {
    /// Packets that match.
    pub matched: u64,
    /// Packets with a value.
    pub sampled: u64,
    /// Packets whose channel stood fired.
    pub fired: u64,
    /// Packets that went on as they were.
    pub passed: u64,
    /// Packets that match and have no value, by cause.
    pub untouched: BTreeMap<&'static str, u64>,
    /// What was done with packets, by action and result.
    pub results: BTreeMap<&'static str, u64>,
    /// Events that did not fit into the ring buffer.
    pub events_lost: u64,
}

/// Channels of a detector.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "PascalCase")]
pub struct SteerChannels {
    /// Channels that have had samples.
    pub used: usize,
    /// Those that matter most.
    pub channels: Vec<SteerChannel>,
}

/// A channel.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "PascalCase")]
pub struct SteerChannel {
    /// Its number.
    pub channel: u32,
    /// `filling`, `warming up`, `calm` or `fired`.
    pub state: &'static str,
    /// Values that it has had.
    pub samples: u64,
    /// Packets whose value was a jump.
    pub fired: u64,
    /// Packets that went on as they were.
    pub passed: u64,
    /// The last value.
    pub value: f64,
    /// When that came, ns since the Unix epoch.
    pub last: u64,
    /// The moving average; null until the ring is full.
    pub average: Option<f64>,
    /// The latest values, the oldest first.
    pub ring: Vec<f64>,
}

/// Events of a detector.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "PascalCase")]
pub struct SteerEvents {
    /// Number that the next event will have.
    pub next: u64,
    /// Events, the oldest first.
    pub events: Vec<NumberedEvent>,
}

/// An event and its number.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "PascalCase")]
pub struct NumberedEvent {
    /// Number of the event since the start.
    pub number: u64,
    /// The event.
    #[serde(flatten)]
    pub event: SteerEvent,
}

/// That a channel fired, or was released.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "PascalCase")]
pub struct SteerEvent {
    /// When, ns since the Unix epoch.
    pub time: u64,
    /// Number of the channel.
    pub channel: u32,
    /// `fired` or `released`.
    pub event: &'static str,
    /// The value that did it.
    pub value: f64,
    /// The moving average before.
    pub before: f64,
    /// The moving average with it.
    pub after: f64,
    /// Which of the channel's values that was.
    pub sample: u64,
}

/// MAC address as people write it.
fn mac(address: [u8; 6]) -> String {
    address.map(|byte| format!("{byte:02x}")).join(":")
}

/// A fixed-point number as a number.
pub fn fixed_point(detector: &Detector, fixed: i64) -> f64 {
    fixed as f64 / f64::from(1u32 << detector.fraction)
}

impl Steer {
    /// All of it but channels and events.
    pub fn view(&self) -> SteerView {
        let live = self.running.live();
        let (state, reason) = live.state.name_and_reason();
        let target = live.target.as_ref().map(|target| SteerTarget {
            index: target.ifindex,
            peer: target.peer,
            mac: mac(target.destination),
            source_mac: mac(target.source),
            seen_by_program: target.device.is_known(),
        });
        let mut view = SteerView {
            uuid: self.id,
            name: self.detector.name.clone(),
            interface: self.detector.interface.clone(),
            action: self.detector.action.name(),
            dry_run: self.detector.dry_run,
            state,
            reason: reason.map(str::to_owned),
            who: self.who.clone(),
            created_at: self.created_ms,
            detector: self.detector.clone(),
            hook: live.hook.map(|hook| hook.name()),
            target,
            target_losses: live.target_losses,
            stays_when_killed: live.outlives,
            counts: None,
            memory: None,
        };
        view.add_counts(&live);
        view
    }

    /// Channels: those that matter most first, at most so many.
    pub fn channels(&self, most: usize) -> Result<SteerChannels, KernelError> {
        let live = self.running.live();
        let mut channels = Vec::new();
        let Some(steering) = &live.steering else {
            return Ok(SteerChannels { used: 0, channels });
        };
        let mut all = steering.channels()?;
        let used = all.len();
        if used > most {
            all.sort_by_key(|(number, c)| (!c.active, Reverse(c.fired), *number));
            all.truncate(most);
            all.sort_by_key(|(number, _)| *number);
        }
        for (number, _) in all {
            // With its ring, which is of the same moment.
            if let Some(channel) = steering.channel(number)? {
                channels.push(self.channel(number, &channel));
            }
        }
        Ok(SteerChannels { used, channels })
    }

    fn channel(&self, number: u32, channel: &Channel) -> SteerChannel {
        let depth = u64::from(self.detector.ring);
        let full = channel.count >= depth;
        let state = match channel {
            _ if !full => "filling",
            _ if channel.active => "fired",
            _ if channel.count <= depth + u64::from(self.detector.warm_up) => "warming up",
            _ => "calm",
        };
        let value = |fixed| fixed_point(&self.detector, fixed);
        let samples: Vec<_> = channel.samples().copied().collect();
        let last = samples.last().copied().unwrap_or_default();
        SteerChannel {
            channel: number,
            state,
            samples: channel.count,
            fired: channel.fired,
            passed: channel.count - channel.fired.min(channel.count),
            value: value(last.value),
            last: last
                .time_ns
                .saturating_add_signed(skua_kernel::unix_offset_ns()),
            // Until the ring is full it is the sum.
            average: full.then(|| value(channel.ewma)),
            ring: samples.iter().map(|sample| value(sample.value)).collect(),
        }
    }

    /// Events from a number on.
    pub fn events(&self, since: u64) -> SteerEvents {
        let mut live = self.running.live();
        live.take_events();
        let (events, next) = live.events_since(since);
        let events = events.map(|(number, (time, event))| NumberedEvent {
            number,
            event: SteerEvent::of(&self.detector, *time, event),
        });
        SteerEvents {
            events: events.collect(),
            next,
        }
    }
}

impl SteerView {
    fn add_counts(&mut self, live: &Live) {
        let Some(steering) = &live.steering else {
            return;
        };
        match steering.counts() {
            Ok(counts) => self.counts = Some(SteerCounts::of(&counts)),
            Err(error) => self.reason = Some(error.to_string()),
        }
        let memory = steering.map_memory();
        self.memory = Some(memory.iter().map(|(_, bytes)| bytes).sum());
    }
}

impl SteerEvent {
    /// An event of a detector.
    pub fn of(detector: &Detector, time_ns: u64, event: &Event) -> Self {
        Self {
            time: time_ns,
            channel: event.channel,
            event: if event.fired { "fired" } else { "released" },
            value: fixed_point(detector, event.value),
            before: fixed_point(detector, event.before),
            after: fixed_point(detector, event.after),
            sample: event.count,
        }
    }
}

impl SteerCounts {
    fn of(counts: &Counts) -> Self {
        let untouched = counts.untouched.iter();
        let results = counts.results.iter();
        Self {
            matched: counts.matched,
            sampled: counts.sampled,
            fired: counts.fired,
            passed: counts.sampled - counts.fired.min(counts.sampled),
            untouched: untouched.map(|(cause, n)| (cause.name(), *n)).collect(),
            results: results.map(|(result, n)| (result.name(), *n)).collect(),
            events_lost: counts.events_lost,
        }
    }
}
