//! Which names led clients to which addresses, and when.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    net::{IpAddr, SocketAddr},
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
};

use crate::dns::{Dialect, Lookup, Outcome, numbers};

/// What this process has learnt, so that all records of conversations can show it; none when nothing is read.
static LEARNT: RwLock<Option<Names>> = RwLock::new(None);
/// Whether there is something, readable without the lock.
static READS: AtomicBool = AtomicBool::new(false);

/// From now on names are learnt, of so many pairs of client and address.
pub fn begin(most: usize) {
    *LEARNT.write().unwrap_or_else(PoisonError::into_inner) = Some(Names::new(most));
    READS.store(true, Ordering::Release);
}

/// Learns from a lookup, if names are learnt.
pub(crate) fn learn(lookup: &Lookup) {
    if let Some(names) = &mut *LEARNT.write().unwrap_or_else(PoisonError::into_inner) {
        names.learn(lookup);
    }
}

/// Learns that a client was told an address for a name, at a moment.
pub fn add(client: IpAddr, address: IpAddr, name: &str, at_ns: u64) {
    if let Some(names) = &mut *LEARNT.write().unwrap_or_else(PoisonError::into_inner) {
        names.put((Some(client), address), &name.into(), at_ns);
    }
}

fn with<T>(ask: impl FnOnce(&Names) -> Option<T>) -> Option<T> {
    if !READS.load(Ordering::Acquire) {
        return None;
    }
    let learnt = LEARNT.read().unwrap_or_else(PoisonError::into_inner);
    learnt.as_ref().and_then(ask)
}

/// The name by which the other side of a conversation that began at a moment, `client`, has found an address.
pub fn of(client: IpAddr, address: IpAddr, at_ns: u64) -> Option<Arc<str>> {
    with(|names| names.of(client, address, at_ns).cloned())
}

/// Whether DNS was spoken with a server there.
pub fn is_server(server: SocketAddr) -> bool {
    with(|names| names.servers.contains(&server).then_some(())).is_some()
}

/// Pairs of client and address, and addresses, that have names, and those that had to go.
pub fn counts() -> (usize, u64) {
    with(|names| Some((names.len(), names.evicted))).unwrap_or_default()
}

/// Names of an address that a client has asked for, kept at the same time.
const MOST_OF_ADDRESS: usize = 8;
/// Servers that are remembered.
const MOST_SERVERS: usize = 4096;
/// A connection may be seen a moment before the answer that led to it is: they come from different buffers.
const TOLERANCE_NS: u64 = 50_000_000;

/// A name, and when it was answered with the address.
#[derive(Clone, Debug)]
struct Named {
    name: Arc<str>,
    first_ns: u64,
    last_ns: u64,
}

/// Addresses that names were answered with, by client. Bounded: the address that was learnt first goes first.
#[derive(Debug)]
pub struct Names {
    most: usize,
    /// By client and address; without a client, of any.
    known: HashMap<(Option<IpAddr>, IpAddr), Vec<Named>>,
    order: VecDeque<(Option<IpAddr>, IpAddr)>,
    /// Servers that have answered.
    servers: HashSet<SocketAddr>,
    /// Addresses that had to go because there were too many.
    pub evicted: u64,
}

impl Names {
    /// Room for the names of so many pairs of client and address.
    pub fn new(most: usize) -> Self {
        Self {
            most: most.max(2),
            known: HashMap::new(),
            order: VecDeque::new(),
            servers: HashSet::new(),
            evicted: 0,
        }
    }

    /// Pairs of client and address, and addresses, that have names.
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Whether none is known.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// Learns from an answer: the addresses, also those behind aliases, have the name that was asked for.
    pub fn learn(&mut self, lookup: &Lookup) {
        let answered = matches!(lookup.outcome, Outcome::Answered | Outcome::Unasked);
        if answered && lookup.dialect == Dialect::Dns && self.servers.len() < MOST_SERVERS {
            self.servers.insert(lookup.server);
        }
        if lookup.outcome != Outcome::Answered || !lookup.succeeded() || lookup.name.is_empty() {
            return;
        }
        let addresses = lookup.answers.iter().filter_map(|answer| {
            let is_address = matches!(answer.kind, numbers::A | numbers::AAAA);
            is_address.then(|| answer.data.parse::<IpAddr>().ok())?
        });
        let at = lookup.time_ns + lookup.latency_ns.unwrap_or(0);
        let mut name: Option<Arc<str>> = None;
        for address in addresses {
            let name = name.get_or_insert_with(|| lookup.name.to_lowercase().into());
            for client in [Some(lookup.client.ip()), None] {
                self.put((client, address), name, at);
            }
        }
    }

    fn put(&mut self, key: (Option<IpAddr>, IpAddr), name: &Arc<str>, at: u64) {
        if !self.known.contains_key(&key) {
            self.order.push_back(key);
            if self.known.len() >= self.most
                && let Some(oldest) = self.order.pop_front()
            {
                self.known.remove(&oldest);
                self.evicted += 1;
            }
        }
        let names = self.known.entry(key).or_default();
        if let Some(place) = names.iter().position(|named| named.name == *name) {
            let mut named = names.remove(place);
            named.last_ns = named.last_ns.max(at);
            names.push(named);
            return;
        }
        if names.len() == MOST_OF_ADDRESS {
            names.remove(0);
        }
        names.push(Named {
            name: Arc::clone(name),
            first_ns: at,
            last_ns: at,
        });
    }

    /// The name by which a client that speaks to an address at a moment has found it: the last one that it asked for
    /// before, or else the last one that anybody here asked for.
    pub fn of(&self, client: IpAddr, address: IpAddr, at_ns: u64) -> Option<&Arc<str>> {
        let moment = at_ns.saturating_add(TOLERANCE_NS);
        [Some(client), None].into_iter().find_map(|client| {
            let names = self.known.get(&(client, address))?;
            // The last answer before the moment; of a name that was answered before and after, the one before counts.
            let before = names.iter().filter(|named| named.first_ns <= moment);
            let named = before.max_by_key(|named| match named.last_ns <= moment {
                true => named.last_ns,
                false => named.first_ns,
            })?;
            Some(&named.name)
        })
    }
}
