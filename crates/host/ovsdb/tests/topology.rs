//! The graph beside a real Open vSwitch.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use serde_json::{Value as Json, json};
use skua_discover::{Discovery, DiscoveryConfig};
use skua_ovsdb::{OvsConfig, OvsTopology};
use skua_testkit::lab::{Net, wait_until};
use skua_topology::{
    Config, Delivery, Direction, Edge, Graph, IndexKey, Lookup, Map, Node, SharedGraph, Value,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::UdpSocket,
    ops::ControlFlow,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use support::{Ovs, ids, map};

const HOST: &str = "h";

fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    since.as_millis() as i64
}

fn graph() -> SharedGraph {
    let mut graph = Graph::new(Config::default());
    let map = Map::from([("Name", HOST.into()), ("Type", "host".into())]);
    graph.add_node(Node::new("host", HOST, map), now()).unwrap();
    graph.into()
}

fn start(ovs: &Ovs, graph: &SharedGraph, change: impl FnOnce(&mut OvsConfig)) -> OvsTopology {
    let mut config = OvsConfig::new(ovs.target(), HOST);
    config.client = ovs.client();
    config.netns = Some(ovs.ns.inode());
    config.settle = Duration::ZERO;
    change(&mut config);
    OvsTopology::start(config, graph.clone()).unwrap()
}

fn of_type(graph: &Graph, kind: &str) -> Vec<Arc<Node>> {
    let key = IndexKey::Str(kind.into());
    let mut found = Vec::new();
    let lookup = Lookup::Key("Type", &key);
    let _ = graph.scan_nodes(graph.now(), lookup, 0, usize::MAX, &mut |node, _| {
        found.push(node.clone());
        ControlFlow::Continue(())
    });
    found
}

fn text(node: &Node, key: &str) -> Option<String> {
    node.lookup(key)?.as_str().map(str::to_owned)
}

fn name(node: &Node) -> String {
    text(node, "Name").unwrap()
}

/// The nodes that edges of a relation lead to.
fn children(graph: &Graph, id: &str, relation: &str) -> Vec<Arc<Node>> {
    let (mut ends, mut nodes) = (Vec::new(), Vec::new());
    let out = Direction::Out;
    let _ = graph.edges(id, graph.now(), out, Some(relation), &mut |edge, _| {
        if edge.relation() == relation && edge.element.metadata.get("Type").is_none() {
            ends.push(edge.child.clone());
        }
        ControlFlow::Continue(())
    });
    for id in ends {
        let _ = graph.node(&id, graph.now(), &mut |node, _| {
            nodes.push(node.clone());
            ControlFlow::Continue(())
        });
    }
    nodes
}

/// Bridges, their ports with VLAN, and the ports' interfaces, by name.
type Shape = BTreeMap<String, BTreeMap<String, (Option<i64>, BTreeSet<String>)>>;

fn shape(graph: &Graph) -> Shape {
    let bridges = of_type(graph, "ovsbridge").into_iter();
    let port = |port: Arc<Node>| {
        let vlan = port.metadata.get("Vlans").and_then(Value::as_int);
        let interfaces = children(graph, &port.id, "layer2").into_iter();
        (name(&port), (vlan, interfaces.map(|i| name(&i)).collect()))
    };
    bridges
        .map(|bridge| {
            let ports = children(graph, &bridge.id, "ownership").into_iter();
            let ports = ports.filter(|node| text(node, "Type").as_deref() == Some("ovsport"));
            (name(&bridge), ports.map(port).collect())
        })
        .collect()
}

/// The same, as `ovs-vsctl` tells it.
fn shape_of(ovs: &Ovs) -> Shape {
    let bridges = ovs.list("Bridge", &["name", "ports"]);
    let ports = ovs.list("Port", &["name", "tag", "interfaces"]);
    let interfaces = ovs.list("Interface", &["name"]);
    let name = |row: &BTreeMap<String, Json>| row["name"].as_str().unwrap().to_owned();
    let port = |id: String| {
        let row = &ports[&id];
        let names = ids(&row["interfaces"])
            .into_iter()
            .map(|id| name(&interfaces[&id]));
        (name(row), (row["tag"].as_i64(), names.collect()))
    };
    let bridges = bridges.values();
    bridges
        .map(|row| {
            (
                name(row),
                ids(&row["ports"]).into_iter().map(port).collect(),
            )
        })
        .collect()
}

/// A random number generator that is the same everywhere.
struct Random(u64);

impl Random {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        ((self.0 >> 33) % most as u64) as usize
    }

    fn one<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        (!of.is_empty()).then(|| &of[self.below(of.len())])
    }
}

