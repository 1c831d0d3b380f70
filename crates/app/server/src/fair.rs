//! Fair scheduling of work: how much runs at a time, and no client gets all of it.

use std::{
    collections::{HashMap, VecDeque},
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::sync::oneshot;

/// The client that the work is for.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum ClientKey {
    /// A client with a proven identity.
    Named(Arc<str>),
    /// Others, by their network ([`network`]).
    Address(IpAddr),
}

/// The part of an address that one client has: an IPv4 address, or the first 64 bits of an IPv6 one.
pub fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6((u128::from(v6) & !u128::from(u64::MAX)).into()),
        v4 => v4,
    }
}

/// Limits on running and waiting work.
#[derive(Clone, Copy, Debug)]
pub struct FairLimits {
    /// Running work of all clients.
    pub running: usize,
    /// Running work of one client.
    pub running_of_one: usize,
    /// Most waiting work of one client.
    pub waiting_of_one: usize,
    /// How long work waits at most.
    pub patience: Duration,
}

/// All turns of one client last longer than any work that is as it should be.
const STUCK: Duration = Duration::from_secs(60);

/// Too much work is waiting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Busy;

/// Schedules work: waiting clients get turns in rotation, however much work each has.
#[derive(Clone)]
pub struct Turns(Arc<Inner>);

struct Inner {
    limits: FairLimits,
    queues: Mutex<Queues>,
}

#[derive(Default)]
struct Queues {
    running: usize,
    clients: HashMap<ClientKey, Client>,
    /// Clients with waiting work, in the order of their next turns.
    next: VecDeque<ClientKey>,
    /// Since when no turn has ended, while all are taken and work waits for one.
    blocked: Option<Instant>,
}

#[derive(Default)]
struct Client {
    running: usize,
    waiting: VecDeque<oneshot::Sender<Turn>>,
    /// Since when none of its turns has ended, while it has all that it may have and its work waits.
    blocked: Option<Instant>,
}

/// The right to work; ends when dropped.
pub struct Turn {
    turns: Turns,
    client: Option<ClientKey>,
}

impl Turns {
    /// A scheduler without work.
    pub fn new(limits: FairLimits) -> Self {
        Self(Arc::new(Inner {
            limits,
            queues: Mutex::default(),
        }))
    }

    /// A turn, at once or after others.
    pub async fn acquire(&self, client: &ClientKey) -> Result<Turn, Busy> {
        let limits = &self.0.limits;
        let receiver = {
            let mut queues = self.lock();
            let running = queues.running;
            let entry = queues.clients.entry(client.clone()).or_default();
            if running < limits.running && entry.running < limits.running_of_one {
                entry.running += 1;
                queues.running += 1;
                return Ok(self.turn(client));
            }
            let now = Instant::now();
            if entry.running >= limits.running_of_one {
                entry.blocked.get_or_insert(now);
            }
            if running >= limits.running {
                queues.blocked.get_or_insert(now);
            }
            let entry = queues.clients.entry(client.clone()).or_default();
            // Drop requests of clients that have disconnected.
            entry.waiting.retain(|sender| !sender.is_closed());
            if entry.waiting.len() >= limits.waiting_of_one {
                return Err(Busy);
            }
            let (sender, receiver) = oneshot::channel();
            entry.waiting.push_back(sender);
            if !queues.next.contains(client) {
                queues.next.push_back(client.clone());
            }
            receiver
        };
        match tokio::time::timeout(limits.patience, receiver).await {
            Ok(Ok(turn)) => Ok(turn),
            _ => Err(Busy),
        }
    }

    /// For how long no work has ended, if so long that requests of all clients, or of one, are refused meanwhile.
    pub fn blocked(&self, now: Instant) -> Option<Duration> {
        let queues = self.lock();
        let patience = self.0.limits.patience;
        let longer = |since: Option<Instant>, than: Duration| {
            let blocked = now.saturating_duration_since(since?);
            (blocked >= than).then_some(blocked)
        };
        let of_one = queues.clients.values();
        let of_one = of_one.filter_map(|client| longer(client.blocked, patience.max(STUCK)));
        longer(queues.blocked, patience)
            .into_iter()
            .chain(of_one)
            .max()
    }

    fn lock(&self) -> MutexGuard<'_, Queues> {
        self.0.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn turn(&self, client: &ClientKey) -> Turn {
        Turn {
            turns: self.clone(),
            client: Some(client.clone()),
        }
    }

    fn give_back(&self, client: &ClientKey) {
        {
            let mut queues = self.lock();
            queues.running -= 1;
            queues.blocked = None;
            if let Some(entry) = queues.clients.get_mut(client) {
                entry.running -= 1;
                entry.blocked = None;
                if entry.running == 0 && entry.waiting.is_empty() {
                    queues.clients.remove(client);
                }
            }
        }
        while let Some((sender, turn)) = self.next() {
            // A client that has disconnected drops the turn, which frees it for the next.
            drop(sender.send(turn));
        }
        self.note_waiting(client);
    }

    /// After a turn of a client has ended: others wait from now on.
    fn note_waiting(&self, client: &ClientKey) {
        let (limits, now) = (&self.0.limits, Instant::now());
        let mut queues = self.lock();
        if queues.running >= limits.running && !queues.next.is_empty() {
            queues.blocked.get_or_insert(now);
        }
        if let Some(entry) = queues.clients.get_mut(client)
            && entry.running >= limits.running_of_one
            && !entry.waiting.is_empty()
        {
            entry.blocked.get_or_insert(now);
        }
    }

