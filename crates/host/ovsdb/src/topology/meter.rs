//! Counters of an interface.

use crate::{Atom, Row};
use skua_topology::{Map, Value};

/// Names in the graph and in the column `statistics`.
const COUNTERS: &[(&str, &str)] = &[
    ("Collisions", "collisions"),
    ("Multicast", "rx_multicast_packets"),
    ("RxBytes", "rx_bytes"),
    ("RxCrcErrors", "rx_crc_err"),
    ("RxDropped", "rx_dropped"),
    ("RxErrors", "rx_errors"),
    ("RxFrameErrors", "rx_frame_err"),
    ("RxMissedErrors", "rx_missed_errors"),
    ("RxOverErrors", "rx_over_err"),
    ("RxPackets", "rx_packets"),
    ("TxBytes", "tx_bytes"),
    ("TxDropped", "tx_dropped"),
    ("TxErrors", "tx_errors"),
    ("TxPackets", "tx_packets"),
];

/// Counters as they are, and how much more they are than before.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Meter {
    counters: [Option<i64>; COUNTERS.len()],
    /// Ms since the Unix epoch.
    time: i64,
    last_update: Option<Map>,
}

impl Meter {
    /// Of a row that came at `now`; none when it has no counters.
    pub fn new(row: &Row, now: i64) -> Option<Self> {
        let pairs = row.map("statistics");
        if pairs.is_empty() {
            return None;
        }
        let find = |(_, column): &(&str, &str)| {
            let found = pairs.iter().find(|(key, _)| key.as_str() == Some(column));
            found.and_then(|(_, value)| Atom::as_int(value))
        };
        Some(Self {
            counters: std::array::from_fn(|at| find(&COUNTERS[at])),
            time: now,
            last_update: None,
        })
    }

    /// With the increase since `before`, if any. Counters that went back were set to zero meanwhile: then
    /// the increase is unknown.
    pub fn since(mut self, before: &Self) -> Self {
        if self.counters == before.counters {
            return before.clone();
        }
        let pairs = || self.counters.iter().zip(&before.counters);
        let more = pairs().map(|(new, old)| new.zip(*old).map(|(new, old)| new.checked_sub(old)));
        let more: Vec<Option<i64>> = more.map(Option::flatten).collect();
        if more.iter().flatten().all(|more| *more >= 0) {
            self.last_update = Some(map(&more, Some(before.time), self.time));
        }
        self
    }

    /// The sums, as `Ovs.Metric`.
    pub fn metric(&self) -> Map {
        map(&self.counters, None, self.time)
    }

    /// What the last change added, as `Ovs.LastUpdateMetric`.
    pub fn last_update(&self) -> Option<Map> {
        self.last_update.clone()
    }
}

fn map(counters: &[Option<i64>], start: Option<i64>, last: i64) -> Map {
    let counters = counters.iter().zip(COUNTERS);
    let counters = counters.filter_map(|(value, (name, _))| Some((*name, (*value)?)));
    let times = start.map(|start| ("Start", start)).into_iter();
    let all = counters.chain(times).chain([("Last", last)]);
    Map::new(all.map(|(name, n)| (name.into(), Value::Int(n))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meter(packets: i64, now: i64) -> Meter {
        let text = format!(r#"{{"statistics":["map",[["rx_packets",{packets}],["x",1]]]}}"#);
        Meter::new(&serde_json::from_str(&text).unwrap(), now).unwrap()
    }

    fn at(map: &Map, name: &str) -> Option<i64> {
        map.get(name).and_then(Value::as_int)
    }

    #[test]
    fn what_came_in_between_is_the_difference() {
        let first = meter(10, 1_000);
        assert_eq!(at(&first.metric(), "RxPackets"), Some(10));
        assert_eq!(first.last_update(), None);
        let second = meter(15, 3_000).since(&first);
        let update = second.last_update().unwrap();
        assert_eq!(at(&update, "RxPackets"), Some(5));
        assert_eq!(at(&update, "Start"), Some(1_000));
        assert_eq!(at(&update, "Last"), Some(3_000));
        assert_eq!(at(&update, "TxPackets"), None);
        assert_eq!(meter(15, 9_000).since(&second), second);
    }

    #[test]
    fn counters_that_went_back_say_nothing() {
        let reset = meter(3, 2_000).since(&meter(10, 1_000));
        assert_eq!(reset.last_update(), None);
        assert_eq!(at(&reset.metric(), "RxPackets"), Some(3));
        let wild = meter(i64::MAX, 2_000).since(&meter(i64::MIN, 1_000));
        assert_eq!(wild.last_update().and_then(|m| at(&m, "RxPackets")), None);
    }
}
