//! Paths of control groups by their ids.

use std::collections::HashMap;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::container::place;
use crate::update::Task;

/// Most that is read of the list of mounts.
const MOUNTS: u64 = 4 * 1024 * 1024;
/// Bytes of paths per control group that is kept, on the average of a full table.
const PATH: usize = 256;
/// Of the time, listing takes at most one part in this many.
const SHARE: u32 = 20;

/// Hierarchies, the most informative first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Kind {
    Unified,
    Pids,
    Memory,
    Systemd,
}

impl Kind {
    /// By the names of controllers, as `/proc/PID/cgroup` and mount options list them.
    fn of<'a>(mut controllers: impl Iterator<Item = &'a [u8]>) -> Option<Self> {
        controllers.find_map(|name| match name {
            b"pids" => Some(Self::Pids),
            b"memory" => Some(Self::Memory),
            b"name=systemd" => Some(Self::Systemd),
            _ => None,
        })
    }
}

/// A mounted hierarchy.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Hierarchy {
    kind: Kind,
    /// Where it is mounted.
    mounted: PathBuf,
    /// The mounted part: empty for all, else the path of the group.
    root: Vec<u8>,
}

/// Where control groups are mounted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CgroupMount {
    /// Folder that is the root of what is mounted.
    pub folder: PathBuf,
    /// Path of that root in its hierarchy; empty for the hierarchy's own.
    pub root: Vec<u8>,
    /// Whether it is the unified hierarchy, which announces when groups become empty.
    pub unified: bool,
}

/// The mounted hierarchies that have containers, by our own list of mounts.
pub fn cgroup_mounts() -> Vec<CgroupMount> {
    let all = hierarchies(&read_mounts(Path::new("/proc/self/mountinfo")));
    let mount = |hierarchy: Hierarchy| CgroupMount {
        folder: hierarchy.mounted,
        root: hierarchy.root,
        unified: hierarchy.kind == Kind::Unified,
    };
    all.into_iter().map(mount).collect()
}

#[derive(Debug)]
struct Entry {
    path: Box<[u8]>,
    /// Folder to list, when the path was listed.
    listed: Option<PathBuf>,
}

/// Paths of the host's control groups that were listed or announced.
#[derive(Debug)]
pub(crate) struct Cgroups {
    hierarchies: Vec<Hierarchy>,
    /// By id, with [`Task::CGROUP_V1`] where it was listed in a hierarchy of version 1.
    paths: HashMap<u64, Entry>,
    /// Whether the unified hierarchy has more than its root.
    unified: bool,
    bytes: usize,
    max: usize,
    pause: Duration,
    next: Option<Instant>,
    /// Groups above the limit.
    pub(crate) full: u64,
    /// Groups that could not be listed.
    pub(crate) unreadable: u64,
}

impl Cgroups {
    pub(crate) fn new(mountinfo: &Path, max: usize, pause: Duration) -> Self {
        Self {
            hierarchies: hierarchies(&read_mounts(mountinfo)),
            paths: HashMap::new(),
            unified: false,
            bytes: 0,
            max,
            pause,
            next: None,
            full: 0,
            unreadable: 0,
        }
    }

    /// Path of the group with that id, from the root of its hierarchy.
    pub(crate) fn path(&self, id: u64) -> Option<Vec<u8>> {
        if id == 0 {
            return None;
        }
        let version_1 = id | Task::CGROUP_V1;
        self.find(id)
            .or_else(|| (!self.unified && version_1 != id).then(|| self.find(version_1))?)
    }

    /// Whether a process may be in different groups of several hierarchies.
    pub(crate) fn is_mixed(&self) -> bool {
        self.hierarchies.len() > 1
    }

    fn find(&self, id: u64) -> Option<Vec<u8>> {
        if let Some(entry) = self.paths.get(&id) {
            return Some(entry.path.to_vec());
        }
        // Before 5.5 an id is the inode number with a generation above it. Where inode numbers have
        // 64 bits this finds nothing wrong: two groups with the same lower half never live at once.
        let inode = id & u64::from(u32::MAX);
        let entry = self.paths.get(&(inode | id & Task::CGROUP_V1))?;
        let lives = fs::metadata(entry.listed.as_ref()?).is_ok_and(|of| of.ino() == inode);
        lives.then(|| entry.path.to_vec())
    }

