//! Which ACLs decide about a conversation.
//!
//! Exact is the label of an ACL (`ovn-nbctl --label`), which OVN writes into the table of connections. Otherwise the
//! switch says what its rules do now with a packet as the first one was. Both cost the switch some time, so they are
//! asked for only on request, and within limits.

use super::{
    index::{Index, Mac, Port, Published, read_mac},
    said::{Connection, Trace},
};
use crate::{ControlSocket, Error};
use skua_topology::{Direction, Graph, Lookup, Map, Node, SharedGraph, Value};
use std::{
    collections::HashMap,
    fmt::Write,
    net::{IpAddr, SocketAddr},
    ops::ControlFlow,
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

/// Conversations of one request, which are as many as may be asked about in a row; each costs up to four commands.
const MOST: usize = 16;
/// Further conversations each second, of all requests.
const PER_SECOND: u32 = 4;
/// More tables of connections than a packet passes, for those that come back.
const TABLES: usize = 16;

/// An ICMP message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Icmp {
    /// Type of the request.
    pub kind: u8,
    /// Type of its answer.
    pub answer: u8,
    /// Code.
    pub code: u8,
    /// Identifier of an echo.
    pub id: Option<u16>,
}

/// What is asked about; side A comes first, which has sent the first packet.
#[derive(Clone, Debug)]
pub struct Conversation {
    /// MAC addresses, as far as they are known.
    pub macs: [Option<Mac>; 2],
    /// Addresses.
    pub addresses: [IpAddr; 2],
    /// Number of the protocol: TCP, UDP, SCTP or ICMP.
    pub protocol: u8,
    /// Ports.
    pub ports: [u16; 2],
    /// The messages, for ICMP.
    pub icmp: Option<Icmp>,
}

/// About how many conversations the switch may be asked.
struct Budget {
    left: f64,
    at: Instant,
}

impl Budget {
    fn new(now: Instant) -> Self {
        Self {
            left: MOST as f64,
            at: now,
        }
    }

    fn take(&mut self, now: Instant) -> Result<(), Error> {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.left = (self.left + passed * f64::from(PER_SECOND)).min(MOST as f64);
        self.at = self.at.max(now);
        if self.left < 1.0 {
            return Err(Error::Request(format!(
                "ACLs are looked up for at most {PER_SECOND} flows a second: ask again in some seconds, or for fewer"
            )));
        }
        self.left -= 1.0;
        Ok(())
    }
}

/// Finds the ACLs of conversations at a switch of this host.
pub struct AclFinder {
    published: Arc<Published>,
    graph: SharedGraph,
    host: String,
    control: ControlSocket,
    budget: Mutex<Budget>,
    /// Held while the switch carries out a command.
    turn: Mutex<()>,
}

/// A connection's table at a switch: its lines.
type Connections = Arc<[Connection]>;

/// One request; it asks for nothing twice.
pub struct Asking<'a> {
    finder: &'a AclFinder,
    index: Arc<Index>,
    /// By the logical port that they are at.
    interfaces: HashMap<Box<str>, Vec<Arc<Node>>>,
    zones: HashMap<i64, Connections>,
    asked: usize,
}

impl AclFinder {
    pub(super) fn new(
        published: Arc<Published>,
        graph: SharedGraph,
        host: &str,
        control: ControlSocket,
    ) -> Self {
        Self {
            published,
            graph,
            host: host.to_owned(),
            control,
            budget: Mutex::new(Budget::new(Instant::now())),
            turn: Mutex::new(()),
        }
    }

    /// Begins a request.
    pub fn begin(&self) -> Result<Asking<'_>, Error> {
        let index = self.published.get().ok_or_else(|| {
            Error::Request(
                "the databases of OVN are not read yet: see ovn.northbound and ovn.southbound"
                    .to_owned(),
            )
        })?;
        Ok(Asking {
            interfaces: interfaces(&self.graph.read()),
            finder: self,
            index,
            zones: HashMap::new(),
            asked: 0,
        })
    }

    /// Gives the switch a command, one at a time.
    fn ask(&self, command: &str, arguments: &[&str]) -> Result<String, Error> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        self.control.ask(command, arguments)
    }
}

/// Where a side's packets enter the switch.
struct Place<'a> {
    port: &'a Port,
    /// Number of its port in OpenFlow.
    number: i64,
    bridge: Arc<str>,
    /// Its part of the table of connections.
    zone: Option<i64>,
}

/// Which way packets go; its name in answers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Ab,
    Ba,
}

