//! Switches and their ports that interfaces are wired to, as they say themselves by LLDP.

use super::{
    Common,
    place::{self, int, map_of, number, some, text},
    worker::Source,
};
use crate::{
    counters, ident,
    netlink::OWNERSHIP,
    writer::{Hangs, Writer},
};
use skua_afpacket::ProtocolListener;
use skua_link::Namespace;
use skua_packet::{ETHERTYPE_LLDP, Lldp, LldpId};
use skua_topology::{Map, Value};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    os::fd::{AsFd as _, BorrowedFd},
    sync::Arc,
    time::{Duration, Instant},
};

/// Name of this provider in `@Origin`.
pub(super) const NAME: &str = "lldp";
/// Nodes of switches and ports at most.
const MOST: usize = 4_096;
/// Neighbours at most that one interface hears.
const MOST_OF_INTERFACE: usize = 16;
/// Namespaces at most that are listened in.
const MOST_SPACES: usize = 1_024;
/// Frames that are read at a time from one namespace.
const AT_ONCE: usize = 64;
/// Bytes of a frame at most: as much as any interface takes.
const FRAME: usize = 9_216;
/// How often interfaces are listed at most.
const PAUSE: Duration = Duration::from_millis(500);
/// Time between readings at least.
const REST: Duration = Duration::from_millis(20);

const LAYER2: &str = "layer2";
const KEYS: &[&str] = &["Name", "Type", "TID", "Probe", "LLDP", "MTU"];

/// Groups that frames of LLDP are sent to: 802.1AB table 7-1.
const GROUPS: [[u8; 6]; 3] = [
    [0x01, 0x80, 0xc2, 0, 0, 0x0e],
    [0x01, 0x80, 0xc2, 0, 0, 0x03],
    [0x01, 0x80, 0xc2, 0, 0, 0x00],
];

/// A namespace that is listened in.
struct Listened {
    listener: ProtocolListener,
    /// Nodes of its interfaces by index; each has joined the groups.
    interfaces: HashMap<u32, Arc<str>>,
}

/// A node, with what was written last.
struct Written {
    node: Arc<str>,
    metadata: Map,
}

/// A port of a switch.
struct Port {
    switch: String,
    written: Written,
    /// To the switch.
    owner: Hangs,
    to_switch: Hangs,
    /// By node of the interface that hears it: until when, and the edge.
    heard: BTreeMap<Arc<str>, (Instant, Hangs)>,
}

/// Follows what is heard.
pub(super) struct Neighbours {
    common: Common,
    writer: Writer,
    spaces: HashMap<u64, Listened>,
    switches: HashMap<String, Written>,
    ports: HashMap<(String, String), Port>,
    listed: Option<Instant>,
    list_again: bool,
    earliest: Instant,
}

impl Neighbours {
    pub fn new(common: Common) -> Self {
        let mut writer = common.writer(NAME, MOST);
        // Who is still there says so again within its lifetime.
        writer.settle();
        Self {
            writer,
            common,
            spaces: HashMap::new(),
            switches: HashMap::new(),
            ports: HashMap::new(),
            listed: None,
            list_again: true,
            earliest: Instant::now(),
        }
    }

    /// Listens in all namespaces, and has all interfaces with Ethernet join the groups.
    fn list(&mut self) {
        let (graph, host) = (&self.common.graph, &self.common.host);
        let spaces = place::spaces(graph, host);
        let mut interfaces = place::interfaces(graph, host);
        self.spaces.retain(|inode, _| spaces.contains_key(inode));
        for (inode, space) in &spaces {
            if !self.spaces.contains_key(inode) {
                if self.spaces.len() >= MOST_SPACES {
                    continue;
                }
                let open = |namespace: Namespace| {
                    let opened = namespace.enter(|| ProtocolListener::open(ETHERTYPE_LLDP));
                    opened.ok()?.ok()
                };
                let Some(listener) = space.open().and_then(open) else {
                    counters::add(&self.common.counters.errors, 1);
                    continue;
                };
                let interfaces = HashMap::new();
                let listened = Listened {
                    listener,
                    interfaces,
                };
                self.spaces.insert(*inode, listened);
            }
            let Some(listened) = self.spaces.get_mut(inode) else {
                continue;
            };
            let mut now = HashMap::new();
            for node in interfaces.remove(inode).unwrap_or_default() {
                let index = number(&node, "IfIndex").and_then(|index| u32::try_from(index).ok());
                let ethernet = text(&node, "EncapType") == "ether";
                if let Some(index) = index.filter(|_| ethernet) {
                    now.insert(index, node.id.clone());
                }
            }
            for (index, node) in &now {
                if listened.interfaces.get(index) == Some(node) {
                    continue;
                }
                for group in GROUPS {
                    // One that has gone meanwhile hears nothing.
                    let _ = listened.listener.join(*index, group);
                }
            }
            listened.interfaces = now;
        }
        let alive: HashSet<Arc<str>> = self
            .spaces
            .values()
            .flat_map(|space| space.interfaces.values().cloned())
            .collect();
        self.forget(|interface, _| !alive.contains(interface));
    }

