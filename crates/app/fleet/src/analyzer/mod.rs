//! Agents as an analyzer knows them: who is connected, their flows, what they are to capture.

pub mod everywhere;
pub mod metrics;
mod parties;
mod remote;
pub mod session;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use utoipa::ToSchema;

use anyhow::bail;
use skua_control::capture::{Capture, NodePoint, PointState};
use skua_process::host::{unix_ms, unix_ns};
use skua_sources::FlowSet;
use skua_topology::{Map, SharedGraph};
use tokio::sync::{Semaphore, watch};
use uuid::Uuid;

use crate::{
    analyzer::{
        remote::{RemoteFlows, RemoteSums},
        session::Session,
    },
    protocol::{Assigned, Flows, FromAgent, PROTOCOL, State, is_sound, signing::Signer},
};

/// Agents at most.
const AGENTS: usize = 10_000;

/// Captures of an agent whose flows are kept at most.
const SETS: usize = 64;

/// Messages of agents that are taken at a time: half of the threads of the API that may wait.
const TURNS: usize = 4;

/// For how long flows of a capture are kept that nobody has asked the agent for: after a restart of the
/// analyzer it may be asked for yet.
const UNASKED: Duration = Duration::from_secs(30);

/// Runs of agents that another of the same name has displaced, as many as are remembered.
const DISPLACED: usize = 16;

/// What the analyzer sends to an agent next; only the latest matters.
#[derive(Clone, Default)]
pub struct Orders {
    /// Changes with the captures.
    pub captures: u64,
    /// Why the connection is to end.
    pub refused: Option<Arc<str>>,
}

/// An agent's connection.
struct Line {
    /// Other in each connection.
    number: u64,
    /// Other in each run of the agent.
    instance: Uuid,
    orders: watch::Sender<Orders>,
}

/// Metadata that an agent has sent, by identifier of the node or edge.
pub(crate) type ReportedMetadata = Arc<Mutex<HashMap<Arc<str>, Map>>>;

/// What is known of an agent.
struct Agent {
    version: String,
    line: Option<Line>,
    /// Since when there is a connection, or none.
    since: Instant,
    since_ms: i64,
    connections: u64,
    displaced: VecDeque<Uuid>,
    states: HashMap<(Uuid, Arc<str>), (PointState, Option<SocketAddr>)>,
    flows: BTreeMap<Arc<str>, Arc<RemoteFlows>>,
    /// Last message of flows that was taken, of which run.
    taken: (Uuid, u64),
    reported: ReportedMetadata,
    lost: u64,
    refused_records: u64,
    flow_updates: u64,
}

impl Agent {
    fn new() -> Self {
        Self {
            version: String::new(),
            line: None,
            since: Instant::now(),
            since_ms: unix_ms(),
            connections: 0,
            displaced: VecDeque::new(),
            states: HashMap::new(),
            flows: BTreeMap::new(),
            taken: (Uuid::nil(), 0),
            reported: ReportedMetadata::default(),
            lost: 0,
            refused_records: 0,
            flow_updates: 0,
        }
    }

    fn turn(&mut self, line: Option<Line>) {
        self.line = line;
        self.since = Instant::now();
        self.since_ms = unix_ms();
    }
}

#[derive(Default)]
struct Inner {
    agents: BTreeMap<Arc<str>, Agent>,
    /// What hosts are to capture, also those whose agents are not here.
    assigned: BTreeMap<Arc<str>, BTreeMap<Uuid, Assigned>>,
    connections: u64,
    refused: u64,
    /// A thread looks whose time is over.
    expiring: bool,
}

/// How agents are treated.
#[derive(Clone)]
pub struct FleetSettings {
    /// Name of our own host, which no agent may have.
    pub host: Arc<str>,
    /// Memory for the flows of a capture of an agent with their owners and interfaces, bytes.
    pub memory: usize,
    /// For how long an agent that is gone is waited for before its nodes go.
    pub patience: Duration,
    /// What captures are signed with.
    pub signer: Option<Arc<Signer>>,
}

