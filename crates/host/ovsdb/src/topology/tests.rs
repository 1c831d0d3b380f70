//! However rows, nodes of others and connections come and go: what is in the graph is what would be
//! there had they been so from the beginning.

use super::{OvsConfig, state::State};
use crate::{Change, Row, Target};
use proptest::prelude::*;
use serde_json::{Value as Json, json};
use skua_topology::{Config, Edge, Graph, Lookup, Map, Node, SharedGraph, Subscription};
use std::{
    collections::{BTreeMap, HashMap},
    ops::ControlFlow,
    sync::Arc,
    time::Duration,
};
use uuid::Uuid;

const HOST: &str = "h";
const NETNS: u64 = 4_026_531_840;
const BRIDGES: usize = 3;
const PORTS: usize = 5;
const INTERFACES: usize = 6;

fn id(table: u128, number: usize) -> Uuid {
    Uuid::from_u128(table << 64 | number as u128)
}

fn references(table: u128, numbers: impl Iterator<Item = usize>) -> Json {
    let ids: Vec<_> = numbers
        .map(|n| json!(["uuid", id(table, n).to_string()]))
        .collect();
    json!(["set", ids])
}

fn mac(number: usize) -> String {
    format!("02:00:00:00:00:{number:02x}")
}

#[derive(Clone, Copy, Debug)]
struct Interface {
    port: Option<usize>,
    kind: usize,
    other_name: bool,
    peer: usize,
}

/// An interface of the kernel.
#[derive(Clone, Copy, Debug, Default)]
struct Kernel {
    other_name: bool,
    /// In another namespace than Open vSwitch.
    elsewhere: bool,
}

/// What there is.
#[derive(Clone, Debug)]
struct World {
    bridges: [bool; BRIDGES],
    /// The bridges of ports.
    ports: [Option<usize>; PORTS],
    interfaces: [Interface; INTERFACES],
    kernel: [Option<Kernel>; INTERFACES],
    host: Option<bool>,
}

impl World {
    fn new() -> Self {
        Self {
            bridges: [false; BRIDGES],
            ports: [None; PORTS],
            interfaces: [Interface {
                port: None,
                kind: 0,
                other_name: false,
                peer: 0,
            }; INTERFACES],
            kernel: [None; INTERFACES],
            host: None,
        }
    }

    fn name(number: usize, other: bool) -> String {
        format!("{}{number}", if other { "j" } else { "i" })
    }

    /// As the database has it: without what nothing refers to.
    fn rows(&self) -> BTreeMap<(&'static str, Uuid), Json> {
        let mut rows = BTreeMap::new();
        rows.insert(("Open_vSwitch", id(0, 0)), json!({"ovs_version": "1"}));
        let bridge_of = |port: usize| self.ports[port].filter(|bridge| self.bridges[*bridge]);
        let port_of = |interface: usize| {
            let port = self.interfaces[interface].port;
            port.filter(|port| bridge_of(*port).is_some())
        };
        for bridge in (0..BRIDGES).filter(|bridge| self.bridges[*bridge]) {
            let ports = (0..PORTS).filter(|port| bridge_of(*port) == Some(bridge));
            let row = json!({"name": format!("b{bridge}"), "ports": references(2, ports)});
            rows.insert(("Bridge", id(1, bridge)), row);
        }
        for port in (0..PORTS).filter(|port| bridge_of(*port).is_some()) {
            let interfaces = (0..INTERFACES).filter(|i| port_of(*i) == Some(port));
            let row = json!({"name": format!("p{port}"), "interfaces": references(3, interfaces)});
            rows.insert(("Port", id(2, port)), row);
        }
        for number in (0..INTERFACES).filter(|i| port_of(*i).is_some()) {
            let interface = self.interfaces[number];
            let peer = interface.peer;
            let peer = Self::name(peer, self.interfaces[peer].other_name);
            let kind = ["", "internal", "vxlan", "patch"][interface.kind];
            let row = json!({
                "name": Self::name(number, interface.other_name),
                "type": kind,
                "options": ["map", [["peer", peer]]],
                "external_ids": ["map", [["attached-mac", mac(number)]]],
            });
            rows.insert(("Interface", id(3, number)), row);
        }
        rows
    }

