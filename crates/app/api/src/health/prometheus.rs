//! The graph, the history and captures in Prometheus' text format.

use skua_flow::{Cause, Counters};
use skua_probe::{
    account::{CauseKind, cause_kind},
    receive::ReceiveCause,
};
use skua_process::prometheus::Text;
use skua_runtime::{
    agent::uplink::UplinkStatus,
    fleet::{AgentStatus, FleetStatus},
};
use std::sync::atomic::Ordering::Relaxed;

use crate::health::{Counted, Found, FoundCapture, FoundHistory};

pub(crate) fn text(found: &Found) -> String {
    let mut text = Text::default();
    let name = "skua_graph_elements";
    text.family(
        name,
        "gauge",
        "Nodes and edges of the graph that exist now.",
    );
    text.value(name, &[("kind", "node")], found.graph.nodes);
    text.value(name, &[("kind", "edge")], found.graph.edges);
    if let Some((counters, running)) = &found.discovery {
        discovery(&mut text, counters, *running);
    }
    if let Some(found) = &found.history {
        history(&mut text, found);
    }
    captures(&mut text, &found.captures);
    text.0
}

/// What is counted of agents.
pub(crate) fn fleet(status: &FleetStatus) -> String {
    let mut text = Text::default();
    let name = "skua_agents";
    text.family(name, "gauge", "Agents, by whether there is a connection.");
    let connected = status.agents.iter().filter(|a| a.connected).count();
    text.value(name, &[("state", "connected")], connected);
    let gone = status.agents.len() - connected;
    text.value(name, &[("state", "gone")], gone);
    text.single(
        "skua_agents_refused_total",
        "counter",
        "Connections of agents that were refused.",
        status.refused_connections,
    );
    for (name, kind, help, value) in [
        (
            "skua_agent_flows",
            "gauge",
            "Flows of an agent in memory.",
            (|a| a.flows) as fn(&AgentStatus) -> u64,
        ),
        (
            "skua_agent_connections_total",
            "counter",
            "Connections that an agent has made.",
            |a| a.connections,
        ),
        (
            "skua_agent_flow_updates_total",
            "counter",
            "Updates of flows that were taken from an agent.",
            |a| a.flow_updates,
        ),
    ] {
        text.family(name, kind, help);
        for agent in &status.agents {
            text.value(name, &[("host", &agent.host)], value(agent));
        }
    }
    let name = "skua_agent_lost_total";
    text.family(
        name,
        "counter",
        "Flows of an agent that were lost on the way, and owners of their sockets, by cause.",
    );
    for agent in &status.agents {
        for (cause, lost) in [
            ("agent_queue", agent.lost_flow_updates),
            ("memory", agent.evicted_flows),
            ("owners", agent.forgotten_owners),
            ("unsound", agent.refused_records),
        ] {
            text.value(name, &[("host", &agent.host), ("cause", cause)], lost);
        }
    }
    text.0
}

/// What an agent counts of its connection.
pub(crate) fn uplink(status: &UplinkStatus) -> String {
    let mut text = Text::default();
    for (name, kind, help, value) in [
        (
            "skua_uplink_connected",
            "gauge",
            "Whether there is a connection with an analyzer, 1 or 0.",
            u64::from(status.connected),
        ),
        (
            "skua_uplink_connections_total",
            "counter",
            "Connections with analyzers that were made.",
            status.connections,
        ),
        (
            "skua_uplink_syncs_total",
            "counter",
            "How often the whole graph was told.",
            status.syncs,
        ),
        (
            "skua_uplink_waiting_bytes",
            "gauge",
            "Flows that wait to be sent or confirmed.",
            status.waiting_bytes as u64,
        ),
        (
            "skua_uplink_lost_flow_updates_total",
            "counter",
            "Updates of flows that found no room while they waited.",
            status.lost_flow_updates,
        ),
    ] {
        text.single(name, kind, help, value);
    }
    text.0
}