/// Reads what a drain of an agent has changed: the name of its host, and the flows.
pub type FlowObserver = dyn Fn(&str, &Flows) + Send + Sync;

/// All agents. Clones are the same.
#[derive(Clone)]
pub struct Fleet {
    pub(crate) graph: SharedGraph,
    settings: FleetSettings,
    observers: Vec<Arc<FlowObserver>>,
    /// Messages of agents that are taken at a time; others wait in the order in which they came.
    pub(crate) turns: Arc<Semaphore>,
    inner: Arc<Mutex<Inner>>,
}

/// An agent as users see it.
#[derive(serde::Serialize, ToSchema)]
#[schema(as = Agent)]
pub struct AgentStatus {
    /// Name of its host.
    pub host: Arc<str>,
    /// Version of its program, empty when it was not here since the analyzer began.
    pub version: String,
    /// Whether there is a connection.
    pub connected: bool,
    /// Since when there is one, or none; ms since the Unix epoch.
    pub since: i64,
    /// Connections that it has made.
    pub connections: u64,
    /// Captures that it is to run, besides what it always captures.
    pub captures: usize,
    /// Flows of it in memory.
    pub flows: u64,
    /// Updates of flows that were taken.
    pub flow_updates: u64,
    /// Updates of flows that it could not send.
    pub lost_flow_updates: u64,
    /// Flows that left memory here for lack of room.
    pub evicted_flows: u64,
    /// Owners of sockets that left memory here, or did not come in, for lack of room.
    pub forgotten_owners: u64,
    /// Records that could not be true.
    pub refused_records: u64,
}

/// The agents and what is counted of all.
#[derive(serde::Serialize, ToSchema)]
#[schema(as = Fleet)]
pub struct FleetStatus {
    /// All agents, by host.
    pub agents: Vec<AgentStatus>,
    /// Connections that were refused.
    pub refused_connections: u64,
}

