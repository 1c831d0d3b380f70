//! A graph that several threads use.

use crate::{Config, Graph};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// A graph behind a lock. A long reader locks it for a part at a time ([`Graph::scan_nodes`]): a
/// [`crate::Window`] shows the same state all along.
#[derive(Clone)]
pub struct SharedGraph(Arc<RwLock<Graph>>);

impl SharedGraph {
    /// An empty graph.
    pub fn new(config: Config) -> Self {
        Self::from(Graph::new(config))
    }

    /// Locks the graph for reading.
    pub fn read(&self) -> RwLockReadGuard<'_, Graph> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// To change it.
    pub fn write(&self) -> RwLockWriteGuard<'_, Graph> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl From<Graph> for SharedGraph {
    fn from(graph: Graph) -> Self {
        Self(Arc::new(RwLock::new(graph)))
    }
}