    /// The next turn, if the limits allow one.
    fn next(&self) -> Option<(oneshot::Sender<Turn>, Turn)> {
        let mut queues = self.lock();
        if queues.running >= self.0.limits.running {
            return None;
        }
        for _ in 0..queues.next.len() {
            let key = queues.next.pop_front()?;
            let Some(entry) = queues.clients.get_mut(&key) else {
                continue;
            };
            if entry.running >= self.0.limits.running_of_one {
                queues.next.push_back(key);
                continue;
            }
            while entry
                .waiting
                .front()
                .is_some_and(oneshot::Sender::is_closed)
            {
                entry.waiting.pop_front();
            }
            let Some(sender) = entry.waiting.pop_front() else {
                if entry.running == 0 {
                    queues.clients.remove(&key);
                }
                continue;
            };
            entry.running += 1;
            if !entry.waiting.is_empty() {
                queues.next.push_back(key.clone());
            }
            queues.running += 1;
            return Some((sender, self.turn(&key)));
        }
        None
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(client) = self.client.take() {
            self.turns.give_back(&client);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: FairLimits = FairLimits {
        running: 3,
        running_of_one: 2,
        waiting_of_one: 2,
        patience: Duration::from_secs(3600),
    };

    fn key(name: &str) -> ClientKey {
        ClientKey::Named(name.into())
    }

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap()
    }

    #[test]
    fn one_client_leaves_room_for_others() {
        runtime().block_on(async {
            let turns = Turns::new(LIMITS);
            let greedy = key("greedy");
            let held = [turns.acquire(&greedy).await, turns.acquire(&greedy).await];
            assert!(held.iter().all(Result::is_ok));
            let mut waiting = Vec::new();
            for _ in 0..2 {
                let (turns, greedy) = (turns.clone(), greedy.clone());
                waiting.push(tokio::spawn(async move { turns.acquire(&greedy).await }));
                tokio::task::yield_now().await;
            }
            assert_eq!(turns.acquire(&greedy).await.err(), Some(Busy));
            let other = turns.acquire(&key("other")).await.ok().unwrap();
            let third = {
                let turns = turns.clone();
                tokio::spawn(async move { turns.acquire(&key("third")).await })
            };
            tokio::task::yield_now().await;
            drop(other);
            assert!(third.await.unwrap().is_ok());
            drop(held);
            for task in waiting {
                assert!(task.await.unwrap().is_ok());
            }
            assert_eq!(turns.lock().running, 0);
            assert!(
                turns.lock().clients.is_empty(),
                "no entry remains of a disconnected client"
            );
        });
    }

    #[test]
    fn a_disconnected_client_takes_no_turn() {
        runtime().block_on(async {
            let turns = Turns::new(FairLimits {
                running: 1,
                running_of_one: 1,
                ..LIMITS
            });
            let held = turns.acquire(&key("a")).await.ok().unwrap();
            let gone = {
                let turns = turns.clone();
                tokio::spawn(async move { turns.acquire(&key("b")).await })
            };
            tokio::task::yield_now().await;
            let stays = {
                let turns = turns.clone();
                tokio::spawn(async move { turns.acquire(&key("c")).await })
            };
            tokio::task::yield_now().await;
            gone.abort();
            let _ = gone.await;
            drop(held);
            drop(stays.await.unwrap().ok().unwrap());
            assert_eq!(turns.lock().running, 0);
            assert!(turns.lock().clients.is_empty());
        });
    }

    #[test]
    fn one_client_has_64_bits_of_ipv6() {
        let of = |text: &str| network(text.parse().unwrap());
        assert_eq!(of("2001:db8:1:2:3::4"), of("2001:db8:1:2:ffff::1"));
        assert_ne!(of("2001:db8:1:2::1"), of("2001:db8:1:3::1"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
        assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
    }

    #[test]
    fn work_that_never_ends_blocks_and_what_ends_does_not() {
        runtime().block_on(async {
            let (limits, begin) = (
                FairLimits {
                    patience: Duration::ZERO,
                    ..LIMITS
                },
                Instant::now(),
            );
            let turns = Turns::new(limits);
            let after = |seconds| turns.blocked(begin + Duration::from_secs(seconds));
            let held = [
                turns.acquire(&key("a")).await,
                turns.acquire(&key("a")).await,
            ];
            // All turns of one client are taken: no fault as long as nothing has to wait.
            assert_eq!(after(3_600), None);
            assert_eq!(turns.acquire(&key("a")).await.err(), Some(Busy));
            assert_eq!(after(50), None, "others have turns");
            assert!(after(70).is_some(), "none of its work ended for a minute");
            let [one, _other] = held;
            drop(one);
            assert_eq!(after(3_600), None);
            // All turns of all clients.
            let _more = [
                turns.acquire(&key("a")).await,
                turns.acquire(&key("b")).await,
            ];
            assert_eq!(after(3_600), None);
            assert_eq!(turns.acquire(&key("c")).await.err(), Some(Busy));
            assert!(after(1).is_some());
            drop(_more);
            assert_eq!(after(3_600), None);
        });
    }
}
