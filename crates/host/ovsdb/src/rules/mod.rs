//! OpenFlow rules and groups of bridges as a part of the graph.
//!
//! Each bridge has a thread, which is connected to the bridge's management socket. It reads all rules and groups at
//! an interval, and where the bridge can tell (OpenFlow 1.4) each change of a rule when it happens.

mod bridge;
mod nodes;

use skua_topology::{Lookup, SharedGraph};
use std::{
    collections::BTreeMap,
    ops::ControlFlow,
    path::PathBuf,
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};
use uuid::Uuid;

/// Bridges that are followed at most.
const MAX_BRIDGES: usize = 256;

/// Settings of the rules in the graph.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RulesConfig {
    /// The folder with the management sockets of the bridges, `BRIDGE.mgmt`.
    pub folder: PathBuf,
    /// How often rules and groups are read, with their counters.
    pub interval: Duration,
    /// Rules of a bridge at most, and groups; what is beyond is counted.
    pub max_rules: usize,
}

impl Default for RulesConfig {
    /// The folder of the distributions' packages, every 10 s, 10,000.
    fn default() -> Self {
        Self {
            folder: "/run/openvswitch".into(),
            interval: Duration::from_secs(10),
            max_rules: 10_000,
        }
    }
}

/// What there is, and what happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RulesCounters {
    /// Bridges whose rules are known now.
    pub bridges: u64,
    /// Bridges that are beyond the limit.
    pub omitted_bridges: u64,
}

/// What all bridges' threads need.
struct Common {
    config: RulesConfig,
    host: String,
    origin: Arc<str>,
    graph: SharedGraph,
}

/// Follows the rules of the bridges that there are.
pub(crate) struct Rules {
    common: Arc<Common>,
    followers: BTreeMap<Uuid, Follower>,
    swept: bool,
    omitted: u64,
}

/// The thread of a bridge.
struct Follower {
    name: String,
    stop: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
}

/// How a bridge's thread is ended.
#[derive(Default)]
struct Stop {
    stopping: AtomicBool,
    /// Whether its nodes go, too.
    removing: AtomicBool,
    connected: AtomicBool,
    closer: Mutex<Option<Box<dyn Fn() + Send>>>,
    changed: Condvar,
}

impl Stop {
    fn is_set(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    fn set_closer(&self, closer: Option<Box<dyn Fn() + Send>>) {
        let mut there = self.closer.lock().unwrap_or_else(PoisonError::into_inner);
        *there = closer;
        if self.is_set()
            && let Some(close) = &*there
        {
            close();
        }
    }

    fn set(&self) {
        let there = self.closer.lock().unwrap_or_else(PoisonError::into_inner);
        self.stopping.store(true, Ordering::Relaxed);
        if let Some(close) = &*there {
            close();
        }
        drop(there);
        self.changed.notify_all();
    }

    /// Waits, unless it has to end.
    fn pause(&self, time: Duration) {
        let there = self.closer.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = self
            .changed
            .wait_timeout_while(there, time, |_| !self.is_set());
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.stop.set();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Rules {
    pub fn new(config: RulesConfig, host: &str, graph: SharedGraph) -> Self {
        Self {
            common: Arc::new(Common {
                config,
                host: host.to_owned(),
                origin: format!("openflow.{host}").as_str().into(),
                graph,
            }),
            followers: BTreeMap::new(),
            swept: false,
            omitted: 0,
        }
    }

    /// These are the bridges now.
    pub fn bridges(&mut self, bridges: &BTreeMap<Uuid, String>) {
        if !std::mem::replace(&mut self.swept, true) {
            self.sweep();
        }
        let gone: Vec<Uuid> = self
            .followers
            .iter()
            .filter(|(id, follower)| bridges.get(*id) != Some(&follower.name))
            .map(|(id, _)| *id)
            .collect();
        for id in gone {
            if let Some(follower) = self.followers.remove(&id) {
                follower.stop.removing.store(true, Ordering::Relaxed);
            }
        }
        self.omitted = 0;
        for (id, name) in bridges {
            if self.followers.contains_key(id) {
                continue;
            }
            if self.followers.len() >= MAX_BRIDGES {
                self.omitted += 1;
                continue;
            }
            match self.follow(*id, name) {
                Ok(follower) => drop(self.followers.insert(*id, follower)),
                Err(error) => {
                    tracing::warn!(target: "ovsdb", "rules of bridge {name}: starting a thread: {error}");
                }
            }
        }
    }

    fn follow(&self, id: Uuid, name: &str) -> std::io::Result<Follower> {
        let stop = Arc::new(Stop::default());
        let follower = bridge::Bridge::new(self.common.clone(), id, name.to_owned(), stop.clone());
        let thread = thread::Builder::new().name("openflow".to_owned());
        let thread = thread.spawn(move || follower.run())?;
        Ok(Follower {
            name: name.to_owned(),
            stop,
            thread: Some(thread),
        })
    }

    pub fn counters(&self) -> RulesCounters {
        let followers = self.followers.values();
        let connected = followers.filter(|f| f.stop.connected.load(Ordering::Relaxed));
        RulesCounters {
            bridges: connected.count() as u64,
            omitted_bridges: self.omitted,
        }
    }

    /// Removes what a former run left in a graph that was kept.
    fn sweep(&self) {
        let mut nodes = Vec::new();
        {
            let graph = self.common.graph.read();
            let _ = graph.scan_nodes(graph.now(), Lookup::All, 0, usize::MAX, &mut |node, _| {
                if node.origin == self.common.origin {
                    nodes.push(node.id.clone());
                }
                ControlFlow::Continue(())
            });
        }
        let mut graph = self.common.graph.write();
        for id in nodes {
            let _ = graph.delete_node(&id, crate::topology::now());
        }
    }
}
