//! How the graph, the history and captures fare: in /api/status, in /metrics and by the doctor.

pub mod metrics;

use std::sync::{Arc, Weak};

use serde_json::{Value, json};
use skua_analyzer::capture::{Capture, CaptureStatus, PointState};
use skua_discover::Discovery;
use skua_flow::RawPacketStats;
use skua_probe::Account;
use skua_process::metrics::Exposition;
use skua_runtime::{
    agent::{self, uplink::UplinkView},
    captures::target::Sent,
    export::{self, ExportView},
    fleet::{self, Fleet},
    graph,
    history::Kept,
    lake::{self, KeptLake},
    summary,
};
use skua_store::{JournalStats, LogStats, StoreStats};
use skua_topology::{SharedGraph, Stats};

use crate::captures::Captures;

/// Knows whom to ask. It keeps nobody alive: at the end each goes when it must.
#[derive(Clone)]
pub struct Health {
    graph: SharedGraph,
    discovery: Weak<Discovery>,
    kept: Weak<Kept>,
    captures: Captures,
    fleet: Option<Fleet>,
    uplink: Option<UplinkView>,
    export: Option<ExportView>,
    lake: Weak<KeptLake>,
}

/// How all of them are at a moment.
struct Found {
    graph: Stats,
    discovery: Option<(skua_discover::Counters, bool)>,
    history: Option<FoundHistory>,
    captures: Vec<FoundCapture>,
}

/// How the history on disk is.
struct FoundHistory {
    directory: String,
    store: StoreStats,
    journal: JournalStats,
    /// Records that left memory before they could be written.
    untold: u64,
}

impl FoundHistory {
    /// Both logs by name.
    fn logs(&self) -> [(&'static str, &LogStats); 2] {
        [("graph", &self.store.graph), ("flows", &self.store.flows)]
    }
}

/// How a capture is.
struct FoundCapture {
    capture: Capture,
    status: CaptureStatus,
    /// What it counts, when it runs.
    running: Option<Counted>,
}

/// What a capture that runs has counted.
struct Counted {
    account: Account,
    sums: Value,
    packets: Option<RawPacketStats>,
    watchers: usize,
    live_dropped: u64,
    /// What was sent elsewhere, if something is.
    sent: Option<Arc<Sent>>,
}

impl FoundCapture {
    /// Nodes in each state.
    fn points(&self) -> [(&'static str, usize); 3] {
        let mut points = [("active", 0), ("pending", 0), ("error", 0)];
        for (_, state) in &self.status.nodes {
            let place = match state {
                PointState::Active => 0,
                PointState::Pending => 1,
                PointState::Refused(_) => 2,
            };
            points[place].1 += 1;
        }
        points
    }
}

impl Health {
    /// Of what `skua run` has.
    pub fn new(
        graph: &SharedGraph,
        discovery: Option<&Arc<Discovery>>,
        kept: Option<&Arc<Kept>>,
        captures: &Captures,
    ) -> Self {
        Self {
            graph: graph.clone(),
            discovery: discovery.map(Arc::downgrade).unwrap_or_default(),
            kept: kept.map(Arc::downgrade).unwrap_or_default(),
            captures: captures.clone(),
            fleet: None,
            uplink: None,
            export: None,
            lake: Weak::new(),
        }
    }

    /// Also of the agents of an analyzer, and of an agent's own connection.
    pub fn with_ends(mut self, fleet: Option<Fleet>, uplink: Option<UplinkView>) -> Self {
        (self.fleet, self.uplink) = (fleet, uplink);
        self
    }

    /// Also of what collectors are told.
    pub fn with_export(mut self, export: Option<ExportView>) -> Self {
        self.export = export;
        self
    }

    /// Also of the lake.
    pub fn with_lake(mut self, lake: Option<&Arc<KeptLake>>) -> Self {
        self.lake = lake.map(Arc::downgrade).unwrap_or_default();
        self
    }

    fn look(&self) -> Found {
        let history = self.kept.upgrade().map(|kept| FoundHistory {
            directory: kept.directory.display().to_string(),
            store: kept.history.stats(),
            journal: kept.journal(),
            untold: kept.history.untold(),
        });
        let discovery = self.discovery.upgrade();
        let captures = self.captures.captures.list().into_iter();
        // Not held while captures are drained: their threads look at the graph, too.
        let graph = self.graph.read().stats();
        Found {
            graph,
            discovery: discovery.map(|d| (d.counters(), d.is_running())),
            history,
            captures: captures
                .map(|(capture, status)| FoundCapture {
                    running: self.counted(&capture),
                    capture,
                    status,
                })
                .collect(),
        }
    }

    fn counted(&self, capture: &Capture) -> Option<Counted> {
        let set = self.captures.sets.get(capture.uuid)?;
        let state = set.shared.fresh();
        let (account, sums) = (state.account.clone(), summary::of(&state));
        drop(state);
        let packets = set.packets.as_ref();
        Some(Counted {
            account,
            sums,
            packets: packets.map(skua_probe::Packets::stats),
            watchers: packets.map_or(0, skua_probe::Packets::watchers),
            live_dropped: packets.map_or(0, skua_probe::Packets::live_dropped),
            sent: set.sent.clone(),
        })
    }

