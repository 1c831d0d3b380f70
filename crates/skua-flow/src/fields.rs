//! Every field of the flow record, once: JSON, CSV, their schema and `docs/records.md` come from
//! [`FIELDS`].

use crate::{
    EndReason, FlowKey, FlowLine, Network,
    community::CommunityId,
    names::{self, Layers, Protocol, TcpFlags},
    time::UnixNs,
};
use serde::{Serialize, Serializer, ser::SerializeMap, ser::SerializeSeq};
use std::{fmt, io, net::IpAddr};

/// A field of the flow record.
pub struct Field {
    /// Place in the JSON object, `ab.packets` being `packets` in the object `ab`.
    pub path: &'static str,
    /// Type of the value.
    pub kind: FieldType,
    /// Unit of the value, empty for none.
    pub unit: &'static str,
    /// When the field is left out, empty for never.
    pub absent: &'static str,
    /// What the value means.
    pub meaning: &'static str,
    value: for<'a> fn(&FlowLine<'a>) -> Value<'a>,
}

/// Type of a field, in the words of JSON Schema.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FieldType {
    /// Text.
    String,
    /// Whole number, not negative.
    Integer,
    /// Number, not negative.
    Number,
    /// List of whole numbers; in CSV separated by spaces.
    Integers,
}

impl FieldType {
    /// Name in the documentation.
    pub fn name(self) -> &'static str {
        match self {
            Self::String => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Integers => "integers",
        }
    }
}

/// Value of a field. Nothing is formatted before it is written.
enum Value<'a> {
    Absent,
    Integer(u64),
    Number(f64),
    Text(&'a str),
    Vlans(&'a FlowKey),
    Ip(IpAddr),
    Mac([u8; 6]),
    Id48(u64),
    Time(u64),
    Layers(&'a FlowKey),
    Protocol(&'a FlowKey),
    Flags(u8),
    Community(CommunityId),
}

impl<'a> Value<'a> {
    fn or_absent<T>(value: Option<T>, some: impl FnOnce(T) -> Value<'a>) -> Self {
        value.map_or(Self::Absent, some)
    }

    fn is_absent(&self) -> bool {
        matches!(self, Self::Absent)
    }
}

impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent => Ok(()),
            Self::Integer(value) => value.fmt(f),
            Self::Number(value) => value.fmt(f),
            Self::Text(value) => f.write_str(value),
            Self::Vlans(key) => {
                for (place, id) in key.vlan_ids().enumerate() {
                    write!(f, "{}{id}", if place == 0 { "" } else { " " })?;
                }
                Ok(())
            }
            Self::Ip(value) => value.fmt(f),
            Self::Mac([a, b, c, d, e, g]) => {
                write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
            }
            Self::Id48(value) => write!(f, "{value:012x}"),
            Self::Time(value) => UnixNs(*value).fmt(f),
            Self::Layers(key) => Layers(key).fmt(f),
            Self::Protocol(key) => Protocol(key).fmt(f),
            Self::Flags(flags) => TcpFlags(*flags).fmt(f),
            Self::Community(id) => id.fmt(f),
        }
    }
}

impl Serialize for Value<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Absent => serializer.serialize_none(),
            Self::Integer(value) => serializer.serialize_u64(*value),
            Self::Number(value) => serializer.serialize_f64(*value),
            Self::Text(value) => serializer.serialize_str(value),
            Self::Vlans(key) => {
                let mut list = serializer.serialize_seq(None)?;
                for id in key.vlan_ids() {
                    list.serialize_element(&id)?;
                }
                list.end()
            }
            shown => serializer.collect_str(shown),
        }
    }
}

const fn field(
    path: &'static str,
    kind: FieldType,
    unit: &'static str,
    absent: &'static str,
    meaning: &'static str,
    value: for<'a> fn(&FlowLine<'a>) -> Value<'a>,
) -> Field {
    Field {
        path,
        kind,
        unit,
        absent,
        meaning,
        value,
    }
}

use FieldType::{Integer, Integers, Number, String};

const NO_TCP: &str = "not TCP";
const NO_TUNNEL: &str = "not inside a tunnel";
const NO_HANDSHAKE: &str = "handshake not seen";

