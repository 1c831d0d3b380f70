//! `/api/map`: the parts of the graph that a map shows, and their changes. Nodes have numbers, so that a
//! change of rates is a few digits; metadata that a map does not show (routes, features, …) causes no
//! change.

use std::{
    collections::{HashMap, HashSet},
    hash::{DefaultHasher, Hasher as _},
    sync::{Arc, atomic::AtomicBool},
};

use axum::extract::{Query, State};
use serde::{Deserialize, Serialize};
use skua_process::host::unix_ms;
use skua_query::Answer as QueryAnswer;
use skua_runtime::query_engine::QueryEngine;
use skua_server::{
    answer::{Answer, Parameters},
    blocking,
    error::ApiError,
};
use skua_topology::{Edge, Export, Map, Node, Value};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::{router::OpenApiRouter, routes};

/// Longest name and type, in bytes; the rest is in the details of a node.
const LONGEST: usize = 256;
/// Addresses of a node that are sent.
const ADDRESSES: usize = 8;

/// Bits per second received and sent, then packets per second dropped and with errors; integers.
type Rates = [u64; 4];

/// A node as a map shows it.
#[derive(Serialize, Hash, ToSchema)]
#[serde(rename_all = "PascalCase")]
#[schema(as = MapNode)]
struct MapNode {
    /// Its number, as long as the map is the same.
    n: u32,
    #[serde(rename = "ID")]
    id: Arc<str>,
    #[serde(rename = "TID", skip_serializing_if = "str::is_empty")]
    tid: Arc<str>,
    host: Arc<str>,
    name: String,
    r#type: String,
    #[serde(skip_serializing_if = "str::is_empty")]
    state: Arc<str>,
    #[serde(rename = "MAC", skip_serializing_if = "str::is_empty")]
    mac: Arc<str>,
    #[serde(rename = "IP", skip_serializing_if = "Vec::is_empty")]
    ip: Vec<Arc<str>>,
    /// Ms since the Unix epoch.
    created: i64,
    /// Captures on it.
    #[serde(skip_serializing_if = "is_zero")]
    captures: usize,
    /// Why it could not be entered.
    #[serde(skip_serializing_if = "str::is_empty")]
    refused: Arc<str>,
}

/// An edge as a map shows it.
#[derive(Serialize, Hash, ToSchema)]
#[serde(rename_all = "PascalCase")]
#[schema(as = MapEdge)]
struct MapEdge {
    n: u32,
    parent: u32,
    child: u32,
    /// Whether it is of layer 2, else the parent owns the child.
    layer2: bool,
    #[serde(skip_serializing_if = "str::is_empty")]
    r#type: Arc<str>,
}

/// Differences to the last message.
#[derive(Serialize, Default, ToSchema)]
#[serde(rename_all = "PascalCase")]
#[schema(as = Map)]
pub struct Changes {
    /// By the server's clock, ms since the Unix epoch.
    time: i64,
    /// When the graph's history begins, ms since the Unix epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    begins: Option<i64>,
    /// The complete map, not only changes.
    whole: bool,
    nodes: Vec<MapNode>,
    edges: Vec<MapEdge>,
    gone_nodes: Vec<u32>,
    gone_edges: Vec<u32>,
    /// Five numbers for each node with changed rates: its own, then [`Rates`].
    rates: Vec<u64>,
}

impl Changes {
    /// Whether there are no changes.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
            && self.edges.is_empty()
            && self.gone_nodes.is_empty()
            && self.gone_edges.is_empty()
            && self.rates.is_empty()
    }
}

struct Sent<T> {
    n: u32,
    version: Arc<T>,
    digest: u64,
    rates: Rates,
    /// How long the rates are valid: unchanged counters are not written again. Ms since the Unix
    /// epoch.
    until: i64,
    /// The last snapshot with this node.
    seen: u64,
}

/// The map that a client has received.
#[derive(Default)]
pub struct Picture {
    nodes: HashMap<Arc<str>, Sent<Node>>,
    edges: HashMap<Arc<str>, Sent<Edge>>,
    last: u32,
    generation: u64,
}

impl Picture {
    /// Differences to a snapshot of the graph.
    pub fn changes(&mut self, export: Export, begins: Option<i64>, moment: i64) -> Changes {
        let mut changes = Changes {
            time: moment,
            begins,
            whole: self.generation == 0,
            ..Changes::default()
        };
        self.generation += 1;
        for node in export.nodes {
            self.node(node, &mut changes);
        }
        for edge in export.edges {
            self.edge(edge, &mut changes);
        }
        let generation = self.generation;
        self.edges
            .retain(|_, sent| is_present(sent, generation, &mut changes.gone_edges));
        self.nodes
            .retain(|_, sent| is_present(sent, generation, &mut changes.gone_nodes));
        // A removed node removes its edges, too.
        let gone: HashSet<_> = changes.gone_nodes.iter().collect();
        changes
            .edges
            .retain(|line| !gone.contains(&line.parent) && !gone.contains(&line.child));
        changes
    }

