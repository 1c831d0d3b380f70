//! The probe that all protocols of datagrams share: a thread takes them from the socket and counts.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use rustix::event::{EventfdFlags, eventfd};
use skua_flow::{AddressSet, CapturePoint, Direction, Drained, FlowUpdate, Mark, Prefix};
use skua_kernel::{flow::FlowTableConfig, next_tick};

use super::{
    ReceiveCause, Received,
    engine::Engine,
    socket::Socket,
    worker::{Readable, Worker, await_readable},
};
use crate::{
    Account, AddressEdit, Description, LiveAddresses, PointAccount, Probe, ProbeError, Wake,
    Watched, WatchedNamespace,
    userspace::{ageing, unix_ns},
    watch::{thread_cpu_ns, wait_for},
};

/// Datagrams that are counted under one lock.
const BATCH: usize = 64;
/// The longest datagram of UDP.
const MAX_DATAGRAM: usize = 65_535;
/// The most capture points with an account of their own.
const MOST_POINTS: usize = 4096;

/// What a receiver is to do.
#[derive(Clone, Debug)]
pub struct ReceiverConfig {
    /// Where it listens. Only an explicit address makes it listen beyond loopback.
    pub listen: SocketAddr,
    /// Prefixes of accepted senders; empty for all.
    pub allow: Vec<Prefix>,
    /// The flow table; sampling is not applied to what others have counted, and the filter to samples only.
    pub table: FlowTableConfig,
    /// The address set at the start.
    pub addresses: Vec<(Prefix, Mark)>,
    /// Time between drains.
    pub scan_interval: Duration,
    /// Bytes of the socket's queue.
    pub queue_bytes: usize,
}

impl ReceiverConfig {
    /// Listens on a port of 127.0.0.1.
    pub fn loopback(port: u16) -> Self {
        Self::at(SocketAddr::from(([127, 0, 0, 1], port)))
    }

    /// Listens at an address.
    pub fn at(listen: SocketAddr) -> Self {
        Self {
            listen,
            allow: Vec::new(),
            table: FlowTableConfig::default(),
            addresses: Vec::new(),
            scan_interval: Duration::from_secs(10),
            queue_bytes: 8 << 20,
        }
    }
}

/// Prefixes as a set: what is not in it is left out.
pub struct AllowList(Option<AddressSet>);

impl AllowList {
    /// An empty list is one of all.
    pub fn new(prefixes: &[Prefix]) -> Self {
        let mut set = AddressSet::default();
        for prefix in prefixes {
            set.insert(*prefix, Mark::Include);
        }
        Self((!set.is_empty()).then_some(set))
    }

    /// Whether a sender is listened to.
    pub fn allows(&self, from: SocketAddr) -> bool {
        self.0.as_ref().is_none_or(|set| set.holds(from.ip()))
    }

    /// Whether a sender is in one of the prefixes, of which there may be none.
    pub fn names(&self, from: SocketAddr) -> bool {
        self.0.as_ref().is_some_and(|set| set.holds(from.ip()))
    }
}

/// What the thread and the probe share.
struct State<E> {
    engine: E,
    received: Received,
    /// Number of entries at which to request a drain; none: it was requested.
    wake_at: Option<u64>,
}

struct Shared<E> {
    state: Mutex<State<E>>,
    /// Readable when the table fills up (an eventfd).
    wakeups: OwnedFd,
    allow: AllowList,
}

