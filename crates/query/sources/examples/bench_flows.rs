//! How fast queries of flows are over the stores that `skua run` has: 1,000,000 records in memory, drained
//! ten times a second, and their history on disk. `make bench-graph`

#![allow(clippy::unwrap_used)]

use skua_flow::{
    ConversationOwner, Counters, FlowKey, FlowRecord, FlowStore, FlowUpdate, StoreLimits,
};
use skua_query::{Limits, Prepared, RawPacket, Sources, syntax::SyntaxLimits};
use skua_sources::{FlowPast, FlowSet, FlowView, Flows, Wanted};
use skua_state::FlowPlace;
use skua_store::{FlowBatch, FlowChange, FlowContext, Store, StoreConfig};
use skua_topology::{Config, Graph, SharedGraph};
use std::{
    ops::ControlFlow,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

const FLOWS: u32 = 1_000_000;
const ADDRESSES: u32 = 20_000;
/// Drains a second, and what each changes.
const DRAINS: u32 = 10;
const CHANGES: u32 = 100;
/// Time that each query is asked for.
const ASKED: Duration = Duration::from_secs(5);

fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap().as_nanos() as u64
}

fn now_ms() -> i64 {
    (now_ns() / 1_000_000) as i64
}

/// Numbers that look random, the same each time.
fn mixed(number: u32) -> u32 {
    let mut mixed = u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^= mixed >> 29;
    (mixed.wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 32) as u32
}

fn address(number: u32) -> [u8; 4] {
    let [_, _, high, low] = number.to_be_bytes();
    [10, 64, high, low]
}

fn key(number: u32) -> FlowKey {
    let mut ends = [mixed(number) % ADDRESSES, mixed(!number) % ADDRESSES].map(address);
    ends.sort_unstable();
    let mut key = FlowKey {
        // Each has ports of its own, so that no two are one.
        lo_port: ((number >> 16) as u16 + 1_024).to_be_bytes(),
        hi_port: (number as u16).to_be_bytes(),
        ifindex: 2,
        proto: 6,
        kind: 1 | 1 << 2,
        ..FlowKey::default()
    };
    for (place, end) in [&mut key.lo, &mut key.hi].into_iter().zip(ends) {
        place[10..12].copy_from_slice(&[0xff; 2]);
        place[12..].copy_from_slice(&end);
    }
    key
}

fn update(number: u32, begun_ns: u64, last_ns: u64) -> FlowUpdate {
    FlowUpdate {
        key: key(number),
        lo_sent: Counters::new(1, 100),
        hi_sent: Counters::new(1, 1_000),
        lo_first: true,
        first_ns: begun_ns,
        last_ns,
        ..FlowUpdate::default()
    }
}

/// As `skua run` has them: a store under a lock, with the place of the interface.
struct Always {
    store: Mutex<FlowStore>,
    place: Arc<FlowPlace>,
}

