//! The event of an alert, as actions and subscribers get it.

use super::Alert;
use serde::Serialize;
use serde_json::{Value, json};
use skua_query::{Answer, output};
use uuid::Uuid;

/// Elements of an answer in an event at most.
const MOST_ELEMENTS: usize = 20;

/// Bytes of JSON of an answer in an event at most.
const MOST_BYTES: usize = 64 << 10;

/// What has happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AlertTurn {
    /// The answer is what was waited for.
    Fired,
    /// It is not any more.
    Resolved,
}

/// An alert has fired or is over. `UUID`, `Timestamp` and `ReasonData` are as in Skydive.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct AlertEvent {
    /// The alert.
    #[serde(rename = "UUID")]
    pub alert: Uuid,
    /// The event.
    #[serde(rename = "EventID")]
    pub event: Uuid,
    /// RFC 3339.
    pub timestamp: String,
    /// What has happened.
    pub state: AlertTurn,
    /// Name of the alert.
    pub name: String,
    /// Description of the alert.
    pub description: String,
    /// Its query.
    pub expression: String,
    /// Value of the answer: the number, 1 for true, else how many elements there are.
    pub value: f64,
    /// What it was compared with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threshold: Option<f64>,
    /// The answer, or its beginning.
    pub reason_data: Value,
    /// Whether this is only the beginning.
    pub truncated: bool,
}

impl AlertEvent {
    pub(super) fn new(
        alert: &Alert,
        state: AlertTurn,
        value: f64,
        answer: Answer,
        time: i64,
    ) -> Self {
        let (reason_data, truncated) = bounded(answer);
        let timestamp = jiff::Timestamp::from_millisecond(time).unwrap_or_default();
        Self {
            alert: alert.uuid,
            event: Uuid::new_v4(),
            timestamp: timestamp.to_string(),
            state,
            name: alert.name.clone(),
            description: alert.description.clone(),
            expression: alert.expression.clone(),
            value,
            threshold: alert.threshold,
            reason_data,
            truncated,
        }
    }
}

/// What an answer is compared by.
pub(super) fn value(answer: &Answer) -> f64 {
    match answer {
        Answer::Value(skua_topology::Value::Bool(truth)) => f64::from(u8::from(*truth)),
        Answer::Value(skua_topology::Value::Null) => 0.0,
        Answer::Value(value) => value.as_f64().unwrap_or(1.0),
        other => other.len() as f64,
    }
}

/// The answer as JSON within these limits, and whether that is not all.
fn bounded(mut answer: Answer) -> (Value, bool) {
    let whole = answer.len();
    match &mut answer {
        Answer::Graph(graph) => {
            graph.nodes.truncate(MOST_ELEMENTS);
            graph.edges.truncate(MOST_ELEMENTS);
        }
        Answer::Nodes(list) => list.truncate(MOST_ELEMENTS),
        Answer::Edges(list) => list.truncate(MOST_ELEMENTS),
        Answer::Paths(list) => list.truncate(MOST_ELEMENTS),
        Answer::Values(list) => list.truncate(MOST_ELEMENTS),
        Answer::Flows(list) => list.truncate(MOST_ELEMENTS),
        Answer::Metrics(lists) | Answer::Sockets(lists) => shorten(lists),
        Answer::Packets(lists) => shorten(lists),
        Answer::Groups(lists) => shorten(lists),
        Answer::NextHops(hops) => hops.truncate(MOST_ELEMENTS),
        Answer::Value(_) => {}
    }
    let mut cut = answer.len() < whole;
    let mut json = output::json(&answer);
    while json.to_string().len() > MOST_BYTES {
        cut = true;
        json = match json {
            Value::Array(mut list) if list.len() > 1 => {
                list.truncate(list.len() / 2);
                Value::Array(list)
            }
            // One thing that is too long by itself.
            _ => json!(null),
        };
    }
    (json, cut)
}

fn shorten<T>(lists: &mut Vec<(std::sync::Arc<str>, Vec<T>)>) {
    lists.truncate(MOST_ELEMENTS);
    for (_, list) in lists {
        list.truncate(MOST_ELEMENTS);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use skua_topology::Value as Metadata;

    fn texts(count: usize, length: usize) -> Answer {
        let text = "x".repeat(length);
        Answer::Values(vec![Metadata::from(&*text); count])
    }

    #[test]
    fn answers_are_bounded() {
        let (all, cut) = bounded(texts(20, 10));
        assert_eq!((all.as_array().unwrap().len(), cut), (20, false));
        let (some, cut) = bounded(texts(21, 10));
        assert_eq!((some.as_array().unwrap().len(), cut), (20, true));
        let (some, cut) = bounded(texts(20, 10_000));
        assert!(cut && some.to_string().len() <= MOST_BYTES);
        assert!(!some.as_array().unwrap().is_empty());
        assert_eq!(bounded(texts(1, MOST_BYTES)), (Value::Null, true));
    }

    #[test]
    fn values_of_answers() {
        assert_eq!(value(&texts(3, 1)), 3.0);
        assert_eq!(value(&Answer::Value(Metadata::Int(7))), 7.0);
        assert_eq!(value(&Answer::Value(Metadata::Float(0.5))), 0.5);
        assert_eq!(value(&Answer::Value(Metadata::Bool(true))), 1.0);
        assert_eq!(value(&Answer::Value(Metadata::Bool(false))), 0.0);
        assert_eq!(value(&Answer::Value(Metadata::Null)), 0.0);
    }
}
