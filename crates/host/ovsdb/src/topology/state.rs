//! The rows, which parts of the graph depend on them, and which have to be applied again.

use super::{
    OvsConfig, OvsCounters,
    apply::{Applied, metadata_of},
    metadata::Truth,
    meter::Meter,
    place::Places,
};
use crate::{Change, Database, Error, Row, rules::Rules};
use skua_topology::{Change as GraphChange, Delivery, IndexKey, Lookup, Node, SharedGraph, Value};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    ops::ControlFlow,
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};
use uuid::Uuid;

pub(super) const SYSTEM: &str = "Open_vSwitch";
pub(super) const BRIDGE: &str = "Bridge";
pub(super) const PORT: &str = "Port";
pub(super) const INTERFACE: &str = "Interface";

/// Tables, parents first.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(super) enum Kind {
    System,
    Bridge,
    Port,
    Interface,
}

impl Kind {
    fn of(table: &str) -> Option<Self> {
        Some(match table {
            SYSTEM => Self::System,
            BRIDGE => Self::Bridge,
            PORT => Self::Port,
            INTERFACE => Self::Interface,
            _ => return None,
        })
    }
}

/// A row.
pub(super) type Key = (Kind, Uuid);

pub(super) struct State {
    pub config: OvsConfig,
    pub origin: Arc<str>,
    pub netns: i64,
    pub graph: SharedGraph,
    pub rows: Database,
    pub truth: Truth,
    /// By port.
    pub bridge_of: HashMap<Uuid, Uuid>,
    /// By interface.
    pub port_of: HashMap<Uuid, Uuid>,
    /// Interfaces.
    pub by_name: HashMap<Box<str>, Uuid>,
    /// By interface.
    pub meters: HashMap<Uuid, Meter>,
    /// What is in the graph of each row.
    pub applied: HashMap<Key, Applied>,
    /// The rows by nodes, ours and others'.
    pub by_node: HashMap<Arc<str>, Key>,
    /// Until when interfaces wait for a node of others.
    pub waiting: HashMap<Uuid, Instant>,
    /// By what internal ports are found in other namespaces.
    pub places: Places,
    pub host_node: Option<Arc<str>>,
    /// How often we deleted nodes whose deletion the graph has not reported yet.
    pub deleted: HashMap<Arc<str>, u32>,
    pub counters: OvsCounters,
    /// OpenFlow rules, if they are wanted.
    rules_of_bridges: Option<Rules>,
    /// Rows that have to be applied again.
    dirty: BTreeSet<Key>,
    /// Since when there is no connection.
    away_since: Option<Instant>,
    /// Whether the nodes that a former run left were searched.
    swept: bool,
}

/// Now, ms since the Unix epoch.
pub(crate) fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    })
}

impl State {
    pub fn new(config: OvsConfig, netns: u64, graph: SharedGraph) -> Self {
        let rules = config.rules.clone();
        let rules = rules.map(|rules| Rules::new(rules, &config.host, graph.clone()));
        let mut state = Self {
            rules_of_bridges: rules,
            origin: config.origin.as_str().into(),
            netns: i64::try_from(netns).unwrap_or(i64::MAX),
            config,
            graph,
            rows: Database::default(),
            truth: Truth::Disconnected,
            bridge_of: HashMap::new(),
            port_of: HashMap::new(),
            by_name: HashMap::new(),
            meters: HashMap::new(),
            applied: HashMap::new(),
            by_node: HashMap::new(),
            waiting: HashMap::new(),
            places: Places::default(),
            host_node: None,
            deleted: HashMap::new(),
            counters: OvsCounters::default(),
            dirty: BTreeSet::new(),
            away_since: None,
            swept: false,
        };
        state.find_host();
        state
    }

    pub fn counters(&self) -> OvsCounters {
        OvsCounters {
            connected: self.truth == Truth::Connected,
            rows: self.rows.len() as u64,
            bytes: self.rows.bytes() as u64,
            waiting: self.waiting.len() as u64,
            rules: self
                .rules_of_bridges
                .as_ref()
                .map_or_else(Default::default, Rules::counters),
            ..self.count_applied(self.counters)
        }
    }

