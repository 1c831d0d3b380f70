//! The service graph over time: what clients and the route `/api/services/history` have in common.

use serde::{Deserialize, Serialize};
use skua_collect::graph::{By, EdgeKey, Endpoint, Group, Point, Series};
use skua_record::time::UnixNs;
use utoipa::{IntoParams, ToSchema};

/// The path.
pub const PATH: &str = "/api/services/history";
/// Time that an answer covers if nothing is said, ms.
const SPAN: u64 = 3_600_000;
/// Groups by default, and at most.
const TOP: usize = 8;
const MOST: usize = 200;
const MS: u64 = 1_000_000;

/// Which sums over time are wanted.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields, default)]
pub struct HistoryQuery {
    /// From this moment on, ms since the Unix epoch; an hour before the end when left out
    pub from: Option<u64>,
    /// Before this moment, ms since the Unix epoch; now when left out
    pub until: Option<u64>,
    /// Only edges with this at either end: a service's name, or an address
    pub service: Option<String>,
    /// Only edges of this client
    pub client: Option<String>,
    /// Only edges to this server
    pub server: Option<String>,
    /// Only edges to this port
    pub port: Option<u16>,
    /// What is told apart: `client`, `server`, or `edge` for both with protocol and port; nothing when left out
    pub by: Option<String>,
    /// So many of these, those with the most bytes (8 when left out, at most 200); the rest is one more
    pub top: Option<usize>,
    /// One sum for the whole time instead of one for each slice
    pub whole: bool,
}

impl HistoryQuery {
    /// The time and the groups; an error is one line of text.
    pub fn series(&self, now_ns: u64) -> Result<Series, String> {
        let by = match self.by.as_deref() {
            None | Some("") => By::Nothing,
            Some("client") => By::Client,
            Some("server") => By::Server,
            Some("edge") => By::Edge,
            Some(other) => return Err(format!("unknown by \"{other}\": client, server or edge")),
        };
        let until_ns = self.until.map_or(now_ns, |ms| ms.saturating_mul(MS));
        let span = SPAN.saturating_mul(MS);
        let from_ns = match self.from {
            Some(ms) => ms.saturating_mul(MS),
            None => until_ns.saturating_sub(span),
        };
        if from_ns >= until_ns {
            return Err("from must be before until, in ms since the Unix epoch".into());
        }
        Ok(Series {
            from_ns,
            until_ns,
            by,
            top: self.top.unwrap_or(TOP).min(MOST),
            whole: self.whole,
        })
    }

    /// Whether an edge is among what is wanted.
    pub fn matches(&self, edge: &EdgeKey) -> bool {
        let is = |wanted: &Option<String>, ends: &[&Endpoint]| {
            let wanted = wanted.as_deref().filter(|name| !name.is_empty());
            wanted.is_none_or(|name| ends.iter().any(|end| end.to_string() == name))
        };
        is(&self.service, &[&edge.client, &edge.server])
            && is(&self.client, &[&edge.client])
            && is(&self.server, &[&edge.server])
            && self.port.is_none_or(|port| edge.port == port)
    }
}

/// An end, by its name or its address.
#[derive(Serialize, ToSchema)]
pub struct HistoryEnd {
    /// Its name
    #[serde(skip_serializing_if = "Option::is_none")]
    service: Option<String>,
    /// Its address, if no name is known
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<String>,
}

/// Round-trip times, µs.
#[derive(Serialize, ToSchema)]
pub struct HistoryRtt {
    /// How many were measured
    count: u64,
    /// Half of them were not longer
    p50_us: u64,
    /// 95% of them were not longer
    p95_us: u64,
}

/// Sums of a slice of time: a line of the answer.
#[derive(Serialize, ToSchema)]
pub struct HistoryPoint {
    /// Beginning of the slice, RFC 3339 in UTC
    start: String,
    /// Its length
    seconds: u64,
    /// With `by=client` and `by=edge`
    #[serde(skip_serializing_if = "Option::is_none")]
    client: Option<HistoryEnd>,
    /// With `by=server` and `by=edge`
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<HistoryEnd>,
    /// With `by=edge`
    #[serde(skip_serializing_if = "Option::is_none")]
    protocol: Option<u8>,
    /// With `by=edge`
    #[serde(skip_serializing_if = "Option::is_none")]
    port: Option<u16>,
    /// It is the sum of those beyond `top`
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    others: bool,
    /// Conversations that began
    connections: u64,
    /// Conversations that ended
    ended: u64,
    /// Attempts that were refused or not answered
    failed: u64,
    /// Conversations that ended by RST after an answer
    reset: u64,
    /// Bytes in both directions
    bytes: u64,
    /// Of these, sent by clients
    client_bytes: u64,
    /// Packets in both directions
    packets: u64,
    /// Segments that came again
    retransmitted: u64,
    /// Left out if nothing was measured
    #[serde(skip_serializing_if = "Option::is_none")]
    rtt: Option<HistoryRtt>,
}

impl From<&Endpoint> for HistoryEnd {
    fn from(end: &Endpoint) -> Self {
        match end {
            Endpoint::Service(name) => Self {
                service: Some(name.to_string()),
                address: None,
            },
            Endpoint::Address(address) => Self {
                service: None,
                address: Some(address.to_string()),
            },
        }
    }
}

impl HistoryPoint {
    fn new(point: &Point, by: By) -> Self {
        let sums = &point.sums;
        let end = |end: &Endpoint| Some(HistoryEnd::from(end));
        let (client, server) = match &point.group {
            Group::End(client) if by == By::Client => (end(client), None),
            Group::End(server) => (None, end(server)),
            Group::Edge(key) => (end(&key.client), end(&key.server)),
            Group::All | Group::Others => (None, None),
        };
        let key = match &point.group {
            Group::Edge(key) => Some(key),
            _ => None,
        };
        Self {
            start: UnixNs(point.begin_ns).to_string(),
            seconds: point.length_ns / 1_000_000_000,
            client,
            server,
            protocol: key.map(|key| key.protocol),
            port: key.map(|key| key.port),
            others: point.group == Group::Others,
            connections: sums.connections,
            ended: sums.ended,
            failed: sums.failed(),
            reset: sums.reset,
            bytes: sums.bytes(),
            client_bytes: sums.sent[0].bytes,
            packets: sums.sent[0].packets.saturating_add(sums.sent[1].packets),
            retransmitted: sums.retransmitted[0].saturating_add(sums.retransmitted[1]),
            rtt: sums.median_and_p95().map(|[p50_us, p95_us]| HistoryRtt {
                count: sums.rtt_count,
                p50_us,
                p95_us,
            }),
        }
    }
}

/// One JSON object a line.
pub fn json(points: &[Point], by: By) -> Vec<u8> {
    let mut lines = Vec::new();
    for point in points {
        // Writing to memory does not fail.
        let _ = serde_json::to_writer(&mut lines, &HistoryPoint::new(point, by));
        lines.push(b'\n');
    }
    lines
}
