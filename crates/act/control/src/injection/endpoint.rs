//! From nodes of the graph to interfaces and addresses.

use ipnet::IpNet;
use skua_inject::{Mac, Point};
use skua_query::{Answer, Limits};
use skua_sources::{Querier as _, ask};
use skua_topology::{Map, Node, SharedGraph, Value};
use std::{
    net::IpAddr,
    sync::{Arc, atomic::AtomicBool},
};

/// An interface that packets can leave or reach.
pub(super) struct Endpoint {
    pub node: Arc<Node>,
    pub point: Point,
    pub mac: Option<Mac>,
    addresses: Vec<IpNet>,
}

/// Where packets go first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Hop {
    /// This is its MAC address.
    Mac(Mac),
    /// It has this address; its MAC address must be resolved on the wire.
    Ask(IpAddr),
}

fn text<'a>(metadata: &'a Map, key: &str) -> &'a str {
    let value = metadata.get(key).and_then(Value::as_str);
    value.unwrap_or_default()
}

fn number<T: TryFrom<i64>>(metadata: &Map, key: &str) -> Option<T> {
    let value = metadata.get(key).and_then(Value::as_int);
    value.and_then(|value| T::try_from(value).ok())
}

/// Reads six bytes in hexadecimal with colons.
pub(crate) fn mac(text: &str) -> Result<Mac, String> {
    let wrong = || format!("\"{text}\" is no MAC address; write it like 02:00:00:00:00:01");
    let mut mac = [0; 6];
    let mut parts = text.split([':', '-']);
    for byte in &mut mac {
        let part = parts.next().filter(|part| {
            (1..=2).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_hexdigit())
        });
        *byte = part
            .and_then(|part| u8::from_str_radix(part, 16).ok())
            .ok_or_else(wrong)?;
    }
    match parts.next() {
        None => Ok(mac),
        Some(_) => Err(wrong()),
    }
}

impl Endpoint {
    /// The interface that a query finds; there must be one.
    pub fn find(graph: &SharedGraph, query: &str, what: &str) -> Result<Self, String> {
        let found = ask::nodes(graph, query).map_err(|error| format!("{what}: {error}"))?;
        let mut usable: Vec<Self> = found.iter().filter_map(Self::of).collect();
        // A path or a span may show one several times.
        usable.dedup_by(|a, b| a.point == b.point);
        match (usable.pop(), usable.len()) {
            (Some(one), 0) => Ok(one),
            (Some(_), more) => Err(format!(
                "{what}: `{query}` finds {} interfaces; have it find one, for example by .Limit(1)",
                more + 1
            )),
            (None, _) => Err(format!(
                "{what}: `{query}` finds {} nodes, none of which is an interface",
                found.len()
            )),
        }
    }

    fn of(node: &Arc<Node>) -> Option<Self> {
        let metadata = &node.metadata;
        let mac = mac(text(metadata, "MAC")).ok();
        let encapsulation = text(metadata, "EncapType");
        let loopback = encapsulation == "loopback" || text(metadata, "Name") == "lo";
        let addresses = ["IPV4", "IPV6"]
            .into_iter()
            .filter_map(|key| metadata.get(key))
            .flat_map(|list| {
                let mut found = Vec::new();
                list.each(&mut |value| {
                    found.extend(value.as_str().and_then(address));
                    false
                });
                found
            });
        Some(Self {
            point: Point {
                netns_inode: number(metadata, "NetNsInode")?,
                ifindex: number(metadata, "IfIndex").filter(|index: &u32| *index > 0)?,
                name: text(metadata, "Name").into(),
                ethernet: match encapsulation {
                    "" => loopback || mac.is_some(),
                    kind => matches!(kind, "ether" | "loopback"),
                },
                loopback,
            },
            mac,
            addresses: addresses.collect(),
            node: node.clone(),
        })
    }

    /// Its address for packets to `to`: one in the same network, else one that others can answer.
    pub fn address(&self, ipv6: bool, to: Option<IpAddr>) -> Option<IpAddr> {
        let fitting = || {
            let all = self.addresses.iter();
            all.filter(|net| net.addr().is_ipv6() == ipv6)
        };
        let near = to.and_then(|to| fitting().find(|net| net.contains(&to)));
        let wide = || fitting().find(|net| !is_link_local(net.addr()));
        let found = near.or_else(wide).or_else(|| fitting().next());
        found.map(IpNet::addr)
    }

