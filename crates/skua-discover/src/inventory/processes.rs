//! Processes that wait for others: who offers what.

use super::{
    Common, ListeningProcess,
    place::{self, int, map, map_of, some},
    worker::{Source, Wake},
};
use crate::{
    counters, ident,
    netlink::OWNERSHIP,
    writer::{Hangs, Writer},
};
use skua_topology::{Map, Value};
use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

/// Name of this provider in `@Origin`.
pub(super) const NAME: &str = "process";
/// Processes at most.
const MOST: usize = 4_096;
/// Ports at most that a node shows.
const MOST_PORTS: usize = 256;

const KEYS: &[&str] = &[
    "Name",
    "Type",
    "TID",
    "PID",
    "Executable",
    "User",
    "UID",
    "Unit",
    "NetNsInode",
    "Listens",
    "ListensOmitted",
];

/// Takes what the socket probe sees; see [`crate::Discovery::listeners`].
#[derive(Debug, Clone)]
pub struct Listeners {
    told: Arc<Mutex<Option<Vec<ListeningProcess>>>>,
    wake: Wake,
}

impl Listeners {
    pub(super) fn new(wake: Wake) -> Self {
        Self {
            told: Arc::default(),
            wake,
        }
    }

    /// These are all processes that listen now. Quick: they are written down elsewhere.
    pub fn set(&self, processes: Vec<ListeningProcess>) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        *told = Some(processes);
        drop(told);
        self.wake.call();
    }

    fn take(&self) -> Option<Vec<ListeningProcess>> {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.take()
    }
}

struct Known {
    node: Arc<str>,
    metadata: Map,
    parent: Hangs,
}

/// Follows processes that listen.
pub(super) struct Processes {
    common: Common,
    writer: Writer,
    listeners: Listeners,
    boot: String,
    now: Vec<ListeningProcess>,
    known: HashMap<(u32, u64, u64), Known>,
    told: bool,
    began: Instant,
}

impl Processes {
    pub fn new(common: Common, listeners: Listeners) -> Self {
        Self {
            writer: common.writer(NAME, MOST),
            common,
            listeners,
            boot: crate::host::boot(),
            now: Vec::new(),
            known: HashMap::new(),
            told: false,
            began: Instant::now(),
        }
    }

    fn metadata(&self, process: &ListeningProcess) -> Map {
        let mut ports: Vec<_> = process.ports.iter().collect();
        ports.sort_by_key(|port| (port.port, port.protocol, port.address));
        ports.dedup();
        let omitted = ports.len().saturating_sub(MOST_PORTS);
        let listens: Vec<Value> = ports
            .iter()
            .take(MOST_PORTS)
            .map(|port| {
                let address = port.address.to_string();
                Value::from(map([
                    ("Protocol", Value::from(port.protocol)),
                    ("Address", Value::from(address.as_str())),
                    ("Port", int(port.port)),
                ]))
            })
            .collect();
        let first = ports.first().map_or(0, |port| port.port);
        let key = format!("{}/{}:{first}", process.netns, process.name);
        let tid = ident::tid(&self.common.host_tid, &key, NAME);
        map_of([
            ("Name", some(Some(&process.name))),
            ("Type", some(Some("process"))),
            ("TID", Some(Value::Str(tid))),
            ("PID", Some(int(process.pid))),
            ("Executable", some(process.executable.as_deref())),
            ("User", some(process.user.as_deref())),
            ("UID", Some(int(process.uid))),
            ("Unit", some(process.unit.as_deref())),
            ("NetNsInode", Some(int(process.netns))),
            ("Listens", Some(Value::List(listens.into()))),
            ("ListensOmitted", (omitted > 0).then(|| int(omitted))),
        ])
    }

    fn look(&mut self) {
        let key = |process: &ListeningProcess| (process.pid, process.start_ns, process.netns);
        let alive: HashSet<_> = self.now.iter().map(key).collect();
        let known = self.known.keys().copied();
        let gone: Vec<_> = known.filter(|known| !alive.contains(known)).collect();
        for gone in gone {
            if let Some(known) = self.known.remove(&gone) {
                self.writer.remove_node(&known.node);
            }
        }
        let spaces = place::spaces(&self.common.graph, &self.common.host);
        let containers: HashMap<String, Arc<str>> =
            place::of_type(&self.common.graph, &self.common.host, "container")
                .into_iter()
                .filter_map(|node| {
                    let id = node
                        .metadata
                        .get("Container")?
                        .as_map()?
                        .get("ID")?
                        .as_str()?;
                    Some((id.to_owned(), node.id.clone()))
                })
                .collect();
        for process in std::mem::take(&mut self.now) {
            let metadata = self.metadata(&process);
            let container = process.container.as_ref().and_then(|id| containers.get(id));
            let space = || spaces.get(&process.netns).map(|space| &space.node);
            let parent = container.or_else(space).unwrap_or(&self.common.host_node);
            let key = key(&process);
            let known = match self.known.entry(key) {
                std::collections::hash_map::Entry::Occupied(known) => {
                    let known = known.into_mut();
                    if known.metadata != metadata {
                        self.writer.set_node(&known.node, KEYS, metadata.clone());
                    }
                    known
                }
                std::collections::hash_map::Entry::Vacant(room) => {
                    let identity = format!("{NAME}/{}/{}/{}/{}", self.boot, key.0, key.1, key.2);
                    let node = self.writer.add_node(&identity, KEYS, metadata.clone());
                    let Some(node) = node else {
                        self.now.push(process);
                        continue;
                    };
                    room.insert(Known {
                        node,
                        metadata: metadata.clone(),
                        parent: None,
                    })
                }
            };
            known.metadata = metadata;
            self.writer
                .hang(&mut known.parent, parent, &known.node, OWNERSHIP);
            self.now.push(process);
        }
        counters::set(&self.common.counters.processes, self.known.len());
    }
}

impl Source for Processes {
    fn next(&self) -> Instant {
        Instant::now() + Duration::from_secs(3_600)
    }

    fn quiet_until(&self) -> Instant {
        // Who calls does so once per drain.
        self.began
    }

    fn work(&mut self, _: bool) {
        if let Some(now) = self.listeners.take() {
            self.now = now;
            self.told = true;
        }
        // Until the probe has looked, nothing is known to be gone.
        if self.told {
            self.look();
            self.writer.settle();
        }
    }
}
