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
    /// The flow table in the kernel.
    #[default]
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
}

/// A capture, in Skydive's shape.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "PascalCase", deny_unknown_fields, default)]
pub struct Capture {
    /// Identifier.
    #[serde(rename = "UUID")]
    pub uuid: Uuid,
    /// The nodes whose packets are captured.
    pub gremlin_query: String,
    /// How.
    pub r#type: CaptureType,
    /// For people.
    pub name: String,
    /// For people.
    pub description: String,
    /// Pcap expression; only matching packets are looked at.
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
    /// L2 or L3.
    pub layer_key_mode: String,
    /// One packet of so many.
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
    /// Ms since the Unix epoch.
    pub create_time: i64,
    /// When it ends by itself, ms since the Unix epoch.
    pub expire_time: Option<i64>,
    /// Ends with who made it: is not kept, and there may be another that does the same.
    #[serde(skip)]
    pub passing: bool,
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
        }
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
        !self.passing
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
