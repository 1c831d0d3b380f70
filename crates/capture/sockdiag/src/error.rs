//! What can go wrong when asking the kernel about sockets.

use std::io;

/// Error of this crate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A system call on a netlink socket failed.
    #[error("sock_diag: {action}: {source}")]
    Netlink {
        /// What was being done.
        action: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The kernel's netlink message could not be read; says what and why.
    #[error("sock_diag: unreadable message: {0}")]
    Decode(String),
    /// A network namespace could not be entered, or the kernel answered with an error.
    #[error(transparent)]
    Link(#[from] skua_link::Error),
}

impl Error {
    /// Makes a function that wraps an [`io::Error`] of a netlink call.
    pub(crate) fn netlink(action: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Netlink { action, source }
    }

    /// The kernel does not know the requested protocol or family.
    pub(crate) fn is_unknown_family(&self) -> bool {
        const ENOENT: i32 = rustix::io::Errno::NOENT.raw_os_error();
        const EINVAL: i32 = rustix::io::Errno::INVAL.raw_os_error();
        let (Self::Netlink { source, .. } | Self::Link(skua_link::Error::Netlink { source, .. })) =
            self
        else {
            return false;
        };
        matches!(source.raw_os_error(), Some(ENOENT | EINVAL))
    }
}
