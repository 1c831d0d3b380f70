//! Where files lie: a directory, or an object store.

#[cfg(feature = "hdfs")]
mod hdfs;
mod local;
#[cfg(feature = "remote")]
mod remote;
#[cfg(feature = "s3")]
mod s3;
mod swap;

use std::{ops::Range, str::FromStr, sync::Arc};

use bytes::Bytes;

use crate::error::{LakeError, Result};

/// Suffix of unfinished files; their names begin with a dot, so that engines ignore them.
pub(crate) const UNFINISHED: &str = ".unfinished";

/// A file of a lake.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stored {
    /// Its path in the lake.
    pub path: String,
    /// Bytes.
    pub size: u64,
}

/// A place that stores objects: a directory, or an object store.
pub(crate) trait Storage: Send + Sync {
    /// All objects below a directory; none if it does not exist.
    fn list(&self, directory: &str) -> Result<Vec<Stored>>;
    /// A part of an object.
    fn read(&self, path: &str, range: Range<u64>) -> Result<Bytes>;
    /// Stores an object atomically: afterwards it exists completely and survives a crash of the host,
    /// or it does not exist.
    fn put(&self, path: &str, bytes: &Bytes) -> Result<()>;
    /// Stores an object, and deletes the objects in the same directory that it replaces. In a local directory
    /// both happen at one moment for readers; elsewhere the new object appears first.
    fn replace(&self, path: &str, bytes: &Bytes, old: &[String]) -> Result<()> {
        self.put(path, bytes)?;
        old.iter().try_for_each(|old| self.delete(old))
    }
    /// Deletes leftovers of replacements in a table: of this process just now, or of an earlier one. No
    /// other process replaces meanwhile.
    fn settle(&self, _table: &str, _just_now: bool) -> Result<()> {
        Ok(())
    }
    /// Deletes an object; that it is not there is as good.
    fn delete(&self, path: &str) -> Result<()>;
    /// Locks out other processes that write under this name until the lock is dropped, and removes their
    /// unfinished files. An object store has no locks. Names that begin with a dot belong to compaction.
    fn lock(&self, directory: &str, writer: &str) -> Result<Option<std::fs::File>>;
}

/// Where a lake is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Location {
    text: String,
    kind: LocationKind,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum LocationKind {
    Directory(std::path::PathBuf),
    S3,
    Hdfs,
}

impl Location {
    /// The directory of this host that it is, if it is one.
    pub fn directory(&self) -> Option<&std::path::Path> {
        match &self.kind {
            LocationKind::Directory(path) => Some(path),
            LocationKind::S3 | LocationKind::Hdfs => None,
        }
    }

    /// Opens the storage, without access to it.
    pub(crate) fn open(&self) -> Result<Arc<dyn Storage>> {
        match &self.kind {
            LocationKind::Directory(path) => Ok(Arc::new(local::Directory::new(path.clone()))),
            #[cfg(feature = "s3")]
            LocationKind::S3 => Ok(Arc::new(s3::Bucket::open(&self.text)?)),
            #[cfg(feature = "hdfs")]
            LocationKind::Hdfs => Ok(Arc::new(hdfs::Files::open(&self.text)?)),
            #[cfg(not(feature = "s3"))]
            LocationKind::S3 => Err(self.not_built("s3")),
            #[cfg(not(feature = "hdfs"))]
            LocationKind::Hdfs => Err(self.not_built("hdfs")),
        }
    }

    #[cfg(not(all(feature = "s3", feature = "hdfs")))]
    fn not_built(&self, feature: &str) -> LakeError {
        LakeError::Location(format!(
            "{self}: this skua was built without {feature}: build it with --features {feature} \
             (docs/lake.md)"
        ))
    }
}

impl std::fmt::Display for Location {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for Location {
    type Err = LakeError;

    fn from_str(text: &str) -> Result<Self> {
        let kind = match text.split_once("://") {
            None => LocationKind::Directory(text.into()),
            Some(("file" | "parquet", path)) => LocationKind::Directory(path.into()),
            Some(("s3", _)) => LocationKind::S3,
            Some(("hdfs", _)) => LocationKind::Hdfs,
            Some((scheme, _)) => {
                return Err(LakeError::Location(format!(
                    "{text}: no lake can be at {scheme}://; give a directory, parquet://DIR, \
                     s3://BUCKET/PREFIX or hdfs://HOST:PORT/PATH"
                )));
            }
        };
        if matches!(&kind, LocationKind::Directory(path) if path.as_os_str().is_empty()) {
            return Err(LakeError::Location(format!(
                "{text} does not name a directory"
            )));
        }
        Ok(Self {
            text: text.into(),
            kind,
        })
    }
}
