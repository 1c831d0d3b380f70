//! The namespaces that are followed, and what the kernel tells of them.

use super::{
    interface::{self, State},
    neighbours::{Changed, Neighbours},
    relations::{LinkKey, OWNERSHIP, Waiting},
    routes::{Routes, Touched},
    space::{Again, Features, Listing, Sockets, Space},
};
use crate::{
    DiscoveryConfig, DiscoveryError, counters,
    counters::Shared,
    host,
    writer::{self, Writer},
};
use skua_link::{
    Address, EthtoolEvent, Interface, NAMED, Namespace, NamespaceId, Namespaces, Neighbour,
    RouteEvent,
};
use skua_topology::{Map, SharedGraph, Value};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::Arc,
    time::Instant,
};

/// Name of this provider in `@Origin`.
const NAME: &str = "netlink";
const IFF_UP: u32 = 1;
/// Datagrams that are taken from one namespace before the others have their turn.
pub(super) const READ_AT_ONCE: usize = 64;
/// Times that as many are taken before routes are looked for again.
const MOST_ROUNDS: u32 = 64;
/// Keys of the nodes of namespaces that are ours.
const NAMESPACE_KEYS: &[&str] = &[
    "Name",
    "Type",
    "TID",
    "Path",
    "NetNsInode",
    "Inode",
    "Device",
    "Refused",
    "RoutingTables",
    "RoutesOmitted",
];

/// Follows namespaces and writes down what is in them.
pub(super) struct Engine {
    pub config: DiscoveryConfig,
    pub counters: Arc<Shared>,
    pub writer: Writer,
    pub namespaces: Namespaces,
    pub spaces: BTreeMap<u16, Space>,
    pub waiting: Waiting,
    /// Namespaces that are opened or closed and that whoever waits has to know about.
    pub opened: Vec<u16>,
    /// Interfaces whose neighbours are to be written, by when.
    pub due: BTreeSet<(Instant, LinkKey)>,
    /// When counters are read next.
    pub tick: Instant,
    pub look_for_namespaces: Again,
    host: Arc<str>,
    host_tid: Arc<str>,
    boot: String,
    /// There are interfaces that found no room.
    left_out: bool,
    keys: Vec<&'static str>,
    features: Features,
    /// Nodes of namespaces that could not be entered.
    refused: HashMap<u16, Arc<str>>,
    /// Those of them that were named in a warning.
    warned: HashSet<NamespaceId>,
}

impl Engine {
    /// Finds all there is.
    pub fn new(
        config: DiscoveryConfig,
        graph: SharedGraph,
        shared: Arc<Shared>,
    ) -> Result<Self, DiscoveryError> {
        let namespaces = Namespaces::discover(config.all_netns)?;
        let most = config.max_nodes;
        let mut writer = Writer::new(graph, &config.host, NAME, most, shared.clone());
        let own = namespaces.list().first().map_or(0, |own| own.id.inode);
        let metadata = host::node(&config.host, own, Vec::new());
        let host = writer.add_node("host", host::KEYS, metadata);
        let mut engine = Self {
            host: host.unwrap_or_default(),
            host_tid: host::tid(&config.host),
            boot: host::boot(),
            left_out: false,
            keys: interface::keys(),
            tick: Instant::now() + config.metric_interval,
            config,
            counters: shared,
            writer,
            namespaces,
            spaces: BTreeMap::new(),
            waiting: Waiting::default(),
            opened: Vec::new(),
            due: BTreeSet::new(),
            look_for_namespaces: Again::default(),
            features: Features::default(),
            refused: HashMap::new(),
            warned: HashSet::new(),
        };
        let numbers: Vec<u16> = engine.namespaces.list().iter().map(|n| n.number).collect();
        for number in numbers {
            let added = engine.add_space(number);
            if number == 0 {
                added?;
            }
        }
        engine.relate_across();
        engine.writer.settle();
        engine.count_namespaces();
        Ok(engine)
    }

    /// Identifier of the host's node.
    pub fn host(&self) -> &Arc<str> {
        &self.host
    }

    pub fn state(&self, key: LinkKey) -> Option<&State> {
        self.spaces.get(&key.0)?.links.get(&key.1)
    }

