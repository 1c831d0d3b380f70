//! Captures that the configuration declares.

use serde::{Deserialize, Serialize};
use skua_control::capture::{Capture, CaptureType};

/// A capture that runs from the start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StartupCapture {
    /// The nodes.
    pub gremlin: String,
    /// How.
    pub r#type: CaptureType,
    /// Pcap expression; only matching packets are captured.
    pub bpf: String,
    /// For people.
    pub name: String,
    /// For people.
    pub description: String,
    /// Bytes that are kept of a packet, 0 for all.
    pub header_size: u32,
    /// First packets of each flow that are kept.
    pub raw_packet_limit: i32,
    /// One packet of so many; 0 is 1.
    pub sampling_rate: u32,
    /// Seconds between updates; 0: as of captures by the API.
    pub polling_interval: u32,
    /// Port that receivers listen at.
    pub port: u16,
    /// Address that receivers listen at.
    pub listen: String,
    /// Where copies go.
    pub target: String,
    /// How.
    pub target_type: String,
}

impl StartupCapture {
    /// As the API has it.
    pub fn capture(&self) -> Capture {
        let usual = Capture::default();
        let this = self.clone();
        Capture {
            gremlin_query: this.gremlin,
            r#type: this.r#type,
            bpf_filter: this.bpf,
            name: this.name,
            description: this.description,
            header_size: this.header_size,
            raw_packet_limit: this.raw_packet_limit,
            sampling_rate: this.sampling_rate.max(1),
            polling_interval: match this.polling_interval {
                0 => usual.polling_interval,
                seconds => seconds,
            },
            port: this.port,
            listen: this.listen,
            target: this.target,
            target_type: this.target_type,
            ..usual
        }
    }
}
