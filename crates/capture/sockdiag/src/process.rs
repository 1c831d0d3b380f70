//! Owners of sockets: processes and the sockets in their file tables (`/proc/PID/fd`).
//!
//! Reading all file tables costs a system call for each open file of the host. So a table is read when its
//! process is new, when a socket without a known owner appears, and else in turn, a part of the processes
//! with each poll.

use crate::cgroup::Hierarchies;
use rustix::fs::{AtFlags, Mode, OFlags, RawDir};
use skua_socket::Task;
use std::collections::{HashMap, HashSet};
use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

/// Most sockets whose holders are remembered.
const MAX_HELD: usize = 1 << 20;
/// Most processes that are followed.
const MAX_PROCESSES: usize = 1 << 17;
/// Each poll reads the tables of at least one in so many processes again.
const TURN: usize = 16;
/// In how many polls a socket without a holder is searched in all tables; later, only in turn.
const SEARCHES: u8 = 2;
/// Room for directory entries of one system call.
const DIRECTORY_BUFFER: usize = 32 << 10;

/// A process that was seen.
#[derive(Debug)]
struct Process {
    /// Inode of its directory in procfs: another process with the same pid has another.
    directory: u64,
    parent: u32,
    task: Task,
    /// Number of the poll that saw it last.
    seen: u32,
    /// Number of the poll that read its file table last.
    read: u32,
    /// It was found to hold a socket.
    holds: bool,
}

/// The holder of a socket.
#[derive(Debug, Clone, Copy)]
struct Holder {
    pid: u32,
    directory: u64,
    /// Number of the poll that saw it last in the holder's table.
    read: u32,
}

/// All processes that we may read, and which of them hold which sockets.
#[derive(Debug)]
pub(crate) struct Processes {
    root: PathBuf,
    hierarchies: Hierarchies,
    by_pid: HashMap<u32, Process>,
    holders: HashMap<u32, Holder>,
    /// Sockets that were not found, and in how many polls.
    orphans: HashMap<u32, u8>,
    poll: u32,
    buffer: Box<[MaybeUninit<u8>]>,
}

impl Processes {
    /// Starts without processes.
    pub fn new() -> Self {
        Self::at("/proc".into())
    }

    fn at(root: PathBuf) -> Self {
        Self {
            root,
            hierarchies: Hierarchies::find(),
            by_pid: HashMap::new(),
            holders: HashMap::new(),
            orphans: HashMap::new(),
            poll: 0,
            buffer: Box::new_uninit_slice(DIRECTORY_BUFFER),
        }
    }

    /// Finds the holders of these sockets, by inode. It never fails: a process that we may not read, or
    /// that ends meanwhile, holds nothing.
    pub fn scan(&mut self, sockets: &HashSet<u32>) {
        self.poll = self.poll.wrapping_add(1);
        self.holders.retain(|inode, _| sockets.contains(inode));
        self.orphans.retain(|inode, _| sockets.contains(inode));

        let mut due = self.refresh();
        for pid in &due {
            self.read_table(*pid, sockets);
        }
        // A process that has ended holds no socket any more.
        let by_pid = &self.by_pid;
        self.holders.retain(|_, holder| {
            by_pid
                .get(&holder.pid)
                .is_some_and(|process| process.directory == holder.directory)
        });

        let mut searched: HashSet<u32> = sockets
            .iter()
            .filter(|inode| !self.holders.contains_key(inode))
            .filter(|inode| self.orphans.get(inode).is_none_or(|n| *n < SEARCHES))
            .copied()
            .collect();
        due.clear();
        due.extend(
            self.by_pid
                .iter()
                .filter(|(_, process)| process.read != self.poll)
                .map(|(pid, _)| *pid),
        );
        // Those first that hold sockets already, then those that were read the longest ago.
        due.sort_unstable_by_key(|pid| {
            let process = self.by_pid.get(pid);
            let order = process.map(|process| (!process.holds, process.read));
            (order, *pid)
        });
        let turn = due.len().div_ceil(TURN);
        let mut at = 0;
        while at < due.len() && !searched.is_empty() {
            self.read_table(due[at], sockets);
            searched.retain(|inode| !self.holders.contains_key(inode));
            at += 1;
        }
        for inode in searched {
            if self.orphans.len() < MAX_HELD {
                *self.orphans.entry(inode).or_default() += 1;
            }
        }
        // The rest in turn, oldest reading first.
        let rest = due.get_mut(at..).unwrap_or_default();
        rest.sort_unstable_by_key(|pid| self.by_pid.get(pid).map(|process| process.read));
        let rest: Vec<u32> = rest.iter().take(turn.saturating_sub(at)).copied().collect();
        for pid in rest {
            self.read_table(pid, sockets);
        }
        // What a table that was read since no longer shows is not held by that process any more.
        let by_pid = &self.by_pid;
        self.holders.retain(|_, holder| {
            by_pid
                .get(&holder.pid)
                .is_some_and(|process| process.read == holder.read)
        });
    }

