//! HDFS, by the crate hdfs-native: no JVM.

use std::{io, ops::Range};

use bytes::Bytes;
use hdfs_native::{Client, ClientBuilder, HdfsError, WriteOptions};

use super::{
    Storage, Stored, UNFINISHED,
    remote::{Remote, one_line, split},
};
use crate::error::{LakeError, Result};

/// Writers retry and count on their own, so the client need not retry for long.
const SETTINGS: [(&str, &str); 2] = [
    ("dfs.client.failover.max.attempts", "4"),
    ("dfs.client.failover.sleep.base.millis", "250"),
];
/// Bytes passed to the client in one call.
const CHUNK: usize = 1 << 20;

pub(crate) struct Files {
    client: Client,
    /// Prefix of the lake: `/path`, or empty.
    prefix: String,
    remote: Remote,
}

impl Files {
    /// `hdfs://host:port/path`, or a name service of the configuration in HADOOP_CONF_DIR.
    pub fn open(text: &str) -> Result<Self> {
        let (server, path) = split(text)?;
        let server = format!("hdfs://{server}");
        let remote = Remote::new(server.clone())?;
        let mut builder = ClientBuilder::new().with_url(server).with_config(SETTINGS);
        if let Some(handle) = remote.handle() {
            builder = builder.with_io_runtime(handle);
        }
        let client = builder
            .build()
            .map_err(|error| LakeError::Location(format!("{text}: {}", one_line(&error))))?;
        Ok(Self {
            client,
            prefix: match path {
                "" => String::new(),
                path => format!("/{path}"),
            },
            remote,
        })
    }

    fn path(&self, path: &str) -> String {
        format!("{}/{path}", self.prefix)
    }

    /// Writes a file in place; readers may see it incomplete.
    async fn write(&self, path: &str, bytes: &Bytes) -> std::result::Result<(), HdfsError> {
        let options = WriteOptions::default().overwrite(true).permission(0o640);
        let mut file = self.client.create(path, options).await?;
        let mut rest = bytes.clone();
        while !rest.is_empty() {
            let chunk = rest.split_to(CHUNK.min(rest.len()));
            file.write_bytes(chunk).await?;
        }
        // Without it datanodes have the data in memory only.
        file.hsync().await?;
        file.close().await
    }
}

/// A name that engines pass over, in the same directory.
fn unfinished(path: &str) -> String {
    let (directory, name) = path.rsplit_once('/').unwrap_or(("", path));
    format!("{directory}/.{name}{UNFINISHED}")
}

fn io_error(error: HdfsError) -> io::Error {
    use io::ErrorKind as Kind;
    let (kind, text) = match error {
        HdfsError::IOError(error) => return error,
        HdfsError::FileNotFound(path) => (Kind::NotFound, path),
        HdfsError::RPCError(class, message) | HdfsError::FatalRPCError(class, message) => {
            let name = class.rsplit(['.', '$']).next().unwrap_or_default();
            let kind = match name {
                "FileNotFoundException" => Kind::NotFound,
                "AccessControlException" | "AuthorizationException" => Kind::PermissionDenied,
                "DSQuotaExceededException" | "NSQuotaExceededException" => Kind::QuotaExceeded,
                _ if is_out_of_space(&message) => Kind::StorageFull,
                _ => Kind::Other,
            };
            // The first line; Java's stack is behind it.
            let line = message.lines().next().unwrap_or_default();
            (kind, format!("{name}: {line}"))
        }
        error => (Kind::Other, one_line(&error)),
    };
    io::Error::new(kind, text)
}

/// Whether a namenode found no datanode with space. If the message counts datanodes, they are up
/// but full.
fn is_out_of_space(message: &str) -> bool {
    message.contains("could only be written to 0 of") && !message.contains("are 0 datanode")
}

impl Storage for Files {
    fn list(&self, directory: &str) -> Result<Vec<Stored>> {
        let path = self.path(directory);
        let listed = self
            .remote
            .wait(&path, 0, self.client.list_status(&path, true), io_error);
        let found = match listed {
            Err(error) if error.is_gone() => return Ok(Vec::new()),
            found => found?,
        };
        let own = |path: &str| {
            Some(
                path.strip_prefix(&self.prefix)?
                    .strip_prefix('/')?
                    .to_owned(),
            )
        };
        Ok(found
            .into_iter()
            .filter(|status| !status.isdir)
            .filter_map(|status| {
                Some(Stored {
                    path: own(&status.path)?,
                    size: status.length as u64,
                })
            })
            .collect())
    }

