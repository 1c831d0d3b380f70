//! Which interfaces belong together: the edges between them.
//!
//! An edge is made when both ends are known. An interface whose other end is not, waits for it: by the
//! end's place when that is known, else until there are other namespaces.

use super::{engine::Engine, interface::State};
use skua_link::namespace_id;
use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

/// Number of the namespace and index of the interface.
pub(super) type LinkKey = (u16, u32);

/// Relation of an edge from an owner to what it owns.
pub(crate) const OWNERSHIP: &str = "ownership";
/// Relation of an edge along which frames go.
pub(super) const LAYER2: &str = "layer2";

/// The edges that an interface answers for, and where it waits for others.
#[derive(Debug, Default)]
pub(super) struct Edges {
    /// From what it is a port of.
    master: Option<Arc<str>>,
    /// From the interface below it, or between the ends of a pair.
    lower: Option<Arc<str>>,
    /// Interfaces that it waits for.
    waits: Vec<LinkKey>,
    /// The namespace of its other end.
    pub link_space: Option<u16>,
}

/// Interfaces that wait for their other end.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// By the interface that is missing.
    by_key: HashMap<LinkKey, BTreeSet<LinkKey>>,
    /// For a namespace that is not known.
    for_spaces: BTreeSet<LinkKey>,
}

#[derive(Clone, Copy)]
enum Slot {
    Master,
    Lower,
}

impl Engine {
    /// Makes the edges of an interface those that it should have, where the other ends exist.
    pub(super) fn relate(&mut self, key: LinkKey) {
        self.stop_waiting(key);
        let Some(state) = self.state(key) else {
            return;
        };
        let (pair, kind) = (state.is_pair(), state.kind().to_owned());
        let link = &state.interface.link;
        let (index, master, id) = (link.ifindex, link.master, link.link_netnsid);
        let lower = state.lower();

        let master = master.map(|master| (key.0, master));
        let present = master.filter(|master| self.state(*master).is_some());
        self.set_edge(key, Slot::Master, present.map(|master| (master, key, None)));
        if let Some(master) = master.filter(|_| present.is_none()) {
            self.wait(key, master);
        }

        let space = self.space_of(key.0, id);
        if let Some(state) = self.state_mut(key) {
            state.edges.link_space = space;
        }
        let lower = lower.filter(|lower| id.is_some() || *lower != index);
        match (lower, space) {
            (None, _) => self.set_edge(key, Slot::Lower, None),
            (Some(_), None) => {
                self.set_edge(key, Slot::Lower, None);
                self.waiting.for_spaces.insert(key);
            }
            (Some(lower), Some(space)) => {
                let other = (space, lower);
                if self.state(other).is_none() {
                    self.set_edge(key, Slot::Lower, None);
                    self.wait(key, other);
                } else if pair {
                    self.pair(key, other);
                } else {
                    self.set_edge(key, Slot::Lower, Some((other, key, Some(&kind))));
                }
            }
        }
    }

    /// The edge between both ends of a pair: as in Skydive it goes out of the one with the larger
    /// index; where they are equal, out of the one in the namespace with the larger inode.
    fn pair(&mut self, key: LinkKey, other: LinkKey) {
        if !self.state(other).is_some_and(|state| state.is_pair()) {
            return;
        }
        let order = |engine: &Self, key: LinkKey| {
            let inode = engine.spaces.get(&key.0).map_or(0, |space| space.inode);
            (key.1, inode)
        };
        let (parent, child) = if order(self, key) > order(self, other) {
            (key, other)
        } else {
            (other, key)
        };
        self.set_edge(child, Slot::Lower, None);
        self.set_edge(parent, Slot::Lower, Some((parent, child, Some("veth"))));
        // The kernel does not report an end when the other one has come or has moved.
        let says = self.state(other).map(|state| {
            let link = &state.interface.link;
            (link.link, link.link_netnsid)
        });
        let points_here = says.is_some_and(|(index, id)| {
            index == Some(key.1) && self.space_of(other.0, id) == Some(key.0)
        });
        if !points_here {
            self.refresh_other_end(other);
        }
    }

    /// The other end of a pair. The end that is made first does not know it, and may move before it is read
    /// again; then the other one does.
    pub(super) fn other_end(&self, key: LinkKey, state: &State) -> Option<LinkKey> {
        if let Some(index) = state.interface.link.link {
            return Some((state.edges.link_space?, index));
        }
        let mut links = self.spaces.get(&key.0)?.links.iter();
        let at_it = |state: &State| {
            state.is_pair()
                && state.edges.link_space == Some(key.0)
                && state.interface.link.link == Some(key.1)
        };
        links.find_map(|(index, state)| at_it(state).then_some((key.0, *index)))
    }

    /// Reads again where the other end of a pair is.
    pub(super) fn refresh_other_end(&mut self, key: LinkKey) {
        let Some(now) = self
            .spaces
            .get_mut(&key.0)
            .and_then(|s| s.read_interface(key.1))
        else {
            return;
        };
        let id = now.link.link_netnsid;
        let space = self.space_of(key.0, id);
        let Some(state) = self.state_mut(key) else {
            return;
        };
        state.interface.link.link = now.link.link;
        state.interface.link.link_netnsid = id;
        state.edges.link_space = space;
        if space.is_none() {
            self.waiting.for_spaces.insert(key);
        }
        self.write(key);
    }

