//! A tap that runs.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{BuildHasher as _, RandomState},
    sync::OnceLock,
};

use skua_kernel::{
    Attachment, Direction, HookKind,
    flow::LinkKind,
    tap::{
        Encapsulation, MAX_SOURCES, MonitorCounters, MonitorPrograms, OUTPUTS, Output,
        PacketReader, SocketsHeld, SourceCounters, SourcePrograms, TapChoice, TapMaps, TapSocket,
    },
};
use skua_link::{LinkSocket, Namespace};

use crate::{
    Source, Spec, TapError, Target, WantedSockets,
    monitor::{self, FoundMonitor},
    sources::NamespaceSources,
    space::Spaces,
    veth_pair,
};

/// The status of a source.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SourceStatus {
    /// Which.
    pub source: Source,
    /// Its number, by which its VLAN tag is chosen.
    pub number: u32,
    /// How its packets begin.
    pub link: LinkKind,
    /// Why it is not tapped.
    pub error: Option<String>,
    /// Counters of received packets.
    pub received: SourceCounters,
    /// Counters of sent copies.
    pub sent: SourceCounters,
}

/// The status of a monitor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MonitorStatus {
    /// Which.
    pub target: Target,
    /// Why the monitor gets no copies.
    pub error: Option<String>,
    /// Copies reach the monitor without a veth pair of the tap.
    pub direct: bool,
    /// What happened to copies.
    pub counters: MonitorCounters,
}

/// The status of a tap.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TapStatus {
    /// All sources, also those that no longer exist.
    pub sources: Vec<SourceStatus>,
    /// Sources by name that are not there, and why.
    pub missing: Vec<(String, String)>,
    /// Its monitors.
    pub monitors: Vec<MonitorStatus>,
    /// Number of sockets selected; none when packets are not selected by socket.
    pub sockets: Option<SocketsHeld>,
}

/// A source that is or was tapped. It keeps its number when it returns.
struct KnownSource {
    source: Source,
    link: LinkKind,
    error: Option<String>,
}

/// A monitor with its last observed state.
struct WatchedMonitor {
    target: Target,
    number: u32,
    found: Result<FoundMonitor, String>,
}

/// A tap. Dropping it detaches everything.
pub struct Tap {
    // Dropped in this order: first the programs that copy, then the outputs.
    namespaces: BTreeMap<u64, NamespaceSources>,
    finishers: BTreeMap<(u64, u32), Attachment>,
    spec: Spec,
    hook: HookKind,
    maps: TapMaps,
    delivery: MonitorPrograms,
    spaces: Spaces,
    /// Sources given by [`Tap::set_sources`].
    given: BTreeSet<Source>,
    /// All that are to be tapped now.
    wanted: BTreeSet<Source>,
    /// Why sources by name are not there.
    missing: Vec<(String, String)>,
    known: Vec<KnownSource>,
    monitors: Vec<WatchedMonitor>,
    next_monitor: u32,
}

/// A random number of this process, by which the copies of its taps are recognised.
fn process_number() -> u32 {
    static NUMBER: OnceLock<u32> = OnceLock::new();
    // The standard library's keys are random.
    *NUMBER.get_or_init(|| RandomState::new().hash_one(0) as u32 | 1)
}

impl Tap {
    /// A tap without sources.
    ///
    /// # Errors
    /// The expression is wrong, or the kernel cannot.
    pub fn new(mut spec: Spec) -> Result<Self, TapError> {
        spec.choice.process = process_number();
        spec.choice.tap = fastrand::u32(..);
        spec.choice.stream = spec.targets.is_empty();
        let maps = TapMaps::new(&spec.choice)?;
        // Loading the programs shows errors in the selection now.
        SourcePrograms::load(&spec.choice, &maps)?;
        let delivery = MonitorPrograms::load(&spec.choice, &maps)?;
        let mut tap = Self {
            namespaces: BTreeMap::new(),
            finishers: BTreeMap::new(),
            hook: best_hook(&delivery),
            spec,
            maps,
            delivery,
            spaces: Spaces::new()?,
            given: BTreeSet::new(),
            wanted: BTreeSet::new(),
            missing: Vec::new(),
            known: Vec::new(),
            monitors: Vec::new(),
            next_monitor: 0,
        };
        tap.set_targets();
        Ok(tap)
    }

