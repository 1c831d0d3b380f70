//! The agent's end of the connection with its analyzer.

use std::{
    collections::VecDeque,
    convert::Infallible,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};
use utoipa::ToSchema;

use anyhow::{Context as _, bail};
use futures_util::{SinkExt as _, StreamExt as _};
use serde::Serialize;
use skua_client::websocket::{self, Endpoint, Socket};
use skua_config::arguments::AnalyzerArguments;
use skua_control::{capture::CaptureRunner, elements::ORIGIN};
use skua_process::host::secret_seed;
use skua_state::{Shared, captures::CaptureSets};
use skua_topology::{Change, Closer, Delivery, Edge, Export, Node, SharedGraph, Subscription};
use tokio::sync::{Notify, mpsc};
use tokio_tungstenite::tungstenite::Message;
use uuid::Uuid;

use crate::{
    agent::{
        outbox::Outbox,
        wanted::{Order, Wanted},
    },
    protocol::{
        Assigned, BEAT, FromAgent, MESSAGE, PART, PATH, PROTOCOL, SILENCE, ToAgent,
        signing::{TrustedKeys, Unsealer},
    },
};

/// Time until a lost connection is tried again, doubled each time.
const SOON: Duration = Duration::from_millis(500);
const LATE: Duration = Duration::from_secs(30);

/// Changes of the graph that wait; when more come, the whole is sent again.
const EVENTS: usize = 65_536;

/// How long changes are gathered for one message.
const GATHER: Duration = Duration::from_millis(50);

/// What an uplink sends.
pub struct UplinkSources {
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
    /// Captures must be signed by one of these; none: any are taken.
    pub trusted: Option<TrustedKeys>,
}

/// The status of a connection.
#[derive(Clone, Default, Serialize, ToSchema)]
pub struct UplinkStatus {
    /// Address of the analyzer that is or was tried last.
    pub analyzer: String,
    /// Whether it knows us.
    pub connected: bool,
    /// Why not.
    pub error: String,
    /// Connections that were made.
    pub connections: u64,
    /// How often the whole graph was sent.
    pub syncs: u64,
    /// Bytes of flows that wait to be sent or confirmed.
    pub waiting_bytes: usize,
    /// Updates of flows that went for lack of room.
    pub lost_flow_updates: u64,
}

struct Inner {
    /// The agent reports to one at a time, to the next when that is not reachable.
    analyzers: Vec<Endpoint>,
    host: String,
    /// Other in each run.
    instance: Uuid,
    trusted: Option<TrustedKeys>,
    graph: SharedGraph,
    always: Shared,
    sets: CaptureSets,
    outbox: Arc<Outbox>,
    wanted: Wanted,
    status: Mutex<UplinkStatus>,
    syncs: AtomicU64,
    stop: AtomicBool,
    stopped: Notify,
}

/// Keeps an analyzer informed; ends when it is dropped.
pub struct Uplink {
    inner: Arc<Inner>,
    thread: Option<JoinHandle<()>>,
}

/// Shows the status of an uplink.
#[derive(Clone)]
pub struct UplinkView(Arc<Inner>);

impl UplinkView {
    /// Its status now.
    pub fn status(&self) -> UplinkStatus {
        let sums = self.0.outbox.sums();
        UplinkStatus {
            syncs: self.0.syncs.load(Ordering::Relaxed),
            waiting_bytes: sums.bytes,
            lost_flow_updates: sums.lost,
            ..self.0.change_status(|_| {})
        }
    }
}

