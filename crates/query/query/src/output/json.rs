//! JSON as Skydive answers.

use crate::{Answer, ById, Flow, RawPacket};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde::{Serialize, Serializer, ser::SerializeStruct as _};
use serde_json::{Value, json};
use skua_topology::Export;
use std::{io, sync::Arc};

pub fn write(answer: &Answer) -> String {
    let mut text = Vec::new();
    // Writing to memory does not fail.
    let _ = write_to(answer, &mut text);
    String::from_utf8(text).unwrap_or_default()
}

/// Writes elements one by one, each converted only then: as JSON they need many times the memory.
pub fn write_to(answer: &Answer, out: &mut dyn io::Write) -> io::Result<()> {
    match answer {
        Answer::Nodes(nodes) => list(out, nodes, to_json)?,
        Answer::Edges(edges) => list(out, edges, to_json)?,
        Answer::Paths(paths) => list(out, paths, to_json)?,
        Answer::Values(values) => list(out, values, to_json)?,
        Answer::Flows(flows) => list(out, flows, |flow| to_json(&flow.to_value()))?,
        Answer::Graph(graph) => serde_json::to_writer_pretty(&mut *out, &[Parts(graph)])?,
        Answer::Metrics(lists) | Answer::Sockets(lists) => object(out, lists, to_json)?,
        Answer::Packets(lists) => object(out, lists, |list| packets(list))?,
        Answer::Groups(lists) => object(out, lists, |list| flows(list))?,
        Answer::NextHops(hops) => object(out, hops, to_json)?,
        Answer::Value(value) => serde_json::to_writer_pretty(&mut *out, value)?,
    }
    out.write_all(b"\n")
}

/// Elements that become JSON one after the other.
struct List<'a, T, F>(&'a [T], F);

impl<T, F: Fn(&T) -> Value> Serialize for List<'_, T, F> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(&self.1))
    }
}

/// A graph, element by element.
struct Parts<'a>(&'a Export);

impl Serialize for Parts<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut graph = serializer.serialize_struct("Graph", 2)?;
        graph.serialize_field("Edges", &List(&self.0.edges, to_json))?;
        graph.serialize_field("Nodes", &List(&self.0.nodes, to_json))?;
        graph.end()
    }
}

fn list<T>(out: &mut dyn io::Write, items: &[T], json: impl Fn(&T) -> Value) -> io::Result<()> {
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
        Answer::Flows(list) => flows(list),
        Answer::Metrics(lists) | Answer::Sockets(lists) => to_json(&Object::of(lists, to_json)),
        Answer::Packets(lists) => to_json(&Object::of(lists, |list| packets(list))),
        Answer::Groups(lists) => to_json(&Object::of(lists, |list| flows(list))),
        Answer::NextHops(hops) => to_json(&Object::of(hops, to_json)),
    }
}

pub fn to_json(value: &(impl Serialize + ?Sized)) -> Value {
    // Keys of objects are texts: the conversion cannot fail.
    serde_json::to_value(value).unwrap_or(Value::Null)
}

/// A list of one object with an entry for each identifier, in their order; of two with the same the last one. An empty
/// list without any.
struct Object<'a, T, F>(Vec<&'a (Arc<str>, T)>, F);

impl<'a, T, F: Fn(&T) -> Value> Object<'a, T, F> {
    fn of(lists: &'a ById<T>, json: F) -> Self {
        let mut entries: Vec<_> = lists.iter().rev().collect();
        entries.sort_by(|(a, _), (b, _)| a.cmp(b));
        entries.dedup_by(|(b, _), (a, _)| a == b);
        Self(entries, json)
    }
}

impl<T, F: Fn(&T) -> Value> Serialize for Object<'_, T, F> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        struct Entries<'a, T, F>(&'a [&'a (Arc<str>, T)], &'a F);
        impl<T, F: Fn(&T) -> Value> Serialize for Entries<'_, T, F> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let entries = self.0.iter();
                serializer.collect_map(entries.map(|(id, item)| (&**id, (self.1)(item))))
            }
        }
        let object = (!self.0.is_empty()).then_some(Entries(&self.0, &self.1));
        serializer.collect_seq(object)
    }
}

fn object<T>(
    out: &mut dyn io::Write,
    lists: &ById<T>,
    json: impl Fn(&T) -> Value,
) -> io::Result<()> {
    serde_json::to_writer_pretty(out, &Object::of(lists, json)).map_err(io::Error::from)
}

fn flows(flows: &[Flow]) -> Value {
    flows.iter().map(|flow| to_json(&flow.to_value())).collect()
}

fn packets(packets: &[RawPacket]) -> Value {
    let one = |packet: &RawPacket| {
        json!({
            "Timestamp": packet.timestamp,
            "Index": packet.index,
            "Data": STANDARD.encode(&packet.data),
            "LinkType": packet.link_type,
        })
    };
    packets.iter().map(one).collect()
}
