//! What can go wrong when asking the kernel about interfaces and namespaces.

use std::io;

/// Error of this crate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A system call on a netlink socket failed.
    #[error("netlink: {action}: {source}")]
    Netlink {
        /// What was being done.
        action: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The kernel's netlink message could not be read; says what and why.
    #[error("netlink: unreadable message: {0}")]
    Decode(String),
    /// Interfaces changed during every one of the attempts to list them.
    #[error("netlink: the interfaces changed during each of {0} attempts to list them")]
    Interrupted(u32),
    /// The namespace could not be entered for lack of a right.
    #[error(
        "network namespace {name}: entering it needs CAP_SYS_ADMIN \
         (run as root, or grant it with `setcap cap_sys_admin+ep PROGRAM`)"
    )]
    EnterDenied {
        /// Its name as in [`crate::Namespace::name`].
        name: String,
    },
    /// The namespace could not be entered for another reason.
    #[error("network namespace {name}: cannot be entered: {source}")]
    Enter {
        /// Its name as in [`crate::Namespace::name`].
        name: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The file system that shows the namespaces could not be read.
    #[error("{path}: {source}")]
    File {
        /// Path that was read.
        path: String,
        /// The kernel's answer.
        source: io::Error,
    },
}

impl Error {
    /// Makes a function that wraps an [`io::Error`] of a netlink call.
    pub(crate) fn netlink(action: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Netlink { action, source }
    }
}