    pub fn state_mut(&mut self, key: LinkKey) -> Option<&mut State> {
        self.spaces.get_mut(&key.0)?.links.get_mut(&key.1)
    }

    /// Begins to follow a namespace. One that cannot be entered has a node all the same.
    fn add_space(&mut self, number: u16) -> Result<(), skua_link::Error> {
        let Some(namespace) = self.namespaces.get(number) else {
            return Ok(());
        };
        if number != 0 && self.writer.is_full() && !self.refused.contains_key(&number) {
            counters::add(&self.counters.omitted_nodes, 1);
            return Ok(());
        }
        let opened = Sockets::open(namespace, self.config.queue_bytes);
        let NamespaceId { device, inode } = namespace.id;
        let identity = format!("{}/{device}:{inode}", self.boot);
        let (name, path) = name_and_path(namespace);
        let tid = match number {
            0 => self.host_tid.clone(),
            _ => Space::tid_of(&self.host_tid, path.as_deref(), inode),
        };
        let node = match number {
            0 => self.host.clone(),
            _ => match self.refused.remove(&number) {
                Some(node) => node,
                None => {
                    let metadata = namespace_metadata(namespace, &tid, Vec::new());
                    let node = self.writer.add_node(&identity, NAMESPACE_KEYS, metadata);
                    // Without room for its node there is none for its interfaces.
                    let Some(node) = node else {
                        return Ok(());
                    };
                    self.writer.add_edge(&self.host, &node, OWNERSHIP, None);
                    node
                }
            },
        };
        let sockets = match opened {
            Ok(sockets) => sockets,
            Err(error) => {
                self.refuse(number, node, &error);
                return Err(error);
            }
        };
        self.spaces.insert(
            number,
            Space {
                inode,
                own: number == 0,
                identity,
                name,
                node,
                tid,
                sockets,
                links: BTreeMap::new(),
                routes: Routes::new(self.config.max_routes),
                early: Vec::new(),
                known_ids: HashMap::new(),
                unknown_ids: HashSet::new(),
                resync: Again::default(),
                check_routes: Again::default(),
                missing_routes: HashSet::new(),
                list_routes: Again::default(),
                list_vlans: Again::default(),
                broken: false,
            },
        );
        self.opened.push(number);
        self.write_space(number);
        self.list(number);
        Ok(())
    }

    fn refuse(&mut self, number: u16, node: Arc<str>, error: &skua_link::Error) {
        if let Some(namespace) = self.namespaces.get(number) {
            if self.warned.insert(namespace.id) {
                let name = namespace.name.as_str();
                tracing::warn!(name, %error, "cannot look into this network namespace");
            }
            if number != 0 {
                let (_, path) = name_and_path(namespace);
                let tid = Space::tid_of(&self.host_tid, path.as_deref(), namespace.id.inode);
                let refused = vec![("Refused".into(), error.to_string().as_str().into())];
                let metadata = namespace_metadata(namespace, &tid, refused);
                self.writer.set_node(&node, NAMESPACE_KEYS, metadata);
                self.refused.insert(number, node);
            }
        }
        self.count_namespaces();
    }

    /// Ends to follow a namespace that is gone.
    fn remove_space(&mut self, number: u16) {
        if let Some(node) = self.refused.remove(&number) {
            self.writer.remove_node(&node);
        }
        let Some(space) = self.spaces.get(&number) else {
            return;
        };
        let links: Vec<u32> = space.links.keys().copied().collect();
        for ifindex in links {
            self.remove_link((number, ifindex));
        }
        if let Some(space) = self.spaces.remove(&number) {
            self.writer.remove_node(&space.node);
        }
        for space in self.spaces.values_mut() {
            space.known_ids.retain(|_, known| *known != number);
        }
    }

    /// A namespace has another name: so its interfaces have other TIDs.
    fn rename_space(&mut self, number: u16) {
        let (Some(namespace), Some(space)) =
            (self.namespaces.get(number), self.spaces.get_mut(&number))
        else {
            return;
        };
        let (name, path) = name_and_path(namespace);
        space.tid = Space::tid_of(&self.host_tid, path.as_deref(), space.inode);
        space.name = name;
        let links: Vec<u32> = space.links.keys().copied().collect();
        self.write_space(number);
        for ifindex in links {
            self.write((number, ifindex));
        }
    }

