//! The rules and groups of one bridge.

use super::{
    Common, Stop,
    nodes::{self, Reading},
};
use crate::topology::{now, row_tid, tid};
use skua_openflow::{Connection, Counters, Error, Group, Key, Message, Rule, Update};
use skua_topology::{Edge, Graph, GraphError, Map, Node, Patch, Value};
use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};
use uuid::Uuid;

/// Elements that are written under one lock of the graph.
const PART: usize = 256;
/// The switch may take so long for an answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Pauses between attempts to connect.
const BACKOFF: Duration = Duration::from_millis(500);
const BACKOFF_MAX: Duration = Duration::from_secs(8);
/// Key of the bridge's node that says what is known of its rules.
const SUMMARY: &str = "OpenFlow";
/// By so much the beginning of a rule differs because of the time that reading takes, in ms.
const SAME_BEGINNING: i64 = 2_000;

/// What is in the graph of a rule or group.
struct Known {
    id: Arc<str>,
    metadata: Map,
    reading: Option<Reading>,
    /// When it was made, ms since the Unix epoch.
    created: Option<i64>,
    has_edge: bool,
    /// The last reading that had it.
    seen: u64,
}

/// Elements of one kind.
struct Table<K> {
    known: HashMap<K, Known>,
    /// What the present reading has beyond the limit.
    omitted: u64,
}

impl<K> Default for Table<K> {
    fn default() -> Self {
        Self {
            known: HashMap::new(),
            omitted: 0,
        }
    }
}

/// An element as it is now.
struct Seen<K> {
    key: K,
    id: Arc<str>,
    metadata: Map,
    counters: Option<Counters>,
}

pub(super) struct Bridge {
    common: Arc<Common>,
    name: String,
    node: Arc<str>,
    stop: Arc<Stop>,
    rules: Table<Key>,
    groups: Table<u32>,
    /// Number of the present reading.
    reading: u64,
    /// When the bridge's node was made that has our edges.
    node_created: Option<i64>,
    summary: Option<Map>,
}

impl Bridge {
    pub fn new(common: Arc<Common>, id: Uuid, name: String, stop: Arc<Stop>) -> Self {
        Self {
            node: row_tid(&common.host, id, "ovsbridge"),
            common,
            name,
            stop,
            rules: Table::default(),
            groups: Table::default(),
            reading: 0,
            node_created: None,
            summary: None,
        }
    }

    pub fn run(mut self) {
        let mut pause = BACKOFF;
        let mut logged = String::new();
        while !self.stop.is_set() {
            let begun = Instant::now();
            let Err(error) = self.session() else { break };
            self.stop.connected.store(false, Ordering::Relaxed);
            self.stop.set_closer(None);
            if self.stop.is_set() {
                break;
            }
            let error = error.to_string();
            // A bridge has its socket a moment after its row.
            if pause > BACKOFF && error != logged {
                tracing::warn!(target: "ovsdb", "rules of bridge {}: {error}; trying again", self.name);
                logged.clone_from(&error);
            }
            self.summarize("disconnected", None, Some(&error));
            if begun.elapsed() >= BACKOFF_MAX {
                pause = BACKOFF;
            }
            self.stop.pause(pause);
            pause = (pause * 2).min(BACKOFF_MAX);
        }
        if self.stop.removing.load(Ordering::Relaxed) {
            self.remove_all();
        } else {
            self.summarize("disconnected", None, None);
        }
    }