impl FlowSet for Always {
    fn scan(
        &self,
        from: u32,
        places: u32,
        wanted: &Wanted,
        visit: &mut dyn FnMut(&FlowView<'_>) -> ControlFlow<()>,
    ) -> Option<u32> {
        let store = self.store.lock().unwrap();
        wanted.scan(&store, from, places, &mut |record| {
            visit(&FlowView {
                record,
                place: &self.place,
                parties: [ConversationOwner::default(); 2],
                raw_packets: 0,
            })
        })
    }

    fn owns(&self, place: &FlowPlace) -> bool {
        place.capture.is_empty()
    }

    fn raw_packets(&self, _: &FlowRecord) -> Vec<RawPacket> {
        // This set keeps no packets.
        Vec::new()
    }
}

/// The store on disk as queries see it.
struct Past(Store);

impl FlowPast for Past {
    fn scan(
        &self,
        from: u64,
        to: u64,
        wanted: &Wanted,
        visit: &mut dyn FnMut(&FlowView<'_>) -> ControlFlow<()>,
    ) {
        FlowPast::scan(self.0.flows(), from, to, wanted, visit);
    }

    fn captured(&self, from: u64, to: u64, visit: skua_sources::VisitCaptured<'_>) {
        FlowPast::captured(self.0.flows(), from, to, visit);
    }

    fn changes(
        &self,
        record: &FlowRecord,
        place: &FlowPlace,
        time: (u64, u64),
        visit: skua_sources::VisitChange<'_>,
    ) {
        FlowPast::changes(self.0.flows(), record, place, time, visit);
    }
}

/// Takes a drain; what it touched goes to the disk.
fn drain(set: &Always, past: &Past, batch: &mut FlowBatch, updates: &[FlowUpdate]) {
    let mut store = set.store.lock().unwrap();
    store.begin_drain(now_ns());
    for update in updates {
        store.apply(update);
    }
    store.end_drain();
    for record in store.touched() {
        batch.push(&FlowChange {
            record,
            added: [record.interval.lo_sent, record.interval.hi_sent],
            since_ns: record.interval.since_ns,
            context: FlowContext {
                host: &set.place.host,
                capture: "",
                node_tid: &set.place.node,
                interface: &set.place.interface,
            },
            parties: [ConversationOwner::default(); 2],
        });
    }
    drop(store);
    past.0.flows().append(batch);
}

fn fill(set: &Always, past: &Past) {
    let mut batch = FlowBatch::new();
    let mut updates = Vec::new();
    let begun = now_ns();
    for number in 0..FLOWS {
        updates.push(update(number, begun, now_ns()));
        if updates.len() == 20_000 {
            drain(set, past, &mut batch, &updates);
            updates.clear();
            // The disk is to have all of them.
            while past.0.stats().flow_queue_bytes > 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

/// Drains until `stop` is set.
fn change(set: &Always, past: &Past, begun: u64, stop: &AtomicBool) {
    let mut batch = FlowBatch::new();
    let (mut next, mut due) = (0, Instant::now());
    while !stop.load(Ordering::Relaxed) {
        let last = now_ns();
        let updates = (0..CHANGES).map(|at| update(mixed(next + at) % FLOWS, begun, last));
        let updates: Vec<FlowUpdate> = updates.collect();
        drain(set, past, &mut batch, &updates);
        next += CHANGES;
        due += Duration::from_secs(1) / DRAINS;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
    }
}

fn measure(
    set: &Arc<Always>,
    past: &Arc<Past>,
    graph: &SharedGraph,
    title: &str,
    query: impl Fn(u32) -> String,
) {
    let mut times: Vec<Duration> = Vec::new();
    let mut results = 0;
    let begin = Instant::now();
    for asked in 0.. {
        if begin.elapsed() > ASKED {
            break;
        }
        let text = query(mixed(asked));
        let from = Instant::now();
        let now = now_ms();
        let sets: Vec<Arc<dyn FlowSet>> = vec![set.clone()];
        let flows = Flows::new(sets, Some(past.clone()), now);
        let sources = Sources {
            graph,
            flows: Some(&flows),
            sockets: None,
            acls: None,
            filters: None,
        };
        let answer = Prepared::new(&text, &SyntaxLimits::default(), &sources, now)
            .and_then(|plan| plan.run(sources, Limits::default(), &AtomicBool::new(false)))
            .unwrap_or_else(|error| panic!("{}", error.render(&text)));
        times.push(from.elapsed());
        results += answer.len();
        std::thread::sleep(Duration::from_millis(2));
    }
    times.sort();
    let at =
        |share: usize| times[(times.len() * share / 100).min(times.len() - 1)].as_secs_f64() * 1e3;
    println!(
        "{title:<44} {:>8} {:>9.2} {:>9.2} {:>9.2} {:>9.1}",
        times.len(),
        at(50),
        at(99),
        at(100),
        results as f64 / times.len() as f64,
    );
}

fn main() {
    let directory = tempfile::tempdir().unwrap();
    let past = Arc::new(Past(
        Store::open(directory.path(), StoreConfig::default()).unwrap(),
    ));
    let limits = StoreLimits {
        records: 2 * FLOWS as usize,
        bytes: usize::MAX,
    };
    let mut store = FlowStore::new(limits, 7, 1);
    store.note_touched();
    let set = Arc::new(Always {
        store: Mutex::new(store),
        place: Arc::new(FlowPlace {
            host: "alpha".into(),
            capture: "".into(),
            interface: "eth0".into(),
            node: "a0b1".into(),
            since_ns: 0,
        }),
    });
    let begun = now_ns();
    fill(&set, &past);
    let kept = set.store.lock().unwrap().summary();
    println!(
        "{} flows in memory, {} changes on disk",
        kept.active,
        past.0.stats().flows.records
    );
    let graph = SharedGraph::from(Graph::new(Config::default()));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let changing = scope.spawn(|| change(&set, &past, begun, &stop));
        println!(
            "\n{:<44} {:>8} {:>9} {:>9} {:>9} {:>9}",
            "ms", "queries", "p50", "p99", "max", "results"
        );
        let text = |number: u32| {
            let [a, b, c, d] = address(number % ADDRESSES);
            format!("{a}.{b}.{c}.{d}")
        };
        measure(&set, &past, &graph, "Flows().Has('Network', …)", |n| {
            format!("G.Flows().Has('Network', '{}')", text(n))
        });
        measure(
            &set,
            &past,
            &graph,
            "Flows().Has('Network', …, 'Transport', …)",
            |n| format!("G.Flows().Has('Network', '{}', 'Transport', 2000)", text(n)),
        );
        measure(
            &set,
            &past,
            &graph,
            "Flows().Has('Metric.ABPackets', Gt(…))",
            |n| format!("G.Flows().Has('Metric.ABPackets', Gt({}))", 50 + n % 50),
        );
        measure(
            &set,
            &past,
            &graph,
            "G.At('-2s').Flows().Has('Network', …)",
            |n| format!("G.At('-2s').Flows().Has('Network', '{}')", text(n)),
        );
        measure(
            &set,
            &past,
            &graph,
            "G.At('-1s', 3).Flows().Has('Network', …)",
            |n| format!("G.At('-1s', 3).Flows().Has('Network', '{}')", text(n)),
        );
        stop.store(true, Ordering::Relaxed);
        changing.join().unwrap();
    });
}
