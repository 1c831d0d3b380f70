//! Who owns a socket: processes with their users, containers and units, each kept once.

use std::collections::{HashMap, HashSet, hash_map::RandomState};
use std::fmt;
use std::hash::BuildHasher as _;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hashbrown::HashTable;
use skua_flow::{Numbered, Used};

use crate::cgroup::{Cgroups, path_of_process};
use crate::container::{CgroupPath, Found, Runtime, place};
use crate::process::{Pids, Proc, ProcError, ProcInfo, base_name, executable, name};
use crate::renames::Renames;
use crate::runtime::{Instance, Lookups, RuntimeConfig, RuntimeCounters};
use crate::text::{Texts, shown, until_nul};
use crate::update::Task;
use crate::user::Users;

/// Longest names and paths that are kept, characters.
const PROCESS: usize = 64;
const EXECUTABLE: usize = 512;
const CGROUP: usize = 1024;
/// Bytes of a place in the table of what two owners share.
const SHARED: usize = size_of::<((OwnerId, OwnerId), Option<OwnerId>)>() + 1;

/// Names an [`Owner`] in its [`Owners`]. Small, because every record of a socket or flow has one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct OwnerId(NonZeroU32);

impl OwnerId {
    /// The id as a number, for records that know nothing of sockets.
    pub fn number(self) -> NonZeroU32 {
        self.0
    }

    /// The id of that number.
    pub fn numbered(number: NonZeroU32) -> Self {
        Self(number)
    }
}

/// A process that owns sockets, or what several that wait at one port share
/// ([`Owners::shared`]). All text is safe to show: what could drive a terminal is escaped.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Owner {
    /// Process in the initial PID namespace; 0 of several, and where that is not known.
    pub pid: u32,
    /// The same process in its own PID namespace, where that is another number; 0 unknown.
    pub ns_pid: u32,
    /// Its start, ns of CLOCK_BOOTTIME; 0 unknown.
    pub start_ns: u64,
    /// Its name: the first thread's, or the executable's where that one is cut. Empty where several
    /// have different ones.
    pub process: String,
    /// Path of its executable, as its own mount namespace has it; only the last component where the process
    /// had ended (or was hidden) before it was read.
    pub executable: Option<Arc<str>>,
    /// Effective user.
    pub uid: u32,
    /// The user's name on the host. In containers only root's: other numbers mean other users there.
    pub user: Option<Arc<str>>,
    /// Path of its control group, from the root of the hierarchy.
    pub cgroup: Option<Arc<str>>,
    /// Container that it runs in, the innermost of several.
    pub container: Option<Arc<Container>>,
    /// Unit of systemd: `nginx.service`, `session-3.scope`; the container's own when one runs there.
    pub unit: Option<Arc<str>>,
}

impl Owner {
    /// Name of what serves: the container's name, or its id's first 12 digits; else the service unit;
    /// else the process. Scopes (logins, desktop applications) and users' managers are no services.
    /// A container of Kubernetes stands behind its pod's namespace and name where these are known.
    pub fn service(&self) -> &str {
        if let Some(container) = &self.container {
            return container.label();
        }
        match &self.unit {
            Some(unit) if unit.ends_with(".service") && !unit.starts_with("user@") => unit,
            _ => &self.process,
        }
    }
}

/// A container.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Container {
    /// The runtime.
    pub runtime: Runtime,
    /// Full id; with LXC and nspawn its name.
    pub id: String,
    /// Name, when its runtime reported one.
    pub name: Option<String>,
    /// Image that it was made from, when its runtime reported one.
    pub image: Option<String>,
    /// Its settings, of LXD and Incus.
    pub instance: Option<Box<Instance>>,
    /// Labels by name, when its runtime reported them; at most 64.
    pub labels: Vec<(String, String)>,
    /// Kubernetes pod.
    pub pod: Option<Pod>,
    /// Of a container in a container (kind, Docker in Docker): name or id of the one that the host
    /// runs, which the pod belongs to.
    pub outer: Option<String>,
    label: String,
}

impl Container {
    fn label(&self) -> &str {
        &self.label
    }

    fn memory(&self) -> usize {
        let text = |text: &Option<String>| text.as_ref().map_or(0, String::capacity);
        let pod = self.pod.as_ref().map_or(0, |pod| {
            text(&pod.uid) + text(&pod.name) + text(&pod.namespace)
        });
        let label = |(name, value): &(String, String)| {
            size_of::<(String, String)>() + name.capacity() + value.capacity()
        };
        let labels = self.labels.iter().map(label).sum::<usize>();
        size_of::<Self>()
            + self.id.capacity()
            + self.label.capacity()
            + text(&self.name)
            + text(&self.image)
            + text(&self.outer)
            + self
                .instance
                .as_ref()
                .map_or(0, |instance| instance.memory())
            + pod
            + labels
    }
}

