//! A line as protobuf: written by the definitions of its fields, of which `proto/skua/collect/v1/line.proto` is made, too.

use std::{fmt::Write as _, net::IpAddr};

use prost::{DecodeError, Message, encoding};
use skua_collect::{
    Line, Sent, Sum,
    fields::{FIELDS, Field, FieldType, Own},
    graph::{GraphLine, GraphRtt},
};
use skua_record::{Name, Value};

/// The version of the schema's meaning that is written.
pub const VERSION: u32 = 1;

/// What the service graph needs of `skua.collect.v1.Line`; other fields are stepped over.
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
    #[prost(uint64, tag = "25")]
    pub samples: u64,
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

/// Adds a line as `skua.collect.v1.Line`.
pub fn encode(line: &Line<'_>, out: &mut Vec<u8>) {
    encoding::uint32::encode(1, &VERSION, out);
    for field in FIELDS {
        if let Name::Value(_) | Name::Own(_) = field.message {
            encode_field(field, line, out);
        }
    }
}

/// Adds a field; what has its default value is left out.
fn encode_field(field: &Field, line: &Line<'_>, out: &mut Vec<u8>) {
    let number = field.number;
    let integer = |value: u64, out: &mut Vec<u8>| {
        if value != 0 {
            encoding::uint64::encode(number, &value, out);
        }
    };
    let text = |text: &str, out: &mut Vec<u8>| {
        if !text.is_empty() {
            encoding::encode_key(number, encoding::WireType::LengthDelimited, out);
            encoding::encode_varint(text.len() as u64, out);
            out.extend_from_slice(text.as_bytes());
        }
    };
    match (field.value)(line) {
        Value::Absent => {}
        Value::Integer(value) | Value::Time(value) | Value::Numeral(value) => integer(value, out),
        // Times are in nanoseconds.
        Value::Number(seconds) => integer(length_ns(seconds), out),
        Value::Text(value) => text(value, out),
        Value::Ip(ip) => text(&ip.to_string(), out),
        Value::Other(Own::Ports(list)) => {
            let ports: Vec<u32> = list.iter().map(|port| u32::from(*port)).collect();
            encoding::uint32::encode_packed(number, &ports, out);
        }
        Value::Other(Own::Classes(sketch)) => {
            for (us, times) in Own::classes(sketch) {
                let (us, times) = (us.into(), times.into());
                encoding::message::encode(number, &RttClass { us, times }, out);
            }
        }
        Value::Other(Own::Exporters(exporters)) => {
            for address in exporters.iter() {
                encoding::string::encode(number, &address.to_string(), out);
            }
        }
    }
}

/// The schema, `proto/skua/collect/v1/line.proto`.
pub fn schema() -> String {
    let mut text = String::from(HEAD);
    let named = FIELDS
        .iter()
        .filter_map(|field| Some((field, field.message.get()?)));
    let mut named: Vec<_> = named.collect();
    named.sort_by_key(|(field, _)| field.number);
    for (field, name) in named {
        let kind = match field.kind {
            FieldType::String => "string",
            FieldType::Time | FieldType::Integer | FieldType::Number => "uint64",
            FieldType::Integer32 => "uint32",
            FieldType::Integers => "repeated uint32",
            FieldType::Pairs => "repeated RttClass",
            FieldType::Strings => "repeated string",
        };
        let unit = match (field.kind, field.unit) {
            (FieldType::Time, _) => ", ns since the Unix epoch",
            (FieldType::Number, _) => ", ns",
            (_, "µs") => ", us",
            _ => "",
        };
        let (meaning, number) = (field.meaning, field.number);
        // Strings take whatever is written.
        let _ = write!(text, "  // {meaning}{unit}\n  {kind} {name} = {number};\n");
    }
    text + TAIL
}

const HEAD: &str = r#"// What a collector publishes to Kafka. docs/kafka.md says by which rules this file changes. It is made from the definitions of
// the fields: `UPDATE_DOCS=1 cargo test -p skua-kafka schema`.
syntax = "proto3";

package skua.collect.v1;

option java_package = "skua.collect.v1";
option java_multiple_files = true;