    /// There is a connection, and these are all rows.
    pub fn begin(&mut self, rows: Vec<Change>) -> Result<(), Error> {
        let there: HashSet<(&str, Uuid)> = rows.iter().map(|row| (row.table, row.id)).collect();
        let mut gone = Vec::new();
        for table in [SYSTEM, BRIDGE, PORT, INTERFACE] {
            let ids = self.rows.rows(table).map(|(id, _)| id);
            let ids = ids.filter(|id| !there.contains(&(table, *id)));
            gone.extend(ids.map(|id| Change {
                table,
                id,
                row: None,
            }));
        }
        self.away_since = None;
        self.truth = Truth::Connected;
        self.apply_rows(gone)?;
        self.apply_rows(rows)?;
        self.all_dirty();
        self.apply();
        if !std::mem::replace(&mut self.swept, true) {
            self.sweep();
        }
        Ok(())
    }

    /// What an update changed.
    pub fn change(&mut self, changes: Vec<Change>) -> Result<(), Error> {
        self.counters.updates += 1;
        self.apply_rows(changes)?;
        self.apply();
        Ok(())
    }

    /// There is no connection any more.
    pub fn end(&mut self) {
        self.truth = Truth::Disconnected;
        self.away_since = Some(Instant::now());
        self.all_dirty();
        self.apply();
    }

    /// When [`State::clock`] has something to do.
    pub fn next_due(&self, now: Instant) -> Option<Duration> {
        let forget = self.away_since.filter(|_| !self.rows.is_empty());
        let forget = forget.map(|since| since + self.config.forget_after);
        let due = self.waiting.values().copied().chain(forget).min();
        due.map(|due| due.saturating_duration_since(now))
    }

    /// Applies interfaces again that have waited long enough.
    pub fn clock(&mut self, now: Instant) {
        let due = self.waiting.iter().filter(|(_, until)| now >= **until);
        let due: Vec<_> = due.map(|(id, _)| (Kind::Interface, *id)).collect();
        self.dirty.extend(due);
        let away = self.away_since;
        if away.is_some_and(|since| now.duration_since(since) >= self.config.forget_after)
            && !self.rows.is_empty()
        {
            let mut gone = Vec::new();
            for table in [SYSTEM, BRIDGE, PORT, INTERFACE] {
                gone.extend(self.rows.rows(table).map(|(id, _)| Change {
                    table,
                    id,
                    row: None,
                }));
            }
            self.counters.forgotten += 1;
            // Nothing is added, so no limit can be passed.
            let _ = self.apply_rows(gone);
        }
        self.apply();
    }

    /// Something happened to the graph.
    pub fn delivered(&mut self, delivery: &Delivery) {
        match delivery {
            Delivery::Lost(events) => {
                self.counters.missed += events;
                self.find_host();
                self.deleted.clear();
                self.recheck();
            }
            Delivery::Event(event) => match &event.change {
                GraphChange::NodeAdded(node) | GraphChange::NodeUpdated(node) => {
                    self.node_came(node);
                }
                GraphChange::NodeDeleted(node) => self.node_went(node),
                _ => {}
            },
        }
    }

    fn node_came(&mut self, node: &Node) {
        if node.origin == self.origin {
            return;
        }
        if let Some(key) = self.by_node.get(&node.id) {
            self.dirty.insert(*key);
        }
        if *node.host != *self.config.host {
            return;
        }
        if is_host(node) && self.host_node.as_ref() != Some(&node.id) {
            self.host_node = Some(node.id.clone());
            self.roots_dirty();
        }
        let name = node.metadata.get("Name").and_then(Value::as_str);
        if let Some(id) = name.and_then(|name| self.by_name.get(name)) {
            self.dirty.insert((Kind::Interface, *id));
        }
        let with_mac = self.rows_with_mac(node).into_iter();
        self.dirty.extend(with_mac.map(|id| (Kind::Interface, id)));
    }

