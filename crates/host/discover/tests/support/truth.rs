//! What `ip` and `bridge` say of a namespace, and what the graph does, in the same words.

use super::{interfaces, text};
use serde_json::Value as Json;
use skua_testkit::lab::run;
use skua_topology::{Graph, Map, Value};
use std::{
    collections::{BTreeMap, BTreeSet},
    process::Command,
};

/// By name of the interface: facts as `key value`.
pub type Facts = BTreeMap<String, BTreeSet<String>>;

/// Flags that both sides show.
const FLAGS: [(&str, &str); 8] = [
    ("UP", "UP"),
    ("BROADCAST", "BROADCAST"),
    ("LOOPBACK", "LOOPBACK"),
    ("POINTOPOINT", "POINTTOPOINT"),
    ("NOARP", "NOARP"),
    ("PROMISC", "PROMISC"),
    ("MULTICAST", "MULTICAST"),
    ("LOWER_UP", "LOWER_UP"),
];

fn json(program: &str, namespace: &str, args: &str) -> Vec<Json> {
    let out = run(Command::new(program)
        .args(["-n", namespace, "-j"])
        .args(args.split_whitespace()));
    if out.trim().is_empty() {
        return Vec::new();
    }
    serde_json::from_str(&out).unwrap_or_else(|e| panic!("{program} {args}: {e}: {out}"))
}

fn word<'a>(json: &'a Json, key: &str) -> &'a str {
    json[key].as_str().unwrap_or("")
}

/// What iproute2 says.
pub fn said(namespace: &str) -> Facts {
    let mut facts = Facts::new();
    let links = json("ip", namespace, "-d link show");
    let mut indexes = BTreeMap::new();
    for link in &links {
        indexes.insert(word(link, "ifname").to_owned(), link["ifindex"].clone());
    }
    for link in &links {
        let own = facts.entry(word(link, "ifname").to_owned()).or_default();
        said_link(link, &indexes, own);
    }
    let mut add = |name: &str, fact: String| {
        facts.entry(name.to_owned()).or_default().insert(fact);
    };
    for link in json("ip", namespace, "addr show") {
        for address in link["addr_info"].as_array().into_iter().flatten() {
            let (ip, prefix) = (word(address, "local"), &address["prefixlen"]);
            if !ip.is_empty() {
                add(word(&link, "ifname"), format!("address {ip}/{prefix}"));
            }
        }
    }
    for (family, any) in [("-4", "0.0.0.0/0"), ("-6", "::/0")] {
        for route in json(
            "ip",
            namespace,
            &format!("-N {family} -d route show table all"),
        ) {
            said_route(&route, any, &mut add);
        }
    }
    for neighbour in json("ip", namespace, "neigh show nud all") {
        let states = neighbour["state"].as_array().cloned().unwrap_or_default();
        let is = |name: &str| states.iter().any(|state| state == name);
        if is("NOARP") || is("INCOMPLETE") || is("NONE") || states.is_empty() {
            continue;
        }
        let (ip, mac) = (word(&neighbour, "dst"), word(&neighbour, "lladdr"));
        let kind = if is("PERMANENT") { " permanent" } else { "" };
        add(
            word(&neighbour, "dev"),
            format!("neighbour {ip} {mac}{kind}"),
        );
    }
    for entry in json("bridge", namespace, "fdb show") {
        let flags = entry["flags"].as_array().cloned().unwrap_or_default();
        let own = if flags.iter().any(|flag| flag == "self") {
            " self"
        } else {
            ""
        };
        let (mac, vlan, dst) = (
            word(&entry, "mac"),
            entry["vlan"].as_i64(),
            word(&entry, "dst"),
        );
        let vlan = vlan.unwrap_or(0);
        if !own.is_empty() && dst.is_empty() {
            // Filters of the interface's receiver, of which the kernel does not tell.
            continue;
        }
        add(
            word(&entry, "ifname"),
            format!("fdb {mac} {vlan} {dst}{own}"),
        );
    }
    for port in json("bridge", namespace, "vlan show") {
        for vlan in port["vlans"].as_array().into_iter().flatten() {
            let first = vlan["vlan"].as_i64().unwrap();
            let last = vlan["vlanEnd"].as_i64().unwrap_or(first);
            let flags = vlan["flags"].to_string();
            let pvid = if flags.contains("PVID") { " pvid" } else { "" };
            let untagged = if flags.contains("Untagged") {
                " untagged"
            } else {
                ""
            };
            for id in first..=last {
                add(word(&port, "ifname"), format!("vlan {id}{pvid}{untagged}"));
            }
        }
    }
    facts
}

