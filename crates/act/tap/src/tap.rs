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
    monitor::{self, Found},
    room::Room,
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
    /// What was received.
    pub received: SourceCounters,
    /// What was sent.
    pub sent: SourceCounters,
}

/// The status of a monitor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MonitorStatus {
    /// Which.
    pub target: Target,
    /// Why it gets nothing.
    pub error: Option<String>,
    /// Copies come to it without a way of the tap's own.
    pub direct: bool,
    /// What happened to copies.
    pub counters: MonitorCounters,
}

/// The status of a tap.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TapStatus {
    /// Its sources, also those that are gone.
    pub sources: Vec<SourceStatus>,
    /// Sources by name that are not there, and why.
    pub missing: Vec<(String, String)>,
    /// Its monitors.
    pub monitors: Vec<MonitorStatus>,
    /// How many sockets are wanted; none when packets are not chosen by that.
    pub sockets: Option<SocketsHeld>,
}

/// A source that is or was tapped. It keeps its number when it returns.
struct Known {
    source: Source,
    link: LinkKind,
    error: Option<String>,
}

/// A monitor as it was when last looked at.
struct Watched {
    target: Target,
    number: u32,
    found: Result<Found, String>,
}

/// A tap. Dropping it detaches everything.
pub struct Tap {
    // In this order they go: first what copies, then where copies go.
    rooms: BTreeMap<u64, Room>,
    finishers: BTreeMap<(u64, u32), Attachment>,
    spec: Spec,
    hook: HookKind,
    maps: TapMaps,
    delivery: MonitorPrograms,
    spaces: Spaces,
    /// Sources that others have found.
    given: BTreeSet<Source>,
    /// All that are to be tapped now.
    wanted: BTreeSet<Source>,
    /// Why sources by name are not there.
    missing: Vec<(String, String)>,
    known: Vec<Known>,
    monitors: Vec<Watched>,
    next_monitor: u32,
}

