//! `skua changes`: what has changed in the graph between two moments. How a node differs from what it was, `skua top` says
//! in the same words.

use std::{
    collections::{BTreeMap, HashMap},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    io::Write as _,
    time::Duration,
};

use anyhow::{Context as _, bail};
use clap::Args;
use serde_json::{Value, json};
use skua_client::Client;
use skua_config::arguments::{AnalyzerArguments, duration};
use skua_output::{Column, OutputFormat, Printer, each, text};
use skua_process::host::unix_ms;
use skua_top::format::duration as ago_in_words;

use crate::query::Format;

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  skua changes                                    of the last ten minutes
  skua changes --since 1h --until 30m
  skua changes --since 2026-11-21T10:00:00Z --output json
")]
pub struct ChangesArguments {
    /// From this moment on: a time ago like 10m, or a moment like 2026-11-21T10:00:00Z
    #[arg(long, value_name = "TIME", default_value = "10m")]
    pub since: String,
    /// Until this moment [default: now]
    #[arg(long, value_name = "TIME")]
    pub until: Option<String>,
    /// Processes, too, which begin and end all the time
    #[arg(long)]
    pub processes: bool,
    /// How to print
    #[arg(
        short,
        long,
        value_enum,
        default_value = "table",
        value_name = "FORMAT"
    )]
    pub output: OutputFormat,
    /// Show all columns, even if the terminal is too narrow
    #[arg(short, long)]
    pub wide: bool,
    #[command(flatten)]
    pub analyzer: AnalyzerArguments,
}

/// Longer values are left out of a change's text.
const SHORT: usize = 48;
/// Keys that change all the time.
const RESTLESS: [&str; 2] = ["Metric", "LastUpdateMetric"];

const fn column(title: &'static str, rank: u8, cell: fn(&Value) -> String) -> Column {
    Column {
        title,
        right: false,
        rank,
        cell,
    }
}

const CHANGES: [Column; 5] = [
    column("AGO", 1, |c| match c["ago_ms"].as_u64() {
        Some(ms) => ago_in_words(ms.saturating_mul(1_000_000)),
        None => String::new(),
    }),
    column("CHANGE", 0, |c| text(&c["change"])),
    column("TYPE", 0, |c| text(&c["type"])),
    column("NAME", 0, |c| text(&c["name"])),
    column("WHAT", 0, |c| text(&c["what"])),
];

/// What a node was: its name, and a hash of each value.
#[derive(Default)]
pub struct Was {
    /// Its name.
    pub name: String,
    values: HashMap<String, u64>,
}

fn hash(value: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.to_string().hash(&mut hasher);
    hasher.finish()
}

impl Was {
    /// What a node is now.
    pub fn of(node: &Value) -> Self {
        let metadata = node["Metadata"].as_object().into_iter().flatten();
        let values = metadata.filter(|(key, _)| !RESTLESS.contains(&key.as_str()));
        Self {
            name: text(&node["Metadata"]["Name"]),
            values: values
                .map(|(key, value)| (key.clone(), hash(value)))
                .collect(),
        }
    }

    /// What of a node is other than it was, as `KEY=VALUE, …`.
    pub fn changes(&self, now: &Self, node: &Value) -> Vec<String> {
        let changed = now.values.iter();
        let changed = changed.filter(|(key, hash)| self.values.get(*key) != Some(hash));
        let mut changes: Vec<String> = changed
            .map(|(key, _)| match &node["Metadata"][key] {
                Value::String(text) if text.len() <= SHORT => format!("{key}={text}"),
                value @ (Value::Number(_) | Value::Bool(_)) => format!("{key}={value}"),
                _ => key.clone(),
            })
            .collect();
        let gone = self
            .values
            .keys()
            .filter(|key| !now.values.contains_key(*key));
        changes.extend(gone.map(|key| format!("no {key}")));
        changes.sort();
        changes
    }
}