    /// The process that holds a socket.
    pub fn holder(&self, inode: u32) -> Option<&Task> {
        let holder = self.holders.get(&inode)?;
        self.by_pid.get(&holder.pid).map(|process| &process.task)
    }

    /// Lists processes. Returns the pids of new ones.
    fn refresh(&mut self) -> Vec<u32> {
        let mut new = Vec::new();
        let directory = rustix::fs::open(
            &self.root,
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        );
        if let Ok(directory) = directory {
            let mut entries = RawDir::new(directory, &mut self.buffer);
            while let Some(Ok(entry)) = entries.next() {
                let Some(pid) = number(entry.file_name()) else {
                    continue;
                };
                match self.by_pid.get_mut(&pid) {
                    Some(process) if process.directory == entry.ino() => process.seen = self.poll,
                    _ => new.push((pid, entry.ino())),
                }
            }
        }
        let poll = self.poll;
        new.retain(|(pid, directory)| {
            let is_known = self.by_pid.contains_key(pid);
            if self.by_pid.len() >= MAX_PROCESSES && !is_known {
                return false;
            }
            let Some((task, parent)) = self.describe(*pid) else {
                return false;
            };
            self.by_pid.insert(
                *pid,
                Process {
                    directory: *directory,
                    parent,
                    task,
                    seen: poll,
                    read: poll.wrapping_sub(1),
                    holds: false,
                },
            );
            true
        });
        self.by_pid.retain(|_, process| process.seen == poll);
        new.into_iter().map(|(pid, _)| pid).collect()
    }

    /// Reads the file table of a process and notes the sockets in it.
    fn read_table(&mut self, pid: u32, sockets: &HashSet<u32>) {
        let Some(process) = self.by_pid.get_mut(&pid) else {
            return;
        };
        process.read = self.poll;
        let Ok(directory) = open_directory(&self.root.join(pid.to_string()).join("fd")) else {
            return;
        };
        let mut target = [MaybeUninit::uninit(); 64];
        let mut held = Vec::new();
        let mut entries = RawDir::new(&directory, &mut self.buffer);
        while let Some(Ok(entry)) = entries.next() {
            let name = entry.file_name();
            if name.to_bytes().first() == Some(&b'.') {
                continue;
            }
            let link = rustix::fs::readlinkat_raw(&directory, name, &mut target);
            let inode = link.ok().and_then(|(link, _)| socket_inode(link));
            held.extend(inode.filter(|inode| sockets.contains(inode)));
        }
        let was_holder = std::mem::replace(&mut process.holds, !held.is_empty());
        let directory = process.directory;
        if process.holds || was_holder {
            // Its user or name may have changed since.
            if let Some((task, parent)) = self.describe(pid)
                && let Some(process) = self.by_pid.get_mut(&pid)
            {
                process.task = task;
                process.parent = parent;
            }
        }
        for inode in held {
            self.note(inode, pid, directory);
        }
    }

    /// Notes that a process holds a socket; of several the one that started last counts.
    fn note(&mut self, inode: u32, pid: u32, directory: u64) {
        let holder = Holder {
            pid,
            directory,
            read: self.poll,
        };
        let is_full = self.holders.len() >= MAX_HELD;
        match self.holders.get_mut(&inode) {
            None if is_full => {}
            None => {
                self.holders.insert(inode, holder);
                self.orphans.remove(&inode);
            }
            Some(known) if known.pid == pid => *known = holder,
            Some(known) => {
                let by_pid = &self.by_pid;
                let ended = by_pid
                    .get(&known.pid)
                    .is_none_or(|process| process.directory != known.directory);
                if ended || started_later(by_pid, pid, known.pid) {
                    *known = holder;
                }
            }
        }
    }

