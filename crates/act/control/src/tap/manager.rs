//! The taps of this process.

use super::{Holders, SocketFinder, Tap, plan};
use crate::{
    follow::{Follower, Happened, Signal},
    resource::{ResourceError, Resources},
};
use serde::Serialize;
use skua_sources::ask::{self, unix_ms};
use skua_tap::{
    Cause, Count, LinkKind, MonitorCounters, PacketReader, SocketsHeld, Source, SourceCounters,
    TapStatus, TappedPacket, WantedSockets,
};
use skua_topology::{Node, SharedGraph, Value};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use utoipa::ToSchema;
use uuid::Uuid;

/// Time between rounds when the graph does not change.
const ATTENTION: Duration = Duration::from_secs(1);

/// Time between rounds without taps.
const REST: Duration = Duration::from_secs(3_600);

/// What taps may do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TapSettings {
    /// Whether there may be any.
    pub allowed: bool,
    /// Whether this process has to do with packets.
    pub here: bool,
}

/// Why something cannot be done with taps.
#[derive(Debug, thiserror::Error)]
pub enum TapError {
    /// The configuration does not allow it.
    #[error("taps are forbidden here (policy.tap)")]
    Forbidden,
    /// This process has nothing to do with packets.
    #[error("an analyzer copies no packets itself: make taps at the agents")]
    Elsewhere,
    /// It has monitors.
    #[error("this tap has monitors; make one with To [\"stream\"] (--to stream) to watch it")]
    NoStream,
    /// Another watcher has its packets.
    #[error("somebody watches this tap already")]
    Watched,
    /// It stands in the configuration.
    #[error("this tap stands in the configuration file; change it there")]
    Declared,
    /// Something is wrong with the tap.
    #[error("{0}")]
    Wrong(String),
    /// It cannot be kept, or is not there.
    #[error(transparent)]
    Resource(#[from] ResourceError),
}

/// Packets and bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, ToSchema)]
#[serde(rename_all = "PascalCase")]
#[schema(as = TapAmount)]
pub struct Amount {
    /// Packets.
    pub packets: u64,
    /// Bytes from the Ethernet header on.
    pub bytes: u64,
}

impl From<Count> for Amount {
    fn from(count: Count) -> Self {
        Self {
            packets: count.packets,
            bytes: count.bytes,
        }
    }
}

/// What happened to packets.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, ToSchema)]
#[serde(rename_all = "PascalCase")]
#[schema(as = TapCounts)]
pub struct Counts {
    /// Wanted.
    pub matched: Amount,
    /// Copied.
    pub copied: Amount,
    /// Not copied, by cause; causes that have not been are left out.
    pub dropped: BTreeMap<&'static str, Amount>,
}

impl From<SourceCounters> for Counts {
    fn from(counters: SourceCounters) -> Self {
        let causes = Cause::ALL.into_iter().zip(counters.dropped);
        Self {
            matched: counters.matched.into(),
            copied: counters.copied.into(),
            dropped: causes
                .filter(|(_, count)| count.packets > 0)
                .map(|(cause, count)| (cause.name(), count.into()))
                .collect(),
        }
    }
}

/// A source and its status.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
#[serde(rename_all = "PascalCase")]
#[schema(as = TapSource)]
pub struct SourceView {
    /// Name of the interface.
    pub name: String,
    /// Inode number of its namespace.
    pub net_ns_inode: u64,
    /// Its index there.
    pub if_index: u32,
    /// VLAN identifier of its copies; 0: none.
    #[serde(rename = "VLAN")]
    pub vlan: u16,
    /// `active` or `error`.
    pub state: &'static str,
    /// Why it is not tapped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Both directions together.
    #[serde(flatten)]
    pub all: Counts,
    /// What was received.
    pub received: Counts,
    /// What was sent.
    pub sent: Counts,
}

/// A monitor and its status.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
#[serde(rename_all = "PascalCase")]
#[schema(as = TapMonitor)]
pub struct MonitorView {
    /// As it was named.
    pub name: String,
    /// `active` or `error`.
    pub state: &'static str,
    /// Why it gets nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Whether copies come to it straight.
    pub direct: bool,
    /// Handed to its interface.
    pub sent: Amount,
    /// Cut before.
    pub cut: Amount,
    /// Too long for its interface.
    pub too_big: Amount,
    /// Could not be tagged, cut or encapsulated.
    pub failed: Amount,
    /// Sent on the tap's own veth pair by another process.
    pub strange: Amount,
}

/// Sockets whose packets are wanted.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
#[serde(rename_all = "PascalCase")]
#[schema(as = TapSockets)]
pub struct SocketsView {
    /// How many are known to the kernel.
    pub held: usize,
    /// How many did not fit.
    pub left_out: usize,
    /// Whether connections are added as they begin, or by scans alone.
    pub prompt: bool,
}

impl From<SocketsHeld> for SocketsView {
    fn from(held: SocketsHeld) -> Self {
        Self {
            held: held.held,
            left_out: held.left_out,
            prompt: held.prompt,
        }
    }
}

/// A tap and its status.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "PascalCase")]
pub struct TapView {
    /// What was asked for.
    #[serde(flatten)]
    pub tap: Tap,
    /// `active` when all sources and monitors are, `partial` when some are, else `error`.
    pub state: &'static str,
    /// Why not all of it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// How programs hang on interfaces.
    pub hook: &'static str,
    /// Its sources.
    pub sources: Vec<SourceView>,
    /// Its monitors.
    pub monitors: Vec<MonitorView>,
    /// How many sockets are wanted, when packets are chosen by process, container or service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sockets: Option<SocketsView>,
    /// All sources together.
    #[serde(flatten)]
    pub all: Counts,
}

fn monitor_view(status: skua_tap::MonitorStatus) -> MonitorView {
    let MonitorCounters {
        sent,
        cut,
        too_big,
        failed,
        strange,
    } = status.counters;
    MonitorView {
        name: status.target.to_string(),
        state: state(&status.error),
        error: status.error,
        direct: status.direct,
        sent: sent.into(),
        cut: cut.into(),
        too_big: too_big.into(),
        failed: failed.into(),
        strange: strange.into(),
    }
}

fn state(error: &Option<String>) -> &'static str {
    match error {
        None => "active",
        Some(_) => "error",
    }
}