    fn nodes(&self) -> HashMap<String, Map> {
        let mut nodes = HashMap::new();
        if let Some(other) = self.host {
            let map = Map::from([("Name", HOST.into()), ("Type", "host".into())]);
            nodes.insert(format!("host{other}"), map);
        }
        for (number, name) in self.kernel.iter().enumerate() {
            if let Some(kernel) = name {
                let Kernel {
                    other_name,
                    elsewhere,
                } = *kernel;
                // Another life has another index, so that what is remembered of the last does not matter.
                let place = 4 * number + 2 * usize::from(other_name) + usize::from(elsewhere);
                let map = Map::from([
                    ("Name", Self::name(number, other_name).as_str().into()),
                    ("Type", "tuntap".into()),
                    ("Driver", "tun".into()),
                    ("MAC", mac(number).as_str().into()),
                    ("IfIndex", (place as i64 + 1).into()),
                    ("NetNsInode", (NETNS as i64 + i64::from(elsewhere)).into()),
                ]);
                nodes.insert(format!("k{place}"), map);
            }
        }
        nodes
    }
}

#[derive(Clone, Debug)]
enum Step {
    Bridge(usize, bool),
    Port(usize, Option<usize>),
    Interface(usize, Interface),
    Kernel(usize, Option<Kernel>),
    Host(Option<bool>),
    /// The changes since the last one come as an update.
    Update,
    /// The graph's events are read.
    Hear,
    Disconnect,
    /// Another writer deletes all nodes of the host.
    Wipe,
}

fn interface() -> impl Strategy<Value = Interface> {
    let port = prop::option::weighted(0.8, 0..PORTS);
    (port, 0..4_usize, any::<bool>(), 0..INTERFACES).prop_map(|(port, kind, other_name, peer)| {
        Interface {
            port,
            kind,
            other_name,
            peer,
        }
    })
}

fn kernel() -> impl Strategy<Value = Kernel> {
    (any::<bool>(), any::<bool>()).prop_map(|(other_name, elsewhere)| Kernel {
        other_name,
        elsewhere,
    })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => (0..BRIDGES, any::<bool>()).prop_map(|(n, there)| Step::Bridge(n, there)),
        3 => (0..PORTS, prop::option::of(0..BRIDGES)).prop_map(|(n, of)| Step::Port(n, of)),
        4 => (0..INTERFACES, interface()).prop_map(|(n, i)| Step::Interface(n, i)),
        3 => (0..INTERFACES, prop::option::of(kernel())).prop_map(|(n, k)| Step::Kernel(n, k)),
        1 => prop::option::of(any::<bool>()).prop_map(Step::Host),
        4 => Just(Step::Update),
        3 => Just(Step::Hear),
        1 => Just(Step::Disconnect),
        1 => Just(Step::Wipe),
    ]
}

struct Run {
    graph: SharedGraph,
    events: Subscription,
    state: State,
    connected: bool,
    rows: BTreeMap<(&'static str, Uuid), Json>,
    nodes: HashMap<String, Map>,
}

fn row(json: &Json) -> Row {
    serde_json::from_value(json.clone()).unwrap()
}

impl Run {
    fn new() -> Self {
        let graph = SharedGraph::new(Config::default());
        let mut config = OvsConfig::new(Target::default(), HOST);
        config.settle = Duration::ZERO;
        let events = graph.write().subscribe(1 << 16);
        Self {
            events,
            state: State::new(config, NETNS, graph.clone()),
            graph,
            connected: false,
            rows: BTreeMap::new(),
            nodes: HashMap::new(),
        }
    }

    /// The graph's other nodes become as in the world.
    fn others(&mut self, world: &World) {
        let nodes = world.nodes();
        let mut graph = self.graph.write();
        for id in self
            .nodes
            .keys()
            .filter(|id| nodes.get(*id) != self.nodes.get(*id))
        {
            let _ = graph.delete_node(id, 0);
        }
        for (id, map) in &nodes {
            let mut node = Node::new(id, HOST, map.clone());
            node.origin = "links".into();
            let _ = graph.add_node(node, 0);
        }
        self.nodes = nodes;
    }