    /// Reads a process's identity and its parent; none when it has ended.
    fn describe(&self, pid: u32) -> Option<(Task, u32)> {
        let directory = self.root.join(pid.to_string());
        let stat = std::fs::read(directory.join("stat")).ok()?;
        let stat = Stat::parse(&stat)?;
        // With hidepid the rest may be closed to us.
        let owner = rustix::fs::statat(rustix::fs::CWD, &directory, AtFlags::empty()).ok();
        let status = std::fs::read(directory.join("status")).unwrap_or_default();
        let groups = std::fs::read(directory.join("cgroup")).unwrap_or_default();
        let exe = std::fs::read_link(directory.join("exe")).ok();
        let mut task = Task {
            pid,
            uid: effective_user(&status)
                .or(owner.map(|owner| owner.st_uid))
                .unwrap_or(0),
            start_ns: stat.start_ns,
            cgroup: self.hierarchies.id(&String::from_utf8_lossy(&groups)),
            ..Task::default()
        };
        copy_name(&mut task.comm, stat.comm);
        if let Some(exe) = exe {
            use std::os::unix::ffi::OsStrExt;
            let path = exe.as_os_str().as_bytes();
            let path = path.strip_suffix(b" (deleted)").unwrap_or(path);
            let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
            copy_name(&mut task.exe, name);
        }
        Some((task, stat.parent))
    }
}

/// Whether the first process started after the second. Start times have steps of 10 ms: of those
/// that started in the same step a child is later than its parent, else the lower pid counts.
fn started_later(by_pid: &HashMap<u32, Process>, first: u32, second: u32) -> bool {
    let (Some(a), Some(b)) = (by_pid.get(&first), by_pid.get(&second)) else {
        return by_pid.contains_key(&first);
    };
    match a.task.start_ns.cmp(&b.task.start_ns) {
        std::cmp::Ordering::Greater => true,
        std::cmp::Ordering::Less => false,
        std::cmp::Ordering::Equal if a.parent == second => true,
        std::cmp::Ordering::Equal if b.parent == first => false,
        std::cmp::Ordering::Equal => first < second,
    }
}

/// What is used of `/proc/PID/stat`.
#[derive(Debug, PartialEq, Eq)]
struct Stat<'a> {
    comm: &'a [u8],
    parent: u32,
    start_ns: u64,
}

impl<'a> Stat<'a> {
    /// The name is in parentheses and may have any bytes in it, parentheses too.
    fn parse(line: &'a [u8]) -> Option<Self> {
        let open = line.iter().position(|byte| *byte == b'(')?;
        let close = line.iter().rposition(|byte| *byte == b')')?;
        let comm = line.get(open + 1..close)?;
        let rest = std::str::from_utf8(line.get(close + 1..)?).ok()?;
        // Fields 4 and 22 of proc_pid_stat(5); the first here is field 3.
        let mut fields = rest.split_ascii_whitespace().skip(1);
        let parent = fields.next()?.parse().ok()?;
        let ticks: u64 = fields.nth(17)?.parse().ok()?;
        let per_second = rustix::param::clock_ticks_per_second().max(1);
        Some(Self {
            comm,
            parent,
            start_ns: ticks.saturating_mul(1_000_000_000 / per_second),
        })
    }
}

/// Second number of line `Uid:` of `/proc/PID/status`.
fn effective_user(status: &[u8]) -> Option<u32> {
    let line = status
        .split(|byte| *byte == b'\n')
        .find_map(|line| line.strip_prefix(b"Uid:"))?;
    let line = std::str::from_utf8(line).ok()?;
    line.split_ascii_whitespace().nth(1)?.parse().ok()
}

fn open_directory(path: &std::path::Path) -> rustix::io::Result<OwnedFd> {
    rustix::fs::open(
        path,
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )
}

fn number(name: &CStr) -> Option<u32> {
    name.to_str().ok()?.parse().ok()
}

/// Inode in `socket:[INODE]`.
fn socket_inode(link: &[u8]) -> Option<u32> {
    let inode = link.strip_prefix(b"socket:[")?.strip_suffix(b"]")?;
    std::str::from_utf8(inode).ok()?.parse().ok()
}

