//! The graph of everything a host is wired with: nodes and edges with free metadata, now and in the
//! past.
//!
//! [`Graph`] takes changes and publishes them to [`Subscription`]s as [`Event`]s. A [`Window`] is a moment
//! or a span of its history; everything is read through one. Nothing here touches a disk: to keep the
//! graph, subscribe, write the events down, and at the start give them to [`Graph::replay`], after
//! [`Graph::restore`] if there is a kept state.

mod adjacency;
mod element;
mod event;
mod graph;
mod index;
mod postings;
mod read;
mod shared;
mod table;
mod value;
mod window;

pub use adjacency::Direction;
pub use element::{Edge, Element, Node};
pub use event::{Change, Closer, Delivery, Event, Subscription};
pub use graph::{Config, Export, Graph, GraphError, HistoryLimits, Patch, Stats};
pub use index::IndexKey;
pub use read::{Lookup, Scan, Visit};
pub use shared::SharedGraph;
pub use value::{Map, Value};
pub use window::Window;

#[cfg(test)]
mod tests;
