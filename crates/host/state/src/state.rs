//! What the probe's thread and the API share.

use skua_flow::{FlowRecord, FlowStore, FlowUpdate, StoreLimits, Summary};
use skua_probe::{Account, Watched, unix_ns};
use skua_topology::{IndexKey, Lookup, SharedGraph, Value};
use std::{
    borrow::Cow,
    collections::HashMap,
    ops::ControlFlow,
    os::unix::net::UnixStream,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock, RwLockWriteGuard,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::sync::watch;
use uuid::Uuid;

use crate::{
    drain_lock::{DrainGuard, DrainLock, ReadGuard},
    place::{FlowPlace, interface_at},
    sockets::Sockets,
};

/// Records kept without history: enough to sum up, not to look back.
const NO_HISTORY_RECORDS: usize = 1;

/// Interfaces whose names are remembered after they are gone.
const NAMES_AT_MOST: usize = 65_536;

/// Reads what each drain has changed: of which capture (none: what is always captured) and what there is. No
/// other drain begins meanwhile; others may read.
pub type Observer = dyn Fn(Option<Uuid>, &State) + Send + Sync;

/// Observers of drains.
#[derive(Clone, Default)]
pub struct Observers(Arc<RwLock<Vec<Arc<Observer>>>>);

impl Observers {
    /// One more.
    pub fn add(&self, observer: Arc<Observer>) {
        let list = self.0.write();
        list.unwrap_or_else(PoisonError::into_inner).push(observer);
    }

    /// Has all of them read.
    fn read(&self, state: &State) {
        for observer in self.all() {
            observer(state.capture, state);
        }
    }

    fn all(&self) -> Vec<Arc<Observer>> {
        let list = self.0.read();
        list.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// How long drains waited until they had the state to themselves.
#[derive(Clone, Copy, Default, Debug)]
pub struct DrainWaits {
    /// All of them together.
    pub total: Duration,
    /// The one that waited longest.
    pub longest: Duration,
}

/// How long one drain waited.
#[derive(Default)]
pub struct DrainWait(Duration);

impl DrainWaits {
    /// Adds a drain.
    pub fn add(&mut self, DrainWait(waited): DrainWait) {
        self.total += waited;
        self.longest = self.longest.max(waited);
    }
}

/// What was counted, as of a drain.
#[derive(Clone, Default)]
pub struct Counts {
    /// What was seen and lost.
    pub account: Arc<Account>,
    /// Totals of the conversations.
    pub totals: Summary,
    /// How long drains waited for readers.
    pub waits: DrainWaits,
    /// Kernel memory by map.
    pub map_memory: Arc<[(String, u64)]>,
}

/// Everything that a question can be about.
pub struct State {
    /// Conversations.
    pub store: FlowStore,
    /// Whether conversations are kept at all.
    history: bool,
    /// What was seen and lost, as of the last drain.
    pub account: Arc<Account>,
    /// Interfaces by (namespace number, index), with the inode numbers of their namespaces.
    places: HashMap<(u16, u32), (u64, Arc<FlowPlace>)>,
    /// Which capture this is, none for what is always captured.
    capture: Option<Uuid>,
    /// Has the nodes of interfaces.
    graph: Option<SharedGraph>,
    /// The graph's last event at the last search for nodes; none when another interface has come since.
    searched_at: Option<u64>,
    /// Observers of drains.
    observers: Observers,
    /// What those have whose interface is not known.
    nowhere: Arc<FlowPlace>,
    /// Time of the last drain, ns since the epoch.
    pub drained_ns: u64,
    /// Number of drains.
    pub drains: u64,
    /// How long drains waited for readers.
    pub waits: DrainWaits,
    /// Nothing more comes: there is nothing to wait for.
    ended: bool,
    /// Kernel memory by map.
    pub map_memory: Arc<[(String, u64)]>,
    /// What the table is made of, for `skua doctor`.
    pub rung: String,
    /// Sockets, when they are watched.
    pub sockets: Option<Sockets>,
    /// What is said in conversations, when that is read.
    pub lookups: Option<skua_apps::Log>,
}

impl State {
    /// An empty state. `history` is the memory for records in bytes.
    pub fn new(history: u64, records: usize, seed: u64, sampling: u32) -> Self {
        let limits = if history == 0 {
            StoreLimits {
                records: NO_HISTORY_RECORDS,
                bytes: usize::MAX,
            }
        } else {
            StoreLimits {
                records,
                bytes: usize::try_from(history).unwrap_or(usize::MAX),
            }
        };
        Self {
            store: FlowStore::new(limits, seed, sampling),
            history: history > 0,
            account: Arc::default(),
            places: HashMap::new(),
            capture: None,
            graph: None,
            searched_at: None,
            observers: Observers::default(),
            nowhere: Arc::default(),
            drained_ns: 0,
            drains: 0,
            waits: DrainWaits::default(),
            ended: false,
            map_memory: Arc::default(),
            rung: String::new(),
            sockets: None,
            lookups: None,
        }
    }

    /// Says that a drain begins.
    pub fn begin_drain(&mut self) {
        self.begin_drain_at(unix_ns());
    }

    /// Says that a drain of packets begins whose clock says `now_ns`.
    pub fn begin_drain_at(&mut self, now_ns: u64) {
        self.drained_ns = now_ns;
        self.store.begin_drain(now_ns);
    }

    /// Takes an update.
    pub fn apply(&mut self, update: &FlowUpdate) {
        if !self.history {
            return;
        }
        match &self.sockets {
            Some(sockets) => self
                .store
                .apply_owned(update, |record| sockets.join(record)),
            None => self.store.apply(update),
        };
    }

    /// Finds owners of the conversations that began just before a drain: the poll of sockets has come since.
    pub fn join_late(&mut self) {
        if let Some(sockets) = &mut self.sockets {
            sockets.sweep(self.store.iter());
            self.store.retry_owners(|record| sockets.join(record));
        }
    }

    /// Totals of the conversations; without history only how many entries there were.
    pub fn totals(&self) -> Summary {
        if self.history {
            self.store.summary()
        } else {
            Summary {
                flows: self.account.inserted,
                ..Summary::default()
            }
        }
    }

    /// What was counted, for who writes it without the lock.
    pub fn counts(&self) -> Counts {
        Counts {
            account: self.account.clone(),
            totals: self.totals(),
            waits: self.waits,
            map_memory: self.map_memory.clone(),
        }
    }

    /// Sets the host, the capture, the graph that has the nodes of its interfaces, and the observers of drains.
    pub fn set_origin(
        &mut self,
        host: &str,
        capture: Option<Uuid>,
        graph: Option<SharedGraph>,
        observers: Observers,
    ) {
        self.capture = capture;
        self.graph = graph;
        self.observers = observers;
        self.nowhere = Arc::new(FlowPlace {
            host: host.into(),
            capture: capture.map(|id| id.to_string()).unwrap_or_default().into(),
            ..FlowPlace::default()
        });
        self.store.note_touched();
    }

    /// Says that all of it was captured for one node, whatever the interface.
    pub fn set_node(&mut self, tid: &str) {
        Arc::make_mut(&mut self.nowhere).node = tid.into();
    }

    /// Takes note of what a drain says besides flows.
    pub fn end_drain(&mut self, account: Account) {
        self.account = Arc::new(account);
        self.drains += 1;
        self.find_nodes();
        self.store.end_drain();
    }

    /// The same for the only drain that there is, and has observers read it.
    pub fn end_with(&mut self, account: Account) {
        self.ended = true;
        self.end_drain(account);
        self.observers.clone().read(self);
    }

    /// Name of the host.
    pub fn host(&self) -> &str {
        &self.nowhere.host
    }

    /// Remembers the name of an interface, and since when its packets are counted.
    pub fn name_interface(&mut self, interface: &Watched) {
        let key = (interface.netns, interface.ifindex);
        let known = self.places.get(&key);
        let same = |(_, place): &(u64, Arc<FlowPlace>)| match &*interface.netns_name {
            "" => *place.interface == *interface.name,
            netns => {
                let rest = place.interface.strip_prefix(netns);
                rest.and_then(|rest| rest.strip_prefix('/')) == Some(&interface.name)
            }
        };
        let as_before =
            |known: &(u64, Arc<FlowPlace>)| same(known) && known.1.since_ns == interface.since_ns;
        if known.is_some_and(as_before) || (known.is_none() && self.places.len() >= NAMES_AT_MOST) {
            return;
        }
        let name = if interface.netns_name.is_empty() {
            interface.name.as_str().into()
        } else {
            format!("{}/{}", interface.netns_name, interface.name).into()
        };
        let place = FlowPlace {
            interface: name,
            since_ns: interface.since_ns,
            ..(*self.nowhere).clone()
        };
        self.places
            .insert(key, (interface.netns_inode, Arc::new(place)));
        self.searched_at = None;
    }

    /// The graph and its last event, when there are interfaces without a node and the graph has changed since the
    /// last search for them.
    fn new_nodes(&self) -> Option<(&SharedGraph, u64)> {
        let graph = self.graph.as_ref()?;
        let nameless = |(_, place): &(u64, Arc<FlowPlace>)| place.node.is_empty();
        if !self.places.values().any(nameless) {
            return None;
        }
        let event = graph.read().last_event();
        (self.searched_at != Some(event)).then_some((graph, event))
    }

    /// Finds the nodes of interfaces that have none yet, when the graph may have others than at the last search.
    pub fn find_nodes(&mut self) {
        let Some((graph, event)) = self.new_nodes() else {
            return;
        };
        let graph = graph.clone();
        self.searched_at = Some(event);
        for ((_, ifindex), (inode, place)) in &mut self.places {
            if place.node.is_empty()
                && let Some(node) = node_of(&graph, &place.host, *inode, *ifindex)
            {
                Arc::make_mut(place).node = node;
            }
        }
    }

    /// Inode number of the namespace where a record was captured.
    pub fn namespace_of(&self, record: &FlowRecord) -> Option<u32> {
        let place = self.places.get(&(record.key.netns, record.key.ifindex));
        place.and_then(|(inode, _)| u32::try_from(*inode).ok())
    }

    /// Where a record was captured.
    pub fn place_of(&self, record: &FlowRecord) -> &Arc<FlowPlace> {
        let place = self.places.get(&(record.key.netns, record.key.ifindex));
        place.map_or(&self.nowhere, |(_, place)| place)
    }

    /// Name of an interface, its index when it has none.
    pub fn interface_named(&self, netns: u16, ifindex: u32) -> String {
        match self.places.get(&(netns, ifindex)) {
            Some((_, place)) => place.interface.to_string(),
            None => format!("if{ifindex}"),
        }
    }

    /// Name of a record's interface, its index when it has none.
    pub fn interface_of(&self, record: &FlowRecord) -> Cow<'_, str> {
        interface_at(self.place_of(record), record)
    }
}

/// `TID` of the node of an interface of a host. Other hosts have namespaces with the same numbers.
fn node_of(graph: &SharedGraph, host: &str, inode: u64, ifindex: u32) -> Option<Box<str>> {
    let index = IndexKey::of(&Value::Int(ifindex.into()))?;
    let graph = graph.read();
    let mut tid = None;
    let lookup = Lookup::Key("IfIndex", &index);
    // An error means that there is no such history, which now always is.
    let _ = graph.scan_nodes(graph.now(), lookup, 0, usize::MAX, &mut |node, _| {
        let has = |key: &str| node.metadata.get(key);
        let there = has("NetNsInode").and_then(Value::as_int) == i64::try_from(inode).ok();
        if there && *node.host == *host {
            tid = has("TID").and_then(Value::as_str).map(Into::into);
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    });
    tid
}

/// The state and the means to have it brought up to date. One lock covers it: a reader holds it for as long as a
/// page of records takes to be copied ([`crate::copies`]), and a drain that waits goes before those who read next.
#[derive(Clone)]
pub struct Shared {
    inner: Arc<Inner>,
}

struct Inner {
    state: DrainLock<State>,
    /// Number of the last drain that observers have read.
    observed: Mutex<u64>,
    drained: Condvar,
    /// Number of drains that were announced, for those who cannot wait on a thread.
    announced: watch::Sender<u64>,
    /// Whether a reader waits for a drain.
    wanted: AtomicBool,
    /// A byte here ends the probe's wait.
    waker: UnixStream,
}

impl Shared {
    /// Shares a state; `waker` is the far end of a socket that the probe's thread polls.
    pub fn new(state: State, waker: UnixStream) -> Self {
        Self {
            inner: Arc::new(Inner {
                observed: Mutex::new(state.drains),
                state: DrainLock::new(state),
                drained: Condvar::new(),
                announced: watch::Sender::new(0),
                wanted: AtomicBool::new(false),
                waker,
            }),
        }
    }

    /// A state without drains: an analyzer captures nothing itself.
    pub fn still(mut state: State) -> std::io::Result<Self> {
        let (_, waker) = UnixStream::pair()?;
        state.ended = true;
        Ok(Self::new(state, waker))
    }

    /// The state. A drain waits for each reader: copy a bounded number of records, no more.
    pub fn read(&self) -> ReadGuard<'_, State> {
        self.inner.state.read()
    }

    /// The state, to change something small.
    pub fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.inner.state.write()
    }

    /// The state for a drain, before all who read later; adds how long that took.
    pub fn drain(&self, waited: &mut DrainWait) -> DrainGuard<'_, State> {
        let began = Instant::now();
        let state = self.inner.state.drain();
        waited.0 += began.elapsed();
        state
    }

    /// Whether the lock is free.
    #[cfg(test)]
    pub fn is_free(&self) -> bool {
        self.inner.state.is_free()
    }

    /// The state after a drain that is not older than a moment and that observers have read; drains for that if need
    /// be.
    pub fn fresh(&self) -> ReadGuard<'_, State> {
        const FRESH: Duration = Duration::from_millis(100);
        const PATIENCE: Duration = Duration::from_secs(3);
        let state = self.read();
        if state.ended {
            return state;
        }
        let is_old = unix_ns().saturating_sub(state.drained_ns) >= FRESH.as_nanos() as u64;
        let wanted = state.drains + u64::from(is_old);
        drop(state);
        if is_old {
            self.inner.wanted.store(true, Ordering::Release);
            // A full socket means that the probe has been woken already.
            let _ = std::io::Write::write(&mut &self.inner.waker, b"d");
        }
        let observed = self.observed();
        let wait = |observed: &mut u64| *observed < wanted;
        drop(
            self.inner
                .drained
                .wait_timeout_while(observed, PATIENCE, wait),
        );
        self.read()
    }

    fn observed(&self) -> MutexGuard<'_, u64> {
        let observed = self.inner.observed.lock();
        observed.unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks for the nodes of interfaces that have none yet.
    pub fn find_nodes(&self) {
        // Mostly there is nothing to change.
        if self.read().new_nodes().is_some() {
            self.write().find_nodes();
        }
    }

    /// Whether a drain was asked for; forgets it.
    pub fn take_wanted(&self) -> bool {
        self.inner.wanted.swap(false, Ordering::AcqRel)
    }

    /// Has observers read what a drain has changed, then wakes those who wait for it. Belongs on the thread that drains,
    /// so that the next drain comes after it.
    pub fn announce(&self) {
        let state = self.read();
        state.observers.read(&state);
        let drains = state.drains;
        drop(state);
        *self.observed() = drains;
        self.inner.drained.notify_all();
        self.inner.announced.send_modify(|drains| *drains += 1);
    }

    /// Tells it from others as long as it is there.
    pub fn id(&self) -> usize {
        Arc::as_ptr(&self.inner) as usize
    }

    /// Changes with each drain.
    pub fn drains(&self) -> watch::Receiver<u64> {
        self.inner.announced.subscribe()
    }
}
