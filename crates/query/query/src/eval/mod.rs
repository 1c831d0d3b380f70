//! Carrying out a plan, within bounds.

mod flows;
mod graph;
mod metrics;
mod nexthop;
mod owners;
mod path;
mod scan;
mod sockets;
mod subgraph;
mod values;

use crate::{
    check::{Action, Checked},
    error::{Class, QueryError, Span},
    plan::{Op, Plan},
    record::FlowRecord,
    source::{FlowTime, GraphSource, RawPacket, SourceError, Sources, When},
};
use hashbrown::HashMap;
use skua_topology::{Edge, Export, Node, Value, Window};
use std::{
    cell::Cell,
    ops::ControlFlow,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};
pub(crate) use subgraph::SubGraph;

/// Limits of a query.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Time to answer.
    pub time: Duration,
    /// Elements in memory at once.
    pub elements: usize,
    /// Elements of the answer.
    pub results: usize,
    /// Bytes of memory of the flows, metrics, sockets and packets that are made for the query.
    pub bytes: usize,
}

impl Default for Limits {
    /// Five seconds, a million elements, 200,000 in the answer, 64 MiB.
    fn default() -> Self {
        Self {
            time: Duration::from_secs(5),
            elements: 1_000_000,
            results: 200_000,
            bytes: 64 << 20,
        }
    }
}

/// An element with the part of the window in which it was so.
#[derive(Clone, Debug)]
pub(crate) struct Observed<T> {
    pub item: Arc<T>,
    pub window: Window,
}

/// What belongs to a node or flow, by its identifier.
pub type ById<T> = Vec<(Arc<str>, T)>;

/// A flow in memory.
pub type Flow = Arc<dyn FlowRecord>;

/// What a query yields.
#[derive(Clone)]
pub enum Answer {
    /// A graph.
    Graph(Export),
    /// Nodes.
    Nodes(Vec<Arc<Node>>),
    /// Edges.
    Edges(Vec<Arc<Edge>>),
    /// Paths.
    Paths(Vec<Vec<Arc<Node>>>),
    /// Values.
    Values(Vec<Value>),
    /// One value.
    Value(Value),
    /// Flows.
    Flows(Vec<Flow>),
    /// Metrics, each a map with `Start`, `Last` and counters.
    Metrics(ById<Vec<Value>>),
    /// Packets.
    Packets(ById<Vec<RawPacket>>),
    /// Sockets, or hops of a path, each a map.
    Sockets(ById<Vec<Value>>),
    /// Flows by the text of the key.
    Groups(ById<Vec<Flow>>),
    /// Next hops, each a map.
    NextHops(ById<Value>),
}

impl std::fmt::Debug for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        crate::output::json(self).fmt(f)
    }
}

impl Answer {
    /// How many there are.
    pub fn len(&self) -> usize {
        match self {
            Self::Graph(graph) => graph.nodes.len() + graph.edges.len(),
            Self::Nodes(nodes) => nodes.len(),
            Self::Edges(edges) => edges.len(),
            Self::Paths(paths) => paths.iter().map(Vec::len).sum(),
            Self::Values(values) => values.len(),
            Self::Value(_) => 1,
            Self::Flows(flows) => flows.len(),
            Self::Metrics(lists) | Self::Sockets(lists) => lists.iter().map(|(_, l)| l.len()).sum(),
            Self::Packets(lists) => lists.iter().map(|(_, list)| list.len()).sum(),
            Self::Groups(lists) => lists.iter().map(|(_, list)| list.len()).sum(),
            Self::NextHops(hops) => hops.len(),
        }
    }

    /// Whether the result is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What a step leaves for the next.
pub(crate) enum Stage {
    Graph,
    Nodes(Vec<Observed<Node>>),
    Edges(Vec<Observed<Edge>>),
    Paths(Vec<Vec<Observed<Node>>>),
    Values(Vec<Value>),
    Value(Value),
    Flows(Vec<Flow>),
    Metrics(ById<Vec<Value>>),
    Packets(ById<Vec<RawPacket>>),
    Sockets(ById<Vec<Value>>),
    Groups(ById<Vec<Flow>>),
    NextHops(ById<Value>),
}

/// Counts the work of a query, and ends it at its limits.
pub(crate) struct Budget<'a> {
    limits: Limits,
    cancel: &'a AtomicBool,
    end: Instant,
    work: Cell<u32>,
    error: Cell<Option<(Class, &'static str)>>,
}

impl Budget<'_> {
    /// One piece of work more.
    pub fn spend(&self) -> ControlFlow<()> {
        let work = self.work.get().wrapping_add(1);
        self.work.set(work);
        // Reading the clock costs more than most units of work.
        if work.is_multiple_of(256) {
            self.check_time()
        } else {
            ControlFlow::Continue(())
        }
    }

