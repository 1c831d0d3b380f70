//! Asks the queries of alerts when they are due.

use super::{Alert, AlertEvent, AlertTurn, Trigger, event, watch::Watch};
use crate::resource::Resource as _;
use serde::Serialize;
use skua_query::{Answer, Limits};
use skua_sources::Querier;
use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};
use utoipa::ToSchema;
use uuid::Uuid;

/// Time until an alert on the graph is evaluated although the graph has not changed: flows change without it.
const AT_LEAST: Duration = Duration::from_secs(10);

/// Time that a query may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// The status of an alert.
#[derive(Clone, PartialEq, Debug, Default, Serialize, ToSchema)]
#[serde(rename_all = "PascalCase")]
pub struct AlertStatus {
    /// `quiet`, `pending` (within its hold time) or `firing`.
    pub state: &'static str,
    /// Value of the last answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
    /// Why there was no answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// How often it has fired.
    pub fired: u64,
    /// When it fired last, ms since the Unix epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_fired: Option<i64>,
}

/// An alert that is watched.
struct Watched {
    alert: Alert,
    trigger: Trigger,
    hold: Duration,
    watch: Watch,
    /// Time of the next evaluation at the latest.
    due: Duration,
    /// The values that it has fired with.
    values: Option<Vec<skua_topology::Value>>,
    status: AlertStatus,
}

/// What a round has yielded.
#[derive(Default)]
pub(super) struct Round {
    pub events: Vec<(Alert, AlertEvent)>,
    /// When the next round is due.
    pub next: Option<Duration>,
    pub asked: u64,
    pub failed: u64,
}

/// All alerts with what is known of each.
pub(super) struct Rounds {
    querier: Arc<dyn Querier>,
    watched: BTreeMap<Uuid, Watched>,
}

impl Rounds {
    pub fn new(querier: Arc<dyn Querier>) -> Self {
        Self {
            querier,
            watched: BTreeMap::new(),
        }
    }

    /// Takes over which alerts there are.
    pub fn set_alerts(&mut self, alerts: Vec<Alert>, now: Duration) {
        let mut before = std::mem::take(&mut self.watched);
        for alert in alerts {
            // They have been checked when they were made; of kept ones that cannot be read any more
            // the status says so.
            let (trigger, hold) = match (alert.trigger(), alert.hold()) {
                (Ok(trigger), Ok(hold)) => (trigger, hold),
                _ => continue,
            };
            let fresh = |alert: Alert| Watched {
                alert,
                trigger,
                hold,
                watch: Watch::default(),
                due: now,
                values: None,
                status: AlertStatus {
                    state: Watch::default().name(),
                    ..AlertStatus::default()
                },
            };
            let id = alert.id();
            let watched = match before.remove(&id) {
                Some(known) if known.alert.asks_the_same(&alert) => Watched { alert, ..known },
                _ => fresh(alert),
            };
            self.watched.insert(id, watched);
        }
    }

    /// Looks at all that are due; `changed` says that the graph has changed. `now` counts from an
    /// arbitrary moment, `time` in ms since the Unix epoch.
    pub fn round(&mut self, now: Duration, time: i64, changed: bool, cancel: &AtomicBool) -> Round {
        let mut round = Round::default();
        for watched in self.watched.values_mut() {
            if now >= watched.due || (changed && watched.trigger == Trigger::Graph) {
                round.asked += 1;
                match watched.evaluate(&*self.querier, now, time, cancel) {
                    Ok(event) => round.events.extend(event),
                    Err(()) => round.failed += 1,
                }
            }
        }
        round.next = self.watched.values().map(|watched| watched.due).min();
        round
    }

    /// The status of each alert.
    pub fn status(&self) -> BTreeMap<Uuid, AlertStatus> {
        let all = self.watched.iter();
        all.map(|(id, watched)| (*id, watched.status.clone()))
            .collect()
    }
}