    fn session(&mut self) -> Result<(), Error> {
        let path = self
            .common
            .config
            .folder
            .join(format!("{}.mgmt", self.name));
        let mut connection = Connection::open(&path, PATIENCE)?;
        if let Ok(close) = connection.closer() {
            self.stop.set_closer(Some(Box::new(close)));
        }
        // First, so that no change is missed between the two.
        connection.follow_rules()?;
        let mut due = Instant::now();
        while !self.stop.is_set() {
            let now = Instant::now();
            if now >= due {
                self.request(&mut connection)?;
                due = now + self.common.config.interval;
            }
            let patience = due.saturating_duration_since(Instant::now());
            let Some(message) = connection.next(patience)? else {
                continue;
            };
            match message {
                Message::Rules(rules, more) => {
                    let rules = rules.iter().map(|rule| self.rule_seen(rule)).collect();
                    self.write_rules(rules);
                    if !more {
                        self.rules_end();
                        self.stop.connected.store(true, Ordering::Relaxed);
                        self.summarize("connected", Some(connection.version().name()), None);
                    }
                }
                Message::Updates(updates) => {
                    let again = self.updated(updates);
                    due = if again { Instant::now() } else { due };
                }
                Message::Groups(groups, more) => {
                    let groups = groups.iter().map(|group| self.group_seen(group)).collect();
                    self.write_groups(groups);
                    if !more {
                        self.groups_end();
                        connection.request_group_counters()?;
                    }
                }
                Message::GroupCounters(counters, _) => self.group_counters(&counters),
                // Also what it cannot do; the next reading shows what is so.
                _ => {}
            }
        }
        Ok(())
    }

    /// Requests everything.
    fn request(&mut self, connection: &mut Connection) -> Result<(), Error> {
        self.reading += 1;
        self.rules.omitted = 0;
        self.groups.omitted = 0;
        self.check_node();
        connection.request_rules()?;
        connection.request_groups()
    }

    /// Looks whether the bridge's node is the one that has our edges.
    fn check_node(&mut self) {
        let node = self.common.graph.read().current_node(&self.node);
        let created = node.map(|node| node.created_at);
        if created != self.node_created {
            self.node_created = created;
            self.summary = None;
            let rules = self.rules.known.values_mut();
            for known in rules.chain(self.groups.known.values_mut()) {
                known.has_edge = false;
            }
        }
    }

    fn rule_seen(&self, rule: &Rule) -> Seen<Key> {
        let mut fields = String::new();
        for byte in &rule.key.fields {
            fields.push(char::from(b'a' + (byte >> 4)));
            fields.push(char::from(b'a' + (byte & 15)));
        }
        let table = rule.key.table.to_string();
        let priority = rule.key.priority.to_string();
        let id = tid(&[&self.node, "ofrule", &table, "/", &priority, "/", &fields]);
        Seen {
            metadata: nodes::rule(&id, rule),
            id,
            key: rule.key.clone(),
            counters: rule.counters,
        }
    }

    fn group_seen(&self, group: &Group) -> Seen<u32> {
        let id = tid(&[&self.node, "ofgroup", &group.id.to_string()]);
        Seen {
            metadata: nodes::group(&id, group),
            id,
            key: group.id,
            counters: None,
        }
    }

    fn write_rules(&mut self, seen: Vec<Seen<Key>>) {
        let mut writer = self.writer();
        writer.write(seen, &mut self.rules);
    }

    fn write_groups(&mut self, seen: Vec<Seen<u32>>) {
        let mut writer = self.writer();
        writer.write(seen, &mut self.groups);
    }

    fn writer(&self) -> Writer {
        Writer {
            common: self.common.clone(),
            bridge: self.node.clone(),
            reading: self.reading,
            now: now(),
        }
    }

    fn rules_end(&mut self) {
        let writer = self.writer();
        writer.remove_old(&mut self.rules);
    }

    fn groups_end(&mut self) {
        let writer = self.writer();
        writer.remove_old(&mut self.groups);
    }

