//! What can keep discovery from starting.

use std::io;

/// Why discovery could not start. Once it runs, whatever fails is tried again and counted.
#[derive(Debug, thiserror::Error)]
pub enum DiscoveryError {
    /// The own namespace could not be read.
    #[error(transparent)]
    Link(#[from] skua_link::Error),
    /// What the thread waits with could not be made.
    #[error("discovery: {action}: {source}")]
    System {
        /// What was being done.
        action: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
}

impl DiscoveryError {
    /// Makes a function that wraps an error of a system call.
    pub(crate) fn system<E: Into<io::Error>>(action: &'static str) -> impl FnOnce(E) -> Self {
        move |source| Self::System {
            action,
            source: source.into(),
        }
    }
}
