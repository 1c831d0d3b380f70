//! Who owns a socket: processes with their users, containers and units, each kept once.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::cgroup::{Cgroups, path_of_process};
use crate::container::{Found, Place, Runtime, place};
use crate::process::{Proc, ProcError, base_name, executable, name};
use crate::renames::Renames;
use crate::runtime::{Lookups, RuntimeConfig, RuntimeCounters};
use crate::text::{shown, until_nul};
use crate::update::Task;
use crate::user::Users;

/// Longest names and paths that are kept, characters.
const PROCESS: usize = 64;
const EXECUTABLE: usize = 512;
const CGROUP: usize = 1024;

/// Names an [`Owner`] in its [`Owners`]. Small, for it stands in every record of a socket or flow.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct OwnerId(NonZeroU32);

impl OwnerId {
    fn new(index: usize) -> Option<Self> {
        u32::try_from(index + 1)
            .ok()
            .and_then(NonZeroU32::new)
            .map(Self)
    }

    fn index(self) -> usize {
        self.0.get() as usize - 1
    }

    /// The id as a number, for records that know nothing of sockets.
    pub fn number(self) -> NonZeroU32 {
        self.0
    }

    /// The id of that number.
    pub fn numbered(number: NonZeroU32) -> Self {
        Self(number)
    }
}

/// A process that owns sockets. All text is safe to show: what could drive a terminal is escaped.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Owner {
    /// Process in the initial pid namespace.
    pub pid: u32,
    /// Its start, ns of CLOCK_BOOTTIME; 0 unknown.
    pub start_ns: u64,
    /// Its name: the first thread's, or the executable's where that one is cut.
    pub process: String,
    /// Path of its executable, as its own mount namespace has it; only the last component where the
    /// process was gone (or hidden) when it was looked at.
    pub executable: Option<String>,
    /// Effective user.
    pub uid: u32,
    /// The user's name on the host. In containers only root's: other numbers mean other users there.
    pub user: Option<String>,
    /// Path of its control group, from the root of the hierarchy.
    pub cgroup: Option<String>,
    /// Container that it runs in, the innermost of several.
    pub container: Option<Arc<Container>>,
    /// Unit of systemd: `nginx.service`, `session-3.scope`; the container's own when one runs there.
    pub unit: Option<String>,
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

    fn memory(&self) -> usize {
        let text = |text: &Option<String>| text.as_ref().map_or(0, String::capacity);
        size_of::<Self>()
            + self.process.capacity()
            + text(&self.executable)
            + text(&self.user)
            + text(&self.cgroup)
            + text(&self.unit)
    }
}

/// A container.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Container {
    /// Who runs it.
    pub runtime: Runtime,
    /// Full id; with LXC and nspawn its name.
    pub id: String,
    /// Name, when the runtime told it.
    pub name: Option<String>,
    /// Image that it was made from, when the runtime told it.
    pub image: Option<String>,
    /// Labels by name, when the runtime told them; at most 64.
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
            + pod
            + labels
    }
}

/// A pod of Kubernetes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Pod {
    /// Its UID, from the control group's path.
    pub uid: Option<String>,
    /// Its name, when the runtime told it.
    pub name: Option<String>,
    /// Its namespace, when the runtime told it.
    pub namespace: Option<String>,
}

/// Where to look, and how much to keep.
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
    /// Tells where control groups are mounted.
    pub mountinfo: PathBuf,
    /// Names of users.
    pub passwd: PathBuf,
    /// Container runtimes to ask for names.
    pub runtimes: RuntimeConfig,
}

impl Default for OwnersConfig {
    fn default() -> Self {
        Self {
            max_owners: 65_536,
            max_memory: 64 * 1024 * 1024,
            max_cgroups: 65_536,
            cgroup_rescan: Duration::from_secs(1),
            proc: "/proc".into(),
            mountinfo: "/proc/self/mountinfo".into(),
            passwd: "/etc/passwd".into(),
            runtimes: RuntimeConfig::default(),
        }
    }
}