    /// How programs hang on interfaces.
    pub fn hook(&self) -> HookKind {
        self.hook
    }

    /// Copies these, too, and no others but those that it has by name.
    pub fn set_sources(&mut self, sources: impl IntoIterator<Item = Source>) {
        self.given = sources.into_iter().collect();
    }

    /// Updates the list of sources. Namespaces with sources by name are held open.
    fn find_sources(&mut self) {
        self.missing.clear();
        self.wanted = self.given.clone();
        for (name, space) in &self.spec.sources {
            let found = || -> Result<Source, TapError> {
                let netns = self.spaces.inode(space)?;
                let links = LinkSocket::open_in(self.spaces.get(netns)?)?.list()?;
                let link = links.into_iter().find(|link| link.name == *name);
                let link = link.ok_or_else(|| TapError::NoInterface(name.clone()))?;
                Ok(Source {
                    netns,
                    ifindex: link.ifindex,
                    name: link.name,
                })
            };
            match found() {
                Ok(source) => drop(self.wanted.insert(source)),
                Err(error) => self.missing.push((name.clone(), error.to_string())),
            }
        }
    }

    /// Replaces the specification without losing a packet between; `sockets` are those to copy from
    /// then on, if it selects by sockets.
    ///
    /// # Errors
    /// The new specification is not possible; the old one stays in force.
    pub fn update(&mut self, spec: Spec, sockets: Option<&WantedSockets>) -> Result<(), TapError> {
        // Programs that run keep their set of sockets.
        let before = self.maps.take_sockets();
        let renewed = self.renew(spec, sockets);
        if renewed.is_err() {
            self.maps.put_sockets(before);
        }
        renewed
    }

    fn renew(&mut self, spec: Spec, sockets: Option<&WantedSockets>) -> Result<(), TapError> {
        self.maps.ready(&spec.choice)?;
        if let Some(sockets) = sockets {
            self.set_sockets(sockets)?;
        }
        self.replace(spec)
    }

    fn replace(&mut self, mut spec: Spec) -> Result<(), TapError> {
        spec.choice.process = self.spec.choice.process;
        spec.choice.tap = self.spec.choice.tap;
        spec.choice.stream = spec.targets.is_empty();
        if spec.choice.stream != self.spec.choice.stream {
            return Err(TapError::Other(
                "a tap copies to monitors or to a stream; an update cannot change which".into(),
            ));
        }
        let same = spec.choice == self.spec.choice && spec.directions == self.spec.directions;
        if !same || spec.choice.sockets {
            let mut programs = Vec::new();
            for _ in 0..self.namespaces.len() {
                programs.push(SourcePrograms::load(&spec.choice, &self.maps)?);
            }
            if programs.is_empty() {
                SourcePrograms::load(&spec.choice, &self.maps)?;
            }
            let delivery = MonitorPrograms::load(&spec.choice, &self.maps)?;
            for group in self.namespaces.values_mut() {
                group.replace_delivery(&delivery)?;
            }
            for finisher in self.finishers.values_mut() {
                finisher.replace(delivery.finish()?)?;
            }
            self.delivery = delivery;
            for (group, programs) in self.namespaces.values_mut().zip(programs) {
                group.replace(programs, &spec.directions)?;
            }
        }
        self.spec = spec;
        self.set_targets();
        self.reconcile();
        Ok(())
    }

    /// Numbers new monitors; present ones keep their number.
    fn set_targets(&mut self) {
        let targets = &self.spec.targets;
        self.monitors
            .retain(|known| targets.contains(&known.target));
        for target in targets {
            if self.monitors.iter().any(|known| known.target == *target) {
                continue;
            }
            // A number is used again only after all others.
            while self
                .monitors
                .iter()
                .any(|known| known.number == self.next_monitor)
            {
                self.next_monitor = (self.next_monitor + 1) % OUTPUTS as u32;
            }
            self.monitors.push(WatchedMonitor {
                target: target.clone(),
                number: self.next_monitor,
                found: Err("not checked yet".into()),
            });
            self.next_monitor = (self.next_monitor + 1) % OUTPUTS as u32;
        }
    }

