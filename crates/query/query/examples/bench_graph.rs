//! How fast queries are on a large graph while it changes: 100,000 nodes, 1,000,000 flows, 1,000
//! changes of each a second. `cargo run --release -p skua-query --example bench_graph`

use skua_query::{
    FlowRecord, Leaf, Limits, Prepared, Record, SharedTexts, Sources, memory::MemoryFlows,
    syntax::SyntaxLimits,
};
use skua_topology::{Config, Edge, Graph, Map, Node, Patch, SharedGraph, Value};
use std::{
    net::{IpAddr, Ipv4Addr},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

const HOSTS: usize = 1_000;
/// Interfaces of each host, besides it.
const INTERFACES: usize = 99;
const FLOWS: usize = 1_000_000;
const ADDRESSES: usize = 20_000;
const CHANGES_PER_SECOND: u32 = 1_000;
/// Time that each query is asked for.
const ASKED: Duration = Duration::from_secs(4);

fn now() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_millis() as i64)
}

/// Resident bytes.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse::<usize>().ok());
    pages.unwrap_or(0) * 4_096
}

/// Numbers that look random.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % limit
    }
}

fn interface(host: usize, number: usize) -> Map {
    let mac = format!(
        "02:00:{:02x}:{:02x}:{:02x}:01",
        host >> 8,
        host & 255,
        number
    );
    let text = |text: String| Value::from(&*text);
    Map::from([
        ("Name", text(format!("veth-{host}-{number}"))),
        ("Type", "veth".into()),
        ("TID", text(format!("{host:08x}-tid-{number:04x}"))),
        ("IfIndex", Value::Int(number as i64)),
        ("MAC", text(mac)),
        ("MTU", Value::Int(1_500)),
        ("State", "UP".into()),
        ("Driver", "veth".into()),
        ("EncapType", "ether".into()),
        (
            "LinkFlags",
            ["UP", "BROADCAST", "RUNNING"]
                .into_iter()
                .map(Value::from)
                .collect(),
        ),
        (
            "IPV4",
            [text(format!("10.{}.{}.{number}/24", host >> 8, host & 255))]
                .into_iter()
                .collect(),
        ),
        ("PeerIfIndex", Value::Int(number as i64 + 1)),
        ("Speed", Value::Int(10_000)),
        ("LastUpdateMetric", metric(number as i64)),
        ("Metric", metric(number as i64)),
    ])
}

fn metric(number: i64) -> Value {
    Map::from([
        ("RxBytes", Value::Int(number * 1_000)),
        ("RxPackets", Value::Int(number)),
        ("TxBytes", Value::Int(number * 500)),
        ("TxPackets", Value::Int(number)),
        ("Start", Value::Int(0)),
        ("Last", Value::Int(number)),
    ])
    .into()
}

fn node_id(host: usize, number: usize) -> String {
    format!("{host:08x}-0000-4000-8000-{number:012x}")
}

fn graph() -> Graph {
    let mut graph = Graph::new(Config::default());
    let mut random = Random(1);
    let relation = |name: &str| Map::from([(Edge::RELATION, name.into())]);
    for host in 0..HOSTS {
        let name = format!("host-{host}");
        let root = node_id(host, 0);
        let metadata = Map::from([
            ("Name", Value::from(&*name)),
            ("Type", "host".into()),
            ("TID", Value::from(&*format!("{host:08x}-tid-0000"))),
        ]);
        let time = now();
        graph
            .add_node(Node::new(&root, &name, metadata), time)
            .unwrap_or_else(|e| panic!("{e}"));
        for number in 1..=INTERFACES {
            let id = node_id(host, number);
            let node = Node::new(&id, &name, interface(host, number));
            graph.add_node(node, time).unwrap_or_else(|e| panic!("{e}"));
            let edge = Edge::new(&format!("o-{id}"), &root, &id, &name, relation("ownership"));
            graph.add_edge(edge, time).unwrap_or_else(|e| panic!("{e}"));
            // Each has a peer among those that came before.
            let peer = node_id(random.below(host + 1), random.below(number) + 1);
            let edge = Edge::new(&format!("l-{id}"), &id, &peer, &name, relation("layer2"));
            graph.add_edge(edge, time).unwrap_or_else(|e| panic!("{e}"));
        }
    }
    graph
}

/// A flow as small as a store would have it.
#[derive(Clone)]
struct Compact {
    number: u32,
    host: u32,
    interface: u32,
    a: Ipv4Addr,
    b: Ipv4Addr,
    ports: (u16, u16),
    start: i64,
    last: i64,
    packets: [u64; 2],
    bytes: [u64; 2],
}

impl Compact {
    fn texts(&self, key: &str) -> Option<String> {
        Some(match key {
            "UUID" => format!("flow-{}", self.number),
            "TrackingID" => format!("track-{}", self.number / 2),
            "NodeTID" => format!("{:08x}-tid-{:04x}", self.host, self.interface),
            _ => return None,
        })
    }

