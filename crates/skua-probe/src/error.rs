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
        /// The name that was asked for.
        name: String,
        /// ` (did you mean …?)` or a list of what there is.
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
    /// Waiting for events failed.
    #[error("cannot wait for events: {0}")]
    Wait(#[from] std::io::Error),
}
