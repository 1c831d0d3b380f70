//! The receiver of packets: a TCP port that accepts streams of pcap or pcapng, each of which is counted as
//! by `skua replay`.

mod connection;
mod source;

use std::{
    collections::BTreeMap,
    net::{SocketAddr, TcpListener},
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use rustix::event::{EventfdFlags, Timespec, eventfd};
use skua_flow::{AddressSet, Drained, FlowUpdate, Mark, Prefix};
use skua_kernel::{flow::FlowTableConfig, next_tick};

use super::{
    FIRST_EXPORTER, ReceiveCause, Received,
    probe::AllowList,
    socket::unmapped,
    worker::{Readable, Worker, await_readable},
};
use crate::{
    Account, AddressEdit, Description, LiveAddresses, PointAccount, Probe, ProbeError, Selection,
    Wake, Watched, WatchedNamespace,
    account::add_point,
    watch::{thread_cpu_ns, wait_for},
};
use connection::{Connection, Stream};

/// What it is called.
const NAME: &str = "pcapsocket";
/// A silent connection gives its place to one that waits after this long.
const PATIENCE: Duration = Duration::from_secs(60);
/// The most capture points with an account of their own.
const MOST_POINTS: usize = 4096;
/// Between checks for a free slot while a connection waits.
const RETRY: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 50_000_000,
};

/// What the receiver is to do.
#[derive(Clone, Debug)]
pub struct PcapSocketConfig {
    /// Where it listens. Only an explicit address makes it listen beyond loopback.
    pub listen: SocketAddr,
    /// Prefixes of accepted senders; empty for all.
    pub allow: Vec<Prefix>,
    /// The flow table; its entries are shared out among the connections.
    pub table: FlowTableConfig,
    /// The address set at the start.
    pub addresses: Vec<(Prefix, Mark)>,
    /// Time between drains.
    pub scan_interval: Duration,
    /// Connections at a time; others wait until one ends.
    pub max_connections: usize,
    /// The head of the capture must have come after this long.
    pub header_timeout: Duration,
    /// A stream whose first packet is older than this is counted as if that came now, and the others as long after it
    /// as they were; none: packets have the times in the stream.
    pub oldest: Option<Duration>,
}

impl PcapSocketConfig {
    /// Listens at an address.
    pub fn at(listen: SocketAddr) -> Self {
        Self {
            listen,
            allow: Vec::new(),
            table: FlowTableConfig::default(),
            addresses: Vec::new(),
            scan_interval: Duration::from_secs(10),
            max_connections: 8,
            header_timeout: Duration::from_secs(10),
            oldest: None,
        }
    }
}

/// A connection with its thread.
struct Slot {
    connection: Arc<Connection>,
    worker: Worker,
}

/// What the threads and the probe share.
struct Shared {
    slots: Mutex<Vec<Slot>>,
    received: Mutex<Received>,
    addresses: Mutex<Arc<AddressSet>>,
    /// Readable when a drain is requested (an eventfd).
    wakeups: OwnedFd,
    allow: AllowList,
    config: PcapSocketConfig,
    selection: Selection,
}

/// What the locks guard is not left half-changed but for counters of one packet.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn wake(&self) {
        // Full only after 2⁶⁴ calls without a read.
        let _ = rustix::io::write(&self.wakeups, &1u64.to_ne_bytes());
    }

    /// Entries that each connection may have.
    fn share(&self) -> u32 {
        let connections = u32::try_from(self.config.max_connections).unwrap_or(u32::MAX);
        (self.config.table.max_entries / connections.max(1)).max(1)
    }
}

/// A receiver of packets; see [`Probe`] for its use.
pub struct PcapSocketProbe {
    shared: Arc<Shared>,
    address: SocketAddr,
    acceptor: Option<Worker>,
    addresses: LiveAddresses,
    account: Account,
    points: BTreeMap<(u16, u32), PointAccount>,
    next_drain: Instant,
}

