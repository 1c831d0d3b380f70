//! Tables for people.

use crate::{Answer, Record, time};
use skua_topology::{Node, Value};
use std::{fmt::Write, sync::Arc};

/// A column: title, key and rank. Columns of greater rank are left out first if the table is too
/// wide; those of rank 0 stay.
type Column = (&'static str, &'static str, u8);

const NODES: &[Column] = &[
    ("ID", "@ID", 0),
    ("NAME", "Name", 0),
    ("TYPE", "Type", 0),
    ("HOST", "@Host", 3),
    ("STATE", "State", 2),
    ("MAC", "MAC", 4),
    ("IPV4", "IPV4", 1),
    ("IPV6", "IPV6", 5),
];
const EDGES: &[Column] = &[
    ("ID", "@ID", 2),
    ("RELATION", "RelationType", 0),
    ("PARENT", "@Parent", 0),
    ("CHILD", "@Child", 0),
    ("HOST", "@Host", 1),
];
const FLOWS: &[Column] = &[
    ("UUID", "UUID", 2),
    ("LAYERS", "LayersPath", 1),
    ("A", "Network.A", 0),
    ("PORT", "Transport.A", 0),
    ("B", "Network.B", 0),
    ("PORT", "Transport.B", 0),
    ("AB PACKETS", "Metric.ABPackets", 3),
    ("AB BYTES", "Metric.ABBytes", 0),
    ("BA PACKETS", "Metric.BAPackets", 3),
    ("BA BYTES", "Metric.BABytes", 0),
    ("NODE", "NodeTID", 4),
];
const ACLS: &[Column] = &[
    ("FROM", "From", 0),
    ("TO", "To", 0),
    ("VERDICT", "Verdict", 0),
    ("PASSES", "Passes", 4),
    ("ACL", "Name", 0),
    ("ACTION", "Action", 4),
    ("MATCH", "Match", 0),
    ("DIRECTION", "Direction", 2),
    ("OWNER", "Owner", 3),
    ("UUID", "ACL", 5),
    ("SOURCE", "Source", 0),
    ("REASON", "Reason", 0),
];
/// Widest column in characters.
const WIDEST: usize = 60;
/// Columns are not made narrower than that.
const NARROWEST: usize = 8;
/// No table is made to fit into less.
const LEAST: usize = 20;
/// Between columns.
const GAP: usize = 2;

