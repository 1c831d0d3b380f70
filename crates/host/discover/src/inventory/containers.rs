//! Containers, by their control groups.
//!
//! inotify announces groups that come and go, and of the unified hierarchy also when a group gets its first
//! process or loses its last.

use super::{
    Common,
    place::{self, int, map_of, some},
    procfs,
    worker::{Source, Wake},
};
use crate::{
    InstanceSockets, counters, ident,
    netlink::OWNERSHIP,
    writer::{Hangs, Writer},
};
use rustix::fs::inotify;
use skua_kernel::next_tick;
use skua_socket::{
    CgroupMount, Container, Instance, OwnerId, Owners, OwnersConfig, Pids, RuntimeConfig,
    cgroup_mounts, container_of_cgroup,
};
use skua_topology::{Map, Value};
use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet, HashMap},
    fs,
    mem::MaybeUninit,
    os::{
        fd::{AsFd as _, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt as _,
    },
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

/// Name of this provider in `@Origin`.
pub(super) const NAME: &str = "container";
/// Containers at most.
const MOST: usize = 4_096;
/// Most control groups that are read and watched.
const MOST_GROUPS: usize = 16_384;
/// Polling takes at most one part in this many of the time.
const SHARE: u32 = 20;
/// Least time between two polls.
const PAUSE: Duration = Duration::from_millis(50);
/// After a container came it is polled that often, that long: its runtime moves the first process to its
/// network namespace, and can answer requests, without notice.
const POLL_AGAIN: Duration = Duration::from_millis(250);
const SETTLING: Duration = Duration::from_secs(5);

const KEYS: &[&str] = &[
    "Name",
    "Type",
    "TID",
    "Manager",
    "NetNsInode",
    "Container",
    "LXD",
];

/// A container that has a node.
struct KnownContainer {
    node: Arc<str>,
    pid: u32,
    owner: OwnerId,
    metadata: Map,
    parent: Hangs,
}

/// Follows containers.
pub(super) struct Containers {
    common: Common,
    writer: Writer,
    owners: Owners,
    mounts: Vec<CgroupMount>,
    /// Has namespaces listed.
    wish: Wake,
    inotify: Option<OwnedFd>,
    known: BTreeMap<String, KnownContainer>,
    /// There are more groups than are watched.
    omitted: bool,
    /// There are groups of containers: their processes may move, and not all groups announce theirs.
    groups: bool,
    /// There are groups that could not be watched.
    unwatched: Cell<bool>,
    settled: bool,
    next: Option<Instant>,
    /// When the next requested poll may begin.
    earliest: Instant,
    settling: Instant,
}

impl Containers {
    pub fn new(common: Common, wish: Wake, instances: &InstanceSockets) -> Self {
        let flags = inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK;
        let inotify = inotify::init(flags);
        if let Err(error) = &inotify {
            tracing::warn!(%error, "containers are polled at the interval only");
        }
        let owners = OwnersConfig {
            max_owners: 2 * MOST,
            runtimes: RuntimeConfig {
                lxd: instances.lxd.clone(),
                incus: instances.incus.clone(),
                ..RuntimeConfig::default()
            },
            pids: common.pids,
            ..OwnersConfig::default()
        };
        let now = Instant::now();
        Self {
            writer: common.writer(NAME, MOST),
            common,
            owners: Owners::new(owners),
            mounts: cgroup_mounts(),
            wish,
            inotify: inotify.ok(),
            known: BTreeMap::new(),
            omitted: false,
            groups: false,
            unwatched: Cell::new(false),
            settled: false,
            next: Some(now),
            earliest: now,
            settling: now,
        }
    }

    /// Discards inotify's events: the poll reads everything.
    fn read_events(&self) {
        let Some(inotify) = &self.inotify else { return };
        let mut buffer = [const { MaybeUninit::<u8>::uninit() }; 8_192];
        let mut reader = inotify::Reader::new(inotify, &mut buffer);
        let mut events_read = 0;
        while reader.next().is_ok() {
            events_read += 1;
        }
        counters::add(&self.common.counters.events, events_read);
    }

    fn watch(&self, path: &Path, flags: inotify::WatchFlags) {
        if let Some(inotify) = &self.inotify
            && let Err(error) = inotify::add_watch(inotify, path, flags)
            && error != rustix::io::Errno::NOENT
        {
            counters::add(&self.common.counters.errors, 1);
            self.unwatched.set(true);
            tracing::debug!(%error, path = %path.display(), "cannot watch a control group");
        }
    }

    /// The processes of each container, by what its groups' paths call it.
    fn groups(&mut self) -> BTreeMap<String, BTreeSet<u32>> {
        use inotify::WatchFlags as Watch;
        let mut found: BTreeMap<String, BTreeSet<u32>> = BTreeMap::new();
        let mut groups = 0;
        for mount in &self.mounts {
            let mut folders = vec![(mount.folder.clone(), mount.root.clone())];
            while let Some((folder, path)) = folders.pop() {
                groups += 1;
                if groups > MOST_GROUPS {
                    if !std::mem::replace(&mut self.omitted, true) {
                        tracing::warn!(
                            "more than {MOST_GROUPS} control groups: not all are watched"
                        );
                    }
                    counters::add(&self.common.counters.omitted_entries, 1);
                    return found;
                }
                self.watch(
                    &folder,
                    Watch::CREATE | Watch::DELETE | Watch::MOVE | Watch::ONLYDIR,
                );
                if let Some(id) = container_of_cgroup(&path) {
                    if mount.unified {
                        self.watch(&folder.join("cgroup.events"), Watch::MODIFY);
                    }
                    let processes = procfs::read(&folder.join("cgroup.procs"));
                    let processes = processes.unwrap_or_default();
                    let processes = String::from_utf8_lossy(&processes);
                    // 0: of a pid namespace that we do not see.
                    let pids = processes
                        .lines()
                        .filter_map(|line| line.parse::<u32>().ok());
                    found
                        .entry(id)
                        .or_default()
                        .extend(pids.filter(|pid| *pid != 0));
                }
                let Ok(entries) = fs::read_dir(&folder) else {
                    continue;
                };
                for entry in entries.flatten() {
                    if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                        let mut path = path.clone();
                        path.push(b'/');
                        path.extend_from_slice(entry.file_name().as_bytes());
                        folders.push((entry.path(), path));
                    }
                }
            }
        }
        found
    }

    /// Whether inotify announces every possible change, that is, the first container.
    fn notified_of_all(&self) -> bool {
        self.inotify.is_some() && !self.groups && !self.omitted && !self.unwatched.get()
    }

    /// Brings the graph up to date.
    fn refresh(&mut self) {
        let mut alive: HashMap<String, (u32, OwnerId)> = HashMap::new();
        self.unwatched.set(false);
        let groups = self.groups();
        self.groups = !groups.is_empty();
        for (id, pids) in groups {
            let before = self.known.get(&id).map(|known| known.pid);
            let before = before.filter(|pid| pids.contains(pid));
            let Some(pid) = before.or_else(|| pids.first().copied()) else {
                continue;
            };
            if alive.len() >= MOST {
                counters::add(&self.common.counters.omitted_nodes, 1);
                continue;
            }
            let owner = procfs::task(pid).and_then(|task| self.owners.intern(&task));
            let container = owner.and_then(|owner| self.owners.get(owner)?.container.clone());
            if let (Some(owner), Some(container)) = (owner, container) {
                alive.insert(container.id.clone(), (pid, owner));
            }
        }
        self.owners.refresh();
        let gone: Vec<String> = self
            .known
            .keys()
            .filter(|id| !alive.contains_key(*id))
            .cloned()
            .collect();
        for id in gone {
            if let Some(known) = self.known.remove(&id) {
                self.writer.remove_node(&known.node);
            }
        }
        let spaces = place::spaces(&self.common.graph, &self.common.host);
        for (id, (pid, owner)) in alive {
            let Some(container) = self.owners.get(owner).and_then(|o| o.container.clone()) else {
                continue;
            };
            let Some(netns) = procfs::netns(pid) else {
                continue;
            };
            let metadata = self.metadata(&container, pid, netns);
            let known = self.known.get(&id);
            let new = known
                .is_none_or(|known| known.metadata.get("NetNsInode") != metadata.get("NetNsInode"));
            if new && !spaces.contains_key(&netns) {
                self.wish.call();
            }
            let parent = spaces.get(&netns).map(|space| space.node.clone());
            let parent = parent.unwrap_or_else(|| self.common.host_node.clone());
            self.write(id, pid, owner, metadata, &parent);
        }
        if !std::mem::replace(&mut self.settled, true) {
            self.writer.settle();
        }
        self.owners.sweep(|used| {
            for known in self.known.values() {
                used.note(known.owner.number(), true);
            }
        });
        counters::set(&self.common.counters.containers, self.known.len());
    }

    fn write(&mut self, id: String, pid: u32, owner: OwnerId, metadata: Map, parent: &Arc<str>) {
        let known = match self.known.entry(id) {
            std::collections::btree_map::Entry::Occupied(known) => {
                let known = known.into_mut();
                if known.metadata != metadata {
                    self.writer.set_node(&known.node, KEYS, metadata.clone());
                }
                known
            }
            std::collections::btree_map::Entry::Vacant(entry) => {
                let identity = format!("{NAME}/{}", entry.key());
                let Some(node) = self.writer.add_node(&identity, KEYS, metadata.clone()) else {
                    return;
                };
                self.settling = Instant::now() + SETTLING;
                entry.insert(KnownContainer {
                    node,
                    pid,
                    owner,
                    metadata: metadata.clone(),
                    parent: None,
                })
            }
        };
        (known.pid, known.owner, known.metadata) = (pid, owner, metadata);
        self.writer
            .hang(&mut known.parent, parent, &known.node, OWNERSHIP);
    }

    fn metadata(&self, container: &Container, pid: u32, netns: u64) -> Map {
        let short = container.id.get(..12).filter(|_| container.id.len() == 64);
        let name = container.name.as_deref();
        let name = name.unwrap_or(short.unwrap_or(&container.id));
        let labels = container.labels.iter();
        let labels = labels.map(|(name, value)| (Arc::from(&**name), Value::from(&**value)));
        let labels: Vec<(Arc<str>, Value)> = labels.collect();
        let pod = container.pod.as_ref().map(|pod| {
            Value::from(map_of([
                ("Name", some(pod.name.as_deref())),
                ("Namespace", some(pod.namespace.as_deref())),
                ("UID", some(pod.uid.as_deref())),
            ]))
        });
        let runtime = Value::from(container.runtime.name());
        let about = map_of([
            ("ID", some(Some(&container.id))),
            ("Image", some(container.image.as_deref())),
            // Only a number of the host.
            (
                "InitProcessPID",
                (self.common.pids == Pids::Host).then(|| int(pid)),
            ),
            (
                "Labels",
                (!labels.is_empty()).then(|| Map::new(labels).into()),
            ),
            ("Outer", some(container.outer.as_deref())),
            ("Pod", pod),
            ("Runtime", Some(runtime.clone())),
        ]);
        let tid = ident::tid(&self.common.host_tid, &container.id, NAME);
        map_of([
            ("Name", some(Some(name))),
            ("Type", some(Some("container"))),
            ("TID", Some(Value::Str(tid))),
            ("Manager", Some(runtime)),
            ("NetNsInode", Some(int(netns))),
            ("Container", Some(about.into())),
            ("LXD", container.instance.as_deref().map(instance_metadata)),
        ])
    }
}

