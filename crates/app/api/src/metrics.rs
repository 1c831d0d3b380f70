//! /metrics in Prometheus' text format.

use skua_analyzer::{
    alert::AlertCounters,
    tap::{Amount, Counts as TapCounts, TapView},
};
use skua_kernel::{
    flow::{CauseCounters, PointTraffic},
    steer::Counts,
};
use skua_probe::{
    Account, PointAccount,
    account::{CauseKind, cause_kind},
};
use skua_process::prometheus::Text;
use skua_runtime::{
    sockets::{Sockets, report},
    state::State,
};
use std::collections::BTreeMap;

/// What detectors have done.
pub fn steers(all: &[(String, Counts)]) -> String {
    let mut text = Text(String::new());
    if all.is_empty() {
        return text.0;
    }
    let mut sums = |name: &str, help: &str, sum: fn(&Counts) -> u64| {
        text.family(name, "counter", help);
        for (detector, counts) in all {
            text.value(name, &[("detector", detector)], sum(counts));
        }
    };
    sums(
        "skua_steer_matched_total",
        "Packets that the expression of a detector is true for.",
        |counts| counts.matched,
    );
    sums(
        "skua_steer_sampled_total",
        "Packets whose value a detector took.",
        |counts| counts.sampled,
    );
    sums(
        "skua_steer_events_lost_total",
        "Events of a detector that found no room.",
        |counts| counts.events_lost,
    );
    let name = "skua_steer_untouched_total";
    let help = "Packets that a detector left as they were, by cause.";
    text.family(name, "counter", help);
    for (detector, counts) in all {
        for (cause, count) in &counts.untouched {
            let labels = [("detector", detector.as_str()), ("cause", cause.name())];
            text.value(name, &labels, count);
        }
    }
    let name = "skua_steer_fired_total";
    let help = "Packets of channels that stood fired, by what became of them.";
    text.family(name, "counter", help);
    for (detector, counts) in all {
        for (deed, count) in &counts.deeds {
            let labels = [("detector", detector.as_str()), ("became", deed.name())];
            text.value(name, &labels, count);
        }
    }
    text.0
}

/// What taps have copied.
pub fn taps(taps: &[TapView]) -> String {
    let mut text = Text(String::new());
    if taps.is_empty() {
        return text.0;
    }
    let state = |tap: &TapView| u8::from(tap.state == "active");
    let id = |tap: &TapView| tap.tap.uuid.to_string();
    let name = "skua_tap_active";
    text.family(name, "gauge", "Whether all of a tap is there.");
    for tap in taps {
        text.value(
            name,
            &[("tap", &id(tap)), ("name", &tap.tap.name)],
            state(tap),
        );
    }
    type Pick = fn(&Amount) -> u64;
    let sums: [(&str, &str, Pick); 2] = [
        ("packets", "Packets", |amount| amount.packets),
        ("bytes", "Bytes", |amount| amount.bytes),
    ];
    for (unit, noun, pick) in sums {
        type Of = fn(&TapCounts) -> &Amount;
        let of: [(&str, Of); 2] = [
            ("matched", |counts| &counts.matched),
            ("copied", |counts| &counts.copied),
        ];
        for (what, of) in of {
            let name = format!("skua_tap_{what}_{unit}_total");
            text.family(
                &name,
                "counter",
                &format!("{noun} that taps {what}, by source."),
            );
            for tap in taps {
                for source in &tap.sources {
                    let labels = [("tap", &*id(tap)), ("source", &*source.name)];
                    text.value(&name, &labels, pick(of(&source.all)));
                }
            }
        }
        let name = format!("skua_tap_dropped_{unit}_total");
        let help = format!("{noun} that taps did not copy, by source and cause.");
        text.family(&name, "counter", &help);
        for tap in taps {
            for source in &tap.sources {
                for (cause, amount) in &source.all.dropped {
                    let labels = [
                        ("tap", &*id(tap)),
                        ("source", &*source.name),
                        ("cause", cause),
                    ];
                    text.value(&name, &labels, pick(amount));
                }
            }
        }
        let name = format!("skua_tap_monitor_{unit}_total");
        let help = format!("{noun} of copies by monitor and what became of them.");
        text.family(&name, "counter", &help);
        for tap in taps {
            for monitor in &tap.monitors {
                for (what, amount) in [
                    ("sent", &monitor.sent),
                    ("cut", &monitor.cut),
                    ("too_big", &monitor.too_big),
                    ("failed", &monitor.failed),
                    ("strange", &monitor.strange),
                ] {
                    let labels = [
                        ("tap", &*id(tap)),
                        ("monitor", &*monitor.name),
                        ("result", what),
                    ];
                    text.value(&name, &labels, pick(amount));
                }
            }
        }
    }
    text.0
}

