//! The state of the graph, the history and captures: in /api/status, in /metrics and by the doctor.

pub mod metrics;

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
};

use serde::Serialize;
use skua_archive::{
    history::HistoryWriter,
    lake::{self, LakeWriter, report::LakeStatus},
};
use skua_control::capture::{Capture, CaptureStatus, PointState};
use skua_discover::Discovery;
use skua_export::{
    export::{self, ExportView, report::ExportStatus},
    services::ServiceGraph,
};
use skua_fleet::{
    agent::{
        self,
        uplink::{UplinkStatus, UplinkView},
    },
    analyzer::{self, Fleet, FleetStatus},
};
use skua_flow::RawPacketStats;
use skua_probe::Account;
use skua_process::metrics::Exposition;
use skua_runtime::graph_metrics;
use skua_state::captures::{Sent, SentStatus};
use skua_store::{JournalStats, LogStats, StoreStats};
use skua_topology::{SharedGraph, Stats};
use skua_watch::summary::FlowSums;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::captures::Captures;

/// References to the components that report health. They are weak: each component ends when it
/// must.
#[derive(Clone)]
pub struct Health {
    graph: SharedGraph,
    discovery: Weak<Discovery>,
    kept: Weak<HistoryWriter>,
    captures: Captures,
    fleet: Option<Fleet>,
    uplink: Option<UplinkView>,
    export: Option<ExportView>,
    lake: Weak<LakeWriter>,
    services: Option<ServiceGraph>,
}

/// The state of all components at a moment.
struct Found {
    graph: Stats,
    discovery: Option<(skua_discover::Counters, bool)>,
    history: Option<FoundHistory>,
    captures: Vec<FoundCapture>,
}

/// State of the history on disk.
struct FoundHistory {
    directory: String,
    store: StoreStats,
    journal: JournalStats,
    /// Records that left memory before they could be written.
    unwritten: u64,
}

impl FoundHistory {
    /// Both logs by name.
    fn logs(&self) -> [(&'static str, &LogStats); 2] {
        [("graph", &self.store.graph), ("flows", &self.store.flows)]
    }
}

/// State of a capture.
struct FoundCapture {
    capture: Capture,
    status: CaptureStatus,
    /// Its counters, if it runs here.
    running: Option<Counted>,
}

/// Counters of a running capture.
struct Counted {
    account: Arc<Account>,
    sums: FlowSums,
    packets: Option<RawPacketStats>,
    watchers: usize,
    live_dropped: u64,
    /// Packets sent elsewhere, if any capture sends them.
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
    /// For the components of `skua run`.
    pub fn new(
        graph: &SharedGraph,
        discovery: Option<&Arc<Discovery>>,
        kept: Option<&Arc<HistoryWriter>>,
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
            services: None,
        }
    }

    /// Also reports the agents of an analyzer, and an agent's own connection.
    pub fn with_ends(mut self, fleet: Option<Fleet>, uplink: Option<UplinkView>) -> Self {
        (self.fleet, self.uplink) = (fleet, uplink);
        self
    }

    /// Also reports the export to collectors.
    pub fn with_export(mut self, export: Option<ExportView>) -> Self {
        self.export = export;
        self
    }

    /// Also reports the lake.
    pub fn with_lake(mut self, lake: Option<&Arc<LakeWriter>>) -> Self {
        self.lake = lake.map(Arc::downgrade).unwrap_or_default();
        self
    }

    /// Also has metrics of services.
    pub fn with_services(mut self, services: &ServiceGraph) -> Self {
        self.services = Some(services.clone());
        self
    }

    fn measure(&self) -> Found {
        let history = self.kept.upgrade().map(|kept| FoundHistory {
            directory: kept.directory.display().to_string(),
            store: kept.history.stats(),
            journal: kept.journal(),
            unwritten: kept.history.untold(),
        });
        let discovery = self.discovery.upgrade();
        let captures = self.captures.captures.list().into_iter();
        // Do not hold the lock while captures are drained: their threads read the graph, too.
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
        let counts = state.counts();
        drop(state);
        let (sums, account) = (FlowSums::of(&counts), counts.account);
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
        let found = self.measure();
        graph_metrics::write(out, &found.graph, found.discovery.as_ref());
        if let Some(history) = &found.history {
            metrics::history(out, history);
        }
        metrics::captures(out, &found.captures);
        if let Some(fleet) = &self.fleet {
            analyzer::metrics::write(out, &fleet.status());
        }
        if let Some(uplink) = &self.uplink {
            agent::metrics::write(out, &uplink.status());
        }
        if let Some(services) = &self.services {
            services.write_metrics(out);
        }
        if let Some(export) = &self.export {
            export::report::write_metrics(out, &export.status());
        }
        if let Some(lake) = self.lake.upgrade() {
            lake::report::write_metrics(out, &lake.status());
        }
    }

