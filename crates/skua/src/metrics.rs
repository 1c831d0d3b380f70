//! /metrics in Prometheus' text format.

use std::fmt::{Display, Write as _};

use skua_probe::{
    PointAccount,
    account::{CauseKind, cause_kind},
};

use crate::state::State;

struct Text(String);

impl Text {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn value(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.0 += name;
        for (i, (label, text)) in labels.iter().enumerate() {
            self.0.push(if i == 0 { '{' } else { ',' });
            let escaped = text
                .replace('\\', "\\\\")
                .replace('"', "\\\"")
                .replace('\n', "\\n");
            let _ = write!(self.0, "{label}=\"{escaped}\"");
        }
        if !labels.is_empty() {
            self.0.push('}');
        }
        let _ = writeln!(self.0, " {value}");
    }

    fn single(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.family(name, kind, help);
        self.value(name, &[], value);
    }
}

/// Everything that is counted.
pub fn text(state: &State) -> String {
    let account = &state.account;
    let store = state.totals();
    let mut text = Text(String::new());
    let points: Vec<&PointAccount> = account.points.values().collect();
    for (unit, name, help) in [
        (
            "packets",
            "skua_flow_packets_total",
            "Wire packets counted in flows, by interface.",
        ),
        (
            "bytes",
            "skua_flow_bytes_total",
            "Link-layer bytes counted in flows, by interface.",
        ),
    ] {
        text.family(name, "counter", help);
        for point in &points {
            for (direction, sum) in [
                ("ingress", point.flows.ingress),
                ("egress", point.flows.egress),
                ("mixed", point.flows.mixed),
            ] {
                let value = if unit == "packets" {
                    sum.packets
                } else {
                    sum.bytes
                };
                let labels = [
                    ("interface", point.interface.as_str()),
                    ("netns", point.netns.as_str()),
                    ("direction", direction),
                ];
                text.value(name, &labels, value);
            }
        }
    }
    for (kind, what, help) in [
        (CauseKind::Lost, "lost", "in no flow, against our will"),
        (
            CauseKind::LeftOut,
            "left_out",
            "in no flow because so configured",
        ),
        (
            CauseKind::Note,
            "noted",
            "in flows, with something to say about them",
        ),
    ] {
        for packets in [true, false] {
            let unit = if packets { "packets" } else { "bytes" };
            let name = format!("skua_{what}_{unit}_total");
            text.family(
                &name,
                "counter",
                &format!("{unit} {help}, by interface and cause."),
            );
            for point in &points {
                for (direction, causes) in [("ingress", &point.ingress), ("egress", &point.egress)]
                {
                    for cause in skua_flow::Cause::ALL {
                        let sum = causes[cause as usize];
                        if cause_kind(cause) != kind || sum == skua_flow::Counters::default() {
                            continue;
                        }
                        let labels = [
                            ("interface", point.interface.as_str()),
                            ("netns", point.netns.as_str()),
                            ("direction", direction),
                            ("cause", cause.name()),
                        ];
                        text.value(
                            &name,
                            &labels,
                            if packets { sum.packets } else { sum.bytes },
                        );
                    }
                }
            }
        }
    }
    let gauge = "gauge";
    let counter = "counter";
    text.single(
        "skua_table_entries",
        gauge,
        "Live entries of the flow table.",
        account.live,
    );
    text.single(
        "skua_table_max_entries",
        gauge,
        "Entries that the flow table may hold.",
        account.max_entries,
    );
    text.single(
        "skua_table_inserted_total",
        counter,
        "Entries made.",
        account.inserted,
    );
    text.single(
        "skua_drains_total",
        counter,
        "Drains of the flow table.",
        account.drains,
    );
    text.single(
        "skua_drains_pressed_total",
        counter,
        "Drains because the table filled up.",
        account.pressed_drains,
    );
    text.single(
        "skua_drain_cpu_seconds_total",
        counter,
        "CPU time that drains took.",
        account.drain_ns as f64 / 1e9,
    );
    text.single(
        "skua_updates_total",
        counter,
        "Flow updates taken from the table.",
        account.updates,
    );
    text.single(
        "skua_flows_total",
        counter,
        "Conversations seen.",
        store.flows,
    );
    text.single(
        "skua_flows_active",
        gauge,
        "Conversations in the history that go on.",
        store.active,
    );
    text.single(
        "skua_flows_ended",
        gauge,
        "Conversations in the history that have ended.",
        store.ended,
    );
    text.single(
        "skua_history_evicted_total",
        counter,
        "Conversations that left the history for lack of room.",
        store.evicted,
    );
    text.family("skua_map_bytes", gauge, "Kernel memory of a map.");
    for (name, bytes) in &state.map_memory {
        text.value("skua_map_bytes", &[("map", name)], bytes);
    }
    text.0
}
