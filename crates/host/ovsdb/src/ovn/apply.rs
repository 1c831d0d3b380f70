//! What should be in the graph, and writing the difference.

use super::{
    OvnConfig,
    index::{Index, Published},
    tables::{ACL, By, FLOW, NORTH, PORT, REFERENCES, SOUTH, Table},
};
use crate::{
    Database, Row,
    topology::{now, tid},
};
use skua_topology::{
    Edge, Graph, GraphError, IndexKey, Lookup, Map, Node, Patch, SharedGraph, Value,
};
use std::{
    collections::{HashMap, HashSet},
    ops::ControlFlow,
    sync::Arc,
};
use uuid::Uuid;

/// Elements that are written under one lock of the graph.
const PART: usize = 256;

/// An edge: from, to, relation.
type Link = (Arc<str>, Arc<str>, &'static str);

pub(super) struct Applied {
    graph: SharedGraph,
    host: String,
    origin: Arc<str>,
    wanted: HashMap<Arc<str>, Map>,
    wanted_links: HashSet<Link>,
    /// Logical ports by what `iface-id` says.
    ports: HashMap<Box<str>, Arc<str>>,
    /// ACLs by the cookies of their rules.
    acls: HashMap<u32, Arc<str>>,
    published: Arc<Published>,
    written: HashMap<Arc<str>, Map>,
    links: HashMap<Link, Arc<str>>,
    last_event: Option<u64>,
    changed: bool,
    swept: bool,
}

impl Applied {
    pub fn new(host: &str, graph: SharedGraph, published: Arc<Published>) -> Self {
        Self {
            graph,
            host: host.to_owned(),
            origin: format!("ovn.{host}").as_str().into(),
            wanted: HashMap::new(),
            wanted_links: HashSet::new(),
            ports: HashMap::new(),
            acls: HashMap::new(),
            published,
            written: HashMap::new(),
            links: HashMap::new(),
            last_event: None,
            changed: false,
            swept: false,
        }
    }

    fn id(&self, table: &str, row: Uuid) -> Arc<str> {
        tid(&["ovn", table, &row.to_string()])
    }

    /// These are the rows of both databases.
    pub fn want(&mut self, rows: &[Database; 2], config: &OvnConfig) {
        self.changed = true;
        let mut wanted = HashMap::new();
        for (tables, rows) in [NORTH, SOUTH].into_iter().zip(rows) {
            for table in tables {
                for (id, row) in rows.rows(table.name) {
                    let node = self.id(table.name, id);
                    let metadata = table.metadata(&node, id, row);
                    wanted.insert(node, metadata);
                }
            }
        }
        let mut links = HashSet::new();
        for reference in REFERENCES {
            self.references(rows, reference, &mut links);
        }
        links.retain(|(from, to, _)| wanted.contains_key(from) && wanted.contains_key(to));
        let [north, south] = rows;
        let ports = north.rows(PORT);
        self.ports = ports
            .filter_map(|(id, row)| Some((row.text("name")?.into(), self.id(PORT, id))))
            .collect();
        if config.hits {
            let cookies = cookies(north, south);
            let nodes = cookies.iter();
            let nodes = nodes.map(|(cookie, acl)| (*cookie, self.id(ACL, *acl)));
            self.acls = nodes.collect();
            self.published.set(Index::new(north, &cookies));
        }
        self.wanted = wanted;
        self.wanted_links = links;
    }

    fn references(
        &self,
        databases: &[Database; 2],
        reference: &super::tables::Reference,
        links: &mut HashSet<Link>,
    ) {
        let has = |tables: &[Table], name: &str| tables.iter().any(|table| table.name == name);
        let of = |name: &str| usize::from(has(SOUTH, name));
        let (Some(source), Some(target)) = (
            databases.get(of(reference.table)),
            databases.get(of(reference.target)),
        ) else {
            return;
        };
        let named = |column: &'static str| -> HashMap<&str, Uuid> {
            let rows = target.rows(reference.target);
            rows.filter_map(|(id, row)| Some((row.text(column)?, id)))
                .collect()
        };
        let names = match reference.column {
            By::Rows(_) => HashMap::new(),
            By::Text(_, column) => named(column),
            By::Option(..) => named("name"),
        };
        for (id, row) in source.rows(reference.table) {
            let from = self.id(reference.table, id);
            let found: Vec<Uuid> = match reference.column {
                By::Rows(column) => row.uuids(column).collect(),
                By::Text(column, _) => {
                    let text = row.text(column);
                    text.and_then(|text| names.get(text))
                        .copied()
                        .into_iter()
                        .collect()
                }
                By::Option(column, key) => {
                    let text = row.text_at(column, key);
                    text.and_then(|text| names.get(text))
                        .copied()
                        .into_iter()
                        .collect()
                }
            };
            for to in found {
                links.insert((
                    from.clone(),
                    self.id(reference.target, to),
                    reference.relation,
                ));
            }
        }
    }

    /// Brings the graph to what is wanted.
    pub fn write(&mut self) {
        let graph = self.graph.clone();
        let last_event = graph.read().last_event();
        if !self.changed && self.last_event == Some(last_event) {
            return;
        }
        self.changed = false;
        let mut links = self.wanted_links.clone();
        let mut wanted = self.wanted.clone();
        {
            let graph = graph.read();
            self.join_interfaces(&graph, &mut links);
            self.join_rules(&graph, &mut links, &mut wanted);
            // Another writer may have removed what is ours.
            self.written
                .retain(|id, _| graph.current_node(id).is_some());
            self.links.retain(|_, id| graph.current_edge(id).is_some());
        }
        let now = now();
        if !std::mem::replace(&mut self.swept, true) {
            self.sweep(&wanted, now);
        }
        let gone: Vec<_> = self
            .links
            .keys()
            .filter(|link| !links.contains(*link))
            .cloned()
            .collect();
        for part in gone.chunks(PART) {
            let mut graph = graph.write();
            for link in part {
                if let Some(id) = self.links.remove(link) {
                    let _ = graph.delete_edge(&id, now);
                }
            }
        }
        let gone: Vec<_> = self
            .written
            .keys()
            .filter(|id| !wanted.contains_key(*id))
            .cloned()
            .collect();
        for part in gone.chunks(PART) {
            let mut graph = graph.write();
            for id in part {
                self.written.remove(id);
                let _ = graph.delete_node(id, now);
            }
        }
        let new: Vec<_> = wanted
            .into_iter()
            .filter(|(id, metadata)| self.written.get(id) != Some(metadata))
            .collect();
        for part in new.chunks(PART) {
            let mut graph = graph.write();
            for (id, metadata) in part {
                if let Err(error) = self.write_node(&mut graph, id, metadata, now) {
                    tracing::debug!(target: "ovsdb", "the graph refuses a node of OVN: {error}");
                }
            }
        }
        let new: Vec<_> = links
            .into_iter()
            .filter(|link| !self.links.contains_key(link))
            .collect();
        for part in new.chunks(PART) {
            let mut graph = graph.write();
            for link in part {
                self.write_link(&mut graph, link, now);
            }
        }
        self.last_event = Some(graph.read().last_event());
    }

    fn write_node(
        &mut self,
        graph: &mut Graph,
        id: &Arc<str>,
        metadata: &Map,
        now: i64,
    ) -> Result<(), GraphError> {
        match (graph.current_node(id), self.written.get(id)) {
            (None, _) => {
                let mut node = Node::new(id, &self.host, metadata.clone());
                node.origin = self.origin.clone();
                graph.add_node(node, now)?;
            }
            // What an earlier run left is replaced as a whole.
            (Some(_), None) => drop(graph.update_node(id, metadata.clone(), now)?),
            (Some(_), Some(before)) => {
                let set = metadata
                    .iter()
                    .filter(|(key, value)| before.get(key) != Some(value));
                let set = set.map(|(key, value)| Patch::Set((&**key).into(), Value::clone(value)));
                let gone = before.iter().filter(|(key, _)| metadata.get(key).is_none());
                let gone = gone.map(|(key, _)| Patch::Remove((&**key).into()));
                let patches: Vec<_> = set.chain(gone).collect();
                graph.patch_node(id, &patches, now)?;
            }
        }
        self.written.insert(id.clone(), metadata.clone());
        Ok(())
    }

    fn write_link(&mut self, graph: &mut Graph, link: &Link, now: i64) {
        let (from, to, relation) = link;
        let id = tid(&[from, to, relation]);
        let metadata = Map::from([(Edge::RELATION, (*relation).into())]);
        let mut edge = Edge::new(&id, from, to, &self.host, metadata);
        edge.element.origin = self.origin.clone();
        if let Ok(_) | Err(GraphError::EdgeExists(_)) = graph.add_edge(edge, now) {
            self.links.insert(link.clone(), id);
        }
    }

    /// Interfaces that name a logical port, whichever host they are of.
    fn join_interfaces(&self, graph: &Graph, links: &mut HashSet<Link>) {
        if self.ports.is_empty() {
            return;
        }
        let _ = graph.scan_nodes(graph.now(), Lookup::All, 0, usize::MAX, &mut |node, _| {
            let id = node.metadata.get("ExtID").and_then(|ids| match ids {
                Value::Map(ids) => ids.get("iface-id")?.as_str(),
                _ => None,
            });
            if let Some(port) = id.and_then(|id| self.ports.get(id)) {
                links.insert((node.id.clone(), port.clone(), "mapping"));
            }
            ControlFlow::Continue(())
        });
    }

    /// Rules of ACLs: edges to them, and the sums of their counters.
    fn join_rules(
        &self,
        graph: &Graph,
        links: &mut HashSet<Link>,
        wanted: &mut HashMap<Arc<str>, Map>,
    ) {
        if self.acls.is_empty() {
            return;
        }
        let mut sums: HashMap<Arc<str>, [i64; 3]> = HashMap::new();
        let kind = IndexKey::Str("ofrule".into());
        let lookup = Lookup::Key("Type", &kind);
        let _ = graph.scan_nodes(graph.now(), lookup, 0, usize::MAX, &mut |node, _| {
            let cookie = node.metadata.get("Cookie").and_then(Value::as_str);
            let cookie = cookie.and_then(|cookie| cookie.strip_prefix("0x"));
            let cookie = cookie.and_then(|cookie| u32::from_str_radix(cookie, 16).ok());
            let Some(acl) = cookie.and_then(|cookie| self.acls.get(&cookie)) else {
                return ControlFlow::Continue(());
            };
            links.insert((acl.clone(), node.id.clone(), "ovn"));
            let int = |key: &str| {
                node.lookup(key)
                    .and_then(|value| value.as_int())
                    .unwrap_or(0)
            };
            let sum = sums.entry(acl.clone()).or_default();
            sum[0] = sum[0].saturating_add(int("Metric.RxPackets"));
            sum[1] = sum[1].saturating_add(int("Metric.RxBytes"));
            sum[2] = sum[2].saturating_add(1);
            ControlFlow::Continue(())
        });
        for (acl, [packets, bytes, rules]) in sums {
            if let Some(metadata) = wanted.get_mut(&acl) {
                let metric = Map::from([("RxPackets", packets.into()), ("RxBytes", bytes.into())]);
                *metadata = metadata
                    .with("Metric", metric.into())
                    .with("Rules", rules.into());
            }
        }
    }

    /// Removes what a former run left in a graph that was kept and is no more.
    fn sweep(&mut self, wanted: &HashMap<Arc<str>, Map>, now: i64) {
        let (mut nodes, mut edges) = (Vec::new(), Vec::new());
        {
            let graph = self.graph.read();
            let window = graph.now();
            let _ = graph.scan_nodes(window, Lookup::All, 0, usize::MAX, &mut |node, _| {
                if node.origin == self.origin && !wanted.contains_key(&node.id) {
                    nodes.push(node.id.clone());
                }
                ControlFlow::Continue(())
            });
            let _ = graph.scan_edges(window, Lookup::All, 0, usize::MAX, &mut |edge, _| {
                if edge.element.origin == self.origin {
                    edges.push(edge.element.id.clone());
                }
                ControlFlow::Continue(())
            });
        }
        let mut graph = self.graph.write();
        for id in edges {
            let _ = graph.delete_edge(&id, now);
        }
        for id in nodes {
            let _ = graph.delete_node(&id, now);
        }
    }
}

