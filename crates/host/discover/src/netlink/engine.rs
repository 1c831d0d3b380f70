//! The namespaces that are followed, and the kernel's events of them.

use super::{
    interface::{self, State},
    nodes::namespace_metadata,
    relations::{LinkKey, OWNERSHIP, Waiting},
    routes::Routes,
    space::{Features, Retry, Sockets, Space},
};
use crate::{DiscoveryConfig, DiscoveryError, counters, counters::Shared, host, writer::Writer};
use skua_kernel::next_tick;
use skua_link::{NAMED, Namespace, NamespaceId, Namespaces};
use skua_topology::{Map, SharedGraph, Value};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::Arc,
    time::Instant,
};

/// Name of this provider in `@Origin`.
const NAME: &str = "netlink";
pub(super) const IFF_UP: u32 = 1;
/// Datagrams that are taken from one namespace before the others have their turn.
pub(super) const READ_AT_ONCE: usize = 64;
/// Times that as many are read before a namespace is listed again; no queue has more.
pub(super) const MOST_WAITING: u32 = 4_096;
/// Times that as many are read before routes are listed again.
pub(super) const MOST_ROUNDS: u32 = 64;
/// Keys of the nodes of namespaces that are ours.
pub(super) const NAMESPACE_KEYS: &[&str] = &[
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
    /// Namespaces that were opened or closed, for the thread that waits on their descriptors.
    pub opened: Vec<u16>,
    /// Interfaces whose neighbours are to be written, by when.
    pub due: BTreeSet<(Instant, LinkKey)>,
    /// When counters are read next.
    pub tick: Instant,
    pub list_namespaces: Retry,
    host: Arc<str>,
    /// Metadata of the host's node that never changes.
    pub about_host: Vec<(Arc<str>, Value)>,
    host_tid: Arc<str>,
    boot: String,
    /// There are interfaces beyond the limit.
    pub left_out: bool,
    pub keys: Vec<&'static str>,
    pub features: Features,
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
        let about_host = host::metadata(&config.host, own);
        let metadata = Map::new(about_host.clone());
        let host = writer.add_node("host", host::KEYS, metadata);
        let mut engine = Self {
            host: host.unwrap_or_default(),
            about_host,
            host_tid: host::tid(&config.host),
            boot: host::boot(),
            left_out: false,
            keys: interface::keys(),
            tick: next_tick(config.metric_interval),
            config,
            counters: shared,
            writer,
            namespaces,
            spaces: BTreeMap::new(),
            waiting: Waiting::default(),
            opened: Vec::new(),
            due: BTreeSet::new(),
            list_namespaces: Retry::default(),
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
                resync: Retry::default(),
                check_routes: Retry::default(),
                missing_routes: HashSet::new(),
                list_routes: Retry::default(),
                list_vlans: Retry::default(),
                list_forwarding: Retry::default(),
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
                tracing::warn!(name, %error, "cannot read this network namespace");
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

    /// Stops following a namespace that has ended.
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
        for key in self.linked_to(number) {
            self.write(key);
        }
    }

    /// Lists the namespaces.
    pub fn refresh(&mut self) {
        let begun = Instant::now();
        let changes = match self.namespaces.refresh() {
            Ok(changes) => changes,
            Err(error) => return self.failed("cannot list network namespaces", &error),
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
        self.list_namespaces.finished(begun);
    }

    fn count_namespaces(&self) {
        counters::set(&self.counters.namespaces, self.spaces.len());
        counters::set(&self.counters.namespaces_refused, self.refused.len());
        let omitted = self.namespaces.omitted();
        counters::set(&self.counters.namespaces_omitted, omitted);
    }

    pub(super) fn failed(&self, what: &'static str, error: &skua_link::Error) {
        counters::add(&self.counters.errors, 1);
        tracing::debug!(%error, "{what}");
    }

    /// What is due at `now`.
    pub fn work(&mut self, now: Instant) {
        while let Some((due, key)) = self.due.first().copied().filter(|(due, _)| *due <= now) {
            self.due.remove(&(due, key));
            self.write_neighbours(key, now);
        }
        if self.list_namespaces.take_due(now) {
            self.refresh();
        }
        let numbers: Vec<u16> = self.spaces.keys().copied().collect();
        for number in numbers {
            self.repair(number, now);
        }
        if now >= self.tick {
            self.tick = next_tick(self.config.metric_interval);
            self.count();
            self.refresh();
        }
    }

    /// When there is something to do next.
    pub fn next(&self) -> Instant {
        let retries = self.spaces.values().flat_map(|space| {
            [
                space.resync.due,
                space.check_routes.due,
                space.list_routes.due,
                space.list_vlans.due,
                space.list_forwarding.due,
            ]
        });
        let due = self.due.first().map(|(due, _)| *due);
        retries
            .chain([due, self.list_namespaces.due])
            .flatten()
            .fold(self.tick, Instant::min)
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