/// All fields in the order in which they are written. Fields of one JSON object stand together.
pub const FIELDS: &[Field] = &[
    field("interface", String, "", "", "name of the interface", |l| {
        Value::Text(l.interface)
    }),
    field(
        "layers",
        String,
        "",
        "",
        "layers of the packets, outermost first, separated by `/`: `Ethernet/Dot1Q/IPv4/UDP`; begins with the network layer when there is no Ethernet header",
        |l| Value::Layers(&l.record.key),
    ),
    field(
        "protocol",
        String,
        "",
        "",
        "transport protocol, or what stands in its place: `tcp`, `icmpv6`, `arp`; a number where there is no name",
        |l| Value::Protocol(&l.record.key),
    ),
    field(
        "a.address",
        String,
        "",
        "",
        "address of the side that spoke first: IP, or MAC without IP; empty when the packets have neither",
        |l| address(&l.record.key, l.record.a().0),
    ),
    field(
        "a.port",
        Integer,
        "",
        "without IP",
        "its transport port, 0 for protocols without ports",
        |l| port(&l.record.key, l.record.a().1),
    ),
    field(
        "b.address",
        String,
        "",
        "",
        "address of the other side",
        |l| address(&l.record.key, l.record.b().0),
    ),
    field(
        "b.port",
        Integer,
        "",
        "without IP",
        "its transport port",
        |l| port(&l.record.key, l.record.b().1),
    ),
    field(
        "ab.packets",
        Integer,
        "packets",
        "",
        "packets on the wire from `a` to `b`",
        |l| Value::Integer(l.record.ab().packets),
    ),
    field(
        "ab.bytes",
        Integer,
        "bytes",
        "",
        "link-layer bytes on the wire from `a` to `b`; inside a tunnel from the inner header on",
        |l| Value::Integer(l.record.ab().bytes),
    ),
    field(
        "ba.packets",
        Integer,
        "packets",
        "",
        "packets from `b` to `a`",
        |l| Value::Integer(l.record.ba().packets),
    ),
    field(
        "ba.bytes",
        Integer,
        "bytes",
        "",
        "bytes from `b` to `a`",
        |l| Value::Integer(l.record.ba().bytes),
    ),
    field(
        "start",
        String,
        "RFC 3339, UTC",
        "",
        "time of the first packet",
        |l| Value::Time(l.record.first_ns),
    ),
    field(
        "last",
        String,
        "RFC 3339, UTC",
        "",
        "time of the last packet",
        |l| Value::Time(l.record.last_ns),
    ),
    field(
        "community_id",
        String,
        "",
        "without IP",
        "Community ID version 1, seed 0",
        |l| Value::or_absent(l.record.community_id(), Value::Community),
    ),
    field(
        "id",
        String,
        "",
        "",
        "identifier of the conversation at this capture point for as long as the agent runs, 12 hexadecimal digits",
        |l| Value::Id48(l.record.id),
    ),
    field(
        "end",
        String,
        "",
        "still active",
        "why the record ended: `closed` (TCP), `idle`, `evicted` (table under pressure, may go on in a further record), `shutdown`",
        |l| Value::or_absent(l.record.end, |end| Value::Text(end_name(end))),
    ),
    field("ifindex", Integer, "", "", "index of the interface", |l| {
        Value::Integer(l.record.key.ifindex.into())
    }),
    field(
        "netns",
        Integer,
        "",
        "the agent's own",
        "the agent's number of the network namespace",
        |l| nonzero(l.record.key.netns.into()),
    ),
    field(
        "vlans",
        Integers,
        "",
        "without tags",
        "VLAN identifiers, outermost first",
        |l| match l.record.key.vlan_ids().next() {
            Some(_) => Value::Vlans(&l.record.key),
            None => Value::Absent,
        },
    ),
    field(
        "ethertype",
        Integer,
        "",
        "with IP",
        "EtherType, 0 for an 802.3 length field or when unknown",
        |l| match l.record.key.network() {
            Network::None => Value::Integer(l.record.key.detail.into()),
            _ => Value::Absent,
        },
    ),
    field(
        "icmp.type",
        Integer,
        "",
        "not ICMP, or cut off",
        "ICMP or ICMPv6 type, of the request for queries",
        |l| icmp(l, |[kind, _], _| Some(kind.into())),
    ),
    field(
        "icmp.code",
        Integer,
        "",
        "not ICMP, or cut off",
        "code",
        |l| icmp(l, |[_, code], _| Some(code.into())),
    ),
    field(
        "icmp.id",
        Integer,
        "",
        "types without identifier",
        "identifier of queries",
        |l| {
            icmp(l, |[kind, _], id| {
                let has_id = match l.record.key.network() {
                    Network::V4 => matches!(kind, 8 | 13 | 15 | 17),
                    _ => kind == 128,
                };
                has_id.then_some(id.into())
            })
        },
    ),
    field(
        "tcp.state",
        String,
        "",
        "no flags seen",
        "state by the flags seen: `syn-sent`, `syn-received`, `established`, `closing` (FIN from one side), `closed` (from both), `reset`",
        |l| Value::or_absent(l.record.tcp_state(), |state| Value::Text(state.name())),
    ),
    field(
        "tcp.opened_by",
        String,
        "",
        "no SYN seen",
        "`a` or `b`: who sent the SYN",
        |l| {
            let opened = l.record.a_opened().filter(|_| is_tcp(l));
            Value::or_absent(opened, |a| Value::Text(if a { "a" } else { "b" }))
        },
    ),
    field(
        "tcp.handshake_rtt",
        Integer,
        "ns",
        NO_HANDSHAKE,
        "SYN to ACK: server and client side together",
        |l| {
            let tcp = &l.record.tcp;
            match (tcp.server_rtt_ns, tcp.client_rtt_ns) {
                (0, _) | (_, 0) => Value::Absent,
                (server, client) => Value::Integer(server + client),
            }
        },
    ),
    field(
        "tcp.server_rtt",
        Integer,
        "ns",
        NO_HANDSHAKE,
        "SYN to SYN+ACK",
        |l| nonzero(l.record.tcp.server_rtt_ns),
    ),
    field(
        "tcp.client_rtt",
        Integer,
        "ns",
        NO_HANDSHAKE,
        "SYN+ACK to ACK",
        |l| nonzero(l.record.tcp.client_rtt_ns),
    ),
    field(
        "tcp.ab_flags",
        String,
        "",
        NO_TCP,
        "flags seen from `a` as letters of `FSRPAUEC`: FIN, SYN, RST, PSH, ACK, URG, ECE, CWR",
        |l| tcp(l, |r| Value::Flags(r.by_a(r.tcp.flags)[0])),
    ),
    field(
        "tcp.ba_flags",
        String,
        "",
        NO_TCP,
        "flags seen from `b`",
        |l| tcp(l, |r| Value::Flags(r.by_a(r.tcp.flags)[1])),
    ),
    field(
        "tcp.ab_retransmitted",
        Integer,
        "segments",
        NO_TCP,
        "segments of `a` that came again",
        |l| tcp(l, |r| Value::Integer(r.by_a(r.tcp.retransmitted)[0].into())),
    ),
    field(
        "tcp.ba_retransmitted",
        Integer,
        "segments",
        NO_TCP,
        "segments of `b` that came again",
        |l| tcp(l, |r| Value::Integer(r.by_a(r.tcp.retransmitted)[1].into())),
    ),
    field(
        "tcp.ab_out_of_order",
        Integer,
        "segments",
        NO_TCP,
        "segments of `a` that came late, within 3 ms of the gap that they fill",
        |l| tcp(l, |r| Value::Integer(r.by_a(r.tcp.out_of_order)[0].into())),
    ),
    field(
        "tcp.ba_out_of_order",
        Integer,
        "segments",
        NO_TCP,
        "segments of `b` that came late",
        |l| tcp(l, |r| Value::Integer(r.by_a(r.tcp.out_of_order)[1].into())),
    ),
    field(
        "tcp.ab_zero_window",
        Integer,
        "segments",
        NO_TCP,
        "segments in which `a` had no room",
        |l| tcp(l, |r| Value::Integer(r.by_a(r.tcp.zero_window)[0].into())),
    ),
    field(
        "tcp.ba_zero_window",
        Integer,
        "segments",
        NO_TCP,
        "segments in which `b` had no room",
        |l| tcp(l, |r| Value::Integer(r.by_a(r.tcp.zero_window)[1].into())),
    ),
    field(
        "tunnel.type",
        String,
        "",
        NO_TUNNEL,
        "what the flow was found inside: `vxlan`, `geneve`, `gre`, `ipip`, `mpls`",
        |l| Value::or_absent(l.record.key.tunnel(), |t| Value::Text(names::tunnel(t))),
    ),
    field(
        "tunnel.id",
        Integer,
        "",
        NO_TUNNEL,
        "VNI, GRE key or bottom MPLS label; 0 without",
        |l| {
            Value::or_absent(l.record.key.tunnel(), |_| {
                Value::Integer(l.record.tunnel_id.into())
            })
        },
    ),
    field(
        "tunnel.parent",
        String,
        "",
        NO_TUNNEL,
        "`id` of the flow that carries this one",
        |l| Value::or_absent(l.record.key.parent_id48(l.record.tunnel_id), Value::Id48),
    ),
    field(
        "sampling",
        Integer,
        "",
        "all packets counted",
        "one in so many packets was counted; counters are not scaled up",
        |l| nonzero(l.record.sampling.into()).unless(l.record.sampling == 1),
    ),
    field(
        "rate.bits_per_second",
        Number,
        "bit/s",
        "",
        "both directions over the last interval",
        |l| Value::Number(rounded(l.rate.bits_per_second)),
    ),
    field(
        "rate.packets_per_second",
        Number,
        "packets/s",
        "",
        "both directions over the last interval",
        |l| Value::Number(rounded(l.rate.packets_per_second)),
    ),
];