/// A moment as queries have it, and how many seconds ago it was if that is how it was written.
fn moment(text: &str) -> anyhow::Result<(String, Option<f64>)> {
    if let Ok(ago) = duration(text) {
        return Ok((format!("-{}ms", ago.as_millis()), Some(ago.as_secs_f64())));
    }
    if !text.starts_with(|c: char| c.is_ascii_digit()) || !text.contains('T') {
        bail!("\"{text}\" is neither a time ago like 10m nor a moment like 2026-11-21T10:00:00Z");
    }
    Ok((text.to_owned(), None))
}

/// When the history begins (ms since the Unix epoch), if a query failed because it asked for an earlier moment.
fn history_begins(error: &anyhow::Error) -> Option<i64> {
    let text = error.to_string();
    let (_, rest) = text.split_once("history begins at ")?;
    let moment: jiff::Timestamp = rest.split_whitespace().next()?.parse().ok()?;
    Some(moment.as_millisecond())
}

/// A graph at a moment.
struct Graph {
    nodes: BTreeMap<String, Value>,
    /// Relation and ends of edges, by identifier.
    edges: BTreeMap<String, Value>,
    /// Who owns a node.
    owners: HashMap<String, String>,
}

impl Graph {
    fn of(answer: &Value) -> Self {
        let graph = if answer.is_array() {
            &answer[0]
        } else {
            answer
        };
        let by_id = |list: &Value| {
            let list = each(list).iter();
            list.map(|element| (text(&element["ID"]), element.clone()))
                .collect::<BTreeMap<_, _>>()
        };
        let edges = by_id(&graph["Edges"]);
        let owned = edges
            .values()
            .filter(|edge| edge["Metadata"]["RelationType"] == "ownership")
            .map(|edge| (text(&edge["Child"]), text(&edge["Parent"])))
            .collect();
        Self {
            nodes: by_id(&graph["Nodes"]),
            edges,
            owners: owned,
        }
    }

    /// Name of a node with its namespace before it.
    fn name(&self, id: &str) -> String {
        let name = |id: &str| {
            self.nodes
                .get(id)
                .map(|node| text(&node["Metadata"]["Name"]))
        };
        let mut owner = self.owners.get(id);
        // Owners of owners; not without end, whatever a server says.
        for _ in 0..8 {
            let Some(at) = owner else { break };
            if self
                .nodes
                .get(at)
                .is_some_and(|node| node["Metadata"]["Type"] == "netns")
            {
                let namespace = name(at).unwrap_or_default();
                return format!("{namespace}/{}", name(id).unwrap_or_default());
            }
            owner = self.owners.get(at);
        }
        name(id).unwrap_or_else(|| id.to_owned())
    }

    fn ends(&self, edge: &Value) -> String {
        let end = |end: &str| self.name(&text(&edge[end]));
        format!("{} {}", end("Parent"), end("Child"))
    }
}