    fn next(&mut self) -> u32 {
        self.last += 1;
        self.last
    }

    fn node(&mut self, node: Arc<Node>, changes: &mut Changes) {
        let generation = self.generation;
        let before = match self.nodes.get_mut(&node.id) {
            Some(sent) => {
                sent.seen = generation;
                if Arc::ptr_eq(&sent.version, &node) {
                    if sent.until < changes.time && sent.rates != Rates::default() {
                        sent.rates = Rates::default();
                        changes.rates.push(sent.n.into());
                        changes.rates.extend(sent.rates);
                    }
                    return;
                }
                Some((sent.n, sent.digest, sent.rates))
            }
            None => None,
        };
        let (n, digest, rates) = before.unwrap_or_else(|| (self.next(), 0, Rates::default()));
        let spot = spot(n, &node);
        let (now, until) = rates_of(&node.metadata, changes.time);
        let sent = Sent {
            n,
            digest: digest_of(&spot),
            rates: now,
            until,
            seen: generation,
            version: node,
        };
        if sent.digest != digest {
            changes.nodes.push(spot);
        }
        if now != rates {
            changes.rates.push(n.into());
            changes.rates.extend(now);
        }
        self.nodes.insert(sent.version.id.clone(), sent);
    }

    fn edge(&mut self, edge: Arc<Edge>, changes: &mut Changes) {
        let generation = self.generation;
        let id = edge.element.id.clone();
        let before = match self.edges.get_mut(&id) {
            Some(sent) => {
                sent.seen = generation;
                if Arc::ptr_eq(&sent.version, &edge) {
                    return;
                }
                Some((sent.n, sent.digest))
            }
            None => None,
        };
        let number = |id: &Arc<str>| self.nodes.get(id).map(|sent| sent.n);
        // An edge is never there without its nodes.
        let (Some(parent), Some(child)) = (number(&edge.parent), number(&edge.child)) else {
            return;
        };
        let (n, digest) = before.unwrap_or_else(|| (self.next(), 0));
        let text = |key| text(&edge.element.metadata, key);
        let line = MapEdge {
            n,
            parent,
            child,
            layer2: &*text("RelationType") != "ownership",
            r#type: text("Type"),
        };
        let sent = Sent {
            n,
            digest: digest_of(&line),
            rates: Rates::default(),
            until: i64::MAX,
            seen: generation,
            version: edge,
        };
        if sent.digest != digest {
            changes.edges.push(line);
        }
        self.edges.insert(id, sent);
    }
}

fn is_present<T>(sent: &Sent<T>, generation: u64, gone: &mut Vec<u32>) -> bool {
    let there = sent.seen == generation;
    if !there {
        gone.push(sent.n);
    }
    there
}