    /// Records a path that the kernel announced.
    pub(crate) fn note(&mut self, id: u64, path: &[u8]) {
        let entry = Entry {
            path: path.into(),
            listed: None,
        };
        if id != 0 && !path.is_empty() {
            self.insert(id, entry);
        }
    }

    fn insert(&mut self, id: u64, entry: Entry) {
        let known = self.paths.get(&id);
        let before = known.map_or(0, |known| known.path.len());
        let bytes = self.bytes - before + entry.path.len();
        let full = known.is_none() && self.paths.len() >= self.max;
        if full || bytes > self.max.saturating_mul(PATH) {
            self.full += 1;
            return;
        }
        self.bytes = bytes;
        self.paths.insert(id, entry);
    }

    /// Lists all groups, unless that was done a moment ago; whether it was done.
    pub(crate) fn list(&mut self) -> bool {
        let begin = Instant::now();
        if self.next.is_some_and(|next| begin < next) {
            return false;
        }
        self.make_room();
        let hierarchies = std::mem::take(&mut self.hierarchies);
        self.unified = false;
        for hierarchy in &hierarchies {
            let groups = self.list_one(hierarchy);
            self.unified |= hierarchy.kind == Kind::Unified && groups > 1;
        }
        self.hierarchies = hierarchies;
        self.next = Some(begin + self.pause.max(begin.elapsed() * SHARE));
        true
    }

    /// Forgets listed paths, and announced ones when they take more than half of the limit.
    fn make_room(&mut self) {
        let announced = self.paths.values().filter(|entry| entry.listed.is_none());
        let (groups, bytes) = announced.fold((0, 0), |(groups, bytes), entry| {
            (groups + 1, bytes + entry.path.len())
        });
        let keep = groups <= self.max / 2 && bytes <= self.max.saturating_mul(PATH) / 2;
        self.paths.retain(|_, entry| keep && entry.listed.is_none());
        self.bytes = if keep { bytes } else { 0 };
    }

    /// Lists a hierarchy; how many groups it has.
    fn list_one(&mut self, hierarchy: &Hierarchy) -> usize {
        let mut groups = 0;
        let mut folders = vec![hierarchy.mounted.clone()];
        if let Ok(of) = fs::metadata(&hierarchy.mounted) {
            self.insert(hierarchy.id(of.ino()), hierarchy.entry(&hierarchy.mounted));
        }
        while let Some(folder) = folders.pop() {
            groups += 1;
            if groups > self.max {
                self.full += 1;
                break;
            }
            let Ok(list) = fs::read_dir(&folder) else {
                self.unreadable += 1;
                continue;
            };
            for item in list.flatten() {
                if item.file_type().is_ok_and(|kind| kind.is_dir()) {
                    let path = item.path();
                    self.insert(hierarchy.id(item.ino()), hierarchy.entry(&path));
                    folders.push(path);
                }
            }
        }
        groups
    }

    pub(crate) fn memory(&self) -> usize {
        self.paths.capacity() * size_of::<(u64, Entry)>() + 2 * self.bytes
    }
}

impl Hierarchy {
    fn id(&self, inode: u64) -> u64 {
        match self.kind {
            Kind::Unified => inode,
            _ => inode | Task::CGROUP_V1,
        }
    }

    fn entry(&self, folder: &Path) -> Entry {
        let below = folder.strip_prefix(&self.mounted).unwrap_or(folder);
        let mut path = self.root.clone();
        if !below.as_os_str().is_empty() {
            path.push(b'/');
            path.extend_from_slice(below.as_os_str().as_bytes());
        }
        if path.is_empty() {
            path.push(b'/');
        }
        Entry {
            path: path.into(),
            listed: Some(folder.to_owned()),
        }
    }
}

