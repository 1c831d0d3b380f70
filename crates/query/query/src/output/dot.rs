//! Graphs for Graphviz.

use crate::{Answer, Class, QueryError, record::Record};
use skua_topology::{Edge, Node, Value};
use std::fmt::Write;

/// Fields of a node shown besides its name.
const SHOWN: &[&str] = &[
    "Type", "State", "IfIndex", "MTU", "MAC", "TID", "IPV4", "IPV6",
];

pub fn write(answer: &Answer) -> Result<String, QueryError> {
    let mut text = String::from("digraph g {\n  node [shape=box]\n");
    match answer {
        Answer::Graph(graph) => {
            graph.nodes.iter().for_each(|item| node(item, &mut text));
            graph.edges.iter().for_each(|item| edge(item, &mut text));
        }
        Answer::Nodes(nodes) => nodes.iter().for_each(|item| node(item, &mut text)),
        Answer::Edges(edges) => edges.iter().for_each(|item| edge(item, &mut text)),
        Answer::Paths(paths) => {
            for path in paths {
                path.iter().for_each(|item| node(item, &mut text));
                for pair in path.windows(2) {
                    let (from, to) = (quote(&pair[0].id), quote(&pair[1].id));
                    let _ = writeln!(text, "  {from} -> {to} [dir=none]");
                }
            }
        }
        _ => {
            let error = QueryError::new(
                Class::Query,
                "only graphs, nodes, edges and paths can be written as dot",
            );
            return Err(error
                .help("SubGraph makes a graph, as in G.V().Has(\"Name\", \"eth0\").SubGraph()"));
        }
    }
    text.push_str("}\n");
    Ok(text)
}

fn node(node: &Node, text: &mut String) {
    let name = node
        .get("Name")
        .as_ref()
        .and_then(Value::as_str)
        .unwrap_or("")
        .to_owned();
    let mut label = if name.is_empty() {
        node.id.to_string()
    } else {
        name
    };
    for key in SHOWN {
        if let Some(value) = node.get(key).map(|value| super::table::plain(&value))
            && !value.is_empty()
        {
            let _ = write!(label, "\n{key} = {value}");
        }
    }
    let _ = writeln!(text, "  {} [label={}]", quote(&node.id), quote(&label));
}

fn edge(edge: &Edge, text: &mut String) {
    let (parent, child) = (quote(&edge.parent), quote(&edge.child));
    let _ = write!(text, "  {parent} -> {child}");
    let relation = edge.relation();
    if !relation.is_empty() {
        let both = if relation == "layer2" {
            ", dir=both"
        } else {
            ""
        };
        let _ = write!(text, " [label={}{both}]", quote(relation));
    }
    text.push('\n');
}

/// A text in dot's syntax: line breaks as `
/// `, quotes and backslashes escaped.
fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            c if c.is_control() => quoted.push(' '),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}
