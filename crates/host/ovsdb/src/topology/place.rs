//! Which node, of those that the discovery of links makes, an interface of the database is.
//!
//! In Open vSwitch's own network namespace that is the one of its name. An internal port may be in another:
//! Neutron moves it there. Open vSwitch does not see it any more then, and with the userspace datapath its row has
//! neither MAC nor ifIndex. It is taken for a node elsewhere when all of this is so:
//!
//! - the row is an internal port, and the node a tap or an interface of Open vSwitch's driver;
//! - the node is the one that it was before; or has a MAC that the row has or had, with the row's name (the MAC
//!   may be what `external_ids:attached-mac` says) or with the ifIndex that it had; or its name, when no MAC is
//!   known and Open vSwitch's driver made it, or `ovs-vswitchd` holds a tap of this name;
//! - no other node is so, and no other row has the node.

use super::state::{Key, Kind, State};
use crate::Row;
use skua_topology::{Graph, IndexKey, Lookup, Node, Value};
use std::{
    collections::{BTreeSet, HashMap, HashSet},
    fs,
    ops::ControlFlow,
    sync::Arc,
};
use uuid::Uuid;

/// Driver of the kernel's datapath, as ethtool has it.
const DRIVER: &str = "openvswitch";
/// Driver of taps, which are internal ports of the userspace datapath.
const TAP: &str = "tun";
/// Types of the nodes of both, and what they become as internal ports.
const TYPES: [&str; 3] = ["tuntap", DRIVER, "internal"];
/// The switch's process.
const SWITCH: &str = "ovs-vswitchd";
/// Where Neutron writes the MAC that a port has, or will have.
const ATTACHED_MAC: &str = "attached-mac";

/// By what an interface is known again when it is elsewhere.
#[derive(Default)]
pub(super) struct Places {
    marks: HashMap<Uuid, Marks>,
    by_mac: HashMap<Box<str>, BTreeSet<Uuid>>,
    /// The nodes in other namespaces that rows have.
    elsewhere: HashMap<Uuid, Arc<str>>,
}

#[derive(Default, PartialEq)]
struct Marks {
    /// That it had when it was last seen.
    mac: Option<Box<str>>,
    ifindex: Option<i64>,
    /// That somebody says it has.
    attached: Option<Box<str>>,
}

impl Marks {
    fn macs(&self) -> impl Iterator<Item = &str> {
        self.mac
            .iter()
            .chain(&self.attached)
            .map(|mac| mac.as_ref())
    }
}

fn lower(mac: &str) -> Box<str> {
    mac.to_ascii_lowercase().into()
}

pub(super) fn is_internal(row: &Row) -> bool {
    row.text("type") == Some("internal")
}

impl Places {
    /// A row is so now; another name means another interface.
    pub fn row_changed(&mut self, id: Uuid, row: Option<&Row>, renamed: bool) {
        let before = self.unmark(id);
        if renamed || row.is_none() {
            self.elsewhere.remove(&id);
        }
        let Some(row) = row.filter(|row| is_internal(row)) else {
            self.elsewhere.remove(&id);
            return;
        };
        let mut marks = match before {
            Some(before) if !renamed => before,
            _ => Marks::default(),
        };
        if let Some(mac) = row.text("mac_in_use").filter(|mac| !mac.is_empty()) {
            marks.mac = Some(lower(mac));
            marks.ifindex = row.int("ifindex").filter(|index| *index > 0);
        }
        marks.attached = row.text_at("external_ids", ATTACHED_MAC).map(lower);
        self.mark(id, marks);
    }

    /// The node that a row has is so now.
    fn node_seen(&mut self, id: Uuid, node: &Node) {
        let Some(mut marks) = self.unmark(id) else {
            return;
        };
        if let Some(mac) = text(node, "MAC") {
            marks.mac = Some(lower(mac));
            marks.ifindex = number(node, "IfIndex");
        }
        self.mark(id, marks);
    }

    fn mark(&mut self, id: Uuid, marks: Marks) {
        for mac in marks.macs() {
            self.by_mac.entry(mac.into()).or_default().insert(id);
        }
        self.marks.insert(id, marks);
    }

    fn unmark(&mut self, id: Uuid) -> Option<Marks> {
        let marks = self.marks.remove(&id)?;
        for mac in marks.macs() {
            if let Some(rows) = self.by_mac.get_mut(mac) {
                rows.remove(&id);
                if rows.is_empty() {
                    self.by_mac.remove(mac);
                }
            }
        }
        Some(marks)
    }

    /// Rows with this MAC.
    fn with_mac(&self, mac: &str) -> impl Iterator<Item = Uuid> {
        self.by_mac.get(&*lower(mac)).into_iter().flatten().copied()
    }
}

fn text<'n>(node: &'n Node, key: &str) -> Option<&'n str> {
    node.metadata.get(key).and_then(Value::as_str)
}

fn number(node: &Node, key: &str) -> Option<i64> {
    node.metadata.get(key).and_then(Value::as_int)
}

