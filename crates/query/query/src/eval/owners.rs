//! Which nodes own the addresses of flows.

use super::{Done, Observed, Run};
use crate::{
    filter::{Filter, address},
    record::{Leaf, Record},
};
use hashbrown::HashMap;
use skua_topology::{Lookup, Node, Value};
use std::{net::IpAddr, ops::ControlFlow, sync::Arc};

/// Metadata with the addresses of an interface, as `ADDRESS/PREFIX`.
const ADDRESSES: [&str; 2] = ["IPV4", "IPV6"];

/// Metadata with the network namespace of an interface.
const NAMESPACE: &str = "NetNsInode";

/// A network namespace of a host.
type Namespace = (Arc<str>, Option<i64>);

fn namespace(node: &Node) -> Namespace {
    let inode = node.metadata.get(NAMESPACE).and_then(Value::as_int);
    (node.host.clone(), inode)
}

/// Whether an address means something in one namespace only.
fn is_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_loopback() || address.is_link_local(),
        IpAddr::V6(address) => address.is_loopback() || address.is_unicast_link_local(),
    }
}

/// The nodes that pass a filter, by the addresses that they own.
pub(super) struct Owners {
    nodes: HashMap<IpAddr, Vec<Observed<Node>>>,
    /// Where flows were captured, by `TID`.
    captured: HashMap<Arc<str>, Option<Namespace>>,
}

impl Owners {
    /// Of all nodes there are in the time of the query: addresses have no index.
    pub fn of(run: &Run<'_>, filter: &Filter) -> Done<Self> {
        let mut nodes: HashMap<IpAddr, Vec<Observed<Node>>> = HashMap::new();
        let mut held = 0;
        run.graph()
            .nodes(run.window()?, Lookup::All, &mut |node, window| {
                run.budget.spend()?;
                if !filter.holds(&**node) {
                    return ControlFlow::Continue(());
                }
                for key in ADDRESSES {
                    node.leaves(key, &mut |leaf| {
                        let owned = match leaf {
                            Leaf::Ip(owned) => Some(owned),
                            leaf => leaf.text().and_then(|text| address(&text)),
                        };
                        if let Some(owned) = owned {
                            held += 1;
                            nodes.entry(owned).or_default().push(Observed {
                                item: node.clone(),
                                window,
                            });
                        }
                        false
                    });
                }
                run.budget.hold(held)
            })?;
        run.budget.check()?;
        Ok(Self {
            nodes,
            captured: HashMap::new(),
        })
    }

    /// Owners of an address. Those in the flow's capture namespace come first; an address that exists
    /// in every namespace belongs to that namespace only.
    pub fn find(
        &mut self,
        run: &Run<'_>,
        capture: Option<Arc<str>>,
        address: IpAddr,
    ) -> Done<Vec<Observed<Node>>> {
        let Some(owners) = self.nodes.get(&address) else {
            return Ok(Vec::new());
        };
        if owners.len() == 1 && !is_local(address) {
            return Ok(owners.clone());
        }
        let here = match capture {
            None => None,
            Some(tid) => match self.captured.get(&tid) {
                Some(known) => known.clone(),
                None => {
                    let node = run.first_node("TID", &tid, &Filter::default())?;
                    let found = node.map(|node| namespace(&node.item));
                    self.captured.insert(tid, found.clone());
                    found
                }
            },
        };
        let same = |node: &&Observed<Node>| here.as_ref() == Some(&namespace(&node.item));
        let near: Vec<_> = owners.iter().filter(same).cloned().collect();
        Ok(match near.is_empty() && !is_local(address) {
            true => owners.clone(),
            false => near,
        })
    }
}
