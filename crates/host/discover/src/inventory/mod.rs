//! What is on and in the network: containers, processes that listen, guests, BPF programs, rules of
//! nftables.
//!
//! Each is polled by a thread of its own, because some requests may hang. One more thread follows the graph
//! and calls those that a change matters to: a new namespace may have containers and rules, a tap may have
//! got a guest.

pub(crate) mod configured;
mod containers;
mod guests;
pub(crate) mod libvirt;
mod neighbours;
mod place;
mod processes;
mod procfs;
mod programs;
mod rules;
mod watcher;
mod worker;

pub use processes::Listeners;
pub(crate) use worker::Wake;

use crate::{DiscoveryConfig, DiscoveryError, counters::Shared, host, writer::Writer};
use skua_socket::Pids;
use skua_topology::SharedGraph;
use std::{net::IpAddr, sync::Arc, time::Duration};
use watcher::{Calls, Watcher};
use worker::Worker;

/// A port that a process waits at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListeningPort {
    /// `TCP` or `UDP`.
    pub protocol: &'static str,
    /// Address that it is bound to.
    pub address: IpAddr,
    /// The port.
    pub port: u16,
}

/// A process that waits for others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListeningProcess {
    /// Process on the host; 0: not known.
    pub pid: u32,
    /// The process in its own PID namespace, where that is another number; 0: not known.
    pub ns_pid: u32,
    /// Its start, ns of CLOCK_BOOTTIME; 0: not known.
    pub start_ns: u64,
    /// Its name, safe to show.
    pub name: String,
    /// Path of its executable, safe to show.
    pub executable: Option<String>,
    /// Effective user.
    pub uid: u32,
    /// The user's name.
    pub user: Option<String>,
    /// Unit of systemd.
    pub unit: Option<String>,
    /// Id of the container that it runs in.
    pub container: Option<String>,
    /// Inode number of the network namespace of its sockets.
    pub netns: u64,
    /// Where it waits.
    pub ports: Vec<ListeningPort>,
}

/// What all parts have.
#[derive(Clone)]
struct Common {
    graph: SharedGraph,
    host: Arc<str>,
    host_node: Arc<str>,
    host_tid: Arc<str>,
    interval: Duration,
    counters: Arc<Shared>,
    /// Whose numbers `/proc` has.
    pids: Pids,
}

impl Common {
    fn writer(&self, name: &str, most: usize) -> Writer {
        Writer::new(
            self.graph.clone(),
            &self.host,
            name,
            most,
            self.counters.clone(),
        )
    }
}

/// All parts that are wanted; dropping it ends them.
#[derive(Debug)]
pub(crate) struct Inventory {
    listeners: Option<Listeners>,
    /// Before those that it calls.
    watcher: Option<Watcher>,
    workers: Vec<Worker>,
}

impl Inventory {
    /// Starts the threads. Nodes that an earlier run left of parts that are now disabled are removed.
    /// `wish` has namespaces listed.
    pub fn start(
        config: &DiscoveryConfig,
        graph: &SharedGraph,
        host_node: &Arc<str>,
        counters: &Arc<Shared>,
        wish: Wake,
    ) -> Result<Self, DiscoveryError> {
        let common = Common {
            graph: graph.clone(),
            host: config.host.as_str().into(),
            host_node: host_node.clone(),
            host_tid: host::tid(&config.host),
            interval: config.metric_interval,
            counters: counters.clone(),
            pids: Pids::of_proc(),
        };
        let enabled = &config.inventory;
        let mut workers = Vec::new();
        let mut calls = Calls::default();
        let mut listeners = None;
        // Before the first poll: later changes come as events.
        let events = graph.write().subscribe(watcher::QUEUE);
        if enabled.containers {
            let wake = Wake::new()?;
            let source = containers::Containers::new(common.clone(), wish, &config.instances);
            workers.push(Worker::start("discover-cont", wake.clone(), source)?);
            calls.containers = Some(wake);
        } else {
            common.writer(containers::NAME, 0).settle();
        }
        if enabled.processes {
            let wake = Wake::new()?;
            let listening = Listeners::new(wake.clone());
            let source = processes::Processes::new(common.clone(), listening.clone());
            workers.push(Worker::start("discover-proc", wake.clone(), source)?);
            calls.processes = Some(wake);
            listeners = Some(listening);
        } else {
            common.writer(processes::NAME, 0).settle();
        }
        if enabled.guests {
            let wake = Wake::new()?;
            let source = guests::Guests::new(common.clone(), &config.libvirt);
            workers.push(Worker::start("discover-vm", wake.clone(), source)?);
            calls.guests = Some(wake);
        } else {
            common.writer(guests::NAME, 0).settle();
        }
        if enabled.programs {
            let wake = Wake::new()?;
            let source = programs::Programs::new(common.clone());
            workers.push(Worker::start("discover-bpf", wake.clone(), source)?);
            calls.programs = Some(wake);
        } else {
            place::clear(graph, counters, &config.host, programs::KEY);
        }
        if enabled.nftables {
            let wake = Wake::new()?;
            let source = rules::Rules::new(common.clone());
            workers.push(Worker::start("discover-nft", wake.clone(), source)?);
            calls.rules = Some(wake);
        } else {
            place::clear(graph, counters, &config.host, rules::KEY);
        }
        if enabled.lldp {
            let wake = Wake::new()?;
            let source = neighbours::Neighbours::new(common.clone());
            workers.push(Worker::start("discover-lldp", wake.clone(), source)?);
            calls.neighbours = Some(wake);
        } else {
            common.writer(neighbours::NAME, 0).settle();
        }
        let configured = configured::Configured::new(common.clone(), &config.host_metadata);
        let others = !workers.is_empty();
        workers.push(Worker::start("discover-conf", Wake::new()?, configured)?);
        let watcher = match !others {
            true => None,
            false => Some(Watcher::start(events, common.host.clone(), calls)?),
        };
        Ok(Self {
            listeners,
            watcher,
            workers,
        })
    }

    /// See [`crate::Discovery::listeners`].
    pub fn listeners(&self) -> Option<Listeners> {
        self.listeners.clone()
    }

    /// Whether all threads still work.
    pub fn is_running(&self) -> bool {
        self.watcher.as_ref().is_none_or(Watcher::is_running)
            && self.workers.iter().all(Worker::is_running)
    }
}
