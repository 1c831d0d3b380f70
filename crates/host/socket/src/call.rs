//! Services and dependencies as users see them.

use std::{
    collections::{BTreeMap, HashMap},
    io,
    net::IpAddr,
};

use serde::{Serialize, Serializer};
pub use skua_record::FieldType;
use skua_record::NoOther;

use crate::{EdgeEnd, EdgeKey, OwnerId, Protocol, SocketStore, Sums, service::ServiceNames};

/// One side of calls.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct CallEnd {
    /// Container, unit or process; empty when not on this host, or not known.
    pub service: String,
    /// Its address, when there is one.
    pub address: Option<IpAddr>,
}

/// Calls summed up: of a service, or from a client to a server.
#[derive(Clone, PartialEq, Debug)]
pub struct Calls {
    /// The client; none in the sums of a server.
    pub client: Option<CallEnd>,
    /// The server; none in the sums of a client.
    pub server: Option<CallEnd>,
    /// Protocol.
    pub protocol: Protocol,
    /// Port that is called; none in the sums of a client.
    pub port: Option<u16>,
    /// Clients that are distinguished, for servers; servers, for clients.
    pub peers: Option<u64>,
    /// What was counted.
    pub sums: Sums,
}

impl Serialize for Calls {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        skua_record::serialize(FIELDS, &self, serializer)
    }
}

/// The record of calls.
pub struct CallRecord;

impl skua_record::Record for CallRecord {
    type Line<'a> = &'a Calls;
    type Other<'a> = NoOther;
    type Getter = for<'a, 'b> fn(&'b &'a Calls) -> Value<'a>;

    fn get<'a>(
        getter: Self::Getter,
        line: &Self::Line<'a>,
    ) -> skua_record::Value<'a, Self::Other<'a>> {
        getter(line)
    }
}

/// A field of the record of calls.
pub type Field = skua_record::Field<CallRecord>;

type Value<'a> = skua_record::Value<'a, NoOther>;

use FieldType::{Integer, Number, String as Text};

const OF_SERVERS: &str = "sums of a server";
const OF_CLIENTS: &str = "sums of a client";
const ELSEWHERE: &str = "on another host, or not known";
const NO_SAMPLE: &str = "no sample";
const NO_SEGMENTS: &str = "no segments sent";