/// Makes and destroys things at random.
struct Script<'o> {
    ovs: &'o Ovs,
    random: Random,
    made: usize,
}

impl<'o> Script<'o> {
    fn new(ovs: &'o Ovs, seed: u64) -> Self {
        Self {
            ovs,
            random: Random(seed),
            made: 0,
        }
    }

    fn name(&mut self, kind: &str) -> String {
        self.made += 1;
        format!("{kind}{}", self.made)
    }

    /// One step; says what it was.
    fn step(&mut self) -> String {
        let shape = shape_of(self.ovs);
        let bridges: Vec<_> = shape.keys().cloned().collect();
        let ports: Vec<(String, String)> = shape
            .iter()
            .flat_map(|(bridge, ports)| {
                let others = ports.keys().filter(move |port| *port != bridge);
                others.map(move |port| (bridge.clone(), port.clone()))
            })
            .collect();
        let command = self.command(&bridges, &ports);
        let words: Vec<&str> = command.split(' ').collect();
        self.ovs.vsctl(&words);
        command
    }

    fn command(&mut self, bridges: &[String], ports: &[(String, String)]) -> String {
        let Some(bridge) = self.random.one(bridges).cloned() else {
            return self.add_bridge();
        };
        let number = self.random.below(200);
        let port = self.random.one(ports).cloned();
        match self.random.below(16) {
            0 if bridges.len() < 5 => self.add_bridge(),
            1 if bridges.len() > 1 => format!("del-br {bridge}"),
            2 | 3 => {
                let name = self.name("int");
                format!(
                    "add-port {bridge} {name} tag={number} -- set interface {name} type=internal"
                )
            }
            4 => {
                let name = self.name("vx");
                format!(
                    "add-port {bridge} {name} -- set interface {name} type=vxlan \
                     options:remote_ip=192.0.2.{number} options:key={}",
                    self.made
                )
            }
            5 => {
                let name = self.name("gnv");
                format!(
                    "add-port {bridge} {name} -- set interface {name} type=geneve \
                     options:remote_ip=192.0.2.{number} options:key={} external_ids:vm=v{number}",
                    self.made
                )
            }
            6 => {
                let (a, b) = (self.name("pat"), self.name("pat"));
                let other = self.random.one(bridges).cloned().unwrap();
                format!(
                    "add-port {bridge} {a} -- set interface {a} type=patch options:peer={b} -- \
                     add-port {other} {b} -- set interface {b} type=patch options:peer={a}"
                )
            }
            7 => {
                let (bond, a, b) = (self.name("bond"), self.name("in"), self.name("in"));
                format!(
                    "add-bond {bridge} {bond} {a} {b} bond_mode=balance-slb lacp=passive -- \
                     set interface {a} type=internal -- set interface {b} type=internal"
                )
            }
            // No such interface: Open vSwitch says so in the column `error`.
            8 => format!("add-port {bridge} {}", self.name("none")),
            9 | 10 if port.is_some() => format!("del-port {}", port.unwrap().1),
            11 if port.is_some() => format!("set port {} tag={number}", port.unwrap().1),
            12 if port.is_some() => format!(
                "set port {} vlan_mode=trunk trunks={},{number} external_ids:owner=o{number}",
                port.unwrap().1,
                number + 1
            ),
            13 if port.is_some() => format!("clear port {} tag", port.unwrap().1),
            14 => format!(
                "set bridge {bridge} external_ids:n=x{number} other_config:hwaddr=02:00:00:00:00:{:02x}",
                number % 256
            ),
            _ => format!("set open_vswitch . external_ids:system-id=s{number}"),
        }
    }

    fn add_bridge(&mut self) -> String {
        let name = self.name("br");
        format!("add-br {name} -- set bridge {name} datapath_type=netdev")
    }
}

/// A map or a single value as the graph should have it, none when there is none.
fn wanted(value: &Json) -> Option<Json> {
    match value.as_array().map(Vec::as_slice) {
        Some([kind, _]) if kind == "map" => {
            let map = map(value);
            (!map.is_empty()).then(|| json!(map))
        }
        Some([kind, items]) if kind == "set" => {
            let mut items = items.as_array().unwrap().clone();
            items.sort_by_key(Json::as_i64);
            (!items.is_empty()).then_some(Json::Array(items))
        }
        _ if value == "" => None,
        _ => Some(value.clone()),
    }
}

/// Says where a node is not as its row.
fn difference(node: &Node, row: &BTreeMap<String, Json>, names: &[(&str, &str)]) -> Option<String> {
    names.iter().find_map(|(key, column)| {
        let found = node
            .lookup(key)
            .map(|value| serde_json::to_value(&*value).unwrap());
        let wanted = wanted(&row[*column]);
        // A set of one is a value.
        let same = found == wanted || found == wanted.as_ref().map(|value| json!([value]));
        (!same).then(|| format!("{} {key}: {found:?}, not {wanted:?}", name(node)))
    })
}

