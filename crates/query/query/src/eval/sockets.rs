//! Sockets of nodes and flows.

use super::{
    ById, Done, Flow, Observed, Run, Stage,
    flows::{flows_bytes, text, uuid},
    values::{View, by_id, list_bytes, value_bytes},
};
use crate::{Class, QueryError, check::Action, record::Record};
use hashbrown::HashMap;
use skua_topology::{Lookup, Node, Value};
use std::{net::IpAddr, ops::ControlFlow, sync::Arc};

/// A socket with what it belongs to.
type Owned = (Arc<str>, Value);

const SOCKETS: View<Owned> = View {
    record: |(_, socket)| socket,
    id: |(_, socket)| Some(super::scan::identity(socket)),
    sort_by: "LocalPort",
    stage: |sockets| Stage::Sockets(by_id(sockets)),
};

/// Both ends of a connection, the local one first.
type Ends = (String, [(IpAddr, i64); 2]);

fn end(record: &dyn Record, address: &str, port: &str) -> Option<(IpAddr, i64)> {
    let address = text(record, address)?.parse().ok()?;
    Some((address, record.get(port)?.as_int()?))
}

fn ends_of_socket(socket: &Value) -> Option<Ends> {
    let protocol = text(socket, "Protocol")?.to_ascii_uppercase();
    let local = end(socket, "LocalAddress", "LocalPort")?;
    Some((
        protocol,
        [local, end(socket, "RemoteAddress", "RemotePort")?],
    ))
}

fn metadata_sockets(node: &Node) -> Vec<Value> {
    match node.metadata.get("Sockets") {
        Some(Value::List(sockets)) => sockets.to_vec(),
        _ => Vec::new(),
    }
}

impl Run<'_> {
    pub(super) fn node_sockets(&self, nodes: &[Observed<Node>]) -> Done<Stage> {
        let mut all = Vec::new();
        let mut bytes = 0;
        for node in nodes {
            let sockets = match self.sources.sockets {
                Some(source) => source.of_node(&node.item, node.window)?,
                None => metadata_sockets(&node.item),
            };
            for socket in sockets {
                bytes += value_bytes(&socket);
                if self.budget.hold(all.len()).is_break()
                    || self.budget.hold_bytes(bytes).is_break()
                {
                    self.budget.check()?;
                }
                all.push((node.item.id.clone(), socket));
            }
        }
        Ok(Stage::Sockets(by_id(all)))
    }

    pub(super) fn flow_sockets(&self, flows: Vec<Flow>) -> Done<Stage> {
        let known = match self.sources.sockets {
            Some(_) => HashMap::new(),
            None => self.sockets_by_ends()?,
        };
        let mut all: ById<Vec<Value>> = Vec::new();
        let mut bytes = flows_bytes(&flows);
        for flow in flows {
            bytes -= flow.bytes();
            let sockets = match self.sources.sockets {
                Some(source) => source.of_flow(&*flow, self.flow_time)?,
                None => {
                    let a = end(&*flow, "Network.A", "Transport.A");
                    let b = end(&*flow, "Network.B", "Transport.B");
                    let (Some(a), Some(b), Some(protocol)) =
                        (a, b, text(&*flow, "Transport.Protocol"))
                    else {
                        continue;
                    };
                    let protocol = protocol.to_ascii_uppercase();
                    let ways = [(protocol.clone(), [a, b]), (protocol, [b, a])];
                    ways.iter()
                        .filter_map(|ends| known.get(ends))
                        .flatten()
                        .cloned()
                        .collect()
                }
            };
            bytes += list_bytes(&sockets);
            if self.budget.hold(all.len()).is_break() || self.budget.hold_bytes(bytes).is_break() {
                break;
            }
            if !sockets.is_empty() {
                all.push((uuid(&*flow), sockets));
            }
        }
        Ok(Stage::Sockets(all))
    }

    pub(super) fn flow_acls(&self, flows: &[Flow]) -> Done<Stage> {
        let Some(source) = self.sources.acls else {
            let message = "there is no switch here that could be asked for ACLs of OVN";
            return Err(QueryError::new(Class::Unavailable, message)
                .help("ask the host of the flow's sender, with ovn.hits set there"));
        };
        let mut all: ById<Vec<Value>> = Vec::new();
        for flow in flows {
            self.budget.check()?;
            all.push((uuid(&**flow), source.of_flow(&**flow)?));
        }
        Ok(Stage::Sockets(all))
    }

    fn sockets_by_ends(&self) -> Done<HashMap<Ends, Vec<Value>>> {
        let mut known: HashMap<Ends, Vec<Value>> = HashMap::new();
        self.graph()
            .nodes(self.window()?, Lookup::All, &mut |node, _| {
                self.budget.spend()?;
                for socket in metadata_sockets(node) {
                    self.budget.hold(known.len())?;
                    if let Some(ends) = ends_of_socket(&socket) {
                        known.entry(ends).or_default().push(socket);
                    }
                }
                ControlFlow::Continue(())
            })?;
        self.budget.check()?;
        Ok(known)
    }

    pub(super) fn on_sockets(&self, action: &Action, sockets: ById<Vec<Value>>) -> Done<Stage> {
        let owned = sockets.into_iter().flat_map(|(id, list)| {
            list.into_iter()
                .map(move |socket| (id.clone(), socket))
                .collect::<Vec<_>>()
        });
        self.on_records(action, owned.collect(), &SOCKETS)?
            .map_err(|_| Self::misfit())
    }
}
