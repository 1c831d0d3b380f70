//! Sockets that wait for others, by port and address.

use std::{
    collections::{BTreeMap, HashMap},
    net::{IpAddr, SocketAddr},
};

use skua_flow::Used;

use crate::{
    Protocol, SocketRecord,
    lives::{Found, Lived, Span, choose},
    owner::OwnerId,
    record::is_wildcard,
};

/// With more sockets at one address, those of a time are not searched one by one.
const MOST: usize = 64;

/// A socket that waits.
#[derive(Clone, Copy)]
struct Listener {
    id: u64,
    /// It spoke first: it waits for answers only.
    calls: bool,
    owner: Option<OwnerId>,
    life: Span,
}

impl Lived for Listener {
    fn id(&self) -> u64 {
        self.id
    }

    fn life(&self) -> Span {
        self.life
    }

    fn is_alike(&self, other: &Self) -> bool {
        self.owner == other.owner && self.calls == other.calls
    }
}

/// The sockets that wait at one address: what comes for it may be for each of them.
#[derive(Default)]
struct Group {
    /// In the order of their ids.
    all: Vec<Listener>,
    common: Common,
}

/// What all sockets of a group have in common.
#[derive(Clone, Copy, Default)]
struct Common {
    /// Their owner, or what their owners share.
    owner: Option<OwnerId>,
    /// They are all of that owner.
    one: bool,
    /// Whether they wait for answers only, where that is so of all or none.
    calls: Option<bool>,
}

/// The listener at a conversation's destination.
#[derive(Clone, Copy)]
pub(crate) struct Waiting {
    /// The owner, or what several that may be meant share.
    pub owner: Option<OwnerId>,
    /// Whether it spoke first and waits for answers only; none when not known of several.
    pub calls: Option<bool>,
    /// Several owners may be meant.
    pub is_ambiguous: bool,
}

impl Group {
    fn find(&self, span: Span) -> Option<Waiting> {
        let common = Waiting {
            owner: self.common.owner,
            calls: self.common.calls,
            is_ambiguous: !self.common.one,
        };
        if self.all.len() > MOST {
            return Some(common);
        }
        match choose(self.all.iter(), span) {
            Found::Nothing => None,
            Found::Several(_) => Some(Waiting {
                is_ambiguous: true,
                ..common
            }),
            Found::One(one) => Some(Waiting {
                owner: one.owner,
                calls: Some(one.calls),
                is_ambiguous: false,
            }),
        }
    }
}

/// Listeners at addresses of one port, by the inode number of the namespace; none: all addresses of that
/// namespace.
type Port = HashMap<Option<IpAddr>, BTreeMap<u32, Group>>;

/// See the module.
pub(crate) struct Listeners {
    by_port: HashMap<(Protocol, u16), Port>,
    len: usize,
    /// A bit for each port in `by_port`, TCP first: most ports are not there.
    ports: Box<[[u64; 1024]; 2]>,
}

impl Listeners {
    pub fn new() -> Self {
        Self {
            by_port: HashMap::new(),
            len: 0,
            ports: Box::new([[0; 1024]; 2]),
        }
    }

    pub fn memory(&self) -> usize {
        self.len * (size_of::<Listener>() + 96)
    }

    /// Adds a socket, or updates it; false: there are `limit` already.
    pub fn put(&mut self, record: &SocketRecord, life: Span, limit: usize) -> bool {
        let (port, protocol) = (record.local.port(), record.protocol);
        if port == 0 {
            return true;
        }
        let new = Listener {
            id: record.id,
            calls: !record.listens(),
            owner: record.owner,
            life,
        };
        let address = record.local.ip();
        let group = self
            .by_port
            .entry((protocol, port))
            .or_default()
            .entry((!is_wildcard(address)).then_some(address))
            .or_default()
            .entry(record.netns)
            .or_default();
        self.ports[protocol as usize][usize::from(port) / 64] |= 1 << (port % 64);
        match group.all.binary_search_by_key(&new.id, |one| one.id) {
            Ok(at) => group.all[at] = new,
            Err(_) if self.len >= limit => return false,
            Err(at) => {
                group.all.insert(at, new);
                self.len += 1;
            }
        }
        true
    }

