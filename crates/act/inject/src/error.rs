//! Why an injection fails.

use std::net::IpAddr;

/// Error of this crate.
#[derive(Debug, thiserror::Error)]
pub enum InjectError {
    /// The network namespace does not exist (any longer).
    #[error("there is no network namespace with inode number {0}")]
    NoNamespace(u64),
    /// The network namespace cannot be entered, or the namespaces cannot be listed.
    #[error(transparent)]
    Namespace(#[from] skua_link::Error),
    /// The interface does not send, or its packets cannot be captured.
    #[error(transparent)]
    Interface(#[from] skua_afpacket::Error),
    /// The packet would contradict itself.
    #[error("{0}")]
    Packet(String),
    /// The capture file to be sent cannot be read.
    #[error("capture file: {0}")]
    File(String),
    /// No neighbour answers for the address, so the destination MAC address is unknown.
    #[error("no host on {interface} answers for {address}: start it, or give its MAC address")]
    NoNeighbour {
        /// The interface that sent the requests.
        interface: String,
        /// The address that was resolved.
        address: IpAddr,
    },
    /// No thread could be started.
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
}