fn digest_of(what: &impl std::hash::Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

fn text(map: &Map, key: &str) -> Arc<str> {
    match map.get(key) {
        Some(Value::Str(text)) => text.clone(),
        _ => "".into(),
    }
}

fn short(text: &str) -> String {
    let mut end = text.len().min(LONGEST);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let rest = if end < text.len() { "…" } else { "" };
    format!("{}{rest}", &text[..end])
}

fn spot(n: u32, node: &Node) -> MapNode {
    let text = |key| text(&node.metadata, key);
    let list = |key| match node.metadata.get(key) {
        Some(Value::List(items)) => &items[..],
        _ => &[],
    };
    let addresses = list("IPV4").iter().chain(list("IPV6"));
    let addresses = addresses.filter_map(|address| match address {
        Value::Str(text) => Some(text.clone()),
        _ => None,
    });
    MapNode {
        n,
        id: node.id.clone(),
        tid: text("TID"),
        host: node.host.clone(),
        name: short(&text("Name")),
        r#type: short(&text("Type")),
        state: text("State"),
        mac: text("MAC"),
        ip: addresses.take(ADDRESSES).collect(),
        created: node.created_at,
        captures: list("Captures").len(),
        refused: text("Refused"),
    }
}

/// The rates at a moment, and how long they are valid.
fn rates_of(metadata: &Map, moment: i64) -> (Rates, i64) {
    let nothing = (Rates::default(), i64::MAX);
    let Some(update) = metadata.get("LastUpdateMetric").and_then(Value::as_map) else {
        return nothing;
    };
    let time = |key| update.get(key).and_then(Value::as_int).unwrap_or_default();
    let (start, last) = (time("Start"), time("Last"));
    let span = last.saturating_sub(start);
    // The next update follows one interval later, and may be a little late.
    let until = last
        .saturating_add(span.saturating_mul(2))
        .saturating_add(1000);
    if span <= 0 || until < moment {
        return nothing;
    }
    let number = |key| update.get(key).and_then(Value::as_f64).unwrap_or_default();
    // Ms make seconds. Conversion to integers saturates.
    let per_second = |sum: f64| (sum * 1000.0 / span as f64).round() as u64;
    let rates = [
        per_second(number("RxBytes") * 8.0),
        per_second(number("TxBytes") * 8.0),
        per_second(number("RxDropped") + number("TxDropped")),
        per_second(number("RxErrors") + number("TxErrors")),
    ];
    (rates, until)
}

/// The graph of now, and when its history begins.
pub fn snapshot(engine: &QueryEngine) -> (Export, Option<i64>) {
    let graph = engine.graph.read();
    (graph.export(), graph.stats().begins)
}

/// Number of the last event of the graph.
pub fn last_event(engine: &QueryEngine) -> u64 {
    engine.graph.read().stats().last_event
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct MapParameters {
    /// A moment, ms since the Unix epoch; now when left out.
    at: Option<i64>,
}

/// The path of this module.
pub fn routes(engine: QueryEngine) -> OpenApiRouter {
    OpenApiRouter::new().routes(routes!(map)).with_state(engine)
}

/// The parts of the graph that a map shows
#[utoipa::path(get, path = "/api/map", operation_id = "map", tag = "topology", params(MapParameters),
    responses((status = 200, description = "Nodes and edges, numbered for this answer", body = Changes)))]
async fn map(
    State(engine): State<QueryEngine>,
    parameters: Parameters<MapParameters>,
) -> Result<Answer<Changes>, ApiError> {
    let Query(MapParameters { at }) = parameters?;
    blocking(move || {
        let (now, begins) = snapshot(&engine);
        let export = match at {
            None => now,
            Some(at) => {
                let query = format!("G.At({at})");
                match engine.ask_graph(&query, &AtomicBool::new(false)) {
                    Ok(QueryAnswer::Graph(export)) => export,
                    Ok(_) => Export::default(),
                    Err(error) => return Err(ApiError::bad_request(error.render(&query))),
                }
            }
        };
        let changes = Picture::default().changes(export, begins, at.unwrap_or_else(unix_ms));
        Ok(Answer::of(&changes))
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(id: &str, metadata: serde_json::Value) -> Arc<Node> {
        let metadata = serde_json::from_value(metadata).unwrap();
        Arc::new(Node::new(id, "host", metadata))
    }

    fn export(nodes: &[Arc<Node>]) -> Export {
        Export {
            nodes: nodes.to_vec(),
            edges: Vec::new(),
        }
    }

    #[test]
    fn only_what_a_map_shows_makes_a_change() {
        let mut picture = Picture::default();
        let mut look = |nodes: &[Arc<Node>], moment| picture.changes(export(nodes), None, moment);
        let a = node("a", serde_json::json!({"Name": "eth0", "MTU": 1500}));
        let b = node("b", serde_json::json!({"Name": "eth1"}));
        let first = look(&[a, b.clone()], 1000);
        assert!(first.whole && first.nodes.len() == 2 && first.rates.is_empty());
        let other_mtu = node("a", serde_json::json!({"Name": "eth0", "MTU": 9000}));
        assert!(look(&[other_mtu, b.clone()], 2000).is_empty());
        let busy = node(
            "a",
            serde_json::json!({"Name": "eth0", "LastUpdateMetric": {
                "Start": 1000, "Last": 3000, "RxBytes": 1000, "TxDropped": 4}}),
        );
        let changes = look(&[busy.clone(), b.clone()], 3000);
        assert!(changes.nodes.is_empty() && !changes.whole);
        assert_eq!(changes.rates[1..], [4000, 0, 2, 0]);
        // Unchanged counters are not written again.
        assert!(look(&[busy.clone(), b.clone()], 8000).is_empty());
        assert_eq!(look(&[busy, b], 8001).rates[1..], [0; 4]);
        let gone = look(&[], 9000);
        assert_eq!(gone.gone_nodes.len(), 2);
        assert!(picture.nodes.is_empty());
    }

    #[test]
    fn names_are_cut_between_characters() {
        let cut = short(&"é".repeat(4096));
        assert!(cut.len() <= LONGEST + '…'.len_utf8() && cut.ends_with('…'));
        assert_eq!(short("eth0"), "eth0");
    }
}