    /// Reconciles programs and veth pairs with the current interfaces and namespaces.
    pub fn reconcile(&mut self) {
        let mut spaces: BTreeSet<u64> = self.given.iter().map(|source| source.netns).collect();
        let named = self.spec.sources.iter();
        spaces.extend(named.filter_map(|(_, space)| self.spaces.inode(space).ok()));
        let places: Vec<_> = self
            .monitors
            .iter()
            .map(|monitor| self.spaces.inode(monitor.target.space()))
            .collect();
        spaces.extend(places.iter().flatten());
        if let Err(error) = self.spaces.hold(&spaces) {
            tracing::warn!(%error, "network namespaces cannot be opened");
        }
        self.find_sources();
        for (monitor, place) in self.monitors.iter_mut().zip(places) {
            let spaces = &self.spaces;
            let found = place
                .and_then(|inode| spaces.get(inode))
                .and_then(|space| monitor::find(&monitor.target, space));
            let found = found.map_err(|error| error.to_string());
            if found == monitor.found {
                continue;
            }
            match &found {
                Ok(_) => tracing::info!(monitor = %monitor.target, "a tap's monitor is available"),
                Err(error) => {
                    tracing::warn!(monitor = %monitor.target, error, "a tap's monitor is not available");
                }
            }
            let present = found.as_ref().ok().map(|found| &found.monitor);
            if let Err(error) = self.maps.set_monitor(monitor.number, present) {
                tracing::warn!(%error, "a monitor cannot be changed");
            }
            monitor.found = found;
        }
        self.finish_direct();
        self.reconcile_sources();
    }

    /// Whether copies from a namespace reach a monitor without a veth pair.
    fn is_direct(&self, from: u64, found: &FoundMonitor) -> bool {
        let plain =
            found.monitor.encapsulation == Encapsulation::Plain && self.spec.choice.cut == 0;
        plain && found.netns == from && (self.spec.whole || found.real)
    }

    /// Attaches the program that tags to monitors that get copies without a veth pair.
    fn finish_direct(&mut self) {
        let sources: BTreeSet<u64> = self.wanted.iter().map(|source| source.netns).collect();
        let found = self.monitors.iter().filter_map(|m| m.found.as_ref().ok());
        let wanted: BTreeSet<(u64, u32)> = found
            .filter(|found| sources.iter().any(|from| self.is_direct(*from, found)))
            .map(|found| (found.netns, found.monitor.ifindex))
            .collect();
        self.finishers
            .retain(|place, attached| wanted.contains(place) && attached.is_there());
        for (inode, ifindex) in wanted {
            if self.finishers.contains_key(&(inode, ifindex)) {
                continue;
            }
            let attach =
                || -> Result<Attachment, TapError> {
                    let program = self.delivery.finish()?;
                    let space = self.spaces.get(inode)?;
                    let hook = self.hook;
                    Ok(space
                        .enter(|| Attachment::new(program, ifindex, Direction::Egress, hook))??)
                };
            match attach() {
                Ok(attached) => drop(self.finishers.insert((inode, ifindex), attached)),
                Err(error) => tracing::warn!(%error, "a monitor cannot be made ready"),
            }
        }
    }

    fn reconcile_sources(&mut self) {
        let namespaces: BTreeSet<u64> = self.wanted.iter().map(|source| source.netns).collect();
        self.namespaces
            .retain(|inode, _| namespaces.contains(inode) && self.spaces.get(*inode).is_ok());
        let wanted = std::mem::take(&mut self.wanted);
        for known in &mut self.known {
            if !wanted.contains(&known.source) {
                known.error = Some("the interface no longer exists".into());
            }
        }
        for inode in namespaces {
            let sources: Vec<&Source> = wanted.iter().filter(|s| s.netns == inode).collect();
            let readied = self.prepare_namespace(inode, &sources);
            for source in sources {
                let tapped = match &readied {
                    Ok(()) => self.tap(source).map_err(|error| error.to_string()),
                    Err(error) => Err(error.to_string()),
                };
                let known = self
                    .number(source)
                    .map(|number| &mut self.known[number as usize]);
                let Some(known) = known else { continue };
                let error = tapped.err();
                if known.error != error
                    && let Some(error) = &error
                {
                    tracing::warn!(source = source.name, error, "a source is not tapped");
                }
                known.source.clone_from(source);
                known.error = error;
            }
        }
        self.wanted = wanted;
    }