impl Fleet {
    /// No agents yet; those whose nodes the history knows are waited for.
    pub fn new(graph: SharedGraph, settings: FleetSettings) -> anyhow::Result<Self> {
        let known = graph.read().export();
        let mut hosts: BTreeSet<&Arc<str>> = known
            .nodes
            .iter()
            .filter(|node| *node.origin != *skua_control::elements::ORIGIN)
            .map(|node| &node.host)
            .collect();
        hosts.retain(|host| !host.is_empty() && ***host != *settings.host);
        let agents = hosts.into_iter().map(|host| (host.clone(), Agent::new()));
        let inner = Inner {
            agents: agents.collect(),
            ..Inner::default()
        };
        let fleet = Self {
            graph,
            settings,
            observers: Vec::new(),
            turns: Arc::new(Semaphore::new(TURNS)),
            inner: Arc::new(Mutex::new(inner)),
        };
        fleet.expire_from_time_to_time(&mut fleet.lock())?;
        Ok(fleet)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // What panicked half-way is one agent's message.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Name of our own host.
    pub(crate) fn host(&self) -> &Arc<str> {
        &self.settings.host
    }

    /// All agents.
    pub fn status(&self) -> FleetStatus {
        let inner = self.lock();
        let status = |(host, agent): (&Arc<str>, &Agent)| {
            let sums = agent.flows.values().map(|flows| flows.sums());
            let sums = sums.fold(RemoteSums::default(), |a, b| RemoteSums {
                flows: a.flows + b.flows,
                evicted: a.evicted + b.evicted,
                forgotten_owners: a.forgotten_owners + b.forgotten_owners,
            });
            AgentStatus {
                host: host.clone(),
                version: agent.version.clone(),
                connected: agent.line.is_some(),
                since: agent.since_ms,
                connections: agent.connections,
                captures: inner.assigned.get(host).map_or(0, BTreeMap::len),
                flows: sums.flows,
                flow_updates: agent.flow_updates,
                lost_flow_updates: agent.lost,
                evicted_flows: sums.evicted,
                forgotten_owners: sums.forgotten_owners,
                refused_records: agent.refused_records,
            }
        };
        FleetStatus {
            agents: inner.agents.iter().map(status).collect(),
            refused_connections: inner.refused,
        }
    }

    /// Counts a connection that was refused.
    pub fn note_refusal(&self) {
        self.lock().refused += 1;
    }

    /// The flows of all agents.
    pub fn flow_sets(&self) -> Vec<Arc<dyn FlowSet>> {
        let inner = self.lock();
        let sets = inner.agents.values().flat_map(|agent| agent.flows.values());
        sets.map(|set| set.clone() as Arc<dyn FlowSet>).collect()
    }

    /// A new connection; the first message must say whose it is. With it come the orders for the agent.
    pub fn connect(&self, hello: FromAgent) -> anyhow::Result<(Session, watch::Receiver<Orders>)> {
        let FromAgent::Hello {
            protocol,
            version,
            host,
            instance,
            challenge: _,
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
        if version.len() > 64 || version.chars().any(char::is_control) {
            bail!("this is no version");
        }
        if *host == *self.settings.host {
            bail!("{host} is the analyzer's own host: give the agent another name (--host-name)");
        }
        let host: Arc<str> = host.into();
        let mut inner = self.lock();
        if inner.agents.len() >= AGENTS && !inner.agents.contains_key(&host) {
            bail!("there are {AGENTS} agents already");
        }
        inner.connections += 1;
        let number = inner.connections;
        let agent = inner.agents.entry(host.clone()).or_insert_with(Agent::new);
        // The displaced one must not come back as long as the other is there: they would take turns.
        if agent.line.is_some() && agent.displaced.contains(&instance) {
            bail!("another agent of the name {host} is connected, which was started later");
        }
        agent.displaced.retain(|other| *other != instance);
        if let Some(old) = agent.line.take() {
            // Of two connections of one run the older one is half dead.
            if old.instance != instance {
                agent.displaced.push_back(old.instance);
                agent.displaced.truncate(DISPLACED);
                tracing::warn!(%host, "another agent of this name has connected; the older one has to go");
            }
            old.orders.send_modify(|orders| {
                let why = format!("another agent of the name {host} has connected");
                orders.refused = Some(why.into());
            });
        }
        let (orders, to_send) = watch::channel(Orders::default());
        if agent.taken.0 != instance {
            agent.taken = (instance, 0);
        }
        agent.version = version;
        agent.connections += 1;
        agent.states.clear();
        agent.turn(Some(Line {
            number,
            instance,
            orders,
        }));
        let reported = agent.reported.clone();
        self.expire_from_time_to_time(&mut inner)?;
        drop(inner);
        tracing::info!(%host, "agent connected");
        let session = Session::new(self.clone(), host, number, reported);
        Ok((session, to_send))
    }

    /// What captures are signed with.
    pub fn signer(&self) -> Option<&Signer> {
        self.settings.signer.as_deref()
    }

    /// What a host is to capture.
    pub fn assigned(&self, host: &str) -> Vec<Assigned> {
        let inner = self.lock();
        let assigned = inner.assigned.get(host);
        assigned.map_or_else(Vec::new, |all| all.values().cloned().collect())
    }

    /// Says that a connection is over.
    pub(crate) fn disconnect(&self, host: &Arc<str>, number: u64) {
        let mut inner = self.lock();
        if let Some(agent) = inner.agents.get_mut(host)
            && agent
                .line
                .as_ref()
                .is_some_and(|line| line.number == number)
        {
            agent.turn(None);
            tracing::info!(%host, "agent disconnected");
        }
    }

    /// The agent of a connection, as long as there is no newer one.
    fn with_agent<T>(
        &self,
        host: &Arc<str>,
        number: u64,
        work: impl FnOnce(&mut Agent) -> T,
    ) -> anyhow::Result<T> {
        let mut inner = self.lock();
        match inner.agents.get_mut(host) {
            Some(agent)
                if agent
                    .line
                    .as_ref()
                    .is_some_and(|line| line.number == number) =>
            {
                Ok(work(agent))
            }
            _ => bail!("there is a newer connection"),
        }
    }

    /// Whether a connection is still the agent's.
    pub(crate) fn is_current(&self, host: &Arc<str>, number: u64) -> anyhow::Result<()> {
        self.with_agent(host, number, |_| ())
    }

    /// Notes the states of captures.
    pub(crate) fn take_states(
        &self,
        host: &Arc<str>,
        number: u64,
        states: Vec<State>,
    ) -> anyhow::Result<()> {
        let asked: BTreeSet<Uuid> = {
            let inner = self.lock();
            let assigned = inner.assigned.get(host);
            assigned.map_or_else(BTreeSet::new, |all| all.keys().copied().collect())
        };
        self.with_agent(host, number, |agent| {
            // All of them each time; only of what was asked for, so that this is bounded.
            let asked = states.into_iter().filter(|s| asked.contains(&s.capture));
            agent.states = asked
                .map(|s| ((s.capture, s.node), (s.state, s.listens_at)))
                .collect();
        })
    }

    /// Takes note of what was lost at the agent.
    pub(crate) fn take_losses(
        &self,
        host: &Arc<str>,
        number: u64,
        lost: u64,
    ) -> anyhow::Result<()> {
        self.with_agent(host, number, |agent| agent.lost = lost)
    }

    /// Takes flows; returns the number up to which all are taken.
    pub(crate) fn take_flows(
        &self,
        host: &Arc<str>,
        number: u64,
        mut flows: Flows,
    ) -> anyhow::Result<u64> {
        if !flows.capture.is_empty() && Uuid::parse_str(&flows.capture).is_err() {
            bail!("flows of no capture");
        }
        let before = flows.records.len();
        let now = unix_ns();
        flows.retain(|record| is_sound(record, now));
        flows.limit_texts();
        let unsound = before - flows.records.len();
        let ids = self.assigned_ids(host);
        let taken = self.with_agent(host, number, |agent| {
            if flows.number <= agent.taken.1 {
                // It was accepted, but the confirmation did not reach the agent.
                return Ok(None);
            }
            agent.taken.1 = flows.number;
            agent.refused_records += unsound as u64;
            agent.flow_updates += flows.records.len() as u64;
            if let Some(set) = agent.flows.get(&flows.capture) {
                return Ok(Some(set.clone()));
            }
            if agent.flows.len() >= SETS {
                agent.flows.retain(|id, _| ids.contains(id));
            }
            if agent.flows.len() >= SETS {
                bail!("flows of more than {SETS} captures");
            }
            let set = RemoteFlows::new(host, &flows.capture, self.settings.memory);
            let set = Arc::new(set);
            agent.flows.insert(flows.capture.clone(), set.clone());
            Ok(Some(set))
        })??;
        let last = flows.number;
        if let Some(set) = taken {
            if !flows.known {
                self.observers
                    .iter()
                    .for_each(|observer| observer(host, &flows));
            }
            set.put(flows);
        }
        Ok(last)
    }

    /// Captures of a host as flows name them, with what is always captured.
    fn assigned_ids(&self, host: &str) -> BTreeSet<Arc<str>> {
        let inner = self.lock();
        let ids = inner
            .assigned
            .get(host)
            .into_iter()
            .flat_map(|all| all.keys());
        ids.map(|id| id.to_string().into())
            .chain(std::iter::once("".into()))
            .collect()
    }

    /// One more observer of what agents' drains have changed.
    pub fn with_observer(mut self, observer: Arc<FlowObserver>) -> Self {
        self.observers.push(observer);
        self
    }

    /// Looks whose time is over as long as there are agents.
    fn expire_from_time_to_time(&self, inner: &mut Inner) -> std::io::Result<()> {
        if inner.expiring || inner.agents.is_empty() {
            return Ok(());
        }
        let weak = Arc::downgrade(&self.inner);
        let (graph, settings) = (self.graph.clone(), self.settings.clone());
        let turns = self.turns.clone();
        let pause = (settings.patience / 4).clamp(Duration::from_millis(50), UNASKED);
        std::thread::Builder::new()
            .name("fleet".into())
            .spawn(move || {
                loop {
                    std::thread::sleep(pause);
                    let Some(inner) = weak.upgrade() else { return };
                    let fleet = Self {
                        graph: graph.clone(),
                        settings: settings.clone(),
                        observers: Vec::new(),
                        turns: turns.clone(),
                        inner,
                    };
                    fleet.expire();
                    let mut inner = fleet.lock();
                    if inner.agents.is_empty() {
                        inner.expiring = false;
                        return;
                    }
                }
            })?;
        inner.expiring = true;
        Ok(())
    }

    /// Forgets agents that have been gone for long, with their nodes, and flows of captures that are over.
    fn expire(&self) {
        let mut gone = Vec::new();
        let mut inner = self.lock();
        let Inner {
            agents, assigned, ..
        } = &mut *inner;
        for (host, agent) in agents.iter_mut() {
            let asked = |id: &str| {
                let all = assigned.get(host);
                all.is_some_and(|all| all.keys().any(|asked| *asked.to_string() == *id))
            };
            let kept = |id: &str, set: &RemoteFlows| {
                id.is_empty() || set.began().elapsed() < UNASKED || asked(id)
            };
            agent.flows.retain(|id, set| kept(id, set));
        }
        agents.retain(|host, agent| {
            let over = agent.line.is_none() && agent.since.elapsed() >= self.settings.patience;
            if over {
                gone.push(host.clone());
            }
            !over
        });
        drop(inner);
        for host in gone {
            tracing::warn!(%host, "agent gone: its nodes are taken out");
            let mut graph = self.graph.write();
            // It may have come back just now.
            if self.lock().agents.contains_key(&host) {
                continue;
            }
            if let Err(error) = crate::analyzer::session::take_out(&mut graph, &host) {
                tracing::warn!(%host, %error, "its nodes cannot be taken out");
            }
        }
    }

    /// Says on which interfaces of a host a capture is to run.
    pub(crate) fn assign(&self, host: &Arc<str>, capture: &Capture, points: Vec<NodePoint>) {
        let mut inner = self.lock();
        let Inner {
            agents, assigned, ..
        } = &mut *inner;
        let agent = agents.get_mut(host);
        if points.is_empty() {
            if let Some(all) = assigned.get_mut(host) {
                all.remove(&capture.uuid);
            }
            assigned.retain(|_, all| !all.is_empty());
        } else {
            let all = assigned.entry(host.clone()).or_default();
            let capture = capture.clone();
            all.insert(capture.uuid, Assigned { capture, points });
        }
        let Some(agent) = agent else { return };
        if !assigned
            .get(host)
            .is_some_and(|all| all.contains_key(&capture.uuid))
        {
            agent.states.retain(|(id, ..), _| *id != capture.uuid);
            agent.flows.remove(&*capture.uuid.to_string());
        }
        if let Some(line) = &agent.line {
            line.orders.send_modify(|orders| orders.captures += 1);
        }
    }

    /// The status of a capture at an agent.
    pub(crate) fn state(&self, capture: Uuid, point: &NodePoint) -> PointState {
        let inner = self.lock();
        let Some(agent) = inner.agents.get(&point.host) else {
            return PointState::Refused(format!("there is no agent of {}", point.host));
        };
        if agent.line.is_none() {
            return PointState::Refused(format!("the agent of {} is not connected", point.host));
        }
        let key = (capture, point.node.clone());
        let known = agent.states.get(&key);
        known.map_or(PointState::Pending, |(state, _)| state.clone())
    }

    /// Where a capture listens at an agent.
    pub(crate) fn listens_at(&self, capture: Uuid, point: &NodePoint) -> Option<SocketAddr> {
        let inner = self.lock();
        let agent = inner.agents.get(&point.host)?;
        agent.states.get(&(capture, point.node.clone()))?.1
    }
}
