//! What can go wrong with a capture.

use std::io;

/// Error of this crate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The right to capture is missing.
    #[error(
        "{interface}: capturing needs CAP_NET_RAW \
         (run as root, or grant it with `setcap cap_net_raw+ep PROGRAM`)"
    )]
    Denied {
        /// Interface that was to be captured.
        interface: String,
    },
    /// There is no such interface in this network namespace.
    #[error("{interface}: no such interface")]
    NoInterface {
        /// Interface that was to be captured.
        interface: String,
    },
    /// The interface is down. The capture stays usable: packets come again once it is up.
    #[error("{interface}: the interface is down")]
    InterfaceDown {
        /// Interface that is captured.
        interface: String,
    },
    /// The interface was deleted or moved to another network namespace. No packets will come.
    #[error("{interface}: the interface was removed")]
    InterfaceGone {
        /// Interface that was captured.
        interface: String,
    },
    /// An option is out of range; says which and what is allowed.
    #[error("{interface}: {what}")]
    Options {
        /// Interface that was to be captured.
        interface: String,
        /// Option, its value and what is allowed.
        what: String,
    },
    /// The filter was refused.
    #[error("{interface}: filter: {what}")]
    Filter {
        /// Interface that was to be captured.
        interface: String,
        /// Why it was refused.
        what: String,
    },
    /// The kernel cannot do what is needed.
    #[error("{interface}: {action} is not supported by this kernel: {source}")]
    Unsupported {
        /// Interface that was to be captured.
        interface: String,
        /// The requested action, and the kernel version that introduced it.
        action: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A system call failed.
    #[error("{interface}: {action}: {source}")]
    System {
        /// Interface that is captured.
        interface: String,
        /// What was being done.
        action: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// libpcap reported an error.
    #[error("{interface}: libpcap: {what}")]
    Libpcap {
        /// Interface that is captured.
        interface: String,
        /// Its words.
        what: String,
    },
}
