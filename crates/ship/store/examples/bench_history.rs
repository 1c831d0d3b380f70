//! What the history on disk costs: `make bench-history`, or with another directory than a temporary one as
//! argument. Ends with the numbers of `docs/performance.md`.

#![allow(clippy::unwrap_used)]

use skua_flow::{ConversationOwner, Counters, FlowKey, FlowRecord, FlowUpdate, Once};
use skua_lake::{Lake, Table, Writer, WriterConfig, query::Question};
use skua_store::{
    FlowBatch, FlowChange, FlowContext, FlowLookup, GraphJournal, Limits, Store, StoreConfig,
};
use skua_topology::{Config, Graph, Map, Node, SharedGraph, Value};
use std::{
    net::Ipv4Addr,
    ops::ControlFlow,
    path::Path,
    time::{Duration, Instant},
};

const SECOND: u64 = 1_000_000_000;
const BEGIN: u64 = 1_714_564_800 * SECOND;
/// Changes of flows in a drain, one each second.
const DRAIN: usize = 10_000;
const DRAINS: u64 = 120;
const NODES: i64 = 100_000;
const UPDATES: i64 = 200_000;
const PATIENCE: Duration = Duration::from_secs(600);

/// A change of a flow.
struct Row {
    record: FlowRecord,
    added: [Counters; 2],
    since_ns: u64,
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

/// A drain each second with so many changes: three in ten are of new flows, the others of such that
/// were there in one of the last drains.
struct Traffic {
    random: Random,
    live: Vec<FlowRecord>,
    now: u64,
}

impl Traffic {
    fn new() -> Self {
        Self {
            random: Random(88_172_645_463_325_252),
            live: Vec::new(),
            now: BEGIN,
        }
    }