/// At most `width` characters wide, if columns that are left out and texts that are cut make it so.
pub fn write(answer: &Answer, width: usize) -> String {
    let width = width.max(LEAST);
    match answer {
        Answer::Graph(graph) => {
            let nodes = records(NODES, &graph.nodes, width, |node| &**node);
            let edges = records(EDGES, &graph.edges, width, |edge| &**edge);
            format!("{nodes}\n{edges}")
        }
        Answer::Nodes(nodes) => records(NODES, nodes, width, |node| &**node),
        Answer::Edges(edges) => records(EDGES, edges, width, |edge| &**edge),
        Answer::Flows(flows) => records(FLOWS, flows, width, |flow| &**flow as &dyn Record),
        Answer::Paths(paths) => {
            let name = |node: &std::sync::Arc<Node>| {
                let name = node.get("Name").map(|name| plain(&name));
                name.unwrap_or_else(|| node.id.to_string())
            };
            let rows = paths.iter().map(|path| {
                let names: Vec<String> = path.iter().map(name).collect();
                vec![
                    (path.len().saturating_sub(1)).to_string(),
                    names.join(" - "),
                ]
            });
            // A path is of no use without its end: it may be wider.
            let titles = [("STEPS".into(), 0), ("PATH".into(), 0)];
            table(&titles, rows.collect(), usize::MAX, usize::MAX)
        }
        Answer::Value(value) => format!("{}\n", plain(value)),
        Answer::Values(values) => {
            let rows = values.iter().map(|value| (None, value));
            maps("", rows.collect(), width)
        }
        Answer::Metrics(lists) => {
            let rows = lists
                .iter()
                .flat_map(|(id, list)| list.iter().map(move |value| (Some(id.to_string()), value)));
            maps("OF", rows.collect(), width)
        }
        Answer::Sockets(lists) if are_acls(lists) => {
            let acls: Vec<&Value> = lists.iter().flat_map(|(_, list)| list).collect();
            records(ACLS, &acls, width, |acl| *acl)
        }
        Answer::Sockets(lists) => {
            let rows = lists
                .iter()
                .flat_map(|(id, list)| list.iter().map(move |value| (Some(id.to_string()), value)));
            maps("OF", rows.collect(), width)
        }
        Answer::NextHops(hops) => maps(
            "NODE",
            hops.iter()
                .map(|(id, hop)| (Some(id.to_string()), hop))
                .collect(),
            width,
        ),
        Answer::Groups(groups) => {
            let rows = groups.iter().flat_map(|(id, flows)| {
                flows.iter().map(move |flow| {
                    let mut row = vec![id.to_string()];
                    row.extend(FLOWS.iter().map(|(_, key, _)| cell(&**flow, key)));
                    row
                })
            });
            let columns = FLOWS.iter().map(|(title, _, rank)| (*title, *rank));
            let titles: Vec<(String, u8)> = std::iter::once(("GROUP", 0))
                .chain(columns)
                .map(|(title, rank)| (title.to_owned(), rank))
                .collect();
            table(&titles, rows.collect(), WIDEST, width)
        }
        Answer::Packets(lists) => {
            let rows = lists.iter().flat_map(|(id, packets)| {
                packets.iter().map(move |packet| {
                    let bytes = packet.data.len().to_string();
                    let time = time::show(packet.timestamp);
                    vec![id.to_string(), packet.index.to_string(), time, bytes]
                })
            });
            let titles = ["FLOW", "INDEX", "TIME", "BYTES"].map(|title| (title.to_owned(), 0));
            table(&titles, rows.collect(), WIDEST, width)
        }
    }
}

/// A value on one line: plain ones as they are, lists with commas, maps as JSON.
pub fn plain(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::Str(text) => text
            .chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect(),
        Value::List(items) if items.iter().all(|item| !matches!(item, Value::Map(_))) => {
            items.iter().map(plain).collect::<Vec<_>>().join(",")
        }
        other => serde_json::to_string(other).unwrap_or_default(),
    }
}

/// What `ACLs()` finds, not sockets or hops.
fn are_acls(lists: &[(Arc<str>, Vec<Value>)]) -> bool {
    let mut found = lists.iter().flat_map(|(_, list)| list).peekable();
    found.peek().is_some() && found.all(|value| Record::get(value, "Verdict").is_some())
}

fn cell(record: &dyn Record, key: &str) -> String {
    record.get(key).map_or(String::new(), |value| plain(&value))
}

/// Rows of records, without empty columns.
fn records<T>(
    columns: &[Column],
    items: &[T],
    width: usize,
    record: fn(&T) -> &dyn Record,
) -> String {
    let row = |item: &T| -> Vec<String> {
        let cells = columns.iter().map(|(_, key, _)| cell(record(item), key));
        cells.collect()
    };
    let rows: Vec<Vec<String>> = items.iter().map(row).collect();
    let used: Vec<usize> = (0..columns.len())
        .filter(|at| *at == 0 || rows.iter().any(|row| !row[*at].is_empty()))
        .collect();
    let titles: Vec<(String, u8)> = used
        .iter()
        .map(|at| (columns[*at].0.to_owned(), columns[*at].2))
        .collect();
    let pick = |row: Vec<String>| used.iter().map(|at| row[*at].clone()).collect();
    table(&titles, rows.into_iter().map(pick).collect(), WIDEST, width)
}