    fn plain(&self, key: &str) -> Option<Leaf<'static>> {
        Some(match key {
            "Network.A" => Leaf::Ip(IpAddr::V4(self.a)),
            "Network.B" => Leaf::Ip(IpAddr::V4(self.b)),
            "Transport.A" => Leaf::Int(i64::from(self.ports.0)),
            "Transport.B" => Leaf::Int(i64::from(self.ports.1)),
            "LayersPath" => Leaf::Str("Ethernet/IPv4/TCP"),
            "Application" => Leaf::Str("TCP"),
            "Start" => Leaf::Int(self.start),
            "Last" => Leaf::Int(self.last),
            "Metric.ABPackets" => Leaf::Int(self.packets[0] as i64),
            "Metric.BAPackets" => Leaf::Int(self.packets[1] as i64),
            "Metric.ABBytes" => Leaf::Int(self.bytes[0] as i64),
            "Metric.BABytes" => Leaf::Int(self.bytes[1] as i64),
            _ => return None,
        })
    }
}

impl Record for Compact {
    fn leaves(&self, key: &str, visit: &mut dyn FnMut(Leaf<'_>) -> bool) -> bool {
        match self.plain(key) {
            Some(leaf) => visit(leaf),
            None => self.texts(key).is_some_and(|text| visit(Leaf::Str(&text))),
        }
    }

    fn has(&self, key: &str) -> bool {
        self.plain(key).is_some() || self.texts(key).is_some()
    }

    fn get(&self, key: &str) -> Option<Value> {
        let leaf = self.plain(key).map(Leaf::to_value);
        leaf.or_else(|| self.texts(key).map(|text| text.as_str().into()))
    }

    fn keys(&self, add: &mut dyn FnMut(&str)) {
        ["UUID", "NodeTID", "Network.A", "Network.B"]
            .into_iter()
            .for_each(add);
    }
}

impl FlowRecord for Compact {
    fn keep(&self, _: &mut SharedTexts) -> Arc<dyn FlowRecord> {
        Arc::new(self.clone())
    }

    fn bytes(&self) -> usize {
        size_of::<Self>()
    }

    fn to_value(&self) -> Value {
        Map::from([("UUID", self.get("UUID").unwrap_or_default())]).into()
    }
}

fn address(number: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 64, (number >> 8) as u8, number as u8)
}

fn flows() -> MemoryFlows<Compact> {
    let flows = MemoryFlows::new(&["UUID", "NodeTID", "Network.A", "Network.B"], 60_000);
    let mut random = Random(2);
    let time = now();
    for number in 0..FLOWS {
        flows.add(Compact {
            number: number as u32,
            host: random.below(HOSTS) as u32,
            interface: random.below(INTERFACES) as u32 + 1,
            a: address(random.below(ADDRESSES)),
            b: address(random.below(ADDRESSES)),
            ports: (random.below(60_000) as u16, 443),
            start: time - 10_000,
            last: time + 600_000,
            packets: [1, 1],
            bytes: [number as u64, 100],
        });
    }
    flows
}

/// Makes so many changes a second until told to stop; returns how late the slowest came.
fn change(stop: &AtomicBool, mut make: impl FnMut(u64)) -> (u64, Duration) {
    let begin = Instant::now();
    let mut slowest = Duration::ZERO;
    let mut done = 0;
    while !stop.load(Ordering::Relaxed) {
        let due = begin + Duration::from_secs(1) * (done as u32) / CHANGES_PER_SECOND;
        if let Some(early) = due.checked_duration_since(Instant::now()) {
            std::thread::sleep(early);
        }
        let from = Instant::now();
        make(done);
        slowest = slowest.max(from.elapsed());
        done += 1;
    }
    (done, slowest)
}

fn measure(
    sources: Sources<'_>,
    title: &str,
    goal: &str,
    mut query: impl FnMut(&mut Random) -> String,
) {
    let mut random = Random(3);
    let mut times: Vec<Duration> = Vec::new();
    let mut results = 0;
    let begin = Instant::now();
    while begin.elapsed() < ASKED && times.len() < 20_000 {
        let text = query(&mut random);
        let from = Instant::now();
        let prepared = Prepared::new(&text, &SyntaxLimits::default(), &sources, now());
        let answer = prepared
            .and_then(|plan| plan.run(sources, Limits::default(), &AtomicBool::new(false)))
            .unwrap_or_else(|error| panic!("{}", error.render(&text)));
        times.push(from.elapsed());
        results += answer.len();
        // At a pace at which people and dashboards ask, so that the numbers are not those of a cache
        // kept hot by nothing else.
        std::thread::sleep(Duration::from_micros(300));
    }
    times.sort();
    let at =
        |share: usize| times[(times.len() * share / 100).min(times.len() - 1)].as_secs_f64() * 1e3;
    println!(
        "{title:<44} {:>8} {:>9.3} {:>9.3} {:>9.3} {:>9.1}  {goal}",
        times.len(),
        at(50),
        at(99),
        at(100),
        results as f64 / times.len() as f64,
    );
}