/// A pod of Kubernetes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Pod {
    /// Its UID, from the control group's path.
    pub uid: Option<String>,
    /// Its name, when the runtime reported it.
    pub name: Option<String>,
    /// Its namespace, when the runtime reported it.
    pub namespace: Option<String>,
}

/// Where to read, and how much to keep.
#[derive(Clone, Debug)]
pub struct OwnersConfig {
    /// Most owners at a time.
    pub max_owners: usize,
    /// Most bytes that owners and their containers take.
    pub max_memory: usize,
    /// Most control groups whose paths are kept.
    pub max_cgroups: usize,
    /// Control groups are listed at most this often, and only when one is unknown.
    pub cgroup_rescan: Duration,
    /// Where the process file system is mounted.
    pub proc: PathBuf,
    /// The list of mounts, for the control groups' hierarchies.
    pub mountinfo: PathBuf,
    /// Names of users.
    pub passwd: PathBuf,
    /// Container runtimes to query for names.
    pub runtimes: RuntimeConfig,
    /// Whose pids those of tasks are.
    pub pids: Pids,
}

impl Default for OwnersConfig {
    fn default() -> Self {
        Self {
            max_owners: 262_144,
            max_memory: 64 * 1024 * 1024,
            max_cgroups: 65_536,
            cgroup_rescan: Duration::from_secs(1),
            proc: "/proc".into(),
            mountinfo: "/proc/self/mountinfo".into(),
            passwd: "/etc/passwd".into(),
            runtimes: RuntimeConfig::default(),
            pids: Pids::default(),
        }
    }
}

/// What could not be found out, by cause; since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OwnerCounters {
    /// Owners above the limit, at each socket.
    pub owners_full: u64,
    /// Owners of nothing but ended sockets and conversations that made room for others; those have
    /// no owner any more.
    pub owners_forgotten: u64,
    /// Processes that had ended before they were read, or are hidden (`hidepid`).
    pub processes_gone: u64,
    /// Processes whose pid was another's when they were read.
    pub pids_reused: u64,
    /// Processes that `/proc` did not describe for another reason.
    pub processes_unreadable: u64,
    /// Processes that ran another executable when they were read.
    pub executed: u64,
    /// Owners whose control group was not found.
    pub cgroups_unknown: u64,
    /// Control groups above the limit.
    pub cgroups_full: u64,
    /// Control groups whose path is too deep to be listed.
    pub cgroups_unreadable: u64,
    /// What happened to questions to container runtimes.
    pub runtimes: RuntimeCounters,
}

impl OwnerCounters {
    /// Causes with their names.
    pub fn by_cause(&self) -> [(&'static str, u64); 15] {
        let runtimes = &self.runtimes;
        [
            ("owners_full", self.owners_full),
            ("owners_forgotten", self.owners_forgotten),
            ("processes_gone", self.processes_gone),
            ("pids_reused", self.pids_reused),
            ("processes_unreadable", self.processes_unreadable),
            ("executed", self.executed),
            ("cgroups_unknown", self.cgroups_unknown),
            ("cgroups_full", self.cgroups_full),
            ("cgroups_unreadable", self.cgroups_unreadable),
            ("runtime_unknown", runtimes.unknown),
            ("runtime_unreachable", runtimes.unreachable),
            ("runtime_timeout", runtimes.timeout),
            ("runtime_rubbish", runtimes.rubbish),
            ("runtime_suspended", runtimes.suspended),
            ("runtime_queue_full", runtimes.queue_full),
        ]
    }
}

/// What distinguishes owners. A process that runs another executable, changes its user or is moved to
/// another control group is another owner: sockets of before keep what they had.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    pid: u32,
    uid: u32,
    start_ns: u64,
    cgroup: u64,
    exe: [u8; 32],
    /// Only where the start is not known: the pid alone may have been used again.
    comm: [u8; 16],
}

impl Key {
    fn of(task: &Task) -> Self {
        Self {
            pid: task.pid,
            uid: task.uid,
            start_ns: task.start_ns,
            cgroup: task.cgroup,
            exe: task.exe,
            comm: if task.start_ns == 0 {
                task.comm
            } else {
                [0; 16]
            },
        }
    }
}