/// Faults that ended requests.
pub fn panics() -> String {
    let mut text = Text::default();
    let help = "Requests that ended with 500 by a fault of Skua.";
    text.family("skua_request_panics_total", "counter", help);
    text.value(
        "skua_request_panics_total",
        &[],
        skua_process::panics::requests(),
    );
    text.0
}

/// Queries that asked for too much.
pub fn queries() -> String {
    let mut text = Text::default();
    let help = "Queries that ended at a limit of time, elements, memory or results.";
    text.family("skua_queries_limited_total", "counter", help);
    let limited = crate::topology::limited();
    text.value("skua_queries_limited_total", &[], limited);
    text.0
}

/// What alerts have done.
pub fn alerts(counters: &AlertCounters) -> String {
    let mut text = Text(String::new());
    let mut sums = |name: &str, help: &str, label: &str, values: &[(&str, u64)]| {
        text.family(name, "counter", help);
        for (kind, value) in values {
            text.value(name, &[(label, kind)], value);
        }
    };
    let answered = counters.asked.saturating_sub(counters.unanswered);
    sums(
        "skua_alert_queries_total",
        "Queries of alerts that were asked.",
        "result",
        &[("answered", answered), ("failed", counters.unanswered)],
    );
    sums(
        "skua_alert_turns_total",
        "How often alerts have fired and were over.",
        "state",
        &[("fired", counters.fired), ("resolved", counters.resolved)],
    );
    let actions = counters.actions;
    sums(
        "skua_alert_actions_total",
        "Actions of alerts: carried out, given up, left out because too many waited.",
        "result",
        &[
            ("delivered", actions.delivered),
            ("failed", actions.failed),
            ("dropped", actions.dropped),
        ],
    );
    text.single(
        "skua_alert_retries_total",
        "counter",
        "Actions of alerts that were tried once more.",
        actions.retries,
    );
    text.single(
        "skua_alert_events_lost_total",
        "counter",
        "Events that subscribers were too slow for.",
        counters.lost,
    );
    text.0
}

/// The interface under which those that are gone go on being counted.
const GONE: &str = "(gone)";

/// Sums under one pair of labels.
#[derive(Default)]
struct Series {
    flows: PointTraffic,
    ingress: CauseCounters,
    egress: CauseCounters,
}

impl Series {
    fn add(&mut self, point: &PointAccount) {
        self.flows += point.flows;
        for i in 0..point.ingress.len() {
            self.ingress[i] += point.ingress[i];
            self.egress[i] += point.egress[i];
        }
    }
}

/// Sums by interface and namespace. Prometheus refuses the same labels twice, so an interface that
/// was deleted and made again counts as one.
fn series(account: &Account) -> BTreeMap<(&str, &str), Series> {
    let mut series = BTreeMap::<_, Series>::new();
    series.entry((GONE, "")).or_default().add(&account.gone);
    for point in account.points.values() {
        let labels = (point.interface.as_str(), point.netns.as_str());
        series.entry(labels).or_default().add(point);
    }
    series
}

