//! Answers queries: puts together what there is to ask.

use crate::flow_acls::FlowAcls;
use skua_ovsdb::AclFinder;
use skua_process::host::unix_ms;
use skua_query::{
    AclSource, Answer, Limits, Prepared, QueryError, Sources, check::Kind, syntax::SyntaxLimits,
};
use skua_sources::{
    Always, Captured, FlowPast, FlowSet, Flows, KnownSockets, PcapFilters, Querier,
};
use skua_state::{Shared, captures::CaptureSets};
use skua_topology::{Lookup, SharedGraph, Value};
use std::{
    collections::HashSet,
    ops::ControlFlow,
    sync::{Arc, atomic::AtomicBool},
};

use skua_fleet::analyzer::Fleet;

/// Everything that queries are asked of.
#[derive(Clone)]
pub struct QueryEngine {
    /// The graph.
    pub graph: SharedGraph,
    shared: Shared,
    captures: CaptureSets,
    /// Those of agents.
    fleet: Option<Fleet>,
    past: Option<Arc<dyn FlowPast>>,
    on_demand: bool,
    acls: Option<Arc<AclFinder>>,
}

/// `TID`s of nodes that a capture runs on.
fn captured_nodes(graph: &SharedGraph) -> HashSet<Box<str>> {
    let mut found = HashSet::new();
    let graph = graph.read();
    let _ = graph.scan_nodes(graph.now(), Lookup::All, 0, usize::MAX, &mut |node, _| {
        let captures = node.metadata.get("Captures");
        let active = Value::from("active");
        let runs = captures.is_some_and(|list| list.at("State", &mut |state| *state == active));
        if let Some(tid) = node.metadata.get("TID").filter(|_| runs) {
            found.extend(tid.as_str().map(Box::from));
        }
        ControlFlow::Continue(())
    });
    found
}

impl QueryEngine {
    /// Of a graph and what is captured.
    pub fn new(
        graph: SharedGraph,
        shared: Shared,
        captures: CaptureSets,
        past: Option<Arc<dyn FlowPast>>,
    ) -> Self {
        Self {
            graph,
            shared,
            captures,
            fleet: None,
            past,
            on_demand: false,
            acls: None,
        }
    }

    /// Flows of captures only, not of what is always watched.
    pub fn on_demand(mut self, on_demand: bool) -> Self {
        self.on_demand = on_demand;
        self
    }

    /// Also which ACLs of OVN decide about flows.
    pub fn with_acls(mut self, acls: Option<Arc<AclFinder>>) -> Self {
        self.acls = acls;
        self
    }

    /// Also of what agents capture.
    pub fn with_fleet(mut self, fleet: Option<Fleet>) -> Self {
        self.fleet = fleet;
        self
    }

    /// The flows of all captures, as they are, each with the state that they are in.
    pub fn flow_states(&self) -> Vec<(Shared, Arc<dyn FlowSet>)> {
        let always: Arc<dyn FlowSet> = Arc::new(Always(self.shared.clone()));
        let mut sets = vec![(self.shared.clone(), always)];
        for set in self.captures.all() {
            let shared = set.shared.clone();
            let always = self.shared.clone();
            sets.push((shared, Arc::new(Captured { set, always })));
        }
        sets
    }

    /// Answers a query that is about the graph alone, and so needs no drain.
    pub fn ask_graph(&self, query: &str, cancel: &AtomicBool) -> Result<Answer, QueryError> {
        let sources = Sources {
            graph: &self.graph,
            flows: None,
            sockets: None,
            filters: None,
            acls: None,
        };
        let prepared = Prepared::new(query, &SyntaxLimits::default(), &sources, unix_ms())?;
        prepared.run(sources, Limits::default(), cancel)
    }

    /// Answers a query, or explains how it would be.
    pub fn ask<T>(
        &self,
        query: &str,
        limits: Limits,
        cancel: &AtomicBool,
        answer: impl FnOnce(&Prepared, Option<Answer>) -> Result<T, QueryError>,
        explain: bool,
    ) -> Result<T, QueryError> {
        let states = self.flow_states();
        let mut sets: Vec<_> = states.iter().map(|(_, set)| set.clone()).collect();
        // Those are as new as the agents' drains.
        sets.extend(self.fleet.iter().flat_map(Fleet::flow_sets));
        let now = unix_ms();
        // The set of what is always watched here is no capture.
        let captured = match sets.len() {
            ..=1 => HashSet::new(),
            _ => captured_nodes(&self.graph),
        };
        let flows = Flows::new(sets, self.past.clone(), now)
            .captured_on(captured)
            .on_demand(self.on_demand);
        let sockets = KnownSockets::new(self.shared.clone());
        let acls = self.acls.as_deref().map(FlowAcls::new);
        let sources = Sources {
            graph: &self.graph,
            flows: Some(&flows),
            sockets: Some(&sockets),
            filters: Some(&PcapFilters),
            acls: acls.as_ref().map(|acls| acls as &dyn AclSource),
        };
        let prepared = Prepared::new(query, &SyntaxLimits::default(), &sources, now)?;
        let found = if explain {
            None
        } else {
            // A drain wakes probes: only for a query that is right and about what a drain changes.
            if prepared.plan.touches(Kind::Flows) {
                for (shared, _) in &states {
                    drop(shared.fresh());
                    shared.find_nodes();
                }
            } else if prepared.plan.touches(Kind::Sockets) {
                drop(self.shared.fresh());
            }
            Some(prepared.run(sources, limits, cancel)?)
        };
        answer(&prepared, found)
    }
}

impl Querier for QueryEngine {
    fn ask(&self, query: &str, limits: Limits, cancel: &AtomicBool) -> Result<Answer, String> {
        let found = |_: &Prepared, found: Option<Answer>| Ok(found);
        let found = self.ask(query, limits, cancel, found, false);
        let found = found.map_err(|error| error.render(query))?;
        found.ok_or_else(|| "no answer".to_owned())
    }
}
