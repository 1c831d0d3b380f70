//! `/ws/subscriber/flow`: the flows that each drain has changed.

use std::{collections::HashMap, ops::ControlFlow, sync::Arc};

use axum::response::IntoResponse as _;
use axum::{extract::State, response::Response};
use serde_json::json;
use skua_process::host::unix_ms;
use skua_query::{Flow, SharedTexts};
use skua_runtime::query_engine::QueryEngine;
use skua_server::error::ApiError;
use skua_sources::{FlowSet, Wanted};
use skua_state::Shared;
use tokio::sync::watch;

use crate::ws::{
    Hub,
    mailbox::{Mail, Mailbox, Mailboxes, Message},
    message,
    socket::{Closed, Socket, SocketRequest},
};

/// Header, or parameter, with a namespace to subscribe to; may come several times.
const NAMESPACES: &str = "X-Websocket-Namespace";
/// All flows; `flow/` and the identifier of a capture are those of one.
const FLOW: &str = "flow";
/// Sums of sent and dropped flows.
const STATS: &str = "stats";
/// Type of messages with flows.
const STORE: &str = "store";
/// Entries of the store that are read under one lock.
const PART: u32 = 1024;
/// Flows in a message at most.
const FLOWS: usize = 256;
/// Most namespaces of a subscriber.
const MOST: usize = 64;

/// A namespace and its subscribers' mailboxes.
#[derive(Default)]
struct Topic {
    mailboxes: Mailboxes,
}

/// Encodes the changes of each drain once for all subscribers, while there are any.
pub struct FlowFeed {
    engine: QueryEngine,
    shared: Shared,
    /// Bytes that wait for each subscriber at most.
    waiting: usize,
    /// Subscribers of whatever namespace.
    all: Mailboxes,
    topics: std::sync::Mutex<HashMap<String, Arc<Topic>>>,
    /// The last drain: its number, and how many flows it changed.
    drained: watch::Sender<Drained>,
}

/// The time up to which subscribers have the changes of each store, ns since the Unix epoch.
type SentUpTo = HashMap<usize, u64>;

/// What a drain did.
#[derive(Clone, Copy, Default)]
struct Drained {
    time: i64,
    flows: u64,
}

impl FlowFeed {
    /// A feed without subscribers.
    pub fn new(engine: QueryEngine, shared: Shared, waiting: usize) -> Arc<Self> {
        Arc::new(Self {
            engine,
            shared,
            waiting,
            all: Mailboxes::default(),
            topics: std::sync::Mutex::default(),
            drained: watch::Sender::new(Drained::default()),
        })
    }

