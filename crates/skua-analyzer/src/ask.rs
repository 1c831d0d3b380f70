//! Asking the graph, and what else there is, from the inside.

use crate::filters::PcapFilters;
use skua_query::{Answer, Limits, Prepared, Sources, syntax::SyntaxLimits};
use skua_topology::{Node, SharedGraph};
use std::{
    sync::{Arc, atomic::AtomicBool},
    time::{SystemTime, UNIX_EPOCH},
};

/// Somebody who answers queries.
pub trait Questions: Send + Sync {
    /// Answers a query within limits; the error says where in the query what is wrong.
    fn ask(&self, query: &str, limits: Limits, cancel: &AtomicBool) -> Result<Answer, String>;
}

impl Questions for SharedGraph {
    /// Of the graph alone: flows cannot be asked for.
    fn ask(&self, query: &str, limits: Limits, cancel: &AtomicBool) -> Result<Answer, String> {
        let sources = Sources {
            filters: Some(&PcapFilters),
            ..Sources::graph(self)
        };
        let told = |error: skua_query::QueryError| error.render(query);
        let prepared =
            Prepared::new(query, &SyntaxLimits::default(), &sources, unix_ms()).map_err(told)?;
        prepared.run(sources, limits, cancel).map_err(told)
    }
}

/// Now, ms since the Unix epoch.
pub(crate) fn unix_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as i64)
}

/// The nodes that a query finds.
pub(crate) fn nodes(graph: &SharedGraph, query: &str) -> Result<Vec<Arc<Node>>, String> {
    match graph.ask(query, Limits::default(), &AtomicBool::new(false))? {
        Answer::Nodes(nodes) => Ok(nodes),
        Answer::Paths(paths) => Ok(paths.into_iter().flatten().collect()),
        _ => Err(format!("`{query}` yields no nodes")),
    }
}

/// Whether a query can be read, and yields nodes as far as that can be seen.
pub(crate) fn check_nodes(query: &str) -> Result<(), String> {
    let empty = SharedGraph::new(skua_topology::Config::default());
    nodes(&empty, query).map(drop)
}