fn discovery(text: &mut Text, counters: &skua_discover::Counters, running: bool) {
    for (name, kind, help, value) in [
        (
            "skua_discovery_running",
            "gauge",
            "Whether the topology is followed, 1 or 0.",
            u64::from(running),
        ),
        (
            "skua_discovery_events_total",
            "counter",
            "Notifications of the kernel that were taken.",
            counters.events,
        ),
        (
            "skua_discovery_lost_total",
            "counter",
            "Times that the kernel had to drop notifications; the namespace is listed again.",
            counters.lost,
        ),
        (
            "skua_discovery_resyncs_total",
            "counter",
            "Times that a namespace was listed again.",
            counters.resyncs,
        ),
        (
            "skua_discovery_errors_total",
            "counter",
            "Requests to the kernel that failed; they are made again.",
            counters.errors,
        ),
    ] {
        text.single(name, kind, help, value);
    }
    let name = "skua_discovery_omitted_total";
    text.family(
        name,
        "counter",
        "What found no room in the graph: nodes, and entries of nodes.",
    );
    text.value(name, &[("what", "nodes")], counters.omitted_nodes);
    text.value(name, &[("what", "entries")], counters.omitted_entries);
    let name = "skua_discovery_found";
    text.family(name, "gauge", "What there is besides interfaces, by kind.");
    for (kind, number) in [
        ("containers", counters.containers),
        ("processes", counters.processes),
        ("guests", counters.guests),
        ("programs", counters.programs),
        ("rulesets", counters.rulesets),
    ] {
        text.value(name, &[("kind", kind)], number);
    }
    text.single(
        "skua_discovery_rulesets_failed_total",
        "counter",
        "Times that rules of nftables could not be read.",
        counters.rulesets_failed,
    );
    let name = "skua_discovery_namespaces";
    text.family(name, "gauge", "Network namespaces by state.");
    for (state, number) in [
        ("followed", counters.namespaces),
        ("refused", counters.namespaces_refused),
        ("omitted", counters.namespaces_omitted),
    ] {
        text.value(name, &[("state", state)], number);
    }
}

fn history(text: &mut Text, found: &FoundHistory) {
    type Number = fn(&skua_store::LogStats) -> u64;
    let sums: [(&str, &str, &str, Number); 7] = [
        (
            "skua_store_bytes",
            "gauge",
            "Bytes of the history on disk, by log.",
            |log| log.bytes,
        ),
        (
            "skua_store_files",
            "gauge",
            "Files of the history on disk, by log.",
            |log| log.files as u64,
        ),
        (
            "skua_store_records",
            "gauge",
            "Records of the history on disk, by log.",
            |log| log.records,
        ),
        (
            "skua_store_written_total",
            "counter",
            "Records written to the history, by log.",
            |log| log.written,
        ),
        (
            "skua_store_expired_total",
            "counter",
            "Records that left the history because of its limits, by log.",
            |log| log.expired,
        ),
        (
            "skua_store_damaged_places",
            "gauge",
            "Places of the history that cannot be read, by log.",
            |log| log.damage.places,
        ),
        (
            "skua_store_failing",
            "gauge",
            "Whether the history cannot be written now, 1 or 0, by log.",
            |log| u64::from(log.failing.is_some()),
        ),
    ];
    for (name, kind, help, number) in sums {
        text.family(name, kind, help);
        for (log, stats) in found.logs() {
            text.value(name, &[("log", log)], number(stats));
        }
    }
    let name = "skua_store_lost_total";
    text.family(
        name,
        "counter",
        "Records that could not be written to the history, by log and cause.",
    );
    for (log, stats) in found.logs() {
        for (cause, lost) in stats.lost.by_cause() {
            text.value(name, &[("log", log), ("cause", cause)], lost);
        }
        // Only flows wait in memory for a drain.
        if log == "flows" {
            text.value(name, &[("log", log), ("cause", "untold")], found.untold);
        }
    }
    text.single(
        "skua_store_queue_bytes",
        "gauge",
        "Bytes of flows that wait for the disk.",
        found.store.flow_queue_bytes,
    );
    text.single(
        "skua_store_gaps_total",
        "counter",
        "Gaps in the history of the graph, as events were lost.",
        found.journal.gaps,
    );
}

/// Labels that each series of a capture has.
struct Named<'a> {
    id: String,
    found: &'a FoundCapture,
}

impl Named<'_> {
    fn labels<'b>(&'b self, more: &[(&'b str, &'b str)]) -> Vec<(&'b str, &'b str)> {
        let mut labels = vec![
            ("capture", self.id.as_str()),
            ("type", self.found.capture.r#type.name()),
        ];
        labels.extend_from_slice(more);
        labels
    }
}