impl State {
    /// The node that the discovery of links made of an interface.
    pub(super) fn kernel_node(&self, graph: &Graph, id: Uuid, row: &Row) -> Option<Arc<str>> {
        let name = row.text("name")?;
        let internal = is_internal(row);
        if internal && let Some(node) = self.still_elsewhere(graph, id) {
            return Some(node);
        }
        let mut here = None;
        let mut others = Vec::new();
        self.scan(graph, "Name", name, &mut |node| {
            if number(node, "NetNsInode") == Some(self.netns) {
                // Another driver's cannot be the internal port, whatever its name.
                let wrong = internal && text(node, "Driver").is_some() && !is_made_by_switch(node);
                if !wrong && here.is_none() {
                    here = Some(node.id.clone());
                }
            } else if internal {
                others.push(node.clone());
            }
        });
        if here.is_some() || !internal {
            return here;
        }
        self.node_elsewhere(graph, id, name, others)
    }

    fn still_elsewhere(&self, graph: &Graph, id: Uuid) -> Option<Arc<str>> {
        let node = self.places.elsewhere.get(&id)?;
        let there = graph.current_node(node)?;
        self.is_link(&there).then(|| node.clone())
    }

    /// `named` are the nodes of its name in other namespaces.
    fn node_elsewhere(
        &self,
        graph: &Graph,
        id: Uuid,
        name: &str,
        mut named: Vec<Arc<Node>>,
    ) -> Option<Arc<str>> {
        let marks = self.places.marks.get(&id)?;
        let has_mac = |node: &Node| {
            text(node, "MAC").is_some_and(|mac| marks.macs().any(|m| m.eq_ignore_ascii_case(mac)))
        };
        named.retain(|node| self.may_be_elsewhere(id, node));
        if marks.macs().next().is_none() {
            let drivers = text(named.first()?, "Driver");
            let held = || drivers == Some(DRIVER) || switch_holds(name);
            return only(&named).filter(|_| held());
        }
        named.retain(|node| has_mac(node));
        if named.is_empty() && marks.ifindex.is_some() {
            // It may have another name there.
            for kind in TYPES {
                self.scan(graph, "Type", kind, &mut |node| {
                    if number(node, "IfIndex") == marks.ifindex
                        && has_mac(node)
                        && self.may_be_elsewhere(id, node)
                    {
                        named.push(node.clone());
                    }
                });
            }
        }
        only(&named)
    }

    fn may_be_elsewhere(&self, id: Uuid, node: &Node) -> bool {
        let other = self.by_node.get(&node.id);
        number(node, "NetNsInode").is_some_and(|inode| inode != self.netns)
            && is_made_by_switch(node)
            && other.is_none_or(|key| *key == (Kind::Interface, id))
    }

    fn scan(&self, graph: &Graph, key: &str, value: &str, sink: &mut dyn FnMut(&Arc<Node>)) {
        let Some(value) = IndexKey::of(&Value::from(value)) else {
            return;
        };
        let lookup = Lookup::Key(key, &value);
        let _ = graph.scan_nodes(graph.now(), lookup, 0, usize::MAX, &mut |node, _| {
            if self.is_link(node) {
                sink(node);
            }
            ControlFlow::Continue(())
        });
    }

    /// Whether the discovery of links made it, of an interface of this host.
    pub(super) fn is_link(&self, node: &Node) -> bool {
        *node.host == *self.config.host
            && node.origin != self.origin
            && number(node, "NetNsInode").is_some()
            && number(node, "IfIndex").is_some()
    }

    /// Notes which node an interface has.
    pub(super) fn placed(&mut self, graph: &Graph, key: Key, node: Option<&Arc<str>>) {
        let (Kind::Interface, id) = key else { return };
        let there = node.and_then(|node| graph.current_node(node));
        let Some(there) = there else {
            self.places.elsewhere.remove(&id);
            return;
        };
        if number(&there, "NetNsInode") == Some(self.netns) {
            self.places.elsewhere.remove(&id);
        } else {
            self.places.elsewhere.insert(id, there.id.clone());
        }
        self.places.node_seen(id, &there);
    }

    /// Interfaces that a node may be because of its MAC.
    pub(super) fn rows_with_mac(&self, node: &Node) -> HashSet<Uuid> {
        match text(node, "MAC") {
            Some(mac) if is_made_by_switch(node) => self.places.with_mac(mac).collect(),
            _ => HashSet::new(),
        }
    }
}

fn is_made_by_switch(node: &Node) -> bool {
    matches!(text(node, "Driver"), Some(DRIVER | TAP))
}

fn only(nodes: &[Arc<Node>]) -> Option<Arc<str>> {
    match nodes {
        [node] => Some(node.id.clone()),
        _ => None,
    }
}

/// Whether a process of Open vSwitch holds a tap of this name, wherever that is.
fn switch_holds(name: &str) -> bool {
    let holds = |folder: &fs::DirEntry| {
        let folder = folder.path();
        let comm = fs::read_to_string(folder.join("comm")).unwrap_or_default();
        if comm.trim_end() != SWITCH {
            return false;
        }
        let descriptors = fs::read_dir(folder.join("fdinfo"));
        let descriptors = descriptors.into_iter().flatten().flatten();
        descriptors.into_iter().any(|file| {
            let text = fs::read_to_string(file.path()).unwrap_or_default();
            let held = text.lines().find_map(|line| line.strip_prefix("iff:"));
            held.map(str::trim) == Some(name)
        })
    };
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes
        .filter(|entry| {
            let name = entry.file_name();
            name.as_encoded_bytes().iter().all(u8::is_ascii_digit)
        })
        .any(|entry| holds(&entry))
}