#[derive(Default)]
struct Slot {
    owner: Arc<Owner>,
    /// Which question for an owner it answered last.
    last_used: u64,
    /// None of what several share.
    key: Option<Key>,
    comm: [u8; 16],
    /// The containers in its path.
    containment: Option<Arc<Containment>>,
}

impl Slot {
    /// Bytes, without texts and containers that others have as well.
    fn memory(&self) -> usize {
        size_of::<Self>() + size_of::<Owner>() + self.owner.process.capacity()
    }
}

/// The containers in a path; owners with the same share one [`Container`].
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Containment {
    outer: Found,
    inner: Option<Found>,
    pod: Option<String>,
}

struct CachedContainer {
    container: Arc<Container>,
    asking: Asking,
}

/// How far the question for a container's names got.
enum Asking {
    /// Not queried yet, or no answer: query at that time.
    At { when: Instant, tries: u32 },
    /// In the queue, or with the runtime.
    Asked { tries: u32 },
    /// Answered, or there is no runtime to query.
    Done,
}

/// Owners of sockets, each kept once. Bounded; all that may take long happens elsewhere.
pub struct Owners {
    config: OwnersConfig,
    proc: Proc,
    users: Users,
    cgroups: Cgroups,
    lookups: Lookups,
    slots: Numbered<Slot>,
    renames: Renames,
    /// Owners by the hash of their keys.
    by_key: HashTable<(u64, OwnerId)>,
    hasher: RandomState,
    /// How often an owner was requested.
    requests: u64,
    /// Executables, users, control groups and units: most processes share them with others.
    texts: Texts,
    /// What several share, by two of them.
    shared: HashMap<(OwnerId, OwnerId), Option<OwnerId>>,
    containers: HashMap<Arc<Containment>, CachedContainer>,
    /// Owners whose control group's path is not known yet.
    pending: HashSet<OwnerId>,
    /// Bytes of owners and containers, without texts and tables.
    memory: usize,
    counters: OwnerCounters,
}

impl fmt::Debug for Owners {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Owners")
            .field("len", &self.len())
            .field("containers", &self.containers.len())
            .field("memory", &self.memory())
            .finish_non_exhaustive()
    }
}

impl Owners {
    /// An empty table. Lists the host's control groups once.
    pub fn new(config: OwnersConfig) -> Self {
        let mut cgroups = Cgroups::new(&config.mountinfo, config.max_cgroups, config.cgroup_rescan);
        cgroups.list();
        Self {
            proc: Proc::new(&config.proc),
            users: Users::new(&config.passwd),
            cgroups,
            lookups: Lookups::new(config.runtimes.clone()),
            config,
            slots: Numbered::default(),
            renames: Renames::default(),
            by_key: HashTable::new(),
            hasher: RandomState::new(),
            requests: 0,
            texts: Texts::default(),
            shared: HashMap::new(),
            containers: HashMap::new(),
            pending: HashSet::new(),
            memory: 0,
            counters: OwnerCounters::default(),
        }
    }

    /// The owner of `task`. A new one is read from `/proc`, in a dozen system calls at most, and never from
    /// another process. None: the task is unknown (pid 0), or the limit was reached, which is counted.
    pub fn intern(&mut self, task: &Task) -> Option<OwnerId> {
        if task.pid == 0 {
            return None;
        }
        self.requests += 1;
        let key = Key::of(task);
        let hash = self.hasher.hash_one(key);
        let is_it = |(other, id): &(u64, OwnerId)| {
            *other == hash && self.slot(*id).is_some_and(|slot| slot.key == Some(key))
        };
        if let Some(&(_, id)) = self.by_key.find(hash, is_it) {
            self.reuse(id, task);
            return Some(id);
        }
        if self.is_full() {
            self.counters.owners_full += 1;
            return None;
        }
        let slot = self.describe(task, key);
        let is_pending = slot.owner.cgroup.is_none() && task.cgroup != 0;
        let id = self.add(slot)?;
        if is_pending {
            self.pending.insert(id);
        }
        self.by_key
            .insert_unique(hash, (hash, id), |(hash, _)| *hash);
        Some(id)
    }

    fn is_full(&self) -> bool {
        self.len() >= self.config.max_owners || self.memory_of_owners() >= self.config.max_memory
    }

    fn add(&mut self, mut slot: Slot) -> Option<OwnerId> {
        slot.last_used = self.requests;
        let memory = slot.memory();
        let id = self.slots.insert(slot).map(OwnerId)?;
        self.memory += memory;
        Some(id)
    }