impl Value<'_> {
    fn unless(self, absent: bool) -> Self {
        if absent { Self::Absent } else { self }
    }
}

fn is_tcp(line: &FlowLine<'_>) -> bool {
    line.record.key.proto == 6
}

fn tcp<'a>(
    line: &FlowLine<'a>,
    value: impl FnOnce(&'a crate::FlowRecord) -> Value<'a>,
) -> Value<'a> {
    if is_tcp(line) {
        value(line.record)
    } else {
        Value::Absent
    }
}

fn icmp<'a>(line: &FlowLine<'a>, value: impl FnOnce([u8; 2], u16) -> Option<u64>) -> Value<'a> {
    let key = &line.record.key;
    // Type 0 is a reply and never in a key: 0 stands for a header that was cut off.
    if !key.is_icmp() || key.lo_port == [0; 2] {
        return Value::Absent;
    }
    Value::or_absent(value(key.lo_port, key.detail), Value::Integer)
}

fn address<'a>(key: &FlowKey, address: &[u8; 16]) -> Value<'a> {
    match key.ip(address) {
        Some(ip) => Value::Ip(ip),
        None if key.ethernet() => {
            let mut mac = [0; 6];
            mac.copy_from_slice(&address[10..]);
            Value::Mac(mac)
        }
        None => Value::Text(""),
    }
}

