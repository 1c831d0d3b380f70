//! One network namespace: the sockets in it, and what they list.

use super::{
    interface::{Location, State},
    neighbours::Neighbours,
    routes::Routes,
};
use crate::{DiscoveryConfig, ident, writer};
use skua_link::{
    Address, Dump, Error, Ethtool, EthtoolEvent, Interface, Modes, Monitor, Namespace, Neighbour,
    PortVlan, Protocol, Requests, Route, RouteEvent, groups,
};
use skua_topology::Value;
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
    time::{Duration, Instant},
};

/// All that the kernel reports unasked; interfaces first, without which nothing can be followed.
const GROUPS: [u32; 8] = [
    groups::LINK,
    groups::NEIGH,
    groups::IPV4_IFADDR,
    groups::IPV4_ROUTE,
    groups::IPV6_IFADDR,
    groups::IPV6_ROUTE,
    groups::NSID,
    groups::NEXTHOP,
];

/// How often a list is requested when the kernel says that it changed underway.
const ATTEMPTS: u32 = 4;

/// The sockets in a namespace. They keep it alive.
#[derive(Debug)]
pub(super) struct Sockets {
    pub requests: Requests,
    pub monitor: Monitor,
    pub ethtool: Option<Ethtool>,
    pub ethtool_monitor: Option<Monitor>,
}

impl Sockets {
    /// Opens them in `namespace`. Where there is no ethtool over netlink, or it fails, it is left out.
    pub fn open(namespace: &Namespace, queue: usize) -> Result<Self, Error> {
        namespace.enter(|| {
            let ethtool = Ethtool::open().unwrap_or_else(|error| {
                tracing::debug!(%error, "no ethtool over netlink");
                None
            });
            let group = ethtool.as_ref().and_then(Ethtool::monitor_group);
            let follow = |group| Monitor::open(Protocol::Generic, &[group], queue).ok();
            Ok(Self {
                // First listen, then list: nothing falls in between.
                monitor: Monitor::open(Protocol::Route, &GROUPS, queue)?,
                requests: Requests::open(Protocol::Route)?,
                ethtool_monitor: group.and_then(follow),
                ethtool,
            })
        })?
    }
}

/// Names of features, and the metadata of sets of them: interfaces of one kind have the same.
#[derive(Debug, Default)]
pub(super) struct Features {
    names: Vec<Arc<str>>,
    known: HashMap<Vec<u8>, Value>,
}

impl Features {
    /// Sets that are remembered at most.
    const MOST: usize = 256;

    /// The metadata of a set of features; none when their names cannot be had.
    pub fn metadata(&mut self, ethtool: &mut Ethtool, bits: Vec<u8>) -> Option<Value> {
        if let Some(value) = self.known.get(&bits) {
            return Some(value.clone());
        }
        if self.names.is_empty() {
            let names = ethtool.feature_names().ok()?;
            self.names = names.into_iter().map(Arc::from).collect();
        }
        let active = |at: usize| {
            bits.get(at / 8)
                .is_some_and(|byte| byte & (1 << (at % 8)) != 0)
        };
        let named = self.names.iter().enumerate();
        let named = named.filter(|(_, name)| !name.is_empty());
        let entries = named.map(|(at, name)| (name.clone(), active(at).into()));
        let value = Value::from(skua_topology::Map::new(entries.collect()));
        if self.known.len() >= Self::MOST {
            self.known.clear();
        }
        self.known.insert(bits, value.clone());
        Some(value)
    }
}

/// All that is in a namespace, at one time.
pub(super) struct Listing {
    pub interfaces: Vec<Interface>,
    pub addresses: HashMap<u32, Vec<Address>>,
    pub neighbours: HashMap<u32, Neighbours>,
    pub forwarding: HashMap<u32, Neighbours>,
    pub routes: Routes,
    pub vlans: HashMap<u32, Vec<PortVlan>>,
    pub features: HashMap<u32, Vec<u8>>,
    pub modes: HashMap<u32, Modes>,
    /// Addresses, routes and neighbours beyond the limits.
    pub omitted: u64,
    /// False: things changed while they were listed.
    pub consistent: bool,
}