/// Everything that is counted.
pub fn text(state: &State) -> String {
    let account = &state.account;
    let store = state.totals();
    let mut text = Text(String::new());
    let points = series(account);
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
        for ((interface, netns), point) in &points {
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
                    ("interface", *interface),
                    ("netns", *netns),
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
            for ((interface, netns), point) in &points {
                for (direction, causes) in [("ingress", &point.ingress), ("egress", &point.egress)]
                {
                    for cause in skua_flow::Cause::ALL {
                        let sum = causes[cause as usize];
                        if cause_kind(cause) != kind {
                            continue;
                        }
                        let labels = [
                            ("interface", *interface),
                            ("netns", *netns),
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
    let name = "skua_address_prefixes";
    text.family(name, gauge, "Prefixes in the address set, by mark.");
    text.value(name, &[("mark", "include")], account.addresses.include);
    text.value(name, &[("mark", "exclude")], account.addresses.exclude);
    text.single(
        "skua_interfaces_not_watched",
        gauge,
        "Interfaces that are not watched, because there would be too many programs in the kernel.",
        account.not_watched,
    );
    text.single(
        "skua_programs",
        gauge,
        "Programs that this process has loaded into the kernel.",
        skua_kernel::loaded_programs(),
    );
    text.single(
        "skua_programs_max",
        gauge,
        "Programs that it may have loaded.",
        skua_kernel::MOST_PROGRAMS,
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
    if let Some(sockets) = &state.sockets {
        socket_text(&mut text, sockets);
    }
    text.0
}

/// What is counted of sockets.
fn socket_text(text: &mut Text, sockets: &Sockets) {
    for (name, kind, help, value) in report::metrics(sockets) {
        text.single(name, kind, help, value);
    }
    let name = "skua_sockets_lost_total";
    text.family(name, "counter", "Sockets that became no record, by cause.");
    for (cause, lost) in sockets.losses.by_cause() {
        text.value(name, &[("cause", cause)], lost);
    }
    let name = "skua_socket_map_bytes";
    text.family(
        name,
        "gauge",
        "Kernel memory of a map of the socket programs.",
    );
    for (map, bytes) in &sockets.map_memory {
        text.value(name, &[("map", map)], bytes);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use skua_flow::{Cause, Counters};

    use super::*;

    fn point(interface: &str, packets: u64) -> PointAccount {
        let mut point = PointAccount {
            interface: interface.into(),
            ..PointAccount::default()
        };
        point.flows.ingress = Counters {
            packets,
            bytes: 60 * packets,
        };
        point
    }

    fn written(points: impl IntoIterator<Item = PointAccount>, gone: PointAccount) -> String {
        let mut state = State::new(0, 1, 1, 1);
        state.account.gone = gone;
        for (i, point) in points.into_iter().enumerate() {
            state.account.points.insert((0, i as u32), point);
        }
        text(&state)
    }

    fn total(text: &str, name: &str) -> u64 {
        text.lines()
            .filter(|l| l.starts_with(&format!("{name}{{")))
            .map(|l| l.rsplit(' ').next().unwrap().parse::<u64>().unwrap())
            .sum()
    }

    #[test]
    fn sums_keep_what_interfaces_that_are_gone_counted() {
        let name = "skua_flow_packets_total";
        let before = written(
            [point("eth0", 5), point("veth1", 7)],
            PointAccount::default(),
        );
        let after = written([point("eth0", 5)], point("", 7));
        assert_eq!((total(&before, name), total(&after, name)), (12, 12));
        assert!(
            after.contains(r#"{interface="(gone)",netns="",direction="ingress"} 7"#),
            "{after}"
        );
        // The series is there before the first one is gone.
        assert!(before.contains(r#"{interface="(gone)",netns="",direction="ingress"} 0"#));
    }

    #[test]
    fn no_series_comes_twice() {
        let text = written(
            [point("veth1", 7), point("veth1", 2)],
            PointAccount::default(),
        );
        let mut names = BTreeSet::new();
        for line in text.lines().filter(|l| !l.starts_with('#')) {
            let name = line.rsplit_once(' ').unwrap().0;
            assert!(names.insert(name), "{name}");
        }
        assert_eq!(total(&text, "skua_flow_packets_total"), 9);
    }

    #[test]
    fn every_cause_is_there_from_the_start() {
        let text = written([point("eth0", 5)], PointAccount::default());
        for cause in Cause::ALL {
            let labels = format!(
                r#"{{interface="eth0",netns="",direction="ingress",cause="{}"}} 0"#,
                cause.name()
            );
            assert!(text.contains(&labels), "{labels}");
        }
    }
}