    /// For /api/status.
    pub fn status(&self) -> HealthStatus {
        let found = self.measure();
        HealthStatus {
            graph: GraphStatus::of(&found.graph),
            discovery: found.discovery.as_ref().map(DiscoveryStatus::of),
            history: found.history.as_ref().map(HistoryStatus::of),
            captures: found.captures.iter().map(CaptureSums::of).collect(),
            fleet: self.fleet.as_ref().map(Fleet::status),
            uplink: self.uplink.as_ref().map(UplinkView::status),
            export: self.export.as_ref().map(ExportView::status),
            lake: self.lake.upgrade().map(|lake| lake.status()),
        }
    }
}

/// The state of the components beside the probe.
#[derive(Serialize, ToSchema)]
pub struct HealthStatus {
    /// The graph.
    graph: GraphStatus,
    /// How the topology is followed; null: it is not.
    discovery: Option<DiscoveryStatus>,
    /// The history on disk; null if there is none.
    history: Option<HistoryStatus>,
    /// Each capture.
    captures: Vec<CaptureSums>,
    /// Agents of an analyzer; left out if this is not an analyzer.
    #[serde(skip_serializing_if = "Option::is_none")]
    fleet: Option<FleetStatus>,
    /// An agent's connection; left out if this is not an agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    uplink: Option<UplinkStatus>,
    /// Collectors that are exported to; left out when there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    export: Option<Vec<ExportStatus>>,
    /// The lake; left out if none is written.
    #[serde(skip_serializing_if = "Option::is_none")]
    lake: Option<LakeStatus>,
}

/// How large the graph is.
#[derive(Serialize, ToSchema)]
struct GraphStatus {
    /// Nodes that exist.
    nodes: u64,
    /// Edges that exist.
    edges: u64,
    /// Changes in memory.
    events: u64,
    /// Number of the last change.
    last_event: u64,
    /// When its past begins, ms since the Unix epoch.
    begins: Option<i64>,
    /// Bytes of its past.
    history_bytes: u64,
}

impl GraphStatus {
    fn of(stats: &Stats) -> Self {
        Self {
            nodes: stats.nodes as u64,
            edges: stats.edges as u64,
            events: stats.events as u64,
            last_event: stats.last_event,
            begins: stats.begins,
            history_bytes: stats.history_bytes as u64,
        }
    }
}

/// State and losses of the topology's discovery.
#[derive(Serialize, ToSchema)]
struct DiscoveryStatus {
    /// Whether it runs.
    running: bool,
    /// Network namespaces that are followed.
    namespaces: u64,
    /// Network namespaces that the kernel refused access to.
    namespaces_refused: u64,
    /// Those beyond the limit.
    namespaces_omitted: u64,
    /// Changes that the kernel announced.
    events: u64,
    /// Times that the kernel announced more changes than the queue held.
    lost: u64,
    /// Times that everything was read again.
    resyncs: u64,
    /// Nodes beyond the limit.
    omitted_nodes: u64,
    /// Entries of lists beyond the limit.
    omitted_entries: u64,
    /// Requests that the kernel refused.
    errors: u64,
    /// Containers.
    containers: u64,
    /// Processes.
    processes: u64,
    /// Virtual machines.
    guests: u64,
    /// BPF programs.
    programs: u64,
    /// Rule sets of nftables.
    rulesets: u64,
    /// Those that could not be read.
    rulesets_failed: u64,
}

impl DiscoveryStatus {
    fn of((counters, running): &(skua_discover::Counters, bool)) -> Self {
        Self {
            running: *running,
            namespaces: counters.namespaces,
            namespaces_refused: counters.namespaces_refused,
            namespaces_omitted: counters.namespaces_omitted,
            events: counters.events,
            lost: counters.lost,
            resyncs: counters.resyncs,
            omitted_nodes: counters.omitted_nodes,
            omitted_entries: counters.omitted_entries,
            errors: counters.errors,
            containers: counters.containers,
            processes: counters.processes,
            guests: counters.guests,
            programs: counters.programs,
            rulesets: counters.rulesets,
            rulesets_failed: counters.rulesets_failed,
        }
    }
}

/// The history on disk.
#[derive(Serialize, ToSchema)]
struct HistoryStatus {
    /// Where it is.
    directory: String,
    /// The log of the graph's changes.
    graph: LogStatus,
    /// The log of flows.
    flows: LogStatus,
    /// Bytes of flows that wait to be written.
    flow_queue_bytes: u64,
    /// Number of the last change of the graph on disk.
    last_event: u64,
    /// Times that changes of the graph were missed.
    gaps: u64,
    /// Complete graphs written.
    checkpoints: u64,
    /// Whether changes of the graph are being missed.
    losing_events: bool,
    /// Records that left memory before they could be written.
    unwritten: u64,
}

