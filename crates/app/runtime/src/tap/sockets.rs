//! Which sockets a tap wants that chooses by process, container or service.

use skua_control::tap::{Holders, SocketFinder};
use skua_link::{LinkSocket, Namespaces};
use skua_socket::{Owner, SocketRecord, SocketState};
use skua_state::{Shared, State, sockets::Sockets};
use skua_tap::{TapSocket, TapTask, WantedSockets};
use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    net::{IpAddr, SocketAddr},
    sync::{Mutex, PoisonError},
};

/// The least of a container's identifier that is taken for it, as elsewhere.
const IDENTIFIER: usize = 6;

/// Looks for sockets in the state.
pub struct Finder {
    shared: Shared,
    /// Namespaces of sockets that the probe does not watch.
    spaces: Mutex<Option<Namespaces>>,
}

/// Namespaces whose addresses are not known.
type Unknown = BTreeSet<u64>;

impl Finder {
    pub fn new(shared: Shared) -> Self {
        Self {
            shared,
            spaces: Mutex::new(None),
        }
    }

    /// The addresses of namespaces.
    fn addresses(&self, unknown: &Unknown) -> BTreeMap<u64, Vec<IpAddr>> {
        if unknown.is_empty() {
            return BTreeMap::new();
        }
        let mut spaces = self.spaces.lock().unwrap_or_else(PoisonError::into_inner);
        addresses_in(&mut spaces, unknown).unwrap_or_else(|error| {
            tracing::warn!(%error, "addresses of namespaces cannot be read");
            BTreeMap::new()
        })
    }
}

fn addresses_in(
    spaces: &mut Option<Namespaces>,
    unknown: &Unknown,
) -> Result<BTreeMap<u64, Vec<IpAddr>>, skua_link::Error> {
    let held = match spaces {
        Some(held) => held,
        None => spaces.insert(Namespaces::selected()?),
    };
    held.select(unknown.clone())?;
    let mut found = BTreeMap::new();
    for space in held.list() {
        if unknown.contains(&space.id.inode) {
            // One that is just going has none.
            let addresses = LinkSocket::open_in(space).and_then(|mut links| links.addresses());
            found.insert(space.id.inode, addresses.unwrap_or_default());
        }
    }
    // Held no longer than that: it would keep them alive.
    held.select(BTreeSet::new())?;
    Ok(found)
}

impl SocketFinder for Finder {
    fn find(&self, wanted: &[Holders]) -> Result<Vec<WantedSockets>, String> {
        let mut found: Vec<Found> = {
            let state = self.shared.fresh();
            wanted
                .iter()
                .map(|holders| find(&state, holders))
                .collect::<Result<_, _>>()?
        };
        let unknown = found.iter().flat_map(|found| found.waiting.keys());
        let addresses = self.addresses(&unknown.copied().collect());
        for found in &mut found {
            for (netns, sockets) in std::mem::take(&mut found.waiting) {
                let there = addresses.get(&netns).map_or(&[][..], Vec::as_slice);
                for socket in sockets {
                    let there = there.iter().copied();
                    found.wanted.sockets.extend(at_each(netns, socket, there));
                }
            }
        }
        Ok(found.into_iter().map(|found| found.wanted).collect())
    }
}

/// What was found, and sockets bound to all addresses of namespaces whose addresses are not known.
#[derive(Default)]
struct Found {
    wanted: WantedSockets,
    waiting: BTreeMap<u64, Vec<TapSocket>>,
}

/// A socket that is bound to all addresses, at each of those of its family.
fn at_each(
    netns: u64,
    socket: TapSocket,
    addresses: impl Iterator<Item = IpAddr>,
) -> impl Iterator<Item = (u64, TapSocket)> {
    // One of IPv6 mostly takes IPv4, too.
    let fits = move |address: &IpAddr| address.is_ipv4() || socket.local.is_ipv6();
    addresses.filter(fits).map(move |address| {
        let local = SocketAddr::new(address, socket.local.port());
        (netns, TapSocket { local, ..socket })
    })
}

