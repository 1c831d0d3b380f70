//! Reads the tables of `tshark -z conv`.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::conversation::{Conversation, Endpoint, Key};

/// A number of bytes as tshark prints it: exact, or in thousands or millions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Size {
    value: u64,
    unit: u64,
}

impl Size {
    /// Whether tshark prints this many bytes so.
    fn tells(self, bytes: u64) -> bool {
        let (down, nearest) = (bytes / self.unit, (bytes + self.unit / 2) / self.unit);
        self.value == down || self.value == nearest
    }
}

/// A row of a table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row {
    /// IP protocol of the table.
    pub protocol: u8,
    /// The two endpoints, lower first.
    pub endpoints: (Endpoint, Endpoint),
    /// IPv6 and not IPv4.
    pub v6: bool,
    /// Packets and bytes by the lower endpoint.
    pub lo_sent: (u64, Size),
    /// Packets and bytes by the higher endpoint.
    pub hi_sent: (u64, Size),
    /// First packet, ns after the file's first; may be before it.
    pub start_ns: i64,
    /// From the first packet to the last, in units of 100 us.
    pub duration: i64,
}

/// Reads all tables.
///
/// # Errors
///
/// The line that does not look like a row.
pub fn rows(text: &str) -> Result<Vec<Row>, String> {
    let mut protocol = 0;
    let mut rows = Vec::new();
    for line in text.lines() {
        protocol = match line.trim() {
            "UDP Conversations" => 17,
            "TCP Conversations" => 6,
            "SCTP Conversations" => 132,
            _ => protocol,
        };
        if line.contains("<->") {
            rows.push(row(line, protocol).ok_or_else(|| format!("tshark: unknown row: {line}"))?);
        }
    }
    Ok(rows)
}

fn row(line: &str, protocol: u8) -> Option<Row> {
    let words: Vec<&str> = line.split_whitespace().collect();
    // a <-> b, then frames, bytes and their unit three times: b to a, a to b, together.
    let [a, "<->", b, counts @ .., start, duration] = words.as_slice() else {
        return None;
    };
    let [ba, ba_bytes, ba_unit, ab, ab_bytes, ab_unit, _, _, _] = counts else {
        return None;
    };
    let (v6, a) = endpoint(a)?;
    let (_, b) = endpoint(b)?;
    let by_a = (ab.parse().ok()?, size(ab_bytes, ab_unit)?);
    let by_b = (ba.parse().ok()?, size(ba_bytes, ba_unit)?);
    let (endpoints, lo_sent, hi_sent) = match a <= b {
        true => ((a, b), by_a, by_b),
        false => ((b, a), by_b, by_a),
    };
    Some(Row {
        protocol,
        endpoints,
        v6,
        lo_sent,
        hi_sent,
        start_ns: decimal(start, 9)?,
        duration: decimal(duration, 4)?,
    })
}

fn endpoint(text: &str) -> Option<(bool, Endpoint)> {
    let (address, port) = text.rsplit_once(':')?;
    let (v6, octets) = match address.parse().ok()? {
        IpAddr::V4(v4) => (false, v4.to_ipv6_mapped().octets()),
        IpAddr::V6(v6) => (true, v6.octets()),
    };
    Some((v6, Endpoint(octets, port.parse().ok()?)))
}

fn size(value: &str, unit: &str) -> Option<Size> {
    let unit = match unit {
        "bytes" => 1,
        "kB" => 1000,
        "MB" => 1_000_000,
        _ => return None,
    };
    let value = value.replace(',', "").parse().ok()?;
    Some(Size { value, unit })
}

/// A decimal number times ten to the power of `places`, of which it has that many.
fn decimal(text: &str, places: usize) -> Option<i64> {
    let (whole, fraction) = text.split_once('.')?;
    if fraction.len() != places {
        return None;
    }
    format!("{whole}{fraction}").parse().ok()
}

/// Compares tables with flows outside of tunnels, `first_ns` being the time of the first packet of
/// the file; what does not match, as lines.
pub fn compare(rows: &[Row], conversations: &[Conversation], first_ns: u64) -> Vec<String> {
    let mut flows = merged(conversations);
    let mut wrong = Vec::new();
    for row in rows {
        match flows.iter().position(|flow| same(row, flow, first_ns)) {
            Some(i) => {
                flows.swap_remove(i);
            }
            None => wrong.push(format!("only tshark's table: {row:?}")),
        }
    }
    wrong.extend(flows.iter().map(|flow| format!("only ours: {flow:?}")));
    wrong
}

/// The flows as the tables show them: those that differ in VLAN or interface only are one row;
/// entries of the same key, one after the other, are rows of their own.
fn merged(conversations: &[Conversation]) -> Vec<Conversation> {
    let mut entries: BTreeMap<&Key, usize> = BTreeMap::new();
    let mut rows: BTreeMap<(u8, u8, Endpoint, Endpoint, usize), Conversation> = BTreeMap::new();
    for flow in conversations {
        let key = &flow.key;
        if key.network == 0 || key.parent.is_some() {
            continue;
        }
        let protocol = match key.protocol {
            // UDP-Lite is in the table of UDP, in one row with UDP between the same ports.
            136 => 17,
            protocol @ (6 | 17 | 132) => protocol,
            _ => continue,
        };
        let entry = entries.entry(key).or_default();
        *entry += 1;
        let row = (protocol, key.network, key.lo, key.hi, *entry);
        rows.entry(row)
            .and_modify(|sum| sum.merge(flow))
            .or_insert_with(|| {
                let mut flow = flow.clone();
                flow.key.protocol = protocol;
                flow
            });
    }
    rows.into_values().collect()
}

fn same(row: &Row, flow: &Conversation, first_ns: u64) -> bool {
    let key = &flow.key;
    let sent = |told: (u64, Size), ours: (u64, u64)| told.0 == ours.0 && told.1.tells(ours.1);
    let start_ns = flow.start_ns as i64 - first_ns as i64;
    let duration = (flow.end_ns - flow.start_ns) as i64 / 100_000;
    row.protocol == key.protocol
        && row.v6 == (key.network == 6)
        && row.endpoints == (key.lo, key.hi)
        && sent(row.lo_sent, flow.lo_sent)
        && sent(row.hi_sent, flow.hi_sent)
        && row.start_ns == start_ns
        && (row.duration - duration).abs() <= 1
}