impl HistoryStatus {
    fn of(found: &FoundHistory) -> Self {
        Self {
            directory: found.directory.clone(),
            graph: LogStatus::of(&found.store.graph),
            flows: LogStatus::of(&found.store.flows),
            flow_queue_bytes: found.store.flow_queue_bytes as u64,
            last_event: found.journal.written,
            gaps: found.journal.gaps,
            checkpoints: found.journal.checkpoints,
            losing_events: found.journal.broken,
            unwritten: found.unwritten,
        }
    }
}

/// A log on disk.
#[derive(Serialize, ToSchema)]
struct LogStatus {
    /// Bytes.
    bytes: u64,
    /// Files.
    files: u64,
    /// Records.
    records: u64,
    /// Time of the oldest record, ms since the Unix epoch.
    oldest: Option<i64>,
    /// Time of the newest record, ms since the Unix epoch.
    newest: Option<i64>,
    /// Records written since the start.
    written: u64,
    /// Records lost, by cause.
    lost: BTreeMap<&'static str, u64>,
    /// Damaged parts.
    damage: Damage,
    /// Bytes removed behind the last complete record.
    torn_bytes: u64,
    /// Records that have expired.
    expired: u64,
    /// Why it cannot be written now.
    failing: Option<String>,
}

/// Damaged parts.
#[derive(Serialize, ToSchema)]
struct Damage {
    /// Positions.
    places: u64,
    /// Their bytes.
    bytes: u64,
    /// Records in them, if known.
    records: u64,
}

impl LogStatus {
    fn of(stats: &LogStats) -> Self {
        let lost = stats.lost.by_cause();
        Self {
            bytes: stats.bytes,
            files: stats.files as u64,
            records: stats.records,
            oldest: stats.oldest,
            newest: stats.newest,
            written: stats.written,
            lost: lost.into_iter().filter(|(_, lost)| *lost > 0).collect(),
            damage: Damage {
                places: stats.damage.places,
                bytes: stats.damage.bytes,
                records: stats.damage.records,
            },
            torn_bytes: stats.torn_bytes,
            expired: stats.expired,
            failing: stats.failing.clone(),
        }
    }
}

/// A capture and what it counts.
#[derive(Serialize, ToSchema)]
struct CaptureSums {
    /// Identifier.
    uuid: Uuid,
    /// Its name.
    name: String,
    /// The query that selects its nodes.
    query: String,
    /// How it captures.
    r#type: &'static str,
    /// Nodes by state.
    points: BTreeMap<&'static str, usize>,
    /// Nodes selected that it cannot capture on.
    unfit_nodes: usize,
    /// Why its query has no answer.
    error: Option<String>,
    /// What it counts, when it runs here.
    #[serde(flatten)]
    counted: Option<CaptureCounts>,
}

/// What a capture counts.
#[derive(Serialize, ToSchema)]
struct CaptureCounts {
    #[serde(flatten)]
    sums: FlowSums,
    /// What it has sent to its target, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<SentStatus>,
    /// Stored packets, if the capture stores some.
    #[serde(skip_serializing_if = "Option::is_none")]
    raw_packets: Option<RawPackets>,
    /// Clients that watch its packets, if that is possible.
    #[serde(skip_serializing_if = "Option::is_none")]
    live: Option<LivePackets>,
}

/// The first packets of flows.
#[derive(Serialize, ToSchema)]
struct RawPackets {
    /// Packets stored.
    kept: u64,
    /// Packets removed because the limit was reached.
    forgotten: u64,
    /// Flows whose packets were removed.
    forgotten_flows: u64,
    /// Flows that have packets.
    flows: u64,
    /// Bytes of memory.
    memory: u64,
}

/// Packets for clients that watch.
#[derive(Serialize, ToSchema)]
struct LivePackets {
    /// How many watch.
    watchers: usize,
    /// Packets that they were too slow for.
    dropped: u64,
}

impl CaptureSums {
    fn of(found: &FoundCapture) -> Self {
        Self {
            uuid: found.capture.uuid,
            name: found.capture.name.clone(),
            query: found.capture.gremlin_query.clone(),
            r#type: found.capture.r#type.name(),
            points: BTreeMap::from(found.points()),
            unfit_nodes: found.status.unfit,
            error: found.status.error.clone(),
            counted: found.running.as_ref().map(CaptureCounts::of),
        }
    }
}

impl CaptureCounts {
    fn of(counted: &Counted) -> Self {
        let packets = counted.packets.as_ref();
        Self {
            sums: counted.sums.clone(),
            target: counted.sent.as_ref().map(|sent| sent.status()),
            raw_packets: packets.map(|packets| RawPackets {
                kept: packets.kept,
                forgotten: packets.forgotten,
                forgotten_flows: packets.forgotten_flows,
                flows: packets.flows,
                memory: packets.memory,
            }),
            live: packets.map(|_| LivePackets {
                watchers: counted.watchers,
                dropped: counted.live_dropped,
            }),
        }
    }
}