    /// A pair of addresses from here to there: in one network if there is one.
    pub fn addresses_to(&self, other: &Self, ipv6: bool) -> (Option<IpAddr>, Option<IpAddr>) {
        let shared = self.addresses.iter().find_map(|net| {
            let addr = net.addr();
            if addr.is_ipv6() != ipv6 || is_link_local(addr) {
                return None;
            }
            let mut theirs = other.addresses.iter().map(IpNet::addr);
            let there = theirs.find(|theirs| net.contains(theirs) && *theirs != addr)?;
            Some((addr, there))
        });
        match shared {
            Some((from, to)) => (Some(from), Some(to)),
            None => {
                let to = other.address(ipv6, None);
                (self.address(ipv6, to), to)
            }
        }
    }

    /// Who takes packets to an address.
    pub fn next_hop(&self, graph: &SharedGraph, to: IpAddr) -> Result<Hop, String> {
        if self.point.loopback {
            return Ok(Hop::Mac([0; 6]));
        }
        if let Some(hop) = self.route(graph, to)? {
            let through: u32 = number(&hop, "IfIndex").unwrap_or(0);
            if through != 0 && through != self.point.ifindex {
                return Err(format!(
                    "the routes at {} send packets to {to} through interface {through}; inject \
                     there, or give DstMAC",
                    self.point.name
                ));
            }
            if let Ok(mac) = mac(text(&hop, "MAC")) {
                return Ok(Hop::Mac(mac));
            }
            if let Ok(gateway) = text(&hop, "IP").parse() {
                return Ok(Hop::Ask(gateway));
            }
        }
        let near = self.addresses.iter().any(|net| net.contains(&to));
        match near || is_link_local(to) {
            true => Ok(Hop::Ask(to)),
            false => Err(format!(
                "nothing is known of a route from {} to {to}; give DstMAC",
                self.point.name
            )),
        }
    }

    /// What `NextHop` says.
    fn route(&self, graph: &SharedGraph, to: IpAddr) -> Result<Option<Map>, String> {
        let id = serde_json::Value::from(&*self.node.id);
        let query = format!("G.V({id}).NextHop(\"{to}\")");
        let cancel = AtomicBool::new(false);
        Ok(match graph.ask(&query, Limits::default(), &cancel)? {
            Answer::NextHops(hops) => hops.iter().find_map(|(_, hop)| hop.as_map().cloned()),
            _ => None,
        })
    }
}

