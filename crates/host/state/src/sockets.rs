//! Sockets, their owners and what is made of them: the state beside the flows.

use skua_flow::{ConversationOwner, FlowRecord, Ownership};
use skua_probe::{ProbeError, SocketProbe, WatchedNamespace};
use skua_socket::{
    FoundSocket, HookStatus, Measured, Owner, OwnerId, Owners, OwnersConfig, PairUpdate, Pids,
    ServiceSide, SocketLine, SocketLosses, SocketRecord, SocketStore, SocketStoreConfig,
    SocketUpdate,
};
use std::{num::NonZeroU32, sync::Arc};

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
    /// Whether the kernel sums up ended connections, instead of reporting each.
    pub aggregate: bool,
    /// Inode numbers of namespaces, by the number in flow keys.
    namespaces: Vec<(u16, u32)>,
}

impl Sockets {
    /// Nothing known yet; `fallback` says why the probe is not the first choice.
    pub fn new(config: SocketStoreConfig, probe: &dyn SocketProbe, fallback: String) -> Self {
        let aggregate = config.aggregate;
        Self {
            store: SocketStore::new(config),
            owners: Owners::new(OwnersConfig {
                // sock_diag's are found in /proc.
                pids: match fallback.is_empty() {
                    true => Pids::of_kernel(),
                    false => Pids::of_proc(),
                },
                ..OwnersConfig::default()
            }),
            losses: SocketLosses::default(),
            hooks: probe.hooks(),
            probe: probe.describe(),
            fallback,
            map_memory: probe.map_memory(),
            aggregate,
            namespaces: Vec::new(),
        }
    }

    /// Puts a socket into the store, open or ended.
    fn apply(&mut self, update: &SocketUpdate) {
        let owners = &mut self.owners;
        let owner = owners.intern(&update.task);
        if update.end.is_some() {
            self.store.ended(update, owner, owners);
        } else {
            self.store.observe(update, owner);
        }
    }