    /// Applies changes in their order; says whether everything has to be read again.
    fn updated(&mut self, updates: Vec<Update>) -> bool {
        let mut again = false;
        for update in updates {
            match update {
                Update::Set(rule) => {
                    let seen = self.rule_seen(&rule);
                    // It does not say the flags and the importance; a rule that is new is read as a whole soon.
                    let partial = self.rules.known.get(&seen.key);
                    let seen = Seen {
                        metadata: match partial {
                            Some(known) => keep(seen.metadata, &known.metadata),
                            None => seen.metadata,
                        },
                        ..seen
                    };
                    self.write_rules(vec![seen]);
                }
                Update::Removed(key) => {
                    if let Some(known) = self.rules.known.remove(&key) {
                        let mut graph = self.common.graph.write();
                        let _ = graph.delete_node(&known.id, now());
                    }
                }
                Update::Unknown => again = true,
            }
        }
        again
    }

    fn group_counters(&mut self, counters: &[skua_openflow::GroupCounters]) {
        let writer = self.writer();
        let mut graph = self.common.graph.write();
        for group in counters {
            if let Some(known) = self.groups.known.get_mut(&group.id) {
                let _ = writer.count(&mut graph, known, group.counters);
            }
        }
    }

    /// Writes to the bridge's node what is known.
    fn summarize(&mut self, state: &str, version: Option<&str>, error: Option<&str>) {
        let int = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        let omitted = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let mut summary = Map::from([
            ("State", state.into()),
            ("Rules", int(self.rules.known.len()).into()),
            ("RulesOmitted", omitted(self.rules.omitted).into()),
            ("Groups", int(self.groups.known.len()).into()),
            ("GroupsOmitted", omitted(self.groups.omitted).into()),
        ]);
        for (key, text) in [("Version", version), ("Error", error)] {
            if let Some(text) = text {
                summary = summary.with(key, text.into());
            }
        }
        if self.summary.as_ref() == Some(&summary) {
            return;
        }
        let patch = Patch::Set(SUMMARY.into(), summary.clone().into());
        let written = self
            .common
            .graph
            .write()
            .patch_node(&self.node, &[patch], now());
        self.summary = written.is_ok().then_some(summary);
    }

    /// The bridge is gone.
    fn remove_all(&mut self) {
        let rules = self.rules.known.drain().map(|(_, known)| known);
        let groups = self.groups.known.drain().map(|(_, known)| known);
        let ids: Vec<_> = rules.chain(groups).map(|known| known.id).collect();
        let now = now();
        for part in ids.chunks(PART) {
            let mut graph = self.common.graph.write();
            for id in part {
                let _ = graph.delete_node(id, now);
            }
        }
    }
}

/// With what only a full reading says, as it was.
fn keep(new: Map, before: &Map) -> Map {
    let mut kept = new;
    for key in ["Flags", "Importance"] {
        if let Some(value) = before.get(key) {
            kept = kept.with(key, value.clone());
        }
    }
    kept
}

/// Writes elements into the graph.
struct Writer {
    common: Arc<Common>,
    bridge: Arc<str>,
    reading: u64,
    now: i64,
}

impl Writer {
    fn write<K: Eq + Hash>(&mut self, seen: Vec<Seen<K>>, table: &mut Table<K>) {
        let mut seen = seen.into_iter().peekable();
        while seen.peek().is_some() {
            let shared = self.common.graph.clone();
            let mut graph = shared.write();
            for element in seen.by_ref().take(PART) {
                if !table.known.contains_key(&element.key)
                    && table.known.len() >= self.common.config.max_rules
                {
                    table.omitted += 1;
                    continue;
                }
                self.write_one(&mut graph, element, table);
            }
        }
    }