/// Rows of maps, with all their names as columns; other values are a column of their own.
fn maps(owner: &str, rows: Vec<(Option<String>, &Value)>, width: usize) -> String {
    let mut names: Vec<String> = Vec::new();
    for (_, value) in &rows {
        match value {
            Value::Map(map) => {
                for (name, _) in map.iter() {
                    if !names.iter().any(|known| **known == **name) {
                        names.push(name.to_string());
                    }
                }
            }
            _ if names.is_empty() => names.push(String::new()),
            _ => {}
        }
    }
    names.sort();
    let mut titles: Vec<(String, u8)> = names.iter().map(|name| (name.to_uppercase(), 0)).collect();
    if let [(title, _)] = &mut titles[..]
        && title.is_empty()
    {
        *title = "VALUE".to_owned();
    }
    if !owner.is_empty() {
        titles.insert(0, (owner.to_owned(), 0));
    }
    let rows = rows.into_iter().map(|(id, value)| {
        let mut row: Vec<String> = id.into_iter().collect();
        row.extend(names.iter().map(|name| match value {
            Value::Map(map) => map.get(name).map_or(String::new(), plain),
            other if name.is_empty() => plain(other),
            _ => String::new(),
        }));
        row
    });
    table(&titles, rows.collect(), WIDEST, width)
}

fn length(text: &str) -> usize {
    text.chars().count()
}

/// At most `longest` characters of a text.
fn cut(text: &str, longest: usize) -> String {
    if length(text) <= longest {
        return text.to_owned();
    }
    text.chars().take(longest - 1).chain(['…']).collect()
}

/// Titles have ranks. Columns that do not fit into `width` are listed below the table.
fn table(titles: &[(String, u8)], rows: Vec<Vec<String>>, widest: usize, width: usize) -> String {
    if rows.is_empty() {
        return "nothing found\n".to_owned();
    }
    let column = |at: usize| {
        let cells = rows.iter().map(|row| length(&row[at]));
        let longest = cells.max().unwrap_or(0).min(widest);
        longest.max(length(&titles[at].0))
    };
    let mut widths: Vec<usize> = (0..titles.len()).map(column).collect();
    let shown = fit(titles, &mut widths, width);
    let mut text = String::new();
    let head: Vec<String> = titles.iter().map(|(title, _)| title.clone()).collect();
    for row in std::iter::once(&head).chain(&rows) {
        let mut line = String::new();
        for at in &shown {
            let (cell, width) = (cut(&row[*at], widths[*at]), widths[*at]);
            let _ = write!(line, "{cell:width$}  ");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    if shown.len() < titles.len() {
        let left = (0..titles.len()).filter(|at| !shown.contains(at));
        let mut names: Vec<&str> = left.map(|at| &*titles[at].0).collect();
        names.dedup();
        let line = format!("(too narrow for {})", names.join(", "));
        text.push_str(&cut(&line, width));
        text.push('\n');
    }
    text
}

/// Selects the columns that fit. First those of the greatest rank are removed, then the widest are
/// made narrower, then the last ones are removed.
fn fit(titles: &[(String, u8)], widths: &mut [usize], width: usize) -> Vec<usize> {
    let mut shown: Vec<usize> = (0..titles.len()).collect();
    let needed = |shown: &[usize], widths: &[usize]| {
        let all: usize = shown.iter().map(|at| widths[*at] + GAP).sum();
        all.saturating_sub(GAP)
    };
    while needed(&shown, widths) > width {
        let greatest = shown.iter().map(|at| titles[*at].1).max().unwrap_or(0);
        if greatest > 0 {
            shown.retain(|at| titles[*at].1 != greatest);
            continue;
        }
        let broad = shown.iter().copied().max_by_key(|at| widths[*at]);
        match broad.filter(|at| widths[*at] > NARROWEST) {
            Some(at) => widths[at] -= 1,
            None if shown.len() > 1 => drop(shown.pop()),
            None => break,
        }
    }
    shown
}
