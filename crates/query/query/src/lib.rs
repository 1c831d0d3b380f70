//! Skydive's Gremlin dialect: one language for the graph and its flows, now and in the past.
//!
//! [`Prepared::new`] parses and checks a query and makes a plan; [`Prepared::run`] executes it over
//! [`Sources`], within [`Limits`]; [`output`] writes the [`Answer`]. Errors have the position in the
//! query and a valid alternative ([`QueryError::render`]).

pub mod check;
mod error;
mod eval;
pub mod filter;
pub mod memory;
pub mod output;
pub mod plan;
mod record;
mod source;
pub mod syntax;
mod time;

pub use error::{Class, QueryError, Span};
pub use eval::{Answer, ById, Flow, Limits, execute};
pub use record::{FLOW_KEYS, FlowRecord, Leaf, Record, SharedTexts};
pub use source::{
    AclSource, FlowLookup, FlowSource, FlowTime, GraphSource, PacketFilters, PacketTest, RawPacket,
    SocketSource, SourceError, Sources, When,
};

use plan::Plan;
use std::sync::atomic::AtomicBool;
use syntax::{Query, SyntaxLimits};

/// A query that can be carried out.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// As it was read.
    pub query: Query,
    /// How it will be carried out.
    pub plan: Plan,
}

impl Prepared {
    /// Reads, checks and plans a query. Relative times count from `now`, ms since the Unix epoch.
    pub fn new(
        text: &str,
        limits: &SyntaxLimits,
        sources: &Sources<'_>,
        now: i64,
    ) -> Result<Self, QueryError> {
        let query = syntax::parse(text, limits)?;
        let plan = plan::plan(&check::check(&query, now)?, sources);
        Ok(Self { query, plan })
    }

    /// Carries it out; when `cancel` becomes true it ends with an error.
    pub fn run(
        &self,
        sources: Sources<'_>,
        limits: Limits,
        cancel: &AtomicBool,
    ) -> Result<Answer, QueryError> {
        eval::execute(&self.plan, sources, limits, cancel)
    }
}

/// Answers a query with the usual limits.
pub fn query(text: &str, sources: Sources<'_>, now: i64) -> Result<Answer, QueryError> {
    let prepared = Prepared::new(text, &SyntaxLimits::default(), &sources, now)?;
    prepared.run(sources, Limits::default(), &AtomicBool::new(false))
}