    /// Reads what has come.
    fn read(&mut self) {
        let mut buffer = [0; FRAME];
        let mut heard = Vec::new();
        for space in self.spaces.values() {
            for _ in 0..AT_ONCE {
                let received = match space.listener.receive(&mut buffer) {
                    Ok(Some(received)) => received,
                    Ok(None) => break,
                    // An interface went down: the next call reads on.
                    Err(_) => continue,
                };
                if received.direction.is_outgoing() {
                    continue;
                }
                let frame = Lldp::read(&buffer[..received.length]);
                let node = space.interfaces.get(&received.ifindex);
                match (frame, node) {
                    (Ok(frame), Some(node)) => heard.push((node.clone(), frame)),
                    // One that is not in the graph yet; its neighbour repeats what it says.
                    (Ok(_), None) => self.list_again = true,
                    (Err(error), _) => {
                        counters::add(&self.common.counters.errors, 1);
                        tracing::debug!(%error, "a frame of LLDP cannot be read");
                    }
                }
            }
        }
        for (interface, frame) in heard {
            self.hear(&interface, &frame);
        }
    }

    fn hear(&mut self, interface: &Arc<str>, frame: &Lldp) {
        let (Some(chassis), Some(port)) = (&frame.chassis, &frame.port) else {
            return;
        };
        let switch = switch_key(frame, chassis);
        let key = (switch.clone(), format!("{}/{}", port.kind, port.text));
        if frame.ttl == 0 {
            return self.forget_heard(&key, interface);
        }
        let known = self.ports.get(&key);
        let heard = known.is_some_and(|port| port.heard.contains_key(interface));
        let of_interface = |port: &&Port| port.heard.contains_key(interface);
        if !heard && self.ports.values().filter(of_interface).count() >= MOST_OF_INTERFACE {
            counters::add(&self.common.counters.omitted_nodes, 1);
            return;
        }
        let written = self.switches.remove(&switch);
        let metadata = self.switch_metadata(frame, chassis);
        let identity = format!("{NAME}/{switch}");
        let Some(of_switch) = write(&mut self.writer, written, &identity, metadata) else {
            return;
        };
        let (mut owner, mut to_switch, mut all, written) = match self.ports.remove(&key) {
            Some(known) => (
                known.owner,
                known.to_switch,
                known.heard,
                Some(known.written),
            ),
            None => (None, None, BTreeMap::new(), None),
        };
        let metadata = self.port_metadata(frame, port, &of_switch.metadata);
        let identity = format!("{NAME}/{switch}/{}", key.1);
        let of_port = write(&mut self.writer, written, &identity, metadata);
        let of_switch_node = of_switch.node.clone();
        self.switches.insert(switch.clone(), of_switch);
        let Some(of_port) = of_port else {
            return self.forget_unused(&switch);
        };
        let node = of_port.node.clone();
        let writer = &mut self.writer;
        writer.hang(&mut owner, &of_switch_node, &node, OWNERSHIP);
        writer.hang(&mut to_switch, &of_switch_node, &node, LAYER2);
        let until = Instant::now() + Duration::from_secs(frame.ttl.into());
        let place = all.entry(interface.clone()).or_insert((until, None));
        place.0 = until;
        // An edge goes from the port to the interface.
        let gone = |edge: &Arc<str>| self.common.graph.read().current_edge(edge).is_none();
        if place.1.as_ref().is_none_or(|(_, edge)| gone(edge)) {
            if let Some((_, edge)) = place.1.take() {
                writer.drop_edge(&edge);
            }
            let edge = writer.add_edge(&node, interface, LAYER2, None);
            place.1 = edge.map(|edge| (node, edge));
        }
        let port = Port {
            switch,
            written: of_port,
            owner,
            to_switch,
            heard: all,
        };
        self.ports.insert(key, port);
    }

    fn switch_metadata(&self, frame: &Lldp, chassis: &LldpId) -> Map {
        let name = frame.system_name.as_deref().unwrap_or(&chassis.text);
        let lldp = map_of([
            ("ChassisID", some(Some(&chassis.text))),
            ("ChassisIDType", some(Some(chassis.kind))),
            ("SysName", some(frame.system_name.as_deref())),
            ("Description", some(frame.system_description.as_deref())),
            ("MgmtAddress", some(frame.management.as_deref())),
        ]);
        let tid = ident::tid(&self.common.host_tid, name, "switch");
        map_of([
            ("Name", some(Some(name))),
            ("Type", some(Some("switch"))),
            ("TID", Some(Value::Str(tid))),
            ("Probe", some(Some(NAME))),
            ("LLDP", Some(lldp.into())),
        ])
    }