impl Uplink {
    /// Begins to connect to the analyzers that arguments name, one or several separated by commas.
    pub fn start(sources: UplinkSources, analyzers: &AnalyzerArguments) -> anyhow::Result<Self> {
        let inner = Arc::new(Inner {
            analyzers: websocket::endpoints(analyzers)?,
            host: sources.host,
            instance: Uuid::new_v4(),
            trusted: sources.trusted,
            graph: sources.graph,
            outbox: Arc::new(Outbox::new(sources.always.clone())),
            always: sources.always,
            sets: sources.sets,
            wanted: Wanted::start(sources.runner)?,
            status: Mutex::default(),
            syncs: AtomicU64::new(0),
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

    /// Where flows go that drains have changed.
    pub fn outbox(&self) -> Arc<Outbox> {
        self.inner.outbox.clone()
    }

    /// Shows its status.
    pub fn view(&self) -> UplinkView {
        UplinkView(self.inner.clone())
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

/// Why a connection ended.
struct Ended {
    error: anyhow::Error,
    /// Whether it had been made.
    welcomed: bool,
    /// Whether the analyzer said that it does not want us.
    refused: bool,
}

/// Half to once and a half of a time, so that not all agents come back at once.
fn about(time: Duration) -> Duration {
    let chance = (secret_seed() % 1_000) as u32;
    time / 2 + time * chance / 1_000
}

/// Changes that were gathered, or that some were lost.
type Gathered = Vec<Delivery>;

/// Ends the thread that gathers changes.
struct Gathering(Closer);

impl Drop for Gathering {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Gathers changes on a thread of its own: subscriptions are waited for there.
fn gather(subscription: Subscription) -> std::io::Result<(Gathering, mpsc::Receiver<Gathered>)> {
    let (send, changes) = mpsc::channel(8);
    let gathering = Gathering(subscription.closer());
    std::thread::Builder::new()
        .name("changes".into())
        .spawn(move || {
            while !subscription.is_closed() {
                let Some(first) = subscription.next(Duration::from_secs(60)) else {
                    continue;
                };
                std::thread::sleep(GATHER);
                let mut all = vec![first];
                while all.len() < PART
                    && let Some(next) = subscription.try_next()
                {
                    all.push(next);
                }
                if send.blocking_send(all).is_err() {
                    return;
                }
            }
        })?;
    Ok((gathering, changes))
}

/// What is sent in parts that may be too large for one message.
trait Parts: Sized {
    fn message(&self) -> FromAgent;
    fn halves(self) -> Option<(Self, Self)>;
}

impl Parts for Vec<Change> {
    fn message(&self) -> FromAgent {
        FromAgent::Changes(self.clone())
    }

    fn halves(mut self) -> Option<(Self, Self)> {
        let rest = self.split_off(self.len() / 2);
        (!self.is_empty()).then_some((self, rest))
    }
}

impl Parts for Vec<Arc<Node>> {
    fn message(&self) -> FromAgent {
        let graph = Export {
            nodes: self.clone(),
            edges: Vec::new(),
        };
        FromAgent::Sync { graph, last: false }
    }

    fn halves(mut self) -> Option<(Self, Self)> {
        let rest = self.split_off(self.len() / 2);
        (!self.is_empty()).then_some((self, rest))
    }
}

impl Parts for Vec<Arc<Edge>> {
    fn message(&self) -> FromAgent {
        let graph = Export {
            nodes: Vec::new(),
            edges: self.clone(),
        };
        FromAgent::Sync { graph, last: false }
    }

    fn halves(mut self) -> Option<(Self, Self)> {
        let rest = self.split_off(self.len() / 2);
        (!self.is_empty()).then_some((self, rest))
    }
}

/// Sends something, in as many messages as it needs.
async fn say_parts(socket: &mut Socket, all: impl Parts) -> anyhow::Result<()> {
    let mut left = vec![all];
    while let Some(part) = left.pop() {
        let text = serde_json::to_string(&part.message())?;
        if text.len() <= MESSAGE {
            socket.send(Message::Text(text.into())).await?;
        } else if let Some((first, second)) = part.halves() {
            left.push(second);
            left.push(first);
        } else {
            bail!("a node of {} bytes cannot be sent", text.len());
        }
    }
    Ok(())
}

async fn say(socket: &mut Socket, message: &FromAgent) -> anyhow::Result<()> {
    let text = serde_json::to_string(message)?;
    Ok(socket.send(Message::Text(text.into())).await?)
}

/// Captures that are given to a host must be for it: what was meant for another is not done here.
fn check_ours(host: &str, captures: &[Assigned]) -> anyhow::Result<()> {
    let mut points = captures.iter().flat_map(|assigned| &assigned.points);
    match points.find(|point| *point.host != *host) {
        Some(other) => bail!(
            "the analyzer gave {host} a capture that is for {}",
            other.host
        ),
        None => Ok(()),
    }
}

/// The last event of the graph as it was sent whole; later changes follow it.
struct Synced {
    last_event: u64,
}

impl Inner {
    fn change_status(&self, change: impl FnOnce(&mut UplinkStatus)) -> UplinkStatus {
        let mut status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut status);
        status.clone()
    }

    async fn keep_connected(self: Arc<Self>) {
        let mut wait = SOON;
        let mut turn = 0;
        while !self.stop.load(Ordering::Acquire) {
            let endpoint = &self.analyzers[turn % self.analyzers.len()];
            let address = &endpoint.address;
            self.change_status(|status| status.analyzer.clone_from(address));
            let ended = tokio::select! {
                ended = self.talk(endpoint) => ended,
                () = self.stopped.notified() => return,
            };
            self.wanted.send(Order::Gone);
            let error = format!("{:#}", ended.error);
            if ended.welcomed {
                wait = SOON;
            } else {
                turn += 1;
            }
            if ended.refused {
                // A refused agent is not accepted soon.
                wait = LATE;
            }
            // With several analyzers each is tried before there is a pause.
            let round = ended.welcomed || ended.refused || turn % self.analyzers.len() == 0;
            let pause = if round { about(wait) } else { Duration::ZERO };
            let next = match pause.is_zero() {
                true => "trying the next".to_owned(),
                false => format!("trying again in {pause:.1?}"),
            };
            tracing::warn!(analyzer = %address, "{error}; {next}");
            self.change_status(|status| {
                status.connected = false;
                status.error = error;
            });
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.stopped.notified() => return,
            }
            if round {
                wait = (wait * 2).min(LATE);
            }
        }
    }

    async fn talk(&self, endpoint: &Endpoint) -> Ended {
        let (mut welcomed, mut refused) = (false, false);
        match self.converse(endpoint, &mut welcomed, &mut refused).await {
            Ok(never) => match never {},
            Err(error) => Ended {
                error,
                welcomed,
                refused,
            },
        }
    }

    async fn converse(
        &self,
        endpoint: &Endpoint,
        welcomed: &mut bool,
        refused: &mut bool,
    ) -> anyhow::Result<Infallible> {
        let silence = Duration::from_secs(SILENCE);
        let address = &endpoint.address;
        let mut socket = tokio::time::timeout(silence, endpoint.connect(PATH))
            .await
            .context("the analyzer does not answer")?
            .with_context(|| format!("cannot connect to the analyzer at {address}"))?;
        let challenge = Uuid::new_v4();
        let mut unsealer = Unsealer::new(self.trusted.as_ref(), &self.host, challenge);
        let hello = FromAgent::Hello {
            protocol: PROTOCOL,
            version: env!("CARGO_PKG_VERSION").into(),
            host: self.host.clone(),
            instance: self.instance,
            challenge,
        };
        say(&mut socket, &hello).await?;
        let welcome = tokio::time::timeout(silence, socket.next())
            .await
            .context("the analyzer does not answer")?;
        match heard(welcome)? {
            Some(ToAgent::Welcome { version }) => {
                tracing::info!(analyzer = %address, %version, "connected");
            }
            Some(ToAgent::Refused(why)) => {
                *refused = true;
                bail!("the analyzer refuses: {why}");
            }
            _ => bail!("the analyzer does not say welcome"),
        }
        *welcomed = true;
        self.change_status(|status| {
            status.connected = true;
            status.error.clear();
            status.connections += 1;
        });
        self.wanted.send(Order::Connected);
        // First subscribe, then read: nothing falls in between.
        let subscription = self.graph.write().subscribe(EVENTS);
        let (_gathering, mut changes) = gather(subscription)?;
        let mut synced = self.send_whole(&mut socket).await?;
        self.outbox.again();
        let mut known: VecDeque<_> = [(None, self.always.clone(), 0)].into();
        known.extend(
            self.sets
                .all()
                .into_iter()
                .map(|set| (Some(set.id), set.shared, 0)),
        );
        let mut states = self.wanted.states();
        states.mark_changed();
        let mut beat = tokio::time::interval(Duration::from_secs(BEAT));
        let mut heard_at = tokio::time::Instant::now();
        let mut lost = 0;
        loop {
            // One part at a time, behind what waited before.
            if self.outbox.is_sent()
                && let Some((capture, shared, from)) = known.pop_front()
                && let Some(next) = self.outbox.put_known(capture, &shared, from)
            {
                known.push_front((capture, shared, next));
            }
            tokio::select! {
                message = socket.next() => {
                    heard_at = tokio::time::Instant::now();
                    match heard(message)? {
                        Some(ToAgent::Captures(captures)) => {
                            // An analyzer without the key gets none so soon: each try costs the whole graph.
                            *refused = true;
                            let captures = unsealer.open(&captures)?;
                            check_ours(&self.host, &captures)?;
                            *refused = false;
                            self.wanted.send(Order::Captures(captures));
                        }
                        Some(ToAgent::Taken(number)) => self.outbox.confirm(number),
                        Some(ToAgent::Refused(why)) => {
                            *refused = true;
                            bail!("the analyzer refuses: {why}");
                        }
                        Some(ToAgent::Welcome { .. }) | None => {}
                    }
                }
                gathered = changes.recv() => {
                    let gathered = gathered.context("changes of the graph come no more")?;
                    self.send_changes(&mut socket, gathered, &mut synced).await?;
                }
                changed = states.changed() => {
                    changed.context("states of captures come no more")?;
                    let now = states.borrow_and_update().clone();
                    say(&mut socket, &FromAgent::States(now)).await?;
                }
                bytes = self.outbox.next() => {
                    socket.send(Message::Binary(bytes.to_vec().into())).await?;
                }
                _ = beat.tick() => {
                    if heard_at.elapsed() > silence {
                        bail!("the analyzer was silent for too long");
                    }
                    socket.send(Message::Ping(Default::default())).await?;
                    let now = self.outbox.sums().lost;
                    if now != lost {
                        lost = now;
                        say(&mut socket, &FromAgent::Lost { flow_updates: lost }).await?;
                    }
                }
            }
        }
    }

    /// Sends changes; the whole graph when some are missing.
    async fn send_changes(
        &self,
        socket: &mut Socket,
        gathered: Gathered,
        synced: &mut Synced,
    ) -> anyhow::Result<()> {
        let mut changes = Vec::with_capacity(gathered.len());
        let mut lost = 0;
        for delivery in gathered {
            match delivery {
                Delivery::Event(event)
                    if event.seq > synced.last_event && self.is_ours(event.change.element()) =>
                {
                    changes.push(event.change.clone());
                }
                // It was part of the whole, or is no agent's.
                Delivery::Event(_) => {}
                Delivery::Lost(events) => lost += events,
            }
        }
        if lost > 0 {
            tracing::info!(
                lost,
                "too many changes at once: the whole graph is sent again"
            );
            *synced = self.send_whole(socket).await?;
        } else if !changes.is_empty() {
            say_parts(socket, changes).await?;
        }
        Ok(())
    }

    /// What is made here by people stays here: an analyzer has its own.
    fn is_ours(&self, node: &Node) -> bool {
        *node.host == *self.host && *node.origin != *ORIGIN
    }

    /// Sends the whole graph, in parts.
    async fn send_whole(&self, socket: &mut Socket) -> anyhow::Result<Synced> {
        let (graph, last_event) = {
            let graph = self.graph.read();
            (graph.export(), graph.last_event())
        };
        let ours = |node: &Node| self.is_ours(node);
        let nodes = graph.nodes.into_iter().filter(|node| ours(node));
        let nodes: Vec<_> = nodes.collect();
        let edges = graph.edges.into_iter().filter(|edge| ours(&edge.element));
        let edges: Vec<_> = edges.collect();
        for nodes in nodes.chunks(PART) {
            say_parts(socket, nodes.to_vec()).await?;
        }
        for edges in edges.chunks(PART) {
            say_parts(socket, edges.to_vec()).await?;
        }
        let graph = Export::default();
        say(socket, &FromAgent::Sync { graph, last: true }).await?;
        self.syncs.fetch_add(1, Ordering::Relaxed);
        Ok(Synced { last_event })
    }
}

type Received = Option<Result<Message, tokio_tungstenite::tungstenite::Error>>;

/// What the analyzer says, none when that is only a sign of life.
fn heard(message: Received) -> anyhow::Result<Option<ToAgent>> {
    match message.context("the analyzer hung up")?? {
        Message::Text(text) => serde_json::from_str(&text)
            .map(Some)
            .context("the analyzer is not understood"),
        Message::Close(_) => bail!("the analyzer hung up"),
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skua_control::capture::{Capture, NodePoint};

    #[test]
    fn captures_for_another_host_are_refused() {
        let given = |host: &str| Assigned {
            capture: Capture::default(),
            points: vec![NodePoint {
                host: host.into(),
                netns_inode: 1,
                ifindex: 2,
                node: "n".into(),
                tid: "t".into(),
                name: "eth0".into(),
                kind: "device".into(),
                row: None,
            }],
        };
        assert!(check_ours("web1", &[]).is_ok());
        assert!(check_ours("web1", &[given("web1")]).is_ok());
        let refused = check_ours("web1", &[given("web1"), given("web2")]);
        assert!(refused.unwrap_err().to_string().contains("for web2"));
    }
}
