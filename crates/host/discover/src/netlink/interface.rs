//! One interface, and its metadata.

use super::{kinds, names, neighbours::Neighbours, relations::Edges};
use crate::ident;
use skua_link::{Address, COUNTER_NAMES, Interface, Modes, PortVlan, XdpMode};
use skua_topology::{Map, Value};
use std::{path::Path, sync::Arc, time::Instant};

/// Our keys of interfaces, in addition to those of [`kinds::KEYS`].
const KEYS: &[&str] = &[
    "AddressesOmitted",
    "Alias",
    "BusInfo",
    "Driver",
    "Duplex",
    "EncapType",
    "FDB",
    "FDBOmitted",
    "Features",
    "IPV4",
    "IPV6",
    "IfIndex",
    "LastUpdateMetric",
    "LinkFlags",
    "LinkNetNsID",
    "LinkNetNsName",
    "MAC",
    "MTU",
    "MasterIndex",
    "Metric",
    "Name",
    "Neighbors",
    "NeighborsOmitted",
    "NetNsInode",
    "PVID",
    "ParentIndex",
    "PeerIfIndex",
    "RoutesOmitted",
    "RoutingTables",
    "Speed",
    "State",
    "TID",
    "Type",
    "UntaggedVlans",
    "Vlans",
    "XDP",
];

/// All keys of interfaces that are ours.
pub(super) fn keys() -> Vec<&'static str> {
    [KEYS, kinds::KEYS].concat()
}

type Counters = [u64; COUNTER_NAMES.len()];

/// The counters as they were read last, and what they grew by.
#[derive(Debug)]
struct Metric {
    /// When they were read first, ms since the Unix epoch.
    start: i64,
    last: i64,
    counters: Counters,
    value: Value,
    update: Option<Value>,
}

fn metric(counters: &Counters, start: i64, last: i64) -> Value {
    let some = counters.iter().zip(COUNTER_NAMES).enumerate();
    // The first eight are always written; of the others only those above 0.
    let some = some.filter(|(at, (number, _))| *at < 8 || **number > 0);
    let number = |number: u64| Value::Int(i64::try_from(number).unwrap_or(i64::MAX));
    let mut entries: Vec<(Arc<str>, Value)> = some
        .map(|(_, (counter, name))| (name.into(), number(*counter)))
        .collect();
    entries.push(("Start".into(), Value::Int(start)));
    entries.push(("Last".into(), Value::Int(last)));
    Map::new(entries).into()
}

impl Metric {
    fn new(counters: Counters, now: i64) -> Self {
        Self {
            start: now,
            last: now,
            counters,
            value: metric(&counters, now, now),
            update: None,
        }
    }

    /// False: nothing has changed.
    fn update(&mut self, counters: Counters, now: i64) -> bool {
        let read = std::mem::replace(&mut self.last, now);
        if counters == self.counters {
            return false;
        }
        let mut grown = counters;
        for (new, old) in grown.iter_mut().zip(self.counters) {
            // A driver may begin again from zero.
            *new = new.checked_sub(old).unwrap_or(*new);
        }
        self.counters = counters;
        self.value = metric(&counters, self.start, now);
        self.update = Some(metric(&grown, read, now));
        true
    }
}

/// Where an interface is.
pub(super) struct Location<'a> {
    /// TID of the node that owns it.
    pub owner: &'a str,
    /// Inode of its namespace.
    pub inode: u64,
    /// Name of the namespace of its other end.
    pub link_namespace: Option<&'a str>,
}

/// The state of one interface.
#[derive(Debug)]
pub(super) struct State {
    /// Identifier of its node.
    pub id: Arc<str>,
    pub interface: Interface,
    /// In the order in which they came.
    pub addresses: Vec<Address>,
    pub addresses_omitted: u64,
    pub neighbours: Neighbours,
    pub forwarding: Neighbours,
    /// Its part of the routing tables, and how many routes did not fit there.
    pub routes: (Option<Value>, u64),
    pub modes: Modes,
    pub features: Option<Value>,
    pub vlans: Vec<PortVlan>,
    pub edges: Edges,
    /// When changes of neighbours have to be written.
    pub due: Option<Instant>,
    /// When they were written last.
    pub written: Option<Instant>,
    driver: Option<String>,
    metric: Metric,
}