const BRIDGE: &[(&str, &str)] = &[
    ("Name", "name"),
    ("ExtID", "external_ids"),
    ("Ovs.DatapathType", "datapath_type"),
    ("Ovs.DatapathID", "datapath_id"),
    ("Ovs.DatapathVersion", "datapath_version"),
    ("Ovs.OtherConfig", "other_config"),
];
const PORT: &[(&str, &str)] = &[
    ("Name", "name"),
    ("ExtID", "external_ids"),
    ("Vlans", "tag"),
    ("Trunks", "trunks"),
    ("VlanMode", "vlan_mode"),
    ("BondMode", "bond_mode"),
    ("LACP", "lacp"),
    ("Ovs.OtherConfig", "other_config"),
];
const INTERFACE: &[(&str, &str)] = &[
    ("Name", "name"),
    ("ExtID", "external_ids"),
    ("OfPort", "ofport"),
    ("Ovs.Options", "options"),
    ("Ovs.Error", "error"),
    ("Ovs.MACInUse", "mac_in_use"),
    ("Ovs.LinkState", "link_state"),
    ("Ovs.AdminState", "admin_state"),
    ("Ovs.MTU", "mtu"),
    ("Ovs.Status", "status"),
];

/// Says where the graph is not as `ovs-vsctl` tells it.
fn graph_difference(ovs: &Ovs, graph: &SharedGraph) -> Option<String> {
    let (wanted, found) = (shape_of(ovs), shape(&graph.read()));
    if wanted != found {
        return Some(format!("{found:#?}\nnot\n{wanted:#?}"));
    }
    let tables = [("Bridge", BRIDGE), ("Port", PORT), ("Interface", INTERFACE)];
    let mut by_id = BTreeMap::new();
    {
        let graph = graph.read();
        let _ = graph.scan_nodes(graph.now(), Lookup::All, 0, usize::MAX, &mut |node, _| {
            if let Some(id) = text(node, "UUID") {
                assert_eq!(text(node, "Ovs.DBID"), Some(id.clone()));
                let other = by_id.insert(id, node.clone());
                assert!(other.is_none(), "two nodes for {}", name(node));
            }
            ControlFlow::Continue(())
        });
    }
    let mut rows = 0;
    for (table, names) in tables {
        let columns: Vec<_> = names.iter().map(|(_, column)| *column).collect();
        for (id, row) in ovs.list(table, &columns) {
            rows += 1;
            let Some(node) = by_id.get(&id) else {
                return Some(format!("no node of {table} {id}"));
            };
            if let Some(difference) = difference(node, &row, names) {
                return Some(difference);
            }
        }
    }
    (by_id.len() != rows).then(|| format!("{} nodes of {rows} rows", by_id.len()))
}

