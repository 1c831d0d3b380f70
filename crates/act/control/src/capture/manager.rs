//! Captures follow their queries: a thread finds the nodes again whenever the graph changes.

use super::{
    Capture, CaptureType,
    point::{NodePoint, is_same_site, point},
};
use crate::resource::{Resource as _, ResourceError, Resources};
use serde::{Deserialize, Serialize};
use skua_sources::{
    PcapFilters,
    ask::{self, unix_ms},
};
use skua_topology::{Map, Patch, SharedGraph, Value};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};
use uuid::Uuid;

/// Time to wait after a change for others, so that one round serves many.
const SETTLE: Duration = Duration::from_millis(50);

/// A round takes at most one part of so many of a core.
const SHARE: u32 = 10;

/// Time without a change until the states are read again.
const PATIENCE: Duration = Duration::from_secs(1);

/// The same while a capture begins, at least: a part of the time that it has had.
const LEAST_PATIENCE: Duration = Duration::from_millis(10);

/// Events that wait; when more come, a round follows all the same.
const EVENTS: usize = 1_024;

/// Metadata of nodes that says what captures them.
const CAPTURES: &str = "Captures";

/// The status of a capture on a node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum PointState {
    /// It captures.
    Active,
    /// It does not, and why.
    Refused(String),
    /// Not known yet.
    Pending,
}

impl PointState {
    /// Name in metadata.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Refused(_) => "error",
            Self::Pending => "pending",
        }
    }
}

/// A capture that runs. Dropping it ends it.
pub trait Running: Send {
    /// Captures on these and no others.
    fn set_points(&mut self, points: &[NodePoint]);
    /// Its status on one of them.
    fn state(&self, point: &NodePoint) -> PointState;
    /// Where it listens for one of them, if it does.
    fn listens_at(&self, point: &NodePoint) -> Option<SocketAddr> {
        let _ = point;
        None
    }
}

/// Starts captures.
pub trait CaptureRunner: Send + Sync {
    /// What is wrong with a capture, as far as it can be known before it starts.
    fn check(&self, capture: &Capture) -> Result<(), String>;
    /// Starts one, on no node yet.
    fn start(&self, capture: &Capture) -> Result<Box<dyn Running>, String>;
}

/// The status of a capture.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CaptureStatus {
    /// Nodes that its query finds, and its status there.
    pub nodes: Vec<(NodePoint, PointState)>,
    /// Where it listens, by identifiers of nodes.
    pub listens_at: BTreeMap<Arc<str>, SocketAddr>,
    /// Nodes that it finds that do not fit its type.
    pub unfit: usize,
    /// Why not, of the first of them.
    pub unfit_why: Option<String>,
    /// Why it does not run.
    pub error: Option<String>,
}

/// A capture's run.
struct Run {
    capture: Capture,
    running: Option<Box<dyn Running>>,
    points: Vec<NodePoint>,
    /// When it was last started or given other nodes.
    begun: Option<Instant>,
    status: CaptureStatus,
}

#[derive(Default)]
struct State {
    runs: BTreeMap<Uuid, Run>,
    /// Identifiers of the nodes that have an entry of ours.
    noted: BTreeSet<Arc<str>>,
}

struct Inner {
    graph: SharedGraph,
    captures: Resources<Capture>,
    runner: Arc<dyn CaptureRunner>,
    state: Mutex<State>,
    /// Held by who waits for captures to come.
    resting: Mutex<()>,
    wake: Condvar,
    stop: AtomicBool,
}

/// Why a capture cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// It is not right.
    #[error("{0}")]
    Wrong(String),
    /// It cannot be kept.
    #[error(transparent)]
    Resource(#[from] ResourceError),
}