    /// Looks which namespaces there are.
    pub fn refresh(&mut self) {
        let begun = Instant::now();
        let changes = match self.namespaces.refresh() {
            Ok(changes) => changes,
            Err(error) => return self.failed("cannot look for network namespaces", &error),
        };
        for number in changes.removed {
            self.remove_space(number);
        }
        for number in changes.renamed {
            self.rename_space(number);
        }
        let known = |number: &u16| self.spaces.contains_key(number);
        let all = self.namespaces.list().iter().map(|n| n.number);
        let new: Vec<u16> = all.filter(|number| !known(number)).collect();
        for number in &new {
            // What fails is counted, and tried again.
            let _ = self.add_space(*number);
        }
        if !new.is_empty() {
            for space in self.spaces.values_mut() {
                space.unknown_ids.clear();
            }
            self.relate_across();
        }
        let alive: HashSet<NamespaceId> = self.namespaces.list().iter().map(|n| n.id).collect();
        self.warned.retain(|id| alive.contains(id));
        self.count_namespaces();
        self.look_for_namespaces.took(begun);
    }

    fn count_namespaces(&self) {
        counters::set(&self.counters.namespaces, self.spaces.len());
        counters::set(&self.counters.namespaces_refused, self.refused.len());
        let omitted = self.namespaces.omitted();
        counters::set(&self.counters.namespaces_omitted, omitted);
    }

    fn failed(&self, what: &'static str, error: &skua_link::Error) {
        counters::add(&self.counters.errors, 1);
        eprintln!("XXX {what} {error}");
        tracing::debug!(%error, "{what}");
    }

    /// Takes what a namespace's monitor has to tell. True: there may be more.
    pub fn read(&mut self, number: u16, most: usize) -> bool {
        let Some(space) = self.spaces.get_mut(&number) else {
            return false;
        };
        let mut events = Vec::new();
        let mut told = 0;
        let read = space.sockets.monitor.read(most, |notice| {
            told += 1;
            events.extend(RouteEvent::decode(notice));
        });
        counters::add(&self.counters.events, told);
        for event in events {
            self.apply(number, event);
        }
        match read {
            Ok(all) => !all,
            Err(error) => {
                self.failed("cannot follow a network namespace", &error);
                if let Some(space) = self.spaces.get_mut(&number) {
                    space.broken = true;
                    space.resync.wish(Instant::now());
                }
                false
            }
        }
    }

    /// Takes what ethtool has to tell of a namespace.
    pub fn read_ethtool(&mut self, number: u16, most: usize) {
        let Some(space) = self.spaces.get_mut(&number) else {
            return;
        };
        let Some(monitor) = &mut space.sockets.ethtool_monitor else {
            return;
        };
        let mut events = Vec::new();
        let mut told = 0;
        let read = monitor.read(most, |notice| {
            told += 1;
            events.extend(EthtoolEvent::decode(notice));
        });
        if read.is_err() {
            // Features are then as they were when the link changed last.
            space.sockets.ethtool_monitor = None;
        }
        counters::add(&self.counters.events, told);
        for event in events {
            let Some(space) = self.spaces.get_mut(&number) else {
                return;
            };
            let ifindex = match event {
                EthtoolEvent::Lost => {
                    counters::add(&self.counters.lost, 1);
                    space.resync.wish(Instant::now());
                    continue;
                }
                EthtoolEvent::Features(ifindex, bits) => {
                    let ethtool = space.sockets.ethtool.as_mut();
                    let features = ethtool.and_then(|e| self.features.metadata(e, bits));
                    if let Some(state) = space.links.get_mut(&ifindex) {
                        state.features = features;
                    }
                    ifindex
                }
                EthtoolEvent::Modes(ifindex, modes) => {
                    if let Some(state) = space.links.get_mut(&ifindex) {
                        state.modes = modes;
                    }
                    ifindex
                }
            };
            self.write((number, ifindex));
        }
    }

