//! Rates from sums that only grow.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use serde_json::{Value, json};

/// Rates in memory, one a second.
const KEPT: usize = 300;

/// Rates over time of all packets observed.
#[derive(Debug, Default)]
pub struct Rates {
    /// Bits per second.
    pub bits: VecDeque<f64>,
    /// Packets per second.
    pub packets: VecDeque<f64>,
    /// New flows per second.
    pub flows: VecDeque<f64>,
    /// The last sums, and when they were received.
    before: Option<(Duration, [u64; 3])>,
    /// Bytes in and out of each interface.
    interfaces: HashMap<String, [u64; 2]>,
}

fn push(rates: &mut VecDeque<f64>, rate: f64) {
    if rates.len() == KEPT {
        rates.pop_front();
    }
    rates.push_back(rate);
}

/// Increase per second; nothing if the counter restarted.
fn per_second(now: u64, before: u64, seconds: f64) -> f64 {
    now.saturating_sub(before) as f64 / seconds
}

impl Rates {
    /// Applies the sums of a status received `at` (a monotonic clock), and returns its interfaces with
    /// their rates; none if hardly any time has passed since the last.
    pub fn update(&mut self, status: &Value, at: Duration) -> Option<Vec<Value>> {
        let summary = &status["summary"];
        let sum = |value: &Value| value.as_u64().unwrap_or(0);
        // Each conversation once, however many interfaces see it; without a history only the interfaces' sums are known.
        let once = &summary["conversations"];
        let seen = if once.is_null() {
            &summary["seen"]
        } else {
            once
        };
        let sums = [
            sum(&seen["bytes"]),
            sum(&seen["packets"]),
            sum(&summary["table"]["inserted"]),
        ];
        let mut seconds = None;
        if let Some((then, before)) = self.before {
            let passed = at.saturating_sub(then).as_secs_f64();
            if passed < 0.2 {
                return None;
            }
            seconds = Some(passed);
            let [bytes, packets, flows] = [0, 1, 2].map(|i| per_second(sums[i], before[i], passed));
            push(&mut self.bits, bytes * 8.0);
            push(&mut self.packets, packets);
            push(&mut self.flows, flows);
        }
        self.before = Some((at, sums));
        Some(self.interfaces(summary, seconds))
    }

    fn interfaces(&mut self, summary: &Value, seconds: Option<f64>) -> Vec<Value> {
        let mut interfaces = summary["interfaces"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        interfaces.retain(Value::is_object);
        // Notes are about packets that are in flows.
        let notes = &summary["notes"];
        for interface in &mut interfaces {
            let causes = interface["causes"].as_object().into_iter().flatten();
            let causes = causes.filter(|(cause, _)| notes.get(cause.as_str()).is_none());
            let causes = causes.map(|(cause, sum)| (cause.clone(), sum.clone()));
            interface["not_in_flows"] = causes.collect::<serde_json::Map<_, _>>().into();
        }
        let mut now = HashMap::with_capacity(interfaces.len());
        for interface in &mut interfaces {
            let key = format!("{} {}", interface["netns"], interface["interface"]);
            let sums =
                ["ingress", "egress"].map(|way| interface[way]["bytes"].as_u64().unwrap_or(0));
            let before = self.interfaces.get(&key).copied();
            if let (Some(seconds), Some(before)) = (seconds, before) {
                let [inward, outward] =
                    [0, 1].map(|i| per_second(sums[i], before[i], seconds) * 8.0);
                interface["rate"] = json!({
                    "in_bits_per_second": inward, "out_bits_per_second": outward,
                });
            }
            now.insert(key, sums);
        }
        self.interfaces = now;
        interfaces
    }

    /// Forgets the sums before a pause.
    pub fn pause(&mut self) {
        self.before = None;
        self.interfaces.clear();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn status(bytes: u64) -> Value {
        json!({"summary": {
            "seen": {"bytes": bytes, "packets": 10}, "table": {"inserted": 3},
            "interfaces": [{"interface": "eth0", "netns": "", "ingress": {"bytes": bytes}}],
        }})
    }

    #[test]
    fn rates_are_what_was_added_by_the_time_that_passed() {
        let mut rates = Rates::default();
        rates.update(&status(1000), Duration::from_secs(1));
        assert!(rates.bits.is_empty());
        let interfaces = rates.update(&status(3000), Duration::from_secs(3)).unwrap();
        assert_eq!(rates.bits, [8000.0]);
        // What three interfaces see of one conversation is its rate once.
        let once = |bytes: u64| {
            let mut status = status(3 * bytes);
            status["summary"]["conversations"] = json!({"bytes": bytes, "packets": 10});
            status
        };
        let mut conversations = Rates::default();
        conversations.update(&once(1000), Duration::from_secs(1));
        conversations.update(&once(3000), Duration::from_secs(3));
        assert_eq!(conversations.bits, [8000.0]);
        assert_eq!(interfaces[0]["rate"]["in_bits_per_second"], 8000.0);
        // A new process counts from 0.
        rates.update(&status(0), Duration::from_secs(4));
        assert_eq!(rates.bits, [8000.0, 0.0]);
        rates.pause();
        rates.update(&status(1 << 40), Duration::from_secs(9));
        assert_eq!(rates.bits.len(), 2);
        for second in 10..1000 {
            rates.update(&status(1 << 40), Duration::from_secs(second));
        }
        assert_eq!(rates.bits.len(), KEPT);
    }
}