/// What could not be found out, by cause; since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OwnerCounters {
    /// Owners that found no room.
    pub owners_full: u64,
    /// Processes gone before they were looked at, or hidden (`hidepid`).
    pub processes_gone: u64,
    /// Processes whose pid was another's when it was looked at.
    pub pids_reused: u64,
    /// Processes that `/proc` did not tell about for another reason.
    pub processes_unreadable: u64,
    /// Processes that ran another executable when they were looked at.
    pub executed: u64,
    /// Owners whose control group was not found.
    pub cgroups_unknown: u64,
    /// Control groups that found no room.
    pub cgroups_full: u64,
    /// Control groups whose path is too deep to be listed.
    pub cgroups_unreadable: u64,
    /// What became of questions to container runtimes.
    pub runtimes: RuntimeCounters,
}

impl OwnerCounters {
    /// Causes with their names.
    pub fn by_cause(&self) -> [(&'static str, u64); 14] {
        let runtimes = &self.runtimes;
        [
            ("owners_full", self.owners_full),
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

/// What tells owners apart. A process that runs another executable, changes its user or is moved to
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

struct Slot {
    owner: Owner,
    key: Key,
    comm: [u8; 16],
    /// What its path told of containers.
    containment: Option<Arc<Containment>>,
}

/// What a path tells of containers; owners in the same share one [`Container`].
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Containment {
    outer: Found,
    inner: Option<Found>,
    pod: Option<String>,
}

struct Kept {
    container: Arc<Container>,
    asking: Asking,
}

/// How far the question for a container's names got.
enum Asking {
    /// Not asked yet, or no answer: ask at that time.
    At { when: Instant, tries: u32 },
    /// In the queue, or with the runtime.
    Asked { tries: u32 },
    /// Answered, or there is nobody to ask.
    Done,
}

/// Owners of sockets, each kept once. Bounded; all that may take long happens elsewhere.
pub struct Owners {
    config: OwnersConfig,
    proc: Proc,
    users: Users,
    cgroups: Cgroups,
    lookups: Lookups,
    slots: Vec<Option<Slot>>,
    renames: Renames,
    free: Vec<usize>,
    by_key: HashMap<Key, OwnerId>,
    containers: HashMap<Arc<Containment>, Kept>,
    /// Owners whose control group's path is not known yet.
    pending: HashSet<OwnerId>,
    /// Bytes of owners and containers, without the tables.
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
            slots: Vec::new(),
            renames: Renames::default(),
            free: Vec::new(),
            by_key: HashMap::new(),
            containers: HashMap::new(),
            pending: HashSet::new(),
            memory: 0,
            counters: OwnerCounters::default(),
        }
    }

    /// The owner that `task` is. One that was not seen before is looked up in `/proc`: at most four
    /// system calls' worth of reading, and never what belongs to another process. None: the task is
    /// unknown (pid 0), or there is no room, which is counted.
    pub fn intern(&mut self, task: &Task) -> Option<OwnerId> {
        if task.pid == 0 {
            return None;
        }
        let key = Key::of(task);
        if let Some(&id) = self.by_key.get(&key) {
            self.rename(id, task);
            return Some(id);
        }
        if self.len() >= self.config.max_owners || self.memory >= self.config.max_memory {
            self.counters.owners_full += 1;
            return None;
        }
        let id = match self.free.last() {
            Some(&index) => OwnerId::new(index)?,
            None => OwnerId::new(self.slots.len())?,
        };
        let slot = self.look_up(task, key);
        self.memory += slot.owner.memory();
        if slot.owner.cgroup.is_none() && task.cgroup != 0 {
            self.pending.insert(id);
        }
        if self.free.pop().is_some() {
            self.slots[id.index()] = Some(slot);
        } else {
            self.slots.push(Some(slot));
        }
        self.by_key.insert(key, id);
        Some(id)
    }

    /// The owner with that id; none when it was swept.
    pub fn get(&self, id: OwnerId) -> Option<&Owner> {
        self.slot(id).map(|slot| &slot.owner)
    }

    /// Owners that are kept.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A control group was made: its id as in [`Task::cgroup`] (also its mark) and its path from the root of its
    /// hierarchy. For groups that are gone before anybody can list them.
    pub fn note_cgroup(&mut self, id: u64, path: &[u8]) {
        self.cgroups.note(id, path);
    }

    /// Takes over what is known since: answers of container runtimes, new users, control groups.
    /// Quick but for the listing of control groups, which happens when one is unknown, and at most
    /// as often as the configuration says. To be called regularly.
    pub fn refresh(&mut self) {
        if self.users.refresh() {
            self.name_users();
        }
        self.find_cgroups();
        self.take_answers();
        self.ask();
    }

    /// Frees owners that nobody uses, when there are many (three quarters of a limit). `used` calls
    /// what it is given with every id that is in use; the others are freed, and their ids may mean
    /// other owners from then on. How many were freed.
    pub fn sweep(&mut self, used: impl FnOnce(&mut dyn FnMut(OwnerId))) -> usize {
        let many = self.len() >= self.config.max_owners / 4 * 3
            || self.memory >= self.config.max_memory / 4 * 3;
        if !many {
            return 0;
        }
        let mut keep = vec![false; self.slots.len()];
        used(&mut |id| {
            if let Some(keep) = keep.get_mut(id.index()) {
                *keep = true;
            }
        });
        let mut freed = 0;
        for (index, keep) in keep.into_iter().enumerate() {
            let Some(slot) = self.slots[index].take_if(|_| !keep) else {
                continue;
            };
            self.memory -= slot.owner.memory();
            self.by_key.remove(&slot.key);
            if let Some(id) = OwnerId::new(index) {
                self.pending.remove(&id);
            }
            self.free.push(index);
            freed += 1;
        }
        let memory = &mut self.memory;
        self.containers.retain(|_, kept| {
            let used = Arc::strong_count(&kept.container) > 1;
            if !used {
                *memory -= kept.container.memory();
            }
            used
        });
        freed
    }

    /// Bytes that all this takes.
    pub fn memory(&self) -> usize {
        let entry = size_of::<Key>() + size_of::<OwnerId>();
        self.memory
            + self.slots.capacity() * (size_of::<Option<Slot>>() - size_of::<Owner>())
            + self.by_key.capacity() * entry
            + self.containers.capacity() * size_of::<(Arc<Containment>, Containment, Kept)>()
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
        self.slot(id).map_or(0, |slot| slot.key.cgroup)
    }

    fn slot(&self, id: OwnerId) -> Option<&Slot> {
        self.slots.get(id.index())?.as_ref()
    }

    /// The first thread's name changes while a process runs.
    fn rename(&mut self, id: OwnerId, task: &Task) {
        let Some(Some(slot)) = self.slots.get_mut(id.index()) else {
            return;
        };
        if slot.comm != task.comm {
            slot.comm = task.comm;
            self.memory -= slot.owner.memory();
            slot.owner.process = process_name(task);
            self.memory += slot.owner.memory();
        }
    }

    fn look_up(&mut self, task: &Task, key: Key) -> Slot {
        let mut owner = Owner {
            pid: task.pid,
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
        match self.proc.read(task.pid, task.start_ns, groups) {
            Ok(told) => {
                let listed = told.cgroup.as_deref().and_then(path_of_process);
                path = listed.or(path);
                if let Some(link) = told.executable {
                    match executable(&link, exe) {
                        Some(link) => owner.executable = Some(shown(link, EXECUTABLE)),
                        None => self.counters.executed += 1,
                    }
                }
            }
            Err(ProcError::Gone) => self.counters.processes_gone += 1,
            Err(ProcError::Another) => self.counters.pids_reused += 1,
            Err(ProcError::Unreadable) => self.counters.processes_unreadable += 1,
        }
        if owner.executable.is_none() && !exe.is_empty() {
            owner.executable = Some(shown(base_name(exe), EXECUTABLE));
        }
        let mut slot = Slot {
            owner,
            key,
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

    /// Fills in what the path of the control group says.
    fn settle(&mut self, slot: &mut Slot, path: &[u8]) {
        let Place {
            outer,
            inner,
            pod,
            unit,
        } = place(path);
        slot.owner.cgroup = Some(shown(path, CGROUP));
        slot.owner.unit = unit;
        if let Some(outer) = outer {
            let (containment, container) = self.container(Containment { outer, inner, pod });
            slot.containment = Some(containment);
            slot.owner.container = Some(container);
        }
        self.name_user(slot);
    }

    fn name_user(&self, slot: &mut Slot) {
        let host = slot.containment.is_none() || slot.owner.uid == 0;
        slot.owner.user = host
            .then(|| self.users.name(slot.owner.uid))
            .flatten()
            .map(str::to_owned);
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

#[cfg(test)]
mod tests;
