//! The agent's end of the connection with its analyzer.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use anyhow::{Context as _, bail};
use futures_util::{SinkExt as _, StreamExt as _};
use skua_analyzer::capture::{CaptureRunner, NodePoint, Running};
use skua_topology::{Delivery, Export, SharedGraph};
use tokio::sync::{Notify, mpsc};
use tokio_tungstenite::tungstenite::{Message, protocol::WebSocketConfig};
use uuid::Uuid;

use super::protocol::{
    self, Assigned, BEAT, Flows, FromAgent, MESSAGE, PART, PROTOCOL, Party, Place, SILENCE, State,
    ToAgent,
};
use crate::{
    captures::run::CaptureSets,
    graph::node_of,
    state::{Shared, State as Captured},
};

/// Time until a lost connection is tried again, doubled each time.
const SOON: Duration = Duration::from_millis(500);
const LATE: Duration = Duration::from_secs(30);

/// Changes of the graph that wait; when more come, the whole is told again.
const EVENTS: usize = 65_536;

/// Flows that wait to be sent, bytes; beyond, the oldest go and are counted.
const WAITING: usize = 32 << 20;

/// Records in one message.
const RECORDS: usize = 20_000;

/// How long changes are gathered for one message.
const GATHER: Duration = Duration::from_millis(50);

/// Flows that are ready to be sent.
#[derive(Default)]
struct Queue {
    messages: VecDeque<(Vec<u8>, u64)>,
    bytes: usize,
}

struct Inner {
    address: String,
    host: String,
    graph: SharedGraph,
    always: Shared,
    sets: CaptureSets,
    runner: Arc<dyn CaptureRunner>,
    queue: Mutex<Queue>,
    lost: AtomicU64,
    queued: Notify,
    stop: AtomicBool,
    stopped: Notify,
}

/// Keeps an analyzer informed; ends when it is dropped.
pub struct Uplink {
    inner: Arc<Inner>,
    thread: Option<JoinHandle<()>>,
}

/// What an uplink tells of.
pub struct Told {
    /// Address of the analyzer.
    pub analyzer: String,
    /// Name of this host.
    pub host: String,
    /// The graph of this host.
    pub graph: SharedGraph,
    /// What is always captured.
    pub always: Shared,
    /// What else is captured.
    pub sets: CaptureSets,
    /// Starts captures that the analyzer wants.
    pub runner: Arc<dyn CaptureRunner>,
}

impl Uplink {
    /// Begins to connect.
    pub fn start(told: Told) -> anyhow::Result<Self> {
        let inner = Arc::new(Inner {
            address: told.analyzer,
            host: told.host,
            graph: told.graph,
            always: told.always,
            sets: told.sets,
            runner: told.runner,
            queue: Mutex::default(),
            lost: AtomicU64::new(0),
            queued: Notify::new(),
            stop: AtomicBool::new(false),
            stopped: Notify::new(),
        });
        let theirs = inner.clone();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .max_blocking_threads(4)
            .build()?;
        let thread = std::thread::Builder::new()
            .name("uplink".into())
            .spawn(move || runtime.block_on(theirs.keep_connected()))?;
        Ok(Self {
            inner,
            thread: Some(thread),
        })
    }

    /// Takes the flows that the last drain of a capture changed.
    pub fn tell(&self, capture: Option<Uuid>, state: &mut Captured) {
        self.inner.tell(capture, state);
    }
}

impl Drop for Uplink {
    fn drop(&mut self) {
        self.inner.stop.store(true, Ordering::Release);
        self.inner.stopped.notify_one();
        if let Some(thread) = self.thread.take() {
            // What panicked there is in the log.
            let _ = thread.join();
        }
    }
}

/// Messages with the records that a drain touched.
fn messages(capture: Option<Uuid>, state: &mut Captured) -> Vec<Flows> {
    let name: Arc<str> = capture.map(|id| id.to_string()).unwrap_or_default().into();
    let records: Vec<_> = state.store.touched().copied().collect();
    let places: HashMap<(u16, u32), Place> = state
        .places()
        .map(|((netns, ifindex), place)| {
            let place = Place {
                netns,
                ifindex,
                interface: place.interface.clone(),
                node: place.node.clone(),
            };
            ((netns, ifindex), place)
        })
        .collect();
    let part = |records: &[skua_flow::FlowRecord]| {
        let mut flows = Flows {
            capture: name.clone(),
            places: Vec::new(),
            parties: Vec::new(),
            records: records.to_vec(),
        };
        let mut used = BTreeMap::new();
        let mut numbers = HashMap::new();
        for record in &mut flows.records {
            let key = (record.key.netns, record.key.ifindex);
            if let Some(place) = places.get(&key) {
                used.insert(key, place.clone());
            }
            let sockets = state.sockets.as_ref();
            record.owners = record.owners.map(|owner| {
                let party = skua_socket::party(sockets?.owner_of_flow(owner)?);
                let known = numbers.len();
                let place = *numbers.entry(Party::of(&party)).or_insert(known);
                protocol::number(place)
            });
        }
        flows.places = used.into_values().collect();
        let mut parties: Vec<(Party, usize)> = numbers.into_iter().collect();
        parties.sort_by_key(|(_, place)| *place);
        flows.parties = parties.into_iter().map(|(party, _)| party).collect();
        flows
    };
    records.chunks(RECORDS).map(part).collect()
}

