//! JSON as Skydive answers.

use crate::{Answer, ById, RawPacket};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde::Serialize;
use serde_json::{Map, Value, json};

pub fn write(answer: &Answer) -> String {
    let mut text = serde_json::to_string_pretty(&value(answer)).unwrap_or_default();
    text.push('\n');
    text
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
