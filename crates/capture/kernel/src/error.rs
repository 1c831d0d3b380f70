//! Errors of this crate.

use std::{io, path::PathBuf};

/// What the kernel refused.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// An object could not be opened or a map or program in it not be loaded.
    #[error("cannot load {object}: {reason}")]
    Load {
        /// Name of the object.
        object: &'static str,
        /// The kernel's or libbpf's reason, one line.
        reason: String,
    },
    /// A program could not be attached.
    #[error("cannot attach to interface {ifindex} by {hook}: {source}")]
    Attach {
        /// Interface index.
        ifindex: u32,
        /// The hook.
        hook: &'static str,
        /// The kernel's reason.
        source: io::Error,
    },
    /// A system call failed.
    #[error("{what}: {source}")]
    System {
        /// What was attempted.
        what: &'static str,
        /// The kernel's reason.
        source: io::Error,
    },
    /// A file has no types of a kernel.
    #[error("no types of a kernel in {}: {reason}", path.display())]
    Types {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The kernel was built without types and no file has them.
    #[error("types of the kernel: {0}")]
    NoTypes(String),
    /// No rung works here.
    #[error("{0}")]
    NoRung(String),
    /// The filter expression is wrong.
    #[error(transparent)]
    Filter(#[from] skua_filter::FilterError),
    /// The filter expression cannot run in the kernel.
    #[error(transparent)]
    Translate(#[from] skua_filter::TranslateError),
    /// Loading more programs would endanger the kernel.
    #[error(
        "{requested} more programs in the kernel would be too many: {loaded} of at most {most} are loaded \
         (docs/kernels.md says why there is a limit)"
    )]
    TooManyPrograms {
        /// Programs that were to be loaded.
        requested: u32,
        /// Those that are.
        loaded: u32,
        /// At most.
        most: u32,
    },
    /// A map or program is missing in an object: the build is damaged.
    #[error("{0} is missing in the kernel object; this build is damaged")]
    Missing(&'static str),
}

impl KernelError {
    pub(crate) fn last(what: &'static str) -> Self {
        Self::System {
            what,
            source: io::Error::last_os_error(),
        }
    }
}