/// Holds captures and makes them follow their queries; ends all when it is dropped.
pub struct CaptureManager {
    inner: Arc<Inner>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl CaptureManager {
    /// Runs the captures that were kept, and those to come.
    pub fn start(
        graph: SharedGraph,
        captures: Resources<Capture>,
        runner: Arc<dyn CaptureRunner>,
    ) -> std::io::Result<Self> {
        let inner = Arc::new(Inner {
            graph,
            captures,
            runner,
            state: Mutex::default(),
            resting: Mutex::new(()),
            wake: Condvar::new(),
            stop: AtomicBool::new(false),
        });
        let theirs = inner.clone();
        let thread = std::thread::Builder::new()
            .name("captures".into())
            .spawn(move || theirs.follow())?;
        Ok(Self {
            inner,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Makes a capture.
    pub fn create(&self, capture: Capture) -> Result<Capture, CaptureError> {
        let capture = self.prepare(capture)?;
        let capture = self.inner.captures.add(capture)?;
        self.inner.reconcile();
        self.inner.notify();
        Ok(capture)
    }

    /// Makes captures that the configuration declares: none twice, and none for which there is one that does the same.
    ///
    /// # Errors
    ///
    /// The number of the first that is wrong, and why; then none is made.
    pub fn declare(&self, captures: Vec<Capture>) -> Result<(), (usize, CaptureError)> {
        let mut new: Vec<Capture> = Vec::new();
        let kept = self.inner.captures.all();
        for (at, capture) in captures.into_iter().enumerate() {
            let mut capture = self.prepare(capture).map_err(|error| (at, error))?;
            let same = |other: &Capture| other.is_same(&capture);
            if let Some(known) = kept.iter().find(|other| same(other)) {
                tracing::info!(capture = %known.uuid, "the configuration declares a capture that is there already");
                continue;
            }
            if new.iter().any(same) {
                continue;
            }
            capture.declared = true;
            capture.uuid = capture.declared_id();
            new.push(capture);
        }
        let made = new.len();
        self.inner
            .captures
            .put_all(new)
            .map_err(|error| (made.saturating_sub(1), error.into()))?;
        self.inner.notify();
        Ok(())
    }

    /// Checks one, and fills in what is left out.
    fn prepare(&self, mut capture: Capture) -> Result<Capture, CaptureError> {
        check(&capture).map_err(CaptureError::Wrong)?;
        capture.sampling_rate = capture.sampling_rate.max(1);
        "L3".clone_into(&mut capture.layer_key_mode);
        self.inner
            .runner
            .check(&capture)
            .map_err(CaptureError::Wrong)?;
        capture.create_time = unix_ms();
        Ok(capture)
    }

    /// Deletes one; it ends before this returns.
    pub fn delete(&self, id: &str) -> Result<Capture, CaptureError> {
        let capture = self.inner.captures.remove(id)?;
        let run = self.inner.state().runs.remove(&capture.uuid);
        drop(run);
        self.inner.reconcile();
        Ok(capture)
    }

    /// All of them, and their state.
    pub fn list(&self) -> Vec<(Capture, CaptureStatus)> {
        let all = self.inner.captures.all();
        let state = self.inner.state();
        all.into_iter()
            .map(|capture| {
                let run = state.runs.get(&capture.uuid);
                let status = run.map(|run| run.status.clone()).unwrap_or_default();
                (capture, status)
            })
            .collect()
    }

    /// Ends all of them, but keeps them for the next start.
    pub fn end(&self) {
        self.inner.stop.store(true, Ordering::Release);
        self.inner.notify();
        let thread = self.thread.lock();
        let thread = thread.unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // A thread that panicked has nothing left to end.
            let _ = thread.join();
        }
    }

    /// One of them.
    pub fn get(&self, id: &str) -> Result<(Capture, CaptureStatus), CaptureError> {
        let capture = self.inner.captures.get(id)?;
        let state = self.inner.state();
        let run = state.runs.get(&capture.uuid);
        let status = run.map(|run| run.status.clone()).unwrap_or_default();
        Ok((capture, status))
    }
}

impl Drop for CaptureManager {
    fn drop(&mut self) {
        self.end();
    }
}

/// What is wrong with a capture, on any host.
fn check(capture: &Capture) -> Result<(), String> {
    if capture.gremlin_query.trim().is_empty() {
        return Err("GremlinQuery is missing: which nodes are to be captured?".into());
    }
    ask::check_nodes(&capture.gremlin_query)?;
    if !capture.bpf_filter.is_empty() {
        use skua_query::PacketFilters as _;
        drop(PcapFilters.compile(&capture.bpf_filter, 1)?);
    }
    if capture.reassemble_tcp {
        return Err("ReassembleTCP (--reassemble-tcp): Skua does not read what TCP carries; create the capture without it".into());
    }
    if capture.extra_layers != 0 {
        return Err("ExtraLayers (--extra-layer): Skua reads no layer behind the transport; create the capture without it".into());
    }
    if !(-1..=10).contains(&capture.raw_packet_limit) {
        return Err("RawPacketLimit: -1 to 10 packets of each flow".into());
    }
    if !matches!(&*capture.layer_key_mode, "L2" | "L3" | "") {
        return Err("LayerKeyMode: L2 or L3".into());
    }
    Ok(())
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        // After a panic the next change repairs what is half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn notify(&self) {
        // A thread that is about to wait has read the change, or is woken.
        drop(self.resting.lock());
        self.wake.notify_all();
    }

    /// Waits for changes as long as `idle`.
    fn rest(&self, idle: impl Fn() -> bool) {
        let guard = self.resting.lock().unwrap_or_else(PoisonError::into_inner);
        let wait = |_: &mut ()| idle() && !self.stop.load(Ordering::Acquire);
        drop(self.wake.wait_while(guard, wait));
    }

    fn follow(&self) {
        while !self.stop.load(Ordering::Acquire) {
            // Without captures there is nothing to follow.
            self.rest(|| self.captures.is_empty());
            let events = self.graph.write().subscribe(EVENTS);
            while !self.stop.load(Ordering::Acquire) && !self.captures.is_empty() {
                let began = Instant::now();
                let patience = self.reconcile();
                let settle = SETTLE.min(patience);
                std::thread::sleep((began.elapsed() * SHARE).max(settle));
                // The next round sees what came meanwhile; our own changes of nodes are among it.
                let mut came = false;
                while events.try_next().is_some() {
                    came = true;
                }
                if !came {
                    // States change without events.
                    let _ = events.next(patience);
                }
            }
            self.reconcile();
        }
        let mut state = self.state();
        state.runs.clear();
        self.annotate_nodes(&mut state);
    }

    /// Starts, changes and ends captures as the graph and the list of captures are now. Returns after what time
    /// without a change their states are to be read again.
    fn reconcile(&self) -> Duration {
        let (_, _) = self.captures.expire(unix_ms());
        let captures = self.captures.all();
        let mut state = self.state();
        let wanted: BTreeSet<Uuid> = captures.iter().map(|c| c.uuid).collect();
        state.runs.retain(|id, _| wanted.contains(id));
        for capture in captures {
            let run = state.runs.entry(capture.uuid).or_insert_with(|| Run {
                capture,
                running: None,
                begun: None,
                points: Vec::new(),
                status: CaptureStatus::default(),
            });
            self.bring_up_to_date(run);
        }
        let pending = |run: &&Run| {
            let mut nodes = run.status.nodes.iter();
            nodes.any(|(_, state)| *state == PointState::Pending)
        };
        let begun = state.runs.values().filter(pending);
        let youngest = begun.filter_map(|run| Some(run.begun?.elapsed())).min();
        self.annotate_nodes(&mut state);
        youngest.map_or(PATIENCE, |age| (age / 4).clamp(LEAST_PATIENCE, PATIENCE))
    }

    fn bring_up_to_date(&self, run: &mut Run) {
        let found = match ask::nodes(&self.graph, &run.capture.gremlin_query) {
            Ok(found) => found,
            Err(error) => {
                run.status.error = Some(error);
                return;
            }
        };
        let kind = run.capture.r#type;
        let (mut points, mut unfit) = (Vec::new(), Vec::new());
        for node in &found {
            match point(node, kind) {
                Ok(point) => points.push(point),
                Err(why) => unfit.push(why),
            }
        }
        run.status.unfit = unfit.len();
        run.status.unfit_why = unfit.into_iter().next();
        points.sort();
        points.dedup_by(|a, b| is_same_site(kind, a, b));
        if run.running.is_none() && !points.is_empty() {
            match self.runner.start(&run.capture) {
                Ok(running) => {
                    run.running = Some(running);
                    run.points.clear();
                    run.status.error = None;
                }
                Err(error) => {
                    // The next round tries again.
                    run.status.error = Some(error);
                }
            }
        }
        if let Some(running) = &mut run.running {
            if run.points != points {
                running.set_points(&points);
                run.begun = Some(Instant::now());
                run.points.clone_from(&points);
            }
            run.status.error = None;
        }
        let running = run.running.as_deref();
        let state = |point: &NodePoint| match (running, &run.status.error) {
            (Some(running), _) => running.state(point),
            (None, Some(error)) => PointState::Refused(error.clone()),
            (None, None) => PointState::Pending,
        };
        // The states first: what is active by then has its address.
        let states: Vec<_> = points.iter().map(state).collect();
        let listens = |point: &NodePoint| Some((point.node.clone(), running?.listens_at(point)?));
        run.status.listens_at = points.iter().filter_map(listens).collect();
        run.status.nodes = points.into_iter().zip(states).collect();
    }

    /// Writes to nodes what captures them.
    fn annotate_nodes(&self, state: &mut State) {
        let mut now: BTreeMap<Arc<str>, Vec<Value>> = BTreeMap::new();
        for run in state.runs.values() {
            for (point, state) in &run.status.nodes {
                let mut entries: Vec<(Arc<str>, Value)> = vec![
                    ("ID".into(), Value::from(&*run.capture.id().to_string())),
                    ("State".into(), state.name().into()),
                    (
                        "Type".into(),
                        run.capture.r#type.on(&point.kind).name().into(),
                    ),
                ];
                let texts = [
                    ("Name", &run.capture.name),
                    ("Description", &run.capture.description),
                    ("BPFFilter", &run.capture.bpf_filter),
                ];
                let texts = texts.into_iter().filter(|(_, text)| !text.is_empty());
                entries.extend(texts.map(|(key, text)| (key.into(), Value::from(&**text))));
                if let PointState::Refused(why) = state {
                    entries.push(("Error".into(), Value::from(&**why)));
                }
                if let Some(address) = run.status.listens_at.get(&point.node) {
                    entries.push(("Listen".into(), Value::from(&*address.ip().to_string())));
                    entries.push(("Port".into(), i64::from(address.port()).into()));
                    // As Skydive's clients look for it.
                    let socket = match run.capture.r#type {
                        CaptureType::PcapSocket => Some("PCAPSocket"),
                        CaptureType::Sflow => Some("SFlowSocket"),
                        _ => None,
                    };
                    let text = || Value::from(&*address.to_string());
                    entries.extend(socket.map(|key| (key.into(), text())));
                }
                let list = now.entry(point.node.clone()).or_default();
                list.push(Map::new(entries).into());
            }
        }
        let now: BTreeMap<Arc<str>, Value> = now
            .into_iter()
            .map(|(node, list)| (node, list.into_iter().collect()))
            .collect();
        let key = |value: Option<Value>| match value {
            Some(value) => Patch::Set(CAPTURES.into(), value),
            None => Patch::Remove(CAPTURES.into()),
        };
        let time = unix_ms();
        let gone = state.noted.iter().filter(|node| !now.contains_key(*node));
        // What the node has counts, not what was written: others write there, too.
        let graph = self.graph.read();
        let has = |node: &str, value: &Value| {
            let node = graph.current_node(node);
            node.is_none_or(|node| node.metadata.get(CAPTURES) == Some(value))
        };
        let changed = now.iter().filter(|(node, value)| !has(node, value));
        let patches: Vec<(Arc<str>, Patch)> = gone
            .map(|node| (node.clone(), key(None)))
            .chain(changed.map(|(node, value)| (node.clone(), key(Some(value.clone())))))
            .collect();
        drop(graph);
        state.noted = now.into_keys().collect();
        if patches.is_empty() {
            return;
        }
        let mut graph = self.graph.write();
        for (node, patch) in patches {
            // A node that is gone meanwhile needs none.
            let _ = graph.patch_node(&node, &[patch], time);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skua_topology::Node;
    use std::sync::mpsc;

    /// Tells what it is asked to do.
    struct Noting(Mutex<mpsc::Sender<Vec<u32>>>);

    /// With whether it was seen to be active: from then on it listens.
    struct Noted(mpsc::Sender<Vec<u32>>, Vec<NodePoint>, AtomicBool);

    impl CaptureRunner for Noting {
        fn check(&self, _: &Capture) -> Result<(), String> {
            Ok(())
        }

        fn start(&self, _: &Capture) -> Result<Box<dyn Running>, String> {
            let sender = self.0.lock().unwrap().clone();
            Ok(Box::new(Noted(sender, Vec::new(), AtomicBool::new(false))))
        }
    }

    impl Running for Noted {
        fn set_points(&mut self, points: &[NodePoint]) {
            self.1 = points.to_vec();
            self.0
                .send(points.iter().map(|p| p.ifindex).collect())
                .unwrap();
        }

        fn state(&self, point: &NodePoint) -> PointState {
            match self.1.contains(point) {
                true => {
                    self.2.store(true, Ordering::Release);
                    PointState::Active
                }
                false => PointState::Pending,
            }
        }

        fn listens_at(&self, _: &NodePoint) -> Option<SocketAddr> {
            let opened = self.2.load(Ordering::Acquire);
            opened.then(|| SocketAddr::from(([127, 0, 0, 1], 1)))
        }
    }

    impl Drop for Noted {
        fn drop(&mut self) {
            // Whoever listened may be gone.
            let _ = self.0.send(Vec::new());
        }
    }

    fn interface(index: i64, name: &str) -> Node {
        let metadata = Map::from([
            ("Name", name.into()),
            ("Type", "veth".into()),
            ("TID", Value::from(&*format!("tid-{index}"))),
            ("NetNsInode", 7.into()),
            ("IfIndex", index.into()),
        ]);
        Node::new(&format!("n{index}"), "here", metadata)
    }

    fn capture(query: &str) -> Capture {
        Capture {
            gremlin_query: query.into(),
            ..Capture::default()
        }
    }

    struct Bench {
        graph: SharedGraph,
        manager: CaptureManager,
        points: mpsc::Receiver<Vec<u32>>,
    }

    impl Bench {
        fn new() -> Self {
            let graph = SharedGraph::new(skua_topology::Config::default());
            let (send, points) = mpsc::channel();
            let runner = Arc::new(Noting(Mutex::new(send)));
            let captures = Resources::open(None, 3);
            let manager = CaptureManager::start(graph.clone(), captures, runner).unwrap();
            Self {
                graph,
                manager,
                points,
            }
        }

        fn next(&self) -> Vec<u32> {
            self.points.recv_timeout(Duration::from_secs(20)).unwrap()
        }

        /// `Captures` of a node, once it is so.
        fn wait_captures(&self, node: &str, there: bool) -> Option<Value> {
            let until = Instant::now() + Duration::from_secs(20);
            loop {
                let node = self.graph.read().current_node(node).unwrap();
                let captures = node.metadata.get(CAPTURES).cloned();
                if captures.is_some() == there {
                    return captures;
                }
                assert!(Instant::now() < until, "{captures:?}");
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }

    #[test]
    fn a_capture_follows_its_query() {
        let bench = Bench::new();
        let change = |change: &mut dyn FnMut(&mut skua_topology::Graph)| {
            change(&mut bench.graph.write());
        };
        change(&mut |graph| drop(graph.add_node(interface(1, "eth0"), 1).unwrap()));
        let made = bench
            .manager
            .create(capture("G.V().Has('Name', Regex('eth.*'))"))
            .unwrap();
        assert_eq!(bench.next(), [1]);
        let noted = bench.wait_captures("n1", true).unwrap();
        assert!(noted.at("State", &mut |state| *state == "active".into()));
        assert!(noted.at("ID", &mut |id| *id == Value::from(&*made.uuid.to_string())));
        // What is active has its address, also when it began to listen just now.
        assert!(noted.at("Port", &mut |port| *port == 1.into()));
        // One that comes later, one that is none, one that goes.
        change(&mut |graph| drop(graph.add_node(interface(2, "eth1"), 2).unwrap()));
        assert_eq!(bench.next(), [1, 2]);
        change(&mut |graph| drop(graph.add_node(interface(3, "lo"), 3).unwrap()));
        change(&mut |graph| graph.delete_node("n1", 4).unwrap());
        assert_eq!(bench.next(), [2]);
        let (_, status) = bench.manager.get(&made.uuid.to_string()).unwrap();
        assert_eq!(status.nodes.len(), 1);
        bench.wait_captures("n2", true);
        bench.manager.delete(&made.uuid.to_string()).unwrap();
        assert_eq!(bench.next(), [0; 0]);
        bench.wait_captures("n2", false);
    }

    #[test]
    fn what_another_writer_drops_comes_back() {
        let bench = Bench::new();
        let node = interface(1, "eth0");
        drop(bench.graph.write().add_node(node.clone(), 1).unwrap());
        bench.manager.create(capture("G.V()")).unwrap();
        assert_eq!(bench.next(), [1]);
        let before = bench.wait_captures("n1", true);
        let whole = node.metadata.with("MTU", 1_400.into());
        bench.graph.write().update_node("n1", whole, 2).unwrap();
        assert_eq!(bench.wait_captures("n1", true), before);
    }

    #[test]
    fn captures_end_with_their_time_and_are_not_made_twice() {
        let bench = Bench::new();
        drop(bench.graph.write().add_node(interface(1, "eth0"), 1));
        let query = "G.V().Has('Name', 'eth0')";
        let short = Capture {
            expire_time: Some(unix_ms() + 300),
            ..capture(query)
        };
        bench.manager.create(short.clone()).unwrap();
        assert_eq!(bench.next(), [1]);
        assert!(matches!(
            bench.manager.create(short),
            Err(CaptureError::Resource(ResourceError::Duplicate { .. }))
        ));
        assert_eq!(bench.next(), [0; 0]);
        bench.wait_captures("n1", false);
        assert!(bench.manager.list().is_empty());
    }

    #[test]
    fn declared_captures_are_there_once_at_each_start() {
        let graph = SharedGraph::new(skua_topology::Config::default());
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "[]").unwrap();
        let start = || {
            let kept = Resources::open(Some(file.path()), 3);
            let runner = Arc::new(Noting(Mutex::new(mpsc::channel().0)));
            CaptureManager::start(graph.clone(), kept, runner).unwrap()
        };
        let declared = || vec![capture("G.V()"), capture("G.V().Has('Name', 'eth0')")];
        let ids = |manager: &CaptureManager| {
            let all = manager.list().into_iter();
            all.map(|(capture, _)| capture.uuid).collect::<Vec<_>>()
        };
        let first = start();
        first.declare(declared()).unwrap();
        let made = ids(&first);
        assert_eq!(made.len(), 2);
        // Declared once more, by mistake or by a second reading.
        first.declare(declared()).unwrap();
        assert_eq!(ids(&first), made);
        // What people made stays, and is not made a second time.
        let theirs = first.create(capture("G.V().Has('Name', 'eth1')")).unwrap();
        drop(first);
        let again = start();
        assert_eq!(ids(&again), [theirs.uuid]);
        let more = [declared(), vec![capture("G.V().Has('Name', 'eth1')")]].concat();
        again.declare(more).unwrap();
        let mut expected = [made, vec![theirs.uuid]].concat();
        expected.sort();
        assert_eq!(ids(&again), expected);
        // One that is wrong is named.
        let wrong = vec![capture("G.V()"), capture("G.V(")];
        assert_eq!(again.declare(wrong).unwrap_err().0, 1);
        let many = ["a", "b"].map(|name| capture(&format!("G.V().Has('Name', '{name}')")));
        assert!(again.declare(many.to_vec()).is_err());
    }

    #[test]
    fn what_is_wrong_is_said() {
        let bench = Bench::new();
        let wrong = |capture: Capture| match bench.manager.create(capture) {
            Err(CaptureError::Wrong(why)) => why,
            other => panic!("{other:?}"),
        };
        assert!(wrong(capture("")).contains("GremlinQuery is missing"));
        assert!(wrong(capture("G.V().Hass('x')")).contains("did you mean `Has`"));
        assert!(wrong(capture("G.V().Count()")).contains("yields no nodes"));
        assert!(wrong(capture("G.Flows()")).contains("yields no nodes"));
        let filtered = Capture {
            bpf_filter: "tcp prot 80".into(),
            ..capture("G.V()")
        };
        assert!(wrong(filtered).contains("port"));
        for number in 0..3 {
            let query = format!("G.V().Has('IfIndex', {number})");
            bench.manager.create(capture(&query)).unwrap();
        }
        let full = bench.manager.create(capture("G.V()"));
        assert!(matches!(
            full,
            Err(CaptureError::Resource(ResourceError::TooMany(3)))
        ));
    }
}
