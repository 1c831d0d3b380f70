//! S3 and HDFS, by the crate object_store.

use std::{future::Future, io, ops::Range, sync::Arc, time::Duration};

use bytes::Bytes;
use object_store::{ObjectStore, ObjectStoreExt as _, PutPayload, path::Path};
use tokio::runtime::Runtime;

use super::{Item, Storage};
use crate::error::{LakeError, Result};

/// An operation takes at most so long.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Objects {
    store: Arc<dyn ObjectStore>,
    /// Of the lake, without slashes at its ends.
    prefix: String,
    /// What the store's address is, for errors.
    name: String,
    runtime: Runtime,
}

impl Objects {
    /// `s3://bucket/prefix`; key, secret, region and endpoint come from the variables AWS_….
    #[cfg(feature = "s3")]
    pub fn s3(text: &str) -> Result<Self> {
        let place = |error: &dyn std::fmt::Display| LakeError::Place(format!("{text}: {error}"));
        let url = url::Url::parse(text).map_err(|error| place(&error))?;
        let bucket = url.host_str().ok_or_else(|| place(&"no bucket"))?;
        let store = object_store::aws::AmazonS3Builder::from_env()
            .with_bucket_name(bucket)
            .build()
            .map_err(|error| place(&error))?;
        Self::new(Arc::new(store), url.path(), text)
    }

    /// `hdfs://host:port/path`.
    #[cfg(feature = "hdfs")]
    pub fn hdfs(text: &str) -> Result<Self> {
        let place = |error: &dyn std::fmt::Display| LakeError::Place(format!("{text}: {error}"));
        let url = url::Url::parse(text).map_err(|error| place(&error))?;
        let server = format!("hdfs://{}", url.authority());
        let runtime = runtime(text)?;
        let store = hdfs_native_object_store::HdfsObjectStoreBuilder::new()
            .with_url(&server)
            .with_io_runtime(runtime.handle().clone())
            .build()
            .map_err(|error| place(&error))?;
        Ok(Self {
            store: Arc::new(store),
            prefix: url.path().trim_matches('/').into(),
            name: server,
            runtime,
        })
    }

    #[cfg(feature = "s3")]
    fn new(store: Arc<dyn ObjectStore>, path: &str, text: &str) -> Result<Self> {
        Ok(Self {
            store,
            prefix: path.trim_matches('/').into(),
            name: text.trim_end_matches(path).into(),
            runtime: runtime(text)?,
        })
    }

    fn path(&self, path: &str) -> Path {
        match self.prefix.as_str() {
            "" => Path::from(path),
            prefix => Path::from(format!("{prefix}/{path}")),
        }
    }

    fn wait<T>(
        &self,
        path: &Path,
        future: impl Future<Output = object_store::Result<T>>,
    ) -> Result<T> {
        let done = self
            .runtime
            .block_on(async { tokio::time::timeout(PATIENCE, future).await });
        let error = match done {
            Ok(Ok(done)) => return Ok(done),
            Ok(Err(error @ object_store::Error::NotFound { .. })) => {
                io::Error::new(io::ErrorKind::NotFound, error)
            }
            Ok(Err(error)) => io::Error::other(error),
            Err(_) => io::ErrorKind::TimedOut.into(),
        };
        Err(LakeError::storage(format!("{}/{path}", self.name), error))
    }
}

fn runtime(text: &str) -> Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .thread_name("skua-lake-io")
        .build()
        .map_err(|error| LakeError::storage(text, error))
}

impl Storage for Objects {
    fn list(&self, directory: &str) -> Result<Vec<Item>> {
        use futures_util::TryStreamExt as _;
        let path = self.path(directory);
        let listed = async {
            let all = self.store.list(Some(&path));
            all.map_ok(|meta| (meta.location.to_string(), meta.size))
                .try_collect::<Vec<_>>()
                .await
        };
        let found = match self.wait(&path, listed) {
            Err(error) if error.is_gone() => return Ok(Vec::new()),
            found => found?,
        };
        let own = |path: String| match self.prefix.as_str() {
            "" => Some(path),
            prefix => Some(path.strip_prefix(prefix)?.strip_prefix('/')?.to_owned()),
        };
        Ok(found
            .into_iter()
            .filter_map(|(path, size)| {
                Some(Item {
                    path: own(path)?,
                    size,
                })
            })
            .collect())
    }

    fn read(&self, path: &str, range: Range<u64>) -> Result<Bytes> {
        let path = self.path(path);
        let length = range.end.saturating_sub(range.start);
        let bytes = self.wait(&path, self.store.get_range(&path, range))?;
        if bytes.len() as u64 != length {
            let error = io::ErrorKind::UnexpectedEof.into();
            return Err(LakeError::storage(path.to_string(), error));
        }
        Ok(bytes)
    }

    fn put(&self, path: &str, bytes: &Bytes) -> Result<()> {
        let path = self.path(path);
        let payload = PutPayload::from_bytes(bytes.clone());
        self.wait(&path, self.store.put(&path, payload)).map(drop)
    }

    fn delete(&self, path: &str) -> Result<()> {
        let path = self.path(path);
        match self.wait(&path, self.store.delete(&path)) {
            Err(error) if error.is_gone() => Ok(()),
            deleted => deleted,
        }
    }

    fn lock(&self, _: &str, _: &str) -> Result<Option<std::fs::File>> {
        Ok(None)
    }
}
