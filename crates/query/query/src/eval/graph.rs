//! Steps through the graph.

use super::{
    Answer, Done, Observed, Run, Stage, SubGraph,
    scan::tids,
    values::{View, range},
};
use crate::{
    check::{Action, Kind},
    error::Span,
    filter::Filter,
    plan::{Access, Scan, Shape},
};
use hashbrown::HashSet;
use skua_topology::{Direction, Edge, Export, Lookup, Node, Value, Window};
use std::{collections::VecDeque, ops::ControlFlow, sync::Arc};

const NODES: View<Observed<Node>> = View {
    record: |seen| &*seen.item,
    id: |seen| Some(seen.item.id.to_string()),
    sort_by: "@CreatedAt",
    stage: Stage::Nodes,
};

const EDGES: View<Observed<Edge>> = View {
    record: |seen| &*seen.item,
    id: |seen| Some(seen.item.element.id.to_string()),
    sort_by: "@CreatedAt",
    stage: Stage::Edges,
};

impl Run<'_> {
    pub(super) fn on_nodes(&mut self, action: &Action, nodes: Vec<Observed<Node>>) -> Done<Stage> {
        let nodes = match self.on_records(action, nodes, &NODES)? {
            Ok(stage) => return Ok(stage),
            Err(nodes) => nodes,
        };
        match action {
            Action::Step(direction, filter) => self.neighbours(&nodes, *direction, filter),
            Action::StepEdges(direction, filter) => {
                let mut edges = Vec::new();
                for node in &nodes {
                    self.edges(node, *direction, filter, &mut edges)?;
                }
                Ok(Stage::Edges(edges))
            }
            Action::Walk(direction, filter, depth) => self.walk(nodes, *direction, filter, *depth),
            Action::Path(to, over) => self.paths(nodes, to, over),
            Action::SubGraph(filter) => self.sub_graph(nodes, filter),
            Action::Metrics(key) => self.node_metrics(&nodes, key.as_deref()),
            Action::Sockets => self.node_sockets(&nodes),
            Action::NextHop(address) => {
                let hops = nodes.iter().filter_map(|seen| {
                    let hop = super::nexthop::next_hop(&seen.item.metadata, *address)?;
                    Some((seen.item.id.clone(), hop))
                });
                Ok(Stage::NextHops(hops.collect()))
            }
            _ => Err(Self::misfit()),
        }
    }

    pub(super) fn on_edges(&mut self, action: &Action, edges: Vec<Observed<Edge>>) -> Done<Stage> {
        let edges = match self.on_records(action, edges, &EDGES)? {
            Ok(stage) => return Ok(stage),
            Err(edges) => edges,
        };
        match action {
            Action::Ends(direction, filter) => {
                let mut nodes = Vec::new();
                for edge in &edges {
                    let ends = match direction {
                        Direction::Out => [None, Some(&edge.item.child)],
                        Direction::In => [Some(&edge.item.parent), None],
                        Direction::Both => [Some(&edge.item.parent), Some(&edge.item.child)],
                    };
                    for id in ends.into_iter().flatten() {
                        self.node(id, edge.window, filter, &mut nodes)?;
                    }
                }
                Ok(Stage::Nodes(nodes))
            }
            Action::SubGraph(filter) => {
                let mut edges = edges;
                edges.retain(|seen| filter.holds(&*seen.item));
                let mut nodes = Vec::new();
                let mut known = HashSet::new();
                for edge in &edges {
                    for id in [&edge.item.parent, &edge.item.child] {
                        if known.insert(id.clone()) {
                            self.node(id, edge.window, &Filter::default(), &mut nodes)?;
                        }
                    }
                }
                self.own = Some(Arc::new(SubGraph::new(nodes, edges)));
                Ok(Stage::Graph)
            }
            _ => Err(Self::misfit()),
        }
    }

    pub(super) fn on_paths(
        &mut self,
        action: &Action,
        paths: Vec<Vec<Observed<Node>>>,
    ) -> Done<Stage> {
        match action {
            Action::Count => Ok(Stage::Value(Value::Int(paths.len() as i64))),
            Action::Range(from, to) => Ok(Stage::Paths(range(paths, *from, *to))),
            Action::Dedup(_) | Action::SubGraph(_) => {
                let nodes = paths.into_iter().flatten().collect();
                self.on_nodes(action, nodes)
            }
            Action::Flows(filter) => {
                let scan = Scan {
                    kind: Kind::Flows,
                    access: Access::All,
                    filters: vec![filter.clone()],
                    shape: Shape::default(),
                    of_nodes: true,
                    span: Span::default(),
                };
                self.scan_flows(&scan, Some(&tids(paths.iter().flatten())))
            }
            _ => Err(Self::misfit()),
        }
    }

    /// The versions of a node that pass.
    fn node(
        &self,
        id: &str,
        window: Window,
        filter: &Filter,
        nodes: &mut Vec<Observed<Node>>,
    ) -> Done<()> {
        self.graph()
            .nodes(window, Lookup::Id(id), &mut |item, window| {
                self.budget.hold(nodes.len())?;
                if filter.holds(&**item) {
                    nodes.push(Observed {
                        item: item.clone(),
                        window,
                    });
                }
                ControlFlow::Continue(())
            })?;
        self.budget.check()
    }

    fn edges(
        &self,
        node: &Observed<Node>,
        direction: Direction,
        filter: &Filter,
        edges: &mut Vec<Observed<Edge>>,
    ) -> Done<()> {
        let relation = filter.fixed(Edge::RELATION);
        let id = &node.item.id;
        self.graph()
            .edges_of(id, node.window, direction, relation, &mut |item, window| {
                self.budget.hold(edges.len())?;
                if filter.holds(&**item) {
                    edges.push(Observed {
                        item: item.clone(),
                        window,
                    });
                }
                ControlFlow::Continue(())
            })?;
        self.budget.check()
    }

    fn neighbours(
        &self,
        nodes: &[Observed<Node>],
        direction: Direction,
        filter: &Filter,
    ) -> Done<Stage> {
        let mut found = Vec::new();
        for node in nodes {
            self.adjacent(node, direction, filter, &mut found)?;
        }
        Ok(Stage::Nodes(found))
    }

    fn adjacent(
        &self,
        node: &Observed<Node>,
        direction: Direction,
        filter: &Filter,
        found: &mut Vec<Observed<Node>>,
    ) -> Done<()> {
        let id = &node.item.id;
        self.graph()
            .neighbours(id, node.window, direction, &mut |item, window| {
                self.budget.hold(found.len())?;
                if filter.holds(&**item) {
                    found.push(Observed {
                        item: item.clone(),
                        window,
                    });
                }
                ControlFlow::Continue(())
            })?;
        self.budget.check()
    }

    /// The nodes at the other ends of edges that pass.
    fn across(
        &self,
        node: &Observed<Node>,
        direction: Direction,
        over: &Filter,
    ) -> Done<Vec<Observed<Node>>> {
        let mut nodes = Vec::new();
        if over.terms.is_empty() {
            self.adjacent(node, direction, &Filter::default(), &mut nodes)?;
            return Ok(nodes);
        }
        let mut edges = Vec::new();
        self.edges(node, direction, over, &mut edges)?;
        for edge in &edges {
            let own = edge.item.parent == node.item.id;
            let other = if own {
                &edge.item.child
            } else {
                &edge.item.parent
            };
            self.node(other, edge.window, &Filter::default(), &mut nodes)?;
        }
        Ok(nodes)
    }

    /// The nodes, then those next to them, and so on; each once.
    fn walk(
        &self,
        nodes: Vec<Observed<Node>>,
        direction: Direction,
        over: &Filter,
        depth: Option<u32>,
    ) -> Done<Stage> {
        let mut known = HashSet::new();
        let mut all = Vec::new();
        let mut level: Vec<Observed<Node>> = nodes;
        level.retain(|seen| known.insert(seen.item.id.clone()));
        let mut left = depth.unwrap_or(u32::MAX);
        while left > 0 && !level.is_empty() {
            left -= 1;
            let mut next = Vec::new();
            for node in &level {
                for other in self.across(node, direction, over)? {
                    if known.insert(other.item.id.clone()) {
                        next.push(other);
                    }
                }
                if self.budget.hold(all.len() + next.len()).is_break() {
                    self.budget.check()?;
                }
            }
            all.append(&mut level);
            level = next;
        }
        all.append(&mut level);
        Ok(Stage::Nodes(all))
    }

    /// From each node the shortest path to the nearest one that `to` fits.
    fn paths(&self, nodes: Vec<Observed<Node>>, to: &Filter, over: &Filter) -> Done<Stage> {
        let mut paths = Vec::new();
        let mut known = HashSet::new();
        for node in nodes {
            if known.insert(node.item.id.clone())
                && let Some(path) = self.path(node, to, over)?
            {
                paths.push(path);
            }
        }
        Ok(Stage::Paths(paths))
    }

    fn path(
        &self,
        from: Observed<Node>,
        to: &Filter,
        over: &Filter,
    ) -> Done<Option<Vec<Observed<Node>>>> {
        let mut known: HashSet<Arc<str>> = HashSet::new();
        let mut nodes: Vec<(Observed<Node>, Option<usize>)> = vec![(from, None)];
        known.insert(nodes[0].0.item.id.clone());
        let mut open = VecDeque::from([0]);
        while let Some(at) = open.pop_front() {
            let node = nodes[at].0.clone();
            if to.holds(&*node.item) {
                let mut path = vec![node];
                let mut last = nodes[at].1;
                while let Some(at) = last {
                    path.push(nodes[at].0.clone());
                    last = nodes[at].1;
                }
                path.reverse();
                return Ok(Some(path));
            }
            for other in self.across(&node, Direction::Both, over)? {
                if self.budget.hold(nodes.len()).is_break() {
                    self.budget.check()?;
                }
                if known.insert(other.item.id.clone()) {
                    open.push_back(nodes.len());
                    nodes.push((other, Some(at)));
                }
            }
        }
        Ok(None)
    }

    fn sub_graph(&mut self, nodes: Vec<Observed<Node>>, filter: &Filter) -> Done<Stage> {
        let ids: HashSet<Arc<str>> = nodes.iter().map(|seen| seen.item.id.clone()).collect();
        let mut edges = Vec::new();
        let mut known = HashSet::new();
        let mut kept = Vec::new();
        for node in nodes {
            if !known.insert((node.item.id.clone(), node.item.revision)) {
                continue;
            }
            let mut own = Vec::new();
            self.edges(&node, Direction::Out, filter, &mut own)?;
            own.retain(|seen| ids.contains(&seen.item.child));
            edges.append(&mut own);
            kept.push(node);
        }
        let mut once = HashSet::new();
        edges
            .retain(|seen| once.insert((seen.item.element.id.clone(), seen.item.element.revision)));
        self.own = Some(Arc::new(SubGraph::new(kept, edges)));
        Ok(Stage::Graph)
    }

    pub(super) fn export(&self) -> Done<Answer> {
        let mut export = Export::default();
        self.graph()
            .nodes(self.window()?, Lookup::All, &mut |node, _| {
                self.budget.hold(export.nodes.len())?;
                export.nodes.push(node.clone());
                ControlFlow::Continue(())
            })?;
        self.graph()
            .edges(self.window()?, Lookup::All, &mut |edge, _| {
                self.budget.hold(export.edges.len())?;
                export.edges.push(edge.clone());
                ControlFlow::Continue(())
            })?;
        Ok(Answer::Graph(export))
    }
}
