//! A line of what a collector writes: a key in a window.

use std::net::IpAddr;

use serde::{Serialize, Serializer};
use skua_record::time::UnixNs;

use crate::{SECOND, counts::Sum, key::Key, window::KeySums};

/// Sums of a service and a client's address in a window; as JSON by [`Serialize`].
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Line<'a> {
    /// Beginning of the window, ns since the Unix epoch.
    #[serde(serialize_with = "time")]
    pub window: u64,
    /// Length of the window, s.
    pub seconds: f64,
    /// IP protocol.
    pub protocol: u8,
    /// Who uses the service.
    pub client: IpAddr,
    /// Who offers it.
    pub server: IpAddr,
    /// Its port.
    pub port: u16,
    /// How the service's side is known.
    pub service_by: &'static str,
    /// Sent by the client.
    pub client_sent: Sum,
    /// Sent by the server.
    pub server_sent: Sum,
    /// Segments that came again.
    pub retransmitted: Sent,
    /// Conversations that began.
    pub begun: u64,
    /// Conversations that ended.
    pub ended: u64,
    /// Of these, by RST.
    pub reset: u64,
    /// Handshakes.
    pub handshake: Rtt,
    /// Ports of clients.
    pub client_ports: Ports<'a>,
    /// Records that were summed up.
    pub records: u64,
    /// Sampled packets that were: with some the sums are estimates.
    pub samples: u64,
    /// Agents that told of it, as far as they are told apart (4).
    pub agents: u8,
    /// Conversations that a second host told of.
    pub joined: u64,
    /// What one of two hosts counted and the other did not, of conversations that ended.
    pub between_hosts: Between,
}

/// A number of each side.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Sent {
    /// Of the client.
    pub client: u64,
    /// Of the server.
    pub server: u64,
}

/// Traffic of each side.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Between {
    /// Of the client.
    pub client_sent: Sum,
    /// Of the server.
    pub server_sent: Sum,
}

/// Times from SYN to ACK, µs.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Rtt {
    /// How many.
    pub count: u64,
    /// Their sum.
    pub sum_us: u64,
    /// The least.
    pub min_us: u64,
    /// The greatest.
    pub max_us: u64,
}

/// Ports of clients.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Ports<'a> {
    /// The first ones.
    pub list: &'a [u16],
    /// How many more conversations there were.
    pub beyond: u64,
}

fn time<S: Serializer>(ns: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&UnixNs(*ns))
}

impl<'a> Line<'a> {
    pub(crate) fn new(window: u64, length: u64, key: &Key, sums: &'a KeySums) -> Self {
        Self {
            window,
            seconds: length as f64 / SECOND as f64,
            protocol: key.protocol,
            client: key.client,
            server: key.server,
            port: key.port,
            service_by: sums.rule.name(),
            client_sent: sums.sent[0],
            server_sent: sums.sent[1],
            retransmitted: Sent {
                client: sums.retransmitted[0],
                server: sums.retransmitted[1],
            },
            begun: sums.begun,
            ended: sums.ended,
            reset: sums.reset,
            handshake: Rtt {
                count: sums.rtt_count,
                sum_us: sums.rtt_sum_ns / 1_000,
                min_us: sums.rtt_min_ns / 1_000,
                max_us: sums.rtt_max_ns / 1_000,
            },
            client_ports: Ports {
                list: sums.ports(),
                beyond: sums.ports_beyond,
            },
            records: sums.records,
            samples: sums.samples,
            agents: sums.agents_known,
            joined: sums.joined,
            between_hosts: Between {
                client_sent: sums.apart[0],
                server_sent: sums.apart[1],
            },
        }
    }
}
