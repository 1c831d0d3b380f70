//! Columns of the topology: nodes as the API has them, with `Tree`, the lines before the name.

use serde_json::Value;

use super::{Column, column, number, text};
use crate::format::count;

fn list(value: &Value) -> String {
    let items = value.as_array().into_iter().flatten();
    items.map(text).collect::<Vec<_>>().join(" ")
}

/// Columns of the topology.
pub const TREE: [Column; 7] = [
    column("NODE", 0, |n| {
        format!("{}{}", text(&n["Tree"]), text(&n["Metadata"]["Name"]))
    }),
    column("TYPE", 1, |n| text(&n["Metadata"]["Type"])),
    column("STATE", 2, |n| text(&n["Metadata"]["State"])),
    column("ADDRESSES", 3, |n| {
        let [v4, v6] = ["IPV4", "IPV6"].map(|key| list(&n["Metadata"][key]));
        format!("{v4} {v6}").trim().to_owned()
    }),
    column("MAC", 5, |n| text(&n["Metadata"]["MAC"])),
    number("MTU", 6, |n| match n["Metadata"]["MTU"].as_u64() {
        Some(mtu) => mtu.to_string(),
        None => String::new(),
    }),
    number("DROPPED", 4, |n| {
        let metric = &n["Metadata"]["Metric"];
        let dropped = ["RxDropped", "TxDropped"].map(|key| metric[key].as_u64().unwrap_or(0));
        match dropped.iter().sum() {
            0 => String::new(),
            sum => count(sum),
        }
    }),
];
