//! What clients said first in TLS, by conversation, so that all records of it can show that.

use std::{
    collections::{HashMap, VecDeque},
    net::SocketAddr,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
};

use crate::tls::ClientHello;

/// Conversations that are remembered; the oldest goes first.
const MOST: usize = 65_536;
/// Clocks of packets and of flows differ by a tick.
const TOLERANCE_NS: u64 = 50_000_000;

/// Client and server.
type Ends = (SocketAddr, SocketAddr);

#[derive(Default)]
struct Learnt {
    known: HashMap<Ends, (u64, Arc<ClientHello>)>,
    order: VecDeque<(Ends, u64)>,
    evicted: u64,
}

/// What this process has learnt; none when nothing is read.
static LEARNT: RwLock<Option<Learnt>> = RwLock::new(None);
/// Whether there is something, readable without the lock.
static READS: AtomicBool = AtomicBool::new(false);

/// From now on what clients say is learnt.
pub fn begin() {
    *LEARNT.write().unwrap_or_else(PoisonError::into_inner) = Some(Learnt::default());
    READS.store(true, Ordering::Release);
}

/// Learns what a client said, at a moment.
pub fn learn(client: SocketAddr, server: SocketAddr, time_ns: u64, hello: ClientHello) {
    let mut learnt = LEARNT.write().unwrap_or_else(PoisonError::into_inner);
    let Some(learnt) = &mut *learnt else {
        return;
    };
    let ends = (client, server);
    learnt.known.insert(ends, (time_ns, Arc::new(hello)));
    learnt.order.push_back((ends, time_ns));
    while learnt.order.len() > MOST {
        let Some((ends, time_ns)) = learnt.order.pop_front() else {
            return;
        };
        // Of ports that were used again the later one stays.
        if learnt
            .known
            .get(&ends)
            .is_some_and(|(at, _)| *at == time_ns)
        {
            learnt.known.remove(&ends);
            learnt.evicted += 1;
        }
    }
}

/// What the client of a conversation between two ends said, that existed from one moment to another.
pub fn of(one: SocketAddr, other: SocketAddr, times_ns: [u64; 2]) -> Option<Arc<ClientHello>> {
    if !READS.load(Ordering::Acquire) {
        return None;
    }
    let learnt = LEARNT.read().unwrap_or_else(PoisonError::into_inner);
    let learnt = learnt.as_ref()?;
    [(one, other), (other, one)].iter().find_map(|ends| {
        let (at, hello) = learnt.known.get(ends)?;
        let [first, last] = times_ns;
        let within =
            at.saturating_add(TOLERANCE_NS) >= first && *at <= last.saturating_add(TOLERANCE_NS);
        within.then(|| Arc::clone(hello))
    })
}

/// Conversations that are known, and those that had to go.
pub fn counts() -> (usize, u64) {
    let learnt = LEARNT.read().unwrap_or_else(PoisonError::into_inner);
    learnt
        .as_ref()
        .map_or((0, 0), |l| (l.known.len(), l.evicted))
}