fn said_link(link: &Json, indexes: &BTreeMap<String, Json>, out: &mut BTreeSet<String>) {
    let mut add = |fact: String| {
        out.insert(fact);
    };
    let info = &link["linkinfo"];
    let kind = match word(info, "info_kind") {
        "" => "device",
        "tun" => "tuntap",
        kind => kind,
    };
    add(format!("type {kind}"));
    add(format!("index {}", link["ifindex"]));
    add(format!("mtu {}", link["mtu"]));
    add(format!("encapsulation {}", word(link, "link_type")));
    let state = match word(link, "operstate") {
        "LOWERLAYERDOWN" => "LOWER-LAYER-DOWN",
        "NOTPRESENT" => "NOT-PRESENT",
        state => state,
    };
    add(format!("state {state}"));
    if !word(link, "address").is_empty() {
        // Loopback has zeros, which are no address.
        if word(link, "address") != "00:00:00:00:00:00" {
            add(format!("mac {}", word(link, "address")));
        }
    }
    for flag in link["flags"].as_array().into_iter().flatten() {
        let known = FLAGS.iter().find(|(said, _)| flag == said);
        if let Some((_, seen)) = known {
            add(format!("flag {seen}"));
        }
    }
    if let Some(master) = indexes.get(word(link, "master")) {
        add(format!("master {master}"));
    }
    match indexes.get(word(link, "link")) {
        Some(lower) => add(format!("link {lower}")),
        None if link["link_index"].is_number() => add(format!("link {}", link["link_index"])),
        None => {}
    }
    if link["link_netnsid"].is_number() {
        add(format!("netnsid {}", link["link_netnsid"]));
    }
    let data = &info["info_data"];
    match kind {
        "vxlan" => {
            add(format!("vxlan {} {}", data["id"], data["port"]));
            if let Some(lower) = indexes.get(word(data, "link")) {
                add(format!("link {lower}"));
            }
            for end in ["remote", "group", "local"] {
                if !word(data, end).is_empty() {
                    add(format!(
                        "{} {}",
                        end.replace("group", "remote"),
                        word(data, end)
                    ));
                }
            }
        }
        "macvlan" => add(format!("macvlan {}", word(data, "mode"))),
        "tuntap" => add(format!("tuntap {} {}", word(data, "type"), data["persist"])),
        "bridge" => add(format!(
            "bridge {} {}",
            data["vlan_filtering"], data["stp_state"]
        )),
        _ => {}
    }
}

fn said_route(route: &Json, any: &str, add: &mut impl FnMut(&str, String)) {
    let number = |word: &str, or: i64| match word {
        "" => or,
        "local" => 255,
        "main" => 254,
        "default" => 253,
        other => other.parse().unwrap(),
    };
    let table = number(word(route, "table"), 254);
    let bits = if any == "::/0" { 128 } else { 32 };
    let to = match word(route, "dst") {
        "default" => any.to_owned(),
        to if to.contains('/') => to.to_owned(),
        to => format!("{to}/{bits}"),
    };
    // With -N types are numbers, too.
    let kind = match word(route, "type") {
        "" | "unicast" | "1" => "unicast",
        "2" => "local",
        "3" => "broadcast",
        "4" => "anycast",
        "5" => "multicast",
        "6" => "blackhole",
        "7" => "unreachable",
        other => other,
    };
    let metric = route["metric"].as_i64().unwrap_or(0);
    let hops = route["nexthops"].as_array().cloned();
    for hop in hops.unwrap_or_else(|| vec![route.clone()]) {
        let via = word(&hop, "gateway");
        let device = word(&hop, "dev");
        add(
            device,
            format!("route {table} {kind} {to} via {via} metric {metric}"),
        );
    }
}

fn list(map: &Map, key: &str) -> Vec<Value> {
    match map.get(key) {
        Some(Value::List(items)) => items.to_vec(),
        _ => Vec::new(),
    }
}

fn int(map: &Map, key: &str) -> Option<i64> {
    map.get(key).and_then(Value::as_int)
}

fn has(map: &Map, key: &str, wanted: &str) -> bool {
    list(map, key)
        .iter()
        .any(|value| value.as_str() == Some(wanted))
}

/// What the graph says.
pub fn seen(graph: &Graph, namespace: &str) -> Facts {
    let mut facts = Facts::new();
    for node in interfaces(graph, namespace) {
        let own = facts
            .entry(text(&node.metadata, "Name").to_owned())
            .or_default();
        seen_interface(&node.metadata, own);
    }
    if let Some(owner) = super::namespace_node(graph, namespace) {
        let mut own = BTreeSet::new();
        seen_routes(&owner.metadata, 0, &mut own);
        if !own.is_empty() {
            facts.entry(String::new()).or_default().append(&mut own);
        }
    }
    facts
}