/// What is other in a graph than it was in an earlier one, and what was there only between the two.
fn differences(before: &Graph, after: &Graph, ended: &Value) -> Vec<Value> {
    let mut found = Vec::new();
    let mut add = |at: &Value, change: &str, kind: &Value, name: String, what: String| {
        found.push(json!({
            "time_ms": at.as_i64().unwrap_or_default(), "change": change, "type": kind, "name": name, "what": what,
        }));
    };
    let ended: HashMap<String, &Value> = each(ended)
        .iter()
        .map(|node| (text(&node["ID"]), node))
        .collect();
    for (id, node) in &after.nodes {
        let kind = &node["Metadata"]["Type"];
        let Some(was) = before.nodes.get(id) else {
            add(
                &node["CreatedAt"],
                "added",
                kind,
                after.name(id),
                String::new(),
            );
            continue;
        };
        let changes = Was::of(was).changes(&Was::of(node), node);
        if !changes.is_empty() {
            add(
                &node["UpdatedAt"],
                "changed",
                kind,
                after.name(id),
                changes.join(", "),
            );
        }
    }
    for (id, node) in &before.nodes {
        if !after.nodes.contains_key(id) {
            let at = ended
                .get(id)
                .map_or(&Value::Null, |node| &node["DeletedAt"]);
            add(
                at,
                "deleted",
                &node["Metadata"]["Type"],
                before.name(id),
                String::new(),
            );
        }
    }
    for (id, node) in &ended {
        if !before.nodes.contains_key(id) && !after.nodes.contains_key(id) {
            let (name, kind) = (text(&node["Metadata"]["Name"]), &node["Metadata"]["Type"]);
            add(&node["DeletedAt"], "came, went", kind, name, String::new());
        }
    }
    for (id, edge) in &after.edges {
        // An owner is added with what it owns; a cable, a bridge's port or a route is news of its own.
        let kind = &edge["Metadata"]["RelationType"];
        let known = [&edge["Parent"], &edge["Child"]];
        let known = known
            .iter()
            .all(|end| before.nodes.contains_key(&text(end)));
        if known && !before.edges.contains_key(id) {
            add(
                &edge["CreatedAt"],
                "joined",
                kind,
                after.ends(edge),
                String::new(),
            );
        }
    }
    for (id, edge) in &before.edges {
        let known = [&edge["Parent"], &edge["Child"]];
        let known = known.iter().all(|end| after.nodes.contains_key(&text(end)));
        if known && !after.edges.contains_key(id) {
            add(
                &Value::Null,
                "parted",
                &edge["Metadata"]["RelationType"],
                before.ends(edge),
                String::new(),
            );
        }
    }
    found.sort_by_key(|change| (change["time_ms"].as_i64(), change["name"].to_string()));
    found
}