impl PcapSocketProbe {
    /// Listens.
    ///
    /// # Errors
    ///
    /// When that is not possible there, or the filter is wrong.
    pub fn start(config: PcapSocketConfig) -> Result<Self, ProbeError> {
        let seed = config.table.hash_seed as u32;
        let selection = Selection::new(&config.table.filter, config.table.sampling, seed)?;
        let address = config.listen;
        let listen = |source| ProbeError::Listen { address, source };
        let listener = TcpListener::bind(address).map_err(listen)?;
        listener.set_nonblocking(true).map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let wakeups = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| ProbeError::Wait(error.into()))?;
        let shared = Arc::new(Shared {
            slots: Mutex::default(),
            received: Mutex::default(),
            addresses: Mutex::default(),
            wakeups,
            allow: AllowList::new(&config.allow),
            config,
            selection,
        });
        let addresses = live_addresses(&shared);
        addresses.edit(AddressEdit::Replace(&shared.config.addresses))?;
        let acceptor = {
            let shared = Arc::clone(&shared);
            Worker::start(format!("{NAME}-{}", address.port()), move |end| {
                accept(&shared, &listener, end);
            })?
        };
        tracing::info!(%address, protocol = NAME, "listening");
        Ok(Self {
            next_drain: next_tick(shared.config.scan_interval),
            shared,
            address,
            acceptor: Some(acceptor),
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
        let slots = lock(&self.shared.slots);
        let mut received = lock(&self.shared.received).clone();
        for slot in slots.iter() {
            slot.connection.add_to(&mut received);
        }
        received.exporters = slots.len() as u64;
        received
    }

    /// Drains a connection's table; true when that was the last time.
    fn drain_connection(
        &mut self,
        connection: &Connection,
        last: bool,
        sink: &mut dyn FnMut(&FlowUpdate),
    ) -> bool {
        let mut stream = connection.lock();
        let ended = stream.ended || last;
        let drained = stream.drain(&self.shared.config.table, ended, sink);
        self.settle(connection, &stream, &drained);
        if ended {
            connection.add_stream(&stream, &mut lock(&self.shared.received));
            self.account.inserted += stream.flows.inserted();
        }
        ended
    }

    /// Adds up what the points of a connection counted.
    fn settle(&mut self, connection: &Connection, stream: &Stream, drained: &Drained) {
        self.account.updates += drained.updates;
        for (key, traffic) in &drained.traffic {
            self.point(connection, stream, *key).flows += *traffic;
        }
        for (place, counters) in stream.flows.points() {
            let account = self.point(connection, stream, (place.netns, place.ifindex));
            for (cause, sum) in counters.iter() {
                account.ingress[cause as usize] = sum;
            }
        }
    }

    fn point(
        &mut self,
        connection: &Connection,
        stream: &Stream,
        key: (u16, u32),
    ) -> &mut PointAccount {
        if self.points.len() >= MOST_POINTS && !self.points.contains_key(&key) {
            return &mut self.account.removed;
        }
        self.points.entry(key).or_insert_with(|| PointAccount {
            interface: stream.interface_name(connection.peer, key.1),
            hook: NAME,
            attached: true,
            ..PointAccount::default()
        })
    }

    /// Drains the tables of all connections, and removes those that have ended.
    fn drain_all(&mut self, last: bool, sink: &mut dyn FnMut(&FlowUpdate)) {
        let shared = Arc::clone(&self.shared);
        let connections: Vec<Arc<Connection>> = lock(&shared.slots)
            .iter()
            .map(|slot| Arc::clone(&slot.connection))
            .collect();
        let mut ended = Vec::new();
        for connection in connections {
            if self.drain_connection(&connection, last, sink) {
                ended.push(connection.number);
            }
        }
        let closed: Vec<Slot> = {
            let mut slots = lock(&shared.slots);
            let (closed, kept) = std::mem::take(&mut *slots)
                .into_iter()
                .partition(|slot| ended.contains(&slot.connection.number));
            *slots = kept;
            self.account.live = slots
                .iter()
                .map(|slot| slot.connection.lock().flows.len() as u64)
                .sum();
            closed
        };
        // Their threads are joined here, without the lock.
        drop(closed);
        for number in ended {
            self.forget(number);
        }
    }

    /// Adds the account of a closed connection to the sum of such.
    fn forget(&mut self, number: u16) {
        let keys: Vec<(u16, u32)> = self
            .points
            .range((number, 0)..=(number, u32::MAX))
            .map(|(key, _)| *key)
            .collect();
        for key in keys {
            if let Some(point) = self.points.remove(&key) {
                add_point(&mut self.account.removed, &point);
            }
        }
    }
}

fn live_addresses(shared: &Arc<Shared>) -> LiveAddresses {
    let shared = Arc::clone(shared);
    LiveAddresses::new(shared.config.table.max_addresses, move |set| {
        // The lock on all is held: a new connection has either the new set or is in the list.
        let mut addresses = lock(&shared.addresses);
        *addresses = Arc::clone(set);
        for slot in lock(&shared.slots).iter() {
            slot.connection.lock().flows.set_addresses(Arc::clone(set));
        }
        Ok(())
    })
}

/// Accepts connections until the thread has to stop.
fn accept(shared: &Arc<Shared>, listener: &TcpListener, end: &OwnedFd) {
    let mut number = FIRST_EXPORTER;
    loop {
        match await_readable(listener.as_fd(), end, None) {
            Readable::End => return,
            Readable::Silent => continue,
            Readable::Ready => {}
        }
        if !has_free_slot(shared) {
            if await_readable(end.as_fd(), end, Some(&RETRY)) != Readable::Silent {
                return;
            }
            continue;
        }
        let (socket, peer) = match listener.accept() {
            Ok((socket, peer)) => (socket, unmapped(peer)),
            Err(error) => {
                // The peer has closed, or descriptors are short for the moment.
                tracing::debug!(%error, "accepting failed");
                if await_readable(end.as_fd(), end, Some(&RETRY)) != Readable::Silent {
                    return;
                }
                continue;
            }
        };
        if !shared.allow.allows(peer) {
            lock(&shared.received).lose(ReceiveCause::NotAllowed, 1);
            continue;
        }
        lock(&shared.received).datagrams += 1;
        let addresses = lock(&shared.addresses);
        let connection = Arc::new(Connection::new(number, peer, shared, &addresses));
        let worker = {
            let (shared, connection) = (Arc::clone(shared), Arc::clone(&connection));
            Worker::start(format!("{NAME}-{peer}"), move |end| {
                connection::run(&shared, &connection, socket, end);
                connection.lock().ended = true;
                shared.wake();
            })
        };
        match worker {
            Ok(worker) => lock(&shared.slots).push(Slot { connection, worker }),
            Err(error) => {
                tracing::warn!(%error, "no thread for a connection");
                lock(&shared.received).lose(ReceiveCause::ConnectionLimit, 1);
            }
        }
        drop(addresses);
        number = number
            .checked_add(1)
            .filter(|n| *n < u16::MAX)
            .unwrap_or(FIRST_EXPORTER);
    }
}

/// Whether one more connection fits; else one that was silent for long is closed.
fn has_free_slot(shared: &Shared) -> bool {
    let mut slots = lock(&shared.slots);
    if slots.len() < shared.config.max_connections {
        return true;
    }
    let quiet = |slot: &&mut Slot| {
        let stream = slot.connection.lock();
        !stream.ended && stream.heard.elapsed() > PATIENCE && !slot.worker.is_finished()
    };
    let longest = slots
        .iter_mut()
        .filter(quiet)
        .max_by_key(|slot| slot.connection.lock().heard.elapsed());
    if let Some(slot) = longest {
        tracing::info!(peer = %slot.connection.peer, "silent for long, and others wait: closed");
        slot.worker.request_stop();
        // Counted once.
        slot.connection.lock().heard = Instant::now();
        lock(&shared.received).lose(ReceiveCause::ConnectionLimit, 1);
    }
    false
}

impl Probe for PcapSocketProbe {
    fn wait(
        &mut self,
        caller: Option<BorrowedFd<'_>>,
        until: Option<Instant>,
    ) -> Result<Wake, ProbeError> {
        wait_for(&self.shared.wakeups, caller, self.next_drain, until)
    }