fn captures(text: &mut Text, found: &[FoundCapture]) {
    text.single("skua_captures", "gauge", "Captures made.", found.len());
    if found.is_empty() {
        return;
    }
    let all: Vec<Named<'_>> = found
        .iter()
        .map(|found| Named {
            id: found.capture.uuid.to_string(),
            found,
        })
        .collect();
    let name = "skua_capture_points";
    text.family(name, "gauge", "Nodes of a capture, by state.");
    for one in &all {
        for (state, number) in one.found.points() {
            text.value(name, &one.labels(&[("state", state)]), number);
        }
    }
    causes(text, &all);
    type Number = fn(&Counted) -> Option<u64>;
    receive_losses(text, &all);
    let sums: [(&str, &str, &str, Number); 11] = [
        (
            "skua_capture_flow_packets_total",
            "counter",
            "Wire packets counted in flows of a capture.",
            |c| Some(c.account.in_flows().packets),
        ),
        (
            "skua_capture_flow_bytes_total",
            "counter",
            "Link-layer bytes counted in flows of a capture.",
            |c| Some(c.account.in_flows().bytes),
        ),
        (
            "skua_capture_received_datagrams_total",
            "counter",
            "Datagrams, or connections, that a capture received of others.",
            |c| receives(c).then_some(c.account.received.datagrams),
        ),
        (
            "skua_capture_received_records_total",
            "counter",
            "Flow records, samples, or packets in them that could be read.",
            |c| receives(c).then_some(c.account.received.records),
        ),
        (
            "skua_capture_raw_packets_kept_total",
            "counter",
            "Packets that a capture kept.",
            |c| c.packets.map(|p| p.kept),
        ),
        (
            "skua_capture_raw_packets_forgotten_total",
            "counter",
            "Of the kept packets those that went for lack of memory.",
            |c| c.packets.map(|p| p.forgotten),
        ),
        (
            "skua_capture_watchers",
            "gauge",
            "Who watches packets of a capture now.",
            |c| c.packets.map(|_| c.watchers as u64),
        ),
        (
            "skua_capture_live_dropped_total",
            "counter",
            "Packets that those who watched were too slow for.",
            |c| c.packets.map(|_| c.live_dropped),
        ),
        (
            "skua_capture_target_records_total",
            "counter",
            "What was sent to the target of a capture.",
            |c| c.sent.as_ref().map(|sent| sent.records.load(Relaxed)),
        ),
        (
            "skua_capture_target_lost_total",
            "counter",
            "What could not be sent to the target of a capture.",
            |c| c.sent.as_ref().map(|sent| sent.lost()),
        ),
        (
            "skua_capture_target_left_out_total",
            "counter",
            "What is not sent to the target of a capture: its protocol has no place for it, or it is a copy itself.",
            |c| c.sent.as_ref().map(|sent| sent.left_out.load(Relaxed)),
        ),
    ];
    for (name, kind, help, number) in sums {
        text.family(name, kind, help);
        for one in &all {
            if let Some(value) = one.found.running.as_ref().and_then(number) {
                text.value(name, &one.labels(&[]), value);
            }
        }
    }
}

/// Whether a capture takes what others send.
fn receives(counted: &Counted) -> bool {
    let received = &counted.account.received;
    received.datagrams > 0 || received.causes().next().is_some()
}

/// What receivers lost before it could become a flow.
fn receive_losses(text: &mut Text, all: &[Named<'_>]) {
    let name = "skua_capture_receive_lost_total";
    text.family(
        name,
        "counter",
        "What a capture that receives lost before it could become a flow, by cause; its unit is the cause's.",
    );
    for one in all {
        let Some(counted) = one.found.running.as_ref().filter(|c| receives(c)) else {
            continue;
        };
        for cause in ReceiveCause::ALL {
            let lost = counted.account.received.of(cause);
            text.value(name, &one.labels(&[("cause", cause.name())]), lost);
        }
    }
}

fn causes(text: &mut Text, all: &[Named<'_>]) {
    for (kind, name, help) in [
        (
            CauseKind::Lost,
            "skua_capture_lost_packets_total",
            "Packets in no flow of a capture, against our will, by cause.",
        ),
        (
            CauseKind::LeftOut,
            "skua_capture_left_out_packets_total",
            "Packets in no flow of a capture, as configured, by cause.",
        ),
        (
            CauseKind::Note,
            "skua_capture_noted_packets_total",
            "Packets in flows of a capture, with something to say about them, by cause.",
        ),
    ] {
        text.family(name, "counter", help);
        for one in all {
            let Some(counted) = &one.found.running else {
                continue;
            };
            let known = counted.account.causes();
            for cause in Cause::ALL.into_iter().filter(|c| cause_kind(*c) == kind) {
                let sum = known.iter().find(|(known, ..)| *known == cause);
                let sum = sum.map_or(Counters::default(), |(.., sum)| *sum);
                text.value(name, &one.labels(&[("cause", cause.name())]), sum.packets);
            }
        }
    }
}