fn view(tap: Tap, run: Option<&Run>) -> TapView {
    let status = run
        .and_then(|run| run.running.as_ref())
        .map(skua_tap::Tap::status);
    let TapStatus {
        sources,
        missing,
        monitors,
        sockets,
    } = status.unwrap_or_default();
    let mut sum = SourceCounters::default();
    let sources: Vec<SourceView> = sources
        .into_iter()
        .map(|status| {
            let mut all = status.received;
            all += status.sent;
            sum += all;
            SourceView {
                name: status.source.name,
                net_ns_inode: status.source.netns,
                if_index: status.source.ifindex,
                vlan: match tap.vlan {
                    0 => 0,
                    first => first.wrapping_add(status.number as u16) & 0xfff,
                },
                state: state(&status.error),
                error: status.error,
                all: all.into(),
                received: status.received.into(),
                sent: status.sent.into(),
            }
        })
        .collect();
    let monitors: Vec<MonitorView> = monitors.into_iter().map(monitor_view).collect();
    let active = |state: &str| state == "active";
    let has_source = sources.iter().any(|source| active(source.state));
    let streams = tap.to.iter().any(|text| text == plan::STREAM);
    let has_monitor = streams || monitors.iter().any(|monitor| active(monitor.state));
    let own = run.and_then(|run| run.error.clone());
    let missing = missing
        .first()
        .map(|(name, why)| match why.contains(name.as_str()) {
            true => why.clone(),
            false => format!("{name}: {why}"),
        });
    let of_source = sources.iter().find_map(|source| {
        let error = source.error.as_ref()?;
        Some(format!("{}: {error}", source.name))
    });
    let of_monitor = monitors.iter().find_map(|monitor| monitor.error.clone());
    let nothing = (!has_source).then(|| "no source now".to_owned());
    let error = own.or(missing).or(of_source).or(of_monitor).or(nothing);
    TapView {
        state: match (&error, has_source && has_monitor) {
            (None, _) => "active",
            (Some(_), true) => "partial",
            (Some(_), false) => "error",
        },
        error,
        hook: run
            .and_then(|run| run.running.as_ref())
            .map_or("none", |running| running.hook().name()),
        sources,
        monitors,
        sockets: sockets.map(Into::into),
        all: sum.into(),
        tap,
    }
}

