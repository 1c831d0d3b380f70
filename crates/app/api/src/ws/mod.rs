//! WebSockets for subscribers of changes, in Skydive's formats.

mod alerts;
mod flow;
mod graph;
mod mailbox;
mod map;
mod message;
mod publisher;
mod socket;
mod watch;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::{Router, http::HeaderValue};
use skua_control::{alert::AlertManager, elements::UserGraph};
use skua_runtime::{actions::Actions, query_engine::QueryEngine};
use skua_server::{Limits, fair::ClientKey, work};
use skua_state::Shared;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::ws::{alerts::AlertFeed, flow::FlowFeed, graph::GraphFeed, socket::Closed};

/// Sources of the subscribers' messages.
pub struct Parts {
    engine: QueryEngine,
    shared: Shared,
    alerts: Arc<AlertManager>,
    elements: Arc<UserGraph>,
}

impl Parts {
    /// Of a graph with its flows, of the drains that change those, and of what users do.
    pub fn new(engine: &QueryEngine, shared: &Shared, actions: &Actions) -> Self {
        Self {
            engine: engine.clone(),
            shared: shared.clone(),
            alerts: actions.alerts().clone(),
            elements: actions.elements().clone(),
        }
    }
}

/// Bytes of a message of a client at most.
const MESSAGE: usize = 128 << 10;

/// What the paths of this module share.
#[derive(Clone)]
struct Hub {
    engine: QueryEngine,
    graph: Arc<GraphFeed>,
    flows: Arc<FlowFeed>,
    alerts: Arc<AlertFeed>,
    elements: Arc<UserGraph>,
    places: Arc<SocketSlots>,
    ping: Duration,
    /// Name of this host, which Skydive's clients ask for.
    host: HeaderValue,
    /// The routes that serve lists.
    routes: Router,
}

/// The paths of this module; lists are served by the other paths.
pub fn routes(host: &str, parts: Parts, limits: &Limits, others: &Router) -> OpenApiRouter {
    let hub = Hub {
        graph: GraphFeed::new(parts.engine.graph.clone(), limits.waiting),
        flows: FlowFeed::new(parts.engine.clone(), parts.shared, limits.waiting),
        alerts: AlertFeed::new(parts.alerts, limits.waiting),
        elements: parts.elements,
        engine: parts.engine,
        places: Arc::new(SocketSlots {
            most: limits.subscribers,
            most_of_one: limits.subscribers_of_one,
            taken: Mutex::default(),
        }),
        ping: limits.ping,
        host: HeaderValue::from_str(host).unwrap_or_else(|_| HeaderValue::from_static("skua")),
        routes: others.clone(),
    };
    OpenApiRouter::new()
        .routes(routes!(graph::subscribe))
        .routes(routes!(flow::subscribe))
        .routes(routes!(map::subscribe))
        .routes(routes!(publisher::publish))
        .with_state(hub)
}

/// Blocking work for a subscriber, with a turn of its client.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Closed> {
    let turn = match work::client() {
        Some((turns, key)) => Some(turns.acquire(&key).await.map_err(|_| Closed)?),
        None => None,
    };
    let done = tokio::task::spawn_blocking(move || (work(), turn)).await;
    done.map(|(value, _turn)| value).map_err(|_| Closed)
}

/// How many WebSockets are open, by client.
struct SocketSlots {
    most: usize,
    most_of_one: usize,
    taken: Mutex<HashMap<ClientKey, usize>>,
}

/// The right to a WebSocket; ends when dropped.
struct SocketSlot {
    places: Arc<SocketSlots>,
    client: ClientKey,
}

impl SocketSlots {
    fn acquire(self: &Arc<Self>, client: ClientKey) -> Option<SocketSlot> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let own = taken.get(&client).copied().unwrap_or_default();
        if own >= self.most_of_one || taken.values().sum::<usize>() >= self.most {
            return None;
        }
        taken.insert(client.clone(), own + 1);
        Some(SocketSlot {
            places: self.clone(),
            client,
        })
    }
}

impl Drop for SocketSlot {
    fn drop(&mut self) {
        let mut taken = self
            .places
            .taken
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = taken.get_mut(&self.client) {
            *own -= 1;
            if *own == 0 {
                taken.remove(&self.client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_bounded_by_client_and_in_all() {
        let places = Arc::new(SocketSlots {
            most: 3,
            most_of_one: 2,
            taken: Mutex::default(),
        });
        let take = |name: &str| places.acquire(ClientKey::Named(name.into()));
        let held = [take("a"), take("a")];
        assert!(held.iter().all(Option::is_some));
        assert!(take("a").is_none());
        let other = take("b");
        assert!(other.is_some() && take("c").is_none());
        drop(other);
        assert!(take("c").is_some());
        drop(held);
        assert!(places.taken.lock().unwrap().is_empty());
    }
}