impl State {
    /// Of an interface that is new; `own` says that it is in our own namespace.
    pub fn new(
        interface: Interface,
        own: bool,
        neighbours: Neighbours,
        forwarding: Neighbours,
        now: i64,
    ) -> Self {
        Self {
            id: "".into(),
            driver: driver(&interface, own),
            metric: Metric::new(interface.counters, now),
            interface,
            addresses: Vec::new(),
            addresses_omitted: 0,
            neighbours,
            forwarding,
            routes: (None, 0),
            modes: Modes::default(),
            features: None,
            vlans: Vec::new(),
            edges: Edges::default(),
            due: None,
            written: None,
        }
    }

    /// Whether it is one end of a pair.
    pub fn is_pair(&self) -> bool {
        self.interface.link.kind.as_deref() == Some("veth")
    }

    /// Index of the interface that it is on, or of its other end.
    pub fn lower(&self) -> Option<u32> {
        kinds::lower(&self.interface)
    }

    /// Takes new counters; false: they are as before.
    pub fn count(&mut self, counters: Counters, now: i64) -> bool {
        self.metric.update(counters, now)
    }

    /// Updates what the kernel does not announce: XDP programs that are attached by BPF links, and the
    /// owner of tun and tap. False: unchanged.
    pub fn update_unannounced(&mut self, now: Interface) -> bool {
        let was = &mut self.interface;
        let tun = was.link.kind.as_deref() == Some("tun") && was.data != now.data;
        let changed = tun || was.xdp != now.xdp;
        if tun {
            was.data = now.data;
        }
        was.xdp = now.xdp;
        changed
    }

    /// `Type` of the node.
    pub fn kind(&self) -> &str {
        match self.interface.link.kind.as_deref() {
            Some("tun") => "tuntap",
            Some(kind) => kind,
            None => "device",
        }
    }

    /// All that is ours of the node's metadata.
    pub fn metadata(&mut self, place: &Location<'_>) -> Map {
        let link = &self.interface.link;
        let int = |number: u32| Value::Int(number.into());
        let mut out: Vec<(Arc<str>, Value)> = Vec::with_capacity(40);
        let mut add = |key: &str, value: Value| out.push((key.into(), value));
        add("Name", link.name.as_str().into());
        add("Type", self.kind().into());
        let tid = ident::tid(place.owner, &link.name, self.kind());
        add("TID", Value::Str(tid));
        add("IfIndex", int(link.ifindex));
        add("NetNsInode", Value::Int(place.inode as i64));
        let encapsulation = names::encapsulation(link.arphrd);
        add("EncapType", encapsulation.as_str().into());
        add("MTU", int(link.mtu));
        let state = names::operational_state(self.interface.operstate);
        add("State", state.into());
        add("LinkFlags", names::link_flags(self.interface.flags));
        add("Metric", self.metric.value.clone());
        let mut maybe = |key: &str, value: Option<Value>| {
            if let Some(value) = value {
                add(key, value);
            }
        };
        let mac = &self.interface.address;
        // Zeros are no address: loopback has none.
        let has_mac = mac.iter().any(|&byte| byte != 0) && !names::addressed_by_ip(link.arphrd);
        maybe("MAC", has_mac.then(|| names::mac(mac).as_str().into()));
        let text = |text: &String| (!text.is_empty()).then(|| Value::from(text.as_str()));
        maybe("Alias", text(&self.interface.alias));
        maybe("Driver", self.driver.as_ref().and_then(text));
        let device = self.interface.device.as_ref();
        maybe("BusInfo", device.and_then(|(_, device)| text(device)));
        maybe("MasterIndex", link.master.map(int));
        maybe("ParentIndex", self.lower().map(int));
        let peer = link.link.filter(|_| self.is_pair());
        maybe("PeerIfIndex", peer.map(int));
        let id = link.link_netnsid.filter(|id| *id >= 0);
        maybe("LinkNetNsID", id.map(|id| Value::Int(id.into())));
        let name = place.link_namespace.filter(|_| id.is_some());
        maybe("LinkNetNsName", name.map(Value::from));
        maybe("Speed", self.modes.speed.map(int));
        let duplex = self.modes.full_duplex;
        let duplex = duplex.map(|full| if full { "full" } else { "half" });
        maybe("Duplex", duplex.map(Value::from));
        maybe("Features", self.features.clone());
        maybe("IPV4", self.addresses(false));
        maybe("IPV6", self.addresses(true));
        maybe("RoutingTables", self.routes.0.clone());
        maybe("LastUpdateMetric", self.metric.update.clone());
        maybe("XDP", self.xdp());
        let count = |number: u64| {
            let number = i64::try_from(number).unwrap_or(i64::MAX);
            (number > 0).then_some(Value::Int(number))
        };
        maybe("AddressesOmitted", count(self.addresses_omitted));
        maybe("RoutesOmitted", count(self.routes.1));
        maybe("NeighborsOmitted", count(self.neighbours.omitted()));
        maybe("FDBOmitted", count(self.forwarding.omitted()));
        maybe("Neighbors", self.neighbours.value());
        maybe("FDB", self.forwarding.value());
        self.add_vlans(&mut out);
        kinds::add(&self.interface, &mut out);
        Map::new(out)
    }

