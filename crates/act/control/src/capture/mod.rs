//! Captures: which nodes, and what to do with their packets.

mod manager;
mod point;

use crate::resource::Resource;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

pub use manager::{
    CaptureError, CaptureManager, CaptureRunner, CaptureStatus, PointState, Running,
};
pub use point::NodePoint;

/// Ways to capture.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum CaptureType {
    /// What fits each node: sFlow of bridges of Open vSwitch, a mirror of its ports, DPDK of its ports, the flow
    /// table in the kernel of all others.
    #[default]
    #[serde(alias = "")]
    Auto,
    /// The flow table in the kernel.
    Ebpf,
    /// Packets by a ring (TPACKET_V3).
    Afpacket,
    /// Packets by libpcap.
    Pcap,
    /// A TCP port that takes capture files.
    PcapSocket,
    /// Datagrams of sFlow agents.
    Sflow,
    /// Datagrams of NetFlow and IPFIX exporters.
    Netflow,
    /// Packets that Open vSwitch mirrors.
    OvsMirror,
    /// Open vSwitch sends sFlow.
    OvsSflow,
    /// Open vSwitch sends NetFlow.
    OvsNetflow,
    /// Packets by DPDK.
    Dpdk,
}

impl CaptureType {
    /// Name in requests and metadata.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Ebpf => "ebpf",
            Self::Afpacket => "afpacket",
            Self::Pcap => "pcap",
            Self::PcapSocket => "pcapsocket",
            Self::Sflow => "sflow",
            Self::Netflow => "netflow",
            Self::OvsMirror => "ovsmirror",
            Self::OvsSflow => "ovssflow",
            Self::OvsNetflow => "ovsnetflow",
            Self::Dpdk => "dpdk",
        }
    }

    fn is_auto(&self) -> bool {
        *self == Self::Auto
    }

    /// The type on a node, by the node's own.
    #[must_use]
    pub fn on(self, node: &str) -> Self {
        match (self, node) {
            (Self::Auto, "ovsbridge") => Self::OvsSflow,
            (Self::Auto, "ovsport") => Self::OvsMirror,
            (Self::Auto, "dpdkport") => Self::Dpdk,
            (Self::Auto, _) => Self::Ebpf,
            _ => self,
        }
    }
}

/// A capture, in Skydive's shape.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "PascalCase", deny_unknown_fields, default)]
pub struct Capture {
    /// Identifier.
    #[serde(rename = "UUID", deserialize_with = "crate::skydive::id")]
    pub uuid: Uuid,
    /// The nodes whose packets are captured.
    pub gremlin_query: String,
    /// How.
    #[serde(skip_serializing_if = "CaptureType::is_auto")]
    pub r#type: CaptureType,
    /// For people.
    pub name: String,
    /// For people.
    pub description: String,
    /// Pcap expression; only matching packets are captured.
    #[serde(rename = "BPFFilter")]
    pub bpf_filter: String,
    /// Bytes that are kept of a packet, 0 for all.
    pub header_size: u32,
    /// First packets of each flow that are kept, at most 10; -1: none, but all go to who watches live.
    pub raw_packet_limit: i32,
    /// Details of TCP; they are always counted.
    #[serde(rename = "ExtraTCPMetric")]
    pub extra_tcp_metric: bool,
    /// Fragments belong to their conversations; they always do.
    #[serde(rename = "IPDefrag")]
    pub ip_defrag: bool,
    /// Streams put together again: refused, for nothing reads them.
    #[serde(rename = "ReassembleTCP", skip_serializing_if = "std::ops::Not::not")]
    pub reassemble_tcp: bool,
    /// Layers behind the transport to read, as bits: refused, for none are read.
    #[serde(skip_serializing_if = "is_zero")]
    pub extra_layers: u32,
    /// L2 or L3; conversations are always distinguished from layer 3 on, and the answer says so.
    pub layer_key_mode: String,
    /// Ignored: how often it runs is only answered.
    #[serde(skip_serializing)]
    pub count: i64,
    /// One packet of so many; 0 is 1.
    pub sampling_rate: u32,
    /// Seconds between updates.
    pub polling_interval: u32,
    /// Port that receivers listen at, 0: a free one.
    pub port: u16,
    /// Address that receivers listen at, empty: 127.0.0.1.
    pub listen: String,
    /// Where to send copies.
    pub target: String,
    /// How.
    pub target_type: String,
    /// Ms since the Unix epoch, text in JSON.
    #[serde(with = "crate::skydive::time")]
    #[schema(value_type = String, format = DateTime)]
    pub create_time: i64,
    /// When it ends by itself, ms since the Unix epoch.
    pub expire_time: Option<i64>,
    /// Ends with who made it: is not kept, and there may be another that does the same.
    #[serde(skip)]
    pub passing: bool,
    /// The configuration declares it, so it is not kept with those that people made.
    #[serde(skip)]
    pub declared: bool,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl Default for Capture {
    fn default() -> Self {
        Self {
            uuid: Uuid::nil(),
            gremlin_query: String::new(),
            r#type: CaptureType::default(),
            name: String::new(),
            description: String::new(),
            bpf_filter: String::new(),
            header_size: 0,
            raw_packet_limit: 0,
            extra_tcp_metric: false,
            ip_defrag: false,
            reassemble_tcp: false,
            extra_layers: 0,
            count: 0,
            layer_key_mode: "L3".into(),
            sampling_rate: 1,
            polling_interval: 10,
            port: 0,
            listen: String::new(),
            target: String::new(),
            target_type: String::new(),
            create_time: 0,
            expire_time: None,
            passing: false,
            declared: false,
        }
    }
}

impl Capture {
    /// The identifier of a declared one: the same at each start.
    fn declared_id(&self) -> Uuid {
        let parts = [
            &*self.gremlin_query,
            self.r#type.name(),
            &*self.bpf_filter,
            &*self.listen,
            &*self.target,
            &*self.target_type,
            &*self.port.to_string(),
        ];
        Uuid::new_v5(&Uuid::NAMESPACE_OID, parts.join("\0").as_bytes())
    }
}

impl Resource for Capture {
    const KIND: &'static str = "capture";

    fn id(&self) -> Uuid {
        self.uuid
    }

    fn set_id(&mut self, id: Uuid) {
        self.uuid = id;
    }

    fn ends_at(&self) -> Option<i64> {
        self.expire_time
    }

    fn is_kept(&self) -> bool {
        !self.passing && !self.declared
    }

    fn is_same(&self, other: &Self) -> bool {
        !self.passing
            && !other.passing
            && self.gremlin_query == other.gremlin_query
            && self.bpf_filter == other.bpf_filter
            && self.r#type == other.r#type
            && self.port == other.port
            && self.listen == other.listen
            && self.target == other.target
            && self.target_type == other.target_type
    }
}
