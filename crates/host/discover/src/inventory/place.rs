//! Nodes of other writers: the host, namespaces, interfaces.

use skua_link::{Namespace, NamespaceId};
use skua_topology::{Graph, IndexKey, Lookup, Map, Node, Patch, Scan, SharedGraph, Value};
use std::{collections::HashMap, ops::ControlFlow, os::unix::fs::MetadataExt as _, sync::Arc};

use crate::{counters, counters::Shared, writer::now_ms};

/// Nodes that are read under one lock.
const PART: usize = 1_024;

/// A network namespace that has a node: the host's own, or another.
#[derive(Debug)]
pub(super) struct Space {
    pub node: Arc<str>,
    pub inode: u64,
    own: bool,
    path: Option<Arc<str>>,
}

impl Space {
    /// The namespace, held by the value; none when it has ended or another has its place.
    pub fn open(&self) -> Option<Namespace> {
        if self.own {
            return Namespace::own().ok();
        }
        let path = self.path.as_deref()?;
        let file = std::fs::File::open(path).ok()?;
        let found = file.metadata().ok()?;
        let id = NamespaceId {
            device: found.dev(),
            inode: found.ino(),
        };
        (id.inode == self.inode).then(|| Namespace {
            // Any but that of our own.
            number: 1,
            name: path.to_owned(),
            id,
            file: file.into(),
        })
    }
}

/// Visits the present nodes of a host.
fn visit(graph: &SharedGraph, host: &str, lookup: Lookup<'_>, mut take: impl FnMut(&Arc<Node>)) {
    let mut from = 0;
    loop {
        let graph = graph.read();
        let now = graph.now();
        let part = graph.scan_nodes(now, lookup, from, PART, &mut |node, _| {
            if &*node.host == host {
                take(node);
            }
            ControlFlow::Continue(())
        });
        match part {
            Ok(Scan::More(next)) => from = next,
            _ => return,
        }
    }
}

/// The present nodes of a host of one type.
pub(super) fn of_type(graph: &SharedGraph, host: &str, kind: &str) -> Vec<Arc<Node>> {
    let mut found = Vec::new();
    if let Some(key) = IndexKey::of(&Value::from(kind)) {
        visit(graph, host, Lookup::Key("Type", &key), |node| {
            found.push(node.clone());
        });
    }
    found
}

/// The namespaces of a host by inode number.
pub(super) fn spaces(graph: &SharedGraph, host: &str) -> HashMap<u64, Space> {
    let mut found = HashMap::new();
    for (kind, own) in [("netns", false), ("host", true)] {
        for node in of_type(graph, host, kind) {
            let Some(inode) = number(&node, "NetNsInode") else {
                continue;
            };
            let path = match node.metadata.get("Path") {
                Some(Value::Str(path)) => Some(path.clone()),
                _ => None,
            };
            let space = Space {
                node: node.id.clone(),
                inode,
                own,
                path,
            };
            found.insert(inode, space);
        }
    }
    found
}

/// The interfaces of a host, by the inode number of their namespace.
pub(super) fn interfaces(graph: &SharedGraph, host: &str) -> HashMap<u64, Vec<Arc<Node>>> {
    let mut found: HashMap<u64, Vec<Arc<Node>>> = HashMap::new();
    visit(graph, host, Lookup::All, |node| {
        if let (Some(inode), Some(_)) = (number(node, "NetNsInode"), number(node, "IfIndex")) {
            found.entry(inode).or_default().push(node.clone());
        }
    });
    found
}

/// A number that is not negative.
pub(super) fn number(node: &Node, key: &str) -> Option<u64> {
    let value = node.metadata.get(key)?.as_int()?;
    u64::try_from(value).ok()
}

/// A text.
pub(super) fn text<'a>(node: &'a Node, key: &str) -> &'a str {
    let value = node.metadata.get(key).and_then(Value::as_str);
    value.unwrap_or_default()
}

/// Has a node of others show a value under a key, or none; what is so already is not written.
pub(super) fn show(
    graph: &SharedGraph,
    shared: &Shared,
    id: &str,
    key: &str,
    value: Option<Value>,
) {
    let is_so = |graph: &Graph| {
        let node = graph.current_node(id);
        node.is_none_or(|node| node.metadata.get(key) == value.as_ref())
    };
    if is_so(&graph.read()) {
        return;
    }
    let mut graph = graph.write();
    // The node may have been removed meanwhile.
    if is_so(&graph) {
        return;
    }
    let patch = match &value {
        Some(value) => Patch::Set(key.into(), value.clone()),
        None => Patch::Remove(key.into()),
    };
    if let Err(error) = graph.patch_node(id, &[patch], now_ms()) {
        drop(graph);
        counters::add(&shared.errors, 1);
        tracing::debug!(%error, key, "the graph refused a change");
    }
}

/// Removes a key from all nodes of a host, which an earlier run left there.
pub(super) fn clear(graph: &SharedGraph, shared: &Shared, host: &str, key: &str) {
    let mut having = Vec::new();
    visit(graph, host, Lookup::All, |node| {
        if node.metadata.get(key).is_some() {
            having.push(node.id.clone());
        }
    });
    for id in having {
        show(graph, shared, &id, key, None);
    }
}

/// Metadata from pairs.
pub(super) fn map<const N: usize>(entries: [(&str, Value); N]) -> Map {
    map_of(entries.map(|(name, value)| (name, Some(value))))
}

/// Metadata from pairs, without those that have no value.
pub(super) fn map_of<const N: usize>(entries: [(&str, Option<Value>); N]) -> Map {
    let entries = entries.into_iter();
    Map::new(
        entries
            .filter_map(|(name, value)| Some((Arc::from(name), value?)))
            .collect(),
    )
}

/// A text as metadata, when there is one.
pub(super) fn some(text: Option<&str>) -> Option<Value> {
    text.map(Value::from)
}

/// A number as metadata.
pub(super) fn int(number: impl TryInto<i64>) -> Value {
    Value::Int(number.try_into().unwrap_or(i64::MAX))
}
