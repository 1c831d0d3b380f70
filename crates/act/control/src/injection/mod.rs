//! Packet injection between nodes of the graph.

pub(crate) mod endpoint;
mod manager;

use serde::{Deserialize, Serialize};
use skua_inject::{Kind, Mode, Payload, flags};
use utoipa::ToSchema;
use uuid::Uuid;

pub use manager::{InjectionError, InjectionLimits, InjectionView, Injections, went_well};

/// What is to be injected, in Skydive's shape. `PayloadSize` and `TCPFlags` are ours.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "PascalCase", deny_unknown_fields, default)]
pub struct PacketInjection {
    /// Identifier.
    #[serde(rename = "UUID", deserialize_with = "crate::skydive::id")]
    pub uuid: Uuid,
    /// Query that finds the interface to send at.
    pub src: String,
    /// Query that finds the interface to arrive at.
    pub dst: String,
    /// In place of the source's address.
    #[serde(rename = "SrcIP")]
    pub src_ip: String,
    /// In place of the destination's address.
    #[serde(rename = "DstIP")]
    pub dst_ip: String,
    /// In place of the source's MAC address.
    #[serde(rename = "SrcMAC")]
    pub src_mac: String,
    /// In place of the next hop's MAC address.
    #[serde(rename = "DstMAC")]
    pub dst_mac: String,
    /// 0: by chance.
    pub src_port: u16,
    /// 0: by chance.
    pub dst_port: u16,
    /// `icmp4`, `icmp6`, `tcp4`, `tcp6`, `udp4` or `udp6`.
    pub r#type: String,
    /// Text that packets carry.
    pub payload: String,
    /// In place of a text so many random bytes.
    pub payload_size: usize,
    /// Identifier of ICMP, 0: 1.
    #[serde(rename = "ICMPID")]
    pub icmp_id: u16,
    /// Packets, 0: 1; of a file, how often it is sent.
    pub count: u64,
    /// Ms between packets.
    pub interval: u64,
    /// `unique`, `random` or `increment`.
    pub mode: String,
    /// By how many bytes each packet's payload is longer than that before.
    pub increment_payload: usize,
    /// Ignored: it begins at once.
    #[serde(skip_serializing)]
    pub start_time: serde_json::Value,
    /// A capture file in base64, in place of packets that are made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pcap: Option<String>,
    /// Hops that packets may go, 0: 64.
    #[serde(rename = "TTL")]
    pub ttl: u8,
    /// Letters of FSRPAU, empty: S.
    #[serde(rename = "TCPFlags")]
    pub tcp_flags: String,
}

impl Default for PacketInjection {
    fn default() -> Self {
        Self {
            uuid: Uuid::nil(),
            src: String::new(),
            dst: String::new(),
            src_ip: String::new(),
            dst_ip: String::new(),
            src_mac: String::new(),
            dst_mac: String::new(),
            src_port: 0,
            dst_port: 0,
            r#type: "icmp4".into(),
            payload: String::new(),
            payload_size: 0,
            icmp_id: 0,
            count: 1,
            interval: 0,
            mode: "unique".into(),
            increment_payload: 0,
            start_time: serde_json::Value::Null,
            pcap: None,
            ttl: 64,
            tcp_flags: String::new(),
        }
    }
}

impl PacketInjection {
    fn kind(&self) -> Result<Kind, String> {
        self.r#type.parse()
    }

    fn mode(&self) -> Result<Mode, String> {
        match &*self.mode {
            "" | "unique" => Ok(Mode::Unique),
            "random" => Ok(Mode::Random),
            "increment" => Ok(Mode::Increment),
            other => Err(format!(
                "\"{other}\" is no mode: unique, random or increment"
            )),
        }
    }

    fn flags(&self) -> Result<u8, String> {
        match &*self.tcp_flags {
            "" => Ok(flags::SYN),
            letters => flags::parse(letters),
        }
    }

    fn payload(&self) -> Result<Payload, String> {
        match (&*self.payload, self.payload_size) {
            (text, 0) => Ok(Payload::Bytes(text.into())),
            ("", size) => Ok(Payload::Random(size)),
            _ => Err("Payload or PayloadSize, not both".into()),
        }
    }
}
