//! Bridges, ports and interfaces of Open vSwitch as a part of the graph.

mod apply;
mod metadata;
mod meter;
mod names;
mod place;
mod state;

use crate::rules::{RulesConfig, RulesCounters};
use crate::{Change, Client, ClientConfig, ClientCounters, Error, Monitored, Target, Watcher};
pub(crate) use names::{row_tid, tid};
use skua_topology::{SharedGraph, Subscription};
use state::State;
pub(crate) use state::now;
use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// Settings of [`OvsTopology`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OvsConfig {
    /// The connection.
    pub client: ClientConfig,
    /// Name of this host, as its node and those of its interfaces have it.
    pub host: String,
    /// The origin of the nodes and edges, which no other writer may use.
    pub origin: String,
    /// Inode number of the network namespace that Open vSwitch has its interfaces in; none: that of
    /// this process.
    pub netns: Option<u64>,
    /// How long an interface that the kernel may have waits for the node that the discovery of links makes.
    /// Then it gets one of its own, which is removed when the other comes.
    pub settle: Duration,
    /// How long nodes stay, as `disconnected`, when the database does not answer.
    pub forget_after: Duration,
    /// Whether counters are read. Open vSwitch writes them every 5 s, for all interfaces.
    pub statistics: bool,
    /// Which OpenFlow rules and groups are read; none: none.
    pub rules: Option<RulesConfig>,
}

impl OvsConfig {
    /// For a host: nodes wait 1 s for the kernel's and are forgotten after 5 minutes; with counters, without
    /// OpenFlow rules.
    pub fn new(target: Target, host: &str) -> Self {
        Self {
            client: ClientConfig::new(target),
            host: host.to_owned(),
            origin: format!("ovsdb.{host}"),
            netns: None,
            settle: Duration::from_secs(1),
            forget_after: Duration::from_secs(300),
            statistics: true,
            rules: None,
        }
    }
}

/// What happened so far, and what there is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OvsCounters {
    /// Of the connection.
    pub client: ClientCounters,
    /// Whether all rows are known now.
    pub connected: bool,
    /// Rows that are known.
    pub rows: u64,
    /// Bytes that they take.
    pub bytes: u64,
    /// Nodes of our own in the graph.
    pub nodes: u64,
    /// Interfaces whose node the discovery of links made.
    pub linked: u64,
    /// Interfaces that wait for such a node.
    pub waiting: u64,
    /// Edges in the graph.
    pub edges: u64,
    /// Updates of the database.
    pub updates: u64,
    /// Nodes and edges that the graph refused.
    pub refused: u64,
    /// Events of the graph that were missed: then all rows are applied again.
    pub missed: u64,
    /// How often everything was removed because the database stayed away.
    pub forgotten: u64,
    /// Of OpenFlow rules.
    pub rules: RulesCounters,
}

/// Keeps what Open vSwitch is made of in a graph.
///
/// Dropping it ends its threads; nodes and edges stay, marked as `disconnected`.
pub struct OvsTopology {
    client: Option<Client>,
    state: Arc<Mutex<State>>,
    stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Changes of the graph that may wait for us.
const QUEUE: usize = 65_536;
/// Of these, how many are read before the graph is changed.
const BATCH: usize = 4_096;
/// Longest time until a stop is noticed.
const PATIENCE: Duration = Duration::from_secs(1);

impl OvsTopology {
    /// Starts to connect, and to write into `graph`. Failing to connect is no error: it tries again. The
    /// graph needs indexes on `Name` and `Type`, as it has by default.
    pub fn start(config: OvsConfig, graph: SharedGraph) -> Result<Self, Error> {
        let netns = match config.netns {
            Some(inode) => inode,
            None => skua_link::Namespace::own()?.id.inode,
        };
        let (client, statistics) = (config.client.clone(), config.statistics);
        let target = client.target.to_string();
        let subscription = graph.write().subscribe(QUEUE);
        let state = Arc::new(Mutex::new(State::new(config, netns, graph)));
        let stopping = Arc::new(AtomicBool::new(false));
        let follower = Follower {
            state: state.clone(),
            stopping: stopping.clone(),
        };
        let thread = thread::Builder::new().name("ovs-graph".to_owned());
        let thread = thread.spawn(move || follower.run(&subscription));
        let thread = thread.map_err(|source| Error::Io {
            target,
            action: "starting a thread",
            source,
        })?;
        let mut topology = Self {
            client: None,
            state: state.clone(),
            stopping,
            thread: Some(thread),
        };
        topology.client = Some(Client::start(client, monitored(statistics), Feed(state))?);
        Ok(topology)
    }

