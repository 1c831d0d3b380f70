//! The root of the unified control group hierarchy, where hooks see every process of the host.

use std::os::fd::OwnedFd;

use rustix::{
    fs::{Mode, OFlags},
    mount::{FsMountFlags, FsOpenFlags, MountAttrFlags},
};

use crate::KernelError;

/// Opens the root. A mount of our own that is in no namespace is tried first: it shows the root also where
/// the hierarchy is not mounted, or only a part of it, and ends with the descriptor.
pub(crate) fn open_root() -> Result<OwnedFd, KernelError> {
    let failed = |source: rustix::io::Errno| KernelError::System {
        what: "cannot open the unified control group hierarchy",
        source: source.into(),
    };
    let detached = || -> rustix::io::Result<OwnedFd> {
        let context = rustix::mount::fsopen("cgroup2", FsOpenFlags::FSOPEN_CLOEXEC)?;
        rustix::mount::fsconfig_create(&context)?;
        rustix::mount::fsmount(
            &context,
            FsMountFlags::FSMOUNT_CLOEXEC,
            MountAttrFlags::empty(),
        )
    };
    match detached() {
        Ok(root) => Ok(root),
        Err(error) => {
            tracing::debug!(%error, "no detached mount of cgroup2");
            let mounts = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
            let path = mounted_root(&mounts).ok_or_else(|| failed(error))?;
            rustix::fs::open(
                path,
                OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
                Mode::empty(),
            )
            .map_err(failed)
        }
    }
}

/// Where the hierarchy's root is mounted, by mountinfo (proc_pid_mountinfo(5)).
fn mounted_root(mounts: &[u8]) -> Option<std::path::PathBuf> {
    use std::os::unix::ffi::OsStringExt as _;

    mounts.split(|b| *b == b'\n').find_map(|line| {
        let mut fields = line.split(|b| *b == b' ');
        let root = fields.nth(3)?;
        let point = fields.next()?;
        let kind = fields.skip_while(|f| *f != b"-").nth(1)?;
        (kind == b"cgroup2" && root == b"/")
            .then(|| std::ffi::OsString::from_vec(unescape(point)).into())
    })
}

/// Blanks and the like stand as `\ooo`.
fn unescape(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, tail)) = rest.split_first() {
        let octal = tail
            .get(..3)
            .and_then(|d| std::str::from_utf8(d).ok())
            .and_then(|d| u8::from_str_radix(d, 8).ok());
        match octal {
            Some(byte) if first == b'\\' => {
                out.push(byte);
                rest = &tail[3..];
            }
            _ => {
                out.push(first);
                rest = tail;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_root_wherever_it_is_mounted() {
        let mounts = b"31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
            40 31 0:38 /part /bound rw - cgroup2 cgroup2 rw\n\
            41 31 0:38 / /sys/fs/cgroup/uni\\040fied rw,relatime shared:3 - cgroup2 cgroup2 rw\n";
        assert_eq!(mounted_root(mounts), Some("/sys/fs/cgroup/uni fied".into()));
        assert_eq!(mounted_root(b"1 2 3\n - cgroup2"), None);
        assert_eq!(unescape(b"a\\04"), b"a\\04");
    }

    #[test]
    fn opens_the_root() {
        let root = open_root().unwrap();
        let stat = rustix::fs::fstat(&root).unwrap();
        // The root directory of a kernfs hierarchy.
        assert_eq!(stat.st_ino, 1);
    }
}
