//! Settings.

use std::time::Duration;

/// Settings of [`crate::Discovery`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiscoveryConfig {
    /// Name of the host, as `@Host` of all nodes and `Name` of the host's.
    pub host: String,
    /// Whether to follow all network namespaces, or the own one only.
    pub all_netns: bool,
    /// How often counters are read, and namespaces of processes and what the kernel does not announce are
    /// polled.
    pub metric_interval: Duration,
    /// How often at most the neighbours and the forwarding table of one interface are written.
    pub neighbour_interval: Duration,
    /// Nodes at most; further interfaces are counted as omitted.
    pub max_nodes: usize,
    /// Addresses at most of one interface; further ones are in `AddressesOmitted`.
    pub max_addresses: usize,
    /// Routes at most that go out of one interface; further ones are in `RoutesOmitted`.
    pub max_routes: usize,
    /// Neighbours at most of one interface; further ones are in `NeighborsOmitted`.
    pub max_neighbours: usize,
    /// Entries at most of the forwarding table of one interface; further ones are in `FDBOmitted`.
    pub max_forwarding: usize,
    /// Further kinds of nodes.
    pub inventory: InventoryConfig,
    /// Queue for notifications of one namespace until they are read, in bytes. The kernel allocates it only
    /// on demand.
    pub queue_bytes: usize,
}

/// Kinds of nodes in addition to namespaces and interfaces; none by default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct InventoryConfig {
    /// Containers.
    pub containers: bool,
    /// Listening processes, as set in [`crate::Listeners`].
    pub processes: bool,
    /// Virtual machines, and other processes that hold a tap or tun device.
    pub guests: bool,
    /// BPF programs on interfaces.
    pub programs: bool,
    /// Rules of nftables.
    pub nftables: bool,
}

impl Default for DiscoveryConfig {
    /// The host's own name, its own namespace, every 10 s, neighbours every second; 100,000 nodes, 1,000
    /// entries of each kind, 4 MiB.
    fn default() -> Self {
        let name = rustix::system::uname();
        Self {
            host: name.nodename().to_string_lossy().into_owned(),
            all_netns: false,
            metric_interval: Duration::from_secs(10),
            neighbour_interval: Duration::from_secs(1),
            max_nodes: 100_000,
            max_addresses: 1_000,
            max_routes: 1_000,
            max_neighbours: 1_000,
            max_forwarding: 1_000,
            inventory: InventoryConfig::default(),
            queue_bytes: skua_link::MONITOR_QUEUE,
        }
    }
}
