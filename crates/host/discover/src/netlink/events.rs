//! Events of the kernel, applied one by one.

use super::{
    engine::{Engine, IFF_UP},
    interface::State,
    neighbours::Changed,
    relations::LinkKey,
};
use crate::counters;
use skua_link::{Address, EthtoolEvent, Interface, Link, Neighbour, RouteEvent};
use std::time::Instant;

impl Engine {
    /// Reads and applies the events of a namespace's monitor. True: there may be more.
    pub(super) fn read(&mut self, number: u16, most: usize) -> bool {
        let Some(space) = self.spaces.get_mut(&number) else {
            return false;
        };
        let mut events = Vec::new();
        let mut events_read = 0;
        let read = space.sockets.monitor.read(most, |notice| {
            events_read += 1;
            events.extend(RouteEvent::decode(notice));
        });
        counters::add(&self.counters.events, events_read);
        for event in events {
            self.apply(number, event);
        }
        match read {
            Ok(all) => !all,
            Err(error) => {
                self.failed("cannot follow a network namespace", &error);
                if let Some(space) = self.spaces.get_mut(&number) {
                    space.broken = true;
                    space.resync.request(Instant::now());
                }
                false
            }
        }
    }

    /// Reads and applies the notifications of ethtool in a namespace.
    pub(super) fn read_ethtool(&mut self, number: u16, most: usize) {
        let Some(space) = self.spaces.get_mut(&number) else {
            return;
        };
        let Some(monitor) = &mut space.sockets.ethtool_monitor else {
            return;
        };
        let mut events = Vec::new();
        let mut events_read = 0;
        let read = monitor.read(most, |notice| {
            events_read += 1;
            events.extend(EthtoolEvent::decode(notice));
        });
        if read.is_err() {
            // Features are then as they were when the link changed last.
            space.sockets.ethtool_monitor = None;
        }
        counters::add(&self.counters.events, events_read);
        for event in events {
            let Some(space) = self.spaces.get_mut(&number) else {
                return;
            };
            let ifindex = match event {
                EthtoolEvent::Lost => {
                    counters::add(&self.counters.lost, 1);
                    space.resync.request(Instant::now());
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
    pub(super) fn apply(&mut self, number: u16, event: RouteEvent) {
        let now = Instant::now();
        let Some(space) = self.spaces.get_mut(&number) else {
            return;
        };
        match event {
            RouteEvent::Link(interface) => self.link_updated(number, *interface),
            RouteEvent::LinkRemoved { ifindex, moved } => {
                self.link_removed((number, ifindex), moved)
            }
            RouteEvent::PortVlans { ifindex, vlans } => {
                let Some(state) = space.links.get_mut(&ifindex) else {
                    return;
                };
                match vlans {
                    Some(vlans) => {
                        if state.vlans != vlans {
                            space.list_forwarding.request(now);
                        }
                        state.vlans = vlans;
                    }
                    // Either it is not about VLANs, or the last VLAN was removed.
                    None if state.vlans.is_empty() => return,
                    None => return space.list_vlans.request(now),
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
            RouteEvent::AddressRemoved(address) => {
                // The kernel may have removed routes that send from it.
                space.check_routes.request(now);
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
            RouteEvent::RouteRemoved(route) => {
                let (touched, unclear) = space.routes.remove(&route);
                if unclear || space.routes.wants_listing() {
                    space.list_routes.request(now);
                }
                self.write_routes(number, &touched);
            }
            RouteEvent::Neighbour(neighbour) => self.neighbour(number, neighbour, true),
            RouteEvent::NeighbourRemoved(neighbour) => self.neighbour(number, neighbour, false),
            RouteEvent::NamespaceId(id) => self.namespace_id_changed(number, id),
            RouteEvent::NextHops => {
                space.list_routes.request(now);
            }
            RouteEvent::Lost => {
                counters::add(&self.counters.lost, 1);
                space.resync.request(now);
            }
        }
    }

    pub(super) fn neighbour(&mut self, number: u16, neighbour: Neighbour, here: bool) {
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
                space.resync.request(now);
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
            space.resync.request(now);
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
    pub(super) fn write_neighbours(&mut self, key: LinkKey, now: Instant) {
        if let Some(state) = self.state_mut(key) {
            state.written = Some(now);
        }
        self.write(key);
    }

    /// An interface is there, or has changed.
    pub(super) fn link_updated(&mut self, number: u16, mut interface: Interface) {
        let key = (number, interface.link.ifindex);
        let Some(space) = self.spaces.get_mut(&number) else {
            return;
        };
        let Some(state) = space.links.get_mut(&key.1) else {
            let bridge = interface.link.kind.as_deref() == Some("bridge");
            let state = space.new_state(interface, &self.config);
            space.links.insert(key.1, state);
            if bridge {
                // The kernel does not report the VLANs that it begins with.
                space.list_vlans.request(Instant::now());
            }
            space.fill_new(key.1);
            space.ask_ethtool(key.1, Some(&mut self.features));
            if self.add_node(key) {
                self.connect(key);
            }
            return;
        };
        let was = &state.interface;
        if was.flags & IFF_UP != 0 && interface.flags & IFF_UP == 0 {
            // The kernel does not report the IPv4 routes that it drops now.
            space.check_routes.request(Instant::now());
        }
        if was.link.master != interface.link.master {
            // Its own address may become the bridge's, which the kernel does not report.
            space.list_forwarding.request(Instant::now());
        }
        let modes = (was.flags, was.operstate) != (interface.flags, interface.operstate);
        let deaf = space.sockets.ethtool_monitor.is_none();
        let other_end = |link: &Link| (link.link, link.link_netnsid);
        let stale = state.is_pair() && other_end(&was.link) != other_end(&interface.link);
        // The kernel announces no change of the other end, so where it was read last is newer than an
        // announcement that waited in the queue.
        if stale && let Some(now) = space.read_interface(key.1) {
            (interface.link.link, interface.link.link_netnsid) = other_end(&now.link);
        }
        let Some(state) = space.links.get_mut(&key.1) else {
            return;
        };
        state.interface = interface;
        if modes || deaf {
            let features = deaf.then_some(&mut self.features);
            space.ask_ethtool(key.1, features);
        }
        self.relate(key);
        self.write(key);
    }
}

/// True: the limit was reached.
pub(super) fn add_address(state: &mut State, address: Address, most: usize) -> bool {
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
