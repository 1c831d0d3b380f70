//! Network interfaces and network namespaces of this machine, over rtnetlink.
//!
//! Synchronous and free of threads of its own, except the short-lived ones on which
//! [`Namespace::enter`] runs its closure. Nothing here keeps state about interfaces: a caller
//! opens a [`LinkMonitor`], then lists with [`LinkSocket::list`], then applies the monitor's
//! events; events that were already part of the list repeat it and change nothing.

mod error;
mod link;
mod namespace;
mod socket;
mod suggest;

pub use error::Error;
pub use link::{Link, LinkStats};
pub use namespace::{Changes, MAX_NAMESPACES, Namespace, NamespaceId, Namespaces, in_namespace};
pub use socket::{LinkEvent, LinkMonitor, LinkSocket, check_error, messages};
pub use suggest::nearest_names;