    /// Loads programs for a namespace, and sets where its copies go.
    fn prepare_namespace(&mut self, inode: u64, sources: &[&Source]) -> Result<(), TapError> {
        let space = self.spaces.get(inode)?;
        if !self.namespaces.contains_key(&inode) {
            veth_pair::clean_up(space)?;
            let programs = SourcePrograms::load(&self.spec.choice, &self.maps)?;
            self.namespaces
                .insert(inode, NamespaceSources::new(programs));
        }
        let mut there = Vec::new();
        let mut entrances: BTreeMap<u32, Output> = BTreeMap::new();
        let mut used = BTreeSet::new();
        for monitor in &self.monitors {
            let Ok(found) = &monitor.found else { continue };
            let output = if self.is_direct(inode, found) {
                Output {
                    ifindex: found.monitor.ifindex,
                    monitor: monitor.number,
                    mtu: found.monitor.mtu,
                }
            } else {
                let Some(group) = self.namespaces.get_mut(&inode) else {
                    continue;
                };
                used.insert(found.netns);
                let far: &Namespace = self.spaces.get(found.netns)?;
                Output {
                    ifindex: group.veth_to(space, far, &self.delivery, self.hook)?,
                    monitor: monitor.number,
                    mtu: 0,
                }
            };
            there.push(monitor.number);
            entrances.insert(monitor.number, output);
        }
        let outputs = monitor::spread(&there).map(|monitor| {
            let output = monitor.and_then(|monitor| entrances.get(&monitor));
            output.copied().unwrap_or_default()
        });
        if let Some(group) = self.namespaces.get_mut(&inode) {
            group.set_outputs(outputs, &used)?;
            group.keep(&sources.iter().map(|source| source.ifindex).collect());
        }
        Ok(())
    }

    fn tap(&mut self, source: &Source) -> Result<(), TapError> {
        if skua_link::is_own_interface(&source.name) {
            return Err(TapError::Other(
                "a tap's own interface cannot be a source".into(),
            ));
        }
        let is_monitor = self.monitors.iter().any(|monitor| {
            let found = monitor.found.as_ref();
            // Copies that leave through a tunnel share its interface with other packets; the source
            // programs recognise and skip them.
            found.is_ok_and(|f| {
                (f.netns, f.monitor.ifindex) == (source.netns, source.ifindex)
                    && f.monitor.encapsulation == Encapsulation::Plain
            })
        });
        if is_monitor {
            return Err(TapError::Other(
                "it is a monitor of this tap, and its copies would be copied".into(),
            ));
        }
        let Some(number) = self.number(source) else {
            return Err(TapError::Other(format!("more than {MAX_SOURCES} sources")));
        };
        let space = self.spaces.get(source.netns)?;
        let mut links = LinkSocket::open_in(space)?;
        let link = links.get(source.ifindex)?;
        let link = link.ok_or_else(|| TapError::NoInterface(source.name.clone()))?;
        let kind = match link.has_ethernet_header() {
            true => LinkKind::Ethernet,
            false if !link.has_ip_header() => {
                return Err(TapError::Other("its link type is unknown".into()));
            }
            false if !self.spec.choice.stream => {
                return Err(TapError::Other(
                    "its packets have no Ethernet header, which the monitor's have; only a file or \
                     a pipe takes them (--to FILE.pcapng, --to -, --to stream)"
                        .into(),
                ));
            }
            false => LinkKind::Ip,
        };
        let directions: &[Direction] = match link.is_loopback() {
            // Each packet passes loopback twice.
            true => &[Direction::Ingress],
            false => &self.spec.directions,
        };
        let group = self.namespaces.get_mut(&source.netns);
        let group = group.ok_or_else(|| TapError::NoNamespace(source.netns.to_string()))?;
        group.tap(space, source, number, (kind, directions), self.hook)?;
        if let Some(known) = self.known.get_mut(number as usize) {
            known.link = kind;
        }
        Ok(())
    }

