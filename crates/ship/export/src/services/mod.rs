//! The graph of services: of this host's own conversations, and of the lines that collectors bring.
//!
//! | module | |
//! |---|---|
//! | `exchange` | what clients and the route `/api/services/graph` have in common |
//! | `history` | sums over time |
//! | `metrics` | for `/metrics` |
//! | `show` | as JSON, CSV and Graphviz |

pub mod exchange;
pub mod history;
pub mod metrics;
pub mod show;

use skua_collect::{
    Collector, CollectorConfig, Drain, Exporter, ExporterConfig, Offered,
    graph::{Edge, EdgeKey, Graph, GraphLine, Known, Past, Point, Series},
};
use skua_process::{
    host::{secret_seed, unix_ns},
    metrics::Exposition,
};
use skua_state::{Observers, State};
use std::{
    collections::{HashMap, VecDeque},
    net::{IpAddr, Ipv4Addr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use crate::export::known::Of;

/// Edges at most.
const EDGES: usize = 65_536;
/// Edges of the past at most, in all slices of time: some 40 MiB.
const PAST: usize = 81_920;
/// Names of services of this host's conversations at most.
const NAMES: usize = 16_384;
/// Length of a window.
const WINDOW: Duration = Duration::from_secs(10);
/// Bytes of a datagram, which goes nowhere.
const DATAGRAM: usize = 16_384;
/// Collectors whose last batch is remembered.
const SENDERS: usize = 1_024;

/// The graph, shared by who feeds it and who asks.
#[derive(Clone)]
pub struct ServiceGraph(Arc<Mutex<Inner>>);

struct Inner {
    graph: Graph,
    past: Past,
    known: Known,
    series: metrics::Series,
    own: Option<Own>,
    /// Agent addresses under which this host exports.
    own_agents: Vec<IpAddr>,
    /// Lines that collectors made of this host's own exports.
    own_lines: u64,
    /// Number of the last batch of lines, by sender.
    batches: HashMap<u64, u64>,
    order: VecDeque<u64>,
}

/// What is in no edge.
#[derive(Clone, Copy, Debug)]
pub struct Lost {
    /// Lines, because there were too many edges.
    pub lines: u64,
    /// Records of this host, because a drain had too many.
    pub records: u64,
    /// Lines that collectors made of this host's own exports: its conversations are in edges already.
    pub own_lines: u64,
}

/// What makes lines of this host's conversations: the same as on the way to a collector and there.
struct Own {
    exporter: Exporter,
    collector: Collector,
    /// Records of a drain at most: the state is locked meanwhile.
    most: u64,
    /// Records beyond.
    skipped: u64,
    /// Changes of services' names that are known.
    renames: u64,
}

/// Where lines go.
struct Sink<'a> {
    graph: &'a mut Graph,
    past: &'a mut Past,
    known: &'a mut Known,
}

impl Sink<'_> {
    fn add(&mut self, line: &GraphLine<'_>) {
        self.graph.add(line);
        self.past.add(line);
        self.known.learn(line);
    }
}

impl Own {
    fn new(conversations: u32, scan_interval: Duration) -> Self {
        Self {
            exporter: Exporter::new(ExporterConfig {
                agent: Ipv4Addr::LOCALHOST.into(),
                sub_agent: 0,
                instance: secret_seed(),
                started_ns: unix_ns(),
                datagram: DATAGRAM,
                both_directions: false,
            }),
            collector: Collector::new(&CollectorConfig {
                window: WINDOW,
                wait: scan_interval.saturating_mul(2) + Duration::from_secs(5),
                max_keys: conversations as usize,
                max_conversations: conversations as usize,
                max_agents: 1,
                max_names: NAMES,
                ..CollectorConfig::default()
            }),
            most: u64::from(conversations) * 4,
            skipped: 0,
            renames: 0,
        }
    }

    fn add_records(&mut self, state: &State, mut into: Sink<'_>) {
        if let Some(sockets) = &state.sockets {
            let renames = sockets.renames();
            for (former, now) in renames.since(self.renames) {
                into.known.rename(former, now);
            }
            self.renames = renames.count();
        }
        let now_ns = unix_ns();
        let drain = Drain {
            enrichment: &Of(state),
            ..Drain::at(now_ns)
        };
        let (collector, skipped) = (&mut self.collector, &mut self.skipped);
        let mut left = self.most;
        let records = state.store.touched().filter(|_| {
            let fits = left > 0;
            left = left.saturating_sub(1);
            *skipped += u64::from(!fits);
            fits
        });
        self.exporter.export(records, &drain, |bytes| {
            collector.datagram(IpAddr::from(Ipv4Addr::LOCALHOST), bytes, now_ns);
            Offered::Queued
        });
        collector.close(now_ns, &mut |line| into.add(&line.into()));
    }
}

impl Default for ServiceGraph {
    /// A graph of what collectors will bring.
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Inner {
            graph: Graph::new(EDGES, unix_ns()),
            past: Past::new(PAST),
            known: Known::new(EDGES),
            series: metrics::Series::default(),
            own: None,
            own_agents: Vec::new(),
            own_lines: 0,
            batches: HashMap::new(),
            order: VecDeque::new(),
        })))
    }
}

