//! What `/proc` says about a process, if it is still the same process.

use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, openat, readlinkat};
use rustix::io::{Errno, read};

/// Most that is read of one file in `/proc`: a dozen hierarchies' paths of 4 KiB each.
const MOST: usize = 64 * 1024;

/// Link of `ns/pid` in the initial PID namespace: `PROC_PID_INIT_INO` of the kernel, the same everywhere.
const INITIAL: &[u8] = b"pid:[4026531836]";

/// Whose numbers the pids of [`crate::Task`]s are, and whether `/proc` has them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Pids {
    /// The host's, as in `/proc`.
    #[default]
    Host,
    /// The host's, from the kernel; `/proc` is of another PID namespace, where they mean other processes.
    Kernel,
    /// Those of `/proc`, which is of another PID namespace than the host's.
    Proc,
}

impl Pids {
    /// Of tasks that programs in the kernel report.
    pub fn of_kernel() -> Self {
        match is_of_host(Path::new("/proc")) {
            true => Self::Host,
            false => Self::Kernel,
        }
    }

    /// Of tasks that were found in `/proc`.
    pub fn of_proc() -> Self {
        match is_of_host(Path::new("/proc")) {
            true => Self::Host,
            false => Self::Proc,
        }
    }
}

/// Whether a `/proc` has the numbers of the initial PID namespace.
fn is_of_host(proc: &Path) -> bool {
    let link = |process: &str| {
        let path = proc.join(process).join("ns/pid");
        Some(rustix::fs::readlink(path, Vec::new()).ok()?.into_bytes())
    };
    // Its first process is in the namespace that it shows; but that one may be closed to us.
    match link("1").or_else(|| link("self")) {
        Some(found) if found == INITIAL => true,
        // We are elsewhere, and have another number here: this is an outer namespace's, the host's.
        Some(_) if link("1").is_none() => std::fs::read(proc.join("self/status"))
            .is_ok_and(|status| numbers(&status).is_some_and(|(count, _)| count > 1)),
        Some(_) => false,
        None => true,
    }
}

/// How many numbers a process has, from the namespace of this `/proc` to its own, and the last.
fn numbers(status: &[u8]) -> Option<(usize, u32)> {
    let line = status
        .split(|&byte| byte == b'\n')
        .find_map(|line| line.strip_prefix(b"NSpid:"))?;
    let numbers = std::str::from_utf8(line).ok()?.split_ascii_whitespace();
    numbers.enumerate().last().and_then(|(at, number)| {
        let number = number.parse().ok()?;
        Some((at + 1, number))
    })
}

/// Why `/proc` does not describe a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ProcError {
    /// No such process (any more), or hidden (`hidepid`).
    Gone,
    /// The pid belongs to another process: used again, or `/proc` is of another pid namespace.
    Another,
    /// Not allowed, or not understood.
    Unreadable,
}

impl From<Errno> for ProcError {
    fn from(error: Errno) -> Self {
        match error {
            Errno::NOENT | Errno::SRCH => Self::Gone,
            _ => Self::Unreadable,
        }
    }
}

/// A process's description in `/proc`.
#[derive(PartialEq, Eq, Debug, Default)]
pub(crate) struct ProcInfo {
    /// Path of the executable as the process's mount namespace has it; any bytes.
    pub(crate) executable: Option<Vec<u8>>,
    /// Content of `/proc/PID/cgroup`.
    pub(crate) cgroup: Option<Vec<u8>>,
    /// Number in its own PID namespace; 0: the same as in `/proc`.
    pub(crate) ns_pid: u32,
}

/// A `/proc` to read from.
#[derive(Debug)]
pub(crate) struct Proc {
    root: PathBuf,
    /// Nanoseconds of a clock tick, the unit of start times in `/proc/PID/stat`.
    tick_ns: u64,
}

impl Proc {
    pub(crate) fn new(root: &Path) -> Self {
        let ticks = rustix::param::clock_ticks_per_second().max(1);
        Self {
            root: root.to_owned(),
            tick_ns: 1_000_000_000 / ticks,
        }
    }