/// The packets of a tap, for one who watches.
pub struct TapWatch {
    reader: PacketReader,
    id: Uuid,
    watched: Arc<AtomicBool>,
    inner: Arc<Inner>,
}

impl TapWatch {
    /// Which tap.
    pub fn id(&self) -> Uuid {
        self.id
    }

    /// Waits for packets, at most so long, and takes those that are there. False: there will be no more.
    pub fn read(&mut self, patience: Duration, sink: &mut dyn FnMut(&TappedPacket<'_>)) -> bool {
        let there = self.inner.runs().contains_key(&self.id);
        self.reader
            .wait(if there { patience } else { Duration::ZERO });
        match self.reader.drain(sink) {
            Ok(more) => there || more,
            Err(error) => {
                tracing::warn!(%error, "packets of a tap cannot be read");
                false
            }
        }
    }

    /// The source with a number: namespace, name, and how its packets begin.
    pub fn source(&self, number: u32) -> Option<(u64, String, LinkKind)> {
        let runs = self.inner.runs();
        let status = runs.get(&self.id)?.running.as_ref()?.status();
        let mut sources = status.sources.into_iter();
        let found = sources.find(|status| status.number == number)?;
        Some((found.source.netns, found.source.name, found.link))
    }
}

impl Drop for TapWatch {
    fn drop(&mut self) {
        self.watched.store(false, Ordering::Release);
    }
}

/// A tap's run.
struct Run {
    tap: Tap,
    watched: Arc<AtomicBool>,
    running: Option<skua_tap::Tap>,
    error: Option<String>,
}

struct Inner {
    graph: SharedGraph,
    /// Name of this host.
    host: Box<str>,
    settings: TapSettings,
    finder: Arc<dyn SocketFinder>,
    taps: Resources<Tap>,
    runs: Mutex<BTreeMap<Uuid, Run>>,
    /// Nothing starts any more.
    ended: AtomicBool,
}

/// All taps of this process, on a thread of their own. They end with it.
pub struct TapManager {
    // First, so that the thread ends before the rest.
    _follower: Follower,
    signal: Arc<Signal>,
    inner: Arc<Inner>,
}

impl TapManager {
    /// Runs the taps that were kept, those of the configuration, and those to come.
    ///
    /// # Errors
    /// Something is wrong with a declared tap, or taps are forbidden and one is declared, or no
    /// thread can be started.
    pub fn start(
        graph: &SharedGraph,
        host: &str,
        taps: Resources<Tap>,
        declared: &[Tap],
        settings: TapSettings,
        finder: Arc<dyn SocketFinder>,
    ) -> Result<Self, TapError> {
        if !declared.is_empty() && !settings.here {
            return Err(TapError::Elsewhere);
        }
        if !declared.is_empty() && !settings.allowed {
            return Err(TapError::Forbidden);
        }
        for tap in declared {
            plan::spec(tap).map_err(TapError::Wrong)?;
            let tap = Tap {
                declared: true,
                who: "the configuration file".into(),
                create_time: unix_ms(),
                ..tap.clone()
            };
            // A tap that was made by the API stands in the file by now.
            let added = match taps.add(tap.clone()) {
                Err(ResourceError::Duplicate { id, .. }) => {
                    taps.remove(&id.to_string())?;
                    taps.add(tap)
                }
                other => other,
            };
            let tap = added?;
            tracing::info!(from = ?tap.from, to = ?tap.to, "a tap is declared in the configuration");
        }
        let inner = Arc::new(Inner {
            graph: graph.clone(),
            host: host.into(),
            settings,
            finder,
            taps,
            runs: Mutex::default(),
            ended: AtomicBool::new(false),
        });
        let signal = Arc::new(Signal::default());
        let theirs = inner.clone();
        let round = move |_: Happened| theirs.reconcile();
        let follower = Follower::start("taps", graph, signal.clone(), round)
            .map_err(|error| TapError::Wrong(error.to_string()))?;
        Ok(Self {
            _follower: follower,
            signal,
            inner,
        })
    }