    /// The owner with that id; none when it was swept.
    pub fn get(&self, id: OwnerId) -> Option<&Owner> {
        self.slot(id).map(|slot| &*slot.owner)
    }

    /// The owner with that id as it is now, for who uses it when this is let go of.
    pub fn keep(&self, id: OwnerId) -> Option<Arc<Owner>> {
        self.slot(id).map(|slot| slot.owner.clone())
    }

    /// Owners that are kept.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// A control group was made: its id as in [`Task::cgroup`] (with its mark) and its path from the root
    /// of its hierarchy. For groups that end before they can be listed.
    pub fn note_cgroup(&mut self, id: u64, path: &[u8]) {
        self.cgroups.note(id, path);
    }

    /// Applies what is new: answers of container runtimes, new users, control groups. Quick except for the
    /// listing of control groups, which happens when one is unknown, and at most as often as the
    /// configuration says. Call it regularly.
    pub fn refresh(&mut self) {
        if self.users.refresh() {
            self.name_users();
        }
        self.find_cgroups();
        self.read_answers();
        self.request_names();
    }

    /// Frees unused owners, when there are many (three quarters of a limit). `note` records each id that is
    /// in use, and whether by an active socket or conversation. When that frees too few, owners of ended
    /// ones only are forgotten, least recently used first, and counted. Returns how many were freed.
    pub fn sweep(&mut self, note: impl FnOnce(&mut Used)) -> usize {
        if !self.has_reached(3) {
            return 0;
        }
        let mut used = Used::default();
        note(&mut used);
        let unused = self.slots.take_unused(&used);
        let mut freed = unused.len();
        self.free(unused);
        if self.has_reached(3) {
            let (most, mut bytes) = (self.config.max_owners / 2, self.memory_of_owners());
            let last_used = |slot: &Slot| slot.last_used;
            let oldest = self.slots.take_least_used(&used, last_used, |left, next| {
                let enough = left <= most && bytes <= self.config.max_memory / 2;
                bytes = bytes.saturating_sub(next.memory());
                enough
            });
            self.counters.owners_forgotten += oldest.len() as u64;
            freed += oldest.len();
            self.free(oldest);
        }
        freed
    }

    /// Whether so many quarters of a limit are reached.
    fn has_reached(&self, quarters: usize) -> bool {
        self.len() >= self.config.max_owners / 4 * quarters
            || self.memory_of_owners() >= self.config.max_memory / 4 * quarters
    }

    fn free(&mut self, slots: Vec<(NonZeroU32, Slot)>) {
        for (number, slot) in slots {
            self.memory -= slot.memory();
            self.pending.remove(&OwnerId(number));
            if let Some(key) = slot.key {
                let hash = self.hasher.hash_one(key);
                let entry = self.by_key.find_entry(hash, |(_, id)| id.0 == number);
                if let Ok(entry) = entry {
                    entry.remove();
                }
            }
        }
        self.shared.clear();
        if self.by_key.capacity() > 4 * self.by_key.len().max(16) {
            self.by_key.shrink_to_fit(|(hash, _)| *hash);
        }
        self.texts.sweep();
        let memory = &mut self.memory;
        self.containers.retain(|_, kept| {
            let used = Arc::strong_count(&kept.container) > 1;
            if !used {
                *memory -= kept.container.memory();
            }
            used
        });
    }

    /// Bytes that grow with the number of owners.
    fn memory_of_owners(&self) -> usize {
        self.memory + self.texts.memory() + self.shared.capacity() * SHARED
    }

    /// Bytes that all this takes.
    pub fn memory(&self) -> usize {
        self.memory_of_owners()
            + self
                .slots
                .memory()
                .saturating_sub(self.slots.len() * size_of::<Slot>())
            + self.by_key.capacity() * (size_of::<(u64, OwnerId)>() + 1)
            + self.containers.capacity()
                * size_of::<(Arc<Containment>, Containment, CachedContainer)>()
            + self.cgroups.memory()
    }

    /// Services that got another name: containers whose runtime answered.
    pub fn renames(&self) -> &Renames {
        &self.renames
    }

    /// What could not be found out.
    pub fn counters(&self) -> OwnerCounters {
        OwnerCounters {
            cgroups_full: self.cgroups.full,
            cgroups_unreadable: self.cgroups.unreadable,
            runtimes: self.lookups.counters(),
            ..self.counters
        }
    }

