//! Which step fits on what, and what its arguments mean.

use crate::{
    error::{Class, QueryError, Span, nearest},
    filter::{Filter, Literal, Number, Term, Test},
    source::When,
    syntax::{Arg, ArgKind, PredicateName, Query, Step, StepName, Word},
    time,
};
use ipnet::IpNet;
use regex::RegexBuilder;
use skua_topology::{Direction, Edge, Value};
use std::{net::IpAddr, sync::Arc};

/// What a step yields.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The graph.
    Graph,
    /// Nodes.
    Nodes,
    /// Edges.
    Edges,
    /// Paths of nodes.
    Paths,
    /// A list of values.
    Values,
    /// One value.
    Value,
    /// Flows.
    Flows,
    /// Metrics by node or flow.
    Metrics,
    /// Packets by flow.
    Packets,
    /// Sockets by node or flow.
    Sockets,
    /// Groups of flows.
    Groups,
    /// Next hops by node.
    NextHops,
}

impl Kind {
    /// For messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Graph => "the graph",
            Self::Nodes => "nodes",
            Self::Edges => "edges",
            Self::Paths => "paths",
            Self::Values => "values",
            Self::Value => "a single value",
            Self::Flows => "flows",
            Self::Metrics => "metrics",
            Self::Packets => "packets",
            Self::Sockets => "sockets",
            Self::Groups => "groups of flows",
            Self::NextHops => "next hops",
        }
    }

    /// Which steps fit, in a sentence.
    pub(crate) fn advice(self) -> String {
        let fitting: Vec<&str> = StepName::ALL
            .iter()
            .filter(|name| self.after(**name).is_some())
            .map(|name| name.name())
            .collect();
        if fitting.is_empty() {
            format!("nothing can follow {}", self.name())
        } else {
            format!("on {} work: {}", self.name(), fitting.join(", "))
        }
    }

    /// What `step` yields on this, none when it does not fit.
    pub fn after(self, step: StepName) -> Option<Self> {
        use StepName as S;
        Some(match (self, step) {
            (Self::Graph, S::V) => Self::Nodes,
            (Self::Graph, S::E) => Self::Edges,
            (Self::Graph, S::At) => Self::Graph,
            (Self::Graph | Self::Nodes | Self::Paths, S::Flows) => Self::Flows,
            (Self::Graph | Self::Nodes | Self::Edges, S::G) => Self::Graph,

            (
                Self::Nodes | Self::Edges | Self::Values | Self::Flows | Self::Sockets,
                S::Has | S::HasEither | S::HasKey | S::HasNot | S::Dedup | S::Sort,
            ) => self,
            (
                Self::Nodes
                | Self::Edges
                | Self::Paths
                | Self::Values
                | Self::Flows
                | Self::Sockets
                | Self::Metrics
                | Self::Packets
                | Self::Groups,
                S::Limit | S::Range,
            ) => self,
            (Self::Graph | Self::Value | Self::NextHops, S::Count) => return None,
            (_, S::Count) => Self::Value,
            (
                Self::Nodes | Self::Edges | Self::Flows | Self::Sockets,
                S::Values | S::ValueMap | S::Keys,
            ) => Self::Values,
            (Self::Metrics, S::Keys) => Self::Values,
            (
                Self::Nodes
                | Self::Edges
                | Self::Flows
                | Self::Values
                | Self::Sockets
                | Self::Metrics,
                S::Sum,
            ) => Self::Value,

            (Self::Nodes | Self::Flows, S::Out | S::In | S::Both) => Self::Nodes,
            (Self::Nodes, S::OutE | S::InE | S::BothE) => Self::Edges,
            (Self::Edges, S::OutV | S::InV | S::BothV) => Self::Nodes,
            (Self::Nodes, S::As | S::Select) => Self::Nodes,
            (Self::Nodes, S::Descendants | S::Ascendants | S::Neighbors) => Self::Nodes,
            (Self::Nodes, S::ShortestPathTo) => Self::Paths,
            (Self::Nodes, S::NextHop) => Self::NextHops,
            (Self::Nodes | Self::Edges | Self::Paths, S::SubGraph) => Self::Graph,
            (Self::Paths, S::Dedup) => Self::Nodes,

            (Self::Flows, S::Nodes | S::CaptureNode | S::Hops) => Self::Nodes,
            (Self::Nodes | Self::Flows, S::Metrics) => Self::Metrics,
            (Self::Nodes | Self::Flows, S::Sockets) => Self::Sockets,
            (Self::Flows, S::Path | S::Acls) => Self::Sockets,
            (Self::Flows, S::RawPackets) => Self::Packets,
            (Self::Flows, S::Group) => Self::Groups,
            (Self::Groups, S::MoreThan) => Self::Groups,
            (Self::Packets, S::Bpf) => Self::Packets,
            (Self::Metrics, S::Aggregates) => Self::Metrics,
            _ => return None,
        })
    }
}

