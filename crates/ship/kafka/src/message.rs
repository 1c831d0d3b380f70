//! A line as protobuf: `proto/skua/collect/v1/line.proto`, where the fields are explained.

use std::{fmt::Write as _, net::IpAddr};

use prost::{DecodeError, Message};
use skua_collect::{
    Line, Sent, Sum,
    graph::{GraphLine, GraphRtt},
};

/// The version of the schema's meaning that is written.
pub const VERSION: u32 = 1;

/// `skua.collect.v1.Line`.
#[derive(Clone, PartialEq, Message)]
#[allow(missing_docs, reason = "the schema explains the fields")]
pub struct LineMessage {
    #[prost(uint32, tag = "1")]
    pub version: u32,
    #[prost(uint64, tag = "2")]
    pub window_ns: u64,
    #[prost(uint64, tag = "3")]
    pub length_ns: u64,
    #[prost(uint32, tag = "4")]
    pub protocol: u32,
    #[prost(string, tag = "5")]
    pub client_address: String,
    #[prost(string, tag = "6")]
    pub server_address: String,
    #[prost(uint32, tag = "7")]
    pub port: u32,
    #[prost(string, tag = "8")]
    pub service_by: String,
    #[prost(uint64, tag = "9")]
    pub client_packets: u64,
    #[prost(uint64, tag = "10")]
    pub client_bytes: u64,
    #[prost(uint64, tag = "11")]
    pub server_packets: u64,
    #[prost(uint64, tag = "12")]
    pub server_bytes: u64,
    #[prost(uint64, tag = "13")]
    pub client_retransmitted: u64,
    #[prost(uint64, tag = "14")]
    pub server_retransmitted: u64,
    #[prost(uint64, tag = "15")]
    pub begun: u64,
    #[prost(uint64, tag = "16")]
    pub ended: u64,
    #[prost(uint64, tag = "17")]
    pub reset: u64,
    #[prost(uint64, tag = "18")]
    pub handshakes: u64,
    #[prost(uint64, tag = "19")]
    pub handshake_sum_us: u64,
    #[prost(uint64, tag = "20")]
    pub handshake_min_us: u64,
    #[prost(uint64, tag = "21")]
    pub handshake_max_us: u64,
    #[prost(uint32, repeated, tag = "22")]
    pub client_ports: Vec<u32>,
    #[prost(uint64, tag = "23")]
    pub client_ports_beyond: u64,
    #[prost(uint64, tag = "24")]
    pub records: u64,
    #[prost(uint64, tag = "25")]
    pub samples: u64,
    #[prost(uint32, tag = "26")]
    pub agents: u32,
    #[prost(uint64, tag = "27")]
    pub joined: u64,
    #[prost(uint64, tag = "28")]
    pub between_client_packets: u64,
    #[prost(uint64, tag = "29")]
    pub between_client_bytes: u64,
    #[prost(uint64, tag = "30")]
    pub between_server_packets: u64,
    #[prost(uint64, tag = "31")]
    pub between_server_bytes: u64,
    #[prost(string, tag = "32")]
    pub client_service: String,
    #[prost(string, tag = "33")]
    pub server_service: String,
    #[prost(uint64, tag = "34")]
    pub refused: u64,
    #[prost(uint64, tag = "35")]
    pub timed_out: u64,
    #[prost(uint64, tag = "36")]
    pub rtts: u64,
    #[prost(uint64, tag = "37")]
    pub rtt_sum_us: u64,
    #[prost(uint64, tag = "38")]
    pub rtt_min_us: u64,
    #[prost(uint64, tag = "39")]
    pub rtt_max_us: u64,
    #[prost(message, repeated, tag = "40")]
    pub rtt_classes: Vec<RttClass>,
}

/// `skua.collect.v1.RttClass`.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
#[allow(missing_docs, reason = "the schema explains the fields")]
pub struct RttClass {
    #[prost(uint64, tag = "1")]
    pub us: u64,
    #[prost(uint64, tag = "2")]
    pub times: u64,
}