/// Copies as much of `name` as has room; the last byte stays NUL.
fn copy_name<const N: usize>(place: &mut [u8; N], name: &[u8]) {
    for (to, from) in place.iter_mut().take(N - 1).zip(name) {
        *to = *from;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, UdpSocket};
    use std::os::fd::AsFd;

    fn inode(socket: impl AsFd) -> u32 {
        rustix::fs::fstat(socket).unwrap().st_ino as u32
    }

    #[test]
    fn names_with_any_bytes_are_read() {
        let line = b"42 (a) b (\xff\n) S 7 1 1 0 -1 4 1 2 3 4 5 6 7 8 20 0 1 0 250 99 1\n";
        let stat = Stat::parse(line).unwrap();
        assert_eq!(stat.comm, b"a) b (\xff\n");
        assert_eq!(stat.parent, 7);
        let per_second = rustix::param::clock_ticks_per_second();
        assert_eq!(stat.start_ns, 250 * (1_000_000_000 / per_second));
        for cut in 0..line.len() - 8 {
            assert_eq!(Stat::parse(&line[..cut]), None, "cut at {cut}");
        }
    }

    #[test]
    fn the_effective_user_is_the_second() {
        assert_eq!(
            effective_user(b"Name:\tx\nUid:\t1\t22\t3\t4\nGid:\t5\n"),
            Some(22)
        );
        assert_eq!(effective_user(b"Name:\tUid:\n"), None);
    }

    #[test]
    fn own_sockets_are_ours() {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        let sockets = HashSet::from([inode(&tcp), inode(&udp)]);
        let mut processes = Processes::new();
        processes.scan(&sockets);
        for inode in &sockets {
            let task = processes.holder(*inode).unwrap();
            assert_eq!(task.pid, std::process::id());
            assert_ne!(task.start_ns, 0);
            assert_eq!(task.uid, rustix::fs::stat("/proc/self").unwrap().st_uid);
        }
        let ended = inode(&tcp);
        drop(tcp);
        processes.scan(&HashSet::from([inode(&udp)]));
        assert!(processes.holder(ended).is_none());
        assert!(processes.holder(inode(&udp)).is_some());
    }

    #[test]
    fn of_several_holders_the_last_that_started_counts() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let sockets = HashSet::from([inode(&socket)]);
        let mut processes = Processes::new();
        processes.scan(&sockets);
        assert_eq!(
            processes.holder(inode(&socket)).unwrap().pid,
            std::process::id()
        );
        // Standard input is inherited.
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .stdin(std::process::Stdio::from(OwnedFd::from(
                socket.try_clone().unwrap(),
            )))
            .spawn()
            .unwrap();
        // After exec; until then it is a copy of this process with all its files.
        while !std::fs::read(format!("/proc/{}/comm", child.id()))
            .unwrap()
            .starts_with(b"sleep")
        {
            std::thread::yield_now();
        }
        processes.scan(&sockets);
        let task = *processes.holder(inode(&socket)).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(task.pid, child.id());
        assert_eq!(&task.comm[..6], b"sleep\0");
        processes.scan(&sockets);
        assert_eq!(
            processes.holder(inode(&socket)).unwrap().pid,
            std::process::id(),
            "the child is gone"
        );
    }

    #[test]
    fn a_descriptor_that_is_given_up_is_noticed_in_turn() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let searched = inode(&socket);
        let mut child = std::process::Command::new("sh")
            .args(["-c", "sleep 0.1; exec <&-; sleep 60 & wait"])
            .stdin(std::process::Stdio::from(OwnedFd::from(
                socket.try_clone().unwrap(),
            )))
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let sockets = HashSet::from([searched]);
        let mut processes = Processes::new();
        let is_ours = (0..100).any(|_| {
            processes.scan(&sockets);
            std::thread::sleep(std::time::Duration::from_millis(5));
            let holder = processes.holder(searched);
            holder.is_some_and(|task| task.pid == std::process::id())
        });
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(is_ours);
    }

    #[test]
    fn without_proc_nobody_is_known() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut processes = Processes::at("/nonexistent".into());
        for _ in 0..4 {
            processes.scan(&HashSet::from([inode(&socket)]));
            assert!(processes.holder(inode(&socket)).is_none());
        }
        assert_eq!(processes.orphans.len(), 1);
    }
}