/// With or without the length of its prefix.
fn address(text: &str) -> Option<IpNet> {
    let alone = || text.parse::<IpAddr>().ok().map(IpNet::from);
    text.parse().ok().or_else(alone)
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn graph(nodes: serde_json::Value) -> SharedGraph {
        let graph = SharedGraph::new(skua_topology::Config::default());
        for (id, metadata) in nodes.as_object().unwrap() {
            let metadata = serde_json::from_value(metadata.clone()).unwrap();
            let node = Node::new(id, "h", metadata);
            graph.write().add_node(node, 1).unwrap();
        }
        graph
    }

    fn lab() -> SharedGraph {
        graph(serde_json::json!({
            "a": {"Name": "a0", "NetNsInode": 7, "IfIndex": 2, "MAC": "02:00:00:00:00:0A",
                  "IPV4": ["169.254.1.1/16", "10.1.0.2/24", "10.3.0.2/24"], "IPV6": ["fe80::1/64", "fd00::1/64"],
                  "Neighbors": [{"IP": "10.1.0.1", "MAC": "02:00:00:00:00:01"}],
                  "RoutingTables": [{"ID": 254, "Routes": [
                      {"Prefix": "10.0.0.0/8", "NextHops": [{"IfIndex": 2, "IP": "10.1.0.1"}]},
                      {"Prefix": "10.3.0.0/24", "NextHops": [{"IfIndex": 2}]},
                      {"Prefix": "192.168.0.0/16", "NextHops": [{"IfIndex": 9, "IP": "10.9.0.1"}]}]}]},
            "b": {"Name": "b0", "NetNsInode": 8, "IfIndex": 2, "MAC": "02:00:00:00:00:0b",
                  "IPV4": ["10.2.0.2/24", "10.3.0.3/24"], "IPV6": "fd00:2::2/64"},
            "tun": {"Name": "wg0", "NetNsInode": 8, "IfIndex": 3, "EncapType": "none", "IPV4": ["10.4.0.1"]},
            "lo": {"Name": "lo", "NetNsInode": 8, "IfIndex": 1, "IPV4": ["127.0.0.1/8"]},
            "host": {"Name": "h", "Type": "host"},
        }))
    }

    fn one(graph: &SharedGraph, id: &str) -> Endpoint {
        Endpoint::find(graph, &format!("G.V('{id}')"), "Src").unwrap()
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn one_interface_must_be_found() {
        let graph = lab();
        let refused = |query| Endpoint::find(&graph, query, "Src").err().unwrap();
        assert!(refused("G.V()").contains("finds 4 interfaces"));
        assert!(refused("G.V('host')").contains("none of which is an interface"));
        assert!(refused("G.V().Count()").contains("yields no nodes"));
        assert!(refused("G.V().Hass('x')").contains("did you mean"));
        assert!(refused("G.Flows()").contains("Src: "));
        let found = Endpoint::find(&graph, "G.V().Has('Name', 'a0')", "Src").unwrap();
        assert_eq!((found.point.netns_inode, found.point.ifindex), (7, 2));
        assert_eq!(found.mac, Some([2, 0, 0, 0, 0, 10]));
    }

    #[test]
    fn kinds_of_links_are_told_apart() {
        let graph = lab();
        let kind = |id| {
            let point = one(&graph, id).point;
            (point.ethernet, point.loopback)
        };
        assert_eq!(kind("a"), (true, false));
        assert_eq!(kind("tun"), (false, false));
        assert_eq!(kind("lo"), (true, true));
    }

    #[test]
    fn addresses_of_one_network_go_first() {
        let graph = lab();
        let (a, b) = (one(&graph, "a"), one(&graph, "b"));
        let pair = (Some(ip("10.3.0.2")), Some(ip("10.3.0.3")));
        assert_eq!(a.addresses_to(&b, false), pair);
        let pair = (Some(ip("fd00::1")), Some(ip("fd00:2::2")));
        assert_eq!(a.addresses_to(&b, true), pair);
        assert_eq!(a.address(false, Some(ip("10.3.0.77"))), pair_of("10.3.0.2"));
        assert_eq!(a.address(false, Some(ip("8.8.8.8"))), pair_of("10.1.0.2"));
        assert_eq!(one(&graph, "tun").address(true, None), None);
    }

    fn pair_of(text: &str) -> Option<IpAddr> {
        Some(ip(text))
    }

    #[test]
    fn the_next_hop_is_known_or_asked_for() {
        let graph = lab();
        let a = one(&graph, "a");
        let hop = |to| a.next_hop(&graph, ip(to));
        assert_eq!(hop("10.2.0.2"), Ok(Hop::Mac([2, 0, 0, 0, 0, 1])));
        assert_eq!(hop("10.3.0.3"), Ok(Hop::Ask(ip("10.3.0.3"))));
        assert!(hop("192.168.0.1").unwrap_err().contains("interface 9"));
        assert!(hop("8.8.8.8").unwrap_err().contains("a route"));
        assert_eq!(hop("fe80::9"), Ok(Hop::Ask(ip("fe80::9"))));
        let lo = one(&graph, "lo");
        assert_eq!(lo.next_hop(&graph, ip("127.0.0.1")), Ok(Hop::Mac([0; 6])));
    }

    #[test]
    fn mac_addresses() {
        assert_eq!(mac("02:0:00:aA:00:fF"), Ok([2, 0, 0, 0xaa, 0, 0xff]));
        for wrong in [
            "",
            "02:00:00:00:00",
            "02:00:00:00:00:00:00",
            "02:00:00:00:00:+1",
            "0g:00:00:00:00:00",
        ] {
            assert!(mac(wrong).is_err(), "{wrong}");
        }
    }
}