    fn drain(&mut self) -> Vec<Row> {
        let before = self.now;
        self.now += SECOND;
        let mut rows = Vec::with_capacity(DRAIN);
        for _ in 0..DRAIN {
            let old = (self.random.below(10) >= 3 && !self.live.is_empty())
                .then(|| self.random.below(self.live.len() as u64) as usize);
            let packets = 1 + self.random.below(40);
            let at = before + self.random.below(SECOND / 2);
            let last = at + self.random.below(SECOND / 2);
            let mut update = FlowUpdate {
                lo_sent: Counters::new(packets, packets * (60 + self.random.below(1_400))),
                hi_sent: Counters::new(packets / 2, packets * (60 + self.random.below(200))),
                lo_first: true,
                first_ns: at,
                last_ns: last,
                ..FlowUpdate::default()
            };
            update.tcp.flags = [0x1a, 0x12];
            update.tcp.server_rtt_ns = 1_000_000 + self.random.below(1_000_000);
            let (record, since_ns) = match old {
                Some(at) if self.live[at].updated_ns < self.now => {
                    let record = &mut self.live[at];
                    let since = record.last_ns;
                    update.first_ns = record.first_ns;
                    record.apply(&update, self.now, SECOND);
                    (*record, since)
                }
                _ => {
                    let mut key = FlowKey {
                        ifindex: 2,
                        proto: 6,
                        kind: 1 | 1 << 2,
                        lo_port: (32_768 + self.random.below(28_000) as u16).to_be_bytes(),
                        hi_port: [443u16, 80, 5_432, 53][self.random.below(4) as usize]
                            .to_be_bytes(),
                        ..FlowKey::default()
                    };
                    for address in [&mut key.lo, &mut key.hi] {
                        address[10..12].copy_from_slice(&[0xff; 2]);
                    }
                    key.lo[12..].copy_from_slice(&[10, 1, 0, self.random.below(20) as u8]);
                    let peer = self.random.below(20_000) as u32 + 0x0b00_0000;
                    key.hi[12..].copy_from_slice(&peer.to_be_bytes());
                    update.key = key;
                    let record = FlowRecord::new(&update, 7, 1, self.now, SECOND);
                    if self.live.len() < 100_000 {
                        self.live.push(record);
                    } else {
                        let at = self.random.below(100_000) as usize;
                        self.live[at] = record;
                    }
                    (record, at)
                }
            };
            rows.push(Row {
                added: [update.lo_sent, update.hi_sent],
                record,
                since_ns,
            });
        }
        rows
    }
}

/// CPU time of this process.
fn cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// What `run` takes, in wall and CPU time.
fn timed<T>(run: impl FnOnce() -> T) -> (T, Duration, Duration) {
    let (wall, before) = (Instant::now(), cpu());
    let result = run();
    (result, wall.elapsed(), cpu() - before)
}

fn say<T: std::fmt::Display>(what: &str, (result, wall, cpu): (T, Duration, Duration)) {
    println!("{what:<44} {result:>9}  {wall:>8.1?}, CPU {cpu:>8.1?}");
}

fn config() -> StoreConfig {
    let limits = Limits {
        max_bytes: 4 << 30,
        ..StoreConfig::default().flows
    };
    StoreConfig {
        graph: limits,
        flows: limits,
        ..StoreConfig::default()
    }
}

fn main() {
    let own = std::env::temp_dir().join(format!("skua-bench-history-{}", std::process::id()));
    let dir = std::env::args_os().nth(1).map_or(own.clone(), Into::into);
    let mut traffic = Traffic::new();
    let drains: Vec<_> = (0..DRAINS).map(|_| traffic.drain()).collect();
    flows(&dir.join("of-flows"), &drains);
    for seconds in [1, 60] {
        lake(&dir.join(format!("lake-{seconds}")), &drains, seconds);
    }
    drop(drains);
    graph(&dir.join("of-graph"));
    if dir == own {
        std::fs::remove_dir_all(own).unwrap();
    }
}

fn flows(dir: &Path, drains: &[Vec<Row>]) {
    let rows = (DRAINS as usize * DRAIN) as f64;
    let store = Store::open(dir, config()).unwrap();
    let (_, wall, used) = timed(|| {
        let mut batch = FlowBatch::new();
        for drain in drains {
            for row in drain {
                batch.push(&FlowChange {
                    record: &row.record,
                    added: row.added,
                    since_ns: row.since_ns,
                    context: FlowContext {
                        host: "host",
                        capture: "6ba7b810-9dad-11d1-80b4-00c04fd430c8",
                        node_tid: "f47ac10b-58cc-5372-8567-0e02b2c3d479",
                        interface: "eth0",
                    },
                    parties: Default::default(),
                });
            }
            store.flows().append(&mut batch);
            assert!(store.flows().flush(PATIENCE));
            // As with a drain each second.
            store.sync();
        }
    });
    let bytes = store.stats().flows.bytes as f64;
    println!("{rows} changes of flows, synced each {DRAIN}");
    println!(
        "  write: {:.0} ns of CPU each, {:.0} each second",
        used.as_nanos() as f64 / rows,
        rows / wall.as_secs_f64()
    );
    println!("  bytes each: {:.1}", bytes / rows);
    drop(store);
    let (store, wall, used) = timed(|| Store::open(dir, config()).unwrap());
    println!("  open: {wall:.1?}, CPU {used:.1?}");
    let scan = |from: u64, to: u64, lookup: FlowLookup<'_>| {
        timed(|| {
            let mut found = 0;
            let (from, to) = (BEGIN + from * SECOND, BEGIN + to * SECOND);
            store.flows().scan(from, to, lookup, &mut |_| {
                found += 1;
                ControlFlow::Continue(())
            });
            found
        })
    };
    let address = FlowLookup::Address(Ipv4Addr::new(11, 0, 1, 7).into());
    say("flows of all 120 s", scan(0, DRAINS, FlowLookup::All));
    say("  again", scan(0, DRAINS, FlowLookup::All));
    say("  with one address", scan(0, DRAINS, address));
    say(
        "  on another node",
        scan(0, DRAINS, FlowLookup::Node("none")),
    );
    say(
        "  with one port",
        scan(0, DRAINS, FlowLookup::Key(&|key| key.lo_port == [130, 7])),
    );
    say("flows of 10 s", scan(50, 60, FlowLookup::All));
    say("flows of a moment", scan(55, 55, FlowLookup::All));
    let mut flow = None;
    store
        .flows()
        .scan(BEGIN, u64::MAX, FlowLookup::All, &mut |found| {
            flow = Some(found.identity());
            ControlFlow::Break(())
        });
    let flow = flow.unwrap();
    let changes = timed(|| {
        let mut found = 0;
        store.flows().changes(&flow, 0, u64::MAX, &mut |_| {
            found += 1;
            ControlFlow::Continue(())
        });
        found
    });
    say("changes of one flow", changes);
}

/// The same in the lake's Parquet, with a file for so many drains: after a crash the rows of the last file are missing.
fn lake(dir: &Path, drains: &[Vec<Row>], seconds: usize) {
    let config = WriterConfig {
        location: dir.to_string_lossy().parse().unwrap(),
        host: "host".into(),
        flush: PATIENCE,
        memory: 1 << 30,
    };
    let changes = (DRAINS as usize * DRAIN) as f64;
    let (stats, _, used) = timed(|| {
        let writer = Writer::open(&config, Table::Flows).unwrap();
        for some in drains.chunks(seconds) {
            for drain in some {
                writer.flows(drain.iter().map(|row| skua_lake::FlowChange {
                    record: &row.record,
                    once: Once::alone(&row.record, row.record.updated_ns),
                    host: "host",
                    interface: "eth0".into(),
                    parties: [ConversationOwner::default(); 2],
                }));
            }
            assert!(writer.flush(PATIENCE));
        }
        writer.stats()
    });
    println!("the same in the lake, a file for each {seconds} s");
    println!(
        "  write: {:.0} ns of CPU a change, {} rows in {} files, lost {:?}",
        used.as_nanos() as f64 / changes,
        stats.rows,
        stats.files,
        stats.lost
    );
    println!("  bytes a change: {:.1}", stats.bytes as f64 / changes);
    let (lake, wall, used) = timed(|| Lake::open(&config.location).unwrap());
    println!("  open: {wall:.1?}, CPU {used:.1?}");
    questions(&lake);
    let compact = timed(|| {
        let day = 24 * 3_600 * SECOND;
        lake.compact(None, ((BEGIN + day) / 1_000) as i64)
            .unwrap()
            .into
    });
    say("  compacted, into files", compact);
    let bytes: u64 = lake.list().unwrap().iter().map(|hour| hour.bytes).sum();
    println!("  bytes a change: {:.1}", bytes as f64 / changes);
    questions(&lake);
}