fn find(state: &State, holders: &Holders) -> Result<Found, String> {
    let Some(sockets) = &state.sockets else {
        return Err(
            "sockets are not watched here, so processes, containers and services are not known \
             (sockets.enabled, `skua doctor`)"
                .into(),
        );
    };
    let mut found = Found::default();
    // Drained at a moment of the wall clock.
    let offset = skua_kernel::unix_offset_ns();
    found.wanted.looked_ns = state.drained_ns.saturating_add_signed(-offset);
    found.wanted.tasks = named(holders);
    let mut connections = Vec::new();
    for record in sockets.store.open() {
        let Some(owner) = sockets.owner(record) else {
            continue;
        };
        if !fits(holders, owner) {
            continue;
        }
        found
            .wanted
            .tasks
            .extend(next(holders, owner, sockets, record));
        match record.remote.filter(|_| !waits(record)) {
            Some(_) => connections.push(record),
            None => wait(sockets, record, &mut found),
        }
    }
    // What came in at a socket that waits is found with that.
    let known: HashSet<TapSocket> = found.wanted.sockets.iter().map(|(_, s)| *s).collect();
    for record in connections {
        let socket = socket(record, record.remote);
        let at = TapSocket {
            remote: None,
            ..socket
        };
        if !known.contains(&at) && !socket.local.ip().is_unspecified() {
            found.wanted.sockets.push((record.netns.into(), socket));
        }
    }
    Ok(found)
}

fn socket(record: &SocketRecord, remote: Option<SocketAddr>) -> TapSocket {
    TapSocket {
        protocol: record.protocol.number(),
        local: record.local,
        remote,
    }
}

/// Whether it talks to whomever: it listens, or is a UDP socket without a fixed peer.
fn waits(record: &SocketRecord) -> bool {
    matches!(
        record.state,
        SocketState::Listen | SocketState::UdpUnconnected
    )
}

fn wait(sockets: &Sockets, record: &SocketRecord, found: &mut Found) {
    let socket = socket(record, None);
    if socket.local.port() == 0 {
        return;
    }
    let netns = u64::from(record.netns);
    if !socket.local.ip().is_unspecified() {
        found.wanted.sockets.push((netns, socket));
        return;
    }
    match sockets.store.index().addresses(record.netns) {
        Some(addresses) => {
            let all = at_each(netns, socket, addresses);
            found.wanted.sockets.extend(all);
        }
        None => found.waiting.entry(netns).or_default().push(socket),
    }
}

/// Whether an owner fits: of each list that is not empty, one name.
fn fits(holders: &Holders, owner: &Owner) -> bool {
    let one = |list: &[String], fits: &dyn Fn(&str) -> bool| {
        list.is_empty() || list.iter().any(|name| fits(name))
    };
    one(&holders.processes, &|name| is_process(name, owner))
        && one(&holders.containers, &|name| is_container(name, owner))
        && one(&holders.services, &|name| {
            owner.service() == name || owner.unit.as_deref() == Some(name)
        })
}

fn is_process(name: &str, owner: &Owner) -> bool {
    match name.parse::<u32>() {
        Ok(pid) => owner.pid == pid,
        Err(_) if name.starts_with('/') => owner.executable.as_deref() == Some(name),
        Err(_) => owner.process == name,
    }
}

fn is_container(name: &str, owner: &Owner) -> bool {
    owner.container.as_ref().is_some_and(|container| {
        container.name.as_deref() == Some(name)
            || container.id == name
            || (name.len() >= IDENTIFIER && container.id.starts_with(name))
    })
}

/// By what those are known who have no sockets yet.
fn named(holders: &Holders) -> BTreeSet<TapTask> {
    if !holders.containers.is_empty() || !holders.services.is_empty() {
        return BTreeSet::new();
    }
    let task = |name: &String| match name.parse() {
        Ok(pid) => Some(TapTask::Process(pid)),
        // Two programs of one name may lie in two folders.
        Err(_) if name.starts_with('/') => None,
        Err(_) => Some(TapTask::Name(name.clone())),
    };
    holders.processes.iter().filter_map(task).collect()
}

/// By what the next connections are known of an owner that fits.
fn next(
    holders: &Holders,
    owner: &Owner,
    sockets: &Sockets,
    record: &SocketRecord,
) -> impl Iterator<Item = TapTask> {
    let process = (owner.pid != 0).then_some(TapTask::Process(owner.pid));
    let asked = |unit: &str| holders.services.iter().any(|name| name == unit);
    let has_group = owner.container.is_some() || owner.unit.as_deref().is_some_and(asked);
    let by_group = holders.processes.is_empty() && has_group;
    let group = record.owner.filter(|_| by_group);
    let group = group.map(|id| sockets.owners.cgroup(id));
    let group = group.filter(|id| *id != 0).map(TapTask::Group);
    process.into_iter().chain(group)
}