    /// Applies one notification.
    fn apply(&mut self, number: u16, event: RouteEvent) {
        let now = Instant::now();
        let Some(space) = self.spaces.get_mut(&number) else {
            return;
        };
        match event {
            RouteEvent::Link(interface) => self.seen(number, *interface),
            RouteEvent::LinkGone { ifindex, moved } => self.gone((number, ifindex), moved),
            RouteEvent::PortVlans { ifindex, vlans } => {
                let Some(state) = space.links.get_mut(&ifindex) else {
                    return;
                };
                match vlans {
                    Some(vlans) => state.vlans = vlans,
                    // Either it is not about VLANs, or the last one is gone.
                    None if state.vlans.is_empty() => return,
                    None => return space.list_vlans.wish(now),
                }
                self.write((number, ifindex));
            }
            RouteEvent::Address(address) => {
                let most = self.config.max_addresses;
                if let Some(state) = space.links.get_mut(&address.ifindex) {
                    let refused = add_address(state, address, most);
                    counters::add(&self.counters.omitted_entries, u64::from(refused));
                    self.write((number, address.ifindex));
                }
            }
            RouteEvent::AddressGone(address) => {
                // Routes that send from it may have gone with it.
                space.check_routes.wish(now);
                if let Some(state) = space.links.get_mut(&address.ifindex) {
                    let before = state.addresses.len();
                    state.addresses.retain(|known| *known != address);
                    if state.addresses.len() == before {
                        state.addresses_omitted = state.addresses_omitted.saturating_sub(1);
                    }
                    self.write((number, address.ifindex));
                }
            }
            RouteEvent::Route { route, replaces } => {
                space.missing_routes.remove(&route);
                let (touched, refused) = space.routes.add(route, replaces);
                counters::add(&self.counters.omitted_entries, u64::from(refused));
                self.write_routes(number, &touched);
            }
            RouteEvent::RouteGone(route) => {
                let (touched, unclear) = space.routes.remove(&route);
                if unclear || space.routes.wants_listing() {
                    space.list_routes.wish(now);
                }
                self.write_routes(number, &touched);
            }
            RouteEvent::Neighbour(neighbour) => self.neighbour(number, neighbour, true),
            RouteEvent::NeighbourGone(neighbour) => self.neighbour(number, neighbour, false),
            RouteEvent::NamespaceIds => {
                space.known_ids.clear();
                space.unknown_ids.clear();
                self.relate_across();
            }
            RouteEvent::NextHops => {
                space.list_routes.wish(now);
            }
            RouteEvent::Lost => {
                counters::add(&self.counters.lost, 1);
                space.resync.wish(now);
            }
        }
    }

    fn neighbour(&mut self, number: u16, neighbour: Neighbour, here: bool) {
        let now = Instant::now();
        let key = (number, neighbour.ifindex);
        let Some(space) = self.spaces.get_mut(&number) else {
            return;
        };
        let Some(state) = space.links.get_mut(&key.1) else {
            if !here {
                space.early.retain(|early| early.ifindex != key.1);
            } else if neighbour.forwarding && !space.keep_early(neighbour) {
                // Those that were kept are of interfaces that never came.
                space.early.clear();
                space.resync.wish(now);
            }
            return;
        };
        let table = if neighbour.forwarding {
            &mut state.forwarding
        } else {
            &mut state.neighbours
        };
        let (changed, refused) = match here {
            true => table.set(neighbour),
            false => (table.remove(&neighbour), false),
        };
        if table.wants_listing() {
            space.resync.wish(now);
        }
        counters::add(&self.counters.omitted_entries, u64::from(refused));
        let due = match changed {
            Changed::No => return,
            Changed::State => self.tick,
            Changed::Entry => {
                let interval = self.config.neighbour_interval;
                state
                    .written
                    .map_or(now, |written| written + interval)
                    .max(now)
            }
        };
        let sooner = state.due.is_none_or(|known| due < known);
        if !sooner {
            return;
        }
        if let Some(known) = state.due.replace(due) {
            self.due.remove(&(known, key));
        }
        if due <= now {
            self.write_neighbours(key, now);
        } else {
            self.due.insert((due, key));
        }
    }

    /// Writes an interface with its neighbours.
    fn write_neighbours(&mut self, key: LinkKey, now: Instant) {
        if let Some(state) = self.state_mut(key) {
            state.written = Some(now);
        }
        self.write(key);
    }

