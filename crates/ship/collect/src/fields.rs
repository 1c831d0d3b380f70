//! Every field of a collector's line, once: JSON, Kafka's messages with their schema, the lake's columns and the page of
//! records come from [`FIELDS`].

use std::fmt;

use serde::{Serialize, Serializer};
use skua_networks::of;
use skua_record::Aggregation;
pub use skua_record::FieldType;

use crate::{Exporters, Line, Sketch};

/// The line.
pub struct Lines;

impl skua_record::Record for Lines {
    type Line<'a> = Line<'a>;
    type Other<'a> = Own<'a>;
    type Getter = for<'a, 'b> fn(&'b Line<'a>) -> Value<'a>;

    fn get<'a>(
        getter: Self::Getter,
        line: &Self::Line<'a>,
    ) -> skua_record::Value<'a, Self::Other<'a>> {
        getter(line)
    }
}

/// A field of the line.
pub type Field = skua_record::Field<Lines>;

type Value<'a> = skua_record::Value<'a, Own<'a>>;

/// Values that only lines have.
pub enum Own<'a> {
    /// Ports.
    Ports(&'a [u16]),
    /// How times are spread.
    Classes(&'a Sketch),
    /// Addresses of agents.
    Exporters(Exporters),
}

impl Own<'_> {
    /// Middles of classes and how many are in each, the least first.
    pub fn classes(sketch: &Sketch) -> Vec<(u32, u32)> {
        let mut classes: Vec<_> = sketch.classes().collect();
        classes.sort_unstable();
        classes
    }
}

impl Serialize for Own<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Ports(list) => serializer.collect_seq(*list),
            Self::Classes(sketch) => serializer.collect_seq(Self::classes(sketch)),
            Self::Exporters(exporters) => serializer.collect_seq(exporters.iter()),
        }
    }
}

impl fmt::Display for Own<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ports(list) => list.iter().try_for_each(|port| write!(f, "{port} ")),
            Self::Classes(sketch) => (Self::classes(sketch).iter())
                .try_for_each(|(middle, count)| write!(f, "{middle} {count} ")),
            Self::Exporters(all) => all.iter().try_for_each(|address| write!(f, "{address} ")),
        }
    }
}

use Aggregation::{Greatest, Least, Sum, Union};
use FieldType::{Integer, Integer32, Integers, Number, Pairs, String, Strings, Time};

const NO_NAME: &str = "not known";
const NO_FILE: &str = "no file of `networks` says it";

