//! Errors of the lake.

use std::io;

use thiserror::Error;

/// Why something of the lake could not be done.
#[derive(Debug, Error)]
pub enum LakeError {
    /// Storage failed.
    #[error("{path}: {error}")]
    Storage {
        /// The path read or written.
        path: String,
        /// The storage's error.
        error: io::Error,
    },
    /// A file is not as Skua wrote it.
    #[error("{path} is damaged or was not written by Skua: {reason}")]
    Damaged {
        /// The file.
        path: String,
        /// What is damaged.
        reason: String,
    },
    /// Parquet cannot be made.
    #[error("a Parquet file cannot be made: {0}")]
    Encode(#[from] parquet::errors::ParquetError),
    /// A question that makes no sense.
    #[error("{0}")]
    Question(String),
    /// The answer would need more memory than allowed.
    #[error("{0}")]
    TooMuch(String),
    /// Another process writes the same files.
    #[error("{0} is written by another process")]
    Locked(String),
    /// Not a valid location of a lake.
    #[error("{0}")]
    Location(String),
}

impl LakeError {
    pub(crate) fn storage(path: impl Into<String>, error: io::Error) -> Self {
        Self::Storage {
            path: path.into(),
            error,
        }
    }

    pub(crate) fn damaged(path: &str, reason: impl ToString) -> Self {
        Self::Damaged {
            path: path.into(),
            reason: reason.to_string(),
        }
    }

    /// Whether a listed file no longer exists: it was compacted or deleted meanwhile.
    pub(crate) fn is_gone(&self) -> bool {
        matches!(self, Self::Storage { error, .. } if error.kind() == io::ErrorKind::NotFound)
    }

    /// Whether access is denied.
    #[cfg(feature = "hdfs")]
    pub(crate) fn is_denied(&self) -> bool {
        matches!(self, Self::Storage { error, .. } if error.kind() == io::ErrorKind::PermissionDenied)
    }

    /// Whether the storage is full.
    pub fn is_full(&self) -> bool {
        matches!(self, Self::Storage { error, .. } if matches!(
            error.kind(),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
        ))
    }
}

/// Result of the lake's functions.
pub type Result<T> = std::result::Result<T, LakeError>;