impl Way {
    fn name(self) -> &'static str {
        match self {
            Self::Ab => "AB",
            Self::Ba => "BA",
        }
    }

    /// Positions of the sender and the receiver.
    fn ends(self) -> [usize; 2] {
        match self {
            Self::Ab => [0, 1],
            Self::Ba => [1, 0],
        }
    }
}

/// Why something is not known.
type Unknown = String;

impl Asking<'_> {
    /// What decides about a conversation, a map for each ACL, or one that says why there is none. An error ends the
    /// whole request.
    pub fn about(&mut self, conversation: &Conversation) -> Result<Vec<Value>, Error> {
        self.asked += 1;
        if self.asked > MOST {
            return Err(Error::Request(format!(
                "ACLs are looked up for at most {MOST} flows at a time: ask for fewer, as with Limit({MOST})"
            )));
        }
        let budget = self.finder.budget.lock();
        budget
            .unwrap_or_else(PoisonError::into_inner)
            .take(Instant::now())?;
        let index = self.index.clone();
        let places = [0, 1].map(|side| self.place(&index, conversation, side));
        let mut found = Vec::new();
        let exact = self.labelled(&index, conversation, &places)?;
        let there = self.traced(&index, conversation, &places, Way::Ab, &exact, &mut found)?;
        // What does not come through has no answer.
        if there != Some(false) {
            self.traced(&index, conversation, &places, Way::Ba, &exact, &mut found)?;
        }
        Ok(found)
    }

    /// The answer for a flow that cannot be asked about.
    pub fn unknown(&self, why: &str) -> Value {
        let keys = [("Verdict", "unknown"), ("Reason", why)];
        Map::from(keys.map(|(key, value)| (key, value.into()))).into()
    }

    /// The ACLs that the table of connections names, and which way their packets went.
    fn labelled(
        &mut self,
        index: &Index,
        conversation: &Conversation,
        places: &[Result<Place<'_>, Unknown>; 2],
    ) -> Result<Vec<(Way, usize)>, Error> {
        let mut found = Vec::new();
        if !index.has_labels() {
            return Ok(found);
        }
        for (side, place) in places.iter().enumerate() {
            let Some(zone) = place.as_ref().ok().and_then(|place| place.zone) else {
                continue;
            };
            let connections = self.connections(zone)?;
            for connection in connections.iter() {
                let Some(way) = which_way(connection, conversation) else {
                    continue;
                };
                let direction = match way.ends()[0] == side {
                    true => "from-lport",
                    false => "to-lport",
                };
                let acl = index.acl_of_label(connection.acl_label(), direction);
                if let Some(acl) = acl.filter(|acl| !found.contains(&(way, *acl))) {
                    found.push((way, acl));
                }
            }
        }
        Ok(found)
    }

    fn connections(&mut self, zone: i64) -> Result<Connections, Error> {
        if let Some(there) = self.zones.get(&zone) {
            return Ok(there.clone());
        }
        let argument = format!("zone={zone}");
        let lines = match self.finder.ask("dpctl/dump-conntrack", &[&argument]) {
            // Several datapaths, or more connections than are read: then the rules say.
            Err(error @ (Error::Command { .. } | Error::TooLarge { .. })) => {
                tracing::debug!(target: "ovsdb", "labels of connections: {error}");
                String::new()
            }
            answer => answer?,
        };
        let labelled = lines.lines().filter_map(Connection::read);
        let labelled: Connections = labelled.filter(|one| one.acl_label() != 0).collect();
        self.zones.insert(zone, labelled.clone());
        Ok(labelled)
    }

    /// Adds what the rules do one way. Returns whether packets get through, if that is known.
    fn traced(
        &self,
        index: &Index,
        conversation: &Conversation,
        places: &[Result<Place<'_>, Unknown>; 2],
        way: Way,
        exact: &[(Way, usize)],
        found: &mut Vec<Value>,
    ) -> Result<Option<bool>, Error> {
        let sure = exact.iter().filter(|(of, _)| *of == way);
        let sure: Vec<usize> = sure.map(|(_, acl)| *acl).collect();
        let entry = |acl: Option<usize>, verdict: &str, more: Vec<(Arc<str>, Value)>| {
            let facts = acl.and_then(|acl| index.acls.get(acl));
            let mut keys = facts.map(|acl| acl.facts.clone()).unwrap_or_default();
            keys.push(("Way".into(), way.name().into()));
            let [from, to] = way.ends().map(|side| end(conversation, side));
            keys.push(("From".into(), from.as_str().into()));
            keys.push(("To".into(), to.as_str().into()));
            keys.push(("Verdict".into(), verdict.into()));
            keys.extend(more);
            Value::from(Map::new(keys))
        };
        let by = |source: &str| vec![("Source".into(), source.into())];
        let verdict = |acl: usize| {
            let action = index.acls.get(acl).map_or("", |acl| &acl.action);
            action.split('-').next().unwrap_or_default().to_owned()
        };
        let [from, to] = way.ends();
        let traced = match places.get(from) {
            Some(Ok(place)) => {
                let other = places.get(to).and_then(|other| other.as_ref().ok());
                self.trace(conversation, place, other, way)
            }
            Some(Err(why)) => Err(Ok(why.clone())),
            None => return Ok(None),
        };
        let trace = match traced {
            Ok(trace) => trace,
            Err(Err(error)) => return Err(error),
            Err(Ok(why)) => {
                for acl in sure {
                    found.push(entry(Some(acl), &verdict(acl), by("conntrack")));
                }
                let why = vec![("Reason".into(), why.as_str().into())];
                found.push(entry(None, "unknown", why));
                return Ok(None);
            }
        };
        let mut acls: Vec<usize> = Vec::new();
        for cookie in &trace.cookies {
            if let Some(acl) = index.acl_of_rule(*cookie)
                && !acls.contains(&acl)
            {
                acls.push(acl);
            }
        }
        let drops = |acl: &usize| matches!(&*verdict(*acl), "drop" | "reject");
        let mut more = vec![("Passes".into(), Value::Bool(trace.passes))];
        if trace.tunnel {
            let why = "goes to another chassis, whose rules decide, too";
            more.push(("Reason".into(), why.into()));
        } else if !trace.passes && !acls.iter().any(drops) {
            let why = "dropped by a rule of no ACL, as of port security, or of a default";
            more.push(("Reason".into(), why.into()));
        }
        for acl in sure.iter().copied().filter(|acl| !acls.contains(acl)) {
            found.push(entry(Some(acl), &verdict(acl), by("conntrack")));
        }
        for acl in &acls {
            let source = match sure.contains(acl) {
                true => "conntrack",
                false => "rules",
            };
            let keys = [by(source), more.clone()].concat();
            found.push(entry(Some(*acl), &verdict(*acl), keys));
        }
        if acls.is_empty() {
            found.push(entry(None, "none", [by("rules"), more].concat()));
        }
        Ok(Some(trace.passes))
    }

    /// What the rules do with the first packet, or with an answer to it.
    fn trace(
        &self,
        conversation: &Conversation,
        place: &Place<'_>,
        other: Option<&Place<'_>>,
        way: Way,
    ) -> Result<Trace, Result<Unknown, Error>> {
        let ends = way.ends();
        let macs = macs(
            conversation,
            place.port,
            other.map(|other| other.port),
            ends,
        )
        .map_err(Ok)?;
        let packet = packet(conversation, place.number, macs, ends);
        let mut arguments = vec![&*place.bridge, &packet];
        if way == Way::Ba {
            arguments.extend(std::iter::repeat_n(["--ct-next", "trk,est,rpl"], TABLES).flatten());
        }
        match self.finder.ask("ofproto/trace", &arguments) {
            Ok(text) => Ok(Trace::read(&text)),
            Err(error @ Error::Command { .. }) => Err(Ok(error.to_string())),
            Err(error) => Err(Err(error)),
        }
    }

    /// The interfaces that a logical port is at.
    fn interfaces_of(&self, port: &Port) -> &[Arc<Node>] {
        self.interfaces.get(&port.name).map_or(&[], Vec::as_slice)
    }

    /// Where a side's packets enter the switch of this host.
    fn place<'i>(
        &self,
        index: &'i Index,
        conversation: &Conversation,
        side: usize,
    ) -> Result<Place<'i>, Unknown> {
        let (Some(address), Some(mac)) = (
            conversation.addresses.get(side),
            conversation.macs.get(side),
        ) else {
            return Err(String::new());
        };
        let graph = self.finder.graph.read();
        let mut ports = index.ports_of(*mac, *address);
        if ports.is_empty() {
            // Ports whose addresses OVN does not know.
            let silent = index.ports.iter();
            let silent = silent.filter(|port| port.macs.is_empty() && port.addresses.is_empty());
            let has = |node: &Arc<Node>| mac.is_some_and(|mac| has_mac(node, mac));
            ports = silent
                .filter(|port| self.interfaces_of(port).iter().any(has))
                .collect();
        }
        let mut found = Vec::new();
        let mut elsewhere = None;
        for port in &ports {
            for node in self.interfaces_of(port) {
                match *node.host == *self.finder.host {
                    true => found.push((*port, node)),
                    false => elsewhere = Some(node.host.clone()),
                }
            }
        }
        let many = found.len() > 1;
        match (found.pop(), elsewhere) {
            (Some(_), _) if many => Err(format!("several ports of OVN have the address {address}")),
            (Some((port, node)), _) => enter(&graph, port, node),
            (None, Some(host)) => Err(format!(
                "{address} is at the switch of host {host}: ask there"
            )),
            (None, None) if ports.is_empty() => {
                Err(format!("{address} is of no logical port of OVN"))
            }
            (None, None) => Err(format!(
                "no interface in the graph has the logical port of {address} (external_ids:iface-id)"
            )),
        }
    }
}