    /// Ends a poll of open sockets.
    fn end_poll(&mut self, losses: SocketLosses) {
        self.store.end_poll(&self.owners);
        let owners = &mut self.owners;
        self.store
            .share_ports(&mut |one, other| owners.shared(one, other));
        self.losses = losses;
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
    pub fn set_namespaces(&mut self, namespaces: &[WatchedNamespace]) {
        self.namespaces = namespaces.iter().map(|n| (n.number, n.inode)).collect();
        let index = self.store.index_mut();
        let inodes: Vec<u32> = namespaces.iter().map(|n| n.inode).collect();
        index.retain_namespaces(&inodes);
        for namespace in namespaces {
            index.set_addresses(namespace.inode, namespace.addresses.iter().copied());
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

    /// Services that got another name after they were first met.
    pub fn renames(&self) -> &skua_socket::Renames {
        self.owners.renames()
    }

    /// The owners of both sides of a conversation, for who uses them when this is let go of.
    pub fn keep_owners(&self, owners: [Option<NonZeroU32>; 2]) -> [Option<Arc<Owner>>; 2] {
        owners.map(|number| self.owners.keep(OwnerId::numbered(number?)))
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

    /// A copy of a socket with its owner.
    pub fn copy(&self, record: &SocketRecord) -> SocketCopy {
        SocketCopy {
            record: *record,
            owner: record.owner.and_then(|id| self.owners.keep(id)),
            service: self.store.service_of(record),
        }
    }
}

/// A socket as it was at a moment.
pub struct SocketCopy {
    /// The record.
    pub record: SocketRecord,
    /// Its owner.
    pub owner: Option<Arc<Owner>>,
    service: Option<ServiceSide>,
}

impl SocketCopy {
    /// With its names, ready to be written.
    pub fn line(&self) -> SocketLine<'_> {
        let owner = self.owner.as_deref();
        SocketLine {
            record: &self.record,
            owner: owner
                .map(skua_socket::conversation_owner)
                .unwrap_or_default(),
            executable: owner
                .and_then(|o| o.executable.as_deref())
                .unwrap_or_default(),
            ns_pid: owner.map_or(0, |o| o.ns_pid),
            service: self.service,
        }
    }
}

/// Has the sockets read under the lock that covers them; not at all when they are not watched.
pub type Read<'a> = &'a dyn Fn(&mut dyn FnMut(&Sockets));

/// Sockets that are copied under one lock at most.
pub const PAGE: usize = 256;

/// Copies the sockets that were found, as they are now, a page at a time.
pub fn read_found(
    read: Read<'_>,
    found: &[FoundSocket],
    mut each: impl FnMut(FoundSocket, SocketCopy),
) {
    let mut page = Vec::with_capacity(PAGE);
    for some in found.chunks(PAGE) {
        read(&mut |sockets| {
            let there =
                |place: &FoundSocket| Some((*place, sockets.copy(sockets.store.at(*place)?)));
            page.extend(some.iter().filter_map(there));
        });
        page.drain(..)
            .for_each(|(place, socket)| each(place, socket));
    }
}

/// Copies all sockets, with those that have ended when they are wanted, too.
pub fn read_all(read: Read<'_>, ended: bool, each: impl FnMut(FoundSocket, SocketCopy)) {
    let mut places = Vec::new();
    read(&mut |sockets| places = sockets.store.places(ended));
    read_found(read, &places, each);
}

/// Has the sockets changed under the lock that covers them.
pub type Change<'a> = &'a mut dyn FnMut(&mut dyn FnMut(&mut Sockets));

/// What is applied under one lock at most.
const BATCH: usize = 256;

/// Has the kernel read without the lock, and applies what comes in batches.
fn in_batches<T>(
    change: Change<'_>,
    mut apply: impl FnMut(&mut Sockets, &T),
    read: impl FnOnce(&mut dyn FnMut(T)) -> Result<(), ProbeError>,
) -> Result<(), ProbeError> {
    let mut batch = Vec::new();
    let mut flush = |batch: &mut Vec<T>| {
        change(&mut |sockets| batch.iter().for_each(|event| apply(sockets, event)));
        batch.clear();
    };
    let done = read(&mut |event| {
        batch.push(event);
        if batch.len() == BATCH {
            flush(&mut batch);
        }
    });
    if !batch.is_empty() {
        flush(&mut batch);
    }
    done
}

/// Reads what has ended, which is quick.
pub fn apply_ended(probe: &mut dyn SocketProbe, change: Change<'_>) -> Result<(), ProbeError> {
    in_batches(
        change,
        |sockets, (id, path): &(u64, Vec<u8>)| sockets.owners.note_cgroup(*id, path),
        |sink| probe.cgroups(&mut |id, path| sink((id, path.to_vec()))),
    )?;
    in_batches(change, Sockets::apply, |sink| {
        probe.ended(&mut |update| sink(*update))
    })?;
    in_batches(
        change,
        |sockets, pair: &PairUpdate| {
            let owner = sockets.owners.intern(&pair.task);
            sockets.store.pair(pair, owner, &sockets.owners);
        },
        |sink| probe.pairs(&mut |pair| sink(*pair)),
    )
}

/// Takes what has ended, then polls what is open.
pub fn drain(
    probe: &mut dyn SocketProbe,
    now_ns: u64,
    change: Change<'_>,
) -> Result<(), ProbeError> {
    change(&mut |sockets| sockets.store.begin_drain(now_ns));
    apply_ended(probe, change)?;
    change(&mut |sockets| sockets.store.begin_poll());
    let polled = in_batches(change, Sockets::apply, |sink| {
        probe.open(&mut |update| sink(*update))
    });
    change(&mut |sockets| sockets.owners.refresh());
    // Without a poll nothing is known to be gone.
    polled?;
    // What ended during the poll, before its ports were used again by what the poll has seen.
    apply_ended(probe, change)?;
    let losses = probe.losses();
    change(&mut |sockets| sockets.end_poll(losses));
    Ok(())
}
