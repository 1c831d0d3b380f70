//! Captures of DPDK's ports: which there are, as nodes, and their packets.

use std::{net::SocketAddr, sync::Arc};

use anyhow::Context as _;
use skua_config::dpdk::Dpdk;
use skua_control::capture::{Capture, NodePoint, PointState};
use skua_kernel::flow::FlowTableConfig;
use skua_probe::{
    PointState as Fares,
    userspace::dpdk::{BUILT, DpdkConfig, DpdkProbe, Error, PortInfo, PortWatch, device_name},
};
use skua_process::host::unix_ms;
use skua_topology::{Edge, Graph, GraphError, Map, Node, Patch, SharedGraph, Value};
use uuid::Uuid;

use crate::captures::{each::Opened, run::LocalRunner, worker::Part};

/// What is wrong with a capture of this type whatever its nodes.
pub fn check() -> Result<(), String> {
    match BUILT {
        true => Ok(()),
        false => Err(format!("captures of type dpdk: {}", Error::NotBuilt)),
    }
}

fn uuid(text: &str) -> String {
    Uuid::new_v5(&Uuid::NAMESPACE_OID, text.as_bytes()).to_string()
}

/// Has the configured ports in the graph, and no others of this host; `host_node` owns them.
pub fn show(dpdk: &Dpdk, host: &str, graph: &SharedGraph, host_node: Option<&str>) {
    let origin: Arc<str> = format!("dpdk.{host}").into();
    let devices = dpdk.devices();
    let mut graph = graph.write();
    let old = graph.export().nodes;
    let old = old.iter().filter(|node| node.origin == origin);
    let mut left: Vec<Arc<str>> = old.map(|node| node.id.clone()).collect();
    for name in devices.iter().filter_map(|device| device_name(device).ok()) {
        let id = uuid(&format!("{host}/dpdk/{name}"));
        left.retain(|left| **left != *id);
        if let Err(error) = add(&mut graph, &id, host, &origin, name, host_node) {
            tracing::warn!(%error, port = name, "no node in the graph");
        }
    }
    for id in left {
        // It was there just now.
        let _ = graph.delete_node(&id, unix_ms());
    }
}

fn add(
    graph: &mut Graph,
    id: &str,
    host: &str,
    origin: &Arc<str>,
    name: &str,
    host_node: Option<&str>,
) -> Result<(), GraphError> {
    let tid = uuid(&format!("{}{name}dpdkport", uuid(host)));
    let entries = [
        ("Name", name),
        ("Type", "dpdkport"),
        ("TID", &*tid),
        ("EncapType", "ether"),
    ];
    let metadata = Map::new(
        entries
            .map(|(key, value)| (key.into(), value.into()))
            .into(),
    );
    if graph.current_node(id).is_some() {
        graph.update_node(id, metadata, unix_ms())?;
    } else {
        let mut node = Node::new(id, host, metadata);
        node.origin = origin.clone();
        graph.add_node(node, unix_ms())?;
    }
    let Some(parent) = host_node else {
        return Ok(());
    };
    let edge_id = uuid(&format!("{parent}{id}ownership"));
    if graph.current_edge(&edge_id).is_none() {
        let relation = Map::new(vec![("RelationType".into(), "ownership".into())]);
        let mut edge = Edge::new(&edge_id, parent, id, host, relation);
        edge.element.origin = origin.clone();
        graph.add_edge(edge, unix_ms())?;
    }
    Ok(())
}

/// A port that is captured.
pub struct PortCapture {
    part: Part,
    watch: PortWatch,
}

impl PortCapture {
    /// Begins a capture of the port that a node is.
    pub fn start(
        runner: &LocalRunner,
        capture: &Capture,
        point: &NodePoint,
    ) -> anyhow::Result<Self> {
        let dpdk = &runner.config.dpdk;
        let device = dpdk.device(&point.name);
        let device = device.with_context(|| format!("dpdk.ports has no {}", point.name))?;
        let table = runner.table(capture, 0);
        let mut config = DpdkConfig {
            device,
            settings: dpdk.settings(),
            packets: LocalRunner::packets(capture),
            table: FlowTableConfig::default(),
            scan_interval: LocalRunner::scan_interval(capture),
        };
        let start = move |hash_seed| {
            config.table = FlowTableConfig { hash_seed, ..table };
            let probe = DpdkProbe::start(config)?;
            let watch = probe.watch();
            Ok((probe, watch))
        };
        let (part, watch) = Part::start(runner, capture, Some(&point.tid), start)?;
        describe_port(&runner.graph, &point.node, &watch.info());
        Ok(Self { part, watch })
    }
}