impl Watched {
    fn evaluate(
        &mut self,
        querier: &dyn Querier,
        now: Duration,
        time: i64,
        cancel: &AtomicBool,
    ) -> Result<Option<(Alert, AlertEvent)>, ()> {
        let limits = Limits {
            time: PATIENCE,
            ..Limits::default()
        };
        let regular = match self.trigger {
            Trigger::Graph => AT_LEAST,
            Trigger::Every(interval) => interval,
        };
        self.due = now + regular;
        let answer = match querier.ask(&self.alert.expression, limits, cancel) {
            Ok(answer) => answer,
            Err(error) => {
                // Nothing is known: it stays as it is.
                self.status.error = Some(error);
                return Err(());
            }
        };
        let value = event::value(&answer);
        let turn = self.watch.step(self.alert.reached(value), now, self.hold);
        let turn = turn.or_else(|| self.anew(&answer).then_some(AlertTurn::Fired));
        if let (Some(AlertTurn::Fired), Answer::Values(values)) = (turn, &answer) {
            self.values = Some(values.clone());
        }
        if let Some(due) = self.watch.due(self.hold) {
            self.due = self.due.min(due);
        }
        self.status.error = None;
        self.status.value = Some(value);
        self.status.state = self.watch.name();
        if turn == Some(AlertTurn::Fired) {
            self.status.fired += 1;
            self.status.last_fired = Some(time);
        }
        Ok(turn.map(|turn| {
            let event = AlertEvent::new(&self.alert, turn, value, answer, time);
            (self.alert.clone(), event)
        }))
    }