fn port<'a>(key: &FlowKey, port: u16) -> Value<'a> {
    match key.network() {
        Network::None => Value::Absent,
        _ => Value::Integer(port.into()),
    }
}

fn nonzero<'a>(value: u64) -> Value<'a> {
    match value {
        0 => Value::Absent,
        value => Value::Integer(value),
    }
}

/// Rates to a thousandth: more digits would only feign precision.
fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

/// Name of an end reason in records.
pub fn end_name(end: EndReason) -> &'static str {
    match end {
        EndReason::Closed => "closed",
        EndReason::Idle => "idle",
        EndReason::Evicted => "evicted",
        EndReason::Shutdown => "shutdown",
    }
}

/// Writes the JSON object of a record.
pub(crate) fn serialize<S: Serializer>(
    line: &FlowLine<'_>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(None)?;
    let mut rest = FIELDS;
    while let [first, ..] = rest {
        let group = group_len(rest);
        let (fields, after) = rest.split_at(group);
        rest = after;
        match first.path.split_once('.') {
            None => {
                let value = (first.value)(line);
                if !value.is_absent() {
                    map.serialize_entry(first.path, &value)?;
                }
            }
            Some((name, _)) => {
                if fields.iter().any(|f| !(f.value)(line).is_absent()) {
                    map.serialize_entry(name, &Group { fields, line })?;
                }
            }
        }
    }
    map.end()
}

/// How many fields at the start share an object; 1 for a field outside of objects.
fn group_len(fields: &[Field]) -> usize {
    let object = |field: &Field| field.path.split_once('.').map(|(name, _)| name);
    match fields.first().and_then(object) {
        None => 1,
        name => fields.iter().take_while(|f| object(f) == name).count(),
    }
}

/// An object inside of the record's.
struct Group<'a> {
    fields: &'a [Field],
    line: &'a FlowLine<'a>,
}

impl Serialize for Group<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for field in self.fields {
            let value = (field.value)(self.line);
            if !value.is_absent() {
                let name = field
                    .path
                    .split_once('.')
                    .map_or(field.path, |(_, name)| name);
                map.serialize_entry(name, &value)?;
            }
        }
        map.end()
    }
}

