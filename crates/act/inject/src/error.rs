//! What can go wrong.

use std::net::IpAddr;

/// Error of this crate.
#[derive(Debug, thiserror::Error)]
pub enum InjectError {
    /// The network namespace is not there (any more).
    #[error("there is no network namespace with inode number {0}")]
    NoNamespace(u64),
    /// It cannot be entered, or namespaces cannot be looked for.
    #[error(transparent)]
    Namespace(#[from] skua_link::Error),
    /// Packets cannot be sent or seen at an interface.
    #[error(transparent)]
    Interface(#[from] skua_afpacket::Error),
    /// The packet would contradict itself.
    #[error("{0}")]
    Packet(String),
    /// The capture file to be sent cannot be read.
    #[error("capture file: {0}")]
    File(String),
    /// Nobody tells the link-layer address that the packet has to go to.
    #[error("nobody on {interface} answers for {address}: is it up? (else give its MAC address)")]
    NoNeighbour {
        /// Interface at which was asked.
        interface: String,
        /// Who was asked for.
        address: IpAddr,
    },
    /// No thread could be started.
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
}