    /// An interface is there, or has changed.
    fn seen(&mut self, number: u16, interface: Interface) {
        let key = (number, interface.link.ifindex);
        let Some(space) = self.spaces.get_mut(&number) else {
            return;
        };
        let Some(state) = space.links.get_mut(&key.1) else {
            let state = space.new_state(interface, &self.config);
            space.links.insert(key.1, state);
            space.fill_new(key.1);
            space.ask_ethtool(key.1, Some(&mut self.features));
            if self.add_node(key) {
                self.connect(key);
            }
            return;
        };
        let was = &state.interface;
        if was.flags & IFF_UP != 0 && interface.flags & IFF_UP == 0 {
            // The kernel does not tell of the IPv4 routes that it drops now.
            space.check_routes.wish(Instant::now());
        }
        let left = was
            .link
            .master
            .filter(|_| was.link.master != interface.link.master);
        if let Some(bridge) = left {
            // Its own address may have become the bridge's, of which the kernel does not tell.
            state.forwarding.leave(bridge);
        }
        let was = &state.interface;
        let modes = (was.flags, was.operstate) != (interface.flags, interface.operstate);
        let deaf = space.sockets.ethtool_monitor.is_none();
        state.interface = interface;
        if modes || deaf {
            let features = deaf.then_some(&mut self.features);
            space.ask_ethtool(key.1, features);
        }
        self.relate(key);
        self.write(key);
    }

    /// Makes the node of an interface that is known. False: there is no room.
    fn add_node(&mut self, key: LinkKey) -> bool {
        let Some(space) = self.spaces.get_mut(&key.0) else {
            return false;
        };
        let identity = format!("{}/{}", space.identity, key.1);
        let Some(metadata) = link_metadata(space, key.1, None) else {
            return false;
        };
        let owner = space.node.clone();
        let Some(id) = self.writer.add_node(&identity, &self.keys, metadata) else {
            // It is looked at again when counters are read.
            self.left_out = true;
            space.links.remove(&key.1);
            return false;
        };
        self.writer.add_edge(&owner, &id, OWNERSHIP, None);
        if let Some(state) = self.state_mut(key) {
            state.id = id;
        }
        true
    }

    /// Makes the edges of an interface that is new, and those of others that waited for it.
    fn connect(&mut self, key: LinkKey) {
        self.relate(key);
        let elsewhere = |state: &State| state.interface.link.link_netnsid.is_some();
        if self.state(key).is_some_and(elsewhere) {
            // The name of the other namespace is known now.
            self.write(key);
        }
        self.arrived(key);
    }

    /// An interface is gone from its namespace.
    fn gone(&mut self, key: LinkKey, moved: bool) {
        let Some(state) = self.state(key) else {
            return;
        };
        // The kernel does not tell the other end of a pair when this one has moved.
        let other = state.edges.link_space.zip(state.interface.link.link);
        let other = other.filter(|_| moved && state.is_pair());
        self.remove_link(key);
        if let Some(space) = self.spaces.get_mut(&key.0)
            && !space.routes.interfaces().is_empty()
        {
            space.check_routes.wish(Instant::now());
        }
        if let Some(other) = other {
            self.look_for_other_end(other);
        }
    }

    fn remove_link(&mut self, key: LinkKey) {
        self.stop_waiting(key);
        let Some(state) = self
            .spaces
            .get_mut(&key.0)
            .and_then(|s| s.links.remove(&key.1))
        else {
            return;
        };
        if let Some(due) = state.due {
            self.due.remove(&(due, key));
        }
        self.writer.remove_node(&state.id);
    }

    /// Writes what is known of an interface.
    pub fn write(&mut self, key: LinkKey) {
        let other = self.state(key).and_then(|state| state.edges.link_space);
        let other = other.and_then(|number| self.spaces.get(&number));
        let name = other.map(|space| space.name.clone());
        let Some(space) = self.spaces.get_mut(&key.0) else {
            return;
        };
        let Some(metadata) = link_metadata(space, key.1, name.as_deref()) else {
            return;
        };
        let Some(state) = space.links.get_mut(&key.1) else {
            return;
        };
        self.writer.set_node(&state.id, &self.keys, metadata);
        if let Some(due) = state.due.take() {
            self.due.remove(&(due, key));
        }
    }

