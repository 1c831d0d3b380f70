//! Owners of open sockets, from the file tables in /proc.

use std::{
    collections::HashMap,
    fs,
    io::{self, Read as _},
};

/// Reads a process's /proc/PID/stat.
pub(super) fn read_stat(pid: u32, text: &mut String) -> io::Result<()> {
    text.clear();
    fs::File::open(format!("/proc/{pid}/stat"))?
        .read_to_string(text)
        .map(drop)
}

/// Of the inodes in `wanted`, the process that has each open: of several the one that started
/// last, of those the lowest pid.
pub(super) fn by_inode(wanted: &HashMap<u64, Vec<usize>>) -> HashMap<u64, u32> {
    let mut best: HashMap<u64, (u64, u32)> = HashMap::new();
    let mut pids: Vec<u32> = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|e| e.file_name().to_str()?.parse().ok())
        .collect();
    pids.sort_unstable();
    let mut stat = String::new();
    for pid in pids {
        // Processes come and go meanwhile, and some we may not read.
        let Ok(files) = fs::read_dir(format!("/proc/{pid}/fd")) else {
            continue;
        };
        let mut started = None;
        for file in files.flatten() {
            let Some(inode) = fs::read_link(file.path())
                .ok()
                .and_then(|l| socket_inode(l.to_str()?))
                .filter(|i| wanted.contains_key(i))
            else {
                continue;
            };
            let start = *started.get_or_insert_with(|| {
                read_stat(pid, &mut stat)
                    .ok()
                    .and_then(|()| start_ticks(&stat))
                    .unwrap_or(0)
            });
            let owner = best.entry(inode).or_insert((start, pid));
            if start > owner.0 {
                *owner = (start, pid);
            }
        }
    }
    best.into_iter().map(|(i, (_, pid))| (i, pid)).collect()
}

/// The number in `socket:[number]`.
fn socket_inode(link: &str) -> Option<u64> {
    link.strip_prefix("socket:[")?
        .strip_suffix(']')?
        .parse()
        .ok()
}

/// Start of a process, by its stat file: the 22nd field (proc_pid_stat(5)). The second, its name,
/// may contain anything.
fn start_ticks(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_ascii_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::os::{fd::AsRawFd as _, linux::fs::MetadataExt as _};

    use super::*;

    #[test]
    fn names_cannot_disturb() {
        let stat = "7 (a) R 1 (b) c) S 1 7 7 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 4711 99 88";
        assert_eq!(start_ticks(stat), Some(4711));
        assert_eq!(start_ticks("rubbish"), None);
        assert_eq!(socket_inode("socket:[12]"), Some(12));
        assert_eq!(socket_inode("pipe:[12]"), None);
    }

    #[test]
    fn we_own_our_socket() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let file = format!("/proc/self/fd/{}", socket.as_raw_fd());
        let inode = fs::metadata(file).unwrap().st_ino();
        let owners = by_inode(&HashMap::from([(inode, vec![0])]));
        assert_eq!(owners.get(&inode), Some(&std::process::id()));
    }
}