impl<E> Shared<E> {
    fn lock(&self) -> MutexGuard<'_, State<E>> {
        // A thread that panicked left at most one datagram half counted.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A receiver of datagrams; see [`Probe`] for its use.
#[expect(private_bounds, reason = "which engines there are is decided here")]
pub struct DatagramProbe<E: Engine> {
    config: ReceiverConfig,
    shared: Arc<Shared<E>>,
    socket: Arc<Socket>,
    address: SocketAddr,
    worker: Option<Worker>,
    addresses: LiveAddresses,
    account: Account,
    points: BTreeMap<(u16, u32), PointAccount>,
    next_drain: Instant,
}

#[expect(private_bounds, reason = "which engines there are is decided here")]
impl<E: Engine> DatagramProbe<E> {
    /// Listens.
    pub(super) fn with_engine(config: ReceiverConfig, engine: E) -> Result<Self, ProbeError> {
        let socket = Arc::new(Socket::bind(config.listen, config.queue_bytes)?);
        let address = socket.address().map_err(|source| ProbeError::Listen {
            address: config.listen,
            source,
        })?;
        let wakeups = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| ProbeError::Wait(error.into()))?;
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                engine,
                received: Received::default(),
                wake_at: Some(u64::from(config.table.max_entries).div_ceil(2)),
            }),
            wakeups,
            allow: AllowList::new(&config.allow),
        });
        let addresses = {
            let shared = Arc::clone(&shared);
            LiveAddresses::new(config.table.max_addresses, move |set| {
                shared.lock().engine.set_addresses(Arc::clone(set));
                Ok(())
            })
        };
        addresses.edit(AddressEdit::Replace(&config.addresses))?;
        let worker = {
            let (shared, socket) = (Arc::clone(&shared), Arc::clone(&socket));
            Worker::start(format!("{}-{}", E::NAME, address.port()), move |end| {
                run(&shared, &socket, end);
            })?
        };
        tracing::info!(%address, protocol = E::NAME, "listening");
        Ok(Self {
            next_drain: next_tick(config.scan_interval),
            config,
            shared,
            socket,
            address,
            worker: Some(worker),
            addresses,
            account: Account::default(),
            points: BTreeMap::new(),
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it got and lost so far.
    pub fn received(&self) -> Received {
        let mut received = self.shared.lock().received.clone();
        if let Some(dropped) = self.socket.dropped() {
            received.lost[ReceiveCause::QueueFull as usize] = dropped;
        }
        received
    }

    /// A handle that reads something out of the engine at any time, also from other threads.
    pub(super) fn reader<T>(&self, read: fn(&E) -> T) -> Arc<dyn Fn() -> T + Send + Sync>
    where
        T: 'static,
    {
        let shared = Arc::clone(&self.shared);
        Arc::new(move || read(&shared.lock().engine))
    }

    /// After a drain: adds up what each point counted.
    fn settle(&mut self, drained: &Drained) {
        self.account.updates += drained.updates;
        for (key, traffic) in &drained.traffic {
            self.point(*key).flows += *traffic;
        }
        let shared = Arc::clone(&self.shared);
        let state = shared.lock();
        state.engine.points(&mut |place: CapturePoint, counters| {
            let account = self.point((place.netns, place.ifindex));
            let causes = match place.direction {
                Direction::Ingress => &mut account.ingress,
                Direction::Egress => &mut account.egress,
            };
            for (cause, sum) in counters.iter() {
                causes[cause as usize] = sum;
            }
        });
        for watched in state.engine.interfaces() {
            if let Some(point) = self.points.get_mut(&(watched.netns, watched.ifindex)) {
                point.interface = watched.name;
            }
        }
        self.account.live = state.engine.live() as u64;
        self.account.inserted = state.engine.inserted();
    }

    fn point(&mut self, key: (u16, u32)) -> &mut PointAccount {
        if self.points.len() >= MOST_POINTS && !self.points.contains_key(&key) {
            return &mut self.account.removed;
        }
        self.points.entry(key).or_insert_with(|| PointAccount {
            hook: E::NAME,
            attached: true,
            ..PointAccount::default()
        })
    }
}

/// Reads datagrams from the socket until the thread has to stop, and then those still queued.
fn run<E: Engine>(shared: &Shared<E>, socket: &Socket, end: &OwnedFd) {
    let mut buffer = vec![0; MAX_DATAGRAM];
    loop {
        let readable = await_readable(socket.as_fd(), end, None);
        while receive(shared, socket, &mut buffer) {}
        if readable == Readable::End {
            return;
        }
    }
}

/// Counts some datagrams; false when the queue is empty.
fn receive<E: Engine>(shared: &Shared<E>, socket: &Socket, buffer: &mut [u8]) -> bool {
    let mut guard = shared.lock();
    let State {
        engine,
        received,
        wake_at,
    } = &mut *guard;
    for _ in 0..BATCH {
        let (length, from) = match socket.receive(buffer) {
            Ok(Some(datagram)) => datagram,
            Ok(None) => return false,
            Err(error) => {
                // An error of the network, like ICMP: the socket stays usable.
                tracing::debug!(%error, "receiving failed");
                return false;
            }
        };
        received.datagrams += 1;
        received.bytes += length as u64;
        if shared.allow.allows(from) {
            engine.datagram(from, &buffer[..length], unix_ns(), received);
        } else {
            received.lose(ReceiveCause::NotAllowed, 1);
        }
    }
    if wake_at.is_some_and(|at| engine.inserted() >= at) {
        *wake_at = None;
        // It cannot be full: it is read before it is written again.
        let _ = rustix::io::write(&shared.wakeups, &1u64.to_ne_bytes());
    }
    true
}

impl<E: Engine> Probe for DatagramProbe<E> {
    fn wait(
        &mut self,
        caller: Option<BorrowedFd<'_>>,
        until: Option<Instant>,
    ) -> Result<Wake, ProbeError> {
        wait_for(&self.shared.wakeups, caller, self.next_drain, until)
    }

    fn drain(&mut self, wake: Wake, sink: &mut dyn FnMut(&FlowUpdate)) -> Result<(), ProbeError> {
        let started = thread_cpu_ns();
        let shared = Arc::clone(&self.shared);
        let mut guard = shared.lock();
        let state = &mut *guard;
        let live = state.engine.live();
        let ageing = ageing(&self.config.table, live, unix_ns());
        let drained = state.engine.drain(&ageing, &mut state.received, sink);
        // Call again when half of what is free is taken.
        let live = state.engine.live() as u64;
        let free = u64::from(self.config.table.max_entries).saturating_sub(live);
        state.wake_at = Some(state.engine.inserted() + (free / 2).max(1));
        drop(guard);
        self.settle(&drained);
        if wake == Wake::Interval {
            self.next_drain = next_tick(self.config.scan_interval);
        }
        self.account.drained(wake, started);
        Ok(())
    }

    fn finish(&mut self, sink: &mut dyn FnMut(&FlowUpdate)) -> Result<(), ProbeError> {
        drop(self.worker.take());
        let shared = Arc::clone(&self.shared);
        let mut state = shared.lock();
        let State {
            engine, received, ..
        } = &mut *state;
        let drained = engine.finish(received, sink);
        drop(state);
        self.settle(&drained);
        for point in self.points.values_mut() {
            point.attached = false;
        }
        Ok(())
    }

    fn account(&mut self) -> Account {
        self.account.points.clone_from(&self.points);
        self.account.max_entries = u64::from(self.config.table.max_entries);
        self.account.addresses = self.addresses.counts();
        self.account.received = self.received();
        self.account.clone()
    }

    fn interfaces(&self) -> Vec<Watched> {
        self.shared.lock().engine.interfaces()
    }

    fn namespaces(&self) -> Vec<WatchedNamespace> {
        // Exporters' interfaces are in no namespace of this host.
        Vec::new()
    }

    fn describe(&self) -> Description {
        Description {
            hook: E::NAME,
            rung: format!("datagrams at {}", self.address),
        }
    }

    fn addresses(&self) -> LiveAddresses {
        self.addresses.clone()
    }

    fn map_memory(&self) -> Vec<(String, u64)> {
        Vec::new()
    }
}