/// A random number of this process, by which copies of its taps are known.
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
        // What is wrong with the choice is to be known now.
        SourcePrograms::load(&spec.choice, &maps)?;
        let delivery = MonitorPrograms::load(&spec.choice, &maps)?;
        let mut tap = Self {
            rooms: BTreeMap::new(),
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

    /// Which sources there are now. Namespaces are held for those that are looked for by name.
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

    /// Does something else from now on, without losing a packet between; `sockets` are those that are
    /// wanted from then on, if it chooses by sockets.
    ///
    /// # Errors
    /// What is asked for cannot be; then it goes on as before.
    pub fn update(&mut self, spec: Spec, sockets: Option<&WantedSockets>) -> Result<(), TapError> {
        // Programs that run go on with the set that they have.
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
                "a tap goes to monitors or to who watches, and stays so".into(),
            ));
        }
        let same = spec.choice == self.spec.choice && spec.directions == self.spec.directions;
        if !same || spec.choice.sockets {
            let mut programs = Vec::new();
            for _ in 0..self.rooms.len() {
                programs.push(SourcePrograms::load(&spec.choice, &self.maps)?);
            }
            if programs.is_empty() {
                SourcePrograms::load(&spec.choice, &self.maps)?;
            }
            let delivery = MonitorPrograms::load(&spec.choice, &self.maps)?;
            for room in self.rooms.values_mut() {
                room.replace_delivery(&delivery)?;
            }
            for finisher in self.finishers.values_mut() {
                finisher.replace(delivery.finish()?)?;
            }
            self.delivery = delivery;
            for (room, programs) in self.rooms.values_mut().zip(programs) {
                room.replace(programs, &spec.directions)?;
            }
        }
        self.spec = spec;
        self.set_targets();
        self.reconcile();
        Ok(())
    }

    /// Gives numbers to new monitors; those that stay keep theirs.
    fn set_targets(&mut self) {
        let targets = &self.spec.targets;
        self.monitors
            .retain(|known| targets.contains(&known.target));
        for target in targets {
            if self.monitors.iter().any(|known| known.target == *target) {
                continue;
            }
            // Numbers are used again only when all have had their turn.
            while self
                .monitors
                .iter()
                .any(|known| known.number == self.next_monitor)
            {
                self.next_monitor = (self.next_monitor + 1) % OUTPUTS as u32;
            }
            self.monitors.push(Watched {
                target: target.clone(),
                number: self.next_monitor,
                found: Err("not looked at yet".into()),
            });
            self.next_monitor = (self.next_monitor + 1) % OUTPUTS as u32;
        }
    }

    /// Brings everything to what interfaces and namespaces are now.
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
            tracing::warn!(%error, "network namespaces cannot be looked at");
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
                Ok(_) => tracing::info!(monitor = %monitor.target, "a tap's monitor is there"),
                Err(error) => {
                    tracing::warn!(monitor = %monitor.target, error, "a tap's monitor is not there");
                }
            }
            let told = found.as_ref().ok().map(|found| &found.monitor);
            if let Err(error) = self.maps.set_monitor(monitor.number, told) {
                tracing::warn!(%error, "a monitor cannot be changed");
            }
            monitor.found = found;
        }
        self.finish_direct();
        self.reconcile_sources();
    }

    /// Whether copies from a namespace come to a monitor straight.
    fn is_direct(&self, from: u64, found: &Found) -> bool {
        let plain =
            found.monitor.encapsulation == Encapsulation::Plain && self.spec.choice.cut == 0;
        plain && found.netns == from && (self.spec.whole || found.real)
    }

    /// Hangs the program that tags on monitors that copies come to straight.
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
        let rooms: BTreeSet<u64> = self.wanted.iter().map(|source| source.netns).collect();
        self.rooms
            .retain(|inode, _| rooms.contains(inode) && self.spaces.get(*inode).is_ok());
        let wanted = std::mem::take(&mut self.wanted);
        for known in &mut self.known {
            if !wanted.contains(&known.source) {
                known.error = Some("gone".into());
            }
        }
        for inode in rooms {
            let sources: Vec<&Source> = wanted.iter().filter(|s| s.netns == inode).collect();
            let readied = self.ready_room(inode, &sources);
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

    /// Loads programs for a namespace, and says where copies from there go.
    fn ready_room(&mut self, inode: u64, sources: &[&Source]) -> Result<(), TapError> {
        let space = self.spaces.get(inode)?;
        if !self.rooms.contains_key(&inode) {
            veth_pair::clean_up(space)?;
            let programs = SourcePrograms::load(&self.spec.choice, &self.maps)?;
            self.rooms.insert(inode, Room::new(programs));
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
                let Some(room) = self.rooms.get_mut(&inode) else {
                    continue;
                };
                used.insert(found.netns);
                let far: &Namespace = self.spaces.get(found.netns)?;
                Output {
                    ifindex: room.way(space, far, &self.delivery, self.hook)?,
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
        if let Some(room) = self.rooms.get_mut(&inode) {
            room.set_outputs(outputs, &used)?;
            room.keep(&sources.iter().map(|source| source.ifindex).collect());
        }
        Ok(())
    }

    fn tap(&mut self, source: &Source) -> Result<(), TapError> {
        if skua_link::is_own_interface(&source.name) {
            return Err(TapError::Other("a tap's own interface is no source".into()));
        }
        let is_monitor = self.monitors.iter().any(|monitor| {
            let found = monitor.found.as_ref();
            // What leaves through a tunnel shares its interface with others, and is known.
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
                return Err(TapError::Other("its packets are of no known kind".into()));
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
        let room = self.rooms.get_mut(&source.netns);
        let room = room.ok_or_else(|| TapError::NoNamespace(source.netns.to_string()))?;
        room.tap(space, source, number, (kind, directions), self.hook)?;
        if let Some(known) = self.known.get_mut(number as usize) {
            known.link = kind;
        }
        Ok(())
    }

    /// The number of a source: the one it had, or a new one.
    fn number(&mut self, source: &Source) -> Option<u32> {
        let same = |known: &Known| {
            (known.source.netns, &*known.source.name) == (source.netns, &*source.name)
        };
        let place = self.known.iter().position(same).or_else(|| {
            (self.known.len() < MAX_SOURCES).then(|| {
                self.known.push(Known {
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
                let mut rooms = self.rooms.keys();
                rooms.any(|inode| self.is_direct(*inode, found))
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
            !socket.local.ip().is_loopback() || self.rooms.contains_key(netns)
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

/// tcx where the kernel has it, else clsact: tried on a namespace's loopback of our own.
fn best_hook(programs: &MonitorPrograms) -> HookKind {
    let attaches = |hook| {
        let program = programs.finish()?;
        skua_kernel::tap::try_hook(program, hook)
    };
    match attaches(HookKind::Tcx) {
        Ok(()) => HookKind::Tcx,
        Err(error) => {
            tracing::info!(%error, "no tcx; the tap takes clsact");
            HookKind::Clsact
        }
    }
}