    /// Forgets sockets that ended before a moment, ns since the Unix epoch.
    pub fn forget_before(&mut self, ns: u64) {
        let (ports, mut len) = (&mut self.ports, 0);
        self.by_port.retain(|(protocol, port), addresses| {
            addresses.retain(|_, groups| {
                groups.retain(|_, group| {
                    group.all.retain(|l| l.life.last_ns >= ns);
                    len += group.all.len();
                    !group.all.is_empty()
                });
                !groups.is_empty()
            });
            if addresses.is_empty() {
                ports[*protocol as usize][usize::from(*port) / 64] &= !(1 << (port % 64));
            }
            !addresses.is_empty()
        });
        self.len = len;
    }

    /// Whether there may be a listener at a port.
    #[inline]
    pub fn may_listen(&self, protocol: Protocol, port: u16) -> bool {
        self.ports[protocol as usize][usize::from(port) / 64] >> (port % 64) & 1 != 0
    }

    /// The listener at an address of a namespace in a time: a socket that is bound to it first. `is_local`
    /// says whether a namespace has an address.
    pub fn find(
        &self,
        protocol: Protocol,
        netns: u32,
        address: IpAddr,
        port: u16,
        span: Span,
        is_local: impl Fn(u32, IpAddr) -> bool,
    ) -> Option<Waiting> {
        let addresses = self.by_port.get(&(protocol, port))?;
        let address = address.to_canonical();
        let bound = addresses.get(&Some(address));
        let wildcard = addresses.get(&None);
        if let Some(found) = bound.and_then(|b| b.get(&netns)?.find(span)) {
            return Some(found);
        }
        if is_local(netns, address)
            && let Some(found) = wildcard.and_then(|w| w.get(&netns)?.find(span))
        {
            return Some(found);
        }
        if address.is_loopback() {
            return None;
        }
        // In another namespace that has this address, when there is only one.
        let bound = bound.into_iter().flatten();
        let wildcard = wildcard.into_iter().flatten();
        let elsewhere = bound.chain(wildcard.filter(|(netns, _)| is_local(**netns, address)));
        let mut found = elsewhere.filter_map(|(_, group)| group.find(span));
        let first = found.next()?;
        Some(match found.next() {
            None => first,
            Some(_) => Waiting {
                owner: None,
                calls: None,
                is_ambiguous: true,
            },
        })
    }

    /// Whether a socket waits for others at a local endpoint of a namespace. Here the wildcard needs no
    /// list of addresses: the endpoint is a socket's own.
    pub fn listens_at(&self, protocol: Protocol, netns: u32, local: SocketAddr) -> bool {
        if !self.may_listen(protocol, local.port()) {
            return false;
        }
        let addresses = self.by_port.get(&(protocol, local.port()));
        [None, Some(local.ip())].iter().any(|address| {
            let group = addresses.and_then(|a| a.get(address)?.get(&netns));
            group.is_some_and(|group| group.all.iter().any(|one| !one.calls))
        })
    }

    /// Learns what sockets have in common that wait at one address; `shared` says what two owners share.
    pub fn share(&mut self, shared: &mut dyn FnMut(OwnerId, OwnerId) -> Option<OwnerId>) {
        let addresses = self.by_port.values_mut().flat_map(HashMap::values_mut);
        for group in addresses.flat_map(BTreeMap::values_mut) {
            let Some((first, others)) = group.all.split_first() else {
                continue;
            };
            group.common = Common {
                owner: others
                    .iter()
                    .fold(first.owner, |common, one| shared(common?, one.owner?)),
                one: others.iter().all(|one| one.owner == first.owner),
                calls: others
                    .iter()
                    .all(|one| one.calls == first.calls)
                    .then_some(first.calls),
            };
        }
    }

    /// Notes every owner that is here.
    pub fn owners(&self, used: &mut Used) {
        let groups = self.by_port.values().flat_map(HashMap::values);
        for group in groups.flat_map(BTreeMap::values) {
            let owners = group.all.iter().map(|one| one.owner);
            for owner in owners.chain([group.common.owner]).flatten() {
                used.note(owner.number(), false);
            }
        }
    }
}