/// As of the history, as near as the lake has it: it knows no identity of a flow, and nothing of a moment.
fn questions(lake: &Lake) {
    let ask = |from: u64, to: u64, condition: Option<&str>| {
        timed(|| {
            let time = |second: u64| ((BEGIN + second * SECOND) / 1_000) as i64;
            let mut question = Question::new(Table::Flows, time(from), time(to))
                .by("a_address,a_port,b_address,b_port,protocol")
                .unwrap();
            question.groups = 1 << 20;
            if let Some(condition) = condition {
                question = question.where_(condition).unwrap();
            }
            let answer = lake.ask(&question).unwrap();
            assert!(answer.damaged.is_empty());
            answer.all_groups
        })
    };
    let end = DRAINS + 1;
    say("flows of all 120 s", ask(0, end, None));
    say("  with one address", ask(0, end, Some("address=11.0.1.7")));
    say("  with one port", ask(0, end, Some("port=33287")));
    say("flows of 10 s", ask(50, 60, None));
}

fn metadata(number: i64, bytes: i64) -> Map {
    let text = |prefix: &str| Value::from(format!("{prefix}{number}").as_str());
    let metric = Map::from([
        ("RxBytes", bytes.into()),
        ("TxBytes", (bytes / 3).into()),
        ("RxPackets", (bytes / 900).into()),
        ("TxPackets", (bytes / 2_000).into()),
        ("Last", (1_714_564_800_000 + bytes).into()),
    ]);
    let features = [
        "tx-checksum",
        "rx-gro",
        "tx-tso",
        "rx-vlan",
        "highdma",
        "tx-udp_tnl",
    ];
    let features = features.map(|name| (name, Value::Bool(number % 3 == 0)));
    Map::from([
        ("Name", text("eth")),
        ("TID", text("6ba7b810-9dad-11d1-80b4-00c0")),
        ("Type", "veth".into()),
        ("IfIndex", number.into()),
        ("MAC", text("02:42:ac:11:00:")),
        ("MTU", 1_500.into()),
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
        ("IPV4", [text("10.0.0.")].into_iter().collect()),
        ("Features", Map::from(features).into()),
        ("Metric", metric.into()),
    ])
}

fn nodes(now: i64) -> SharedGraph {
    let graph = SharedGraph::new(Config::default());
    for number in 0..NODES {
        let node = Node::new(&format!("node-{number}"), "host", metadata(number, 0));
        graph.write().add_node(node, now).unwrap();
    }
    graph
}

fn graph(dir: &Path) {
    let store = Store::open(dir, config()).unwrap();
    let now = 1_714_564_800_000;
    let graph = nodes(now);
    let (journal, wall, used) = timed(|| {
        let journal = GraphJournal::start(&store, &graph).unwrap();
        assert!(journal.flush(PATIENCE));
        journal
    });
    let state = store.stats().graph.bytes as f64;
    println!("a graph of {NODES} nodes");
    println!(
        "  its state: {:.0} bytes a node, {wall:.1?}, CPU {used:.1?}",
        state / NODES as f64
    );
    let change = |graph: &SharedGraph, now: i64, wait: &dyn Fn()| {
        timed(|| {
            for update in 0..UPDATES {
                let node = update * 7_919 % NODES;
                let metadata = metadata(node, 1_000 + update * 1_000);
                let id = format!("node-{node}");
                let time = now + update;
                graph.write().update_node(&id, metadata, time).unwrap();
                if update % 1_000 == 999 {
                    wait();
                }
            }
        })
    };
    let beside = nodes(now);
    let (_, _, alone) = change(&beside, now, &|| {});
    drop(beside);
    let (_, _, used) = change(&graph, now, &|| assert!(journal.flush(PATIENCE)));
    let each = |of: f64| of / UPDATES as f64;
    println!(
        "  {UPDATES} changes: {:.0} bytes each, {:.1} µs of CPU each, without making them",
        each(store.stats().graph.bytes as f64 - state),
        each(used.saturating_sub(alone).as_micros() as f64)
    );
    drop(journal);
    drop(store);
    let store = Store::open(dir, config()).unwrap();
    let mut graph = Graph::new(Config::default());
    let (restored, wall, used) = timed(|| store.load_graph(&mut graph).unwrap());
    println!(
        "  load {} events: {wall:.1?}, CPU {used:.1?}",
        restored.events
    );
}