    /// Id of an owner's control group, as in [`Task::cgroup`]; 0 unknown.
    pub fn cgroup(&self, id: OwnerId) -> u64 {
        let key = self.slot(id).and_then(|slot| slot.key);
        key.map_or(0, |key| key.cgroup)
    }

    fn slot(&self, id: OwnerId) -> Option<&Slot> {
        self.slots.get(id.0)
    }

    fn reuse(&mut self, id: OwnerId, task: &Task) {
        let Some(slot) = self.slots.get_mut(id.0) else {
            return;
        };
        slot.last_used = self.requests;
        // The first thread's name changes while a process runs.
        if slot.comm != task.comm {
            slot.comm = task.comm;
            self.memory -= slot.memory();
            Arc::make_mut(&mut slot.owner).process = process_name(task);
            self.memory += slot.memory();
        }
    }

    fn describe(&mut self, task: &Task, key: Key) -> Slot {
        // Never a number of another namespace in the place of the host's.
        let (pid, ns_pid) = match self.config.pids {
            Pids::Host | Pids::Kernel => (task.pid, 0),
            Pids::Proc => (0, task.pid),
        };
        let mut owner = Owner {
            pid,
            ns_pid,
            start_ns: task.start_ns,
            process: process_name(task),
            executable: None,
            uid: task.uid,
            user: None,
            cgroup: None,
            container: None,
            unit: None,
        };
        let exe = until_nul(&task.exe);
        let mut path = self.cgroups.path(task.cgroup);
        // The process's own list says more where both versions are in use.
        let groups = path.is_none() || self.cgroups.is_mixed();
        match self.read_process(task, groups) {
            Ok(told) => {
                if told.ns_pid != 0 {
                    owner.ns_pid = told.ns_pid;
                }
                let listed = told.cgroup.as_deref().and_then(path_of_process);
                path = listed.or(path);
                if let Some(link) = told.executable {
                    match executable(&link, exe) {
                        Some(link) => {
                            owner.executable = Some(self.texts.keep(shown(link, EXECUTABLE)));
                        }
                        None => self.counters.executed += 1,
                    }
                }
            }
            Err(ProcError::Gone) => self.counters.processes_gone += 1,
            Err(ProcError::Another) => self.counters.pids_reused += 1,
            Err(ProcError::Unreadable) => self.counters.processes_unreadable += 1,
        }
        if owner.executable.is_none() && !exe.is_empty() {
            owner.executable = Some(self.texts.keep(shown(base_name(exe), EXECUTABLE)));
        }
        let mut slot = Slot {
            owner: Arc::new(owner),
            last_used: 0,
            key: Some(key),
            comm: task.comm,
            containment: None,
        };
        match path {
            Some(path) => self.settle(&mut slot, &path),
            None => {
                self.counters.cgroups_unknown += 1;
                self.name_user(&mut slot);
            }
        }
        slot
    }

    fn read_process(&self, task: &Task, groups: bool) -> Result<ProcInfo, ProcError> {
        match self.config.pids {
            Pids::Kernel => Err(ProcError::Gone),
            Pids::Host | Pids::Proc => self.proc.read(task.pid, task.start_ns, groups),
        }
    }

    /// Fills in what the path of the control group says.
    fn settle(&mut self, slot: &mut Slot, path: &[u8]) {
        let CgroupPath {
            outer,
            inner,
            pod,
            unit,
        } = place(path);
        let owner = Arc::make_mut(&mut slot.owner);
        owner.cgroup = Some(self.texts.keep(shown(path, CGROUP)));
        owner.unit = unit.map(|unit| self.texts.keep(unit));
        if let Some(outer) = outer {
            let (containment, container) = self.container(Containment { outer, inner, pod });
            slot.containment = Some(containment);
            Arc::make_mut(&mut slot.owner).container = Some(container);
        }
        self.name_user(slot);
    }

    fn name_user(&mut self, slot: &mut Slot) {
        let host = slot.containment.is_none() || slot.owner.uid == 0;
        let name = host.then(|| self.users.name(slot.owner.uid)).flatten();
        let user = name.map(|name| self.texts.keep(name.to_owned()));
        Arc::make_mut(&mut slot.owner).user = user;
    }
}

fn process_name(task: &Task) -> String {
    let (comm, exe) = (until_nul(&task.comm), until_nul(&task.exe));
    match name(comm, exe) {
        [] => format!("pid {}", task.pid),
        bytes => shown(bytes, PROCESS),
    }
}

mod learning;
mod shared;

#[cfg(test)]
mod tests;
