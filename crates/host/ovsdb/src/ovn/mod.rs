//! Logical switches, routers and what belongs to them, of OVN, as a part of the graph.
//!
//! The rows of the northbound database, and chassis and port bindings of the southbound one, are nodes. When
//! something has changed, what should be in the graph is made anew of the rows, and the difference is written.

mod acls;
mod apply;
mod index;
pub mod said;
mod tables;

pub use acls::{AclFinder, Asking, Conversation, Icmp};
pub use index::{Mac, read_mac};

use crate::{Change, Client, ClientConfig, ControlSocket, Database, Error, Target, Watcher};
use apply::Applied;
use index::Published;
use skua_topology::SharedGraph;
use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// Settings of [`OvnTopology`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OvnConfig {
    /// The northbound database.
    pub northbound: Option<Target>,
    /// The southbound database.
    pub southbound: Option<Target>,
    /// Name of the host of the nodes.
    pub host: String,
    /// Whether ACLs get the counters of OpenFlow rules in the graph. The southbound database's logical flows are
    /// read for that, which are many.
    pub hits: bool,
    /// Whether the rows are nodes; else only [`OvnTopology::acls`] uses them.
    pub nodes: bool,
    /// How often interfaces and rules in the graph are looked at.
    pub interval: Duration,
    /// Where the switch of this host says which ACLs decide about a flow; none: there is no switch.
    pub control: Option<ControlSocket>,
}

/// Shortest time between two changes of the graph.
const PAUSE: Duration = Duration::from_millis(100);
/// And so many times as long as the last one took.
const SHARE: u32 = 20;

#[derive(Default)]
struct State {
    rows: [Database; 2],
    connected: [bool; 2],
    dirty: bool,
    stopping: bool,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps what OVN is made of in a graph.
///
/// Dropping it ends its threads; nodes and edges stay.
pub struct OvnTopology {
    clients: Vec<Client>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    acls: Option<Arc<AclFinder>>,
}

impl OvnTopology {
    /// Starts to connect, and to write into `graph`. Failing to connect is no error: it tries again.
    pub fn start(config: OvnConfig, graph: SharedGraph) -> Result<Self, Error> {
        let shared = Arc::new(Shared::default());
        let mut clients = Vec::new();
        for (place, target, name, tables) in [
            (0, &config.northbound, "OVN_Northbound", tables::NORTH),
            (1, &config.southbound, "OVN_Southbound", tables::SOUTH),
        ] {
            let Some(target) = target else { continue };
            let client = ClientConfig {
                database: name,
                ..ClientConfig::new(target.clone())
            };
            let flows = config.hits && place == 1;
            let feed = Feed {
                shared: shared.clone(),
                place,
                limit: client.limits.memory,
            };
            clients.push(Client::start(
                client,
                tables::monitored(tables, flows),
                feed,
            )?);
        }
        let published = Arc::new(Published::default());
        let finder = |control| {
            let (published, graph) = (published.clone(), graph.clone());
            Arc::new(AclFinder::new(published, graph, &config.host, control))
        };
        let acls = config.control.clone().filter(|_| config.hits).map(finder);
        let worker = Worker {
            applied: Applied::new(&config.host, graph, published),
            config,
            shared: shared.clone(),
        };
        let thread = thread::Builder::new().name("ovn-graph".to_owned());
        let thread = thread.spawn(move || worker.run());
        let thread = thread.map_err(|source| Error::Io {
            target: "OVN".to_owned(),
            action: "starting a thread",
            source,
        })?;
        Ok(Self {
            clients,
            shared,
            thread: Some(thread),
            acls,
        })
    }

    /// What finds the ACLs of flows; needs [`OvnConfig::hits`] and [`OvnConfig::control`].
    pub fn acls(&self) -> Option<Arc<AclFinder>> {
        self.acls.clone()
    }

    /// Whether all rows of both databases are known.
    pub fn is_connected(&self) -> bool {
        self.clients.iter().all(Client::is_connected)
    }
}

impl Drop for OvnTopology {
    fn drop(&mut self) {
        self.clients.clear();
        self.shared.lock().stopping = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Brings a database's changes.
struct Feed {
    shared: Arc<Shared>,
    place: usize,
    limit: usize,
}

impl Feed {
    fn apply(&self, changes: Vec<Change>, all: bool) -> Result<(), Error> {
        let mut state = self.shared.lock();
        state.dirty = true;
        let State {
            rows, connected, ..
        } = &mut *state;
        let (Some(rows), Some(connected)) =
            (rows.get_mut(self.place), connected.get_mut(self.place))
        else {
            return Ok(());
        };
        if all {
            *rows = Database::default();
            *connected = true;
        }
        for change in changes {
            rows.apply(change, self.limit)?;
        }
        drop(state);
        self.shared.changed.notify_all();
        Ok(())
    }
}

impl Watcher for Feed {
    fn begin(&mut self, rows: Vec<Change>) -> Result<(), Error> {
        self.apply(rows, true)
    }

    fn change(&mut self, changes: Vec<Change>) -> Result<(), Error> {
        self.apply(changes, false)
    }

    /// The nodes stay as they were last known.
    fn end(&mut self, _: &Error) {}
}

struct Worker {
    config: OvnConfig,
    applied: Applied,
    shared: Arc<Shared>,
}

impl Worker {
    fn run(mut self) {
        let mut due = Instant::now();
        let mut pause = Duration::ZERO;
        let shared = self.shared.clone();
        loop {
            let state = shared.lock();
            let wait = due.saturating_duration_since(Instant::now());
            let waited = shared
                .changed
                .wait_timeout_while(state, wait, |state| !state.dirty && !state.stopping);
            let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
            if state.stopping {
                return;
            }
            // Until both are known, what an earlier run left stays.
            let known = |place: usize, target: &Option<Target>| {
                target.is_none() || state.connected.get(place).copied().unwrap_or(false)
            };
            let all = known(0, &self.config.northbound) && known(1, &self.config.southbound);
            let begun = Instant::now();
            if std::mem::take(&mut state.dirty) && all {
                self.applied.want(&state.rows, &self.config);
            }
            drop(state);
            if all && self.config.nodes {
                self.applied.write();
            }
            due = begun + self.config.interval;
            pause = PAUSE.max(begun.elapsed() * SHARE).max(pause / 2);
            let state = shared.lock();
            let _ = shared
                .changed
                .wait_timeout_while(state, pause, |state| !state.stopping);
        }
    }
}