    fn node_went(&mut self, node: &Node) {
        if self.host_node.as_ref() == Some(&node.id) {
            self.host_node = None;
            self.roots_dirty();
        }
        if node.origin == self.origin {
            match self.deleted.get_mut(&node.id) {
                Some(1) => drop(self.deleted.remove(&node.id)),
                Some(times) => *times -= 1,
                // Another writer removed our nodes; with them went edges.
                None => self.recheck(),
            }
        } else if let Some(key) = self.by_node.get(&node.id).copied() {
            // It may have come again since, and have got our metadata already.
            let there = self.graph_has(&node.id);
            if let Some(applied) = self.applied.get_mut(&key) {
                applied.edges.clear();
                if !there {
                    applied.node = None;
                }
            }
            if !there {
                self.by_node.remove(&node.id);
            }
            self.dirty.insert(key);
        }
    }

    /// Nothing is known to be in the graph.
    fn recheck(&mut self) {
        for applied in self.applied.values_mut() {
            applied.edges.clear();
        }
        self.all_dirty();
    }

    fn graph_has(&self, id: &str) -> bool {
        metadata_of(&self.graph.read(), id).is_some()
    }

    fn find_host(&mut self) {
        let graph = self.graph.read();
        let kind = IndexKey::Str("host".into());
        let mut found = None;
        let lookup = Lookup::Key("Type", &kind);
        let _ = graph.scan_nodes(graph.now(), lookup, 0, usize::MAX, &mut |node, _| {
            if *node.host != *self.config.host {
                return ControlFlow::Continue(());
            }
            found = Some(node.id.clone());
            ControlFlow::Break(())
        });
        drop(graph);
        self.host_node = found;
    }

    /// Marks all children of the host's node.
    fn roots_dirty(&mut self) {
        for (table, kind) in [(SYSTEM, Kind::System), (BRIDGE, Kind::Bridge)] {
            for (id, _) in self.rows.rows(table) {
                if let Some(applied) = self.applied.get_mut(&(kind, id)) {
                    applied.edges.clear();
                }
                self.dirty.insert((kind, id));
            }
        }
    }

    fn all_dirty(&mut self) {
        for table in [SYSTEM, BRIDGE, PORT, INTERFACE] {
            if let Some(kind) = Kind::of(table) {
                let keys = self.rows.rows(table).map(|(id, _)| (kind, id));
                self.dirty.extend(keys);
            }
        }
        self.dirty.extend(self.applied.keys());
    }

    /// The rows that have to be applied again, in the order of [`Kind`].
    pub fn take_dirty(&mut self) -> Vec<Key> {
        std::mem::take(&mut self.dirty).into_iter().collect()
    }

    /// Says which bridges there are.
    pub fn tell_bridges(&mut self) {
        if let Some(rules) = &mut self.rules_of_bridges {
            let bridges = self.rows.rows(BRIDGE);
            let named = bridges.filter_map(|(id, row)| Some((id, row.text("name")?.to_owned())));
            rules.bridges(&named.collect::<BTreeMap<_, _>>());
        }
    }

    /// To be dropped without a lock.
    pub fn take_rules(&mut self) -> Option<Rules> {
        self.rules_of_bridges.take()
    }

    pub fn row(&self, key: Key) -> Option<&Row> {
        let table = match key.0 {
            Kind::System => SYSTEM,
            Kind::Bridge => BRIDGE,
            Kind::Port => PORT,
            Kind::Interface => INTERFACE,
        };
        self.rows.row(table, key.1)
    }

