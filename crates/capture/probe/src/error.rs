//! Errors of the probes.

/// Why a probe cannot work.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The kernel refused.
    #[error(transparent)]
    Kernel(#[from] skua_kernel::KernelError),
    /// No hook works.
    #[error("no flow table in this kernel: {0}")]
    NoHook(String),
    /// Interfaces or namespaces could not be listed.
    #[error(transparent)]
    Link(#[from] skua_link::Error),
    /// No such interface.
    #[error("no interface is called {name}{suggestion}")]
    UnknownInterface {
        /// The requested name.
        name: String,
        /// ` (did you mean …?)` or a list of the existing names.
        suggestion: String,
    },
    /// The interface's packets cannot be read.
    #[error("interface {name} has link type {arphrd}, whose packets Skua cannot read")]
    UnsupportedLink {
        /// Interface.
        name: String,
        /// ARPHRD_… number.
        arphrd: u16,
    },
    /// Packets could not be captured in user space.
    #[error(transparent)]
    Capture(#[from] skua_afpacket::Error),
    /// A port of DPDK cannot be had.
    #[error(transparent)]
    Dpdk(#[from] skua_dpdk::Error),
    /// Sockets cannot be listed.
    #[error(transparent)]
    SockDiag(#[from] skua_sockdiag::Error),
    /// The filter expression is wrong.
    #[error(transparent)]
    Filter(#[from] skua_filter::FilterError),
    /// No filter can be applied to such packets.
    #[error("filters work on Ethernet and raw IP, not on link type {0:?}")]
    FilterLink(skua_packet::LinkType),
    /// More packet rings would take too much memory.
    #[error("{0} interfaces have a packet ring already; no memory is taken for more")]
    TooManyRings(usize),
    /// The address set would be too large.
    #[error(
        "the address set would have {requested} prefixes, but flow.addresses.max_entries is {most}"
    )]
    TooManyAddresses {
        /// Prefixes that it would have.
        requested: usize,
        /// Prefixes that it may have.
        most: u32,
    },
    /// There can be no address set.
    #[error("flow.addresses.max_entries is 0: there is no address set")]
    NoAddresses,
    /// A receiver cannot listen.
    #[error("cannot listen at {address}: {source}")]
    Listen {
        /// Where it was to listen.
        address: std::net::SocketAddr,
        /// Why not.
        source: std::io::Error,
    },
    /// Waiting for events failed.
    #[error("cannot wait for events: {0}")]
    Wait(#[from] std::io::Error),
}
