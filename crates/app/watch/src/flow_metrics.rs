//! Metrics of flows: what was counted on each interface, the kernel's table, the drain, the history.

use std::collections::BTreeMap;

use skua_flow::Cause;
use skua_kernel::flow::{CauseCounters, PointTraffic};
use skua_probe::{
    Account, PointAccount,
    account::{CauseKind, cause_kind},
};
use skua_process::metrics::{Exposition, Metric};

use skua_state::Counts;

skua_process::metrics! { "Flows"
    PACKETS counter "skua_flow_packets_total" ["interface", "netns", "direction"] "Packets on the wire that were counted in flows.";
    BYTES counter "skua_flow_bytes_total" ["interface", "netns", "direction"] "Bytes of the link layer that were counted in flows.";
    LOST_PACKETS counter "skua_lost_packets_total" ["interface", "netns", "direction", "cause"] "Packets that were lost: they are in no flow, by cause.";
    LOST_BYTES counter "skua_lost_bytes_total" ["interface", "netns", "direction", "cause"] "Bytes that were lost: they are in no flow, by cause.";
    LEFT_OUT_PACKETS counter "skua_left_out_packets_total" ["interface", "netns", "direction", "cause"] "Packets in no flow because so configured, by cause.";
    LEFT_OUT_BYTES counter "skua_left_out_bytes_total" ["interface", "netns", "direction", "cause"] "Bytes in no flow because so configured, by cause.";
    NOTED_PACKETS counter "skua_noted_packets_total" ["interface", "netns", "direction", "cause"] "Packets in flows with something to say about them, by cause.";
    NOTED_BYTES counter "skua_noted_bytes_total" ["interface", "netns", "direction", "cause"] "Bytes in flows with something to say about them, by cause.";
    ENTRIES gauge "skua_table_entries" [] "Live entries of the flow table.";
    MAX_ENTRIES gauge "skua_table_max_entries" [] "Entries that the flow table may have.";
    INSERTED counter "skua_table_inserted_total" [] "Entries that were made: the rate is that of new conversations.";
    PREFIXES gauge "skua_address_prefixes" ["mark"] "Prefixes in the address set, by mark.";
    NOT_WATCHED gauge "skua_interfaces_not_watched" [] "Interfaces that are not watched, because there would be too many programs in the kernel.";
    PROGRAMS gauge "skua_programs" [] "Programs that this process has loaded into the kernel.";
    MAX_PROGRAMS gauge "skua_programs_max" [] "Programs that this process may load into the kernel.";
    DRAINS counter "skua_drains_total" [] "Drains of the flow table.";
    PRESSED counter "skua_drains_pressed_total" [] "Drains because the table filled up.";
    DRAIN_CPU counter "skua_drain_cpu_seconds_total" [] "CPU time that drains took.";
    DRAIN_WAIT counter "skua_drain_wait_seconds_total" [] "Time that drains waited for those who read the flows.";
    DRAIN_WAIT_MAX gauge "skua_drain_wait_max_seconds" [] "The longest time that a drain waited for those who read the flows, since the start.";
    UPDATES counter "skua_updates_total" [] "Flow updates that drains took from the table.";
    FLOWS counter "skua_flows_total" [] "Conversations seen.";
    ACTIVE gauge "skua_flows_active" [] "Conversations in memory that go on.";
    ENDED gauge "skua_flows_ended" [] "Conversations in memory that have ended.";
    EVICTED counter "skua_history_evicted_total" [] "Conversations that were removed from memory for others.";
    MAPS gauge "skua_map_bytes" ["map"] "Kernel memory of a map of the flow programs.";
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
    series.entry((GONE, "")).or_default().add(&account.removed);
    for point in account.points.values() {
        let labels = (point.interface.as_str(), point.netns.as_str());
        series.entry(labels).or_default().add(point);
    }
    series
}

/// Metrics of causes of a kind: packets and bytes.
const CAUSES: [(CauseKind, [&Metric<4>; 2]); 3] = [
    (CauseKind::Lost, [&LOST_PACKETS, &LOST_BYTES]),
    (CauseKind::LeftOut, [&LEFT_OUT_PACKETS, &LEFT_OUT_BYTES]),
    (CauseKind::Note, [&NOTED_PACKETS, &NOTED_BYTES]),
];

