//! Settings.

use crate::{host, inventory::configured};
use skua_topology::Map;
use std::{path::PathBuf, time::Duration};

/// Settings of [`crate::Discovery`].
#[derive(Debug, Clone, PartialEq)]
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
    /// Where libvirt has its domains.
    pub libvirt: LibvirtFolders,
    /// Where LXD and Incus answer.
    pub instances: InstanceSockets,
    /// What the configuration says of the host.
    pub host_metadata: HostMetadata,
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
    /// Switches and ports that interfaces are wired to (LLDP).
    pub lldp: bool,
}

/// Folders of libvirt's QEMU driver; an empty one is not read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LibvirtFolders {
    /// Running domains with their state, as libvirt needs them after a restart.
    pub status: PathBuf,
    /// Definitions of domains that are kept.
    pub definitions: PathBuf,
}

impl Default for LibvirtFolders {
    fn default() -> Self {
        Self {
            status: "/run/libvirt/qemu".into(),
            definitions: "/etc/libvirt/qemu".into(),
        }
    }
}

/// Sockets of the APIs of LXD and Incus.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstanceSockets {
    /// Of LXD.
    pub lxd: Vec<PathBuf>,
    /// Of Incus.
    pub incus: Vec<PathBuf>,
}

impl Default for InstanceSockets {
    fn default() -> Self {
        Self {
            lxd: vec![
                "/var/lib/lxd/unix.socket".into(),
                "/var/snap/lxd/common/lxd/unix.socket".into(),
            ],
            incus: vec!["/var/lib/incus/unix.socket".into()],
        }
    }
}

/// Metadata of the host's node that the configuration says.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HostMetadata {
    /// By key.
    pub(crate) values: Map,
    /// Files whose values are in `Config`.
    pub(crate) files: Vec<HostFile>,
}

/// A file with values for the host's node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostFile {
    /// Where it is.
    pub path: PathBuf,
    /// Its format: json, yaml, toml, ini or properties.
    pub kind: String,
    /// Key in `Config`.
    pub name: String,
    /// Path of the value, with dots; empty: all that is in the file.
    pub selector: String,
}

impl HostMetadata {
    /// Files at most.
    const MOST_FILES: usize = 64;

    /// Checks them.
    ///
    /// # Errors
    ///
    /// What is wrong, in one line.
    pub fn new(
        values: &serde_json::Map<String, serde_json::Value>,
        files: Vec<HostFile>,
    ) -> Result<Self, String> {
        for name in values.keys() {
            if name.is_empty() || name.starts_with('@') || host::is_own_key(name) {
                return Err(format!("metadata.{name}: Skua itself sets this key"));
            }
        }
        let values =
            configured::configured(values).map_err(|error| format!("metadata: {error}"))?;
        let mut names = std::collections::HashSet::new();
        for (at, file) in files.iter().enumerate() {
            let wrong = |what: String| Err(format!("metadata_config.files[{at}]: {what}"));
            if file.name.is_empty() || !names.insert(&*file.name) {
                return wrong("name: one that no other file has".into());
            }
            if !configured::KINDS.contains(&&*file.kind) {
                return wrong(format!("type: one of {}", configured::KINDS.join(", ")));
            }
            if !file.path.is_absolute() {
                return wrong("path: an absolute path".into());
            }
        }
        if files.len() > Self::MOST_FILES {
            return Err(format!(
                "metadata_config.files: more than {}",
                Self::MOST_FILES
            ));
        }
        Ok(Self { values, files })
    }
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
            libvirt: LibvirtFolders::default(),
            instances: InstanceSockets::default(),
            host_metadata: HostMetadata::default(),
            queue_bytes: skua_link::MONITOR_QUEUE,
        }
    }
}