/// A network namespace that is followed.
#[derive(Debug)]
pub(super) struct Space {
    pub inode: u64,
    /// Whether it is our own.
    pub own: bool,
    /// Begin of what the identifiers of its interfaces are made of.
    pub identity: String,
    pub name: String,
    /// Identifier and TID of the node that owns its interfaces.
    pub node: Arc<str>,
    pub tid: Arc<str>,
    pub sockets: Sockets,
    pub links: BTreeMap<u32, State>,
    pub routes: Routes,
    /// Entries of forwarding tables of interfaces that are not known yet: a bridge announces its own
    /// address before it announces itself.
    pub early: Vec<Neighbour>,
    /// Numbers of namespaces by their identifiers here.
    pub known_ids: HashMap<i32, u16>,
    /// Identifiers here of namespaces that are not followed.
    pub unknown_ids: HashSet<i32>,
    /// Everything has to be listed again.
    pub resync: Retry,
    /// Routes may have been removed without notice.
    pub check_routes: Retry,
    /// Those that have, or of which the notice is still to be read.
    pub missing_routes: HashSet<Route>,
    /// Routes have to be listed again.
    pub list_routes: Retry,
    /// VLANs of ports have to be listed again.
    pub list_vlans: Retry,
    /// Forwarding tables have to be listed again.
    pub list_forwarding: Retry,
    /// The sockets failed and have to be opened again.
    pub broken: bool,
}

/// A repeated request, which takes at most a twentieth of the time.
#[derive(Debug, Default)]
pub(super) struct Retry {
    /// When it is due.
    pub due: Option<Instant>,
    not_before: Option<Instant>,
}

impl Retry {
    /// Makes it due as soon as allowed.
    pub fn request(&mut self, now: Instant) {
        let soonest = self.not_before.map_or(now, |earliest| earliest.max(now));
        self.due = Some(self.due.map_or(soonest, |due| due.min(soonest)));
    }

    /// Whether it is due; then it no longer is.
    pub fn take_due(&mut self, now: Instant) -> bool {
        let due = self.due.is_some_and(|due| due <= now);
        if due {
            self.due = None;
        }
        due
    }

    /// Notes how long it took.
    pub fn finished(&mut self, begun: Instant) {
        let now = Instant::now();
        let rest = now.saturating_duration_since(begun) * 19;
        self.not_before = Some(now + rest.min(Duration::from_secs(60)));
    }
}

impl Space {
    /// TID of a namespace's node; of one without a name that of its inode. Named ones have that of Skydive with its
    /// default settings, which finds them under `/var/run`.
    pub fn tid_of(host: &str, path: Option<&str>, inode: u64) -> Arc<str> {
        match path {
            Some(path) if path.starts_with("/run/netns/") => {
                ident::tid(host, &format!("/var{path}"), "netns")
            }
            Some(path) => ident::tid(host, path, "netns"),
            None => ident::tid(host, &format!("net:[{inode}]"), "netns"),
        }
    }

    /// Entries that are kept at most of interfaces that are not known yet.
    const MOST_EARLY: usize = 256;

    /// Keeps an entry until its interface is known. False: there are too many.
    pub fn keep_early(&mut self, neighbour: Neighbour) -> bool {
        let room = self.early.len() < Self::MOST_EARLY;
        if room {
            self.early.push(neighbour);
        }
        room
    }

    /// Gives an interface that is new what came before it.
    pub fn fill_new(&mut self, ifindex: u32) {
        let routes = (self.routes.tables(ifindex), self.routes.omitted(ifindex));
        let Some(state) = self.links.get_mut(&ifindex) else {
            return;
        };
        state.routes = routes;
        self.early.retain(|neighbour| {
            let other = neighbour.ifindex != ifindex;
            if !other {
                state.forwarding.set(neighbour.clone());
            }
            other
        });
    }

