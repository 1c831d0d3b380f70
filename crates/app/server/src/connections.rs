//! The open connections, and which is closed when there are too many.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use tokio::task::AbortHandle;

use crate::fair::network;

/// What a connection does; the first kind is closed first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Activity {
    /// No complete request: half-open, idle, or slow to read its last answer.
    Waiting,
    /// It sends a body.
    Sending,
    /// Its answer is being made.
    Answered,
}

struct Connection {
    network: IpAddr,
    doing: Activity,
    since: Instant,
    task: Option<AbortHandle>,
}

#[derive(Default)]
struct Table {
    next: u64,
    open: HashMap<u64, Connection>,
}

/// A limit on connections. A new one is always accepted: the one that has waited longest is closed,
/// so that clients without requests cannot lock out others.
pub struct Connections {
    most: usize,
    table: Mutex<Table>,
}

/// A connection's slot; freed when dropped.
pub struct ConnectionSlot {
    all: Arc<Connections>,
    id: u64,
}

impl Connections {
    /// None yet.
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Self {
            most: most.max(1),
            table: Mutex::default(),
        })
    }

    /// A slot for a new connection.
    pub fn admit(self: &Arc<Self>, address: IpAddr) -> Arc<ConnectionSlot> {
        let mut table = self.lock();
        if table.open.len() >= self.most {
            let first = table
                .open
                .iter()
                .min_by_key(|(id, c)| (c.doing, c.since, **id))
                .map(|(id, _)| *id);
            if let Some(gone) = first.and_then(|id| table.open.remove(&id)) {
                tracing::debug!(network = %gone.network, "too many connections: the oldest is closed");
                if let Some(task) = gone.task {
                    task.abort();
                }
            }
        }
        let id = table.next;
        table.next += 1;
        table.open.insert(
            id,
            Connection {
                network: network(address),
                doing: Activity::Waiting,
                since: Instant::now(),
                task: None,
            },
        );
        Arc::new(ConnectionSlot {
            all: self.clone(),
            id,
        })
    }

    /// Number of open ones.
    pub fn count(&self) -> usize {
        self.lock().open.len()
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConnectionSlot {
    /// Sets the task that serves the connection; aborting it closes the connection.
    pub fn set_task(&self, task: AbortHandle) {
        match self.all.lock().open.get_mut(&self.id) {
            Some(connection) => connection.task = Some(task),
            None => task.abort(),
        }
    }

    /// Sets the connection's activity.
    pub fn set(&self, doing: Activity) {
        if let Some(connection) = self.all.lock().open.get_mut(&self.id) {
            connection.doing = doing;
            connection.since = Instant::now();
        }
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.all.lock().open.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_wait_the_longest_go_first() {
        let all = Connections::new(3);
        let here = IpAddr::from([127, 0, 0, 1]);
        let (a, b, c) = (all.admit(here), all.admit(here), all.admit(here));
        a.set(Activity::Answered);
        b.set(Activity::Sending);
        let has = |place: &ConnectionSlot| all.lock().open.contains_key(&place.id);
        let d = all.admit(here);
        assert_eq!([&a, &b, &c, &d].map(|p| has(p)), [true, true, false, true]);
        d.set(Activity::Answered);
        let e = all.admit(here);
        assert_eq!([&a, &b, &d, &e].map(|p| has(p)), [true, false, true, true]);
        drop((a, b, c, d, e));
        assert_eq!(all.count(), 0);
    }
}