    /// The number of a source: its former one, or a new one.
    fn number(&mut self, source: &Source) -> Option<u32> {
        let same = |known: &KnownSource| {
            (known.source.netns, &*known.source.name) == (source.netns, &*source.name)
        };
        let place = self.known.iter().position(same).or_else(|| {
            (self.known.len() < MAX_SOURCES).then(|| {
                self.known.push(KnownSource {
                    source: source.clone(),
                    link: LinkKind::Ethernet,
                    error: Some("new".into()),
                });
                self.known.len() - 1
            })
        });
        place.map(|place| place as u32)
    }

    /// Its status.
    pub fn status(&self) -> TapStatus {
        let sources = (0u32..).zip(&self.known).map(|(number, known)| {
            let counters = |direction| self.maps.source(number, direction).unwrap_or_default();
            SourceStatus {
                source: known.source.clone(),
                number,
                link: known.link,
                error: known.error.clone(),
                received: counters(Direction::Ingress),
                sent: counters(Direction::Egress),
            }
        });
        let monitors = self.monitors.iter().map(|monitor| MonitorStatus {
            target: monitor.target.clone(),
            error: monitor.found.as_ref().err().cloned(),
            direct: monitor.found.as_ref().is_ok_and(|found| {
                let mut namespaces = self.namespaces.keys();
                namespaces.any(|inode| self.is_direct(*inode, found))
            }),
            counters: self.maps.monitor(monitor.number).unwrap_or_default(),
        });
        TapStatus {
            sources: sources.collect(),
            missing: self.missing.clone(),
            monitors: monitors.collect(),
            sockets: self.maps.sockets().filter(|_| self.spec.choice.sockets),
        }
    }

    /// Copies packets of these sockets and, of loopback, only where a source is in their namespace.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn set_sockets(&mut self, wanted: &WantedSockets) -> Result<(), TapError> {
        let is_here = |(netns, socket): &&(u64, TapSocket)| {
            !socket.local.ip().is_loopback() || self.namespaces.contains_key(netns)
        };
        let sockets = wanted.sockets.iter().filter(is_here);
        let sockets: Vec<TapSocket> = sockets.map(|(_, socket)| *socket).collect();
        let (tasks, looked_ns) = (&wanted.tasks, wanted.looked_ns);
        Ok(self.maps.set_sockets(&sockets, tasks, looked_ns)?)
    }

    /// Reads its packets, when it has no monitors. There should be one reader at a time.
    ///
    /// # Errors
    /// The kernel's ring cannot be read.
    pub fn reader(&self) -> Result<Option<PacketReader>, TapError> {
        Ok(self.maps.reader()?)
    }

    /// What it does.
    pub fn choice(&self) -> &TapChoice {
        &self.spec.choice
    }
}

/// Whether taps can be here, and how their programs would hang on interfaces.
///
/// # Errors
/// The kernel refuses the programs.
pub fn check() -> Result<HookKind, TapError> {
    let choice = TapChoice::default();
    let maps = TapMaps::new(&choice)?;
    SourcePrograms::load(&choice, &maps)?;
    Ok(best_hook(&MonitorPrograms::load(&choice, &maps)?))
}

/// tcx if the kernel has it, else clsact: tried on the loopback of a namespace made for this.
fn best_hook(programs: &MonitorPrograms) -> HookKind {
    let attaches = |hook| {
        let program = programs.finish()?;
        skua_kernel::tap::try_hook(program, hook)
    };
    match attaches(HookKind::Tcx) {
        Ok(()) => HookKind::Tcx,
        Err(error) => {
            tracing::info!(%error, "no tcx; the tap uses clsact");
            HookKind::Clsact
        }
    }
}
