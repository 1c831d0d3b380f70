//! JSON as Skydive answers.

use crate::{Answer, ById, RawPacket};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};
use std::io;

pub fn write(answer: &Answer) -> String {
    let mut text = Vec::new();
    // Writing to memory does not fail.
    let _ = write_to(answer, &mut text);
    String::from_utf8(text).unwrap_or_default()
}

/// Writes one element after the other, each made only then: as JSON they take many times the memory.
pub fn write_to(answer: &Answer, out: &mut dyn io::Write) -> io::Result<()> {
    match answer {
        Answer::Nodes(nodes) => list(out, nodes, to_json)?,
        Answer::Edges(edges) => list(out, edges, to_json)?,
        Answer::Paths(paths) => list(out, paths, to_json)?,
        Answer::Values(values) => list(out, values, to_json)?,
        Answer::Flows(flows) => list(out, flows, |flow| to_json(&flow.to_value()))?,
        other => serde_json::to_writer_pretty(&mut *out, &value(other))?,
    }
    out.write_all(b"\n")
}

fn list<T>(out: &mut dyn io::Write, items: &[T], json: impl Fn(&T) -> Value) -> io::Result<()> {
    struct List<'a, T, F>(&'a [T], F);
    impl<T, F: Fn(&T) -> Value> Serialize for List<'_, T, F> {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.collect_seq(self.0.iter().map(&self.1))
        }
    }
    serde_json::to_writer_pretty(out, &List(items, json)).map_err(io::Error::from)
}

pub fn value(answer: &Answer) -> Value {
    match answer {
        Answer::Graph(graph) => json!([to_json(graph)]),
        Answer::Nodes(nodes) => to_json(nodes),
        Answer::Edges(edges) => to_json(edges),
        Answer::Paths(paths) => to_json(paths),
        Answer::Values(values) => to_json(values),
        Answer::Value(value) => to_json(value),
        Answer::Flows(flows) => flows.iter().map(|flow| to_json(&flow.to_value())).collect(),
        Answer::Metrics(lists) | Answer::Sockets(lists) => object(lists, to_json),
        Answer::Packets(lists) => object(lists, |packets| packets.iter().map(packet).collect()),
        Answer::Groups(lists) => object(lists, |flows| {
            flows.iter().map(|flow| to_json(&flow.to_value())).collect()
        }),
        Answer::NextHops(hops) => object(hops, to_json),
    }
}

pub fn to_json(value: &(impl Serialize + ?Sized)) -> Value {
    // Names of objects are texts: nothing here can fail.
    serde_json::to_value(value).unwrap_or(Value::Null)
}

fn object<T>(lists: &ById<T>, convert: impl Fn(&T) -> Value) -> Value {
    if lists.is_empty() {
        return json!([]);
    }
    let entries = lists
        .iter()
        .map(|(id, item)| (id.to_string(), convert(item)));
    json!([Value::Object(entries.collect::<Map<_, _>>())])
}

fn packet(packet: &RawPacket) -> Value {
    json!({
        "Timestamp": packet.timestamp,
        "Index": packet.index,
        "Data": STANDARD.encode(&packet.data),
        "LinkType": packet.link_type,
    })
}