    fn allowed(&self, who: &str, what: &str) -> Result<(), TapError> {
        if self.inner.ended.load(Ordering::Acquire) {
            return Err(TapError::Wrong("this process is about to end".into()));
        }
        if !self.inner.settings.here {
            return Err(TapError::Elsewhere);
        }
        if self.inner.settings.allowed {
            return Ok(());
        }
        tracing::warn!(who, "a tap was to be {what}, which is forbidden");
        Err(TapError::Forbidden)
    }

    /// Makes a tap; when this returns, it runs.
    ///
    /// # Errors
    /// It is forbidden, something is wrong with it, or the kernel cannot.
    pub fn create(&self, mut tap: Tap, who: &str) -> Result<TapView, TapError> {
        self.allowed(who, "made")?;
        let spec = plan::spec(&tap).map_err(TapError::Wrong)?;
        tap.create_time = unix_ms();
        tap.who = who.to_owned();
        tap.declared = false;
        let sockets = self.inner.sockets_of(&tap).map_err(TapError::Wrong)?;
        // The thread reconciles it only when it runs.
        let mut runs = self.inner.runs();
        let tap = self.inner.taps.add(tap)?;
        let started = Run::start(&tap, spec);
        let mut run = match started {
            Ok(run) => run,
            Err(error) => {
                self.inner.taps.remove(&tap.uuid.to_string())?;
                return Err(TapError::Wrong(error));
            }
        };
        run.reconcile(&self.inner);
        run.set_sockets(sockets.as_ref());
        tracing::info!(
            who,
            id = %tap.uuid,
            from = ?tap.from,
            query = tap.gremlin_query,
            expression = tap.r#match,
            to = ?tap.to,
            "a tap was made"
        );
        let view = view(tap.clone(), Some(&run));
        runs.insert(tap.uuid, run);
        drop(runs);
        self.signal.ask();
        Ok(view)
    }

    /// Changes one by a JSON patch (RFC 6902), without losing a packet.
    ///
    /// # Errors
    /// As for [`create`](Self::create); then it goes on as it was.
    pub fn patch(
        &self,
        id: &str,
        patch: &json_patch::Patch,
        who: &str,
    ) -> Result<TapView, TapError> {
        self.allowed(who, "changed")?;
        let before = self.inner.taps.get(id)?;
        if before.declared {
            return Err(TapError::Declared);
        }
        let wrong = |error: &dyn std::fmt::Display| TapError::Wrong(error.to_string());
        let mut value = serde_json::to_value(&before).map_err(|error| wrong(&error))?;
        crate::patch::apply(&mut value, patch).map_err(|error| wrong(&error))?;
        let mut after: Tap = serde_json::from_value(value).map_err(|error| wrong(&error))?;
        (after.uuid, after.create_time) = (before.uuid, before.create_time);
        after.who.clone_from(&before.who);
        after.passing = before.passing;
        after.declared = false;
        let spec = plan::spec(&after).map_err(TapError::Wrong)?;
        let sockets = self.inner.sockets_of(&after).map_err(TapError::Wrong)?;
        let mut runs = self.inner.runs();
        if self.inner.taps.get(id)? != before {
            return Err(TapError::Wrong("somebody else has just changed it".into()));
        }
        let updated = match runs.get_mut(&after.uuid) {
            Some(run) => run.update(&after, spec, sockets.as_ref(), &self.inner),
            None => Ok(()),
        };
        updated.map_err(TapError::Wrong)?;
        self.inner.taps.replace(after.clone())?;
        tracing::info!(who, id, "a tap was changed");
        let view = view(after.clone(), runs.get(&after.uuid));
        drop(runs);
        self.signal.ask();
        Ok(view)
    }