    /// Where an interface of it is.
    pub fn place<'a>(&'a self, link_namespace: Option<&'a str>) -> Location<'a> {
        Location {
            owner: &self.tid,
            inode: self.inode,
            link_namespace,
        }
    }

    /// A new interface, without the properties that need further requests.
    pub fn new_state(&self, interface: Interface, config: &DiscoveryConfig) -> State {
        State::new(
            interface,
            self.own,
            Neighbours::new(config.max_neighbours),
            Neighbours::new(config.max_forwarding),
            writer::now_ms(),
        )
    }

    /// Everything that is there now.
    pub fn list(&mut self, config: &DiscoveryConfig) -> Result<Listing, Error> {
        let mut listing = Listing {
            interfaces: Vec::new(),
            addresses: HashMap::new(),
            neighbours: HashMap::new(),
            forwarding: HashMap::new(),
            routes: Routes::new(config.max_routes),
            vlans: HashMap::new(),
            features: HashMap::new(),
            modes: HashMap::new(),
            omitted: 0,
            consistent: true,
        };
        let requests = &mut self.sockets.requests;
        for dump in [
            Dump::Links,
            Dump::Addresses,
            Dump::Routes,
            Dump::Neighbours,
            Dump::Forwarding,
            Dump::PortVlans,
        ] {
            let mut consistent = false;
            for _ in 0..ATTEMPTS {
                listing.clear(dump, config);
                consistent = dump.request(requests, |event| listing.add(event, config))?;
                if consistent {
                    break;
                }
            }
            listing.consistent &= consistent;
        }
        if let Some(ethtool) = &mut self.sockets.ethtool {
            let mut take = |event| match event {
                EthtoolEvent::Features(ifindex, bits) => {
                    listing.features.insert(ifindex, bits);
                }
                EthtoolEvent::Modes(ifindex, modes) => {
                    listing.modes.insert(ifindex, modes);
                }
                EthtoolEvent::Lost => {}
            };
            // What ethtool cannot read is left out.
            let result = ethtool
                .features(None, &mut take)
                .and_then(|()| ethtool.modes(None, &mut take));
            if let Err(error) = result {
                tracing::debug!(%error, "ethtool");
            }
        }
        Ok(listing)
    }

    /// Finds the routes that the kernel has removed.
    pub fn remove_missing_routes(&mut self) -> Result<(), Error> {
        let mut present = HashSet::new();
        let routes = &self.routes;
        Dump::Routes.request(&mut self.sockets.requests, |event| match event {
            RouteEvent::Route { route, .. } if routes.has(&route) => {
                present.insert(route);
            }
            _ => {}
        })?;
        self.missing_routes = self.routes.missing(&present);
        Ok(())
    }

    /// All present routes, and how many exceeded the limit.
    pub fn listed_routes(&mut self, most: usize) -> Result<(Routes, u64), Error> {
        let mut routes = Routes::new(most);
        let mut omitted = 0;
        Dump::Routes.request(&mut self.sockets.requests, |event| {
            if let RouteEvent::Route { route, .. } = event {
                omitted += u64::from(routes.add(route, false).1);
            }
        })?;
        Ok((routes, omitted))
    }

    /// The VLANs of all ports.
    pub fn listed_vlans(&mut self) -> Result<HashMap<u32, Vec<PortVlan>>, Error> {
        let mut vlans = HashMap::new();
        Dump::PortVlans.request(&mut self.sockets.requests, |event| {
            if let RouteEvent::PortVlans {
                ifindex,
                vlans: Some(of_port),
            } = event
            {
                vlans.insert(ifindex, of_port);
            }
        })?;
        Ok(vlans)
    }