    fn read(&self, path: &str, range: Range<u64>) -> Result<Bytes> {
        let path = self.path(path);
        let read = async {
            let file = self.client.read(&path).await?;
            // The client panics beyond the end.
            if range.end > file.file_length() as u64 {
                return Err(HdfsError::IOError(io::ErrorKind::UnexpectedEof.into()));
            }
            let length = range.end.saturating_sub(range.start);
            file.read_range(range.start as usize, length as usize).await
        };
        self.remote.read(&path, &range, read, io_error)
    }

    fn put(&self, path: &str, bytes: &Bytes) -> Result<()> {
        let path = self.path(path);
        let unfinished = unfinished(&path);
        let put = async {
            let written = async {
                self.write(&unfinished, bytes).await?;
                self.client.rename(&unfinished, &path, true).await
            };
            let written = written.await;
            if written.is_err() {
                // On a full cluster the rest would occupy space.
                let _ = self.client.delete(&unfinished, false).await;
            }
            written
        };
        self.remote.wait(&path, bytes.len() as u64, put, io_error)
    }

    fn delete(&self, path: &str) -> Result<()> {
        let path = self.path(path);
        let delete = async {
            self.client.delete(&path, false).await?;
            // Remove hour and day if they are empty; HDFS refuses otherwise.
            let mut above = path.as_str();
            for _ in 0..2 {
                above = above.rsplit_once('/').map_or("", |(above, _)| above);
                if self.client.delete(above, false).await.is_err() {
                    break;
                }
            }
            Ok(())
        };
        self.remote.delete(&path, delete, io_error)
    }

    /// Locks out no other process, but reports denied access at once. An unreachable namenode may come back.
    fn lock(&self, directory: &str, writer: &str) -> Result<Option<std::fs::File>> {
        if writer.starts_with('.') {
            return Ok(None);
        }
        let path = self.path(directory);
        let made = self
            .remote
            .wait(&path, 0, self.client.mkdirs(&path, 0o750, true), io_error);
        match made {
            Ok(()) => {}
            Err(error) if error.is_denied() => return Err(error),
            Err(error) => {
                tracing::warn!(%error, "the lake cannot be reached yet");
                return Ok(None);
            }
        }
        // Remove unfinished files of an earlier process; only this writer uses the name.
        let begin = format!(".{writer}-");
        for item in self.list(directory)? {
            let (_, name) = item.path.rsplit_once('/').unwrap_or_default();
            if name.starts_with(&begin) && name.ends_with(UNFINISHED) {
                self.delete(&item.path)?;
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(class: &str, message: &str) -> io::ErrorKind {
        io_error(HdfsError::RPCError(class.into(), message.into())).kind()
    }

    #[test]
    fn exceptions_have_kinds() {
        use io::ErrorKind as Kind;
        assert_eq!(kind("java.io.FileNotFoundException", ""), Kind::NotFound);
        assert_eq!(
            kind(
                "org.apache.hadoop.security.AccessControlException",
                "Permission denied: user=guest"
            ),
            Kind::PermissionDenied
        );
        assert_eq!(
            kind(
                "org.apache.hadoop.hdfs.protocol.DSQuotaExceededException",
                ""
            ),
            Kind::QuotaExceeded
        );
        let nodes = |up| {
            format!(
                "File /f could only be written to 0 of the 1 minReplication nodes. There are {up} datanode(s) running"
            )
        };
        assert_eq!(kind("java.io.IOException", &nodes(1)), Kind::StorageFull);
        assert_eq!(kind("java.io.IOException", &nodes(0)), Kind::Other);
        let error = io_error(HdfsError::RPCError(
            "a.b.C".into(),
            "what\n\tat java".into(),
        ));
        assert_eq!(error.to_string(), "C: what");
    }

    #[test]
    fn unfinished_files_lie_beside_under_a_dot() {
        assert_eq!(
            unfinished("/lake/flows/x.parquet"),
            "/lake/flows/.x.parquet.unfinished"
        );
    }
}
