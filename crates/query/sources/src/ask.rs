//! Queries that Skua itself asks: those of captures, taps, alerts and rules.

use crate::filters::PcapFilters;
use skua_query::{
    Answer, Limits, Prepared, Sources,
    check::{Kind, check},
    syntax::{SyntaxLimits, parse},
};
use skua_topology::{Node, SharedGraph};
use std::{
    sync::{Arc, atomic::AtomicBool},
    time::{SystemTime, UNIX_EPOCH},
};

/// Answers queries.
pub trait Querier: Send + Sync {
    /// Answers a query within limits; the error says where in the query what is wrong.
    fn ask(&self, query: &str, limits: Limits, cancel: &AtomicBool) -> Result<Answer, String>;
}

impl Querier for SharedGraph {
    /// Of the graph alone: flows cannot be asked for.
    fn ask(&self, query: &str, limits: Limits, cancel: &AtomicBool) -> Result<Answer, String> {
        let sources = Sources {
            filters: Some(&PcapFilters),
            ..Sources::graph(self)
        };
        let rendered = |error: skua_query::QueryError| error.render(query);
        let prepared = Prepared::new(query, &SyntaxLimits::default(), &sources, unix_ms())
            .map_err(rendered)?;
        prepared.run(sources, limits, cancel).map_err(rendered)
    }
}

/// Now, ms since the Unix epoch.
pub fn unix_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as i64)
}

/// The nodes that a query finds.
pub fn nodes(graph: &SharedGraph, query: &str) -> Result<Vec<Arc<Node>>, String> {
    match graph.ask(query, Limits::default(), &AtomicBool::new(false))? {
        Answer::Nodes(nodes) => Ok(nodes),
        Answer::Paths(paths) => Ok(paths.into_iter().flatten().collect()),
        _ => Err(format!("`{query}` yields no nodes")),
    }
}

/// What a query yields, if it can be read. What it finds now does not matter.
pub fn kind(query: &str) -> Result<Kind, String> {
    let checked = parse(query, &SyntaxLimits::default())
        .and_then(|parsed| check(&parsed, unix_ms()))
        .map_err(|error| error.render(query))?;
    Ok(checked.last().map_or(Kind::Graph, |step| step.output))
}

/// What is wrong with a query that is to find nodes.
pub fn check_nodes(query: &str) -> Result<(), String> {
    match kind(query)? {
        Kind::Nodes | Kind::Paths => Ok(()),
        _ => Err(format!("`{query}` yields no nodes")),
    }
}
