//! Input lines of the graph: from a collector in the same process, or as JSON.

use std::{borrow::Cow, net::IpAddr};

use serde::{Deserialize, Deserializer, de::Error as _};

use crate::{Line, SECOND, counts::Sum, line::Sent};

/// The fields of a [`Line`] that the graph uses; in JSON other fields are ignored.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct GraphLine<'a> {
    /// Beginning of the window, ns since the Unix epoch; in JSON as RFC 3339 in UTC.
    #[serde(deserialize_with = "time")]
    pub window: u64,
    /// Length of the window, s.
    pub seconds: f64,
    /// IP protocol.
    pub protocol: u8,
    /// The client.
    pub client: IpAddr,
    /// The server.
    pub server: IpAddr,
    /// Name of the client's service; empty if unknown.
    #[serde(borrow, default)]
    pub client_service: Cow<'a, str>,
    /// Name of the server's service.
    #[serde(borrow, default)]
    pub server_service: Cow<'a, str>,
    /// The service's port.
    pub port: u16,
    /// Sent by the client.
    pub client_sent: Sum,
    /// Sent by the server.
    pub server_sent: Sum,
    /// Retransmitted segments.
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
    /// Round-trip times.
    pub rtt: GraphRtt,
    /// Sampled packets.
    pub samples: u64,
    /// Addresses of the agents that reported it; at most four.
    #[serde(default)]
    pub exporters: Vec<IpAddr>,
}

/// Round-trip times of a line, µs.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
pub struct GraphRtt {
    /// How many.
    pub count: u64,
    /// Their sum.
    pub sum_us: u64,
    /// The least.
    pub min_us: u64,
    /// The greatest.
    pub max_us: u64,
    /// Middles of classes, and how often.
    pub classes: Vec<(u32, u32)>,
}

impl GraphLine<'_> {
    /// End of the window, ns since the Unix epoch.
    pub fn end_ns(&self) -> u64 {
        // A negative or endless length counts as none, or as the longest.
        let length = (self.seconds * SECOND as f64) as u64;
        self.window.saturating_add(length)
    }
}

impl<'a> From<&'a Line<'_>> for GraphLine<'a> {
    fn from(line: &'a Line<'_>) -> Self {
        let rtt = &line.rtt;
        Self {
            window: line.window,
            seconds: line.seconds,
            protocol: line.protocol,
            client: line.client,
            server: line.server,
            client_service: line.client_service.into(),
            server_service: line.server_service.into(),
            port: line.port,
            client_sent: line.client_sent,
            server_sent: line.server_sent,
            retransmitted: line.retransmitted,
            begun: line.begun,
            ended: line.ended,
            reset: line.reset,
            refused: line.refused,
            timed_out: line.timed_out,
            rtt: GraphRtt {
                count: rtt.sums.count,
                sum_us: rtt.sums.sum_us,
                min_us: rtt.sums.min_us,
                max_us: rtt.sums.max_us,
                classes: rtt.classes.classes().collect(),
            },
            samples: line.samples,
            exporters: line.exporters.iter().collect(),
        }
    }
}

fn time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let text = Cow::<str>::deserialize(deserializer)?;
    unix_ns(&text)
        .ok_or_else(|| D::Error::custom("a time must be like 2026-11-21T20:30:22.000000000Z"))
}

/// Reads what [`UnixNs`](skua_record::time::UnixNs) writes.
fn unix_ns(text: &str) -> Option<u64> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let mut date = date.splitn(3, '-').map(str::parse::<u64>);
    let [year, month, day] = std::array::from_fn(|_| date.next()?.ok());
    let mut time = time.splitn(3, ':').map(str::parse::<u64>);
    let [hour, minute, second] = std::array::from_fn(|_| time.next()?.ok());
    let (year, month, day) = (year?, month?, day?);
    let (hour, minute, second) = (hour?, minute?, second?);
    let fits = (1970..=2554).contains(&year)
        && (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && hour < 24
        && minute < 60
        && second <= 60;
    if !fits || fraction.len() > 9 || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    // Days by the civil calendar, with years that begin in March.
    let year = if month <= 2 { year - 1 } else { year };
    let month = (month + 9) % 12;
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day;
    let days = days.checked_sub(719_469)?;
    let seconds = days * 86_400 + hour * 3_600 + minute * 60 + second;
    let ns = fraction.parse::<u64>().ok()? * 10u64.pow(9 - fraction.len() as u32);
    seconds.checked_mul(SECOND)?.checked_add(ns)
}

#[cfg(test)]
mod tests {
    use skua_record::time::UnixNs;

    use super::unix_ns;

    #[test]
    fn times_are_read_as_they_are_written() {
        for day in 0..200_000u64 {
            let ns = (day * 86_400 + day % 86_400) * 1_000_000_000 + day;
            assert_eq!(unix_ns(&UnixNs(ns).to_string()), Some(ns));
        }
        assert_eq!(
            unix_ns("2026-11-21T20:30:22Z"),
            Some(1_795_293_022_000_000_000)
        );
        for wrong in [
            "",
            "2026-11-21",
            "2026-13-01T00:00:00Z",
            "2026-11-21T20:30:22.1e5Z",
            "2026-11-21T99:00:00Z",
        ] {
            assert_eq!(unix_ns(wrong), None, "{wrong}");
        }
    }
}
