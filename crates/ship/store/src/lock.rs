//! A directory that one process owns at a time, in a known format.

use crate::StoreError;
use rustix::fs::{FlockOperation, flock};
use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::Path,
};

/// Latest version of the format, of the directory and of the files in it.
pub(crate) const FORMAT: u32 = 1;

const LOCK: &str = "lock";
const VERSION: &str = "format";
const VERSION_TEXT: &str = "skua-history ";

/// Locked while the directory is ours. The kernel releases the lock when the process ends.
pub(crate) struct DirLock {
    file: File,
}

impl Drop for DirLock {
    fn drop(&mut self) {
        // Closing is not enough: a program that is being started has a copy of the descriptor until it executes. If this
        // fails, closing does it a little later.
        let _ = flock(&self.file, FlockOperation::Unlock);
    }
}

impl DirLock {
    /// Makes the directory if it does not exist, and locks it.
    pub fn acquire(dir: &Path) -> Result<Self, StoreError> {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(dir)
            .map_err(StoreError::io("create", dir))?;
        let path = dir.join(LOCK);
        let file = open_lock(&path).map_err(StoreError::io("open", &path))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                return Err(StoreError::InUse {
                    dir: dir.to_owned(),
                    pid: read_pid(&file),
                });
            }
            Err(error) => return Err(StoreError::io("lock", path)(error.into())),
        }
        let lock = Self { file };
        check_format(dir)?;
        // Only for another process's error message; a full disk must not prevent the start.
        let _ = fs::write(&path, format!("{}\n", std::process::id()));
        Ok(lock)
    }
}

/// Read-only: a file open for writing would prevent remounting its file system read-only.
fn open_lock(path: &Path) -> io::Result<File> {
    match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let made = OpenOptions::new()
                .create_new(true)
                .write(true)
                .mode(0o600)
                .open(path);
            match made {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
                _ => File::open(path),
            }
        }
        opened => opened,
    }
}

fn read_pid(file: &File) -> Option<u32> {
    let mut text = String::new();
    file.take(32).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

fn check_format(dir: &Path) -> Result<(), StoreError> {
    let path = dir.join(VERSION);
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if !is_fresh(dir)? {
                return Err(StoreError::Foreign {
                    dir: dir.to_owned(),
                });
            }
            return fs::write(&path, format!("{VERSION_TEXT}{FORMAT}\n"))
                .map_err(StoreError::io("write", path));
        }
        Err(error) => return Err(StoreError::io("read", path)(error)),
    };
    let version = text.strip_prefix(VERSION_TEXT);
    let version = version.and_then(|version| version.trim().parse::<u32>().ok());
    match version {
        Some(found) if found > FORMAT => Err(StoreError::Newer {
            dir: dir.to_owned(),
            found,
            known: FORMAT,
        }),
        Some(_) => Ok(()),
        // Truncated or overwritten. Each file of the logs has the version, too.
        None => {
            tracing::warn!(path = %path.display(), "the file with the version of the format is damaged; writing a new one");
            fs::write(&path, format!("{VERSION_TEXT}{FORMAT}\n"))
                .map_err(StoreError::io("write", path))
        }
    }
}

/// Whether the directory has only our files.
fn is_fresh(dir: &Path) -> Result<bool, StoreError> {
    let entries = fs::read_dir(dir).map_err(StoreError::io("list", dir))?;
    for entry in entries {
        let entry = entry.map_err(StoreError::io("list", dir))?;
        let name = entry.file_name();
        if ![LOCK, "graph", "flows", "lost+found"]
            .iter()
            .any(|own| name == *own)
        {
            return Ok(false);
        }
    }
    Ok(true)
}