    fn addresses(&self, v6: bool) -> Option<Value> {
        let of_family = self.addresses.iter().filter(|a| a.ip.is_ipv6() == v6);
        let mut texts = of_family
            .map(|a| Value::from(format!("{}/{}", a.ip, a.prefix).as_str()))
            .peekable();
        texts.peek().is_some().then(|| texts.collect())
    }

    fn xdp(&self) -> Option<Value> {
        let mode = |mode| match mode {
            XdpMode::Native => "native",
            XdpMode::Generic => "generic",
            XdpMode::Offloaded => "offloaded",
        };
        let programs = self.interface.xdp.iter().map(|xdp| {
            Value::from(Map::from([
                ("ID", Value::Int(xdp.program.into())),
                ("Mode", mode(xdp.mode).into()),
            ]))
        });
        (!self.interface.xdp.is_empty()).then(|| programs.collect())
    }

    fn add_vlans(&self, out: &mut Vec<(Arc<str>, Value)>) {
        let ids = |of: &dyn Fn(&&PortVlan) -> bool| -> Option<Value> {
            let ids = self.vlans.iter().filter(of);
            let ids: Vec<Value> = ids.map(|vlan| Value::Int(vlan.id.into())).collect();
            (!ids.is_empty()).then(|| Value::List(ids.into()))
        };
        let pvid = self.vlans.iter().find(|vlan| vlan.pvid);
        let found = [
            ("Vlans", ids(&|_| true)),
            ("UntaggedVlans", ids(&|vlan| vlan.untagged)),
            ("PVID", pvid.map(|vlan| Value::Int(vlan.id.into()))),
        ];
        for (key, value) in found {
            out.extend(value.map(|value| (key.into(), value)));
        }
    }
}

/// The driver's name as ethtool says it.
fn driver(interface: &Interface, own: bool) -> Option<String> {
    match interface.link.kind.as_deref() {
        Some("vlan") => return Some("802.1Q VLAN Support".into()),
        Some("bond") => return Some("bonding".into()),
        Some(kind) => return Some(kind.into()),
        None => {}
    }
    // Names in the file system: no name of the kernel's has a slash, but none is taken at its word.
    let plain = |name: &str| !name.is_empty() && !name.contains('/') && !name.starts_with('.');
    let link = match &interface.device {
        Some((bus, device)) if plain(bus) && plain(device) => {
            Path::new("/sys/bus").join(bus).join("devices").join(device)
        }
        // Before 5.14 the device is only known where /sys shows the namespace's interfaces.
        _ if own && plain(&interface.link.name) => Path::new("/sys/class/net")
            .join(&interface.link.name)
            .join("device"),
        _ => return None,
    };
    let target = std::fs::read_link(link.join("driver")).ok()?;
    Some(target.file_name()?.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_that_begin_again_do_not_shrink() {
        let mut counters = [0; COUNTER_NAMES.len()];
        counters[0] = 100;
        let mut metric = Metric::new(counters, 1_000);
        assert!(!metric.update(counters, 2_000));
        counters[0] = 130;
        counters[8] = 1;
        assert!(metric.update(counters, 3_000));
        let get = |value: &Value, key: &str| value.as_map().unwrap().get(key).cloned();
        let update = metric.update.clone().unwrap();
        assert_eq!(get(&update, "RxPackets"), Some(30.into()));
        assert_eq!(get(&update, "Multicast"), Some(1.into()));
        assert_eq!(get(&update, "Start"), Some(2_000.into()));
        assert_eq!(get(&update, "Last"), Some(3_000.into()));
        assert_eq!(get(&metric.value, "RxPackets"), Some(130.into()));
        assert_eq!(get(&metric.value, "Start"), Some(1_000.into()));
        assert_eq!(get(&metric.value, "Collisions"), None);
        counters[0] = 5;
        assert!(metric.update(counters, 4_000));
        let update = metric.update.unwrap();
        assert_eq!(get(&update, "RxPackets"), Some(5.into()));
    }

    #[test]
    fn no_key_has_two_owners() {
        let mut keys = keys();
        let all = keys.len();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), all);
    }
}