/// All fields in the order in which they are written. Fields of one JSON object stand together.
#[rustfmt::skip]
pub const FIELDS: &[Field] = &[
    Field::new("window", Time, "RFC 3339, UTC", "", "beginning of the window", |l| Value::Time(l.window))
        .message(2, "window_ns").column("window"),
    Field::new("seconds", Number, "s", "", "its length", |l| Value::Number(l.seconds))
        .own_message(3, "length_ns").own_column("window_length"),
    Field::new("protocol", Integer32, "", "", "IP protocol", |l| Value::Integer(l.protocol.into()))
        .message(4, "protocol").column("ip_protocol"),
    Field::new("client", String, "", "", "address of who uses the service", |l| Value::Ip(l.client.to_canonical()))
        .message(5, "client_address").column("client"),
    Field::new("server", String, "", "", "address of who offers it", |l| Value::Ip(l.server.to_canonical()))
        .message(6, "server_address").column("server"),
    Field::new("client_service", String, "", NO_NAME, "name of the service that the client is: container, unit or process", |l| Value::nonempty(l.client_service))
        .message(32, "client_service").column("client_service"),
    Field::new("server_service", String, "", NO_NAME, "name of the service that is offered", |l| Value::nonempty(l.server_service))
        .message(33, "server_service").column("server_service"),
    Field::new("port", Integer32, "", "", "its port; 0 without ports, or when it is not known which side offers the service", |l| Value::Integer(l.port.into()))
        .message(7, "port").column("port"),
    Field::new("service_by", String, "", "", "how the service's side is known, as in flow records, or `unknown`", |l| Value::Text(l.service_by))
        .message(8, "service_by").column("service_by"),
    Field::new("client_sent.packets", Integer, "packets", "", "packets that the client sent", |l| Value::Integer(l.client_sent.packets))
        .is(Sum).message(9, "client_packets").column("client_packets"),
    Field::new("client_sent.bytes", Integer, "bytes", "", "their bytes", |l| Value::Integer(l.client_sent.bytes))
        .is(Sum).message(10, "client_bytes").column("client_bytes"),
    Field::new("server_sent.packets", Integer, "packets", "", "packets that the server sent", |l| Value::Integer(l.server_sent.packets))
        .is(Sum).message(11, "server_packets").column("server_packets"),
    Field::new("server_sent.bytes", Integer, "bytes", "", "their bytes", |l| Value::Integer(l.server_sent.bytes))
        .is(Sum).message(12, "server_bytes").column("server_bytes"),
    Field::new("retransmitted.client", Integer, "segments", "", "segments of the client that came again", |l| Value::Integer(l.retransmitted.client))
        .is(Sum).message(13, "client_retransmitted").column("client_retransmitted"),
    Field::new("retransmitted.server", Integer, "segments", "", "segments of the server that came again", |l| Value::Integer(l.retransmitted.server))
        .is(Sum).message(14, "server_retransmitted").column("server_retransmitted"),
    Field::new("begun", Integer, "", "", "conversations that began", |l| Value::Integer(l.begun))
        .is(Sum).message(15, "begun").column("begun"),
    Field::new("ended", Integer, "", "", "conversations that ended", |l| Value::Integer(l.ended))
        .is(Sum).message(16, "ended").column("ended"),
    Field::new("reset", Integer, "", "", "of these, by RST after an answer", |l| Value::Integer(l.reset))
        .is(Sum).message(17, "reset").column("reset"),
    Field::new("refused", Integer, "", "", "of `ended`, attempts that were answered with RST", |l| Value::Integer(l.refused))
        .is(Sum).message(34, "refused").column("refused"),
    Field::new("timed_out", Integer, "", "", "of `ended`, attempts that were not answered", |l| Value::Integer(l.timed_out))
        .is(Sum).message(35, "timed_out").column("timed_out"),
    Field::new("handshake.count", Integer, "", "", "handshakes whose time is known", |l| Value::Integer(l.handshake.count))
        .is(Sum).message(18, "handshakes").column("rtt_count"),
    Field::new("handshake.sum_us", Integer, "µs", "", "sum of their times, SYN to ACK", |l| Value::Integer(l.handshake.sum_us))
        .is(Sum).message(19, "handshake_sum_us").column("rtt_sum"),
    Field::new("handshake.min_us", Integer, "µs", "", "the least, 0 without", |l| Value::Integer(l.handshake.min_us))
        .is(Least).message(20, "handshake_min_us").column("rtt_min"),
    Field::new("handshake.max_us", Integer, "µs", "", "the greatest, 0 without", |l| Value::Integer(l.handshake.max_us))
        .is(Greatest).message(21, "handshake_max_us").column("rtt_max"),
    Field::new("rtt.count", Integer, "", "", "conversations whose round-trip time is known: of its handshake in this window, else as a socket measured", |l| Value::Integer(l.rtt.sums.count))
        .is(Sum).message(36, "rtts").column("round_trip_count"),
    Field::new("rtt.sum_us", Integer, "µs", "", "sum of these times", |l| Value::Integer(l.rtt.sums.sum_us))
        .is(Sum).message(37, "rtt_sum_us").column("round_trip_sum"),
    Field::new("rtt.min_us", Integer, "µs", "", "the least, 0 without", |l| Value::Integer(l.rtt.sums.min_us))
        .is(Least).message(38, "rtt_min_us").column("round_trip_min"),
    Field::new("rtt.max_us", Integer, "µs", "", "the greatest, 0 without", |l| Value::Integer(l.rtt.sums.max_us))
        .is(Greatest).message(39, "rtt_max_us").column("round_trip_max"),
    Field::new("rtt.classes", Pairs, "µs", "", "how these times are spread: pairs of the middle of a class and how many are in it, the least first; add up those of the same middle", |l| Value::Other(Own::Classes(l.rtt.classes)))
        .is(Sum).own_message(40, "rtt_classes").own_column("round_trip_classes"),
    Field::new("client_ports.list", Integers, "", "", "first ports of the client", |l| Value::Other(Own::Ports(l.client_ports.list)))
        .is(Union).message(22, "client_ports").column("client_ports"),
    Field::new("client_ports.beyond", Integer, "", "", "further conversations, whose ports are not in the list", |l| Value::Integer(l.client_ports.beyond))
        .is(Sum).message(23, "client_ports_beyond").column("client_ports_beyond"),
    Field::new("records", Integer, "", "", "records that were summed up", |l| Value::Integer(l.records))
        .is(Sum).message(24, "records").column("records"),
    Field::new("samples", Integer, "", "", "sampled packets that were: with some the sums are estimates", |l| Value::Integer(l.samples))
        .is(Sum).message(25, "samples").column("samples"),
    Field::new("agents", Integer32, "", "", "agents that exported it, at most 4 are distinguished", |l| Value::Integer(l.agents.into()))
        .is(Greatest).message(26, "agents").column("agents"),
    Field::new("exporters", Strings, "", "", "their addresses, as they call themselves", |l| Value::Other(Own::Exporters(l.exporters)))
        .is(Union).no_message("`agents` has how many").no_column("`agents` has how many"),
    Field::new("joined", Integer, "", "", "conversations that a second host exported", |l| Value::Integer(l.joined))
        .is(Sum).message(27, "joined").column("joined"),
    Field::new("between_hosts.client_packets", Integer, "packets", "", "packets of the client that one of two hosts counted and the other did not, of conversations that ended", |l| Value::Integer(l.between_hosts.client_sent.packets))
        .is(Sum).message(28, "between_client_packets").column("between_client_packets"),
    Field::new("between_hosts.client_bytes", Integer, "bytes", "", "their bytes", |l| Value::Integer(l.between_hosts.client_sent.bytes))
        .is(Sum).message(29, "between_client_bytes").column("between_client_bytes"),
    Field::new("between_hosts.server_packets", Integer, "packets", "", "packets of the server that one of two hosts counted and the other did not, of conversations that ended", |l| Value::Integer(l.between_hosts.server_sent.packets))
        .is(Sum).message(30, "between_server_packets").column("between_server_packets"),
    Field::new("between_hosts.server_bytes", Integer, "bytes", "", "their bytes", |l| Value::Integer(l.between_hosts.server_sent.bytes))
        .is(Sum).message(31, "between_server_bytes").column("between_server_bytes"),
    Field::new("client_country", String, "", NO_FILE, "country of the client's address, by ISO 3166-1: two letters", |l| Value::nonempty(of(l.client).country))
        .message(41, "client_country").column("client_country"),
    Field::new("client_asn", Integer32, "", NO_FILE, "number of the autonomous system with the client's address", |l| Value::or_absent(of(l.client).asn, |asn| Value::Integer(asn.into())))
        .message(42, "client_asn").column("client_asn"),
    Field::new("client_organization", String, "", NO_FILE, "who runs that system", |l| Value::nonempty(of(l.client).organization))
        .message(43, "client_organization").column("client_organization"),
    Field::new("client_network", String, "", NO_FILE, "name of the smallest range with the client's address, by the files of `networks.ranges`", |l| Value::nonempty(of(l.client).network))
        .message(44, "client_network").column("client_network"),
    Field::new("server_country", String, "", NO_FILE, "country of the server's address, by ISO 3166-1: two letters", |l| Value::nonempty(of(l.server).country))
        .message(45, "server_country").column("server_country"),
    Field::new("server_asn", Integer32, "", NO_FILE, "number of the autonomous system with the server's address", |l| Value::or_absent(of(l.server).asn, |asn| Value::Integer(asn.into())))
        .message(46, "server_asn").column("server_asn"),
    Field::new("server_organization", String, "", NO_FILE, "who runs that system", |l| Value::nonempty(of(l.server).organization))
        .message(47, "server_organization").column("server_organization"),
    Field::new("server_network", String, "", NO_FILE, "name of the smallest range with the server's address, by the files of `networks.ranges`", |l| Value::nonempty(of(l.server).network))
        .message(48, "server_network").column("server_network"),
];

/// The chapter on lines of `docs/records.md`.
pub fn documentation() -> std::string::String {
    "A line is what a collector has summed up of a service and a client's address in a window. [Collectors](collector.md)\nhave a page of their own.\n\n".to_owned() + &skua_record::markdown(FIELDS)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use skua_record::Name;

    use super::*;

    #[test]
    fn every_field_is_in_messages_and_in_the_lake_or_has_a_reason() {
        let mut numbers = HashSet::from([1]);
        for field in FIELDS {
            assert_ne!(field.column, Name::Undefined, "{}", field.path);
            match field.message {
                Name::Undefined => {
                    panic!("{}: define a message's field, or say why not", field.path)
                }
                Name::Without(why) => assert!(!why.is_empty(), "{}", field.path),
                Name::Value(_) | Name::Own(_) => {
                    assert!(numbers.insert(field.number), "{}", field.path)
                }
            }
        }
    }
}