/// All fields in the order in which they are written.
#[rustfmt::skip]
pub const FIELDS: &[Field] = &[
    Field::new("protocol", Text, "", "", "`tcp` or `udp`", |c| Value::Text(c.protocol.name())),
    Field::new("client.service", Text, "", ELSEWHERE, "service that calls: container, unit or process",
        |c| name(c.client.as_ref())),
    Field::new("client.address", Text, "", OF_SERVERS, "address of the client", |c| address(c.client.as_ref())),
    Field::new("server.service", Text, "", ELSEWHERE, "service that is called: container, unit or process",
        |c| name(c.server.as_ref())),
    Field::new("server.address", Text, "", "sums of a client, or of several addresses", "address that is called",
        |c| address(c.server.as_ref())),
    Field::new("port", Integer, "", OF_CLIENTS, "port that is called",
        |c| Value::or_absent(c.port, |port| Value::Integer(port.into()))),
    Field::new("peers", Integer, "", "dependencies", "of a server: clients that are counted apart, services of this host and addresses of others; of a client: servers",
        |c| Value::or_absent(c.peers, Value::Integer)),
    Field::new("connections", Integer, "connections", "", "connections and attempts, open ones included; UDP: sockets with a peer",
        |c| Value::Integer(c.sums.connections)),
    Field::new("open", Integer, "connections", "", "of them open now", |c| Value::Integer(c.sums.open)),
    Field::new("rate", Number, "connections/s", "", "connections begun per second between the last drains, at least 2 s; with `sockets.mode: aggregate` connections ended",
        |c| Value::rounded(c.sums.rate)),
    Field::new("failed", Integer, "connections", "", "attempts that failed: refused, without answer, unreachable, given up",
        |c| Value::Integer(c.sums.failed)),
    Field::new("refused", Integer, "connections", "", "of them answered with a RST; with `sockets.mode: aggregate` not distinguished",
        |c| Value::Integer(c.sums.refused)),
    Field::new("timed_out", Integer, "connections", "", "no answer in time, to the attempt or later to data; with `sockets.mode: aggregate` not distinguished",
        |c| Value::Integer(c.sums.timed_out)),
    Field::new("reset", Integer, "connections", "", "established and then reset, by either side",
        |c| Value::Integer(c.sums.reset)),
    Field::new("bytes.to_server", Integer, "bytes", "", "payload from clients to servers (TCP)",
        |c| Value::Integer(c.sums.to_server)),
    Field::new("bytes.to_client", Integer, "bytes", "", "payload from servers to clients (TCP)",
        |c| Value::Integer(c.sums.to_client)),
    Field::new("rtt.samples", Integer, "connections", NO_SAMPLE, "connections with a round-trip time",
        |c| Value::nonzero(c.sums.rtt.count)),
    Field::new("rtt.min", Integer, "µs", NO_SAMPLE, "smallest smoothed round-trip time of a connection",
        |c| sampled(c, |c| Value::Integer(c.sums.rtt.min_us.into()))),
    Field::new("rtt.mean", Number, "µs", NO_SAMPLE, "their mean",
        |c| sampled(c, |c| { Value::rounded(c.sums.rtt.sum_us as f64 / c.sums.rtt.count as f64) })),
    Field::new("rtt.p50", Number, "µs", NO_SAMPLE, "half of the connections are below; taken from a histogram whose classes double, so it may be off by up to a factor of 2",
        |c| Value::or_absent(c.sums.rtt.quantile(0.5), Value::rounded)),
    Field::new("rtt.p95", Number, "µs", NO_SAMPLE, "95% are below; from the same histogram",
        |c| Value::or_absent(c.sums.rtt.quantile(0.95), Value::rounded)),
    Field::new("rtt.p99", Number, "µs", NO_SAMPLE, "99% are below; from the same histogram",
        |c| Value::or_absent(c.sums.rtt.quantile(0.99), Value::rounded)),
    Field::new("rtt.max", Integer, "µs", NO_SAMPLE, "the greatest",
        |c| sampled(c, |c| Value::Integer(c.sums.rtt.max_us.into()))),
    Field::new("segments.sent", Integer, "segments", NO_SEGMENTS, "segments sent by this host's sockets",
        |c| Value::nonzero(c.sums.segments)),
    Field::new("segments.retransmitted", Integer, "segments", NO_SEGMENTS, "of them sent again",
        |c| Value::Integer(c.sums.retransmits).unless(c.sums.segments == 0)),
    Field::new("segments.share", Number, "", NO_SEGMENTS, "share that was sent again, 0 to 1",
        |c| Value::or_absent(c.sums.retransmit_share(), |share| { Value::Number((share * 1e6).round() / 1e6) })),
    Field::new("first", Text, "RFC 3339, UTC", "older than the agent", "first begin", |c| time(c.sums.first_ns)),
    Field::new("last", Text, "RFC 3339, UTC", "no connection yet", "last end, or when an open connection was last read",
        |c| time(c.sums.last_ns)),
];

fn name(end: Option<&CallEnd>) -> Value<'_> {
    Value::nonempty(end.map_or("", |end| &end.service))
}

fn address(end: Option<&CallEnd>) -> Value<'_> {
    Value::or_absent(end.and_then(|end| end.address), Value::Ip)
}

fn sampled<'a>(calls: &&'a Calls, value: impl FnOnce(&'a Calls) -> Value<'a>) -> Value<'a> {
    match calls.sums.rtt.count {
        0 => Value::Absent,
        _ => value(calls),
    }
}

fn time<'a>(ns: u64) -> Value<'a> {
    match ns {
        0 => Value::Absent,
        ns => Value::Time(ns),
    }
}

/// Writes the CSV header: the paths with `_` for `.`.
///
/// # Errors
///
/// Those of `out`.
pub fn write_csv_header(out: &mut impl io::Write) -> io::Result<()> {
    skua_record::write_csv_header(FIELDS, out)
}

/// Writes calls as a CSV row; fields that do not apply are empty.
///
/// # Errors
///
/// Those of `out`.
pub fn write_csv_row(out: &mut impl io::Write, calls: &Calls) -> io::Result<()> {
    skua_record::write_csv_row(FIELDS, out, &calls)
}

