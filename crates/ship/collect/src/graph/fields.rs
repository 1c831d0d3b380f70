//! Every field of an edge, once: JSON, CSV, the rows in Kafka and the page of records come from [`FIELDS`].

use serde::{Serialize, Serializer};
use skua_record::{Aggregation, FieldType, NoOther};

use super::{Change, Edge, Endpoint, Recent};
use crate::SECOND;

/// The record of an edge.
pub struct Edges;

impl skua_record::Record for Edges {
    type Line<'a> = &'a Edge;
    type Other<'a> = NoOther;
    type Getter = for<'a, 'b> fn(&'b &'a Edge) -> Value<'a>;

    fn get<'a>(
        getter: Self::Getter,
        line: &Self::Line<'a>,
    ) -> skua_record::Value<'a, Self::Other<'a>> {
        getter(line)
    }
}

/// A field of the record of an edge.
pub type EdgeField = skua_record::Field<Edges>;

type Value<'a> = skua_record::Value<'a, NoOther>;

use Aggregation::{Anew, Greatest, Latest, Least, Sum};
use FieldType::{Integer, Integer32, Number, String as Text, Time};

const NAMED: &str = "it has a name";
const NAMELESS: &str = "it has no known name";
const NO_RTT: &str = "nothing was measured";
const NO_RATE: &str = "nothing is known of the minute before";
const OF_A_WINDOW: &str = "a row is of one window";

/// All fields in the order in which they are written. Fields of one JSON object stand together.
#[rustfmt::skip]
pub const FIELDS: &[EdgeField] = &[
    EdgeField::new("client.service", Text, "", NAMELESS, "name of the client: container, unit or process", |e| name(&e.key.client))
        .in_every_record().row("client_service"),
    EdgeField::new("client.address", Text, "", NAMED, "its address", |e| address(&e.key.client))
        .row("client_address"),
    EdgeField::new("server.service", Text, "", NAMELESS, "name of the service that is used", |e| name(&e.key.server))
        .in_every_record().row("server_service"),
    EdgeField::new("server.address", Text, "", NAMED, "its address", |e| address(&e.key.server))
        .row("server_address"),
    EdgeField::new("protocol", Integer32, "", "", "IP protocol", |e| Value::Integer(e.key.protocol.into()))
        .row("protocol"),
    EdgeField::new("port", Integer32, "", "", "port of the service; 0 without ports, or when it is not known which side offers it", |e| Value::Integer(e.key.port.into()))
        .row("port"),
    EdgeField::new("client_sent.packets", Integer, "packets", "", "packets that the client sent", |e| Value::Integer(e.sums.sent[0].packets))
        .is(Sum).row("client_packets"),
    EdgeField::new("client_sent.bytes", Integer, "bytes", "", "their bytes, with link-layer headers", |e| Value::Integer(e.sums.sent[0].bytes))
        .is(Sum).row("client_bytes"),
    EdgeField::new("server_sent.packets", Integer, "packets", "", "packets that the server sent", |e| Value::Integer(e.sums.sent[1].packets))
        .is(Sum).row("server_packets"),
    EdgeField::new("server_sent.bytes", Integer, "bytes", "", "their bytes", |e| Value::Integer(e.sums.sent[1].bytes))
        .is(Sum).row("server_bytes"),
    EdgeField::new("connections", Integer, "", "", "conversations that began: `begun` of lines", |e| Value::Integer(e.sums.connections))
        .is(Sum).row("connections"),
    EdgeField::new("ended", Integer, "", "", "conversations that ended", |e| Value::Integer(e.sums.ended))
        .is(Sum).row("ended"),
    EdgeField::new("failures.refused", Integer, "", "", "attempts that were answered with RST", |e| Value::Integer(e.sums.refused))
        .is(Sum).row("refused"),
    EdgeField::new("failures.timed_out", Integer, "", "", "attempts that were not answered", |e| Value::Integer(e.sums.timed_out))
        .is(Sum).row("timed_out"),
    EdgeField::new("reset", Integer, "", "", "conversations that ended by RST after an answer", |e| Value::Integer(e.sums.reset))
        .is(Sum).row("reset"),
    EdgeField::new("retransmitted.client", Integer, "segments", "", "segments of the client that came again", |e| Value::Integer(e.sums.retransmitted[0]))
        .is(Sum).row("client_retransmitted"),
    EdgeField::new("retransmitted.server", Integer, "segments", "", "segments of the server that came again", |e| Value::Integer(e.sums.retransmitted[1]))
        .is(Sum).row("server_retransmitted"),
    EdgeField::new("rtt.count", Integer, "", NO_RTT, "conversations whose round-trip time is known", |e| rtt(e, Some(e.sums.rtt_count)))
        .is(Sum).row("rtt_count"),
    EdgeField::new("rtt.sum_us", Integer, "µs", NO_RTT, "sum of these times", |e| rtt(e, Some(e.sums.rtt_sum_us)))
        .is(Sum).row("rtt_sum_us"),
    EdgeField::new("rtt.min_us", Integer, "µs", NO_RTT, "the least", |e| rtt(e, Some(e.sums.rtt_min_us)))
        .is(Least).row("rtt_min_us"),
    EdgeField::new("rtt.max_us", Integer, "µs", NO_RTT, "the greatest", |e| rtt(e, Some(e.sums.rtt_max_us)))
        .is(Greatest).row("rtt_max_us"),
    EdgeField::new("rtt.p50_us", Integer, "µs", NO_RTT, "the first class of times, by µs, with which at least half of all is reached, but not below the least or above the greatest time", |e| rtt(e, e.quantiles[0]))
        .is(Anew).row("rtt_p50_us"),
    EdgeField::new("rtt.p95_us", Integer, "µs", NO_RTT, "the same of 95%", |e| rtt(e, e.quantiles[1]))
        .is(Anew).row("rtt_p95_us"),
    EdgeField::new("rtt.p99_us", Integer, "µs", NO_RTT, "the same of 99%", |e| rtt(e, e.quantiles[2]))
        .is(Anew).row("rtt_p99_us"),
    EdgeField::new("samples", Integer, "", "", "sampled packets that were summed up: with some the sums are estimates", |e| Value::Integer(e.sums.samples))
        .is(Sum).row("samples"),
    EdgeField::new("first", Time, "RFC 3339, UTC", "", "beginning of the first line's window", |e| Value::Time(e.sums.first_ns))
        .is(Least).row("first_ms"),
    EdgeField::new("last", Time, "RFC 3339, UTC", "", "end of the last line's window", |e| Value::Time(e.sums.last_ns))
        .is(Greatest).row("last_ms"),
    EdgeField::new("change", Text, "", "neither", "`new`: first seen in the last hour, and at least ten minutes after the graph was begun; `vanished`: not seen for five minutes, but in the hour before", |e| Value::or_absent(e.change, |change: Change| Value::Text(change.name())))
        .no_message(OF_A_WINDOW),
    EdgeField::new("rate.bits_per_second", Number, "bit/s", NO_RATE, "both directions over the last minute whose lines are complete", |e| rate(e, |recent| recent.bytes.saturating_mul(8)))
        .is(Latest).no_message(OF_A_WINDOW),
    EdgeField::new("rate.connections_per_second", Number, "1/s", NO_RATE, "conversations that began in it", |e| rate(e, |recent| recent.connections))
        .is(Latest).no_message(OF_A_WINDOW),
    EdgeField::new("rate.failures_per_second", Number, "1/s", NO_RATE, "attempts that failed in it", |e| rate(e, |recent| recent.failed))
        .is(Latest).no_message(OF_A_WINDOW),
];