    /// Writes the routes of these interfaces.
    fn write_routes(&mut self, number: u16, touched: &Touched) {
        for ifindex in touched {
            let Some(space) = self.spaces.get_mut(&number) else {
                return;
            };
            if *ifindex == 0 {
                self.write_space(number);
            } else if let Some(state) = space.links.get_mut(ifindex) {
                state.routes = (
                    space.routes.tables(*ifindex),
                    space.routes.omitted(*ifindex),
                );
                self.write((number, *ifindex));
            }
        }
    }

    /// Writes the node that owns the interfaces of a namespace.
    fn write_space(&mut self, number: u16) {
        let (Some(namespace), Some(space)) =
            (self.namespaces.get(number), self.spaces.get(&number))
        else {
            return;
        };
        let mut more: Vec<(Arc<str>, Value)> = Vec::new();
        more.extend(space.routes.tables(0).map(|t| ("RoutingTables".into(), t)));
        let omitted = space.routes.omitted(0);
        if omitted > 0 {
            let omitted = i64::try_from(omitted).unwrap_or(i64::MAX);
            more.push(("RoutesOmitted".into(), Value::Int(omitted)));
        }
        if space.own {
            let metadata = host::node(&self.config.host, space.inode, more);
            self.writer.set_node(&space.node, host::KEYS, metadata);
        } else {
            let metadata = namespace_metadata(namespace, &space.tid, more);
            self.writer.set_node(&space.node, NAMESPACE_KEYS, metadata);
        }
    }

    /// Lists a namespace, and makes the graph what it is.
    fn list(&mut self, number: u16) {
        let Some(space) = self.spaces.get_mut(&number) else {
            return;
        };
        let begun = Instant::now();
        let listed = space.list(&self.config);
        space.resync.took(begun);
        match listed {
            Ok(listing) => {
                if !listing.consistent {
                    space.resync.wish(Instant::now());
                }
                self.take(number, listing);
            }
            Err(error) => {
                space
                    .resync
                    .wish(Instant::now() + self.config.neighbour_interval);
                self.failed("cannot list a network namespace", &error);
            }
        }
    }

    fn take(&mut self, number: u16, mut listing: Listing) {
        counters::add(&self.counters.omitted_entries, listing.omitted);
        let Some(space) = self.spaces.get_mut(&number) else {
            return;
        };
        space.routes = std::mem::replace(&mut listing.routes, Routes::new(0));
        let here: HashSet<u32> = listing.interfaces.iter().map(|i| i.link.ifindex).collect();
        let known = space.links.keys().copied();
        let gone: Vec<u32> = known.filter(|ifindex| !here.contains(ifindex)).collect();
        for ifindex in gone {
            self.gone((number, ifindex), true);
        }
        let mut new = Vec::new();
        let mut old = Vec::new();
        for interface in std::mem::take(&mut listing.interfaces) {
            let Some(space) = self.spaces.get_mut(&number) else {
                return;
            };
            let ifindex = interface.link.ifindex;
            match space.links.get_mut(&ifindex) {
                Some(state) => {
                    state.interface = interface;
                    old.push((number, ifindex));
                }
                None => {
                    let state = space.new_state(interface, &self.config);
                    space.links.insert(ifindex, state);
                    new.push((number, ifindex));
                }
            }
            let refused = fill(
                space,
                ifindex,
                &mut listing,
                &mut self.features,
                &self.config,
            );
            counters::add(&self.counters.omitted_entries, refused);
        }
        new.retain(|key| self.add_node(*key));
        for key in new {
            self.connect(key);
        }
        for key in old {
            self.relate(key);
            self.write(key);
        }
        self.write_space(number);
    }

    /// What is due at `now`.
    pub fn work(&mut self, now: Instant) {
        while let Some((due, key)) = self.due.first().copied().filter(|(due, _)| *due <= now) {
            self.due.remove(&(due, key));
            self.write_neighbours(key, now);
        }
        if self.look_for_namespaces.take(now) {
            self.refresh();
        }
        let numbers: Vec<u16> = self.spaces.keys().copied().collect();
        for number in numbers {
            self.repair(number, now);
        }
        if now >= self.tick {
            self.tick = now + self.config.metric_interval;
            self.count();
            self.refresh();
        }
    }

