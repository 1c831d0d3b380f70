//! What is told of a detector.

use serde_json::{Value, json};
use skua_kernel::{
    KernelError,
    steer::{Counts, Event},
};
use skua_steer::{Channel, Detector};

use crate::steer::{live::Live, manager::Steer};

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
    pub fn view(&self) -> Value {
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
            "StaysWhenKilled": live.outlives,
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
                "SeenByProgram": target.device.is_known(),
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

    /// Channels: those that matter most first, at most so many.
    pub fn channels(&self, most: usize) -> Result<Value, KernelError> {
        let live = self.running.live();
        let Some(steering) = &live.steering else {
            return Ok(json!({"Channels": [], "Used": 0}));
        };
        let mut all = steering.channels()?;
        let used = all.len();
        if used > most {
            all.sort_by_key(|(number, c)| (!c.active, std::cmp::Reverse(c.fired), *number));
            all.truncate(most);
            all.sort_by_key(|(number, _)| *number);
        }
        let mut views = Vec::with_capacity(all.len());
        for (number, _) in all {
            // With its ring, which is of the same moment.
            if let Some(channel) = steering.channel(number)? {
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
            "Value": fixed_point(&self.detector, last.value),
            "Last": last.time_ns.saturating_add_signed(offset),
            // Until the ring is full it is the sum.
            "Average": full.then(|| fixed_point(&self.detector, channel.ewma)),
            "Ring": samples.iter().map(|s| fixed_point(&self.detector, s.value)).collect::<Vec<_>>(),
        })
    }

    /// Events from a number on.
    pub fn events(&self, since: u64) -> Value {
        let mut live = self.running.live();
        live.take_events();
        let (events, next) = live.events_since(since);
        let events: Vec<_> = events
            .map(|(number, (time, event))| {
                let mut view = event_view(&self.detector, *time, event);
                view["Number"] = number.into();
                view
            })
            .collect();
        json!({"Events": events, "Next": next})
    }
}

/// That a channel fired, or does not any more.
pub fn event_view(detector: &Detector, time_ns: u64, event: &Event) -> Value {
    json!({
        "Time": time_ns,
        "Channel": event.channel,
        "Event": if event.fired { "fired" } else { "released" },
        "Value": fixed_point(detector, event.value),
        "Before": fixed_point(detector, event.before),
        "After": fixed_point(detector, event.after),
        "Sample": event.count,
    })
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
