//! Where a node routes packets to.

use ipnet::IpNet;
use skua_topology::{Map, Value};
use std::{net::IpAddr, sync::Arc};

/// The kernel reads the table of local addresses first, then the main one, then the default one.
fn rank(table: &Map) -> u8 {
    match table.get("ID").and_then(Value::as_int) {
        Some(255) => 0,
        Some(254) => 1,
        Some(253) => 2,
        _ => 3,
    }
}

fn list(value: Option<&Value>) -> &[Value] {
    match value {
        Some(Value::List(items)) => items,
        _ => &[],
    }
}

fn address(map: &Map, key: &str) -> Option<IpAddr> {
    map.get(key)?.as_str()?.parse().ok()
}

/// The next hop from `RoutingTables` and `Neighbors` of a node: of the first table with a route the
/// longest prefix, of several the least priority.
pub(super) fn next_hop(metadata: &Map, to: IpAddr) -> Option<Value> {
    let mut tables: Vec<&Map> = list(metadata.get("RoutingTables"))
        .iter()
        .filter_map(Value::as_map)
        .collect();
    tables.sort_by_key(|table| rank(table));
    let hop = tables.iter().find_map(|table| best(table, to))?;
    let gateway = address(hop, "IP").unwrap_or(to);
    let number = |key: &str| Value::Int(hop.get(key).and_then(Value::as_int).unwrap_or(0));
    let mut entries: Vec<(Arc<str>, Value)> = vec![
        ("Priority".into(), number("Priority")),
        ("IP".into(), gateway.to_string().as_str().into()),
        ("IfIndex".into(), number("IfIndex")),
    ];
    let neighbors = list(metadata.get("Neighbors"))
        .iter()
        .filter_map(Value::as_map);
    let mut known = neighbors.filter(|neighbor| address(neighbor, "IP") == Some(gateway));
    if let Some(mac) = known.find_map(|neighbor| neighbor.get("MAC")) {
        entries.push(("MAC".into(), mac.clone()));
    }
    Some(Value::Map(Map::new(entries)))
}

fn best(table: &Map, to: IpAddr) -> Option<&Map> {
    let mut best: Option<(u8, i64, &Map)> = None;
    for route in list(table.get("Routes")).iter().filter_map(Value::as_map) {
        let Some(prefix) = route.get("Prefix").and_then(Value::as_str) else {
            continue;
        };
        let Some(net) = prefix.parse::<IpNet>().ok().filter(|net| net.contains(&to)) else {
            continue;
        };
        for hop in list(route.get("NextHops")).iter().filter_map(Value::as_map) {
            let priority = hop.get("Priority").and_then(Value::as_int).unwrap_or(0);
            let better = best
                .is_none_or(|(length, least, _)| (net.prefix_len(), -priority) > (length, -least));
            if better {
                best = Some((net.prefix_len(), priority, hop));
            }
        }
    }
    best.map(|(_, _, hop)| hop)
}
