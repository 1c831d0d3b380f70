//! Steps on flows, their groups and packets.

use super::{
    ById, Done, Flow, Observed, Run, Stage,
    owners::Owners,
    scan::identity,
    unavailable,
    values::{View, by_id, range},
};
use crate::{
    check::{Action, FlowEnd},
    error::{Class, QueryError},
    filter::Filter,
    record::Record,
    source::{PacketTest, RawPacket},
};
use hashbrown::HashMap;
use skua_topology::{IndexKey, Lookup, Node, Value};
use std::{ops::ControlFlow, sync::Arc};

/// What a flow's own identifier is.
pub(super) fn uuid(flow: &dyn Record) -> Arc<str> {
    text(flow, "UUID").unwrap_or_else(|| "".into())
}

/// Memory of flows, without their shared texts.
pub(super) fn flows_bytes(flows: &[Flow]) -> usize {
    flows.iter().map(|flow| flow.bytes()).sum()
}

/// A value as text.
pub(super) fn text(record: &dyn Record, key: &str) -> Option<Arc<str>> {
    match record.get(key)? {
        Value::Str(text) => Some(text),
        Value::Null => None,
        other => Some(identity(&other).into()),
    }
}

const FLOWS: View<Flow> = View {
    record: |flow| &**flow as &dyn Record,
    id: |flow| {
        text(&**flow, "TrackingID")
            .or_else(|| text(&**flow, "UUID"))
            .map(|id| id.to_string())
    },
    sort_by: "Last",
    stage: Stage::Flows,
};

