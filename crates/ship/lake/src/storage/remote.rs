//! Common parts of the clients of S3 and HDFS: they are asynchronous, their callers block.

use std::{
    future::Future,
    io,
    ops::Range,
    time::{Duration, Instant},
};

use bytes::Bytes;
use tokio::runtime::{Handle, Runtime};

use crate::error::{LakeError, Result};

/// Time limit of an operation, and additional time for each MiB.
const PATIENCE: Duration = Duration::from_secs(60);
const PER_MIB: Duration = Duration::from_secs(4);
/// Most characters of an error message: some servers answer with whole pages.
const ERROR_CHARS: usize = 400;

/// Runs operations of a client, and waits for them.
pub(crate) struct Remote {
    /// The lake's address without the path, for errors.
    server: String,
    /// None only while it is dropped.
    runtime: Option<Runtime>,
}

impl Remote {
    pub fn new(server: String) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .thread_name("skua-lake-io")
            .build()
            .map_err(|error| LakeError::storage(server.clone(), error))?;
        Ok(Self {
            server,
            runtime: Some(runtime),
        })
    }

    #[cfg(feature = "hdfs")]
    pub fn handle(&self) -> Option<Handle> {
        self.runtime
            .as_ref()
            .map(|runtime| runtime.handle().clone())
    }

    /// An error with the file that it is about.
    fn error(&self, path: &str, error: io::Error) -> LakeError {
        let path = path.trim_start_matches('/');
        LakeError::storage(format!("{}/{path}", self.server), error)
    }

    /// Waits for an operation on a file that moves some bytes.
    pub fn wait<T, E>(
        &self,
        path: &str,
        bytes: u64,
        operation: impl Future<Output = std::result::Result<T, E>>,
        describe: impl FnOnce(E) -> io::Error,
    ) -> Result<T> {
        let mib = u32::try_from(bytes >> 20).unwrap_or(u32::MAX);
        let patience = PATIENCE.saturating_add(PER_MIB.saturating_mul(mib));
        let begin = Instant::now();
        let Some(runtime) = &self.runtime else {
            return Err(self.error(path, io::ErrorKind::BrokenPipe.into()));
        };
        let error =
            match runtime.block_on(async { tokio::time::timeout(patience, operation).await }) {
                Ok(Ok(done)) => return Ok(done),
                Ok(Err(error)) => describe(error),
                Err(_) => io::Error::new(
                    io::ErrorKind::TimedOut,
                    format!("no answer in {} s", begin.elapsed().as_secs()),
                ),
            };
        Err(self.error(path, error))
    }

    /// Reads with a time limit.
    pub fn read<E>(
        &self,
        path: &str,
        range: &Range<u64>,
        operation: impl Future<Output = std::result::Result<Bytes, E>>,
        describe: impl FnOnce(E) -> io::Error,
    ) -> Result<Bytes> {
        let length = range.end.saturating_sub(range.start);
        let bytes = self.wait(path, length, operation, describe)?;
        match bytes.len() as u64 == length {
            true => Ok(bytes),
            false => Err(self.error(path, io::ErrorKind::UnexpectedEof.into())),
        }
    }

    /// Waits until a file is deleted; that it is not there is as good.
    pub fn delete<E>(
        &self,
        path: &str,
        operation: impl Future<Output = std::result::Result<(), E>>,
        describe: impl FnOnce(E) -> io::Error,
    ) -> Result<()> {
        match self.wait(path, 0, operation, describe) {
            Err(error) if error.is_gone() => Ok(()),
            deleted => deleted,
        }
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        // Dropping a runtime blocks on its threads, which panics inside of another runtime.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// An error with all its causes, on one line of bounded length.
pub(crate) fn one_line(error: &(dyn std::error::Error + 'static)) -> String {
    let line = whole_line(error);
    match line.char_indices().nth(ERROR_CHARS) {
        None => line,
        Some((end, _)) => format!("{}…", &line[..end]),
    }
}

/// The same of any length.
pub(crate) fn whole_line(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut behind = error.source();
    while let Some(source) = behind {
        let said = source.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        behind = source.source();
    }
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ")
}

/// Server and path of `scheme://server/path`, the path without slashes at its ends.
pub(crate) fn split(text: &str) -> Result<(&str, &str)> {
    let (_, rest) = text.split_once("://").unwrap_or_default();
    let (server, path) = rest.split_once('/').unwrap_or((rest, ""));
    match server {
        "" => Err(LakeError::Location(format!(
            "{text}: there is nothing behind ://"
        ))),
        _ => Ok((server, path.trim_matches('/'))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_have_a_server_and_a_path() {
        assert_eq!(split("s3://b/a/path/").unwrap(), ("b", "a/path"));
        assert_eq!(split("hdfs://host:8020").unwrap(), ("host:8020", ""));
        assert_eq!(split("s3://b/with space").unwrap(), ("b", "with space"));
        assert!(split("s3:///path").is_err());
    }

    #[test]
    fn errors_are_one_line() {
        let error = io::Error::other(io::Error::other("a page\n  of\ttext"));
        assert_eq!(one_line(&error), "a page of text");
        let long = io::Error::other("x".repeat(5_000));
        assert_eq!(one_line(&long).chars().count(), ERROR_CHARS + 1);
    }
}