    /// Asks a namespace again for what the kernel did not tell or what was lost.
    fn repair(&mut self, number: u16, now: Instant) {
        let Some(space) = self.spaces.get_mut(&number) else {
            return;
        };
        if space.resync.take(now) {
            counters::add(&self.counters.resyncs, 1);
            if space.broken && !self.reopen(number) {
                return;
            }
            return self.list(number);
        }
        if space.list_routes.take(now) {
            match space.listed_routes(self.config.max_routes) {
                Ok((routes, omitted)) => {
                    let before = space.routes.interfaces();
                    space.routes = routes;
                    space.list_routes.took(now);
                    let touched: Touched = &before | &space.routes.interfaces();
                    counters::add(&self.counters.omitted_entries, omitted);
                    self.write_routes(number, &touched);
                }
                Err(error) => self.failed("cannot list routes", &error),
            }
        }
        let Some(space) = self.spaces.get_mut(&number) else {
            return;
        };
        if space.check_routes.take(now) {
            let looked = space.look_for_missing_routes();
            space.check_routes.took(now);
            match looked {
                Ok(()) => self.drop_missing_routes(number),
                Err(error) => self.failed("cannot list routes", &error),
            }
        }
        let Some(space) = self.spaces.get_mut(&number) else {
            return;
        };
        if space.list_vlans.take(now) {
            match space.listed_vlans() {
                Ok(mut vlans) => {
                    space.list_vlans.took(now);
                    let mut changed = Vec::new();
                    for (ifindex, state) in &mut space.links {
                        let new = vlans.remove(ifindex).unwrap_or_default();
                        if state.vlans != new {
                            state.vlans = new;
                            changed.push((number, *ifindex));
                        }
                    }
                    for key in changed {
                        self.write(key);
                    }
                }
                Err(error) => self.failed("cannot list VLANs", &error),
            }
        }
    }

    /// Takes away routes that have gone without notice. Of others the notice may be waiting: these are to go
    /// when their turn comes, so that the history has what happened in its order.
    fn drop_missing_routes(&mut self, number: u16) {
        let missing = |engine: &Self| {
            let space = engine.spaces.get(&number);
            space.is_some_and(|space| !space.missing_routes.is_empty())
        };
        let mut rounds = 0;
        while missing(self) && self.read(number, READ_AT_ONCE) {
            rounds += 1;
            if rounds == MOST_ROUNDS {
                break;
            }
        }
        let Some(space) = self.spaces.get_mut(&number) else {
            return;
        };
        let gone = std::mem::take(&mut space.missing_routes);
        if rounds == MOST_ROUNDS {
            return space.check_routes.wish(Instant::now());
        }
        let touched = space.routes.drop_all(&gone);
        if space.routes.wants_listing() {
            space.list_routes.wish(Instant::now());
        }
        self.write_routes(number, &touched);
    }

    /// Opens the sockets of a namespace again.
    fn reopen(&mut self, number: u16) -> bool {
        let (Some(namespace), Some(space)) =
            (self.namespaces.get(number), self.spaces.get_mut(&number))
        else {
            return false;
        };
        match Sockets::open(namespace, self.config.queue_bytes) {
            Ok(sockets) => {
                space.sockets = sockets;
                space.broken = false;
                self.opened.push(number);
                true
            }
            Err(error) => {
                space
                    .resync
                    .wish(Instant::now() + self.config.neighbour_interval);
                self.failed("cannot follow a network namespace", &error);
                false
            }
        }
    }

    /// When there is something to do next.
    pub fn next(&self) -> Instant {
        let again = self.spaces.values().flat_map(|space| {
            [
                space.resync.due,
                space.check_routes.due,
                space.list_routes.due,
                space.list_vlans.due,
            ]
        });
        let due = self.due.first().map(|(due, _)| *due);
        again
            .chain([due, self.look_for_namespaces.due])
            .flatten()
            .fold(self.tick, Instant::min)
    }