/// Nodes found before, by key and value of the lookup.
type NodeCache = HashMap<(&'static str, Arc<str>), Option<Observed<Node>>>;

impl Run<'_> {
    pub(super) fn on_flows(&mut self, action: &Action, flows: Vec<Flow>) -> Done<Stage> {
        let flows = match self.on_records(action, flows, &FLOWS)? {
            Ok(stage) => return Ok(stage),
            Err(flows) => flows,
        };
        match action {
            Action::FlowNodes(end, filter) => self.flow_nodes(&flows, *end, filter),
            Action::Metrics(key) => self.flow_metrics(flows, key.as_deref()),
            Action::Sockets => self.flow_sockets(flows),
            Action::Acls => self.flow_acls(&flows),
            Action::FlowPath => self.flow_paths(&flows),
            Action::RawPackets => self.raw_packets(flows),
            Action::Group(key) => {
                let keyed = flows.into_iter().map(|flow| {
                    let group = text(&*flow, key).unwrap_or_else(|| "".into());
                    (group, flow)
                });
                Ok(Stage::Groups(by_id(keyed)))
            }
            _ => Err(Self::misfit()),
        }
    }

    fn flow_nodes(&self, flows: &[Flow], end: FlowEnd, filter: &Filter) -> Done<Stage> {
        /// Where a node is named in a flow, under which keys nodes have that name, and where the address
        /// of that side is.
        type NodeNames = (&'static str, &'static [&'static str], Option<&'static str>);
        const CAPTURE: NodeNames = ("NodeTID", &["TID"], None);
        // Of an interface elsewhere, its peer's MAC may be the only known address of the other
        // side.
        const A: NodeNames = ("Link.A", &["MAC", "PeerIntfMAC"], Some("Network.A"));
        const B: NodeNames = ("Link.B", &["MAC", "PeerIntfMAC"], Some("Network.B"));
        const OWN_A: NodeNames = ("Link.A", &["MAC"], Some("Network.A"));
        const OWN_B: NodeNames = ("Link.B", &["MAC"], Some("Network.B"));
        let wanted: &[NodeNames] = match end {
            FlowEnd::Capture => &[CAPTURE],
            FlowEnd::A => &[A],
            FlowEnd::B => &[B],
            FlowEnd::Both => &[A, B],
            FlowEnd::All => &[CAPTURE, OWN_A, OWN_B],
        };
        let mut found = NodeCache::new();
        let mut owners = None;
        let mut nodes = Vec::new();
        for flow in flows {
            for (field, keys, address) in wanted {
                if self.budget.hold(nodes.len()).is_break() {
                    self.budget.check()?;
                }
                if let Some(node) = self.named_node(&**flow, field, keys, filter, &mut found)? {
                    nodes.push(node);
                    continue;
                }
                // Flows of IP may have no Ethernet addresses, or those of a router.
                let address = address.and_then(|key| text(&**flow, key)?.parse().ok());
                if let Some(address) = address {
                    let owners = match &mut owners {
                        Some(owners) => owners,
                        none => none.insert(Owners::of(self, filter)?),
                    };
                    let capture = text(&**flow, "NodeTID");
                    nodes.extend(owners.find(self, capture, address)?);
                }
            }
        }
        Ok(Stage::Nodes(nodes))
    }

    /// The node that a field of a flow names, under the first of several keys that one has.
    fn named_node(
        &self,
        flow: &dyn Record,
        field: &str,
        keys: &[&'static str],
        filter: &Filter,
        found: &mut NodeCache,
    ) -> Done<Option<Observed<Node>>> {
        let Some(value) = text(flow, field).filter(|value| !value.is_empty()) else {
            return Ok(None);
        };
        for key in keys {
            let place = (*key, value.clone());
            let node = match found.get(&place) {
                Some(node) => node.clone(),
                None => {
                    let node = self.first_node(key, &value, filter)?;
                    found.insert(place, node.clone());
                    node
                }
            };
            if node.is_some() {
                return Ok(node);
            }
        }
        Ok(None)
    }

    /// The first node that passes among those with a text under a key.
    pub(super) fn first_node(
        &self,
        key: &str,
        text: &Arc<str>,
        filter: &Filter,
    ) -> Done<Option<Observed<Node>>> {
        let Some(value) = IndexKey::of(&Value::Str(text.clone())) else {
            return Ok(None);
        };
        let indexed = self.graph().estimate_nodes(key, &value).is_some();
        let lookup = if indexed {
            Lookup::Key(key, &value)
        } else {
            Lookup::All
        };
        let mut first = None;
        self.graph()
            .nodes(self.window()?, lookup, &mut |item, window| {
                self.budget.spend()?;
                let same = indexed
                    || item.leaves(key, &mut |leaf| {
                        IndexKey::of(&leaf.to_value()).as_ref() == Some(&value)
                    });
                if same && filter.holds(&**item) {
                    first = Some(Observed {
                        item: item.clone(),
                        window,
                    });
                    return ControlFlow::Break(());
                }
                ControlFlow::Continue(())
            })?;
        self.budget.check()?;
        Ok(first)
    }

    fn raw_packets(&self, flows: Vec<Flow>) -> Done<Stage> {
        let Some(source) = self.sources.flows else {
            return Err(unavailable("there is no store of flows here"));
        };
        let mut all = Vec::new();
        let (mut held, mut bytes) = (0, flows_bytes(&flows));
        for flow in flows {
            bytes -= flow.bytes();
            let packets = source.raw_packets(&*flow, self.flow_time)?;
            held += packets.len();
            bytes += size_of_val::<[RawPacket]>(&packets);
            bytes += packets
                .iter()
                .map(|packet| packet.data.len())
                .sum::<usize>();
            if self.budget.hold(held).is_break() || self.budget.hold_bytes(bytes).is_break() {
                self.budget.check()?;
            }
            if !packets.is_empty() {
                all.push((uuid(&*flow), packets));
            }
        }
        Ok(Stage::Packets(all))
    }

    pub(super) fn on_packets(
        &self,
        action: &Action,
        mut packets: ById<Vec<RawPacket>>,
    ) -> Done<Stage> {
        match action {
            Action::Count => {
                let count = packets.iter().map(|(_, list)| list.len()).sum::<usize>();
                Ok(Stage::Value(Value::Int(count as i64)))
            }
            Action::Range(from, to) => {
                let single = packets.into_iter().flat_map(|(id, list)| {
                    list.into_iter().map(move |packet| (id.clone(), packet))
                });
                let chosen = single.take(*to).skip(*from);
                Ok(Stage::Packets(by_id(chosen)))
            }
            Action::Bpf(expression) => {
                let Some(filters) = self.sources.filters else {
                    return Err(unavailable("pcap expressions cannot be compiled here"));
                };
                let mut tests: HashMap<u32, PacketTest> = HashMap::new();
                for (_, list) in &mut packets {
                    for link_type in list.iter().map(|packet| packet.link_type) {
                        if !tests.contains_key(&link_type) {
                            let test = filters.compile(expression, link_type).map_err(|what| {
                                QueryError::new(
                                    Class::Query,
                                    format!("this is no pcap expression: {what}"),
                                )
                            })?;
                            tests.insert(link_type, test);
                        }
                    }
                    list.retain(|packet| {
                        self.budget.spend().is_continue()
                            && tests
                                .get(&packet.link_type)
                                .is_some_and(|test| test(&packet.data))
                    });
                }
                packets.retain(|(_, list)| !list.is_empty());
                Ok(Stage::Packets(packets))
            }
            _ => Err(Self::misfit()),
        }
    }

    pub(super) fn on_groups(action: &Action, mut groups: ById<Vec<Flow>>) -> Done<Stage> {
        match action {
            Action::Count => Ok(Stage::Value(Value::Int(groups.len() as i64))),
            Action::Range(from, to) => Ok(Stage::Groups(range(groups, *from, *to))),
            Action::MoreThan(least) => {
                groups.retain(|(_, flows)| flows.len() > *least);
                Ok(Stage::Groups(groups))
            }
            _ => Err(Self::misfit()),
        }
    }
}
