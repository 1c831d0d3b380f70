//! S3, by the crate object_store.

use std::{io, ops::Range, time::Duration};

use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _};
use object_store::{
    ClientConfigKey, Error, ObjectStore, ObjectStoreExt as _, PutPayload, RetryConfig,
    aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey},
    path::Path,
};

use super::{
    Storage, Stored,
    remote::{Remote, one_line, split, whole_line},
};
use crate::error::{LakeError, Result};

/// Writers retry and count on their own, so the client need not retry for long.
const RETRIES: usize = 2;
const RETRY: Duration = Duration::from_secs(10);
/// Time limit of a request: a compacted file over a slow line.
const REQUEST: &str = "300s";
/// Error codes of several servers that mean full storage.
const FULL: [&str; 5] = [
    "QuotaExceeded",
    "StorageFull",
    "InsufficientStorage",
    "NoSpaceLeft",
    "NotEnoughSpace",
];

/// Texts that mean denied access or a wrong region: not all have status 401 or 403.
const DENIED: [&str; 8] = [
    "status code: 401",
    "status code: 403",
    "AuthorizationHeaderMalformed",
    "ExpiredToken",
    "InvalidAccessKeyId",
    "PermanentRedirect",
    "XAdminUserNotFound",
    "incorrectly configured region",
];

pub(crate) struct Bucket {
    store: AmazonS3,
    bucket: String,
    /// Of the lake.
    prefix: Path,
    remote: Remote,
}

impl Bucket {
    /// `s3://bucket/prefix`; the variables AWS_… give key, secret, region and endpoint.
    pub fn open(text: &str) -> Result<Self> {
        let (bucket, prefix) = split(text)?;
        // The program's TLS uses ring. If a provider is installed already, that one is used.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let builder = AmazonS3Builder::from_env();
        without_tls(&builder).map_err(|why| LakeError::Location(format!("{text}: {why}")))?;
        let store = builder
            .with_bucket_name(bucket)
            .with_retry(RetryConfig {
                max_retries: RETRIES,
                retry_timeout: RETRY,
                ..RetryConfig::default()
            })
            .with_config(AmazonS3ConfigKey::Client(ClientConfigKey::Timeout), REQUEST)
            .build()
            .map_err(|error| LakeError::Location(format!("{text}: {}", one_line(&error))))?;
        Ok(Self {
            store,
            bucket: bucket.into(),
            prefix: Path::from(prefix),
            remote: Remote::new(format!("s3://{bucket}"))?,
        })
    }

    fn path(&self, path: &str) -> Path {
        path.split('/')
            .filter(|part| !part.is_empty())
            .fold(self.prefix.clone(), Path::join)
    }

    /// The error of a request for an object that may not exist.
    fn of_object(&self, error: &Error) -> io::Error {
        match error {
            Error::NotFound { .. }
                if matches!(code(&whole_line(error)), None | Some("NoSuchKey")) =>
            {
                io::Error::new(io::ErrorKind::NotFound, explained(error))
            }
            error => self.failed(error),
        }
    }

    fn failed(&self, error: &Error) -> io::Error {
        if no_bucket(error) {
            let text = format!("there is no bucket {}; make it first", self.bucket);
            return io::Error::other(text);
        }
        let (kind, text) = (kind(error), explained(error));
        let hint = match kind {
            io::ErrorKind::PermissionDenied => {
                " AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_REGION must be right for it."
            }
            _ => "",
        };
        io::Error::new(kind, text + hint)
    }
}

/// Refuses plain HTTP unless it is allowed: the client's own message is unclear.
fn without_tls(builder: &AmazonS3Builder) -> std::result::Result<(), String> {
    let value = |key| builder.get_config_value(&key).unwrap_or_default();
    let server = value(AmazonS3ConfigKey::Endpoint);
    let allowed = value(AmazonS3ConfigKey::Client(ClientConfigKey::AllowHttp));
    match server.starts_with("http://") && allowed != "true" {
        true => Err(format!(
            "{server} has no TLS: set AWS_ALLOW_HTTP=true to send flows there all the same"
        )),
        false => Ok(()),
    }
}

fn no_bucket(error: &Error) -> bool {
    code(&whole_line(error)) == Some("NoSuchBucket")
}

/// What kind of failure it is, other than that something is not there.
fn kind(error: &Error) -> io::ErrorKind {
    let line = whole_line(error);
    match error {
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => {
            io::ErrorKind::PermissionDenied
        }
        // The listing calls report every error as a generic one.
        _ if DENIED.iter().any(|what| line.contains(what)) => io::ErrorKind::PermissionDenied,
        _ if FULL.iter().any(|code| line.contains(code)) => io::ErrorKind::StorageFull,
        _ => io::ErrorKind::Other,
    }
}

/// An element's text in an answer of S3.
fn element<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    Some(rest.split_once("</")?.0)
}

fn code(text: &str) -> Option<&str> {
    element(text, "Code")
}