fn name(endpoint: &Endpoint) -> Value<'_> {
    match endpoint {
        Endpoint::Service(name) => Value::Text(name),
        Endpoint::Address(_) => Value::Absent,
    }
}

fn address<'a>(endpoint: &Endpoint) -> Value<'a> {
    match endpoint {
        Endpoint::Service(_) => Value::Absent,
        Endpoint::Address(address) => Value::Ip(*address),
    }
}

fn rtt<'a>(edge: &Edge, us: Option<u64>) -> Value<'a> {
    Value::or_absent(us, Value::Integer).unless(edge.sums.rtt_count == 0)
}

fn rate<'a>(edge: &Edge, amount: impl Fn(&Recent) -> u64) -> Value<'a> {
    Value::or_absent(edge.recent, |recent| {
        let seconds = (recent.length_ns as f64 / SECOND as f64).max(1.0);
        Value::rounded(amount(&recent) as f64 / seconds)
    })
}

impl Serialize for Edge {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        skua_record::serialize(FIELDS, &self, serializer)
    }
}

/// The chapter on edges of `docs/records.md`.
pub fn documentation() -> String {
    "An edge is protocol, client, server and the service's port; its numbers are sums over\n[lines](#lines-of-collectors). [The graph of services](collector.md#the-graph-of-services) says where they come from. Rows in\nKafka are flat JSON: `window_ms`, the beginning of their window, and all of these; times in ms since the Unix epoch, and what does not apply is\nempty, or 0.\n\n".to_owned()
        + &skua_record::markdown(FIELDS)
}