    fn update(&mut self, world: &World) {
        let rows = world.rows();
        let change = |((table, id), row): (&(&'static str, Uuid), Option<Row>)| Change {
            table,
            id: *id,
            row,
        };
        if !std::mem::replace(&mut self.connected, true) {
            let all = rows
                .iter()
                .map(|(key, json)| change((key, Some(row(json)))));
            self.state.begin(all.collect()).unwrap();
        } else {
            let gone = self.rows.keys().filter(|key| !rows.contains_key(*key));
            let gone = gone.map(|key| change((key, None)));
            let new = rows
                .iter()
                .filter(|(key, json)| self.rows.get(*key) != Some(*json));
            let new = new.map(|(key, json)| change((key, Some(row(json)))));
            self.state.change(new.chain(gone).collect()).unwrap();
        }
        self.rows = rows;
    }

    fn read_events(&mut self) {
        while let Some(delivery) = self.events.try_next() {
            self.state.delivered(&delivery);
        }
        self.state.apply();
    }

    /// All nodes and edges, without times and revisions.
    fn content(&self) -> (BTreeMap<Arc<str>, Json>, BTreeMap<Arc<str>, Json>) {
        let (mut nodes, mut edges) = (BTreeMap::new(), BTreeMap::new());
        let graph = self.graph.read();
        let window = graph.now();
        let plain = |map: &Map| serde_json::to_value(map).unwrap();
        let _ = graph.scan_nodes(window, Lookup::All, 0, usize::MAX, &mut |node, _| {
            let content = json!([&*node.origin, plain(&node.metadata)]);
            nodes.insert(node.id.clone(), content);
            ControlFlow::Continue(())
        });
        let _ = graph.scan_edges(window, Lookup::All, 0, usize::MAX, &mut |edge, _| {
            let edge: &Edge = edge;
            let content = json!([&*edge.parent, &*edge.child, plain(&edge.element.metadata)]);
            edges.insert(edge.element.id.clone(), content);
            ControlFlow::Continue(())
        });
        (nodes, edges)
    }
}

#[test]
fn an_interface_that_is_internal_no_more_has_the_kernels_type_again() {
    let mut world = World::new();
    let mut run = Run::new();
    world.bridges[0] = true;
    world.ports[0] = Some(0);
    world.kernel[1] = Some(Kernel::default());
    run.others(&world);
    let kinds = ["internal", "tuntap", "internal", "tuntap"];
    for (kind, shown) in [1, 0, 1, 0].into_iter().zip(kinds) {
        world.interfaces[1] = Interface {
            port: Some(0),
            kind,
            other_name: false,
            peer: 0,
        };
        run.update(&world);
        run.read_events();
        let (nodes, _) = run.content();
        assert_eq!(nodes["k4"][1]["Type"], shown);
    }
}

proptest! {
    // Each case is dear: a quarter of what is usual, or of PROPTEST_CASES.
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases / 4))]

    #[test]
    fn the_way_does_not_matter(steps in prop::collection::vec(step(), 1..80)) {
        let mut world = World::new();
        let mut run = Run::new();
        for step in steps {
            match step {
                Step::Bridge(number, there) => world.bridges[number] = there,
                Step::Port(number, bridge) => world.ports[number] = bridge,
                Step::Interface(number, interface) => world.interfaces[number] = interface,
                Step::Kernel(number, name) => {
                    world.kernel[number] = name;
                    run.others(&world);
                }
                Step::Host(host) => {
                    world.host = host;
                    run.others(&world);
                }
                Step::Update => run.update(&world),
                Step::Hear => run.read_events(),
                Step::Disconnect => {
                    if std::mem::take(&mut run.connected) {
                        run.state.end();
                    }
                }
                Step::Wipe => {
                    run.graph.write().delete_host(HOST, 0).unwrap();
                    run.nodes.clear();
                    run.others(&world);
                }
            }
        }
        run.update(&world);
        run.read_events();
        run.read_events();
        let mut fresh = Run::new();
        fresh.others(&world);
        fresh.update(&world);
        fresh.read_events();
        prop_assert_eq!(run.content(), fresh.content());
        prop_assert_eq!(run.state.counters().refused, 0);

        // With the last row goes all that was ours.
        world.bridges = [false; BRIDGES];
        run.update(&world);
        run.state.change(vec![Change { table: "Open_vSwitch", id: id(0, 0), row: None }]).unwrap();
        let nothing = Run::new().graph;
        let mut bare = Run { graph: nothing, ..fresh };
        bare.nodes.clear();
        bare.others(&world);
        prop_assert_eq!(run.content(), bare.content());
    }

    /// Rows that no database has: without a parent, repeated, in circles.
    #[test]
    fn no_rows_break_it(
        updates in prop::collection::vec(
            prop::collection::vec((0..4_usize, 0..4_usize, prop::option::of((0..3_usize, prop::collection::vec(0..4_usize, 0..4)))), 0..6),
            1..20,
        )
    ) {
        let mut run = Run::new();
        run.others(&World { host: Some(true), kernel: [Some(Kernel::default()); INTERFACES], ..World::new() });
        run.state.begin(Vec::new()).unwrap();
        for update in updates {
            let changes = update.into_iter().map(|(table, number, content)| {
                let name = ["Open_vSwitch", "Bridge", "Port", "Interface"][table];
                let row = content.map(|(name, refs)| row(&json!({
                    "name": format!("i{name}"),
                    "type": if number % 2 == 0 { "patch" } else { "" },
                    "ports": references(2, refs.iter().copied()),
                    "interfaces": references(3, refs.iter().copied()),
                    "options": ["map", [["peer", format!("i{}", refs.len())], [1, 2]]],
                    "tag": ["map", []],
                })));
                Change { table: name, id: id(table as u128, number), row }
            });
            run.state.change(changes.collect()).unwrap();
            run.read_events();
        }
        run.state.end();
        run.state.begin(Vec::new()).unwrap();
        run.read_events();
        let (nodes, edges) = run.content();
        prop_assert_eq!(nodes.len(), INTERFACES + 1);
        prop_assert_eq!(edges.len(), 0);
        prop_assert_eq!(run.state.counters().nodes, 0);
    }
}

