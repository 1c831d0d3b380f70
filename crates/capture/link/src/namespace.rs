//! Network namespaces: finding, numbering and entering them.

use crate::Error;
use rustix::fs::{Mode, OFlags};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::collections::{BTreeSet, HashMap};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Most namespaces that are followed at once; the number of omitted ones is reported.
pub const MAX_NAMESPACES: usize = 4096;
/// Where iproute2 and container runtimes keep named namespaces.
pub const NAMED: &str = "/run/netns";
/// The calling thread's own namespace.
const OWN: &str = "/proc/thread-self/ns/net";

/// Identity of a namespace: device and inode of its file in the kernel's nsfs. Another namespace
/// can only get it after this one has died.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NamespaceId {
    /// Device number of nsfs.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
}

/// A network namespace, held open.
///
/// While this is held the kernel keeps the namespace with its interfaces alive, even when it has no other
/// user: drop it when [`Namespaces::refresh`] reports it as removed.
#[derive(Debug)]
pub struct Namespace {
    /// Number given by this process: 0 is its own namespace, the others start at 1.
    pub number: u16,
    /// Empty for our own, else the name under `/run/netns`, else `pid:` and the lowest process
    /// that was found in it.
    pub name: String,
    /// Identity.
    pub id: NamespaceId,
    /// The namespace's file.
    pub file: OwnedFd,
}

impl Namespace {
    /// The calling thread's own namespace, with number 0.
    pub fn own() -> Result<Self, Error> {
        let (id, file) = open(Path::new(OWN)).map_err(|source| file_error(OWN, source))?;
        Ok(Self {
            number: 0,
            name: String::new(),
            id,
            file,
        })
    }

    /// Runs `work` inside this namespace and returns its result: on a new thread, unless the caller's
    /// thread is in it already. The caller's thread never changes its namespace; sockets opened by `work`
    /// stay in this one.
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, Error> {
        let failed = |source: io::Error| match source.kind() {
            io::ErrorKind::PermissionDenied => Error::EnterDenied {
                name: self.name.clone(),
            },
            _ => Error::Enter {
                name: self.name.clone(),
                source,
            },
        };
        // Also without rights: our own is entered by doing nothing.
        if current().ok() == Some(self.id) {
            return Ok(work());
        }
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new()
                .name(format!("netns-{}", self.number))
                .spawn_scoped(scope, || {
                    move_into_link_name_space(self.file.as_fd(), Some(LinkNameSpaceType::Network))?;
                    Ok(work())
                })
                .map_err(failed)?;
            match thread.join() {
                Ok(result) => result.map_err(failed),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }
}

impl AsFd for Namespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Runs `work` inside `namespace`: see [`Namespace::enter`].
pub fn in_namespace<T: Send>(
    namespace: &Namespace,
    work: impl FnOnce() -> T + Send,
) -> Result<T, Error> {
    namespace.enter(work)
}

/// What [`Namespaces::refresh`] found changed.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Numbers of new namespaces.
    pub added: Vec<u16>,
    /// Numbers of namespaces without other users. Drop everything opened in them: only this process still
    /// keeps them alive.
    pub removed: Vec<u16>,
    /// Numbers of namespaces that have another name now.
    pub renamed: Vec<u16>,
}

/// Which namespaces are held open in addition to our own.
#[derive(Debug)]
enum Selection {
    None,
    All,
    /// Those with these inode numbers.
    Inodes(BTreeSet<u64>),
}

impl Selection {
    fn includes(&self, id: NamespaceId) -> bool {
        match self {
            Self::None => false,
            Self::All => true,
            Self::Inodes(inodes) => inodes.contains(&id.inode),
        }
    }
}

/// The namespaces of this machine, with numbers that stay the same as long as this value lives.
#[derive(Debug)]
pub struct Namespaces {
    list: Vec<Namespace>,
    selection: Selection,
    last_number: u16,
    omitted: usize,
}

