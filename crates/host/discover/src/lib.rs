//! Finds what a host is wired with, and keeps the graph of it up to date.
//!
//! [`Discovery::start`] fills a [`SharedGraph`] with the host, its network namespaces and their interfaces,
//! and keeps them up to date by the kernel's events. When it returns these are complete; what is on and in
//! them (containers, processes, guests, programs, rules) follows later. `docs/topology.md` lists the
//! properties of nodes and edges, and which of them come by events.
//!
//! # Providers
//!
//! Each source of nodes is a module with a `Provider`: it is started with the settings and the graph,
//! works on a thread of its own, ends when dropped, and writes through a [`writer::Writer`] of its own,
//! whose `origin` marks its nodes and edges. What it knows of nodes of others it adds by
//! [`skua_topology::Patch`]; [`writer::Writer::set_node`] leaves such keys alone. They are [`netlink`] and
//! the parts of [`inventory`].
//!
//! # Identity
//!
//! An *identifier* belongs to one life of one object, a *TID* to all objects with the same name in the same
//! place.
//!
//! - The identifier of an interface is the UUIDv5 of host, boot, namespace (device and inode) and
//!   interface index; that of a namespace the same without the index; that of a host is made of its name
//!   alone. So a resync, a rename, and a restart of this process find the same node again. Numbers are used
//!   again by the kernel: where the graph's history already has a node of that identifier which has
//!   ended, the next one in a sequence is taken. An interface that moves to another namespace gets
//!   another index there, in general, and so begins a new life.
//! - The TID is made as in Skydive: UUIDv5 of the host's name for a host, of the host's TID, path and type
//!   for a namespace, of the owner's TID, name and type for an interface. A namespace without a name has its
//!   inode in place of a path. A TID stays when an interface is deleted and made again; it
//!   changes with the name.
//! - The identifier of an edge is the UUIDv5 of parent, child and relation.

mod config;
mod counters;
mod error;
mod host;
mod ident;
mod inventory;
mod netlink;
mod writer;

pub use config::{
    DiscoveryConfig, HostFile, HostMetadata, InstanceSockets, InventoryConfig, LibvirtFolders,
};
pub use counters::Counters;
pub use error::DiscoveryError;
pub use inventory::libvirt::{Domain, DomainError, DomainInterface, domain as libvirt_domain};
pub use inventory::{Listeners, ListeningPort, ListeningProcess};

use counters::Shared;
use skua_topology::SharedGraph;
use std::sync::Arc;

/// Keeps a graph up to date until it is dropped. What it wrote stays in the graph.
#[derive(Debug)]
pub struct Discovery {
    host: Arc<str>,
    counters: Arc<Shared>,
    /// Dropped before `netlink`: it reads the nodes that `netlink` wrote.
    inventory: inventory::Inventory,
    netlink: netlink::Provider,
}

impl Discovery {
    /// Finds all objects and writes them into the graph, then follows their changes.
    pub fn start(config: DiscoveryConfig, graph: SharedGraph) -> Result<Self, DiscoveryError> {
        let counters = Arc::new(Shared::default());
        let wish = inventory::Wake::new()?;
        let (netlink, host) = netlink::Provider::start(
            config.clone(),
            graph.clone(),
            counters.clone(),
            wish.clone(),
        )?;
        let inventory = inventory::Inventory::start(&config, &graph, &host, &counters, wish)?;
        Ok(Self {
            host,
            counters,
            inventory,
            netlink,
        })
    }

    /// Identifier of the node of this host.
    pub fn host_node(&self) -> &str {
        &self.host
    }

    /// What was done and what was left out since the start.
    pub fn counters(&self) -> Counters {
        self.counters.read()
    }

    /// Receives the list of listening processes; none when these are disabled.
    pub fn listeners(&self) -> Option<Listeners> {
        self.inventory.listeners()
    }

    /// Whether the threads still work; they end early only when a wait fails.
    pub fn is_running(&self) -> bool {
        self.netlink.is_running() && self.inventory.is_running()
    }

    /// Ends the threads and waits for them, as dropping does.
    pub fn stop(self) {
        drop(self);
    }
}