/// Settings of an instance under Skydive's names.
fn instance_metadata(instance: &Instance) -> Value {
    let pairs = |pairs: &[(String, String)]| {
        let each = pairs.iter();
        let each = each.map(|(key, value)| (Arc::from(&**key), Value::from(&**value)));
        Value::from(Map::new(each.collect()))
    };
    let devices = instance.devices.iter();
    let devices: Vec<(Arc<str>, Value)> = devices
        .map(|(name, of)| (Arc::from(&**name), pairs(of)))
        .collect();
    let profiles = instance.profiles.iter();
    let profiles: Vec<Value> = profiles.map(|name| Value::from(&**name)).collect();
    let text = |text: &str| (!text.is_empty()).then(|| Value::from(text));
    let flag = |set: bool| Some(Value::from(if set { "true" } else { "false" }));
    let map = map_of([
        ("Architecture", text(&instance.architecture)),
        (
            "Config",
            (!instance.config.is_empty()).then(|| pairs(&instance.config)),
        ),
        ("CreatedAt", text(&instance.created_at)),
        ("Description", text(&instance.description)),
        (
            "Devices",
            (!devices.is_empty()).then(|| Map::new(devices).into()),
        ),
        ("Ephemeral", flag(instance.ephemeral)),
        (
            "Profiles",
            (!profiles.is_empty()).then(|| Value::List(profiles.into())),
        ),
        ("Project", text(&instance.project)),
        ("Restore", text(&instance.restore)),
        ("Stateful", flag(instance.stateful)),
        ("Status", text(&instance.status)),
    ]);
    map.into()
}

impl Source for Containers {
    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        let inotify = self.inotify.as_ref();
        inotify.map(|fd| fd.as_fd()).into_iter().collect()
    }

    fn next(&self) -> Option<Instant> {
        self.next
    }

    fn quiet_until(&self) -> Instant {
        self.earliest
    }

    fn work(&mut self, _: bool) {
        let now = Instant::now();
        self.read_events();
        self.refresh();
        let end = Instant::now();
        self.earliest = end + PAUSE.max((end - now) * SHARE);
        self.next = match end < self.settling {
            true => Some(end + POLL_AGAIN),
            false => (!self.notified_of_all()).then(|| next_tick(self.common.interval)),
        };
    }
}