fn assert_same(ovs: &Ovs, graph: &SharedGraph) {
    let mut last = None;
    let end = std::time::Instant::now() + Duration::from_secs(30);
    while std::time::Instant::now() < end {
        last = graph_difference(ovs, graph);
        if last.is_none() {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("{}", last.unwrap());
}

#[test]
fn a_random_script_leaves_the_graph_as_the_database_and_each_state_in_order() {
    let ovs = Ovs::new();
    let graph = graph();
    let before = graph.read().export();
    let events = graph.write().subscribe(1 << 20);
    let topology = start(&ovs, &graph, |config| config.statistics = false);
    wait_until("connected", || topology.counters().connected);

    let mut script = Script::new(&ovs, 4);
    let mut states: Vec<(String, Shape)> = Vec::new();
    for _ in 0..200 {
        let command = script.step();
        let state = shape_of(&ovs);
        // Some steps change only metadata.
        if states.last().is_none_or(|(_, last)| *last != state) {
            states.push((command, state));
        }
    }
    assert_same(&ovs, &graph);
    assert!(states.len() > 80, "only {} states", states.len());

    let mut again = Graph::new(Config::default());
    again.import(&before, 0).unwrap();
    let mut awaited = states.iter();
    let mut next = awaited.next();
    let mut last = 0;
    while let Some(Delivery::Event(event)) = events.try_next() {
        assert!(event.seq > last);
        last = event.seq;
        again.replay(&event).unwrap();
        let found = shape(&again);
        while next.is_some_and(|(_, state)| *state == found) {
            next = awaited.next();
        }
    }
    let counters = topology.counters();
    assert!(next.is_none(), "never in the history: {next:?}");
    assert_eq!((counters.refused, counters.missed), (0, 0));
    eprintln!("{} states in {last} events, {counters:?}", states.len());
}

/// Makes nodes of the interfaces that the kernel has, and removes those of others: what the discovery
/// of links does.
fn discover(ns: &Net, graph: &SharedGraph) -> BTreeSet<String> {
    let links: Json = serde_json::from_str(&ns.ip("-j link")).unwrap();
    let mut there = BTreeSet::new();
    let mut graph = graph.write();
    for link in links.as_array().unwrap() {
        let name = link["ifname"].as_str().unwrap();
        let id = format!("link-{}", link["ifindex"]);
        there.insert(id.clone());
        let mut node = Node::new(
            &id,
            HOST,
            Map::from([
                ("Name", name.into()),
                ("Type", "tun".into()),
                ("IfIndex", link["ifindex"].as_i64().unwrap().into()),
                ("NetNsInode", (ns.inode() as i64).into()),
            ]),
        );
        node.origin = "links".into();
        let _ = graph.add_node(node, now());
    }
    let mut gone = Vec::new();
    let mut names = BTreeSet::new();
    let _ = graph.scan_nodes(graph.now(), Lookup::All, 0, usize::MAX, &mut |node, _| {
        if &*node.origin == "links" {
            match there.contains(&*node.id) {
                true => drop(names.insert(name(node))),
                false => gone.push(node.id.clone()),
            }
        }
        ControlFlow::Continue(())
    });
    for id in gone {
        graph.delete_node(&id, now()).unwrap();
    }
    names
}

#[test]
fn interfaces_of_the_kernel_are_found_whichever_comes_first() {
    let ovs = Ovs::new();
    let graph = graph();
    ovs.add_bridge("br-early");
    discover(&ovs.ns, &graph);
    let topology = start(&ovs, &graph, |config| {
        config.settle = Duration::from_millis(300)
    });
    let mut script = Script::new(&ovs, 11);
    for step in 0..60 {
        script.step();
        if step % 3 == 0 {
            discover(&ovs.ns, &graph);
        }
    }
    let kernel = discover(&ovs.ns, &graph);
    wait_until("nobody waits", || topology.counters().waiting == 0);
    assert_same(&ovs, &graph);
    let mut checked = 0;
    let interfaces = ovs.list("Interface", &["name", "type"]);
    for (id, row) in &interfaces {
        let name = row["name"].as_str().unwrap();
        let graph = graph.read();
        let mut found = Vec::new();
        let _ = graph.scan_nodes(graph.now(), Lookup::All, 0, usize::MAX, &mut |node, _| {
            if text(node, "UUID").as_deref() == Some(id) {
                found.push(node.clone());
            }
            ControlFlow::Continue(())
        });
        let [node] = &found[..] else {
            panic!("{} nodes of {name}", found.len())
        };
        let ours = *node.origin == format!("ovsdb.{HOST}");
        assert_eq!(ours, !kernel.contains(name), "{name}");
        let kind = row["type"].as_str().unwrap();
        let kind = if kind.is_empty() { "system" } else { kind };
        assert_eq!(text(node, "Type").as_deref(), Some(kind), "{name}");
        // Those that the kernel has not belong to their bridge.
        let mut owners = 0;
        let into = Direction::In;
        let _ = graph.edges(
            &node.id,
            graph.now(),
            into,
            Some("ownership"),
            &mut |_, _| {
                owners += 1;
                ControlFlow::Continue(())
            },
        );
        assert_eq!(owners, usize::from(ours), "{name}");
        checked += usize::from(!ours);
    }
    assert!(checked >= 3, "only {checked} interfaces of the kernel");

    // What is no port any more gets its own type back.
    ovs.ns.ip("link add eth7 type veth peer eth8");
    let bridge = shape_of(&ovs).into_keys().next().unwrap();
    ovs.vsctl(&["add-port", &bridge, "eth7"]);
    discover(&ovs.ns, &graph);
    assert_same(&ovs, &graph);
    ovs.vsctl(&["del-port", "eth7"]);
    let marked = || {
        let graph = graph.read();
        let key = IndexKey::Str("eth7".into());
        let mut marked = None;
        let lookup = Lookup::Key("Name", &key);
        let _ = graph.scan_nodes(graph.now(), lookup, 0, usize::MAX, &mut |node, _| {
            let kind = text(node, "Type");
            // The port itself has this name until the switch's change arrives.
            if kind.as_deref() == Some("ovsport") {
                return ControlFlow::Continue(());
            }
            assert_eq!(kind.as_deref(), Some("tun"));
            marked = Some(node.metadata.get("Ovs").is_some());
            ControlFlow::Continue(())
        });
        marked
    };
    wait_until("eth7 is as before", || marked() == Some(false));
}

#[test]
fn beside_the_discovery_of_links_each_interface_is_one_node() {
    let ovs = Ovs::new();
    let graph: SharedGraph = Graph::new(Config::default()).into();
    let settings = DiscoveryConfig {
        host: HOST.to_owned(),
        metric_interval: Duration::from_millis(200),
        ..DiscoveryConfig::default()
    };
    let start_discovery = || Discovery::start(settings, graph.clone());
    let discovery = ovs.ns.inside(start_discovery).unwrap();
    let topology = start(&ovs, &graph, |config| {
        config.settle = Duration::from_secs(2);
    });
    let mut script = Script::new(&ovs, 31);
    for _ in 0..40 {
        script.step();
    }
    assert_same(&ovs, &graph);
    wait_until("nobody waits", || topology.counters().waiting == 0);
    assert_same(&ovs, &graph);
    let counters = topology.counters();
    assert!(counters.linked >= 3, "{counters:?}");
    let bridges = || children(&graph.read(), discovery.host_node(), "ownership");
    let wanted = shape_of(&ovs).len();
    let of_type = |kind: &str| {
        let bridges = bridges().into_iter();
        bridges
            .filter(|node| text(node, "Type").as_deref() == Some(kind))
            .count()
    };
    assert_eq!(of_type("ovsbridge"), wanted);

    // Neither of the two takes back what the other wrote: there is no change but of counters.
    let events = graph.write().subscribe(1 << 16);
    let internal = |graph: &Graph| {
        let nodes = of_type_names(graph, "internal");
        assert!(!nodes.is_empty());
        nodes
    };
    let before = internal(&graph.read());
    let kernel: Json = serde_json::from_str(&ovs.ns.ip("-j link")).unwrap();
    let mut links = kernel.as_array().unwrap().iter();
    let port = links.find_map(|link| before.get(link["ifname"].as_str().unwrap()));
    for change in ["add", "del"].repeat(5) {
        ovs.ns.ip(&format!(
            "addr {change} 192.0.2.77/24 dev {}",
            port.unwrap()
        ));
        let event = events.next(Duration::from_secs(30));
        let Some(Delivery::Event(event)) = event else {
            panic!("{event:?}")
        };
        let node = event.change.element();
        if text(node, "Ovs.Type").as_deref() == Some("internal") {
            assert_eq!(text(node, "Type").as_deref(), Some("internal"));
        }
        assert_eq!(internal(&graph.read()), before);
    }
}

/// The nodes that belong to the interface of this name in the database.
fn nodes_of(ovs: &Ovs, graph: &SharedGraph, interface: &str) -> Vec<Arc<Node>> {
    let id = ovs.vsctl_no_wait(&["get", "interface", interface, "_uuid"]);
    let mut found = Vec::new();
    let graph = graph.read();
    let _ = graph.scan_nodes(graph.now(), Lookup::All, 0, usize::MAX, &mut |node, _| {
        let of_row = text(node, "UUID").as_deref() == Some(id.trim());
        if of_row || name(node) == interface && text(node, "Type").as_deref() != Some("ovsport") {
            found.push(node.clone());
        }
        ControlFlow::Continue(())
    });
    found
}

/// Waits until an interface is one node, in a namespace and under a name, below its port.
#[track_caller]
fn one_node_in(ovs: &Ovs, graph: &SharedGraph, interface: &str, netns: &Net, called: &str) {
    let as_wanted = || {
        let nodes = nodes_of(ovs, graph, interface);
        let [node] = &nodes[..] else { return false };
        let inode = node.metadata.get("NetNsInode").and_then(Value::as_int);
        let graph = graph.read();
        let ports = of_type(&graph, "ovsport");
        let port = ports.iter().find(|port| name(port) == interface).unwrap();
        let below = children(&graph, &port.id, "layer2");
        name(node) == called
            && inode == Some(netns.inode() as i64)
            && text(node, "Ovs.State").as_deref() == Some("connected")
            && text(node, "Type").as_deref() == Some("internal")
            && node.metadata.get("OfPort").is_some()
            && below.len() == 1
            && below[0].id == node.id
    };
    for _ in 0..1_500 {
        if as_wanted() {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let nodes = nodes_of(ovs, graph, interface);
    panic!("{interface} is not the one node {called}: {nodes:#?}");
}

#[test]
fn an_internal_port_in_another_namespace_is_one_node() {
    let ovs = Ovs::new();
    let (x, y) = (Net::new(), Net::new());
    let settings = DiscoveryConfig {
        host: HOST.to_owned(),
        all_netns: true,
        ..DiscoveryConfig::default()
    };
    let watch = || {
        let graph: SharedGraph = Graph::new(Config::default()).into();
        let start = || Discovery::start(settings.clone(), graph.clone()).unwrap();
        let discovery = ovs.ns.inside(start);
        let topology = start_with_pause(&ovs, &graph);
        (graph, discovery, topology)
    };
    let (graph, discovery, topology) = watch();
    ovs.add_bridge("br0");
    let set = "-- set interface tap1 type=internal external_ids:iface-id=one";
    let add = format!("add-port br0 tap1 {set}");
    ovs.vsctl(&add.split(' ').collect::<Vec<_>>());
    one_node_in(&ovs, &graph, "tap1", &ovs.ns, "tap1");

    // Another's tap of the same name is not the port, whatever comes first.
    y.ip("tuntap add tap1 mode tap");
    ovs.ns.ip(&format!("link set tap1 netns {}", x.name));
    one_node_in_beside(&ovs, &graph, &x, "tap1", &y);
    // It goes on being the port under another name, and then with another MAC, too.
    x.ip("link set tap1 name eth0");
    one_node_in_beside(&ovs, &graph, &x, "eth0", &y);
    x.ip("link set eth0 address 02:00:00:00:77:01");
    x.ip("link set eth0 up");
    one_node_in_beside(&ovs, &graph, &x, "eth0", &y);
    // On into a third namespace, known by the MAC and ifIndex that it was last seen with.
    y.ip("link del tap1");
    x.ip(&format!("link set eth0 netns {}", y.name));
    one_node_in(&ovs, &graph, "tap1", &y, "eth0");

    // Whoever begins now knows it by what Neutron writes, when it has its name.
    y.ip("link set eth0 down");
    y.ip("link set eth0 name tap1");
    one_node_in(&ovs, &graph, "tap1", &y, "tap1");
    drop((discovery, topology));
    x.ip("tuntap add tap1 mode tap");
    let attached = "external_ids:attached-mac=02:00:00:00:77:01";
    ovs.vsctl(&["set", "interface", "tap1", attached]);
    let (graph, discovery, topology) = watch();
    one_node_in_beside(&ovs, &graph, &y, "tap1", &x);
    drop((discovery, topology));
    // Without, by the descriptors of the switch's process, when no other has its name.
    ovs.vsctl(&[
        "remove",
        "interface",
        "tap1",
        "external_ids",
        "attached-mac",
    ]);
    let (graph, discovery, topology) = watch();
    wait_until("nobody waits", || topology.counters().waiting == 0);
    wait_until("neither of two is taken", || {
        nodes_of(&ovs, &graph, "tap1").len() == 3
    });
    x.ip("link del tap1");
    one_node_in(&ovs, &graph, "tap1", &y, "tap1");

    // Back home, as the Type that it had shows, and away for good.
    y.ip(&format!("link set tap1 netns {}", ovs.ns.name));
    one_node_in(&ovs, &graph, "tap1", &ovs.ns, "tap1");
    ovs.ns.ip(&format!("link set tap1 netns {}", x.name));
    one_node_in(&ovs, &graph, "tap1", &x, "tap1");
    drop(x);
    let own = format!("ovsdb.{HOST}");
    wait_until("a node of the database alone", || {
        let nodes = nodes_of(&ovs, &graph, "tap1");
        nodes.len() == 1 && *nodes[0].origin == *own
    });
    // What is another's has nothing of the port.
    ovs.vsctl(&["del-port", "tap1"]);
    wait_until("nothing", || {
        let graph = graph.read();
        let key = IndexKey::Str("tap1".into());
        let mut nodes = 0;
        let lookup = Lookup::Key("Name", &key);
        let _ = graph.scan_nodes(graph.now(), lookup, 0, usize::MAX, &mut |_, _| {
            nodes += 1;
            ControlFlow::Continue(())
        });
        nodes == 0
    });
    drop((discovery, topology));
}

fn start_with_pause(ovs: &Ovs, graph: &SharedGraph) -> OvsTopology {
    start(ovs, graph, |config| {
        config.settle = Duration::from_millis(500)
    })
}

/// The same for `tap1`, when there is another tap of its name elsewhere, which stays without Open vSwitch's keys.
#[track_caller]
fn one_node_in_beside(ovs: &Ovs, graph: &SharedGraph, netns: &Net, called: &str, other: &Net) {
    let inode = |node: &Node| node.metadata.get("NetNsInode").and_then(Value::as_int);
    let so = || {
        let nodes = nodes_of(ovs, graph, "tap1");
        let (there, others): (Vec<_>, Vec<_>) =
            (nodes.iter()).partition(|node| inode(node) == Some(netns.inode() as i64));
        let has = |node: &Node| node.metadata.get("Ovs").is_some();
        there.len() == 1
            && name(there[0]) == called
            && has(there[0])
            && others.len() == 1
            && inode(others[0]) == Some(other.inode() as i64)
            && !has(others[0])
    };
    for _ in 0..1_500 {
        if so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("{:#?}", nodes_of(ovs, graph, "tap1"));
}

#[test]
fn what_others_write_on_a_bridge_stays_when_ports_come_and_go() {
    let ovs = Ovs::new();
    let graph = graph();
    let _topology = start(&ovs, &graph, |_| {});
    let bridge = || of_type(&graph.read(), "ovsbridge").pop();
    let captures = || bridge()?.lookup("Captures").map(|found| found.into_owned());
    for round in 0..4 {
        ovs.add_bridge("br0");
        // As captures do it, at once when the node is there.
        wait_until("a bridge", || bridge().is_some());
        let id = bridge().unwrap().id.clone();
        let written = Value::from(round);
        let patch = skua_topology::Patch::Set("Captures".into(), written.clone());
        graph.write().patch_node(&id, &[patch], now()).unwrap();
        for port in ["in1", "in2", "in3"] {
            let kind = ["--", "set", "interface", port, "type=internal"];
            ovs.vsctl(&[&["add-port", "br0", port][..], &kind].concat());
            assert_same(&ovs, &graph);
            assert_eq!(captures(), Some(written.clone()), "after {port}");
        }
        ovs.vsctl(&["del-port", "in2"]);
        ovs.vsctl(&[
            "set",
            "bridge",
            "br0",
            "other_config:hwaddr=02:00:00:00:00:01",
        ]);
        assert_same(&ovs, &graph);
        assert_eq!(captures(), Some(written));
        ovs.vsctl(&["del-br", "br0"]);
        wait_until("no bridge", || bridge().is_none());
    }
}

fn of_type_names(graph: &Graph, kind: &str) -> BTreeSet<String> {
    of_type(graph, kind).iter().map(|node| name(node)).collect()
}

#[test]
fn patch_ports_are_linked_once_both_name_each_other() {
    let ovs = Ovs::new();
    let graph = graph();
    let topology = start(&ovs, &graph, |_| {});
    ovs.add_bridge("br0");
    ovs.add_bridge("br1");
    let patches = || {
        let graph = graph.read();
        let mut found = Vec::new();
        let _ = graph.scan_edges(graph.now(), Lookup::All, 0, usize::MAX, &mut |edge, _| {
            if edge.element.metadata.get("Type") == Some(&"patch".into()) {
                found.push(Arc::<Edge>::clone(edge));
            }
            ControlFlow::Continue(())
        });
        found.len()
    };
    let add = |bridge, name: &str, peer: &str| {
        let (set, options) = (["--", "set", "interface"], format!("options:peer={peer}"));
        ovs.vsctl(
            &[
                &["add-port", bridge, name][..],
                &set,
                &[name, "type=patch", &options],
            ]
            .concat(),
        );
        assert_same(&ovs, &graph);
    };
    add("br0", "p0", "p1");
    assert_eq!(patches(), 0);
    add("br1", "p1", "p0");
    assert_eq!(patches(), 1);
    ovs.vsctl(&["set", "interface", "p1", "options:peer=p9"]);
    wait_until("the edge goes", || patches() == 0);
    ovs.vsctl(&["set", "interface", "p1", "options:peer=p0"]);
    wait_until("the edge comes back", || patches() == 1);
    ovs.vsctl(&["del-port", "p0"]);
    wait_until("the edge goes with its end", || patches() == 0);
    // Names of nodes of both halves are found by their bridges.
    assert_same(&ovs, &graph);
    drop(topology);
}

fn states(graph: &SharedGraph) -> BTreeSet<String> {
    let graph = graph.read();
    let mut found = BTreeSet::new();
    let _ = graph.scan_nodes(graph.now(), Lookup::All, 0, usize::MAX, &mut |node, _| {
        found.extend(text(node, "Ovs.State"));
        ControlFlow::Continue(())
    });
    found
}

fn only(state: &str) -> BTreeSet<String> {
    BTreeSet::from([state.to_owned()])
}

#[test]
fn a_database_that_was_away_is_brought_right() {
    let mut ovs = Ovs::new();
    let graph = graph();
    let topology = start(&ovs, &graph, |config| {
        config.forget_after = Duration::from_secs(4);
    });
    let mut script = Script::new(&ovs, 21);
    for _ in 0..25 {
        script.step();
    }
    assert_same(&ovs, &graph);
    let known = shape(&graph.read());
    assert_eq!(states(&graph), only("connected"));

    ovs.kill_server();
    wait_until("marked", || states(&graph) == only("disconnected"));
    assert_eq!(shape(&graph.read()), known);

    // With the same content, and something new at once.
    ovs.start_server();
    ovs.vsctl(&[
        "add-br",
        "new",
        "--",
        "set",
        "bridge",
        "new",
        "datapath_type=netdev",
    ]);
    assert_same(&ovs, &graph);
    wait_until("marked", || states(&graph) == only("connected"));
    assert_eq!(topology.counters().client.disconnections, 1);

    // Another database: what was known is gone, what is new is there.
    ovs.kill_server();
    ovs.new_database();
    ovs.start_server();
    ovs.add_bridge("other");
    assert_same(&ovs, &graph);
    assert_eq!(
        shape(&graph.read()).into_keys().collect::<Vec<_>>(),
        ["other"]
    );

    // It stays away.
    ovs.kill_server();
    wait_until("forgotten", || shape(&graph.read()).is_empty());
    assert_eq!(topology.counters().forgotten, 1);
    assert_eq!(
        graph.read().export().nodes.len(),
        1,
        "only the host is left"
    );
    assert_eq!(states(&graph), BTreeSet::new());
    ovs.start_server();
    assert_same(&ovs, &graph);

    // A process that ends says so, and another goes on with what it finds.
    drop(topology);
    assert_eq!(states(&graph), only("disconnected"));
    ovs.vsctl(&["del-br", "other"]);
    ovs.add_bridge("last");
    let _topology = start(&ovs, &graph, |_| {});
    assert_same(&ovs, &graph);
    wait_until("marked", || states(&graph) == only("connected"));
}

#[test]
fn the_host_may_come_late_and_somebody_may_remove_what_is_ours() {
    let ovs = Ovs::new();
    let graph: SharedGraph = Graph::new(Config::default()).into();
    let _topology = start(&ovs, &graph, |_| {});
    ovs.add_bridge("br0");
    // The distribution's start script writes this.
    ovs.vsctl(&["set", "open_vswitch", ".", "ovs_version=9.8.7"]);
    assert_same(&ovs, &graph);
    let map = || Map::from([("Name", HOST.into()), ("Type", "host".into())]);
    let add = |id| {
        graph
            .write()
            .add_node(Node::new(id, HOST, map()), now())
            .unwrap()
    };
    let owned = |id| {
        let names = || children(&graph.read(), id, "ownership");
        wait_until("the host has the bridge", || names().len() == 1);
        assert_eq!(name(&names()[0]), "br0");
        let version = || {
            let mut found = None;
            let graph = graph.read();
            let _ = graph.node(id, graph.now(), &mut |node, _| {
                found = text(node, "Ovs.Version");
                ControlFlow::Continue(())
            });
            found
        };
        wait_until("its version", || version().as_deref() == Some("9.8.7"));
    };
    add("host");
    owned("host");
    graph.write().delete_node("host", now()).unwrap();
    add("host-2");
    owned("host-2");
    // All nodes of the host go, as when an agent is lost.
    graph.write().delete_host(HOST, now()).unwrap();
    assert_same(&ovs, &graph);
    add("host-3");
    owned("host-3");
}

#[test]
fn counters_are_shown_and_grow() {
    let ovs = Ovs::new();
    let graph = graph();
    ovs.add_bridge("br0");
    // Open vSwitch takes nothing below 5 s.
    ovs.vsctl(&[
        "set",
        "open_vswitch",
        ".",
        "other_config:stats-update-interval=5000",
    ]);
    ovs.ns.ip("link set br0 up");
    ovs.ns.ip("addr add 192.0.2.1/24 dev br0");
    let _topology = start(&ovs, &graph, |_| {});
    let metric = |key: &str| {
        let graph = graph.read();
        let nodes = of_type(&graph, "internal");
        let node = nodes.iter().find(|node| name(node) == "br0")?;
        node.lookup(key)?.as_int()
    };
    wait_until("counters", || metric("Ovs.Metric.RxPackets").is_some());
    let before = metric("Ovs.Metric.RxPackets").unwrap();
    // The bridge's own port: what the host sends, it receives.
    let send = || {
        let socket = UdpSocket::bind("192.0.2.1:0")?;
        socket.set_broadcast(true)?;
        socket.send_to(b"hello", "192.0.2.255:9")
    };
    assert_eq!(ovs.ns.inside(send).unwrap(), 5);
    wait_until("more", || metric("Ovs.Metric.RxPackets") > Some(before));
    wait_until("what was added", || {
        metric("Ovs.LastUpdateMetric.RxPackets") > Some(0)
    });
    assert!(metric("Ovs.LastUpdateMetric.Last") > metric("Ovs.LastUpdateMetric.Start"));
}