    fn write_one<K: Eq + Hash>(&self, graph: &mut Graph, seen: Seen<K>, table: &mut Table<K>) {
        let Seen {
            key,
            id,
            metadata,
            counters,
        } = seen;
        let known = table.known.entry(key).or_insert_with(|| Known {
            id,
            metadata: Map::default(),
            reading: None,
            created: None,
            has_edge: false,
            seen: 0,
        });
        known.seen = self.reading;
        let done = match graph.current_node(&known.id) {
            Some(_) if known.metadata == metadata => Ok(()),
            Some(_) => {
                let patches = differences(&known.metadata, &metadata);
                graph.patch_node(&known.id, &patches, self.now).map(drop)
            }
            None => {
                known.reading = None;
                known.created = None;
                known.has_edge = false;
                let zero = Reading::new(counters.unwrap_or_default(), self.now);
                known.reading = Some(zero);
                let mut whole = metadata.with("Metric", zero.metric());
                if let Some(counters) = counters {
                    let created = self.beginning(counters);
                    known.created = Some(created);
                    whole = whole.with("Created", created.into());
                }
                let mut node = Node::new(&known.id, &self.common.host, whole);
                node.origin = self.common.origin.clone();
                graph.add_node(node, self.now).map(drop)
            }
        };
        known.metadata = metadata;
        let done = done.and_then(|()| match counters {
            Some(counters) => self.count(graph, known, counters),
            None => Ok(()),
        });
        if let Err(error) = done.and_then(|()| self.connect(graph, known)) {
            tracing::debug!(target: "ovsdb", "the graph refuses a rule: {error}");
        }
    }

    fn beginning(&self, counters: Counters) -> i64 {
        let age = i64::try_from(counters.age.as_millis()).unwrap_or(i64::MAX);
        self.now.saturating_sub(age)
    }

    fn count(
        &self,
        graph: &mut Graph,
        known: &mut Known,
        counters: Counters,
    ) -> Result<(), GraphError> {
        let new = Reading::new(counters, self.now);
        let mut patches = Vec::new();
        let created = self.beginning(counters);
        let same = |before: i64| before.abs_diff(created) <= SAME_BEGINNING.unsigned_abs();
        if !known.created.is_some_and(same) {
            known.created = Some(created);
            patches.push(Patch::Set("Created".into(), created.into()));
        }
        match &known.reading {
            Some(before) if (before.packets, before.bytes) == (new.packets, new.bytes) => {}
            before => {
                patches.push(Patch::Set("Metric".into(), new.metric()));
                patches.extend(
                    before
                        .and_then(|before| new.since(&before))
                        .map(|delta| Patch::Set("LastUpdateMetric".into(), delta)),
                );
                known.reading = Some(new);
            }
        }
        if patches.is_empty() {
            return Ok(());
        }
        graph.patch_node(&known.id, &patches, self.now).map(drop)
    }

    fn connect(&self, graph: &mut Graph, known: &mut Known) -> Result<(), GraphError> {
        if known.has_edge {
            return Ok(());
        }
        let metadata = Map::from([(Edge::RELATION, "ownership".into())]);
        let id = tid(&[&self.bridge, &known.id, "ownership"]);
        let host = &self.common.host;
        let mut edge = Edge::new(&id, &self.bridge, &known.id, host, metadata);
        edge.element.origin = self.common.origin.clone();
        match graph.add_edge(edge, self.now) {
            Ok(_) | Err(GraphError::EdgeExists(_)) => known.has_edge = true,
            // The bridge's node is to come.
            Err(GraphError::NoEnd { .. }) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Removes what this reading did not have.
    fn remove_old<K: Eq + Hash>(&self, table: &mut Table<K>) {
        let mut graph = self.common.graph.write();
        table.known.retain(|_, known| {
            let there = known.seen >= self.reading;
            if !there {
                let _ = graph.delete_node(&known.id, self.now);
            }
            there
        });
    }
}

/// What has to be written to come from one to the other.
fn differences(before: &Map, after: &Map) -> Vec<Patch> {
    let set = after
        .iter()
        .filter(|(key, value)| before.get(key) != Some(value))
        .map(|(key, value)| Patch::Set((&**key).into(), Value::clone(value)));
    let gone = before.iter().filter(|(key, _)| after.get(key).is_none());
    let gone = gone.map(|(key, _)| Patch::Remove((&**key).into()));
    set.chain(gone).collect()
}