/// Writes the CSV header: the paths with `_` for `.`.
///
/// # Errors
///
/// Those of `out`.
pub fn write_csv_header(out: &mut impl io::Write) -> io::Result<()> {
    for (place, field) in FIELDS.iter().enumerate() {
        separate(out, place)?;
        out.write_all(field.path.replace('.', "_").as_bytes())?;
    }
    out.write_all(b"\n")
}

/// Writes a record as a CSV row (RFC 4180, but LF); fields that do not apply are empty.
///
/// # Errors
///
/// Those of `out`.
pub fn write_csv_row(out: &mut impl io::Write, line: &FlowLine<'_>) -> io::Result<()> {
    for (place, field) in FIELDS.iter().enumerate() {
        separate(out, place)?;
        match (field.value)(line) {
            // Only names from outside can hold characters that need quotes.
            Value::Text(text) if text.contains([',', '"', '\n', '\r']) => {
                write!(out, "\"{}\"", text.replace('"', "\"\""))?;
            }
            value => write!(out, "{value}")?,
        }
    }
    out.write_all(b"\n")
}

fn separate(out: &mut impl io::Write, place: usize) -> io::Result<()> {
    if place == 0 {
        return Ok(());
    }
    out.write_all(b",")
}

/// The text of `docs/records.md`.
pub fn documentation() -> std::string::String {
    let mut text = std::string::String::from(DOCUMENTATION);
    for field in FIELDS {
        let cells = [
            format!("`{}`", field.path),
            field.kind.name().into(),
            field.unit.into(),
            field.meaning.into(),
            field.absent.into(),
        ];
        text.push_str(&format!("| {} |\n", cells.join(" | ")));
    }
    text
}

const DOCUMENTATION: &str = "\
# Flow records

This page is made from `crates/skua-flow/src/fields.rs`: `UPDATE_DOCS=1 cargo test -p skua-flow`
writes it anew.

A record is a conversation at one capture point: the packets between two endpoints, both directions
together. [How packets are counted](accounting.md) is a page of its own.

JSON is one object a line, without line breaks inside. `ab.packets` in the table is the field `packets` of
the object `ab`. Fields that do not apply are left out, as the last column says; an object without
fields, too. New fields may come, none of these will change its meaning.

CSV has a column for each field in the order of the table, with `_` for `.` in its name (`ab_packets`);
what does not apply is empty, lists are separated by spaces. The first line has the names.

| field | type | unit | meaning | left out |
|---|---|---|---|---|
";

/// JSON Schema (2020-12) of a record.
pub fn json_schema() -> serde_json::Value {
    let mut properties = serde_json::Map::new();
    let mut required = Vec::new();
    let mut rest = FIELDS;
    while let [first, ..] = rest {
        let (fields, after) = rest.split_at(group_len(rest));
        rest = after;
        let (name, schema) = match first.path.split_once('.') {
            None => (first.path, field_schema(first)),
            Some((name, _)) => (name, object_schema(fields)),
        };
        if fields.iter().any(|field| field.absent.is_empty()) {
            required.push(name);
        }
        properties.insert(name.into(), schema);
    }
    serde_json::json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Skua flow record",
        "type": "object",
        "properties": properties,
        "required": required,
    })
}

fn object_schema(fields: &[Field]) -> serde_json::Value {
    let own_name = |field: &Field| {
        field
            .path
            .split_once('.')
            .map_or(field.path, |(_, name)| name)
    };
    let properties: serde_json::Map<_, _> = fields
        .iter()
        .map(|field| (own_name(field).into(), field_schema(field)))
        .collect();
    let required: Vec<_> = fields
        .iter()
        .filter(|field| field.absent.is_empty())
        .map(own_name)
        .collect();
    serde_json::json!({"type": "object", "properties": properties, "required": required})
}

fn field_schema(field: &Field) -> serde_json::Value {
    let description = match field.unit {
        "" => field.meaning.to_owned(),
        unit => format!("{} ({unit})", field.meaning),
    };
    match field.kind {
        FieldType::Integers => serde_json::json!({
            "type": "array", "items": {"type": "integer", "minimum": 0}, "description": description,
        }),
        String => serde_json::json!({"type": "string", "description": description}),
        number => serde_json::json!({
            "type": number.name(), "minimum": 0, "description": description,
        }),
    }
}
