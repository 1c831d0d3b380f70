//! Agents as an analyzer knows them: their part of the graph, their flows, what they are to capture.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use skua_analyzer::{
    FlowSet,
    capture::{Capture, CaptureRunner, NodePoint, PointState, Running},
};
use skua_topology::{Change, Edge, Export, Graph, GraphError, Map, Node, SharedGraph};
use tokio::sync::mpsc::UnboundedSender;
use uuid::Uuid;

use super::{
    protocol::{Assigned, Flows, FromAgent, PROTOCOL, State, ToAgent},
    remote::RemoteFlows,
};
use crate::graph::unix_ms;

/// Agents at most.
const AGENTS: usize = 10_000;

/// Captures of an agent whose flows are kept at most.
const SETS: usize = 64;

/// For how long an agent that is gone is waited for before its nodes go.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Metadata that the analyzer writes to nodes of agents.
const OURS: [&str; 1] = ["Captures"];

/// An agent's connection.
struct Line {
    /// Other in each connection.
    number: u64,
    send: UnboundedSender<ToAgent>,
}

/// What is known of an agent.
#[derive(Default)]
struct Agent {
    version: String,
    line: Option<Line>,
    /// Since when there is none.
    gone: Option<Instant>,
    captures: BTreeMap<Uuid, Assigned>,
    states: HashMap<(Uuid, u32, u32), PointState>,
    flows: BTreeMap<Arc<str>, Arc<RemoteFlows>>,
    lost: u64,
}

#[derive(Default)]
struct Inner {
    agents: BTreeMap<Arc<str>, Agent>,
    connections: u64,
}

/// All agents. Clones are the same.
#[derive(Clone)]
pub struct Fleet {
    graph: SharedGraph,
    /// Name of our own host, which no agent may have.
    host: Arc<str>,
    /// Memory for the flows of a capture of an agent, bytes.
    memory: usize,
    inner: Arc<Mutex<Inner>>,
}

/// An agent as users see it.
#[derive(serde::Serialize)]
pub struct AgentStatus {
    /// Name of its host.
    pub host: Arc<str>,
    /// Version of its program.
    pub version: String,
    /// Whether there is a connection.
    pub connected: bool,
    /// Updates of flows that it could not send.
    pub lost_flow_updates: u64,
}

