//! Metrics of alerts.

use skua_control::alert::AlertCounters;
use skua_process::metrics::Exposition;

skua_process::metrics! { "Alerts"
    QUERIES counter "skua_alert_queries_total" ["result"] "Queries of alerts, by whether they were answered.";
    TURNS counter "skua_alert_turns_total" ["state"] "Alerts that fired, and that were over.";
    ACTIONS counter "skua_alert_actions_total" ["result"] "Actions of alerts: carried out, given up, dropped as too many waited.";
    RETRIES counter "skua_alert_retries_total" [] "Actions of alerts that were tried once more.";
    EVENTS_LOST counter "skua_alert_events_lost_total" [] "Events that subscribers were too slow for.";
}

pub fn write(out: &mut Exposition, counters: &AlertCounters) {
    let mut queries = out.family(&QUERIES);
    let answered = counters.asked.saturating_sub(counters.unanswered);
    queries.value(["answered"], answered);
    queries.value(["failed"], counters.unanswered);
    let mut turns = out.family(&TURNS);
    turns.value(["fired"], counters.fired);
    turns.value(["resolved"], counters.resolved);
    let mut actions = out.family(&ACTIONS);
    actions.value(["delivered"], counters.actions.delivered);
    actions.value(["failed"], counters.actions.failed);
    actions.value(["dropped"], counters.actions.dropped);
    out.single(&RETRIES, counters.actions.retries);
    out.single(&EVENTS_LOST, counters.lost);
}
