//! Listening processes and their ports.

use super::{
    Common, ListeningPort, ListeningProcess,
    place::{self, int, map, map_of, some},
    worker::{Source, Wake},
};
use crate::{
    counters, ident,
    netlink::OWNERSHIP,
    writer::{Hangs, Writer},
};
use skua_kernel::next_tick;
use skua_topology::{Map, Value};
use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
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
    "NSPID",
    "Executable",
    "User",
    "UID",
    "Unit",
    "NetNsInode",
    "Listens",
    "ListensOmitted",
];

#[derive(Debug, Default)]
struct LastReport {
    /// The last report.
    all: Option<Arc<[ListeningProcess]>>,
    /// Whether that is new.
    new: bool,
}

/// Receives the socket probe's listening processes; see [`crate::Discovery::listeners`].
#[derive(Debug, Clone)]
pub struct Listeners {
    last: Arc<Mutex<LastReport>>,
    wake: Wake,
}

impl Listeners {
    pub(super) fn new(wake: Wake) -> Self {
        Self {
            last: Arc::default(),
            wake,
        }
    }

    /// These are all processes that listen now. Quick: they are written down elsewhere, when they are not
    /// the same as before.
    pub fn set(&self, mut processes: Vec<ListeningProcess>) {
        processes.sort_unstable_by_key(key);
        for process in &mut processes {
            let order = |port: &ListeningPort| (port.port, port.protocol, port.address);
            process.ports.sort_unstable_by_key(order);
            process.ports.dedup();
        }
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.all.as_deref() == Some(&processes) {
            return;
        }
        *last = LastReport {
            all: Some(processes.into()),
            new: true,
        };
        drop(last);
        self.wake.call();
    }

    fn take_snapshot(&self) -> Option<Arc<[ListeningProcess]>> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let new = std::mem::take(&mut last.new);
        last.all.clone().filter(|_| new)
    }
}

/// What distinguishes processes: its numbers, its start, and the namespace that it listens in.
type Key = (u32, u32, u64, u64);

fn key(process: &ListeningProcess) -> Key {
    let ProcessNumbers { pid, ns_pid } = ProcessNumbers::of(process);
    (pid, ns_pid, process.start_ns, process.netns)
}

/// The host's number of a process identifies it; its own namespace's only where the host's is not known.
struct ProcessNumbers {
    pid: u32,
    ns_pid: u32,
}

impl ProcessNumbers {
    fn of(process: &ListeningProcess) -> Self {
        let ns_pid = if process.pid == 0 { process.ns_pid } else { 0 };
        Self {
            pid: process.pid,
            ns_pid,
        }
    }
}

struct KnownProcess {
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
    now: Arc<[ListeningProcess]>,
    known: HashMap<Key, KnownProcess>,
    reported: bool,
    next: Option<Instant>,
    began: Instant,
}

impl Processes {
    pub fn new(common: Common, listeners: Listeners) -> Self {
        Self {
            writer: common.writer(NAME, MOST),
            common,
            listeners,
            boot: crate::host::boot(),
            now: Arc::new([]),
            known: HashMap::new(),
            reported: false,
            next: None,
            began: Instant::now(),
        }
    }

    fn metadata(&self, process: &ListeningProcess) -> Map {
        let ports = &process.ports;
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
            ("PID", (process.pid != 0).then(|| int(process.pid))),
            ("NSPID", (process.ns_pid != 0).then(|| int(process.ns_pid))),
            ("Executable", some(process.executable.as_deref())),
            ("User", some(process.user.as_deref())),
            ("UID", Some(int(process.uid))),
            ("Unit", some(process.unit.as_deref())),
            ("NetNsInode", Some(int(process.netns))),
            ("Listens", Some(Value::List(listens.into()))),
            ("ListensOmitted", (omitted > 0).then(|| int(omitted))),
        ])
    }

    fn refresh(&mut self) {
        let processes = self.now.clone();
        let alive: HashSet<_> = processes.iter().map(key).collect();
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
        for process in &*processes {
            let metadata = self.metadata(process);
            let container = process.container.as_ref().and_then(|id| containers.get(id));
            let space = || spaces.get(&process.netns).map(|space| &space.node);
            let parent = container.or_else(space).unwrap_or(&self.common.host_node);
            let key = key(process);
            let known = match self.known.entry(key) {
                std::collections::hash_map::Entry::Occupied(known) => {
                    let known = known.into_mut();
                    if known.metadata != metadata {
                        self.writer.set_node(&known.node, KEYS, metadata.clone());
                    }
                    known
                }
                std::collections::hash_map::Entry::Vacant(entry) => {
                    let (pid, ns_pid, start, netns) = key;
                    let number = match pid {
                        0 => format!("ns{ns_pid}"),
                        pid => pid.to_string(),
                    };
                    let identity = format!("{NAME}/{}/{number}/{start}/{netns}", self.boot);
                    let node = self.writer.add_node(&identity, KEYS, metadata.clone());
                    let Some(node) = node else {
                        continue;
                    };
                    entry.insert(KnownProcess {
                        node,
                        metadata: metadata.clone(),
                        parent: None,
                    })
                }
            };
            known.metadata = metadata;
            self.writer
                .hang(&mut known.parent, parent, &known.node, OWNERSHIP);
        }
        counters::set(&self.common.counters.processes, self.known.len());
    }
}

impl Source for Processes {
    fn next(&self) -> Option<Instant> {
        self.next
    }

    fn quiet_until(&self) -> Instant {
        // The caller calls once per drain.
        self.began
    }

    fn work(&mut self, _: bool) {
        if let Some(now) = self.listeners.take_snapshot() {
            self.now = now;
            self.reported = true;
        }
        // Until the probe has reported, no process is known to have ended.
        if self.reported {
            self.refresh();
            self.writer.settle();
        }
        // Processes that exceeded the limit may fit later.
        let omitted = self.known.len() < self.now.len();
        self.next = omitted.then(|| next_tick(self.common.interval));
    }
}