/// The interfaces of switches that say which logical port they are at.
fn interfaces(graph: &Graph) -> HashMap<Box<str>, Vec<Arc<Node>>> {
    let mut found: HashMap<Box<str>, Vec<Arc<Node>>> = HashMap::new();
    let _ = graph.scan_nodes(graph.now(), Lookup::All, 0, usize::MAX, &mut |node, _| {
        let there = number(node, "OfPort").is_some_and(|number| number > 0);
        let port = node.metadata.get("ExtID").and_then(Value::as_map);
        let port = port.and_then(|ids| ids.get("iface-id")?.as_str());
        if let (true, Some(port)) = (there, port) {
            found.entry(port.into()).or_default().push(node.clone());
        }
        ControlFlow::Continue(())
    });
    found
}

fn parents(graph: &Graph, of: &str, relation: &str) -> Vec<Arc<Node>> {
    let mut ids = Vec::new();
    let (way, relation) = (Direction::In, Some(relation));
    let _ = graph.edges(of, graph.now(), way, relation, &mut |edge, _| {
        ids.push(edge.parent.clone());
        ControlFlow::Continue(())
    });
    ids.iter().filter_map(|id| graph.current_node(id)).collect()
}

fn number(node: &Node, key: &str) -> Option<i64> {
    node.metadata.get(key)?.as_int()
}