/// Which nodes of flows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlowEnd {
    /// Where they were captured.
    Capture,
    /// That of side A.
    A,
    /// That of side B.
    B,
    /// Those of both sides.
    Both,
    /// Where they were captured, and those of both sides.
    All,
}

/// Order of sorting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// From the least on.
    Ascending,
    /// From the greatest on.
    Descending,
}

/// A step with its arguments understood.
#[derive(Clone, Debug)]
pub enum Action {
    /// Back to the graph.
    Graph,
    /// To a moment or span.
    At(When),
    /// All nodes or one.
    V(Option<Arc<str>>),
    /// All edges or one.
    E(Option<Arc<str>>),
    /// Keep what passes.
    Keep(Filter),
    /// To neighbours that pass.
    Step(Direction, Filter),
    /// To edges that pass.
    StepEdges(Direction, Filter),
    /// To those ends of edges that pass: `Out` the children, `In` the parents.
    Ends(Direction, Filter),
    /// Removes duplicates.
    Dedup(Vec<Arc<str>>),
    /// How many.
    Count,
    /// From one position up to before another.
    Range(usize, usize),
    /// By a key.
    Sort(Order, Option<Arc<str>>),
    /// Values of a key.
    Values(Arc<str>),
    /// Values of keys.
    ValueMap(Vec<Arc<str>>),
    /// All keys.
    Keys,
    /// Sum of a key, or of all.
    Sum(Option<Arc<str>>),
    /// Shortest path to a node over edges.
    Path(Filter, Filter),
    /// A graph of its own; of nodes with the edges that pass.
    SubGraph(Filter),
    /// Remember.
    As(Arc<str>),
    /// Selects elements remembered by `As`.
    Select(Vec<Arc<str>>),
    /// Flows that pass.
    Flows(Filter),
    /// Nodes of flows that pass.
    FlowNodes(FlowEnd, Filter),
    /// Metrics under a key.
    Metrics(Option<Arc<str>>),
    /// Slices of this many ms.
    Aggregates(i64),
    /// Packets.
    RawPackets,
    /// Packets that match.
    Bpf(Arc<str>),
    /// Sockets.
    Sockets,
    /// The ACLs of flows.
    Acls,
    /// The places where flows were captured, in order.
    FlowPath,
    /// By a key.
    Group(Arc<str>),
    /// Groups with more than this many.
    MoreThan(usize),
    /// The next hop of packets to this address.
    NextHop(IpAddr),
    /// The nodes, and others this many steps away over matching edges; none for any number.
    Walk(Direction, Filter, Option<u32>),
}

/// A step that is valid in its position.
#[derive(Clone, Debug)]
pub struct Checked {
    /// What it does.
    pub action: Action,
    /// Its name.
    pub name: StepName,
    /// Its position.
    pub span: Span,
    /// The kind of its input.
    pub input: Kind,
    /// What it yields.
    pub output: Kind,
}

/// Longest key and longest regular expression in bytes.
const MAX_KEY: usize = 256;
const MAX_REGEX: usize = 1_024;
/// Memory of a compiled expression.
const MAX_COMPILED: usize = 256 << 10;

/// Checks a query; `now` (ms since the Unix epoch) is what relative times count from.
pub fn check(query: &Query, now: i64) -> Result<Vec<Checked>, QueryError> {
    let mut kind = Kind::Graph;
    let mut known: Vec<Arc<str>> = Vec::new();
    let mut checked = Vec::with_capacity(query.steps.len());
    for step in &query.steps {
        let output = kind.after(step.name).ok_or_else(|| misfit(kind, step))?;
        let action = Reader { step, kind, now }.action(&mut known)?;
        checked.push(Checked {
            action,
            name: step.name,
            span: step.span,
            input: kind,
            output,
        });
        kind = output;
    }
    Ok(checked)
}