fn seen_interface(map: &Map, out: &mut BTreeSet<String>) {
    let index = int(map, "IfIndex").unwrap();
    let mut add = |fact: String| {
        out.insert(fact);
    };
    add(format!("type {}", text(map, "Type")));
    add(format!("index {index}"));
    add(format!("mtu {}", int(map, "MTU").unwrap()));
    add(format!("encapsulation {}", text(map, "EncapType")));
    add(format!("state {}", text(map, "State")));
    if map.get("MAC").is_some() {
        add(format!("mac {}", text(map, "MAC")));
    }
    for (_, flag) in FLAGS {
        if has(map, "LinkFlags", flag) {
            add(format!("flag {flag}"));
        }
    }
    for (key, name) in [
        ("MasterIndex", "master"),
        ("ParentIndex", "link"),
        ("LinkNetNsID", "netnsid"),
    ] {
        if let Some(number) = int(map, key) {
            add(format!("{name} {number}"));
        }
    }
    let inner = |key: &str| {
        map.get(key)
            .and_then(Value::as_map)
            .cloned()
            .unwrap_or_default()
    };
    let truth = |map: &Map, key: &str| map.get(key) == Some(&Value::Bool(true));
    match text(map, "Type") {
        "vxlan" => {
            let data = inner("VXLAN");
            let numbers = (int(&data, "VNI").unwrap(), int(&data, "Port").unwrap());
            add(format!("vxlan {} {}", numbers.0, numbers.1));
            for (key, name) in [("Remote", "remote"), ("Local", "local")] {
                if data.get(key).is_some() {
                    add(format!("{name} {}", text(&data, key)));
                }
            }
        }
        "macvlan" => add(format!("macvlan {}", text(&inner("Macvlan"), "Mode"))),
        "tuntap" => {
            let data = inner("TunTap");
            add(format!(
                "tuntap {} {}",
                text(&data, "Kind"),
                truth(&data, "Persist")
            ));
        }
        "bridge" => {
            let data = inner("Bridge");
            let (filtering, stp) = (truth(&data, "VlanFiltering"), truth(&data, "STP"));
            add(format!(
                "bridge {} {}",
                i32::from(filtering),
                i32::from(stp)
            ));
        }
        _ => {}
    }
    for key in ["IPV4", "IPV6"] {
        for address in list(map, key) {
            add(format!("address {}", address.as_str().unwrap()));
        }
    }
    for neighbour in list(map, "Neighbors") {
        let neighbour = neighbour.as_map().unwrap().clone();
        let permanent = has(&neighbour, "State", "NUD_PERMANENT");
        let kind = if permanent { " permanent" } else { "" };
        let (ip, mac) = (text(&neighbour, "IP"), text(&neighbour, "MAC"));
        add(format!("neighbour {ip} {mac}{kind}"));
    }
    for entry in list(map, "FDB") {
        let entry = entry.as_map().unwrap().clone();
        let own = if has(&entry, "Flags", "NTF_SELF") {
            " self"
        } else {
            ""
        };
        let (mac, ip) = (text(&entry, "MAC"), text(&entry, "IP"));
        let vlan = int(&entry, "Vlan").unwrap_or(0);
        add(format!("fdb {mac} {vlan} {ip}{own}"));
    }
    for id in list(map, "Vlans") {
        let pvid = map.get("PVID") == Some(&id);
        let untagged = list(map, "UntaggedVlans").contains(&id);
        let id = id.as_int().unwrap();
        let pvid = if pvid { " pvid" } else { "" };
        let untagged = if untagged { " untagged" } else { "" };
        add(format!("vlan {id}{pvid}{untagged}"));
    }
    seen_routes(map, index, out);
}

fn seen_routes(map: &Map, index: i64, out: &mut BTreeSet<String>) {
    for table in list(map, "RoutingTables") {
        let table = table.as_map().unwrap().clone();
        let id = int(&table, "ID").unwrap();
        for route in list(&table, "Routes") {
            let route = route.as_map().unwrap().clone();
            let kind = match text(&route, "Type") {
                "" => "unicast",
                kind => kind,
            };
            let to = text(&route, "Prefix");
            for hop in list(&route, "NextHops") {
                let hop = hop.as_map().unwrap().clone();
                if int(&hop, "IfIndex") == Some(index) {
                    let (via, metric) = (text(&hop, "IP"), int(&hop, "Priority").unwrap());
                    out.insert(format!("route {id} {kind} {to} via {via} metric {metric}"));
                }
            }
        }
    }
}

/// Fails with what differs.
pub fn assert_same(said: &Facts, seen: &Facts) {
    let mut differences = Vec::new();
    let names: BTreeSet<_> = said.keys().chain(seen.keys()).collect();
    let none = BTreeSet::new();
    for name in names {
        let (said, seen) = (
            said.get(name).unwrap_or(&none),
            seen.get(name).unwrap_or(&none),
        );
        for fact in said.difference(seen) {
            differences.push(format!("{name}: only iproute2 says: {fact}"));
        }
        for fact in seen.difference(said) {
            differences.push(format!("{name}: only the graph says: {fact}"));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}