    /// The forwarding tables of all interfaces, and how many entries exceeded the limit.
    pub fn listed_forwarding(
        &mut self,
        most: usize,
    ) -> Result<(HashMap<u32, Neighbours>, u64), Error> {
        let mut tables = HashMap::new();
        let mut omitted = 0;
        Dump::Forwarding.request(&mut self.sockets.requests, |event| {
            if let RouteEvent::Neighbour(entry) = event {
                let table = tables.entry(entry.ifindex);
                let table = table.or_insert_with(|| Neighbours::new(most));
                omitted += u64::from(table.set(entry).1);
            }
        })?;
        Ok((tables, omitted))
    }

    /// One interface as it is now; none when it was removed.
    pub fn read_interface(&mut self, ifindex: u32) -> Option<Interface> {
        let mut found = None;
        let result = Dump::Link(ifindex).request(&mut self.sockets.requests, |event| {
            if let RouteEvent::Link(interface) = event {
                found = Some(*interface);
            }
        });
        result.ok()?;
        found
    }

    /// Queries ethtool about one interface: speed and duplex, and on request the features.
    pub fn ask_ethtool(&mut self, ifindex: u32, features: Option<&mut Features>) {
        let Some(ethtool) = &mut self.sockets.ethtool else {
            return;
        };
        let Some(state) = self.links.get_mut(&ifindex) else {
            return;
        };
        let _ = ethtool.modes(Some(ifindex), |event| {
            if let EthtoolEvent::Modes(_, modes) = event {
                state.modes = modes;
            }
        });
        if let Some(features) = features {
            let mut found = None;
            let _ = ethtool.features(Some(ifindex), |event| {
                if let EthtoolEvent::Features(_, bits) = event {
                    found = Some(bits);
                }
            });
            state.features = found.and_then(|bits| features.metadata(ethtool, bits));
        }
    }
}

impl Listing {
    /// Forgets what a list that is begun again had given.
    fn clear(&mut self, dump: Dump, config: &DiscoveryConfig) {
        match dump {
            Dump::Links | Dump::Link(_) => self.interfaces.clear(),
            Dump::Addresses => self.addresses.clear(),
            Dump::Routes => self.routes = Routes::new(config.max_routes),
            Dump::Neighbours => self.neighbours.clear(),
            Dump::Forwarding => self.forwarding.clear(),
            Dump::PortVlans => self.vlans.clear(),
        }
    }

    fn add(&mut self, event: RouteEvent, config: &DiscoveryConfig) {
        let refused = match event {
            RouteEvent::Link(interface) => {
                self.interfaces.push(*interface);
                false
            }
            RouteEvent::PortVlans {
                ifindex,
                vlans: Some(vlans),
            } => {
                self.vlans.insert(ifindex, vlans);
                false
            }
            RouteEvent::Address(address) => {
                self.addresses
                    .entry(address.ifindex)
                    .or_default()
                    .push(address);
                false
            }
            RouteEvent::Route { route, .. } => self.routes.add(route, false).1,
            RouteEvent::Neighbour(neighbour) => {
                let (of, most) = if neighbour.forwarding {
                    (&mut self.forwarding, config.max_forwarding)
                } else {
                    (&mut self.neighbours, config.max_neighbours)
                };
                let of = of.entry(neighbour.ifindex);
                let of = of.or_insert_with(|| Neighbours::new(most));
                of.set(neighbour).1
            }
            _ => false,
        };
        self.omitted += u64::from(refused);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_long_is_done_seldom() {
        let mut again = Retry::default();
        let now = Instant::now();
        assert!(!again.take_due(now));
        again.request(now);
        assert!(again.take_due(now) && !again.take_due(now));
        // It took a second; so there are 19 s of rest.
        let Some(begun) = now.checked_sub(Duration::from_secs(1)) else {
            return;
        };
        again.finished(begun);
        again.request(now);
        assert!(!again.take_due(now + Duration::from_secs(18)));
        assert!(again.take_due(now + Duration::from_secs(22)));
    }
}