impl LineMessage {
    /// Becomes a line; its strings and lists are used again.
    pub fn set(&mut self, line: &Line<'_>) {
        self.version = VERSION;
        self.window_ns = line.window;
        self.length_ns = length_ns(line.seconds);
        self.protocol = line.protocol.into();
        for (text, address) in [
            (&mut self.client_address, line.client),
            (&mut self.server_address, line.server),
        ] {
            text.clear();
            // Strings take whatever is written.
            let _ = write!(text, "{address}");
        }
        self.port = line.port.into();
        for (text, name) in [
            (&mut self.service_by, line.service_by),
            (&mut self.client_service, line.client_service),
            (&mut self.server_service, line.server_service),
        ] {
            text.clear();
            text.push_str(name);
        }
        self.client_packets = line.client_sent.packets;
        self.client_bytes = line.client_sent.bytes;
        self.server_packets = line.server_sent.packets;
        self.server_bytes = line.server_sent.bytes;
        self.client_retransmitted = line.retransmitted.client;
        self.server_retransmitted = line.retransmitted.server;
        self.begun = line.begun;
        self.ended = line.ended;
        self.reset = line.reset;
        self.handshakes = line.handshake.count;
        self.handshake_sum_us = line.handshake.sum_us;
        self.handshake_min_us = line.handshake.min_us;
        self.handshake_max_us = line.handshake.max_us;
        self.client_ports.clear();
        self.client_ports
            .extend(line.client_ports.list.iter().map(|port| u32::from(*port)));
        self.client_ports_beyond = line.client_ports.beyond;
        self.records = line.records;
        self.samples = line.samples;
        self.agents = line.agents.into();
        self.joined = line.joined;
        let between = &line.between_hosts;
        self.between_client_packets = between.client_sent.packets;
        self.between_client_bytes = between.client_sent.bytes;
        self.between_server_packets = between.server_sent.packets;
        self.between_server_bytes = between.server_sent.bytes;
        self.refused = line.refused;
        self.timed_out = line.timed_out;
        let rtt = &line.rtt.sums;
        self.rtts = rtt.count;
        self.rtt_sum_us = rtt.sum_us;
        self.rtt_min_us = rtt.min_us;
        self.rtt_max_us = rtt.max_us;
        self.rtt_classes.clear();
        let classes = line.rtt.classes.classes();
        self.rtt_classes.extend(classes.map(|(us, times)| RttClass {
            us: us.into(),
            times: times.into(),
        }));
    }

    /// Reads a message.
    ///
    /// # Errors
    ///
    /// When it is no protobuf of this kind.
    pub fn read(bytes: &[u8]) -> Result<Self, DecodeError> {
        Self::decode(bytes)
    }

    /// What the service graph takes of it; none when it is of a version with other meanings, or makes no sense.
    pub fn graph_line(&self) -> Option<GraphLine<'_>> {
        if self.version != VERSION {
            return None;
        }
        let address = |text: &str| text.parse::<IpAddr>().ok();
        let class = |class: &RttClass| {
            let (us, times) = (class.us.try_into().ok()?, class.times.try_into().ok()?);
            Some((us, times))
        };
        let sum = |packets, bytes| Sum { packets, bytes };
        Some(GraphLine {
            window: self.window_ns,
            seconds: self.length_ns as f64 / 1e9,
            protocol: self.protocol.try_into().ok()?,
            client: address(&self.client_address)?,
            server: address(&self.server_address)?,
            client_service: self.client_service.as_str().into(),
            server_service: self.server_service.as_str().into(),
            port: self.port.try_into().ok()?,
            client_sent: sum(self.client_packets, self.client_bytes),
            server_sent: sum(self.server_packets, self.server_bytes),
            retransmitted: Sent {
                client: self.client_retransmitted,
                server: self.server_retransmitted,
            },
            begun: self.begun,
            ended: self.ended,
            reset: self.reset,
            refused: self.refused,
            timed_out: self.timed_out,
            rtt: GraphRtt {
                count: self.rtts,
                sum_us: self.rtt_sum_us,
                min_us: self.rtt_min_us,
                max_us: self.rtt_max_us,
                classes: self.rtt_classes.iter().map(class).collect::<Option<_>>()?,
            },
            samples: self.samples,
            // Messages do not tell.
            exporters: Vec::new(),
        })
    }
}

/// Windows are a whole number of nanoseconds; as seconds they are exact to a few of them.
fn length_ns(seconds: f64) -> u64 {
    (seconds * 1e9).round() as u64
}

/// The message's key, by which Kafka chooses the partition: all lines of a service are in one, in order.
pub(crate) fn write_key(line: &Line<'_>, key: &mut String) {
    key.clear();
    // Strings take whatever is written.
    let _ = write!(key, "{}/{}/{}", line.protocol, line.server, line.port);
}
