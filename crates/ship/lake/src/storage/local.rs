//! A directory of this host.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    ops::Range,
    os::unix::fs::{DirBuilderExt as _, FileExt as _},
    path::{Path, PathBuf},
};

use bytes::Bytes;
use rustix::fs::{FlockOperation, flock};

use super::{Storage, Stored, UNFINISHED, swap};
use crate::error::{LakeError, Result};

/// Levels of directories that are searched.
const DEPTH: usize = 4;

pub(crate) struct Directory {
    root: PathBuf,
}

impl Directory {
    pub fn new(root: PathBuf) -> Self {
        Self { root }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    /// An error with the file that it is about.
    fn error(path: &Path) -> impl Fn(io::Error) -> LakeError {
        let path = path.display().to_string();
        move |error| LakeError::storage(path.clone(), error)
    }

    fn walk(
        &self,
        directory: &Path,
        depth: usize,
        found: &mut dyn FnMut(PathBuf, &fs::DirEntry) -> Result<()>,
    ) -> Result<()> {
        let entries = match fs::read_dir(directory) {
            Ok(entries) => entries,
            // It may have been deleted since.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(Self::error(directory)(error)),
        };
        for entry in entries {
            let entry = entry.map_err(Self::error(directory))?;
            let kind = entry.file_type().map_err(Self::error(directory))?;
            if kind.is_dir() && depth > 0 {
                self.walk(&entry.path(), depth - 1, found)?;
            } else if kind.is_file() {
                found(entry.path(), &entry)?;
            }
        }
        Ok(())
    }

    /// Shared lock on a file's table: no directory is exchanged until the lock is dropped.
    fn guard(&self, path: &str) -> io::Result<File> {
        let table = self.path(path.split('/').next().unwrap_or_default());
        swap::guard(&table, false)
    }

    fn make(&self, directory: &Path) -> io::Result<()> {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o750)
            .create(directory)
    }
}

/// Syncs a directory, so that renames in it survive a crash.
pub(super) fn sync(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

impl Storage for Directory {
    fn list(&self, directory: &str) -> Result<Vec<Stored>> {
        let mut items = Vec::new();
        self.walk(&self.path(directory), DEPTH, &mut |path, entry| {
            let below = path.strip_prefix(&self.root).ok().and_then(Path::to_str);
            let metadata = match entry.metadata() {
                Ok(metadata) => metadata,
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                Err(error) => return Err(Self::error(&path)(error)),
            };
            if let Some(path) = below {
                items.push(Stored {
                    path: path.to_owned(),
                    size: metadata.len(),
                });
            }
            Ok(())
        })?;
        Ok(items)
    }

    fn read(&self, path: &str, range: Range<u64>) -> Result<Bytes> {
        let path = self.path(path);
        let read = || {
            let file = File::open(&path)?;
            let length = range.end.saturating_sub(range.start);
            if range.end > file.metadata()?.len() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let mut bytes = vec![0; usize::try_from(length).map_err(io::Error::other)?];
            file.read_exact_at(&mut bytes, range.start)?;
            Ok(Bytes::from(bytes))
        };
        read().map_err(Self::error(&path))
    }

    fn put(&self, object: &str, bytes: &Bytes) -> Result<()> {
        let path = self.path(object);
        let none = Path::new("");
        let directory = path.parent().unwrap_or(none);
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let unfinished = directory.join(format!(".{name}{UNFINISHED}"));
        let write = || {
            if !directory.is_dir() {
                self.make(directory)?;
                // Of new directories: that of the table, of the day, of the hour.
                for above in directory.ancestors().take(DEPTH) {
                    sync(if above == none { Path::new(".") } else { above })?;
                    if above == self.root {
                        break;
                    }
                }
            }
            let _guard = self.guard(object)?;
            let mut file = File::create(&unfinished)?;
            file.write_all(bytes)?;
            file.sync_all()?;
            fs::rename(&unfinished, &path)?;
            sync(directory)
        };
        write().map_err(|error| {
            // On a full disk it would occupy space.
            let _ = fs::remove_file(&unfinished);
            Self::error(&path)(error)
        })
    }

    fn replace(&self, path: &str, bytes: &Bytes, old: &[String]) -> Result<()> {
        let name = |path: &str| {
            path.rsplit_once('/')
                .map_or_else(String::new, |(_, n)| n.into())
        };
        let names: Vec<String> = old.iter().map(|path| name(path)).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let (directory, new) = path.rsplit_once('/').unwrap_or_default();
        let (table, hour) = directory.split_once('/').unwrap_or_default();
        let done = swap::replace(&self.root, table, hour, (new, bytes), &names);
        if done.map_err(Self::error(&self.path(path)))? {
            return Ok(());
        }
        self.put(path, bytes)?;
        old.iter().try_for_each(|old| self.delete(old))
    }

    fn settle(&self, table: &str, just_now: bool) -> Result<()> {
        swap::settle(&self.root, table, just_now).map_err(Self::error(&self.path(table)))
    }

    fn delete(&self, name: &str) -> Result<()> {
        let path = self.path(name);
        let _guard = match self.guard(name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            guard => guard.map_err(Self::error(&path))?,
        };
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Self::error(&path)(error)),
            _ => {
                // Remove hour and day if they are empty.
                for above in path.ancestors().skip(1).take(2) {
                    if fs::remove_dir(above).is_err() {
                        break;
                    }
                }
                Ok(())
            }
        }
    }

    fn lock(&self, directory: &str, writer: &str) -> Result<Option<File>> {
        let directory = self.path(directory);
        self.make(&directory).map_err(Self::error(&directory))?;
        let path = directory.join(format!(".{writer}.lock"));
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(Self::error(&path))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                return Err(LakeError::Locked(directory.display().to_string()));
            }
            Err(error) => return Err(Self::error(&path)(error.into())),
        }
        // Remove unfinished files of an earlier process; only this writer uses the name.
        let _guard = swap::guard(&directory, false).map_err(Self::error(&directory))?;
        let begin = format!(".{writer}-");
        self.walk(&directory, DEPTH, &mut |path, _| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if name.starts_with(&begin) && name.ends_with(UNFINISHED) {
                fs::remove_file(&path).map_err(Self::error(&path))?;
            }
            Ok(())
        })?;
        Ok(Some(file))
    }
}