    fn check_time(&self) -> ControlFlow<()> {
        if self.cancel.load(Ordering::Relaxed) {
            return self.fail(Class::Cancelled, "cancelled");
        }
        if Instant::now() >= self.end {
            return self.fail(Class::Limit, "time");
        }
        ControlFlow::Continue(())
    }

    fn fail(&self, class: Class, what: &'static str) -> ControlFlow<()> {
        self.error.set(Some((class, what)));
        ControlFlow::Break(())
    }

    /// Allows one more element besides `held`.
    pub fn hold(&self, held: usize) -> ControlFlow<()> {
        if held >= self.limits.elements {
            return self.fail(Class::Limit, "elements");
        }
        self.spend()
    }

    /// Allows this many bytes in total.
    pub fn hold_bytes(&self, held: usize) -> ControlFlow<()> {
        if held > self.limits.bytes {
            return self.fail(Class::Limit, "bytes");
        }
        ControlFlow::Continue(())
    }

    /// The error that ended the work, if one did.
    pub fn check(&self) -> Result<(), QueryError> {
        let Some((class, what)) = self.error.get() else {
            return Ok(());
        };
        let limits = &self.limits;
        Err(match what {
            "time" => {
                let message = format!("the query takes longer than {:?}", limits.time);
                QueryError::new(class, message)
                    .help("a key with an index, Limit or a shorter span make it faster")
            }
            "elements" => {
                let message = format!("a step yields more than {} elements", limits.elements);
                QueryError::new(class, message)
                    .help("Has, Dedup or Limit before it keep it smaller")
            }
            "bytes" => {
                let message = format!("a step needs more than {} MiB", limits.bytes >> 20);
                QueryError::new(class, message)
                    .help("Has, Dedup or Limit before it keep it smaller")
            }
            _ => QueryError::new(class, "the query was cancelled"),
        })
    }
}

/// A query while it runs.
pub(crate) struct Run<'a> {
    pub sources: Sources<'a>,
    pub budget: Budget<'a>,
    /// The graph that steps traverse: the source's, or one that SubGraph made.
    pub own: Option<Arc<SubGraph>>,
    /// The moment or time of the graph. Flows may be there of times of which the graph is not: then the error is for the
    /// first step that needs the graph.
    window: Done<Window>,
    pub flow_time: FlowTime,
    marks: HashMap<Arc<str>, Vec<Observed<Node>>>,
}

pub(crate) type Done<T> = Result<T, QueryError>;

impl From<SourceError> for QueryError {
    fn from(error: SourceError) -> Self {
        Self::new(Class::Unavailable, error.0)
    }
}

/// Carries out `plan`; `cancel` ends it when it becomes true.
pub fn execute(
    plan: &Plan,
    sources: Sources<'_>,
    limits: Limits,
    cancel: &AtomicBool,
) -> Result<Answer, QueryError> {
    let window = sources.graph.window(When::Now)?;
    let mut run = Run {
        sources,
        budget: Budget {
            limits,
            cancel,
            end: Instant::now() + limits.time,
            work: Cell::new(0),
            error: Cell::new(None),
        },
        own: None,
        window: Ok(window),
        flow_time: None,
        marks: HashMap::new(),
    };
    let mut stage = Stage::Graph;
    for op in &plan.ops {
        let span = match op {
            Op::Scan(scan) => scan.span,
            Op::Single(step) => step.span,
        };
        stage = run.op(op, stage).map_err(|error| error.located(span))?;
    }
    run.answer(stage)
}