fn text(node: &Node, key: &str) -> Option<Arc<str>> {
    node.lookup(key)?.as_str().map(Arc::from)
}

fn has_mac(node: &Node, wanted: Mac) -> bool {
    let keys = ["MAC", "ExtID.attached-mac", "PeerIntfMAC"];
    let texts = keys.iter().filter_map(|key| text(node, key));
    texts
        .filter_map(|text| read_mac(&text))
        .any(|mac| mac == wanted)
}

/// The bridge that an interface is a port of.
fn enter<'i>(graph: &Graph, port: &'i Port, interface: &Node) -> Result<Place<'i>, Unknown> {
    let of_type = |nodes: Vec<Arc<Node>>, kind: &str| {
        let mut nodes = nodes.into_iter();
        nodes.find(|node| text(node, "Type").is_some_and(|found| *found == *kind))
    };
    let switch_port = of_type(parents(graph, &interface.id, "layer2"), "ovsport");
    let bridge =
        switch_port.and_then(|port| of_type(parents(graph, &port.id, "ownership"), "ovsbridge"));
    let name = bridge.as_ref().and_then(|bridge| text(bridge, "Name"));
    let (Some(bridge), Some(name), Some(number)) = (bridge, name, number(interface, "OfPort"))
    else {
        return Err(format!(
            "the bridge of port {} is not in the graph",
            port.name
        ));
    };
    let zones = bridge.metadata.get("ExtID").and_then(Value::as_map);
    let zone = zones.and_then(|ids| ids.get(&format!("ct-zone-{}", port.name)));
    Ok(Place {
        port,
        number,
        bridge: name,
        zone: zone.and_then(|zone| zone.as_str()?.parse().ok()),
    })
}

/// MACs of a packet as its sender sends it: sender and receiver. A flow beyond a router has others.
fn macs(
    conversation: &Conversation,
    port: &Port,
    other: Option<&Port>,
    [from, to]: [usize; 2],
) -> Result<[Mac; 2], Unknown> {
    let seen = conversation.macs;
    let [own, next] = [from, to].map(|side| seen.get(side).copied().flatten());
    if let (Some(own), Some(next)) = (own, next)
        && (port.macs.contains(&own) || port.macs.is_empty())
    {
        return Ok([own, next]);
    }
    let Some(own) = port.macs.first() else {
        return Err(format!(
            "the MAC address of port {} is not known",
            port.name
        ));
    };
    let same = other.filter(|other| other.switch == port.switch);
    match (same.and_then(|same| same.macs.first()), &*port.gateways) {
        (Some(next), _) => Ok([*own, *next]),
        (None, [gateway]) => Ok([*own, *gateway]),
        (None, _) => Err(format!(
            "which router packets of port {} go to is not known: ask for the flow at that port",
            port.name
        )),
    }
}