fn write_points(out: &mut Exposition, account: &Account) {
    let points = series(account);
    for (metric, in_packets) in [(&PACKETS, true), (&BYTES, false)] {
        let mut samples = out.family(metric);
        for ((interface, netns), point) in &points {
            for (direction, sum) in [
                ("ingress", point.flows.ingress),
                ("egress", point.flows.egress),
                ("mixed", point.flows.mixed),
            ] {
                let value = if in_packets { sum.packets } else { sum.bytes };
                // Most captures know the direction.
                if value > 0 || direction != "mixed" {
                    samples.value([interface, netns, direction], value);
                }
            }
        }
    }
    for (kind, metrics) in CAUSES {
        for (metric, in_packets) in metrics.into_iter().zip([true, false]) {
            let mut samples = out.family(metric);
            for ((interface, netns), point) in &points {
                for (direction, causes) in [("ingress", &point.ingress), ("egress", &point.egress)]
                {
                    for cause in Cause::ALL.into_iter().filter(|c| cause_kind(*c) == kind) {
                        let sum = causes[cause as usize];
                        let value = if in_packets { sum.packets } else { sum.bytes };
                        // Of dozens of causes on each interface hardly one ever occurs.
                        if sum.packets > 0 || sum.bytes > 0 {
                            samples.value([interface, netns, direction, cause.name()], value);
                        }
                    }
                }
            }
        }
    }
}

pub fn write(out: &mut Exposition, counts: &Counts) {
    let (account, store) = (&counts.account, &counts.totals);
    write_points(out, account);
    out.single(&ENTRIES, account.live);
    out.single(&MAX_ENTRIES, account.max_entries);
    out.single(&INSERTED, account.inserted);
    let mut prefixes = out.family(&PREFIXES);
    prefixes.value(["include"], account.addresses.include);
    prefixes.value(["exclude"], account.addresses.exclude);
    out.single(&NOT_WATCHED, account.not_watched);
    out.single(&PROGRAMS, skua_kernel::loaded_programs());
    out.single(&MAX_PROGRAMS, skua_kernel::MOST_PROGRAMS);
    out.single(&DRAINS, account.drains);
    out.single(&PRESSED, account.pressed_drains);
    out.single(&DRAIN_CPU, account.drain_ns as f64 / 1e9);
    out.single(&DRAIN_WAIT, counts.waits.total.as_secs_f64());
    out.single(&DRAIN_WAIT_MAX, counts.waits.longest.as_secs_f64());
    out.single(&UPDATES, account.updates);
    out.single(&FLOWS, store.flows);
    out.single(&ACTIVE, store.active);
    out.single(&ENDED, store.ended);
    out.single(&EVICTED, store.evicted);
    let mut maps = out.family(&MAPS);
    for (name, bytes) in &*counts.map_memory {
        maps.value([name], *bytes);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use skua_flow::Counters;

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
        let mut account = Account {
            removed: gone,
            ..Account::default()
        };
        for (i, point) in points.into_iter().enumerate() {
            account.points.insert((0, i as u32), point);
        }
        let counts = Counts {
            account: account.into(),
            ..Counts::default()
        };
        let mut out = Exposition::default();
        write(&mut out, &counts);
        out.into_text()
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
    fn a_cause_has_series_where_it_occurred_and_nowhere_else() {
        for cause in Cause::ALL {
            let mut point = point("eth0", 5);
            point.egress[cause as usize] = Counters {
                packets: 3,
                bytes: 0,
            };
            let text = written([point], PointAccount::default());
            let of_causes: Vec<_> = text
                .lines()
                .filter(|line| line.contains("cause=\""))
                .collect();
            let labels = format!(
                r#"{{interface="eth0",netns="",direction="egress",cause="{}"}}"#,
                cause.name()
            );
            let [packets, bytes] = of_causes[..] else {
                panic!("{of_causes:?}");
            };
            assert!(
                packets.ends_with(&format!("_packets_total{labels} 3")),
                "{packets}"
            );
            assert!(
                bytes.ends_with(&format!("_bytes_total{labels} 0")),
                "{bytes}"
            );
            assert!(!text.contains("mixed"));
        }
    }
}
