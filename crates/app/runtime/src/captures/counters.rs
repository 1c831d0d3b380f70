//! Counters of interfaces that come by sFlow, as metadata of the node that is captured.

use skua_probe::receive::{InterfaceSample, SflowCounters};
use skua_process::host::unix_ms;
use skua_topology::{Map, Patch, SharedGraph, Value};
use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        mpsc::{self, RecvTimeoutError},
    },
    thread::JoinHandle,
    time::Duration,
};

/// Metadata as Skydive has it.
const KEY: &str = "SFlow";
/// How often to look for new counters.
const INTERVAL: Duration = Duration::from_secs(1);
/// Interfaces at most that are shown one by one.
const MOST: usize = 256;

/// Names of counters, as Skydive has them.
const NAMES: [&str; 13] = [
    "IfInOctets",
    "IfInUcastPkts",
    "IfInMulticastPkts",
    "IfInBroadcastPkts",
    "IfInDiscards",
    "IfInErrors",
    "IfInUnknownProtos",
    "IfOutOctets",
    "IfOutUcastPkts",
    "IfOutMulticastPkts",
    "IfOutBroadcastPkts",
    "IfOutDiscards",
    "IfOutErrors",
];

/// Counters in the order of their names.
type Sums = [i64; NAMES.len()];

fn sums_of(sample: &InterfaceSample) -> Sums {
    let of = &sample.interface;
    // All bits set: the agent does not know it.
    let octets = |n: u64| i64::try_from(n).unwrap_or(0);
    let packets = |n: u32| if n == u32::MAX { 0 } else { n.into() };
    [
        octets(of.in_octets),
        packets(of.in_unicast),
        packets(of.in_multicast),
        packets(of.in_broadcast),
        packets(of.in_discards),
        packets(of.in_errors),
        packets(of.in_unknown_protocols),
        octets(of.out_octets),
        packets(of.out_unicast),
        packets(of.out_multicast),
        packets(of.out_broadcast),
        packets(of.out_discards),
        packets(of.out_errors),
    ]
}

fn named(sums: &Sums, times: &[(&str, i64)]) -> Value {
    let counters = NAMES.iter().zip(sums).map(|(name, n)| (*name, *n));
    let all = counters.chain(times.iter().copied());
    Value::from(Map::new(
        all.map(|(name, n)| (name.into(), Value::Int(n))).collect(),
    ))
}

/// What was read last, and what came since the time before.
struct Meter {
    interfaces: BTreeMap<(u16, u32), Sums>,
    /// Ms since the Unix epoch.
    last: i64,
    latest_ns: u64,
}

impl Meter {
    fn new(now: i64) -> Self {
        Self {
            interfaces: BTreeMap::new(),
            last: now,
            latest_ns: 0,
        }
    }

    /// The metadata with these counters; none when none of them is new.
    fn read(&mut self, latest: &[InterfaceSample], now: i64) -> Option<Value> {
        let newest = latest.iter().map(|sample| sample.at_ns).max()?;
        if newest <= std::mem::replace(&mut self.latest_ns, newest) {
            return None;
        }
        let (mut total, mut more) = (Sums::default(), Sums::default());
        for sample in latest {
            let sums = sums_of(sample);
            let place = (sample.exporter, sample.ifindex);
            // What an interface has counted before is new with it, as in Skydive.
            let before = self.interfaces.insert(place, sums).unwrap_or_default();
            for (n, new) in sums.into_iter().enumerate() {
                total[n] = total[n].saturating_add(new);
                // Less than before: the agent has begun anew, or the counter.
                more[n] = more[n].saturating_add((new - before[n]).max(0));
            }
        }
        let start = std::mem::replace(&mut self.last, now);
        let shown = self.interfaces.iter().take(MOST);
        let each = shown.map(|((_, ifindex), sums)| (ifindex.to_string().into(), named(sums, &[])));
        Some(Value::from(Map::new(vec![
            ("IfMetrics".into(), Map::new(each.collect()).into()),
            ("Metric".into(), named(&total, &[("Last", now)])),
            (
                "LastUpdateMetric".into(),
                named(&more, &[("Start", start), ("Last", now)]),
            ),
        ])))
    }
}

/// A thread that writes them to a node. Dropping it takes them away.
pub struct NotedCounters {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl NotedCounters {
    /// For a node, by its identifier.
    pub fn start(
        graph: SharedGraph,
        node: Arc<str>,
        counters: SflowCounters,
    ) -> std::io::Result<Self> {
        let (stop, stopped) = mpsc::channel::<()>();
        let round = move || {
            let mut meter = Meter::new(unix_ms());
            let patch = |patch: Patch| {
                // The node may be gone.
                let _ = graph.write().patch_node(&node, &[patch], unix_ms());
            };
            while stopped.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                if let Some(value) = meter.read(&counters.latest(), unix_ms()) {
                    patch(Patch::Set(KEY.into(), value));
                }
            }
            patch(Patch::Remove(KEY.into()));
        };
        let thread = std::thread::Builder::new().name("sflow-counters".into());
        Ok(Self {
            stop: Some(stop),
            thread: Some(thread.spawn(round)?),
        })
    }
}

impl Drop for NotedCounters {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // What panicked there is in the log.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skua_wire::sflow::InterfaceCounters;

    fn sample(ifindex: u32, at_ns: u64, in_unicast: u32, out_errors: u32) -> InterfaceSample {
        InterfaceSample {
            exporter: 1,
            agent: [192, 0, 2, 7].into(),
            ifindex,
            at_ns,
            interface: InterfaceCounters {
                in_unicast,
                out_errors,
                ..InterfaceCounters::default()
            },
            ethernet: None,
        }
    }

    fn at(value: &Value, path: &str) -> Option<i64> {
        value.as_map()?.lookup(path)?.as_int()
    }

    #[test]
    fn what_came_since_the_last_counters_is_their_difference() {
        let mut meter = Meter::new(1_000);
        assert_eq!(meter.read(&[], 2_000), None);
        let first = [sample(3, 5, 10, u32::MAX), sample(4, 5, 1, 0)];
        let shown = meter.read(&first, 2_000).unwrap();
        assert_eq!(at(&shown, "Metric.IfInUcastPkts"), Some(11));
        assert_eq!(at(&shown, "Metric.IfOutErrors"), Some(0));
        assert_eq!(at(&shown, "IfMetrics.3.IfInUcastPkts"), Some(10));
        assert_eq!(at(&shown, "LastUpdateMetric.IfInUcastPkts"), Some(11));
        assert_eq!(at(&shown, "LastUpdateMetric.Start"), Some(1_000));
        // Nothing new came.
        assert_eq!(meter.read(&first, 3_000), None);
        // One interface counts on, the other anew.
        let second = [sample(3, 6, 14, 2), sample(4, 6, 0, 0)];
        let shown = meter.read(&second, 4_000).unwrap();
        assert_eq!(at(&shown, "Metric.IfInUcastPkts"), Some(14));
        assert_eq!(at(&shown, "LastUpdateMetric.IfInUcastPkts"), Some(4));
        assert_eq!(at(&shown, "LastUpdateMetric.IfOutErrors"), Some(2));
        assert_eq!(at(&shown, "LastUpdateMetric.Start"), Some(2_000));
        assert_eq!(at(&shown, "LastUpdateMetric.Last"), Some(4_000));
    }
}