/// Why a connection ended, and whether it had been made.
struct Ended {
    error: anyhow::Error,
    welcomed: bool,
}

type Socket =
    tokio_tungstenite::WebSocketStream<tokio_tungstenite::MaybeTlsStream<tokio::net::TcpStream>>;

/// Captures that the analyzer wants.
#[derive(Default)]
struct Wanted {
    running: BTreeMap<Uuid, (Assigned, Result<Box<dyn Running>, String>)>,
    told: Vec<State>,
}

impl Wanted {
    /// Captures these and no others.
    fn set(&mut self, runner: &dyn CaptureRunner, captures: Vec<Assigned>) {
        let ids: Vec<Uuid> = captures.iter().map(|c| c.capture.uuid).collect();
        self.running.retain(|id, _| ids.contains(id));
        for assigned in captures {
            let id = assigned.capture.uuid;
            let same = self.running.get(&id).is_some_and(|(before, running)| {
                before.capture == assigned.capture && running.is_ok()
            });
            if !same {
                self.running.remove(&id);
                let running = runner
                    .check(&assigned.capture)
                    .and_then(|()| runner.start(&assigned.capture));
                self.running.insert(id, (assigned.clone(), running));
            }
            if let Some((before, running)) = self.running.get_mut(&id) {
                if let Ok(running) = running {
                    running.set_points(&assigned.points);
                }
                *before = assigned;
            }
        }
    }

    /// How they fare, when that has changed since it was told.
    fn news(&mut self) -> Option<Vec<State>> {
        let mut states = Vec::new();
        for (id, (assigned, running)) in &self.running {
            let of = |point: &NodePoint| State {
                capture: *id,
                netns_inode: point.netns_inode,
                ifindex: point.ifindex,
                state: match running {
                    Ok(running) => running.state(point),
                    Err(error) => skua_analyzer::capture::PointState::Refused(error.clone()),
                },
            };
            states.extend(assigned.points.iter().map(of));
        }
        if states == self.told {
            return None;
        }
        self.told.clone_from(&states);
        Some(states)
    }
}

async fn say(socket: &mut Socket, message: &FromAgent) -> anyhow::Result<()> {
    let text = serde_json::to_string(message)?;
    Ok(socket.send(Message::Text(text.into())).await?)
}

