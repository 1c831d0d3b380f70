//! Sockets, their owners and what is made of them: the state beside the flows.

pub mod calls;
pub mod listening;
pub mod metrics;
pub mod query;
pub mod report;
mod start;
pub mod tables;

use skua_config::sockets::{Mode, Sockets as SocketSettings};
use skua_flow::{ConversationOwner, FlowRecord, Ownership};
use skua_probe::{ProbeError, SocketProbe, WatchedNamespace};
use skua_socket::{
    HookStatus, Measured, Owner, OwnerId, Owners, OwnersConfig, SocketLine, SocketLosses,
    SocketRecord, SocketStore, SocketStoreConfig, SocketUpdate,
};
pub use start::start;
use std::ops::RangeInclusive;

/// Everything that is known of sockets.
pub struct Sockets {
    /// Sockets and services.
    pub store: SocketStore,
    /// Processes.
    pub owners: Owners,
    /// What the probe lost.
    pub losses: SocketLosses,
    /// How the probe gets what.
    pub hooks: Vec<HookStatus>,
    /// What the probe works with.
    pub probe: String,
    /// Why it is not the first choice, empty when it is.
    pub fallback: String,
    /// Kernel memory by map.
    pub map_memory: Vec<(String, u64)>,
    /// How ended connections are told.
    pub mode: Mode,
    /// Inode numbers of namespaces, by the number in flow keys.
    namespaces: Vec<(u16, u32)>,
}

/// A probe with what its sockets are put into.
pub struct Started {
    pub probe: Box<dyn SocketProbe>,
    pub state: Sockets,
}

impl Sockets {
    /// Nothing known yet.
    pub fn new(settings: &SocketSettings, probe: &dyn SocketProbe, fallback: String) -> Self {
        // A sum of what the kernel sums up needs a probe that can ask for that.
        let mode = if fallback.is_empty() {
            settings.mode
        } else {
            Mode::Events
        };
        Self {
            store: SocketStore::new(SocketStoreConfig {
                max_sockets: settings.max_sockets as usize,
                history: usize::try_from(settings.history).unwrap_or(usize::MAX),
                aggregate: mode == Mode::Aggregate,
                ephemeral: ephemeral_ports(),
            }),
            owners: Owners::new(OwnersConfig::default()),
            losses: SocketLosses::default(),
            hooks: probe.hooks(),
            probe: probe.describe(),
            fallback,
            map_memory: probe.map_memory(),
            mode,
            namespaces: Vec::new(),
        }
    }

    /// Takes what has ended, which is quick.
    pub fn take_ended(&mut self, probe: &mut dyn SocketProbe) -> Result<(), ProbeError> {
        let owners = &mut self.owners;
        probe.cgroups(&mut |id, path| owners.note_cgroup(id, path))?;
        probe.ended(&mut |update| take(&mut self.store, owners, update))?;
        probe.pairs(&mut |pair| {
            let owner = owners.intern(&pair.task);
            self.store.pair(pair, owner, owners);
        })
    }

    /// Takes what has ended and looks at what is open.
    pub fn drain(&mut self, probe: &mut dyn SocketProbe, now_ns: u64) -> Result<(), ProbeError> {
        self.store.begin_drain(now_ns);
        self.take_ended(probe)?;
        self.store.begin_poll();
        let owners = &mut self.owners;
        let looked = probe.open(&mut |update| take(&mut self.store, owners, update));
        self.owners.refresh();
        // Without a look nothing is known to be gone.
        looked?;
        // What ended while the look went on, before its ports were used again by what the look has seen.
        self.take_ended(probe)?;
        self.store.end_poll(&self.owners);
        let owners = &mut self.owners;
        self.store
            .share_ports(&mut |one, other| owners.shared(one, other));
        self.losses = probe.losses();
        Ok(())
    }

    /// Frees owners that neither sockets nor flows have any more.
    pub fn sweep<'a>(&mut self, flows: impl Iterator<Item = &'a FlowRecord>) {
        self.owners.sweep(|used| {
            self.store.owners(used);
            for flow in flows {
                for owner in flow.owners.into_iter().flatten() {
                    used.note(owner, flow.end.is_none());
                }
            }
        });
    }

    /// Takes the namespaces that flows are from.
    pub fn set_namespaces(&mut self, namespaces: Vec<WatchedNamespace>) {
        self.namespaces = namespaces.iter().map(|n| (n.number, n.inode)).collect();
        let index = self.store.index_mut();
        let inodes: Vec<u32> = namespaces.iter().map(|n| n.inode).collect();
        index.retain_namespaces(&inodes);
        for namespace in namespaces {
            index.set_addresses(namespace.inode, namespace.addresses);
        }
    }

    /// Whose a conversation is.
    pub fn join(&self, flow: &FlowRecord) -> Ownership {
        let number = flow.key.netns;
        let netns = self.namespaces.iter().find(|(n, _)| *n == number);
        self.store.join(flow, netns.map_or(0, |(_, inode)| *inode))
    }

    /// What TCP measured of a conversation, and whether at the socket of `lo`.
    pub fn measured(&self, flow: &FlowRecord) -> Option<(bool, Measured)> {
        let number = flow.key.netns;
        let netns = self.namespaces.iter().find(|(n, _)| *n == number);
        self.store
            .measured(flow, netns.map_or(0, |(_, inode)| *inode))
    }

    /// An owner by the number in a flow record.
    pub fn owner_of_flow(&self, number: Option<std::num::NonZeroU32>) -> Option<&Owner> {
        self.owners.get(OwnerId::numbered(number?))
    }

    /// What records show of both sides of a conversation.
    pub fn parties(&self, flow: &FlowRecord) -> [ConversationOwner<'_>; 2] {
        flow.owners.map(|number| {
            self.owner_of_flow(number)
                .map(skua_socket::conversation_owner)
                .unwrap_or_default()
        })
    }

    /// The owner of a socket.
    pub fn owner(&self, record: &SocketRecord) -> Option<&Owner> {
        self.owners.get(record.owner?)
    }

    /// A socket with its names, ready to be written.
    pub fn line<'a>(&'a self, record: &'a SocketRecord) -> SocketLine<'a> {
        let owner = self.owner(record);
        SocketLine {
            record,
            owner: owner
                .map(skua_socket::conversation_owner)
                .unwrap_or_default(),
            executable: owner
                .and_then(|o| o.executable.as_deref())
                .unwrap_or_default(),
            service: self.store.service_of(record),
        }
    }
}

/// Puts a socket into the store, open or ended.
fn take(store: &mut SocketStore, owners: &mut Owners, update: &SocketUpdate) {
    let owner = owners.intern(&update.task);
    if update.end.is_some() {
        store.ended(update, owner, owners);
    } else {
        store.observe(update, owner);
    }
}

/// Ports that the host gives to those who call, of our own namespace.
fn ephemeral_ports() -> RangeInclusive<u16> {
    let text = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range");
    text.ok()
        .and_then(|text| {
            let mut ports = text.split_whitespace().map(str::parse);
            Some(ports.next()?.ok()?..=ports.next()?.ok()?)
        })
        .unwrap_or_else(|| SocketStoreConfig::default().ephemeral)
}