    /// Reads the counters of all interfaces, and what else the kernel does not tell of; takes those in
    /// that found no room before.
    fn count(&mut self) {
        let now = writer::now_ms();
        let numbers: Vec<u16> = self.spaces.keys().copied().collect();
        for number in numbers {
            let room = !self.writer.is_full();
            let Some(space) = self.spaces.get_mut(&number) else {
                continue;
            };
            let links = &mut space.links;
            let (mut changed, mut unknown) = (Vec::new(), Vec::new());
            let asked = skua_link::Dump::Links.ask(&mut space.sockets.requests, |event| {
                let RouteEvent::Link(interface) = event else {
                    return;
                };
                let ifindex = interface.link.ifindex;
                let Some(state) = links.get_mut(&ifindex) else {
                    return unknown.push(*interface);
                };
                let counted = state.count(interface.counters, now);
                if state.take_untold(*interface) || counted {
                    changed.push((number, ifindex));
                }
            });
            for key in changed {
                self.write(key);
            }
            if let Err(error) = asked {
                self.failed("cannot read counters", &error);
            } else if room && self.left_out {
                for interface in unknown {
                    self.seen(number, interface);
                }
            }
        }
    }
}

fn name_and_path(namespace: &Namespace) -> (String, Option<String>) {
    match namespace.name.strip_prefix("pid:") {
        Some(_) => (namespace.name.clone(), None),
        None => (
            namespace.name.clone(),
            Some(format!("{NAMED}/{}", namespace.name)),
        ),
    }
}

fn namespace_metadata(namespace: &Namespace, tid: &Arc<str>, more: Vec<(Arc<str>, Value)>) -> Map {
    let path = match namespace.name.strip_prefix("pid:") {
        Some(pid) => format!("/proc/{pid}/ns/net"),
        None => format!("{NAMED}/{}", namespace.name),
    };
    let mut entries = more;
    let inode = Value::Int(namespace.id.inode as i64);
    entries.extend([
        ("Name".into(), namespace.name.as_str().into()),
        ("Type".into(), "netns".into()),
        ("TID".into(), Value::Str(tid.clone())),
        ("Path".into(), path.as_str().into()),
        ("NetNsInode".into(), inode.clone()),
        ("Inode".into(), inode),
        ("Device".into(), Value::Int(namespace.id.device as i64)),
    ]);
    Map::new(entries)
}

fn link_metadata(space: &mut Space, ifindex: u32, link_namespace: Option<&str>) -> Option<Map> {
    let mut state = space.links.remove(&ifindex)?;
    let metadata = state.metadata(&space.place(link_namespace));
    space.links.insert(ifindex, state);
    Some(metadata)
}

/// True: there was no room for it.
fn add_address(state: &mut State, address: Address, most: usize) -> bool {
    if state.addresses.contains(&address) {
        return false;
    }
    if state.addresses.len() >= most {
        state.addresses_omitted += 1;
        return true;
    }
    state.addresses.push(address);
    false
}

/// Gives an interface what a listing says of it; for how many addresses there was no room.
fn fill(
    space: &mut Space,
    ifindex: u32,
    listing: &mut Listing,
    features: &mut Features,
    config: &DiscoveryConfig,
) -> u64 {
    let routes = (space.routes.tables(ifindex), space.routes.omitted(ifindex));
    let Some(state) = space.links.get_mut(&ifindex) else {
        return 0;
    };
    let none = || Neighbours::new(config.max_neighbours);
    state.neighbours = listing.neighbours.remove(&ifindex).unwrap_or_else(none);
    let none = || Neighbours::new(config.max_forwarding);
    state.forwarding = listing.forwarding.remove(&ifindex).unwrap_or_else(none);
    state.routes = routes;
    state.vlans = listing.vlans.remove(&ifindex).unwrap_or_default();
    state.modes = listing.modes.remove(&ifindex).unwrap_or_default();
    let bits = listing.features.remove(&ifindex);
    state.features = bits
        .zip(space.sockets.ethtool.as_mut())
        .and_then(|(bits, ethtool)| features.metadata(ethtool, bits));
    state.addresses.clear();
    state.addresses_omitted = 0;
    let addresses = listing.addresses.remove(&ifindex).unwrap_or_default();
    let add = |address| add_address(state, address, config.max_addresses);
    addresses
        .into_iter()
        .map(add)
        .filter(|refused| *refused)
        .count() as u64
}