// Sums of one service and one client in one window of one collector. Clients and services are distinguished by their
// addresses and names.
message Line {
  // 1. Fields are added without a new version: readers skip those that they do not know. A greater
  // number means that a field below has another meaning: do not count such a line.
  uint32 version = 1;
"#;

const TAIL: &str = "}

// Round-trip times that are about the same.
message RttClass {
  // their middle, us
  uint64 us = 1;
  // how many
  uint64 times = 2;
}
";

impl LineMessage {
    /// The message of a line.
    ///
    /// # Errors
    ///
    /// None, as long as both know the same fields.
    pub fn of(line: &Line<'_>) -> Result<Self, DecodeError> {
        let mut bytes = Vec::new();
        encode(line, &mut bytes);
        Self::read(&bytes)
    }

    /// Reads a message.
    ///
    /// # Errors
    ///
    /// When it is not a protobuf message of this kind.
    pub fn read(bytes: &[u8]) -> Result<Self, DecodeError> {
        Self::decode(bytes)
    }

    /// The part that the service graph reads; none if its version has other meanings, or it is inconsistent.
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
            // Messages do not have it.
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

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    /// Numbers and types of the schema by name.
    fn defined() -> HashMap<&'static str, (u32, FieldType)> {
        let named = FIELDS
            .iter()
            .filter_map(|field| Some((field.message.get()?, field)));
        let mut all: HashMap<_, _> = named.map(|(name, f)| (name, (f.number, f.kind))).collect();
        all.insert("version", (1, FieldType::Integer32));
        all
    }

    #[test]
    fn the_schema_is_up_to_date() {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../../proto/skua/collect/v1/line.proto"
        );
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(path, schema()).unwrap();
        }
        assert!(
            std::fs::read_to_string(path).unwrap() == schema(),
            "out of date: run `UPDATE_DOCS=1 cargo test -p skua-kafka schema`"
        );
    }

    #[test]
    fn the_service_graph_reads_fields_by_the_numbers_of_the_schema() {
        let source = include_str!("message.rs");
        let (_, read) = source.split_once("pub struct LineMessage {").unwrap();
        let (read, _) = read.split_once("\n}\n").unwrap();
        let mut found = 0;
        for member in read.split("#[prost(").skip(1) {
            let (tag, name) = member
                .split_once("tag = \"")
                .unwrap()
                .1
                .split_once('"')
                .unwrap();
            let name = name
                .split_once("pub ")
                .unwrap()
                .1
                .split_once(':')
                .unwrap()
                .0;
            let number = tag.parse::<u32>().unwrap();
            assert_eq!(
                defined().get(name).map(|known| known.0),
                Some(number),
                "{name}"
            );
            found += 1;
        }
        assert!(found > 20);
    }

    /// Columns and types of a table of Flink's, as far as they are not computed.
    fn flink_table(name: &str) -> Vec<(&'static str, &'static str)> {
        let sql = include_str!("../../../../stream/flink/service_graph.sql");
        let (_, table) = sql.split_once(&format!("CREATE TABLE {name} (")).unwrap();
        let (table, _) = table.split_once("\n)").unwrap();
        let columns = table.lines().filter_map(|line| line.trim().split_once(' '));
        let columns =
            columns.take_while(|(name, kind)| *name != "PRIMARY" && !kind.starts_with("AS "));
        let columns =
            columns.map(|(name, kind)| (name.trim_matches('`'), kind.trim_end_matches(',')));
        columns.collect()
    }

    fn flink_type(kind: FieldType) -> &'static str {
        match kind {
            FieldType::String => "STRING",
            FieldType::Integer32 => "INT",
            FieldType::Integer | FieldType::Time | FieldType::Number => "BIGINT",
            FieldType::Pairs => "ARRAY<ROW<us BIGINT, times BIGINT>>",
            FieldType::Integers => "ARRAY<INT>",
            FieldType::Strings => "ARRAY<STRING>",
        }
    }

    #[test]
    fn flinks_table_of_lines_has_names_and_types_of_the_schema() {
        let columns = flink_table("lines");
        for (name, kind) in &columns {
            let expected = defined().get(name).map(|(_, kind)| flink_type(*kind));
            assert_eq!(expected, Some(*kind), "{name}");
        }
        assert!(columns.len() > 20);
    }

    #[test]
    fn flinks_table_of_edges_has_all_fields_of_edges() {
        use skua_collect::graph;
        for field in graph::FIELDS {
            assert_ne!(
                field.message,
                Name::Undefined,
                "{}: name it, or say why not",
                field.path
            );
        }
        let fields = graph::FIELDS.iter();
        let fields =
            fields.filter_map(|field| Some((field.message.get()?, flink_type(field.kind))));
        let mut expected: Vec<_> = fields.chain([("window_ms", "BIGINT")]).collect();
        let mut columns = flink_table("service_graph");
        expected.sort_unstable();
        columns.sort_unstable();
        assert_eq!(columns, expected);
    }
}
