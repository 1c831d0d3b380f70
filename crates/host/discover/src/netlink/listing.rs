//! Lists what the kernel does not announce, and everything when notifications were lost.

use super::{
    engine::{Engine, MOST_ROUNDS, MOST_WAITING, READ_AT_ONCE},
    events::add_address,
    neighbours::Neighbours,
    routes::{Routes, Touched},
    space::{Features, Listing, Sockets, Space},
};
use crate::{DiscoveryConfig, counters, writer};
use skua_link::RouteEvent;
use std::{collections::HashSet, time::Instant};

impl Engine {
    /// Lists a namespace, and makes the graph what it is.
    pub(super) fn list(&mut self, number: u16) {
        let Some(space) = self.spaces.get_mut(&number) else {
            return;
        };
        let begun = Instant::now();
        let listed = space.list(&self.config);
        space.resync.finished(begun);
        match listed {
            Ok(listing) => {
                if !listing.consistent {
                    space.resync.request(Instant::now());
                }
                self.apply_listing(number, listing);
            }
            Err(error) => {
                space
                    .resync
                    .request(Instant::now() + self.config.neighbour_interval);
                self.failed("cannot list a network namespace", &error);
            }
        }
    }

    pub(super) fn apply_listing(&mut self, number: u16, mut listing: Listing) {
        counters::add(&self.counters.omitted_entries, listing.omitted);
        let Some(space) = self.spaces.get_mut(&number) else {
            return;
        };
        space.routes = std::mem::replace(&mut listing.routes, Routes::new(0));
        let here: HashSet<u32> = listing.interfaces.iter().map(|i| i.link.ifindex).collect();
        let known = space.links.keys().copied();
        let gone: Vec<u32> = known.filter(|ifindex| !here.contains(ifindex)).collect();
        for ifindex in gone {
            self.link_removed((number, ifindex), true);
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

    /// Lists what a namespace's kernel did not announce or what was lost.
    pub(super) fn repair(&mut self, number: u16, now: Instant) {
        let Some(space) = self.spaces.get_mut(&number) else {
            return;
        };
        if space.resync.take_due(now) {
            counters::add(&self.counters.resyncs, 1);
            let emptied = self.read_out(number);
            let broken = self.spaces.get(&number).is_some_and(|space| space.broken);
            if broken && !self.reopen(number) {
                return;
            }
            self.list(number);
            if !emptied && let Some(space) = self.spaces.get_mut(&number) {
                space.resync.request(Instant::now());
            }
            return;
        }
        if space.list_routes.take_due(now) {
            match space.listed_routes(self.config.max_routes) {
                Ok((routes, omitted)) => {
                    let before = space.routes.interfaces();
                    space.routes = routes;
                    space.list_routes.finished(now);
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
        if space.check_routes.take_due(now) {
            let checked = space.remove_missing_routes();
            space.check_routes.finished(now);
            match checked {
                Ok(()) => self.drop_missing_routes(number),
                Err(error) => self.failed("cannot list routes", &error),
            }
        }
        let Some(space) = self.spaces.get_mut(&number) else {
            return;
        };
        if space.list_vlans.take_due(now) {
            match space.listed_vlans() {
                Ok(mut vlans) => {
                    space.list_vlans.finished(now);
                    let mut changed = Vec::new();
                    for (ifindex, state) in &mut space.links {
                        let new = vlans.remove(ifindex).unwrap_or_default();
                        if state.vlans != new {
                            state.vlans = new;
                            changed.push((number, *ifindex));
                        }
                    }
                    if !changed.is_empty() {
                        space.list_forwarding.request(Instant::now());
                    }
                    for key in changed {
                        self.write(key);
                    }
                }
                Err(error) => self.failed("cannot list VLANs", &error),
            }
        }
        let Some(space) = self.spaces.get_mut(&number) else {
            return;
        };
        if space.list_forwarding.take_due(Instant::now()) {
            self.list_forwarding(number, Instant::now());
        }
    }

    /// Reads all queued events before a listing: they are older than it, and would be applied after it. The
    /// kernel sends nothing, not even that more is lost, until a queue that was full is empty
    /// (`netlink_overrun`). False: there is always more.
    fn read_out(&mut self, number: u16) -> bool {
        (0..MOST_WAITING).any(|_| !self.read(number, READ_AT_ONCE))
    }

    /// Lists the forwarding tables again: when a port leaves its bridge or one of its VLANs, its own
    /// address becomes the bridge's, which the kernel does not announce.
    fn list_forwarding(&mut self, number: u16, begun: Instant) {
        let Some(space) = self.spaces.get_mut(&number) else {
            return;
        };
        let most = self.config.max_forwarding;
        let listed = space.listed_forwarding(most);
        space.list_forwarding.finished(begun);
        match listed {
            Ok((mut tables, omitted)) => {
                counters::add(&self.counters.omitted_entries, omitted);
                let mut changed = Vec::new();
                for (ifindex, state) in &mut space.links {
                    let new = tables.remove(ifindex);
                    let mut new = new.unwrap_or_else(|| Neighbours::new(most));
                    if new.value() != state.forwarding.value() {
                        changed.push((number, *ifindex));
                    }
                    state.forwarding = new;
                }
                for key in changed {
                    self.write(key);
                }
            }
            Err(error) => self.failed("cannot list forwarding tables", &error),
        }
    }

    /// Removes routes that were dropped without notice. The notice of others may still be queued: these are
    /// removed in their turn, so that the history has the right order.
    pub(super) fn drop_missing_routes(&mut self, number: u16) {
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
            return space.check_routes.request(Instant::now());
        }
        let touched = space.routes.drop_all(&gone);
        if space.routes.wants_listing() {
            space.list_routes.request(Instant::now());
        }
        self.write_routes(number, &touched);
    }

    /// Opens the sockets of a namespace again.
    pub(super) fn reopen(&mut self, number: u16) -> bool {
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
                    .request(Instant::now() + self.config.neighbour_interval);
                self.failed("cannot follow a network namespace", &error);
                false
            }
        }
    }

    /// Reads the counters of all interfaces, and what else the kernel does not announce; adds interfaces
    /// that exceeded the limit before.
    pub(super) fn count(&mut self) {
        let now = writer::now_ms();
        let numbers: Vec<u16> = self.spaces.keys().copied().collect();
        for number in numbers {
            let room = !self.writer.is_full();
            let Some(space) = self.spaces.get_mut(&number) else {
                continue;
            };
            let links = &mut space.links;
            let (mut changed, mut unknown) = (Vec::new(), Vec::new());
            let result = skua_link::Dump::Links.request(&mut space.sockets.requests, |event| {
                let RouteEvent::Link(interface) = event else {
                    return;
                };
                let ifindex = interface.link.ifindex;
                let Some(state) = links.get_mut(&ifindex) else {
                    return unknown.push(*interface);
                };
                let counted = state.count(interface.counters, now);
                if state.update_unannounced(*interface) || counted {
                    changed.push((number, ifindex));
                }
            });
            for key in changed {
                self.write(key);
            }
            if let Err(error) = result {
                self.failed("cannot read counters", &error);
            } else if room && self.left_out {
                for interface in unknown {
                    self.link_updated(number, interface);
                }
            }
        }
    }
}

/// Sets an interface's properties from a listing; returns how many addresses exceeded the limit.
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
