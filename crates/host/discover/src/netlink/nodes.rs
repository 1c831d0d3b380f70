//! Writes the nodes of namespaces and interfaces.

use super::{
    engine::{Engine, NAMESPACE_KEYS},
    interface::State,
    relations::{LinkKey, OWNERSHIP},
    routes::Touched,
    space::Space,
};
use crate::host;
use skua_link::{NAMED, Namespace};
use skua_topology::{Map, Value};
use std::{sync::Arc, time::Instant};

impl Engine {
    /// Makes the node of a known interface. False: the limit was reached.
    pub(super) fn add_node(&mut self, key: LinkKey) -> bool {
        let Some(space) = self.spaces.get_mut(&key.0) else {
            return false;
        };
        let identity = format!("{}/{}", space.identity, key.1);
        let Some(metadata) = link_metadata(space, key.1, None) else {
            return false;
        };
        let owner = space.node.clone();
        let Some(id) = self.writer.add_node(&identity, &self.keys, metadata) else {
            // It is tried again when counters are read.
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
    pub(super) fn connect(&mut self, key: LinkKey) {
        self.relate(key);
        let elsewhere = |state: &State| state.interface.link.link_netnsid.is_some();
        if self.state(key).is_some_and(elsewhere) {
            // The name of the other namespace is known now.
            self.write(key);
        }
        self.arrived(key);
    }

    /// Removes an interface that has left its namespace.
    pub(super) fn link_removed(&mut self, key: LinkKey, moved: bool) {
        let Some(state) = self.state(key) else {
            return;
        };
        // The kernel does not report the other end of a pair when this one has moved.
        let other = match moved && state.is_pair() {
            true => self.other_end(key, state),
            false => None,
        };
        self.remove_link(key);
        if let Some(space) = self.spaces.get_mut(&key.0)
            && !space.routes.interfaces().is_empty()
        {
            space.check_routes.request(Instant::now());
        }
        if let Some(other) = other {
            self.refresh_other_end(other);
        }
    }

    pub(super) fn remove_link(&mut self, key: LinkKey) {
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

    /// Writes an interface's node.
    pub(super) fn write(&mut self, key: LinkKey) {
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
    pub(super) fn write_routes(&mut self, number: u16, touched: &Touched) {
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
    pub(super) fn write_space(&mut self, number: u16) {
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
            more.extend(self.about_host.iter().cloned());
            let metadata = Map::new(more);
            self.writer.set_node(&space.node, host::KEYS, metadata);
        } else {
            let metadata = namespace_metadata(namespace, &space.tid, more);
            self.writer.set_node(&space.node, NAMESPACE_KEYS, metadata);
        }
    }
}

/// Metadata of the node of a namespace.
pub(super) fn namespace_metadata(
    namespace: &Namespace,
    tid: &Arc<str>,
    more: Vec<(Arc<str>, Value)>,
) -> Map {
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