impl Run<'_> {
    /// The moment or time of the graph.
    pub fn window(&self) -> Done<Window> {
        self.window.clone()
    }

    pub fn graph(&self) -> &dyn GraphSource {
        match &self.own {
            Some(own) => &**own,
            None => self.sources.graph,
        }
    }

    fn op(&mut self, op: &Op, stage: Stage) -> Done<Stage> {
        let _ = self.budget.check_time();
        self.budget.check()?;
        let stage = match op {
            Op::Scan(scan) => self.scan(scan, stage)?,
            Op::Single(step) => self.single(step, stage)?,
        };
        self.budget.check()?;
        Ok(stage)
    }

    fn single(&mut self, step: &Checked, stage: Stage) -> Done<Stage> {
        match (&step.action, stage) {
            (Action::Graph, _) => {
                self.own = None;
                Ok(Stage::Graph)
            }
            (Action::At(when), stage) => {
                self.travel(*when, step.span)?;
                Ok(stage)
            }
            (Action::As(name), Stage::Nodes(nodes)) => {
                self.marks.insert(name.clone(), nodes.clone());
                Ok(Stage::Nodes(nodes))
            }
            (Action::Select(names), Stage::Nodes(_)) => self.select(names),
            (action, Stage::Nodes(nodes)) => self.on_nodes(action, nodes),
            (action, Stage::Edges(edges)) => self.on_edges(action, edges),
            (action, Stage::Paths(paths)) => self.on_paths(action, paths),
            (action, Stage::Flows(flows)) => self.on_flows(action, flows),
            (action, Stage::Values(values)) => self.on_values(action, values),
            (action, Stage::Metrics(metrics)) => self.on_metrics(action, metrics),
            (action, Stage::Sockets(sockets)) => self.on_sockets(action, sockets),
            (action, Stage::Packets(packets)) => self.on_packets(action, packets),
            (action, Stage::Groups(groups)) => Self::on_groups(action, groups),
            _ => Err(Self::misfit()),
        }
    }

    /// The check of the query allows no such thing.
    fn misfit() -> QueryError {
        QueryError::new(Class::Query, "this step does not fit here")
    }

    fn travel(&mut self, when: When, span: Span) -> Done<()> {
        if self.own.is_some() {
            return Err(QueryError::new(
                Class::Query,
                "At does not work on a graph that SubGraph made",
            )
            .help("go to the time first, as in G.At(\"-5m\").V().SubGraph()"));
        }
        let window = self.sources.graph.window(when);
        self.window = window.map_err(|error| QueryError::from(error).located(span));
        self.flow_time = match when {
            When::Now => None,
            When::At(time) => Some((time, time)),
            When::Between(end, Some(duration)) => Some((end.saturating_sub(duration), end)),
            When::Between(end, None) => Some((i64::MIN, end)),
        };
        Ok(())
    }

    fn select(&self, names: &[Arc<str>]) -> Done<Stage> {
        let mut nodes = Vec::new();
        for node in names
            .iter()
            .filter_map(|name| self.marks.get(name))
            .flatten()
        {
            if self.budget.hold(nodes.len()).is_break() {
                break;
            }
            nodes.push(node.clone());
        }
        Ok(Stage::Nodes(nodes))
    }

    fn answer(self, stage: Stage) -> Result<Answer, QueryError> {
        fn items<T>(seen: Vec<Observed<T>>) -> Vec<Arc<T>> {
            seen.into_iter().map(|seen| seen.item).collect()
        }
        let answer = match stage {
            Stage::Graph => self.export()?,
            Stage::Nodes(nodes) => Answer::Nodes(items(nodes)),
            Stage::Edges(edges) => Answer::Edges(items(edges)),
            Stage::Paths(paths) => Answer::Paths(paths.into_iter().map(items).collect()),
            Stage::Values(values) => Answer::Values(values),
            Stage::Value(value) => Answer::Value(value),
            Stage::Flows(flows) => Answer::Flows(flows),
            Stage::Metrics(metrics) => Answer::Metrics(metrics),
            Stage::Packets(packets) => Answer::Packets(packets),
            Stage::Sockets(sockets) => Answer::Sockets(sockets),
            Stage::Groups(groups) => Answer::Groups(groups),
            Stage::NextHops(hops) => Answer::NextHops(hops),
        };
        self.budget.check()?;
        let most = self.budget.limits.results;
        if answer.len() > most {
            let message = format!(
                "the answer has {} elements; {most} are allowed",
                answer.len()
            );
            return Err(QueryError::new(Class::Limit, message)
                .help("end with Limit, or with Count to know only how many"));
        }
        Ok(answer)
    }
}

/// An error about something that a source does not have.
pub(crate) fn unavailable(what: &str) -> QueryError {
    QueryError::new(Class::Unavailable, what)
}