fn misfit(kind: Kind, step: &Step) -> QueryError {
    let name = step.name.name();
    let error = QueryError::at(
        step.span,
        format!("{name} does not work on {}", kind.name()),
    );
    if step.name == StepName::At {
        return error.help("At stands right after G, as in G.At(\"-5m\").V()");
    }
    error.help(kind.advice())
}

/// Reads the arguments of one step.
struct Reader<'a> {
    step: &'a Step,
    kind: Kind,
    now: i64,
}

impl Reader<'_> {
    fn action(&self, known: &mut Vec<Arc<str>>) -> Result<Action, QueryError> {
        use StepName as S;
        let args = &self.step.args[..];
        let direction = match self.step.name {
            S::Out | S::OutE | S::OutV | S::Descendants => Direction::Out,
            S::In | S::InE | S::InV | S::Ascendants => Direction::In,
            _ => Direction::Both,
        };
        Ok(match self.step.name {
            S::G => {
                self.at_most(0)?;
                Action::Graph
            }
            S::V => Action::V(self.optional_text("the ID of a node")?),
            S::E => Action::E(self.optional_text("the ID of an edge")?),
            S::At => Action::At(self.when()?),
            S::Has => {
                self.at_least(1, "a key, as in Has(\"Name\", \"eth0\")")?;
                Action::Keep(self.filter(args, false)?)
            }
            S::HasEither => {
                self.at_least(
                    2,
                    "keys and values, as in HasEither(\"Name\", \"eth0\", \"Name\", \"eth1\")",
                )?;
                Action::Keep(self.filter(args, true)?)
            }
            S::HasKey | S::HasNot => {
                let key = self.one_text("a key")?;
                let absent = self.step.name == S::HasNot;
                let test = if absent { Test::Absent } else { Test::Exists };
                Action::Keep(Filter {
                    any: false,
                    terms: vec![self.term(&key, test)],
                })
            }
            S::Out | S::In | S::Both if self.kind == Kind::Flows => {
                let end = match direction {
                    Direction::Out => FlowEnd::B,
                    Direction::In => FlowEnd::A,
                    Direction::Both => FlowEnd::Both,
                };
                Action::FlowNodes(end, self.element_filter(args)?)
            }
            S::Nodes => Action::FlowNodes(FlowEnd::All, self.element_filter(args)?),
            S::Hops | S::CaptureNode => {
                Action::FlowNodes(FlowEnd::Capture, self.element_filter(args)?)
            }
            S::Out | S::In | S::Both => Action::Step(direction, self.element_filter(args)?),
            S::OutE | S::InE | S::BothE => Action::StepEdges(direction, self.element_filter(args)?),
            S::OutV | S::InV | S::BothV => Action::Ends(direction, self.element_filter(args)?),
            S::Dedup => Action::Dedup(self.texts("keys")?),
            S::Count => {
                self.at_most(0)?;
                Action::Count
            }
            S::Limit => {
                let [most] = self.exactly("a number, as in Limit(10)")?;
                Action::Range(0, self.count(most)?)
            }
            S::Range => {
                let [from, to] = self.exactly("two numbers, as in Range(0, 10)")?;
                Action::Range(self.count(from)?, self.count(to)?)
            }
            S::Sort => self.sort()?,
            S::Values => Action::Values(self.one_text("a key")?),
            S::ValueMap => {
                self.at_least(1, "keys")?;
                Action::ValueMap(self.texts("keys")?)
            }
            S::Keys => {
                self.at_most(0)?;
                Action::Keys
            }
            S::Sum => {
                let key = self.optional_text("a key")?;
                if key.is_none() && !matches!(self.kind, Kind::Metrics | Kind::Values) {
                    self.at_least(1, "a key, as in Sum(\"Metric.ABBytes\")")?;
                }
                Action::Sum(key)
            }
            S::ShortestPathTo => self.path()?,
            S::SubGraph => Action::SubGraph(self.element_filter(args)?),
            S::As => {
                let name = self.one_text("a name")?;
                known.push(name.clone());
                Action::As(name)
            }
            S::Select => self.select(known)?,
            S::Flows => Action::Flows(self.element_filter(args)?),
            S::Metrics => Action::Metrics(self.optional_text("a key")?),
            S::Aggregates => Action::Aggregates(self.slice()?),
            S::RawPackets => {
                self.at_most(0)?;
                Action::RawPackets
            }
            S::Bpf => Action::Bpf(self.one_text("a pcap expression")?),
            S::Sockets => {
                self.at_most(0)?;
                Action::Sockets
            }
            S::Acls => {
                self.at_most(0)?;
                Action::Acls
            }
            S::Path => {
                self.at_most(0)?;
                Action::FlowPath
            }
            S::Group => Action::Group(
                self.optional_text("a key")?
                    .unwrap_or_else(|| "TrackingID".into()),
            ),
            S::MoreThan => {
                self.at_most(1)?;
                Action::MoreThan(args.first().map_or(Ok(1), |arg| self.count(arg))?)
            }
            S::NextHop => {
                let text = self.one_text("an address")?;
                let address = text.parse();
                Action::NextHop(address.map_err(|_| {
                    QueryError::at(args[0].span, format!("{text:?} is no IP address"))
                })?)
            }
            S::Descendants | S::Ascendants | S::Neighbors => self.walk(direction)?,
        })
    }

    fn wrong(&self, arg: &Arg, wanted: &str) -> QueryError {
        let message = format!("{} takes {wanted} here, not {arg}", self.step.name.name());
        QueryError::at(arg.span, message)
    }

    fn at_most(&self, most: usize) -> Result<(), QueryError> {
        match self.step.args.get(most) {
            None => Ok(()),
            Some(extra) => {
                let name = self.step.name.name();
                Err(QueryError::at(
                    extra.span,
                    match most {
                        0 => format!("{name} takes no arguments"),
                        1 => format!("{name} takes one argument at most"),
                        _ => format!("{name} takes {most} arguments at most"),
                    },
                ))
            }
        }
    }

    fn at_least(&self, least: usize, wanted: &str) -> Result<(), QueryError> {
        if self.step.args.len() >= least {
            return Ok(());
        }
        let name = self.step.name.name();
        Err(QueryError::at(
            self.step.whole,
            format!("{name} needs {wanted}"),
        ))
    }

    fn exactly<const N: usize>(&self, wanted: &str) -> Result<[&Arg; N], QueryError> {
        self.at_least(N, wanted)?;
        self.at_most(N)?;
        Ok(std::array::from_fn(|at| &self.step.args[at]))
    }

    fn text(&self, arg: &Arg, wanted: &str) -> Result<Arc<str>, QueryError> {
        match &arg.kind {
            ArgKind::Str(text) if text.len() <= MAX_KEY || wanted.contains("expression") => {
                Ok(text.as_str().into())
            }
            ArgKind::Str(_) => Err(QueryError::at(
                arg.span,
                format!("keys have at most {MAX_KEY} bytes"),
            )),
            ArgKind::Int(number) => Err(self
                .wrong(arg, wanted)
                .help(format!("texts are in quotes: \"{number}\""))),
            _ => Err(self.wrong(arg, wanted)),
        }
    }

    fn one_text(&self, wanted: &str) -> Result<Arc<str>, QueryError> {
        let [arg] = self.exactly(wanted)?;
        self.text(arg, wanted)
    }

    fn optional_text(&self, wanted: &str) -> Result<Option<Arc<str>>, QueryError> {
        self.at_most(1)?;
        self.step
            .args
            .first()
            .map(|arg| self.text(arg, wanted))
            .transpose()
    }

    fn texts(&self, wanted: &str) -> Result<Vec<Arc<str>>, QueryError> {
        self.step
            .args
            .iter()
            .map(|arg| self.text(arg, wanted))
            .collect()
    }

    fn count(&self, arg: &Arg) -> Result<usize, QueryError> {
        let number = match &arg.kind {
            ArgKind::Int(number) => usize::try_from(*number).ok(),
            // As the seed's users write it after MoreThan.
            ArgKind::Str(text) => text.parse().ok(),
            _ => None,
        };
        number.ok_or_else(|| self.wrong(arg, "a whole number from 0 on"))
    }

    fn when(&self) -> Result<When, QueryError> {
        self.at_least(1, "a time, as in At(\"-5m\") or At(NOW, 300)")?;
        self.at_most(2)?;
        let spelled = "times are \"-5m\", \"2024-05-01T12:00:00Z\", \
                       \"Wed, 01 May 2024 12:00:00 GMT\", seconds or ms since 1970, or NOW";
        let arg = &self.step.args[0];
        let no_time = || self.wrong(arg, "a time").help(spelled);
        let end = match &arg.kind {
            ArgKind::Word(Word::Now) => self.now,
            // Seconds pass this only in 2038, ms did in January 1970.
            ArgKind::Int(number) if *number > i64::from(i32::MAX) => *number,
            ArgKind::Int(number) if *number >= 0 => number * 1_000,
            ArgKind::Str(text) => {
                let relative = time::duration(text).map(|ms| self.now.saturating_add(ms));
                relative
                    .or_else(|| time::moment(text))
                    .ok_or_else(no_time)?
            }
            _ => return Err(no_time()),
        };
        let Some(arg) = self.step.args.get(1) else {
            return Ok(When::At(end));
        };
        let no_duration = || {
            self.wrong(arg, "a duration")
                .help("durations are seconds, \"5m\", \"1h30m\" or FOREVER")
        };
        let duration = match &arg.kind {
            ArgKind::Word(Word::Forever) => None,
            ArgKind::Int(seconds) => Some(seconds.saturating_mul(1_000)),
            ArgKind::Str(text) => Some(time::duration(text).ok_or_else(no_duration)?),
            _ => return Err(no_duration()),
        };
        if duration.is_some_and(|duration| duration < 0) {
            return Err(no_duration().help("durations go back by themselves: no sign is needed"));
        }
        Ok(When::Between(end, duration))
    }

    fn sort(&self) -> Result<Action, QueryError> {
        self.at_most(2)?;
        let mut args = self.step.args.iter();
        let mut order = Order::Ascending;
        let mut next = args.next();
        if let Some(Arg {
            kind: ArgKind::Word(word),
            ..
        }) = next
        {
            match word {
                Word::Asc => {}
                Word::Desc => order = Order::Descending,
                _ => return Err(self.wrong(&self.step.args[0], "ASC, DESC or a key")),
            }
            next = args.next();
        }
        let key = next.map(|arg| self.text(arg, "a key")).transpose()?;
        match args.next() {
            Some(extra) => Err(self
                .wrong(extra, "nothing")
                .help("the order comes first: Sort(DESC, \"MTU\")")),
            None => Ok(Action::Sort(order, key)),
        }
    }

    fn slice(&self) -> Result<i64, QueryError> {
        self.at_most(1)?;
        let Some(arg) = self.step.args.first() else {
            return Ok(30_000);
        };
        let ms = match &arg.kind {
            ArgKind::Int(seconds) => seconds.checked_mul(1_000),
            ArgKind::Str(text) => time::duration(text),
            _ => None,
        };
        ms.filter(|ms| *ms > 0)
            .ok_or_else(|| self.wrong(arg, "seconds, more than 0,"))
    }

    fn path(&self) -> Result<Action, QueryError> {
        let wanted = "what the last node has, as in ShortestPathTo(Metadata(\"Name\", \"eth0\"))";
        self.at_least(1, wanted)?;
        self.at_most(2)?;
        let filter = |arg: &Arg| match &arg.kind {
            ArgKind::Call(PredicateName::Metadata, args) => {
                if args.is_empty() || args.len() % 2 == 1 {
                    return Err(QueryError::at(
                        arg.span,
                        "Metadata needs pairs of keys and values",
                    ));
                }
                self.element_filter(args)
            }
            _ => Err(self.wrong(arg, "Metadata(…)")),
        };
        let to = filter(&self.step.args[0])?;
        let over = self.step.args.get(1).map(filter).transpose()?;
        Ok(Action::Path(to, over.unwrap_or_default()))
    }

    fn select(&self, known: &[Arc<str>]) -> Result<Action, QueryError> {
        self.at_least(1, "names that As gave")?;
        let names = self.texts("a name that As gave")?;
        for (name, arg) in names.iter().zip(&self.step.args) {
            if !known.contains(name) {
                let error = QueryError::at(arg.span, format!("nothing was remembered as {name:?}"));
                let names = known.iter().map(|name| &**name);
                return Err(match (nearest(name, names), known.is_empty()) {
                    (Some(known), _) => error.help(format!("did you mean \"{known}\"?")),
                    (None, true) => error.help("names are given by As before, as in As(\"a\")"),
                    (None, false) => error.help(format!("known names: {}", known.join(", "))),
                });
            }
        }
        Ok(Action::Select(names))
    }

    fn walk(&self, direction: Direction) -> Result<Action, QueryError> {
        let args = &self.step.args[..];
        let (pairs, depth) = args.split_at(args.len() / 2 * 2);
        let depth = depth.first().map(|arg| match &arg.kind {
            ArgKind::Int(_) => self.count(arg),
            _ => Err(self.wrong(arg, "a depth").help(
                "keys and values come in pairs, the depth last: Descendants(\"RelationType\", \
                 \"layer2\", 3)",
            )),
        });
        let depth = u32::try_from(depth.transpose()?.unwrap_or(1)).unwrap_or(u32::MAX);
        let filter = if pairs.is_empty() {
            let ownership = Literal::new("ownership".into()).map(Test::Equal);
            let term = ownership.map(|test| Term::new(Edge::RELATION, test));
            Filter {
                any: false,
                terms: term.into_iter().collect(),
            }
        } else {
            self.filter(pairs, true)?
        };
        Ok(Action::Walk(
            direction,
            filter,
            (depth > 0).then_some(depth),
        ))
    }

    /// Of an element: may be empty.
    fn element_filter(&self, args: &[Arg]) -> Result<Filter, QueryError> {
        if args.is_empty() {
            return Ok(Filter::default());
        }
        self.filter(args, false)
    }

    /// Pairs of keys and values, or one key.
    fn filter(&self, args: &[Arg], any: bool) -> Result<Filter, QueryError> {
        if let [arg] = args {
            let key = self.text(arg, "a key")?;
            return Ok(Filter {
                any,
                terms: vec![self.term(&key, Test::Exists)],
            });
        }
        let mut terms = Vec::with_capacity(args.len() / 2);
        for pair in args.chunks(2) {
            let key = self.text(&pair[0], "a key")?;
            let Some(value) = pair.get(1) else {
                let error = QueryError::at(pair[0].span, format!("{key:?} has no value"));
                return Err(error.help("keys and values come in pairs"));
            };
            terms.push(self.term(&key, self.test(value)?));
        }
        Ok(Filter { any, terms })
    }

    fn term(&self, key: &Arc<str>, test: Test) -> Term {
        let flows = match self.step.name {
            StepName::Flows => true,
            StepName::Has | StepName::HasEither | StepName::HasKey | StepName::HasNot => {
                self.kind == Kind::Flows
            }
            _ => false,
        };
        let pair = flows && matches!(&**key, "Link" | "Network" | "Transport");
        // Whether a layer exists does not depend on its sides.
        let whole = matches!(test, Test::Exists | Test::Absent);
        let sides = (pair && !whole).then(|| ["A", "B"].map(|side| format!("{key}.{side}").into()));
        Term {
            key: key.clone(),
            sides,
            test,
        }
    }

    fn test(&self, arg: &Arg) -> Result<Test, QueryError> {
        let ArgKind::Call(name, args) = &arg.kind else {
            return Ok(Test::Equal(self.literal(arg)?));
        };
        use PredicateName as P;
        let numbers = |count: usize| -> Result<Vec<Number>, QueryError> {
            self.arity(*name, arg, args, count)?;
            args.iter().map(|arg| number(*name, arg)).collect()
        };
        let compare = |sign, fits| -> Result<Test, QueryError> {
            Ok(Test::Compare(sign, fits, numbers(1)?[0]))
        };
        Ok(match name {
            P::Ne | P::Nee => {
                self.arity(*name, arg, args, 1)?;
                let literal = self.literal(&args[0])?;
                if *name == P::Ne {
                    Test::Ne(literal)
                } else {
                    Test::Nee(literal)
                }
            }
            P::Lt => compare("<", std::cmp::Ordering::is_lt)?,
            P::Lte => compare("<=", std::cmp::Ordering::is_le)?,
            P::Gt => compare(">", std::cmp::Ordering::is_gt)?,
            P::Gte => compare(">=", std::cmp::Ordering::is_ge)?,
            P::Inside | P::Between | P::Outside => {
                let [low, high] = numbers(2)?[..] else {
                    return Err(QueryError::at(arg.span, "two numbers are needed"));
                };
                match name {
                    P::Inside => Test::Between(low, high, false),
                    P::Between => Test::Between(low, high, true),
                    _ => Test::Outside(low, high),
                }
            }
            P::Within | P::Without => {
                let list = args
                    .iter()
                    .map(|arg| self.literal(arg))
                    .collect::<Result<_, _>>()?;
                if *name == P::Within {
                    Test::Within(list)
                } else {
                    Test::Without(list)
                }
            }
            P::Regex => {
                self.arity(*name, arg, args, 1)?;
                regex(&args[0])?
            }
            P::Ipv4Range => {
                self.arity(*name, arg, args, 1)?;
                let ArgKind::Str(text) = &args[0].kind else {
                    return Err(self.wrong(&args[0], "a network"));
                };
                let net: Option<IpNet> = text.parse().ok();
                Test::Net(net.map(|net| net.trunc()).ok_or_else(|| {
                    let error = QueryError::at(args[0].span, format!("{text:?} is no network"));
                    error.help("networks are written as \"10.0.0.0/8\"")
                })?)
            }
            P::Metadata => {
                let error = QueryError::at(arg.span, "Metadata is no value");
                return Err(error.help("it belongs into ShortestPathTo; Has takes keys and values"));
            }
        })
    }

    fn arity(
        &self,
        name: PredicateName,
        arg: &Arg,
        args: &[Arg],
        count: usize,
    ) -> Result<(), QueryError> {
        if args.len() == count {
            return Ok(());
        }
        let wanted = if count == 1 {
            "one argument"
        } else {
            "two arguments"
        };
        let found = args.len();
        Err(QueryError::at(
            arg.span,
            format!("{} takes {wanted}, not {found}", name.name()),
        ))
    }

    fn literal(&self, arg: &Arg) -> Result<Literal, QueryError> {
        let value = match &arg.kind {
            ArgKind::Str(text) => text.as_str().into(),
            ArgKind::Int(number) => Value::Int(*number),
            ArgKind::Float(float) => Value::Float(*float),
            ArgKind::Bool(truth) => Value::Bool(*truth),
            ArgKind::Word(Word::Now) => Value::Int(self.now),
            ArgKind::Word(_) | ArgKind::Call(..) => {
                return Err(self.wrong(arg, "a text, a number, TRUE or FALSE"));
            }
        };
        Literal::new(value).ok_or_else(|| self.wrong(arg, "a plain value"))
    }
}