    fn port_metadata(&self, frame: &Lldp, port: &LldpId, switch: &Map) -> Map {
        let name = frame.port_description.as_deref().unwrap_or(&port.text);
        let known = |number: Option<u32>| number.filter(|number| *number != 0).map(int);
        let vlans = frame.vlan_names.iter().map(|(id, name)| {
            let vlan = [("ID", Some(int(*id))), ("Name", some(Some(name)))];
            Value::from(map_of(vlan))
        });
        let protocols = frame.protocol_vlans.iter().map(|vlan| {
            Value::from(map_of([
                ("Enabled", Some(vlan.enabled.into())),
                ("ID", Some(int(vlan.id))),
                ("Supported", Some(vlan.supported.into())),
            ]))
        });
        let list = |all: Vec<Value>| (!all.is_empty()).then(|| Value::List(all.into()));
        let aggregation = frame.aggregation.filter(|all| all.supported).map(|all| {
            Value::from(map_of([
                ("Enabled", Some(all.enabled.into())),
                ("PortID", known(Some(all.port))),
                ("Supported", Some(all.supported.into())),
            ]))
        });
        let lldp = map_of([
            ("PortID", some(Some(&port.text))),
            ("PortIDType", some(Some(port.kind))),
            ("Description", some(frame.port_description.as_deref())),
            ("PVID", known(frame.port_vlan.map(u32::from))),
            ("VIDUsageDigest", known(frame.vlan_digest)),
            ("ManagementVID", known(frame.management_vlan.map(u32::from))),
            ("VLANNames", list(vlans.collect())),
            ("PPVIDs", list(protocols.collect())),
            // Skydive writes it with three g.
            ("LinkAgggregation", aggregation),
            ("TTL", Some(int(frame.ttl))),
        ]);
        let owner = switch.get("TID").and_then(Value::as_str);
        let tid = ident::tid(owner.unwrap_or_default(), &port.text, "switchport");
        map_of([
            ("Name", some(Some(name))),
            ("Type", some(Some("switchport"))),
            ("TID", Some(Value::Str(tid))),
            ("Probe", some(Some(NAME))),
            ("LLDP", Some(lldp.into())),
            ("MTU", known(frame.longest_frame.map(u32::from))),
        ])
    }

    /// A neighbour said that it leaves.
    fn forget_heard(&mut self, key: &(String, String), interface: &Arc<str>) {
        if let Some(port) = self.ports.get_mut(key)
            && let Some(heard) = port.heard.get_mut(interface)
        {
            heard.0 = Instant::now();
            self.forget(|_, until| until <= Instant::now());
        }
    }

    /// Forgets what interfaces have heard, and what none hears any more.
    fn forget(&mut self, is_over: impl Fn(&Arc<str>, Instant) -> bool) {
        let (mut silent, mut unused) = (Vec::new(), BTreeSet::new());
        for (key, port) in &mut self.ports {
            port.heard.retain(|interface, (until, edge)| {
                let over = is_over(interface, *until);
                if over && let Some((_, edge)) = edge {
                    self.writer.drop_edge(edge);
                }
                !over
            });
            if port.heard.is_empty() {
                silent.push(key.clone());
            }
        }
        for key in silent {
            if let Some(port) = self.ports.remove(&key) {
                self.writer.remove_node(&port.written.node);
                unused.insert(port.switch);
            }
        }
        for switch in unused {
            self.forget_unused(&switch);
        }
    }

    /// Forgets a switch without ports.
    fn forget_unused(&mut self, switch: &str) {
        if self.ports.values().all(|port| port.switch != switch)
            && let Some(written) = self.switches.remove(switch)
        {
            self.writer.remove_node(&written.node);
        }
    }
}

/// What distinguishes a switch: as in Skydive its name and address, since some have another chassis for each port.
fn switch_key(frame: &Lldp, chassis: &LldpId) -> String {
    match (&frame.system_name, &frame.management) {
        (None, None) => format!("{}/{}", chassis.kind, chassis.text),
        (name, address) => {
            let part = |text: &Option<String>| text.clone().unwrap_or_default();
            format!("{}/{}", part(name), part(address))
        }
    }
}

/// Writes a node when it is new or has changed; none when there is no room for it.
fn write(
    writer: &mut Writer,
    written: Option<Written>,
    identity: &str,
    metadata: Map,
) -> Option<Written> {
    match written {
        Some(written) => {
            if written.metadata != metadata {
                writer.set_node(&written.node, KEYS, metadata.clone());
            }
            let node = written.node;
            Some(Written { node, metadata })
        }
        None => {
            let node = writer.add_node(identity, KEYS, metadata.clone())?;
            Some(Written { node, metadata })
        }
    }
}

impl Source for Neighbours {
    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        let spaces = self.spaces.values();
        spaces.map(|space| space.listener.as_fd()).collect()
    }

    fn next(&self) -> Option<Instant> {
        let ports = self.ports.values();
        let ends = ports.flat_map(|port| port.heard.values().map(|(until, _)| *until));
        let list = self.listed.filter(|_| self.list_again);
        ends.chain(list.map(|listed| listed + PAUSE)).min()
    }

    fn quiet_until(&self) -> Instant {
        self.earliest
    }

    fn work(&mut self, called: bool) {
        let now = Instant::now();
        self.list_again |= called;
        let rested = self.listed.is_none_or(|listed| now >= listed + PAUSE);
        if self.list_again && rested {
            self.list_again = false;
            self.list();
            self.listed = Some(Instant::now());
        }
        self.read();
        let now = Instant::now();
        self.forget(|_, until| until <= now);
        self.earliest = now + REST;
    }
}