    fn drain(&mut self, wake: Wake, sink: &mut dyn FnMut(&FlowUpdate)) -> Result<(), ProbeError> {
        let started = thread_cpu_ns();
        self.drain_all(false, sink);
        if wake == Wake::Interval {
            let interval = self.shared.config.scan_interval;
            self.next_drain = next_tick(interval);
        }
        self.account.drained(wake, started);
        Ok(())
    }

    fn finish(&mut self, sink: &mut dyn FnMut(&FlowUpdate)) -> Result<(), ProbeError> {
        drop(self.acceptor.take());
        // All are signalled first, so that they finish at the same time.
        let mut slots = std::mem::take(&mut *lock(&self.shared.slots));
        for slot in &mut slots {
            slot.worker.request_stop();
        }
        for slot in slots {
            let connection = slot.connection;
            drop(slot.worker);
            self.drain_connection(&connection, true, sink);
            self.forget(connection.number);
        }
        self.account.live = 0;
        Ok(())
    }

    fn account(&mut self) -> Account {
        let mut account = self.account.clone();
        account.points.clone_from(&self.points);
        for slot in lock(&self.shared.slots).iter() {
            account.inserted += slot.connection.lock().flows.inserted();
        }
        account.max_entries = u64::from(self.shared.config.table.max_entries);
        account.addresses = self.addresses.counts();
        account.received = self.received();
        account
    }

    fn interfaces(&self) -> Vec<Watched> {
        let slots = lock(&self.shared.slots);
        let interfaces = slots.iter().flat_map(|slot| {
            let connection = &slot.connection;
            let stream = connection.lock();
            let count = stream.interfaces.len() as u32;
            (1..=count)
                .map(|ifindex| Watched {
                    netns_inode: 0,
                    since_ns: 0,
                    netns: connection.number,
                    ifindex,
                    netns_name: String::new(),
                    name: stream.interface_name(connection.peer, ifindex),
                })
                .collect::<Vec<_>>()
        });
        interfaces.collect()
    }

    fn namespaces(&self) -> Vec<WatchedNamespace> {
        // What others captured is in no namespace of this host.
        Vec::new()
    }

    fn describe(&self) -> Description {
        Description {
            hook: NAME,
            rung: format!("pcap and pcapng over TCP at {}", self.address),
        }
    }

    fn addresses(&self) -> LiveAddresses {
        self.addresses.clone()
    }

    fn map_memory(&self) -> Vec<(String, u64)> {
        Vec::new()
    }
}
