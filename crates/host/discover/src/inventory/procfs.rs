//! What `/proc` says of a process. It may end at any moment: then it says nothing.

use skua_socket::Task;
use std::{
    fs,
    io::Read as _,
    os::unix::{ffi::OsStrExt as _, fs::MetadataExt as _},
    path::{Path, PathBuf},
};

/// Most that is read of one file.
const MOST: u64 = 256 << 10;

fn folder(pid: u32) -> PathBuf {
    Path::new("/proc").join(pid.to_string())
}

/// A file's content, up to a limit.
pub(super) fn read(path: &Path) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = fs::File::open(path).ok()?;
    file.take(MOST).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// Numbers of all processes.
pub(super) fn all() -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse().ok();
    entries.flatten().filter_map(number).collect()
}

/// Start of a process, ns of CLOCK_BOOTTIME.
pub(super) fn start_ns(pid: u32) -> Option<u64> {
    let stat = read(&folder(pid).join("stat"))?;
    // Its name, the second field, may hold blanks and parentheses.
    let after = stat.iter().rposition(|byte| *byte == b')')? + 1;
    let rest = std::str::from_utf8(&stat[after..]).ok()?;
    let ticks: u64 = rest.split_ascii_whitespace().nth(19)?.parse().ok()?;
    Some(ticks * (1_000_000_000 / rustix::param::clock_ticks_per_second().max(1)))
}

/// Its number in its own PID namespace, where that is another than here.
pub(super) fn ns_pid(pid: u32) -> Option<u32> {
    let status = read(&folder(pid).join("status"))?;
    let status = String::from_utf8_lossy(&status);
    let numbers = status
        .lines()
        .find_map(|line| line.strip_prefix("NSpid:"))?;
    let numbers = numbers.split_ascii_whitespace();
    let (at, last) = numbers.enumerate().last()?;
    (at > 0).then(|| last.parse().ok()).flatten()
}

/// Path of its executable.
pub(super) fn executable(pid: u32) -> Option<Vec<u8>> {
    let link = fs::read_link(folder(pid).join("exe")).ok()?;
    Some(link.as_os_str().as_bytes().to_vec())
}

/// A process as the socket probe would report it.
pub(super) fn task(pid: u32) -> Option<Task> {
    let start_ns = start_ns(pid)?;
    let status = read(&folder(pid).join("status"))?;
    let status = String::from_utf8_lossy(&status);
    let uids = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    let mut task = Task {
        pid,
        // Real, effective, saved, of the file system.
        uid: uids.split_ascii_whitespace().nth(1)?.parse().ok()?,
        start_ns,
        ..Task::default()
    };
    fill(&mut task.comm, comm(pid)?.as_bytes());
    if let Some(path) = executable(pid) {
        let path = path.strip_suffix(b" (deleted)").unwrap_or(&path);
        fill(
            &mut task.exe,
            path.rsplit(|byte| *byte == b'/').next().unwrap_or_default(),
        );
    }
    Some(task)
}

fn fill(room: &mut [u8], text: &[u8]) {
    for (place, byte) in room.iter_mut().zip(text) {
        *place = *byte;
    }
}

/// Its name.
pub(super) fn comm(pid: u32) -> Option<String> {
    let comm = read(&folder(pid).join("comm"))?;
    let comm = comm.strip_suffix(b"\n").unwrap_or(&comm);
    Some(shown(comm))
}

/// Its arguments.
pub(super) fn arguments(pid: u32) -> Vec<Vec<u8>> {
    let line = read(&folder(pid).join("cmdline")).unwrap_or_default();
    line.split(|byte| *byte == 0).map(<[u8]>::to_vec).collect()
}

/// Its control groups.
pub(super) fn cgroups(pid: u32) -> Vec<u8> {
    read(&folder(pid).join("cgroup")).unwrap_or_default()
}

/// Inode number of its network namespace.
pub(super) fn netns(pid: u32) -> Option<u64> {
    Some(fs::metadata(folder(pid).join("ns/net")).ok()?.ino())
}

/// What its descriptors are, by number.
pub(super) fn descriptors(pid: u32) -> impl Iterator<Item = (String, PathBuf)> {
    let entries = fs::read_dir(folder(pid).join("fd")).ok();
    entries.into_iter().flatten().flatten().filter_map(|entry| {
        let number = entry.file_name().into_string().ok()?;
        Some((number, fs::read_link(entry.path()).ok()?))
    })
}

/// What the driver says of a descriptor.
pub(super) fn descriptor_info(pid: u32, number: &str) -> Option<String> {
    let text = read(&folder(pid).join("fdinfo").join(number))?;
    Some(String::from_utf8_lossy(&text).into_owned())
}

/// Text that processes choose themselves, safe to show.
pub(super) fn shown(bytes: &[u8]) -> String {
    const LONGEST: usize = 512;
    let text = String::from_utf8_lossy(bytes);
    let safe = |c: char| match c.is_control() {
        true => c.escape_default().to_string(),
        false => c.to_string(),
    };
    text.chars().take(LONGEST).map(safe).collect()
}
