//! A line of what a collector writes: a key in a window.

use std::net::IpAddr;

use serde::{Deserialize, Serialize, Serializer};

use crate::{
    SECOND,
    counts::Sum,
    names::Names,
    sketch::Sketch,
    stream::Streams,
    sums::{AGENTS, All, Times as Noted},
    window::LineKey,
};

/// Sums of a service and a client's address in a window; as JSON by [`Serialize`], with the fields of
/// [`FIELDS`](crate::fields::FIELDS).
#[derive(Clone, Copy, Debug)]
pub struct Line<'a> {
    /// Beginning of the window, ns since the Unix epoch.
    pub window: u64,
    /// Length of the window, s.
    pub seconds: f64,
    /// IP protocol.
    pub protocol: u8,
    /// Who uses the service.
    pub client: IpAddr,
    /// Who offers it.
    pub server: IpAddr,
    /// Name of the client's service: container, unit or process; empty when it is not known.
    pub client_service: &'a str,
    /// Name of the server's service.
    pub server_service: &'a str,
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
    /// Of these, by RST after an answer.
    pub reset: u64,
    /// Of these, attempts that were answered with RST.
    pub refused: u64,
    /// Of these, attempts that were not answered.
    pub timed_out: u64,
    /// Handshakes.
    pub handshake: Rtt,
    /// Round-trip times, one of each conversation that has one: its handshake in this window, else what
    /// a socket has measured.
    pub rtt: Times<'a>,
    /// Ports of clients.
    pub client_ports: Ports<'a>,
    /// Records that were summed up.
    pub records: u64,
    /// Sampled packets that were: with some the sums are estimates.
    pub samples: u64,
    /// Agents that exported it, as far as they are distinguished (4).
    pub agents: u8,
    /// Their addresses, as they call themselves.
    pub exporters: Exporters,
    /// Conversations that a second host exported.
    pub joined: u64,
    /// What one of two hosts counted and the other did not, of conversations that ended.
    pub between_hosts: Between,
}

/// Addresses of agents.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Exporters([Option<IpAddr>; AGENTS]);

impl Exporters {
    /// One after the other.
    pub fn iter(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.0.iter().flatten().copied()
    }
}

/// A number of each side.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Sent {
    /// Of the client.
    pub client: u64,
    /// Of the server.
    pub server: u64,
}

/// Traffic of each side.
#[derive(Clone, Copy, Debug)]
pub struct Between {
    /// Of the client.
    pub client_sent: Sum,
    /// Of the server.
    pub server_sent: Sum,
}

/// How round-trip times are spread.
#[derive(Clone, Copy, Debug)]
pub struct Times<'a> {
    /// How many, their sum, the least and the greatest.
    pub sums: Rtt,
    /// By class.
    pub classes: &'a Sketch,
}

/// Times from SYN to ACK, µs.
#[derive(Clone, Copy, Debug)]
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
#[derive(Clone, Copy, Debug)]
pub struct Ports<'a> {
    /// The first ones.
    pub list: &'a [u16],
    /// How many more conversations there were.
    pub beyond: u64,
}

impl Serialize for Line<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        skua_record::serialize(crate::fields::FIELDS, self, serializer)
    }
}

impl<'a> Line<'a> {
    pub(crate) fn new(
        window: u64,
        length: u64,
        of: &LineKey,
        sums: All<'a>,
        (names, streams): (&'a Names, &Streams),
    ) -> Self {
        let key = &of.key;
        let (of_key, details) = (sums.key, sums.details);
        let mut exporters = Exporters::default();
        for (place, stream) in exporters.0.iter_mut().zip(sums.agents()) {
            *place = streams.agent(stream);
        }
        let [client_service, server_service] = of.names.map(|number| names.name(number));
        let rtt = |times: &Noted| Rtt {
            count: times.count.into(),
            sum_us: times.sum_ns / 1_000,
            min_us: times.min_us.into(),
            max_us: times.max_us.into(),
        };
        Self {
            window,
            seconds: length as f64 / SECOND as f64,
            protocol: key.protocol,
            client: key.client,
            server: key.server,
            client_service,
            server_service,
            port: key.port,
            service_by: of_key.rule.name(),
            client_sent: of_key.sent[0],
            server_sent: of_key.sent[1],
            retransmitted: Sent {
                client: details.retransmitted[0],
                server: details.retransmitted[1],
            },
            begun: details.begun.into(),
            ended: details.ended.into(),
            reset: details.reset.into(),
            refused: details.refused.into(),
            timed_out: details.timed_out.into(),
            handshake: rtt(&details.handshake),
            rtt: Times {
                sums: rtt(&details.rtt),
                classes: &details.sketch,
            },
            client_ports: Ports {
                list: of_key.ports(),
                beyond: details.ports_beyond.into(),
            },
            records: of_key.records.into(),
            samples: of_key.samples.into(),
            agents: of_key.agents_known,
            exporters,
            joined: details.joined.into(),
            between_hosts: Between {
                client_sent: details.apart[0],
                server_sent: details.apart[1],
            },
        }
    }
}
