//! Why a store refuses something.

use std::{io, path::PathBuf};

/// Why a store cannot be opened or read.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another process uses it.
    #[error(
        "the history in {dir} is in use by {}; stop it, or choose another directory",
        pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
    )]
    InUse {
        /// The directory.
        dir: PathBuf,
        /// The process's ID, if it wrote it.
        pid: Option<u32>,
    },
    /// Written by a later program.
    #[error(
        "the history in {dir} has format {found}, and this program knows {known} and before; \
         use the newer program, or choose another directory"
    )]
    Newer {
        /// The directory.
        dir: PathBuf,
        /// Version of the files.
        found: u32,
        /// Latest version that this program reads.
        known: u32,
    },
    /// Something else has put its files there.
    #[error("{dir} has files and is not a history; choose another directory")]
    Foreign {
        /// The directory.
        dir: PathBuf,
    },
    /// The kernel refuses.
    #[error("cannot {action} {path}: {source}")]
    Io {
        /// The operation that failed.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The history exceeds the graph's limits.
    #[error("the stored graph is inconsistent: {0}")]
    Graph(#[from] skua_topology::GraphError),
}

impl StoreError {
    pub(crate) fn io(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io {
            action,
            path,
            source,
        }
    }
}