impl Namespaces {
    /// Finds the namespaces: the own one only, or with `all` also those under `/run/netns` and those of all
    /// processes that we may read.
    pub fn discover(all: bool) -> Result<Self, Error> {
        let selection = if all { Selection::All } else { Selection::None };
        let mut namespaces = Self::own(selection)?;
        namespaces.refresh()?;
        Ok(namespaces)
    }

    /// The own one only, until [`select`](Self::select) selects others.
    pub fn selected() -> Result<Self, Error> {
        Self::own(Selection::Inodes(BTreeSet::new()))
    }

    fn own(selection: Selection) -> Result<Self, Error> {
        Ok(Self {
            list: vec![Namespace::own()?],
            selection,
            last_number: 0,
            omitted: 0,
        })
    }

    /// Holds the namespaces with these inode numbers and, apart from our own, no others. They are searched
    /// once, under `/run/netns` and by processes. A missing or ended one is not searched again: another one
    /// may get its number.
    pub fn select(&mut self, inodes: BTreeSet<u64>) -> Result<Changes, Error> {
        self.selection = Selection::Inodes(inodes);
        self.refresh()
    }

    /// Lists the namespaces again. Numbers of namespaces that stay do not change, and a number is reused
    /// only after all others have been used.
    pub fn refresh(&mut self) -> Result<Changes, Error> {
        let mut changes = Changes::default();
        self.omitted = 0;
        let inodes = match &self.selection {
            Selection::None => return Ok(changes),
            Selection::All => None,
            Selection::Inodes(inodes) => Some(inodes),
        };
        let own = self.list.first().map(|own| own.id.inode);
        let mut found = HashMap::new();
        // No search when no other is selected.
        if inodes.is_none_or(|inodes| inodes.iter().any(|inode| Some(*inode) != own)) {
            found = find_named()?;
            find_of_processes(&mut found)?;
        }
        found.retain(|id, _| self.selection.includes(*id));

        let mut kept = Vec::with_capacity(self.list.len());
        for mut namespace in self.list.drain(..) {
            // Taking it out leaves the new ones.
            let same = found.remove(&namespace.id);
            if namespace.number == 0 {
                kept.push(namespace);
            } else if let Some(same) = same {
                if same.renames(&namespace.name) {
                    namespace.name = same.name();
                    changes.renamed.push(namespace.number);
                }
                kept.push(namespace);
            } else {
                changes.removed.push(namespace.number);
            }
        }
        self.list = kept;

        // In order of name, so that numbers do not depend on a hash table's order.
        let mut new: Vec<Found> = found.into_values().collect();
        new.sort_by(|a, b| (a.order(), &a.path).cmp(&(b.order(), &b.path)));
        for found in new {
            if self.list.len() >= MAX_NAMESPACES {
                self.omitted += 1;
                continue;
            }
            // It may have died, or another may have taken its place, since it was seen.
            let Ok((id, file)) = open(&found.path) else {
                continue;
            };
            if !self.selection.includes(id) {
                continue;
            }
            if self.list.iter().any(|known| known.id == id) {
                continue;
            }
            let number = self.next_number();
            changes.added.push(number);
            self.list.push(Namespace {
                number,
                name: found.name(),
                id,
                file,
            });
        }
        if let Selection::Inodes(inodes) = &mut self.selection {
            inodes.retain(|inode| self.list.iter().any(|known| known.id.inode == *inode));
        }
        Ok(changes)
    }

    /// The namespaces; the own one is first.
    pub fn list(&self) -> &[Namespace] {
        &self.list
    }

    /// The namespace with this number.
    pub fn get(&self, number: u16) -> Option<&Namespace> {
        self.list
            .iter()
            .find(|namespace| namespace.number == number)
    }

    /// How many namespaces the last refresh omitted because there are more than [`MAX_NAMESPACES`].
    pub fn omitted(&self) -> usize {
        self.omitted
    }