/// `skua changes`.
pub fn show(arguments: &ChangesArguments) -> anyhow::Result<()> {
    let (since, since_ago) = moment(&arguments.since)?;
    let until = arguments.until.as_deref().map(moment).transpose()?;
    if let (Some((_, Some(to))), Some(from)) = (&until, since_ago)
        && from <= *to
    {
        bail!(
            "--until {} is not after --since {}",
            arguments.until.as_deref().unwrap_or_default(),
            arguments.since
        );
    }
    if arguments.output == OutputFormat::Csv {
        bail!("changes cannot be printed as CSV: use table or json");
    }
    let client = Client::connect_or_fail(&arguments.analyzer)?;
    let ask = |query: &str| -> anyhow::Result<Value> {
        let body = json!({"GremlinQuery": query, "Explain": false});
        let answer = client.ask("/api/topology", Format::Json.media_type(), &body)?;
        serde_json::from_slice(&answer).context("the answer is not JSON")
    };
    let before = match ask(&format!("G.At(\"{since}\")")) {
        Ok(before) => before,
        Err(error) => {
            let Some(begins) = history_begins(&error) else {
                return Err(error);
            };
            let ago = u64::try_from(unix_ms() - begins).unwrap_or(0);
            eprintln!(
                "skua: the history begins {} ago, later than --since {}: these are the changes since then",
                ago_in_words(ago.saturating_mul(1_000_000)),
                arguments.since
            );
            ask(&format!("G.At({begins})"))?
        }
    };
    let (after, ended) = match (&until, since_ago) {
        (None, Some(ago)) => {
            let seconds = Duration::from_secs_f64(ago).as_secs().max(1);
            (
                ask("G")?,
                ask(&format!("G.At(NOW, {seconds}).V().HasKey(\"@DeletedAt\")"))?,
            )
        }
        (Some((until, Some(to))), Some(from)) => {
            let seconds = ((from - to) as u64).max(1);
            (
                ask(&format!("G.At(\"{until}\")"))?,
                ask(&format!(
                    "G.At(\"{until}\", {seconds}).V().HasKey(\"@DeletedAt\")"
                ))?,
            )
        }
        (Some((until, _)), _) => (ask(&format!("G.At(\"{until}\")"))?, Value::Null),
        (None, None) => (ask("G")?, Value::Null),
    };
    let mut found = differences(&Graph::of(&before), &Graph::of(&after), &ended);
    found.retain(|change| arguments.processes || change["type"] != "process");
    let none = found.is_empty();
    let mut lines = Vec::new();
    let now = unix_ms();
    for mut change in found {
        let at = change["time_ms"].as_i64().unwrap_or_default();
        if at > 0 {
            change["ago_ms"] = (now - at).max(0).into();
        }
        writeln!(lines, "{change}")?;
    }
    if none && arguments.output == OutputFormat::Table {
        println!("no changes since {}", arguments.since);
        return Ok(());
    }
    Printer::new(arguments.output, &CHANGES, |_| Ok(()), arguments.wide).finish(&lines)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn graph(nodes: &Value, edges: &Value) -> Graph {
        Graph::of(&json!([{"Nodes": nodes, "Edges": edges}]))
    }

    #[test]
    fn graphs_differ_in_nodes_values_and_edges() {
        let node = |id: &str, kind: &str, more: Value| {
            let mut metadata = json!({"Name": format!("n{id}"), "Type": kind});
            metadata
                .as_object_mut()
                .unwrap()
                .extend(more.as_object().unwrap().clone());
            json!({"ID": id, "Metadata": metadata, "CreatedAt": 5, "UpdatedAt": 7})
        };
        let edge = |id: &str, kind: &str, parent: &str, child: &str| json!({"ID": id, "Parent": parent, "Child": child, "CreatedAt": 6, "Metadata": {"RelationType": kind}});
        let (netns, bridge) = (
            node("1", "netns", json!({})),
            node("2", "bridge", json!({})),
        );
        let up = node(
            "3",
            "veth",
            json!({"State": "UP", "MTU": 1500, "Metric": {"RxBytes": 1}}),
        );
        let down = node(
            "3",
            "veth",
            json!({"State": "DOWN", "MTU": 1500, "Metric": {"RxBytes": 9}}),
        );
        let owns = edge("a", "ownership", "1", "3");
        let before = graph(
            &json!([netns, bridge, up, node("4", "veth", json!({}))]),
            &json!([owns, edge("b", "layer2", "2", "3")]),
        );
        let after = graph(
            &json!([netns, bridge, down, node("5", "veth", json!({}))]),
            &json!([
                owns,
                edge("c", "layer2", "1", "2"),
                edge("d", "layer2", "2", "5")
            ]),
        );
        let ended = json!([
            {"ID": "4", "DeletedAt": 8, "Metadata": {"Name": "n4", "Type": "veth"}},
            {"ID": "6", "DeletedAt": 9, "Metadata": {"Name": "n6", "Type": "tun"}},
        ]);
        let found: Vec<String> = differences(&before, &after, &ended)
            .iter()
            .map(|c| {
                format!(
                    "{} {} {} {} {}",
                    c["time_ms"],
                    text(&c["change"]),
                    text(&c["type"]),
                    text(&c["name"]),
                    text(&c["what"])
                )
            })
            .collect();
        assert_eq!(
            found,
            [
                "0 parted layer2 n2 n1/n3 ",
                "5 added veth n5 ",
                "6 joined layer2 n1 n2 ",
                "7 changed veth n1/n3 State=DOWN",
                "8 deleted veth n4 ",
                "9 came, went tun n6 ",
            ]
        );
        assert_eq!(differences(&after, &after, &Value::Null).len(), 0);
    }

    #[test]
    fn moments_are_times_ago_or_times() {
        assert_eq!(
            moment("10m").unwrap(),
            ("-600000ms".to_owned(), Some(600.0))
        );
        assert_eq!(moment("2026-11-21T10:00:00Z").unwrap().1, None);
        assert!(moment("yesterday").is_err());
        assert!(moment("\"); G.V(\"").is_err());
    }
}
