//! The network namespaces that can be reached from here.

use std::{
    collections::HashSet,
    fs::File,
    os::{fd::OwnedFd, linux::fs::MetadataExt as _},
    path::{Path, PathBuf},
};

use rustix::{
    net::{AddressFamily, SocketFlags, SocketType, netlink},
    thread::{LinkNameSpaceType, move_into_link_name_space},
};

use crate::KernelError;

/// Those of all processes, of our own threads, and those that are mounted somewhere.
pub(super) fn all() -> Vec<File> {
    let mut seen = HashSet::new();
    let mut found = Vec::new();
    let mut add = |path: &Path| {
        // Checked before it is opened: most processes share one namespace.
        if let Ok(info) = std::fs::metadata(path)
            && seen.insert((info.st_dev(), info.st_ino()))
            && let Ok(file) = File::open(path)
        {
            found.push(file);
        }
    };
    for folder in ["/proc", "/proc/self/task"] {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            if entry
                .file_name()
                .as_encoded_bytes()
                .iter()
                .all(u8::is_ascii_digit)
            {
                add(&entry.path().join("ns/net"));
            }
        }
    }
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    for path in mounted(&mounts) {
        add(&path);
    }
    found
}

/// Where namespaces are mounted, by mountinfo (proc_pid_mountinfo(5)).
fn mounted(mounts: &str) -> impl Iterator<Item = PathBuf> {
    mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ');
        let root = fields.nth(3)?;
        let point = fields.next()?;
        root.starts_with("net:[").then(|| point.into())
    })
}

/// A socket of the kernel's socket diagnosis in a namespace, opened by a thread that enters it and ends.
pub(super) fn diagnosis(namespace: &File) -> Result<OwnedFd, KernelError> {
    let failed = |source: std::io::Error| KernelError::System {
        what: "cannot ask for the sockets of a network namespace",
        source,
    };
    let open = || -> rustix::io::Result<OwnedFd> {
        move_into_link_name_space(
            std::os::fd::AsFd::as_fd(namespace),
            Some(LinkNameSpaceType::Network),
        )?;
        rustix::net::socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            Some(netlink::SOCK_DIAG),
        )
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .name("namespace".into())
            .spawn_scoped(scope, open)
            .map_err(failed)?;
        match thread.join() {
            Ok(socket) => socket.map_err(|e| failed(e.into())),
            Err(_) => Err(failed(std::io::Error::other("the thread died"))),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounted_namespaces_are_found_by_their_kind() {
        let mounts = "40 28 0:4 net:[4026532608] /run/netns/blue rw shared:5 - nsfs nsfs rw\n\
            41 28 0:4 mnt:[4026532609] /run/snapd/ns/x.mnt rw - nsfs nsfs rw\n\
            42 28 0:5 / /dev rw - devtmpfs udev rw\nrubbish\n";
        let found: Vec<_> = mounted(mounts).collect();
        assert_eq!(found, [PathBuf::from("/run/netns/blue")]);
    }

    #[test]
    fn our_own_namespace_is_among_them() {
        let own = std::fs::metadata("/proc/self/ns/net").unwrap().st_ino();
        let all = all();
        assert!(all.iter().any(|f| f.metadata().unwrap().st_ino() == own));
    }
}
