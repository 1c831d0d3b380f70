//! Records that travel from the store that made them to another one: both must say the same sums.

use super::{NOON, S};
use crate::{Counters, EndReason, FlowKey, FlowRecord, FlowStore, FlowUpdate, StoreLimits};
use proptest::{collection::vec, prelude::*};
use std::collections::BTreeMap;

const LIMITS: StoreLimits = StoreLimits {
    records: 10_000,
    bytes: usize::MAX,
};

/// An agent with its store, and an analyzer's.
struct Pair {
    agent: FlowStore,
    analyzer: FlowStore,
    /// What the agents that were restarted had counted.
    before: (u64, Counters),
    /// First packet of each entry by the kernel's clock.
    entries: BTreeMap<u8, u64>,
    /// Monotonic time, ns.
    now: u64,
    /// What makes it wall-clock time, ns.
    offset: u64,
}

impl Pair {
    fn new() -> Self {
        let mut agent = FlowStore::new(LIMITS, 7, 1);
        agent.note_touched();
        Self {
            agent,
            analyzer: FlowStore::new(LIMITS, 0, 1),
            before: Default::default(),
            entries: BTreeMap::new(),
            now: S,
            offset: NOON,
        }
    }

    /// A drain with a packet of each of these conversations, some of which end with it.
    fn drain(&mut self, flows: &[(u8, bool)], error_ns: u64) {
        self.now += 10 * S;
        let offset = self.offset + error_ns;
        self.agent.begin_drain(self.now + offset);
        for (flow, ends) in flows {
            let first = *self.entries.entry(*flow).or_insert(self.now - S);
            if *ends {
                self.entries.remove(flow);
            }
            self.agent.apply(&FlowUpdate {
                key: FlowKey {
                    lo_port: [0, *flow],
                    proto: 6,
                    kind: 1,
                    ..FlowKey::default()
                },
                lo_sent: Counters::new(1, 60),
                first_ns: first + offset,
                last_ns: self.now + offset,
                end: ends.then_some(EndReason::Closed),
                ..FlowUpdate::default()
            });
        }
        self.agent.end_drain();
        for record in self.agent.touched() {
            self.analyzer.put(*record);
        }
    }

    /// After a new connection the agent sends all its records.
    fn reconnect(&mut self) {
        for record in self.agent.iter() {
            self.analyzer.put(*record);
        }
    }

    /// The agent's process ends and another begins: the kernel's table is lost, too.
    fn restart(&mut self) {
        let (flows, sum) = sums(&self.agent);
        self.before = (self.before.0 + flows, self.before.1 + sum);
        self.agent = FlowStore::new(LIMITS, 9, 1);
        self.agent.note_touched();
        self.entries.clear();
    }

    fn check(&self) {
        let (flows, sum) = sums(&self.agent);
        let expected = (self.before.0 + flows, self.before.1 + sum);
        assert_eq!(sums(&self.analyzer), expected);
    }
}

fn sums(store: &FlowStore) -> (u64, Counters) {
    store.iter().fold(
        Default::default(),
        |(flows, sum): (u64, Counters), record| (flows + 1, sum + record.total()),
    )
}

#[test]
fn a_flow_of_a_thousand_drains_is_one_flow_elsewhere_too() {
    let mut pair = Pair::new();
    for drain in 0..1_000u64 {
        // Each conversion to wall-clock time has another error.
        pair.drain(&[(1, false), (2, false)], 200 - drain * 7_919 % 200);
        pair.check();
    }
    let records: Vec<&FlowRecord> = pair.analyzer.iter().collect();
    assert_eq!(records.len(), 2);
    assert!(
        records
            .iter()
            .all(|r| r.total().packets == 1_000 && r.end.is_none())
    );
}

#[test]
fn an_analyzer_that_was_restarted_learns_the_same_sums() {
    let mut pair = Pair::new();
    for drain in 0..50u64 {
        pair.drain(&[(1, drain % 7 == 0), (2, false)], drain);
    }
    pair.analyzer = FlowStore::new(LIMITS, 0, 1);
    pair.reconnect();
    pair.check();
    pair.drain(&[(1, true), (2, true)], 3);
    pair.reconnect();
    pair.check();
}

#[derive(Clone, Debug)]
enum Event {
    Drain(Vec<(u8, bool)>, u8),
    /// The clock is set, by seconds.
    Clock(i8),
    Reconnect,
    Restart,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        8 => (vec((0u8..6, any::<bool>()), 0..8), any::<u8>()).prop_map(|(f, e)| Event::Drain(f, e)),
        1 => any::<i8>().prop_map(Event::Clock),
        1 => Just(Event::Reconnect),
        1 => Just(Event::Restart),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn agent_and_analyzer_say_the_same_sums_whatever_happens(events in vec(event(), 1..200)) {
        let mut pair = Pair::new();
        for event in events {
            match event {
                Event::Drain(flows, error) => pair.drain(&flows, error.into()),
                Event::Clock(seconds) => {
                    pair.offset = pair.offset.wrapping_add_signed(i64::from(seconds) * S as i64);
                }
                Event::Reconnect => pair.reconnect(),
                Event::Restart => pair.restart(),
            }
            pair.check();
        }
    }
}