    /// Reads of process `pid`, which started at `start_ns` (CLOCK_BOOTTIME; 0: not known, nothing is
    /// read, for the pid may be another's by now), and its groups when wanted. Arguments and
    /// environment are never read.
    pub(crate) fn read(
        &self,
        pid: u32,
        start_ns: u64,
        groups: bool,
    ) -> Result<ProcInfo, ProcError> {
        if pid == 0 || start_ns == 0 {
            return Err(ProcError::Gone);
        }
        // The folder stays that process's: after its end reads through it fail, even when the pid is in use
        // again.
        let folder = rustix::fs::open(
            self.root.join(pid.to_string()),
            OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        let stat = contents(&folder, "stat")?;
        let start = start_ticks(&stat).ok_or(ProcError::Unreadable)?;
        if start != start_ns / self.tick_ns {
            return Err(ProcError::Another);
        }
        Ok(ProcInfo {
            // Needs more rights than the rest, and kernel threads have none.
            executable: readlinkat(&folder, "exe", Vec::new())
                .ok()
                .map(|link| link.into_bytes()),
            cgroup: groups.then(|| contents(&folder, "cgroup").ok()).flatten(),
            ns_pid: ns_pid(&folder),
        })
    }
}

/// Number of a process in its own PID namespace, if that is not the initial one and has another for it.
fn ns_pid(folder: &OwnedFd) -> u32 {
    let link = readlinkat(folder, "ns/pid", Vec::new());
    if link.is_ok_and(|link| link.as_bytes() == INITIAL) {
        return 0;
    }
    let status = contents(folder, "status").unwrap_or_default();
    match numbers(&status) {
        Some((count, number)) if count > 1 => number,
        _ => 0,
    }
}

fn contents(folder: &OwnedFd, name: &str) -> Result<Vec<u8>, Errno> {
    let file = openat(
        folder,
        name,
        OFlags::RDONLY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    let mut bytes = vec![0; 4096];
    let mut length = 0;
    loop {
        let got = read(&file, &mut bytes[length..])?;
        length += got;
        // These files are written in one piece: what does not fill the room is all.
        if length < bytes.len() || length >= MOST {
            bytes.truncate(length);
            return Ok(bytes);
        }
        bytes.resize((length * 4).min(MOST), 0);
    }
}

/// Field 22 of `/proc/PID/stat`. The second field, the name, may hold blanks and parentheses.
fn start_ticks(stat: &[u8]) -> Option<u64> {
    let after_name = stat.iter().rposition(|&byte| byte == b')')? + 1;
    let rest = std::str::from_utf8(&stat[after_name..]).ok()?;
    rest.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// The path that `/proc` gives, when it is that of the executable that the kernel's event named by its
/// last component, cut at 32 bytes; without the mark of a file that was deleted since.
pub(crate) fn executable<'a>(link: &'a [u8], event: &[u8]) -> Option<&'a [u8]> {
    let whole = link.strip_suffix(b" (deleted)");
    [Some(link), whole].into_iter().flatten().find(|path| {
        let name = base_name(path);
        // 31 and a NUL, or 32 without one.
        let cut = event.len() >= 31;
        event.is_empty() || name == event || (cut && name.starts_with(event))
    })
}

/// Last component.
pub(crate) fn base_name(path: &[u8]) -> &[u8] {
    Path::new(std::ffi::OsStr::from_bytes(path))
        .file_name()
        .map_or(path, |name| name.as_bytes())
}

/// The name to show: the first thread's, or the executable's where the former is but its beginning
/// (the kernel cuts names at 15 bytes).
pub(crate) fn name<'a>(comm: &'a [u8], exe: &'a [u8]) -> &'a [u8] {
    if comm.is_empty() || (comm.len() >= 15 && exe.starts_with(comm)) {
        exe
    } else {
        comm
    }
}

#[cfg(test)]
mod tests;