    /// A mailbox for the flows of some namespaces.
    fn join(self: &Arc<Self>, namespaces: &[String]) -> Arc<Mailbox> {
        let mailbox = Mailbox::new(self.waiting);
        {
            let mut topics = self.lock();
            topics.retain(|_, topic| !topic.mailboxes.open().is_empty());
            for namespace in namespaces {
                let topic = topics.entry(namespace.clone()).or_default();
                topic.mailboxes.add(&mailbox);
            }
        }
        if self.all.add(&mailbox) {
            let drains = self.shared.drains();
            tokio::spawn(self.clone().pump(drains, self.now()));
        }
        mailbox
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Arc<Topic>>> {
        let topics = self.topics.lock();
        topics.unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Subscribers of a namespace.
    fn wanting(&self, namespace: &str) -> Vec<Arc<Mailbox>> {
        let topic = self.lock().get(namespace).cloned();
        topic.map_or_else(Vec::new, |topic| topic.mailboxes.open())
    }

    /// Sends the changes of each drain. Captures drain at their own times; their changes are sent
    /// with the next drain of the probe.
    async fn pump(self: Arc<Self>, mut drains: watch::Receiver<u64>, mut sent_up_to: SentUpTo) {
        while drains.changed().await.is_ok() {
            if self.all.open().is_empty() {
                return;
            }
            let feed = self.clone();
            let done = tokio::task::spawn_blocking(move || feed.publish(&sent_up_to)).await;
            match done {
                Ok(newest) => sent_up_to = newest,
                Err(error) => return tracing::error!(%error, "subscribers of flows get nothing"),
            }
        }
    }

    /// The current time of all stores.
    fn now(&self) -> SentUpTo {
        let sets = self.engine.flow_states().into_iter();
        sets.map(|(shared, _)| (shared.id(), shared.read().drained_ns))
            .collect()
    }

    /// Sends changes since the last time, and returns the new times.
    fn publish(&self, sent_up_to: &SentUpTo) -> SentUpTo {
        let mut newest = SentUpTo::new();
        let mut flows = 0;
        for (shared, set) in self.engine.flow_states() {
            shared.find_nodes();
            let until = shared.read().drained_ns;
            let since = sent_up_to.get(&shared.id()).copied().unwrap_or_default();
            newest.insert(shared.id(), until);
            let mut from = Some(0);
            while let Some(place) = from {
                let mut part = Part::default();
                from = part.read(&*set, place, since, until);
                flows += part.flows();
                self.send(&part);
            }
        }
        let time = unix_ms();
        self.drained.send_replace(Drained { time, flows });
        newest
    }

    fn send(&self, part: &Part) {
        for (capture, flows) in &part.0 {
            let one = format!("{FLOW}/{capture}");
            let names = [FLOW, one.as_str()];
            // Flows without a capture are in the namespace `flow` only.
            let names = &names[..if capture.is_empty() { 1 } else { 2 }];
            for name in names {
                let wanting = self.wanting(name);
                for chunk in flows.chunks(FLOWS) {
                    let items = chunk.len() as u64;
                    let (open, full): (Vec<_>, Vec<_>) =
                        wanting.iter().partition(|mailbox| mailbox.has_room());
                    full.iter().for_each(|mailbox| mailbox.drop_items(items));
                    if open.is_empty() {
                        continue;
                    }
                    let values: Vec<_> = chunk.iter().map(|flow| flow.to_value()).collect();
                    let message = Message {
                        text: message::news(name, STORE, values).into(),
                        items,
                        seq: 0,
                    };
                    open.iter().for_each(|mailbox| mailbox.push(&message));
                }
            }
        }
    }
}

/// Flows of a part of a store, by capture.
#[derive(Default)]
struct Part(HashMap<Arc<str>, Vec<Flow>>, SharedTexts);

impl Part {
    /// Continues at an entry; returns where the next part begins.
    fn read(&mut self, set: &dyn FlowSet, from: u32, since: u64, until: u64) -> Option<u32> {
        use skua_query::FlowRecord as _;
        set.scan(from, PART, &Wanted::All, &mut |view| {
            let updated = view.record.updated_ns;
            if updated > since && updated <= until {
                let flows = self.0.entry(view.place.capture.clone()).or_default();
                flows.push(view.keep(&mut self.1));
            }
            ControlFlow::Continue(())
        })
    }

    fn flows(&self) -> u64 {
        self.0.values().map(|flows| flows.len() as u64).sum()
    }
}

/// Flows that each drain has changed, and counts of dropped ones
#[utoipa::path(get, path = "/ws/subscriber/flow", operation_id = "subscribeFlows", tag = "websocket",
    params(("x-websocket-namespace" = Option<Vec<String>>, Query,
        description = "flow, flow/CAPTURE or stats; also as header X-Websocket-Namespace; flow and stats when left out")),
    responses((status = 101, description = "A WebSocket from here on")))]
pub async fn subscribe(State(hub): State<Hub>, request: SocketRequest) -> Response {
    let mut wanted = request.values(NAMESPACES);
    if wanted.is_empty() || wanted.iter().any(|name| name == "*") {
        wanted = vec![FLOW.into(), STATS.into()];
    }
    let known = |name: &String| {
        name == FLOW || name == STATS || name.strip_prefix("flow/").is_some_and(|id| !id.is_empty())
    };
    if wanted.len() > MOST || !wanted.iter().all(known) {
        return ApiError::bad_request("namespaces are flow, flow/CAPTURE and stats")
            .into_response();
    }
    let feed = hub.flows.clone();
    request.open(&hub, async move |socket| {
        let subscriber = Subscriber {
            stats: wanted.iter().any(|name| name == STATS),
            drained: feed.drained.subscribe(),
            mailbox: feed.join(&wanted),
            socket,
            sent: 0,
            dropped: 0,
        };
        // Ends with the connection.
        let _ = subscriber.run().await;
    })
}

struct Subscriber {
    socket: Socket,
    mailbox: Arc<Mailbox>,
    drained: watch::Receiver<Drained>,
    stats: bool,
    /// Flows sent to the client.
    sent: u64,
    /// Flows not sent, because the client did not read in time.
    dropped: u64,
}

impl Subscriber {
    async fn run(mut self) -> Result<(), Closed> {
        loop {
            tokio::select! {
                // The changes of a drain are sent before its sums.
                biased;
                // Messages of the client are ignored, as in Skydive.
                text = self.socket.next() => { text?; }
                mail = self.mailbox.next() => match mail {
                    Mail::Message(message) => {
                        self.socket.send(message.text).await?;
                        self.sent += message.items;
                    }
                    Mail::Dropped(dropped) => self.dropped += dropped,
                    Mail::Closed => return Err(Closed),
                },
                changed = self.drained.changed() => {
                    changed.map_err(|_| Closed)?;
                    self.send_stats().await?;
                }
            }
        }
    }

    async fn send_stats(&mut self) -> Result<(), Closed> {
        if !self.stats {
            return Ok(());
        }
        let Drained { time, flows } = *self.drained.borrow_and_update();
        let obj = json!({
            "Time": time,
            "Changed": flows,
            "Sent": self.sent,
            "Dropped": {"slow_reader": self.dropped},
        });
        self.socket.send(message::news(STATS, "stats", obj)).await
    }
}