    /// Deletes one; nothing is copied any more when this returns.
    ///
    /// # Errors
    /// There is none, or it stands in the configuration.
    pub fn delete(&self, id: &str, who: &str) -> Result<TapView, TapError> {
        let mut runs = self.inner.runs();
        if self.inner.taps.get(id)?.declared {
            return Err(TapError::Declared);
        }
        let tap = self.inner.taps.remove(id)?;
        let run = runs.remove(&tap.uuid);
        let view = view(tap, run.as_ref());
        drop(run);
        tracing::info!(who, id, "a tap was deleted");
        Ok(view)
    }

    /// Gives the packets of a tap to who watches, one at a time.
    ///
    /// # Errors
    /// There is none, it has monitors, or another watcher has its packets.
    pub fn watch(&self, id: &str, who: &str) -> Result<TapWatch, TapError> {
        let mut runs = self.inner.runs();
        let tap = self.inner.taps.get(id)?;
        let run = runs.get_mut(&tap.uuid);
        let run = run.ok_or_else(|| TapError::Wrong("it does not run".into()))?;
        let running = run.running.as_ref();
        let reader = running.map(skua_tap::Tap::reader).transpose();
        let reader = reader.map_err(|error| TapError::Wrong(error.to_string()))?;
        let reader = reader.flatten().ok_or(TapError::NoStream)?;
        if run.watched.swap(true, Ordering::AcqRel) {
            return Err(TapError::Watched);
        }
        tracing::info!(who, id, "a tap is watched");
        Ok(TapWatch {
            reader,
            id: tap.uuid,
            watched: run.watched.clone(),
            inner: self.inner.clone(),
        })
    }

    /// Ends all of them, but keeps them for the next start. When this returns, nothing hangs on any
    /// interface any more.
    pub fn end(&self) {
        self.inner.ended.store(true, Ordering::Release);
        self.inner.runs().clear();
    }

    /// All of them.
    pub fn list(&self) -> Vec<TapView> {
        let runs = self.inner.runs();
        let all = self.inner.taps.all().into_iter();
        all.map(|tap| {
            let run = runs.get(&tap.uuid);
            view(tap, run)
        })
        .collect()
    }

    /// One of them.
    ///
    /// # Errors
    /// There is none.
    pub fn get(&self, id: &str) -> Result<TapView, TapError> {
        let runs = self.inner.runs();
        let tap = self.inner.taps.get(id)?;
        let run = runs.get(&tap.uuid);
        Ok(view(tap, run))
    }
}

impl Run {
    fn start(tap: &Tap, spec: skua_tap::Spec) -> Result<Self, String> {
        let running = skua_tap::Tap::new(spec).map_err(|error| error.to_string())?;
        Ok(Self {
            tap: tap.clone(),
            running: Some(running),
            error: None,
            watched: Arc::default(),
        })
    }

    fn update(
        &mut self,
        tap: &Tap,
        spec: skua_tap::Spec,
        sockets: Option<&WantedSockets>,
        inner: &Inner,
    ) -> Result<(), String> {
        match &mut self.running {
            Some(running) => running
                .update(spec, sockets)
                .map_err(|error| error.to_string())?,
            None => {
                *self = Self::start(tap, spec)?;
                self.set_sockets(sockets);
            }
        }
        self.tap = tap.clone();
        self.reconcile(inner);
        Ok(())
    }

    /// Says whose packets are wanted.
    fn set_sockets(&mut self, found: Option<&WantedSockets>) {
        let (Some(running), Some(found)) = (&mut self.running, found) else {
            return;
        };
        if let Err(error) = running.set_sockets(found) {
            tracing::warn!(%error, "a tap cannot be given its sockets");
        }
    }