#[test]
fn waiting_ends_in_time_and_what_stays_away_is_forgotten() {
    let graph: SharedGraph = Graph::new(Config::default()).into();
    let mut config = OvsConfig::new(Target::default(), HOST);
    (config.settle, config.forget_after) = (Duration::from_secs(5), Duration::from_secs(60));
    let mut state = State::new(config, NETNS, graph.clone());
    let mut world = World::new();
    world.bridges[0] = true;
    world.ports[0] = Some(0);
    world.interfaces[0].port = Some(0);
    let rows = world.rows();
    let rows = rows.iter().map(|((table, id), json)| Change {
        table,
        id: *id,
        row: Some(row(json)),
    });
    state.begin(rows.collect()).unwrap();
    let now = std::time::Instant::now();
    assert_eq!((state.counters().nodes, state.counters().waiting), (2, 1));
    assert!(
        state
            .next_due(now)
            .is_some_and(|due| due <= Duration::from_secs(5))
    );
    state.clock(now);
    assert_eq!(state.counters().waiting, 1);
    // The clock says that it is time; `apply` then reads the machine's clock.
    state.waiting.values_mut().for_each(|until| *until = now);
    state.clock(std::time::Instant::now());
    assert_eq!((state.counters().nodes, state.counters().waiting), (3, 0));
    assert_eq!(state.next_due(now), None);

    state.end();
    assert!(state.next_due(now).is_some());
    state.clock(now + Duration::from_secs(59));
    assert_eq!(state.counters().nodes, 3);
    state.clock(now + Duration::from_secs(61));
    assert_eq!((state.counters().nodes, state.counters().rows), (0, 0));
    assert_eq!(graph.read().stats().nodes, 0);
    assert_eq!(state.next_due(now), None);
}
