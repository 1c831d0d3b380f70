//! What is known of a watched host, in memory: its flows and where they were captured, its sockets and their owners, what
//! was counted. One lock covers what a probe fills; what is read is copied under it a page at a time.

pub mod captures;
pub mod copies;
mod drain_lock;
pub mod filter;
mod place;
pub mod sockets;
mod state;

pub use drain_lock::{DrainGuard, ReadGuard};
pub use place::{FlowPlace, interface_at};
pub use state::{Counts, DrainWait, DrainWaits, Observer, Observers, Shared, State};