    /// What happened so far, and what there is.
    pub fn counters(&self) -> OvsCounters {
        let mut counters = lock(&self.state).counters();
        if let Some(client) = &self.client {
            counters.client = client.counters();
        }
        counters
    }
}

impl Drop for OvsTopology {
    fn drop(&mut self) {
        // First the connection, so that the end is still written into the graph.
        self.client = None;
        let rules = lock(&self.state).take_rules();
        drop(rules);
        self.stopping.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The monitored tables and columns.
fn monitored(statistics: bool) -> Vec<Monitored> {
    let mut interface = vec![
        "name",
        "type",
        "options",
        "other_config",
        "external_ids",
        "error",
        "mac_in_use",
        "ifindex",
        "ofport",
        "link_state",
        "admin_state",
        "link_speed",
        "link_resets",
        "duplex",
        "mtu",
        "lacp_current",
        "status",
    ];
    if statistics {
        interface.push("statistics");
    }
    vec![
        Monitored::new(
            state::SYSTEM,
            &[
                "ovs_version",
                "db_version",
                "system_type",
                "system_version",
                "external_ids",
                "other_config",
            ],
        ),
        Monitored::new(
            state::BRIDGE,
            &[
                "name",
                "ports",
                "datapath_type",
                "datapath_id",
                "datapath_version",
                "fail_mode",
                "protocols",
                "stp_enable",
                "rstp_enable",
                "mcast_snooping_enable",
                "external_ids",
                "other_config",
            ],
        ),
        Monitored::new(
            state::PORT,
            &[
                "name",
                "interfaces",
                "tag",
                "trunks",
                "cvlans",
                "vlan_mode",
                "bond_mode",
                "bond_active_slave",
                "lacp",
                "external_ids",
                "other_config",
            ],
        ),
        Monitored {
            table: state::INTERFACE,
            columns: interface,
        },
    ]
}

/// Brings the database's changes.
struct Feed(Arc<Mutex<State>>);

impl Watcher for Feed {
    fn begin(&mut self, rows: Vec<Change>) -> Result<(), Error> {
        lock(&self.0).begin(rows)
    }

    fn change(&mut self, changes: Vec<Change>) -> Result<(), Error> {
        lock(&self.0).change(changes)
    }

    fn end(&mut self, _: &Error) {
        lock(&self.0).end();
    }
}

/// Follows the graph's changes and the clock.
struct Follower {
    state: Arc<Mutex<State>>,
    stopping: Arc<AtomicBool>,
}

impl Follower {
    fn run(&self, subscription: &Subscription) {
        while !self.stopping.load(Ordering::Relaxed) && !subscription.is_closed() {
            let patience = lock(&self.state).next_due(Instant::now());
            let first = subscription.next(patience.unwrap_or(PATIENCE).min(PATIENCE));
            let mut state = lock(&self.state);
            let mut next = first;
            for _ in 0..BATCH {
                let Some(delivery) = next else { break };
                state.delivered(&delivery);
                next = subscription.try_next();
            }
            if let Some(delivery) = next {
                state.delivered(&delivery);
            }
            state.clock(Instant::now());
        }
    }
}

#[cfg(test)]
mod tests;