    /// For /metrics.
    pub fn write_metrics(&self, out: &mut Exposition) {
        let found = self.look();
        graph::metrics::write(out, &found.graph, found.discovery.as_ref());
        if let Some(history) = &found.history {
            metrics::history(out, history);
        }
        metrics::captures(out, &found.captures);
        if let Some(fleet) = &self.fleet {
            fleet::metrics::write(out, &fleet.status());
        }
        if let Some(uplink) = &self.uplink {
            agent::metrics::write(out, &uplink.status());
        }
        if let Some(export) = &self.export {
            export::report::write_metrics(out, &export.status());
        }
        if let Some(lake) = self.lake.upgrade() {
            lake::report::write_metrics(out, &lake.status());
        }
    }

    /// Adds `graph`, `discovery`, `history` and `captures` to a status.
    pub fn add_to(&self, status: &mut Value) {
        let found = self.look();
        let captures: Vec<Value> = found.captures.iter().map(capture).collect();
        let Stats { nodes, edges, .. } = found.graph;
        status["graph"] = json!({
            "nodes": nodes,
            "edges": edges,
            "events": found.graph.events,
            "last_event": found.graph.last_event,
            "begins": found.graph.begins,
            "history_bytes": found.graph.history_bytes,
        });
        status["discovery"] = json!(found.discovery.as_ref().map(discovery));
        status["history"] = json!(found.history.as_ref().map(history));
        status["captures"] = captures.into();
        if let Some(fleet) = &self.fleet {
            status["fleet"] = json!(fleet.status());
        }
        if let Some(uplink) = &self.uplink {
            status["uplink"] = json!(uplink.status());
        }
        if let Some(export) = &self.export {
            status["export"] = json!(export.status());
        }
        if let Some(lake) = self.lake.upgrade() {
            status["lake"] = json!(lake.status());
        }
    }
}

fn discovery((counters, running): &(skua_discover::Counters, bool)) -> Value {
    json!({
        "running": running,
        "namespaces": counters.namespaces,
        "namespaces_refused": counters.namespaces_refused,
        "namespaces_omitted": counters.namespaces_omitted,
        "events": counters.events,
        "lost": counters.lost,
        "resyncs": counters.resyncs,
        "omitted_nodes": counters.omitted_nodes,
        "omitted_entries": counters.omitted_entries,
        "errors": counters.errors,
        "containers": counters.containers,
        "processes": counters.processes,
        "guests": counters.guests,
        "programs": counters.programs,
        "rulesets": counters.rulesets,
        "rulesets_failed": counters.rulesets_failed,
    })
}

fn log(stats: &LogStats) -> Value {
    json!({
        "bytes": stats.bytes,
        "files": stats.files,
        "records": stats.records,
        "oldest": stats.oldest,
        "newest": stats.newest,
        "written": stats.written,
        "lost": nonzero(&stats.lost.by_cause()),
        "damage": {
            "places": stats.damage.places,
            "bytes": stats.damage.bytes,
            "records": stats.damage.records,
        },
        "torn_bytes": stats.torn_bytes,
        "expired": stats.expired,
        "failing": stats.failing,
    })
}

/// Causes of something.
fn nonzero(causes: &[(&'static str, u64)]) -> Value {
    let causes = causes.iter().filter(|(_, number)| *number > 0);
    causes
        .map(|(cause, number)| ((*cause).to_owned(), Value::from(*number)))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

fn history(found: &FoundHistory) -> Value {
    json!({
        "directory": found.directory,
        "graph": log(&found.store.graph),
        "flows": log(&found.store.flows),
        "flow_queue_bytes": found.store.flow_queue_bytes,
        "last_event": found.journal.written,
        "gaps": found.journal.gaps,
        "checkpoints": found.journal.checkpoints,
        "losing_events": found.journal.broken,
        "untold": found.untold,
    })
}

fn capture(found: &FoundCapture) -> Value {
    let points: serde_json::Map<_, _> = found
        .points()
        .into_iter()
        .map(|(state, number)| (state.to_owned(), number.into()))
        .collect();
    let mut value = json!({
        "uuid": found.capture.uuid,
        "name": found.capture.name,
        "query": found.capture.gremlin_query,
        "type": found.capture.r#type.name(),
        "points": points,
        "unfit_nodes": found.status.unfit,
        "error": found.status.error,
    });
    let Some(counted) = &found.running else {
        return value;
    };
    for sum in [
        "seen", "in_flows", "lost", "left_out", "notes", "flows", "not_kept", "table", "received",
    ] {
        value[sum] = counted.sums[sum].clone();
    }
    if let Some(sent) = &counted.sent {
        value["target"] = sent.status();
    }
    if let Some(packets) = &counted.packets {
        value["raw_packets"] = json!({
            "kept": packets.kept,
            "forgotten": packets.forgotten,
            "forgotten_flows": packets.forgotten_flows,
            "flows": packets.flows,
            "memory": packets.memory,
        });
        value["live"] = json!({
            "watchers": counted.watchers,
            "dropped": counted.live_dropped,
        });
    }
    value
}
