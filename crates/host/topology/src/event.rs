//! Changes of the graph, and its subscribers.

use crate::{Edge, Node};
use serde::{Deserialize, Serialize};
use std::{
    collections::VecDeque,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak},
    time::{Duration, Instant},
};

/// What a change did, with the element as it was left.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Change {
    /// A node came.
    NodeAdded(Arc<Node>),
    /// A node has other metadata.
    NodeUpdated(Arc<Node>),
    /// A node was deleted, after its edges.
    NodeDeleted(Arc<Node>),
    /// An edge came.
    EdgeAdded(Arc<Edge>),
    /// An edge has other metadata.
    EdgeUpdated(Arc<Edge>),
    /// An edge was deleted.
    EdgeDeleted(Arc<Edge>),
}

impl Change {
    /// Name in messages to subscribers.
    pub fn name(&self) -> &'static str {
        match self {
            Self::NodeAdded(_) => "NodeAdded",
            Self::NodeUpdated(_) => "NodeUpdated",
            Self::NodeDeleted(_) => "NodeDeleted",
            Self::EdgeAdded(_) => "EdgeAdded",
            Self::EdgeUpdated(_) => "EdgeUpdated",
            Self::EdgeDeleted(_) => "EdgeDeleted",
        }
    }

    /// The node, or what the edge has in common with nodes.
    pub fn element(&self) -> &Node {
        match self {
            Self::NodeAdded(node) | Self::NodeUpdated(node) | Self::NodeDeleted(node) => node,
            Self::EdgeAdded(edge) | Self::EdgeUpdated(edge) | Self::EdgeDeleted(edge) => {
                &edge.element
            }
        }
    }
}

/// A change. With all of them from the first on, or with an export and all that came after it, the
/// graph can be made again ([`crate::Graph::replay`]).
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Event {
    /// Number of the event, from 1 on, without gaps.
    pub seq: u64,
    /// Ms since the Unix epoch; never before that of an earlier event.
    pub time: i64,
    /// What happened.
    pub change: Change,
}

/// What a subscriber gets.
#[derive(Clone, PartialEq, Debug)]
pub enum Delivery {
    /// The next event.
    Event(Arc<Event>),
    /// So many events did not fit into the queue. The subscriber has to read the graph itself again, and
    /// continues with the next events.
    Lost(u64),
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Delivery>,
    lost: u64,
    closed: bool,
}

struct Channel {
    queue: Mutex<Queue>,
    capacity: usize,
    came: Condvar,
}

impl Channel {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        // Nothing can panic half-way through a change of the queue.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The receiving end of a subscription; dropping it ends the subscription.
pub struct Subscription(Arc<Channel>);

impl Subscription {
    /// The next delivery, if there is one.
    pub fn try_next(&self) -> Option<Delivery> {
        Self::next_delivery(&mut self.0.lock())
    }

    /// The next delivery, waiting for it at most `patience`. None also when the graph was dropped.
    pub fn next(&self, patience: Duration) -> Option<Delivery> {
        let end = Instant::now() + patience;
        let mut queue = self.0.lock();
        loop {
            if let Some(delivery) = Self::next_delivery(&mut queue) {
                return Some(delivery);
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() || queue.closed {
                return None;
            }
            let waited = self.0.came.wait_timeout(queue, left);
            queue = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Whether the graph was dropped, or [`Closer::close`] was called.
    pub fn is_closed(&self) -> bool {
        self.0.lock().closed
    }

    /// For another thread, to end the waiting of the one that has the subscription.
    pub fn closer(&self) -> Closer {
        Closer(Arc::downgrade(&self.0))
    }

    fn next_delivery(queue: &mut Queue) -> Option<Delivery> {
        if let Some(delivery) = queue.waiting.pop_front() {
            return Some(delivery);
        }
        match std::mem::take(&mut queue.lost) {
            0 => None,
            lost => Some(Delivery::Lost(lost)),
        }
    }
}

/// Ends a [`Subscription`] that another thread waits for.
pub struct Closer(Weak<Channel>);

impl Closer {
    /// After what waits already [`Subscription::next`] gives none at once.
    pub fn close(&self) {
        if let Some(channel) = self.0.upgrade() {
            channel.lock().closed = true;
            channel.came.notify_all();
        }
    }
}

/// All subscribers.
#[derive(Default)]
pub(crate) struct Subscribers(Vec<Weak<Channel>>);

impl Subscribers {
    pub fn subscribe(&mut self, capacity: usize) -> Subscription {
        let channel = Arc::new(Channel {
            queue: Mutex::default(),
            capacity: capacity.max(1),
            came: Condvar::new(),
        });
        self.0.push(Arc::downgrade(&channel));
        Subscription(channel)
    }

    /// Whether there are subscribers.
    pub fn any(&self) -> bool {
        !self.0.is_empty()
    }

    /// Queues `event` for all subscribers, without waiting for any.
    pub fn publish(&mut self, event: Event) {
        let event = Arc::new(event);
        self.0.retain(|weak| {
            let Some(channel) = weak.upgrade() else {
                return false;
            };
            let mut queue = channel.lock();
            let full = queue.waiting.len() >= channel.capacity;
            // Once something is lost the rest waits until the subscriber has seen all before it, so
            // that the gap is reported where it is.
            if full || queue.lost > 0 {
                queue.lost += 1;
            } else {
                queue.waiting.push_back(Delivery::Event(event.clone()));
            }
            drop(queue);
            channel.came.notify_one();
            true
        });
    }

    pub fn len(&self) -> usize {
        self.0.iter().filter(|weak| weak.strong_count() > 0).count()
    }
}

impl Drop for Subscribers {
    fn drop(&mut self) {
        for channel in self.0.drain(..) {
            Closer(channel).close();
        }
    }
}