    fn next_number(&mut self) -> u16 {
        // Ends, for there are more numbers than namespaces.
        loop {
            self.last_number = self.last_number.checked_add(1).unwrap_or(1);
            if self.get(self.last_number).is_none() {
                return self.last_number;
            }
        }
    }
}

/// Where a namespace was seen.
struct Found {
    path: PathBuf,
    /// File name under `/run/netns`.
    named: Option<String>,
    /// Processes in it: the lowest, and all others only during the refresh.
    pids: Vec<u32>,
}

impl Found {
    fn name(&self) -> String {
        match (&self.named, self.pids.iter().min()) {
            (Some(name), _) => name.clone(),
            (None, Some(pid)) => format!("pid:{pid}"),
            (None, None) => String::new(),
        }
    }

    /// Whether `name` no longer fits: a namespace named after a process keeps that name as long
    /// as the process is in it.
    fn renames(&self, name: &str) -> bool {
        match &self.named {
            Some(named) => named != name,
            None => !self.pids.iter().any(|pid| name == format!("pid:{pid}")),
        }
    }

    /// Named ones first, then by process.
    fn order(&self) -> (bool, u32) {
        (
            self.named.is_none(),
            self.pids.iter().copied().min().unwrap_or(0),
        )
    }
}

/// The namespaces under `/run/netns`, by identity.
fn find_named() -> Result<HashMap<NamespaceId, Found>, Error> {
    let mut found: HashMap<NamespaceId, Found> = HashMap::new();
    let entries = match std::fs::read_dir(NAMED) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(found),
        Err(e) => return Err(file_error(NAMED, e)),
    };
    let nsfs = device_of_nsfs()?;
    for entry in entries.flatten() {
        let path = entry.path();
        // A file that is left after its namespace was unmounted is on another file system.
        let Some(id) = identify(&path).ok().filter(|id| id.device == nsfs) else {
            continue;
        };
        let name = entry.file_name().to_string_lossy().into_owned();
        let entry = found.entry(id).or_insert_with(|| Found {
            path: path.clone(),
            named: None,
            pids: Vec::new(),
        });
        // Of several names the first in the alphabet, whatever the directory's order.
        if entry.named.as_ref().is_none_or(|known| name < *known) {
            entry.named = Some(name);
            entry.path = path;
        }
    }
    Ok(found)
}

/// Adds the namespaces of all processes that we may read.
fn find_of_processes(found: &mut HashMap<NamespaceId, Found>) -> Result<(), Error> {
    let entries = std::fs::read_dir("/proc").map_err(|e| file_error("/proc", e))?;
    for entry in entries.flatten() {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse::<u32>().ok())
        else {
            continue;
        };
        let path = entry.path().join("ns/net");
        // It may have ended, or we may not read it.
        let Ok(id) = identify(&path) else { continue };
        let entry = found.entry(id).or_insert_with(|| Found {
            path,
            named: None,
            pids: Vec::new(),
        });
        entry.pids.push(pid);
    }
    Ok(())
}

fn device_of_nsfs() -> Result<u64, Error> {
    Ok(current().map_err(|e| file_error(OWN, e))?.device)
}

/// Identity of the calling thread's namespace.
fn current() -> io::Result<NamespaceId> {
    identify(Path::new(OWN))
}

fn identify(path: &Path) -> io::Result<NamespaceId> {
    let metadata = std::fs::metadata(path)?;
    Ok(NamespaceId {
        device: metadata.dev(),
        inode: metadata.ino(),
    })
}

/// Opens a namespace's file and identifies what was opened.
fn open(path: &Path) -> io::Result<(NamespaceId, OwnedFd)> {
    let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let stat = rustix::fs::fstat(&file)?;
    Ok((
        NamespaceId {
            device: stat.st_dev,
            inode: stat.st_ino,
        },
        file,
    ))
}

fn file_error(path: &str, source: io::Error) -> Error {
    Error::File {
        path: path.to_owned(),
        source,
    }
}
