//! Which nodes fit which type of capture.

use super::CaptureType;
use serde::{Deserialize, Serialize};
use skua_topology::{Node, Value};
use std::sync::Arc;
use uuid::Uuid;

/// A node that a capture fits.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct NodePoint {
    /// Name of its host.
    pub host: Arc<str>,
    /// Inode number of its network namespace; 0 when the type needs none.
    pub netns_inode: u32,
    /// Index of the interface; 0 when the type needs none.
    pub ifindex: u32,
    /// Identifier of the node.
    pub node: Arc<str>,
    /// `TID` of the node.
    pub tid: Box<str>,
    /// Name of the node.
    pub name: Box<str>,
    /// `Type` of the node.
    pub kind: Box<str>,
    /// Its row in the database of Open vSwitch, if it has one.
    #[serde(default)]
    pub row: Option<Uuid>,
}

/// What a type of capture runs on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CaptureSite {
    /// Interfaces of the kernel.
    Interface,
    /// Any node: the records that exporters send are counted there.
    Node,
    /// Ports of DPDK.
    DpdkPort,
    /// Bridges, ports and interfaces of Open vSwitch.
    Switch,
    /// Bridges of Open vSwitch.
    Bridge,
}

impl CaptureSite {
    fn of(kind: CaptureType) -> Self {
        match kind {
            CaptureType::Auto | CaptureType::Ebpf | CaptureType::Afpacket | CaptureType::Pcap => {
                Self::Interface
            }
            CaptureType::PcapSocket | CaptureType::Sflow | CaptureType::Netflow => Self::Node,
            CaptureType::Dpdk => Self::DpdkPort,
            CaptureType::OvsMirror => Self::Switch,
            CaptureType::OvsSflow | CaptureType::OvsNetflow => Self::Bridge,
        }
    }

    /// What it runs on, in words.
    fn name(self) -> &'static str {
        match self {
            Self::Interface => "interfaces of the kernel (with NetNsInode and IfIndex)",
            Self::Node => "nodes with a TID",
            Self::DpdkPort => "ports of DPDK that dpdk.ports names (Type dpdkport)",
            Self::Switch => "bridges, ports and interfaces of Open vSwitch (with UUID)",
            Self::Bridge => "bridges of Open vSwitch (Type ovsbridge)",
        }
    }

    /// Whether two nodes are the same to a capture.
    fn is_same(self, a: &NodePoint, b: &NodePoint) -> bool {
        match self {
            Self::Interface => {
                (&a.host, a.netns_inode, a.ifindex) == (&b.host, b.netns_inode, b.ifindex)
            }
            _ => a.node == b.node,
        }
    }
}

/// Whether two nodes are the same to a type of capture.
pub(super) fn is_same_site(kind: CaptureType, a: &NodePoint, b: &NodePoint) -> bool {
    let site = CaptureSite::of(kind.on(&a.kind));
    site == CaptureSite::of(kind.on(&b.kind)) && site.is_same(a, b)
}

/// The capture point that a node is to a type of capture, or why it is none.
pub(super) fn point(node: &Node, kind: CaptureType) -> Result<NodePoint, String> {
    let int = |key: &str| {
        let value = node.metadata.get(key).and_then(Value::as_int);
        let value = value.and_then(|value| u32::try_from(value).ok());
        value.unwrap_or_default()
    };
    let text = |key: &str| -> Box<str> {
        let value = node.metadata.get(key).and_then(Value::as_str);
        value.unwrap_or_default().into()
    };
    let kind = kind.on(&text("Type"));
    let place = CaptureSite::of(kind);
    let switched = node.metadata.get("Ovs").is_some();
    let point = NodePoint {
        host: node.host.clone(),
        netns_inode: int("NetNsInode"),
        ifindex: int("IfIndex"),
        node: node.id.clone(),
        tid: text("TID"),
        name: text("Name"),
        kind: text("Type"),
        row: switched.then(|| text("UUID").parse().ok()).flatten(),
    };
    let fits = match place {
        CaptureSite::Interface => point.netns_inode > 0 && point.ifindex > 0,
        CaptureSite::Node => !point.tid.is_empty(),
        CaptureSite::DpdkPort => &*point.kind == "dpdkport" && !point.tid.is_empty(),
        CaptureSite::Switch => point.row.is_some(),
        CaptureSite::Bridge => point.row.is_some() && &*point.kind == "ovsbridge",
    };
    if fits {
        return Ok(point);
    }
    Err(format!(
        "captures of type {} run on {}; {:?} of type {:?} is none",
        kind.name(),
        place.name(),
        point.name,
        point.kind
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use skua_topology::Map;

    const ROW: &str = "5b1f3c56-53b4-4d1c-9f0a-5d5f7f7a2f11";

    fn node(kind: &str, more: &[(&str, Value)]) -> Node {
        let mut entries: Vec<(Arc<str>, Value)> = vec![
            ("Name".into(), "n".into()),
            ("Type".into(), kind.into()),
            ("TID".into(), "t".into()),
        ];
        entries.extend(more.iter().map(|(k, v)| ((*k).into(), v.clone())));
        Node::new("id", "here", Map::new(entries))
    }

    fn fitting(node: &Node) -> Vec<&'static str> {
        use CaptureType as T;
        let all = [
            T::Ebpf,
            T::Afpacket,
            T::Pcap,
            T::PcapSocket,
            T::Sflow,
            T::Netflow,
            T::OvsMirror,
            T::OvsSflow,
            T::OvsNetflow,
            T::Dpdk,
        ];
        let fits = all.into_iter().filter(|kind| point(node, *kind).is_ok());
        fits.map(CaptureType::name).collect()
    }

    #[test]
    fn each_type_says_which_nodes_fit() {
        let received = ["pcapsocket", "sflow", "netflow"];
        let ovs = || [("UUID", ROW.into()), ("Ovs", Map::new(vec![]).into())];
        let kernel = || [("NetNsInode", 7.into()), ("IfIndex", 3.into())];
        assert_eq!(fitting(&node("host", &[])), received);
        assert_eq!(
            fitting(&node("veth", &kernel())),
            [&["ebpf", "afpacket", "pcap"][..], &received].concat()
        );
        assert_eq!(
            fitting(&node("ovsbridge", &ovs())),
            [&received[..], &["ovsmirror", "ovssflow", "ovsnetflow"]].concat()
        );
        assert_eq!(
            fitting(&node("ovsport", &ovs())),
            [&received[..], &["ovsmirror"]].concat()
        );
        assert_eq!(
            fitting(&node("dpdkport", &[])),
            [&received[..], &["dpdk"]].concat()
        );
        let both = [&kernel()[..], &ovs()].concat();
        assert!(fitting(&node("veth", &both)).contains(&"ovsmirror"));
        // An identifier of something else is no row of Open vSwitch.
        let foreign = node("ovsbridge", &[("UUID", ROW.into())]);
        assert_eq!(fitting(&foreign), received);
        let by_node = |kind: &str, more: &[(&str, Value)]| {
            point(&node(kind, more), CaptureType::Auto).is_ok()
        };
        assert!(by_node("ovsbridge", &ovs()) && by_node("ovsport", &ovs()));
        assert!(by_node("dpdkport", &[]) && by_node("veth", &kernel()));
        assert!(!by_node("host", &[]));
        let why = point(&node("host", &[]), CaptureType::OvsSflow).unwrap_err();
        assert!(
            why.contains("ovssflow") && why.contains("ovsbridge"),
            "{why}"
        );
    }
}
