//! What can go wrong.

use std::io;

use thiserror::Error;

/// Why something of the lake could not be done.
#[derive(Debug, Error)]
pub enum LakeError {
    /// Storage failed.
    #[error("{path}: {error}")]
    Storage {
        /// What was read or written.
        path: String,
        /// What the storage said.
        error: io::Error,
    },
    /// A file is not as Skua wrote it.
    #[error("{path} is damaged or was not written by Skua: {reason}")]
    Damaged {
        /// The file.
        path: String,
        /// What is wrong.
        reason: String,
    },
    /// Parquet cannot be made.
    #[error("a Parquet file cannot be made: {0}")]
    Encode(#[from] parquet::errors::ParquetError),
    /// A question that makes no sense.
    #[error("{0}")]
    Question(String),
    /// A question whose answer would need more memory than allowed.
    #[error("{0}")]
    TooMuch(String),
    /// Another process writes the same files.
    #[error("{0} is written by another process")]
    Locked(String),
    /// No place for a lake.
    #[error("{0}")]
    Place(String),
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

    /// Whether a file that was listed is no longer there: it was compacted or deleted meanwhile.
    pub(crate) fn is_gone(&self) -> bool {
        matches!(self, Self::Storage { error, .. } if error.kind() == io::ErrorKind::NotFound)
    }

    /// Whether who asks may not.
    #[cfg(feature = "hdfs")]
    pub(crate) fn is_denied(&self) -> bool {
        matches!(self, Self::Storage { error, .. } if error.kind() == io::ErrorKind::PermissionDenied)
    }

    /// Whether there is no room.
    pub fn is_full(&self) -> bool {
        matches!(self, Self::Storage { error, .. } if matches!(
            error.kind(),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
        ))
    }
}

/// What something of the lake comes to.
pub type Result<T> = std::result::Result<T, LakeError>;