/// S3's message, if it sent one; else the client's.
fn explained(error: &Error) -> String {
    let line = whole_line(error);
    match (code(&line), element(&line, "Message")) {
        (Some(code), Some(message)) => format!("{code}: {message}"),
        (Some(code), None) => code.into(),
        _ => not_reached(&line).unwrap_or_else(|| one_line(error)),
    }
}

/// Which server could not be reached, and why, without the client's account of its attempts.
fn not_reached(line: &str) -> Option<String> {
    let (attempts, why) = line.split_once(" - HTTP error: ")?;
    let url = attempts.split(' ').find(|word| word.starts_with("http"))?;
    let server: Vec<&str> = url.split('/').take(3).collect();
    Some(format!("{}: {why}", server.join("/")))
}

impl Storage for Bucket {
    fn list(&self, directory: &str) -> Result<Vec<Stored>> {
        let path = self.path(directory);
        let listed = async {
            let all = self.store.list(Some(&path));
            all.map_ok(|meta| (meta.location, meta.size))
                .try_collect::<Vec<_>>()
                .await
        };
        let found = self
            .remote
            .wait(path.as_ref(), 0, listed, |error| self.failed(&error))?;
        let own = |(path, size): (Path, u64)| {
            let parts: Vec<_> = path.prefix_match(&self.prefix)?.collect();
            let parts: Vec<&str> = parts.iter().map(AsRef::as_ref).collect();
            Some(Stored {
                path: parts.join("/"),
                size,
            })
        };
        Ok(found.into_iter().filter_map(own).collect())
    }

    fn read(&self, path: &str, range: Range<u64>) -> Result<Bytes> {
        let path = self.path(path);
        let read = self.store.get_range(&path, range.clone());
        self.remote
            .read(path.as_ref(), &range, read, |error| self.of_object(&error))
    }

    /// One request: S3 shows an object only when it is complete.
    fn put(&self, path: &str, bytes: &Bytes) -> Result<()> {
        let path = self.path(path);
        let put = self.store.put(&path, PutPayload::from_bytes(bytes.clone()));
        self.remote
            .wait(path.as_ref(), bytes.len() as u64, put, |error| {
                self.failed(&error)
            })
            .map(drop)
    }

    fn delete(&self, path: &str) -> Result<()> {
        let path = self.path(path);
        let delete = self.store.delete(&path);
        self.remote
            .delete(path.as_ref(), delete, |error| self.of_object(&error))
    }

    /// Locks out no other process, as S3 has no locks, but reports denied access or a missing bucket at once.
    /// An unreachable server may come back.
    fn lock(&self, directory: &str, writer: &str) -> Result<Option<std::fs::File>> {
        if writer.starts_with('.') {
            return Ok(None);
        }
        let path = self.path(directory);
        let refused =
            |error: &Error| no_bucket(error) || kind(error) == io::ErrorKind::PermissionDenied;
        let first = async {
            match self.store.list(Some(&path)).next().await {
                Some(Err(error)) if refused(&error) => Err(error),
                _ => Ok(()),
            }
        };
        self.remote
            .wait(path.as_ref(), 0, first, |error| self.failed(&error))?;
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(body: &str) -> Error {
        Error::Generic {
            store: "S3",
            source: format!("status code: 500: <?xml?><Error>{body}</Error>").into(),
        }
    }

    #[test]
    fn no_tls_has_to_be_allowed() {
        let builder = AmazonS3Builder::new().with_endpoint("http://here");
        let error = without_tls(&builder).unwrap_err();
        assert!(error.contains("AWS_ALLOW_HTTP"), "{error}");
        without_tls(&builder.with_allow_http(true)).unwrap();
        without_tls(&AmazonS3Builder::new().with_endpoint("https://here")).unwrap();
        without_tls(&AmazonS3Builder::new()).unwrap();
    }

    #[test]
    fn the_error_has_what_s3_says() {
        let error = answer("<Code>InvalidAccessKeyId</Code><Message>No such key.</Message>");
        assert_eq!(explained(&error), "InvalidAccessKeyId: No such key.");
        assert_eq!(explained(&answer("<Code>SlowDown</Code>")), "SlowDown");
        let gone =
            "GET http://127.0.0.1:9/lake?list-type=2 in 1ms, after 2 retries - HTTP error: refused";
        assert_eq!(not_reached(gone).unwrap(), "http://127.0.0.1:9: refused");
        let full = answer("<Code>XMinioStorageFull</Code><Message>m</Message>");
        assert_eq!(kind(&full), io::ErrorKind::StorageFull);
        let denied = Error::Generic {
            store: "S3",
            source: "status code: 403 Forbidden".into(),
        };
        assert_eq!(kind(&denied), io::ErrorKind::PermissionDenied);
        let nobody = answer("<Code>XAdminUserNotFound</Code>");
        assert_eq!(kind(&nobody), io::ErrorKind::PermissionDenied);
        assert!(no_bucket(&answer("<Code>NoSuchBucket</Code>")));
    }
}
