//! The topology as a tree: open nodes, and their known children.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use crate::{columns::text, theme::Theme};

/// Most open nodes: each is queried.
const OPEN_AT_MOST: usize = 64;
/// Most nodes and edges that are used of an answer.
const TAKEN_AT_MOST: usize = 5000;
/// Greater than the depth of any tree of hosts, namespaces, containers and interfaces.
const DEEPEST: usize = 16;
/// The default roots.
const ROOTS: &str = r#"G.V().Has("Type", "host")"#;

/// The tree's state.
#[derive(Debug, Default)]
pub struct Tree {
    roots: Vec<Value>,
    /// Children's identifiers of each open node.
    below: HashMap<String, Vec<String>>,
    nodes: HashMap<String, Value>,
    /// Open ones, in the order in which they were opened.
    open: Vec<String>,
    /// Whether the first answer's roots were opened.
    begun: bool,
}

fn id(node: &Value) -> String {
    text(&node["ID"])
}

impl Tree {
    /// The query of the roots.
    pub fn roots_query(filter: &str) -> String {
        match filter.is_empty() {
            true => ROOTS.to_owned(),
            false => filter.to_owned(),
        }
    }

    /// Queries of edges and of nodes below the open nodes.
    pub fn queries(&self) -> Option<[String; 2]> {
        if self.open.is_empty() {
            return None;
        }
        let ids: Vec<String> = self
            .open
            .iter()
            .map(|id| Value::from(id.as_str()).to_string())
            .collect();
        let edges = format!(
            r#"G.V().Has("@ID", Within({})).OutE("RelationType", "ownership")"#,
            ids.join(", ")
        );
        let nodes = format!("{edges}.OutV()");
        Some([edges, nodes])
    }

    /// Sets the roots; the first time they are opened.
    pub fn set_roots(&mut self, roots: Vec<Value>) {
        if !std::mem::replace(&mut self.begun, true) {
            self.open = roots.iter().take(8).map(id).collect();
        }
        self.roots = roots;
        self.roots.truncate(TAKEN_AT_MOST);
    }

    /// Sets the edges below open nodes.
    pub fn set_edges(&mut self, edges: &[Value]) {
        self.below.clear();
        for edge in edges.iter().take(TAKEN_AT_MOST) {
            let children = self.below.entry(text(&edge["Parent"])).or_default();
            children.push(text(&edge["Child"]));
        }
    }

    /// Sets the nodes below open nodes.
    pub fn set_nodes(&mut self, nodes: Vec<Value>) {
        let nodes = nodes.into_iter().take(TAKEN_AT_MOST);
        self.nodes = nodes.map(|node| (id(&node), node)).collect();
    }

    /// Starts again from other roots.
    pub fn restart(&mut self) {
        *self = Self::default();
    }

    /// Opens or closes a node.
    pub fn set_open(&mut self, id: &str, open: bool) {
        self.open.retain(|other| other != id);
        if open {
            if self.open.len() == OPEN_AT_MOST {
                self.open.remove(0);
            }
            self.open.push(id.to_owned());
        }
    }

    /// Whether a node is open.
    pub fn is_open(&self, id: &str) -> bool {
        self.open.iter().any(|open| open == id)
    }

    /// The rows of the tree: nodes with `Tree`, the lines before their names.
    pub fn rows(&self, theme: Theme) -> Vec<Value> {
        let mut rows = Vec::new();
        let mut seen = HashSet::new();
        let count = self.roots.len();
        for (at, root) in self.roots.iter().enumerate() {
            self.add(
                root,
                &mut vec![at + 1 == count],
                theme,
                &mut seen,
                &mut rows,
            );
        }
        rows
    }

    fn add(
        &self,
        node: &Value,
        last: &mut Vec<bool>,
        theme: Theme,
        seen: &mut HashSet<String>,
        rows: &mut Vec<Value>,
    ) {
        let own = id(node);
        // A node with two owners is shown once, which also ends cycles.
        if rows.len() >= TAKEN_AT_MOST || last.len() > DEEPEST || !seen.insert(own.clone()) {
            return;
        }
        let is_open = self.is_open(&own);
        let mut row = node.clone();
        row["Tree"] = theme.branch(last, Some(is_open)).into();
        rows.push(row);
        if !is_open {
            return;
        }
        let ids = self.below.get(&own).into_iter().flatten();
        let mut children: Vec<&Value> = ids.filter_map(|id| self.nodes.get(id)).collect();
        let name = |node: &Value| text(&node["Metadata"]["Name"]);
        children.sort_by_cached_key(|node| (text(&node["Metadata"]["Type"]), name(node), id(node)));
        let count = children.len();
        for (at, child) in children.into_iter().enumerate() {
            last.push(at + 1 == count);
            self.add(child, last, theme, seen, rows);
            last.pop();
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use serde_json::json;

    const THEME: Theme = Theme {
        palette: crate::theme::Palette::Terminal,
        color: false,
        ascii: true,
    };

    fn node(id: &str) -> Value {
        json!({"ID": id, "Metadata": {"Name": id, "Type": "t"}})
    }

    fn shown(tree: &Tree) -> Vec<String> {
        let line = |row: &Value| format!("{}{}", text(&row["Tree"]), text(&row["ID"]));
        tree.rows(THEME).iter().map(line).collect()
    }

    #[test]
    fn only_open_nodes_are_requested_and_shown() {
        let mut tree = Tree::default();
        assert_eq!(tree.queries(), None);
        tree.set_roots(vec![node("h")]);
        let [edges, nodes] = tree.queries().unwrap();
        assert_eq!(
            edges,
            r#"G.V().Has("@ID", Within("h")).OutE("RelationType", "ownership")"#
        );
        assert_eq!(nodes, format!("{edges}.OutV()"));
        tree.set_edges(&[
            json!({"Parent": "h", "Child": "b"}),
            json!({"Parent": "h", "Child": "a"}),
            json!({"Parent": "a", "Child": "h"}),
        ]);
        tree.set_nodes(vec![node("b"), node("a")]);
        assert_eq!(shown(&tree), ["- h", "|-+ a", "`-+ b"]);
        // A ring ends.
        tree.set_open("a", true);
        assert_eq!(shown(&tree), ["- h", "|-- a", "`-+ b"]);
        tree.set_open("h", false);
        assert_eq!(shown(&tree), ["+ h"]);
        tree.set_roots(vec![node("h"), node("i")]);
        assert!(!tree.is_open("i"));
    }

    #[test]
    fn not_all_can_be_open() {
        let mut tree = Tree::default();
        for id in 0..100 {
            tree.set_open(&id.to_string(), true);
        }
        assert!(tree.is_open("99") && !tree.is_open("0"));
        assert_eq!(tree.open.len(), OPEN_AT_MOST);
    }
}