    /// Applies changes to the rows and notes what depends on them.
    fn apply_rows(&mut self, changes: Vec<Change>) -> Result<(), Error> {
        let now = now();
        for change in changes {
            let Some(kind) = Kind::of(change.table) else {
                continue;
            };
            let id = change.id;
            let old = self.rows.apply(change, self.config.client.limits.memory)?;
            self.dirty.insert((kind, id));
            match kind {
                Kind::System => {}
                Kind::Bridge => {
                    let (old, new) = (references(old.as_ref(), "ports"), self.children(kind, id));
                    for port in relinked(&mut self.bridge_of, id, &old, &new) {
                        self.dirty.insert((Kind::Port, port));
                        let interfaces = self.children(Kind::Port, port);
                        let interfaces = interfaces.into_iter().map(|id| (Kind::Interface, id));
                        self.dirty.extend(interfaces);
                    }
                }
                Kind::Port => {
                    let old = references(old.as_ref(), "interfaces");
                    let new = self.children(kind, id);
                    let changed = relinked(&mut self.port_of, id, &old, &new);
                    let interfaces = changed.into_iter().map(|id| (Kind::Interface, id));
                    self.dirty.extend(interfaces);
                }
                Kind::Interface => self.interface_changed(id, old.as_ref(), now),
            }
        }
        Ok(())
    }

    /// The ports of a bridge, the interfaces of a port.
    fn children(&self, kind: Kind, id: Uuid) -> Vec<Uuid> {
        let column = if kind == Kind::Bridge {
            "ports"
        } else {
            "interfaces"
        };
        references(self.row((kind, id)), column)
    }

    fn interface_changed(&mut self, id: Uuid, old: Option<&Row>, now: i64) {
        let new = self.rows.row(INTERFACE, id);
        let name = |row: &Row| row.text("name").map(Box::<str>::from);
        let (old_name, new_name) = (old.and_then(name), new.and_then(name));
        let meter = new.and_then(|row| Meter::new(row, now));
        // Interfaces that name one as peer that came, went or changed, must be applied again.
        let peers = [old, new].map(|row| row.and_then(peer).map(Box::<str>::from));
        let gone = new.is_none();
        let renamed = old_name != new_name;
        self.places.row_changed(id, new, renamed);
        if renamed {
            if let Some(name) = old_name
                && self.by_name.get(&name) == Some(&id)
            {
                self.by_name.remove(&name);
            }
            if let Some(name) = new_name {
                self.by_name.insert(name, id);
            }
        }
        match meter {
            Some(meter) => {
                let meter = match self.meters.get(&id) {
                    Some(before) => meter.since(before),
                    None => meter,
                };
                self.meters.insert(id, meter);
            }
            None => {
                self.meters.remove(&id);
            }
        }
        if gone {
            self.waiting.remove(&id);
        }
        for peer in peers.into_iter().flatten() {
            if let Some(peer) = self.by_name.get(&peer) {
                self.dirty.insert((Kind::Interface, *peer));
            }
        }
    }
}

fn references(row: Option<&Row>, column: &str) -> Vec<Uuid> {
    row.map_or_else(Vec::new, |row| row.uuids(column).collect())
}

/// Records the children of a parent; returns those whose parent changed.
fn relinked(
    parents: &mut HashMap<Uuid, Uuid>,
    parent: Uuid,
    old: &[Uuid],
    new: &[Uuid],
) -> Vec<Uuid> {
    let kept: HashSet<_> = new.iter().collect();
    let mut changed = Vec::new();
    for child in old {
        // It may have moved to another parent already.
        if !kept.contains(child) && parents.get(child) == Some(&parent) {
            parents.remove(child);
            changed.push(*child);
        }
    }
    for child in new {
        if parents.insert(*child, parent) != Some(parent) {
            changed.push(*child);
        }
    }
    changed
}

/// The interface that a patch port connects to.
pub(super) fn peer(row: &Row) -> Option<&str> {
    match row.text("type") {
        Some("patch") => row.text_at("options", "peer"),
        _ => None,
    }
}

pub(super) fn is_host(node: &Node) -> bool {
    node.metadata.get("Type").and_then(Value::as_str) == Some("host")
}