fn main() {
    let empty = resident();
    let graph = graph();
    let stats = graph.stats();
    let with_graph = resident();
    let elements = format!("{} nodes, {} edges", stats.nodes, stats.edges);
    let per_node = (with_graph - empty) / stats.nodes;
    println!("{elements}: {per_node} bytes per node with its edges, indexes and history");
    let history_before = stats.history_bytes;
    let flows = flows();
    let per_flow = (resident() - with_graph) / FLOWS;
    println!("{FLOWS} flows in the store for tests: {per_flow} bytes per flow with indexes");

    let graph = SharedGraph::from(graph);
    let sources = Sources {
        graph: &graph,
        flows: Some(&flows),
        sockets: None,
        acls: None,
        filters: None,
    };
    let stop = AtomicBool::new(false);
    let begun = now();
    let graph_changes = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let changer = scope.spawn(|| {
            let mut random = Random(4);
            change(&stop, |number| {
                let id = node_id(random.below(HOSTS), random.below(INTERFACES) + 1);
                let patch = [Patch::Set("LastUpdateMetric".into(), metric(number as i64))];
                let changed = graph.write().patch_node(&id, &patch, now());
                changed.unwrap_or_else(|error| panic!("{error}"));
                graph_changes.fetch_add(1, Ordering::Relaxed);
            })
        });
        let flow_changer = scope.spawn(|| {
            let mut random = Random(5);
            change(&stop, |number| {
                flows.update(random.below(FLOWS), |flow| Compact {
                    packets: [number, number],
                    ..flow.clone()
                });
            })
        });
        std::thread::sleep(Duration::from_secs(3));
        println!(
            "\n{:<44} {:>8} {:>9} {:>9} {:>9} {:>9}  goal for p99",
            "ms", "queries", "p50", "p99", "max", "results"
        );
        let any = |random: &mut Random| (random.below(HOSTS), random.below(INTERFACES) + 1);
        for past in [false, true] {
            let (g, of) = match past {
                false => ("G".to_owned(), ""),
                // A second after changes began: most have happened since.
                true => (format!("G.At({})", begun + 1_000), " in the past"),
            };
            let goal = if past { "3 times the present" } else { "1" };
            measure(
                sources,
                &format!("V().Has('Name', …){of}"),
                goal,
                |random| {
                    let (host, number) = any(random);
                    format!("{g}.V().Has('Name', 'veth-{host}-{number}')")
                },
            );
            measure(
                sources,
                &format!("V().Has('TID', …){of}"),
                goal,
                |random| {
                    let (host, number) = any(random);
                    format!("{g}.V().Has('TID', '{host:08x}-tid-{number:04x}')")
                },
            );
            let goal = if past { "3 times the present" } else { "10" };
            measure(
                sources,
                &format!("V().Has('TID', …).Both().Both(){of}"),
                goal,
                |random| {
                    let (host, number) = any(random);
                    format!("{g}.V().Has('TID', '{host:08x}-tid-{number:04x}').Both().Both()")
                },
            );
            measure(
                sources,
                &format!("V().Has('Name', host).Out().Out(){of}"),
                goal,
                |random| {
                    let (host, _) = any(random);
                    format!("{g}.V().Has('Name', 'host-{host}').Out().Out()")
                },
            );
        }
        measure(sources, "Flows().Has('Network', …)", "50", |random| {
            format!(
                "G.Flows().Has('Network', '{}')",
                address(random.below(ADDRESSES))
            )
        });
        measure(sources, "V().Has('TID', …).Flows()", "", |random| {
            let (host, number) = any(random);
            format!("G.V().Has('TID', '{host:08x}-tid-{number:04x}').Flows()")
        });
        measure(sources, "Flows().Sort(DESC, bytes).Limit(10)", "", |_| {
            "G.Flows().Sort(DESC, 'Metric.ABBytes').Limit(10)".to_owned()
        });
        measure(
            sources,
            "V().Has('MTU', …).Count(), without index",
            "",
            |_| "G.V().Has('MTU', 1500).Count()".to_owned(),
        );
        stop.store(true, Ordering::Relaxed);
        for (what, changer) in [("graph", changer), ("flows", flow_changer)] {
            let Ok((done, slowest)) = changer.join() else {
                continue;
            };
            let seconds = (now() - begun) as f64 / 1e3;
            let rate = done as f64 / seconds;
            println!("{what}: {rate:.0} changes/s meanwhile, the slowest took {slowest:.1?}");
        }
    });
    let stats = graph.read().stats();
    let changes = graph_changes.load(Ordering::Relaxed).max(1) as usize;
    println!(
        "history: {} bytes for each of {changes} changes, as it counts them",
        stats.history_bytes.saturating_sub(history_before) / changes,
    );
}
