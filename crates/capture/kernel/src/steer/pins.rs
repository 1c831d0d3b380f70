//! Keeps a detector attached when its process is killed: pins in the BPF file system.
//!
//! A detector has a folder there, whose name has the network namespace in which `skua` runs, the detector's
//! name, and a number. Its process holds a lock on the folder, which the kernel releases when the process
//! ends: a folder without a lock was left behind.

use std::{
    fs::{File, Permissions},
    io,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use rustix::fs::{FlockOperation, flock};

use crate::{Attachment, KernelError};

use super::Steering;

/// Where the BPF file system usually is.
const USUAL: &str = "/sys/fs/bpf";
/// Our folder there.
const OURS: &str = "skua-steer";
/// The pin of what is attached, beside that of the programs.
const LINK: &str = "link";
/// Most detectors of one name that exist together: the old one steers until the new one is attached.
const NUMBERS: u32 = 16;

/// The pins of a detector. Dropping it removes them; a process that is killed leaves them.
#[derive(Debug)]
pub struct Pins {
    folder: PathBuf,
    _lock: File,
}

fn failed(what: &'static str) -> impl FnOnce(io::Error) -> KernelError {
    move |source| KernelError::System { what, source }
}

/// Our folder in the BPF file system, which is mounted for root alone when it is not.
fn root() -> Result<PathBuf, KernelError> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mounted = mounts.lines().any(|line| {
        let kind = line.split_once(" - ").map(|(_, rest)| rest);
        line.split(' ').nth(4) == Some(USUAL) && kind.is_some_and(|kind| kind.starts_with("bpf "))
    });
    if !mounted {
        let flags = rustix::mount::MountFlags::empty();
        // The default is 01777: any user could make folders in it.
        rustix::mount::mount("bpf", USUAL, "bpf", flags, Some(c"mode=0700"))
            .map_err(|error| failed("cannot mount the BPF file system")(error.into()))?;
    }
    Ok(Path::new(USUAL).join(OURS))
}

/// The calling thread's network namespace.
fn namespace() -> io::Result<u64> {
    Ok(Path::new("/proc/thread-self/ns/net").metadata()?.ino())
}

/// The BPF file system allows no dots in names, and detectors have no +.
fn name(namespace: u64, detector: &str, number: u32) -> String {
    format!("{namespace}:{}:{number}", detector.replace('.', "+"))
}

/// The lock of a folder; none when another process has it, or the folder was removed.
fn lock(folder: &Path) -> Option<File> {
    let lock = File::open(folder).ok()?;
    flock(&lock, FlockOperation::NonBlockingLockExclusive).ok()?;
    // The previous owner may just have removed it.
    let same = |there: std::fs::Metadata| lock.metadata().is_ok_and(|l| l.ino() == there.ino());
    folder.metadata().is_ok_and(same).then_some(lock)
}

/// Detaches what the pins of a folder keep, and removes them.
fn empty(folder: &Path) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        // A pin that is removed lets go of its link some time later only: after a grace period, and by a worker.
        if entry.file_name() == LINK
            && let Ok(link) = libbpf_rs::Link::open(&path)
            && let Err(error) = link.detach()
        {
            // Its interface was removed, which detached it.
            tracing::debug!(path = %path.display(), %error, "was detached before");
        }
        if let Err(error) = std::fs::remove_file(&path) {
            tracing::warn!(path = %path.display(), %error, "a pin cannot be removed");
        }
    }
}

impl Pins {
    /// Pins a detector that is attached. What a killed process has left of one of its name is ended.
    /// To be called in the network namespace that `skua` runs in.
    ///
    /// # Errors
    ///
    /// There is no BPF file system, or the way it is attached cannot outlive the process.
    pub fn new(
        detector: &str,
        steering: &Steering,
        attachment: &Attachment,
    ) -> Result<Self, KernelError> {
        let root = root()?;
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&root)
            // One that was there already may be open to others.
            .and_then(|()| std::fs::set_permissions(&root, Permissions::from_mode(0o700)))
            .map_err(failed("cannot make a folder for pins"))?;
        let namespace = namespace().map_err(failed("cannot identify the network namespace"))?;
        let mut pins = None;
        for number in 0..NUMBERS {
            let folder = root.join(name(namespace, detector, number));
            if pins.is_none() {
                // It exists already: left behind, or another process has it.
                let _ = std::fs::create_dir(&folder);
            }
            match lock(&folder) {
                Some(_) if pins.is_some() => remove(&folder),
                Some(lock) => {
                    empty(&folder);
                    pins = Some(Self {
                        folder,
                        _lock: lock,
                    });
                }
                None => {}
            }
        }
        let pins = pins.ok_or(KernelError::Missing("a folder for pins that is free"))?;
        let pinned = match &steering.filter {
            Some(filter) => filter.pin(&pins.folder.join("programs")),
            None => Ok(()),
        };
        pinned
            .and_then(|()| attachment.pin(&pins.folder.join(LINK)))
            .map_err(failed("cannot pin the programs of a detector"))?;
        Ok(pins)
    }
}

fn remove(folder: &Path) {
    empty(folder);
    if let Err(error) = std::fs::remove_dir(folder) {
        tracing::warn!(path = %folder.display(), %error, "a folder of pins cannot be removed");
    }
}

impl Drop for Pins {
    fn drop(&mut self) {
        remove(&self.folder);
    }
}

/// Ends what killed processes have left: those that ran in the calling thread's network namespace, or
/// `all`. Says of which detectors.
pub fn release(all: bool) -> Vec<String> {
    let own = namespace().ok().map(|own| own.to_string());
    let folders = std::fs::read_dir(Path::new(USUAL).join(OURS));
    let mut ended = Vec::new();
    for folder in folders.into_iter().flatten().flatten() {
        let name = folder.file_name().to_string_lossy().into_owned();
        let mut parts = name.split(':');
        let (Some(namespace), Some(detector)) = (parts.next(), parts.next()) else {
            continue;
        };
        if !all && own.as_deref() != Some(namespace) {
            continue;
        }
        let folder = folder.path();
        let Some(_lock) = lock(&folder) else { continue };
        remove(&folder);
        ended.push(detector.replace('+', "."));
    }
    ended
}