/// A packet as `ofproto/trace` takes it.
fn packet(
    conversation: &Conversation,
    port: i64,
    [own, next]: [Mac; 2],
    [from, to]: [usize; 2],
) -> String {
    let hex = |mac: Mac| mac.map(|byte| format!("{byte:02x}")).join(":");
    let of = |side: usize| {
        (
            conversation.addresses.get(side),
            conversation.ports.get(side),
        )
    };
    let six = conversation.addresses.iter().any(IpAddr::is_ipv6);
    let (protocol, prefix) = match (conversation.protocol, six) {
        (6, false) => ("tcp", "tcp"),
        (6, true) => ("tcp6", "tcp"),
        (132, false) => ("sctp", "sctp"),
        (132, true) => ("sctp6", "sctp"),
        (1, _) => ("icmp", "icmp"),
        (58, _) => ("icmp6", "icmpv6"),
        (_, false) => ("udp", "udp"),
        (_, true) => ("udp6", "udp"),
    };
    let mut text = format!(
        "in_port={port},eth_src={},eth_dst={},{protocol}",
        hex(own),
        hex(next)
    );
    let names = match six {
        true => ["ipv6_src", "ipv6_dst"],
        false => ["nw_src", "nw_dst"],
    };
    for (side, name) in [from, to].into_iter().zip(names) {
        if let (Some(address), _) = of(side) {
            let _ = write!(text, ",{name}={address}");
        }
    }
    text.push_str(",nw_ttl=64");
    if let Some(icmp) = conversation.icmp {
        let kind = if from == 0 { icmp.kind } else { icmp.answer };
        let _ = write!(text, ",{prefix}_type={kind},{prefix}_code={}", icmp.code);
        return text;
    }
    for (side, name) in [from, to].into_iter().zip(["src", "dst"]) {
        if let (_, Some(port)) = of(side) {
            let _ = write!(text, ",{prefix}_{name}={port}");
        }
    }
    if prefix == "tcp" {
        // The first packet, and the answer to it.
        text.push_str(if from == 0 {
            ",tcp_flags=syn"
        } else {
            ",tcp_flags=syn|ack"
        });
    }
    text
}

/// One end, as people write it.
fn end(conversation: &Conversation, side: usize) -> String {
    let address = conversation.addresses.get(side).copied();
    let port = conversation.ports.get(side).copied();
    match (address, conversation.icmp, port) {
        (Some(address), None, Some(port)) => SocketAddr::new(address, port).to_string(),
        (Some(address), ..) => address.to_string(),
        _ => String::new(),
    }
}

/// Whether a connection is this conversation, and which way its first packet went.
fn which_way(connection: &Connection, conversation: &Conversation) -> Option<Way> {
    let number = match &*connection.protocol {
        "tcp" => 6,
        "udp" => 17,
        "sctp" => 132,
        "icmp" => 1,
        "icmpv6" => 58,
        _ => return None,
    };
    let id = conversation.icmp.and_then(|icmp| icmp.id);
    if number != conversation.protocol || connection.id != id {
        return None;
    }
    [Way::Ab, Way::Ba].into_iter().find(|way| {
        let [from, to] = way.ends();
        let ends = |side: usize| {
            (
                conversation.addresses.get(side),
                conversation.ports.get(side),
            )
        };
        let [sender, receiver] = connection.addresses;
        let [source, target] = connection.ports;
        let ports = conversation.icmp.is_some()
            || (ends(from).1 == Some(&source) && ends(to).1 == Some(&target));
        ends(from).0 == Some(&sender) && ends(to).0 == Some(&receiver) && ports
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_switch_is_asked_about_some_conversations_in_a_row_and_then_about_few() {
        let begin = Instant::now();
        let mut budget = Budget::new(begin);
        let taken =
            |budget: &mut Budget, now| (0..100).filter(|_| budget.take(now).is_ok()).count();
        assert_eq!(taken(&mut budget, begin), MOST);
        // A clock that goes back gives nothing, and nothing is gained by asking often.
        let half = begin + Duration::from_millis(500);
        assert_eq!(taken(&mut budget, half), 2);
        assert_eq!(taken(&mut budget, begin), 0);
        assert_eq!(taken(&mut budget, half + Duration::from_secs(1)), 4);
        assert_eq!(taken(&mut budget, half + Duration::from_secs(3600)), MOST);
    }
}