fn read_mounts(path: &Path) -> Vec<u8> {
    use std::io::Read;
    let mut text = Vec::new();
    // Without the file there are no hierarchies, and paths come from elsewhere.
    let _ = fs::File::open(path).and_then(|file| file.take(MOUNTS).read_to_end(&mut text));
    text
}

/// Mounted hierarchies whose ids tasks have, by proc_pid_mountinfo(5): the unified one and of version
/// 1 `pids`, or without that `memory`. Where one is mounted several times, the mount that shows most.
fn hierarchies(mountinfo: &[u8]) -> Vec<Hierarchy> {
    let mut all: Vec<Hierarchy> = mountinfo
        .split(|&byte| byte == b'\n')
        .filter_map(hierarchy)
        .collect();
    all.sort_by_key(|hierarchy| (hierarchy.kind, hierarchy.root.len()));
    all.retain(|hierarchy| hierarchy.kind != Kind::Systemd);
    all.dedup_by_key(|hierarchy| hierarchy.kind == Kind::Unified);
    all
}

fn hierarchy(line: &[u8]) -> Option<Hierarchy> {
    let mut fields = line.split(|&byte| byte == b' ').skip(3);
    let (root, mounted) = (fields.next()?, fields.next()?);
    let mut fields = fields.skip_while(|&field| field != b"-").skip(1);
    let (file_system, _source, options) = (fields.next()?, fields.next()?, fields.next()?);
    let kind = match file_system {
        b"cgroup2" => Kind::Unified,
        b"cgroup" => Kind::of(options.split(|&byte| byte == b','))?,
        _ => return None,
    };
    let mounted = PathBuf::from(std::ffi::OsString::from_vec(unescaped(mounted)));
    Some(Hierarchy {
        kind,
        mounted,
        root: from_root(&unescaped(root)),
    })
}

/// Octal escapes of mountinfo undone: `\040` is a blank.
fn unescaped(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, after)) = rest.split_first() {
        let octal = after
            .get(..3)
            .filter(|digits| {
                first == b'\\' && digits.iter().all(|byte| (b'0'..b'8').contains(byte))
            })
            .and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        plain.push(octal.unwrap_or(first));
        rest = if octal.is_some() { &after[3..] } else { after };
    }
    plain
}

/// In a cgroup namespace, groups outside of it are shown as `/../x`.
fn from_root(path: &[u8]) -> Vec<u8> {
    let mut rest = path;
    while let Some(after) = rest.strip_prefix(b"/..") {
        if !after.is_empty() && after[0] != b'/' {
            break;
        }
        rest = after;
    }
    rest.strip_suffix(b"/").unwrap_or(rest).to_vec()
}

/// The most informative path of `/proc/PID/cgroup`: one with a container, else with a unit, else any but
/// the root; among equals the unified hierarchy's.
///
/// Docker on a host with both versions puts containers into version 1's hierarchies and leaves
/// `/system.slice/docker.service` in the unified one.
pub(crate) fn path_of_process(text: &[u8]) -> Option<Vec<u8>> {
    text.split(|&byte| byte == b'\n')
        .filter_map(|line| {
            let mut fields = line.splitn(3, |&byte| byte == b':');
            let (number, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
            let kind = match (number, controllers) {
                (b"0", b"") => Some(Kind::Unified),
                _ => Kind::of(controllers.split(|&byte| byte == b',')),
            };
            let path = path.strip_suffix(b" (deleted)").unwrap_or(path);
            let path = from_root(path);
            let what = place(&path);
            let tells = match (what.outer.is_some(), what.unit.is_some(), path.is_empty()) {
                (true, ..) => 0,
                (_, true, _) => 1,
                (_, _, false) => 2,
                _ => 3,
            };
            Some((tells, kind.is_none(), kind, path))
        })
        .min_by_key(|(tells, other, kind, _)| (*tells, *other, *kind))
        .map(|(.., path)| if path.is_empty() { b"/".to_vec() } else { path })
}

#[cfg(test)]
mod tests;