    /// A namespace has got or lost an identifier in another one: relates the interfaces again that have their
    /// other end there.
    pub(super) fn namespace_id_changed(&mut self, within: u16, id: i32) {
        let Some(space) = self.spaces.get_mut(&within) else {
            return;
        };
        let known = space.known_ids.remove(&id).is_some();
        let unknown = space.unknown_ids.remove(&id);
        if !known && !unknown {
            return;
        }
        let links = space.links.iter();
        let there = links.filter(|(_, state)| state.interface.link.link_netnsid == Some(id));
        let keys: Vec<LinkKey> = there.map(|(ifindex, _)| (within, *ifindex)).collect();
        for key in keys {
            self.relate(key);
            self.write(key);
        }
    }

    /// Interfaces whose other end is in this namespace.
    pub(super) fn linked_to(&self, number: u16) -> Vec<LinkKey> {
        let links = self.spaces.iter().flat_map(|(within, space)| {
            let links = space.links.iter();
            links.map(|(ifindex, state)| ((*within, *ifindex), state.edges.link_space))
        });
        let there = links.filter(|((within, _), at)| *within != number && *at == Some(number));
        there.map(|(key, _)| key).collect()
    }

    /// Gives the interfaces that waited for a new one their edges.
    pub(super) fn arrived(&mut self, key: LinkKey) {
        for waiter in self.waiting.by_key.remove(&key).unwrap_or_default() {
            self.relate(waiter);
            self.write(waiter);
        }
    }

    /// Tries those again that wait for a namespace.
    pub(super) fn relate_across(&mut self) {
        for key in std::mem::take(&mut self.waiting.for_spaces) {
            self.relate(key);
            self.write(key);
        }
    }

    /// The number of the namespace of an interface's other end.
    fn space_of(&mut self, within: u16, id: Option<i32>) -> Option<u16> {
        match id {
            Some(id) => self.resolve(within, id),
            None => Some(within),
        }
    }

    /// The number of the namespace that has an identifier in another one, none before it is followed.
    fn resolve(&mut self, within: u16, id: i32) -> Option<u16> {
        let number = self.number_of(within, id)?;
        self.spaces.contains_key(&number).then_some(number)
    }

    fn number_of(&mut self, within: u16, id: i32) -> Option<u16> {
        let space = self.spaces.get_mut(&within)?;
        if let Some(number) = space.known_ids.get(&id) {
            return Some(*number);
        }
        if id < 0 || space.unknown_ids.contains(&id) {
            return None;
        }
        // The newest first: it is mostly a namespace that has just come.
        for namespace in self.namespaces.list().iter().rev() {
            let number = namespace.number;
            if space.known_ids.values().any(|known| *known == number) {
                continue;
            }
            if let Ok(Some(found)) = namespace_id(&mut space.sockets.requests, namespace) {
                space.known_ids.insert(found, number);
                if found == id {
                    return Some(number);
                }
            }
        }
        space.unknown_ids.insert(id);
        None
    }

    fn set_edge(
        &mut self,
        key: LinkKey,
        slot: Slot,
        edge: Option<(LinkKey, LinkKey, Option<&str>)>,
    ) {
        let ends = edge.and_then(|(parent, child, kind)| {
            let parent = self.state(parent)?.id.clone();
            Some((parent, self.state(child)?.id.clone(), kind))
        });
        let Some(old) = self
            .state_mut(key)
            .map(|state| state.edges.slot(slot).take())
        else {
            return;
        };
        let new = ends
            .and_then(|(parent, child, kind)| self.writer.add_edge(&parent, &child, LAYER2, kind));
        if let Some(old) = old.filter(|old| Some(old) != new.as_ref()) {
            self.writer.remove_edge(&old);
        }
        if let Some(state) = self.state_mut(key) {
            *state.edges.slot(slot) = new;
        }
    }

    fn wait(&mut self, key: LinkKey, missing: LinkKey) {
        self.waiting.by_key.entry(missing).or_default().insert(key);
        if let Some(state) = self.state_mut(key) {
            state.edges.waits.push(missing);
        }
    }

    /// Forgets that an interface waits.
    pub(super) fn stop_waiting(&mut self, key: LinkKey) {
        self.waiting.for_spaces.remove(&key);
        let waits = self
            .state_mut(key)
            .map(|s| std::mem::take(&mut s.edges.waits));
        for missing in waits.unwrap_or_default() {
            if let Some(waiters) = self.waiting.by_key.get_mut(&missing) {
                waiters.remove(&key);
                if waiters.is_empty() {
                    self.waiting.by_key.remove(&missing);
                }
            }
        }
    }
}

impl Edges {
    fn slot(&mut self, slot: Slot) -> &mut Option<Arc<str>> {
        match slot {
            Slot::Master => &mut self.master,
            Slot::Lower => &mut self.lower,
        }
    }
}