/// The ACL of each cookie. A rule's cookie is the first 32 bits of its logical flow's UUID, and the hint of a
/// logical flow the first 32 of its ACL's. What stands for several ACLs is left out.
fn cookies(north: &Database, south: &Database) -> HashMap<u32, Uuid> {
    let mut by_hint: HashMap<u32, Option<Uuid>> = HashMap::new();
    for (id, _) in north.rows(ACL) {
        let acl = by_hint.entry(first(id)).or_insert(Some(id));
        if *acl != Some(id) {
            *acl = None;
        }
    }
    let mut cookies: HashMap<u32, Option<Uuid>> = HashMap::new();
    for (id, row) in south.rows(FLOW) {
        let acl = acl_hint(row).and_then(|hint| by_hint.get(&hint).copied().flatten());
        let there = cookies.entry(first(id)).or_insert(acl);
        if *there != acl {
            *there = None;
        }
    }
    let cookies = cookies.into_iter();
    cookies
        .filter_map(|(cookie, acl)| Some((cookie, acl?)))
        .collect()
}

/// The first 32 bits.
fn first(id: Uuid) -> u32 {
    id.as_fields().0
}

/// The hint of a logical flow that an ACL made.
fn acl_hint(row: &Row) -> Option<u32> {
    let stage = row.text_at("external_ids", "stage-name")?;
    if !stage.contains("acl") {
        return None;
    }
    u32::from_str_radix(row.text_at("external_ids", "stage-hint")?, 16).ok()
}
