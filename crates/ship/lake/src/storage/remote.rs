//! What clients of S3 and HDFS have in common: they are asynchronous, and whoever stores waits.

use std::{
    future::Future,
    io,
    ops::Range,
    time::{Duration, Instant},
};

use bytes::Bytes;
use tokio::runtime::{Handle, Runtime};

use crate::error::{LakeError, Result};

/// An operation takes at most so long, and so much more for each MiB that it moves.
const PATIENCE: Duration = Duration::from_secs(60);
const PER_MIB: Duration = Duration::from_secs(4);
/// Characters of an error that are told: some servers answer with whole pages.
const TOLD: usize = 400;

/// Runs operations of a client, and waits for them.
pub(crate) struct Remote {
    /// What the lake's address begins with, for errors: all but the path.
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
        told: impl FnOnce(E) -> io::Error,
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
                Ok(Err(error)) => told(error),
                Err(_) => io::Error::new(
                    io::ErrorKind::TimedOut,
                    format!("no answer in {} s", begin.elapsed().as_secs()),
                ),
            };
        Err(self.error(path, error))
    }

    /// Waits for a part of a file, and for all of it.
    pub fn read<E>(
        &self,
        path: &str,
        range: &Range<u64>,
        operation: impl Future<Output = std::result::Result<Bytes, E>>,
        told: impl FnOnce(E) -> io::Error,
    ) -> Result<Bytes> {
        let length = range.end.saturating_sub(range.start);
        let bytes = self.wait(path, length, operation, told)?;
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
        told: impl FnOnce(E) -> io::Error,
    ) -> Result<()> {
        match self.wait(path, 0, operation, told) {
            Err(error) if error.is_gone() => Ok(()),
            deleted => deleted,
        }
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        // A runtime that is merely dropped waits for its threads, which panics where waiting is forbidden.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// An error with all that is behind it, on one line of bounded length.
pub(crate) fn one_line(error: &(dyn std::error::Error + 'static)) -> String {
    let line = whole_line(error);
    match line.char_indices().nth(TOLD) {
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
        "" => Err(LakeError::Place(format!(
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
    fn errors_are_told_in_one_line() {
        let error = io::Error::other(io::Error::other("a page\n  of\ttext"));
        assert_eq!(one_line(&error), "a page of text");
        let long = io::Error::other("x".repeat(5_000));
        assert_eq!(one_line(&long).chars().count(), TOLD + 1);
    }
}
