//! Errors of this crate.

use skua_kernel::KernelError;

/// Why something of a tap cannot be.
#[derive(Debug, thiserror::Error)]
pub enum TapError {
    /// The kernel refuses a program or a map.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// The kernel refuses something of an interface or a namespace.
    #[error(transparent)]
    Link(#[from] skua_link::Error),
    /// A namespace is not there.
    #[error("there is no network namespace {0}")]
    NoNamespace(String),
    /// An interface is not there.
    #[error("there is no interface {0}")]
    NoInterface(String),
    /// Something else.
    #[error("{0}")]
    Other(String),
}
