//! Alerts: a query that is asked again and again, and what is done when its answer is reached.

mod action;
mod delivery;
mod event;
mod manager;
mod rounds;
mod watch;

use crate::resource::Resource;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use utoipa::ToSchema;
use uuid::Uuid;

pub use action::ActionSettings;
pub use delivery::DeliveryCounters;
pub use event::{AlertEvent, AlertTurn};
pub use manager::{AlertCounters, AlertError, AlertManager, AlertSubscription};
pub use rounds::AlertStatus;

/// Shortest time between two evaluations.
const LEAST_INTERVAL: Duration = Duration::from_secs(1);

/// Longest times that are understood: a year.
const LONGEST: Duration = Duration::from_secs(365 * 86_400);

/// How a value must compare with the threshold.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub enum Operator {
    /// Greater.
    #[default]
    #[serde(rename = ">", alias = "gt")]
    Gt,
    /// Greater or equal.
    #[serde(rename = ">=", alias = "gte")]
    Gte,
    /// Less.
    #[serde(rename = "<", alias = "lt")]
    Lt,
    /// Less or equal.
    #[serde(rename = "<=", alias = "lte")]
    Lte,
    /// Equal.
    #[serde(rename = "==", alias = "eq", alias = "=")]
    Eq,
    /// Not equal.
    #[serde(rename = "!=", alias = "ne")]
    Ne,
}

impl Operator {
    /// Whether `value` compares so.
    pub fn holds(self, value: f64, threshold: f64) -> bool {
        match self {
            Self::Gt => value > threshold,
            Self::Gte => value >= threshold,
            Self::Lt => value < threshold,
            Self::Lte => value <= threshold,
            Self::Eq => value == threshold,
            Self::Ne => value != threshold,
        }
    }
}

/// An alert, in Skydive's shape. `Threshold`, `Operator` and `Hold` are ours.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "PascalCase", deny_unknown_fields, default)]
pub struct Alert {
    /// Identifier.
    #[serde(rename = "UUID", deserialize_with = "crate::skydive::id")]
    pub uuid: Uuid,
    /// For people.
    pub name: String,
    /// For people.
    pub description: String,
    /// The query.
    pub expression: String,
    /// What is done: nothing, `http(s)://…`, `file:///…`, `command:…`.
    pub action: String,
    /// When the query is asked: `graph` or `duration:10s`.
    pub trigger: String,
    /// What the answer is compared with. Without it the alert fires when the answer is not empty, not
    /// 0 and not false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threshold: Option<f64>,
    /// How it is compared.
    pub operator: Operator,
    /// For how long it must be so, like `30s`.
    pub hold: String,
    /// Ms since the Unix epoch, text in JSON. What clients send is passed over.
    #[serde(with = "crate::skydive::time")]
    #[schema(value_type = String, format = DateTime)]
    pub create_time: i64,
    /// When it ends by itself, ms since the Unix epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expire_time: Option<i64>,
}

impl Resource for Alert {
    const KIND: &'static str = "alert";

    fn id(&self) -> Uuid {
        self.uuid
    }

    fn set_id(&mut self, id: Uuid) {
        self.uuid = id;
    }

    fn ends_at(&self) -> Option<i64> {
        self.expire_time
    }

    fn is_same(&self, other: &Self) -> bool {
        self.asks_the_same(other) && self.action == other.action
    }
}

/// When an alert's query is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Trigger {
    /// When the graph has changed, and now and then besides.
    Graph,
    /// Every so often.
    Every(Duration),
}

impl Alert {
    /// Whether both fire at the same time.
    fn asks_the_same(&self, other: &Self) -> bool {
        self.expression == other.expression
            && self.trigger == other.trigger
            && self.threshold == other.threshold
            && self.operator == other.operator
            && self.hold == other.hold
    }

    fn trigger(&self) -> Result<Trigger, String> {
        match self.trigger.split_once(':') {
            None if matches!(&*self.trigger, "" | "graph") => Ok(Trigger::Graph),
            Some(("duration", text)) => match span(text, "Trigger")? {
                every if every < LEAST_INTERVAL => {
                    Err(format!("Trigger: \"{text}\" is too often: at least 1s"))
                }
                every => Ok(Trigger::Every(every)),
            },
            _ => Err(format!(
                "Trigger: \"{}\" is neither graph nor like duration:10s",
                self.trigger
            )),
        }
    }

    fn hold(&self) -> Result<Duration, String> {
        match &*self.hold {
            "" => Ok(Duration::ZERO),
            text => span(text, "Hold"),
        }
    }

    /// Whether an answer of this value is one to fire for.
    fn reached(&self, value: f64) -> bool {
        match self.threshold {
            Some(threshold) => self.operator.holds(value, threshold),
            None => value != 0.0,
        }
    }
}

fn span(text: &str, what: &str) -> Result<Duration, String> {
    // Go's durations may have a sign.
    match humantime::parse_duration(text.strip_prefix('+').unwrap_or(text)) {
        Ok(span) if span <= LONGEST => Ok(span),
        Ok(_) => Err(format!("{what}: \"{text}\" is longer than a year")),
        Err(error) => Err(format!("{what}: {error}; write it like 30s")),
    }
}