impl ServiceGraph {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Nothing panics half-way through a change.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Also of the conversations that drains bring; so many of them are remembered, 0: none.
    pub fn follow(&self, observers: &Observers, conversations: u32, scan_interval: Duration) {
        if conversations == 0 {
            return;
        }
        self.lock().own = Some(Own::new(conversations, scan_interval));
        let theirs = self.clone();
        observers.add(Arc::new(move |capture, state| {
            // Packets of captures that people make are among those that are always captured.
            if capture.is_none() {
                let mut inner = theirs.lock();
                let (into, own, _) = inner.parts();
                if let Some(own) = own {
                    own.add_records(state, into);
                }
            }
        }));
    }

    /// Sets the agent addresses under which this host exports: lines that collectors make of these records are not
    /// counted twice.
    pub fn set_own_agents(&self, agents: Vec<IpAddr>) {
        self.lock().own_agents = agents;
    }

    /// All edges as they are now under the names that are known, those with most bytes first.
    pub fn edges(&self) -> (Vec<Edge>, Lost) {
        let inner = self.lock();
        let now_ns = unix_ns();
        let (graph, past) = inner.open();
        let lost = Lost {
            lines: inner.graph.counts().edges_full,
            records: inner.own.as_ref().map_or(0, |own| own.skipped),
            own_lines: inner.own_lines,
        };
        let known = &inner.known;
        let mut edges = inner.graph.known_edges(&graph, known, now_ns);
        let began_ns = inner.graph.began_ns();
        inner
            .past
            .add_rates(&mut edges, &past, known, began_ns, now_ns);
        (edges, lost)
    }

    /// For /metrics: of windows that are over, since open ones can still move from one edge to another.
    pub fn write_metrics(&self, out: &mut Exposition) {
        let mut inner = self.lock();
        let edges = inner.graph.edges(&Graph::new(0, 0), unix_ns());
        metrics::write(out, &edges, &mut inner.series);
    }

    /// All edges as they were at a moment, ns since the Unix epoch; none when nothing is known of it.
    pub fn edges_at(&self, moment_ns: u64) -> Option<Vec<Edge>> {
        let inner = self.lock();
        inner.past.begins_ns().filter(|begin| *begin <= moment_ns)?;
        let began_ns = inner.graph.began_ns();
        let graph = inner.past.until(moment_ns, began_ns);
        let none = Graph::new(0, 0);
        let mut edges = graph.known_edges(&none, &inner.known, moment_ns);
        let none = Past::new(0);
        inner
            .past
            .add_rates(&mut edges, &none, &inner.known, began_ns, moment_ns);
        Some(edges)
    }

    /// Sums over time of the edges that are wanted.
    pub fn series(&self, series: &Series, wanted: &dyn Fn(&EdgeKey) -> bool) -> Vec<Point> {
        let inner = self.lock();
        let (_, open) = inner.open();
        inner.past.series(series, &open, &inner.known, wanted)
    }

    /// When the past begins, ns since the Unix epoch.
    pub fn begins_ns(&self) -> Option<u64> {
        self.lock().past.begins_ns()
    }

    /// Adds lines of a collector: a batch with a number that was added before is not counted again.
    pub fn add_lines(&self, sender: u64, batch: u64, lines: &[GraphLine<'_>]) {
        let mut inner = self.lock();
        let last = inner.batches.get(&sender).copied();
        if last.is_some_and(|last| batch <= last) {
            return;
        }
        if last.is_none() {
            if inner.order.len() >= SENDERS
                && let Some(oldest) = inner.order.pop_front()
            {
                inner.batches.remove(&oldest);
            }
            inner.order.push_back(sender);
        }
        inner.batches.insert(sender, batch);
        let told_by_us: Vec<IpAddr> = match inner.own {
            Some(_) => inner.own_agents.clone(),
            None => Vec::new(),
        };
        let (mut into, _, own_lines) = inner.parts();
        for line in lines {
            if line
                .exporters
                .iter()
                .any(|agent| told_by_us.contains(agent))
            {
                *own_lines += 1;
            } else {
                into.add(line);
            }
        }
    }
}

impl Inner {
    /// Where lines go, who makes them of this host's conversations, and how many are left out.
    fn parts(&mut self) -> (Sink<'_>, &mut Option<Own>, &mut u64) {
        let into = Sink {
            graph: &mut self.graph,
            past: &mut self.past,
            known: &mut self.known,
        };
        (into, &mut self.own, &mut self.own_lines)
    }

    /// Lines that are not yet in the graph, as a graph and over time.
    fn open(&self) -> (Graph, Past) {
        let mut graph = Graph::new(EDGES, self.graph.began_ns());
        let mut past = Past::new(PAST);
        if let Some(own) = &self.own {
            own.collector.peek(&mut |line| {
                let line = line.into();
                graph.add(&line);
                past.add(&line);
            });
        }
        (graph, past)
    }
}
