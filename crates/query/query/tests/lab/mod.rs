//! The fixed topology and flows of `conformance/`.
#![allow(dead_code, clippy::unwrap_used)]

use serde::Deserialize;
use skua_query::{
    AclSource, Answer, FlowRecord, PacketFilters, PacketTest, QueryError, RawPacket, SourceError,
    Sources,
    memory::{MemoryFlows, ValueFlow},
};
use skua_topology::{Config, Export, Graph, Map, Patch, SharedGraph, Value};
use std::{collections::HashMap, sync::Arc};

/// 2024-05-01T12:00:00Z.
pub const NOW: i64 = 1_714_564_800_000;

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Change {
    at: i64,
    add: Option<Export>,
    update: Option<String>,
    set: Option<Map>,
    delete: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Flows {
    flows: Vec<Value>,
    metrics: HashMap<Arc<str>, Vec<Value>>,
    packets: HashMap<Arc<str>, Vec<Packet>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Packet {
    timestamp: i64,
    index: i64,
    data: String,
    link_type: u32,
}

pub struct Lab {
    graph: SharedGraph,
    flows: MemoryFlows<ValueFlow>,
}

/// Knows the expressions `len > N` and nothing else.
struct Lengths;

impl PacketFilters for Lengths {
    fn compile(&self, expression: &str, _: u32) -> Result<PacketTest, String> {
        let least = expression
            .strip_prefix("len > ")
            .and_then(|number| number.parse().ok());
        let least: usize = least.ok_or("syntax error")?;
        Ok(Box::new(move |data| data.len() > least))
    }
}

/// Has an ACL for flows to port 80, knows nothing of ICMP, and refuses others.
struct Judge;

impl AclSource for Judge {
    fn of_flow(&self, flow: &dyn FlowRecord) -> Result<Vec<Value>, SourceError> {
        let port = flow.get("Transport.B").and_then(|port| port.as_int());
        let acl = |entries: &[(&str, &str)]| {
            let entries = entries.iter();
            Map::new(
                entries
                    .map(|(key, value)| ((*key).into(), (*value).into()))
                    .collect(),
            )
            .into()
        };
        match port {
            Some(80) => Ok(vec![
                acl(&[
                    ("Way", "AB"),
                    ("Verdict", "allow"),
                    ("Name", "web"),
                    ("Match", "outport == @web && tcp.dst == 80"),
                    ("Direction", "to-lport"),
                    ("Action", "allow-related"),
                    ("Owner", "web"),
                    ("From", "10.0.0.1:40000"),
                    ("To", "10.0.0.2:80"),
                    ("Source", "conntrack"),
                ]),
                acl(&[
                    ("Way", "BA"),
                    ("Verdict", "none"),
                    ("From", "10.0.0.2:80"),
                    ("To", "10.0.0.1:40000"),
                    ("Source", "rules"),
                ]),
            ]),
            None => Ok(vec![acl(&[("Verdict", "unknown"), ("Reason", "ICMP")])]),
            Some(port) => Err(SourceError(format!("nothing is known of port {port}"))),
        }
    }
}

impl Lab {
    pub fn new() -> Self {
        Self::with_flows(include_str!("../conformance/flows.json"))
    }

    /// With the flows of another file.
    pub fn with_flows(flows: &str) -> Self {
        let mut graph = Graph::new(Config::default());
        let changes: Vec<Change> =
            serde_json::from_str(include_str!("../conformance/topology.json")).unwrap();
        for change in changes {
            if let Some(export) = &change.add {
                graph.import(export, change.at).unwrap();
            }
            if let Some(id) = &change.update {
                let set = change.set.iter().flat_map(Map::iter);
                let patches: Vec<Patch> = set
                    .map(|(name, value)| Patch::Set((&**name).into(), value.clone()))
                    .collect();
                graph.patch_node(id, &patches, change.at).unwrap();
            }
            if let Some(id) = &change.delete {
                graph.delete_node(id, change.at).unwrap();
            }
        }
        let file: Flows = serde_json::from_str(flows).unwrap();
        let keys = [
            "UUID",
            "TrackingID",
            "NodeTID",
            "Network.A",
            "Network.B",
            "Application",
        ];
        let mut flows = MemoryFlows::new(&keys, 60_000);
        for flow in file.flows {
            flows.add(ValueFlow(flow));
        }
        flows.metrics = file.metrics.into_iter().collect();
        let packet = |packet: Packet| {
            use base64::{Engine, engine::general_purpose::STANDARD};
            let data: std::sync::Arc<[u8]> = STANDARD.decode(packet.data).unwrap().into();
            RawPacket {
                timestamp: packet.timestamp,
                time_ns: packet.timestamp as u64 * 1_000_000,
                index: packet.index,
                length: data.len() as u32,
                data,
                link_type: packet.link_type,
            }
        };
        let packets = file.packets.into_iter();
        flows.packets = packets
            .map(|(id, list)| (id, list.into_iter().map(packet).collect()))
            .collect();
        Self {
            graph: graph.into(),
            flows,
        }
    }

    pub fn sources(&self) -> Sources<'_> {
        Sources {
            graph: &self.graph,
            flows: Some(&self.flows),
            sockets: None,
            acls: Some(&Judge),
            filters: Some(&Lengths),
        }
    }

    pub fn query(&self, text: &str) -> Result<Answer, QueryError> {
        skua_query::query(text, self.sources(), NOW)
    }
}