/// Writes the properties of a port to its node: they are known once it is open.
fn describe_port(graph: &SharedGraph, node: &str, info: &PortInfo) {
    let mac: Vec<String> = info.mac.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut patches: Vec<(&str, Value)> = vec![
        ("Driver", Value::from(&*info.driver)),
        ("MAC", Value::from(&*mac.join(":"))),
        ("MTU", i64::from(info.mtu).into()),
        ("State", if info.up { "UP" } else { "DOWN" }.into()),
    ];
    if info.speed > 0 {
        patches.push(("Speed", i64::from(info.speed).into()));
    }
    let patches = patches
        .into_iter()
        .map(|(key, value)| Patch::Set(key.into(), value));
    let patches: Vec<Patch> = patches.collect();
    if let Err(error) = graph.write().patch_node(node, &patches, unix_ms()) {
        tracing::debug!(%error, "a port's node is not changed");
    }
}

impl Opened for PortCapture {
    fn state(&self) -> PointState {
        if self.part.has_ended() {
            return PointState::Refused("the capture ended; the log says why".into());
        }
        match self.watch.state() {
            Fares::Active => PointState::Active,
            Fares::Waiting(_) => PointState::Pending,
            state => PointState::Refused(state.reason().into()),
        }
    }

    fn listens_at(&self) -> Option<SocketAddr> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skua_topology::Config;

    fn ports(ports: &[&str]) -> Dpdk {
        Dpdk {
            ports: ports.iter().map(|port| (*port).to_owned()).collect(),
            ..Dpdk::default()
        }
    }

    #[test]
    fn devices_that_a_variable_has_cut_up_are_whole_again() {
        let whole = ports(&["net_pcap0,rx_pcap=a,infinite_rx=1", "0000:03:00.0"]);
        let cut = ports(&["net_pcap0", "rx_pcap=a", "infinite_rx=1", "0000:03:00.0"]);
        assert_eq!(whole.devices(), cut.devices());
        assert_eq!(cut.devices().len(), 2);
        assert_eq!(
            cut.device("net_pcap0").as_deref(),
            Some("net_pcap0,rx_pcap=a,infinite_rx=1")
        );
        assert_eq!(cut.device("net_pcap"), None);
    }

    #[test]
    fn what_cannot_be_is_said() {
        let wrong = |dpdk: Dpdk| format!("{:#}", dpdk.check().unwrap_err());
        assert!(wrong(ports(&["a", "a,b=c"])).contains("twice"));
        assert!(wrong(ports(&["x y"])).contains("\"x y\""));
        let none = Dpdk {
            queues: 0,
            ..Dpdk::default()
        };
        assert!(wrong(none).contains("dpdk.queues"));
        assert_eq!(ports(&["net_null0"]).check().is_ok(), BUILT);
        if !BUILT {
            assert!(wrong(ports(&["net_null0"])).contains("--features dpdk"));
            assert!(check().unwrap_err().contains("--features dpdk"));
        }
        Dpdk::default().check().unwrap();
    }

    #[test]
    fn the_graph_has_the_ports_that_are_configured() {
        let graph = SharedGraph::new(Config::default());
        let host = Node::new("h", "here", Map::new(vec![]));
        graph.write().add_node(host, 1).unwrap();
        let names = || {
            let export = graph.read().export();
            let mut names: Vec<String> = export
                .nodes
                .iter()
                .filter(|node| {
                    node.metadata.get("Type").and_then(Value::as_str) == Some("dpdkport")
                })
                .map(|node| node.metadata.get("Name").unwrap().as_str().unwrap().into())
                .collect();
            names.sort();
            (names, export.edges.len())
        };
        let shown = |dpdk: &Dpdk| show(dpdk, "here", &graph, Some("h"));
        shown(&ports(&["net_null0", "net_null1,size=9"]));
        assert_eq!(names(), (vec!["net_null0".into(), "net_null1".into()], 2));
        // The same after a restart, and less after a change.
        shown(&ports(&["net_null0", "net_null1"]));
        assert_eq!(names().1, 2);
        shown(&ports(&["net_null1"]));
        assert_eq!(names(), (vec!["net_null1".into()], 1));
        shown(&ports(&[]));
        assert_eq!(names(), (vec![], 0));
        shown(&ports(&["net_null1"]));
        assert_eq!(names().1, 1);
    }
}
