//! Tables for people.

use crate::{Answer, Record, time};
use skua_topology::{Node, Value};
use std::fmt::Write;

/// Columns of nodes: title and key.
const NODES: &[(&str, &str)] = &[
    ("ID", "@ID"),
    ("NAME", "Name"),
    ("TYPE", "Type"),
    ("HOST", "@Host"),
    ("STATE", "State"),
    ("MAC", "MAC"),
    ("IPV4", "IPV4"),
    ("IPV6", "IPV6"),
];
const EDGES: &[(&str, &str)] = &[
    ("ID", "@ID"),
    ("RELATION", "RelationType"),
    ("PARENT", "@Parent"),
    ("CHILD", "@Child"),
    ("HOST", "@Host"),
];
const FLOWS: &[(&str, &str)] = &[
    ("UUID", "UUID"),
    ("LAYERS", "LayersPath"),
    ("A", "Network.A"),
    ("PORT", "Transport.A"),
    ("B", "Network.B"),
    ("PORT", "Transport.B"),
    ("AB PACKETS", "Metric.ABPackets"),
    ("AB BYTES", "Metric.ABBytes"),
    ("BA PACKETS", "Metric.BAPackets"),
    ("BA BYTES", "Metric.BABytes"),
    ("NODE", "NodeTID"),
];
/// Widest column in characters.
const WIDEST: usize = 60;

pub fn write(answer: &Answer) -> String {
    match answer {
        Answer::Graph(graph) => {
            let nodes = records(NODES, &graph.nodes, |node| &**node);
            let edges = records(EDGES, &graph.edges, |edge| &**edge);
            format!("{nodes}\n{edges}")
        }
        Answer::Nodes(nodes) => records(NODES, nodes, |node| &**node),
        Answer::Edges(edges) => records(EDGES, edges, |edge| &**edge),
        Answer::Flows(flows) => records(FLOWS, flows, |flow| &**flow as &dyn Record),
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
            table(&["STEPS".into(), "PATH".into()], rows.collect(), usize::MAX)
        }
        Answer::Value(value) => format!("{}\n", plain(value)),
        Answer::Values(values) => maps("", values.iter().map(|value| (None, value)).collect()),
        Answer::Metrics(lists) => {
            let rows = lists
                .iter()
                .flat_map(|(id, list)| list.iter().map(move |value| (Some(id.to_string()), value)));
            maps("OF", rows.collect())
        }
        Answer::Sockets(lists) => {
            let rows = lists
                .iter()
                .flat_map(|(id, list)| list.iter().map(move |value| (Some(id.to_string()), value)));
            maps("OF", rows.collect())
        }
        Answer::NextHops(hops) => maps(
            "NODE",
            hops.iter()
                .map(|(id, hop)| (Some(id.to_string()), hop))
                .collect(),
        ),
        Answer::Groups(groups) => {
            let rows = groups.iter().flat_map(|(id, flows)| {
                flows.iter().map(move |flow| {
                    let mut row = vec![id.to_string()];
                    row.extend(FLOWS.iter().map(|(_, key)| cell(&**flow, key)));
                    row
                })
            });
            let titles = std::iter::once("GROUP").chain(FLOWS.iter().map(|(title, _)| *title));
            let titles: Vec<String> = titles.map(str::to_owned).collect();
            table(&titles, rows.collect(), WIDEST)
        }
        Answer::Packets(lists) => {
            let rows = lists.iter().flat_map(|(id, packets)| {
                packets.iter().map(move |packet| {
                    let bytes = packet.data.len().to_string();
                    let time = time::show(packet.timestamp);
                    vec![id.to_string(), packet.index.to_string(), time, bytes]
                })
            });
            let titles = ["FLOW", "INDEX", "TIME", "BYTES"].map(str::to_owned);
            table(&titles, rows.collect(), WIDEST)
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

fn cell(record: &dyn Record, key: &str) -> String {
    record.get(key).map_or(String::new(), |value| plain(&value))
}

/// Rows of records; columns in which nothing stands are left out.
fn records<T>(columns: &[(&str, &str)], items: &[T], record: fn(&T) -> &dyn Record) -> String {
    let rows: Vec<Vec<String>> = items
        .iter()
        .map(|item| {
            columns
                .iter()
                .map(|(_, key)| cell(record(item), key))
                .collect()
        })
        .collect();
    let used: Vec<usize> = (0..columns.len())
        .filter(|at| *at == 0 || rows.iter().any(|row| !row[*at].is_empty()))
        .collect();
    let titles: Vec<String> = used.iter().map(|at| columns[*at].0.to_owned()).collect();
    let pick = |row: Vec<String>| used.iter().map(|at| row[*at].clone()).collect();
    table(&titles, rows.into_iter().map(pick).collect(), WIDEST)
}

/// Rows of maps, with all their names as columns; other values are a column of their own.
fn maps(owner: &str, rows: Vec<(Option<String>, &Value)>) -> String {
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
    let mut titles: Vec<String> = names.iter().map(|name| name.to_uppercase()).collect();
    if titles == [""] {
        titles = vec!["VALUE".to_owned()];
    }
    if !owner.is_empty() {
        titles.insert(0, owner.to_owned());
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
    table(&titles, rows.collect(), WIDEST)
}

fn table(titles: &[String], rows: Vec<Vec<String>>, widest: usize) -> String {
    if rows.is_empty() {
        return "nothing found\n".to_owned();
    }
    let cut = |text: &str| -> String {
        if text.chars().count() <= widest {
            return text.to_owned();
        }
        text.chars().take(widest - 1).chain(['…']).collect()
    };
    let rows: Vec<Vec<String>> = rows
        .iter()
        .map(|row| row.iter().map(|text| cut(text)).collect())
        .collect();
    let width = |at: usize| {
        let cells = rows.iter().map(|row| row[at].chars().count());
        cells.chain([titles[at].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..titles.len()).map(width).collect();
    let mut text = String::new();
    for row in std::iter::once(titles).chain(rows.iter().map(Vec::as_slice)) {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            let _ = write!(line, "{cell:width$}  ");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}