impl Inner {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        // Nothing panics half-way through a change.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, capture: Option<Uuid>, state: &mut Captured) {
        let messages = messages(capture, state);
        let mut queue = self.queue();
        for flows in messages {
            let updates = flows.records.len() as u64;
            match rmp_serde::to_vec(&flows) {
                Ok(bytes) => {
                    queue.bytes += bytes.len();
                    queue.messages.push_back((bytes, updates));
                }
                Err(error) => {
                    tracing::error!(%error, "flows cannot be written");
                    self.lost.fetch_add(updates, Ordering::Relaxed);
                }
            }
        }
        while queue.bytes > WAITING
            && let Some((bytes, updates)) = queue.messages.pop_front()
        {
            queue.bytes -= bytes.len();
            self.lost.fetch_add(updates, Ordering::Relaxed);
        }
        drop(queue);
        self.queued.notify_one();
    }

    fn next_flows(&self) -> Option<Vec<u8>> {
        let mut queue = self.queue();
        let (bytes, _) = queue.messages.pop_front()?;
        queue.bytes -= bytes.len();
        Some(bytes)
    }

    async fn keep_connected(self: Arc<Self>) {
        let mut wait = SOON;
        let mut wanted = Wanted::default();
        while !self.stop.load(Ordering::Acquire) {
            let ended = tokio::select! {
                ended = self.clone().talk(&mut wanted) => ended,
                () = self.stopped.notified() => return,
            };
            if ended.welcomed {
                wait = SOON;
            }
            let address = &self.address;
            let error = &ended.error;
            tracing::warn!(analyzer = %address, "{error:#}; trying again in {wait:?}");
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = self.stopped.notified() => return,
            }
            wait = (wait * 2).min(LATE);
        }
    }

    async fn talk(self: Arc<Self>, wanted: &mut Wanted) -> Ended {
        let mut welcomed = false;
        match self.clone().converse(wanted, &mut welcomed).await {
            Ok(never) => match never {},
            Err(error) => Ended { error, welcomed },
        }
    }

    async fn converse(
        self: Arc<Self>,
        wanted: &mut Wanted,
        welcomed: &mut bool,
    ) -> anyhow::Result<std::convert::Infallible> {
        let silence = Duration::from_secs(SILENCE);
        let url = format!("ws://{}{}", self.address, protocol::PATH);
        let config = WebSocketConfig::default()
            .max_message_size(Some(MESSAGE))
            .max_frame_size(Some(MESSAGE));
        let connecting = tokio_tungstenite::connect_async_with_config(url, Some(config), true);
        let (mut socket, _) = tokio::time::timeout(silence, connecting)
            .await
            .context("the analyzer does not answer")?
            .with_context(|| format!("cannot connect to the analyzer at {}", self.address))?;
        let hello = FromAgent::Hello {
            protocol: PROTOCOL,
            version: env!("CARGO_PKG_VERSION").into(),
            host: self.host.clone(),
            instance: Uuid::new_v4(),
        };
        say(&mut socket, &hello).await?;
        // First listen, then look: nothing falls in between.
        let (events, mut changes) = mpsc::channel(64);
        let (subscription, now) = {
            let mut graph = self.graph.write();
            (graph.subscribe(EVENTS), graph.export())
        };
        std::thread::Builder::new()
            .name("changes".into())
            .spawn(move || {
                while !events.is_closed() {
                    let Some(first) = subscription.next(Duration::from_secs(1)) else {
                        continue;
                    };
                    std::thread::sleep(GATHER);
                    let mut all = vec![first];
                    while all.len() < PART
                        && let Some(next) = subscription.try_next()
                    {
                        all.push(next);
                    }
                    if events.blocking_send(all).is_err() {
                        return;
                    }
                }
            })?;
        self.tell_all(&mut socket, now).await?;
        let mut beat = tokio::time::interval(Duration::from_secs(BEAT));
        let mut heard = tokio::time::Instant::now();
        let mut lost = 0;
        loop {
            tokio::select! {
                message = socket.next() => {
                    heard = tokio::time::Instant::now();
                    let message = message.context("the analyzer hung up")??;
                    let Message::Text(text) = message else {
                        if message.is_close() { bail!("the analyzer hung up") }
                        continue;
                    };
                    match serde_json::from_str(&text).context("the analyzer is not understood")? {
                        ToAgent::Welcome { version } => {
                            tracing::info!(analyzer = %self.address, %version, "connected");
                            *welcomed = true;
                        }
                        ToAgent::Refused(why) => bail!("the analyzer refuses: {why}"),
                        ToAgent::Captures(captures) => wanted.set(&*self.runner, captures),
                    }
                }
                events = changes.recv() => {
                    let events = events.context("nobody tells of the graph any more")?;
                    let mut told = Vec::with_capacity(events.len());
                    for event in events {
                        match event {
                            Delivery::Event(event) => told.push(event.change.clone()),
                            Delivery::Lost(_) => bail!("too many changes at once: all is told anew"),
                        }
                    }
                    say(&mut socket, &FromAgent::Changes(told)).await?;
                }
                () = self.queued.notified() => {
                    while let Some(bytes) = self.next_flows() {
                        socket.send(Message::Binary(bytes.into())).await?;
                    }
                    let now = self.lost.load(Ordering::Relaxed);
                    if now != lost {
                        lost = now;
                        say(&mut socket, &FromAgent::Lost { flow_updates: lost }).await?;
                    }
                }
                _ = beat.tick() => {
                    if heard.elapsed() > silence { bail!("the analyzer was silent for too long") }
                    socket.send(Message::Ping(Default::default())).await?;
                }
            }
            if let Some(states) = wanted.news() {
                say(&mut socket, &FromAgent::States(states)).await?;
            }
        }
    }

    /// Tells the whole graph, in parts.
    async fn tell_all(&self, socket: &mut Socket, graph: Export) -> anyhow::Result<()> {
        for nodes in graph.nodes.chunks(PART) {
            let graph = Export {
                nodes: nodes.to_vec(),
                edges: Vec::new(),
            };
            say(socket, &FromAgent::Sync { graph, last: false }).await?;
        }
        for edges in graph.edges.chunks(PART) {
            let graph = Export {
                nodes: Vec::new(),
                edges: edges.to_vec(),
            };
            say(socket, &FromAgent::Sync { graph, last: false }).await?;
        }
        let graph = Export::default();
        say(socket, &FromAgent::Sync { graph, last: true }).await
    }
}