    /// Finds the sources again and attaches to them.
    fn reconcile(&mut self, inner: &Inner) {
        let Some(running) = &mut self.running else {
            return;
        };
        if !self.tap.gremlin_query.trim().is_empty() {
            match ask::nodes(&inner.graph, &self.tap.gremlin_query) {
                Ok(nodes) => {
                    let here = nodes.iter().filter(|node| *node.host == *inner.host);
                    running.set_sources(here.filter_map(|node| source(node)));
                    self.error = None;
                }
                // It goes on with what was found before.
                Err(error) => self.error = Some(error),
            }
        }
        running.reconcile();
    }
}

/// The source that a node is, if it is an interface of the kernel and none of a tap's own.
fn source(node: &Node) -> Option<Source> {
    let int = |key: &str| node.metadata.get(key).and_then(Value::as_int);
    let name = node.metadata.get("Name").and_then(Value::as_str)?;
    let source = Source {
        netns: u64::try_from(int("NetNsInode")?).ok()?,
        ifindex: u32::try_from(int("IfIndex")?).ok()?,
        name: name.to_owned(),
    };
    let usable = source.netns > 0 && source.ifindex > 0;
    (usable && !skua_link::is_own_interface(name)).then_some(source)
}

impl Inner {
    fn runs(&self) -> MutexGuard<'_, BTreeMap<Uuid, Run>> {
        // After a panic the next change repairs what is half done.
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The sockets that a tap wants, when it chooses by sockets.
    fn sockets_of(&self, tap: &Tap) -> Result<Option<WantedSockets>, String> {
        let holders = Holders::of(tap);
        match holders.is_empty() {
            true => Ok(None),
            false => Ok(self.finder.find(&[holders])?.pop()),
        }
    }

    /// The sockets that all taps want, each tap's with what it asked for.
    fn sockets(&self) -> BTreeMap<Uuid, (Holders, Result<WantedSockets, String>)> {
        let asked = self.taps.all().into_iter();
        let asked: Vec<(Uuid, Holders)> = asked
            .map(|tap| (tap.uuid, Holders::of(&tap)))
            .filter(|(_, holders)| !holders.is_empty())
            .collect();
        if asked.is_empty() || !self.settings.here || !self.settings.allowed {
            return BTreeMap::new();
        }
        let holders: Vec<Holders> = asked.iter().map(|(_, holders)| holders.clone()).collect();
        let found: Vec<Result<WantedSockets, String>> = match self.finder.find(&holders) {
            Ok(found) => found.into_iter().map(Ok).collect(),
            Err(error) => holders.iter().map(|_| Err(error.clone())).collect(),
        };
        let found = asked.into_iter().zip(found);
        found
            .map(|((id, holders), found)| (id, (holders, found)))
            .collect()
    }

    /// Starts, changes and ends taps as the graph and the list of taps are now; returns the time until the next round.
    fn reconcile(&self) -> Duration {
        // Before the lock is taken: the finder may wait for a drain.
        let sockets = self.sockets();
        let mut runs = self.runs();
        if self.ended.load(Ordering::Acquire) {
            return REST;
        }
        let (_, _) = self.taps.expire(unix_ms());
        let taps = match self.settings.allowed && self.settings.here {
            true => self.taps.all(),
            // Those that were kept from a time when they were allowed wait.
            false => Vec::new(),
        };
        let wanted: BTreeSet<Uuid> = taps.iter().map(|tap| tap.uuid).collect();
        runs.retain(|id, _| {
            let stays = wanted.contains(id);
            if !stays {
                tracing::info!(%id, "a tap has ended");
            }
            stays
        });
        for tap in taps {
            let run = runs.entry(tap.uuid).or_insert_with(|| Run {
                tap: tap.clone(),
                running: None,
                error: None,
                watched: Arc::default(),
            });
            if run.running.is_none() {
                let started = plan::spec(&tap).and_then(|spec| Run::start(&tap, spec));
                match started {
                    Ok(new) => *run = new,
                    Err(error) => run.error = Some(error),
                }
            }
            run.reconcile(self);
            match sockets.get(&tap.uuid) {
                // It may want others by now.
                Some((asked, Ok(found))) if *asked == Holders::of(&tap) => {
                    run.set_sockets(Some(found));
                    if run.running.is_some() && tap.gremlin_query.trim().is_empty() {
                        run.error = None;
                    }
                }
                Some((_, Err(error))) => run.error = Some(error.clone()),
                _ => {}
            }
        }
        match runs.is_empty() {
            true => REST,
            false => ATTENTION,
        }
    }
}
