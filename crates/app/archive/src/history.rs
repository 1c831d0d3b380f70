//! The history on disk: opened at the start, fed by drains and the graph.

use std::{
    collections::BTreeMap,
    ops::ControlFlow,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use anyhow::Context as _;
use skua_config as config;
use skua_flow::FlowRecord;
use skua_output as output;
use skua_sources::{FlowPast, FlowView, VisitCaptured, VisitChange, Wanted};
use skua_state::{FlowPlace, Observers, State};
use skua_store::{
    FlowBatch, FlowChange, FlowContext, GraphJournal, Limits, Store, StoreConfig, StoreStats,
};
use skua_topology::SharedGraph;
use uuid::Uuid;

use skua_fleet::protocol::Flows;

/// What is kept on disk.
pub struct History {
    store: Store,
    taken: Mutex<Taken>,
}

/// What drains brought.
struct Taken {
    batch: FlowBatch,
    /// Records of each capture that left memory before a drain ended, of captures that have any.
    untold: BTreeMap<Option<Uuid>, u64>,
}

/// The history together with what writes the graph down.
pub struct HistoryWriter {
    /// For queries.
    pub history: Arc<History>,
    /// Where it is.
    pub directory: PathBuf,
    journal: GraphJournal,
}

/// Where the history is by default.
const USUAL: &str = "/var/lib/skua";

fn settings(config: &config::History) -> StoreConfig {
    let limits = |max_bytes| Limits {
        max_age: config.max_age,
        max_bytes,
    };
    StoreConfig {
        graph: limits(config.graph_size),
        flows: limits(config.flow_size),
        ..StoreConfig::default()
    }
}

impl HistoryWriter {
    /// Opens the history, fills the graph with what it knows, and begins to write down what changes.
    /// None when none is to be kept. `history.directory` then is the directory that is used.
    pub fn open(
        config: &mut config::History,
        graph: &SharedGraph,
        observers: &Observers,
    ) -> anyhow::Result<Option<Self>> {
        if config.directory != config::AUTO {
            return match config.directory.as_str() {
                "" => Ok(None),
                _ => Self::open_in(config, graph, observers).map(Some),
            };
        }
        config.directory = USUAL.into();
        match Self::open_in(config, graph, observers) {
            Ok(kept) => Ok(Some(kept)),
            // By default only: several may run side by side, and on a disk that cannot be written.
            Err(error) => {
                config.directory.clear();
                tracing::warn!(
                    "no history is kept: {}; history.directory names another place, and is empty \
                     for none",
                    output::one_line(&error)
                );
                Ok(None)
            }
        }
    }

    fn open_in(
        config: &config::History,
        graph: &SharedGraph,
        observers: &Observers,
    ) -> anyhow::Result<Self> {
        // Beside it lies what people made: captures and the like.
        let directory = Path::new(&config.directory).join("history");
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&directory)
            .with_context(|| format!("cannot make {}", directory.display()))?;
        let store = Store::open(&directory, settings(config))?;
        let restored = store.load_graph(&mut graph.write())?;
        if restored.events > 0 {
            tracing::info!(events = restored.events, "history of the graph restored");
        }
        let journal = GraphJournal::start(&store, graph)?;
        let history = Arc::new(History {
            store,
            taken: Mutex::new(Taken {
                batch: FlowBatch::new(),
                untold: BTreeMap::new(),
            }),
        });
        let theirs = history.clone();
        observers.add(Arc::new(move |capture, state| {
            theirs.append_drain(capture, state)
        }));
        Ok(Self {
            history,
            directory,
            journal,
        })
    }

    /// How the journal of the graph is.
    pub fn journal(&self) -> skua_store::JournalStats {
        self.journal.stats()
    }
}

impl History {
    /// Appends what a drain has changed.
    fn append_drain(&self, capture: Option<Uuid>, state: &State) {
        let mut taken = self.taken();
        let untold = state.store.dropped_unreported();
        if untold > 0 {
            taken.untold.insert(capture, untold);
        }
        let capture = capture.map(|id| id.to_string()).unwrap_or_default();
        let batch = &mut taken.batch;
        for record in state.store.touched() {
            let place = state.place_of(record);
            let sockets = state.sockets.as_ref();
            batch.push(&FlowChange {
                record,
                added: [record.interval.lo_sent, record.interval.hi_sent],
                since_ns: record.interval.since_ns,
                context: FlowContext {
                    host: &place.host,
                    capture: &capture,
                    node_tid: &place.node,
                    interface: &place.interface,
                },
                parties: sockets.map_or_else(Default::default, |s| s.parties(record)),
            });
        }
        if !batch.is_empty() {
            self.store.flows().append(batch);
        }
    }

    /// Appends what a drain of an agent has changed.
    pub fn append_remote(&self, host: &str, flows: &Flows) {
        let mut taken = self.taken();
        let batch = &mut taken.batch;
        for record in &flows.records {
            let place = flows.place_of(record);
            batch.push(&FlowChange {
                record,
                added: [record.interval.lo_sent, record.interval.hi_sent],
                since_ns: record.interval.since_ns,
                context: FlowContext {
                    host,
                    capture: &flows.capture,
                    node_tid: place.map_or("", |place| &place.node),
                    interface: place.map_or("", |place| &place.interface),
                },
                parties: flows.parties_of(record),
            });
        }
        if !batch.is_empty() {
            self.store.flows().append(batch);
        }
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        // A drain that panicked left at most one record out.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How it is.
    pub fn stats(&self) -> StoreStats {
        self.store.stats()
    }

    /// Records that left memory before they could be written, for lack of room there.
    pub fn untold(&self) -> u64 {
        self.taken().untold.values().sum()
    }
}

impl FlowPast for History {
    fn scan(
        &self,
        from: u64,
        to: u64,
        wanted: &Wanted,
        visit: &mut dyn FnMut(&FlowView<'_>) -> ControlFlow<()>,
    ) {
        FlowPast::scan(self.store.flows(), from, to, wanted, visit);
    }

    fn captured(&self, from: u64, to: u64, visit: VisitCaptured<'_>) {
        FlowPast::captured(self.store.flows(), from, to, visit);
    }

    fn changes(
        &self,
        record: &FlowRecord,
        place: &FlowPlace,
        time: (u64, u64),
        visit: VisitChange<'_>,
    ) {
        FlowPast::changes(self.store.flows(), record, place, time, visit);
    }
}