impl Fleet {
    /// No agents yet.
    pub fn new(graph: SharedGraph, host: &str, memory: usize) -> Self {
        Self {
            graph,
            host: host.into(),
            memory,
            inner: Arc::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // What panicked half-way is one agent's message.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All agents.
    pub fn agents(&self) -> Vec<AgentStatus> {
        let inner = self.lock();
        let status = |(host, agent): (&Arc<str>, &Agent)| AgentStatus {
            host: host.clone(),
            version: agent.version.clone(),
            connected: agent.line.is_some(),
            lost_flow_updates: agent.lost,
        };
        inner.agents.iter().map(status).collect()
    }

    /// The flows of all agents.
    pub fn flow_sets(&self) -> Vec<Arc<dyn FlowSet>> {
        let inner = self.lock();
        let sets = inner.agents.values().flat_map(|agent| agent.flows.values());
        sets.map(|set| set.clone() as Arc<dyn FlowSet>).collect()
    }

    /// A new connection; the first message must say whose it is.
    pub fn connect(&self, hello: FromAgent, send: UnboundedSender<ToAgent>) -> anyhow::Result<Session> {
        let FromAgent::Hello {
            protocol,
            version,
            host,
            ..
        } = hello
        else {
            bail!("an agent has to say who it is first");
        };
        if protocol != PROTOCOL {
            bail!("this analyzer speaks version {PROTOCOL} with agents, not {protocol}");
        }
        if host.is_empty() || host.len() > 255 || host.chars().any(char::is_control) {
            bail!("this is no name of a host");
        }
        if *host == *self.host {
            bail!("{host} is the analyzer's own host: `skua run` watches it already");
        }
        let host: Arc<str> = host.into();
        let mut inner = self.lock();
        if inner.agents.len() >= AGENTS && !inner.agents.contains_key(&host) {
            bail!("there are {AGENTS} agents already");
        }
        inner.connections += 1;
        let number = inner.connections;
        let agent = inner.agents.entry(host.clone()).or_default();
        // Of two connections the older one is half dead, or another agent with the same name.
        if let Some(old) = agent.line.take() {
            let why = "another agent of this name has connected";
            let _ = old.send.send(ToAgent::Refused(why.into()));
        }
        let _ = send.send(ToAgent::Welcome {
            version: env!("CARGO_PKG_VERSION").into(),
        });
        let _ = send.send(ToAgent::Captures(agent.captures.values().cloned().collect()));
        agent.version = version;
        agent.line = Some(Line { number, send });
        agent.gone = None;
        agent.states.clear();
        drop(inner);
        tracing::info!(%host, "agent connected");
        Ok(Session {
            fleet: self.clone(),
            host,
            number,
            sync: Some(Sync::default()),
        })
    }

    /// Forgets agents that have been gone for long, with their nodes.
    pub fn expire(&self) {
        let mut gone = Vec::new();
        self.lock().agents.retain(|host, agent| {
            let over = agent.line.is_none() && agent.gone.is_none_or(|since| since.elapsed() >= PATIENCE);
            if over {
                gone.push(host.clone());
            }
            !over
        });
        for host in gone {
            tracing::warn!(%host, "agent gone: its nodes are taken out");
            if let Err(error) = self.graph.write().delete_host(&host, unix_ms()) {
                tracing::warn!(%host, %error, "its nodes cannot be taken out");
            }
        }
    }

    /// Says on which interfaces of a host a capture is to run.
    fn assign(&self, host: &Arc<str>, capture: &Capture, points: Vec<NodePoint>) {
        let mut inner = self.lock();
        let Some(agent) = inner.agents.get_mut(host) else {
            return;
        };
        if points.is_empty() {
            agent.captures.remove(&capture.uuid);
            agent.states.retain(|(id, ..), _| *id != capture.uuid);
        } else {
            let assigned = Assigned {
                capture: capture.clone(),
                points,
            };
            agent.captures.insert(capture.uuid, assigned);
        }
        if let Some(line) = &agent.line {
            let all = agent.captures.values().cloned().collect();
            // A connection that is ending tells nobody.
            let _ = line.send.send(ToAgent::Captures(all));
        }
    }

    fn state(&self, capture: Uuid, point: &NodePoint) -> PointState {
        let inner = self.lock();
        let Some(agent) = inner.agents.get(&point.host) else {
            return PointState::Refused(format!("there is no agent of {}", point.host));
        };
        if agent.line.is_none() {
            return PointState::Refused(format!("the agent of {} is not connected", point.host));
        }
        let key = (capture, point.netns_inode, point.ifindex);
        agent.states.get(&key).cloned().unwrap_or(PointState::Pending)
    }
}

/// What an agent has told of its graph as it is.
#[derive(Default)]
struct Sync {
    nodes: BTreeMap<Arc<str>, Arc<Node>>,
    edges: BTreeMap<Arc<str>, Arc<Edge>>,
}

/// A connection that has said whose it is.
pub struct Session {
    fleet: Fleet,
    /// Name of its host.
    pub host: Arc<str>,
    number: u64,
    /// None when all was told.
    sync: Option<Sync>,
}

/// Metadata with what is ours kept.
fn merged(theirs: &Map, known: &Map) -> Map {
    let kept = OURS.iter().filter_map(|key| Some((*key, known.get(key)?)));
    kept.fold(theirs.clone(), |map, (key, value)| {
        map.with(key, value.clone())
    })
}

impl Session {
    /// Takes a message; an error ends the connection.
    pub fn take(&mut self, message: FromAgent) -> anyhow::Result<()> {
        match message {
            FromAgent::Hello { .. } => bail!("an agent says only once who it is"),
            FromAgent::Sync { graph, last } => self.sync(graph, last),
            FromAgent::Changes(changes) => {
                if self.sync.is_some() {
                    bail!("changes come after the whole graph");
                }
                let mut graph = self.fleet.graph.write();
                changes
                    .into_iter()
                    .try_for_each(|change| self.change(&mut graph, change))
            }
            FromAgent::States(states) => {
                let mut inner = self.fleet.lock();
                let agent = inner.agents.get_mut(&self.host).context("forgotten")?;
                for state in states {
                    let State {
                        capture,
                        netns_inode,
                        ifindex,
                        state,
                    } = state;
                    // Only of what was asked for, so that this is bounded.
                    if agent.captures.contains_key(&capture) {
                        agent.states.insert((capture, netns_inode, ifindex), state);
                    }
                }
                Ok(())
            }
            FromAgent::Lost { flow_updates } => {
                if let Some(agent) = self.fleet.lock().agents.get_mut(&self.host) {
                    agent.lost = flow_updates;
                }
                Ok(())
            }
        }
    }

    /// Takes flows.
    pub fn take_flows(&self, flows: Flows) -> anyhow::Result<()> {
        if !flows.capture.is_empty() && Uuid::parse_str(&flows.capture).is_err() {
            bail!("flows of no capture");
        }
        let mut inner = self.fleet.lock();
        let agent = inner.agents.get_mut(&self.host).context("forgotten")?;
        let set = match agent.flows.get(&flows.capture) {
            Some(set) => set.clone(),
            None => {
                if agent.flows.len() >= SETS {
                    // Captures that are over go first.
                    let ids: BTreeSet<String> =
                        agent.captures.keys().map(Uuid::to_string).collect();
                    agent
                        .flows
                        .retain(|id, _| id.is_empty() || ids.contains(&**id));
                }
                let set = RemoteFlows::new(&self.host, &flows.capture, self.fleet.memory);
                let set = Arc::new(set);
                agent.flows.insert(flows.capture.clone(), set.clone());
                set
            }
        };
        drop(inner);
        set.take(flows);
        Ok(())
    }

    fn is_theirs(&self, node: &Node) -> anyhow::Result<()> {
        if node.host != self.host {
            bail!("{} is of host {}, not of {}", node.id, node.host, self.host);
        }
        Ok(())
    }

    fn sync(&mut self, part: Export, last: bool) -> anyhow::Result<()> {
        part.nodes.iter().try_for_each(|node| self.is_theirs(node))?;
        part.edges
            .iter()
            .try_for_each(|edge| self.is_theirs(&edge.element))?;
        let mut sync = self.sync.take().unwrap_or_default();
        sync.nodes
            .extend(part.nodes.into_iter().map(|node| (node.id.clone(), node)));
        sync.edges.extend(
            part.edges
                .into_iter()
                .map(|edge| (edge.element.id.clone(), edge)),
        );
        if !last {
            self.sync = Some(sync);
            return Ok(());
        }
        let mut graph = self.fleet.graph.write();
        let known = graph.export();
        let theirs = |node: &Node| node.host == self.host;
        for edge in known.edges.iter().filter(|edge| theirs(&edge.element)) {
            if !sync.edges.contains_key(&edge.element.id) {
                graph.delete_edge(&edge.element.id, unix_ms())?;
            }
        }
        for node in known.nodes.iter().filter(|node| theirs(node)) {
            if !sync.nodes.contains_key(&node.id) {
                graph.delete_node(&node.id, unix_ms())?;
            }
        }
        for node in sync.nodes.into_values() {
            self.put_node(&mut graph, &node)?;
        }
        for edge in sync.edges.into_values() {
            self.put_edge(&mut graph, &edge)?;
        }
        Ok(())
    }

    fn put_node(&self, graph: &mut Graph, node: &Node) -> anyhow::Result<()> {
        match graph.current_node(&node.id) {
            Some(known) => {
                self.is_theirs(&known)?;
                graph.update_node(&node.id, merged(&node.metadata, &known.metadata), unix_ms())?;
            }
            None => {
                graph.add_node(node.clone(), unix_ms())?;
            }
        }
        Ok(())
    }

    fn put_edge(&self, graph: &mut Graph, edge: &Edge) -> anyhow::Result<()> {
        match graph.current_edge(&edge.element.id) {
            Some(known) => {
                self.is_theirs(&known.element)?;
                let metadata = merged(&edge.element.metadata, &known.element.metadata);
                graph.update_edge(&edge.element.id, metadata, unix_ms())?;
            }
            None => {
                graph.add_edge(edge.clone(), unix_ms())?;
            }
        }
        Ok(())
    }

    fn change(&self, graph: &mut Graph, change: Change) -> anyhow::Result<()> {
        self.is_theirs(change.element())?;
        let gone = |done: Result<(), GraphError>| match done {
            // It went with the last of something else.
            Err(GraphError::NoNode(_) | GraphError::NoEdge(_)) | Ok(()) => Ok(()),
            Err(error) => Err(error),
        };
        match change {
            Change::NodeAdded(node) | Change::NodeUpdated(node) => self.put_node(graph, &node)?,
            Change::EdgeAdded(edge) | Change::EdgeUpdated(edge) => self.put_edge(graph, &edge)?,
            Change::NodeDeleted(node) => gone(graph.delete_node(&node.id, unix_ms()))?,
            Change::EdgeDeleted(edge) => gone(graph.delete_edge(&edge.element.id, unix_ms()))?,
        }
        Ok(())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let mut inner = self.fleet.lock();
        let Some(agent) = inner.agents.get_mut(&self.host) else {
            return;
        };
        if agent.line.as_ref().is_some_and(|line| line.number == self.number) {
            agent.line = None;
            agent.gone = Some(Instant::now());
            tracing::info!(host = %self.host, "agent disconnected");
        }
    }
}

/// Runs captures here and on the hosts of agents.
pub struct Everywhere {
    /// On our own host; none when nothing is captured here.
    pub local: Option<Arc<dyn CaptureRunner>>,
    /// The others.
    pub fleet: Fleet,
}

struct RunsEverywhere {
    capture: Capture,
    local_runner: Option<Arc<dyn CaptureRunner>>,
    local: Option<Box<dyn Running>>,
    local_error: Option<String>,
    fleet: Fleet,
    hosts: BTreeSet<Arc<str>>,
}

impl CaptureRunner for Everywhere {
    fn check(&self, capture: &Capture) -> Result<(), String> {
        match &self.local {
            Some(local) => local.check(capture),
            None => Ok(()),
        }
    }

    fn start(&self, capture: &Capture) -> Result<Box<dyn Running>, String> {
        Ok(Box::new(RunsEverywhere {
            capture: capture.clone(),
            local_runner: self.local.clone(),
            local: None,
            local_error: None,
            fleet: self.fleet.clone(),
            hosts: BTreeSet::new(),
        }))
    }
}

impl Running for RunsEverywhere {
    fn set_points(&mut self, points: &[NodePoint]) {
        let mut by_host: BTreeMap<Arc<str>, Vec<NodePoint>> = BTreeMap::new();
        for point in points {
            let list = by_host.entry(point.host.clone()).or_default();
            list.push(point.clone());
        }
        let here = by_host.remove(&self.fleet.host).unwrap_or_default();
        if let (None, Some(runner), false) = (&self.local, &self.local_runner, here.is_empty()) {
            match runner.start(&self.capture) {
                Ok(running) => self.local = Some(running),
                Err(error) => self.local_error = Some(error),
            }
        }
        if let Some(local) = &mut self.local {
            local.set_points(&here);
        }
        let before = std::mem::take(&mut self.hosts);
        for host in before.iter().filter(|host| !by_host.contains_key(*host)) {
            self.fleet.assign(host, &self.capture, Vec::new());
        }
        for (host, points) in by_host {
            self.fleet.assign(&host, &self.capture, points);
            self.hosts.insert(host);
        }
    }

    fn state(&self, point: &NodePoint) -> PointState {
        if point.host != self.fleet.host {
            return self.fleet.state(self.capture.uuid, point);
        }
        match (&self.local, &self.local_error) {
            (Some(local), _) => local.state(point),
            (None, Some(error)) => PointState::Refused(error.clone()),
            (None, None) => PointState::Pending,
        }
    }
}

impl Drop for RunsEverywhere {
    fn drop(&mut self) {
        for host in &self.hosts {
            self.fleet.assign(host, &self.capture, Vec::new());
        }
    }
}