fn number(name: PredicateName, arg: &Arg) -> Result<Number, QueryError> {
    match &arg.kind {
        ArgKind::Int(number) => Ok(Number::Int(*number)),
        ArgKind::Float(float) => Ok(Number::Float(*float)),
        _ => {
            let message = format!("{} takes a number, not {arg}", name.name());
            Err(QueryError::at(arg.span, message))
        }
    }
}

fn regex(arg: &Arg) -> Result<Test, QueryError> {
    let ArgKind::Str(pattern) = &arg.kind else {
        return Err(QueryError::at(
            arg.span,
            format!("Regex takes a text, not {arg}"),
        ));
    };
    if pattern.len() > MAX_REGEX {
        let mut error = QueryError::at(
            arg.span,
            format!("regular expressions have at most {MAX_REGEX} bytes"),
        );
        error.class = Class::Limit;
        return Err(error);
    }
    if pattern.starts_with('^') || (pattern.ends_with('$') && !pattern.ends_with("\\$")) {
        let error = QueryError::at(
            arg.span,
            "regular expressions match the whole value by themselves",
        );
        return Err(error.help("leave out ^ and $; write .* where more may come"));
    }
    let build = |pattern: &str| {
        let mut builder = RegexBuilder::new(pattern);
        builder
            .size_limit(MAX_COMPILED)
            .dfa_size_limit(MAX_COMPILED)
            .nest_limit(64)
            .build()
    };
    // First without the anchors: an unbalanced pattern must not become balanced by the parentheses
    // around it.
    match build(pattern).and_then(|_| build(&format!("^(?:{pattern})$"))) {
        Ok(regex) => Ok(Test::Regex(Arc::new(regex), pattern.clone())),
        Err(regex::Error::CompiledTooBig(_)) => {
            let mut error = QueryError::at(arg.span, "this regular expression is too large");
            error.class = Class::Limit;
            Err(error)
        }
        Err(error) => {
            // The cause is on the last line of the message.
            let text = error.to_string();
            let what = text
                .lines()
                .last()
                .unwrap_or("")
                .trim_start_matches("error: ");
            Err(QueryError::at(
                arg.span,
                format!("this is no regular expression: {what}"),
            ))
        }
    }
}