/// The chapter on services and dependencies of `docs/records.md`.
pub fn documentation() -> String {
    DOCUMENTATION.to_owned() + &skua_record::markdown(FIELDS)
}

const DOCUMENTATION: &str = "\
Connections summed up since the agent began: those of a server (what listens on a port), those of a
client, or (`skua services --dependencies`) those of a client to a server. A connection between two
sockets of this host is counted once, from the client's side.

";

/// JSON Schema (2020-12) of calls.
pub fn json_schema() -> serde_json::Value {
    skua_record::json_schema("Skua calls", FIELDS)
}

/// What calls are summed up by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CallsBy {
    /// What is called: service and port.
    Server,
    /// By client.
    Client,
    /// Both.
    Dependency,
}

/// Calls as they are now, in no order.
pub fn calls(store: &mut SocketStore, names: &dyn ServiceNames, by: CallsBy) -> Vec<Calls> {
    let edges = store.dependencies(names);
    match by {
        CallsBy::Dependency => edges
            .into_iter()
            .map(|(key, sums)| Calls {
                client: Some(end(store, key.client, None)),
                server: Some(end(store, key.server, Some(key.address))),
                protocol: key.protocol,
                port: Some(key.port),
                peers: None,
                sums,
            })
            .collect(),
        CallsBy::Server => servers(store, names, edges),
        CallsBy::Client => clients(store, edges),
    }
}

fn end(store: &SocketStore, end: EdgeEnd, called: Option<IpAddr>) -> CallEnd {
    let (service, address) = match end {
        EdgeEnd::Service(number) => (store.service_name(number).to_owned(), called),
        EdgeEnd::Address(address) => (String::new(), Some(address)),
        EdgeEnd::Others => ("(others)".to_owned(), None),
    };
    CallEnd { service, address }
}

/// Sums under one name.
#[derive(Default)]
struct Group {
    sums: Sums,
    peers: u64,
    /// The only address that is called; none when there are several.
    address: Option<Option<IpAddr>>,
}

impl Group {
    fn called(&mut self, address: IpAddr) {
        self.address = match self.address {
            None => Some(Some(address)),
            Some(known) => Some(known.filter(|known| *known == address)),
        };
    }
}

/// By service and port, including those without calls. Only those on this host: others are dependencies.
fn servers(
    store: &SocketStore,
    names: &dyn ServiceNames,
    edges: HashMap<EdgeKey, Sums>,
) -> Vec<Calls> {
    let mut groups: BTreeMap<(String, Protocol, u16), Group> = BTreeMap::new();
    for record in store.open().filter(|r| r.listens()) {
        if store.service_of(record).is_none() {
            continue;
        }
        let name = record
            .owner
            .and_then(|owner: OwnerId| names.service(owner))
            .unwrap_or_default();
        groups
            .entry((name.to_owned(), record.protocol, record.local.port()))
            .or_default()
            .called(record.local.ip());
    }
    for (key, sums) in edges {
        let EdgeEnd::Service(number) = key.server else {
            continue;
        };
        let name = store.service_name(number).to_owned();
        let group = groups.entry((name, key.protocol, key.port)).or_default();
        group.sums.add(&sums);
        group.peers += 1;
    }
    groups
        .into_iter()
        .map(|((service, protocol, port), group)| Calls {
            client: None,
            server: Some(CallEnd {
                service,
                address: group.address.flatten(),
            }),
            protocol,
            port: Some(port),
            peers: Some(group.peers),
            sums: group.sums,
        })
        .collect()
}

/// By client.
fn clients(store: &SocketStore, edges: HashMap<EdgeKey, Sums>) -> Vec<Calls> {
    let mut groups: BTreeMap<(CallEnd, Protocol), Group> = BTreeMap::new();
    for (key, sums) in edges {
        let client = end(store, key.client, None);
        let group = groups.entry((client, key.protocol)).or_default();
        group.sums.add(&sums);
        group.peers += 1;
    }
    groups
        .into_iter()
        .map(|((client, protocol), group)| Calls {
            client: Some(client),
            server: None,
            protocol,
            port: None,
            peers: Some(group.peers),
            sums: group.sums,
        })
        .collect()
}
