//! What is said in conversations: parsers of application protocols, fed with the heads of packets.
//!
//! Nothing here reads or writes: packets and times are arguments, records come out. Each protocol has a folder, and its
//! parser the same shape: the bytes of one direction go in, cut at any place; events come out; what it remembers has a
//! bound. A protocol is found by what is said, not by port.

mod connections;
pub mod dns;
pub mod eve;
mod log;
pub mod names;
mod stream;
mod watcher;

pub use log::{LATENCY_BOUNDS, Log, Sums};
pub use names::Names;
pub use stream::Stream;
pub use watcher::{Config, Event, Stats, Watcher};