    /// Whether it fires again: it asks for values as Skydive's alerts do, without threshold and hold
    /// time, and has fired with others.
    fn anew(&self, answer: &Answer) -> bool {
        let plain = self.alert.threshold.is_none() && self.hold.is_zero();
        match (answer, &self.values) {
            (Answer::Values(values), Some(before)) => {
                plain && self.watch == Watch::Firing && values != before
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::alert::Operator;
    use skua_topology::{Config, Node, SharedGraph};

    fn add(graph: &SharedGraph, name: &str) {
        let metadata = skua_topology::Map::from([("Name", name.into())]);
        let node = Node::new(name, "h", metadata);
        graph.write().add_node(node, 1).unwrap();
    }

    fn alert(expression: &str, trigger: &str, hold: &str) -> Alert {
        Alert {
            uuid: Uuid::new_v4(),
            expression: expression.into(),
            trigger: trigger.into(),
            hold: hold.into(),
            ..Alert::default()
        }
    }

    struct Lab {
        graph: SharedGraph,
        rounds: Rounds,
    }

    impl Lab {
        fn new(alerts: &[&Alert]) -> Self {
            let graph = SharedGraph::new(Config::default());
            let mut rounds = Rounds::new(Arc::new(graph.clone()));
            let alerts = alerts.iter().copied().cloned().collect();
            rounds.set_alerts(alerts, Duration::ZERO);
            Self { graph, rounds }
        }

        fn round(&mut self, seconds: u64, changed: bool) -> Round {
            let now = Duration::from_secs(seconds);
            let cancel = AtomicBool::new(false);
            self.rounds.round(now, 1_000_000, changed, &cancel)
        }

        fn turns(&mut self, seconds: u64, changed: bool) -> Vec<AlertTurn> {
            let round = self.round(seconds, changed);
            round.events.into_iter().map(|(_, e)| e.state).collect()
        }
    }

    #[test]
    fn the_graph_wakes_alerts_on_the_graph_alone() {
        let on_graph = alert("G.V().Has('Name', 'a')", "graph", "");
        let timed = alert("G.V().Has('Name', 'a')", "duration:60s", "");
        let mut lab = Lab::new(&[&on_graph, &timed]);
        assert_eq!(lab.round(0, false).asked, 2, "all at first");
        add(&lab.graph, "a");
        assert_eq!(lab.round(1, false).asked, 0);
        let round = lab.round(2, true);
        assert_eq!(round.asked, 1);
        let [(alert, event)] = &round.events[..] else {
            panic!()
        };
        assert_eq!(alert.uuid, on_graph.uuid);
        assert_eq!((event.state, event.value), (AlertTurn::Fired, 1.0));
        assert_eq!(event.reason_data[0]["Metadata"]["Name"], "a");
        assert_eq!(event.timestamp, "1970-01-01T00:16:40Z");
        assert_eq!(lab.turns(60, false), [AlertTurn::Fired], "the timed one");
        lab.graph.write().delete_node("a", 2).unwrap();
        assert_eq!(lab.turns(61, true), [AlertTurn::Resolved]);
        let status = &lab.rounds.status()[&on_graph.uuid];
        assert_eq!((status.fired, status.state), (1, "quiet"));
        // Flows change without the graph.
        assert_eq!(lab.round(71, false).asked, 1);
    }

    #[test]
    fn the_end_of_the_hold_time_is_due_by_itself() {
        let held = alert("G.V()", "graph", "25s");
        let mut lab = Lab::new(&[&held]);
        lab.round(0, true);
        add(&lab.graph, "a");
        assert_eq!(lab.turns(100, true), []);
        assert_eq!(lab.rounds.status()[&held.uuid].state, "pending");
        let round = lab.round(118, true);
        assert_eq!(round.next, Some(Duration::from_secs(125)));
        assert_eq!(lab.turns(124, true), []);
        assert_eq!(lab.turns(125, false), [AlertTurn::Fired]);
    }

    #[test]
    fn thresholds() {
        let mut at_least_two = alert("G.V().Count()", "graph", "");
        at_least_two.threshold = Some(2.0);
        at_least_two.operator = Operator::Gte;
        let none = Alert {
            threshold: Some(0.0),
            operator: Operator::Eq,
            ..alert("G.V()", "graph", "")
        };
        let mut lab = Lab::new(&[&at_least_two]);
        assert_eq!(lab.turns(0, true), []);
        add(&lab.graph, "a");
        assert_eq!(lab.turns(1, true), []);
        add(&lab.graph, "b");
        assert_eq!(lab.turns(2, true), [AlertTurn::Fired]);
        let mut lab = Lab::new(&[&none]);
        assert_eq!(lab.turns(0, true), [AlertTurn::Fired]);
        add(&lab.graph, "a");
        assert_eq!(lab.turns(1, true), [AlertTurn::Resolved]);
        // Without a threshold a count of 0 is nothing.
        let mut lab = Lab::new(&[&alert("G.V().Count()", "graph", "")]);
        assert_eq!(lab.turns(0, true), []);
    }

    #[test]
    fn values_that_change_fire_anew_unless_a_threshold_or_hold_time_is_given() {
        let plain = alert("G.V().Values('Name')", "graph", "");
        let count = alert("G.V().Count()", "graph", "");
        let held = alert("G.V().Values('Name')", "graph", "1s");
        let mut lab = Lab::new(&[&plain, &count, &held]);
        let fired = |round: Round| {
            let fired = round
                .events
                .into_iter()
                .map(|(alert, event)| (alert.uuid, event.reason_data));
            fired.collect::<BTreeMap<_, _>>()
        };
        add(&lab.graph, "a");
        assert_eq!(fired(lab.round(0, true)).len(), 2);
        assert_eq!(fired(lab.round(2, true)).len(), 1, "the one that is held");
        add(&lab.graph, "b");
        let again = fired(lab.round(3, true));
        assert_eq!(again.keys().collect::<Vec<_>>(), [&plain.uuid]);
        assert_eq!(again[&plain.uuid].as_array().unwrap().len(), 2);
        assert_eq!(fired(lab.round(4, true)).len(), 0, "they are the same");
    }

    #[test]
    fn a_query_that_fails_changes_nothing_and_stops_no_other() {
        let wrong = alert("G.Flows()", "graph", "");
        let right = alert("G.V()", "graph", "");
        let mut lab = Lab::new(&[&wrong, &right]);
        add(&lab.graph, "a");
        let round = lab.round(0, true);
        assert_eq!((round.asked, round.failed, round.events.len()), (2, 1, 1));
        assert!(lab.rounds.status()[&wrong.uuid].error.is_some());
    }

    #[test]
    fn another_name_changes_nothing_another_query_begins_anew() {
        let first = alert("G.V()", "graph", "");
        let mut lab = Lab::new(&[&first]);
        add(&lab.graph, "a");
        assert_eq!(lab.turns(0, true), [AlertTurn::Fired]);
        let renamed = Alert {
            name: "other".into(),
            ..first.clone()
        };
        lab.rounds.set_alerts(vec![renamed.clone()], Duration::ZERO);
        assert_eq!(lab.turns(1, true), []);
        let other = Alert {
            expression: "G.V().Has('Name')".into(),
            ..renamed
        };
        lab.rounds.set_alerts(vec![other], Duration::ZERO);
        assert_eq!(lab.turns(2, false), [AlertTurn::Fired]);
    }
}
