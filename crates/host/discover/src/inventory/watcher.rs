//! Follows the graph, and calls those that a change matters to.

use super::{place::text, worker::Wake};
use crate::DiscoveryError;
use skua_topology::{Change, Closer, Delivery, Node, Subscription, Value};
use std::{collections::HashMap, fmt, sync::Arc, thread::JoinHandle, time::Duration};

/// Changes that wait at most; when more come everybody is called.
pub(super) const QUEUE: usize = 16_384;
/// Limits the wait, so that a missed notification cannot block the thread for ever.
const PATIENCE: Duration = Duration::from_secs(3_600);

/// Who is called.
#[derive(Debug, Default)]
pub(super) struct Calls {
    pub containers: Option<Wake>,
    pub processes: Option<Wake>,
    pub guests: Option<Wake>,
    pub programs: Option<Wake>,
    pub rules: Option<Wake>,
    pub neighbours: Option<Wake>,
}

impl Calls {
    fn all(&self) -> [&Option<Wake>; 6] {
        [
            &self.containers,
            &self.processes,
            &self.guests,
            &self.programs,
            &self.rules,
            &self.neighbours,
        ]
    }
}

fn call<'a>(wakes: impl IntoIterator<Item = &'a Option<Wake>>) {
    wakes.into_iter().flatten().for_each(Wake::call);
}

/// The thread; dropping it ends it.
pub(super) struct Watcher {
    thread: Option<JoinHandle<()>>,
    closer: Closer,
}

impl fmt::Debug for Watcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watcher").finish_non_exhaustive()
    }
}

impl Watcher {
    pub fn start(
        events: Subscription,
        host: Arc<str>,
        calls: Calls,
    ) -> Result<Self, DiscoveryError> {
        let closer = events.closer();
        let mut follower = Follower {
            host,
            calls,
            interfaces: HashMap::new(),
        };
        let thread = std::thread::Builder::new()
            .name("discover-graph".into())
            .spawn(move || {
                while !events.is_closed() {
                    match events.next(PATIENCE) {
                        Some(Delivery::Event(event)) => follower.apply(&event.change),
                        Some(Delivery::Lost(_)) => call(follower.calls.all()),
                        None => {}
                    }
                }
            })
            .map_err(DiscoveryError::system("starting a thread"))?;
        Ok(Self {
            thread: Some(thread),
            closer,
        })
    }

    pub fn is_running(&self) -> bool {
        self.thread.as_ref().is_some_and(|t| !t.is_finished())
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.closer.close();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Follower {
    host: Arc<str>,
    calls: Calls,
    /// Properties of interfaces that may have guests or programs: a change of them triggers a poll.
    interfaces: HashMap<Arc<str>, [Option<Value>; 3]>,
}

impl Follower {
    fn apply(&mut self, change: &Change) {
        let (node, updated) = match change {
            Change::NodeAdded(node) | Change::NodeDeleted(node) => (node, false),
            Change::NodeUpdated(node) => (node, true),
            _ => return,
        };
        if node.host != self.host {
            return;
        }
        let calls = &self.calls;
        match text(node, "Type") {
            "netns" if !updated => call([
                &calls.containers,
                &calls.processes,
                &calls.programs,
                &calls.rules,
                &calls.neighbours,
            ]),
            "container" if !updated => call([&calls.processes]),
            kind if node.metadata.get("IfIndex").is_some() => {
                let tap = kind == "tuntap";
                if !updated {
                    call([&calls.neighbours]);
                }
                if matches!(change, Change::NodeDeleted(_)) {
                    if self.interfaces.remove(&node.id).is_some() && tap {
                        call([&self.calls.guests]);
                    }
                } else {
                    self.interface(node, tap, updated);
                }
            }
            _ => {}
        }
    }

    fn interface(&mut self, node: &Node, tap: bool, updated: bool) {
        let value = |key: &str| node.metadata.get(key).cloned();
        let xdp = value("XDP");
        if !updated {
            call([&self.calls.programs]);
        }
        if !tap && xdp.is_none() && !self.interfaces.contains_key(&node.id) {
            return;
        }
        // A process that opens a tap changes its state; counters do not matter.
        let now = [value("State"), value("LinkFlags"), xdp];
        let before = self.interfaces.insert(node.id.clone(), now.clone());
        let before = before.unwrap_or_default();
        if before[2] != now[2] {
            call([&self.calls.programs]);
        }
        if tap && before[..2] != now[..2] {
            call([&self.calls.guests]);
        }
    }
}
